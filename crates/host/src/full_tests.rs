//! A full disk: takes go on, whatever else would like to write.

use std::sync::atomic::AtomicBool;

use quintet_engine::Space;
use quintet_sim::disk::SimDisk;
use quintet_types::{Body, Command, Name, Outcome, Put, Settings, Take};

use super::keep::tests::{ask, open_shards};
use super::locked;

/// Copies of old segments would take the room that takes need.
#[test]
fn copies_leave_the_last_room_of_a_full_disk_to_takes() {
    let disk = SimDisk::new(1);
    let core = open_shards(&disk, &Settings::default(), 1);
    let put = || {
        Command::Put(Put {
            queue: "q".into(),
            body: Body::new(&[7; 2_000]),
            ..Put::default()
        })
    };
    let segments = || locked(&core.committer).log.segments().len();
    while segments() < 4 || locked(&core.committer).may_copy(true) {
        assert!(matches!(ask(&core, put()), Outcome::Put { .. }));
    }
    disk.set_capacity(disk.used() + (8 << 10));
    core.set_space(Space::NoPuts);
    let (mut over, stop) = (None, AtomicBool::new(false));
    for _ in 0..20 {
        core.retire_one(1, &mut over, &stop);
    }
    assert!(!core.is_stuck(), "nothing is written that does not fit");
    for _ in 0..3 {
        let take = Command::Take(Take {
            queues: [Name::from("q")].into(),
            ..Take::default()
        });
        assert!(matches!(ask(&core, take), Outcome::Messages(_)));
    }
    assert!(!core.is_stuck(), "takes have room");
}
