//! The suite every log must pass, over each kind of stream.

use crate::mem::MemStream;

use std::sync::Arc;

use quintet_cluster::{Limits, Threads};
use quintet_sim::{
    Random,
    cluster::{Faults, Over, SimStream, SimWorld},
    log_tests,
};

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
    for seed in quintet_sim::seeds(100) {
        eprintln!("seed {seed}");
        over_simulated(seed);
    }
}
