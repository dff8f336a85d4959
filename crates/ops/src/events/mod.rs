//! Events of messages, as the durable log has them.
//!
//! A page of events is read from the log's files behind a position: nothing is kept for a reader,
//! and puts and takes do nothing for it. Facts name queues by numbers that a later queue may get,
//! so names come from the log too: each segment begins with those of all queues.

mod of_fact;
mod position;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use quintet_client::{
    EventKind, EventsPage, EventsRequest, MessageEvent, News, NoEvents, Since, WATCHED_MAX,
};
use quintet_engine::Fact;
use quintet_host::{
    Core, LogPlace, LoggedFact, NoFact, NotThere, Post, Required, SyncPolicy, locked,
};
use quintet_types::{Delivery, Ms, Name, Principal, QueueId};

use of_fact::{UnnamedEvent, event, lost};

/// Bytes of the log that are read for a page, but for one frame more.
const READ_BYTES: u64 = 4 << 20;
/// Bytes of a page's events at most, but for one event more.
const PAGE_BYTES: usize = 256 << 10;
/// Bytes of an event in JSON beside its texts, about.
const EVENT_BYTES: usize = 256;
/// Readers whose places are remembered with the names of queues there, and the names of all.
const READERS: usize = 16;
const NAMES: usize = 100_000;
/// Places that cannot be read which are logged, at most.
const DAMAGED: usize = 100;
/// Where nobody else syncs the log, readers have it synced this often at most.
const SYNC: Duration = Duration::from_secs(1);
/// A log that is retired as fast as its oldest place is looked for is asked so often.
const TRIES: usize = 5;

/// The reader of events. One page is read at a time.
#[derive(Default)]
pub struct EventLog {
    reading: Mutex<Reading>,
    waiters: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
    any: AtomicBool,
}

#[derive(Default)]
struct Reading {
    /// The latest used last.
    places: Vec<Names>,
    synced: Option<Instant>,
    /// Places that cannot be read, as they were logged.
    damaged: BTreeSet<LogPlace>,
}

/// The names of queues at a place of the log, by shard and number, and since when they have them.
#[derive(Clone, Default)]
struct Names {
    at: LogPlace,
    /// The same map for all places with the same queues.
    queues: Arc<HashMap<(u64, QueueId), (Name, Ms)>>,
}

impl Names {
    /// Goes past a fact. Behind a part that is lost, numbers may be those of other queues: names
    /// stay of queues that are the same to this day.
    fn pass(&mut self, core: &Core, logged: &LoggedFact<'_>) {
        if let Ok(Fact::QueueMade {
            queue,
            name,
            created,
            ..
        }) = logged.fact
        {
            let key = (logged.shard, *queue);
            let known = self.queues.get(&key);
            // Each segment begins with those that are known.
            if known.is_none_or(|(known, since)| known != name || since != created) {
                Arc::make_mut(&mut self.queues).insert(key, (name.clone(), *created));
            }
        } else if let Ok(Fact::QueueDropped { queue, .. }) = logged.fact {
            Arc::make_mut(&mut self.queues).remove(&(logged.shard, *queue));
        } else if logged.fact.is_err() {
            Arc::make_mut(&mut self.queues).retain(|(shard, queue), (name, since)| {
                core.is_queue(*shard, *queue, name, *since)
            });
        }
    }
}

/// Bytes of the durable log behind a position.
pub(crate) fn behind(core: &Core, position: &str) -> u64 {
    let at = position::read(position).map_or(0, |(_, at)| at.frame);
    core.durable_place().frame.saturating_sub(at)
}

/// Bytes of the log between two positions.
pub(crate) fn apart(from: &str, to: &str) -> u64 {
    let frame = |text| position::read(text).map_or(0, |(_, at)| at.frame);
    frame(to).saturating_sub(frame(from))
}

impl EventLog {
    /// As [`quintet_client::Operator::events`].
    ///
    /// # Errors
    /// As there.
    pub fn page(&self, core: &Core, request: &EventsRequest) -> Result<EventsPage, NoEvents> {
        let log = core.log_id();
        let gone = |retired| NoEvents::Gone {
            oldest: position::write(log, core.oldest_place()),
            retired,
        };
        let mut tries = 0;
        loop {
            let from = match &request.since {
                Since::Now => core.durable_place(),
                Since::Oldest => core.oldest_place(),
                Since::Position(text) => match position::read(text) {
                    Some((of, from)) if of == log => from,
                    Some(_) => return Err(gone(false)),
                    None => return Err(NoEvents::Malformed),
                },
            };
            let read = match request.since {
                Since::Now => Ok((Vec::new(), from)),
                Since::Oldest | Since::Position(_) => self.read(core, from, request),
            };
            let (events, next) = match read {
                Ok(read) => read,
                Err(NotThere::Retired) if request.since == Since::Oldest && tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Err(NotThere::Retired) => return Err(gone(true)),
                Err(NotThere::Unknown) => return Err(gone(false)),
                Err(NotThere::Failed(why)) => return Err(NoEvents::Failed(why)),
            };
            return Ok(EventsPage {
                events,
                next: position::write(log, next),
                more: next < core.durable_place(),
            });
        }
    }

    /// As [`quintet_client::Operator::await_events`].
    pub fn wait(&self, core: &Core, next: &str, news: &News) -> bool {
        self.register(news);
        // Looked at last: what becomes durable from here on is reported.
        position::read(next).is_none_or(|(_, at)| at < core.durable_place())
    }

    fn register(&self, news: &News) {
        let mut waiters = locked(&self.waiters);
        // Those who have gone are looked for where the list would grow, so seldom.
        if waiters.len() == waiters.capacity() {
            waiters.retain(|waiter| waiter.strong_count() > 0);
            let room = waiters.len().max(1);
            waiters.reserve(room);
        }
        waiters.push(Arc::downgrade(news));
        self.any.store(true, Ordering::SeqCst);
    }

    fn read(
        &self,
        core: &Core,
        from: LogPlace,
        request: &EventsRequest,
    ) -> Result<(Vec<MessageEvent>, LogPlace), NotThere> {
        let mut reading = locked(&self.reading);
        reading.sync(core);
        if from == core.durable_place() {
            return Ok((Vec::new(), from));
        }
        let mut names = reading.names_at(core, from)?;
        let mut page = Page {
            core,
            request,
            most: request.max.clamp(1, WATCHED_MAX) as usize,
            seen: HashMap::new(),
            events: Vec::new(),
            bytes: 0,
        };
        let next = core.facts_from(from, READ_BYTES, &mut |logged| {
            let is_taken = page.take(logged, &mut names);
            if is_taken && logged.fact == Err(NoFact::Unreadable) {
                reading.log_damage(logged.at);
            }
            is_taken
        })?;
        names.at = next;
        reading.keep(names);
        Ok((page.events, next))
    }

    fn notify(&self) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let waiters = {
            let mut waiters = locked(&self.waiters);
            self.any.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiters)
        };
        let there = waiters.iter().filter_map(Weak::upgrade);
        there.for_each(|news| news());
    }
}

/// Hears when the log becomes durable; no client is served by it.
impl Post for EventLog {
    fn post(&self, _: Delivery, _: Required) {}

    fn notify_written(&self) {}

    fn notify_durable(&self) {
        self.notify();
    }

    fn wake(&self) {}
}

impl Reading {
    /// Has the log synced where nobody else does, as only durable facts are reported.
    fn sync(&mut self, core: &Core) {
        let due = || self.synced.is_none_or(|at| at.elapsed() >= SYNC);
        if core.policy() == SyncPolicy::Never && due() {
            self.synced = Some(Instant::now());
            core.sync_soon();
        }
    }

    /// Logs a place that cannot be read, once.
    fn log_damage(&mut self, at: LogPlace) {
        if self.damaged.len() < DAMAGED && self.damaged.insert(at) {
            tracing::error!(
                "the log is damaged at position {}: events are missing there; \
                 `quintet check` shows the extent",
                at.frame
            );
        }
    }

    /// The names at a place: from where a reader was in its segment, else from its beginning.
    fn names_at(&mut self, core: &Core, from: LogPlace) -> Result<Names, NotThere> {
        let begins = core.segment_of(from)?;
        let near = self.places.iter().enumerate();
        let near = near.filter(|(_, names)| (begins..=from).contains(&names.at));
        let near = near.max_by_key(|(_, names)| names.at);
        let mut names = Names {
            at: begins,
            ..Names::default()
        };
        if let Some((index, _)) = near {
            // It stays for others, as the one used last.
            self.places[index..].rotate_left(1);
            if let Some(near) = self.places.last() {
                names = near.clone();
            }
        }
        if names.at < from {
            core.has_place(from)?;
            core.facts_from(names.at, u64::MAX, &mut |logged| {
                let is_before = logged.at < from;
                if is_before {
                    names.pass(core, logged);
                }
                is_before
            })?;
        }
        Ok(names)
    }

    fn keep(&mut self, names: Names) {
        self.places.retain(|one| one.at != names.at);
        self.places.push(names);
        while self.places.len() > 1 && (self.places.len() > READERS || self.names() > NAMES) {
            // Most readers are at the end of the log.
            let newest = self.places.iter().map(|one| one.at).max();
            let is_older = |one: &Names| Some(one.at) != newest;
            let oldest_used = self.places.iter().position(is_older).unwrap_or(0);
            self.places.remove(oldest_used);
        }
    }

    /// Names in memory: many places have the same.
    fn names(&self) -> usize {
        let maps = self
            .places
            .iter()
            .map(|one| (Arc::as_ptr(&one.queues), one.queues.len()));
        maps.collect::<HashMap<_, _>>().values().sum()
    }
}

/// A page being filled.
struct Page<'a> {
    core: &'a Core,
    request: &'a EventsRequest,
    most: usize,
    /// Whether queues may be seen.
    seen: HashMap<Name, bool>,
    events: Vec<MessageEvent>,
    bytes: usize,
}

impl Page<'_> {
    /// Takes a fact in, unless the page is full.
    fn take(&mut self, logged: &LoggedFact<'_>, names: &mut Names) -> bool {
        if self.events.len() >= self.most || self.bytes >= self.request.bytes.min(PAGE_BYTES) {
            return false;
        }
        // Each shard has its own.
        let again = logged.shard > 0 && matches!(logged.fact, Ok(Fact::Epoch { .. }));
        let unnamed = logged.fact.map_or_else(|why| Some(lost(why)), event);
        if let Some(unnamed) = unnamed.filter(|_| !again)
            && let Some(mut event) = self.shown(unnamed, logged.shard, names)
        {
            event.at = logged.time;
            self.bytes += EVENT_BYTES + bytes_of_texts(&event);
            self.events.push(event);
        }
        names.pass(self.core, logged);
        true
    }

    /// The event with the names that the reader may see; `None`: it is not for the reader.
    fn shown(&mut self, unnamed: UnnamedEvent, shard: u64, names: &Names) -> Option<MessageEvent> {
        let (request, mut event) = (self.request, unnamed.event);
        if event.kind == EventKind::Lost {
            return Some(event);
        }
        if !request.kinds.is_empty() && !request.kinds.contains(&event.kind) {
            return None;
        }
        let Some(queue) = unnamed.queue else {
            return (event.kind == EventKind::Restart && request.queues.is_empty())
                .then_some(event);
        };
        // A queue that was deleted has no name any more: that was reported.
        let (queue, _) = names.queues.get(&(shard, queue))?;
        let to = match unnamed.to {
            Some(to) => names.queues.get(&(shard, to)).map(|(name, _)| name.clone()),
            None => event.to.take(),
        };
        event.queue = Some(queue.clone()).filter(|queue| self.may_see(queue));
        event.to = to.filter(|to| self.may_see(to));
        let is_requested = |name: &Name| {
            let mut queues = request.queues.iter();
            request.queues.is_empty() || queues.any(|pattern| pattern.matches(name.as_bytes()))
        };
        let mut known = event.queue.iter().chain(&event.to);
        known.any(is_requested).then_some(event)
    }

    fn may_see(&mut self, queue: &Name) -> bool {
        let principal = self.request.principal;
        if principal == Principal::SERVER {
            return true;
        }
        if let Some(may) = self.seen.get(queue) {
            return *may;
        }
        let may = self.core.may_peek(principal, queue);
        self.seen.insert(queue.clone(), may);
        may
    }
}

/// Bytes of an event's texts in JSON, about.
fn bytes_of_texts(event: &MessageEvent) -> usize {
    let names = [&event.queue, &event.to].into_iter().flatten();
    let names = names.map(|name| name.as_bytes());
    let others = [&event.name, &event.error].into_iter().flatten();
    let texts = names.chain(others.map(|text| &**text));
    let escaped = |byte: &u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        // Perhaps no UTF-8.
        0x80.. => 3,
        _ => 1,
    };
    texts.flatten().map(escaped).sum()
}
