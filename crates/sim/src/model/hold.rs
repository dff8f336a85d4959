//! Held keys and queues.

use std::sync::Arc;

use quintet_types::{
    By, ClientId, CommandError, HELD_KEYS_MAX, Holding, How, MessageId, Ms, Name, Outcome,
    Overrides, QueueId,
};

use super::Model;

impl Model {
    pub(super) fn hold_for(
        &mut self,
        name: &Name,
        key: Option<&[u8]>,
        for_ms: u64,
    ) -> Result<Outcome, CommandError> {
        let queue = self.find(name).ok_or(CommandError::QueueNotFound)?;
        let until = self.now + for_ms;
        let Some(key) = key else {
            if self.settings_of(queue).locked & Overrides::bit("paused") != 0 {
                return Err(CommandError::Locked);
            }
            return match for_ms > 0 && self.is_paused_until(queue, until) {
                true => Ok(Outcome::Done),
                false => self.pause(name, Some(for_ms)),
            };
        };
        if for_ms > 0 {
            self.may_hold(queue, key)?;
            if self.is_held(queue, key) && self.queue(queue).held_keys[key] >= until {
                return Ok(Outcome::Done);
            }
        } else if !self.is_held(queue, key) {
            return Ok(Outcome::Done);
        }
        self.hold(queue, key.into(), for_ms);
        Ok(Outcome::Done)
    }

    pub(super) fn settle_holding(
        &mut self,
        (client_id, by): (ClientId, By),
        id: MessageId,
        how: How,
        hold: Holding,
    ) -> Result<Outcome, CommandError> {
        let (Holding::Key(for_ms) | Holding::Queue(for_ms)) = hold;
        let message = self.message(id)?;
        let (queue, key) = (message.queue, message.key().cloned());
        if for_ms == 0 || self.queue(queue).dropped {
            return self.settle(client_id, id, by, how);
        }
        if let Holding::Queue(_) = hold {
            if self.settings_of(queue).locked & Overrides::bit("paused") != 0 {
                return Err(CommandError::Locked);
            }
            let outcome = self.settle(client_id, id, by, how)?;
            let until = self.now + for_ms;
            if !self.is_paused_until(queue, until) {
                let queue = self.queue_mut(queue);
                (queue.made, queue.pause) = (true, Some(Some(until)));
            }
            return Ok(outcome);
        }
        let key = key.ok_or(CommandError::NoKey)?;
        self.may_hold(queue, &key)?;
        let outcome = self.settle(client_id, id, by, how)?;
        let until = self.now + for_ms;
        if !self.is_held(queue, &key) || self.queue(queue).held_keys[&key] < until {
            self.hold(queue, key, for_ms);
        }
        Ok(outcome)
    }

    /// True if a command has paused the queue at least until then.
    fn is_paused_until(&self, queue: QueueId, until: Ms) -> bool {
        let pause = self.queue(queue).pause;
        pause.is_some_and(|end| end.is_none_or(|end| end >= until))
    }

    /// True if nothing of this key is handed out now.
    pub(super) fn is_held(&self, queue: QueueId, key: &[u8]) -> bool {
        let until = self.queue(queue).held_keys.get(key);
        until.is_some_and(|&until| until > self.now)
    }

    fn may_hold(&self, queue: QueueId, key: &[u8]) -> Result<(), CommandError> {
        let ends = self.queue(queue).held_keys.values();
        let held = ends.filter(|&&until| until > self.now).count();
        match self.is_held(queue, key) {
            true => Ok(()),
            false if !self.has_groups(queue) => Err(CommandError::KeysUnused),
            false if held >= HELD_KEYS_MAX => Err(CommandError::TooManyHeldKeys),
            false => Ok(()),
        }
    }

    fn hold(&mut self, queue: QueueId, key: Arc<[u8]>, for_ms: u64) {
        let until = self.now + for_ms;
        let queue = self.queue_mut(queue);
        queue.made = true;
        match for_ms {
            0 => queue.held_keys.remove(&key),
            _ => queue.held_keys.insert(key, until),
        };
    }
}
