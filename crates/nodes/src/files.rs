//! Attachments of scripts in a cluster: kept by JetStream, so that whichever node owns next has
//! them.

use std::io;
use std::path::Path;

use quintet_cluster::Blobs as _;
use quintet_jetstream::Objects;
use quintet_log::{Disk, Storage as _};

/// The bucket, as scripts know it.
pub struct Files(pub Objects);

/// The folder a file is in, and its name there.
pub(crate) fn place(file: &Path) -> io::Result<(Disk, String)> {
    let (folder, name) = (
        file.parent(),
        file.file_name().and_then(|name| name.to_str()),
    );
    match (folder, name) {
        (Some(folder), Some(name)) => Ok((Disk::new(folder), name.to_owned())),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl quintet_scripts::Blobs for Files {
    fn put(&self, under: &str, file: &Path) -> io::Result<String> {
        let (disk, name) = place(file)?;
        self.0.put_new(under, &*disk.open_read(&name)?)
    }

    fn get(&self, name: &str, to: &Path) -> io::Result<bool> {
        let (disk, file) = place(to)?;
        self.0.get(name, &*disk.create(&file)?)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.0.delete(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
}
