//! Acts on queues that the audit writes down.

use quintet_door::Did;
use quintet_types::{BatchAsk, Command, Edit, Outcome, Pattern, Subject, TableAsk, Verb};
use quintet_wire::{Given, HostAsk};

/// The audit line of an operation on queues.
#[derive(Debug)]
pub(super) struct Administers {
    pub(super) act: &'static str,
    pub(super) what: String,
    /// It is done in steps, and whether this is one after the first.
    pub(super) step: Option<bool>,
}

/// Whether a command is written down, for whoever gives it (`operator`: over the control socket).
/// A new command has to say it here.
fn is_written_down(command: &Command, operator: bool) -> bool {
    match command {
        Command::Flush { .. }
        | Command::FlushAll
        | Command::FlushExpired(_)
        | Command::Drop(_)
        | Command::Configure { .. }
        | Command::Reconfigure { .. }
        | Command::Join { .. }
        | Command::Pause { .. }
        | Command::Redrive(_)
        | Command::Move { .. }
        | Command::MoveAll { .. }
        | Command::Table(TableAsk::Drop(_))
        | Command::Batch(BatchAsk::Forget(_)) => true,
        Command::DropQueues { dry_run, .. } => !dry_run,
        Command::Edit(_, edit) => changes_more_than_notes(edit),
        Command::Sweep(sweep) => sweep.act.changes(),
        // Made by everybody who puts, too.
        Command::Create { .. } => operator,
        // Everyday work, for clients of a protocol.
        Command::Delete { .. }
        | Command::Cancel(..)
        | Command::Kick { .. }
        | Command::KickId(_)
        | Command::Put(_)
        | Command::PutMany(_)
        | Command::Take(_)
        | Command::Watch(_)
        | Command::Rewatch(_)
        | Command::WatchQueue { .. }
        | Command::StopWaiting
        | Command::Refer { .. }
        | Command::Settle { .. }
        | Command::SettleHeld { .. }
        | Command::Touch(_)
        | Command::Extend { .. }
        | Command::Progress { .. }
        | Command::ByName(_)
        | Command::ReserveId { .. }
        | Command::Peek(_)
        | Command::Commit(_)
        | Command::Remembered { .. }
        | Command::BurnId
        | Command::Restore(_)
        // What a hook decided.
        | Command::Compound(_)
        | Command::Table(TableAsk::Get { .. } | TableAsk::List { .. })
        | Command::Batch(
            BatchAsk::New(_)
            | BatchAsk::Number { .. }
            | BatchAsk::Open(_)
            | BatchAsk::Commit(_)
            | BatchAsk::Show(_)
            | BatchAsk::List { .. },
        )
        | Command::Stats(_) => false,
    }
}

impl Administers {
    /// True if it was as it should be: a client says so with each request.
    pub(super) fn is_nothing(&self, given: &Given) -> bool {
        self.act == Verb::Join.name() && matches!(given, Given::Engine(Outcome::Done, _))
    }
}

/// The audit line of an operation on queues; `None`: it is everyday work, which for clients of a
/// protocol is more than for the `operator`.
pub(super) fn administers(command: &Command, operator: bool) -> Option<Administers> {
    if !is_written_down(command, operator) {
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
    if let Subject::Batch(batch) = what.subject {
        shown = batch.to_string();
    }
    if let Some(id) = what.subject.message() {
        shown = format!("{} {shown}", id.0).trim_end().to_owned();
    }
    let step = if let Command::Sweep(sweep) = command {
        Some(sweep.after.is_some())
    } else {
        None
    };
    let resumes = matches!(
        command,
        Command::Pause {
            for_ms: Some(0),
            ..
        }
    );
    let act = if resumes {
        "resume"
    } else if matches!(command, Command::Batch(_)) {
        "forget_batch"
    } else {
        what.verb.name()
    };
    Some(Administers {
        act,
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

/// True for what is written down whoever asks.
pub(super) fn changes_server(ask: &HostAsk) -> bool {
    match ask {
        HostAsk::Reload
        | HostAsk::Shutdown
        | HostAsk::Config
        | HostAsk::Noted(..)
        | HostAsk::Listener => true,
        HostAsk::Stats | HostAsk::Foreign(_) => false,
    }
}

/// Its subject.
pub(super) fn subject_of(ask: &HostAsk) -> String {
    match ask {
        HostAsk::Noted(_, what) => what.to_string(),
        HostAsk::Reload
        | HostAsk::Shutdown
        | HostAsk::Listener
        | HostAsk::Stats
        | HostAsk::Config
        | HostAsk::Foreign(_) => String::new(),
    }
}

/// The result of an act on queues, as the audit tells it.
pub(super) fn did_of(given: &Given) -> Did {
    let mut did = Did::default();
    if let Given::Engine(outcome, _) = given {
        if let Outcome::Put { id, .. } = outcome {
            did.new_id = Some(id.0);
        } else if let Outcome::Count(count) = outcome {
            did.messages = Some(*count);
        } else if let Outcome::Swept(swept) = outcome {
            did.messages = Some(swept.matched);
        } else if let Outcome::Dropped(dropped) = outcome {
            did.messages = Some(dropped.messages);
        }
    }
    did
}

/// The result in the audit line.
pub(super) fn result_of(given: &Given) -> &'static str {
    match given {
        Given::Engine(Outcome::Refused(refusal), _) => refusal.code(),
        Given::Host(Err(_)) | Given::Login(Err(_)) => "refused",
        Given::Engine(..)
        | Given::Server(_)
        | Given::Host(Ok(_))
        | Given::Login(Ok(()))
        | Given::Worker(_)
        | Given::Own => "ok",
    }
}
