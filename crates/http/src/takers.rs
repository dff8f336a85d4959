//! Names of workers who took messages over HTTP under leases that no connection holds, for as long
//! as the process lives.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use quintet_types::Party;

/// Requests that are remembered, the newest; each takes some 300 bytes, 800 at most.
const TAKERS_MAX: usize = 10_000;
/// Bytes of a worker's name.
pub const WORKER_MAX: usize = 255;

/// The sender of a request that took messages.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Taker {
    /// The protocol it came by.
    pub protocol: &'static str,
    pub user: Option<Arc<str>>,
    /// As its client says: the field `worker`, or its `User-Agent`.
    pub worker: Option<Box<str>>,
}

/// Those of the newest requests, by the party that its leases name.
#[derive(Default)]
pub struct Takers(Mutex<(VecDeque<Party>, HashMap<Party, Taker>)>);

impl Takers {
    /// Keeps the taker of what `party` took; the oldest goes for one too many.
    pub fn note(&self, party: Party, taker: Taker) {
        if taker.user.is_none() && taker.worker.is_none() {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (order, known) = &mut *all;
        if let Some(before) = known.get_mut(&party) {
            *before = taker;
            return;
        }
        if order.len() >= TAKERS_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        order.push_back(party);
        known.insert(party, taker);
    }

    /// The taker behind `party`, if it is among the newest.
    pub fn of(&self, party: Party) -> Option<Taker> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.1.get(&party).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let takers = Takers::default();
        let named = |worker: &str| Taker {
            worker: Some(worker.into()),
            ..Taker::default()
        };
        let last = TAKERS_MAX as u64 + 1;
        (1..=last).for_each(|party| takers.note(Party(party), named(&party.to_string())));
        takers.note(Party(7), Taker::default());
        assert!(takers.of(Party(1)).is_none());
        for party in [2, 7, last] {
            let worker = takers.of(Party(party)).and_then(|taker| taker.worker);
            assert_eq!(worker.as_deref(), Some(&*party.to_string()));
        }
    }
}
