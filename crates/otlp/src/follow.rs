//! From facts to spans. Time and span ids are given, so that this is tested
//! without either.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_client::trace::{TRACEPARENT, TRACESTATE, is_traceparent};
use quintet_engine::{Engine, Fact};
use quintet_host::Observer;
use quintet_types::{At, Message, MessageId, QueueId, Removal, Return, Transfer};

use crate::span::{Kind, Span, Spans};

/// Where times and ids come from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Wall clock, ns since 1970.
    pub now_ns: fn() -> u64,
    /// An id of a span: not 0, and never the same again.
    pub span_id: fn() -> [u8; 8],
}

impl Source {
    /// The machine's clock, and ids that nobody guesses.
    pub fn of_system() -> Self {
        static KEYS: OnceLock<RandomState> = OnceLock::new();
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            now_ns: || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                // A clock before 1970 shows nothing better.
                let ns = since.map_or(0, |since| since.as_nanos());
                u64::try_from(ns).unwrap_or(u64::MAX)
            },
            span_id: || {
                let keys = KEYS.get_or_init(RandomState::new);
                let id = keys.hash_one(LAST.fetch_add(1, Ordering::Relaxed));
                id.max(1).to_be_bytes()
            },
        }
    }
}

/// Follows the messages of one shard whose traces are sampled.
#[derive(Debug)]
pub struct Follower {
    source: Source,
    spans: Arc<Spans>,
    /// Messages that are followed at once.
    most: usize,
    known: HashMap<MessageId, Followed>,
    by_queue: HashMap<QueueId, HashSet<MessageId>>,
    /// Ended, and their queues, which have no names yet.
    ended: Vec<(QueueId, Span)>,
}

/// One message.
#[derive(Debug)]
struct Followed {
    trace: [u8; 16],
    /// Parent of its waits and runs: the put's span.
    parent: [u8; 8],
    state: Arc<str>,
    queue: QueueId,
    /// Since when it waits, or is held.
    since_ns: u64,
    held: bool,
    attempts: u32,
}

type Error = Option<(&'static str, String)>;

fn error(word: &'static str, text: &[u8]) -> Error {
    Some((word, String::from_utf8_lossy(text).into_owned()))
}

/// A sampled trace and the span above, of a message that brings them.
fn context(message: &Message) -> Option<([u8; 16], [u8; 8], Arc<str>)> {
    let attrs = &message.extra.as_ref()?.attrs;
    let text = |name: &str| {
        let found = attrs.iter().find(|(known, _)| **known == *name.as_bytes());
        found.and_then(|(_, value)| str::from_utf8(value).ok())
    };
    let parent = text(TRACEPARENT).filter(|text| is_traceparent(text))?;
    let mut parts = parent.split('-').skip(1);
    let trace = u128::from_str_radix(parts.next()?, 16).ok()?;
    let span = u64::from_str_radix(parts.next()?, 16).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state = text(TRACESTATE).unwrap_or_default();
    (flags & 1 == 1).then(|| (trace.to_be_bytes(), span.to_be_bytes(), state.into()))
}

impl Follower {
    /// Of a shard: follows so many messages at once; others have no spans, and
    /// count as dropped.
    pub fn new(spans: Arc<Spans>, source: Source, most: usize) -> Self {
        Self {
            source,
            spans,
            most,
            known: HashMap::new(),
            by_queue: HashMap::new(),
            ended: Vec::new(),
        }
    }

    /// A message begins to wait. `put`: it has a span of its own, which the
    /// others are below.
    fn comes(&mut self, message: &Message, put: bool) {
        let Some((trace, above, state)) = context(message) else {
            return;
        };
        if self.known.len() >= self.most {
            self.spans.counts.add_dropped();
            return;
        }
        let now = (self.source.now_ns)();
        let mut followed = Followed {
            trace,
            parent: above,
            state,
            queue: message.queue,
            since_ns: now,
            held: false,
            attempts: message.reserves,
        };
        if put {
            let id = (self.source.span_id)();
            let span = followed.span(Kind::Put, id, message.id, now, None);
            self.ended.push(span);
            followed.parent = id;
        }
        let queue = self.by_queue.entry(message.queue).or_default();
        queue.insert(message.id);
        self.known.insert(message.id, followed);
    }

    /// Its wait or its lease ends now, and another begins, which is held or not.
    fn turns(&mut self, id: MessageId, held: bool, error: Error) {
        let Some(followed) = self.known.get_mut(&id) else {
            return;
        };
        let now = (self.source.now_ns)();
        // What it goes through while it waits is one wait.
        if followed.held || held {
            let span_id = (self.source.span_id)();
            let span = followed.span(followed.kind(), span_id, id, now, error);
            self.ended.push(span);
            followed.since_ns = now;
        }
        followed.attempts += u32::from(held);
        followed.held = held;
    }

    /// It is gone from here. `told`: its wait or lease is a span too.
    fn goes(&mut self, id: MessageId, reported: bool, error: Error) {
        let Some(followed) = self.known.remove(&id) else {
            return;
        };
        self.leaves(followed.queue, id);
        if reported {
            let now = (self.source.now_ns)();
            let span_id = (self.source.span_id)();
            let span = followed.span(followed.kind(), span_id, id, now, error);
            self.ended.push(span);
        }
    }

    fn leaves(&mut self, queue: QueueId, id: MessageId) {
        if let Some(known) = self.by_queue.get_mut(&queue) {
            known.remove(&id);
            if known.is_empty() {
                self.by_queue.remove(&queue);
            }
        }
    }

    /// Ends the waiting messages of a queue up to an id, and with `purged` the reserved ones too.
    fn flushed(&mut self, queue: QueueId, through: MessageId, purged: bool) {
        let Some(all) = self.by_queue.get(&queue) else {
            return;
        };
        let goes = |id: &&MessageId| {
            let followed = self.known.get(id);
            **id <= through && followed.is_some_and(|followed| purged || !followed.held)
        };
        let gone: Vec<MessageId> = all.iter().filter(goes).copied().collect();
        for id in gone {
            self.goes(id, true, error("flushed", b""));
        }
    }

    fn moved(&mut self, at: At, to: QueueId, error: Error) {
        self.turns(at.id, false, error);
        if let Some(followed) = self.known.get_mut(&at.id) {
            let from = std::mem::replace(&mut followed.queue, to);
            self.leaves(from, at.id);
            self.by_queue.entry(to).or_default().insert(at.id);
        }
    }
}

impl Followed {
    /// The kind of span that ends when the message is taken, goes back or is gone.
    fn kind(&self) -> Kind {
        match self.held {
            true => Kind::Run,
            false => Kind::Wait,
        }
    }

    /// A span that ends now, and its queue.
    fn span(
        &self,
        kind: Kind,
        id: [u8; 8],
        message: MessageId,
        now_ns: u64,
        error: Error,
    ) -> (QueueId, Span) {
        let span = Span {
            kind,
            trace: self.trace,
            id,
            parent: self.parent,
            state: Arc::clone(&self.state),
            queue: quintet_types::Name::default(),
            message,
            start_ns: self.since_ns.min(now_ns),
            end_ns: now_ns,
            attempt: self.attempts,
            error,
        };
        (self.queue, span)
    }
}

fn of_removal(why: Removal) -> Error {
    match why {
        Removal::Taken | Removal::Finished => None,
        Removal::Deleted | Removal::DeletedDone => error("deleted", b""),
        Removal::Purged | Removal::PurgedDone => error("purged", b""),
        Removal::Expired => error("expired", b""),
        Removal::Discarded => error("discarded", b""),
        Removal::Replaced => error("replaced", b""),
        Removal::Failed => error("failed", b""),
        Removal::Cancelled => error("cancelled", b""),
        Removal::Doomed => error("queue_dropped", b""),
        Removal::Retention => None,
    }
}

fn of_return(why: Return, failed: Option<&[u8]>) -> Error {
    match (why, failed) {
        (Return::Timeout, text) => error("timeout", text.unwrap_or_default()),
        (Return::Lost, text) => error("connection_lost", text.unwrap_or_default()),
        (Return::Released | Return::Pending | Return::Unheard, Some(text)) => error("failed", text),
        (Return::Released | Return::Pending | Return::Unheard, None) => None,
    }
}

fn of_transfer(why: Transfer) -> Error {
    match why {
        Transfer::Command | Transfer::Redriven => None,
        Transfer::DeadLetter => error("attempts_max", b""),
        Transfer::Failures => error("retry_max", b""),
        Transfer::Expired => error("expired", b""),
    }
}

impl Observer for Follower {
    fn decided(&mut self, fact: &Fact) {
        match fact {
            Fact::Put(message) => self.comes(message, true),
            Fact::Restored(message) | Fact::Arrived { message, from: _ } => {
                self.comes(message, false);
            }
            _ if self.known.is_empty() => {}
            Fact::Leased { at, lease: _ } | Fact::Reheld { at, lease: _ } => {
                self.turns(at.id, true, None)
            }
            Fact::Released {
                at, why, failed, ..
            } => self.turns(at.id, false, of_return(*why, failed.as_deref())),
            Fact::Buried { at, reason, .. } => self.turns(at.id, false, error("buried", reason)),
            Fact::Pending { at, .. } => self.turns(at.id, false, None),
            Fact::Removed { at, why } => {
                self.goes(at.id, *why != Removal::Retention, of_removal(*why));
            }
            Fact::Archived { at, .. } => self.goes(at.id, true, None),
            Fact::Moved { at, to, why, .. } => self.moved(*at, *to, of_transfer(*why)),
            Fact::Sent { at, why, .. } => self.goes(at.id, true, of_transfer(*why)),
            Fact::QueueFlushed { queue, through, .. }
            | Fact::QueueDropped { queue, through, .. } => self.flushed(*queue, *through, false),
            Fact::QueuePurged { queue, through, .. } => self.flushed(*queue, *through, true),
            _ => {}
        }
    }

    fn batch_over(&mut self, engine: &Engine, batch: u64) {
        for (queue, span) in self.ended.drain(..) {
            let span = Span {
                queue: engine.queue_name(queue),
                ..span
            };
            match span.kind {
                Kind::Put => self.spans.put(batch, span),
                Kind::Wait | Kind::Run => self.spans.ended(span),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use quintet_sim::world::{World, plain, reserve};
    use quintet_types::{By, Command, How, Put, PutMore, When};

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    /// A shard, and who follows it.
    struct Tried {
        world: World,
        follower: Follower,
        ended: Receiver<Span>,
        spans: Arc<Spans>,
        batch: u64,
    }

    impl Tried {
        fn new(most: usize, room: usize) -> Self {
            static LAST: AtomicU64 = AtomicU64::new(0);
            fn id() -> [u8; 8] {
                (LAST.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes()
            }
            let source = Source {
                now_ns: || LAST.fetch_add(1, Ordering::Relaxed),
                span_id: id,
            };
            let (spans, ended) = Spans::new(room, Arc::default());
            Self {
                world: World::new(),
                follower: Follower::new(Arc::clone(&spans), source, most),
                ended,
                spans,
                batch: 0,
            }
        }

        fn put(&mut self, queue: &str, flags: &str) -> MessageId {
            let attr =
                |name: &str, value: String| (name.as_bytes().into(), value.into_bytes().into());
            let more = PutMore {
                attrs: vec![
                    attr(TRACEPARENT, format!("00-{TRACE}-00f067aa0ba902b7-{flags}")),
                    attr(TRACESTATE, "a=1".to_owned()),
                ],
                ..PutMore::default()
            };
            self.world.put_as(Put {
                queue: queue.into(),
                more: Some(Box::new(more)),
                ..Put::default()
            })
        }

        fn settle(&mut self, id: MessageId, how: How) {
            let by = By::Owner;
            self.world.ask(1, Command::Settle { id, by, how });
        }

        /// The spans that ended: operation, attempt and error.
        fn shown_spans(&mut self) -> Vec<String> {
            self.spans().iter().map(shown).collect()
        }

        fn spans(&mut self) -> Vec<Span> {
            for fact in std::mem::take(&mut self.world.facts) {
                self.follower.decided(&fact);
            }
            self.batch += 1;
            self.follower.batch_over(&self.world.engine, self.batch);
            self.spans.settled(self.batch, u64::MAX);
            self.ended.try_iter().collect()
        }
    }

    fn shown(span: &Span) -> String {
        let error = span.error.as_ref();
        let error = error.map_or_else(String::new, |(word, text)| format!(" {word} {text}"));
        format!(
            "{} {} {}{error}",
            span.kind.name(),
            span.queue,
            span.attempt
        )
    }

    #[test]
    fn a_message_has_spans_of_its_put_its_waits_and_its_leases() {
        let mut tried = Tried::new(10, 100);
        let id = tried.put("work", "01");
        tried.world.take(1, reserve("work"));
        let release = How::Release {
            priority: None,
            due: When::default(),
            back_to: None,
        };
        tried.settle(id, release);
        tried.world.take(1, reserve("work"));
        let error = (*b"no disk").into();
        tried.settle(
            id,
            How::Fail {
                error,
                note: Vec::new(),
            },
        );
        tried.world.take(1, reserve("work"));
        tried.world.hang_up(1);
        tried.world.take(1, reserve("work"));
        tried.settle(id, How::Finish);
        let spans = tried.spans();
        let reported: Vec<String> = spans.iter().map(shown).collect();
        let wanted = [
            "wait work 0",
            "run work 1",
            "wait work 1",
            "run work 2 failed no disk",
            "wait work 2",
            "run work 3 connection_lost ",
            "wait work 3",
            "run work 4",
            "put work 0",
        ];
        assert_eq!(reported, wanted);
        let put = spans.last().expect("some");
        assert_eq!(put.parent, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!((&*put.state, put.end_ns), ("a=1", u64::MAX));
        for span in &spans[..8] {
            assert_eq!((span.parent, span.message), (put.id, id));
            assert!(span.start_ns < span.end_ns, "{span:?}");
        }
        for pair in spans[..8].windows(2) {
            assert_eq!(pair[0].end_ns, pair[1].start_ns);
        }
        assert!(tried.follower.known.is_empty() && tried.follower.by_queue.is_empty());
    }

    #[test]
    fn only_sampled_traces_have_spans() {
        let mut tried = Tried::new(10, 100);
        tried.put("work", "00");
        tried.world.put("work", "plain");
        tried.world.pop("work");
        tried.world.pop("work");
        assert_eq!(tried.shown_spans(), [""; 0]);
        tried.put("work", "03");
        tried.world.pop("work");
        assert_eq!(tried.shown_spans(), ["wait work 0", "put work 0"]);
    }

    #[test]
    fn a_span_has_the_end_of_its_message() {
        let mut tried = Tried::new(10, 100);
        let (first, _second) = (tried.put("work", "01"), tried.put("work", "01"));
        tried.shown_spans();
        let by = By::Anyone;
        tried.world.ask(1, Command::Delete { id: first, by });
        assert_eq!(tried.shown_spans(), ["wait work 0 deleted "]);
        tried.world.ask(
            1,
            Command::Flush {
                queue: "work".into(),
                reserved: false,
            },
        );
        assert_eq!(tried.shown_spans(), ["wait work 0 flushed "]);
        let id = tried.put("work", "01");
        tried.world.take(1, reserve("work"));
        tried.shown_spans();
        // What is held stays.
        tried.world.ask(
            1,
            Command::Flush {
                queue: "work".into(),
                reserved: false,
            },
        );
        assert_eq!(tried.shown_spans(), [""; 0]);
        tried.put("held", "01");
        tried.world.take(1, reserve("held"));
        tried.shown_spans();
        let (queue, reserved) = ("held".into(), true);
        tried.world.ask(1, Command::Flush { queue, reserved });
        assert_eq!(tried.shown_spans(), ["run held 1 flushed "]);
        let reason = (*b"bad").into();
        tried.settle(
            id,
            How::Bury {
                priority: None,
                reason,
            },
        );
        assert_eq!(tried.shown_spans(), ["run work 1 buried bad"]);
        let to = "other".into();
        tried.world.ask(1, Command::Move { id, to });
        tried.world.take(1, plain("other"));
        tried.world.ask(1, Command::Drop("other".into()));
        assert!(tried.shown_spans()[0].starts_with("wait"));
        assert!(tried.follower.known.is_empty() && tried.follower.by_queue.is_empty());
    }

    #[test]
    fn followed_messages_and_waiting_spans_are_limited() {
        let mut tried = Tried::new(2, 3);
        for _ in 0..3 {
            tried.put("work", "01");
        }
        assert_eq!(tried.shown_spans(), ["put work 0", "put work 0"]);
        assert_eq!(tried.spans.counts.dropped.load(Ordering::Relaxed), 1);
        for _ in 0..3 {
            tried.world.pop("work");
        }
        tried.put("work", "01");
        tried.put("work", "01");
        // Four ended, and three fit.
        assert_eq!(tried.shown_spans().len(), 3);
        assert_eq!(tried.spans.counts.dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn puts_end_when_they_may_be_answered() {
        let mut tried = Tried::new(2, 3);
        tried.put("work", "01");
        for fact in std::mem::take(&mut tried.world.facts) {
            tried.follower.decided(&fact);
        }
        tried.follower.batch_over(&tried.world.engine, 7);
        tried.spans.settled(6, 1);
        assert_eq!(tried.ended.try_iter().count(), 0);
        tried.spans.settled(8, 99);
        let put = tried.ended.try_recv().expect("it ended");
        assert_eq!(put.end_ns, 99);
    }
}
