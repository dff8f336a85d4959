//! Runs of a cluster on this node: fetched while it follows, cleared away while it owns.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quintet_cluster::{Blobs, CachedRuns};
use quintet_host::{Core, Replay, locked, thread};
use quintet_log::run::RunName;
use quintet_log::{Disk, Storage};
use quintet_nodes::RUNS;

/// Runs that were removed are deleted in JetStream this often ...
const CLEAR: Duration = Duration::from_secs(10);
/// ... and what others left behind.
const CLEAR_ALL: Duration = Duration::from_secs(600);

/// Run files, here and in JetStream.
pub(super) struct Runs {
    cached: Arc<CachedRuns>,
    /// Runs to fetch, and the living messages in each.
    wanted: SyncSender<BTreeMap<RunName, u64>>,
    cache: Mutex<RunFetchState>,
}

#[derive(Default)]
struct RunFetchState {
    /// Runs whose files have what the log counts in them.
    whole: BTreeSet<RunName>,
    /// Runs whose files had not, each of which is fetched once more.
    bad: BTreeSet<RunName>,
    /// Runs that failed the second time too.
    hopeless: u64,
    absent: Vec<RunName>,
}

impl Runs {
    /// Caches in the data directory `data`.
    ///
    /// # Errors
    /// The folder cannot be made; there is no thread to be had.
    pub(super) fn open(data: &Path, blobs: Arc<dyn Blobs>) -> Result<Self> {
        let folder = data.join(RUNS);
        quintet_log::make_dir(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let disk: Arc<dyn Storage> = Arc::new(Disk::new(folder));
        let cached = Arc::new(CachedRuns::new(disk, blobs));
        // The newest list counts: one that finds no place comes again.
        let (wanted, lists) = sync_channel(1);
        let runs = Arc::downgrade(&cached);
        thread("runs", move || fetch_all(&runs, &lists))?;
        Ok(Self {
            cached,
            wanted,
            cache: Mutex::default(),
        })
    }

    /// Looks whether the runs that `replay` needs are here and have what it counts in them, and has
    /// the others fetched in the background.
    pub(super) fn check(&self, replay: &Replay) {
        let needed = replay.needed_runs();
        let mut cache = locked(&self.cache);
        let RunFetchState { whole, bad, .. } = &mut *cache;
        whole.retain(|run| needed.binary_search(run).is_ok());
        bad.retain(|run| needed.binary_search(run).is_ok());
        let (mut absent, mut hopeless) = (Vec::new(), 0);
        for run in needed {
            if whole.contains(&run) {
                continue;
            }
            if self.cached.has(run) {
                match replay.check_run(self.cached.cache(), run) {
                    Ok(()) => {
                        whole.insert(run);
                        continue;
                    }
                    // What JetStream has may be whole.
                    Err(error) if bad.insert(run) => {
                        tracing::error!(
                            "this node cannot take over before it has {run}: {error:#}"
                        );
                        self.cached.forget(run).unwrap_or_default();
                    }
                    Err(_) => {
                        hopeless += 1;
                        continue;
                    }
                }
            }
            absent.push(run);
        }
        cache.hopeless = hopeless;
        let wanted = absent.iter().map(|run| (*run, replay.living_in(*run)));
        let wanted = wanted.collect();
        cache.absent = absent;
        drop(cache);
        match self.wanted.try_send(wanted) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// How many of the runs that were needed at the last look are not here.
    pub(super) fn missing(&self) -> u64 {
        let cache = locked(&self.cache);
        let absent = cache.absent.iter().filter(|run| !self.cached.has(**run));
        cache.hopeless + absent.count() as u64
    }

    /// Brings these here, and says where they are. `pause` waits between two tries; `None`: it
    /// returned false, as the node has to stop.
    ///
    /// # Errors
    /// One of them is nowhere.
    pub(super) fn complete(
        &self,
        replay: &Replay,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Arc<dyn Storage>>> {
        for run in replay.needed_runs() {
            while let Err(error) = self.cached.fetch(run) {
                if error.kind() == ErrorKind::NotFound {
                    return Err(anyhow!(
                        "{run} holds {} living messages and is gone from JetStream's bucket: \
                         {error}",
                        replay.living_in(run)
                    ));
                }
                tracing::warn!(
                    "cannot fetch {run}, which this node needs to own the queues: {error}"
                );
                if !pause() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(Arc::<CachedRuns>::clone(&self.cached)))
    }

    /// Clears away what nobody needs, for as long as `core` is there.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn clear_for(&self, core: &Weak<Core>) -> Result<()> {
        let (runs, core) = (Arc::downgrade(&self.cached), Weak::clone(core));
        let body = move || {
            let mut cleared: Option<Instant> = None;
            loop {
                std::thread::sleep(CLEAR);
                let serves = core.strong_count() > 0;
                let Some(runs) = runs.upgrade().filter(|_| serves) else {
                    return;
                };
                // A node that steps down does not wait for the servers' answers.
                let is_left_over = |run| core.upgrade().is_some_and(|core| core.is_left_over(run));
                let due = cleared.is_none_or(|cleared| cleared.elapsed() > CLEAR_ALL);
                if !due && !runs.has_removed() {
                    continue;
                }
                match runs.clear(&is_left_over) {
                    Ok(()) => cleared = Some(Instant::now()),
                    Err(error) => tracing::debug!("cannot remove unneeded runs: {error}"),
                }
            }
        };
        thread("runs-clear", body)
    }
}

/// Fetches what the newest list has, until nobody sends one.
fn fetch_all(runs: &Weak<CachedRuns>, lists: &Receiver<BTreeMap<RunName, u64>>) {
    // How often each was looked for in vain.
    let mut gone: BTreeMap<RunName, u32> = BTreeMap::new();
    while let Ok(list) = lists.recv() {
        let Some(runs) = runs.upgrade() else {
            return;
        };
        gone.retain(|run, _| list.contains_key(run));
        for (run, living) in list {
            match runs.fetch(run) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // It may have been removed meanwhile; then the next list lacks it.
                    let times = gone.entry(run).or_default();
                    *times += 1;
                    if *times == 2 {
                        tracing::error!(
                            "{run} with {living} living messages is gone from JetStream's bucket: \
                             this node cannot take over without it"
                        );
                    }
                }
                Err(error) => {
                    tracing::info!("cannot fetch {run} now: {error}");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use quintet_cluster::Blobs;
    use quintet_engine::format::put_group;
    use quintet_engine::{Block, Fact};
    use quintet_host::Replay;
    use quintet_log::run::{RunName, RunNumber, RunOptions, RunWriter};
    use quintet_log::{
        Disk, Epoch, FrameKind, Position, ReplayFrame, SegmentNumber, Storage, StorageFile,
    };
    use quintet_types::{Ms, QueueId, RunId, Settings, StateIndex};

    use super::{RUNS, Runs};

    const NAME: RunName = RunName {
        shard: 0,
        number: RunNumber(7),
    };

    /// A bucket that is a folder. It answers no `get` while a test holds its lock.
    struct Bucket(Disk, Arc<Mutex<()>>);

    impl Blobs for Bucket {
        fn put(&self, _: &str, _: &dyn StorageFile) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
            let _answers = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(file) = self.0.open_read(name) else {
                return Ok(false);
            };
            let mut bytes = vec![0; usize::try_from(file.len()?).expect("short")];
            assert_eq!(file.read_at(0, &mut bytes)?, bytes.len());
            assert_eq!(to.write_at(0, &bytes)?, bytes.len());
            Ok(true)
        }

        fn delete(&self, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn list(&self) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    /// The replay of a log whose first snapshot counts so many messages in the run.
    fn counting(live: u32) -> Replay {
        let made = Fact::QueueMade {
            queue: QueueId(1),
            name: "q".into(),
            parent: None,
            created: Ms(5),
        };
        let mut block = Block::new(0, 0, QueueId(1), StateIndex::Ready);
        (block.count, block.live) = (live, live);
        let run = Fact::RunImage {
            run: RunId(7),
            block: Box::new(block),
            dead: None,
        };
        let (mut records, mut payload) = (Vec::new(), Vec::new());
        [made, run]
            .iter()
            .for_each(|fact| fact.encode(&mut records));
        put_group(&mut payload, 0, &records);
        let mut replay = Replay::new(1, &Settings::default()).expect("a shard");
        let frame = ReplayFrame {
            position: Position(0),
            epoch: Epoch(1),
            time_ms: 5,
            kind: FrameKind::Facts,
            segment: SegmentNumber(1),
            offset: 0,
            first_in_segment: true,
            count: 2,
            payload: &payload,
        };
        replay.apply(&frame).expect("whole facts");
        replay
    }

    fn write(folder: &Path, entries: u64) {
        let storage: Arc<dyn Storage> = Arc::new(Disk::new(folder));
        let mut run = RunWriter::create(storage, NAME, RunOptions::default()).expect("created");
        run.state_index(b"lane").expect("a lane");
        for id in 0..entries {
            run.push(id, None, b"payload").expect("an entry");
        }
        run.finish().expect("finished");
    }

    /// Looks until all runs are here.
    fn wait_for(runs: &Runs, replay: &Replay) {
        let began = Instant::now();
        loop {
            runs.check(replay);
            if runs.missing() == 0 {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "missing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_node_waits_for_runs_with_the_messages_that_the_log_counts() {
        let (bucket, data) = (tempfile::tempdir(), tempfile::tempdir());
        let (bucket, data) = (bucket.expect("a folder"), data.expect("a folder"));
        let answers = Arc::new(Mutex::new(()));
        let of = |folder: &Path| Arc::new(Bucket(Disk::new(folder), Arc::clone(&answers)));
        let blobs: Arc<dyn Blobs> = of(bucket.path());
        let runs = Runs::open(data.path(), blobs).expect("opened");
        let nine = counting(9);
        runs.check(&nine);
        assert_eq!(runs.missing(), 1, "it is nowhere");
        write(bucket.path(), 9);
        wait_for(&runs, &nine);
        // Damaged here, it is fetched again.
        let here = data.path().join(RUNS).join(NAME.to_string());
        std::fs::write(&here, b"no run").expect("written");
        let blobs: Arc<dyn Blobs> = of(bucket.path());
        let runs = Runs::open(data.path(), blobs).expect("opened");
        let held = answers.lock().expect("nobody panicked");
        runs.check(&nine);
        assert_eq!(runs.missing(), 1, "it is damaged");
        drop(held);
        wait_for(&runs, &nine);
        // One that lacks messages is missing, however often it is fetched.
        let ten = counting(10);
        runs.check(&Replay::new(1, &Settings::default()).expect("a shard"));
        runs.check(&ten);
        let began = Instant::now();
        while !here.exists() {
            // A list finds no place while the one before it is looked through.
            runs.check(&ten);
            assert!(began.elapsed() < Duration::from_secs(120), "not fetched");
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..3 {
            runs.check(&ten);
            assert_eq!(runs.missing(), 1, "it has nine");
        }
        let why = ten.check_run(runs.cached.cache(), NAME);
        let why = format!("{:#}", why.expect_err("it has nine"));
        assert!(why.contains("; 10 living messages are in no run"), "{why}");
        // Nor does it own without it.
        std::fs::remove_file(bucket.path().join(NAME.to_string())).expect("removed");
        runs.cached.forget(NAME).expect("forgotten");
        let why = runs
            .complete(&ten, &mut || true)
            .err()
            .expect("it is nowhere")
            .to_string();
        let named = format!("{NAME} holds 10 living messages and is gone from JetStream's bucket");
        assert!(why.contains(&named), "{why}");
        // While it cannot be read there, the node waits until it has to stop.
        std::fs::create_dir(bucket.path().join(NAME.to_string())).expect("a folder");
        let mut pauses = 0;
        let found = runs.complete(&ten, &mut || {
            pauses += 1;
            assert!(pauses <= 3, "it goes on");
            pauses < 3
        });
        assert!(found.expect("it may come").is_none());
        assert_eq!(pauses, 3);
    }
}
