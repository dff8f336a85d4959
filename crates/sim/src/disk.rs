//! A disk that loses what a real one may lose.
//!
//! Every file has a page cache and a durable content. A write changes the cache; a sync makes the
//! file durable; a power cut keeps any choice of the pages not synced, each in any of its versions
//! since, or torn between two of them. Changes to the directory are likewise durable only once the
//! directory is synced. A sync that fails forgets which pages were dirty, as Linux does.
//!
//! The model is stricter than most file systems: what works here needs no particular one.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quintet_log::{Storage, StorageFile};

use crate::random::Random;

/// The unit that is written whole or torn: the sector of old disks, the smallest there is.
const PAGE_BYTES: usize = 512;

/// A directory on a simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Drive>>);

/// The event in place of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with EIO. A sync that fails so leaves its pages clean in the cache and lost on the
    /// disk.
    Io,
    /// It fails with ENOSPC; a write has stored the given number of bytes
    /// first, though never all.
    NoSpace(usize),
    /// The same with another error for want of room: EDQUOT, EFBIG.
    Refused(io::ErrorKind, usize),
    /// A write stores at most this many bytes (at least 1) and says so.
    Short(usize),
    /// The power goes: a write has stored this many bytes in the cache, anything else did nothing,
    /// and every operation from now on fails.
    PowerOff(usize),
}

/// The part of the unsynced state that a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it: also what `kill -9` leaves.
    Everything,
    /// None of it.
    Synced,
    /// Bit by bit: the first bits for the directory changes, the next for the unsynced pages of all
    /// files, each kept in its newest version or lost. [`SimDisk::unsynced`] says how many there
    /// are; files have the newest length of which a page survived.
    Chosen(u64),
    /// A choice drawn from the seed: any pages, any versions, torn pages, any directory changes.
    Random(u64),
}

/// The disk's content, and its planned faults.
struct Drive {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    dir: BTreeMap<String, u64>,
    durable_dir: BTreeMap<String, u64>,
    pending: Vec<DirChange>,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    writes: BTreeMap<u64, usize>,
    reads: u64,
    read_faults: BTreeMap<u64, Fault>,
    capacity: u64,
    off: bool,
    random: Random,
}

#[derive(Clone, Default)]
struct Inode {
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// Pages written since the last sync, with every content they had, oldest first.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// The part that a power cut keeps, drawn one thing at a time.
enum Choice {
    Everything,
    Bits(u64),
    Random(Random),
}

impl Choice {
    fn keeps(&mut self) -> bool {
        match self {
            Self::Everything => true,
            Self::Bits(bits) => {
                let keep = *bits & 1 == 1;
                *bits >>= 1;
                keep
            }
            Self::Random(random) => random.chance(1, 2),
        }
    }
}

#[derive(Clone)]
enum DirChange {
    Link {
        name: String,
        inode: u64,
    },
    Unlink {
        name: String,
    },
    Rename {
        inode: u64,
        from: String,
        to: String,
    },
}

impl SimDisk {
    /// An empty directory. `seed` decides the numbers [`Storage::random`] gives.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Drive {
            inodes: BTreeMap::new(),
            next_inode: 1,
            dir: BTreeMap::new(),
            durable_dir: BTreeMap::new(),
            pending: Vec::new(),
            operations: 0,
            faults: BTreeMap::new(),
            writes: BTreeMap::new(),
            reads: 0,
            read_faults: BTreeMap::new(),
            capacity: u64::MAX,
            off: false,
            random: Random::new(seed),
        })))
    }

    /// Operations so far that change something or sync; the first is number 1.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Reads so far; the first is number 1.
    pub fn reads(&self) -> u64 {
        self.lock().reads
    }

    /// How many bytes operation `number` wanted to write, if it was a write.
    pub fn write_len(&self, number: u64) -> Option<usize> {
        self.lock().writes.get(&number).copied()
    }

    /// Directory changes and pages that are not durable.
    pub fn unsynced(&self) -> usize {
        let state = self.lock();
        let pages: usize = state.inodes.values().map(|inode| inode.dirty.len()).sum();
        state.pending.len() + pages
    }

    /// Lets operation `number` meet `fault`.
    pub fn fault_at(&self, number: u64, fault: Fault) {
        self.lock().faults.insert(number, fault);
    }

    /// Lets read `number` fail with EIO.
    pub fn fail_read_at(&self, number: u64) {
        self.lock().read_faults.insert(number, Fault::Io);
    }

    /// Forgets the faults that were planned.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.read_faults.clear();
    }

    /// Bytes all files together may have before writes fail with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Bytes all files together have.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Cuts the power and returns the disk as the next start finds it. This one stays off. What
    /// was planned is forgotten.
    pub fn power_cut(&self, keep: Keep) -> Self {
        let mut state = self.lock();
        state.off = true;
        let mut choice = match keep {
            Keep::Everything => Choice::Everything,
            Keep::Synced => Choice::Bits(0),
            Keep::Chosen(bits) => Choice::Bits(bits),
            Keep::Random(seed) => Choice::Random(Random::new(seed)),
        };
        let mut dir = state.durable_dir.clone();
        for change in &state.pending {
            if choice.keeps() {
                change.apply(&mut dir);
            }
        }
        let survive = |(number, inode): (&u64, &Inode)| (*number, inode.after(&mut choice));
        let mut inodes: BTreeMap<u64, Inode> = state.inodes.iter().map(survive).collect();
        inodes.retain(|number, _| dir.values().any(|linked| linked == number));
        let after = Self::new(state.random.next_u64());
        let mut fresh = after.lock();
        fresh.inodes = inodes;
        fresh.next_inode = state.next_inode;
        fresh.durable_dir = dir.clone();
        fresh.dir = dir;
        drop(fresh);
        after
    }

    /// A copy of the disk, cache and all, that goes its own way.
    pub fn fork(&self) -> Self {
        let state = self.lock();
        let copy = Self::new(0);
        let mut fresh = copy.lock();
        fresh.inodes = state.inodes.clone();
        fresh.next_inode = state.next_inode;
        fresh.dir = state.dir.clone();
        fresh.durable_dir = state.durable_dir.clone();
        fresh.pending = state.pending.clone();
        fresh.capacity = state.capacity;
        fresh.random = state.random.clone();
        drop(fresh);
        copy
    }

    /// The whole content of a file, for tests that look or damage.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        state
            .dir
            .get(name)
            .map(|inode| state.inodes[inode].cache.clone())
    }

    /// Replaces the whole content of a file, durably and behind everyone's back; makes it where
    /// there is none.
    pub fn set_content(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let number = match state.dir.get(name) {
            Some(number) => *number,
            None => {
                let number = state.next_inode;
                state.next_inode += 1;
                state.dir.insert(name.to_owned(), number);
                state.durable_dir.insert(name.to_owned(), number);
                number
            }
        };
        let inode = Inode {
            cache: bytes.to_vec(),
            durable: bytes.to_vec(),
            dirty: BTreeMap::new(),
        };
        state.inodes.insert(number, inode);
    }

    fn lock(&self) -> MutexGuard<'_, Drive> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, inode: u64) -> Arc<dyn StorageFile> {
        Arc::new(SimFile {
            disk: self.clone(),
            inode,
        })
    }
}

impl Drive {
    /// Counts an operation; the fault it meets, if it is one that lets part of a write through.
    fn operation(&mut self) -> io::Result<Option<Fault>> {
        if self.off {
            return Err(power_off());
        }
        self.operations += 1;
        match self.faults.remove(&self.operations) {
            Some(Fault::Io) => Err(eio()),
            fault => Ok(fault),
        }
    }

    /// Counts an operation that is done whole or not at all.
    fn whole_operation(&mut self) -> io::Result<()> {
        match self.operation()? {
            None | Some(Fault::Short(_)) => Ok(()),
            Some(Fault::NoSpace(_)) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Refused(kind, _)) => Err(kind.into()),
            Some(Fault::PowerOff(_)) => {
                self.off = true;
                Err(power_off())
            }
            Some(Fault::Io) => Err(eio()),
        }
    }

    fn read(&mut self) -> io::Result<()> {
        if self.off {
            return Err(power_off());
        }
        self.reads += 1;
        if self.read_faults.remove(&self.reads).is_some() {
            return Err(eio());
        }
        Ok(())
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        self.dir
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn links(&self, inode: u64) -> u64 {
        self.dir.values().filter(|number| **number == inode).count() as u64
    }

    /// Bytes that may still be written. All files are counted only where there is a limit.
    fn room(&self) -> u64 {
        match self.capacity {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(self.used()),
        }
    }

    fn used(&self) -> u64 {
        let linked = self
            .inodes
            .iter()
            .filter(|(number, _)| self.links(**number) > 0);
        linked.map(|(_, inode)| inode.cache.len() as u64).sum()
    }
}

impl DirChange {
    fn apply(&self, dir: &mut BTreeMap<String, u64>) {
        match self {
            Self::Link { name, inode } => {
                dir.insert(name.clone(), *inode);
            }
            Self::Unlink { name } => {
                dir.remove(name);
            }
            Self::Rename { inode, from, to } => {
                if dir.get(from) == Some(inode) {
                    dir.remove(from);
                }
                dir.insert(to.clone(), *inode);
            }
        }
    }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.cache.len() < end {
            resize(&mut self.cache, end);
        }
        self.cache[offset..end].copy_from_slice(bytes);
        if bytes.is_empty() {
            return;
        }
        for page in offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
            let content = page_of(&self.cache, page);
            self.dirty.entry(page).or_default().push(content);
        }
    }

    fn sync(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        resize(&mut self.durable, self.cache.len());
        for page in dirty.into_keys() {
            let content = page_of(&self.cache, page);
            put_page(&mut self.durable, page, &content);
        }
    }

    fn after(&self, choice: &mut Choice) -> Self {
        let content = match choice {
            Choice::Everything => self.cache.clone(),
            Choice::Bits(_) => self.chosen(choice),
            Choice::Random(random) => self.torn(random),
        };
        Self {
            durable: content.clone(),
            cache: content,
            dirty: BTreeMap::new(),
        }
    }

    fn chosen(&self, choice: &mut Choice) -> Vec<u8> {
        let mut content = self.durable.clone();
        for page in self.dirty.keys() {
            if choice.keeps() {
                if content.len() < self.cache.len() {
                    resize(&mut content, self.cache.len());
                }
                put_page(&mut content, *page, &page_of(&self.cache, *page));
            }
        }
        content
    }

    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let (old, new) = (self.durable.len(), self.cache.len());
        let len = match random.below(4) {
            0 => old,
            1 => old.min(new) + random.index(old.abs_diff(new) + 1),
            _ => new,
        };
        let mut content = self.durable.clone();
        resize(&mut content, len);
        for (page, versions) in &self.dirty {
            let mut survivor = page_of(&self.durable, *page);
            let stored = random.index(versions.len() + 1);
            if stored > 0 {
                survivor.clone_from(&versions[stored - 1]);
            }
            if stored < versions.len() && random.chance(1, 4) {
                // The write of the next version was under way.
                let torn = random.index(PAGE_BYTES + 1);
                survivor[..torn].copy_from_slice(&versions[stored][..torn]);
            }
            put_page(&mut content, *page, &survivor);
        }
        content
    }
}

/// Cuts it, or adds zeros. The allocator has these: [`Vec::resize`] writes one by one where little
/// is optimised, which was most of the time of some tests.
fn resize(bytes: &mut Vec<u8>, len: usize) {
    match len.checked_sub(bytes.len()) {
        Some(_) if bytes.is_empty() => *bytes = vec![0; len],
        Some(more) => bytes.extend_from_slice(&vec![0_u8; more]),
        None => bytes.truncate(len),
    }
}

fn page_of(bytes: &[u8], page: usize) -> Vec<u8> {
    let mut content = vec![0; PAGE_BYTES];
    let start = (page * PAGE_BYTES).min(bytes.len());
    let end = (start + PAGE_BYTES).min(bytes.len());
    content[..end - start].copy_from_slice(&bytes[start..end]);
    content
}

fn put_page(bytes: &mut [u8], page: usize, content: &[u8]) {
    let start = (page * PAGE_BYTES).min(bytes.len());
    let end = (start + PAGE_BYTES).min(bytes.len());
    bytes[start..end].copy_from_slice(&content[..end - start]);
}

fn eio() -> io::Error {
    io::Error::other("simulated input/output error")
}

fn power_off() -> io::Error {
    io::Error::other("simulated power cut")
}

impl Storage for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.lock();
        state.whole_operation()?;
        if state.dir.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.dir.insert(name.to_owned(), inode);
        state.pending.push(DirChange::Link {
            name: name.to_owned(),
            inode,
        });
        drop(state);
        Ok(self.handle(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.lock();
        state.read()?;
        let inode = state.find(name)?;
        drop(state);
        Ok(self.handle(inode))
    }

    fn open_read(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.read()?;
        Ok(state.dir.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.whole_operation()?;
        let inode = state.find(from)?;
        let change = DirChange::Rename {
            inode,
            from: from.to_owned(),
            to: to.to_owned(),
        };
        change.apply(&mut state.dir);
        state.pending.push(change);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.whole_operation()?;
        state.find(name)?;
        let change = DirChange::Unlink {
            name: name.to_owned(),
        };
        change.apply(&mut state.dir);
        state.pending.push(change);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.whole_operation()?;
        state.pending.clear();
        state.durable_dir = state.dir.clone();
        Ok(())
    }

    fn link_into(&self, _name: &str, _target: &dyn Storage) -> io::Result<bool> {
        Ok(false)
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn random(&self) -> u64 {
        self.lock().random.next_u64()
    }
}

struct SimFile {
    disk: SimDisk,
    inode: u64,
}

impl SimFile {
    fn with<T>(&self, state: &mut Drive, change: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let inode = state
            .inodes
            .get_mut(&self.inode)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(change(inode))
    }
}

impl StorageFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        let fault = state.operation()?;
        let number = state.operations;
        state.writes.insert(number, bytes.len());
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let len = self.with(&mut state, |inode| inode.cache.len())?;
        let growth = (offset + bytes.len()).saturating_sub(len);
        let room = usize::try_from(state.room()).unwrap_or(usize::MAX);
        let fits = bytes.len() - growth.saturating_sub(room).min(bytes.len());
        let (stored, result) = match fault {
            Some(Fault::PowerOff(torn)) => {
                state.off = true;
                (torn.min(bytes.len()), Err(power_off()))
            }
            Some(Fault::NoSpace(first)) => (
                first.min(bytes.len()),
                Err(io::ErrorKind::StorageFull.into()),
            ),
            Some(Fault::Refused(kind, first)) => (first.min(bytes.len()), Err(kind.into())),
            Some(Fault::Short(most)) => {
                let some = most.clamp(1, bytes.len().max(1)).min(bytes.len());
                (some, Ok(some))
            }
            _ if fits == 0 && !bytes.is_empty() => (0, Err(io::ErrorKind::StorageFull.into())),
            _ => (fits, Ok(fits)),
        };
        self.with(&mut state, |inode| inode.write(offset, &bytes[..stored]))?;
        result
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.read()?;
        self.with(&mut state, |inode| {
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(inode.cache.len());
            let len = bytes.len().min(inode.cache.len() - start);
            bytes[..len].copy_from_slice(&inode.cache[start..start + len]);
            len
        })
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.read()?;
        self.with(&mut state, |inode| inode.cache.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.whole_operation()?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.with(&mut state, |inode| {
            resize(&mut inode.cache, len);
            // Pages behind the cut are gone; the one it goes through has a new content.
            inode.dirty.retain(|page, _| page * PAGE_BYTES < len);
            if !len.is_multiple_of(PAGE_BYTES) {
                let page = len / PAGE_BYTES;
                let content = page_of(&inode.cache, page);
                inode.dirty.entry(page).or_default().push(content);
            }
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.whole_operation()?;
        let to = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let here = self.with(&mut state, |inode| inode.cache.len() as u64)?;
        if len.saturating_sub(here) > state.room() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(&mut state, |inode| {
            let longer = inode.cache.len().max(to);
            resize(&mut inode.cache, longer);
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let result = state.whole_operation();
        let off = state.off;
        self.with(&mut state, |inode| match &result {
            Ok(()) => inode.sync(),
            Err(_) if off => {}
            // The cache goes on showing what the disk will never have.
            Err(_) => inode.dirty.clear(),
        })?;
        result
    }

    fn links(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.read()?;
        Ok(state.links(self.inode))
    }
}
