//! Delivering: what is brought to those who waited, and when they may learn it.

use quintet_types::Delivery;

use super::{ClientKey, Core, Required, Shard, Trail, locked};

impl Core {
    /// Says what the deliveries of a step wait for, and passes on what the
    /// shard's engine asks for.
    pub(super) fn collect(&self, shard: &mut Shard, trail: &mut Trail) {
        let deliveries = trail.scratch.drain(..).map(|delivery| {
            self.reserved.note(&delivery.outcome);
            let required = self.required(shard, self.hold(delivery.hold));
            (delivery, required)
        });
        trail.mail.extend(deliveries);
        self.forward_wants(shard);
        if shard.engine.has_pending_decisions() {
            locked(&self.pending_decisions).extend(shard.engine.take_requested_decisions());
            self.hooks_work.raise();
        }
    }

    /// Sees to what steps have left: what they recorded gets written, and
    /// others are notified. No shard is locked.
    pub fn see_to(&self, trail: Trail) {
        self.write(trail.recorded);
        for (delivery, required) in trail.mail {
            self.hand(delivery, required);
        }
    }

    /// Leaves an outcome with the client that waited for it.
    pub fn hand(&self, delivery: Delivery, required: Required) {
        match self.mail.get(ClientKey::of(delivery.to).thread) {
            Some(to) => to.post(delivery, required),
            None => self.peeks.hand(delivery, required),
        }
    }
}
