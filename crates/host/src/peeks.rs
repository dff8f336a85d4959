//! Peeks at the shards on behalf of hooks, which cannot wait in line: what
//! has to be read from a run is waited for on the spot.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use quintet_types::{Caller, ClientId, Command, CommandError, Delivery, Name, Outcome};

use super::{ClientKey, Core, Decided, Required, SLOTS_MAX, locked};

/// The number that stands for an I/O thread in these clients.
const THREAD: usize = 255;

type OutcomeSender = SyncSender<(Outcome, Name, Required)>;

/// Commands that wait for a run to be read.
#[derive(Default)]
pub(crate) struct Peeks {
    waiting: Mutex<Waiting>,
    last: AtomicU32,
}

#[derive(Default)]
struct Waiting {
    senders: HashMap<ClientId, OutcomeSender>,
    /// The server stops: nobody waits any more.
    ended: bool,
}

impl Peeks {
    /// A new client, which is nobody's connection.
    pub(crate) fn client_id(&self) -> ClientId {
        let last = self.last.fetch_add(1, Ordering::Relaxed);
        ClientKey {
            thread: THREAD,
            slot: last % SLOTS_MAX,
            generation: 1 + last / SLOTS_MAX,
        }
        .client_id()
    }

    /// Leaves an outcome with the thread that waits for it, if there is one.
    pub(super) fn hand(&self, delivery: Delivery, required: Required) {
        if ClientKey::of(delivery.to).thread == THREAD
            && let Some(sender) = locked(&self.waiting).senders.remove(&delivery.to)
        {
            // It waits for nothing else, and has room for one.
            let _delivered = sender.try_send((delivery.outcome, delivery.queue, required));
        }
    }
}

impl Core {
    /// Answers a command that only reads, and what a reply that names it
    /// waits for. Keeps the thread while a run is being read.
    pub fn peek(&self, command: Command) -> (Outcome, Name, Required) {
        let client_id = self.peeks.client_id();
        let caller = Caller::server(client_id);
        let (notify, receiver) = sync_channel(1);
        let stopping = || {
            let refused = Outcome::Refused(CommandError::Draining);
            (refused, Name::default(), Required::default())
        };
        // Before it is asked: it may be answered at once.
        {
            let mut waiting = locked(&self.peeks.waiting);
            if waiting.ended {
                return stopping();
            }
            waiting.senders.insert(client_id, notify);
        }
        let answer = match self.with_access(|access| access.submit(caller, command)) {
            Decided::Now(outcome, name, required) => Some((outcome, name, required)),
            Decided::Later => receiver.recv().ok(),
        };
        locked(&self.peeks.waiting).senders.remove(&client_id);
        answer.unwrap_or_else(stopping)
    }

    /// The server stops: each peek, and each that is still to come, is refused.
    pub fn end_peeks(&self) {
        let mut waiting = locked(&self.peeks.waiting);
        waiting.ended = true;
        waiting.senders.clear();
    }
}
