//! Reading the body that a request announces, for every protocol that has such
//! requests: a short one is held in the input until it is whole, a long one
//! goes to the log as it comes.

use quintet_types::{Body, CommandError, LargeBody, Name};

use crate::session::{STREAM_OVER, Step};

/// A body on its way, and what its request said of it.
pub(crate) struct IncomingBody<H> {
    head: H,
    len: u64,
    phase: Phase,
}

enum Phase {
    /// Not all there, or not looked at; it begins so many bytes into the
    /// input, behind the request itself.
    Here { at: usize },
    /// On its way to the log.
    Streaming,
    /// In the log, or refused there.
    Streamed(Result<LargeBody, CommandError>),
}

/// Progress of a body that is being read.
pub(crate) enum ParseResult<H> {
    /// Only a part; take this step first.
    Part(IncomingBody<H>, Step),
    Whole(Whole<H>),
}

/// A body that is there.
pub(crate) struct Whole<H> {
    pub(crate) head: H,
    /// Why it was not stored, if it was not.
    pub(crate) body: Result<Body, CommandError>,
    /// Bytes of the input that are dealt with.
    pub(crate) used: usize,
    /// The bytes that must follow it did.
    pub(crate) ended: bool,
}

impl<H> IncomingBody<H> {
    /// A body of `len` bytes that begins `at` bytes into the input: the bytes
    /// before it are consumed with it.
    pub(crate) fn new(head: H, at: usize, len: u64) -> Self {
        let phase = Phase::Here { at };
        Self { head, len, phase }
    }

    /// The head that the request gave.
    pub(crate) fn head(&self) -> &H {
        &self.head
    }

    /// Looks for the body and the bytes that end it. `queue` says where it is
    /// to go, for limits and shards; asked only of a long one.
    pub(crate) fn read(
        mut self,
        input: &[u8],
        end: &[u8],
        queue: impl FnOnce(&H) -> Name,
    ) -> ParseResult<H> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "used where it is at most STREAM_OVER"
        )]
        let len = self.len as usize;
        let (body, at) = match std::mem::replace(&mut self.phase, Phase::Streaming) {
            Phase::Here { at } if self.len > STREAM_OVER => {
                let step = Step::Stream {
                    used: at,
                    len: self.len,
                    queue: queue(&self.head),
                };
                return ParseResult::Part(self, step);
            }
            Phase::Here { at } => (None, at + len),
            Phase::Streaming => return ParseResult::Part(self, Step::More),
            Phase::Streamed(body) => (Some(body), 0),
        };
        let used = at + end.len();
        let Some(after) = input.get(at..used) else {
            self.phase = match body {
                Some(body) => Phase::Streamed(body),
                None => Phase::Here { at: at - len },
            };
            return ParseResult::Part(self, Step::More);
        };
        ParseResult::Whole(Whole {
            head: self.head,
            body: match body {
                Some(body) => body.map(Body::Large),
                None => Ok(Body::new(&input[at - len..at])),
            },
            used,
            ended: after == end,
        })
    }

    /// The host has stored it, or not.
    pub(crate) fn streamed(&mut self, body: Result<LargeBody, CommandError>) {
        if matches!(self.phase, Phase::Streaming) {
            self.phase = Phase::Streamed(body);
        }
    }
}

/// Takes what has come of `left` bytes that nobody wants; answers how many.
pub(crate) fn drop_some(left: &mut u64, input: &[u8]) -> usize {
    let used = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(input.len());
    *left -= used as u64;
    used
}

/// Drops bytes; with none there, more must come.
pub(crate) fn skip(used: usize) -> Step {
    match used {
        0 => Step::More,
        used => Step::Skip { used },
    }
}
