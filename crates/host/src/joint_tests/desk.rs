//! The work of a host's threads for clients: take commands, write decisions, and let replies go.

use std::sync::atomic::Ordering;

use quintet_cluster::World as _;
use quintet_types::{Caller, Command, Party};

use super::node::{Node, Serving, TIMER, Told, Without};
use crate::sync::Turn;
use crate::{Access, Decided, Need, Trail, locked};

impl Node {
    /// A command of a client's has arrived.
    pub(super) fn ask(&self, party: u64, command: Command, told: Told) {
        let Some(serving) = self.host() else {
            return;
        };
        if locked(&self.desk).closed.contains(&party) {
            return;
        }
        let core = &serving.core;
        let caller = Caller {
            party: Party(party),
            ..Caller::default()
        };
        let mut trail = Trail::default();
        let decided = Access::new(core, core.clock.now(), &mut trail).submit(caller, command);
        {
            let mut desk = locked(&self.desk);
            match decided {
                Decided::Now(outcome, _, need) => desk.held.push((party, need, outcome, told)),
                Decided::Later => drop(desk.waiting.insert(party, told)),
            }
        }
        core.see_to(trail);
        self.turn();
    }

    /// A client's connection was closed.
    pub(super) fn close(&self, party: u64) {
        {
            let mut desk = locked(&self.desk);
            desk.closed.insert(party);
            desk.waiting.remove(&party);
            desk.held.retain(|(of, ..)| *of != party);
        }
        if let Some(serving) = self.host() {
            serving.core.visit(|access| access.disconnect(Party(party)));
            self.turn();
        }
    }

    /// One turn of the log thread and the I/O threads.
    pub(super) fn turn(&self) {
        locked(&self.desk).rung = false;
        let Some(serving) = self.host() else {
            return;
        };
        serving.core.fetch_all();
        self.write(serving);
        self.deliver();
        self.answer(serving);
    }

    /// The log thread.
    fn write(&self, serving: &Serving) {
        let now = self.process.now();
        let mut began = *locked(&self.desk).gathers.get_or_insert(now);
        let acked = serving.core.acked.as_ref().expect("a log of several");
        let wait = loop {
            match serving.core.window_turn(acked, now.saturating_sub(began)) {
                Turn::Done => {
                    locked(&self.desk).gathers = None;
                    return;
                }
                Turn::Written => {
                    began = now;
                    locked(&self.desk).gathers = Some(now);
                }
                Turn::Wait(time) => break time,
                Turn::Full => break TIMER,
            }
        };
        if !std::mem::replace(&mut locked(&self.desk).alarmed, true) {
            self.soon(wait, |node| {
                locked(&node.desk).alarmed = false;
                node.turn();
            });
        }
    }

    /// Gives what came to those who waited for it.
    fn deliver(&self) {
        let desk = &mut *locked(&self.desk);
        for (delivery, need) in desk.mail.drain(..) {
            if let Some(told) = desk.waiting.remove(&delivery.to.0) {
                desk.held
                    .push((delivery.to.0, need, delivery.outcome, told));
            }
        }
    }

    /// Lets the replies go that may.
    fn answer(&self, serving: &Serving) {
        let reached = serving.core.reached();
        let mut go = Vec::new();
        {
            let mut desk = locked(&self.desk);
            let held = std::mem::take(&mut desk.held);
            for (party, need, outcome, told) in held {
                if reached.satisfies(self.fenced(need)) {
                    go.push((need, outcome, told));
                } else {
                    desk.held.push((party, need, outcome, told));
                }
            }
        }
        for (need, outcome, told) in go {
            if self.ground.watches() {
                self.watch(serving, need);
            }
            told(outcome, serving.epoch);
        }
    }

    /// The condition of a reply, with a fence taken away.
    fn fenced(&self, need: Need) -> Need {
        match self.ground.without {
            Without::Acks => Need::default(),
            Without::Lease => Need {
                lease: false,
                ..need
            },
            Without::Nothing
            | Without::Expected
            | Without::Purge
            | Without::Padding
            | Without::Beginning
            | Without::Time => need,
        }
    }

    /// A reply leaves: what it says stands in the log, and nobody else decides.
    fn watch(&self, serving: &Serving, need: Need) {
        let epoch = serving.epoch;
        // What was written beside a farewell is answered to nobody, as there is no lease then.
        let end = locked(&self.desk).ends.get(&need.durable).copied();
        if let Some(end) = end {
            let stands = locked(&self.ground.oracle).has(epoch, end);
            assert!(stands, "a reply of epoch {epoch} leaves without its entry");
        }
        assert!(
            end.is_some() || need.durable == 0 || self.ground.without == Without::Lease,
            "a reply of epoch {epoch} leaves behind its farewell"
        );
        let newest = self.ground.newest.load(Ordering::Relaxed);
        assert!(
            !need.lease || epoch == newest,
            "a reply of epoch {epoch} leaves, and epoch {newest} has begun"
        );
    }
}
