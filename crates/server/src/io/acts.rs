//! Acts on queues that the audit writes down.

use quintet_engine::{Command, Edit, Pattern};

/// What an act on queues is written down with.
#[derive(Debug)]
pub(super) struct Administers {
    pub(super) act: &'static str,
    pub(super) what: String,
    /// It is done in steps, and whether this is one after the first.
    pub(super) step: Option<bool>,
}

/// What an act on queues is written down with; `None`: it is everyday work,
/// which for clients of a protocol is more than for the `operator`.
pub(super) fn administers(command: &Command, operator: bool) -> Option<Administers> {
    let by_hand = operator
        && matches!(
            command,
            Command::Delete { .. } | Command::Kick { .. } | Command::KickId(_)
        );
    let administers = matches!(
        command,
        Command::Flush { .. }
            | Command::FlushAll
            | Command::FlushExpired(_)
            | Command::Drop(_)
            | Command::DropQueues { dry_run: false, .. }
            | Command::Configure { .. }
            | Command::Pause { .. }
            | Command::Move { .. }
            | Command::MoveAll { .. }
    ) || matches!(command, Command::Edit(_, edit) if operator || changes_more_than_notes(edit))
        || matches!(command, Command::Sweep(sweep) if sweep.act.changes());
    if !administers && !by_hand {
        return None;
    }
    let what = command.about();
    let queues: Vec<String> = what.subject.queues().map(ToString::to_string).collect();
    let mut shown = queues.join(" ");
    if let Command::DropQueues { pattern, .. } = command {
        shown = match pattern {
            Pattern::Exact(name) => name.to_string(),
            Pattern::Glob(glob) => glob.escape_ascii().to_string(),
        };
    }
    if let Some(id) = what.subject.message() {
        shown = format!("{} {shown}", id.0);
    }
    let step = if let Command::Sweep(sweep) = command {
        Some(sweep.after.is_some())
    } else {
        None
    };
    Some(Administers {
        act: what.verb.name(),
        what: shown,
        step,
    })
}

/// True if it is more than what a client notes beside a message (faktory's
/// failures).
fn changes_more_than_notes(edit: &Edit) -> bool {
    let noted = Edit {
        attrs: edit.attrs.clone(),
        ..Edit::default()
    };
    *edit != noted
}
