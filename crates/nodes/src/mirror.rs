//! Directories inside the data directory: mirrors of the log, and whose it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use quintet_log::{Disk, LogError, Storage};

/// A mirror is this and a number; the highest is the newest.
const PREFIX: &str = "mirror-";
/// The file with the number that tells this data directory from others.
const HOME: &str = "node";

/// Mirrors, each a directory of its own: one that is read from stays while another is made.
#[derive(Clone)]
pub struct Mirrors {
    data: PathBuf,
    newest: Arc<AtomicU64>,
}

impl Mirrors {
    /// Lists the mirrors in `data`; new ones get higher numbers.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(data: &Path) -> Result<Self> {
        let newest = numbers(data).context("cannot list the data directory")?;
        Ok(Self {
            data: data.to_owned(),
            newest: Arc::new(AtomicU64::new(newest.into_iter().max().unwrap_or(0))),
        })
    }

    /// Those in `data`, in no order.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn all(data: &Path) -> std::io::Result<Vec<PathBuf>> {
        let numbers = numbers(data)?.into_iter();
        Ok(numbers
            .map(|number| data.join(format!("{PREFIX}{number}")))
            .collect())
    }

    /// A new one, empty.
    pub fn next(&self) -> Result<Arc<dyn Storage>, LogError> {
        let number = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let path = self.data.join(format!("{PREFIX}{number}"));
        quintet_log::make_dir(&path)
            .map_err(|error| LogError::io("create", &path.display().to_string(), 0, error))?;
        Ok(Arc::new(Disk::new(&path)))
    }

    /// The newest is complete: those before it go.
    pub fn remove_older(&self) {
        let newest = self.newest.load(Ordering::SeqCst);
        for number in numbers(&self.data).unwrap_or_default() {
            let path = self.data.join(format!("{PREFIX}{number}"));
            if number < newest
                && let Err(error) = fs::remove_dir_all(&path)
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }
}

fn numbers(data: &Path) -> std::io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(data)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// The number of this data directory; `fresh`, if it had none.
///
/// # Errors
/// The file cannot be read or written, or has no number.
pub fn home(data: &Path, fresh: u64) -> Result<u64> {
    let path = data.join(HOME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    // Builds before 2026-11-26 left it empty where the power went soon after their first start.
    if text.trim().is_empty() {
        quintet_log::replace_file(&path, format!("{fresh}\n").as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(fresh);
    }
    text.trim()
        .parse()
        .with_context(|| format!("{} should hold a number", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{HOME, home};

    #[test]
    fn a_directory_keeps_its_number_and_one_left_empty_gets_it() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(home(dir.path(), 7).expect("made"), 7);
        assert_eq!(home(dir.path(), 8).expect("kept"), 7);
        let file = dir.path().join(HOME);
        std::fs::write(&file, "").expect("written");
        assert_eq!(home(dir.path(), 9).expect("made again"), 9);
        std::fs::write(&file, "x\n").expect("written");
        let error = home(dir.path(), 9).expect_err("no number").to_string();
        assert!(error.contains("should hold a number"), "{error}");
    }
}
