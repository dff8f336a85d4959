//! Files in one directory: all the log asks of the world, so that tests can give it another one.

use std::{
    fs::{File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::OfStorage as _;
use crate::{LogError, Result};

/// A directory. Names are plain file names, without separators.
///
/// A change to the directory itself (create, rename, remove) may be lost in a crash until
/// [`Storage::sync_dir`] returned.
pub trait Storage: Send + Sync {
    /// Makes a new, empty file. Fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading only.
    fn open_read(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Gives a file another name, replacing what had it. Indivisible.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name; the content goes when nobody has it open or under another name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Returns when all earlier changes to the directory are durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Gives a file a second name in another directory. `Ok(false)`: not possible between these
    /// two, copy instead.
    fn link_into(&self, name: &str, target: &dyn Storage) -> io::Result<bool>;
    /// Where this is on the real disk, if it is.
    fn path(&self) -> Option<&Path>;
    /// A number no client can guess; the salt of a new segment.
    fn random(&self) -> u64;
}

/// An open file. Reads and writes name their offset and may be done from many threads.
pub trait StorageFile: Send + Sync {
    /// Writes some of `bytes` at `offset`, growing the file where needed, and says how many.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Reads some bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// The file's length, bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file, or grows it by zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file `len` bytes long, what is new being zeros that have their room on the disk,
    /// as far as the file system promises such a thing. `Unsupported`: it cannot, write them
    /// instead.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Returns when all earlier writes and the length are durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// How many names the file has.
    fn links(&self) -> io::Result<u64>;
}

/// Writes all of `bytes`: one system call unless the kernel stops short.
pub(crate) fn write_all(
    file: &dyn StorageFile,
    mut offset: u64,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                offset += done as u64;
                bytes = &bytes[done..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `bytes` is full or the file ends; returns how many bytes there were.
pub(crate) fn read_full(
    file: &dyn StorageFile,
    offset: u64,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(offset + done as u64, &mut bytes[done..]) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Copies one file into another, each with its name in errors: from `offset` up to `end`, or
/// without that to its own. Returns where that was.
///
/// # Errors
/// Among others, the file ends before `end`.
pub(crate) fn copy(
    (from, name): (&dyn StorageFile, &str),
    (to, to_name): (&dyn StorageFile, &str),
    mut offset: u64,
    end: Option<u64>,
) -> Result<u64> {
    let mut bytes = vec![0; COPY_BYTES];
    while end.is_none_or(|end| offset < end) {
        let left = end.map_or(u64::MAX, |end| end - offset);
        let want = usize::try_from(left).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let read = read_full(from, offset, &mut bytes[..want]).or_io_at("read", name, offset)?;
        match (read, end) {
            (0, None) => break,
            (0, Some(_)) => return Err(LogError::damaged(name, offset, "the file became shorter")),
            _ => write_all(to, offset, &bytes[..read]).or_full_at("write", to_name, offset)?,
        }
        offset += read as u64;
    }
    Ok(offset)
}

/// Writes a small file so that it is there whole or as it was before, whenever the power goes; it
/// is durable when this returns. What is written on the way is beside it, under its name with
/// `.tmp` behind.
///
/// # Errors
/// Those of the file system; the old file is then still there.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut coming = path.as_os_str().to_owned();
    coming.push(".tmp");
    let mut file = File::create(&coming)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&coming, path)?;
    sync_name(path)
}

/// Makes a directory, and those it is in. Names of what was not there are durable when this
/// returns; else all that is synced in it could be gone with it.
///
/// # Errors
/// Those of the file system.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let made: Vec<&Path> = dir.ancestors().take_while(missing).collect();
    std::fs::create_dir_all(dir)?;
    made.into_iter().try_for_each(sync_name)
}

/// Makes the name of a file or directory durable.
///
/// # Errors
/// Those of the file system.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    File::open(parent)?.sync_all()
}

/// A directory of the real file system.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    /// The directory, open: it must be synced also when the process has as many files open as it
    /// may.
    open: Option<File>,
    random: RandomState,
}

impl Disk {
    /// Uses `dir`, which must exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        // `RandomState` is keyed from the system's random source; a hash under a secret key is as
        // hard to guess as the key, and saves a dependency.
        let dir = dir.into();
        Self {
            open: File::open(&dir).ok(),
            dir,
            random: RandomState::new(),
        }
    }

    fn open_with(&self, name: &str, options: &mut OpenOptions) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(DiskFile(options.open(self.dir.join(name))?)))
    }
}

impl Storage for Disk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open_with(
            name,
            OpenOptions::new().read(true).write(true).create_new(true),
        )
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open_with(name, OpenOptions::new().read(true).write(true))
    }

    fn open_read(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open_with(name, OpenOptions::new().read(true))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        match &self.open {
            Some(dir) => dir.sync_all(),
            None => File::open(&self.dir)?.sync_all(),
        }
    }

    fn link_into(&self, name: &str, target: &dyn Storage) -> io::Result<bool> {
        let Some(target) = target.path() else {
            return Ok(false);
        };
        match std::fs::hard_link(self.dir.join(name), target.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
            // Another file system, one without hard links, or a kernel that forbids them: a copy
            // is as good, and reports what is really wrong if it fails too.
            Err(_) => Ok(false),
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn random(&self) -> u64 {
        // A fresh `RandomState` differs from the last by one in its key, so no value comes twice.
        self.random.hash_one(RandomState::new().hash_one(0_u8))
    }
}

struct DiskFile(File);

impl StorageFile for DiskFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        Ok(fallocate(&self.0, FallocateFlags::empty(), 0, len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn links(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.nlink())
    }
}
