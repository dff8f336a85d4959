//! A large body on its way from a socket into the log.

use std::sync::Arc;

use quintet_client::{ByteBudget, Share};
use quintet_host::{Core, begin_chunk};
use quintet_log::{FrameBuf, FrameKind};
use quintet_types::{CommandError, LargeBody};

/// One body that is coming in.
pub struct Upload {
    /// Bytes still to come from the client.
    left: u64,
    /// Where they go; or why they are dropped.
    into: Result<LargeBody, CommandError>,
    frame: FrameBuf,
    /// Its share of the disk until it is whole.
    _share: Option<Share>,
    /// Bytes of the body in the frame.
    filled: usize,
    /// Number of the chunk being filled.
    index: u32,
}

impl Upload {
    /// A body of `len` bytes; `refused`: its bytes are read and dropped, and
    /// so are those of one that `uploads` has no room for.
    pub fn new(
        core: &Core,
        uploads: &Arc<ByteBudget>,
        len: u64,
        mut refused: Option<CommandError>,
    ) -> Self {
        let share = match refused {
            None => uploads.take_or_alone(len),
            Some(_) => None,
        };
        if share.is_none() {
            refused = refused.or(Some(CommandError::NoSpace));
        }
        Self {
            left: len,
            _share: share,
            into: match refused {
                Some(command_error) => Err(command_error),
                None => Ok(core.create_body(len)),
            },
            frame: FrameBuf::new(FrameKind::Body),
            filled: 0,
            index: 0,
        }
    }

    /// Takes bytes from the front of `input`, up to the end of a chunk;
    /// answers how many, and whether a chunk was written.
    pub fn feed(&mut self, core: &Core, chunk_bytes: usize, input: &[u8]) -> (usize, bool) {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        let Ok(body) = &self.into else {
            self.left -= most as u64;
            return (most, false);
        };
        if self.filled == 0 {
            begin_chunk(&mut self.frame, body.id(), self.index);
        }
        let used = most.min(chunk_bytes - self.filled);
        self.frame.payload_mut().extend_from_slice(&input[..used]);
        self.filled += used;
        self.left -= used as u64;
        if self.filled < chunk_bytes && self.left > 0 {
            return (used, false);
        }
        if core
            .append_chunk(&mut self.frame, self.filled, body)
            .is_err()
        {
            self.into = Err(CommandError::NoSpace);
            // The rest is read and dropped without a buffer.
            self.frame = FrameBuf::new(FrameKind::Body);
        }
        self.filled = 0;
        self.index += 1;
        (used, true)
    }

    /// Bytes of memory it takes.
    pub fn footprint(&self) -> usize {
        self.frame.capacity()
    }

    /// True when every byte has come.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The stored body, or why it is not.
    pub fn finish(self) -> Result<LargeBody, CommandError> {
        self.into
    }
}
