//! Records that the socket did not take at once.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

/// Encrypted bytes in order, and how much of the plain text their ends stand for.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    /// Of them, what the socket has.
    sent: usize,
    /// Ends in `bytes` of records with a caller's bytes, rising, and how many of those are in each.
    ends: VecDeque<(usize, usize)>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory it takes.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.capacity()
    }

    /// Room for so many bytes of TLS's own at the end.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        &mut self.bytes[start..]
    }

    /// Keeps what is left of records that were written up to `sent`; `ends` as above, in `records`.
    /// Answers the caller's bytes in those that left whole.
    pub(crate) fn keep(&mut self, records: &[u8], sent: usize, ends: &[(usize, usize)]) -> usize {
        assert!(self.is_empty(), "records leave in their order");
        self.bytes.extend_from_slice(&records[sent..]);
        let mut left = 0;
        for &(end, plain) in ends {
            match end.checked_sub(sent) {
                Some(end) if end > 0 => self.ends.push_back((end, plain)),
                _ => left += plain,
            }
        }
        left
    }

    /// Writes as much as the socket takes. Answers the caller's bytes in records that have left
    /// whole; that it takes no more is no error.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn push(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        while self.sent < self.bytes.len() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut left = 0;
        while let Some(&(end, plain)) = self.ends.front()
            && end <= self.sent
        {
            left += plain;
            self.ends.pop_front();
        }
        if self.sent == self.bytes.len() {
            (self.bytes, self.sent) = (Vec::new(), 0);
        }
        Ok(left)
    }
}
