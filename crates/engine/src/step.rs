//! What a step of the engine has around it.

use smallvec::SmallVec;

use quintet_types::{Delivery, MESSAGES_PER_STEP, Principal, QueueId};

/// Messages and blocks entered into key groups in one step, where those of a
/// queue are built.
const GROUPED_PER_STEP: usize = 4096;

/// On whose behalf something is decided, and what of it was asked before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// Whose command it is.
    pub(crate) principal: Principal,
    /// It was found good: no account refuses it, though others may have used up its room since.
    pub(crate) found_good: bool,
    /// Its puts belong to a batch that was asked before, or tell what happened to one.
    pub(crate) vouched: bool,
}

impl Asking {
    /// The server itself, of its own accord.
    pub(crate) const SERVER: Self = Self::by(Principal::SERVER);

    /// A command of this principal, of which nothing was asked yet.
    pub(crate) const fn by(principal: Principal) -> Self {
        Self {
            principal,
            found_good: false,
            vouched: false,
        }
    }
}

/// A step's surroundings: the journal, and where deliveries go.
pub(crate) struct Cx<'a, J> {
    pub(crate) journal: &'a mut J,
    pub(crate) deliveries: &'a mut Vec<Delivery>,
    pub(crate) asking: Asking,
    /// A fact of the command that is being decided was recorded. What time
    /// alone changes on its way (expiry) is none of its facts.
    pub(crate) began: bool,
    /// Messages that expired in this step.
    pub(crate) expired: usize,
    /// The place of what has come back to a tail in this step.
    pub(crate) tail: Option<i64>,
    /// Messages and blocks that may be entered into key groups in this step yet.
    pub(crate) grouping_left: usize,
    /// Messages of full queues that may be dropped for puts in this step yet.
    pub(crate) drops_left: u64,
    /// Queues in which something may have become available to those who wait.
    woken: SmallVec<[QueueId; 4]>,
}

impl<'a, J> Cx<'a, J> {
    pub(crate) fn new(journal: &'a mut J, deliveries: &'a mut Vec<Delivery>) -> Self {
        Self {
            journal,
            deliveries,
            asking: Asking::SERVER,
            began: false,
            expired: 0,
            tail: None,
            grouping_left: GROUPED_PER_STEP,
            drops_left: MESSAGES_PER_STEP,
            woken: SmallVec::new(),
        }
    }

    /// Has those who wait on the queue looked at when the step is done: a
    /// command is indivisible, so they see all of it or nothing.
    pub(crate) fn wake(&mut self, queue: QueueId) {
        if self.woken.last() != Some(&queue) {
            self.woken.push(queue);
        }
    }

    /// The messages of the newest delivery are still where they were.
    pub(crate) fn only_looked(&mut self) {
        if let Some(delivery) = self.deliveries.last_mut() {
            delivery.looked = true;
        }
    }

    /// True if [`Cx::take_woken`] would answer some.
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// The queues woken since this was last asked, each once.
    pub(crate) fn take_woken(&mut self) -> SmallVec<[QueueId; 4]> {
        let mut woken = std::mem::take(&mut self.woken);
        woken.sort_unstable();
        woken.dedup();
        woken
    }
}
