//! The bucket of runs that all nodes share.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use quintet_cluster::Blobs;
use quintet_log::StorageFile;
use quintet_sim::Random;

use crate::locked;

/// Blobs in memory. Of some puts nobody knows whether they are kept.
pub(super) struct Bucket(Mutex<State>);

struct State {
    /// By name; none: it was deleted, and no blob is called so again.
    blobs: BTreeMap<String, Option<Vec<u8>>>,
    random: Random,
    fails: bool,
}

impl Bucket {
    pub(super) fn new(seed: u64, fails: bool) -> Self {
        Self(Mutex::new(State {
            blobs: BTreeMap::new(),
            random: Random::new(seed),
            fails,
        }))
    }

    /// Nothing fails any more.
    pub(super) fn heal(&self) {
        locked(&self.0).fails = false;
    }

    /// How many were ever kept, and how many are.
    pub(super) fn counts(&self) -> [usize; 2] {
        let state = locked(&self.0);
        let kept = state.blobs.values().flatten().count();
        [state.blobs.len(), kept]
    }
}

impl Blobs for Bucket {
    fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(content.len()?).unwrap_or(usize::MAX)];
        content.read_at(0, &mut bytes)?;
        let state = &mut *locked(&self.0);
        let broken = state.fails && state.random.chance(1, 8);
        if broken && state.random.chance(1, 2) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if state.blobs.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.blobs.insert(name.to_owned(), Some(bytes));
        match broken {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
        let state = locked(&self.0);
        let Some(Some(bytes)) = state.blobs.get(name) else {
            return Ok(false);
        };
        to.write_at(0, bytes)?;
        Ok(true)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        if let Some(blob) = locked(&self.0).blobs.get_mut(name) {
            *blob = None;
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = locked(&self.0);
        let kept = state.blobs.iter().filter(|(_, blob)| blob.is_some());
        Ok(kept.map(|(name, _)| name.clone()).collect())
    }
}
