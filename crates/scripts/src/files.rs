//! Files of messages, written and summed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use md5::{Digest, Md5};
use quintet_types::Attachment;

use crate::fault::Fault;

/// Bytes of a file in memory at a time.
const CHUNK: usize = 64 << 10;

/// Attachments that are remembered to be what their message says.
const KNOWN_MAX: usize = 10_000;

/// Names, with their folder, of attachments that this process has stored or compared with their
/// sum. The disk may have what a message had when another node owned.
#[derive(Default)]
pub(crate) struct VerifiedAttachments(HashSet<String>);

impl VerifiedAttachments {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    pub(crate) fn add(&mut self, name: String) {
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert(name);
    }
}

/// The path of a file that has no name yet. Dot files are no attachments, and go with the message.
pub(crate) fn new_file(folder: &Path) -> PathBuf {
    static UNIQUE: AtomicU64 = AtomicU64::new(0);
    let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
    folder.join(format!(".{}-{unique}.new", std::process::id()))
}

/// Writes and syncs a file. The answer has no name yet.
pub(crate) fn store(path: &Path, source: &mut dyn Read) -> Result<Attachment, Fault> {
    let mut file = File::create_new(path)?;
    let stored = summed(source, &mut file)?;
    file.sync_all()?;
    Ok(stored)
}

/// Hands all there is on to `sink`. The answer has no name.
pub(crate) fn summed(source: &mut dyn Read, sink: &mut dyn Write) -> Result<Attachment, Fault> {
    let mut sum = Md5::new();
    let mut chunk = vec![0; CHUNK];
    let mut len = 0;
    loop {
        let read = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        sink.write_all(&chunk[..read])?;
        sum.update(&chunk[..read]);
        len += read as u64;
    }
    Ok(Attachment {
        name: Box::default(),
        len,
        md5: sum.finalize().into(),
    })
}
