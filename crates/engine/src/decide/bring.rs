//! Messages that were stored elsewhere.

use quintet_types::{Extra, Message, Ms, Past, State};

use crate::engine::Engine;

impl Engine {
    /// Makes a new message what it was elsewhere.
    pub(super) fn bring(&self, message: &mut Message, past: Past) {
        message.created = past.created.min(self.now);
        message.reserves = past.reserves;
        message.state = past.state;
        if past.state == State::Reserved {
            message.state = State::Ready;
        }
        let waits = matches!(message.state, State::Ready | State::Prepared);
        let changed = match past.changed {
            Ms(0) if !waits => self.now,
            changed => changed.min(self.now),
        };
        let extra = Extra {
            status: past.status,
            changed,
            bury_order: match (past.state, self.store.queue(message.queue)) {
                (State::Buried, Some(queue)) => queue.next_turn(changed),
                _ => 0,
            },
            timeouts: past.timeouts,
            releases: past.releases,
            buries: past.buries,
            kicks: past.kicks,
            failures: past.failures,
            buried_until: (past.state == State::Buried)
                .then(|| self.buried_until_by(message.retry(), message.queue))
                .flatten(),
            ..Extra::default()
        };
        message.extra = match message.extra.take() {
            None if extra == Extra::default() => None,
            None => Some(Box::new(extra)),
            Some(put) => Some(Box::new(Extra {
                key: put.key,
                // Only what waits has a time to wait for.
                due: put.due.filter(|_| waits),
                delay_ms: put.delay_ms,
                expires: put.expires,
                attrs: put.attrs,
                attachments: put.attachments,
                name: put.name,
                failures: put.failures.max(past.failures),
                retry: put.retry,
                batch: put.batch,
                tracked: put.tracked,
                reply: put.reply,
                ..extra
            })),
        };
    }
}
