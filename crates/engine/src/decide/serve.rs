//! Serving waiting clients, and ending their waits.

use std::ops::Bound as Edge;

use smallvec::SmallVec;

use quintet_types::{ClientId, CommandError, Delivery, Hold, Name, Outcome, Pick, QueueId, Take};

use crate::claim::Claim;
use crate::engine::{Cx, Engine};
use crate::fact::Journal;

use super::one_key::lacks_key;

impl Engine {
    /// Gives what is available in the woken queues to those who wait, longest
    /// first.
    #[inline]
    pub(crate) fn serve<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        if cx.has_woken() || self.store.keyed.has_freed() {
            self.serve_woken(cx);
        }
        if self.awaits.has_notifications() {
            self.deliver_results(cx);
        }
        if self.lease_waits.has_woken() {
            self.notify_leases(cx);
        }
    }

    fn serve_woken<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        let freed = self.store.take_freed();
        freed.into_iter().for_each(|queue| cx.wake(queue));
        let mut woken = cx.take_woken();
        let mut passed: Option<u64> = None;
        // Somebody who cannot frame what was there was passed over.
        let mut left_out = false;
        while !woken.is_empty() {
            let Some(number) = self.next_in_line(&mut woken, passed) else {
                // Nobody waits in these queues.
                return;
            };
            let waiter = self.waiters.get(number);
            let waiter = waiter.expect("a client in a queue's line waits");
            if waiter.claim.is_none() && lacks_key(&mut self.store, waiter, self.now) {
                (passed, left_out) = (Some(number), true);
                continue;
            }
            let (client_id, take, queues) =
                (waiter.client_id, waiter.take.clone(), waiter.queues.clone());
            let (standing, claim) = (waiter.standing, waiter.claim.clone());
            passed = Some(number);
            if self.is_behind_stalled(number, &queues) {
                // Who comes first may get what this one would.
                self.reading.stall(number);
                woken.retain(|id| queues.binary_search(id).is_err());
                continue;
            }
            let in_order = (take.pick == Pick::InOrder).then(|| self.queues_of(&take));
            let requested = in_order.as_ref().unwrap_or(&queues);
            match self.serve_one(cx, client_id, &take, requested, claim.as_ref()) {
                // Another shard has served it.
                Served::Elsewhere => self.drop_waiter(number),
                Served::Searched(Some((outcome, hold))) => {
                    let waited = self.waiters.remove(number, &mut self.store);
                    assert!(waited.is_some(), "a client that is served waits until then");
                    self.deliver(cx, client_id, standing, claim.is_some(), outcome, hold);
                    if take.peek {
                        cx.only_peeked();
                    }
                    for queue in queues {
                        self.forget_unused(queue);
                    }
                }
                // Only a consumer that cannot frame what is there, or wants another key,
                // leaves it to those behind it, and one that a limit holds back to those
                // who only look.
                Served::Searched(None) if take.passes_over() => left_out = true,
                Served::Searched(None) if !take.peek && self.is_left_to_peeks(&queues) => {}
                Served::Searched(None) => woken.retain(|id| queues.binary_search(id).is_err()),
                // One that needs something from a run first keeps its turn.
                Served::Reads => {
                    self.reading.stall(number);
                    woken.retain(|id| queues.binary_search(id).is_err());
                }
            }
            if self.store.keyed.has_freed() {
                // What somebody behind has taken may have kept back something
                // that fits.
                let freed = self.store.take_freed();
                freed
                    .into_iter()
                    .filter(|_| left_out)
                    .for_each(|queue| cx.wake(queue));
            }
            let more = cx.take_woken();
            if !more.is_empty() {
                woken.extend(more);
                (passed, left_out) = (None, false);
            }
        }
    }

    /// The waiter that has waited longest in these queues, of those behind `passed`. Takes queues
    /// off the list that have nothing for such a waiter.
    #[inline]
    fn next_in_line(&self, woken: &mut SmallVec<[QueueId; 4]>, passed: Option<u64>) -> Option<u64> {
        let from = passed.map_or(Edge::Unbounded, Edge::Excluded);
        let mut first: Option<u64> = None;
        woken.retain(|id| {
            let waiting = self.store.queue(*id).filter(|queue| queue.waiting() > 0);
            let next = waiting.and_then(|queue| {
                let behind = queue.live.line.range((from, Edge::Unbounded));
                behind.copied().next()
            });
            first = first.into_iter().chain(next).min();
            next.is_some()
        });
        first
    }

    /// True if a limit holds consumers of one of these queues back, and somebody waits to look.
    fn is_left_to_peeks(&self, queues: &[QueueId]) -> bool {
        queues.iter().any(|&id| {
            let queue = self.store.queue(id);
            queue.is_some_and(|queue| {
                let keys = queue.groups.as_ref();
                let keys = keys.is_some_and(|groups| groups.limited_len() > 0);
                queue.live.not_taking > 0 && (keys || queue.is_limited(self.now))
            })
        })
    }

    /// Serves one waiting client.
    fn serve_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        take: &Take,
        queues: &[QueueId],
        claim: Option<&Claim>,
    ) -> Served {
        if let Some(claim) = claim {
            if claim.is_taken() {
                return Served::Elsewhere;
            }
            // It is taken only for something.
            match self.would_take(cx, take, queues) {
                Ok(Some(_)) if !claim.take() => return Served::Elsewhere,
                Ok(Some(_)) => {}
                Ok(None) => return Served::Searched(None),
                Err(_) => return Served::Reads,
            }
        }
        self.take_now(cx, client_id, take, queues)
            .map_or(Served::Reads, Served::Searched)
    }

    /// True if somebody who came before waits on one of these queues for what
    /// is being read.
    pub(super) fn is_behind_stalled(&self, number: u64, queues: &[QueueId]) -> bool {
        self.reading.stalled.iter().any(|&other| {
            other < number
                && self
                    .waiters
                    .get(other)
                    .is_some_and(|waiter| meet(&waiter.queues, queues))
        })
    }

    pub(crate) fn deliver<J>(
        &mut self,
        cx: &mut Cx<'_, J>,
        to: ClientId,
        standing: bool,
        claimed: bool,
        outcome: Outcome,
        hold: Hold,
    ) {
        let queue = if let Outcome::Messages(handed) = &outcome {
            let first = handed.first();
            let first = first.expect("a delivery of messages has one at least");
            self.store.name_of(first.queue)
        } else {
            Name::default()
        };
        cx.deliveries.push(Delivery {
            to,
            standing,
            claimed,
            outcome,
            hold,
            queue,
            peeked: false,
        });
    }

    /// Ends the client's waiting take.
    pub(crate) fn stop_waiting<J: Journal>(&mut self, cx: &mut Cx<'_, J>, client_id: ClientId) {
        self.hurry(client_id);
        self.awaits.notify(client_id, Outcome::Empty);
        self.stop_lease_wait(cx, client_id);
        if let Some(number) = self.waiters.of(client_id, false) {
            self.end_wait(cx, number, Outcome::Empty);
        }
    }

    /// Ends the waits that a queue must exist for.
    pub(crate) fn end_waits_for_queue<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId) {
        let line = &self.store.expect_queue(id).live.line;
        let ends = |number: &u64| {
            let waiter = self.waiters.get(*number);
            waiter.is_some_and(|waiter| waiter.take.must_exist && !waiter.standing)
        };
        let ending: Vec<u64> = line.iter().copied().filter(ends).collect();
        for number in ending {
            self.end_wait(cx, number, Outcome::Refused(CommandError::QueueNotFound));
        }
    }

    pub(crate) fn end_wait<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        number: u64,
        outcome: Outcome,
    ) {
        let Some(waiter) = self.waiters.remove(number, &mut self.store) else {
            // One that was overdue may have been served since.
            return;
        };
        if waiter.claim() {
            let claimed = waiter.claim.is_some();
            let standing = waiter.standing;
            self.deliver(cx, waiter.client_id, standing, claimed, outcome, Hold::Turn);
        }
        for queue in waiter.queues {
            self.forget_unused(queue);
        }
    }
}

/// Result of serving one waiting client.
enum Served {
    /// Another shard has served it.
    Elsewhere,
    Searched(Option<(Outcome, Hold)>),
    /// Something has to be read first.
    Reads,
}

/// True if a queue is in both lists.
fn meet(a: &[QueueId], b: &[QueueId]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.iter().any(|queue| many.binary_search(queue).is_ok())
}
