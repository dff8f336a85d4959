//! Priorities that rise while messages wait.

use quintet_types::{Message, Ms, QueueId, Rate};

use super::Model;

/// Steps by which messages have aged since a queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Clock {
    /// Before this rate.
    steps: u32,
    since: Ms,
    rate: Rate,
}

impl Clock {
    fn at(self, now: Ms) -> u32 {
        let ms = now.0.saturating_sub(self.since.0);
        match self.rate.count {
            0 => self.steps,
            count => self.steps + (ms * u64::from(count) / self.rate.per_ms) as u32,
        }
    }
}

impl Model {
    /// True if messages of the queue age, or did.
    pub(super) fn ages(&self, queue: QueueId) -> bool {
        self.queue(queue).aging != Clock::default() || self.settings_of(queue).aging.count > 0
    }

    /// No message stands before its queue's clock, which may have begun anew.
    pub(super) fn stands_by_the_clock(&self, message: &mut Message) {
        let stands_at = self.queue(message.queue).aging.at(self.now);
        let extra = message.extra_mut();
        extra.aged_from = extra.aged_from.min(stands_at);
    }

    /// Where a message that comes now stands on its queue's clock.
    pub(super) fn begins_to_age(&mut self, queue: QueueId) -> u32 {
        let (now, rate) = (self.now, self.settings_of(queue).aging);
        let is_empty = self.ids(queue, |_| true).is_empty();
        let clock = &mut self.queue_mut(queue).aging;
        if rate.count == 0 && is_empty {
            *clock = Clock::default();
        } else if rate != clock.rate {
            *clock = Clock {
                steps: clock.at(now),
                since: now,
                rate,
            };
        }
        clock.at(now)
    }

    /// The priority of a message beside those of other queues.
    pub(super) fn risen(&self, message: &Message) -> u32 {
        let steps = self.queue(message.queue).aging.at(self.now);
        message.order().0.saturating_sub(steps)
    }
}
