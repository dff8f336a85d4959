//! Takes, waits and subscriptions over several shards: no wake-up is lost,
//! nothing is handed out twice, who holds a lease is warned before it ends, and
//! nobody is left standing in a line, however the steps of the clients are
//! mixed.
//!
//! `QUINTET_CASES=100000` tries more random schedules than a usual run.

mod held;
mod world;

use quintet_engine::*;
use quintet_sim::Random;
use quintet_types::*;

use world::{Op, World, label};

/// A queue of each shard, and a second one.
fn names(shards: usize) -> Vec<Name> {
    let named = |shard: usize, skip: usize| {
        (0..)
            .map(|n| Name::from(format!("q{n}").as_str()))
            .filter(|name| shard_of_queue(name.as_bytes(), shards) == shard)
            .nth(skip)
            .expect("names go everywhere")
    };
    let all = (0..2).flat_map(|skip| (0..shards).map(move |shard| named(shard, skip)));
    all.collect()
}

fn take(queues: &[Name], wait: Wait, lease: bool) -> Take {
    Take {
        queues: queues.iter().cloned().collect(),
        wait,
        lease: lease.then_some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..Take::default()
    }
}

/// The same with leases that end after a while, and a warning before they do.
fn warned(take: Take, lease_ms: u64, margin_ms: u64) -> Take {
    Take {
        lease: take.lease.map(|lease| LeaseRequest {
            time: LeaseTime::Fixed(lease_ms),
            ..lease
        }),
        deadline_soon_ms: Some(margin_ms),
        ..take
    }
}

/// Runs every schedule of the programs. Answers how many there are.
fn every_schedule(shards: u8, programs: &[Vec<Op>]) -> u64 {
    // The choices of the schedule that is run, and how many there were.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut count = 0;
    loop {
        let mut world = World::new(shards, programs.to_vec());
        let mut at = 0;
        loop {
            let enabled = world.enabled();
            if enabled.is_empty() {
                break;
            }
            if at == path.len() {
                path.push((0, enabled.len()));
            }
            world.step(enabled[path[at].0]);
            at += 1;
        }
        world.check();
        count += 1;
        // The next one: the last choice that has another.
        while path.last().is_some_and(|&(choice, of)| choice + 1 == of) {
            path.pop();
        }
        match path.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => {
                println!("{count} schedules");
                return count;
            }
        }
    }
}

#[test]
fn every_schedule_of_a_wait_two_puts_and_a_timeout() {
    let q = names(2);
    for (wait, lease) in [(Wait::For(5), false), (Wait::Forever, true)] {
        let schedules = every_schedule(
            2,
            &[
                vec![Op::Take(take(&q, wait, lease))],
                vec![Op::Put(q[0].clone())],
                vec![Op::Put(q[1].clone())],
                vec![Op::Pass(5)],
            ],
        );
        assert!(schedules > 1000, "{schedules}");
    }
}

#[test]
fn every_schedule_of_an_abandoned_wait() {
    let q = names(2);
    for end in [Op::HangUp, Op::Stop] {
        for lease in [false, true] {
            every_schedule(
                2,
                &[
                    vec![Op::Take(take(&q, Wait::Forever, lease)), end.clone()],
                    vec![Op::Put(q[0].clone())],
                    vec![Op::Put(q[1].clone())],
                ],
            );
        }
    }
}

#[test]
fn every_schedule_of_two_waiting_consumers() {
    let q = names(2);
    every_schedule(
        2,
        &[
            vec![Op::Take(take(&q, Wait::Forever, false))],
            vec![Op::Take(take(&q[..1], Wait::Forever, false))],
            vec![Op::Put(q[0].clone()), Op::Put(q[1].clone())],
        ],
    );
}

#[test]
fn every_schedule_of_a_replaced_subscription() {
    let q = names(2);
    for change in [
        Op::Watch(Some(take(&q[1..2], Wait::Forever, false))),
        Op::Rewatch(take(&q[1..2], Wait::Forever, false)),
        Op::Rewatch(take(&[], Wait::Forever, false)),
        Op::WatchQueue(q[0].clone(), false),
        Op::WatchQueue(q[1].clone(), true),
    ] {
        every_schedule(
            2,
            &[
                vec![Op::Watch(Some(take(&q[..2], Wait::Forever, false))), change],
                vec![Op::Put(q[0].clone())],
                vec![Op::Put(q[1].clone())],
            ],
        );
    }
}

#[test]
fn every_schedule_of_two_subscriptions() {
    let q = names(2);
    let stand = |queues, lease| Op::Watch(Some(take(queues, Wait::Forever, lease)));
    for lease in [false, true] {
        let schedules = every_schedule(
            2,
            &[
                vec![stand(&q[..2], lease)],
                vec![stand(&q[..2], lease)],
                vec![Op::Put(q[1].clone())],
            ],
        );
        assert!(schedules > 1000, "{schedules}");
    }
    every_schedule(
        2,
        &[
            vec![stand(&q[..1], false)],
            vec![stand(&q[..2], false), Op::Watch(None)],
            vec![Op::Put(q[0].clone())],
        ],
    );
}

#[test]
fn every_schedule_of_a_subscription_beside_a_wait() {
    let q = names(2);
    // Of one client, and of two; the second one gives up or vanishes.
    for end in [Op::HangUp, Op::Stop] {
        every_schedule(
            2,
            &[
                vec![
                    Op::Watch(Some(take(&q[..2], Wait::Forever, false))),
                    Op::Take(take(&q[..2], Wait::Forever, true)),
                    end.clone(),
                ],
                vec![Op::Put(q[0].clone()), Op::Put(q[1].clone())],
            ],
        );
        every_schedule(
            2,
            &[
                vec![
                    Op::Watch(Some(take(&q[..2], Wait::Forever, true))),
                    end.clone(),
                ],
                vec![Op::Take(take(&q[1..2], Wait::Forever, false))],
                vec![Op::Put(q[1].clone()), Op::Put(q[0].clone())],
            ],
        );
    }
}

/// One lease, seen from waits in its own shard, in the other, and in both:
/// time comes to the warning and to the end at any moment.
#[test]
fn every_schedule_of_a_lease_that_ends_while_its_holder_waits() {
    let q = names(2);
    // Beside it, something comes to one queue or to none.
    for (watched, other) in [
        (&q[..1], None),
        (&q[1..2], Some(q[1].clone())),
        (&q[..2], None),
    ] {
        let reserve = |queues| warned(take(queues, Wait::Forever, true), 10, 4);
        let schedules = every_schedule(
            2,
            &[
                vec![
                    Op::Put(q[0].clone()),
                    Op::Take(Take {
                        deadline_soon_ms: None,
                        ..reserve(&q[..1])
                    }),
                    Op::Take(reserve(watched)),
                ],
                vec![Op::Pass(6), Op::Pass(4)],
                other.map(Op::Put).into_iter().collect(),
            ],
        );
        assert!(schedules > 1000, "{schedules}");
    }
}

/// A random program for one client.
fn program(random: &mut Random, q: &[Name]) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..random.below(6) + 1 {
        let some: Vec<Name> = (0..random.below(4) + 1)
            .map(|_| q[random.index(q.len())].clone())
            .collect();
        let wait = match random.below(4) {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => Wait::For(random.below(20)),
        };
        let lease = random.chance(1, 2);
        let lease_ms = random.below(3) * 6;
        let timed = |take| warned(take, lease_ms, 4);
        ops.push(match random.below(24) {
            0..=4 => Op::Put(some[0].clone()),
            5..=9 => Op::Take(take(&some, wait, lease)),
            17..=21 => Op::Take(timed(take(&some, wait, true))),
            10 => {
                let mut stands = timed(take(&some, Wait::Forever, lease));
                stands.deadline_soon_ms = None;
                Op::Watch(Some(stands))
            }
            11 => Op::Watch(None),
            12 => Op::Stop,
            13 => Op::Release,
            14 => Op::HangUp,
            15 => {
                let kept = random.index(some.len() + 1);
                Op::Rewatch(take(&some[..kept], Wait::Forever, lease))
            }
            22..=23 => Op::WatchQueue(some[0].clone(), random.below(2) == 0),
            _ => Op::Pass(random.below(15)),
        });
    }
    ops
}

#[test]
fn random_schedules_of_random_programs() {
    let cases = std::env::var("QUINTET_CASES").ok();
    let cases = cases.and_then(|text| text.parse().ok()).unwrap_or(4000);
    let first = quintet_sim::seeds(0).start;
    for seed in first..first + cases {
        // Shown if the test fails.
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let shards = random.below(3) as u8 + 2;
        let q = names(shards.into());
        let clients = random.below(4) + 2;
        let mut programs: Vec<Vec<Op>> = (0..clients).map(|_| program(&mut random, &q)).collect();
        // Those who wait for a while are answered in the end.
        programs.push(vec![Op::Pass(3), Op::Pass(10), Op::Pass(40)]);
        let mut world = World::new(shards, programs);
        loop {
            let enabled = world.enabled();
            if enabled.is_empty() {
                break;
            }
            world.step(enabled[random.index(enabled.len())]);
        }
        world.check();
    }
}

/// Does a command over shards without anybody between its steps.
fn alone(engines: &mut [Engine], client_id: u64, take: &Take, now: Ms) -> Outcome {
    let mut across = Across::new(ClientId(client_id), take, engines.len()).expect("several shards");
    let mut answered = None;
    while let Some(shard) = across.shard() {
        let (mut log, mut deliveries) = (Vec::<Fact>::new(), Vec::new());
        let answer = across.step(now, &mut engines[shard], &mut log, &mut deliveries);
        answered = answered.or(answer);
        assert!(deliveries.is_empty());
    }
    match answered.expect("an answer") {
        Answer::Now(outcome, _) => outcome,
        Answer::Later => panic!("it waits"),
    }
}

fn put_at(engines: &mut [Engine], queue: &Name, priority: u32, number: u64, now: Ms) {
    let shard = shard_of_queue(queue.as_bytes(), engines.len());
    let put = Command::Put(Put {
        queue: queue.clone(),
        priority: Some(priority),
        body: Body::new(&number.to_le_bytes()),
        ..Put::default()
    });
    let mut log: Vec<Fact> = Vec::new();
    engines[shard].submit(now, Caller::default(), put, &mut log, &mut Vec::new());
}

fn fresh(shards: u8) -> Vec<Engine> {
    // What is due is that of the test, not that of queues that rest.
    let mut settings = Settings::default();
    settings.defaults.idle_ms = 0;
    let engine = |n| Engine::new(n, shards, settings.clone());
    (0..shards).map(engine).collect()
}

#[test]
fn the_best_over_all_shards_comes_first() {
    let q = names(3);
    for end in [End::Oldest, End::Newest] {
        let mut engines = fresh(3);
        let mut random = Random::new(7);
        let mut expected = Vec::new();
        for number in 0..60 {
            let priority = random.below(4) as u32;
            let queue = &q[random.index(q.len())];
            put_at(&mut engines, queue, priority, number, Ms(1000 + number));
            expected.push((priority, number));
        }
        expected.sort_unstable_by_key(|&(priority, number)| match end {
            End::Oldest => (priority, number),
            End::Newest => (priority, u64::MAX - number),
        });
        let take = Take {
            end,
            ..take(&q, Wait::No, false)
        };
        for (_, number) in expected {
            let Outcome::Messages(messages) = alone(&mut engines, 1, &take, Ms(5000)) else {
                panic!("{number} is missing");
            };
            assert_eq!(label(&messages[0]), number);
        }
        assert_eq!(alone(&mut engines, 1, &take, Ms(5000)), Outcome::Empty);
    }
}

#[test]
fn leases_in_other_shards_count() {
    let q = names(2);
    let mut engines = fresh(2);
    put_at(&mut engines, &q[0], 0, 1, Ms(1000));
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(10_000),
        back_to: BackTo::Position,
        held_max: 1,
    };
    let first = Take {
        lease: Some(lease),
        held_anywhere: true,
        ..take(&q[..1], Wait::No, false)
    };
    let got = alone(&mut engines, 1, &first, Ms(1000));
    assert!(matches!(got, Outcome::Messages(_)), "{got:?}");
    // Another shard, the same client.
    let second = Take {
        queues: [q[1].clone()].into_iter().collect(),
        ..first
    };
    let refused = Outcome::Refused(CommandError::HeldLimit);
    assert_eq!(alone(&mut engines, 1, &second, Ms(1000)), refused);
    assert_eq!(alone(&mut engines, 2, &second, Ms(1000)), Outcome::Empty);
    // The lease's end is near, seen from a queue of another shard.
    let warned = Take {
        deadline_soon_ms: Some(1000),
        ..take(&q[1..2], Wait::Forever, false)
    };
    let soon = alone(&mut engines, 1, &warned, Ms(10_500));
    assert_eq!(soon, Outcome::DeadlineSoon);
    assert_eq!(
        alone(&mut engines, 2, &first_of(&q), Ms(10_500)),
        Outcome::Empty
    );
}

/// A take of another client, from both shards.
fn first_of(q: &[Name]) -> Take {
    take(&q[..2], Wait::No, false)
}

#[test]
fn a_warning_reaches_a_wait_in_another_shard_once() {
    let q = names(2);
    let mut engines = fresh(2);
    put_at(&mut engines, &q[0], 0, 1, Ms(1000));
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(10_000),
        back_to: BackTo::Position,
        held_max: 0,
    };
    let reserve = Take {
        lease: Some(lease),
        ..take(&q[..2], Wait::No, false)
    };
    alone(&mut engines, 1, &reserve, Ms(1000));
    let waits = Take {
        deadline_soon_ms: Some(1000),
        wait: Wait::Forever,
        ..reserve
    };
    let mut across = Across::new(ClientId(1), &waits, 2).expect("several shards");
    let mut answers = Vec::new();
    while let Some(shard) = across.shard() {
        let mut log: Vec<Fact> = Vec::new();
        answers.extend(across.step(Ms(2000), &mut engines[shard], &mut log, &mut Vec::new()));
    }
    assert!(matches!(answers[..], [Answer::Later]), "{answers:?}");
    let mut deliveries = Vec::new();
    for engine in &mut engines {
        assert_eq!(engine.next_deadline(), Ms(10_000));
        engine.tick(Ms(10_000), &mut Vec::<Fact>::new(), &mut deliveries);
    }
    let outcomes: Vec<&Outcome> = deliveries.iter().map(|d| &d.outcome).collect();
    assert_eq!(outcomes, [&Outcome::DeadlineSoon]);
}

/// Does all steps of a subscription; answers what was delivered on the way.
fn stand(engines: &mut [Engine], mut across: Across) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while let Some(shard) = across.shard() {
        let mut log: Vec<Fact> = Vec::new();
        across.step(Ms(5000), &mut engines[shard], &mut log, &mut deliveries);
    }
    deliveries
}

fn served(deliveries: &[Delivery]) -> Vec<(u64, u64)> {
    let labels = deliveries.iter().map(|delivery| {
        assert!(delivery.standing);
        match &delivery.outcome {
            Outcome::Messages(messages) => (delivery.to.0, label(&messages[0])),
            other => panic!("{other:?}"),
        }
    });
    labels.collect()
}

#[test]
fn a_subscription_gets_the_best_over_all_shards() {
    let q = names(3);
    for best in 0..3 {
        let mut engines = fresh(3);
        for (number, queue) in (0..).zip(&q[..3]) {
            let priority = if number == best { 2 } else { 5 };
            put_at(&mut engines, queue, priority, number, Ms(1000));
        }
        let take = take(&q[..3], Wait::Forever, false);
        let got = stand(&mut engines, Across::watch(ClientId(1), take, 3));
        assert_eq!(served(&got), [(1, best)]);
    }
}

#[test]
fn a_subscription_that_changes_keeps_its_turn_in_every_shard() {
    let q = names(2);
    let mut engines = fresh(2);
    let nothing = take(&[], Wait::Forever, false);
    let both = take(&q[..2], Wait::Forever, false);
    stand(&mut engines, Across::watch(ClientId(1), nothing, 2));
    stand(&mut engines, Across::watch(ClientId(2), both.clone(), 2));
    // Only now does the first name a queue, and still it stands before.
    stand(&mut engines, Across::rewatch(ClientId(1), both.clone(), 2));
    // One that does not stand is not set.
    stand(&mut engines, Across::rewatch(ClientId(3), both, 2));
    for (number, queue, to) in [(7, &q[1], 1), (8, &q[0], 2)] {
        let shard = shard_of_queue(queue.as_bytes(), 2);
        let put = Command::Put(Put {
            queue: queue.clone(),
            body: Body::new(&u64::to_le_bytes(number)),
            ..Put::default()
        });
        let mut deliveries = Vec::new();
        let (caller, log) = (Caller::default(), &mut Vec::<Fact>::new());
        engines[shard].submit(Ms(6000), caller, put, log, &mut deliveries);
        assert_eq!(served(&deliveries), [(to, number)]);
        for engine in &mut engines {
            engine.leave_lines(ClientId(to));
        }
    }
}

/// While companions of a message were looked for in runs, the claim of the client that
/// was to get them was taken already, for nothing.
#[test]
fn a_claim_is_taken_with_its_message() {
    let q = names(2);
    let key: std::sync::Arc<[u8]> = [7].into();
    let keyed = |not_selectable| {
        Command::Put(Put {
            queue: q[0].clone(),
            more: Some(Box::new(PutMore {
                not_selectable,
                key: Some(key.clone()),
                ..PutMore::default()
            })),
            ..Put::default()
        })
    };
    let group = Take {
        group: Some(GroupLimit {
            messages_max: 8,
            bytes_max: 1000,
        }),
        ..take(&q[..2], Wait::Forever, false)
    };
    let mut engines = fresh(2);
    let (mut log, mut deliveries) = (Vec::<Fact>::new(), Vec::new());
    let (now, nobody) = (Ms(1000), Caller::default());
    engines[0].submit(now, nobody, keyed(true), &mut log, &mut deliveries);
    let mut picked = Vec::new();
    let mut spill = planned(&engines[0], usize::MAX);
    while engines[0].pick(&mut spill, 1, &mut picked) {}
    let queue = picked[0].message.queue;
    let written = Written {
        number: 0,
        ordinal: 0,
        queue,
        state_index: picked[0].state_index,
        entries: vec![(picked[0].message.id, picked[0].pick)],
    };
    assert_eq!(engines[0].evict(RunId(1), &written, &mut log), 1);

    stand(&mut engines, Across::watch(ClientId(1), group, 2));
    engines[0].submit(now, nobody, keyed(false), &mut log, &mut deliveries);
    assert!(deliveries.is_empty());
    assert_eq!(
        engines[0].take_wants(),
        [Want::Key(queue, key.clone())],
        "the message in the run is searched for"
    );
    let found = vec![LookupResult::Key(queue, key, Vec::new())];
    engines[0].supply(now, found, &mut log, &mut deliveries);
    let to: Vec<ClientId> = deliveries.iter().map(|delivery| delivery.to).collect();
    assert_eq!(to, [ClientId(1)]);
}

/// Everything is to leave memory; so many queues are looked at at a time.
fn planned(engine: &Engine, slice: usize) -> Spill {
    let mut spill = Spill::of(u64::MAX);
    while engine.plan_spill(&mut spill, slice, 1) {}
    spill.planned()
}

#[test]
fn the_plan_to_leave_memory_does_not_depend_on_the_queues_of_a_slice() {
    let mut engines = fresh(1);
    let engine = &mut engines[0];
    let (mut log, mut deliveries) = (Vec::<Fact>::new(), Vec::new());
    for queue in 0..9 {
        for _ in 0..=(queue * 5) % 7 {
            let put = Command::Put(Put {
                queue: format!("q{queue}").as_str().into(),
                ..Put::default()
            });
            engine.submit(Ms(1000), Caller::default(), put, &mut log, &mut deliveries);
        }
    }
    let whole = format!("{:?}", planned(engine, usize::MAX));
    for slice in [1, 2, 4, 9, 10] {
        let sliced = format!("{:?}", planned(engine, slice));
        assert_eq!(sliced, whole, "{slice} at a time");
    }
    let mut picked = Vec::new();
    let mut spill = planned(engine, 1);
    while engine.pick(&mut spill, 1, &mut picked) {}
    assert!(picked.len() > 9, "from more than one queue: {picked:?}");
}

/// A block could not be read, then it could: its run was written again, and
/// what had left the queue's counts left them once more.
#[test]
fn a_run_with_an_unreadable_block_may_be_written_again() {
    let mut engines = fresh(1);
    let engine = &mut engines[0];
    let (mut log, mut deliveries) = (Vec::<Fact>::new(), Vec::new());
    let (now, nobody) = (Ms(1000), Caller::default());
    let put = Command::Put(Put {
        queue: names(1)[0].clone(),
        ..Put::default()
    });
    engine.submit(now, nobody, put, &mut log, &mut deliveries);
    let mut picked = Vec::new();
    let mut spill = planned(engine, usize::MAX);
    while engine.pick(&mut spill, 1, &mut picked) {}
    let (message, state_index) = (picked[0].message.clone(), picked[0].state_index);
    let written = Written {
        number: 0,
        ordinal: 0,
        queue: message.queue,
        state_index,
        entries: vec![(message.id, picked[0].pick)],
    };
    let (old, new) = (RunId(1), RunId(2));
    assert_eq!(engine.evict(old, &written, &mut log), 1);
    let at = |run| BlockAt { run, ordinal: 0 };
    let unreadable = vec![LookupResult::Block(at(old), None)];
    engine.supply(now, unreadable, &mut log, &mut deliveries);
    assert_eq!(engine.cold_stats().damaged, 1);

    let again = Rewritten {
        number: 0,
        ordinal: 0,
        queue: message.queue,
        state_index,
        entries: vec![(EntryFacts::of(&message, state_index), old, 0)],
    };
    engine.replace_runs(now, &[old], new, &[again], &mut log, &mut deliveries);
    engine.verify().expect("its counts are right");
    assert_eq!(engine.cold_stats().damaged, 0);
    let read = vec![LookupResult::Block(at(new), Some(vec![(0, message)]))];
    engine.supply(now, read, &mut log, &mut deliveries);
    assert!(engine.is_loaded(at(new)), "it is within reach again");
    engine.verify().expect("its counts are right");
}
