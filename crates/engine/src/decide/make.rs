//! Making queues, and telling the log of them.

use quintet_types::{CommandError, Name, Overrides, QueueId};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::Call;
use crate::store::{Maker, Queue, queue_weight};

/// Numbers rise with each queue that is made, and a log has none of 2^28 or more. Those above these
/// are left for queues that are made beyond the limits.
const NUMBERS: usize = (1 << 28) - (1 << 24);

impl Engine {
    /// The queue of this name, if it is more than what somebody waits on or refers to.
    pub(crate) fn there(&self, name: &Name) -> Result<QueueId, CommandError> {
        let id = self.existing(name)?;
        match self.store.expect_queue(id).live.recorded {
            true => Ok(id),
            false => Err(CommandError::QueueNotFound),
        }
    }

    /// The queue of this name, if it exists.
    pub(crate) fn existing(&self, name: &Name) -> Result<QueueId, CommandError> {
        self.store.find(name).ok_or(CommandError::QueueNotFound)
    }

    /// The queue of this name, made in memory if there is none.
    pub(crate) fn find_or_make(
        &mut self,
        call: Call,
        name: &Name,
    ) -> Result<QueueId, CommandError> {
        if let Some(id) = self.store.find(name) {
            return Ok(id);
        }
        if !name.is_possible() {
            return Err(CommandError::BadName);
        }
        if self.store.names.len() >= self.settings.queues_max as usize
            || self.store.queues.len() >= NUMBERS
        {
            return Err(CommandError::TooManyQueues);
        }
        let maker = self.making(call)?;
        let restated = queue_weight(name, false, &Overrides::default(), maker.name.as_deref());
        if let Err(command_error) = self.may_restate(restated) {
            maker.give_up();
            return Err(command_error);
        }
        Ok(self.make(name, maker))
    }

    /// [`Engine::find_or_make`] of what the server needs for itself, such as a queue for dead
    /// letters: it is nobody's.
    pub(crate) fn find_or_make_ours(&mut self, name: &Name) -> Result<QueueId, CommandError> {
        self.find_or_make(Call::SERVER, name)
    }

    /// True if a snapshot may be so many bytes longer.
    pub(crate) fn may_restate(&self, more: u64) -> Result<(), CommandError> {
        match self.store.snapshot_bytes() + more <= self.settings.snapshot_bytes_max {
            true => Ok(()),
            false => Err(CommandError::SnapshotFull),
        }
    }

    /// Makes a queue in memory.
    pub(crate) fn make(&mut self, name: &Name, maker: Maker) -> QueueId {
        let id = self.store.free_number();
        let mut queue = Queue {
            id,
            name: name.clone(),
            created: self.now,
            maker: maker.name,
            ..Queue::default()
        };
        queue.live.account = maker.account;
        queue.live.used = self.now;
        self.store.insert_queue(queue);
        self.resettle(id);
        id
    }

    /// Makes sure the log knows the queue before a fact names it.
    pub(crate) fn record_queue<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId) {
        let queue = self.store.expect_queue(id);
        if queue.live.recorded {
            // An earlier fact made it, of this process or of the log.
            return;
        }
        let fact = Fact::QueueMade {
            queue: id,
            name: queue.name.clone(),
            parent: queue.parent,
            created: queue.created,
        };
        self.fact(cx, fact);
        assert!(
            self.store.expect_queue(id).live.recorded,
            "a queue that was made is known to the log"
        );
        self.record_maker(cx, id);
    }

    /// Tells the log who made a queue that it knows.
    pub(crate) fn record_maker<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId) {
        if let Some(maker) = self.store.expect_queue(queue).maker.clone() {
            self.fact(cx, Fact::QueueMaker { queue, maker });
        }
    }

    /// Forgets a queue that exists only because somebody waited on it or
    /// referred to it.
    pub(crate) fn forget_unused(&mut self, id: QueueId) {
        if let Some(queue) = self.store.queue(id)
            && !queue.live.recorded
            && !queue.live.is_named()
            && queue.is_empty()
        {
            self.store.remove_queue(id);
        }
    }
}
