//! The content of the stream, read by nobody's copy, and the state of owners after each of their
//! batches.

use std::collections::BTreeMap;

use quintet_cluster::entry::Entry;
use quintet_cluster::reader::{Read, Reader};
use quintet_cluster::{ClusterId, PADDING, Seq};
use quintet_engine::{Engine, Fact};
use quintet_log::{Position, ReplayFrame};
use quintet_sim::cluster::SimStream;
use quintet_types::{LargeBody, Settings};

use crate::Replay;

pub(super) const CLUSTER: ClusterId = ClusterId(7);
pub(super) const SHARDS: usize = 2;

/// The durable state of some shards, as bytes; equal states are equal.
pub(super) fn image<'a>(engines: impl Iterator<Item = &'a Engine>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for engine in engines {
        for fact in engine.image() {
            fact.encode(&mut bytes);
        }
        bytes.push(u8::MAX);
    }
    bytes
}

/// The parts that only one of two images has, in words.
fn difference(owner: &[u8], replay: &[u8]) -> String {
    let facts = |mut bytes: &[u8]| {
        let mut facts = Vec::new();
        while !bytes.is_empty() {
            let large = &mut |id, len| LargeBody::new(id, len, 0);
            match Fact::decode(&mut bytes, large) {
                Ok(fact) => facts.push(format!("{fact:?}")),
                Err(_) => bytes = &bytes[1..],
            }
        }
        facts
    };
    let (owner, replay) = (facts(owner), facts(replay));
    let only = |one: &[String], other: &[String]| {
        let only = one.iter().filter(|fact| !other.contains(fact));
        only.cloned().collect::<Vec<_>>().join("; ")
    };
    let (was, came) = (only(&owner, &replay), only(&replay, &owner));
    format!("it was {was}, and came to {came}")
}

/// Knows all that was ever stored.
pub(super) struct Oracle {
    stream: SimStream,
    reader: Reader,
    /// The newest epoch, and where it was claimed.
    newest: (u64, Seq),
    /// Where the believed frames of each epoch end.
    reach: BTreeMap<u64, Position>,
    /// Where the frame ends that is whole with an entry.
    ends: BTreeMap<Seq, Position>,
    /// State of an owner of an epoch when its log ended there.
    owners: BTreeMap<(u64, Position), Vec<u8>>,
    /// States that were compared.
    pub(super) compared: usize,
    /// Entries that came too late.
    pub(super) voids: usize,
    /// Entries that are a part of a frame, but the last of each.
    pub(super) cut: usize,
}

impl Oracle {
    pub(super) fn new(stream: SimStream) -> Self {
        Self {
            stream,
            reader: Reader::new(CLUSTER, Seq(1)),
            newest: (0, Seq(0)),
            reach: BTreeMap::new(),
            ends: BTreeMap::new(),
            owners: BTreeMap::new(),
            compared: 0,
            voids: 0,
            cut: 0,
        }
    }

    /// Reads what was stored since.
    pub(super) fn read_on(&mut self) {
        let from = self.reader.next();
        for (seq, bytes) in (from.0..).map(Seq).zip(self.stream.stored_from(from)) {
            let entry = Entry::decode(CLUSTER, &bytes).expect("an owner's entry");
            let epoch = entry.header.epoch.0;
            let (newest, claimed) = self.newest;
            if epoch > newest {
                self.newest = (epoch, seq);
            }
            let falls = epoch < newest;
            assert!(
                !falls || seq.0 <= claimed.0 + PADDING,
                "entry {seq} of epoch {epoch} stands behind the padding of epoch {newest}"
            );
            let read = self.reader.read(seq, &bytes);
            let read = read.unwrap_or_else(|refused| panic!("entry {seq}: {refused}"));
            assert_eq!(falls, read == Read::Void, "entry {seq}");
            self.voids += usize::from(falls);
            self.cut += usize::from(read == Read::Part);
            let of = match read {
                Read::Frame(frame) => Some(frame.reign.is_none().then_some(frame.view.stamp.epoch)),
                Read::Part | Read::Padding | Read::Void => None,
            };
            if let (Some(of), Some(tip)) = (of, self.reader.tip()) {
                self.ends.insert(seq, tip.position);
                if let Some(epoch) = of {
                    self.reach.insert(epoch.0, tip.position);
                }
            }
        }
    }

    /// Whether all that the owner of this epoch appended up to there is stored and believed.
    pub(super) fn has(&mut self, epoch: u64, end: Position) -> bool {
        self.read_on();
        self.reach.get(&epoch).is_some_and(|reach| *reach >= end)
    }

    /// The owner of an epoch was this when its log ended there.
    pub(super) fn was(&mut self, epoch: u64, end: Position, image: Vec<u8>) {
        self.owners.insert((epoch, end), image);
    }

    /// From where on somebody who begins to read now comes to what owners were: where nothing was
    /// purged everywhere, else what was purged may have lived until then.
    pub(super) fn same_from(&mut self) -> Position {
        self.read_on();
        let purged = self.stream.purges().last().map(|ends| ends.last);
        let end = purged.and_then(|last| self.ends.range(..=last).next_back());
        end.map_or(Position(0), |(_, end)| *end)
    }

    /// Somebody who read up to there has come to this.
    pub(super) fn replayed(&mut self, epoch: u64, end: Position, replayed: &dyn Fn() -> Vec<u8>) {
        if let Some(owner) = self.owners.get(&(epoch, end)) {
            self.compared += 1;
            let replayed = replayed();
            assert!(
                *owner == replayed,
                "replay up to {end} of epoch {epoch} is not what the owner was: {}",
                difference(owner, &replayed)
            );
        }
    }
}

/// The state that the present stream leads to.
pub(super) fn read_anew(stream: &SimStream) -> Vec<u8> {
    let (first, entries) = stream.entries();
    let mut reader = Reader::new(CLUSTER, first);
    let mut replay = Replay::new(SHARDS, &Settings::default()).expect("few shards");
    for (seq, entry) in (first.0..).map(Seq).zip(&entries) {
        let read = reader.read(seq, entry);
        let read = read.unwrap_or_else(|refused| panic!("entry {seq}: {refused}"));
        let frame = match read {
            Read::Frame(frame) if frame.reign.is_none() => frame,
            Read::Frame(_) | Read::Part | Read::Padding | Read::Void => continue,
        };
        let frame = ReplayFrame {
            position: frame.position,
            epoch: frame.view.stamp.epoch,
            time_ms: frame.view.stamp.time_ms,
            kind: frame.view.kind,
            segment: frame.segment,
            offset: 0,
            first_in_segment: frame.begins,
            count: frame.view.count,
            payload: frame.view.payload,
        };
        replay.apply(&frame).expect("an owner's frame");
    }
    image(replay.engines.iter())
}
