//! Dependencies: a message that is held until other messages have come to their end.

use crate::command_error::CommandError;
use crate::id::MessageId;
use crate::time::Ms;

use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages that one put may wait for at most.
pub const AFTER_MAX: usize = 1000;

/// Messages that the puts of one command wait for at most, together.
pub const AFTER_ALL_MAX: usize = 10_000;

/// The due time of a held message: the last second of the year 9999. No clock reaches it, and
/// every client can read it.
pub const HELD: Ms = Ms(253_402_300_799_000);

/// The last due time that a client can ask for.
pub const DUE_MAX: Ms = Ms(HELD.0 - 1);

coded! {
    /// The ends of a parent for which a held message waits.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum AfterOn, "on" {
        /// It has succeeded.
        #[default]
        Success = 0 => "success",
        /// It has come to any end.
        End = 1 => "end",
    }
}

coded! {
    /// The fate of a message that waits for success, once a parent has failed.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum IfFailed, "if_failed" {
        /// It fails too: the dead-letter rule of its queue applies.
        #[default]
        Fail = 0 => "fail",
        /// It stays held, until it is kicked or deleted.
        Hold = 1 => "hold",
        /// It runs when the other parents have ended too.
        Run = 2 => "run",
    }
}

coded! {
    /// How a parent stands.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum ParentState, "parent" {
        /// It has not ended.
        #[default]
        Waiting = 0 => "waiting",
        /// It was finished, or taken for good.
        Done = 1 => "done",
        /// It was buried, became a dead letter, or is gone without having been done.
        Failed = 2 => "failed",
    }
}

impl ParentState {
    /// The state after the end of a parent.
    pub const fn ended(succeeded: bool) -> Self {
        match succeeded {
            true => ParentState::Done,
            false => ParentState::Failed,
        }
    }
}

/// A message for which another one is held, and how it stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Parent {
    pub id: MessageId,
    pub state: ParentState,
}

/// Whether a held message may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is ready.
    Run,
    /// It fails, as this parent has.
    Fail(MessageId),
}

/// The messages for which one is held, or was.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct After {
    /// By id, each once.
    pub parents: Box<[Parent]>,
    pub on: AfterOn,
    pub if_failed: IfFailed,
    /// Not taken before, also if all parents have ended.
    pub due: Option<Ms>,
}

impl After {
    /// `None`: it is held still.
    pub fn verdict(&self) -> Option<Verdict> {
        let in_state = |state| {
            let mut parents = self.parents.iter();
            parents.find(move |parent| parent.state == state)
        };
        let failed = in_state(ParentState::Failed).filter(|_| self.on == AfterOn::Success);
        match (failed, self.if_failed) {
            (Some(parent), IfFailed::Fail) => return Some(Verdict::Fail(parent.id)),
            (Some(_), IfFailed::Hold) => return None,
            (Some(_), IfFailed::Run) | (None, _) => {}
        }
        match in_state(ParentState::Waiting) {
            Some(_) => None,
            None => Some(Verdict::Run),
        }
    }

    /// Keeps for later when the message is due, unless it may run; true: it is held.
    pub fn hold(&mut self, due: &mut Option<Ms>) -> bool {
        let holds = self.verdict() != Some(Verdict::Run);
        if holds {
            self.due = due.replace(HELD);
        }
        holds
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.parents) + 32
    }
}

/// The messages for which a put asks to be held.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PutAfter {
    pub ids: Vec<MessageId>,
    /// Own names of tracked messages ([`crate::PutMore::tracked`]); of several of a name it is the
    /// one that was put last.
    pub names: Vec<Arc<[u8]>>,
    pub on: AfterOn,
    pub if_failed: IfFailed,
    /// Answers of other shards about messages of theirs: how each stands, or why the put may not
    /// wait for it. Only a thread that holds the locks of these shards has any.
    pub afar: BTreeMap<MessageId, Result<ParentState, CommandError>>,
}

impl PutAfter {
    /// How many messages it names.
    pub fn count(&self) -> usize {
        self.ids.len() + self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(states: &[ParentState], on: AfterOn, if_failed: IfFailed) -> After {
        let parents = states.iter().zip(1..).map(|(&state, id)| Parent {
            id: MessageId(id),
            state,
        });
        After {
            parents: parents.collect(),
            on,
            if_failed,
            due: None,
        }
    }

    #[test]
    fn a_verdict_depends_on_all_parents() {
        use ParentState::{Done, Failed, Waiting};
        let fails = Some(Verdict::Fail(MessageId(2)));
        let run = Some(Verdict::Run);
        let on_success = [
            (IfFailed::Fail, vec![Done, Waiting], None),
            (IfFailed::Fail, vec![Done, Done], run),
            (IfFailed::Fail, vec![Waiting, Failed], fails),
            (IfFailed::Hold, vec![Done, Failed], None),
            (IfFailed::Run, vec![Waiting, Failed], None),
            (IfFailed::Run, vec![Done, Failed], run),
        ];
        for (if_failed, states, verdict) in on_success {
            let found = after(&states, AfterOn::Success, if_failed).verdict();
            assert_eq!(found, verdict, "{if_failed:?} {states:?}");
        }
        for if_failed in IfFailed::ALL {
            let of = |states: &[ParentState]| after(states, AfterOn::End, *if_failed).verdict();
            assert_eq!(of(&[Failed, Done]), run);
            assert_eq!(of(&[Failed, Waiting]), None);
        }
    }
}
