//! How far the work on a message has come, as its holder says.

use quintet_types::{
    By, ClientId, CommandError, ERROR_BYTES_MAX, MessageId, Outcome, PROGRESS, State, cut,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Change, Fact, Journal};

use super::admin::merged;

impl Engine {
    pub(crate) fn progress<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        (id, by): (MessageId, By),
        percent: Option<u8>,
        text: Option<&[u8]>,
    ) -> Result<Outcome, CommandError> {
        // What is reserved is in memory.
        let message = self.store.message(id).ok_or(CommandError::NotFound)?;
        if message.state != State::Reserved || !self.allows(client_id, id, by) {
            return Err(CommandError::NotFound);
        }
        self.say(cx, id, percent, text);
        Ok(self.done_to_held(id))
    }

    /// Notes how far the work on a message is.
    pub(super) fn say<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        percent: Option<u8>,
        text: Option<&[u8]>,
    ) {
        let message = self.store.message(id);
        let message = message.expect("what is said is about a message that was found");
        let at = message.at();
        let attrs = percent.map(|percent| {
            let value = percent.min(100).to_string().into_bytes();
            merged(message, vec![(PROGRESS.into(), Some(value.into()))])
        });
        let status = text.map(|text| cut(text, ERROR_BYTES_MAX).into());
        if attrs.is_some() || status.is_some() {
            let change = Change {
                now: self.now,
                status,
                attrs,
                ..Change::default()
            };
            let change = Box::new(change);
            self.fact(cx, Fact::Edited { at, change });
        }
    }
}
