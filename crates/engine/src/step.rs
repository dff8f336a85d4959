//! The surroundings of a step of the engine.

use smallvec::SmallVec;

use quintet_types::{Caller, ClientId, Delivery, MESSAGES_PER_STEP, Principal, QueueId};

/// Messages and blocks entered into message groups in one step, where those of a
/// queue are built.
const GROUPED_PER_STEP: usize = 4096;

/// On whose behalf a command is decided, and the checks that it has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The client or part of the server that sent the command.
    pub(crate) caller: Caller,
    /// The command was validated under the same lock: no account refuses it, though others may
    /// have used up its room since.
    pub(crate) found_good: bool,
    /// Its puts belong to a batch that was asked before, or tell what happened to one.
    pub(crate) vouched: bool,
}

impl Call {
    /// The server itself, of its own accord.
    pub(crate) const SERVER: Self = Self::of(Caller {
        client_id: ClientId(0),
        principal: Principal::SERVER,
    });

    /// A command of this caller that has passed no check yet.
    pub(crate) const fn of(caller: Caller) -> Self {
        Self {
            caller,
            found_good: false,
            vouched: false,
        }
    }
}

/// The state that all calls of one step share.
pub(crate) struct Step {
    /// A fact of the command that is being decided was recorded. What time
    /// alone changes on its way (expiry) is none of its facts.
    pub(crate) began: bool,
    /// Messages that expired in this step.
    pub(crate) expired: usize,
    /// The place of what has come back to a tail in this step.
    pub(crate) tail: Option<i64>,
    /// Messages and blocks that may be entered into message groups in this step yet.
    pub(crate) grouping_left: usize,
    /// Messages of full queues that may be dropped for puts in this step yet.
    pub(crate) drops_left: u64,
    /// Queues in which something may have become available to those who wait.
    woken: SmallVec<[QueueId; 4]>,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            began: false,
            expired: 0,
            tail: None,
            grouping_left: GROUPED_PER_STEP,
            drops_left: MESSAGES_PER_STEP,
            woken: SmallVec::new(),
        }
    }
}

/// A call's surroundings: the journal, where deliveries go, its step, and the call itself.
///
/// The call of a context never changes. A command of another caller is decided in a context of its
/// own ([`Cx::by`]), so no way out of a function hands the rights of one caller to the next.
pub(crate) struct Cx<'a, J> {
    pub(crate) journal: &'a mut J,
    pub(crate) deliveries: &'a mut Vec<Delivery>,
    pub(crate) step: &'a mut Step,
    call: Call,
}

impl<'a, J> Cx<'a, J> {
    /// The context of what the server does of its own accord.
    pub(crate) fn new(
        journal: &'a mut J,
        deliveries: &'a mut Vec<Delivery>,
        step: &'a mut Step,
    ) -> Self {
        Self {
            journal,
            deliveries,
            step,
            call: Call::SERVER,
        }
    }

    /// The context of another call within the same step.
    pub(crate) fn by(&mut self, call: Call) -> Cx<'_, J> {
        Cx {
            journal: self.journal,
            deliveries: self.deliveries,
            step: self.step,
            call,
        }
    }

    /// On whose behalf facts are recorded here.
    pub(crate) fn call(&self) -> Call {
        self.call
    }

    /// Has those who wait on the queue looked at when the step is done: a
    /// command is indivisible, so they see all of it or nothing.
    pub(crate) fn wake(&mut self, queue: QueueId) {
        if self.step.woken.last() != Some(&queue) {
            self.step.woken.push(queue);
        }
    }

    /// The messages of the newest delivery are still where they were.
    pub(crate) fn only_peeked(&mut self) {
        if let Some(delivery) = self.deliveries.last_mut() {
            delivery.peeked = true;
        }
    }

    /// True if [`Cx::take_woken`] would answer some.
    pub(crate) fn has_woken(&self) -> bool {
        !self.step.woken.is_empty()
    }

    /// The queues woken since this was last asked, each once.
    pub(crate) fn take_woken(&mut self) -> SmallVec<[QueueId; 4]> {
        let mut woken = std::mem::take(&mut self.step.woken);
        woken.sort_unstable();
        woken.dedup();
        woken
    }
}
