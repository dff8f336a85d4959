//! Decisions of a thread that others still have to get, or that are still to be written and synced.

use std::collections::VecDeque;
use std::time::Instant;

use quintet_host::{ClientKey, Completed, Required, Trail};
use quintet_types::Delivery;

use super::conns::{Due, Slab};
use super::gather::{Duty, Gather};
use super::shared::Shared;

/// Decisions of a thread that others still have to get, or that are still to be written and synced.
#[derive(Default)]
pub(super) struct Decisions {
    /// Work that this thread's steps have left: outcomes for others, and the newest batch something
    /// was recorded in.
    pub(super) trail: Trail,
    /// Outcomes for own connections.
    local: VecDeque<(Delivery, Required)>,
    /// A reply of this turn waits for the disk under every sync policy.
    pub(super) wants_sync: bool,
    /// The commit numbers that replies were released by.
    pub(super) completed: Completed,
    gather: Gather,
}

impl Decisions {
    /// There is something to deliver, to write or to sync: connections are closed at a turn's end,
    /// too, and what they held is for others.
    pub(super) fn is_any(&self) -> bool {
        self.has_outcomes() || self.trail.recorded > 0 || self.gather.is_open()
    }

    /// There is something to deliver.
    pub(super) fn has_outcomes(&self) -> bool {
        !(self.local.is_empty() && self.trail.mail.is_empty())
    }

    /// The next outcome for a connection of this thread.
    pub(super) fn next_local(&mut self, thread: usize) -> Option<(Delivery, Required)> {
        self.sort_outgoing(thread);
        self.local.pop_front()
    }

    /// Keeps own deliveries apart from those of other threads.
    pub(super) fn sort_outgoing(&mut self, thread: usize) {
        let mut at = 0;
        let mail = &mut self.trail.mail;
        while at < mail.len() {
            if ClientKey::of(mail[at].0.to).thread == thread {
                self.local.push_back(mail.remove(at));
            } else {
                at += 1;
            }
        }
    }

    /// Sees to it that the batches this turn's replies wait for get written,
    /// then lets other threads know what they got.
    pub(super) fn write(&mut self, shared: &Shared, due: &Due, conns: &mut Slab, now: Instant) {
        let core = &shared.edge.core;
        let (mut commit_number, mut soon) = (std::mem::take(&mut self.trail.recorded), false);
        let (completed, waits) = (core.completed(), core.waits_for_disk());
        for &slot in &due.dirty {
            if let Some(conn) = conns.get_mut(slot) {
                commit_number = commit_number.max(conn.out.needed().written);
                soon |= waits && conn.out.waits_for_write(completed);
            }
        }
        if waits {
            if soon {
                // A lease: its reply does not wait for the disk.
                core.write_here(commit_number);
            }
            self.gather.add(commit_number, core.durable(), now);
        } else {
            core.write(commit_number);
        }
        if std::mem::take(&mut self.wants_sync) {
            core.sync_soon();
        }
        self.sort_outgoing(shared.index);
        for (delivery, required) in self.trail.mail.drain(..) {
            core.hand(delivery, required);
        }
    }

    /// Sees to it that what was decided becomes durable, with as much other
    /// work as is ready. `idle`: this turn found none.
    pub(super) fn see_to_disk(&mut self, shared: &Shared, now: Instant, idle: bool) {
        if !self.gather.is_open() {
            return;
        }
        let core = &shared.edge.core;
        let (durable, usual) = (core.durable(), core.usual_sync());
        let done = match self.gather.turn(now, idle, durable, usual) {
            Duty::Nobody => true,
            // Delayed replies leave in this turn, without a bell.
            Duty::Here => core.sync_here(shared.index),
            Duty::LogThread => false,
        };
        if !done {
            core.sync_soon();
        }
    }
}

#[cfg(test)]
mod tests {
    use quintet_types::{Hold, Name, Outcome};

    use super::*;

    #[test]
    fn what_the_end_of_a_turn_leaves_waits_for_no_event() {
        let mut decisions = Decisions::default();
        assert!(!decisions.is_any() && !decisions.has_outcomes());
        decisions.trail.recorded = 1;
        assert!(decisions.is_any(), "a batch is to be written");
        for thread in 0..2 {
            let mut decisions = Decisions::default();
            let key = ClientKey {
                thread,
                slot: 0,
                generation: 1,
            };
            let delivery = Delivery {
                to: key.client_id(),
                standing: false,
                claimed: false,
                outcome: Outcome::Done,
                hold: Hold::Turn,
                queue: Name::default(),
                peeked: false,
            };
            decisions.trail.mail.push((delivery, Required::default()));
            decisions.sort_outgoing(0);
            assert!(decisions.is_any() && decisions.has_outcomes(), "{thread}");
        }
    }
}
