//! Records of tracked messages, and the search for them by name.
//!
//! Held in memory and told in full at the beginning of each segment, so it is
//! bounded (`tracked_max`, `snapshot_bytes_max`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_types::{MessageId, Ms, Track};

use crate::fact::Fact;

/// Memory of a record beside its bytes, about: the record and its places in three maps.
const IN_MEMORY: u64 = 240;
/// The record without its bytes: four numbers, three lengths, state and percent.
const TOLD: u64 = 64;

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    of: BTreeMap<MessageId, Box<Track>>,
    /// An index over `of`.
    names: BTreeSet<(Arc<[u8]>, MessageId)>,
    /// When each is forgotten. An index over `of`.
    ends: BTreeSet<(Ms, MessageId)>,
    /// Of names of messages and queues, and of notes.
    bytes: u64,
}

fn bytes_of(track: &Track) -> u64 {
    (track.queue.as_bytes().len() + track.name.len() + track.note.len()) as u64
}

impl Tracks {
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        self.of.contains_key(&id)
    }

    /// The record of this message.
    pub(crate) fn of(&self, id: MessageId) -> Option<&Track> {
        self.of.get(&id).map(|track| &**track)
    }

    /// The outcome that is forgotten first.
    pub(crate) fn first_end(&self) -> Option<(Ms, MessageId)> {
        self.ends.first().copied()
    }

    /// Those of this name, first the one that was put last.
    pub(crate) fn named<'a>(
        &'a self,
        name: &[u8],
    ) -> impl Iterator<Item = (MessageId, &'a Track)> + use<'a> {
        let name: Arc<[u8]> = Arc::from(name);
        let own = (name.clone(), MessageId(0))..=(name, MessageId(u64::MAX));
        let own = self.names.range(own).rev();
        own.map(|(_, id)| {
            let track = self.of.get(id);
            (
                *id,
                &**track.expect("a name of a track goes with the track"),
            )
        })
    }

    pub(super) fn set(&mut self, id: MessageId, track: Box<Track>) {
        self.remove(id);
        self.bytes += bytes_of(&track);
        let named = self.names.insert((track.name.clone(), id));
        assert!(
            named,
            "the name of an older track of this id went with that track"
        );
        let ends = self.ends.insert((track.until, id));
        assert!(
            ends,
            "the end of an older track of this id went with that track"
        );
        self.of.insert(id, track);
    }

    pub(super) fn remove(&mut self, id: MessageId) {
        if let Some(track) = self.of.remove(&id) {
            self.bytes -= bytes_of(&track);
            let named = self.names.remove(&(track.name.clone(), id));
            assert!(named, "a track is found by its name until it goes");
            let ends = self.ends.remove(&(track.until, id));
            assert!(ends, "a track has its end until it goes");
        }
    }

    /// Bytes they take in a snapshot at most.
    pub(super) fn restated_bytes(&self) -> u64 {
        self.bytes + self.of.len() as u64 * TOLD
    }

    /// The same of one that is to be kept.
    pub(crate) fn restated_size_of(track: &Track) -> u64 {
        bytes_of(track) + TOLD
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes + self.of.len() as u64 * IN_MEMORY
    }

    /// Those behind this one, for the beginning of a segment, until `left` bytes are used up.
    /// Answers the last one then.
    pub(super) fn restate(
        &self,
        after: MessageId,
        left: &mut u64,
        record: &mut dyn FnMut(&Fact),
    ) -> Option<MessageId> {
        use std::ops::Bound::{Excluded, Unbounded};
        for (&id, track) in self.of.range((Excluded(after), Unbounded)) {
            *left = left.saturating_sub(bytes_of(track) + TOLD);
            let track = Some(track.clone());
            record(&Fact::Tracked { id, track });
            if *left == 0 {
                return Some(id);
            }
        }
        None
    }

    /// # Errors
    /// An index or a sum is not what it is made from.
    pub(super) fn verify(&self) -> Result<(), String> {
        let mut bytes = 0;
        for (&id, track) in &self.of {
            bytes += bytes_of(track);
            let named = self.names.contains(&(track.name.clone(), id));
            if !named || !self.ends.contains(&(track.until, id)) {
                return Err(format!("the track of {id:?} is not found or has no end"));
            }
        }
        let counted = (self.bytes, self.names.len(), self.ends.len());
        match (bytes, self.of.len(), self.of.len()) == counted {
            true => Ok(()),
            false => Err(format!("tracks: {bytes} bytes, not {counted:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    const ID: MessageId = MessageId(1);

    #[test]
    fn each_damaged_index_is_noticed() {
        type Row = (&'static str, fn(&mut Tracks), fn(&mut Tracks));
        let rows: [Row; 5] = [
            (
                "a name of a track goes with the track",
                |t| t.of.clear(),
                |t| assert_eq!(t.named(b"").count(), 1),
            ),
            (
                "the name of an older track of this id went with that track",
                |t| t.of.clear(),
                |t| t.set(ID, Box::default()),
            ),
            (
                "the end of an older track of this id went with that track",
                |t| {
                    t.of.clear();
                    t.names.clear();
                },
                |t| t.set(ID, Box::default()),
            ),
            (
                "a track is found by its name until it goes",
                |t| t.names.clear(),
                |t| t.remove(ID),
            ),
            (
                "a track has its end until it goes",
                |t| t.ends.clear(),
                |t| t.remove(ID),
            ),
        ];
        for (reason, damage, act) in rows {
            let mut tracks = Tracks::default();
            tracks.set(ID, Box::default());
            damage(&mut tracks);
            fires(reason, || act(&mut tracks));
        }
    }
}
