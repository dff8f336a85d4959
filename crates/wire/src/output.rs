//! Where replies are written.

use quintet_types::{Body, LargeBody};

/// Reply bytes, with large bodies by reference: they leave from the log to the
/// socket without passing through here.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    large: Vec<(usize, LargeBody)>,
}

impl Output {
    /// Empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a decimal number.
    pub fn number(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            // The remainder of a division by ten fits a byte.
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    /// Appends a body.
    pub fn body(&mut self, body: &Body) {
        match body {
            Body::Small(bytes) => self.put(bytes),
            Body::Large(large) => self.large.push((self.bytes.len(), large.clone())),
        }
    }

    /// Appends a line, CR LF at its end.
    pub(crate) fn line(&mut self, text: &[u8]) {
        self.put(text);
        self.put(b"\r\n");
    }

    /// Appends a body behind its length, as protocols with lines do: each with
    /// CR LF at its end.
    pub(crate) fn block(&mut self, body: &Body) {
        self.number(body.len());
        self.put(b"\r\n");
        self.body(body);
        self.put(b"\r\n");
    }

    /// The same for bytes that were never a message's.
    pub(crate) fn block_of(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.put(b"\r\n");
        self.line(bytes);
    }

    /// The bytes, without the large bodies.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The large bodies, each with the offset in [`Output::bytes`] it stands
    /// before, in order.
    pub fn large(&self) -> &[(usize, LargeBody)] {
        &self.large
    }

    /// Forgets the first `bytes` bytes and `large` large bodies, which have
    /// left. Large bodies that stay stand behind those bytes.
    pub fn forget_front(&mut self, bytes: usize, large: usize) {
        self.bytes.drain(..bytes);
        self.large.drain(..large);
        for (offset, _) in &mut self.large {
            *offset -= bytes;
        }
    }

    /// Number of bytes held in memory.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.large.is_empty()
    }

    /// Forgets what was written; keeps the room, unless it is more than
    /// `room` bytes.
    pub fn clear(&mut self, room: usize) {
        if self.bytes.capacity() > room {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.large.clear();
    }
}
