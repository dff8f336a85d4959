//! Batches over shards, and crashes between any two steps.

use quintet_engine::*;
use quintet_sim::world::World;
use quintet_types::*;

/// `a` lives in the first shard of two, `b` in the second.
const QUEUES: [&str; 2] = ["a", "b"];

fn caller() -> Caller {
    Caller::server(ClientId(1))
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.defaults.idle_ms = 0;
    settings
}

/// Two shards, and the log of both, a frame for each step.
struct Pair {
    shards: [World; 2],
    log: Vec<[Vec<Fact>; 2]>,
}

impl Pair {
    fn new() -> Self {
        Self::after(&[])
    }

    /// As the log leaves them.
    fn after(log: &[[Vec<Fact>; 2]]) -> Self {
        let mut shards = [0, 1].map(|number| World::shard(number, 2, settings()));
        for frame in log {
            for (world, facts) in shards.iter_mut().zip(frame) {
                for fact in facts {
                    world.engine.replay(fact.clone(), SegmentRef(0));
                }
            }
        }
        let mut pair = Self {
            shards,
            log: log.to_vec(),
        };
        for world in &mut pair.shards {
            let epoch = world.engine.epoch() + 1;
            world
                .engine
                .begin_epoch(world.now, epoch, [7; 16], &mut world.facts);
        }
        pair.write();
        pair
    }

    /// Writes the recorded facts as a frame.
    fn write(&mut self) {
        let frame = [0, 1].map(|at: usize| std::mem::take(&mut self.shards[at].facts));
        if frame.iter().any(|facts| !facts.is_empty()) {
            self.log.push(frame);
        }
    }

    fn ask(&mut self, shard: usize, command: Command) -> Outcome {
        let Answer::Now(outcome, _) = self.shards[shard].submit(caller(), command) else {
            panic!("nothing here waits");
        };
        self.write();
        outcome
    }

    /// One of the shards as the first of two sides, the other as the second.
    fn sides<T>(
        &mut self,
        first: usize,
        act: impl FnOnce(Ms, Side<'_, Vec<Fact>>, Side<'_, Vec<Fact>>, &mut Vec<Delivery>) -> T,
    ) -> T {
        let [a, b] = &mut self.shards;
        let (one, other) = if first == 0 { (a, b) } else { (b, a) };
        let now = one.now;
        let mut deliveries = Vec::new();
        let first = Side {
            engine: &mut one.engine,
            journal: &mut one.facts,
        };
        let second = Side {
            engine: &mut other.engine,
            journal: &mut other.facts,
        };
        act(now, first, second, &mut deliveries)
    }

    /// Puts members into the queues together, as the host does.
    fn put_many(&mut self, batch: BatchId, members: &[(usize, &str)]) -> Result<(), CommandError> {
        let batch_shard = shard_of_id(batch.as_id(), 2);
        let who = caller();
        self.shards[batch_shard]
            .engine
            .may_join(who.principal, batch)?;
        let part = |shard: usize| -> Vec<Put> {
            let here = members.iter().filter(|(queue, _)| *queue == shard);
            here.map(|&(queue, body)| member(queue, batch, body))
                .collect()
        };
        for (shard, world) in self.shards.iter_mut().enumerate() {
            let (now, mut puts, facts) = (world.now, part(shard), &mut world.facts);
            let deliveries = &mut Vec::new();
            let engine = &mut world.engine;
            engine.may_put_many(now, who, &mut puts, facts, deliveries)?;
        }
        for (shard, world) in self.shards.iter_mut().enumerate() {
            let (now, puts, facts) = (world.now, part(shard), &mut world.facts);
            let deliveries = &mut Vec::new();
            let command = Command::PutMany(puts);
            let engine = &mut world.engine;
            let answer = engine.submit_part(now, who, command, facts, deliveries);
            assert!(matches!(answer, Answer::Now(Outcome::PutMany(_), _)));
        }
        self.sides(1 - batch_shard, |now, from, batch_shard, _| {
            carry_owed(now, batch, from, batch_shard);
        });
        self.write();
        Ok(())
    }

    /// Puts a member into one of the queues, as the host does.
    fn put(&mut self, queue: usize, batch: BatchId, body: &str) -> Outcome {
        let put = member(queue, batch, body);
        if shard_of_id(batch.as_id(), 2) == queue {
            return self.ask(queue, Command::Put(put));
        }
        let answer = self.sides(queue, |now, into, batch_shard, deliveries| {
            let counter = Some((batch, batch_shard));
            put_with_others(now, caller(), put, into, counter, deliveries)
        });
        self.write();
        match answer {
            Answer::Now(outcome, _) => outcome,
            Answer::Later => panic!("a member's put waits for nothing"),
        }
    }

    /// Carries until nothing is left to be carried.
    fn carry(&mut self) {
        for _ in 0..10 {
            for from in [0, 1] {
                if self.shards[from].engine.sends_to().is_some() {
                    self.sides(from, |now, from, into, deliveries| {
                        carry(now, from, into, 8, deliveries);
                    });
                    self.write();
                }
            }
        }
        for world in &self.shards {
            assert_eq!(world.engine.sends_to(), None);
            world.engine.verify().expect("the indexes agree");
        }
    }

    fn take(&mut self, queue: usize) -> Option<Message> {
        let lease = LeaseRequest {
            owner: LeaseOwner::Time,
            time: LeaseTime::Fixed(60_000),
            back_to: BackTo::Position,
            held_max: 0,
        };
        let take = Take {
            queues: [Name::from(QUEUES[queue])].into(),
            lease: Some(lease),
            ..Take::default()
        };
        match self.ask(queue, Command::Take(take)) {
            Outcome::Messages(messages) => messages.first().cloned(),
            _ => None,
        }
    }

    fn settle(&mut self, queue: usize, name: &str, how: How) -> Outcome {
        let by_name = ByName {
            queue: None,
            name: name.as_bytes().into(),
            by: By::Bearer,
            action: NamedAction::Settle(how),
        };
        self.ask(queue, Command::ByName(Box::new(by_name)))
    }

    fn batch(&mut self, ask: BatchRequest) -> Batch {
        let shard = ask.batch().map_or(0, |id| shard_of_id(id.as_id(), 2));
        match self.ask(shard, Command::Batch(ask)) {
            Outcome::Batch(batch) => *batch,
            other => panic!("{other:?}"),
        }
    }

    fn tick(&mut self, ms: u64) {
        for world in &mut self.shards {
            world.now = world.now + ms;
            world.tick();
        }
        self.write();
    }

    /// Finishes every message of a queue.
    fn finish_all(&mut self, queue: usize) {
        for fact in self.shards[queue].engine.image() {
            if let Fact::Image(message, _) = fact {
                let id = message.id;
                let lease = LeaseRequest {
                    owner: LeaseOwner::Time,
                    time: LeaseTime::Fixed(60_000),
                    back_to: BackTo::Position,
                    held_max: 0,
                };
                // Somebody may have it.
                self.ask(queue, Command::ReserveId { id, lease });
                let done = Command::Settle {
                    id,
                    by: By::Anyone,
                    how: How::Finish,
                };
                assert_eq!(self.ask(queue, done), Outcome::Done);
            }
        }
    }

    fn bodies(&self, queue: usize) -> Vec<String> {
        let image = self.shards[queue].engine.image();
        let body = |fact: Fact| match fact {
            Fact::Image(message, _) => message.body.as_small().map(<[u8]>::to_vec),
            _ => None,
        };
        let bodies = image.into_iter().filter_map(body);
        bodies
            .map(|body| String::from_utf8(body).expect("text"))
            .collect()
    }
}

/// The put of a member, whose name is its body.
fn member(queue: usize, batch: BatchId, body: &str) -> Put {
    let more = PutMore {
        batch: Some(Tie::member(batch)),
        name: Some(body.as_bytes().into()),
        ..PutMore::default()
    };
    Put {
        more: Some(Box::new(more)),
        ..Put::new(QUEUES[queue].into(), Body::new(body.as_bytes()))
    }
}

fn callback(queue: usize, body: &str) -> Option<Callback> {
    Some(Callback {
        queue: QUEUES[queue].into(),
        body: body.as_bytes().into(),
        ..Callback::default()
    })
}

fn new(to: usize) -> BatchRequest {
    BatchRequest::New(Box::new(NewBatch {
        complete: callback(to, "all ran"),
        success: callback(to, "all done"),
        ..NewBatch::default()
    }))
}

fn fail() -> How {
    How::Fail {
        error: Box::default(),
        note: Vec::new(),
    }
}

/// A batch of shard 0 with a member in each shard; its callbacks go to shard
/// `to`. `crash` is asked after each step.
fn run(to: usize, mut crash: impl FnMut(&mut Pair)) -> Pair {
    let mut pair = Pair::new();
    let id = pair.batch(new(to)).id;
    crash(&mut pair);
    for (queue, name) in [(0, "near"), (1, "far")] {
        assert!(matches!(
            pair.put(queue, id, name),
            Outcome::Put { fresh: true, .. }
        ));
        crash(&mut pair);
    }
    pair.batch(BatchRequest::Commit(id));
    crash(&mut pair);
    for (queue, name) in [(0, "near"), (1, "far")] {
        let taken = pair.take(queue).expect("it is there");
        assert_eq!(taken.body, Body::new(name.as_bytes()));
        crash(&mut pair);
    }
    // The far one fails first, and is tried again at once.
    assert_eq!(pair.settle(1, "far", fail()), Outcome::Done);
    crash(&mut pair);
    assert_eq!(pair.settle(0, "near", How::Finish), Outcome::Done);
    crash(&mut pair);
    pair.carry();
    crash(&mut pair);
    let progress = pair.batch(BatchRequest::Show(id)).progress;
    assert_eq!(
        (progress.total, progress.pending, progress.failed),
        (2, 1, 1)
    );
    assert_eq!(
        (progress.complete, progress.success),
        (CallbackState::Put, CallbackState::No)
    );
    // What says that all ran may stand before it.
    while let Some(taken) = pair.take(1) {
        crash(&mut pair);
        if taken.name().is_some() {
            break;
        }
    }
    assert_eq!(pair.settle(1, "far", How::Finish), Outcome::Done);
    crash(&mut pair);
    pair.carry();
    crash(&mut pair);
    // The second waits for the first.
    assert_eq!(pair.bodies(to), ["all ran"]);
    pair.finish_all(to);
    crash(&mut pair);
    pair.carry();
    crash(&mut pair);
    pair
}

/// Every step is a frame, and every crash comes between two frames: whichever
/// of them it follows, each callback is put once.
#[test]
fn callbacks_come_once_wherever_it_crashes() {
    for to in [0, 1] {
        let mut steps = 0;
        run(to, |_| steps += 1);
        for at in 0..steps {
            let mut step = 0;
            let pair = run(to, |pair| {
                if step == at {
                    *pair = Pair::after(&pair.log);
                }
                step += 1;
            });
            assert_eq!(pair.bodies(to), ["all done"], "{to} {at}");
        }
    }
}

/// The same where what is carried is cut between its frames.
#[test]
fn carried_changes_are_counted_once() {
    let whole = run(1, |_| {});
    for cut in 0..=whole.log.len() {
        let mut pair = Pair::after(&whole.log[..cut]);
        pair.carry();
        pair.tick(0);
        pair.carry();
        let bodies = pair.bodies(1);
        for said in ["all ran", "all done"] {
            let times = bodies.iter().filter(|body| *body == said).count();
            assert!(times <= 1, "{said} {times} times after {cut} frames");
        }
    }
}

/// The other shard's queue has no room: the callback waits, and is tried again.
#[test]
fn a_callback_waits_for_room_in_a_full_queue_of_another_shard() {
    for to in [0, 1] {
        let mut pair = Pair::new();
        let full = Overrides {
            messages_max: Some(1),
            ..Overrides::default()
        };
        pair.ask(
            to,
            Command::Configure {
                queue: QUEUES[to].into(),
                overrides: Some(Box::new(full)),
                must_exist: false,
            },
        );
        pair.ask(
            to,
            Command::Put(Put::new(QUEUES[to].into(), Body::new(b"first"))),
        );
        let id = pair
            .batch(BatchRequest::New(Box::new(NewBatch {
                success: callback(to, "all done"),
                ..NewBatch::default()
            })))
            .id;
        // It lives where it was asked for, whatever its callback's shard.
        pair.batch(BatchRequest::Commit(id));
        pair.carry();
        let progress = pair.batch(BatchRequest::Show(id)).progress;
        assert_eq!(
            progress.complete,
            CallbackState::Done,
            "there is nothing to say"
        );
        assert_eq!(progress.success, CallbackState::No);
        pair.tick(999);
        pair.carry();
        assert_eq!(pair.bodies(to), ["first"]);
        pair.ask(
            to,
            Command::Flush {
                queue: QUEUES[to].into(),
                reserved: false,
            },
        );
        pair.tick(1);
        pair.carry();
        assert_eq!(pair.bodies(to), ["all done"], "{to}");
        assert_eq!(
            pair.batch(BatchRequest::Show(id)).progress.success,
            CallbackState::Put
        );
    }
}

#[test]
fn a_committed_batch_takes_no_members_and_an_unknown_one_neither() {
    let mut pair = Pair::new();
    let id = pair.batch(new(0)).id;
    for queue in [0, 1] {
        let unknown = BatchId(id.0 + 1);
        let none = Outcome::Refused(CommandError::BatchNotFound);
        assert_eq!(pair.put(queue, unknown, "m"), none);
    }
    pair.put(1, id, "m");
    pair.batch(BatchRequest::Commit(id));
    for queue in [0, 1] {
        let closed = Outcome::Refused(CommandError::BatchClosed);
        assert_eq!(pair.put(queue, id, "n"), closed);
    }
    pair.batch(BatchRequest::Open(id));
    assert!(matches!(pair.put(1, id, "n"), Outcome::Put { .. }));
    assert_eq!(pair.batch(BatchRequest::Show(id)).progress.total, 2);
    // Nobody has locked its shard as well and vouches for it.
    let outcome = pair.ask(1, Command::PutMany(vec![member(1, id, "o")]));
    assert_eq!(outcome, Outcome::Refused(CommandError::Conflict));
}

/// A list over shards is one frame with what its batch counts of it, also where one of it is
/// taken at once by somebody who waited.
#[test]
fn a_list_over_shards_is_counted_with_its_put() {
    let list = [(0, "near"), (1, "far"), (1, "farther")];
    for waits in [false, true] {
        let mut pair = Pair::new();
        let id = pair.batch(new(0)).id;
        if waits {
            let take = Take {
                queues: [Name::from(QUEUES[1])].into(),
                wait: Wait::Forever,
                ..Take::default()
            };
            let answer = pair.shards[1].submit(caller(), Command::Take(take));
            assert!(matches!(answer, Answer::Later));
        }
        let frames = pair.log.len();
        assert_eq!(pair.put_many(id, &list), Ok(()));
        let progress = |pair: &mut Pair| {
            let it = pair.batch(BatchRequest::Show(id)).progress;
            (it.total, it.pending)
        };
        let counted = (3, 3 - u64::from(waits));
        assert_eq!(progress(&mut pair), counted);
        assert_eq!(pair.shards[1].engine.sends_to(), None, "nothing is owed");
        for kept in frames..=pair.log.len() {
            let mut after = Pair::after(&pair.log[..kept]);
            after.carry();
            let wanted = if kept == frames { (0, 0) } else { counted };
            assert_eq!(progress(&mut after), wanted, "{kept} frames");
        }
        pair.batch(BatchRequest::Commit(id));
        let closed = pair.put_many(id, &list);
        assert_eq!(closed, Err(CommandError::BatchClosed));
        assert_eq!(progress(&mut pair), counted);
    }
}

#[test]
fn a_parent_puts_no_callback_before_its_children() {
    let mut pair = Pair::new();
    let parent = pair.batch(new(0)).id;
    let child = pair
        .batch(BatchRequest::New(Box::new(NewBatch {
            parent: Some(parent),
            complete: callback(0, "child ran"),
            success: callback(0, "child done"),
            ..NewBatch::default()
        })))
        .id;
    pair.put(0, child, "m");
    pair.batch(BatchRequest::Commit(parent));
    pair.batch(BatchRequest::Commit(child));
    assert_eq!(pair.bodies(0), ["m"]);
    pair.take(0);
    pair.settle(0, "m", How::Finish);
    assert_eq!(pair.bodies(0), ["child ran", "all ran"]);
    pair.finish_all(0);
    assert_eq!(pair.bodies(0), ["child done", "all done"]);
    // Who comes now is counted, and nothing is said again.
    pair.put(0, child, "late");
    let progress = |pair: &mut Pair| pair.batch(BatchRequest::Show(child)).progress;
    assert_eq!(
        (progress(&mut pair).total, progress(&mut pair).pending),
        (2, 1)
    );
    assert!(pair.batch(BatchRequest::Open(child)).progress.open);
    pair.batch(BatchRequest::Commit(child));
    pair.finish_all(0);
    assert_eq!(progress(&mut pair).pending, 0);
    assert!(pair.bodies(0).is_empty());
}

/// One that nobody commits is gone, and holds its parent no longer.
#[test]
fn a_batch_that_is_not_committed_is_deleted() {
    let mut pair = Pair::new();
    let parent = pair.batch(new(0)).id;
    let child = NewBatch {
        parent: Some(parent),
        complete: callback(0, "child ran"),
        ..NewBatch::default()
    };
    let child = pair.batch(BatchRequest::New(Box::new(child))).id;
    pair.batch(BatchRequest::Commit(parent));
    pair.tick(30 * 60 * 1000 - 1);
    assert!(pair.bodies(0).is_empty());
    pair.tick(1);
    let gone = pair.ask(0, Command::Batch(BatchRequest::Show(child)));
    assert_eq!(gone, Outcome::Refused(CommandError::BatchNotFound));
    assert_eq!(pair.bodies(0), ["all ran"], "it never succeeds");
}

/// A member that fails again, however it failed before, has failed once, and not at all when it
/// succeeds in the end.
#[test]
fn a_member_fails_once_however_often_and_whichever_way() {
    let bury = || How::Bury {
        priority: None,
        reason: Box::default(),
    };
    let release = || How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    };
    let ways: [(&str, DeadLetter, How); 3] = [
        ("released", DeadLetter::Bury, fail()),
        ("buried", DeadLetter::Bury, bury()),
        (
            "moved as a dead letter",
            DeadLetter::To("c".into()),
            release(),
        ),
    ];
    for (way, dead_letter, first) in ways {
        let mut w = World::new();
        let overrides = Overrides {
            retry_max: Some(if way == "released" { 9 } else { 1 }),
            retry_jitter: Some(0),
            // Of the dead letter only its move says that it failed.
            attempts_max: Some(u32::from(way == "moved as a dead letter")),
            dead_letter: Some(dead_letter),
            ..Overrides::default()
        };
        let configure = Command::Configure {
            queue: "a".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        };
        w.ask(1, configure);
        let Some(Outcome::Batch(batch)) = w.ask(1, Command::Batch(new(0))) else {
            panic!("{way}: no batch");
        };
        let more = PutMore {
            batch: Some(Tie::member(batch.id)),
            ..PutMore::default()
        };
        let id = w.put_as(Put {
            more: Some(Box::new(more)),
            ..Put::new("a".into(), Body::new(b"x"))
        });
        let counts = |w: &mut World| match w.ask(1, Command::Batch(BatchRequest::Show(batch.id))) {
            Some(Outcome::Batch(batch)) => (batch.progress.pending, batch.progress.failed),
            other => panic!("{way}: {other:?}"),
        };
        let settle = |w: &mut World, how: How| {
            let by = By::Anyone;
            let settled = w.ask(1, Command::Settle { id, by, how });
            assert_eq!(settled, Some(Outcome::Done), "{way}");
        };
        let take = |w: &mut World| {
            let queues = ["a", "c"].map(Name::from).into_iter().collect();
            let taken = Take {
                queues,
                ..quintet_sim::world::reserve("a")
            };
            assert_eq!(w.take(1, taken), "x", "{way}");
        };
        assert_eq!(counts(&mut w), (1, 0), "{way}");
        take(&mut w);
        settle(&mut w, first);
        assert_eq!(counts(&mut w), (1, 1), "{way}");
        if way == "buried" {
            w.ask(1, Command::KickId(id));
        }
        take(&mut w);
        settle(&mut w, fail());
        assert_eq!(counts(&mut w), (1, 1), "{way}: it failed before");
        let buried = w.ask(1, Command::KickId(id));
        assert!(buried.is_some(), "{way}");
        take(&mut w);
        settle(&mut w, How::Finish);
        assert_eq!(counts(&mut w), (0, 0), "{way}");
    }
}

/// Also one that failed before, and over a crash before the other shard knows.
#[test]
fn cancelled_members_of_both_shards_count_by_the_setting_of_their_batch() {
    for (cancelled, expected) in [
        (CancelledAs::Failed, (2, 2, CallbackState::No)),
        (CancelledAs::Finished, (0, 0, CallbackState::Put)),
    ] {
        let mut pair = Pair::new();
        let new = NewBatch {
            success: callback(0, "all done"),
            cancelled,
            ..NewBatch::default()
        };
        let id = pair.batch(BatchRequest::New(Box::new(new))).id;
        let members = [(0, "near"), (1, "far")];
        let ids = members.map(|(queue, name)| match pair.put(queue, id, name) {
            Outcome::Put { id, .. } => id,
            other => panic!("{other:?}"),
        });
        pair.batch(BatchRequest::Commit(id));
        assert!(pair.take(1).is_some());
        assert_eq!(pair.settle(1, "far", fail()), Outcome::Done);
        for ((queue, _), id) in members.into_iter().zip(ids) {
            let cancels = Command::Cancel(id, Box::default());
            assert_eq!(pair.ask(queue, cancels), Outcome::Done);
        }
        let mut pair = Pair::after(&pair.log);
        pair.carry();
        let progress = pair.batch(BatchRequest::Show(id)).progress;
        let counted = (progress.pending, progress.failed, progress.success);
        assert_eq!(counted, expected, "{cancelled:?}");
    }
}
