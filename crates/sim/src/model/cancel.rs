//! Cancelled messages.

use quintet_types::{Cancel, Cancelled, CommandError, MessageId, Outcome, State};

use super::Model;

impl Model {
    pub(super) fn cancel(
        &mut self,
        id: MessageId,
        cancel: &Cancel,
    ) -> Result<Outcome, CommandError> {
        self.may_cancel(id)?;
        let until = self.now + cancel.grace_ms;
        let now = self.now;
        let item = self.item_mut(id);
        let extra = item.message.extra_mut();
        extra.cancelled = Some(Box::new(Cancelled {
            until,
            reason: cancel.reason.clone(),
        }));
        match &mut item.lease {
            Some(lease) if cancel.grace_ms > 0 => {
                extra.changed = now;
                lease.until = Some(lease.until.map_or(until, |own| own.min(until)));
            }
            _ => self.end_cancelled(id),
        }
        Ok(Outcome::Done)
    }

    pub(super) fn may_cancel(&self, id: MessageId) -> Result<(), CommandError> {
        let message = self.message(id)?;
        if matches!(message.state, State::Done | State::Relayed) {
            return Err(CommandError::AlreadyDone);
        }
        match message.cancelled() {
            Some(_) => Err(CommandError::AlreadyCancelled),
            None => Ok(()),
        }
    }

    /// Nobody works on it any more.
    pub(super) fn end_cancelled(&mut self, id: MessageId) {
        let message = self.remove(id);
        self.totals(message.queue).cancelled += 1;
    }
}
