//! Messages on their way to a queue of another shard.
//!
//! A shard cannot put into another one by itself. What it sends there waits
//! here, in the order it was sent: out of its queue, found by nobody, and
//! remembered, until a thread that can lock both shards carries it over
//! ([`crate::carry`]).

use std::collections::VecDeque;

use super::Durable;
use super::cold::run_of_body;
use super::departure::depart;
use quintet_types::{At, AttemptEnd, Body, Message, MessageId, Ms, Name, SegmentRef, Transfer};

use crate::fact::Fact;

/// A message and the name of the queue it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) message: Message,
    pub(crate) to: Name,
    /// Reason of the transfer; of one whose sending replay has not seen it is a command.
    pub(crate) why: Transfer,
}

pub(crate) type Outbox = VecDeque<Sent>;

impl Durable {
    /// Takes a message out of its queue and sets it aside for another shard.
    pub(super) fn send(&mut self, at: At, to: Name, why: Transfer, now: Ms) {
        if why.is_dead_letter() {
            self.end_attempt(at.id, AttemptEnd::DeadLetter, b"");
        }
        let from = self.count_out(at.queue, why);
        self.untie(at.id);
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(at.id) else { return };
        let since = self.leases.get(&slot).map_or(Ms(0), |lease| lease.since);
        let mut message = self.take_out(slot);
        depart(&mut message, from.as_ref(), why, now);
        message.extra_mut().was_leased(since);
        self.set_aside(Sent { message, to, why });
    }

    /// The same for a message whose put replay has not seen.
    pub(super) fn sent(&mut self, mut message: Message, to: Name, segment_ref: SegmentRef) {
        if message.id <= self.outbox_most {
            self.carried(message.id);
        }
        // A reply is aside before it was in any queue.
        self.use_up(message.id.0 as i64);
        message.segment_ref = match &message.body {
            Body::Large(large) if run_of_body(&message).is_none() => {
                SegmentRef(segment_ref.0.min(large.segment_ref()))
            }
            Body::Large(_) | Body::Small(_) => segment_ref,
        };
        let why = Transfer::Command;
        self.set_aside(Sent { message, to, why });
    }

    fn set_aside(&mut self, sent: Sent) {
        self.outbox_most = self.outbox_most.max(sent.message.id);
        self.count_segment_ref(sent.message.segment_ref);
        self.count_body(run_of_body(&sent.message));
        self.body_bytes += Self::held_bytes(&sent.message);
        self.outbox.push_back(sent);
    }

    /// A message that was sent has arrived. No effect if it is not here.
    pub(super) fn carried(&mut self, id: MessageId) {
        let at = self.outbox.iter().position(|sent| sent.message.id == id);
        if let Some(sent) = at.and_then(|at| self.outbox.remove(at)) {
            self.uncount_segment_ref(sent.message.segment_ref);
            self.uncount_body(run_of_body(&sent.message));
            self.body_bytes -= Self::held_bytes(&sent.message);
        }
    }

    /// Images of what waits here and lives in `segment_ref`, into segment `into`.
    /// Bodies with a chunk in `segment_ref` are left for later.
    pub(super) fn copy_outbox(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        record: &mut dyn FnMut(&Fact, bool),
    ) -> u64 {
        let mut images = 0;
        for at in 0..self.outbox.len() {
            let sent = &self.outbox[at];
            let stays = match &sent.message.body {
                Body::Large(large) => large.segment_ref() <= segment_ref.0,
                Body::Small(_) => false,
            };
            if sent.message.segment_ref != segment_ref || stays {
                continue;
            }
            record(
                &Fact::SentImage(sent.message.clone(), sent.to.clone()),
                false,
            );
            self.outbox[at].message.segment_ref = into;
            self.uncount_segment_ref(segment_ref);
            self.count_segment_ref(into);
            images += 1;
        }
        images
    }
}
