//! The one suite every log must pass, run on each of ours.

use crate::common;
use crate::memory::{MemLog, MemStore};

use std::sync::{Arc, atomic::AtomicBool};

use quintet_log::{Disk, Log, Storage};
use quintet_sim::{
    disk::SimDisk,
    log_tests::{self, Fixture, FrameRecord},
};

struct Local {
    storage: Arc<dyn Storage>,
    spares: bool,
    /// Keeps a real directory for as long as the test runs.
    _dir: Option<tempfile::TempDir>,
}

impl Fixture for Local {
    fn open(&mut self) -> (Box<dyn Log>, Vec<FrameRecord>) {
        let (log, _, seen) = common::open(Arc::clone(&self.storage)).expect("open");
        if self.spares {
            log.spares()
                .fill(&AtomicBool::new(false))
                .expect("fill the spares");
        }
        (Box::new(log), seen)
    }
}

struct Memory(MemStore);

impl Fixture for Memory {
    fn open(&mut self) -> (Box<dyn Log>, Vec<FrameRecord>) {
        let mut seen = Vec::new();
        let log = MemLog::open(self.0.clone(), &mut |frame| {
            seen.push(FrameRecord::of(&frame));
            Ok(())
        });
        (Box::new(log.expect("open")), seen)
    }
}

#[test]
fn a_local_log_on_a_real_disk_conforms() {
    for spares in [false, true] {
        log_tests::run(&mut || {
            let dir = tempfile::tempdir().expect("a directory");
            let storage = Arc::new(Disk::new(dir.path()));
            Box::new(Local {
                storage,
                spares,
                _dir: Some(dir),
            })
        });
    }
}

#[test]
fn a_local_log_on_a_simulated_disk_conforms() {
    for spares in [false, true] {
        log_tests::run(&mut || {
            Box::new(Local {
                storage: Arc::new(SimDisk::new(1)),
                spares,
                _dir: None,
            })
        });
    }
}

#[test]
fn a_log_in_memory_conforms() {
    log_tests::run(&mut || Box::new(Memory(MemStore::default())));
}
