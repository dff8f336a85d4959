//! Size of a data directory on the disk, by purpose.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result};

/// A block of `st_blocks`, bytes (inode(7)).
const BLOCK_BYTES: u64 = 512;

/// Bytes of a data directory, as the file system allocated them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Segments of the log.
    pub(crate) log: u64,
    /// Files that wait to become segments.
    pub(crate) spare: u64,
    /// Runs, those that are being written too.
    pub(crate) runs: u64,
    /// The rest.
    pub(crate) other: u64,
}

impl Disk {
    /// Of this directory, which may change meanwhile.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(data: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", data.display());
        let mut disk = Self::default();
        for entry in fs::read_dir(data).with_context(context)? {
            let entry = entry.with_context(context)?;
            match entry.metadata() {
                Ok(found) => {
                    let name = entry.file_name();
                    disk.add(&name.to_string_lossy(), found.blocks() * BLOCK_BYTES);
                }
                // Removed since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(context),
            }
        }
        Ok(disk)
    }

    fn add(&mut self, name: &str, bytes: u64) {
        let kind = match name.split_once('-') {
            Some(("segment", _)) => &mut self.log,
            Some(("spare", _)) => &mut self.spare,
            Some(("run", _)) => &mut self.runs,
            _ => &mut self.other,
        };
        *kind += bytes;
    }

    /// The one that takes more, spare segments left out.
    pub(crate) fn larger(self, other: Self) -> Self {
        match other.without_spares() > self.without_spares() {
            true => other,
            false => self,
        }
    }

    /// All but the spare segments.
    pub(crate) fn without_spares(self) -> u64 {
        self.log + self.runs + self.other
    }
}

/// Bytes a file system has left for us.
///
/// # Errors
/// It does not tell.
pub(crate) fn free(path: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(path);
    let found = found.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::Disk;

    #[test]
    fn files_by_name() {
        let mut disk = Disk::default();
        for (name, bytes) in [
            ("segment-0000000007.log", 1),
            ("segment-0000000008.tmp", 2),
            ("spare-0000000003.log", 4),
            ("run-00003-0000000007.qrun", 8),
            ("run-00003-0000000009.ids.tmp", 16),
            ("lock", 32),
            ("quintet.sock", 64),
        ] {
            disk.add(name, bytes);
        }
        let (log, spare, runs, other) = (3, 4, 24, 96);
        let expected = Disk {
            log,
            spare,
            runs,
            other,
        };
        assert_eq!(disk, expected);
        assert_eq!(disk.without_spares(), 123);
    }

    #[test]
    fn a_directory_is_counted_in_blocks() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run-x"), vec![1; 100_000]).unwrap();
        let file = std::fs::File::open(folder.path().join("run-x")).unwrap();
        file.sync_all().unwrap();
        let disk = Disk::of(folder.path()).unwrap();
        assert!((100_000..200_000).contains(&disk.runs), "{disk:?}");
        assert!(Disk::of(&folder.path().join("none")).is_err());
    }
}
