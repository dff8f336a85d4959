//! Hooks without a server: over an engine in memory, with a clock that only
//! its owner moves.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod once;
mod tests_in_lua;

use std::sync::{Arc, Mutex};

use quintet_engine::{Engine, Fact};
use quintet_hooks::{Decided, Event, HookError, HookState, Host, Level, Program, Who};
use quintet_types::{
    Answer, Caller, ClientId, Command, Delivery, Ms, Name, Outcome, PendingDecision, Settings,
    WallAhead, locked,
};

pub use once::run_once;
pub use tests_in_lua::{TestResult, run_tests};

/// The client that decides pending messages and runs timers.
const DECIDER: ClientId = ClientId(u64::MAX);

/// An engine in memory. Handles share it.
#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

struct Inner {
    engine: Engine,
    now: Ms,
    ahead: WallAhead,
    facts: Vec<Fact>,
    deliveries: Vec<Delivery>,
    log: Vec<(Level, String)>,
}

impl World {
    /// An empty engine at this time.
    pub fn new(settings: Settings, now: Ms) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            engine: Engine::new(0, 1, settings),
            now,
            ahead: WallAhead::default(),
            facts: Vec::new(),
            deliveries: Vec::new(),
            log: Vec::new(),
        })))
    }

    /// Every fact so far.
    pub fn facts(&self) -> Vec<Fact> {
        locked(&self.0).facts.clone()
    }

    /// The durable state, as facts.
    pub fn image(&self) -> Vec<Fact> {
        locked(&self.0).engine.image()
    }

    /// Sets the wall clock: so far ahead of engine time.
    pub fn set_wall(&self, ahead: WallAhead) {
        let mut inner = locked(&self.0);
        inner.ahead = ahead;
        inner.engine.set_wall_ahead(ahead);
    }

    /// Takes the log's lines.
    pub fn take_log(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut locked(&self.0).log)
    }

    fn take_deliveries(&self) -> Vec<Delivery> {
        std::mem::take(&mut locked(&self.0).deliveries)
    }

    /// Does what is due now; what waits for a hook's decision.
    fn tick(&self) {
        let mut inner = locked(&self.0);
        let inner = &mut *inner;
        // Two rounds more would find nothing new; a bound for a broken engine.
        for _ in 0..10_000 {
            if inner.engine.next_deadline() > inner.now {
                break;
            }
            let (facts, deliveries) = (&mut inner.facts, &mut inner.deliveries);
            inner.engine.tick(inner.now, facts, deliveries);
        }
    }

    /// The events that wait for a hook's decision, each returned once.
    fn take_pending_decisions(&self) -> Vec<PendingDecision> {
        locked(&self.0).engine.take_pending_decisions()
    }

    fn next(&self) -> Ms {
        locked(&self.0).engine.next_deadline()
    }

    fn set_time(&self, now: Ms) {
        let mut inner = locked(&self.0);
        inner.now = inner.now.max(now);
    }
}

impl Host for World {
    fn now(&self) -> Ms {
        locked(&self.0).now
    }

    fn wall(&self) -> Ms {
        let inner = locked(&self.0);
        inner.ahead.wall_at(inner.now)
    }

    fn ask(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        let mut inner = locked(&self.0);
        let inner = &mut *inner;
        let (engine, facts, deliveries) =
            (&mut inner.engine, &mut inner.facts, &mut inner.deliveries);
        let answer = engine.submit(inner.now, caller, command, facts, deliveries);
        let Answer::Now(outcome, _) = answer else {
            return (None, Name::default());
        };
        let name = match outcome.first_handed() {
            Some(message) => engine.queue_name(message.queue),
            None => Name::default(),
        };
        (Some(outcome), name)
    }

    fn log(&mut self, level: Level, text: &str) {
        locked(&self.0).log.push((level, text.to_owned()));
    }
}

/// Hooks over a [`World`].
pub struct Trial {
    pub world: World,
    pub state: HookState,
    arrived: Vec<(ClientId, Decided)>,
}

impl Trial {
    /// Hooks of this program over an empty engine at this time; their `start`
    /// has run.
    ///
    /// # Errors
    /// The files fail to load.
    pub fn new(program: Arc<Program>, settings: Settings, now: Ms) -> Result<Self, HookError> {
        let world = World::new(settings, now);
        let state = HookState::new(program, Box::new(world.clone()))?;
        let pending_decisions = state.pending_decisions(DECIDER);
        {
            let mut inner = locked(&world.0);
            let inner = &mut *inner;
            let (facts, deliveries) = (&mut inner.facts, &mut inner.deliveries);
            let engine = &mut inner.engine;
            engine.set_pending_decisions(now, pending_decisions, facts, deliveries);
        }
        let mut trial = Self {
            world,
            state,
            arrived: Vec::new(),
        };
        trial.state.notify(&decider(), Event::Start);
        Ok(trial)
    }

    /// Submits a command with the events around it.
    pub fn submit(&mut self, who: &Who, command: Command) -> Decided {
        let decided = self.state.submit(who, command);
        self.deliver();
        decided
    }

    /// Lets time pass: everything due happens at its time.
    pub fn pass(&mut self, ms: u64) {
        let until = self.world.now() + ms;
        // A bound for hooks that make new work without end.
        for _ in 0..100_000 {
            let next = self.world.next().min(self.state.next_timer());
            if next > until {
                break;
            }
            self.world.set_time(next);
            self.world.tick();
            if self.state.next_timer() <= self.world.now() {
                self.state.run_timers(&decider());
            }
            self.deliver();
        }
        self.world.set_time(until);
    }

    /// Outcomes of takes that waited, since this was last asked.
    pub fn take_arrived(&mut self) -> Vec<(ClientId, Decided)> {
        std::mem::take(&mut self.arrived)
    }

    /// Has what waits decided, and tells those who waited.
    fn deliver(&mut self) {
        // A bound for hooks whose decisions ask for decisions without end.
        for _ in 0..10_000 {
            let pending_decisions = self.world.take_pending_decisions();
            if pending_decisions.is_empty() {
                break;
            }
            for pending_decision in pending_decisions {
                self.state.pending_decision(&decider(), &pending_decision);
            }
        }
        for delivery in self.world.take_deliveries() {
            let (who, standing) = (client(delivery.to.0), delivery.standing);
            let output = self
                .state
                .arrived(&who, standing, delivery.outcome, delivery.queue);
            self.arrived.push((delivery.to, output));
        }
    }
}

fn decider() -> Who {
    Who {
        caller: Caller {
            client_id: DECIDER,
            ..Caller::default()
        },
        ..Who::default()
    }
}

/// A client without a user, connected from 127.0.0.1.
pub fn client(number: u64) -> Who {
    Who {
        caller: Caller {
            client_id: ClientId(number),
            ..Caller::default()
        },
        connection: number,
        protocol: "trial",
        peer: "127.0.0.1".into(),
        user: "".into(),
    }
}
