//! Events in order of their time, and waiting that makes them happen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use quintet_cluster::{Moment, Ticks, World};

/// Nothing that is waited for takes so long: something has been forgotten.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

type Event = Box<dyn FnOnce() + Send>;

/// A world of one thread, whose time passes when somebody waits.
#[derive(Clone, Default)]
pub struct SimWorld(Arc<Mutex<Agenda>>);

/// The planned events and their times.
#[derive(Default)]
struct Agenda {
    now: Moment,
    /// Events of one moment happen in the order they were planned.
    planned: u64,
    events: BTreeMap<(Moment, u64), Event>,
    /// Read at each step, and copied for that: so the list is shared, not its entries.
    driven: Arc<Vec<Weak<dyn Ticks>>>,
}

enum Next {
    Event(Event),
    Tick(Arc<dyn Ticks>),
}

impl SimWorld {
    /// A world at its beginning.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Agenda> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `event` happen after `delay`.
    pub fn plan(&self, delay: Duration, event: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.planned += 1;
        let key = (state.now + delay, state.planned);
        state.events.insert(key, Box::new(event));
    }

    /// Lets time pass, and all happen that is due by then.
    pub fn pass(&self, time: Duration) {
        let until = self.now() + time;
        self.wait(Some(until), &mut || false);
    }

    /// Nothing that was planned happens any more, and nothing is driven: what was to happen holds
    /// on to the world, and the world to it.
    pub fn end(&self) {
        let (events, driven) = {
            let mut state = self.lock();
            (
                std::mem::take(&mut state.events),
                std::mem::take(&mut state.driven),
            )
        };
        drop((events, driven));
    }

    /// Takes the next thing that happens, if that is not after `until`, and makes it now.
    fn next(&self, until: Option<Moment>) -> Option<Next> {
        // Asking for a deadline takes locks of others, so this one is not held meanwhile.
        let driven = Arc::clone(&self.lock().driven);
        let ticks = driven.iter().filter_map(Weak::upgrade);
        let due = ticks.filter_map(|ticks| Some((ticks.deadline()?, ticks)));
        let due = due.min_by_key(|(due, _)| *due);
        let mut state = self.lock();
        let event = state.events.first_key_value().map(|((at, _), _)| *at);
        let tick = due.filter(|(due, _)| event.is_none_or(|event| *due < event));
        let at = tick.as_ref().map(|(due, _)| *due).or(event);
        match at {
            Some(at) if until.is_none_or(|until| at <= until) => {
                state.now = state.now.max(at);
                assert!(state.now < FOREVER, "it is waited for what never happens");
            }
            _ => {
                let until = until.expect("it is waited for what cannot happen");
                state.now = state.now.max(until);
                return None;
            }
        }
        match tick {
            Some((_, ticks)) => Some(Next::Tick(ticks)),
            None => state
                .events
                .pop_first()
                .map(|(_, event)| Next::Event(event)),
        }
    }
}

impl World for SimWorld {
    fn now(&self) -> Moment {
        self.lock().now
    }

    fn wall_ms(&self) -> u64 {
        let ms = self.now().as_millis();
        1_700_000_000_000 + u64::try_from(ms).unwrap_or(0)
    }

    fn drive(&self, ticks: Weak<dyn Ticks>) {
        let mut state = self.lock();
        let driven = Arc::make_mut(&mut state.driven);
        driven.retain(|ticks| ticks.strong_count() > 0);
        driven.push(ticks);
    }

    fn wait(&self, until: Option<Moment>, ready: &mut dyn FnMut() -> bool) {
        while !ready() {
            match self.next(until) {
                Some(Next::Event(event)) => event(),
                Some(Next::Tick(ticks)) => ticks.tick(self.now()),
                None => return,
            }
        }
    }

    fn wake(&self) {}

    fn remind(&self) {}
}
