//! Entries that a stream's log refuses, and its behaviour when there is no room.

use crate::common;
use crate::mem::MemStream;

use std::sync::{Arc, Mutex, PoisonError, mpsc::channel};
use std::time::Duration;

use bytes::Bytes;
use common::{Node, body, passes_on, store};
use quintet_cluster::{Answer, ClusterId, Fences, ReplyFn, Seq, Stream, World};
use quintet_log::{Log, LogError, SegmentNumber, Shared as _, Stamp, Storage as _};
use quintet_sim::{
    cluster::SimWorld,
    disk::{Fault, Keep, SimDisk},
};

fn open(stream: &MemStream, seed: u64) -> Result<Node, LogError> {
    Node::of(stream.clone(), &SimWorld::new(), seed)
}

/// An owner's life: claim at 1, padding up to 66, frames behind it.
fn some(frames: u8) -> (MemStream, Node) {
    let stream = MemStream::new();
    let mut node = open(&stream, 1).expect("open");
    for number in 0..frames {
        node.append(&[number; 100]).expect("append");
    }
    node.sync().expect("sync");
    (stream, node)
}

fn refused(stream: &MemStream) -> (u64, String) {
    match open(stream, 2) {
        Err(LogError::BadEntry { entry, why, .. }) => (entry, why),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was believed"),
    }
}

#[test]
fn a_flipped_bit_stops_a_start_with_its_place() {
    let (stream, _) = some(5);
    let (_, before) = stream.entries();
    stream.damage(Seq(69), |entry| entry[80] ^= 4);
    let (entry, why) = refused(&stream);
    assert_eq!(entry, 69);
    assert!(why.contains("damaged, or of another cluster"), "{why}");
    assert_eq!(
        stream.entries().1.len(),
        before.len(),
        "nothing was appended"
    );
}

#[test]
fn a_stream_of_another_cluster_is_refused() {
    let (stream, _) = some(1);
    let world: Arc<dyn World> = Arc::new(SimWorld::new());
    let mut tested = store(Arc::new(stream.clone()), world, 2, Fences::default());
    tested.cluster = ClusterId(8);
    let refused = Node::open(tested).err();
    assert!(matches!(refused, Some(LogError::BadEntry { entry: 1, .. })));
}

#[test]
fn a_foreign_purge_is_seen() {
    let (stream, _) = some(5);
    stream.purge_below(Seq(68), Box::new(|_| ()));
    let (entry, why) = refused(&stream);
    assert_eq!(entry, 68);
    assert!(why.contains("does not begin a segment"), "{why}");
    // All of it gone is not the same as nothing ever there.
    let (stream, _) = some(5);
    stream.purge_below(Seq(1000), Box::new(|_| ()));
    let (entry, why) = refused(&stream);
    assert_eq!(entry, 71);
    assert!(why.contains("purged"), "{why}");
}

#[test]
fn more_than_is_read_ahead_is_read_all_the_same() {
    let (stream, mut node) = some(0);
    for number in 0..20 {
        let stamp = Stamp {
            epoch: node.log.epoch(),
            time_ms: number,
        };
        let end = node.log.end();
        let placed = node.log.append(end, stamp, &mut body(1 << 20));
        placed.expect("append");
    }
    node.sync().expect("sync");
    let next = open(&stream, 2).expect("open");
    assert_eq!((next.found.len(), next.recovery.frames), (20, 20));
    assert!(
        next.found
            .iter()
            .all(|(_, payload)| payload.len() == 1 << 20)
    );
}

#[test]
fn without_room_appends_are_refused_until_there_is_some() {
    let (stream, mut node) = some(1);
    let (_, entries) = stream.entries();
    let used: usize = entries.iter().map(Bytes::len).sum();
    stream.set_capacity(used + 500);
    // What is on its way already stays so.
    node.append(&[1; 600]).expect("nobody knows yet");
    let before = node.log.end();
    match node.append(&[2; 10]) {
        Err(LogError::NoSpace { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(node.log.end(), before, "the log is as it was");
    stream.set_capacity(1 << 20);
    node.sync().expect("it was sent again");
    node.append(&[2; 10]).expect("append");
    node.sync().expect("sync");
    assert_eq!(open(&stream, 2).expect("open").found, node.acknowledged());
}

#[test]
fn a_listener_is_called_without_a_lock_of_the_log() {
    let (_, mut node) = some(0);
    let acks = node.log.acks();
    let (called, calls) = channel();
    let others = acks.clone();
    acks.listen(Arc::new(move || {
        let (done, listens) = channel();
        let others = others.clone();
        std::thread::spawn(move || {
            others.listen(Arc::new(|| ()));
            done.send(()).ok();
        });
        let listens = listens.recv_timeout(Duration::from_secs(10));
        called.send(listens.is_ok()).ok();
    }));
    node.append(b"one").expect("append");
    assert_eq!(calls.recv(), Ok(true));
}

/// A stream that stores only what is in front of some place, and a disk that loses power at each
/// purge.
struct Until(MemStream, Mutex<Seq>, SimDisk, Mutex<Option<SimDisk>>);

impl Until {
    fn new(stream: MemStream, until: Seq) -> Self {
        Self(stream, Mutex::new(until), SimDisk::new(1), Mutex::default())
    }
}

impl Stream for Until {
    fn name(&self) -> String {
        "a stream that stops".to_owned()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        let until = *self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if expected.after() < until {
            self.0.append(expected, entry, callback);
        }
    }

    passes_on!(0: ends get tail distrust);

    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>) {
        let left = self.2.fork().power_cut(Keep::Synced);
        *self.3.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        self.0.purge_below(seq, callback);
    }
}

#[test]
fn nothing_is_purged_for_a_segment_that_is_stored_in_part() {
    let stream = MemStream::new();
    let until = Arc::new(Until::new(stream.clone(), Seq(1000)));
    let world: Arc<dyn World> = Arc::new(SimWorld::new());
    let tested = store(Arc::clone(&until) as _, world, 1, Fences::default());
    let mut node = Node::open(tested).expect("open");
    node.append(b"the only segment that is whole")
        .expect("append");
    node.sync().expect("sync");
    // The first of four parts of the next segment's first frame, and no more.
    *until.1.lock().expect("lock") = Seq(69);
    node.log.begin_segment();
    let stamp = Stamp {
        epoch: node.log.epoch(),
        time_ms: 5,
    };
    let end = node.log.end();
    let placed = node.log.append(end, stamp, &mut body(1_000_000));
    let first = SegmentNumber(placed.expect("append").segment.0 - 1);
    assert_eq!(stream.entries().1.len(), 68);
    assert_eq!(node.log.retire(first).expect("retire"), 0);
    assert_eq!(stream.entries().0, Seq(1), "it would begin in its middle");
    let next = open(&stream, 2).expect("half a frame is void");
    assert_eq!(next.found, node.acknowledged());
}

#[test]
fn entries_that_a_purge_keeps_are_on_the_owners_disk_before() {
    let until = Arc::new(Until::new(MemStream::new(), Seq(1000)));
    let world: Arc<dyn World> = Arc::new(SimWorld::new());
    let mut tested = store(Arc::clone(&until) as _, world, 1, Fences::default());
    tested.mirror = Arc::new(until.2.clone());
    let mut node = Node::open(tested).expect("open");
    node.append(b"old").expect("append");
    node.log.begin_segment();
    let kept = [7; 5000];
    node.append(&kept).expect("append");
    node.sync().expect("sync");
    let oldest = SegmentNumber(node.log.segment().0 - 1);
    node.log.retire(oldest).expect("retire");
    let left = until.3.lock().expect("lock").take().expect("a purge");
    let names = left.list().expect("list");
    let has = |name: &String| {
        let content = left.content(name).unwrap_or_default();
        content.windows(kept.len()).any(|bytes| bytes == kept)
    };
    assert!(names.iter().any(has), "{names:?}");
}

#[test]
fn a_full_disk_puts_off_retirement_and_changes_nothing() {
    let stream = MemStream::new();
    let world: Arc<dyn World> = Arc::new(SimWorld::new());
    let mut tested = store(Arc::new(stream.clone()), world, 1, Fences::default());
    let disk = SimDisk::new(1);
    tested.mirror = Arc::new(disk.clone());
    let mut node = Node::open(tested).expect("open");
    node.append(b"old").expect("append");
    node.log.begin_segment();
    node.append(b"new").expect("append");
    node.sync().expect("sync");
    let oldest = SegmentNumber(node.log.segment().0 - 1);
    let before = (node.log.end(), node.log.acks().begins(), stream.entries());
    disk.fault_at(disk.operations() + 1, Fault::NoSpace(0));
    assert_eq!(node.log.retire(oldest).expect("it is tried again"), 0);
    let after = (node.log.end(), node.log.acks().begins(), stream.entries());
    assert_eq!(after, before);
    assert!(node.log.retire(oldest).expect("retire") > 0);
    assert!(stream.entries().0 > Seq(1));
    assert_eq!(node.log.acks().begins(), stream.entries().0);
    assert_eq!(open(&stream, 2).expect("open").found.len(), 1);
}
