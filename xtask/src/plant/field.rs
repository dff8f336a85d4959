//! The copy of the tree in which defects are planted, built and tested.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::libraries::Libraries;
use super::{Defect, End};
use crate::{cargo_command, files_of_git};

/// Makes `tree` what `root` is, and leaves alone what is so already: cargo goes
/// by the times of files.
pub(crate) fn copy(root: &Path, tree: &Path) -> Result<()> {
    let files = files_of_git(root)?;
    remove_others(tree, &files.iter().map(|file| tree.join(file)).collect())?;
    for file in files {
        let (from, to) = (root.join(&file), tree.join(&file));
        let Ok(new) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(&from, &to).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// Removes what an earlier copy had and the tree has no more: cargo would build it.
fn remove_others(folder: &Path, files: &HashSet<PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), files)?;
        } else if !files.contains(&entry.path()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The copy of the tree in which defects are planted.
pub(super) struct Field {
    pub(super) tree: PathBuf,
    build: PathBuf,
    libraries: Libraries,
    /// How long tests take without a defect.
    took: BTreeMap<&'static [&'static str], Duration>,
}

/// The longest time that tests may take without a defect.
const HOUR: Duration = Duration::from_secs(3_600);
/// With a defect they may take so many times as long, and this longer: listed, and by chance.
const TIMES: [u32; 2] = [5, 2];
const LONGER: Duration = Duration::from_secs(60);

impl Field {
    /// Copies `root` below `position`.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn new(root: &Path, position: &Path) -> Result<Self> {
        let tree = position.join("tree");
        copy(root, &tree)?;
        Ok(Self {
            tree,
            build: position.join("build"),
            libraries: Libraries::of(root)?,
            took: BTreeMap::new(),
        })
    }

    /// Plants a defect, runs its tests, and takes it out again. The tree is as it was copied:
    /// somebody may go on working in the root meanwhile.
    pub(super) fn planted(&mut self, one: &Defect) -> Result<End> {
        println!("xtask: plant: {}: {}", one.name, one.what);
        for tests in one.tests {
            self.time(tests)?;
        }
        let mut before = Vec::new();
        for (file, text) in &one.files {
            let path = self.tree.join(file);
            before.push((std::fs::read(&path)?, path.clone()));
            std::fs::write(path, text)?;
        }
        let end = self.end_of(one);
        for (text, path) in before {
            std::fs::write(path, text)?;
        }
        end.with_context(|| one.name.clone())
    }

    fn end_of(&mut self, one: &Defect) -> Result<End> {
        for tests in one.tests {
            if let Some(printed) = self.build(tests)? {
                return Ok(End::NotBuilt(printed));
            }
            let limit = self.time(tests)? * TIMES[usize::from(one.random)] + LONGER;
            match self.fails(tests, limit) {
                Ok(None) => {}
                Ok(Some(by)) => return Ok(End::Noticed(by)),
                // A change may overflow the stack, or exhaust memory.
                Err(error) if one.random => return Ok(End::Noticed(format!("{error:#}"))),
                Err(error) => return Err(error),
            }
        }
        Ok(End::Survived)
    }

    /// How long these tests take without a defect.
    ///
    /// # Errors
    /// They do not build, or fail without one.
    pub(super) fn time(&mut self, tests: &'static [&'static str]) -> Result<Duration> {
        if let Some(took) = self.took.get(tests) {
            return Ok(*took);
        }
        let printed = self.build(tests)?;
        ensure!(
            printed.is_none(),
            "it does not build:\n{}",
            printed.unwrap_or_default()
        );
        let began = Instant::now();
        if let Some(by) = self.fails(tests, HOUR)? {
            bail!("{} fails without a planted defect: {by}", tests.join(" "));
        }
        let took = began.elapsed();
        self.took.insert(tests, took);
        Ok(took)
    }

    /// Builds these tests; what the compiler says if they do not build.
    fn build(&self, tests: &[&str]) -> Result<Option<String>> {
        let built = self.cargo(tests, HOUR, &["--no-run"])?;
        let printed = String::from_utf8_lossy(&built.stderr).into_owned();
        Ok((!built.status.success()).then_some(printed))
    }

    /// The first test that fails, if one does.
    fn fails(&self, tests: &[&str], limit: Duration) -> Result<Option<String>> {
        let mut words = vec!["--", "--format=pretty"];
        words.extend(tests.iter().filter(|word| !word.starts_with('-')));
        let output = self.cargo(tests, limit, &words)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut lines = printed
            .lines()
            .filter_map(|line| line.strip_prefix("test "));
        let failed = lines.find_map(|line| line.strip_suffix(" ... FAILED"));
        if matches!(output.status.code(), Some(TIMED_OUT | KILLED)) {
            return Ok(Some(format!("the time: over {} s", limit.as_secs())));
        }
        let ran = failed.is_some() || printed.contains(" ... ok");
        ensure!(ran, "no test is called {}", tests.join(" "));
        match (output.status.success(), failed) {
            (true, _) => Ok(None),
            (false, Some(name)) => Ok(Some(format!("`{name}`"))),
            (false, None) => bail!("the tests ended otherwise: {}", output.status),
        }
    }

    /// The output of `cargo test`, which is stopped after `limit`; with it the servers that it
    /// started, which may be caught in a loop. They could keep a pipe open: it goes to files.
    fn cargo(&self, tests: &[&str], limit: Duration, more: &[&str]) -> Result<Output> {
        let cargo = cargo_command();
        let mut command = Command::new("timeout");
        command
            .arg("--kill-after=30")
            .arg(limit.as_secs().to_string())
            .arg(cargo.get_program())
            .args(["test", "--quiet"])
            .args(self.libraries.packages(tests))
            .args(tests.iter().filter(|word| word.starts_with('-')))
            .args(more)
            .current_dir(&self.tree)
            // Built more often than run.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &self.build)
            // The same choices at each commit: a defect is noticed always or never.
            .env("FIRST_SEED", "0")
            .env("PROPTEST_RNG_SEED", "0");
        for (name, value) in cargo.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let [out, err] = ["out", "err"].map(|name| self.build.join(name));
        std::fs::create_dir_all(&self.build)?;
        command
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let status = command.status().context("timeout (of coreutils)")?;
        self.kill_left()?;
        Ok(Output {
            status,
            stdout: std::fs::read(out)?,
            stderr: std::fs::read(err)?,
        })
    }

    /// Ends the processes whose programs were built here.
    fn kill_left(&self) -> Result<()> {
        for process in std::fs::read_dir("/proc")?.flatten() {
            let program = std::fs::read_link(process.path().join("exe"));
            if program.is_ok_and(|it| it.starts_with(&self.build)) {
                let mut kill = Command::new("kill");
                kill.arg("-9").arg(process.file_name()).status()?;
            }
        }
        Ok(())
    }
}

/// The exit status of `timeout` if the time was over, and if the tests went on all the same.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;
