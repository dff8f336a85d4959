//! Holding keys: nothing of them is handed out for a time.

use super::Stop;
use quintet_types::{
    By, ClientId, CommandError, HELD_KEYS_MAX, HeldKey, How, MessageId, Name, Outcome, QueueId,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{Fact, Journal};
use crate::store::told_of_held;

impl Engine {
    pub(crate) fn hold_key<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        key: &[u8],
        for_ms: u64,
    ) -> Result<Outcome, CommandError> {
        let id = self.existing(queue)?;
        if for_ms > 0 {
            if self.space != Space::Enough {
                return Err(CommandError::NoSpace);
            }
            self.may_hold(id, key)?;
        } else if self.held_until(id, key).is_none() {
            return Ok(Outcome::Done);
        }
        self.hold(cx, id, key, for_ms);
        cx.wake(id);
        Ok(Outcome::Done)
    }

    pub(crate) fn settle_holding<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        (client_id, by): (ClientId, By),
        id: MessageId,
        how: &How,
        for_ms: u64,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let (queue, key) = (message.queue, message.key().cloned());
        // Nothing is handed out of a queue that was dropped.
        let holds = for_ms > 0 && !self.store.seated(queue).live.dropped;
        let key = match holds {
            true => Some(key.ok_or(CommandError::NoKey)?),
            false => None,
        };
        if let Some(key) = &key {
            self.may_hold(queue, key)?;
        }
        let outcome = self.settle(cx, client_id, id, by, how)?;
        if let Some(key) = key
            && self.held_until(queue, &key) < Some(self.after(for_ms))
        {
            self.hold(cx, queue, &key, for_ms);
        }
        Ok(outcome)
    }

    /// Keys of a queue that are held, in their order.
    pub(super) fn held_keys(&mut self, queue: &Name) -> Result<Vec<HeldKey>, CommandError> {
        let id = self.existing(queue)?;
        self.store.end_holds(id, self.now);
        let held = self.store.seated(id).held_keys.as_ref();
        Ok(held.map_or(Vec::new(), |held| held.iter().collect()))
    }

    fn held_until(&mut self, id: QueueId, key: &[u8]) -> Option<quintet_types::Ms> {
        self.store.end_holds(id, self.now);
        let held = self.store.seated(id).held_keys.as_ref()?;
        held.until(key)
    }

    fn may_hold(&mut self, id: QueueId, key: &[u8]) -> Result<(), CommandError> {
        if self.held_until(id, key).is_some() {
            return Ok(());
        }
        let queue = self.store.seated(id);
        if queue.groups.is_none() {
            return Err(CommandError::KeysUnused);
        }
        if queue.held_keys.as_ref().map_or(0, |held| held.len()) >= HELD_KEYS_MAX {
            return Err(CommandError::TooManyHeldKeys);
        }
        self.may_tell(told_of_held(key))
    }

    fn hold<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId, key: &[u8], for_ms: u64) {
        self.record_queue(cx, queue);
        let now = self.now;
        let until = (for_ms > 0).then(|| self.after(for_ms));
        let key = key.into();
        self.fact(
            cx,
            Fact::KeyHeld {
                queue,
                key,
                now,
                until,
            },
        );
    }
}
