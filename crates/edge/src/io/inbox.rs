//! A client's input that was not decided: bytes, requests, a large body.

use std::collections::VecDeque;

use quintet_wire::ClientRequest;

use super::upload::Upload;

quintet_types::defaults! {
    /// The way in of one connection.
    pub(super) struct Inbox {
        /// Bytes that came before it was registered raise an event.
        pub(super) feed: Feed = Feed::Quiet,
        /// Its protocol is not known yet: its first line may be HTTP's.
        pub(super) is_new: bool = true,
        /// Bytes read and not decoded.
        pub(super) bytes: Vec<u8> = Vec::new(),
        /// Requests decoded and not decided.
        pub(super) pending: VecDeque<ClientRequest> = VecDeque::new(),
        /// Bytes of input that they were decoded from, with those before them that are decided: so
        /// much memory they and the replies to them take.
        pub(super) pending_bytes: usize = 0,
        /// The large body that is coming in.
        pub(super) upload: Option<Upload> = None,
    }
}

impl Inbox {
    /// All that was read is decided, and more can come.
    pub(super) fn is_empty(&self) -> bool {
        let decided = self.bytes.is_empty() && self.pending.is_empty() && self.upload.is_none();
        decided && !self.feed.is_closed()
    }

    /// Bytes of memory it takes.
    pub(super) fn footprint(&self) -> usize {
        let pending = match self.pending.is_empty() {
            true => 0,
            false => self.pending_bytes,
        };
        let upload = self.upload.as_ref().map_or(0, Upload::footprint);
        self.bytes.capacity() + upload + pending
    }

    /// Nothing of it is decided any more.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.bytes = Vec::new();
        self.upload = None;
    }
}

/// The input that a connection's socket may still bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Feed {
    /// Nothing before an event.
    Quiet,
    /// Bytes, perhaps.
    Ready,
    /// The same, and no more after them: the client has closed its side.
    Last,
    /// Nothing ever: everything the client sent has been read.
    Ended,
}

impl Feed {
    /// An event came; `closed`: the client has closed its side.
    pub(super) fn wake(&mut self, closed: bool) {
        *self = match self {
            Feed::Ended => Feed::Ended,
            Feed::Last => Feed::Last,
            Feed::Quiet | Feed::Ready if closed => Feed::Last,
            Feed::Quiet | Feed::Ready => Feed::Ready,
        };
    }

    /// The socket was read until it had no more. The end of the stream came
    /// with that, or will raise an event of its own.
    pub(super) fn drained(&mut self) {
        *self = match self {
            Feed::Quiet | Feed::Ready => Feed::Quiet,
            Feed::Last | Feed::Ended => Feed::Ended,
        };
    }

    /// True if it is worth reading.
    pub(super) fn may_bring(self) -> bool {
        matches!(self, Feed::Ready | Feed::Last)
    }

    /// The client has closed its side.
    pub(super) fn is_closed(self) -> bool {
        matches!(self, Feed::Last | Feed::Ended)
    }
}
