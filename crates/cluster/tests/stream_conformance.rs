//! The suite every log must pass, over each kind of stream.

use std::sync::Arc;

use quintet_cluster::{ClusterId, Fences, Limits, MemStream, Stream, StreamStore, Threads, World};
use quintet_log::{Log, LogStore, Options, Stamp};
use quintet_sim::{
    Random,
    cluster::{Faults, SimStream, SimWorld},
    disk::SimDisk,
    log_tests::{self, Fixture, Seen},
};

struct Over {
    stream: Arc<dyn Stream>,
    world: Arc<dyn World>,
    limits: Limits,
    seed: u64,
}

impl Fixture for Over {
    fn open(&mut self) -> (Box<dyn Log>, Vec<Seen>) {
        self.seed += 1;
        let store = StreamStore {
            stream: Arc::clone(&self.stream),
            mirror: Arc::new(SimDisk::new(self.seed)),
            options: Options {
                segment_bytes: 64 << 10,
                ..Options::default()
            },
            cluster: ClusterId(7),
            node: "one".to_owned(),
            link: "127.0.0.1:4600".to_owned(),
            limits: self.limits,
            world: Arc::clone(&self.world),
            fences: Fences::default(),
        };
        let mut seen = Vec::new();
        let opened = Box::new(store).open(&mut |frame| {
            seen.push(Seen {
                position: frame.position,
                stamp: Stamp {
                    epoch: frame.epoch,
                    time_ms: frame.time_ms,
                },
                kind: frame.kind,
                count: frame.count,
                first_in_segment: frame.first_in_segment,
                payload: frame.payload.to_vec(),
            });
            Ok(())
        });
        (opened.expect("open").0, seen)
    }

    fn opening_appends(&self) -> bool {
        true
    }
}

#[test]
fn a_log_over_a_stream_in_memory_conforms() {
    log_tests::run(&mut || {
        Box::new(Over {
            stream: Arc::new(MemStream::new()),
            world: Arc::new(Threads::new()),
            limits: Limits::default(),
            seed: 1,
        })
    });
}

fn over_simulated(seed: u64) {
    let mut random = Random::new(seed);
    log_tests::run(&mut || {
        let faults = Faults::any(&mut random);
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), random.next_u64(), faults);
        Box::new(Over {
            stream: Arc::new(stream.link()),
            world: Arc::new(world),
            limits: Limits {
                entries: [1, 7, 32, 64][random.index(4)],
                ..Limits::default()
            },
            seed,
        })
    });
}

#[test]
fn a_log_over_a_simulated_stream_conforms() {
    let seeds = std::env::var("SEEDS").map_or(100, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        eprintln!("seed {seed}");
        over_simulated(seed);
    }
}
