//! Delivering: what is brought to those who waited, and when they may be told.

use quintet_types::Delivery;

use super::{Core, Need, PartyKey, Shard, Trail, locked};

impl Core {
    /// Says what the deliveries of a step wait for, and passes on what the
    /// shard's engine asks for.
    pub(super) fn collect(&self, shard: &mut Shard, trail: &mut Trail) {
        let deliveries = trail.scratch.drain(..).map(|delivery| {
            self.reserved.note(&delivery.outcome);
            let need = self.need(shard, self.hold(delivery.hold));
            (delivery, need)
        });
        trail.mail.extend(deliveries);
        self.forward_wants(shard);
        if shard.engine.has_intents() {
            locked(&self.intents).extend(shard.engine.take_intents());
            self.hooks_work.raise();
        }
    }

    /// Sees to what steps have left: what they recorded gets written, and
    /// others are told. No shard is locked.
    pub fn see_to(&self, trail: Trail) {
        self.write(trail.recorded);
        for (delivery, need) in trail.mail {
            self.hand(delivery, need);
        }
    }

    /// Leaves an outcome with whoever waited for it.
    pub fn hand(&self, delivery: Delivery, need: Need) {
        match self.mail.get(PartyKey::of(delivery.to).thread) {
            Some(to) => to.post(delivery, need),
            None => self.looks.hand(delivery, need),
        }
    }
}
