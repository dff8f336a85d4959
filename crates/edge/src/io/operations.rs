//! Acts on queues that the audit writes down.

use quintet_client::Did;
use quintet_types::{BatchRequest, Command, Edit, Outcome, Pattern, Subject, TableRequest, Verb};
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
        | Command::Hold { .. }
        | Command::Redrive(_)
        | Command::Move { .. }
        | Command::Table(TableRequest::Drop(_))
        | Command::Batch(BatchRequest::Forget(_)) => true,
        Command::DropQueues { dry_run, .. } => !dry_run,
        Command::Edit(_, edit) => changes_more_than_notes(edit),
        Command::BulkOp(bulk_op) => bulk_op.action.changes(),
        // Made by everybody who puts, too.
        Command::Create { .. } => operator,
        // Everyday work, for clients of a protocol.
        Command::Delete { .. }
        | Command::Cancel(..)
        | Command::SettleHolding { .. }
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
        | Command::AwaitResult { .. }
        | Command::AwaitLease(_)
        | Command::Commit(_)
        | Command::Remembered { .. }
        | Command::BurnId
        | Command::Restore(_)
        // What a hook decided.
        | Command::Transaction(_)
        | Command::Table(TableRequest::Get { .. } | TableRequest::List { .. })
        | Command::Batch(
            BatchRequest::New(_)
            | BatchRequest::Number { .. }
            | BatchRequest::Open(_)
            | BatchRequest::Commit(_)
            | BatchRequest::Show(_)
            | BatchRequest::List { .. },
        )
        | Command::Stats(_) => false,
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
