//! A log that fails: its owner is notified once, and no client gets a reply that
//! was to be in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_log::LogError;
use quintet_sim::disk::{Fault, SimDisk};
use quintet_types::{Body, Caller, Command, Put, Settings};

use super::keep::tests::open_owned;
use super::{Access, Core, Owner, Panics, Trail};

#[derive(Clone, Default)]
struct Counts(Arc<AtomicU64>);

impl Owner for Counts {
    fn group(&self) -> u16 {
        7
    }

    fn log_failed(&self, _: &LogError) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_shards_have_the_number_of_their_owners_group() {
    let owned = |owner: Box<dyn Owner>| {
        open_owned(&SimDisk::new(1), &Settings::default(), 1, owner).group()
    };
    assert_eq!(owned(Box::<Counts>::default()), 7);
    assert_eq!(owned(Box::new(Panics)), 0, "of a server alone");
}

/// Decides a put; answers the batch it is in.
fn put(core: &Core) -> u64 {
    let put = Put {
        queue: "q".into(),
        body: Body::new(b"x"),
        ..Put::default()
    };
    let mut trail = Trail::default();
    Access::new(core, core.clock.now(), &mut trail).submit(Caller::default(), Command::Put(put));
    trail.recorded
}

#[test]
fn after_a_failure_nothing_more_is_written_or_reached() {
    // The write of the frame, and its sync.
    for step in 0..2 {
        let disk = SimDisk::new(1);
        let reported = Counts::default();
        let owner = Box::new(reported.clone());
        let core = open_owned(&disk, &Settings::default(), 1, owner);
        assert!(core.write_now() && core.sync());
        let before = core.progress.completed();
        let commit_number = put(&core);
        disk.fault_at(disk.operations() + 1 + step, Fault::Io);
        let done = core.write_now() && core.sync();
        assert!(!done, "step {step}");
        assert_eq!(reported.0.load(Ordering::SeqCst), 1);
        // The disk is well again. What it holds is not known all the same.
        let operations = disk.operations();
        let next = put(&core);
        core.write_here(next);
        assert!(!core.write_now() && !core.sync_here(0) && !core.finish());
        assert_eq!(disk.operations(), operations);
        assert_eq!(reported.0.load(Ordering::SeqCst), 1);
        assert!(core.durable() < commit_number);
        if step == 0 {
            assert_eq!(core.progress.completed(), before);
        }
    }
}
