//! Runs of a cluster on this node: fetched while it follows, cleared away while it owns.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quintet_cluster::CachedRuns;
use quintet_jetstream::Objects;
use quintet_log::run::RunName;
use quintet_log::{Disk, Storage};
use quintet_nodes::RUNS;

use crate::server::Server;

/// Pause between two tries of what failed.
const AGAIN: Duration = Duration::from_secs(1);
/// Runs that were removed are deleted in JetStream this often ...
const CLEAR: Duration = Duration::from_secs(10);
/// ... and what others left behind.
const SWEEP: Duration = Duration::from_secs(600);

/// Run files, here and in JetStream.
pub(super) struct Runs {
    cached: Arc<CachedRuns>,
    wanted: SyncSender<Vec<RunName>>,
    missing: Arc<AtomicU64>,
}

impl Runs {
    /// Caches in the data directory `data`.
    ///
    /// # Errors
    /// The folder cannot be made; there is no thread to be had.
    pub(super) fn open(data: &Path, objects: Objects) -> Result<Self> {
        let folder = data.join(RUNS);
        quintet_log::make_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let disk: Arc<dyn Storage> = Arc::new(Disk::new(folder));
        let cached = Arc::new(CachedRuns::new(disk, Arc::new(objects)));
        let missing = Arc::new(AtomicU64::new(0));
        // The newest list counts: one that finds no place comes again.
        let (wanted, lists) = sync_channel(1);
        let (runs, counts) = (Arc::downgrade(&cached), Arc::clone(&missing));
        let thread = std::thread::Builder::new().name("runs".to_owned());
        thread
            .spawn(move || fetch_all(&runs, &counts, &lists))
            .context("cannot start a thread")?;
        Ok(Self {
            cached,
            wanted,
            missing,
        })
    }

    /// Has these fetched, in the background.
    pub(super) fn want(&self, runs: Vec<RunName>) {
        match self.wanted.try_send(runs) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// How many of those are not here, as far as is known.
    pub(super) fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }

    /// Brings these here, and says where they are.
    ///
    /// # Errors
    /// One of them is nowhere.
    pub(super) fn complete(&self, runs: &[RunName]) -> Result<Arc<dyn Storage>> {
        for &run in runs {
            while let Err(error) = self.cached.fetch(run) {
                if error.kind() == ErrorKind::NotFound {
                    return Err(anyhow!(
                        "{run} holds messages and is gone from JetStream's bucket: {error}"
                    ));
                }
                tracing::warn!("cannot fetch {run}, which this node needs to own: {error}");
                std::thread::sleep(AGAIN);
            }
        }
        Ok(Arc::<CachedRuns>::clone(&self.cached))
    }

    /// Clears away what nobody needs, for as long as `server` serves.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn clear_for(&self, server: &Weak<Server>) -> Result<()> {
        let (runs, server) = (Arc::downgrade(&self.cached), Weak::clone(server));
        let body = move || {
            let mut swept: Option<Instant> = None;
            loop {
                std::thread::sleep(CLEAR);
                let (Some(runs), Some(server)) = (runs.upgrade(), server.upgrade()) else {
                    return;
                };
                let due = swept.is_none_or(|swept| swept.elapsed() > SWEEP);
                if !due && !runs.has_removed() {
                    continue;
                }
                match runs.clear(&|run| server.core.is_left_over(run)) {
                    Ok(()) => swept = Some(Instant::now()),
                    Err(error) => tracing::debug!("cannot clear runs away: {error}"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("runs-clear".to_owned());
        thread.spawn(body).context("cannot start a thread")?;
        Ok(())
    }
}

/// Fetches what the newest list has, until nobody sends one.
fn fetch_all(runs: &Weak<CachedRuns>, missing: &AtomicU64, lists: &Receiver<Vec<RunName>>) {
    while let Ok(list) = lists.recv() {
        let Some(runs) = runs.upgrade() else {
            return;
        };
        let absent: Vec<RunName> = list.into_iter().filter(|run| !runs.has(*run)).collect();
        missing.store(absent.len() as u64, Ordering::Relaxed);
        for run in absent {
            match runs.fetch(run) {
                Ok(()) => drop(missing.fetch_sub(1, Ordering::Relaxed)),
                Err(error) => {
                    // It may have been removed meanwhile; the next list says so.
                    tracing::info!("cannot fetch {run} now: {error}");
                    break;
                }
            }
        }
    }
}
