//! A log of version 1, whose claims do not say where it begins, and those who own it next.

use std::sync::Arc;

use bytes::Bytes;
use quintet_cluster::{
    Claim, Ends, Fences, Reign, Seq, Stream as _, Writer,
    entry::{Entry, Header},
    reader::{Read, Reader},
};
use quintet_log::{Epoch, FrameBuf, Log as _, Position, SegmentNumber, Stamp};
use quintet_sim::{
    cluster::{Faults, Lie, SimStream, SimWorld},
    log_tests::facts,
};

use crate::common::{CLUSTER, Frame, Node, store};
use crate::mem::MemStream;

/// An owner of version 1.
pub(crate) struct Old {
    position: Position,
    segment: u32,
    chain: u32,
    entries: Vec<Bytes>,
}

impl Old {
    fn append(&mut self, mut frame: FrameBuf, begins: bool) -> Position {
        let stamp = Stamp {
            epoch: Epoch(1),
            time_ms: 5,
        };
        self.segment += u32::from(begins);
        let at = self.position;
        let sealed = frame.sealed(at, stamp);
        let header = Header {
            tells: false,
            begins,
            more: false,
            pads: false,
            part: 0,
            writer: Writer(1),
            epoch: Epoch(1),
            position: at,
            segment: SegmentNumber(self.segment),
            chain: self.chain,
        };
        let entry = header.encode(CLUSTER, sealed);
        self.position = Position(at.0 + sealed.len() as u64);
        self.chain = Entry::decode(CLUSTER, &entry).expect("an entry").checksum;
        self.entries.push(entry);
        at
    }

    /// Three segments of five frames, and where each of the latter two begins.
    pub(crate) fn log() -> (Vec<Bytes>, Vec<Frame>, [Seq; 2]) {
        let mut old = Self {
            position: Position(0),
            segment: 0,
            chain: 0,
            entries: Vec::new(),
        };
        let claim = Claim {
            epoch: Epoch(1),
            writer: Writer(1),
            node: "old".to_owned(),
            peer_address: String::new(),
        };
        old.append(Reign::Claim(claim.clone(), None).frame(), true);
        let (mut frames, mut begin) = (Vec::new(), Vec::new());
        for number in 0..15_u8 {
            let begins = number == 5 || number == 10;
            if begins {
                begin.push(Seq(old.entries.len() as u64 + 1));
            }
            let payload = vec![number; 100];
            let at = old.append(facts(&payload), begins);
            frames.push((at, payload));
            if begins {
                old.append(Reign::Again(claim.clone(), None).frame(), false);
            }
        }
        (old.entries, frames, [begin[0], begin[1]])
    }

    pub(crate) fn stream(entries: &[Bytes]) -> MemStream {
        let stream = MemStream::new();
        for (seq, entry) in (0..).map(Seq).zip(entries) {
            stream.append(seq, entry.clone(), Box::new(|_| ()));
        }
        stream
    }
}

fn open(stream: &MemStream, seed: u64) -> Result<Node, quintet_log::LogError> {
    Node::of(stream.clone(), &SimWorld::new(), seed)
}

/// Where the log begins, as it says last.
fn beginning(stream: &MemStream) -> Option<(SegmentNumber, Seq)> {
    let (first, entries) = stream.entries();
    let mut reader = Reader::new(CLUSTER, first);
    let mut received = None;
    for (seq, entry) in (first.0..).map(Seq).zip(&entries) {
        if let Ok(Read::Frame(frame)) = reader.read(seq, entry) {
            received = frame.beginning().or(received);
        }
    }
    received.map(|received| (received.segment, received.seq))
}

#[test]
fn the_first_owner_of_a_later_version_records_the_begin_of_a_whole_log() {
    let (entries, frames, [second, _]) = Old::log();
    let stream = Old::stream(&entries);
    stream.purge_below(second, Box::new(|_| ()));
    assert_eq!(beginning(&stream), None);
    let node = open(&stream, 2).expect("open");
    assert_eq!(node.found, frames[5..]);
    assert_eq!(beginning(&stream), Some((SegmentNumber(2), second)));
}

/// The last segment but one is missing, and nobody believes that.
fn refuses_a_later_beginning(stream: &MemStream, [second, third]: [Seq; 2]) {
    stream.purge_below(third, Box::new(|_| ()));
    let why = open(stream, 9).err().expect("it lacks a segment");
    let message = format!("the log begins with entry {second}");
    assert!(why.to_string().contains(&message), "{why}");
}

#[test]
fn a_beginning_that_an_owner_of_the_later_version_gave_up_to_is_the_only_one() {
    let (entries, _, begin) = Old::log();
    let stream = Old::stream(&entries);
    let mut node = open(&stream, 2).expect("open");
    let retiring = node.log.begin_retire(SegmentNumber(1)).expect("begin");
    retiring.run().expect("retire");
    assert_eq!(stream.entries().0, begin[0]);
    refuses_a_later_beginning(&stream, begin);
}

#[test]
fn a_purge_of_version_1_that_comes_behind_the_next_owners_claim_damages_nothing() {
    let (entries, frames, begin) = Old::log();
    let stream = Old::stream(&entries);
    let mut node = open(&stream, 2).expect("open");
    assert_eq!(beginning(&stream), Some((SegmentNumber(1), Seq(1))));
    stream.purge_below(begin[0], Box::new(|_| ()));
    // The owner has not looked yet; the next one does.
    let mut next = open(&stream, 3).expect("a late purge is no damage");
    assert_eq!(next.found, frames[5..]);
    let stamp = Stamp {
        epoch: next.log.epoch(),
        time_ms: 6,
    };
    assert!(next.log.acks().wants_heartbeat() && node.log.acks().wants_heartbeat());
    // One heartbeat asks, and the next one says.
    for _ in 0..2 {
        next.log.heartbeat(stamp).expect("beat");
    }
    node.log.heartbeat(stamp).ok();
    assert_eq!(beginning(&stream), Some((SegmentNumber(2), begin[0])));
    assert_eq!(next.log.acks().begins(), begin[0]);
    refuses_a_later_beginning(&stream, begin);
}

#[test]
fn a_claim_of_version_1_that_was_taken_over_excuses_no_loss_of_later_segments() {
    let (entries, _, _) = Old::log();
    let stream = Old::stream(&entries);
    let mut node = open(&stream, 2).expect("open");
    node.log.begin_segment();
    let (place, _) = (
        stream.entries().1.len(),
        node.append(b"new").expect("append"),
    );
    node.sync().expect("sync");
    stream.purge_below(Seq(place as u64 + 1), Box::new(|_| ()));
    assert!(open(&stream, 3).is_err());
}

#[test]
fn a_log_of_version_1_with_a_hole_or_a_torn_beginning_is_not_accepted() {
    let (entries, frames, [second, _]) = Old::log();
    let damages = [
        Some(Lie::Hole(Seq(second.0 + 2), Seq(second.0 + 2))),
        Some(Lie::First(second.after())),
        None,
    ];
    for damage in damages {
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), 1, Faults::none());
        let link = Arc::new(stream.link());
        for (seq, entry) in (0..).map(Seq).zip(&entries) {
            link.append(seq, entry.clone(), Box::new(|_| ()));
            world.pass(std::time::Duration::from_millis(5));
        }
        stream.lead(damage);
        let world = Arc::new(world);
        // A hole keeps reading from coming to its end.
        if let Some(Lie::Hole(..)) = damage {
            let ends = Arc::new(std::sync::Mutex::new(None));
            let received = Arc::clone(&ends);
            link.ends(Box::new(move |ends| *received.lock().expect("lock") = ends));
            world.pass(std::time::Duration::from_millis(50));
            let missing = ends.lock().expect("lock").as_ref().map(Ends::missing);
            assert_eq!(missing, Some(1));
            continue;
        }
        let opened = Node::open(store(link, world, 2, Fences::default()));
        match damage {
            Some(_) => assert!(opened.is_err(), "{damage:?}"),
            None => assert_eq!(opened.expect("whole").found, frames),
        }
    }
}
