//! Acts on queues that the audit writes down.

use quintet_client::Did;
use quintet_types::{
    About, BatchRequest, Command, Edit, Outcome, Pattern, Subject, TableRequest, Verb,
};
use quintet_wire::{HostRequest, ServerResponse};

/// The audit line of an operation on queues.
#[derive(Debug)]
pub(super) struct Administers {
    pub(super) act: &'static str,
    pub(super) what: String,
    /// It is done in steps, and whether this is one after the first.
    pub(super) step: Option<bool>,
}

/// Whether the audit has a command of this client (`operator`: over the control socket).
/// A new verb has to say it here.
fn is_written_down(command: &Command, verb: Verb, operator: bool) -> bool {
    match verb {
        Verb::Flush | Verb::FlushExpired | Verb::Drop | Verb::Join | Verb::Pause | Verb::Move => {
            true
        }
        Verb::DropQueues => !matches!(command, Command::DropQueues { dry_run: true, .. }),
        // Made by everybody who puts, too.
        Verb::Configure => operator || !matches!(command, Command::Create { .. }),
        Verb::Edit => {
            matches!(command, Command::Edit(_, edit) if changes_more_than_notes(edit))
        }
        Verb::Kick => matches!(command, Command::BulkOp(_)),
        Verb::Table => matches!(command, Command::Table(TableRequest::Drop(_))),
        Verb::Batch => matches!(command, Command::Batch(BatchRequest::Forget(_))),
        // Everyday work, for clients of a protocol, and what a hook decided.
        Verb::Put
        | Verb::Take
        | Verb::Peek
        | Verb::StopWaiting
        | Verb::Refer
        | Verb::Settle
        | Verb::Touch
        | Verb::Reserve
        | Verb::Delete
        | Verb::Commit
        | Verb::BurnId
        | Verb::Restore
        | Verb::Transaction
        | Verb::Stats => false,
    }
}

impl Administers {
    /// True if it was as it should be: a client says so with each request.
    pub(super) fn is_nothing(&self, response: &ServerResponse) -> bool {
        self.act == Verb::Join.name()
            && matches!(response, ServerResponse::Engine(Outcome::Done, _))
    }
}

/// The audit line of an operation on queues; `None`: it is everyday work, which for clients of a
/// protocol is more than for the `operator`.
pub(super) fn administers(
    command: &Command,
    what: About<'_>,
    operator: bool,
) -> Option<Administers> {
    if !is_written_down(command, what.verb, operator) {
        return None;
    }
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
    let step = if let Command::BulkOp(bulk_op) = command {
        Some(bulk_op.after.is_some())
    } else if let Command::DropQueues { from, .. } = command {
        Some(*from != (0, 0))
    } else {
        None
    };
    let resumes = matches!(
        command,
        Command::Pause {
            for_ms: Some(0),
            ..
        } | Command::Hold {
            key: None,
            for_ms: 0,
            ..
        }
    );
    let act = if resumes {
        "resume"
    } else if matches!(command, Command::Hold { key: Some(_), .. }) {
        "hold_key"
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

/// True for what is written down for every requester.
pub(super) fn changes_server(ask: &HostRequest) -> bool {
    match ask {
        HostRequest::Reload
        | HostRequest::Shutdown
        | HostRequest::Config
        | HostRequest::Noted(..)
        | HostRequest::Listener => true,
        HostRequest::Stats | HostRequest::Foreign(_) => false,
    }
}

pub(super) fn subject_of(ask: &HostRequest) -> String {
    match ask {
        HostRequest::Noted(_, what) => what.to_string(),
        HostRequest::Reload
        | HostRequest::Shutdown
        | HostRequest::Listener
        | HostRequest::Stats
        | HostRequest::Config
        | HostRequest::Foreign(_) => String::new(),
    }
}

/// The result of an act on queues, as the audit tells it.
pub(super) fn did_of(act: &Administers, response: &ServerResponse) -> Did {
    let mut did = Did::default();
    // A new child's count is of queues.
    if act.act == Verb::Join.name() {
        return did;
    }
    if let ServerResponse::Engine(outcome, _) = response {
        if let Outcome::Put { id, .. } = outcome {
            did.new_id = Some(id.0);
        } else if let Outcome::Count(count) = outcome {
            did.messages = Some(*count);
        } else if let Outcome::BulkDone(bulk_done) = outcome {
            did.messages = Some(bulk_done.matched);
        } else if let Outcome::Dropped(dropped) = outcome {
            did.messages = Some(dropped.messages);
        }
    }
    did
}

/// The result in the audit line.
pub(super) fn result_of(response: &ServerResponse) -> &'static str {
    match response {
        ServerResponse::Engine(Outcome::Refused(command_error), _) => command_error.code(),
        ServerResponse::Host(Err(_)) | ServerResponse::Login(Err(_)) => "refused",
        ServerResponse::Engine(..)
        | ServerResponse::Server(_)
        | ServerResponse::Host(Ok(_))
        | ServerResponse::Login(Ok(()))
        | ServerResponse::Worker(_)
        | ServerResponse::Own => "ok",
    }
}
