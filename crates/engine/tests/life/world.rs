//! An engine with a clock, and short words for what tests ask of it.

use quintet_engine::*;

/// An engine, its journal, and a clock that only this moves.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) facts: Vec<Fact>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) now: Ms,
    pub(crate) settings: Settings,
}

impl World {
    pub(crate) fn new() -> Self {
        // What is due is that of the test, not that of queues that rest.
        let mut settings = Settings::default();
        settings.defaults.idle_ms = 0;
        Self::with(settings)
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let engine = Engine::new(0, 1, settings.clone());
        Self {
            engine,
            facts: vec![],
            deliveries: vec![],
            now: Ms(1_000_000),
            settings,
        }
    }

    pub(crate) fn ask(&mut self, party: u64, command: Command) -> Option<Outcome> {
        let caller = Caller {
            party: Party(party),
            principal: Principal(0),
        };
        let answer = self.engine.submit(
            self.now,
            caller,
            command,
            &mut self.facts,
            &mut self.deliveries,
        );
        self.engine.verify().unwrap();
        match answer {
            Answer::Now(outcome, _) => Some(outcome),
            Answer::Later => None,
        }
    }

    pub(crate) fn put(&mut self, queue: &str, body: &str) -> MessageId {
        self.put_as(Put {
            queue: queue.into(),
            body: Body::new(body.as_bytes()),
            ..Put::default()
        })
    }

    pub(crate) fn put_as(&mut self, put: Put) -> MessageId {
        match self.ask(9, Command::Put(put)) {
            Some(Outcome::Put { id, .. }) => id,
            other => panic!("put: {other:?}"),
        }
    }

    pub(crate) fn take(&mut self, party: u64, take: Take) -> String {
        match self.ask(party, Command::Take(take)) {
            Some(outcome) => text(&outcome),
            None => "waits".into(),
        }
    }

    pub(crate) fn pop(&mut self, queue: &str) -> String {
        self.take(8, plain(queue))
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now + ms;
        while self.engine.next_deadline() <= self.now {
            self.engine
                .tick(self.now, &mut self.facts, &mut self.deliveries);
            self.engine.verify().unwrap();
        }
    }

    pub(crate) fn hang_up(&mut self, party: u64) {
        self.engine.disconnect(
            self.now,
            Party(party),
            &mut self.facts,
            &mut self.deliveries,
        );
        self.engine.verify().unwrap();
    }

    /// Forgets everything but the facts, as bytes, and starts again.
    pub(crate) fn restart(&mut self) {
        let mut bytes = Vec::new();
        for fact in &self.facts {
            fact.encode(&mut bytes);
        }
        let mut engine = Engine::new(0, 1, self.settings.clone());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let fact = Fact::decode(&mut rest, &mut |id, len| LargeBody::new(id, len, 0)).unwrap();
            engine.replay(fact, Home(0));
        }
        engine.verify().unwrap();
        engine.begin_epoch(self.now, engine.epoch() + 1, &mut self.facts);
        self.engine = engine;
        self.deliveries.clear();
    }

    pub(crate) fn delivered(&mut self) -> Vec<(u64, String)> {
        self.deliveries
            .drain(..)
            .map(|d| (d.to.0, text(&d.outcome)))
            .collect()
    }
}

pub(crate) fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Messages(handed) => handed
            .iter()
            .map(|m| String::from_utf8_lossy(m.body.as_small().unwrap()).into_owned())
            .collect::<Vec<_>>()
            .join("+"),
        Outcome::Empty => "empty".into(),
        Outcome::DeadlineSoon => "soon".into(),
        Outcome::Refused(refusal) => refusal.text().into(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn plain(queue: &str) -> Take {
    Take {
        queues: [Name::from(queue)].into_iter().collect(),
        ..Take::default()
    }
}

pub(crate) fn waiting(queue: &str) -> Take {
    Take {
        wait: Wait::Forever,
        ..plain(queue)
    }
}

pub(crate) fn open(queue: &str) -> Take {
    let lease = LeaseAsk {
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

pub(crate) fn reserve(queue: &str) -> Take {
    let lease = LeaseAsk {
        owner: LeaseOwner::Connection,
        time: LeaseTime::TtrOrDefault,
        back_to: BackTo::Place,
        held_max: 0,
    };
    Take {
        lease: Some(lease),
        ..plain(queue)
    }
}

pub(crate) fn ranked(queue: &str, rank: u32, body: &str) -> Put {
    Put {
        queue: queue.into(),
        rank: Some(rank),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    }
}
