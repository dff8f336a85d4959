//! Run files in a cluster: kept by somebody who replicates them, cached whole on each node.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quintet_log::{Storage, StorageFile, run::RunName};

/// Files that others keep and replicate, by name. What has a name has one content for ever: no name
/// is used twice, also when what it named is gone.
///
/// Calls wait for as long as it takes, or fails to.
pub trait Blobs: Send + Sync {
    /// Keeps the content of a file under `name`. Replicated when this returns.
    ///
    /// # Errors
    /// `AlreadyExists`: the name was used. Others: it is not kept, or nobody knows.
    fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()>;

    /// Writes what is kept under `name` to a file, from its beginning; false: nothing is.
    ///
    /// # Errors
    /// It could not be read whole, or not be written; the file may hold anything.
    fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool>;

    /// Keeps it no longer. There need be nothing.
    ///
    /// # Errors
    /// It may still be kept.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// All names, in no order.
    ///
    /// # Errors
    /// Nobody answers.
    fn list(&self) -> io::Result<Vec<String>>;
}

/// A directory of runs whose finished files are blobs as well.
///
/// A run gets its name when it was stored as a blob, so what a log names is replicated before. A
/// run that is not here is fetched when it is opened. One that is removed goes here at once, and
/// among the blobs with [`CachedRuns::clear`]. Only what is here is listed. Files under other names
/// stay here alone.
pub struct CachedRuns {
    disk: Arc<dyn Storage>,
    blobs: Arc<dyn Blobs>,
    /// One is fetched at a time.
    fetching: Mutex<()>,
    /// Owners whose blobs are to go.
    removed: Mutex<BTreeSet<String>>,
}

impl CachedRuns {
    /// Caches in `disk`, which may hold some already.
    pub fn new(disk: Arc<dyn Storage>, blobs: Arc<dyn Blobs>) -> Self {
        Self {
            disk,
            blobs,
            fetching: Mutex::new(()),
            removed: Mutex::default(),
        }
    }

    /// Whether the run is in the cache.
    pub fn has(&self, name: RunName) -> bool {
        self.disk.open_read(&name.to_string()).is_ok()
    }

    /// The cache alone: what is not in it is not found.
    pub fn cache(&self) -> &dyn Storage {
        &*self.disk
    }

    /// Takes a damaged file out of the cache, so that the run is fetched again.
    ///
    /// # Errors
    /// It is still there.
    pub fn forget(&self, name: RunName) -> io::Result<()> {
        remove_if_there(&*self.disk, &name.to_string())
    }

    /// Brings a run into the cache, if it is not there.
    ///
    /// # Errors
    /// `NotFound` when it is nowhere; else it could not be fetched, or there is no room for it.
    pub fn fetch(&self, name: RunName) -> io::Result<()> {
        self.opened(&name.to_string()).map(drop)
    }

    /// Whether there is a removed run whose blob is still there.
    pub fn has_removed(&self) -> bool {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        !removed.is_empty()
    }

    /// Deletes the blobs of runs that were removed, and of those that `is_left_over`.
    ///
    /// # Errors
    /// Nobody answers; what is left is tried again the next time.
    pub fn clear(&self, is_left_over: &dyn Fn(RunName) -> bool) -> io::Result<()> {
        let lock = || self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        for name in self.blobs.list()? {
            if RunName::parse(&name).is_some_and(is_left_over) {
                lock().insert(name);
            }
        }
        loop {
            let Some(name) = lock().first().cloned() else {
                return Ok(());
            };
            self.blobs.delete(&name)?;
            lock().remove(&name);
        }
    }

    /// Opens a run, fetching it first where it is not here.
    fn opened(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        match self.disk.open_read(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            here => return here,
        }
        let _one: MutexGuard<'_, ()> = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have fetched it meanwhile.
        if let Ok(here) = self.disk.open_read(name) {
            return Ok(here);
        }
        // Cleared away with the runs that were never finished, if this is its end.
        let coming = format!("{}.get.tmp", name.trim_end_matches(".qrun"));
        remove_if_there(&*self.disk, &coming)?;
        let file = self.disk.create(&coming)?;
        let fetched = self.blobs.get(name, &*file).and_then(|found| match found {
            true => self.disk.rename(&coming, name),
            false => {
                let why = format!("{name} is neither here nor among the cluster's runs");
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
        });
        if fetched.is_err() {
            remove_if_there(&*self.disk, &coming)?;
        }
        fetched?;
        self.disk.open_read(name)
    }
}

fn remove_if_there(disk: &dyn Storage, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn is_run(name: &str) -> bool {
    RunName::parse(name).is_some()
}

impl Storage for CachedRuns {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name)
    }

    fn open_read(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        match is_run(name) {
            true => self.opened(name),
            false => self.disk.open_read(name),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if is_run(to) {
            let put = self.blobs.put(to, &*self.disk.open_read(from)?);
            // As a full disk: it is tried again, with another number, and nothing was named.
            put.map_err(|error| {
                let why = format!("{to} could not be replicated: {error}");
                io::Error::new(io::ErrorKind::StorageFull, why)
            })?;
        }
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if is_run(name) {
            let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
            removed.insert(name.to_owned());
            drop(removed);
            return remove_if_there(&*self.disk, name);
        }
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn link_into(&self, name: &str, target: &dyn Storage) -> io::Result<bool> {
        self.disk.link_into(name, target)
    }

    fn path(&self) -> Option<&Path> {
        self.disk.path()
    }

    fn random(&self) -> u64 {
        self.disk.random()
    }
}
