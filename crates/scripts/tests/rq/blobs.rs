//! Attachments that others keep as well, and services that follow one another on disks of their
//! own, as a cluster's nodes do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quintet_scripts::{Blobs, Method, NewMessage};
use quintet_sim::client_api::SimApi;
use quintet_types::Settings;
use tempfile::TempDir;

use crate::common::{World, eventually, options};

/// Kept in a folder; a slash of a name is a `!` there.
struct Folder(TempDir);

impl Folder {
    fn new() -> Arc<Self> {
        Arc::new(Self(tempfile::tempdir().expect("a folder")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name.replace('/', "!"))
    }

    fn count(&self) -> usize {
        self.list().expect("listed").len()
    }
}

impl Blobs for Folder {
    fn put(&self, under: &str, file: &Path) -> io::Result<String> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let unique = format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed));
        fs::copy(file, self.path(&format!("{under}/{unique}")))?;
        Ok(unique)
    }

    fn get(&self, name: &str, to: &Path) -> io::Result<bool> {
        match fs::copy(self.path(name), to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            copied => copied.map(|_| true),
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.0.path())?.flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().replace('!', "/"));
        Ok(names.collect())
    }
}

/// Nobody answers.
struct Nobody;

impl Blobs for Nobody {
    fn put(&self, _: &str, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn get(&self, _: &str, _: &Path) -> io::Result<bool> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn delete(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// A service on a disk of its own.
fn node(client_api: &Arc<SimApi>, blobs: &Arc<Folder>) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path());
    options.blobs = Some(Arc::<Folder>::clone(blobs));
    options.limits.cleanup_every = Duration::from_millis(20);
    World::start(Arc::clone(client_api), options, folder)
}

fn client_api() -> Arc<SimApi> {
    SimApi::ticking(Settings::default())
}

fn prepare(world: &World, queue: &str) -> String {
    let made = world.rq.create(queue, NewMessage::default(), Method::Prep);
    made.expect("prepared")
}

fn attach(world: &World, queue: &str, id: &str, name: &str, bytes: &[u8]) {
    let attached = world.rq.attach(queue, id, name, &mut &*bytes, None);
    attached.expect("attached");
}

fn read(world: &World, queue: &str, id: &str, name: &str) -> Vec<u8> {
    let path = world.rq.attachment_path(queue, id, name).expect("a path");
    fs::read(path).expect("read")
}

#[test]
fn a_script_finds_attachments_of_another_node() {
    let (client_api, blobs) = (client_api(), Folder::new());
    let first = node(&client_api, &blobs);
    first.queue("test", "echo done >&3");
    let id = prepare(&first, "test");
    attach(&first, "test", &id, "a", b"replaced");
    attach(&first, "test", &id, "a", b"first");
    attach(&first, "test", &id, "b", b"second");
    first.rq.stop();

    let second = node(&client_api, &blobs);
    second.queue("test", "cat ../attach/a ../attach/b; echo done >&3");
    assert_eq!(read(&second, "test", &id, "b"), b"second");
    second.rq.commit("test", &id).expect("committed");
    assert_eq!(second.end("test", &id), "done");
    let log = second.job_file("test", &id, "stdio.log").expect("a log");
    assert!(log.contains("firstsecond"), "{log}");

    // It goes with its message, all there was of it.
    assert_eq!(blobs.count(), 3);
    second.rq.delete("test", &id).expect("deleted");
    eventually("nothing is kept", || (blobs.count() == 0).then_some(()));
}

#[test]
fn older_files_on_the_disk_are_not_used() {
    let (client_api, blobs) = (client_api(), Folder::new());
    let first = node(&client_api, &blobs);
    first.queue("test", "echo done >&3");
    let id = prepare(&first, "test");
    attach(&first, "test", &id, "a", b"old");
    let old = first.rq.attachment_path("test", &id, "a").expect("a path");
    first.rq.stop();
    let second = node(&client_api, &blobs);
    second.queue("test", "echo done >&3");
    // Of the same length.
    attach(&second, "test", &id, "a", b"new");
    second.rq.stop();
    // The first node again.
    let third = node(&client_api, &blobs);
    third.queue("test", "echo done >&3");
    let root = first.root().canonicalize().expect("a path");
    let here = third.root().canonicalize().expect("a path");
    let stale = here.join(old.strip_prefix(root).expect("below it"));
    fs::create_dir_all(stale.parent().expect("a folder")).expect("made");
    fs::copy(old, stale).expect("copied");
    assert_eq!(read(&third, "test", &id, "a"), b"new");
}

#[test]
fn a_copy_has_its_own() {
    let (client_api, blobs) = (client_api(), Folder::new());
    let first = node(&client_api, &blobs);
    first.queue("test", "echo done >&3");
    let id = prepare(&first, "test");
    attach(&first, "test", &id, "a", b"shared");
    first.rq.commit("test", &id).expect("committed");
    assert_eq!(first.end("test", &id), "done");
    first.rq.stop();
    let second = node(&client_api, &blobs);
    second.queue("test", "echo done >&3");
    let copy = second.rq.clone_message("test", &id).expect("cloned");
    assert_eq!(blobs.count(), 2);
    second.rq.delete("test", &id).expect("deleted");
    eventually("the first is gone", || (blobs.count() == 1).then_some(()));
    second.rq.stop();
    let third = node(&client_api, &blobs);
    third.queue("test", "echo done >&3");
    assert_eq!(read(&third, "test", &copy, "a"), b"shared");
}

#[test]
fn without_its_store_nothing_is_attached_and_no_script_runs() {
    let (client_api, blobs) = (client_api(), Folder::new());
    let first = node(&client_api, &blobs);
    first.queue("test", "echo done >&3");
    let id = prepare(&first, "test");
    attach(&first, "test", &id, "a", b"wanted");
    first.rq.stop();

    let folder = tempfile::tempdir().expect("a folder");
    let mut alone = options(folder.path());
    alone.blobs = Some(Arc::new(Nobody));
    let second = World::start(Arc::clone(&client_api), alone, folder);
    second.queue("test", "echo done >&3");
    let refused = second.rq.attach("test", &id, "b", &mut &b"b"[..], None);
    let refused = refused.expect_err("not replicated").to_string();
    assert!(refused.contains("could not be replicated"), "{refused}");
    assert!(second.rq.attachment_path("test", &id, "a").is_err());
    second.rq.commit("test", &id).expect("committed");
    let status = eventually("it is tried again later", || {
        let status = second.status("test", &id);
        status.contains("is not available").then_some(status)
    });
    assert!(
        status.starts_with("que - cannot run the script"),
        "{status}"
    );
    second.rq.stop();

    // What is kept is damaged: nobody is given it.
    let name = blobs.list().expect("listed").remove(0);
    fs::write(blobs.path(&name), b"wanteD").expect("written");
    let third = node(&client_api, &blobs);
    third.queue("test", "echo done >&3");
    let refused = third.rq.attachment_path("test", &id, "a");
    let refused = refused.expect_err("damaged").to_string();
    assert!(refused.contains("damaged"), "{refused}");
}
