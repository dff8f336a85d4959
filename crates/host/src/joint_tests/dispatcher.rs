//! The work of a host's threads for clients: take commands, write decisions, and let replies go.

use std::sync::atomic::{AtomicBool, Ordering};

use quintet_cluster::World as _;
use quintet_types::{Caller, ClientId, Command, CommandError, Outcome};

use super::bodies::{downloaded, uploaded};
use super::node::{Node, OutcomeCallback, Serving, TIMER, Without};
use crate::sync::Turn;
use crate::{Access, Decided, Required, Trail, locked};

impl Node {
    /// A command of a client's has arrived.
    pub(super) fn ask(&self, client_id: u64, command: Command, callback: OutcomeCallback) {
        let Some(serving) = self.host() else {
            return;
        };
        if locked(&self.dispatcher).closed.contains(&client_id) {
            return;
        }
        let core = &serving.core;
        let command = match &self.ground.chunks {
            Some(written) => uploaded(core, command, written),
            None => Some(command),
        };
        let Some(command) = command else {
            callback(Outcome::Refused(CommandError::NoSpace), serving.epoch);
            return;
        };
        let caller = Caller {
            client_id: ClientId(client_id),
            ..Caller::default()
        };
        let mut trail = Trail::default();
        let decided = Access::new(core, core.clock.now(), &mut trail).submit(caller, command);
        {
            let mut dispatcher = locked(&self.dispatcher);
            match decided {
                Decided::Now(outcome, _, required) => dispatcher
                    .held
                    .push((client_id, required, outcome, callback)),
                Decided::Later => drop(dispatcher.waiting.insert(client_id, callback)),
            }
        }
        core.see_to(trail);
        self.turn();
    }

    /// A client's connection was closed.
    pub(super) fn close(&self, client_id: u64) {
        {
            let mut dispatcher = locked(&self.dispatcher);
            dispatcher.closed.insert(client_id);
            dispatcher.waiting.remove(&client_id);
            dispatcher.held.retain(|(of, ..)| *of != client_id);
        }
        if let Some(serving) = self.host() {
            serving
                .core
                .with_access(|access| access.disconnect(ClientId(client_id)));
            self.turn();
        }
    }

    /// One turn of the log thread and the I/O threads.
    pub(super) fn turn(&self) {
        locked(&self.dispatcher).rung = false;
        let Some(serving) = self.host() else {
            return;
        };
        serving.core.fetch_all(&AtomicBool::new(false));
        self.run_hook(serving);
        self.write(serving);
        self.deliver();
        self.answer(serving);
    }

    /// The log thread.
    fn write(&self, serving: &Serving) {
        let now = self.process.now();
        let mut began = *locked(&self.dispatcher).gathers.get_or_insert(now);
        let acked = serving.core.acked.as_ref().expect("a log of several");
        let wait = loop {
            match serving.core.window_turn(acked, now.saturating_sub(began)) {
                Turn::Done => {
                    locked(&self.dispatcher).gathers = None;
                    return;
                }
                Turn::Written => {
                    began = now;
                    locked(&self.dispatcher).gathers = Some(now);
                }
                Turn::Wait(time) => break time,
                Turn::Full => break TIMER,
            }
        };
        if !std::mem::replace(&mut locked(&self.dispatcher).alarmed, true) {
            self.soon(wait, |node| {
                locked(&node.dispatcher).alarmed = false;
                node.turn();
            });
        }
    }

    /// Gives what came to those who waited for it.
    fn deliver(&self) {
        let dispatcher = &mut *locked(&self.dispatcher);
        for (delivery, required) in dispatcher.mail.drain(..) {
            if let Some(callback) = dispatcher.waiting.remove(&delivery.to.0) {
                dispatcher
                    .held
                    .push((delivery.to.0, required, delivery.outcome, callback));
            }
        }
    }

    /// Lets the replies go that may.
    fn answer(&self, serving: &Serving) {
        let completed = serving.core.completed();
        let mut go = Vec::new();
        {
            let mut dispatcher = locked(&self.dispatcher);
            let held = std::mem::take(&mut dispatcher.held);
            for (client_id, required, outcome, callback) in held {
                if completed.satisfies(self.fenced(required)) {
                    go.push((required, outcome, callback));
                } else {
                    dispatcher
                        .held
                        .push((client_id, required, outcome, callback));
                }
            }
        }
        for (required, outcome, callback) in go {
            if self.ground.watches() {
                self.watch(serving, required);
            }
            callback(downloaded(&serving.core, outcome), serving.epoch);
        }
    }

    /// The condition of a reply, with a fence taken away.
    fn fenced(&self, required: Required) -> Required {
        match self.ground.without {
            Without::Acks => Required::default(),
            Without::Lease => Required {
                lease: false,
                ..required
            },
            Without::Nothing
            | Without::Expected
            | Without::Purge
            | Without::Padding
            | Without::Beginning
            | Without::Time => required,
        }
    }

    /// A reply leaves: what it says stands in the log, and nobody else decides.
    fn watch(&self, serving: &Serving, required: Required) {
        let epoch = serving.epoch;
        // What was written beside a handoff is answered to nobody, as there is no lease then.
        let end = locked(&self.dispatcher)
            .ends
            .get(&required.durable)
            .copied();
        if let Some(end) = end {
            let stands = locked(&self.ground.oracle).has(epoch, end);
            assert!(stands, "a reply of epoch {epoch} leaves without its entry");
        }
        assert!(
            end.is_some() || required.durable == 0 || self.ground.without == Without::Lease,
            "a reply of epoch {epoch} leaves behind its handoff"
        );
        let newest = self.ground.newest.load(Ordering::Relaxed);
        assert!(
            !required.lease || epoch == newest,
            "a reply of epoch {epoch} leaves, and epoch {newest} has begun"
        );
    }
}
