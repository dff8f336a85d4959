//! Operations of a connection's client: on the server, and those that the audit writes down.

use std::sync::atomic::Ordering;

use quintet_client::{Did, Operator};
use quintet_types::{
    About, Command, CommandError, Name, Needed, Operation, Outcome, Pattern, Principal, Subject,
};
use quintet_wire::{Foreign, HostRequest, ServerResponse};

use crate::edge::{Edge, Listening};

/// The audit line of an operation.
#[derive(Debug)]
pub(super) struct Administers {
    pub(super) operation: Operation,
    pub(super) what: String,
    /// It is done in steps, and whether this is one after the first.
    pub(super) step: Option<bool>,
}

impl Administers {
    /// Done at once.
    pub(super) fn new(operation: Operation, what: String) -> Self {
        Self {
            operation,
            what,
            step: None,
        }
    }

    /// Of a request to the server.
    pub(super) fn of_host(ask: &HostRequest) -> Self {
        let what = if let HostRequest::Noted(_, what) = ask {
            what.to_string()
        } else {
            String::new()
        };
        Self::new(ask.operation(), what)
    }

    /// True if it was as it should be: a client says so with each request.
    pub(super) fn is_nothing(&self, response: &ServerResponse) -> bool {
        self.operation == Operation::Join
            && matches!(response, ServerResponse::Engine(Outcome::Done, _))
    }
}

impl Edge {
    /// True if `principal` may ask the server for this.
    pub(super) fn may_ask(&self, ask: &HostRequest, principal: Principal) -> bool {
        ask.operation().needs() != Needed::Server || self.security.auth.may_server(principal)
    }

    /// The answer to a session of this listener.
    pub(super) fn answer(
        &self,
        ask: &HostRequest,
        operator: &dyn Operator,
        listening: &Listening,
        principal: Principal,
    ) -> ServerResponse {
        // A reload that is permitted is answered by mail.
        if *ask == HostRequest::Reload || !self.may_ask(ask, principal) {
            let refused = Outcome::Refused(CommandError::NotPermitted);
            return ServerResponse::Engine(refused, Name::default());
        }
        let text = match ask {
            HostRequest::Stats => {
                let mut stats = operator.stats();
                for thread in &self.threads {
                    let counts = &thread.protocols[listening.tally];
                    counts.tally.add_to(&mut stats.tally);
                }
                return ServerResponse::Server(Box::new(stats));
            }
            HostRequest::Foreign(foreign) => {
                if *foreign == Foreign::Tls {
                    self.spoke_tls.fetch_add(1, Ordering::Relaxed);
                }
                listening.report_foreign(*foreign);
                return ServerResponse::Own;
            }
            HostRequest::Config => Ok(operator.config()),
            HostRequest::Shutdown => operator.shutdown().map(|()| String::new()),
            HostRequest::Reload | HostRequest::Listener | HostRequest::Noted(..) => {
                Ok(String::new())
            }
        };
        ServerResponse::Host(text)
    }
}

/// The audit line of a command; `None`: it is everyday work.
pub(super) fn administers(command: &Command, what: About<'_>) -> Option<Administers> {
    let operation = Operation::of(command, what.verb);
    if !operation.is_recorded() {
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
    Some(Administers {
        operation,
        what: shown,
        step,
    })
}

/// The result of an act on queues, as the audit tells it.
pub(super) fn did_of(act: &Administers, response: &ServerResponse) -> Did {
    let mut did = Did::default();
    // A new child's count is of queues.
    if act.operation == Operation::Join {
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
