//! Power cuts at every operation, every torn length, any unsynced pages: what was acknowledged is a
//! prefix of what is found, and what is found a prefix of what was asked.

use crate::common;

use std::sync::{Arc, atomic::AtomicBool};

use common::world::{Step, World, any_step, script};
use quintet_log::{Epoch, Log, LogError, Options, Stamp};
use quintet_sim::{
    Random,
    disk::{Fault, Keep, SimDisk},
    log_tests::{append, facts, sync},
};

/// The smallest segments there are, so that a short script uses many.
fn options() -> Options {
    Options {
        segment_bytes: 8 << 10,
        spares: 2,
        ..Options::default()
    }
}

fn world() -> World {
    World::new(SimDisk::new(7), options())
}

/// Runs the script until something fails.
fn run(world: &mut World, steps: &[Step]) -> Result<(), LogError> {
    world.open()?;
    for step in steps {
        world.step(*step)?;
    }
    Ok(())
}

/// How many operations the script takes, and the lengths of its writes.
fn operations() -> Vec<Option<usize>> {
    let mut world = world();
    run(&mut world, &script()).expect("the script runs on a healthy disk");
    (1..=world.disk.operations())
        .map(|number| world.disk.write_len(number))
        .collect()
}

/// Opens after the crash, goes on a little, crashes at the worst, and opens again.
fn recover_twice(world: &mut World) {
    world.open().expect("open after the crash");
    world
        .step(Step::Append(333))
        .expect("append after the crash");
    world.step(Step::Sync).expect("sync after the crash");
    world
        .step(Step::Append(44))
        .expect("append after the crash");
    let after = world.disk.power_cut(Keep::Synced);
    world.crash(after);
    world.open().expect("open after the second crash");
}

fn crash_at(number: u64, torn: usize, keep: Keep) {
    let mut world = world();
    world.disk.fault_at(number, Fault::PowerOff(torn));
    let result = run(&mut world, &script());
    assert!(result.is_err(), "operation {number} was not reached");
    let after = world.disk.power_cut(keep);
    world.crash(after);
    recover_twice(&mut world);
}

#[test]
fn every_operation_at_every_torn_length() {
    for (index, len) in operations().into_iter().enumerate() {
        let number = index as u64 + 1;
        // Headers and zeros are long and alike: every sector and its neighbours will do.
        let lengths: Vec<usize> = match len {
            None => vec![0],
            Some(len) if len < 2000 => (0..=len).collect(),
            Some(len) => (0..=len).filter(|torn| (torn + 1) % 512 < 3).collect(),
        };
        for torn in lengths {
            crash_at(number, torn, Keep::Everything);
        }
    }
}

#[test]
fn every_operation_with_unsynced_pages_in_any_order() {
    for (index, len) in operations().into_iter().enumerate() {
        let number = index as u64 + 1;
        crash_at(number, len.unwrap_or(0), Keep::Synced);
        for seed in 0..40 {
            let torn = Random::new(seed).index(len.unwrap_or(0) + 1);
            crash_at(number, torn, Keep::Random(seed));
        }
    }
}

#[test]
fn every_set_of_unsynced_pages_of_a_small_tail() {
    // Frames over page borders, a rotation among them, and nothing synced: 2^n disks.
    let steps = [
        Step::Append(20),
        Step::Sync,
        Step::Append(700),
        Step::Append(8),
        Step::Append(600),
        Step::Begin,
        Step::Append(900),
        Step::Append(30),
        Step::Append(500),
    ];
    let mut count = 0;
    for bits in 0.. {
        let mut world = world();
        run(&mut world, &steps).expect("the script runs on a healthy disk");
        let unsynced = world.disk.unsynced();
        assert!(
            (6..=17).contains(&unsynced),
            "{unsynced} make a test too small or too long"
        );
        if bits >> unsynced != 0 {
            break;
        }
        let after = world.disk.power_cut(Keep::Chosen(bits));
        world.crash(after);
        recover_twice(&mut world);
        count += 1;
    }
    assert!(count >= 64);
}

#[test]
fn every_operation_of_an_opening() {
    // A torn tail, then a crash at each operation of the start that finds it, then of the next.
    let torn = |seed| {
        let mut world = world();
        run(&mut world, &script()).expect("the script runs on a healthy disk");
        let after = world.disk.power_cut(Keep::Random(seed));
        world.crash(after);
        world
    };
    for seed in 0..30 {
        for number in 1.. {
            let mut world = torn(seed);
            world
                .disk
                .fault_at(number, Fault::PowerOff(seed as usize * 17));
            if world.open().is_ok() {
                break;
            }
            let after = world.disk.power_cut(Keep::Random(seed + number));
            world.crash(after);
            recover_twice(&mut world);
        }
    }
}

/// One life after the other, each with its own end: power cut, kill, failing disk, full disk.
fn lives(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = world();
    for _ in 0..6 {
        let at = world.disk.operations() + 1 + random.below(70);
        let fault = match random.below(6) {
            0 => Fault::Io,
            // Never so much that what is missing could be what stood there before: the log wipes
            // that, but a power cut may lose the wiping.
            1 => Fault::NoSpace(random.index(50)),
            2 => Fault::Short(random.index(300)),
            _ => Fault::PowerOff(random.index(900)),
        };
        world.disk.fault_at(at, fault);
        let mut result = world.open();
        for _ in 0..50 {
            if result.is_err() {
                break;
            }
            let step = any_step(&mut random);
            result = world.step(step);
            if let (Step::FillSpare, Err(_)) = (step, &result) {
                // Making a spare may fail without harm to the log, unless the power went.
                result = world.step(Step::Append(10));
            }
        }
        let after = match random.below(4) {
            // The process ends; the system, its cache and what it forgot stay.
            0 | 1 => world.disk.fork(),
            2 => world.disk.power_cut(Keep::Synced),
            _ => world.disk.power_cut(Keep::Random(random.next_u64())),
        };
        world.crash(after);
    }
    recover_twice(&mut world);
}

#[test]
fn many_lives() {
    for seed in 0..3000 {
        let attempt = std::panic::catch_unwind(|| lives(seed));
        assert!(attempt.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_frame_refused_for_want_of_space_does_not_come_back() {
    // The payload ends in zeros and so does the file: a write that stops short is whole all the
    // same.
    let disk = SimDisk::new(1);
    let options = options();
    let (mut log, ..) = common::open_with(Arc::new(disk.clone()), options.clone()).expect("open");
    log.spares()
        .fill(&AtomicBool::new(false))
        .expect("fill the spares");
    append(&mut log, 1, b"one");
    sync(&mut log);
    disk.fault_at(disk.operations() + 1, Fault::NoSpace(usize::MAX));
    let stamp = Stamp {
        epoch: Epoch(1),
        time_ms: 0,
    };
    let end = log.end();
    let refused = log.append(end, stamp, &mut facts(&[0; 100]));
    assert!(
        matches!(refused, Err(LogError::NoSpace { .. })),
        "{refused:?}"
    );
    assert_eq!(log.end(), end, "the log is as it was");
    let (mut log, _, seen) =
        common::open_with(Arc::new(disk.fork()), options.clone()).expect("open again");
    assert_eq!(seen.len(), 1);
    append(&mut log, 2, b"two");
}
