//! A late entry of the old owner arrives exactly when the new one's log ends where it was sent to.

use crate::common;
use crate::mem::MemStream;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use common::{CLUSTER, Node, passes_on, store};
use quintet_cluster::{
    Answer, Fences, ReplyFn, Seq, Stream,
    reader::{Read, Reader},
};
use quintet_log::{LogError, Shared as _};
use quintet_sim::cluster::SimWorld;

type DelayedAppends = Vec<(Seq, Bytes, ReplyFn<Answer>)>;

/// A way to a stream on which appends can be held up, as in a server that was frozen.
#[derive(Clone)]
struct DelayedStream {
    stream: MemStream,
    holds: Arc<AtomicBool>,
    held: Arc<Mutex<DelayedAppends>>,
}

impl DelayedStream {
    fn new(stream: &MemStream) -> Self {
        Self {
            stream: stream.clone(),
            holds: Arc::default(),
            held: Arc::default(),
        }
    }

    /// Lets the append at `expected` go on; whether the stream took it.
    fn release(&self, expected: Seq) -> bool {
        let mut held = self.held.lock().expect("lock");
        let index = held.iter().position(|(at, ..)| *at == expected);
        let (at, entry, callback) = held.remove(index.expect("it was held"));
        drop(held);
        let before = self.stream.entries().1.len();
        self.stream.append(at, entry, callback);
        self.stream.entries().1.len() > before
    }
}

impl Stream for DelayedStream {
    fn name(&self) -> String {
        "a stream that is held up".to_owned()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        if self.holds.load(Ordering::Relaxed) {
            let mut held = self.held.lock().expect("lock");
            held.push((expected, entry, callback));
        } else {
            self.stream.append(expected, entry, callback);
        }
    }

    passes_on!(stream: ends get tail purge_below distrust);
}

/// The other way: appends go through until the stream ends at some place, and then something
/// happens first.
struct Until {
    stream: MemStream,
    at: Seq,
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Stream for Until {
    fn name(&self) -> String {
        "a stream with somebody else".to_owned()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        if expected == self.at {
            let first = self.first.lock().expect("lock").take();
            if let Some(first) = first {
                first();
            }
        }
        self.stream.append(expected, entry, callback);
    }

    passes_on!(stream: ends get tail purge_below distrust);
}

/// How many of the first owner's entries were stored late, after the second's claim.
fn late(stream: &MemStream) -> usize {
    let (first, entries) = stream.entries();
    let mut reader = Reader::new(CLUSTER, first);
    let mut void = 0;
    for (seq, entry) in (first.0..).map(Seq).zip(&entries) {
        void += usize::from(reader.read(seq, entry) == Ok(Read::Void));
    }
    void
}

/// The first owner has acknowledged entries up to some place N and 8 on their way, which are held
/// up. The second claims at N + 1. When the stream ends at N + 5, the entry that was sent to N + 6
/// arrives. Returns what the second found and appended, or why it could not.
fn collide(fences: Fences) -> Result<(), LogError> {
    let stream = MemStream::new();
    let world = SimWorld::new();
    let way = DelayedStream::new(&stream);
    let mut old = Node::of(way.clone(), &world, 1)?;
    old.append(b"before")?;
    old.sync()?;
    way.holds.store(true, Ordering::Relaxed);
    for number in 0..8_u8 {
        old.append(&[number; 10])?;
    }
    let last = Seq(stream.entries().1.len() as u64);
    let stored = Arc::new(AtomicBool::new(false));
    let (arrived, late_way) = (Arc::clone(&stored), way.clone());
    let at = Seq(last.0 + 5);
    let until = Until {
        stream: stream.clone(),
        at,
        first: Mutex::new(Some(Box::new(move || {
            arrived.store(late_way.release(at), Ordering::Relaxed);
        }))),
    };
    let until = store(Arc::new(until), Arc::new(world.clone()), 2, fences);
    let mut new = Node::open(until)?;
    for number in 0..8_u8 {
        new.append(&[100 + number; 10])?;
    }
    new.sync()?;
    assert!(stored.load(Ordering::Relaxed), "the collision was made");
    assert_eq!(late(&stream), 1, "and its entry is void");

    // The old one is told that its sixth entry is stored. That does not count.
    assert_eq!(old.acknowledged().len(), 1);
    // The others arrive too, and are too late.
    for place in 0..8 {
        let place = Seq(last.0 + place);
        if place != at {
            assert!(!way.release(place));
        }
    }
    way.holds.store(false, Ordering::Relaxed);
    assert!(matches!(old.sync(), Err(LogError::Fenced { .. })));
    assert_eq!(old.acknowledged().len(), 1);

    // What a third finds is what was acknowledged, in order.
    let third = Node::of(stream, &world, 3)?;
    let expected = [old.acknowledged(), new.acknowledged()].concat();
    assert_eq!(expected.len(), 9);
    assert_eq!(third.found, expected);
    Ok(())
}

#[test]
fn a_late_entry_at_the_very_place_does_no_harm() {
    collide(Fences::default()).expect("the log goes on");
}

#[test]
fn without_the_padding_it_does() {
    let outcome = std::panic::catch_unwind(|| {
        collide(Fences {
            padding: false,
            ..Fences::default()
        })
    });
    let harmless = matches!(outcome, Ok(Ok(())));
    assert!(!harmless, "the padding is not needed");
    if let Ok(Err(error)) = outcome {
        let error = error.to_string();
        assert!(error.contains("epoch 1"), "{error}");
    }
}

#[test]
fn an_owner_that_others_purged_behind_learns_that_it_is_none() {
    let stream = MemStream::new();
    let world = SimWorld::new();
    let way = DelayedStream::new(&stream);
    let mut old = Node::of(way.clone(), &world, 1).expect("open");
    way.holds.store(true, Ordering::Relaxed);
    old.append(b"never stored").expect("append");
    let mut new = Node::of(stream.clone(), &world, 2).expect("open");
    use quintet_log::Log as _;
    new.append(b"one").expect("append");
    new.log.begin_segment();
    new.append(b"two").expect("append");
    new.sync().expect("sync");
    let through = quintet_log::SegmentNumber(new.log.segment().0 - 1);
    new.log.retire(through).expect("retire");
    // The place it waits for is gone, and whoever took it with it.
    let stopped = old.sync();
    assert!(
        matches!(stopped, Err(LogError::BadEntry { .. })),
        "{stopped:?}"
    );
    assert!(old.append(b"more").is_err());
}

#[test]
fn an_owner_that_learns_that_it_is_none_has_no_lease() {
    let stream = MemStream::new();
    let world = SimWorld::new();
    let mut old = Node::of(stream.clone(), &world, 1).expect("open");
    old.append(b"before").expect("append");
    old.sync().expect("sync");
    let _new = Node::of(stream, &world, 2).expect("open");
    let acks = old.log.acks();
    assert!(acks.has_lease(), "its clock has stood meanwhile");
    old.append(b"more").expect("it does not know yet");
    assert!(matches!(old.sync(), Err(LogError::Fenced { .. })));
    assert!(!acks.has_lease());
}
