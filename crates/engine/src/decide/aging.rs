//! Aging: the priority of a message rises while it waits.
//!
//! All messages of a queue age alike, so their order never changes by itself: a message keeps where
//! the queue's clock of aging stood when it began to wait, and stands in order by its priority and
//! that ([`Message::order`]). The clock is durable, and changes its rate with the next message after
//! the setting changed, so that what waits keeps what it has risen by.

use quintet_types::{Message, Order, QueueId, Rate};

use crate::engine::{Cx, Engine};
use crate::fact::{AgingClock, Fact, Journal};

impl Engine {
    /// A message comes to its queue. A delay counts as age.
    #[cold]
    pub(crate) fn begin_aging<J: Journal>(&mut self, cx: &mut Cx<'_, J>, message: &mut Message) {
        self.follow_aging(cx, message.queue);
        let clock = self.store.expect_queue(message.queue).aging.as_deref();
        let aged_from = clock.map_or(0, |clock| clock.at(self.now));
        if aged_from > 0 || message.extra.is_some() {
            message.extra_mut().aged_from = aged_from;
        }
    }

    /// The queue's clock of aging goes as its setting says, from now on.
    pub(super) fn follow_aging<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId) {
        let queue = self.store.expect_queue(id);
        let rate = queue.live.settings.aging;
        let clock = queue.aging.as_deref().copied();
        let goes = clock.map_or(Rate::default(), |clock| clock.rate);
        let clock = match (rate.count, clock) {
            (0, Some(_)) if queue.is_empty() => None,
            _ if goes == rate => return,
            (_, clock) => Some(AgingClock {
                steps: clock.map_or(0, |clock| clock.at(self.now)),
                since: self.now,
                rate,
            }),
        };
        self.fact(cx, Fact::AgingSet { queue: id, clock });
    }

    /// Where a message of this order stands beside those of other queues: its priority has risen,
    /// to 0 at most.
    #[inline]
    pub(crate) fn risen(&self, queue: QueueId, (priority, position, id): Order) -> Order {
        let clock = self.store.expect_queue(queue).aging.as_deref();
        let steps = clock.map_or(0, |clock| clock.at(self.now));
        (priority.saturating_sub(steps), position, id)
    }
}
