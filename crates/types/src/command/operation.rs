//! Operations on queues, messages and the server, the same for all protocols: each has its name, the
//! right that it needs, and says whether the audit has a line of it.

use super::{Command, Edit, Verb};
use crate::batch::BatchRequest;

/// The right that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// The right to each of these verbs on its queue. The shards check a command by its own verb.
    Queue(&'static [Verb]),
    /// The right to operate the server and all queues.
    Server,
    /// The right to read the server's numbers over HTTP.
    Metrics,
}

macro_rules! operations {
    ($($operation:ident = $name:literal, $needed:expr, $recorded:literal;)*) => {
        /// An operation, as rights and the audit know it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Operation {
            $(#[doc = concat!("`", $name, "`.")] $operation,)*
        }

        impl Operation {
            /// All there are, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$operation),*];

            /// Its name in the audit.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$operation => $name,)*
                }
            }

            /// The right that it needs.
            pub const fn needs(self) -> Needed {
                match self {
                    $(Self::$operation => $needed,)*
                }
            }

            /// True if the audit has a line of it: it administers, or shows what is secret.
            pub const fn is_recorded(self) -> bool {
                match self {
                    $(Self::$operation => $recorded,)*
                }
            }
        }
    };
}

use Needed::{Metrics, Queue, Server};

operations! {
    // Everyday work: of clients' commands, then of addresses that are no commands.
    Work = "work", Queue(&[]), false;
    Put = "put", Queue(&[Verb::Put]), false;
    Commit = "commit", Queue(&[Verb::Commit]), false;
    Clone = "clone", Queue(&[Verb::Peek, Verb::Put]), false;
    Peek = "peek", Queue(&[Verb::Peek]), false;
    Stats = "stats", Queue(&[Verb::Stats]), false;
    Logout = "logout", Queue(&[]), false;
    Look = "look", Server, false;
    Metrics = "metrics", Metrics, false;
    // On a queue, or several.
    Create = "create", Queue(&[Verb::Configure]), true;
    Configure = "configure", Queue(&[Verb::Configure]), true;
    Join = "join", Queue(&[Verb::Join]), true;
    Pause = "pause", Queue(&[Verb::Pause]), true;
    Resume = "resume", Queue(&[Verb::Pause]), true;
    HoldKey = "hold_key", Queue(&[Verb::Pause]), true;
    Flush = "flush", Queue(&[Verb::Flush]), true;
    FlushExpired = "flush_expired", Queue(&[Verb::FlushExpired]), true;
    Kick = "kick", Queue(&[Verb::Kick]), true;
    Move = "move", Queue(&[Verb::Move]), true;
    Drop = "drop", Queue(&[Verb::Drop]), true;
    DropQueues = "drop_queues", Queue(&[Verb::DropQueues]), true;
    Mutate = "mutate", Queue(&[]), true;
    // On a queue with scripts of RQ.
    NewQueue = "new_queue", Server, true;
    DeleteQueue = "delete_queue", Server, true;
    // One of several on a queue, as its address or form says.
    OnQueue = "on_queue", Queue(&[]), true;
    // On a message, a lease or a batch.
    Edit = "edit", Queue(&[Verb::Edit]), true;
    Delete = "delete", Queue(&[Verb::Delete]), true;
    Destroy = "destroy", Queue(&[Verb::Delete]), true;
    Cancel = "cancel", Queue(&[Verb::Delete]), true;
    RunNow = "run_now", Queue(&[Verb::Kick]), true;
    Release = "release", Queue(&[Verb::Settle]), true;
    // Of a worker, with the end of its lease.
    Hold = "hold", Queue(&[Verb::Settle]), true;
    OnMessage = "on_message", Queue(&[]), true;
    ForgetBatch = "forget_batch", Queue(&[Verb::Batch]), true;
    // On the server.
    Login = "login", Queue(&[]), true;
    LoginEnded = "login ended", Queue(&[]), true;
    Config = "config", Server, true;
    Listener = "listener", Server, true;
    Reload = "reload", Server, true;
    Reloaded = "reloaded", Server, true;
    Drain = "drain", Server, true;
    Undrain = "undrain", Server, true;
    Shutdown = "shutdown", Server, true;
    Stop = "stop", Server, true;
    OnServer = "on_server", Server, true;
    CloseConnection = "close_connection", Server, true;
    ReleaseConnection = "release_connection", Server, true;
    SteerWorker = "steer_worker", Server, true;
    DefineSchedule = "define_schedule", Server, true;
    RemoveSchedule = "remove_schedule", Server, true;
    SteerSchedule = "steer_schedule", Server, true;
    MoveGroup = "cluster move", Server, true;
    DrainNode = "cluster drain", Server, true;
    UndrainNode = "cluster undrain", Server, true;
    HandOver = "cluster hand-over", Server, true;
    OnNode = "cluster", Server, true;
    // There is no such address.
    Unknown = "unknown", Server, true;
}

impl Operation {
    /// The operation of a command with this verb. [`Operation::Work`] includes queues that are
    /// made, as puts make them too, counts, and the transactions of hooks.
    pub fn of(command: &Command, verb: Verb) -> Self {
        let operation = verb.operation();
        if operation == Self::Work {
            return operation;
        }
        let is_work = if let Command::Hold { key: Some(_), .. } = command {
            return Self::HoldKey;
        } else if let Command::Pause {
            for_ms: Some(0), ..
        }
        | Command::Hold { for_ms: 0, .. } = command
        {
            return Self::Resume;
        } else if let Command::DropQueues { dry_run, .. } = command {
            *dry_run
        } else if let Command::Edit(_, edit) = command {
            notes_only(edit)
        } else if let Command::Batch(ask) = command {
            !matches!(ask, BatchRequest::Forget(_))
        } else {
            use Command::{Create, Kick, KickId};
            matches!(command, Create { .. } | Kick { .. } | KickId(_))
        };
        if is_work { Self::Work } else { operation }
    }
}

/// True if it is what a client notes beside a message (faktory's failures).
fn notes_only(edit: &Edit) -> bool {
    let noted = Edit {
        attrs: edit.attrs.clone(),
        ..Edit::default()
    };
    *edit == noted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_of_a_command_needs_the_right_of_its_verb() {
        for &verb in Verb::ALL {
            let operation = verb.operation();
            let Needed::Queue(verbs) = operation.needs() else {
                panic!("{verb:?} is of a queue");
            };
            assert!(verbs == [verb] || operation == Operation::Work, "{verb:?}");
        }
    }

    #[test]
    fn operations_have_different_names() {
        let mut names: Vec<&str> = Operation::ALL.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Operation::ALL.len());
    }
}
