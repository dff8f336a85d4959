//! How much is written for what was asked, over random lives: never more than
//! a stated multiple, whatever names, tables and leases there are, and nothing
//! once nobody asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quintet_engine::{Fact, Journal};
use quintet_sim::Random;
use quintet_sim::disk::{Fault, Keep, SimDisk};
use quintet_types::{
    BackTo, Body, Command, Effect, LeaseOwner, LeaseRequest, LeaseTime, Name, Outcome, Overrides,
    Pattern, Put, Settings, Take, Transaction,
};

use super::commit::{Ending, LATE_BYTES};
use super::keep::tests::{SEGMENT, ask, open_shards, open_with};
use super::shard::SLICE_BYTES;
use super::{Core, Work, locked};

const STEPS: usize = 60;
/// Size within which the maintenance keeps the log.
const LOG: u64 = 4 * SEGMENT;

fn name(random: &mut Random, lens: &[usize]) -> Name {
    let number = random.index(40);
    let mut name = format!("{number}-").into_bytes();
    name.resize(lens[number % lens.len()].max(name.len()), b'n');
    Name::new(&name)
}

fn step(core: &Core, random: &mut Random, lens: &[usize]) {
    let queue = name(random, lens);
    let put = |body| Put {
        queue: queue.clone(),
        body: Body::new(&vec![7; body]),
        ..Put::default()
    };
    let take = Take {
        queues: [queue.clone()].into_iter().collect(),
        ..Take::default()
    };
    let command = match random.below(16) {
        0..=5 => Command::Put(put(random.index(3000))),
        6..=7 => Command::Take(take),
        // Those stay in memory, so in the log.
        8..=10 => Command::Take(Take {
            lease: Some(LeaseRequest {
                owner: LeaseOwner::Time,
                time: LeaseTime::Fixed(1 << 40),
                back_to: BackTo::Position,
                held_max: 0,
            }),
            ..take
        }),
        11 => Command::Configure {
            queue: queue.clone(),
            overrides: Some(Box::new(Overrides {
                ttl_ms: Some(1 << 40),
                ..Overrides::default()
            })),
            must_exist: false,
        },
        12..=13 => Command::Transaction(Box::new(Transaction {
            effects: vec![Effect::Set {
                table: queue.clone(),
                key: random.below(4).to_le_bytes().into(),
                value: Some(vec![7; random.index(2000)].into()),
                ttl_ms: None,
            }],
            ..Transaction::default()
        })),
        14 => Command::Drop(queue),
        _ => Command::FlushAll,
    };
    ask(core, command);
}

/// The work of threads that nobody asks for. True if anything was written or retired.
fn upkeep(core: &Core) -> bool {
    let never = AtomicBool::new(false);
    let before = core.counts.log_written.load(Ordering::Relaxed);
    let mut over = Instant::now().checked_sub(Duration::from_secs(2));
    let retired = core.retire_one(LOG, &mut over, &never);
    assert!(core.write_now());
    core.sync();
    retired || core.counts.log_written.load(Ordering::Relaxed) > before
}

fn life(seed: u64, lens: &[usize]) {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new(seed);
    let settings = Settings {
        // Far more than a segment: such a directory may be there.
        snapshot_bytes_max: 1 << 30,
        ..Settings::default()
    };
    for _ in 0..2 {
        let core = open_with(&disk, &settings);
        for _ in 0..STEPS {
            step(&core, &mut random, lens);
            upkeep(&core);
        }
        // The longest it takes is once through the log, and each segment with a
        // snapshot before it.
        let rounds = (0..500).take_while(|_| upkeep(&core)).count();
        assert!(rounds < 500, "seed {seed}: it writes for ever");
        assert!(!upkeep(&core) && !upkeep(&core), "seed {seed}: not at rest");
        let counts = &core.counts;
        let get = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let (written, requested) = (get(&counts.log_written), counts.log_requested());
        let (snapshots, copied) = (get(&counts.log_snapshots), get(&counts.log_copied));
        let longest = core.shards[0].lock(Work::Server).engine.snapshot_bytes();
        let expected = format!(
            "seed {seed}: {written} bytes for {requested}, {snapshots} of snapshots, {copied} copied"
        );
        // As docs/operations.md says it. One that begins is not yet used up,
        // and after a start the segment is not the server's own.
        assert!(copied <= requested + LOG + 2 * SEGMENT, "{expected}");
        assert!(
            snapshots <= requested + copied + 3 * longest.max(SEGMENT),
            "{expected}"
        );
        assert!(core.finish());
        drop(core);
        disk = disk.power_cut(Keep::Synced);
    }
}

#[test]
fn written_bytes_are_at_most_a_multiple_of_the_requests() {
    for seed in 0..12 {
        life(seed, &[5]);
        life(seed, &[5, 200, 1500]);
        // Names that are longer than a segment together.
        life(seed, &[2000, 4000]);
    }
}

/// Every frame of a start and of a rotation where the snapshot is longer than
/// a segment, and cut into frames; then of the end of all segments before.
#[test]
fn a_snapshot_in_many_frames_survives_a_cut_after_any_of_them() {
    let disk = SimDisk::new(1);
    let settings = Settings::default();
    let core = open_with(&disk, &settings);
    for number in 0..30 {
        let mut queue = format!("{number}").into_bytes();
        queue.resize(3000, b'n');
        let put = Put {
            queue: Name::new(&queue),
            ..Put::default()
        };
        let stored = ask(&core, Command::Put(put));
        assert!(matches!(stored, Outcome::Put { .. }));
    }
    assert!(core.finish());
    drop(core);
    let queues = |core: &Core| {
        let shard = core.shards[0].lock(Work::Server);
        let made = |fact: &Fact| matches!(fact, Fact::QueueMade { .. });
        shard
            .engine
            .image()
            .iter()
            .filter(|fact| made(fact))
            .count()
    };
    let mut ends = 0;
    for at in 1.. {
        let disk = disk.fork();
        disk.fault_at(at, Fault::PowerOff(100));
        let start = std::panic::catch_unwind(|| {
            let core = open_with(&disk, &settings);
            // And the beginning of a segment.
            locked(&core.committer).commit(&core, Ending::Now);
            for _ in 0..3 {
                assert!(core.restate(), "it has all at once");
                assert!(core.write_now());
            }
            core.sync();
            // The rest is written first.
            let segments = locked(&core.committer).log.segments();
            for old in &segments[..segments.len() - 1] {
                core.retire(old.number, &AtomicBool::new(false));
            }
        });
        for seed in 0..3 {
            let after = disk.power_cut(Keep::Random(seed));
            let core = open_with(&after, &settings);
            assert_eq!(queues(&core), 30, "operation {at}, seed {seed}");
        }
        if start.is_ok() {
            break;
        }
        ends += 1;
    }
    assert!(ends > 60, "only {ends} operations");
    // All of it can be dropped.
    let core = open_with(&disk, &settings);
    let drop_all = Command::DropQueues {
        pattern: Pattern::new("*"),
        messages: true,
        dry_run: false,
        from: (0, 0),
    };
    assert!(matches!(ask(&core, drop_all), Outcome::Dropped(done) if done.queues == 30));
    assert_eq!(queues(&core), 0);
}

/// Two shards with 100 queues; what the newest segment begins with is whole.
fn of_queues() -> Core {
    let core = open_shards(&SimDisk::new(1), &Settings::default(), 2);
    for number in 0..100 {
        let put = Put {
            queue: Name::from(format!("a-queue-{number:0200}").as_str()),
            ..Put::default()
        };
        assert!(matches!(ask(&core, Command::Put(put)), Outcome::Put { .. }));
    }
    // As far as some began meanwhile.
    while core.restate() {}
    assert!(core.write_now());
    core
}

#[test]
fn a_stop_does_not_wait_for_what_a_segment_begins_with() {
    let core = of_queues();
    locked(&core.committer).commit(&core, Ending::Now);
    let oldest = || locked(&core.committer).log.segments()[0].number;
    let before = oldest();
    core.retire(before, &AtomicBool::new(true));
    assert!(core.restate(), "all of it was written");
    assert_eq!(oldest(), before, "it is retired");
}

/// Nobody holds a shard for all that a segment begins with, and none ends before that is written.
#[test]
fn a_segment_begins_in_slices() {
    let core = of_queues();
    let rotate = || {
        locked(&core.committer).commit(&core, Ending::Now);
        core.counts.rotations.load(Ordering::Relaxed)
    };
    let longest = || {
        let batches = core.shards.iter().map(|shard| {
            let shard = shard.lock(Work::Server);
            assert_eq!(shard.batch.snapshot, shard.batch.records.len());
            shard.batch.snapshot as u64
        });
        batches.max().expect("two shards")
    };
    let begun = rotate();
    let (mut slices, mut more) = (0, true);
    while more {
        more = core.restate();
        assert!(longest() <= SLICE_BYTES + 1000, "slice {slices}");
        let begins = rotate() - begun;
        assert_eq!(begins, u64::from(!more), "slice {slices}");
        slices += 1;
        assert!(slices < 100, "it goes on for ever");
    }
    // A queue is counted as 464 bytes: a slice has nine, and one shard at least fifty.
    assert!(slices >= 6, "{slices}");
}

/// Where threads decide faster than upkeep writes, commits write the rest, each a part.
#[test]
fn a_late_beginning_is_written_in_parts() {
    let core = open_with(&SimDisk::new(1), &Settings::default());
    let long = |number: usize| {
        let mut name = format!("{number}-").into_bytes();
        name.resize(4000, b'n');
        Name::new(&name)
    };
    for number in 0..600 {
        let put = Put {
            queue: long(number),
            ..Put::default()
        };
        assert!(matches!(ask(&core, Command::Put(put)), Outcome::Put { .. }));
    }
    while core.restate() {}
    assert!(core.write_now());
    locked(&core.committer).commit(&core, Ending::Now);
    let record = |count: usize| {
        let mut shard = core.shards[0].lock(Work::Server);
        assert!(shard.engine.is_restating());
        for _ in 0..count {
            shard.batch.record(&Fact::TableDropped(long(0)));
        }
    };
    // More than twice as much as a queue's 4,256 bytes, 600 times.
    record(2000);
    let snapshots = || core.counts.log_snapshots.load(Ordering::Relaxed);
    let rotations = || core.counts.rotations.load(Ordering::Relaxed);
    let (begun, mut parts) = (rotations(), 0);
    while rotations() == begun {
        let before = snapshots();
        record(1);
        assert!(core.write_now());
        let part = snapshots() - before;
        assert!(part <= LATE_BYTES + 5000, "part {parts}: {part} bytes");
        parts += 1;
        assert!(parts < 10, "it goes on for ever");
    }
    assert!(parts >= 3, "{parts}");
}

/// Commands that are decided while a batch waits for room on the disk are no part of it.
#[test]
fn the_open_batch_is_written_behind_one_that_found_the_disk_full() {
    let disk = SimDisk::new(1);
    let core = open_with(&disk, &Settings::default());
    let record = || {
        let mut shard = core.shards[0].lock(Work::Server);
        shard.batch.record(&Fact::IdMark(1));
    };
    record();
    disk.fault_at(disk.operations() + 1, Fault::NoSpace(0));
    assert!(!core.write_now());
    record();
    assert!(core.write_now());
    assert!(core.shards[0].lock(Work::Server).batch.is_empty());
}
