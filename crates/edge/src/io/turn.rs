//! The time of a turn, and the buffers that turns use one after the other.

use std::time::Instant;

use quintet_tls::Scratch;
use quintet_types::Ms;
use quintet_wire::ClientRequest;

use super::conn::DueReply;
use super::mail::Mail;

/// Bytes read at once; also what is decoded without a copy.
const READ_BYTES: usize = 64 << 10;

/// The time of a turn, and the buffers that turns use one after the other.
pub(super) struct Turn {
    /// Engine time of this turn.
    pub(super) now: Ms,
    pub(super) instant: Instant,
    /// Where the clock of [`super::counts::Read`] begins.
    pub(super) start: Instant,
    /// When connections get no more time; `None`: the thread does not stop yet.
    pub(super) stop_at: Option<Instant>,
    pub(super) scratch: Vec<u8>,
    /// The same, for what TLS makes of it.
    pub(super) records: Scratch,
    /// Requests of a connection to be decided.
    pub(super) asks: Vec<ClientRequest>,
    /// Replies to them to be written.
    pub(super) replies: Vec<DueReply>,
    pub(super) mail: Vec<Mail>,
}

impl Turn {
    /// The time before the first turn, and empty buffers.
    pub(super) fn new(now: Ms) -> Self {
        Self {
            now,
            instant: Instant::now(),
            start: Instant::now(),
            stop_at: None,
            scratch: vec![0; READ_BYTES],
            records: Scratch::new(READ_BYTES),
            asks: Vec::new(),
            replies: Vec::new(),
            mail: Vec::new(),
        }
    }
}
