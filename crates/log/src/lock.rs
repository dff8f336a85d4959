//! One process per data directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::{LogError, Result, make_dir};

/// The exclusive right to a data directory, held until dropped or the process ends, however it
/// ends. Children of the process do not inherit it.
#[derive(Debug)]
pub struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing alone is not enough: a child that was just forked has the file open until it
        // becomes its program.
        self.file.unlock().ok();
    }
}

impl DirLock {
    /// Takes the lock of `dir`, making the directory where there is none.
    ///
    /// # Errors
    /// [`LogError::Locked`] names the process that has it. Nothing is changed then.
    pub fn acquire(dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        let shown = path.display().to_string();
        let failed = |doing, source| LogError::io(doing, &shown, 0, source);
        make_dir(dir).map_err(|error| {
            LogError::io("create the directory", &dir.display().to_string(), 0, error)
        })?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| failed("open", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The number is a courtesy: the lock is what counts.
                let read = file.read_to_string(&mut text);
                let pid = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(LogError::Locked {
                    dir: dir.display().to_string(),
                    pid,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()));
        match written {
            // A full disk must not keep a server from starting: it may be what frees it.
            Err(error) if !crate::error::is_full(&error) => Err(failed("write", error)),
            _ => Ok(Self { file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_directory_is_free_although_its_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirLock::acquire(dir.path()).unwrap();
        assert!(DirLock::acquire(dir.path()).is_err());
        // As a child has it between its fork and its exec.
        let _child = held.file.try_clone().unwrap();
        drop(held);
        DirLock::acquire(dir.path()).unwrap();
    }
}
