//! The engine against the naive model: random steps, everything compared and
//! every index checked after each; restarts from the bytes of the log, with
//! and without its oldest segments; shrinking.
//!
//! `QUINTET_CASES=100000 cargo test --release -p quintet-sim --test model`
//! looks longer than the few seconds of a usual run.

#[path = "model/ops.rs"]
mod ops;
#[path = "model/runs.rs"]
mod runs;
#[path = "model/world.rs"]
mod world;

use proptest::prelude::*;

use ops::{op, settings};
use world::World;

/// Sequences tried when the environment does not say how many.
const CASES: u32 = 2000;

fn cases() -> u32 {
    let asked = std::env::var("QUINTET_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        ..ProptestConfig::default()
    })]

    #[test]
    fn engine_and_model_agree(settings in settings(), ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new(settings);
        for op in ops {
            world.step(op)?;
        }
        world.step(ops::Op::Restart)?;
        world.check_every_cut()?;
    }
}
