//! How an owner goes in good order: it is stopped, or another node is to own the queues.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use quintet_cluster::{Acks, ClusterId};
use quintet_host::{Core, Handoff, locked};
use quintet_log::LogError;
use quintet_process::{End, MainRequest, again};
use quintet_proxy::Hint;

use super::duty::MemberSignals;
use super::word::Word;
use super::{Node, is_lost, say};

/// So long connections are given for what they are owed before another node may take over; those
/// whose clients read slowly are given more, while it does.
const OWED: Duration = Duration::from_millis(100);

/// Threads of a node that is to follow are given so long to end. Its clients wait meanwhile.
const ENDS: Duration = Duration::from_secs(1);

/// The answers to orders, by one of which the ownership may end, are waited for so long.
fn answers(end: End) -> Duration {
    match end {
        // Its successor serves already.
        End::Deposed => Duration::ZERO,
        End::Stop | End::HandOver => Duration::from_millis(200),
    }
}

/// So long, of `stop_wait`, connections are given in the end.
fn rest(end: End, outcome: Handoff, stop_wait: Duration) -> Duration {
    match outcome {
        // Replies that still wait never come, and this node is to follow.
        Handoff::Unsaid if end != End::Stop => Duration::ZERO,
        Handoff::Stands | Handoff::Unknown | Handoff::Unsaid => stop_wait,
    }
}

/// The threads that a node ends before it stops or follows, each step with a deadline.
pub trait Threads {
    /// Clients' connections that are open.
    fn connections(&self) -> u64;

    /// Connections get what they are owed, and nothing more is decided for them. True: they have it
    /// all by then.
    fn end_io(&mut self, by: Instant) -> bool;

    /// The rest ends as well, after the I/O threads, so that clients that come in
    /// through the proxy are answered. True: all have ended by then.
    fn end(&mut self, by: Instant) -> bool;
}

impl MemberSignals {
    /// If this process has to stop, it does so now that another node owns the log: it would not
    /// follow.
    fn end_if_stopping(&self, why: &LogError) {
        if self.stops.load(Ordering::SeqCst) {
            let group = self.group;
            tracing::warn!(group, "another node owns the queues already: {why}");
            again::end_children();
            std::process::exit(0);
        }
    }

    /// Nothing more is answered, and this node follows. Its process is replaced if it does not let
    /// go of the queues soon, or does not serve them yet.
    pub(super) fn step_down(&self, why: &LogError) {
        self.end_if_stopping(why);
        // Several threads find out at once, also while it hands over.
        if self.leaves.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::warn!(
            group = self.group,
            "this node no longer owns the queues: {why}"
        );
        say("quintet deposed");
        let Some(core) = self.core.get().cloned() else {
            again::begin()
        };
        self.requests
            .send(MainRequest::StepDown)
            .unwrap_or_default();
        let waits = move || {
            std::thread::sleep(ENDS);
            again::begin_if(|| {
                let is_held = core.strong_count() > 0;
                if is_held {
                    tracing::warn!("the queues are still referred to, so the process is replaced");
                }
                is_held
            });
        };
        let thread = std::thread::Builder::new().name("deposed".to_owned());
        if thread.spawn(waits).is_err() {
            again::begin();
        }
    }
}

impl Node {
    /// Has another node own the queues, as soon as this one, which owns them, has handed off.
    pub(super) fn hand_over_to(&self, successor: &str) {
        *locked(&self.successor) = Some(successor.to_owned());
        self.signals.order_hand_over();
    }

    /// Leaves word which node is to own, where that is known: this node, following, brings clients
    /// there before it has reached JetStream.
    fn leave_word(&self, successor: &str) {
        let teller = self.teller.get().and_then(Weak::upgrade);
        let seen = locked(&self.seen);
        let mut nodes = seen.iter().flat_map(|seen| &seen.nodes);
        let next = nodes.find(|one| one.node == successor);
        if let (Some(teller), Some(next)) = (teller, next) {
            let word = Word {
                cluster: ClusterId(teller.settings.cluster),
                successor: Hint {
                    epoch: self.status().epoch.0 + 1,
                    node: next.node.clone(),
                    address: next.address.clone(),
                },
            };
            again::leave_word(word.to_text());
        }
    }

    /// The node that somebody has named as the next owner, or the one that should be; empty: any.
    fn next_owner(&self) -> String {
        let named = locked(&self.successor).take();
        let next = named.or_else(|| self.best_successor());
        next.unwrap_or_default()
    }

    /// Names the successor in the log.
    fn hand_off(&self, core: &Core, successor: &str, began: Instant) -> Handoff {
        let outcome = core.handoff(successor, self.handover_wait);
        let (took, group) = (began.elapsed().as_millis(), core.group());
        if outcome == Handoff::Unsaid
            && let Some(Err(why)) = self.signals.acks.get().map(Acks::check)
            && is_lost(&why)
        {
            self.signals.end_if_stopping(&why);
            tracing::warn!(group, "another node owns the queues already: {why}");
            return outcome;
        }
        let to = match successor {
            "" => "any standby",
            successor => successor,
        };
        match outcome {
            Handoff::Stands => {
                tracing::info!(group, "handed over to {to} after {took} ms");
            }
            Handoff::Unknown | Handoff::Unsaid => {
                tracing::error!(
                    group,
                    "could not write the handoff within {took} ms: another node takes over after \
                     the usual time without heartbeats"
                );
            }
        }
        outcome
    }

    /// Ends what a node that owns nothing has open. Orders get their answers first.
    pub(super) fn end_standby(&self) {
        self.proxy_listeners.close(answers(End::Stop));
    }

    /// Lets another node own the queues, and ends its part in the ownership. Where a thread does not
    /// end soon, a node that hands over replaces its process instead.
    ///
    /// # Errors
    /// The last decided commands may be lost; none of them was acknowledged.
    pub fn leave(
        self: &Arc<Self>,
        core: &Core,
        stop_wait: Duration,
        threads: &mut dyn Threads,
        end: End,
    ) -> Result<()> {
        self.signals.stops.store(end == End::Stop, Ordering::SeqCst);
        self.signals.leaves.store(true, Ordering::SeqCst);
        let successor = match end {
            End::Deposed => String::new(),
            End::Stop | End::HandOver => self.next_owner(),
        };
        let (began, open) = (Instant::now(), threads.connections());
        self.proxy_listeners.serve_no_more();
        let outcome = match end {
            End::Deposed => Handoff::Unsaid,
            End::Stop | End::HandOver => {
                if end == End::HandOver {
                    self.leave_word(&successor);
                }
                threads.end_io(began + OWED);
                self.hand_off(core, &successor, began)
            }
        };
        threads.end_io(began + rest(end, outcome, stop_wait));
        if end != End::Stop {
            let kept = again::kept_connections();
            tracing::info!("{kept} of {open} client connections are kept, the others are closed");
            if end == End::HandOver {
                say("quintet handed over");
            }
            if !threads.end(Instant::now() + ENDS) {
                tracing::warn!("a thread has not ended in time, so the process is replaced");
                again::begin();
            }
            self.proxy_listeners.close(answers(end));
            return Ok(());
        }
        // What they still do nobody waits for: a purge without a quorum never ends.
        threads.end(Instant::now() + self.handover_wait);
        self.proxy_listeners.close(answers(end));
        if outcome != Handoff::Stands {
            bail!(
                "JetStream did not acknowledge the last changes within {} ms: changes without a \
                 reply may be lost (cluster.handover_wait)",
                self.handover_wait.as_millis()
            );
        }
        if let Err(error) = core.end_in_order() {
            tracing::warn!(
                group = core.group(),
                "cannot complete the mirror of the log, so no server can open it alone: {error}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_an_owner_that_cannot_say_who_is_next_are_cut_at_once_unless_it_stops() {
        let wait = Duration::from_secs(9);
        let ends = [End::Deposed, End::HandOver, End::Stop];
        let rests = |outcome: Handoff| ends.map(|end| rest(end, outcome, wait));
        assert_eq!(
            rests(Handoff::Unsaid),
            [Duration::ZERO, Duration::ZERO, wait]
        );
        assert_eq!(rests(Handoff::Unknown), [wait; 3]);
        assert_eq!(rests(Handoff::Stands), [wait; 3]);
    }

    /// Else the process would be replaced instead.
    #[test]
    fn a_deposed_node_waits_for_no_order_and_others_not_for_long() {
        assert!(answers(End::Deposed).is_zero());
        for end in [End::HandOver, End::Stop] {
            assert!(!answers(end).is_zero() && answers(end) < ENDS / 2);
        }
    }
}
