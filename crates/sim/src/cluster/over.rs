//! A log over a stream, for the suite that every log passes.

use std::sync::Arc;

use quintet_cluster::{ClusterId, Fences, Limits, Stream, StreamStore, World};
use quintet_log::{Log, LogStore, Options};

use crate::disk::SimDisk;
use crate::log_tests::{Fixture, FrameRecord};

/// Opens the log of one stream, each time as another node with an empty mirror.
pub struct Over {
    /// The part that outlives the owners.
    pub stream: Arc<dyn Stream>,
    /// The clock that owners wait by.
    pub world: Arc<dyn World>,
    /// Of each owner's window.
    pub limits: Limits,
    /// Of the next owner's disk; counts up.
    pub seed: u64,
}

impl Over {
    fn store(&mut self) -> Box<StreamStore> {
        self.seed += 1;
        Box::new(StreamStore {
            stream: Arc::clone(&self.stream),
            mirror: Arc::new(SimDisk::new(self.seed)),
            options: Options {
                segment_bytes: 64 << 10,
                ..Options::default()
            },
            cluster: ClusterId(7),
            node: format!("node {}", self.seed),
            peer_address: "127.0.0.1:4600".to_owned(),
            limits: self.limits,
            world: Arc::clone(&self.world),
            fences: Fences::default(),
        })
    }
}

impl Fixture for Over {
    fn open(&mut self) -> (Box<dyn Log>, Vec<FrameRecord>) {
        let mut seen = Vec::new();
        let opened = self.store().open(&mut |frame| {
            seen.push(FrameRecord::of(&frame));
            Ok(())
        });
        (opened.expect("open").0, seen)
    }

    fn opening_appends(&self) -> bool {
        true
    }
}
