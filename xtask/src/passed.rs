//! Test programs that passed: a run on a developer's machine leaves one out while nothing that it
//! uses has changed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::Result;

use crate::context::Run;
use crate::programs::Program;

/// Packages whose tests use nothing but their own program and files that are no code. Those of
/// others may start any program and read any file of the working copy.
const ALONE: [&str; 9] = [
    "quintet-cluster",
    "quintet-engine",
    "quintet-hooks",
    "quintet-host",
    "quintet-import",
    "quintet-log",
    "quintet-sim",
    "quintet-trial",
    "quintet-wire",
];

/// The variables that change how many cases tests try: those that `--long` sets, and others.
pub(crate) const LONG: [&str; 6] = [
    "SEEDS",
    "QUINTET_CASES",
    "DECODER_CASES",
    "RECORD_CASES",
    "FRAME_CASES",
    "IMPORT_CASES",
];
const COUNTS: [&str; 2] = ["PROPTEST_CASES", "QUINTET_CRASH_ROUNDS"];

/// The programs that passed, with the state of all that they used.
pub(crate) struct Passed {
    file: PathBuf,
    /// `--all`: all run again.
    again: bool,
    states: Mutex<BTreeMap<String, u64>>,
    /// The state of files that are no code, and of all files and programs.
    data: u64,
    everything: u64,
}

impl Passed {
    /// Those of earlier runs. `None`: CI and `--long` leave out nothing.
    ///
    /// # Errors
    /// The files of the working copy are unknown.
    pub(crate) fn of(run: &Run, skipped: &[&str]) -> Result<Option<Self>> {
        if run.long || run.strict {
            return Ok(None);
        }
        let target = crate::target(&run.root);
        let counts = (LONG.map(std::env::var_os), COUNTS.map(std::env::var_os));
        let files = crate::files_of_git(&run.root)?;
        let data = hash(&(run.seed, skipped, counts, stamps(&run.root, &files, false)));
        let code = stamps(&run.root, &files, true);
        let everything = hash(&(data, code, programs(&target.join("debug"))?));
        let file = target.join("passed.txt");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let states = text.lines().filter_map(|line| {
            let (state, label) = line.split_once(' ')?;
            Some((label.to_owned(), state.parse::<u64>().ok()?))
        });
        Ok(Some(Self {
            file,
            again: run.again,
            states: Mutex::new(states.collect()),
            data,
            everything,
        }))
    }

    /// The state of all that a program uses, before it runs.
    pub(crate) fn state(&self, program: &Program) -> u64 {
        let others = match ALONE.contains(&program.package.as_str()) {
            true => self.data,
            false => self.everything,
        };
        hash(&(others, &program.file, stamp(&program.file)))
    }

    /// True if it passed in this state.
    pub(crate) fn has(&self, program: &Program, state: u64) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        !self.again && states.get(&program.label()) == Some(&state)
    }

    /// Notes how it ended. If that cannot be written, it runs again the next time.
    pub(crate) fn note(&self, program: &Program, state: u64, passed: bool) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match passed {
            true => states.insert(program.label(), state),
            false => states.remove(&program.label()),
        };
        let lines = states.iter();
        let lines = lines.map(|(label, state)| format!("{state} {label}\n"));
        std::fs::write(&self.file, lines.collect::<String>()).ok();
    }
}

/// When a file was written, and its length.
type Stamp = (SystemTime, u64);

/// `None`: the file is not there.
fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = file.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Of these files those that are code, or the others.
fn stamps<'a>(root: &Path, files: &'a [String], code: bool) -> Vec<(&'a str, Option<Stamp>)> {
    let wanted = files.iter().filter(|file| file.ends_with(".rs") == code);
    wanted
        .map(|file| (file.as_str(), stamp(&root.join(file))))
        .collect()
}

/// The programs in this folder.
fn programs(folder: &Path) -> Result<Vec<(PathBuf, Option<Stamp>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_file() && path.extension().is_none() && !is_hidden {
            let stamp = stamp(&path);
            found.push((path, stamp));
        }
    }
    found.sort();
    Ok(found)
}

fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::{ALONE, Passed};
    use crate::context::Run;
    use crate::programs::Program;

    fn program(folder: &Path, package: &str) -> Program {
        Program {
            package: package.to_owned(),
            name: "lib".to_owned(),
            file: folder.join("program"),
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn a_program_that_passed_is_left_out_until_something_changes() {
        let folder = std::env::temp_dir().join(format!("quintet-passed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("program"), "1").unwrap();
        let mut passed = Passed {
            file: folder.join("passed.txt"),
            again: false,
            states: Mutex::default(),
            data: 1,
            everything: 1,
        };
        let (log, server) = (program(&folder, "quintet-log"), program(&folder, "quintet"));
        let has = |passed: &Passed, program| passed.has(program, passed.state(program));
        let note = |passed: &Passed, program, ok| passed.note(program, passed.state(program), ok);
        assert!(!has(&passed, &log));
        note(&passed, &log, true);
        note(&passed, &server, true);
        assert!(has(&passed, &log) && has(&passed, &server));
        // Code that is not in its program is nothing to the log's tests.
        passed.everything = 2;
        assert!(has(&passed, &log) && !has(&passed, &server));
        passed.data = 2;
        assert!(!has(&passed, &log));
        passed.data = 1;
        std::fs::write(folder.join("program"), "22").unwrap();
        assert!(!has(&passed, &log), "it was built again");
        note(&passed, &log, true);
        assert!(has(&passed, &log));
        passed.again = true;
        assert!(!has(&passed, &log), "--all");
        passed.again = false;
        note(&passed, &log, false);
        assert!(!has(&passed, &log), "it failed");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A package that is renamed would be one whose tests may read anything.
    #[test]
    fn the_packages_that_are_named_are_there() {
        let lock = std::fs::read_to_string(crate::root().join("Cargo.lock")).unwrap();
        for package in ALONE {
            let line = format!("name = \"{package}\"\n");
            assert!(lock.contains(&line), "{package}");
        }
    }

    #[test]
    fn ci_and_long_runs_leave_out_nothing() {
        for (long, strict) in [(true, false), (false, true)] {
            let run = Run {
                root: crate::root(),
                long,
                seed: 7,
                strict,
                again: false,
                timings: Mutex::default(),
                left_out: Mutex::default(),
            };
            assert!(Passed::of(&run, &[]).unwrap().is_none());
        }
    }
}
