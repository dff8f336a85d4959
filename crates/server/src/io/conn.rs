//! One connection.

use std::collections::VecDeque;
use std::time::Instant;

use quintet_engine::{Caller, Handed, Outcome};
use quintet_wire::{Ask, Given, HalfClose, HostAsk, Session};

use super::Stream;
use super::outbox::Outbox;
use super::upload::Upload;
use crate::core::Need;

/// What the thread knows of a connection.
pub(super) struct Conn {
    pub(super) stream: Stream,
    pub(super) session: Box<dyn Session>,
    pub(super) caller: Caller,
    /// Number of the listener it came by.
    pub(super) listener: usize,
    /// Bytes read and not decoded.
    pub(super) input: Vec<u8>,
    /// Requests decoded and not decided.
    pub(super) pending: VecDeque<Ask>,
    /// A take of it waits in line. True: what it gets goes back if the reply
    /// never leaves.
    pub(super) waiting: Option<bool>,
    /// It has a standing take, or a delivery of one is on the way.
    pub(super) watching: bool,
    pub(super) upload: Option<Upload>,
    pub(super) out: Outbox,
    /// The socket may have bytes that were not read.
    pub(super) readable: bool,
    /// The client has closed its side; what it sent before may be unread.
    pub(super) fin: bool,
    /// Everything the client sent has been read.
    pub(super) eof: bool,
    /// What the session said about that, once asked.
    pub(super) half_close: Option<HalfClose>,
    /// Nothing more is decoded; it closes when its output has left.
    pub(super) closing: bool,
    /// It stopped because its client does not read its replies.
    pub(super) stalled: bool,
    /// The socket took no more; room is watched for.
    pub(super) blocked: bool,
    pub(super) in_dirty: bool,
    pub(super) in_held: bool,
    pub(super) in_again: bool,
    pub(super) active: Instant,
}

/// A request that was decided, in order, before its reply is written.
pub(super) struct Reply {
    /// What the session is given.
    pub(super) given: Given,
    /// What the reply waits for.
    pub(super) need: Need,
    /// The messages in it go back if it never begins to leave: they were
    /// removed, or leased beyond the connection's life.
    pub(super) undone: bool,
    /// Asked of the host when the reply is written.
    pub(super) host: Option<HostAsk>,
    /// The connection closes after it.
    pub(super) closes: bool,
}

impl Conn {
    pub(super) fn new(
        stream: Stream,
        session: Box<dyn Session>,
        caller: Caller,
        listener: usize,
    ) -> Self {
        Self {
            stream,
            session,
            caller,
            listener,
            input: Vec::new(),
            pending: VecDeque::new(),
            waiting: None,
            watching: false,
            upload: None,
            out: Outbox::default(),
            // What came before it was registered raises an event.
            readable: false,
            fin: false,
            eof: false,
            half_close: None,
            closing: false,
            stalled: false,
            blocked: false,
            in_dirty: false,
            in_held: false,
            in_again: false,
            active: Instant::now(),
        }
    }

    /// True if more requests may be decided now.
    pub(super) fn may_go_on(&self, output_bytes_max: usize) -> bool {
        !self.closing && self.waiting.is_none() && self.out.unsent() < output_bytes_max
    }

    /// Nothing more is decided.
    pub(super) fn close_after_flush(&mut self) {
        self.closing = true;
        self.pending.clear();
        self.input = Vec::new();
        self.upload = None;
    }
}

impl Reply {
    /// One that the session knows.
    pub(super) fn own() -> Self {
        Self {
            given: Given::Own,
            need: Need::default(),
            undone: false,
            host: None,
            closes: false,
        }
    }

    /// The messages that go back to their queue if the reply never leaves.
    pub(super) fn take_undone(&mut self) -> Option<Handed> {
        match &mut self.given {
            Given::Engine(Outcome::Messages(messages), _) if self.undone => {
                Some(std::mem::take(messages))
            }
            _ => None,
        }
    }
}
