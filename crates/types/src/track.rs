//! Tracked messages: what became of them can be asked by their own names, also
//! for a while after they are gone.

use std::sync::Arc;

use crate::message::{Message, State};
use crate::name::Name;
use crate::result::ResultState;
use crate::time::Ms;

coded! {
    /// The state of a tracked message.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum TrackState, "track" {
        /// It waits, or is to be committed yet.
        #[default]
        Waiting = 0 => "waiting",
        /// Somebody has it under a lease.
        Reserved = 1 => "reserved",
        /// Its last try failed: it rests until it is tried again, or was not to be.
        Failed = 2 => "failed",
        /// It was set aside.
        Buried = 3 => "buried",
        /// It is done, or was taken for good.
        Done = 4 => "done",
        /// It is gone without having been done: deleted, expired, or it made way.
        Gone = 5 => "gone",
        /// It was cancelled. The note is the reason.
        Cancelled = 6 => "cancelled",
    }
}

impl TrackState {
    /// The state of a message that still exists.
    pub fn of(message: &Message) -> Self {
        match message.state {
            State::Reserved => TrackState::Reserved,
            State::Buried => TrackState::Buried,
            State::Done | State::Relayed => TrackState::Done,
            // A client that put it back before the end of its time began anew.
            State::Ready if message.failures() > 0 && message.due().is_some() => TrackState::Failed,
            State::Ready | State::Prepared => TrackState::Waiting,
        }
    }
}

/// The record of a tracked message ([`crate::PutMore::tracked`]), as it was when it last changed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Track {
    /// Where it is, or was last.
    pub queue: Name,
    /// Its own name.
    pub name: Arc<[u8]>,
    pub state: TrackState,
    /// How far the work on it had come, in percent, if somebody said so.
    pub percent: Option<u8>,
    /// Its status text: what was last said of it, or why it failed; [`TRACK_NOTE_BYTES_MAX`] bytes
    /// of it.
    pub note: Box<[u8]>,
    /// Since when.
    pub changed: Ms,
    /// Forgotten then, unless something changes before.
    pub until: Ms,
}

impl Track {
    /// Orders the records of namesakes that do not see each other: the largest is the newest.
    pub fn newness(&self) -> (Ms, bool) {
        let lives = matches!(self.state, TrackState::Waiting | TrackState::Reserved);
        (self.changed, lives)
    }
}

/// Bytes of a tracked message's status text that are kept: this stays in memory when the message
/// is gone.
pub const TRACK_NOTE_BYTES_MAX: usize = 1024;

impl Message {
    /// How it ended, if it has ended and is kept: its state, and the text with it.
    pub fn result(&self) -> Option<(ResultState, Option<Box<[u8]>>)> {
        let non_empty = |text: &[u8]| (!text.is_empty()).then(|| text.into());
        match (self.state, self.dead_letter_reason()) {
            (State::Done | State::Relayed, _) => {
                let status = self.extra.as_deref().map(|extra| extra.status.clone());
                Some((ResultState::Done, Some(status.unwrap_or_default())))
            }
            (State::Buried, _) => Some((ResultState::Dead, non_empty(self.error()))),
            (_, Some(b"expired")) => Some((ResultState::Expired, None)),
            (_, Some(_)) => Some((ResultState::Dead, non_empty(self.error()))),
            (State::Prepared | State::Ready | State::Reserved, None) => None,
        }
    }
}
