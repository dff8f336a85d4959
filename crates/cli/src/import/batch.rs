//! A batch: messages that are stored in one step, and the token by which the server knows it again.

use crate::records::PIECES_OVER;

/// Messages stored together at most, their bodies in bytes, and their heads.
const BATCH: usize = 256;
const BATCH_BODIES: usize = 1 << 20;
const BATCH_HEADS: usize = 128 << 10;

/// Limits of a group: batches, bytes of their heads, and bytes of their bodies. The server accepts
/// such a group in one request.
const GROUP: usize = 8;
const GROUP_HEADS: usize = 900 << 10;
const GROUP_BODIES: usize = 4 << 20;
const _: () = assert!(GROUP * BATCH <= quintet_control::RECORDS_MAX);

/// Messages of one queue that the server knows again by one token.
pub(super) struct Batch {
    pub(super) queue: String,
    /// Number of the first in the file, from 0.
    first: u64,
    /// Where that stands, for people.
    pub(super) place: String,
    /// As they go into a request.
    pub(super) heads: Vec<String>,
    pub(super) head_bytes: usize,
    lens: Vec<usize>,
    pub(super) bodies: Vec<u8>,
}

impl Batch {
    pub(super) fn new(queue: &str, first: u64, place: String) -> Self {
        Self {
            queue: queue.to_owned(),
            first,
            place,
            heads: Vec::new(),
            head_bytes: 0,
            lens: Vec::new(),
            bodies: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, head: String, body: &[u8]) {
        self.head_bytes += head.len();
        self.heads.push(head);
        self.lens.push(body.len());
        self.bodies.extend_from_slice(body);
    }

    /// Where a batch ends depends on nothing but the messages before, so that
    /// a repeat has the same ones.
    pub(super) fn takes(&self, queue: &str, head: &str, body: &[u8]) -> bool {
        self.queue == queue
            && self.heads.len() < BATCH
            && self.head_bytes + head.len() <= BATCH_HEADS
            && self.bodies.len() + body.len() <= BATCH_BODIES
            && body.len() as u64 <= PIECES_OVER
            && self.bodies.len() as u64 <= BATCH_BODIES as u64 - PIECES_OVER
    }

    /// Its token: a hash of all that is in it, of the queue it goes to and of its place in the
    /// file.
    pub(super) fn token(&self) -> String {
        let mut hash = Fnv::default();
        hash.add(self.queue.as_bytes());
        hash.add(&self.first.to_le_bytes());
        hash.add(&self.heads.len().to_le_bytes());
        self.heads.iter().for_each(|head| hash.add(head.as_bytes()));
        hash.add(&self.bodies);
        format!("{:032x}", hash.0)
    }

    /// Each of its messages by itself.
    pub(super) fn singles(&self) -> impl Iterator<Item = Batch> + use<'_> {
        let mut at = 0;
        let messages = self.heads.iter().zip(&self.lens).zip(0..);
        messages.map(move |((head, len), number)| {
            let place = match number {
                0 => self.place.clone(),
                number => format!("message {} behind {}", number, self.place),
            };
            let mut one = Batch::new(&self.queue, self.first + number, place);
            one.push(head.clone(), &self.bodies[at..at + len]);
            at += len;
            one
        })
    }
}

/// Batches that go out together, and are stored together or not at all.
#[derive(Default)]
pub(super) struct Group(pub(super) Vec<Batch>);

impl Group {
    /// True if it is full, or has a batch of another queue. An empty group takes any batch.
    pub(super) fn is_full_for(&self, batch: &Batch) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let heads: usize = self
            .0
            .iter()
            .map(|one| one.head_bytes + one.heads.len())
            .sum();
        self.0.iter().any(|one| one.queue != batch.queue)
            || self.0.len() >= GROUP
            || heads + batch.head_bytes + batch.heads.len() > GROUP_HEADS
            || self.bytes() + batch.bodies.len() > GROUP_BODIES
    }

    /// Bytes of the bodies.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|batch| batch.bodies.len()).sum()
    }

    /// The line before the bodies.
    pub(super) fn request(&self, again: bool) -> String {
        let (mut at, mut tokens, mut heads) = (0, Vec::new(), Vec::new());
        for batch in &self.0 {
            if !again {
                tokens.push(format!("[{at},\"{}\"]", batch.token()));
            }
            at += batch.heads.len();
            heads.push(batch.heads.join(","));
        }
        let (tokens, heads) = (tokens.join(","), heads.join(","));
        format!("{{\"tokens\":[{tokens}],\"messages\":[{heads}]}}")
    }
}

/// FNV-1a of 128 bits: nobody gains by two files of one hash.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_as_its_authors_list_it() {
        let mut hash = Fnv::default();
        hash.add(b"foobar");
        assert_eq!(hash.0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn a_group_has_bounds_and_an_empty_one_takes_any_batch() {
        let batch = |head_bytes| {
            let mut batch = Batch::new("q", 0, "line 1".to_owned());
            batch.push("x".repeat(head_bytes), b"");
            batch
        };
        let mut group = Group::default();
        assert!(!group.is_full_for(&batch(GROUP_HEADS)));
        group.0.push(batch(GROUP_HEADS));
        assert!(group.is_full_for(&batch(1)));
    }

    #[test]
    fn a_token_is_different_for_batches_and_their_parts() {
        let batch = |queue: &str, first, heads: &[&str], body: &[u8]| {
            let mut batch = Batch::new(queue, first, "line 1".to_owned());
            heads
                .iter()
                .for_each(|head| batch.push((*head).to_owned(), body));
            batch
        };
        let all = [
            batch("q", 0, &["a", "b"], b"x"),
            batch("q", 0, &["a"], b"x"),
            batch("q", 1, &["a"], b"x"),
            batch("p", 0, &["a"], b"x"),
            batch("q", 0, &["a"], b"y"),
        ];
        let tokens: std::collections::BTreeSet<String> = all.iter().map(Batch::token).collect();
        assert_eq!(tokens.len(), all.len());
        let singles: Vec<Batch> = all[0].singles().collect();
        assert_eq!(singles[0].token(), all[1].token());
        assert_eq!((singles[1].first, &singles[1].bodies[..]), (1, &b"x"[..]));
    }
}
