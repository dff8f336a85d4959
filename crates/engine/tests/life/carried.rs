//! Between two shards: what is sent, and what becomes of it.

use quintet_engine::*;
use quintet_sim::world::World;
use quintet_types::*;

const SHARDS: u8 = 2;

/// Two shards.
struct Pair([World; 2]);

impl Pair {
    fn new(rules: &[(&str, Overrides)]) -> Self {
        let settings = Settings {
            rules: rules
                .iter()
                .map(|(name, rule)| (Pattern::new(name), rule.clone()))
                .collect(),
            ends_max: 100,
            ..Settings::default()
        };
        Self([0, 1].map(|n| World::shard(n, SHARDS, settings.clone())))
    }

    fn ask(&mut self, shard: usize, client_id: u64, command: Command) -> Outcome {
        let outcome = self.0[shard].ask(client_id, command);
        outcome.expect("nothing here waits")
    }

    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.0;
        let (left, right) = match from {
            0 => (a, b),
            _ => (b, a),
        };
        let sides = (
            Side {
                engine: &mut left.engine,
                journal: &mut left.facts,
            },
            Side {
                engine: &mut right.engine,
                journal: &mut right.facts,
            },
        );
        carry(left.now, sides.0, sides.1, 9, &mut right.deliveries);
        for shard in &self.0 {
            shard.verify();
        }
    }

    /// Replays both logs.
    fn restart(&mut self) {
        for shard in &mut self.0 {
            let again = shard.replayed(SegmentRef(0));
            assert_eq!(again.image(), shard.engine.image());
            shard.engine = again;
        }
    }

    /// Everything in a queue, with attributes.
    fn list(&mut self, shard: usize, queue: &str) -> Vec<(MessageId, String, Vec<Attr>)> {
        let outcome = self.ask(
            shard,
            1,
            Command::BulkOp(Box::new(BulkOp::show(queue.into(), ListState::Ready, 99))),
        );
        let Outcome::BulkDone(done) = outcome else {
            return Vec::new();
        };
        (done.messages.into_iter())
            .map(|m| {
                let body = String::from_utf8(m.body.as_small().unwrap().to_vec()).unwrap();
                (m.id, body, m.extra.map_or(Vec::new(), |extra| extra.attrs))
            })
            .collect()
    }

    fn bodies(&mut self, shard: usize, queue: &str) -> Vec<String> {
        let list = self.list(shard, queue);
        list.into_iter().map(|(_, body, _)| body).collect()
    }
}

fn put(queue: &str, body: &str) -> Command {
    Command::Put(Put {
        queue: queue.into(),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    })
}

/// Names of queues in shard 0 and shard 1.
fn names() -> (&'static str, &'static str) {
    assert_eq!(
        (
            shard_of_queue(b"a", SHARDS.into()),
            shard_of_queue(b"b", SHARDS.into())
        ),
        (0, 1)
    );
    ("a", "b")
}

fn move_all(from: &str, to: &str) -> Command {
    Command::BulkOp(Box::new(BulkOp {
        action: BulkAction::Move(to.into()),
        ..BulkOp::show(from.into(), ListState::Ready, 99)
    }))
}

/// A dead letter of another shard lives as long as its queue there says, and redriven it begins
/// anew, known by the id it was first put under all the while.
#[test]
fn a_dead_letter_and_back_is_known_by_the_id_it_was_put_under() {
    let (a, b) = names();
    let mut pair = Pair::new(&[]);
    let dead = Overrides {
        dead_letter: Some(DeadLetter::To(b.into())),
        attempts_max: Some(1),
        ..Overrides::default()
    };
    let brief = Overrides {
        ttl_ms: Some(500),
        ..Overrides::default()
    };
    for (shard, queue, overrides) in [(0, a, dead), (1, b, brief)] {
        let (queue, overrides) = (queue.into(), Box::new(overrides));
        pair.ask(shard, 1, Command::Create { queue, overrides });
    }
    let Outcome::Put { id, .. } = pair.ask(0, 1, put(a, "x")) else {
        panic!("it is stored");
    };
    let over = Take {
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time: LeaseTime::Over,
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..quintet_sim::world::plain(a)
    };
    pair.ask(0, 1, Command::Take(over));
    pair.carry(0);
    let bulk_op = |action| {
        Command::BulkOp(Box::new(BulkOp {
            queue: b.into(),
            state: ListState::Ready,
            filter: Filter::default(),
            action,
            after: None,
            max: 9,
        }))
    };
    let seen = |outcome| match outcome {
        Outcome::BulkDone(bulk_done) => bulk_done.messages[0].clone(),
        other => panic!("{other:?}"),
    };
    let there = seen(pair.ask(1, 1, bulk_op(BulkAction::Show)));
    let left = there
        .expires()
        .expect("its queue says so")
        .since(pair.0[1].now);
    assert_eq!((there.born(), left), (id, 500));
    assert_ne!(there.id, id);
    assert_eq!(there.came_from(), Some(a.into()));
    // So are the attempts of both shards.
    pair.ask(1, 1, Command::Take(quintet_sim::world::reserve(b)));
    let how = How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    };
    let (of, by) = (there.id, By::Owner);
    pair.ask(1, 1, Command::Settle { id: of, by, how });
    let ends = |shard: usize, id| {
        let attempts = pair.0[shard].engine.attempts_of(id).into_iter();
        attempts.map(|attempt| attempt.end).collect::<Vec<_>>()
    };
    assert_eq!(ends(0, id), [AttemptEnd::DeadLetter]);
    assert_eq!(ends(1, id), [AttemptEnd::Released]);
    assert!(ends(1, of).is_empty());
    let before = |shard: usize, id| pair.0[shard].engine.id_before(id);
    assert_eq!((before(1, of), before(0, id)), (Some(id), None));
    pair.ask(1, 1, bulk_op(BulkAction::Redrive { to: None }));
    pair.carry(1);
    pair.restart();
    let Outcome::Messages(back) = pair.ask(0, 1, Command::Take(quintet_sim::world::plain(a)))
    else {
        panic!("it is back");
    };
    let back = &back[0];
    assert_eq!((back.born(), back.reserves, back.expires()), (id, 0, None));
    assert_eq!(back.came_from(), None);
    assert_eq!(back.extra.as_ref().map(|extra| extra.attrs.len()), Some(0));
}

#[test]
fn a_sent_message_belongs_to_no_queue_until_it_is_carried() {
    let (a, b) = names();
    let mut pair = Pair::new(&[]);
    for body in ["one", "two", "three"] {
        pair.ask(0, 1, put(a, body));
    }
    pair.ask(1, 1, put(b, "zero"));
    let moved = pair.ask(0, 1, move_all(a, b));
    assert!(matches!(moved, Outcome::BulkDone(done) if done.matched == 3));
    assert_eq!(pair.bodies(0, a), [""; 0]);
    assert_eq!(pair.0[0].engine.sends_to(), Some(1));
    assert_eq!(pair.0[0].engine.next_deadline(), pair.0[0].now);
    let delete = Command::Delete {
        id: MessageId(1),
        by: By::Anyone,
    };
    assert_eq!(
        pair.ask(0, 1, delete),
        Outcome::Refused(CommandError::NotFound)
    );
    // Dropping the queue it came from does not touch it.
    pair.ask(0, 1, Command::Drop(a.into()));
    pair.restart();
    assert_eq!(pair.0[0].engine.sends_to(), Some(1));
    pair.carry(0);
    assert_eq!(pair.0[0].engine.sends_to(), None);
    assert_eq!(pair.bodies(1, b), ["zero", "one", "two", "three"]);
    // Again: nothing happens twice.
    pair.carry(0);
    pair.restart();
    assert_eq!(pair.bodies(1, b), ["zero", "one", "two", "three"]);
    for (id, ..) in pair.list(1, b) {
        assert_eq!(shard_of_id(id, SHARDS.into()), 1);
    }
}

#[test]
fn a_dead_letter_carries_its_reason_to_the_other_shard() {
    let (a, b) = names();
    let rule = Overrides {
        attempts_max: Some(1),
        dead_letter: Some(DeadLetter::To(b.into())),
        ..Overrides::default()
    };
    let mut pair = Pair::new(&[(a, rule)]);
    pair.ask(0, 1, put(a, "tried"));
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::OwnTtr,
        back_to: BackTo::Position,
        held_max: 0,
    };
    let take = Take {
        queues: [a.into()].into_iter().collect(),
        lease: Some(lease),
        ..Take::default()
    };
    pair.ask(0, 7, Command::Take(take));
    pair.0[0].hang_up(7);
    pair.restart();
    pair.carry(0);
    let list = pair.list(1, b);
    let [(_, body, attrs)] = &list[..] else {
        panic!("{list:?}")
    };
    assert_eq!(body, "tried");
    let text: Vec<(&[u8], &[u8])> = attrs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    assert_eq!(
        text,
        [
            (&b"dead_letter_attempts"[..], &b"1"[..]),
            (b"dead_letter_queue", b"a"),
            (b"dead_letter_reason", b"attempts"),
        ]
    );
}

#[test]
fn a_segment_may_go_while_something_is_sent() {
    let (a, b) = names();
    let mut pair = Pair::new(&[]);
    pair.ask(0, 1, put(a, "old"));
    pair.ask(0, 1, move_all(a, b));
    // The next segment begins with a snapshot, and images replace the rest.
    pair.0[0].engine.set_segment_ref(SegmentRef(1));
    let mut log = Vec::new();
    pair.0[0]
        .engine
        .snapshot(&mut |fact| log.push(fact.clone()));
    assert_eq!(pair.0[0].engine.segment_refs_live(SegmentRef(0)), 1);
    pair.0[0]
        .engine
        .copy_out(SegmentRef(0), 0, u32::MAX, &mut log);
    assert_eq!(pair.0[0].engine.segment_refs_live(SegmentRef(0)), 0);
    pair.0[0].facts = log;
    pair.restart();
    pair.carry(0);
    assert_eq!(pair.bodies(1, b), ["old"]);
    // The restart read all of it as this segment's.
    assert_eq!(pair.0[0].engine.segment_refs_live(SegmentRef(0)), 0);
}
