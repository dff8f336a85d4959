//! Nodes that own a stream's log one after the other, and the replies to all of them.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::sync::Arc;

use quintet_cluster::{ClusterId, Fences, Limits, Stream, StreamLog, StreamStore, World};
use quintet_log::{FrameBuf, FrameKind, Log, LogError, Options, Position, Recovery, Shared, Stamp};
use quintet_sim::{cluster::SimWorld, disk::SimDisk, log_tests::facts};

pub(crate) const CLUSTER: ClusterId = ClusterId(7);

/// A frame of the caller's: where it began, and what was in it.
pub(crate) type Frame = (Position, Vec<u8>);

pub(crate) struct Node {
    pub(crate) log: StreamLog,
    pub(crate) recovery: Recovery,
    /// The log at the moment it became owner.
    pub(crate) found: Vec<Frame>,
    /// The frames it appended, and the end of each.
    pub(crate) appended: Vec<(Frame, Position)>,
}

/// The calls of a stream that go to the one behind it as they are.
macro_rules! passes_on {
    (@append $to:tt) => {
        fn append(
            &self,
            expected: quintet_cluster::Seq,
            entry: bytes::Bytes,
            callback: quintet_cluster::ReplyFn<quintet_cluster::Answer>,
        ) {
            self.$to.append(expected, entry, callback);
        }
    };
    (@ends $to:tt) => {
        fn ends(&self, callback: quintet_cluster::ReplyFn<Option<quintet_cluster::Ends>>) {
            self.$to.ends(callback);
        }
    };
    (@get $to:tt) => {
        fn get(
            &self,
            seq: quintet_cluster::Seq,
            callback: quintet_cluster::ReplyFn<quintet_cluster::EntryLookup>,
        ) {
            self.$to.get(seq, callback);
        }
    };
    (@tail $to:tt) => {
        fn tail(
            &self,
            from: quintet_cluster::Seq,
            each: Box<dyn FnMut(quintet_cluster::TailEvent) + Send>,
        ) -> quintet_cluster::Tail {
            self.$to.tail(from, each)
        }
    };
    (@purge_below $to:tt) => {
        fn purge_below(
            &self,
            seq: quintet_cluster::Seq,
            callback: quintet_cluster::ReplyFn<bool>,
        ) {
            self.$to.purge_below(seq, callback);
        }
    };
    (@distrust $to:tt) => {
        fn distrust(
            &self,
            ends: quintet_cluster::Ends,
            bad: &[String],
            doubted: &[String],
            callback: quintet_cluster::ReplyFn<quintet_cluster::Distrusted>,
        ) {
            self.$to.distrust(ends, bad, doubted, callback);
        }
    };
    ($to:tt: $($call:ident)+) => {
        $($crate::common::passes_on!(@$call $to);)+
    };
}
pub(crate) use passes_on;

pub(crate) fn store(
    stream: Arc<dyn Stream>,
    world: Arc<dyn World>,
    seed: u64,
    fences: Fences,
) -> StreamStore {
    StreamStore {
        stream,
        mirror: Arc::new(SimDisk::new(seed)),
        options: Options {
            segment_bytes: 64 << 10,
            ..Options::default()
        },
        cluster: CLUSTER,
        node: format!("node {seed}"),
        peer_address: String::new(),
        limits: Limits::default(),
        world,
        fences,
    }
}

impl Node {
    /// Opens the log of a stream.
    pub(crate) fn of(
        stream: impl Stream + 'static,
        world: &SimWorld,
        seed: u64,
    ) -> Result<Self, LogError> {
        let world = Arc::new(world.clone());
        Self::open(store(Arc::new(stream), world, seed, Fences::default()))
    }

    pub(crate) fn open(store: StreamStore) -> Result<Self, LogError> {
        let mut found = Vec::new();
        let (log, recovery) = store.own(&mut |frame| {
            found.push((frame.position, frame.payload.to_vec()));
            Ok(())
        })?;
        Ok(Self {
            log,
            recovery,
            found,
            appended: Vec::new(),
        })
    }

    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<(), LogError> {
        let stamp = Stamp {
            epoch: self.log.epoch(),
            time_ms: 5,
        };
        let at = self.log.end();
        let placed = self.log.append(at, stamp, &mut facts(payload))?;
        self.appended.push(((at, payload.to_vec()), placed.end));
        Ok(())
    }

    /// Frames that are durable as far as it knows.
    pub(crate) fn acknowledged(&self) -> Vec<Frame> {
        let durable = self.log.acks().durable();
        let all = self.appended.iter().filter(|(_, end)| *end <= durable);
        all.map(|(frame, _)| frame.clone()).collect()
    }

    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        let point = self.log.sync_point();
        point.wait()?;
        self.log.synced(point);
        Ok(())
    }
}

/// A frame of a body, which is long.
pub(crate) fn body(bytes: usize) -> FrameBuf {
    // Each byte seven times, over and over.
    let period: Vec<u8> = (0..7 * 256).map(|n| (n / 7) as u8).collect();
    let mut all = period.repeat(bytes.div_ceil(period.len()));
    all.truncate(bytes);
    let mut frame = FrameBuf::new(FrameKind::Body);
    frame.payload_mut().extend_from_slice(&all);
    frame
}
