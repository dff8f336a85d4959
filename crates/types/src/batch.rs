//! Batches: messages that are counted together, and a message put when all of
//! them have run and one when all have succeeded (fan-in).
//!
//! A batch lives in one shard, its members wherever their queues are. Members
//! are counted in the step that does something to them; where that is another
//! shard than the batch's, what is to be counted is *owed* there, a fact, until
//! a caller that can lock both shards carries it over ([`crate::carry`]).

use crate::message::Attr;
use crate::name::Name;
use crate::retry::Retry;
use crate::tie::{BatchId, Role, Tie};
use crate::time::Ms;

use std::sync::Arc;

/// The attribute of a callback that names its batch.
pub const BATCH: &[u8] = b"batch";
/// The attribute of a callback that says which it is, `complete` or `success`.
pub const BATCH_EVENT: &[u8] = b"batch_event";

coded! {
    /// Which of a batch's two callbacks.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Event, "event" {
        /// All members have run once.
        Complete = 0 => "complete",
        /// All members have succeeded.
        Success = 1 => "success",
    }
}

impl Event {
    fn role(self) -> Role {
        match self {
            Event::Complete => Role::Complete,
            Event::Success => Role::Success,
        }
    }

    /// The tie of the message that says it.
    pub fn tie(self, batch: BatchId) -> Tie {
        Tie {
            batch,
            role: self.role(),
        }
    }
}

coded! {
    /// How far a batch is with one of its events.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum CallbackState, "said" {
        /// It has not happened, or its callback found no room yet.
        #[default]
        No = 0 => "no",
        /// Its callback was put.
        Put = 1 => "put",
        /// Its callback is finished, or there was none.
        Done = 2 => "done",
    }
}

coded! {
    /// How a batch counts a member that is cancelled.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum CancelledAs, "cancelled" {
        /// It has run, and never succeeds.
        #[default]
        Failed = 0 => "failed",
        /// It has succeeded.
        Finished = 1 => "finished",
    }
}

/// A message that is put when something has happened to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Callback {
    /// Target queue; made if it is not there.
    pub queue: Name,
    pub body: Arc<[u8]>,
    /// `None`: the queue's default.
    pub priority: Option<u32>,
    /// Time to run, ms; `None`: the queue's default.
    pub ttr_ms: Option<u64>,
    /// Its own name ([`crate::PutMore::name`]).
    pub name: Option<Arc<[u8]>>,
    /// How it is tried again ([`crate::PutMore::retry`]).
    pub retry: Option<Retry>,
    /// Attributes beside [`BATCH`] and [`BATCH_EVENT`], sorted by the engine.
    pub attrs: Vec<Attr>,
}

impl Callback {
    /// Bytes that it brings.
    pub fn bytes(&self) -> u64 {
        let attrs = self.attrs.iter();
        let attrs: usize = attrs
            .map(|(name, value)| name.len() + value.len() + 8)
            .sum();
        let name = self.name.as_ref().map_or(0, |name| name.len());
        (self.queue.as_bytes().len() + self.body.len() + name + attrs) as u64
    }
}

/// A batch that is to be made: its description, parent and callbacks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NewBatch {
    /// For people.
    pub description: Box<[u8]>,
    /// The batch whose events wait for this one's.
    pub parent: Option<BatchId>,
    /// Put when all members have run; one of the two there has to be.
    pub complete: Option<Callback>,
    /// Put when all members have succeeded.
    pub success: Option<Callback>,
    /// How members count that are cancelled.
    pub cancelled: CancelledAs,
}

impl NewBatch {
    /// The callbacks that are set: for the end, then for success.
    pub fn callbacks(&self) -> impl Iterator<Item = &Callback> {
        self.complete.iter().chain(&self.success)
    }

    /// Bytes of description and callbacks, which `batch_bytes_max` limits.
    pub fn bytes(&self) -> u64 {
        self.description.len() as u64 + self.callbacks().map(Callback::bytes).sum::<u64>()
    }
}

/// Changes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Members there ever were.
    pub total: u64,
    /// Of these, those that have not succeeded.
    pub pending: u64,
    /// Of these, those that have run or will never.
    pub failed: u64,
    /// Members may be added, and nothing is said yet.
    pub open: bool,
    /// All have run.
    pub complete: CallbackState,
    /// All have succeeded.
    pub success: CallbackState,
    /// Children whose members have not all run.
    pub children_running: u64,
    /// Children whose members have not all succeeded.
    pub children_pending: u64,
    /// When it is gone.
    pub until: Ms,
}

impl Progress {
    /// The next event that has happened and was not reported.
    pub fn next(&self) -> Option<Event> {
        if self.open {
            return None;
        }
        if self.complete == CallbackState::No {
            let ran = self.pending <= self.failed && self.children_running == 0;
            return ran.then_some(Event::Complete);
        }
        // One callback after the other: the second waits until the first is done.
        let all = self.pending == 0 && self.children_pending == 0;
        let is_next = self.complete == CallbackState::Done && self.success == CallbackState::No;
        (all && is_next).then_some(Event::Success)
    }

    /// True if members may join: while it is open, and when callbacks were put, which are not put
    /// again for those who come then.
    pub fn takes_members(&self) -> bool {
        self.open || self.complete != CallbackState::No
    }

    /// How far it is with this event.
    pub fn callback_state_mut(&mut self, event: Event) -> &mut CallbackState {
        match event {
            Event::Complete => &mut self.complete,
            Event::Success => &mut self.success,
        }
    }
}

/// Counts and callbacks of a batch, as clients see them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Batch {
    pub id: BatchId,
    /// When it was made.
    pub created: Ms,
    pub made: NewBatch,
    pub progress: Progress,
}

impl Batch {
    /// The callback of this event, if the batch has it.
    pub fn callback(&self, event: Event) -> Option<&Callback> {
        match event {
            Event::Complete => self.made.complete.as_ref(),
            Event::Success => self.made.success.as_ref(),
        }
    }
}

/// Changes of a batch's members, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    pub total: i64,
    pub pending: i64,
    pub failed: i64,
    /// Members that were cancelled; the other numbers count them as failed.
    pub cancelled: i64,
    /// The callback that all have run is finished.
    pub complete_done: bool,
    /// The callback that all have succeeded is finished.
    pub success_done: bool,
}

impl Tally {
    /// A member was put.
    pub const JOINED: Self = Self::of(1, 1, 0);

    /// Changes of these three counts alone.
    pub const fn of(total: i64, pending: i64, failed: i64) -> Self {
        Self {
            total,
            pending,
            failed,
            cancelled: 0,
            complete_done: false,
            success_done: false,
        }
    }

    /// A callback is finished.
    pub fn done(event: Event) -> Self {
        Self {
            complete_done: event == Event::Complete,
            success_done: event == Event::Success,
            ..Self::default()
        }
    }

    /// Adds another one; counts stop at the ends of their range.
    pub fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.pending = self.pending.saturating_add(other.pending);
        self.failed = self.failed.saturating_add(other.failed);
        self.cancelled = self.cancelled.saturating_add(other.cancelled);
        self.complete_done |= other.complete_done;
        self.success_done |= other.success_done;
    }

    /// Counts it in a batch that counts cancelled members so.
    pub fn count_in(&self, progress: &mut Progress, cancelled: CancelledAs) {
        let finished = match cancelled {
            CancelledAs::Failed => 0,
            CancelledAs::Finished => self.cancelled,
        };
        let add = |number: &mut u64, by: i64| *number = number.saturating_add_signed(by);
        add(&mut progress.total, self.total);
        add(&mut progress.pending, self.pending.saturating_sub(finished));
        add(&mut progress.failed, self.failed.saturating_sub(finished));
        if self.complete_done && progress.complete == CallbackState::Put {
            progress.complete = CallbackState::Done;
        }
        if self.success_done && progress.success == CallbackState::Put {
            progress.success = CallbackState::Done;
        }
    }
}

/// An operation on a batch; all but `New`, `Number` and `List` name it by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchRequest {
    /// Makes one; members may be added until it is committed. Answers
    /// [`crate::Outcome::Batch`], as all but `List` do.
    New(Box<NewBatch>),
    /// Uses up the id of a batch that a step is to make ([`crate::Effect::MakeBatch`]), of the
    /// shard where it will be: its parent's, or this queue's. Answers a batch of this id alone.
    Number {
        /// Where its first callback goes.
        queue: Name,
        parent: Option<BatchId>,
    },
    /// Members may be added again, until it is committed again.
    Open(BatchId),
    /// No members are added any more: its events are said when they happen.
    Commit(BatchId),
    /// Answers its counts and callbacks and changes nothing.
    Show(BatchId),
    /// Forgets one: its callbacks are not put any more, and its members are
    /// messages like any other.
    Forget(BatchId),
    /// Those of a shard that the caller may put callbacks of, by age, 1,000 at
    /// most. Answers [`crate::Outcome::Batches`].
    List {
        shard: u8,
        /// Those made after this one.
        after: BatchId,
        /// So many at most.
        max: u32,
    },
}

impl BatchRequest {
    /// The batch it is about.
    pub fn batch(&self) -> Option<BatchId> {
        match self {
            BatchRequest::New(new) => new.parent,
            BatchRequest::Number { parent, .. } => *parent,
            BatchRequest::Open(id)
            | BatchRequest::Commit(id)
            | BatchRequest::Show(id)
            | BatchRequest::Forget(id) => Some(*id),
            BatchRequest::List { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_shown() {
        let id = BatchId(1 << 55 | 0xab);
        assert_eq!(id.to_string(), "b-00800000000000ab");
        assert_eq!(BatchId::parse(&id.to_string()), Some(id));
        for wrong in [
            "",
            "b-",
            "b-00800000000000AB",
            "00800000000000ab",
            "b-1",
            "b-+080000000000000",
        ] {
            assert_eq!(BatchId::parse(wrong), None, "{wrong}");
        }
    }
}
