//! The keeper: a thread that looks after what nobody else is woken for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::service::{Rq, lock};

impl Rq {
    /// Runs until the service stops.
    pub(crate) fn keep(self: &Arc<Self>) {
        let limits = self.options.limits.clone();
        let mut sweep_at = Instant::now();
        let mut first = true;
        while !self.stopping.load(Ordering::SeqCst) {
            for queue in self.all_scripted() {
                self.look_at_admin(&queue.name);
            }
            if sweep_at <= Instant::now() {
                self.sweep(first);
                first = false;
                sweep_at = Instant::now() + limits.sweep_every;
            }
            self.wait_for(limits.look_every);
        }
    }

    fn wait_for(&self, at_most: Duration) {
        let asked = lock(&self.keeper.asked);
        let (mut asked, _timeout) = self
            .keeper
            .changed
            .wait_timeout_while(asked, at_most, |asked| !*asked)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *asked = false;
    }
}
