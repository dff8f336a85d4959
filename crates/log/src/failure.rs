//! A failed write or sync is final, and everyone who shares the log learns of it.

use std::io;
use std::sync::{Arc, OnceLock};

use crate::{LogError, Result};

/// The first final error, if there was one.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<OnceLock<String>>);

impl Failure {
    /// # Errors
    /// [`LogError::Stopped`] once something failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(why) => Err(LogError::Stopped { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// A failure of the storage is remembered, and handed back as the log's.
    pub(crate) fn of<T>(&self, done: io::Result<T>, doing: &'static str, file: &str) -> Result<T> {
        done.map_err(|error| self.record(LogError::io(doing, file, 0, error)))
    }

    /// Remembers `error` and hands it back.
    pub(crate) fn record(&self, error: LogError) -> LogError {
        // A later failure adds nothing: the first one is what to look at.
        self.0.get_or_init(|| error.to_string());
        error
    }
}
