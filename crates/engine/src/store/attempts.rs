//! The newest attempts that ended without success, in memory.
//!
//! They follow from the facts, as [`super::ends`]: a start reads them from the log, but client ids
//! of an earlier process name nobody.

use std::collections::VecDeque;

use super::Durable;
use crate::engine::Engine;
use quintet_types::{Attempt, AttemptEnd, ClientId, MessageId, Return, cut};

/// Bytes of attempts for each end of a message that the settings keep.
const BYTES_PER_END: usize = 10;
/// Bytes of an error that are kept.
const ERROR_BYTES: usize = 200;

/// The newest attempts of a shard, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    all: VecDeque<Attempt>,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes of memory that one takes.
fn weight(attempt: &Attempt) -> usize {
    size_of::<Attempt>() + attempt.error.len() + attempt.queue.as_bytes().len()
}

impl Attempts {
    /// Keeps as many as belong to so many ends.
    pub(super) fn set_max(&mut self, ends: usize) {
        self.bytes_max = ends.saturating_mul(BYTES_PER_END);
        self.shorten();
    }

    fn add(&mut self, attempt: Attempt) {
        self.bytes += weight(&attempt);
        self.all.push_back(attempt);
        self.shorten();
    }

    fn shorten(&mut self) {
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.all.pop_front()
        {
            self.bytes -= weight(&oldest);
        }
    }

    /// Another process begins.
    pub(super) fn forget_clients(&mut self) {
        for attempt in &mut self.all {
            attempt.client_id = ClientId(0);
        }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Durable {
    /// A lease is about to end without success; no effect if the message has none.
    pub(super) fn end_attempt(&mut self, id: MessageId, end: AttemptEnd, error: &[u8]) {
        if self.attempts.bytes_max == 0 {
            // By the settings no attempts are kept.
            return;
        }
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(id) else { return };
        let Some(lease) = self.leases.get(&slot) else {
            // It is not reserved: a client may bury what waits.
            return;
        };
        // No client has the lease under which a message waits for a hook's decision.
        if lease.epoch == 0 && self.epoch != 0 {
            return;
        }
        let message = self.messages.at(slot);
        let queue = self.queue(message.queue);
        let Some(queue) = queue.map(|queue| queue.name.clone()) else {
            // The log has ended its queue.
            return;
        };
        let line = error.split(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default().trim_ascii_end();
        self.attempts.add(Attempt {
            id: message.born(),
            queue,
            at: self.ends.now(),
            client_id: match lease.epoch == self.epoch {
                true => lease.client_id,
                false => ClientId(0),
            },
            bound: lease.bound,
            number: message.reserves,
            end,
            error: cut(line, ERROR_BYTES).into(),
        });
    }

    /// The same of one that goes back to its queue.
    pub(super) fn end_attempt_by(&mut self, id: MessageId, why: Return, failed: Option<&[u8]>) {
        match (why, failed) {
            (Return::Released, Some(error)) => self.end_attempt(id, AttemptEnd::Failed, error),
            (Return::Released, None) => self.end_attempt(id, AttemptEnd::Released, b""),
            (Return::Timeout, _) => self.end_attempt(id, AttemptEnd::TimedOut, b""),
            (Return::Lost, _) => self.end_attempt(id, AttemptEnd::Lost, b""),
            // Nothing was tried.
            (Return::Pending | Return::Unheard, _) => {}
        }
    }
}

impl Engine {
    /// The newest attempts that this shard knows of a message, by its first id
    /// ([`quintet_types::Message::born`]), oldest first; [`Attempt::SHOWN`] at most.
    pub fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        let newest_first = self.store.attempts.all.iter().rev();
        let of_it = newest_first.filter(|attempt| attempt.id == id);
        let mut found: Vec<Attempt> = of_it.take(Attempt::SHOWN).cloned().collect();
        found.reverse();
        found
    }

    /// The id that a message had before it came to this shard; `None`: it was put here, or that is
    /// not known any more.
    pub fn id_before(&self, id: MessageId) -> Option<MessageId> {
        self.store.id_before(id)
    }
}
