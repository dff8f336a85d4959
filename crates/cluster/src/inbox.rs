//! Events for a member that it has not handled yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Distrusted, Ends, EntryLookup, Seq, TailEvent};

/// Bytes of entries that wait, about; what comes beyond is read again later.
const BYTES_MAX: usize = 8 << 20;

/// An input of the member.
#[derive(Debug)]
pub(crate) enum Input {
    Tail(TailEvent),
    /// The answer to the question of this number.
    Ends(u64, Option<Ends>),
    /// Content of a position that was requested.
    EntryRead(Seq, EntryLookup),
    /// The answer to a request for another leader.
    Distrusted(Distrusted),
    /// Others should own rather than this member, or not so.
    Drain(bool),
}

/// In the order it came.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Default)]
struct State {
    inputs: VecDeque<Input>,
    bytes: usize,
    /// The tail whose events count.
    tail: u64,
    /// There was too much: nothing more of that tail is taken.
    over: bool,
    /// Something happened that has no input of its own.
    rung: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer.
    pub(crate) fn push(&self, input: Input) {
        self.lock().inputs.push_back(input);
    }

    /// Something settled that is looked at by itself.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
    }

    /// Takes in the news of the tail `tail`.
    pub(crate) fn notify(&self, tail: u64, event: TailEvent) {
        let mut state = self.lock();
        if tail != state.tail || state.over {
            return;
        }
        if state.bytes >= BYTES_MAX {
            state.over = true;
            return;
        }
        if let TailEvent::Entry(_, entry) = &event {
            state.bytes += entry.len();
        }
        state.inputs.push_back(Input::Tail(event));
    }

    /// From now on another tail counts, and nothing of those before; answers its number.
    pub(crate) fn next_tail(&self) -> u64 {
        let mut state = self.lock();
        state
            .inputs
            .retain(|input| !matches!(input, Input::Tail(_)));
        state.tail += 1;
        (state.bytes, state.over) = (0, false);
        state.tail
    }

    /// The next thing to see to.
    pub(crate) fn pop(&self) -> Option<Input> {
        let mut state = self.lock();
        state.rung = false;
        let input = state.inputs.pop_front();
        if let Some(Input::Tail(TailEvent::Entry(_, entry))) = &input {
            state.bytes -= entry.len();
        }
        input
    }

    /// Whether the tail told more than was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Whether there is something to see to.
    pub(crate) fn is_rung(&self) -> bool {
        let state = self.lock();
        state.rung || !state.inputs.is_empty()
    }
}
