//! Facts as events.

use quintet_client::{EventKind, MessageEvent};
use quintet_engine::Fact;
use quintet_host::NoFact;
use quintet_types::{Message, MessageId, Name, QueueId, Removal, Return, State, Transfer, cut};

/// Bytes of an error in an event.
const ERROR_BYTES: usize = 1024;

/// An event before its queues have names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnnamedEvent {
    /// `None`: it is about no queue.
    pub(super) queue: Option<QueueId>,
    /// The queue it went to, in the same shard.
    pub(super) to: Option<QueueId>,
    pub(super) event: MessageEvent,
}

fn unnamed(queue: QueueId, id: MessageId, kind: EventKind, why: &'static str) -> UnnamedEvent {
    UnnamedEvent {
        queue: Some(queue),
        to: None,
        event: MessageEvent {
            kind,
            why,
            id: Some(id),
            ..MessageEvent::default()
        },
    }
}

impl UnnamedEvent {
    fn with_error(mut self, error: &[u8]) -> Self {
        if !error.is_empty() {
            self.event.error = Some(cut(error, ERROR_BYTES).into());
        }
        self
    }

    fn of_message(mut self, message: &Message) -> Self {
        self.event.bytes = Some(message.body.len());
        self.event.name = message.name().map(|name| Box::from(&**name));
        self
    }

    /// It happened to `count` messages of the queue.
    fn of_many(mut self, count: Option<u64>) -> Self {
        (self.event.id, self.event.count) = (None, count);
        self
    }

    fn going_to(mut self, queue: Option<QueueId>, name: Option<Name>) -> Self {
        (self.to, self.event.to) = (queue, name);
        self
    }
}

/// A part of the log is not there.
pub(super) fn lost(why: NoFact) -> UnnamedEvent {
    let why = match why {
        NoFact::CutOut => "",
        NoFact::Unreadable => "unreadable",
    };
    UnnamedEvent {
        queue: None,
        ..unnamed(QueueId(0), MessageId(0), EventKind::Lost, why).of_many(None)
    }
}

/// The event of a fact, without its time; `None`: nothing happened to a message that others would
/// want to hear of. What snapshots repeat is none.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest happens to no message"
)]
pub(super) fn event(fact: &Fact) -> Option<UnnamedEvent> {
    use EventKind as Kind;
    Some(match fact {
        // It is put when its producer commits it.
        Fact::Put(message) if message.state == State::Prepared => return None,
        Fact::Put(message) => unnamed(message.queue, message.id, Kind::Put, "").of_message(message),
        Fact::Committed { at } => unnamed(at.queue, at.id, Kind::Put, "committed"),
        Fact::Arrived { message, from } => {
            let mut unnamed = unnamed(message.queue, message.id, Kind::Moved, "arrived");
            unnamed.event.was = Some(*from);
            unnamed.of_message(message)
        }
        Fact::Restored(message) => unnamed(message.queue, message.id, Kind::Released, "undone"),
        Fact::Leased { at, .. } => unnamed(at.queue, at.id, Kind::Reserved, ""),
        Fact::Reheld { at, .. } => unnamed(at.queue, at.id, Kind::Reserved, "again"),
        Fact::Released {
            at, why, failed, ..
        } => {
            let kind = match failed {
                Some(_) => Kind::Failed,
                None => Kind::Released,
            };
            let why = match why {
                Return::Released => "released",
                Return::Timeout => "timeout",
                Return::Lost => "connection_lost",
                Return::Pending => "hook",
                Return::Unheard => "undelivered",
            };
            let error = failed.as_deref().unwrap_or_default();
            unnamed(at.queue, at.id, kind, why).with_error(error)
        }
        Fact::Kicked { at } => unnamed(at.queue, at.id, Kind::Released, "kicked"),
        Fact::Buried {
            at, dead, reason, ..
        } => {
            let why = if *dead { "attempts" } else { "buried" };
            unnamed(at.queue, at.id, Kind::Dead, why).with_error(reason)
        }
        Fact::Archived { at, .. } => unnamed(at.queue, at.id, Kind::Finished, "archived"),
        Fact::Removed { at, why } => {
            let (kind, why) = removal(*why);
            unnamed(at.queue, at.id, kind, why)
        }
        Fact::Moved { at, to, why, .. } => {
            let (kind, why) = transfer(*why);
            unnamed(at.queue, at.id, kind, why).going_to(Some(*to), None)
        }
        Fact::Sent { at, to, why, .. } => {
            let (kind, why) = transfer(*why);
            unnamed(at.queue, at.id, kind, why).going_to(None, Some(to.clone()))
        }
        Fact::QueueFlushed { queue, count, .. } => {
            unnamed(*queue, MessageId(0), Kind::Removed, "flushed").of_many(Some(*count))
        }
        Fact::QueuePurged { queue, count, .. } => {
            unnamed(*queue, MessageId(0), Kind::Removed, "purged").of_many(Some(*count))
        }
        Fact::QueueDropped { queue, .. } => {
            unnamed(*queue, MessageId(0), Kind::Removed, "queue_deleted").of_many(None)
        }
        Fact::Epoch { .. } => UnnamedEvent {
            queue: None,
            ..unnamed(QueueId(0), MessageId(0), Kind::Restart, "").of_many(None)
        },
        _ => return None,
    })
}

fn removal(why: Removal) -> (EventKind, &'static str) {
    match why {
        Removal::Taken => (EventKind::Finished, "taken"),
        Removal::Finished => (EventKind::Finished, ""),
        Removal::Deleted | Removal::DeletedDone => (EventKind::Removed, "deleted"),
        Removal::Expired => (EventKind::Expired, ""),
        Removal::Discarded => (EventKind::Removed, "queue_full"),
        Removal::Doomed => (EventKind::Removed, "queue_deleted"),
        Removal::Retention => (EventKind::Removed, "retention"),
        Removal::Replaced => (EventKind::Removed, "replaced"),
        Removal::Failed => (EventKind::Failed, "not_retried"),
        Removal::Cancelled => (EventKind::Cancelled, ""),
        Removal::Purged | Removal::PurgedDone => (EventKind::Removed, "purged"),
    }
}

fn transfer(why: Transfer) -> (EventKind, &'static str) {
    match why {
        Transfer::Command => (EventKind::Moved, ""),
        Transfer::Redriven => (EventKind::Moved, "redriven"),
        Transfer::DeadLetter => (EventKind::Dead, "attempts"),
        Transfer::Failures => (EventKind::Dead, "failures"),
        Transfer::Expired => (EventKind::Expired, "moved"),
    }
}
