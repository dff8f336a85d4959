//! References of clients to queues in which they have no message and no wait.

use quintet_types::{ClientId, CommandError, Name, Outcome, QueueId};

use crate::engine::Engine;
use crate::referrers::Reference;
use crate::step::Call;

impl Engine {
    /// Sets what the client is to a queue; see [`quintet_types::Command::Refer`].
    pub(crate) fn refer(
        &mut self,
        call: Call,
        client_id: ClientId,
        name: &Name,
        uses: Option<bool>,
        watches: Option<bool>,
    ) -> Result<Outcome, CommandError> {
        let queue = match self.store.find(name) {
            Some(queue) => queue,
            None if uses == Some(true) || watches == Some(true) => self.find_or_make(call, name)?,
            None => return Ok(Outcome::Done),
        };
        let mine = self.referrers.by_client.entry(client_id).or_default();
        let at = mine.iter().position(|mine| mine.queue == queue);
        let at = at.unwrap_or_else(|| {
            mine.push(Reference {
                queue,
                uses: false,
                watches: false,
            });
            mine.len() - 1
        });
        let before = mine[at];
        let after = Reference {
            queue,
            uses: uses.unwrap_or(before.uses),
            watches: watches.unwrap_or(before.watches),
        };
        mine[at] = after;
        if !after.uses && !after.watches {
            mine.swap_remove(at);
        }
        if mine.is_empty() {
            self.referrers.by_client.remove(&client_id);
        }
        self.count_reference(before, false);
        self.count_reference(after, true);
        self.forget_unused(queue);
        Ok(Outcome::Done)
    }

    /// The client is gone, and its references with it.
    pub(crate) fn forget_references(&mut self, client_id: ClientId) {
        let gone = self.referrers.by_client.remove(&client_id);
        for gone in gone.unwrap_or_default() {
            self.count_reference(gone, false);
            self.forget_unused(gone.queue);
        }
    }

    /// A queue was dropped and made again under another number.
    pub(crate) fn move_references(&mut self, old: QueueId, new: QueueId) {
        let mut moved = Vec::new();
        #[expect(
            clippy::disallowed_methods,
            reason = "all get the same, and are only counted"
        )]
        for mine in self.referrers.by_client.values_mut() {
            for reference in mine.iter_mut().filter(|mine| mine.queue == old) {
                reference.queue = new;
                moved.push(*reference);
            }
        }
        for reference in moved {
            self.count_reference(reference, true);
        }
    }

    fn count_reference(&mut self, reference: Reference, more: bool) {
        self.store.recount(reference.queue, |live| {
            for (count, one) in [
                (&mut live.users, reference.uses),
                (&mut live.watchers, reference.watches),
            ] {
                *count = match more {
                    true => *count + u32::from(one),
                    false => count.saturating_sub(u32::from(one)),
                };
            }
        });
    }
}
