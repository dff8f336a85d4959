//! Nobody asks for anything: what a step of the server's own frees for a queue
//! of another shard arrives there all the same, and what it brings nearer is
//! waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quintet_engine::Fact;
use quintet_sim::disk::SimDisk;
use quintet_types::{
    BackTo, Body, By, Caller, ClientId, Command, DeadLetter, Expiry, LeaseOwner, LeaseRequest,
    LeaseTime, Ms, Name, Outcome, Overrides, Pattern, PendingDecisions, Put, Settings, Take, Wait,
    shard_of_queue,
};

use super::clock::{ByHand, Clock};
use super::keep::tests::{PATIENCE, ask, open_shards};
use super::{ClientKey, Core, Decided, Work};

/// In shard 0, and where its messages go: in shard 1.
const WORK: &str = "a";
const ELSEWHERE: &str = "b";

fn settings(rule: Overrides) -> Settings {
    Settings {
        rules: vec![(Pattern::new(WORK), rule)],
        ..Settings::default()
    }
}

fn open(settings: &Settings) -> Core {
    let shard = |name: &str| shard_of_queue(name.as_bytes(), 2);
    assert_eq!([WORK, ELSEWHERE].map(shard), [0, 1]);
    open_shards(&SimDisk::new(1), settings, 2)
}

fn put(body: &str) -> Put {
    Put {
        queue: WORK.into(),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    }
}

fn stored(core: &Core, put: Put) -> quintet_types::MessageId {
    let outcome = ask(core, Command::Put(put));
    let Outcome::Put { id, .. } = outcome else {
        panic!("{outcome:?}");
    };
    id
}

fn take(queue: &str) -> Take {
    Take {
        queues: std::iter::once(Name::from(queue)).collect(),
        ..Take::default()
    }
}

/// Somebody with a connection, whose mail is kept.
fn client_id(slot: u32) -> ClientId {
    ClientKey {
        thread: 0,
        slot,
        generation: 1,
    }
    .client_id()
}

/// Somebody waits for what comes to the other shard's queue.
fn wait_elsewhere(core: &Core) {
    let caller = Caller {
        client_id: client_id(2),
        ..Caller::default()
    };
    let waits = Take {
        wait: Wait::Forever,
        ..take(ELSEWHERE)
    };
    let decided = core.with_access(|access| access.submit(caller, Command::Take(waits)));
    assert!(matches!(decided, Decided::Later));
}

/// The messages that the waiting clients got.
fn brought(core: &Core) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for (delivery, _) in core.mail[0].take() {
        if let Outcome::Messages(messages) = delivery.outcome {
            let small = messages
                .iter()
                .filter_map(|message| message.body.as_small());
            bodies.extend(small.map(<[u8]>::to_vec));
        }
    }
    bodies
}

/// Nothing is left for the next command to see to.
#[track_caller]
fn assert_seen_to(core: &Core) {
    for shard in &core.shards {
        let shard = shard.lock(Work::Server);
        assert_eq!(shard.engine.sends_to(), None, "a message is set aside");
        let next = shard.engine.next_deadline();
        assert!(
            core.timer.next() <= next,
            "the timer sleeps until {:?}, and something is due at {next:?}",
            core.timer.next()
        );
        assert!(!shard.engine.asks(), "the engine asks for a read");
    }
}

/// A host with so many messages that wait until hooks decide what becomes of them.
fn with_pending_messages(count: usize) -> Core {
    let rule = Overrides {
        attempts_max: Some(1),
        dead_letter: Some(DeadLetter::To(ELSEWHERE.into())),
        ..Overrides::default()
    };
    let core = open(&settings(rule));
    core.want_pending_decisions(PendingDecisions {
        client_id: client_id(3),
        dead_letter: true,
        ..PendingDecisions::default()
    });
    let leased = Take {
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::OwnTtr,
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..take(WORK)
    };
    for _ in 0..count {
        stored(&core, put("tried"));
        let taken = ask(&core, Command::Take(leased.clone()));
        assert!(matches!(taken, Outcome::Messages(_)));
    }
    // The client that `ask` asks for.
    core.with_access(|access| access.disconnect(ClientId(1)));
    core
}

#[test]
fn hooks_run_when_their_decisions_can_be_stored() {
    let core = with_pending_messages(1);
    core.set_available(false);
    assert!(core.take_pending_decisions().is_empty());
    core.set_available(true);
    assert_eq!(core.take_pending_decisions().len(), 1);
    assert!(core.take_pending_decisions().is_empty());
}

/// Each is copied for them.
#[test]
fn hooks_decide_about_a_few_messages_at_a_time() {
    let core = with_pending_messages(20);
    for some in [16, 4, 0] {
        assert!(some == 0 || core.hooks_work.wait_for(Duration::ZERO));
        assert_eq!(core.take_pending_decisions().len(), some);
    }
}

#[test]
fn a_message_that_hooks_decide_no_more_goes_to_another_shard() {
    let core = with_pending_messages(1);
    assert_eq!(core.take_pending_decisions().len(), 1);
    wait_elsewhere(&core);
    assert_seen_to(&core);
    assert_eq!(brought(&core), [b""; 0]);

    // The hook is removed.
    core.want_pending_decisions(PendingDecisions::default());
    assert_seen_to(&core);
    assert_eq!(brought(&core), [b"tried"]);
}

/// A message that leaves for another shard leaves its queue empty, which is dropped after a time.
#[test]
fn carrying_a_message_notifies_the_timer_of_a_nearer_deadline() {
    let rule = Overrides {
        attempts_max: Some(1),
        idle_ms: Some(60_000),
        dead_letter: Some(DeadLetter::To(ELSEWHERE.into())),
        ..Overrides::default()
    };
    let core = open(&settings(rule));
    stored(&core, put("tried"));
    let leased = Take {
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..take(WORK)
    };
    let outcome = ask(&core, Command::Take(leased));
    assert!(matches!(outcome, Outcome::Messages(_)), "{outcome:?}");
    core.timer_turn(&mut core.clock.ahead());
    assert!(core.timer.next() > core.clock.now(), "nothing is due");
    core.with_access(|access| access.disconnect(ClientId(1)));
    let next = core.shards[0].lock(Work::Server).engine.next_deadline();
    assert!(next < Ms::NEVER, "the queue is dropped some time");
    assert_seen_to(&core);
}

#[test]
fn settings_notify_the_timer_of_a_nearer_deadline() {
    let stays = Overrides {
        idle_ms: Some(0),
        ..Overrides::default()
    };
    let mut before = settings(stays);
    before.defaults.idle_ms = 0;
    let core = open(&before);
    stored(&core, put("x"));
    ask(&core, Command::Take(take(WORK)));
    assert_seen_to(&core);
    let rests = Overrides {
        idle_ms: Some(1),
        ..Overrides::default()
    };
    core.configure(&settings(rests));
    assert_seen_to(&core);
    // The timer drops the queue by itself.
    std::thread::scope(|scope| {
        scope.spawn(|| core.run_timer());
        let began = Instant::now();
        let is_made = |fact: &Fact| matches!(fact, Fact::QueueMade { .. });
        let there = || {
            core.shards[0]
                .lock(Work::Server)
                .engine
                .image()
                .iter()
                .any(is_made)
        };
        while there() && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let left = there();
        core.timer.stop();
        assert!(!left, "the queue is never dropped");
    });
}

#[test]
fn a_due_message_goes_to_another_shard_while_runs_are_rewritten() {
    let rule = Overrides {
        expire_to: Some(ELSEWHERE.into()),
        ..Overrides::default()
    };
    let mut core = open(&settings(rule));
    let hand = Arc::new(ByHand::default());
    hand.steady.store(1_000, Ordering::SeqCst);
    core.clock = Clock::by_hand(Arc::clone(&hand), core.clock.now(), None);
    let never = AtomicBool::new(false);
    let ids: Vec<_> = (0..100).map(|_| stored(&core, put("long"))).collect();
    core.relieve(0, &never);
    assert!(!core.shards[0].lock(Work::Server).engine.runs().is_empty());
    for (_, id) in ids.iter().enumerate().filter(|(at, _)| at % 10 > 0) {
        let delete = Command::Delete {
            id: *id,
            by: By::Anyone,
        };
        assert_eq!(ask(&core, delete), Outcome::Done);
    }
    stored(
        &core,
        Put {
            expires: Expiry::In(10),
            ..put("brief")
        },
    );
    wait_elsewhere(&core);
    assert_seen_to(&core);
    hand.steady.fetch_add(20, Ordering::SeqCst);

    let written = || core.runs.counts.rewritten.load(Ordering::Relaxed);
    assert_eq!(written(), 0);
    core.rewrite_thin(0, &never);
    assert!(written() > 0);
    assert_seen_to(&core);
    assert_eq!(brought(&core), [b"brief"]);
}
