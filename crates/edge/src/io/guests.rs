//! How many connections there are, and from where.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quintet_config::RESERVE;
use quintet_host::locked;
use quintet_types::Ms;
use quintet_wire::{Worker, WorkerRequest, Workers};

/// Where a connection comes from: an address, or a unix socket's listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    Address(IpAddr),
    /// By its number.
    Listener(usize),
}

impl Origin {
    pub(crate) fn new(peer: Option<SocketAddr>, listener: usize) -> Self {
        match peer {
            Some(peer) => Self::Address(peer.ip().to_canonical()),
            None => Self::Listener(listener),
        }
    }
}

/// The connections that are open, and the workers some of them belong to. Beyond the bound, an
/// address without a connection still gets one, as long as [`RESERVE`] lasts: a client that has
/// taken all places has not shut out everybody else.
#[derive(Default)]
pub struct Guests {
    most: AtomicU64,
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections since the start.
    pub total: AtomicU64,
    /// Those for whom there was no place.
    pub refused: AtomicU64,
    by_origin: Mutex<HashMap<Origin, u64>>,
    /// Processes that name themselves over several connections.
    workers: Mutex<Workers>,
}

impl Guests {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most: AtomicU64::new(most),
            ..Self::default()
        }
    }

    /// From now on there may be so many.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Counts a new connection and answers its number, from 1 on. `None`: there
    /// are too many, so it is closed. An operator always gets in.
    pub fn admit(&self, origin: Origin, is_operator: bool) -> Option<u64> {
        let number = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let mut by_origin = locked(&self.by_origin);
        let before = self.open.load(Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed);
        let newcomer = before < most + RESERVE && !by_origin.contains_key(&origin);
        if before < most || newcomer || is_operator {
            self.open.fetch_add(1, Ordering::Relaxed);
            *by_origin.entry(origin).or_default() += 1;
            return Some(number);
        }
        drop(by_origin);
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        // Once per power of two: enough to notice, too little to fill a disk.
        if refused.is_power_of_two() {
            tracing::warn!("{refused} connections closed: connections_max is reached");
        }
        None
    }

    /// An admitted connection is gone.
    pub fn dismiss(&self, origin: Origin) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let mut by_origin = locked(&self.by_origin);
        if let Some(count) = by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                by_origin.remove(&origin);
            }
        }
    }

    /// Answers a session that asks about a worker.
    pub fn worker(&self, ask: WorkerRequest, now: Ms) -> Option<Arc<Worker>> {
        locked(&self.workers).answer(ask, now)
    }

    /// Does something with the table of workers.
    pub fn workers<T>(&self, act: impl FnOnce(&mut Workers) -> T) -> T {
        act(&mut locked(&self.workers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_connection_gets_one_beyond_the_bound() {
        let guests = Guests::new(2);
        let admit = |origin, operator| guests.admit(origin, operator).is_some();
        let origin = |last: u8| Origin::Address(IpAddr::from([127, 0, 0, last]));
        assert!(admit(origin(1), false) && admit(origin(1), false));
        assert!(!admit(origin(1), false));
        for last in 2..2 + u8::try_from(RESERVE).expect("small") {
            assert!(admit(origin(last), false), "{last}");
            assert!(!admit(origin(last), false), "{last}");
        }
        assert!(!admit(origin(255), false));
        assert!(admit(Origin::Listener(3), true));
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(read(&guests.open), 2 + RESERVE + 1);
        // A connection that leaves makes room for those who have none.
        guests.dismiss(origin(1));
        guests.dismiss(Origin::Listener(3));
        assert!(admit(origin(255), false) && !admit(origin(1), false));
        assert_eq!(
            (read(&guests.open), read(&guests.refused)),
            (2 + RESERVE, 2 + RESERVE + 1)
        );
    }
}
