//! Runs of a cluster: what the log may name is replicated, and comes back on any node.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use quintet_cluster::{Blobs, CachedRuns};
use quintet_log::{
    Disk, LogError, Storage, StorageFile,
    run::{Run, RunName, RunNumber, RunOptions, RunWriter, list_runs, remove_run},
};

/// Blobs in memory, that can be made to fail.
#[derive(Default)]
struct Kept {
    blobs: Mutex<BTreeMap<String, Vec<u8>>>,
    fails: AtomicBool,
    /// A get breaks off in the middle.
    breaks: AtomicBool,
}

impl Kept {
    fn blobs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> io::Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

impl Blobs for Kept {
    fn put(&self, name: &str, content: &dyn StorageFile) -> io::Result<()> {
        self.check()?;
        let len = usize::try_from(content.len()?).expect("short");
        let mut bytes = vec![0; len];
        assert_eq!(content.read_at(0, &mut bytes)?, len);
        let before = self.blobs().insert(name.to_owned(), bytes);
        assert_eq!(before, None, "a name has one content for ever");
        Ok(())
    }

    fn get(&self, name: &str, to: &dyn StorageFile) -> io::Result<bool> {
        self.check()?;
        let Some(bytes) = self.blobs().get(name).cloned() else {
            return Ok(false);
        };
        if self.breaks.load(Ordering::SeqCst) {
            to.write_at(0, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        assert_eq!(to.write_at(0, &bytes)?, bytes.len());
        Ok(true)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.check()?;
        self.blobs().remove(name);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.check()?;
        Ok(self.blobs().keys().cloned().collect())
    }
}

struct Node {
    runs: Arc<CachedRuns>,
    disk: Arc<dyn Storage>,
    _dir: tempfile::TempDir,
}

fn node(kept: &Arc<Kept>) -> Node {
    let dir = tempfile::tempdir().expect("a directory");
    let disk: Arc<dyn Storage> = Arc::new(Disk::new(dir.path()));
    let runs = Arc::new(CachedRuns::new(Arc::clone(&disk), Arc::clone(kept) as _));
    Node {
        runs,
        disk,
        _dir: dir,
    }
}

const NAME: RunName = RunName {
    shard: 0,
    number: RunNumber(7),
};

fn write(node: &Node) -> Result<Run, LogError> {
    let storage = Arc::clone(&node.runs) as Arc<dyn Storage>;
    let mut writer = RunWriter::create(storage, NAME, RunOptions::default())?;
    writer.state_index(b"lane")?;
    for id in 1..=100 {
        writer.push(id, None, b"payload")?;
    }
    writer.finish()
}

#[test]
fn a_run_is_read_on_another_node() {
    let kept = Arc::new(Kept::default());
    let (one, other) = (node(&kept), node(&kept));
    write(&one).expect("written");
    assert!(one.runs.has(NAME) && !other.runs.has(NAME));
    assert_eq!(list_runs(&*other.runs).expect("listed"), []);
    let run = Run::open(&*other.runs, NAME).expect("fetched");
    assert_eq!(run.find_id(40).expect("read"), Some(39));
    assert!(other.runs.has(NAME));
    // Once here, nobody is asked.
    kept.fails.store(true, Ordering::SeqCst);
    Run::open(&*other.runs, NAME).expect("here");
}

#[test]
fn a_run_that_was_not_replicated_is_none() {
    let kept = Arc::new(Kept::default());
    let one = node(&kept);
    kept.fails.store(true, Ordering::SeqCst);
    let error = write(&one).map(drop).expect_err("it is nowhere else");
    // Not a failure of the disk, which would end the server.
    assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
    assert_eq!(one.disk.list().expect("listed"), Vec::<String>::new());
    kept.fails.store(false, Ordering::SeqCst);
    write(&one).expect("written");
    remove_run(&*one.runs, NAME).expect("removed");
    one.runs.clear(&|_| false).expect("cleared");
    assert!(kept.blobs().is_empty() && !one.runs.has(NAME));
    let gone = one.runs.fetch(NAME).expect_err("nowhere");
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    assert_eq!(one.disk.list().expect("listed"), Vec::<String>::new());
}

#[test]
fn a_partly_fetched_file_is_no_run() {
    let kept = Arc::new(Kept::default());
    let (one, other) = (node(&kept), node(&kept));
    write(&one).expect("written");
    kept.breaks.store(true, Ordering::SeqCst);
    other.runs.fetch(NAME).expect_err("it broke off");
    assert!(!other.runs.has(NAME));
    assert_eq!(other.disk.list().expect("listed"), Vec::<String>::new());
    kept.breaks.store(false, Ordering::SeqCst);
    other.runs.fetch(NAME).expect("fetched");
    assert_eq!(Run::open(&*other.runs, NAME).expect("whole").entries(), 100);
}

#[test]
fn a_blob_that_cannot_be_deleted_now_is_deleted_later() {
    let kept = Arc::new(Kept::default());
    let one = node(&kept);
    write(&one).expect("written");
    kept.fails.store(true, Ordering::SeqCst);
    remove_run(&*one.runs, NAME).expect("removed here");
    assert!(!one.runs.has(NAME));
    one.runs.clear(&|_| false).expect_err("nobody answers");
    kept.fails.store(false, Ordering::SeqCst);
    one.runs.clear(&|_| false).expect("cleared");
    assert!(kept.blobs().is_empty());
}

#[test]
fn blobs_of_another_owner_are_deleted() {
    let kept = Arc::new(Kept::default());
    let (one, other) = (node(&kept), node(&kept));
    write(&one).expect("written");
    other.runs.clear(&|_| false).expect("cleared");
    assert_eq!(kept.blobs().len(), 1);
    other.runs.clear(&|name| name == NAME).expect("cleared");
    assert!(kept.blobs().is_empty());
}
