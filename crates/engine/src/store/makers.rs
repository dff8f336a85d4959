//! Makers of queues, and the counters of their queues.

use std::sync::Arc;

use super::{Durable, Queue};
use quintet_types::{Account, QueueId};

/// The maker of a queue that is being made.
#[derive(Debug, Default)]
pub(crate) struct Maker {
    /// The user's name; `None`: nobody's in particular.
    pub(crate) name: Option<Box<[u8]>>,
    /// Where the queue is counted already.
    pub(crate) account: Option<Arc<Account>>,
}

impl Maker {
    /// The one of a queue that is there, where another one like it is not counted yet.
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            name: queue.maker.clone(),
            account: queue.live.account.clone(),
        }
    }

    /// Counts one that is made whatever there may be.
    pub(crate) fn take_in(&self) {
        if let Some(account) = &self.account {
            account.take_in(0);
        }
    }

    /// It is not made.
    pub(crate) fn give_up(self) {
        if let Some(account) = self.account {
            account.leave(0);
        }
    }
}

impl Queue {
    /// So many more bytes of messages are in memory.
    #[inline]
    pub(super) fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(account) = &self.live.account {
            account.grow(bytes);
        }
    }

    /// So many less.
    #[inline]
    pub(super) fn shrink(&mut self, bytes: u64) {
        self.bytes -= bytes;
        if let Some(account) = &self.live.account {
            account.shrink(bytes);
        }
    }

    /// Bytes of messages came to its runs, or left them.
    pub(super) fn count_bytes(&self, more: u64, less: u64) {
        if let Some(account) = &self.live.account {
            account.grow(more);
            account.shrink(less);
        }
    }

    /// Bytes of messages, those in runs included.
    pub(super) fn all_bytes(&self) -> u64 {
        self.bytes + self.cold.as_ref().map_or(0, |cold| cold.sums.bytes)
    }
}

impl Durable {
    /// The queue goes, or is counted elsewhere.
    pub(super) fn leave_account(&mut self, id: QueueId) {
        if let Some(queue) = self.queue_mut(id)
            && let Some(account) = queue.live.account.take()
        {
            account.leave(queue.all_bytes());
        }
    }

    /// Counts the queues of makers in the accounts that `of` says.
    pub(super) fn count_makers(&mut self, of: &mut dyn FnMut(&[u8]) -> Option<Arc<Account>>) {
        for queue in self.queues.iter_mut() {
            let bytes = queue.all_bytes();
            let maker = queue.maker.as_deref().filter(|_| !queue.live.dropped);
            let account = maker.and_then(&mut *of);
            if let Some(account) = &account {
                account.take_in(bytes);
            }
            if let Some(before) = std::mem::replace(&mut queue.live.account, account) {
                before.leave(bytes);
            }
        }
    }

    /// # Errors
    /// An account counts less than this shard has in it.
    pub(super) fn verify_accounts(&self) -> Result<(), String> {
        for queue in self.queues.iter() {
            if let Some(account) = &queue.live.account
                && (account.queues() == 0 || account.bytes() < queue.all_bytes())
            {
                return Err(format!("{}: {account:?}", queue.name));
            }
        }
        Ok(())
    }
}
