//! Names of workers who took messages over HTTP under leases that no connection holds, for as long
//! as the process lives.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use quintet_types::{ClientId, locked};

/// Requests that are remembered, the newest; each takes some 300 bytes, 800 at most.
const CONSUMERS_MAX: usize = 10_000;
/// Bytes of a worker's name.
pub const WORKER_MAX: usize = 255;

/// The sender of a request that took messages.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Consumer {
    /// The protocol it came by.
    pub protocol: &'static str,
    pub user: Option<Arc<str>>,
    /// As its client says: the field `worker`, or its `User-Agent`.
    pub worker: Option<Box<str>>,
}

/// Those of the newest requests, by the client that its leases name.
#[derive(Default)]
pub struct Consumers(Mutex<(VecDeque<ClientId>, HashMap<ClientId, Consumer>)>);

impl Consumers {
    /// Keeps the consumer of what `client_id` took; the oldest goes for one too many.
    pub fn note(&self, client_id: ClientId, consumer: Consumer) {
        if consumer.user.is_none() && consumer.worker.is_none() {
            return;
        }
        let mut all = locked(&self.0);
        let (order, known) = &mut *all;
        if let Some(before) = known.get_mut(&client_id) {
            *before = consumer;
            return;
        }
        if order.len() >= CONSUMERS_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        order.push_back(client_id);
        known.insert(client_id, consumer);
    }

    /// The consumer behind `client_id`, if it is among the newest.
    pub fn of(&self, client_id: ClientId) -> Option<Consumer> {
        let all = locked(&self.0);
        all.1.get(&client_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let consumers = Consumers::default();
        let named = |worker: &str| Consumer {
            worker: Some(worker.into()),
            ..Consumer::default()
        };
        let last = CONSUMERS_MAX as u64 + 1;
        (1..=last).for_each(|client_id| {
            consumers.note(ClientId(client_id), named(&client_id.to_string()))
        });
        consumers.note(ClientId(7), Consumer::default());
        assert!(consumers.of(ClientId(1)).is_none());
        for client_id in [2, 7, last] {
            let worker = consumers
                .of(ClientId(client_id))
                .and_then(|consumer| consumer.worker);
            assert_eq!(worker.as_deref(), Some(&*client_id.to_string()));
        }
    }
}
