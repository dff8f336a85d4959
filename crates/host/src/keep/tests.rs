//! Spilling, reading back, writing runs again and retiring the log on a disk
//! that loses its power at any operation: nothing acknowledged is lost, nothing
//! comes twice, the order stays.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_log::run::{RunName, RunOptions, RunWriter, list_runs};
use quintet_log::{LocalLog, Options, ReplayFrame, Storage};
use quintet_sim::Random;
use quintet_sim::disk::{Fault, Keep, SimDisk};
use quintet_types::{
    Body, By, Caller, ClientId, Command, Delivery, How, ListState, MessageId, Name, Outcome, Put,
    Settings, Take,
};

use super::Budget;
use crate::commit::Ending;
use crate::recover::{Layout, open_on};
use crate::{
    Access, Core, Decided, Owner, Panics, Post, Replay, Required, Room, SyncPolicy, Trail, Work,
    locked,
};

pub(crate) const SEGMENT: u64 = 32 << 10;
/// Longer than any healthy answer takes. Nothing passes by reaching it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Numbers of a load's steps.
const STEPS: usize = 70;

fn open(disk: &SimDisk) -> Core {
    open_with(disk, &Settings::default())
}

/// Keeps what is left for a thread that there is not.
#[derive(Default)]
struct Kept(Mutex<Vec<(Delivery, Required)>>);

impl Post for Kept {
    fn post(&self, delivery: Delivery, required: Required) {
        locked(&self.0).push((delivery, required));
    }

    fn notify_written(&self) {}

    fn notify_durable(&self) {}

    fn wake(&self) {}

    fn take(&self) -> Vec<(Delivery, Required)> {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// A core on this disk, without its threads.
pub(crate) fn open_with(disk: &SimDisk, settings: &Settings) -> Core {
    open_shards(disk, settings, 1)
}

/// The same of several shards.
pub(crate) fn open_shards(disk: &SimDisk, settings: &Settings, shards: usize) -> Core {
    open_owned(disk, settings, shards, Box::new(Panics))
}

/// The same, of this owner.
pub(crate) fn open_owned(
    disk: &SimDisk,
    settings: &Settings,
    shards: usize,
    owner: Box<dyn Owner>,
) -> Core {
    let layout = Layout {
        shards,
        segment_bytes: SEGMENT,
        spares: 0,
        memory: 32 << 20,
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let opened = open_on(&storage, &layout, settings).expect("it opens");
    let mail: Vec<Arc<dyn Post>> = vec![Arc::new(Kept::default())];
    let room = Room::new("/".into(), SEGMENT);
    let core = Core::new(opened, SyncPolicy::Always, mail, room, owner);
    everything_leaves(&core);
    core
}

/// Everything is over the budget from now on.
pub(crate) fn everything_leaves(core: &Core) {
    *locked(&core.runs.budget) = Budget {
        high: 0,
        low: 0,
        least: 0,
        limit: u64::MAX,
        picks: 40,
        slack: 0,
        runs: 3,
    };
}

/// A turn of the compactor thread.
pub(crate) fn keep(core: &Core, rewrites: bool) {
    let never = AtomicBool::new(false);
    for shard in 0..core.shards.len() {
        core.relieve(shard, &never);
    }
    core.bury_runs();
    if rewrites {
        (0..core.shards.len()).for_each(|shard| core.rewrite_thin(shard, &never));
    }
}

/// Asks, reads what runs it needs, and waits until the answer is durable.
pub(crate) fn ask(core: &Core, command: Command) -> Outcome {
    let mut trail = Trail::default();
    let caller = Caller {
        client_id: ClientId(1),
        ..Caller::default()
    };
    let decided = Access::new(core, core.clock.now(), &mut trail).submit(caller, command);
    let outcome = match decided {
        Decided::Now(outcome, ..) => outcome,
        Decided::Later => {
            core.fetch_all(&AtomicBool::new(false));
            let mut mail = core.mail[0].take();
            // Another thread may be about to answer it.
            let began = Instant::now();
            while mail.is_empty() && began.elapsed() < PATIENCE {
                std::thread::yield_now();
                core.fetch_all(&AtomicBool::new(false));
                mail = core.mail[0].take();
            }
            match mail.pop() {
                Some((delivery, _)) => delivery.outcome,
                _ => panic!("it waits although all was read"),
            }
        }
    };
    core.fetch_all(&AtomicBool::new(false));
    make_durable(core);
    outcome
}

/// Writes and syncs what was decided; segments end when they are full.
fn make_durable(core: &Core) {
    let waits = |core: &Core| {
        core.progress.open() > core.progress.written() + 1
            || core
                .shards
                .iter()
                .any(|shard| !shard.lock(Work::Server).batch.is_empty())
    };
    for round in 0.. {
        if !waits(core) {
            break;
        }
        assert!(round < 100, "there is always something more to write");
        assert!(core.write_now(), "there is space");
    }
    core.sync();
}

/// The commands, and the replies before the power went.
#[derive(Default)]
struct ExpectedState {
    next: u64,
    /// Put and acknowledged, with their ids.
    stored: Vec<(u64, MessageId)>,
    /// Removed and acknowledged.
    gone: BTreeSet<u64>,
    /// Set aside.
    buried: BTreeSet<u64>,
    /// About to be removed, perhaps without an answer.
    requested: BTreeSet<u64>,
}

fn put(number: u64, len: usize) -> Command {
    put_in("work", number, len)
}

fn put_in(queue: &str, number: u64, len: usize) -> Command {
    let mut body = format!("{number}:").into_bytes();
    body.resize(len.max(body.len()), b'.');
    Command::Put(Put {
        queue: Name::from(queue),
        body: Body::new(&body),
        ..Put::default()
    })
}

fn number_of(body: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(body);
    let number = text
        .split(':')
        .next()
        .and_then(|number| number.parse().ok());
    number.expect("a number")
}

fn take(core: &Core) -> Option<u64> {
    take_from(core, "work")
}

fn take_from(core: &Core, queue: &str) -> Option<u64> {
    let take = Take {
        queues: [Name::from(queue)].into_iter().collect(),
        ..Take::default()
    };
    let outcome = ask(core, Command::Take(take));
    if outcome == Outcome::Empty {
        return None;
    }
    let Outcome::Messages(messages) = outcome else {
        panic!("{outcome:?}");
    };
    Some(number_of(messages[0].body.as_small().expect("small")))
}

/// One step of a load.
fn step(core: &Core, random: &mut Random, known: &mut ExpectedState) {
    let never = AtomicBool::new(false);
    match random.below(12) {
        0..=3 => {
            for _ in 0..random.below(20) {
                let number = known.next;
                known.next += 1;
                let outcome = ask(core, put(number, random.index(200)));
                let Outcome::Put { id, .. } = outcome else {
                    panic!("{outcome:?}");
                };
                known.stored.push((number, id));
            }
        }
        4..=5 => {
            for _ in 0..random.below(12) {
                // The take in flight removes the oldest that is left.
                let mut left = known.stored.iter().map(|(number, _)| *number);
                let oldest = left.find(|number| {
                    !known.requested.contains(number) && !known.buried.contains(number)
                });
                known.requested.extend(oldest);
                if let Some(number) = take(core) {
                    known.requested.insert(number);
                    assert!(known.gone.insert(number), "{number} was taken twice");
                }
            }
        }
        6 => {
            if let Some(&(number, id)) = pick(random, &known.stored) {
                let buries = random.below(2) == 0;
                let command = match buries {
                    true => Command::Settle {
                        id,
                        by: By::OwnerOrFree,
                        how: How::Bury {
                            priority: None,
                            reason: Box::default(),
                        },
                    },
                    false => Command::Delete {
                        id,
                        by: By::OwnerOrFree,
                    },
                };
                if !buries {
                    known.requested.insert(number);
                }
                let done = ask(core, command) == Outcome::Done;
                if done && buries {
                    known.buried.insert(number);
                } else if done {
                    assert!(known.gone.insert(number), "{number} was deleted twice");
                }
            }
        }
        7..=8 => {
            core.relieve(0, &never);
        }
        9 => {
            // A new segment, so that there is one to retire.
            let _ = locked(&core.committer).commit(core, Ending::Now);
            core.retire_one(SEGMENT / 2, &mut None, &never);
        }
        10 => {
            core.rewrite_thin(0, &never);
            core.bury_runs();
        }
        _ => core.bury_runs(),
    }
    core.fetch_all(&AtomicBool::new(false));
}

fn pick<'a, T>(random: &mut Random, of: &'a [T]) -> Option<&'a T> {
    match of.len() {
        0 => None,
        len => of.get(random.index(len)),
    }
}

/// Answers how much was spilled, fetched, written again, retired and deleted.
fn load(disk: &SimDisk, seed: u64, known: &mut ExpectedState) -> [u64; 5] {
    let core = open(disk);
    let mut random = Random::new(seed);
    for _ in 0..STEPS {
        step(&core, &mut random, known);
    }
    make_durable(&core);
    let (counts, runs) = (&core.counts, &core.runs);
    let made = u64::from(runs.next.load(Ordering::Relaxed)) - 1;
    let kept = locked(&runs.open).len() as u64;
    [
        runs.counts.spilled.load(Ordering::Relaxed),
        runs.counts.fetched_messages.load(Ordering::Relaxed),
        runs.counts.rewritten.load(Ordering::Relaxed),
        counts.retired.load(Ordering::Relaxed),
        made - kept,
    ]
}

/// Everything that is left, in order.
fn drain(core: &Core) -> Vec<u64> {
    for state in [ListState::Buried, ListState::Delayed] {
        let kick = Command::Kick {
            queue: Name::from("work"),
            state,
            max: 100_000,
        };
        while let Outcome::Count(1..) = ask(core, kick.clone()) {}
    }
    std::iter::from_fn(|| take(core)).collect()
}

fn check(disk: &SimDisk, known: &ExpectedState, what: &str) {
    let core = open(disk);
    assert_eq!(
        core.shards[0].lock(Work::Server).engine.verify(),
        Ok(()),
        "{what}"
    );
    let left = drain(&core);
    assert!(left.is_sorted(), "{what}: out of order: {left:?}");
    let there: BTreeSet<u64> = left.iter().copied().collect();
    assert_eq!(there.len(), left.len(), "{what}: something came twice");
    for number in &there {
        assert!(*number < known.next, "{what}: {number} was never put");
        assert!(!known.gone.contains(number), "{what}: {number} came back");
    }
    for (number, _) in &known.stored {
        let may_be_gone = known.requested.contains(number);
        assert!(
            may_be_gone || there.contains(number),
            "{what}: {number} is lost"
        );
    }
    assert_eq!(
        core.shards[0].lock(Work::Server).engine.verify(),
        Ok(()),
        "{what}"
    );
}

#[test]
fn power_may_fail_at_any_operation() {
    let mut done = [0; 5];
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let mut known = ExpectedState::default();
        let counts = load(&disk, seed, &mut known);
        done.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        let operations = disk.operations();
        assert!(operations > 200, "{operations} operations");
        check(&disk.fork(), &known, "no crash");

        let mut random = Random::new(seed + 100);
        for _ in 0..50 {
            let at = 1 + random.below(operations);
            let disk = SimDisk::new(seed);
            disk.fault_at(at, Fault::PowerOff(random.index(5000)));
            let mut known = ExpectedState::default();
            let ran = catch_unwind(AssertUnwindSafe(|| load(&disk, seed, &mut known)));
            let what = format!("seed {seed}, power off at operation {at} of {operations}");
            let keep = match random.below(3) {
                0 => Keep::Synced,
                1 => Keep::Everything,
                _ => Keep::Random(random.below(1 << 30)),
            };
            let cut = disk.power_cut(keep);
            drop(ran);
            check(&cut, &known, &format!("{what}, {keep:?}"));
        }
    }
    // All of it was at stake.
    assert!(
        done.iter().all(|&n| n > 10),
        "spilled, fetched, rewritten, retired, deleted: {done:?}"
    );
}

/// A run died, its file is gone, and the server starts again, which reads of
/// that run in the log. The next run is of another shard: it keeps its file.
#[test]
fn a_run_of_before_the_start_takes_no_other_one_s_file() {
    const COUNT: u64 = 40;
    let disk = SimDisk::new(1);
    let never = AtomicBool::new(false);
    let queue_of = |core: &Core, shard: usize| {
        let mut names = (0..).map(|number: u32| format!("queue-{number}"));
        let name = names.find(|name| core.shard_of_queue(name.as_bytes()) == shard);
        name.expect("a name of this shard")
    };
    let fill = |core: &Core, queue: &str| {
        for number in 0..COUNT {
            ask(core, put_in(queue, number, 100));
        }
        core.relieve(core.shard_of_queue(queue.as_bytes()), &never);
        make_durable(core);
        let runs = list_runs(&disk).expect("listed");
        assert!(!runs.is_empty(), "nothing left memory");
        runs
    };
    for (first, second) in [(0, 1), (1, 0)] {
        let before = {
            let core = open_shards(&disk, &Settings::default(), 2);
            let queue = queue_of(&core, first);
            let runs = fill(&core, &queue);
            for number in 0..COUNT {
                assert_eq!(take_from(&core, &queue), Some(number));
            }
            core.bury_runs();
            assert_eq!(list_runs(&disk).expect("listed"), [], "they are dead");
            runs
        };
        let core = open_shards(&disk, &Settings::default(), 2);
        let queue = queue_of(&core, second);
        let runs = fill(&core, &queue);
        core.bury_runs();
        assert_eq!(list_runs(&disk).expect("listed"), runs, "they are needed");
        let newest = before.iter().map(|run| run.number).max();
        assert!(runs.iter().all(|run| Some(run.number) > newest), "{runs:?}");
        for number in 0..COUNT {
            assert_eq!(take_from(&core, &queue), Some(number));
        }
        core.bury_runs();
    }
}

/// A log and its runs, of a queue whose messages have left memory.
fn with_runs() -> (SimDisk, RunName) {
    let disk = SimDisk::new(1);
    let core = open(&disk);
    for number in 0..100 {
        ask(&core, put(number, 100));
    }
    core.relieve(0, &AtomicBool::new(false));
    make_durable(&core);
    drop(core);
    let run = list_runs(&disk).expect("listed")[0];
    (disk.fork(), run)
}

/// Why the log is not taken over.
fn refused(disk: &SimDisk) -> String {
    let layout = Layout {
        shards: 1,
        segment_bytes: SEGMENT,
        spares: 0,
        memory: 32 << 20,
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let opened = open_on(&storage, &layout, &Settings::default());
    let error = opened.err().expect("it does not begin");
    format!("{error:#}")
}

#[test]
fn a_log_does_not_begin_where_a_run_it_names_is_missing_or_another() {
    let (disk, run) = with_runs();
    disk.remove(&run.to_string()).expect("removed");
    let why = refused(&disk);
    let named = format!("{run} holds 40 living messages and cannot be opened");
    assert!(why.contains(&named), "{why}");

    let (disk, run) = with_runs();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    disk.remove(&run.to_string()).expect("removed");
    let mut other = RunWriter::create(storage, run, RunOptions::default()).expect("created");
    other.state_index(b"lane").expect("a lane");
    other.push(7, None, b"payload").expect("an entry");
    other.finish().expect("finished");
    let why = refused(&disk);
    let named = format!("{run} is not the run that the log names");
    assert!(why.contains(&named), "{why}");
    assert!(why.contains("; 40 living messages are in no run"), "{why}");
}

#[test]
fn snapshots_name_the_runs_that_replay_has() {
    let (mut segments, mut others) = (0, Vec::new());
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        load(&disk, seed, &mut ExpectedState::default());
        let mut replay = Replay::new(1, &Settings::default()).expect("few shards");
        let disk: Arc<dyn Storage> = Arc::new(disk.fork());
        let mut each = |frame: ReplayFrame<'_>| {
            segments += u64::from(frame.first_in_segment);
            replay.apply(&frame)?;
            // Of messages before the first segment replay knows too little.
            others.extend(
                replay
                    .take_contradiction()
                    .filter(|why| !why.starts_with("queue")),
            );
            Ok(())
        };
        LocalLog::open(disk, Options::default(), &mut each).expect("it opens");
        assert_eq!(replay.lacks(), None, "seed {seed}");
    }
    assert_eq!(others, [""; 0]);
    assert!(segments > 24, "{segments}");
}

/// The thread that retires segments puts a run in force, block by block, while
/// the compactor writes runs again and deletes them.
#[test]
fn a_run_half_in_force_is_left_alone() {
    let long = std::env::var("QUINTET_CASES").is_ok();
    let count = if long { 200_000 } else { 60_000 };
    let core = open(&SimDisk::new(1));
    locked(&core.runs.budget).picks = 8000;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                core.relieve(0, &stop);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                core.rewrite_thin(0, &stop);
                core.bury_runs();
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (mut next, mut expected) = (0, 0);
            while expected < count {
                while next < count && next < expected + 9000 {
                    let put = |number| {
                        let Command::Put(put) = put(number, 400) else {
                            panic!("it is a put");
                        };
                        put
                    };
                    let puts = (next..next + 500).map(put).collect();
                    ask(&core, Command::PutMany(puts));
                    next += 500;
                }
                let some = Take {
                    queues: [Name::from("work")].into_iter().collect(),
                    messages_max: 50,
                    ..Take::default()
                };
                let Outcome::Messages(taken) = ask(&core, Command::Take(some)) else {
                    panic!("{expected} is not there");
                };
                for message in taken {
                    let body = message.body.as_small().expect("small");
                    assert_eq!(number_of(body), expected);
                    expected += 1;
                }
            }
        }));
        stop.store(true, Ordering::SeqCst);
        if let Err(failure) = outcome {
            std::panic::resume_unwind(failure);
        }
    });
    assert!(core.runs.counts.rewritten.load(Ordering::Relaxed) > 0);
}

/// A put waits for memory, and memory is free again before the compactor looks: the compactor finds
/// nothing to do, and the put is answered all the same.
#[test]
fn a_put_that_waits_for_memory_is_answered_where_the_compactor_has_nothing_to_do() {
    let never = AtomicBool::new(false);
    let core = open(&SimDisk::new(1));
    ask(&core, put(1, 1000));
    core.shards[0].lock(Work::Server).engine.set_memory_room(1);
    let mut trail = Trail::default();
    let caller = Caller {
        client_id: ClientId(2),
        ..Caller::default()
    };
    let decided = Access::new(&core, core.clock.now(), &mut trail).submit(caller, put(2, 10));
    assert!(matches!(decided, Decided::Later), "it waits for memory");
    core.see_to(trail);
    core.timer_turn(&mut core.clock.ahead());
    assert!(core.timer.next() > core.clock.now(), "nothing is due");
    locked(&core.runs.budget).high = u64::MAX;
    assert!(!core.relieve(0, &never), "nothing has to leave memory");
    let now = core.clock.now();
    assert!(core.timer.next() <= now, "the timer thread is woken");
    core.timer_turn(&mut core.clock.ahead());
    let mail = core.mail[0].take();
    assert_eq!(mail.len(), 1, "the put is answered: {mail:?}");
}

/// At a stop nobody waits for memory, and the compactor, which still runs, makes nobody wait again.
#[test]
fn a_stop_leaves_no_put_waiting_for_memory() {
    let never = AtomicBool::new(false);
    let core = open(&SimDisk::new(1));
    ask(&core, put(1, 1000));
    core.shards[0].lock(Work::Server).engine.set_memory_room(1);
    let submit = |number| {
        let mut trail = Trail::default();
        let caller = Caller {
            client_id: ClientId(number),
            ..Caller::default()
        };
        let mut access = Access::new(&core, core.clock.now(), &mut trail);
        let decided = access.submit(caller, put(number, 10));
        drop(access);
        core.see_to(trail);
        matches!(decided, Decided::Later)
    };
    assert!(submit(2), "it waits for memory");
    core.end_room_waits();
    assert_eq!(core.mail[0].take().len(), 1, "it is answered");
    *locked(&core.runs.budget) = Budget {
        high: u64::MAX,
        limit: 1,
        ..core.runs.budget()
    };
    core.relieve(0, &never);
    assert!(!submit(3), "nobody waits any more");
}
