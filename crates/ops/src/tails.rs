//! The events of queues that clients follow (`quintet tail`), from the facts that shards decide.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memchr::memmem;
use quintet_client::{FOLLOWED_BODY, Followed, Happened};
use quintet_engine::{Engine, Fact};
use quintet_host::{Core, Observer, locked};
use quintet_types::{Body, Message, MessageId, Ms, Name, QueueId, Removal, Return, Transfer, cut};

/// Queues that are followed at once.
const QUEUES: usize = 16;

/// Events of a queue that are kept. With the beginnings of bodies they take up to 1 MiB of memory
/// for each queue, beside the setting `tail_memory` for whole bodies of all queues.
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
    any: AtomicBool,
    /// Rises when other queues are followed than before.
    version: AtomicU64,
    /// Bytes of whole bodies that may be kept, of all queues: the setting `tail_memory`.
    memory: AtomicUsize,
    /// The shards tell it, until nobody has asked for [`FORGOTTEN`].
    watches: AtomicBool,
    /// Nobody has: its watches leave their shards.
    over: AtomicBool,
}

struct Tail {
    events: VecDeque<Happened>,
    /// The number of the next event.
    next: u64,
    requested: Instant,
    /// Lengths and bodies by message, the oldest go first. Those that had no room are cut to their
    /// beginnings, as are those in the log: a handle would keep them on disk.
    bodies: BTreeMap<MessageId, (u64, Body)>,
    /// Bytes of those that are longer than a beginning.
    bytes: usize,
    /// Most of these bytes: the queue's share of `tail_memory`.
    room: usize,
    /// All bodies of lower ids are cut.
    cut: MessageId,
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
    /// As [`quintet_client::Operator::follow`]. `memory`: the setting `tail_memory`, bytes.
    pub fn follow(
        &self,
        core: &Core,
        queue: &Name,
        (after, contains): (u64, &[u8]),
        memory: usize,
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
        let candidates = {
            let mut queues = locked(&inner.queues);
            let before = queues.len();
            queues.retain(|name, tail| name == queue || !tail.is_forgotten());
            let known = queues.contains_key(queue);
            if !known && queues.len() < QUEUES {
                queues.insert(queue.clone(), Tail::new());
            }
            let others = !known || queues.len() != before;
            if others {
                inner.version.fetch_add(1, Ordering::SeqCst);
                inner.any.store(!queues.is_empty(), Ordering::SeqCst);
            }
            if inner.memory.swap(memory, Ordering::SeqCst) != memory || others {
                let room = memory / queues.len().max(1);
                queues.values_mut().for_each(|tail| tail.fit_into(room));
            }
            let tail = queues.get_mut(queue)?;
            tail.requested = Instant::now();
            tail.since(after)
        };
        // Shards wait for the queues, not for this search.
        Some(candidates.with(contains))
    }
}

/// Events of a queue before they are searched.
struct Candidates {
    /// Each with the whole body of its message, if that is kept.
    events: Vec<(Happened, Option<Body>)>,
    next: u64,
    missed: u64,
}

impl Candidates {
    /// Events whose message has this text in its body.
    fn with(self, text: &[u8]) -> Followed {
        let fits = |(event, whole): &(Happened, Option<Body>)| {
            let whole = whole.as_ref().and_then(Body::as_small);
            text.is_empty() || memmem::find(whole.unwrap_or(&event.body), text).is_some()
        };
        let events = self.events.into_iter().filter(fits);
        Followed {
            events: events.map(|(event, _)| event).collect(),
            next: self.next,
            missed: self.missed,
        }
    }
}

/// Bytes of a body that count.
fn whole(body: &Body) -> usize {
    let bytes = body.as_small().unwrap_or_default().len();
    if bytes > FOLLOWED_BODY { bytes } else { 0 }
}

impl Tail {
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            next: 1,
            requested: Instant::now(),
            bodies: BTreeMap::new(),
            bytes: 0,
            room: 0,
            cut: MessageId(0),
        }
    }

    fn is_forgotten(&self) -> bool {
        self.requested.elapsed() >= FORGOTTEN
    }

    /// The events since this number.
    fn since(&self, after: u64) -> Candidates {
        let first = self.next - self.events.len() as u64;
        let from = match after {
            0 => self.next,
            after => after.min(self.next),
        };
        let left_out = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let events = self.events.iter().skip(left_out);
        let body = |event: &Happened| self.bodies.get(&event.id).map(|(_, body)| body.clone());
        Candidates {
            events: events.map(|event| (event.clone(), body(event))).collect(),
            next: self.next,
            missed: first.saturating_sub(from),
        }
    }

    fn add(&mut self, mut event: Happened, body: Option<Body>) {
        if let Some(body) = body {
            self.keep(event.id, &body);
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

    /// So many events were not kept. Numbers have no gap among those that are.
    fn miss(&mut self, events: u64) {
        self.events.clear();
        self.next += events;
    }

    fn keep(&mut self, id: MessageId, body: &Body) {
        let bytes = body.len();
        let body = match body {
            Body::Small(_) => body.clone(),
            Body::Large(_) => Body::default(),
        };
        self.bytes += whole(&body);
        self.cut = self.cut.min(id);
        let old = self.bodies.insert(id, (bytes, body));
        self.bytes -= old.map_or(0, |(_, body)| whole(&body));
        if self.bodies.len() > KEPT {
            let first = self.bodies.pop_first();
            self.bytes -= first.map_or(0, |(_, (_, body))| whole(&body));
        }
        self.fit_into(self.room);
    }

    /// Cuts the oldest bodies until the others fit.
    fn fit_into(&mut self, room: usize) {
        self.room = room;
        let mut bodies = self.bodies.range_mut(self.cut..);
        while self.bytes > room
            && let Some((id, (_, body))) = bodies.next()
        {
            let bytes = whole(body);
            if bytes > 0 {
                *body = Body::new(start_of(body));
                self.bytes -= bytes;
            }
            self.cut = *id;
        }
    }
}

/// Names of queues that are followed; nothing for others.
type Names = HashMap<QueueId, Option<Name>>;

/// The tail of a queue, if it is followed.
fn tail_of<'a>(
    queues: &'a mut HashMap<Name, Tail>,
    names: &mut Names,
    engine: &Engine,
    queue: QueueId,
) -> Option<&'a mut Tail> {
    let name = names.entry(queue).or_insert_with(|| {
        let name = engine.queue_name(queue);
        queues.contains_key(&name).then_some(name)
    });
    queues.get_mut(name.as_ref()?)
}

/// Hears the facts of one shard.
struct Watch {
    inner: Arc<Inner>,
    version: u64,
    names: Names,
    /// Of the open batch.
    decided: VecDeque<(QueueId, Happened, Option<Body>)>,
    /// Bytes of bodies there that are longer than a beginning.
    bytes: usize,
    /// Events by queue that had no room there.
    missed: BTreeMap<QueueId, u64>,
    /// When it was looked whether anybody still asks.
    checked_at: Instant,
}

impl Watch {
    fn of(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            version: 0,
            names: HashMap::new(),
            decided: VecDeque::new(),
            bytes: 0,
            missed: BTreeMap::new(),
            checked_at: Instant::now(),
        }
    }

    fn note(&mut self, queue: QueueId, event: Happened, body: Option<&Body>) {
        if matches!(self.names.get(&queue), Some(None)) {
            return;
        }
        let room = self.inner.memory.load(Ordering::Relaxed);
        // Without its body it is known by its beginning.
        let body = body.filter(|body| self.bytes + whole(body) <= room);
        self.bytes += body.map_or(0, whole);
        self.decided.push_back((queue, event, body.cloned()));
        if self.decided.len() > KEPT
            && let Some((queue, _, body)) = self.decided.pop_front()
        {
            self.bytes -= body.as_ref().map_or(0, whole);
            *self.missed.entry(queue).or_default() += 1;
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
        let late = self.checked_at.elapsed() >= LOOK;
        if self.decided.is_empty() && !late {
            return;
        }
        let mut queues = locked(&self.inner.queues);
        if late {
            self.checked_at = Instant::now();
            self.inner.end_if_forgotten(&queues);
        }
        let at = Ms(quintet_host::wall_ms());
        let mut names = std::mem::take(&mut self.names);
        // They came before all that had room.
        while let Some((queue, missed)) = self.missed.pop_first() {
            if let Some(tail) = tail_of(&mut queues, &mut names, engine, queue) {
                tail.miss(missed);
            }
        }
        for (queue, event, body) in self.decided.drain(..) {
            if let Some(tail) = tail_of(&mut queues, &mut names, engine, queue) {
                tail.add(Happened { at, ..event }, body);
            }
        }
        self.names = names;
        self.bytes = 0;
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
    cut(bytes, FOLLOWED_BODY)
}

fn happened(id: MessageId, what: &'static str, note: &[u8]) -> Happened {
    Happened {
        id,
        what,
        note: cut(note, FOLLOWED_BODY).into(),
        ..Happened::default()
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
                (Return::Lost | Return::Unheard, _) => "connection_lost",
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
        Removal::Deleted | Removal::DeletedDone => "deleted",
        Removal::Expired => "expired",
        Removal::Discarded => "dropped",
        Removal::Replaced => "replaced",
        Removal::Failed => "failed",
        Removal::Cancelled => "cancelled",
        Removal::Doomed => "deleted",
        Removal::Purged | Removal::PurgedDone => "purged",
        Removal::Retention => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(tail: &Tail, after: u64, contains: &[u8]) -> Followed {
        tail.since(after).with(contains)
    }

    #[test]
    fn events_are_sent_once_and_lost_ones_are_counted() {
        let mut tail = Tail::new();
        let put = |tail: &mut Tail, id: u64, body: Option<&[u8]>| {
            tail.add(happened(MessageId(id), "put", b""), body.map(Body::new));
        };
        assert_eq!(since(&tail, 0, b"").next, 1);
        put(&mut tail, 1, Some(b"body"));
        tail.add(happened(MessageId(1), "reserved", b""), None);
        let all = since(&tail, 1, b"");
        assert_eq!((all.events.len(), all.next, all.missed), (2, 3, 0));
        assert_eq!(&*all.events[1].body, b"body", "as it was put");
        assert_eq!(since(&tail, 2, b"").events.len(), 1);
        assert_eq!(since(&tail, 0, b"").events.len(), 0, "from now on");
        assert_eq!(since(&tail, 99, b"").next, 3, "of a server before this one");
        for id in 2..=2000 {
            put(&mut tail, id, None);
        }
        let rest = since(&tail, 3, b"");
        assert_eq!((rest.events.len(), rest.next), (KEPT, 2002));
        assert_eq!(rest.missed, 1999 - KEPT as u64);
    }

    #[test]
    fn a_text_is_searched_in_whole_bodies_of_the_newest_messages() {
        const ROOM: usize = 4 << 20;
        let mut tail = Tail::new();
        tail.fit_into(ROOM);
        let mut long = vec![b'-'; 64 << 10];
        long.extend(b"needle");
        let put = |tail: &mut Tail, id: u64| {
            let event = happened(MessageId(id), "put", b"");
            tail.add(event, Some(Body::new(&long)));
        };
        put(&mut tail, 1);
        tail.add(happened(MessageId(1), "taken", b""), None);
        let found = since(&tail, 1, b"needle").events;
        assert_eq!(found.len(), 2, "the taken one's body is known");
        assert_eq!(found[1].body.len(), FOLLOWED_BODY);
        assert_eq!(since(&tail, 1, b"straw").events.len(), 0);
        for id in 2..200 {
            put(&mut tail, id);
        }
        assert_eq!(tail.bytes, 63 * long.len());
        assert_eq!(since(&tail, 1, b"needle").events.len(), 63);
        // Others have no more than their beginnings, with their lengths.
        tail.add(happened(MessageId(2), "taken", b""), None);
        let last = since(&tail, 1, b"").events.pop().expect("an event");
        let known = (last.bytes, last.body.len());
        assert_eq!(known, (Some(long.len() as u64), FOLLOWED_BODY));
        // Another queue is followed as well, or the setting is less.
        tail.fit_into(ROOM / 2);
        assert!(tail.bytes <= ROOM / 2 && tail.bytes > ROOM / 3);
        // One that comes back is of the oldest.
        put(&mut tail, 1);
        put(&mut tail, 200);
        assert!(tail.bytes <= ROOM / 2 && tail.bytes > ROOM / 3);
        assert_eq!(tail.bodies[&MessageId(1)].1.len(), FOLLOWED_BODY as u64);
        tail.fit_into(0);
        put(&mut tail, 201);
        assert_eq!((tail.bytes, tail.bodies.len()), (0, 201));
        let kept = tail
            .bodies
            .values()
            .all(|(_, body)| body.len() <= FOLLOWED_BODY as u64);
        assert!(kept, "whole bodies are dropped");
        assert!(!tail.bodies.is_empty() && since(&tail, 1, b"needle").events.is_empty());
    }

    #[test]
    fn a_long_batch_holds_few_bodies_and_counts_what_it_missed_by_queue() {
        let inner = Arc::new(Inner::default());
        inner.any.store(true, Ordering::SeqCst);
        inner.memory.store(1 << 20, Ordering::SeqCst);
        let mut watch = Watch::of(&inner);
        let long = Body::new(&[b'-'; 64 << 10]);
        let events = 2 * KEPT as u64;
        for id in 0..events {
            let queue = QueueId(u32::from(id % 4 == 0));
            let event = happened(MessageId(id), "put", b"");
            watch.note(queue, event, Some(&long));
        }
        let held = watch.decided.iter().filter(|(.., body)| body.is_some());
        assert!(held.count() <= 16, "{} bytes", watch.bytes);
        assert!(watch.bytes <= 1 << 20);
        let missed: Vec<u64> = watch.missed.values().copied().collect();
        assert_eq!(missed, [events * 3 / 8, events / 8]);
    }

    #[test]
    fn a_watch_ends_without_requests() {
        let inner = Arc::new(Inner::default());
        inner.any.store(true, Ordering::SeqCst);
        let mut watch = Watch::of(&inner);
        let engine = Engine::new(0, 1, quintet_types::Settings::default());
        let mut ends = |requested: Instant| {
            let tail = Tail {
                requested,
                ..Tail::new()
            };
            locked(&inner.queues).insert(Name::new(b"q"), tail);
            watch.checked_at = requested;
            watch.batch_over(&engine, 1);
            watch.is_done()
        };
        assert!(!ends(Instant::now()));
        let long_ago = Instant::now().checked_sub(FORGOTTEN);
        assert!(ends(long_ago.expect("the machine runs for longer")));
    }
}
