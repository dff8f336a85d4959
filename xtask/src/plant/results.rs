//! The outcomes of defects, kept from one run to the next.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Defect, End, Planted};

/// The beginning of the outcome of a defect that the tests noticed.
const NOTICED: &str = "killed by ";

/// How listed defects ended, and changes by chance.
pub(super) struct Results {
    file: PathBuf,
    /// The commit of this run.
    commit: String,
    /// By the name of a listed defect: the commit, and the outcome.
    ends: BTreeMap<String, (String, String)>,
    /// By chance: noticed, survived, not built.
    random: [usize; 3],
    /// The rows of changes by chance that survived.
    survivors: Vec<String>,
}

impl Results {
    /// Those of earlier runs: a line for each, with its name, commit and outcome.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub(super) fn read(root: &Path, file: PathBuf) -> Result<Self> {
        let git = ["describe", "--always", "--dirty", "--exclude=*"];
        let output = Command::new("git").args(git).current_dir(root).output();
        let output = output.context("git describe")?;
        let text = match file.exists() {
            true => std::fs::read_to_string(&file).with_context(|| file.display().to_string())?,
            false => String::new(),
        };
        Ok(Self {
            file,
            commit: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            ends: text.lines().filter_map(row).collect(),
            random: [0; 3],
            survivors: Vec::new(),
        })
    }

    pub(super) fn is_noticed(&self, name: &str) -> bool {
        let end = self.ends.get(name);
        end.is_some_and(|(_, end)| end.starts_with(NOTICED))
    }

    /// Notes an outcome, in the file too if the defect is a listed one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, one: &Defect, end: End) -> Result<()> {
        let (kind, end) = match end {
            End::Noticed(by) => (0, format!("{NOTICED}{by}")),
            End::Survived => (1, "SURVIVED".to_owned()),
            End::NotBuilt(printed) => {
                if !one.random {
                    println!("{printed}");
                }
                (2, "does not build".to_owned())
            }
        };
        let Defect { name, what, .. } = one;
        println!("xtask: plant: {name}: {end}");
        if one.random {
            self.random[kind] += 1;
            // The others are many, and say nothing.
            if kind == 1 {
                self.survivors
                    .push(format!("| `{name}` | {what} | {end} |"));
            }
            return Ok(());
        }
        self.ends.insert(name.clone(), (self.commit.clone(), end));
        let rows = self.ends.iter();
        let rows = rows.map(|(name, (commit, end))| format!("{name}\t{commit}\t{end}\n"));
        let text: String = rows.collect();
        std::fs::write(&self.file, text).with_context(|| self.file.display().to_string())
    }

    /// Prints the outcomes of the `listed` defects and of changes by chance.
    ///
    /// # Errors
    /// One of the listed defects has survived, or does not build.
    pub(super) fn print(&self, listed: impl Iterator<Item = &'static Planted>) -> Result<()> {
        println!("\n| name | planted | | commit |\n|---|---|---|---|");
        // Noticed, otherwise, not planted.
        let mut counts = [0; 3];
        for Planted { name, what, .. } in listed {
            let (kind, commit, end) = match self.ends.get(*name) {
                Some((commit, end)) if end.starts_with(NOTICED) => {
                    (0, commit.as_str(), end.as_str())
                }
                Some((commit, end)) => (1, commit.as_str(), end.as_str()),
                None => (2, "", "not planted yet"),
            };
            counts[kind] += 1;
            println!("| `{name}` | {what} | {end} | {commit} |");
        }
        for row in &self.survivors {
            println!("{row} {} |", self.commit);
        }
        let [noticed, others, absent] = counts;
        println!("\n{noticed} noticed, {others} not noticed, {absent} not planted yet");
        let [noticed, survived, unbuilt] = self.random;
        if self.random != [0; 3] {
            println!("by chance: {noticed} noticed, {survived} survived, {unbuilt} did not build");
        }
        ensure!(others == 0, "{others} survived or do not build");
        Ok(())
    }
}

/// The name, commit and outcome in a line of the file.
fn row(line: &str) -> Option<(String, (String, String))> {
    let (name, rest) = line.split_once('\t')?;
    let (commit, end) = rest.split_once('\t')?;
    Some((name.to_owned(), (commit.to_owned(), end.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::super::{Defect, End, PlantArgs, all};
    use super::Results;

    #[test]
    fn a_later_run_goes_on_with_those_that_were_not_noticed() {
        let root = crate::root();
        let file = std::env::temp_dir().join(format!("quintet-planted-{}", std::process::id()));
        let mut results = Results::read(&root, file.clone()).unwrap();
        let listed: Vec<_> = all().collect();
        let defect = |at: usize| Defect {
            name: listed[at].name.to_owned(),
            what: String::new(),
            files: Vec::new(),
            tests: listed[at].tests,
            random: false,
        };
        let by = "`one::two`".to_owned();
        results.add(&defect(0), End::Noticed(by)).unwrap();
        results.add(&defect(1), End::Survived).unwrap();
        let later = Results::read(&root, file.clone()).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(later.is_noticed(listed[0].name) && !later.is_noticed(listed[1].name));
        let count = |args: &PlantArgs| args.chosen(&later, 7).len();
        let mut args = PlantArgs::default();
        assert_eq!(count(&args), listed.len() - 1);
        assert_eq!(count(&PlantArgs::all(0)), listed.len());
        args.sample = Some(5);
        assert_eq!(count(&args), 5);
        // The one that survived is an error until it is noticed.
        later.print(all()).expect_err("one survived");
        later.print(all().take(1)).unwrap();
    }
}
