//! The sockets that an I/O thread polls, by their tokens.

use std::io;
use std::time::Instant;

use mio::{Poll, Token};
use quintet_host::ClientKey;
use quintet_process::Bound;

/// Tokens of listeners count down from here.
const LISTENERS: usize = usize::MAX - 1;

/// A thread's poll, and the listeners that it accepts for.
pub(super) struct Sockets {
    pub(super) poll: Poll,
    /// Listeners that this thread accepts for, by their number.
    pub(super) listeners: Vec<(usize, Bound)>,
    /// Listeners to be accepted from again, and when.
    pub(super) accept_again: Vec<usize>,
    pub(super) accept_at: Option<Instant>,
}

impl Sockets {
    /// Has `poll` watch these listeners.
    ///
    /// # Errors
    /// A listener cannot be polled.
    pub(super) fn new(poll: Poll, mut listeners: Vec<(usize, Bound)>) -> io::Result<Self> {
        for (at, (_, bound)) in listeners.iter_mut().enumerate() {
            bound.register(poll.registry(), Token(LISTENERS - at))?;
        }
        Ok(Self {
            poll,
            listeners,
            accept_again: Vec::new(),
            accept_at: None,
        })
    }

    /// The index of the listener with this token, if it is one's.
    pub(super) fn listener_of(&self, token: usize) -> Option<usize> {
        (token > LISTENERS - self.listeners.len()).then(|| LISTENERS - token)
    }
}

/// The poll token of a connection.
pub(super) fn token_of(key: ClientKey) -> Token {
    Token((key.generation as usize) << 24 | key.slot as usize)
}

/// The connection of this thread with this token.
pub(super) fn key_of(thread: usize, token: usize) -> ClientKey {
    ClientKey {
        thread,
        slot: (token as u64 & 0xff_ffff) as u32,
        generation: (token as u64 >> 24 & 0xffff_ffff) as u32,
    }
}
