//! Holding keys and queues: nothing of them is handed out for a time.

use super::Stop;
use quintet_types::{
    By, ClientId, CommandError, HELD_KEYS_MAX, HeldKey, Holding, How, MessageId, Name, Outcome,
    Overrides, QueueId, Tags,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{Fact, Journal, Pause};
use crate::store::restated_size_of_held;

impl Engine {
    pub(crate) fn hold_for<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        key: Option<&[u8]>,
        for_ms: u64,
    ) -> Result<Outcome, CommandError> {
        let id = self.may_hold_for(queue, key, for_ms)?;
        let until = self.after(for_ms);
        let Some(key) = key else {
            // The client holds the whole queue.
            if for_ms > 0 && self.store.expect_queue(id).is_paused_until(until) {
                return Ok(Outcome::Done);
            }
            return self.pause(cx, queue, Some(for_ms));
        };
        let held = self.held_until(id, key);
        let changes = match for_ms {
            0 => held.is_some(),
            _ => held < Some(until),
        };
        if changes {
            self.hold(cx, id, key, for_ms);
            cx.wake(id);
        }
        Ok(Outcome::Done)
    }

    /// The queue, if it or this key of it can be held.
    pub(super) fn may_hold_for(
        &mut self,
        queue: &Name,
        key: Option<&[u8]>,
        for_ms: u64,
    ) -> Result<QueueId, CommandError> {
        let id = self.existing(queue)?;
        match key {
            None => self.may_pause(id)?,
            Some(_) if for_ms == 0 => {}
            Some(_) if self.space != Space::Enough => return Err(CommandError::NoSpace),
            Some(key) => self.may_hold(id, key)?,
        }
        Ok(id)
    }

    pub(crate) fn pause<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        for_ms: Option<u64>,
    ) -> Result<Outcome, CommandError> {
        let id = self.existing(queue)?;
        self.may_pause(id)?;
        self.pause_queue(cx, id, for_ms);
        cx.wake(id);
        Ok(Outcome::Done)
    }

    fn may_pause(&self, id: QueueId) -> Result<(), CommandError> {
        let locked = self.store.expect_queue(id).live.settings.locked;
        match locked & Overrides::bit("paused") != 0 {
            true => Err(CommandError::Locked),
            false => Ok(()),
        }
    }

    /// Nothing of a queue is handed out for so many ms (`None`: until it is resumed; `Some(0)`: it
    /// is).
    fn pause_queue<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId, for_ms: Option<u64>) {
        self.record_queue(cx, id);
        self.count_live(id, |totals| totals.pauses += 1);
        let pause = match for_ms {
            Some(0) => None,
            Some(ms) => Some(Pause {
                until: Some(self.after(ms)),
                for_ms: ms,
            }),
            None => Some(Pause {
                until: None,
                for_ms: 0,
            }),
        };
        self.fact(cx, Fact::QueuePaused { queue: id, pause });
        self.sign_pause(cx, id, pause.is_some());
    }

    /// Keeps which user paused a queue, and when, as a tag of the queue. A queue that has no room
    /// for it is paused nevertheless.
    fn sign_pause<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId, pauses: bool) {
        let by = pauses
            .then(|| self.user_of(cx.call().caller.principal))
            .flatten();
        let stamp = by.map(|name| [format!("{} ", self.now.0).as_bytes(), &name].concat());
        let mut all = self.store.expect_queue(id).own().clone();
        let mut tags = Tags::default();
        tags.set(Tags::PAUSED_BY, stamp.as_deref());
        let tags = tags.over(&all.tags.take().unwrap_or_default());
        all.tags = (!tags.is_empty()).then_some(tags);
        if all != *self.store.expect_queue(id).own() {
            let _unsigned = self.settle_own(cx, id, all);
        }
    }

    pub(crate) fn settle_holding<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        (client_id, by): (ClientId, By),
        id: MessageId,
        how: &How,
        hold: Holding,
    ) -> Result<Outcome, Stop> {
        let (Holding::Key(for_ms) | Holding::Queue(for_ms)) = hold;
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let (queue, key) = (message.queue, message.key().cloned());
        // Nothing is handed out of a queue that was dropped.
        if for_ms == 0 || self.store.expect_queue(queue).live.dropped {
            return self.settle(cx, client_id, id, by, how);
        }
        let until = self.after(for_ms);
        if let Holding::Queue(_) = hold {
            self.may_pause(queue)?;
            let outcome = self.settle(cx, client_id, id, by, how)?;
            if self.store.expect_queue(queue).is_paused_until(until) {
                return Ok(outcome);
            }
            self.pause_queue(cx, queue, Some(for_ms));
            return Ok(outcome);
        }
        let key = key.ok_or(CommandError::NoKey)?;
        self.may_hold(queue, &key)?;
        let outcome = self.settle(cx, client_id, id, by, how)?;
        if self.held_until(queue, &key) < Some(until) {
            self.hold(cx, queue, &key, for_ms);
        }
        Ok(outcome)
    }

    /// Keys of a queue that are held, in their order.
    pub(super) fn held_keys(&mut self, queue: &Name) -> Result<Vec<HeldKey>, CommandError> {
        let id = self.existing(queue)?;
        self.store.end_holds(id, self.now);
        let held = self.store.expect_queue(id).held_keys.as_ref();
        Ok(held.map_or(Vec::new(), |held| held.iter().collect()))
    }

    fn held_until(&mut self, id: QueueId, key: &[u8]) -> Option<quintet_types::Ms> {
        self.store.end_holds(id, self.now);
        let held = self.store.expect_queue(id).held_keys.as_ref()?;
        held.until(key)
    }

    fn may_hold(&mut self, id: QueueId, key: &[u8]) -> Result<(), CommandError> {
        if self.held_until(id, key).is_some() {
            return Ok(());
        }
        let queue = self.store.expect_queue(id);
        if queue.groups.is_none() {
            return Err(CommandError::KeysUnused);
        }
        if queue.held_keys.as_ref().map_or(0, |held| held.len()) >= HELD_KEYS_MAX {
            return Err(CommandError::TooManyHeldKeys);
        }
        self.may_restate(restated_size_of_held(key))
    }

    fn hold<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId, key: &[u8], for_ms: u64) {
        self.record_queue(cx, queue);
        let now = self.now;
        let until = (for_ms > 0).then(|| self.after(for_ms));
        let key = key.into();
        let fact = Fact::KeyHeld {
            queue,
            key,
            now,
            until,
        };
        self.fact(cx, fact);
    }
}
