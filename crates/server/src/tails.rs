//! The events of queues that clients follow (`quintet tail`), from the facts that shards decide.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use quintet_door::{FOLLOWED_BODY, Followed, Happened};
use quintet_engine::{
    Body, Engine, Fact, Message, MessageId, Ms, Name, QueueId, Removal, Return, Transfer,
};
use quintet_host::{Core, Observer, locked};

/// Queues that are followed at once.
const QUEUES: usize = 16;

/// Events of a queue that are kept, and messages of which the body is known. With bodies they take
/// up to 1 MiB of memory for each queue.
const KEPT: usize = 1024;

/// Queues of a shard of which it is known whether they are followed.
const NAMES: usize = 100_000;

/// A queue is followed no longer when nobody has asked for so long.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// The followed queues.
#[derive(Default)]
pub(crate) struct Tails {
    watches: OnceLock<()>,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    queues: Mutex<HashMap<Name, Tail>>,
    /// True if there are any.
    any: AtomicBool,
    /// Rises when other queues are followed than before.
    version: AtomicU64,
}

struct Tail {
    events: VecDeque<Happened>,
    /// The number of the next event.
    next: u64,
    asked: Instant,
    /// Bodies by message, the oldest go first.
    bodies: BTreeMap<MessageId, (u64, Box<[u8]>)>,
}

impl Tails {
    /// As [`quintet_door::Door::follow`].
    pub(crate) fn follow(&self, core: &Core, queue: &Name, after: u64) -> Option<Followed> {
        let inner = &self.inner;
        self.watches
            .get_or_init(|| core.watch(|| Box::new(Watch::of(inner))));
        let mut queues = locked(&inner.queues);
        let before = queues.len();
        queues.retain(|name, tail| name == queue || tail.asked.elapsed() < FORGOTTEN);
        let known = queues.contains_key(queue);
        if !known && queues.len() < QUEUES {
            queues.insert(queue.clone(), Tail::new());
        }
        if !known || queues.len() != before {
            inner.version.fetch_add(1, Ordering::SeqCst);
            inner.any.store(!queues.is_empty(), Ordering::SeqCst);
        }
        let tail = queues.get_mut(queue)?;
        tail.asked = Instant::now();
        Some(tail.since(after))
    }
}

impl Tail {
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            next: 1,
            asked: Instant::now(),
            bodies: BTreeMap::new(),
        }
    }

    fn since(&self, after: u64) -> Followed {
        let first = self.next - self.events.len() as u64;
        let from = match after {
            0 => self.next,
            after => after.min(self.next),
        };
        let left_out = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Followed {
            events: self.events.iter().skip(left_out).cloned().collect(),
            next: self.next,
            missed: first.saturating_sub(from),
        }
    }

    fn add(&mut self, mut event: Happened) {
        match event.bytes {
            Some(bytes) => {
                self.bodies.insert(event.id, (bytes, event.body.clone()));
                if self.bodies.len() > KEPT {
                    self.bodies.pop_first();
                }
            }
            None => {
                if let Some((bytes, body)) = self.bodies.get(&event.id) {
                    (event.bytes, event.body) = (Some(*bytes), body.clone());
                }
            }
        }
        self.events.push_back(event);
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
        self.next += 1;
    }
}

/// Hears the facts of one shard.
struct Watch {
    inner: Arc<Inner>,
    version: u64,
    /// Names of queues that are followed; nothing for others.
    names: HashMap<QueueId, Option<Name>>,
    /// Of the open batch.
    decided: VecDeque<(QueueId, Happened)>,
    /// Events that had no room there.
    missed: u64,
}

impl Watch {
    fn of(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            version: 0,
            names: HashMap::new(),
            decided: VecDeque::new(),
            missed: 0,
        }
    }

    fn note(&mut self, queue: QueueId, event: Happened) {
        if matches!(self.names.get(&queue), Some(None)) {
            return;
        }
        self.decided.push_back((queue, event));
        if self.decided.len() > KEPT {
            self.decided.pop_front();
            self.missed += 1;
        }
    }
}

impl Observer for Watch {
    fn decided(&mut self, fact: &Fact) {
        if !self.inner.any.load(Ordering::Relaxed) {
            return;
        }
        let version = self.inner.version.load(Ordering::SeqCst);
        if version != self.version || self.names.len() > NAMES {
            self.version = version;
            self.names.clear();
        }
        if let (Some(queue), Some(event)) = (fact.queue(), event(fact)) {
            self.note(queue, event);
        }
        if let Fact::Moved { at, to, .. } = fact {
            self.note(*to, happened(at.id, "arrived", b""));
        }
    }

    fn batch_over(&mut self, engine: &Engine, _: u64) {
        if self.decided.is_empty() {
            return;
        }
        let mut queues = locked(&self.inner.queues);
        let at = Ms(crate::trust::wall_ms());
        for (queue, event) in self.decided.drain(..) {
            let name = self.names.entry(queue).or_insert_with(|| {
                let name = engine.queue_name(queue);
                queues.contains_key(&name).then_some(name)
            });
            if let Some(tail) = name.as_ref().and_then(|name| queues.get_mut(name)) {
                let missed = std::mem::take(&mut self.missed);
                if missed > 0 {
                    // Numbers have no gap among the kept ones.
                    tail.events.clear();
                    tail.next += missed;
                }
                tail.add(Happened { at, ..event });
            }
        }
    }
}

fn happened(id: MessageId, what: &'static str, note: &[u8]) -> Happened {
    Happened {
        at: Ms(0),
        id,
        what,
        note: note.iter().copied().take(FOLLOWED_BODY).collect(),
        bytes: None,
        body: Box::default(),
    }
}

fn with_body(message: &Message, what: &'static str) -> Happened {
    let start = match &message.body {
        Body::Small(bytes) => &bytes[..bytes.len().min(FOLLOWED_BODY)],
        Body::Large(_) => b"",
    };
    Happened {
        bytes: Some(message.body.len()),
        body: start.into(),
        ..happened(message.id, what, b"")
    }
}

/// The event of a fact, for a client that follows its queue.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest happens to no message"
)]
fn event(fact: &Fact) -> Option<Happened> {
    Some(match fact {
        Fact::Put(message) => with_body(message, "put"),
        Fact::Arrived { message, .. } => with_body(message, "arrived"),
        Fact::Restored(message) => with_body(message, "released"),
        Fact::Leased { at, .. } | Fact::Reheld { at, .. } => happened(at.id, "reserved", b""),
        Fact::Released {
            at, why, failed, ..
        } => {
            let what = match (why, failed) {
                (Return::Timeout, _) => "timed_out",
                (Return::Lost, _) => "connection_lost",
                (Return::Released | Return::Withheld, Some(_)) => "failed",
                (Return::Released | Return::Withheld, None) => "released",
            };
            happened(at.id, what, failed.as_deref().unwrap_or_default())
        }
        Fact::Buried { at, reason, .. } => happened(at.id, "buried", reason),
        Fact::Kicked { at } => happened(at.id, "kicked", b""),
        Fact::Edited { at, .. } => happened(at.id, "edited", b""),
        Fact::Archived { at, .. } => happened(at.id, "finished", b""),
        Fact::Removed { at, why } => happened(at.id, of_removal(*why)?, b""),
        Fact::Moved { at, why, .. } | Fact::Sent { at, why, .. } => {
            let what = match why {
                Transfer::DeadLetter | Transfer::Failures => "dead_letter",
                Transfer::Expired => "expired",
                Transfer::Command | Transfer::Redriven => "moved",
            };
            happened(at.id, what, b"")
        }
        Fact::QueueFlushed { count, .. } | Fact::QueuePurged { count, .. } => happened(
            MessageId(0),
            "purged",
            format!("{count} messages").as_bytes(),
        ),
        _ => return None,
    })
}

/// `None`: it had ended before.
fn of_removal(why: Removal) -> Option<&'static str> {
    Some(match why {
        Removal::Taken => "taken",
        Removal::Finished => "finished",
        Removal::Deleted => "deleted",
        Removal::Expired => "expired",
        Removal::Discarded => "dropped",
        Removal::Replaced => "replaced",
        Removal::Failed => "failed",
        Removal::Doomed => "deleted",
        Removal::Retention => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_once_and_what_is_lost_is_counted() {
        let mut tail = Tail::new();
        let put = Happened {
            bytes: Some(4),
            body: b"body".as_slice().into(),
            ..happened(MessageId(1), "put", b"")
        };
        assert_eq!(tail.since(0).next, 1);
        tail.add(put);
        tail.add(happened(MessageId(1), "reserved", b""));
        let all = tail.since(1);
        assert_eq!((all.events.len(), all.next, all.missed), (2, 3, 0));
        assert_eq!(&*all.events[1].body, b"body", "as it was put");
        assert_eq!(tail.since(2).events.len(), 1);
        assert_eq!(tail.since(0).events.len(), 0, "from now on");
        assert_eq!(tail.since(99).next, 3, "of a server before this one");
        for id in 2..=2000 {
            tail.add(happened(MessageId(id), "put", b""));
        }
        let rest = tail.since(3);
        assert_eq!((rest.events.len(), rest.next), (KEPT, 2002));
        assert_eq!(rest.missed, 1999 - KEPT as u64);
    }
}
