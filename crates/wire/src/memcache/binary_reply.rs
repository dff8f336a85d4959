//! memcached's binary protocol: what is remembered of a request until its
//! reply is written, and the form of replies.

use quintet_types::{Body, CommandError};

use super::opcode;
use crate::output::Output;

/// The first byte of a request.
pub(super) const REQUEST: u8 = 0x80;
/// The first byte of a reply.
const RESPONSE: u8 = 0x81;
/// Bytes of a header.
pub(super) const HEAD: usize = 24;

/// How a request went, as the header of its reply says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done = 0,
    NotFound = 1,
    TooLarge = 3,
    Invalid = 4,
    NotStored = 5,
    /// No login, a wrong one, or no right to it.
    Auth = 0x20,
    Unknown = 0x81,
    NoMemory = 0x82,
    NotSupported = 0x83,
    /// The server cannot do it now.
    Temporary = 0x86,
}

/// The part of a request that its reply repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) opcode: u8,
    /// The client's own number.
    pub(super) opaque: [u8; 4],
}

impl Head {
    /// True for commands that are not told what is usual: a miss of a get,
    /// success of others.
    pub(super) fn is_quiet(self) -> bool {
        matches!(
            self.opcode,
            opcode::GETQ
                | opcode::GETKQ
                | opcode::SETQ
                | opcode::DELETEQ
                | opcode::QUITQ
                | opcode::FLUSHQ
        )
    }

    /// True for quiet gets: clients read on until a no-op's reply, which they
    /// tell by its having no key, and would take an error for it and all that
    /// comes behind for the reply to something else.
    pub(super) fn errors_close(self) -> bool {
        matches!(self.opcode, opcode::GETQ | opcode::GETKQ)
    }

    /// Writes a reply's header, its extras and its key, behind which `len`
    /// bytes are to come. False, and nothing, if they are more than a header
    /// can tell.
    fn write(
        self,
        status: Status,
        extras: &[u8],
        key: &[u8],
        len: u64,
        output: &mut Output,
    ) -> bool {
        let key_len = u16::try_from(key.len());
        let all = len.saturating_add((extras.len() + key.len()) as u64);
        let (Ok(key_len), Ok(all)) = (key_len, u32::try_from(all)) else {
            return false;
        };
        // Extras are flags, at most.
        let extras_len = u8::try_from(extras.len()).unwrap_or_default();
        output.put(&[RESPONSE, self.opcode]);
        output.put(&key_len.to_be_bytes());
        output.put(&[extras_len, 0]);
        output.put(&(status as u16).to_be_bytes());
        output.put(&all.to_be_bytes());
        output.put(&self.opaque);
        // No item has a number to compare it by.
        output.put(&[0; 8]);
        output.put(extras);
        output.put(key);
        true
    }

    /// Writes a reply with a short value: a text of the server's.
    pub(super) fn say(self, status: Status, value: &[u8], output: &mut Output) {
        self.pair(status, b"", value, output);
    }

    /// Writes a key with a short value.
    pub(super) fn pair(self, status: Status, key: &[u8], value: &[u8], output: &mut Output) {
        if self.write(status, b"", key, value.len() as u64, output) {
            output.put(value);
        }
    }

    /// Writes an item. False, and nothing, if it is too long to be sent.
    pub(super) fn item(self, flags: u32, key: &[u8], body: &Body, output: &mut Output) -> bool {
        let extras = flags.to_be_bytes();
        let written = self.write(Status::Done, &extras, key, body.len(), output);
        if written {
            output.body(body);
        }
        written
    }
}

/// The reply a binary request is owed.
#[derive(Debug)]
pub(super) struct BinaryReply {
    pub(super) head: Head,
    pub(super) what: What,
}

/// Of which kind it is.
#[derive(Debug)]
pub(super) enum What {
    /// None, if the engine does not refuse: the first of a request's commands.
    Part,
    /// To a get that takes, looks or settles; with the key, if the client
    /// wants it back.
    Get {
        peek: bool,
        key: Option<Box<[u8]>>,
    },
    /// To a set; without an answer of the engine, that its item was too large.
    Set,
    /// Success without a word.
    Done,
    Version,
    /// The ways to log in.
    Mechanisms,
    Login,
    Stats,
    /// More of them; segments retired and begun.
    Queues((u64, u64)),
    /// An error from before the engine was asked.
    Refused(CommandError),
    Error(Status, &'static str),
    /// The same, then the connection closes.
    Fault(Status, &'static str),
    /// The connection closes.
    Quit,
}
