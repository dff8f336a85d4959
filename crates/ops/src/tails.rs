//! The events of queues that clients follow (`quintet tail`), from the facts that shards decide.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memchr::memmem;
use quintet_client::{FOLLOWED_BODY, Followed, Happened, SEARCHED_BODIES};
use quintet_engine::{Engine, Fact};
use quintet_host::{Core, Observer, locked};
use quintet_types::{Body, Message, MessageId, Ms, Name, QueueId, Removal, Return, Transfer};

/// Queues that are followed at once.
const QUEUES: usize = 16;

/// Events of a queue that are kept. With the beginnings of bodies they take up to 1 MiB of memory
/// for each queue, beside [`SEARCHED_BODIES`].
const KEPT: usize = 1024;

/// Queues of a shard of which it is known whether they are followed: 256 KiB.
const NAMES: usize = 4096;

/// A queue is followed no longer when nobody has asked for so long.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// Time between looks whether that is so.
const LOOK: Duration = Duration::from_secs(1);

/// The followed queues.
#[derive(Default)]
pub struct Tails {
    inner: Mutex<Arc<Inner>>,
}

#[derive(Default)]
struct Inner {
    queues: Mutex<HashMap<Name, Tail>>,
    /// True if there are any.
    any: AtomicBool,
    /// Rises when other queues are followed than before.
    version: AtomicU64,
    /// The shards tell it, until nobody has asked for [`FORGOTTEN`].
    watches: AtomicBool,
    /// Nobody has: its watches leave their shards.
    over: AtomicBool,
}

struct Tail {
    events: VecDeque<Happened>,
    /// The number of the next event.
    next: u64,
    asked: Instant,
    /// Lengths and bodies by message, the oldest go first.
    bodies: BTreeMap<MessageId, (u64, Body)>,
    /// Bytes of these.
    bytes: usize,
}

impl Inner {
    /// Nobody has asked for long: the watches leave, and hear nothing until then.
    fn end_if_forgotten(&self, queues: &HashMap<Name, Tail>) {
        if queues.values().all(Tail::is_forgotten) {
            self.over.store(true, Ordering::SeqCst);
            self.any.store(false, Ordering::SeqCst);
        }
    }
}

impl Tails {
    /// As [`quintet_client::ClientApi::follow`].
    pub fn follow(
        &self,
        core: &Core,
        queue: &Name,
        after: u64,
        contains: &[u8],
    ) -> Option<Followed> {
        let inner = {
            let mut inner = locked(&self.inner);
            if inner.over.load(Ordering::SeqCst) {
                *inner = Arc::default();
            }
            if !inner.watches.swap(true, Ordering::SeqCst) {
                core.watch(|| Box::new(Watch::of(&inner)));
            }
            Arc::clone(&inner)
        };
        let mut queues = locked(&inner.queues);
        let before = queues.len();
        queues.retain(|name, tail| name == queue || !tail.is_forgotten());
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
        Some(tail.since(after, contains))
    }
}

impl Tail {
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            next: 1,
            asked: Instant::now(),
            bodies: BTreeMap::new(),
            bytes: 0,
        }
    }

    fn is_forgotten(&self) -> bool {
        self.asked.elapsed() >= FORGOTTEN
    }

    /// Events whose message has this text in its body.
    fn since(&self, after: u64, contains: &[u8]) -> Followed {
        let first = self.next - self.events.len() as u64;
        let from = match after {
            0 => self.next,
            after => after.min(self.next),
        };
        let left_out = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Followed {
            events: {
                let events = self.events.iter().skip(left_out);
                let found = events.filter(|event| self.contains(event, contains));
                found.cloned().collect()
            },
            next: self.next,
            missed: first.saturating_sub(from),
        }
    }

    fn contains(&self, event: &Happened, text: &[u8]) -> bool {
        let whole = self.bodies.get(&event.id);
        let whole = whole.and_then(|(_, body)| body.as_small());
        text.is_empty() || memmem::find(whole.unwrap_or(&event.body), text).is_some()
    }

    fn add(&mut self, mut event: Happened, body: Option<Body>) {
        if let Some(body) = body {
            let small = |body: &Body| body.as_small().unwrap_or_default().len();
            self.bytes += small(&body);
            let old = self.bodies.insert(event.id, (body.len(), body));
            self.bytes -= old.map_or(0, |(_, body)| small(&body));
            while self.bodies.len() > KEPT || self.bytes > SEARCHED_BODIES {
                let first = self.bodies.pop_first();
                self.bytes -= first.map_or(0, |(_, (_, body))| small(&body));
            }
        }
        if let Some((bytes, body)) = self.bodies.get(&event.id) {
            event.bytes = Some(*bytes);
            event.body = start_of(body).into();
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
    decided: VecDeque<(QueueId, Happened, Option<Body>)>,
    /// Events that had no room there.
    missed: u64,
    /// When it was looked whether anybody still asks.
    looked: Instant,
}

impl Watch {
    fn of(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            version: 0,
            names: HashMap::new(),
            decided: VecDeque::new(),
            missed: 0,
            looked: Instant::now(),
        }
    }

    fn note(&mut self, queue: QueueId, event: Happened, body: Option<&Body>) {
        if matches!(self.names.get(&queue), Some(None)) {
            return;
        }
        self.decided.push_back((queue, event, body.cloned()));
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
            self.note(queue, event, body_of(fact));
        }
        if let Fact::Moved { at, to, .. } = fact {
            self.note(*to, happened(at.id, "arrived", b""), None);
        }
    }

    fn passed(&mut self, fact: &Fact, name: &Name) {
        if !self.inner.any.load(Ordering::Relaxed) {
            return;
        }
        let Some(event) = event(fact) else {
            return;
        };
        let mut queues = locked(&self.inner.queues);
        self.inner.end_if_forgotten(&queues);
        if let Some(tail) = queues.get_mut(name) {
            let at = Ms(quintet_host::wall_ms());
            tail.add(Happened { at, ..event }, body_of(fact).cloned());
        }
    }

    fn batch_over(&mut self, engine: &Engine, _: u64) {
        let late = self.looked.elapsed() >= LOOK;
        if self.decided.is_empty() && !late {
            return;
        }
        let mut queues = locked(&self.inner.queues);
        if late {
            self.looked = Instant::now();
            self.inner.end_if_forgotten(&queues);
        }
        let at = Ms(quintet_host::wall_ms());
        for (queue, event, body) in self.decided.drain(..) {
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
                tail.add(Happened { at, ..event }, body);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.inner.over.load(Ordering::Relaxed)
    }
}

/// The body that a fact tells.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest tells none")]
fn body_of(fact: &Fact) -> Option<&Body> {
    match fact {
        Fact::Put(message) | Fact::Arrived { message, .. } | Fact::Restored(message) => {
            Some(&message.body)
        }
        _ => None,
    }
}

fn start_of(body: &Body) -> &[u8] {
    let bytes = body.as_small().unwrap_or_default();
    &bytes[..bytes.len().min(FOLLOWED_BODY)]
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
    Happened {
        bytes: Some(message.body.len()),
        body: start_of(&message.body).into(),
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
                (Return::Released | Return::Pending, Some(_)) => "failed",
                (Return::Released | Return::Pending, None) => "released",
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
        Removal::Cancelled => "cancelled",
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
        let put = |tail: &mut Tail, id: u64, body: Option<&[u8]>| {
            tail.add(happened(MessageId(id), "put", b""), body.map(Body::new));
        };
        assert_eq!(tail.since(0, b"").next, 1);
        put(&mut tail, 1, Some(b"body"));
        tail.add(happened(MessageId(1), "reserved", b""), None);
        let all = tail.since(1, b"");
        assert_eq!((all.events.len(), all.next, all.missed), (2, 3, 0));
        assert_eq!(&*all.events[1].body, b"body", "as it was put");
        assert_eq!(tail.since(2, b"").events.len(), 1);
        assert_eq!(tail.since(0, b"").events.len(), 0, "from now on");
        assert_eq!(tail.since(99, b"").next, 3, "of a server before this one");
        for id in 2..=2000 {
            put(&mut tail, id, None);
        }
        let rest = tail.since(3, b"");
        assert_eq!((rest.events.len(), rest.next), (KEPT, 2002));
        assert_eq!(rest.missed, 1999 - KEPT as u64);
    }

    #[test]
    fn a_text_is_looked_for_in_whole_bodies_of_the_newest_messages() {
        let mut tail = Tail::new();
        let mut long = vec![b'-'; 64 << 10];
        long.extend(b"needle");
        let put = |tail: &mut Tail, id: u64| {
            let event = happened(MessageId(id), "put", b"");
            tail.add(event, Some(Body::new(&long)));
        };
        put(&mut tail, 1);
        tail.add(happened(MessageId(1), "taken", b""), None);
        let found = tail.since(1, b"needle").events;
        assert_eq!(found.len(), 2, "the taken one's body is known");
        assert_eq!(found[1].body.len(), FOLLOWED_BODY);
        assert_eq!(tail.since(1, b"straw").events.len(), 0);
        for id in 2..200 {
            put(&mut tail, id);
        }
        assert!(tail.bytes <= SEARCHED_BODIES && tail.bodies.len() == 63);
        assert_eq!(tail.since(1, b"needle").events.len(), 63);
    }

    #[test]
    fn a_watch_leaves_when_nobody_asks_any_more() {
        let inner = Arc::new(Inner::default());
        inner.any.store(true, Ordering::SeqCst);
        let mut watch = Watch::of(&inner);
        let engine = Engine::new(0, 1, quintet_types::Settings::default());
        let mut ends = |asked: Instant| {
            let tail = Tail {
                asked,
                ..Tail::new()
            };
            locked(&inner.queues).insert(Name::new(b"q"), tail);
            watch.looked = asked;
            watch.batch_over(&engine, 1);
            watch.is_done()
        };
        assert!(!ends(Instant::now()));
        let long_ago = Instant::now().checked_sub(FORGOTTEN);
        assert!(ends(long_ago.expect("the machine runs for longer")));
    }
}
