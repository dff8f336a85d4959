//! Messages, and bodies of them, in files that a stopped server has left.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use quintet_control::Head;

use crate::import::count::Counts;
use crate::records::{Entry, Large, Source};

/// A message in files.
pub(in crate::import) trait Stored {
    /// Its queue and state, for people.
    fn counted(&self) -> (&str, &'static str);

    /// The message, as it goes into a queue.
    ///
    /// # Errors
    /// It cannot be read, or is not what it should be.
    fn read(&self, bodies: &mut Bodies) -> Result<(Head, Vec<u8>)>;

    /// Where it is, for people.
    fn place(&self, bodies: &Bodies) -> String;
}

/// How many there are, by queue and state.
pub(super) fn counts<'a, T: Stored + 'a>(all: impl IntoIterator<Item = &'a T>) -> Counts {
    let mut counts = Counts::default();
    for one in all {
        let (queue, state) = one.counted();
        counts.add(queue, state, 1);
    }
    counts
}

/// The messages that files leave, one after the other.
pub(in crate::import) struct Files<T> {
    pub(super) messages: Vec<T>,
    pub(super) bodies: Bodies,
    /// Where the files are not what they should be.
    pub(in crate::import) damage: Option<String>,
    at: usize,
    large: Large,
}

impl<T: Stored> Files<T> {
    pub(in crate::import) fn of(messages: Vec<T>) -> Self {
        Self {
            messages,
            bodies: Bodies::default(),
            damage: None,
            at: 0,
            large: Large::default(),
        }
    }

    pub(super) fn damaged(&mut self, what: String) {
        self.damage.get_or_insert(what);
    }

    /// How many there are, by queue and state.
    pub(in crate::import) fn counts(&self) -> Counts {
        counts(&self.messages)
    }
}

impl<T: Stored> Source for Files<T> {
    fn next(&mut self) -> Result<Option<Entry>> {
        let Some(message) = self.messages.get(self.at) else {
            return Ok(None);
        };
        let (head, body) = message.read(&mut self.bodies)?;
        self.at += 1;
        Ok(Some(self.large.entry(head, body)))
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        self.large.write(into)
    }

    fn place(&self) -> String {
        let last = self.at.checked_sub(1).and_then(|at| self.messages.get(at));
        last.map_or_else(String::new, |message| message.place(&self.bodies))
    }

    fn position(&self) -> u64 {
        self.at as u64
    }
}

/// The files, by the number they were added with.
#[derive(Default)]
pub(in crate::import) struct Bodies {
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
