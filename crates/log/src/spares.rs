//! Spare segments: whole files made ahead of need, because syncing a file that need not grow costs
//! a third to a half less, and because a full disk must leave room for what frees it.

use std::io::ErrorKind;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::error::OfStorage as _;
use crate::narrow::to_usize;
use crate::{
    LogError, Result, Storage, StorageFile,
    segment::{spare_name, spare_tmp_name},
    storage::write_all,
};

/// Bytes written and synced at once. A sync of the log that falls behind one of these waits for
/// one slice, not for a segment.
const SLICE_BYTES: usize = 1 << 20;

/// Bytes of one write. What is written at once the page cache may keep as one folio, and every
/// later write into it looks at all its blocks: in a file filled 1 MiB at a time an append of 600
/// bytes took 2.9 us and one of 10,000 bytes 4.2; in pieces of 64 KiB 1.8 and 2.8 (Linux 6.18,
/// ext4).
const WRITE_BYTES: usize = 64 << 10;

static ZEROS: [u8; WRITE_BYTES] = [0; WRITE_BYTES];

/// Length of the files of a log that is new, bytes: they become longer as the log fills them.
const FIRST_BYTES: u64 = 2 << 20;

/// A spare file.
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) bytes: u64,
}

/// Keeps the spare segments. Shared with a background thread of the caller, which calls
/// [`Spares::fill_slice`]; without one, segments grow as they are written.
#[derive(Clone)]
pub struct Spares(Arc<Pool>);

struct Pool {
    storage: Arc<dyn Storage>,
    /// Length of the next spare, bytes.
    bytes: AtomicU64,
    /// The same at most.
    most: u64,
    want: usize,
    ready: Mutex<Ready>,
    filling: Mutex<Option<Filling>>,
    low: AtomicBool,
    /// The system's error at that time.
    why: Mutex<String>,
}

#[derive(Default)]
struct Ready {
    files: Vec<Spare>,
    next_number: u32,
}

struct Filling {
    number: u32,
    file: Arc<dyn StorageFile>,
    /// Length it is to have, bytes.
    bytes: u64,
    done: u64,
    /// It has a spare's name, which may not be durable.
    named: bool,
}

/// How the spares stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpareState {
    Ready,
    /// One is being filled: call again.
    Filling,
    /// The disk is full: try again later.
    Low,
}

impl Spares {
    /// `found` are the spares a directory already has, of `most` bytes at most each; `last` is the
    /// length of the segment that was written last, 0 without one. The length of the files begins
    /// with the longest of these.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        most: u64,
        want: usize,
        found: Vec<Spare>,
        next_number: u32,
        last: u64,
    ) -> Self {
        let longest = found.iter().map(|spare| spare.bytes).fold(last, u64::max);
        let bytes = match want {
            0 => most,
            _ => longest.max(FIRST_BYTES).min(most),
        };
        Self(Arc::new(Pool {
            storage,
            bytes: AtomicU64::new(bytes),
            most,
            want,
            ready: Mutex::new(Ready {
                files: found,
                next_number,
            }),
            filling: Mutex::new(None),
            low: AtomicBool::new(false),
            why: Mutex::default(),
        }))
    }

    /// Fills one slice (1 MiB at most, written and synced) of a missing spare. Never blocks the
    /// log. How fast it may go is the caller's to say, by when it calls.
    ///
    /// # Errors
    /// The storage failed. The spare is given up; the log itself goes on.
    pub fn fill_slice(&self) -> Result<SpareState> {
        let pool = &*self.0;
        let mut filling = pool.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if !pool.wants() {
            pool.low.store(false, Ordering::Release);
            return Ok(SpareState::Ready);
        }
        match pool.fill(&mut filling) {
            Ok(complete) => {
                if complete {
                    pool.low.store(false, Ordering::Release);
                }
                Ok(match pool.wants() {
                    true => SpareState::Filling,
                    false => SpareState::Ready,
                })
            }
            Err(error @ LogError::NoSpace { .. }) => {
                // What is filled so far is kept: it is the first thing the spare needs, and
                // starting over would write it again at every try.
                pool.become_low(&error);
                Ok(SpareState::Low)
            }
            Err(error) => {
                if let Some(given_up) = filling.take() {
                    // Best effort: the next start removes it.
                    pool.storage.remove(&spare_tmp_name(given_up.number)).ok();
                }
                Err(error)
            }
        }
    }

    /// Fills until every spare is there, the disk is full, or `stop` is set; without a pause.
    ///
    /// # Errors
    /// As [`Spares::fill_slice`].
    pub fn fill(&self, stop: &AtomicBool) -> Result<SpareState> {
        loop {
            let state = self.fill_slice()?;
            if state != SpareState::Filling || stop.load(Ordering::Acquire) {
                return Ok(state);
            }
        }
    }

    /// Whether a spare could not be made because the disk is full. While it is so, accept only
    /// what frees space: there may be no segment after this one and the spares that are left.
    /// Becomes false once a whole spare could be made, or one was recycled.
    pub fn low(&self) -> bool {
        self.0.low.load(Ordering::Acquire)
    }

    /// The system's error when [`Spares::low`] last became true.
    pub fn why(&self) -> String {
        let why = self.0.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.clone()
    }

    /// True if a spare segment is ready for use.
    pub fn any(&self) -> bool {
        !self.0.ready().files.is_empty()
    }

    /// Sees to it that there is one, at once: the first segment must not be one that a full disk
    /// keeps from growing. The room is taken without writing, where the file system can.
    ///
    /// # Errors
    /// The storage failed. That the disk is full is none: the log can go on as far as it gets.
    pub(crate) fn ahead(&self) -> Result<()> {
        let pool = &*self.0;
        if self.any() {
            return Ok(());
        }
        let number = pool.ready().take_number();
        match pool.allocate(number) {
            Err(error @ LogError::NoSpace { .. }) => {
                // Best effort: the next start removes it.
                pool.storage.remove(&spare_tmp_name(number)).ok();
                pool.become_low(&error);
                Ok(())
            }
            done => done,
        }
    }

    /// The longest spare, if there is one.
    pub(crate) fn take(&self) -> Option<Spare> {
        let mut ready = self.0.ready();
        let longest = ready.files.iter().enumerate();
        let (at, _) = longest.max_by_key(|(_, spare)| spare.bytes)?;
        Some(ready.files.remove(at))
    }

    /// Length of the spare that would be taken, bytes.
    pub(crate) fn next_bytes(&self) -> Option<u64> {
        self.0.ready().files.iter().map(|spare| spare.bytes).max()
    }

    /// Whether a file of the right length would be kept.
    pub(crate) fn wanted(&self) -> bool {
        self.0.wants()
    }

    /// A name for a file about to become a spare.
    pub(crate) fn new_name(&self) -> String {
        spare_name(self.0.ready().take_number())
    }

    /// Length of the spares that are made from now on, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The greatest length of a spare, bytes.
    pub fn most(&self) -> u64 {
        self.0.most
    }

    /// Makes the files longer from now on, up to the log's `segment_bytes`. Shorter spares stay
    /// until there is a longer one in their place. A smaller number changes nothing.
    pub fn grow(&self, bytes: u64) {
        let bytes = bytes.min(self.0.most);
        self.0.bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Adds a spare whose name is durable.
    pub(crate) fn give(&self, spare: Spare) {
        self.0.low.store(false, Ordering::Release);
        self.0.add(spare);
    }
}

impl Pool {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether one of the right length is missing.
    fn wants(&self) -> bool {
        let bytes = self.bytes();
        let ready = self.ready();
        let long = ready.files.iter().filter(|spare| spare.bytes >= bytes);
        long.count() < self.want
    }

    /// Adds a spare, and removes the shortest if there is one too many.
    fn add(&self, spare: Spare) {
        let shortest = {
            let mut ready = self.ready();
            ready.files.push(spare);
            if ready.files.len() <= self.want {
                return;
            }
            let files = ready.files.iter().enumerate();
            let shortest = files.min_by_key(|(_, spare)| spare.bytes);
            shortest.map(|(at, _)| at).map(|at| ready.files.remove(at))
        };
        if let Some(spare) = shortest {
            // Best effort: the next start removes it.
            self.storage.remove(&spare.name).ok();
        }
    }

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_low(&self, error: &LogError) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
        self.low.store(true, Ordering::Release);
    }

    /// A whole spare in one go.
    fn allocate(&self, number: u32) -> Result<()> {
        let tmp = spare_tmp_name(number);
        let file = self.storage.create(&tmp).or_full("create", &tmp)?;
        let bytes = self.bytes();
        match file.allocate(bytes) {
            Err(error) if error.kind() == ErrorKind::Unsupported => zero_fill(&*file, 0, bytes),
            done => done,
        }
        .and_then(|()| file.sync_data())
        .or_full("make room for", &tmp)?;
        let name = spare_name(number);
        self.storage
            .rename(&tmp, &name)
            .and_then(|()| self.storage.sync_dir())
            .or_full("rename", &tmp)?;
        self.add(Spare { name, file, bytes });
        Ok(())
    }

    /// One slice; true when it completed a spare.
    fn fill(&self, filling: &mut Option<Filling>) -> Result<bool> {
        let current = match filling {
            Some(current) => current,
            None => {
                let number = self.ready().take_number();
                let name = spare_tmp_name(number);
                let file = self.storage.create(&name).or_full("create", &name)?;
                filling.insert(Filling {
                    number,
                    file,
                    bytes: self.bytes(),
                    done: 0,
                    named: false,
                })
            }
        };
        let tmp = spare_tmp_name(current.number);
        let bytes = current.bytes;
        let slice = (bytes - current.done).min(SLICE_BYTES as u64);
        if slice > 0 {
            zero_fill(&*current.file, current.done, slice)
                .and_then(|()| current.file.sync_data())
                .or_full("zero-fill", &tmp)?;
            current.done += slice;
        }
        if current.done < bytes {
            return Ok(false);
        }
        let name = spare_name(current.number);
        if !current.named {
            self.storage.rename(&tmp, &name).or_full("rename", &tmp)?;
            current.named = true;
        }
        self.storage
            .sync_dir()
            .or_full("sync the directory of", &name)?;
        let file = Arc::clone(&current.file);
        *filling = None;
        self.add(Spare { name, file, bytes });
        Ok(true)
    }
}

impl Ready {
    fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        number
    }
}

fn zero_fill(file: &dyn StorageFile, from: u64, bytes: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes {
        let some = (bytes - done).min(WRITE_BYTES as u64);
        // At most WRITE_BYTES, so it fits.
        write_all(file, from + done, &ZEROS[..to_usize(some)])?;
        done += some;
    }
    Ok(())
}
