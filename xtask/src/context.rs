//! The input of the parts of `cargo xtask test`, and their output beside their result.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use crate::needs::{self, Need};
use crate::timings::Timings;

/// Tests that need something of the system that many machines have not.
pub(crate) struct Extra {
    pub(crate) needs: &'static [Need],
    /// Parts of their names, or for pytest their files.
    pub(crate) tests: &'static [&'static str],
}

/// One run of `cargo xtask test`: its options, and notes of its parts.
pub(crate) struct Run {
    pub(crate) root: PathBuf,
    /// `--long`: everything many times.
    pub(crate) long: bool,
    /// By which tests choose at random.
    pub(crate) seed: u64,
    /// A missing program or library is a failure: all were to be installed.
    pub(crate) strict: bool,
    /// Test programs run again that passed and have not changed since.
    pub(crate) again: bool,
    pub(crate) timings: Mutex<Timings>,
    pub(crate) left_out: Mutex<Vec<String>>,
}

impl Run {
    pub(crate) fn timings(&self) -> MutexGuard<'_, Timings> {
        self.timings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of these tests, those that are left out, as something that they need is missing. The summary
    /// says so.
    ///
    /// # Errors
    /// Their needs were to be installed.
    pub(crate) fn left_out(&self, part: &str, extras: &[Extra]) -> Result<Vec<&'static str>> {
        let mut left_out = Vec::new();
        for extra in extras {
            let missing = needs::missing(extra.needs.iter().copied());
            if missing.is_empty() {
                continue;
            }
            ensure!(!self.strict, "please install: {}", needs::names(&missing));
            self.leaves_out(&format!("{part}: {}", extra.tests.join(", ")), &missing);
            left_out.extend(extra.tests);
        }
        Ok(left_out)
    }

    pub(crate) fn leaves_out(&self, what: &str, missing: &[Need]) {
        self.note_left_out(format!("{what}: {}", needs::how_to_get(missing)));
    }

    pub(crate) fn note_left_out(&self, line: String) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.push(line);
    }
}
