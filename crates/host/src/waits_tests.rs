//! The waits of WAITS.md between the host's threads: each of these fails when the wake that
//! ends the wait is left out, in the time of [`PATIENCE`] at most.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_engine::{BlockAt, Want};
use quintet_sim::disk::SimDisk;
use quintet_types::{
    Body, Caller, Command, CommandError, Delivery, MessageId, Outcome, Peek, Put, Settings,
};

use super::keep::tests::{PATIENCE, ask, open_shards};
use super::{
    ClientKey, Core, Decided, FrameBuf, FrameKind, Post, Required, SyncPolicy, Trail, Work, locked,
};

/// Counts the notifications of a thread that holds replies, and keeps its mail.
#[derive(Default)]
struct Rung {
    written: AtomicU64,
    durable: AtomicU64,
    mail: Mutex<Vec<Delivery>>,
}

impl Post for Rung {
    fn post(&self, delivery: Delivery, _: Required) {
        locked(&self.mail).push(delivery);
    }

    fn wake(&self) {}

    fn notify_written(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    fn notify_durable(&self) {
        self.durable.fetch_add(1, Ordering::SeqCst);
    }
}

/// A core whose thread 0 is `rung`.
fn core(policy: SyncPolicy) -> (Core, Arc<Rung>) {
    let mut core = open_shards(&SimDisk::new(1), &Settings::default(), 1);
    let rung = Arc::new(Rung::default());
    core.mail = vec![Arc::<Rung>::clone(&rung)];
    core.policy = policy;
    (core, rung)
}

fn caller() -> Caller {
    let key = ClientKey {
        thread: 0,
        slot: 1,
        generation: 1,
    };
    Caller {
        client_id: key.client_id(),
        ..Caller::default()
    }
}

fn put(body: &str) -> Command {
    Command::Put(Put {
        queue: "q".into(),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    })
}

/// The number of the batch that a put is in, which nobody has written.
fn recorded(core: &Core) -> u64 {
    let mut trail = Trail::default();
    let mut access = super::Access::new(core, core.clock.now(), &mut trail);
    let decided = access.submit(caller(), put("x"));
    drop(access);
    assert!(matches!(decided, Decided::Now(Outcome::Put { .. }, ..)));
    trail.recorded
}

fn awaited(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return Err(what.to_owned());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Runs `thread` beside `asks`, and stops it whatever comes of it.
fn beside(
    core: &Core,
    thread: impl FnOnce(&AtomicBool) + Send,
    asks: impl FnOnce() -> Result<(), String>,
) {
    let stop = AtomicBool::new(false);
    let came = std::thread::scope(|scope| {
        scope.spawn(|| thread(&stop));
        let came = asks();
        stop.store(true, Ordering::SeqCst);
        core.stop_threads();
        came
    });
    assert_eq!(came, Ok(()));
}

#[test]
fn the_log_thread_notifies_of_written_and_synced_batches() {
    let (core, rung) = core(SyncPolicy::Always);
    beside(
        &core,
        |stop| core.run_log(stop),
        || {
            for number in 1..=3 {
                core.write(recorded(&core));
                for (received, what) in [(&rung.written, "written"), (&rung.durable, "durable")] {
                    awaited(what, || received.load(Ordering::SeqCst) >= number)?;
                }
            }
            Ok(())
        },
    );
}

#[test]
fn the_sync_thread_notifies_of_synced_batches() {
    for interval in [None, Some(Duration::from_secs(3600))] {
        let (core, rung) = core(SyncPolicy::Never);
        core.write(recorded(&core));
        assert_eq!(rung.written.load(Ordering::SeqCst), 1, "written at once");
        beside(
            &core,
            |stop| core.run_sync(interval, stop),
            || {
                core.sync_soon();
                awaited("durable", || rung.durable.load(Ordering::SeqCst) > 0)
            },
        );
    }
}

/// Each thread that writes the open batch, for whatever reason, tells those who wait for it.
#[test]
fn every_thread_that_writes_or_syncs_a_batch_notifies_of_it() {
    let of = |rung: &Rung| {
        let read = |of: &AtomicU64| of.load(Ordering::SeqCst);
        (read(&rung.written), read(&rung.durable))
    };
    // An I/O thread that syncs itself: the others are told.
    let (core, rung) = core(SyncPolicy::Always);
    recorded(&core);
    assert!(core.sync_here(1));
    assert_eq!(of(&rung), (1, 1));
    // The thread that retires segments.
    recorded(&core);
    assert!(core.write_now());
    assert_eq!(of(&rung), (2, 1));
    // A chunk of a large body that ends the segment.
    recorded(&core);
    let mut frame = FrameBuf::new(FrameKind::Body);
    frame.count = 1;
    frame.payload_mut().resize(32 << 10, 7);
    assert!(
        locked(&core.committer)
            .append_chunk(&core, &mut frame, false)
            .is_ok()
    );
    assert_eq!(of(&rung), (3, 1));
    // A segment that is given up, after all that was decided is durable.
    recorded(&core);
    let oldest = locked(&core.committer).log.segments()[0].number;
    core.retire(oldest, &AtomicBool::new(false));
    assert_eq!(of(&rung), (4, 2));
}

/// Messages in a run, and a peek at one of them answered by the fetch thread alone.
#[test]
fn the_fetch_thread_is_woken_for_reads_of_runs() {
    let (core, rung) = core(SyncPolicy::Always);
    let id = spilled(&core);
    beside(
        &core,
        |stop| core.run_fetch(stop),
        || {
            let peek = Command::Peek(Peek::Id(id));
            match core.with_access(|access| access.submit(caller(), peek)) {
                Decided::Later => {}
                Decided::Now(..) => return Err("it is in memory".to_owned()),
            }
            awaited("the peek is answered", || !locked(&rung.mail).is_empty())
        },
    );
}

/// The id of a message in a run.
fn spilled(core: &Core) -> MessageId {
    let mut last = MessageId(0);
    for _ in 0..50 {
        let Outcome::Put { id, .. } = ask(core, put("long")) else {
            panic!("it is stored");
        };
        last = id;
    }
    core.relieve(0, &AtomicBool::new(false));
    last
}

#[test]
fn a_stop_does_not_wait_for_a_run_to_be_written() {
    let (core, _) = core(SyncPolicy::Always);
    core.end_room_waits();
    spilled(&core);
    let cold = core.shards[0].lock(Work::Server).engine.cold_stats();
    assert_eq!(cold.messages, 0);
    assert_eq!(core.runs.counts.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_stop_does_not_wait_for_reads_of_runs() {
    let (core, _) = core(SyncPolicy::Always);
    spilled(&core);
    let (run, ..) = core.shards[0].lock(Work::Server).engine.runs()[0];
    let fetched = || core.runs.counts.fetched.load(Ordering::Relaxed);
    let before = fetched();
    for (stops, read) in [(true, 0), (false, 1)] {
        let block = Want::Block(BlockAt { run, ordinal: 0 }, 0);
        locked(&core.runs.wanted).push((0, block));
        core.fetch_all(&AtomicBool::new(stops));
        assert_eq!(fetched() - before, read, "stops: {stops}");
    }
}

/// A hook peeks at a message in a run, and keeps its thread: what was read is handed to it, and at
/// a stop, when nobody reads any more, it learns that.
#[test]
fn a_peek_at_a_run_ends_with_the_read_or_with_the_server() {
    for stops in [false, true] {
        let (core, _) = core(SyncPolicy::Always);
        let id = spilled(&core);
        let (sender, received) = std::sync::mpsc::channel();
        let core = Arc::new(core);
        let peeks = Arc::clone(&core);
        // Detached: it never ends where its wake is left out.
        std::thread::spawn(move || sender.send(peeks.peek(Command::Peek(Peek::Id(id))).0));
        awaited("the peek waits", || !locked(&core.runs.wanted).is_empty())
            .expect("it is in a run");
        match stops {
            true => core.end_peeks(),
            false => core.fetch_all(&AtomicBool::new(false)),
        }
        let outcome = received.recv_timeout(PATIENCE).expect("the peek ends");
        match stops {
            true => {
                assert_eq!(outcome, Outcome::Refused(CommandError::Draining));
                // One that begins later has nobody to wait for either.
                let (sender, received) = std::sync::mpsc::channel();
                let peeks = Arc::clone(&core);
                std::thread::spawn(move || sender.send(peeks.peek(Command::Peek(Peek::Id(id))).0));
                let outcome = received
                    .recv_timeout(PATIENCE)
                    .expect("the later peek ends");
                assert_eq!(outcome, Outcome::Refused(CommandError::Draining));
            }
            false => assert!(matches!(outcome, Outcome::Messages(_)), "{outcome:?}"),
        }
    }
}
