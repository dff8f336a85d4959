//! The files of the segments, for readers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::error::OfStorage as _;
use crate::{
    LogError, ReadBodies, Result, SegmentNumber, Storage, StorageFile, segment::segment_name,
};

/// Files kept open beyond those in use. A log of many segments must not use up the descriptors
/// that connections need; readers seldom go back far.
const OPEN_MAX: usize = 32;

/// Which segments there are, and those of their files that are open.
pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_number: BTreeMap<SegmentNumber, Slot>,
    clock: u64,
}

#[derive(Default)]
struct Slot {
    file: Option<Arc<dyn StorageFile>>,
    used: u64,
}

impl Files {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            slots: Mutex::default(),
        }
    }

    /// Makes a segment readable.
    pub(crate) fn add(&self, number: SegmentNumber, file: Option<Arc<dyn StorageFile>>) {
        let mut slots = self.lock();
        slots.clock += 1;
        let used = slots.clock;
        slots.by_number.insert(number, Slot { file, used });
    }

    /// Takes a segment from readers. Those that have its file keep it; the file is `None` where
    /// nobody has.
    pub(crate) fn take(&self, number: SegmentNumber) -> Option<Arc<dyn StorageFile>> {
        self.lock().by_number.remove(&number)?.file
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadBodies for Files {
    fn open(&self, segment: SegmentNumber) -> Result<Arc<dyn StorageFile>> {
        let mut slots = self.lock();
        slots.clock += 1;
        let clock = slots.clock;
        let slot = slots
            .by_number
            .get_mut(&segment)
            .ok_or(LogError::NoSegment(segment))?;
        slot.used = clock;
        if let Some(file) = &slot.file {
            return Ok(Arc::clone(file));
        }
        let name = segment_name(segment);
        let file = self.storage.open(&name).or_io("open", &name)?;
        slot.file = Some(Arc::clone(&file));
        slots.close_one();
        Ok(file)
    }

    fn name(&self, segment: SegmentNumber) -> String {
        segment_name(segment)
    }
}

impl Slots {
    /// Closes the file longest unused when too many are open; never one that somebody holds, as
    /// retiring a segment must see that.
    fn close_one(&mut self) {
        let slots = self.by_number.values();
        if slots.filter(|slot| slot.file.is_some()).count() <= OPEN_MAX {
            return;
        }
        let unheld = |slot: &&mut Slot| {
            slot.file
                .as_ref()
                .is_some_and(|file| Arc::strong_count(file) == 1)
        };
        let unheld = self.by_number.values_mut().filter(unheld);
        if let Some(slot) = unheld.min_by_key(|slot| slot.used) {
            slot.file = None;
        }
    }
}
