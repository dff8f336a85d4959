//! Large bodies: which there are, and how their chunks get into the log.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_engine::format::put_chunk_head;
use quintet_log::{Epoch, FrameBuf, FrameKind, Placed};
use quintet_types::{ChunkPlace, LargeBody};

use super::{Core, locked};

/// Every large body somebody holds: a message, an upload or a reply.
pub(crate) struct Bodies {
    known: Mutex<BodyTable>,
    next: AtomicU64,
}

struct BodyTable {
    bodies: BTreeMap<u64, LargeBody>,
    /// Dead entries are looked for when the map has grown to this.
    cleanup_at: usize,
}

/// Oldest segment of a body that has no chunk yet.
const NOT_YET: u32 = u32::MAX;

/// Why a chunk was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The disk is full.
    NoSpace,
}

impl Bodies {
    /// A registry with the bodies found by replay. Ids carry the epoch in
    /// their upper half, so none is used twice, not even after a crash.
    pub(crate) fn new(bodies: BTreeMap<u64, LargeBody>, epoch: Epoch) -> Self {
        Self {
            known: Mutex::new(BodyTable {
                bodies,
                cleanup_at: 1024,
            }),
            next: AtomicU64::new(epoch.0 << 32),
        }
    }

    /// A new body of `len` bytes, without chunks.
    pub(crate) fn create(&self, len: u64) -> LargeBody {
        let body = LargeBody::new(self.next.fetch_add(1, Ordering::Relaxed), len, NOT_YET);
        let mut known = locked(&self.known);
        if known.bodies.len() >= known.cleanup_at {
            known.bodies.retain(|_, body| body.handles() > 1);
            known.cleanup_at = (known.bodies.len() * 2).max(1024);
        }
        known.bodies.insert(body.id(), body.clone());
        body
    }

    /// Bodies that somebody still holds and that have a chunk in a segment up
    /// to `through`.
    pub(crate) fn with_chunks_through(&self, through: u32) -> Vec<LargeBody> {
        let mut known = locked(&self.known);
        known.bodies.retain(|_, body| body.handles() > 1);
        let old = |body: &LargeBody| {
            body.places()
                .iter()
                .any(|position| position.segment <= through)
        };
        let bodies = known.bodies.values();
        bodies.filter(|body| old(body)).cloned().collect()
    }
}

/// A chunk's frame, begun: body id and chunk index are in it.
pub fn begin_chunk(frame: &mut FrameBuf, body: u64, index: u32) {
    frame.clear();
    frame.set_kind(FrameKind::Body);
    put_chunk_head(frame.payload_mut(), body, index);
    frame.count = 1;
}

/// Where a chunk of `len` body bytes went.
pub(crate) fn chunk_place(placed: Placed, len: usize) -> ChunkPlace {
    ChunkPlace {
        segment: placed.segment.0,
        offset: placed.offset,
        frame_len: placed.len,
        len: u32::try_from(len).unwrap_or(u32::MAX),
    }
}

impl Core {
    /// Writes the next chunk of a body; `len` of the frame's bytes are the
    /// body's. The frame may be used again.
    ///
    /// # Errors
    /// The disk is full; nothing was written.
    pub fn append_chunk(
        &self,
        frame: &mut FrameBuf,
        len: usize,
        body: &LargeBody,
    ) -> Result<(), ChunkError> {
        if self.is_full() {
            return Err(ChunkError::NoSpace);
        }
        let mut committer = locked(&self.committer);
        let written = committer.append_chunk(self, frame, false);
        match written {
            Ok(placed) => {
                // Under the committer's lock, so that a retirement that copies
                // this body's chunks does not miss it.
                let position = chunk_place(placed, len);
                if body.segment_ref() == NOT_YET {
                    body.set_places(vec![position], position.segment);
                } else {
                    body.push_position(position);
                }
                Ok(())
            }
            // That there is no room is true of a log that failed, too.
            Err(_) => Err(ChunkError::NoSpace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_bodies_are_forgotten() {
        let bodies = Bodies::new(BTreeMap::new(), Epoch(3));
        let kept = bodies.create(5);
        drop(bodies.create(7));
        assert_eq!(kept.id() >> 32, 3);
        kept.push_position(ChunkPlace {
            segment: 1,
            offset: 0,
            frame_len: 9,
            len: 5,
        });
        let ids: Vec<u64> = bodies
            .with_chunks_through(1)
            .iter()
            .map(LargeBody::id)
            .collect();
        assert_eq!(ids, [kept.id()]);
        assert!(bodies.with_chunks_through(0).is_empty());
    }
}
