//! The body of a message.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::locks::locked;

/// The bytes of a message: shared and immutable, or in the log.
///
/// Cloning never copies the bytes.
#[derive(Clone, Debug)]
pub enum Body {
    /// In memory.
    Small(Arc<[u8]>),
    /// In the log, as chunks; never copied through the engine.
    Large(LargeBody),
}

impl Body {
    /// Copies `bytes` into a body held in memory.
    pub fn new(bytes: &[u8]) -> Self {
        Body::Small(Arc::from(bytes))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Small(bytes) => bytes.len() as u64,
            Body::Large(large) => large.len(),
        }
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in memory.
    pub fn as_small(&self) -> Option<&[u8]> {
        match self {
            Body::Small(bytes) => Some(bytes),
            Body::Large(_) => None,
        }
    }
}

impl Default for Body {
    /// No bytes, and no allocation for them.
    fn default() -> Self {
        Body::Small(Arc::default())
    }
}

impl PartialEq for Body {
    /// Small bodies are equal by bytes, large ones by identity in the log.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Body::Small(a), Body::Small(b)) => a == b,
            (Body::Large(a), Body::Large(b)) => a.id() == b.id() && a.len() == b.len(),
            (Body::Small(_), Body::Large(_)) | (Body::Large(_), Body::Small(_)) => false,
        }
    }
}

impl Eq for Body {}

/// Where one chunk of a large body lies. The engine only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// Number of the log segment.
    pub segment: u32,
    /// Offset of the frame's payload in the segment's file, in bytes.
    pub offset: u64,
    /// Bytes of the frame's payload, its record header included.
    pub frame_len: u32,
    /// Bytes of the body in this chunk, at the end of the payload.
    pub len: u32,
}

/// A body that was streamed to the log before its message was put.
///
/// A shared handle. The owner of the log fills in the places as chunks are
/// written (or found again by replay, or copied when a segment is retired);
/// readers take the list when they send. Dropping the last handle is all it
/// takes to forget a body.
#[derive(Clone, Debug)]
pub struct LargeBody(Arc<Large>);

#[derive(Debug)]
struct Large {
    id: u64,
    len: u64,
    segment_ref: AtomicU32,
    places: Mutex<Vec<ChunkPlace>>,
}

impl LargeBody {
    /// A body of `len` bytes whose chunks carry `id` in the log, from segment
    /// `segment_ref` on.
    pub fn new(id: u64, len: u64, segment_ref: u32) -> Self {
        let places = Mutex::new(Vec::new());
        Self(Arc::new(Large {
            id,
            len,
            segment_ref: AtomicU32::new(segment_ref),
            places,
        }))
    }

    /// The oldest segment that holds a chunk of it.
    pub fn segment_ref(&self) -> u32 {
        self.0.segment_ref.load(Ordering::Acquire)
    }

    /// Identity in the log: rises, never reused.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Length of the whole body in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// True for a body of no bytes (never made by the server).
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The chunks in order, as far as they are written.
    pub fn places(&self) -> Vec<ChunkPlace> {
        locked(&self.0.places).clone()
    }

    /// Adds the next chunk.
    pub fn push_position(&self, position: ChunkPlace) {
        locked(&self.0.places).push(position);
    }

    /// Replaces all places, after the chunks were copied to newer segments, of
    /// which `segment_ref` is the oldest.
    pub fn set_places(&self, places: Vec<ChunkPlace>, segment_ref: u32) {
        self.0.segment_ref.store(segment_ref, Ordering::Release);
        *locked(&self.0.places) = places;
    }

    /// How many handles exist, this one included.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}
