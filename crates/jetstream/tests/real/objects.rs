//! Runs in a bucket.

use std::io;
use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use quintet_cluster::Blobs;
use quintet_jetstream::{JetStream, Objects};
use quintet_log::{Disk, Storage, StorageFile};

use crate::servers::{Fleet, until};

const NAME: &str = "run-00000-0000000007.qrun";

struct Files {
    disk: Disk,
    _dir: tempfile::TempDir,
}

fn files() -> Files {
    let dir = tempfile::tempdir().expect("a directory");
    Files {
        disk: Disk::new(dir.path()),
        _dir: dir,
    }
}

impl Files {
    /// A new file with this content.
    fn file(&self, name: &str, content: &[u8]) -> Arc<dyn StorageFile> {
        let file = self.disk.create(name).expect("made");
        assert_eq!(file.write_at(0, content).expect("written"), content.len());
        file
    }
}

fn content(file: &dyn StorageFile) -> Vec<u8> {
    let len = usize::try_from(file.len().expect("a length")).expect("short");
    let mut bytes = vec![0; len];
    assert_eq!(file.read_at(0, &mut bytes).expect("read"), len);
    bytes
}

/// A bucket on all servers, made as soon as they can.
fn bucket(fleet: &Fleet, servers: usize) -> (Objects, JetStream) {
    let stream = fleet.stream("objects");
    let opened = until("the servers make a bucket", || {
        stream.runs(servers, &[]).ok()
    });
    (opened, stream)
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn a_file_comes_back_and_goes() {
    let fleet = Fleet::start(1);
    let ((one, _stream), (other, _second)) = (bucket(&fleet, 1), bucket(&fleet, 1));
    let files = files();
    // Several pieces, and one that is not full.
    let long: Vec<u8> = (0..1_000_003_u32).flat_map(u32::to_le_bytes).collect();
    for (name, bytes) in [(NAME, &long[..]), ("run-00000-0000000008.qrun", b"")] {
        keep(&one, name, &*files.file(name, bytes));
        let to = files.file(&format!("{name}.got"), b"of something else, that is longer");
        assert!(other.get(name, &*to).expect("read"));
        assert!(content(&*to) == bytes, "{name}");
    }
    assert_eq!(other.list().expect("listed").len(), 2);
    // One content for ever, also when it is gone.
    let late = files.file("late", b"of a deposed owner");
    let used = |done: io::Result<()>| done.expect_err("used").kind();
    assert_eq!(used(other.put(NAME, &*late)), io::ErrorKind::AlreadyExists);
    other.delete(NAME).expect("deleted");
    other.delete(NAME).expect("nothing to delete");
    assert_eq!(used(other.put(NAME, &*late)), io::ErrorKind::AlreadyExists);
    assert_eq!(one.list().expect("listed"), ["run-00000-0000000008.qrun"]);
    let to = files.file("nothing", b"");
    assert!(!one.get(NAME, &*to).expect("an answer"));
}

/// Keeps a file, also if the leader changes meanwhile.
fn keep(objects: &Objects, name: &str, file: &dyn StorageFile) {
    let mut unknown = false;
    until("a file is kept", || match objects.put(name, file) {
        Ok(()) => Some(()),
        // The try before was answered by nobody, and kept.
        Err(error) if unknown && error.kind() == io::ErrorKind::AlreadyExists => Some(()),
        Err(error) => {
            assert_ne!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
            unknown = true;
            None
        }
    });
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn stored_objects_outlive_a_server() {
    let mut fleet = Fleet::start(3);
    let (objects, _stream) = bucket(&fleet, 3);
    let files = files();
    let long = vec![7; 3 << 20];
    let file = files.file(NAME, &long);
    keep(&objects, NAME, &*file);
    fleet.kill(0);
    let to = files.file("got", b"");
    // Without a leader it may fail, but never answers wrongly.
    until("it is read", || match objects.get(NAME, &*to) {
        Ok(found) => {
            assert!(found);
            Some(())
        }
        Err(_) => None,
    });
    assert!(content(&*to) == long);
    let again = "run-00000-0000000009.qrun";
    keep(&objects, again, &*file);
    assert!(objects.get(again, &*to).expect("read"));
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn an_object_that_differs_from_the_stored_one_is_refused() {
    let fleet = Fleet::start(1);
    let (objects, _stream) = bucket(&fleet, 1);
    let files = files();
    let to = files.file("got", b"");
    // One with the sum of another; one that lacks its pieces; none at all.
    let sum = "SHA-256=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (name, size, chunks) in [("sum", 0, 0), ("lacking", 3, 1)] {
        let subject = format!("$O.Q_objects_0_runs.M.{}", BASE64_URL_SAFE.encode(name));
        let info = format!(
            r#"{{"name":"{name}","bucket":"Q_objects_0_runs","nuid":"n","size":{size},"chunks":{chunks},"digest":"{sum}"}}"#
        );
        fleet.publish(&subject, &info);
        // An answer is no confirmation that it is stored.
        let refused = until("it is there", || match objects.get(name, &*to) {
            Ok(there) => {
                assert!(!there, "{name}: believed");
                None
            }
            Err(error) => Some(error.kind()),
        });
        assert_eq!(refused, io::ErrorKind::InvalidData, "{name}");
    }
    assert!(!objects.get("none", &*to).expect("answered"));
}
