//! The part that the comparison and the experiments share: their arguments, the machine, how a
//! server is started, tables, and where results are written.

pub(crate) mod machine;
pub(crate) mod peers;
pub(crate) mod sheet;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use machine::{Machine, SyncTimes};
use peers::Ground;

/// Turns and seconds of a short run.
const QUICK: (usize, f64) = (2, 1.0);
/// Turns and seconds below which a run is called short.
const FEWEST: (usize, f64) = (5, 1.0);
/// Seconds of a load at most, and turns.
const SECONDS_MAX: f64 = 600.0;
const TURNS_MAX: usize = 100;

/// Arguments of both.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Only these, by name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Two turns of a second: to see that it works, not to believe.
    #[arg(long, conflicts_with_all = ["turns", "seconds"])]
    pub(crate) quick: bool,
    /// Turns of what is measured several times.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) turns: usize,
    /// Seconds of each load that is measured for a time.
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Print what was found and write no file.
    #[arg(long)]
    pub(crate) print: bool,
    /// The quintet binary.
    #[arg(long, value_name = "FILE", default_value = "target/release/quintet")]
    quintet: PathBuf,
    /// Root of the sources, with bench/results.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
    /// Where the servers write; on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    scratch: PathBuf,
}

/// How it was measured.
#[derive(Clone, Serialize)]
pub(crate) struct Ran {
    pub(crate) machine: Machine,
    pub(crate) turns: usize,
    pub(crate) seconds: f64,
    /// Commit of the sources.
    pub(crate) quintet: String,
    /// Too short to be believed.
    pub(crate) short: bool,
}

impl Common {
    /// Refuses what cannot be, of experiments of these names.
    ///
    /// # Errors
    /// A number is out of its range, or there is no such experiment.
    pub(crate) fn check(&mut self, names: &[&str]) -> Result<()> {
        if self.quick {
            (self.turns, self.seconds) = QUICK;
        }
        let turns = (1..=TURNS_MAX).contains(&self.turns);
        ensure!(turns, "turns must be 1 to {TURNS_MAX}");
        let seconds = (0.1..=SECONDS_MAX).contains(&self.seconds);
        ensure!(seconds, "seconds must be 0.1 to {SECONDS_MAX}");
        for name in &self.only {
            let known = names.contains(&name.as_str());
            ensure!(
                known,
                "no experiment \"{name}\"; there are {}",
                names.join(", ")
            );
        }
        Ok(())
    }

    /// True if the experiment of this name is to be run; says that it begins.
    pub(crate) fn begins(&self, name: &str, title: &str) -> bool {
        let wanted = self.only.is_empty() || self.only.iter().any(|n| n == name);
        if wanted {
            println!("\n## {name}: {title}\n");
        }
        wanted
    }

    /// How long a load is measured.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Makes the directory servers write to, and looks for the binaries.
    ///
    /// # Errors
    /// It cannot be made, or a binary is not there.
    pub(crate) fn ground(&self, against: Option<PathBuf>) -> Result<Ground> {
        let scratch = self.scratch.clone();
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot make {}", scratch.display()))?;
        for binary in [Some(&self.quintet), against.as_ref()]
            .into_iter()
            .flatten()
        {
            ensure!(binary.is_file(), "no file {}", binary.display());
        }
        let quintet = self.quintet.clone();
        Ok(Ground {
            quintet,
            against,
            scratch,
        })
    }

    /// Says how it is measured.
    pub(crate) fn ran(&self) -> Ran {
        let ran = Ran {
            machine: Machine::here(&self.scratch),
            turns: self.turns,
            seconds: self.seconds,
            quintet: peers::commit(&self.root).unwrap_or_else(|| "an unknown commit".to_owned()),
            short: self.turns < FEWEST.0 || self.seconds < FEWEST.1,
        };
        println!("{}; Quintet at {}", ran.machine.describe(), ran.quintet);
        ran
    }

    /// How long the disk takes to sync.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(crate) fn sync_times(&self) -> Result<SyncTimes> {
        SyncTimes::measure(&self.scratch)
    }

    /// Writes the results of an experiment into `bench/results/NAME.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_json(&self, name: &str, found: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(found)? + "\n";
        let results = self.root.join("bench/results");
        let path = results.join(format!("{name}.json"));
        let written = fs::create_dir_all(&results).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}
