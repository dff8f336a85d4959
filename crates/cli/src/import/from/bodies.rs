//! Bodies that are in files.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The files, by the number they were added with.
#[derive(Default)]
pub(super) struct Bodies {
    files: Vec<PathBuf>,
    open: Option<(usize, File)>,
}

impl Bodies {
    /// One more; its number.
    pub(super) fn add(&mut self, path: PathBuf) -> usize {
        self.files.push(path);
        self.files.len() - 1
    }

    /// Where a file is.
    pub(super) fn path(&self, file: usize) -> &Path {
        &self.files[file]
    }

    /// So many bytes at this place of a file.
    ///
    /// # Errors
    /// It cannot be read, or is shorter.
    pub(super) fn read(&mut self, file: usize, at: u64, bytes: usize) -> Result<Vec<u8>> {
        let path = &self.files[file];
        let cannot = || format!("cannot read {}", path.display());
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            self.open = Some((file, File::open(path).with_context(cannot)?));
        }
        let mut body = vec![0; bytes];
        if let Some((_, open)) = &self.open {
            open.read_exact_at(&mut body, at).with_context(cannot)?;
        }
        Ok(body)
    }
}
