//! The engine's world: an engine with a clock, and short words for what tests
//! ask of it. Every test of an engine that is not the host's stands on it.

use quintet_engine::*;
use quintet_types::*;

/// Ticks at one time at most; many more than any test needs.
const TICKS_MAX: u32 = 100_000;

/// An engine, its journal, and a clock that only this moves.
#[derive(Debug)]
pub struct World {
    /// One shard.
    pub engine: Engine,
    /// All that was recorded since somebody took it out.
    pub facts: Vec<Fact>,
    /// Outcomes for those who waited, until somebody takes them out.
    pub deliveries: Vec<Delivery>,
    /// Engine time.
    pub now: Ms,
    /// Settings of an engine that is made from the facts.
    pub settings: Settings,
    shard: (u8, u8),
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world whose queues never rest: what is due in it is the test's.
    pub fn new() -> Self {
        let mut settings = Settings::default();
        settings.defaults.idle_ms = 0;
        Self::with(settings)
    }

    /// A world of one shard.
    pub fn with(settings: Settings) -> Self {
        Self::shard(0, 1, settings)
    }

    /// The world of one shard of several.
    pub fn shard(number: u8, count: u8, settings: Settings) -> Self {
        Self {
            engine: Engine::new(number, count, settings.clone()),
            facts: Vec::new(),
            deliveries: Vec::new(),
            now: Ms(1_000_000),
            settings,
            shard: (number, count),
        }
    }

    /// The same at this time.
    pub fn at(self, now: Ms) -> Self {
        Self { now, ..self }
    }

    /// Asks the engine now.
    pub fn submit(&mut self, caller: Caller, command: Command) -> Answer {
        let (facts, deliveries) = (&mut self.facts, &mut self.deliveries);
        self.engine
            .submit(self.now, caller, command, facts, deliveries)
    }

    /// Does what is due now, as much as one tick does.
    pub fn tick(&mut self) {
        let (facts, deliveries) = (&mut self.facts, &mut self.deliveries);
        self.engine.tick(self.now, facts, deliveries);
    }

    /// Ends what a client has.
    pub fn disconnect(&mut self, client_id: ClientId) {
        let (facts, deliveries) = (&mut self.facts, &mut self.deliveries);
        self.engine
            .disconnect(self.now, client_id, facts, deliveries);
    }

    /// An engine like this one at its beginning.
    pub fn fresh(&self) -> Engine {
        let (number, count) = self.shard;
        Engine::new(number, count, self.settings.clone())
    }

    /// Asks, and looks at the indexes; `None`: the take waits.
    pub fn ask(&mut self, client_id: u64, command: Command) -> Option<Outcome> {
        let caller = Caller {
            client_id: ClientId(client_id),
            principal: Principal(0),
        };
        let answer = self.submit(caller, command);
        self.verify();
        match answer {
            Answer::Now(outcome, _) => Some(outcome),
            Answer::Later => None,
        }
    }

    /// Every index agrees with what it is about.
    pub fn verify(&self) {
        self.engine.verify().expect("indexes agree");
        assert_eq!(self.engine.lacks(), None, "who came has left, or is there");
    }

    /// Puts this body; answers its id.
    pub fn put(&mut self, queue: &str, body: &str) -> MessageId {
        self.put_as(Put {
            queue: queue.into(),
            body: Body::new(body.as_bytes()),
            ..Put::default()
        })
    }

    /// Puts; answers the id.
    ///
    /// # Panics
    /// It is refused.
    pub fn put_as(&mut self, put: Put) -> MessageId {
        match self.ask(9, Command::Put(put)) {
            Some(Outcome::Put { id, .. }) => id,
            other => panic!("put: {other:?}"),
        }
    }

    /// Takes; answers it as [`text`].
    pub fn take(&mut self, client_id: u64, take: Take) -> String {
        match self.ask(client_id, Command::Take(take)) {
            Some(outcome) => text(&outcome),
            None => "waits".into(),
        }
    }

    /// Takes one away.
    pub fn pop(&mut self, queue: &str) -> String {
        self.take(8, plain(queue))
    }

    /// Lets time pass and does what is due.
    pub fn wait(&mut self, ms: u64) {
        self.now = self.now + ms;
        let mut ticks = 0;
        while self.engine.next_deadline() <= self.now {
            assert!(ticks < TICKS_MAX, "it is due for ever");
            ticks += 1;
            self.tick();
            self.verify();
        }
    }

    /// A connection ends.
    pub fn hang_up(&mut self, client_id: u64) {
        self.disconnect(ClientId(client_id));
        self.verify();
    }

    /// The state that the facts lead to, as bytes in this segment of a log.
    pub fn replayed(&self, segment_ref: SegmentRef) -> Engine {
        let mut bytes = Vec::new();
        for fact in &self.facts {
            fact.encode(&mut bytes);
        }
        let mut engine = self.fresh();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let large = &mut |id, len| LargeBody::new(id, len, 0);
            let fact = Fact::decode(&mut rest, large).expect("encoded by us");
            engine.replay(fact, segment_ref);
        }
        engine.verify().expect("indexes agree");
        engine
    }

    /// Forgets everything but the facts, and starts again.
    pub fn restart(&mut self) {
        let mut engine = self.replayed(SegmentRef(0));
        engine.begin_epoch(self.now, engine.epoch() + 1, [7; 16], &mut self.facts);
        self.engine = engine;
        self.deliveries.clear();
    }

    /// Takes out what came for those who waited, as [`text`].
    pub fn delivered(&mut self) -> Vec<(u64, String)> {
        self.deliveries
            .drain(..)
            .map(|d| (d.to.0, text(&d.outcome)))
            .collect()
    }
}

/// An outcome in words: bodies, or what else came.
pub fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Messages(handed) => handed
            .iter()
            .map(|m| String::from_utf8_lossy(m.body.as_small().expect("a small body")).into_owned())
            .collect::<Vec<_>>()
            .join("+"),
        Outcome::Empty => "empty".into(),
        Outcome::DeadlineSoon => "soon".into(),
        Outcome::Refused(command_error) => command_error.text().into(),
        other => format!("{other:?}"),
    }
}

/// A take that removes and does not wait.
pub fn plain(queue: &str) -> Take {
    Take {
        queues: [Name::from(queue)].into_iter().collect(),
        ..Take::default()
    }
}

/// A take that waits without limit.
pub fn waiting(queue: &str) -> Take {
    Take {
        wait: Wait::Forever,
        ..plain(queue)
    }
}

/// A lease of one at a time, given back to the head.
pub fn open(queue: &str) -> Take {
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::OwnTtr,
        back_to: BackTo::Head,
        held_max: 1,
    };
    Take {
        lease: Some(lease),
        ..plain(queue)
    }
}

/// A lease as beanstalkd gives them.
pub fn reserve(queue: &str) -> Take {
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::TtrOrDefault,
        back_to: BackTo::Position,
        held_max: 0,
    };
    Take {
        lease: Some(lease),
        ..plain(queue)
    }
}

/// A put whose other fields are the defaults.
pub fn prioritized(queue: &str, priority: u32, body: &str) -> Put {
    Put {
        queue: queue.into(),
        priority: Some(priority),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    }
}
