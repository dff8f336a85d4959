//! Between two shards: what is sent, and what becomes of it.

use quintet_engine::*;

const SHARDS: u8 = 2;

/// Two shards and their logs.
struct Pair {
    engines: [Engine; 2],
    logs: [Vec<Fact>; 2],
    deliveries: Vec<Delivery>,
    settings: Settings,
    now: Ms,
}

impl Pair {
    fn new(rules: &[(&str, Overrides)]) -> Self {
        let settings = Settings {
            rules: rules
                .iter()
                .map(|(name, rule)| (Pattern::new(name), rule.clone()))
                .collect(),
            ..Settings::default()
        };
        Self {
            engines: [0, 1].map(|n| Engine::new(n, SHARDS, settings.clone())),
            logs: Default::default(),
            deliveries: Vec::new(),
            settings,
            now: Ms(1_000_000),
        }
    }

    fn ask(&mut self, shard: usize, party: u64, command: Command) -> Outcome {
        let caller = Caller {
            party: Party(party),
            ..Caller::default()
        };
        let answer = self.engines[shard].submit(
            self.now,
            caller,
            command,
            &mut self.logs[shard],
            &mut self.deliveries,
        );
        self.engines[shard].verify().unwrap();
        match answer {
            Answer::Now(outcome, _) => outcome,
            Answer::Later => panic!("nothing here waits"),
        }
    }

    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.engines;
        let [log_a, log_b] = &mut self.logs;
        let (mut left, mut right) = (
            Side {
                engine: a,
                journal: log_a,
            },
            Side {
                engine: b,
                journal: log_b,
            },
        );
        if from == 1 {
            std::mem::swap(&mut left, &mut right);
        }
        carry(self.now, left, right, 9, &mut self.deliveries);
        for engine in &self.engines {
            engine.verify().unwrap();
        }
    }

    /// Replays both logs.
    fn restart(&mut self) {
        for shard in [0, 1] {
            let before = self.engines[shard].image();
            let mut again = Engine::new(shard as u8, SHARDS, self.settings.clone());
            for fact in &self.logs[shard] {
                let mut bytes = Vec::new();
                fact.encode(&mut bytes);
                let large = &mut |id, len| LargeBody::new(id, len, 0);
                again.replay(Fact::decode(&mut &bytes[..], large).unwrap(), Home(0));
            }
            again.verify().unwrap();
            assert_eq!(again.image(), before);
            self.engines[shard] = again;
        }
    }

    /// Everything in a queue, with attributes.
    fn list(&mut self, shard: usize, queue: &str) -> Vec<(MessageId, String, Vec<Attr>)> {
        let outcome = self.ask(
            shard,
            1,
            Command::Peek(Peek::List {
                queue: queue.into(),
                state: ListState::Ready,
                after: None,
                max: 99,
            }),
        );
        let Outcome::Messages(messages) = outcome else {
            return Vec::new();
        };
        messages
            .into_iter()
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
    Command::MoveAll {
        from: from.into(),
        to: to.into(),
        state: ListState::Ready,
        max: 99,
    }
}

#[test]
fn what_is_sent_is_nobodys_until_it_is_carried() {
    let (a, b) = names();
    let mut pair = Pair::new(&[]);
    for body in ["one", "two", "three"] {
        pair.ask(0, 1, put(a, body));
    }
    pair.ask(1, 1, put(b, "zero"));
    assert_eq!(pair.ask(0, 1, move_all(a, b)), Outcome::Count(3));
    assert_eq!(pair.bodies(0, a), [""; 0]);
    assert_eq!(pair.engines[0].sends_to(), Some(1));
    assert_eq!(pair.engines[0].next_deadline(), pair.now);
    let delete = Command::Delete {
        id: MessageId(1),
        by: By::Anyone,
    };
    assert_eq!(pair.ask(0, 1, delete), Outcome::Refused(Refusal::NotFound));
    // Dropping the queue it came from does not touch it.
    pair.ask(0, 1, Command::Drop(a.into()));
    pair.restart();
    assert_eq!(pair.engines[0].sends_to(), Some(1));
    pair.carry(0);
    assert_eq!(pair.engines[0].sends_to(), None);
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
fn a_dead_letter_tells_the_other_shard_why() {
    let (a, b) = names();
    let rule = Overrides {
        attempts_max: Some(1),
        dead_letter: Some(DeadLetter::To(b.into())),
        ..Overrides::default()
    };
    let mut pair = Pair::new(&[(a, rule)]);
    pair.ask(0, 1, put(a, "tried"));
    let lease = LeaseAsk {
        owner: LeaseOwner::Connection,
        time: LeaseTime::OwnTtr,
        back_to: BackTo::Place,
        held_max: 0,
    };
    let take = Take {
        queues: [a.into()].into_iter().collect(),
        lease: Some(lease),
        ..Take::default()
    };
    pair.ask(0, 7, Command::Take(take));
    pair.engines[0].disconnect(pair.now, Party(7), &mut pair.logs[0], &mut pair.deliveries);
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
    pair.engines[0].set_home(Home(1));
    let mut log = Vec::new();
    pair.engines[0].snapshot(&mut |fact| log.push(fact.clone()));
    assert_eq!(pair.engines[0].homes_live(Home(0)), 1);
    pair.engines[0].copy_out(Home(0), 0, u32::MAX, &mut log);
    assert_eq!(pair.engines[0].homes_live(Home(0)), 0);
    pair.logs[0] = log;
    pair.restart();
    pair.carry(0);
    assert_eq!(pair.bodies(1, b), ["old"]);
    assert_eq!(pair.engines[0].oldest_home(), None);
}
