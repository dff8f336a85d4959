//! Held queues.

use quintet_types::{
    By, ClientId, CommandError, Holding, How, MessageId, Ms, Name, Outcome, Overrides, QueueId,
};

use super::Model;

impl Model {
    pub(super) fn hold_for(&mut self, name: &Name, for_ms: u64) -> Result<Outcome, CommandError> {
        let queue = self.find(name).ok_or(CommandError::QueueNotFound)?;
        let until = self.now + for_ms;
        if self.settings_of(queue).locked & Overrides::bit("paused") != 0 {
            return Err(CommandError::Locked);
        }
        match for_ms > 0 && self.is_paused_until(queue, until) {
            true => Ok(Outcome::Done),
            false => self.pause(name, Some(for_ms)),
        }
    }

    pub(super) fn settle_holding(
        &mut self,
        (client_id, by): (ClientId, By),
        id: MessageId,
        how: How,
        hold: Holding,
    ) -> Result<Outcome, CommandError> {
        let (Holding::Key(for_ms) | Holding::Queue(for_ms)) = hold;
        let queue = self.message(id)?.queue;
        if for_ms == 0 || self.queue(queue).dropped {
            return self.settle(client_id, id, by, how);
        }
        if self.settings_of(queue).locked & Overrides::bit("paused") != 0 {
            return Err(CommandError::Locked);
        }
        let outcome = self.settle(client_id, id, by, how)?;
        let until = self.now + for_ms;
        if !self.is_paused_until(queue, until) {
            let queue = self.queue_mut(queue);
            (queue.made, queue.pause) = (true, Some(Some(until)));
        }
        Ok(outcome)
    }

    /// True if a command has paused the queue at least until then.
    fn is_paused_until(&self, queue: QueueId, until: Ms) -> bool {
        let pause = self.queue(queue).pause;
        pause.is_some_and(|end| end.is_none_or(|end| end >= until))
    }
}
