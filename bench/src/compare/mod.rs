//! Quintet and its peers under the same load, in alternation.
//!
//! Absolute rates on a shared machine mean little; the ratios of what two
//! servers did in the same turn are the figures.

mod against;
mod driver;
mod experiments;
pub(crate) mod machine;
pub(crate) mod page;
pub(crate) mod peers;
mod plot;
pub(crate) mod results;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};

use driver::Effort;
use experiments::Experiment;
use machine::{Machine, SyncTimes};
use peers::Ground;
use results::{Figure, Table};

/// Turns and seconds of a short run.
const QUICK: (usize, f64) = (2, 1.0);
/// Turns and seconds below which a run is called short.
const FEWEST: (usize, f64) = (5, 1.0);
/// Seconds of a load at most.
const SECONDS_MAX: f64 = 600.0;
/// Turns at most.
const TURNS_MAX: usize = 100;

/// Arguments of `compare`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask compare                          everything; about 15 minutes
  cargo xtask compare --only small,pipelined
  cargo xtask compare --quick --print          a first look
  cargo xtask compare --only small,pipelined --against ../before/quintet --turns 30 --seconds 1
                                               two binaries of Quintet, and nobody else

Run nothing else meanwhile: server and load share the machine.")]
pub(crate) struct Args {
    /// Only these: small, pipelined, synced, jobs, cpu, idle, large.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Two turns of a second: to see that it works, not to believe.
    #[arg(long, conflicts_with_all = ["turns", "seconds"])]
    quick: bool,
    /// Turns; each contender is measured once in each.
    #[arg(long, value_name = "N", default_value_t = 5)]
    turns: usize,
    /// Seconds of each load.
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Print the figures and write no file.
    #[arg(long)]
    print: bool,
    /// The quintet binary.
    #[arg(long, value_name = "FILE", default_value = "target/release/quintet")]
    quintet: PathBuf,
    /// A second quintet binary, such as one of the commit before: the two take
    /// turns, peers stay away, and their ratios are printed. Writes no file.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Root of the sources, with bench/results and docs/performance.md.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Where the servers write; on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "target/compare")]
    scratch: PathBuf,
}

/// How it was measured.
#[derive(Clone, Serialize)]
pub(crate) struct Ran {
    machine: Machine,
    turns: usize,
    seconds: f64,
    /// Commit of the sources.
    quintet: String,
    /// Too short to be believed.
    short: bool,
}

/// All an experiment found.
pub(crate) struct Outcome {
    ran: Ran,
    sync: SyncTimes,
    tables: Vec<Table>,
    figures: Vec<Figure>,
}

impl Args {
    /// Runs what is asked for; prints it and, unless told not to, writes
    /// `bench/results/NAME.json`, `NAME.svg` and the page's part.
    ///
    /// # Errors
    /// A server does not start, a load fails, or a file cannot be written.
    pub(crate) fn run(mut self) -> Result<()> {
        if self.quick {
            (self.turns, self.seconds) = QUICK;
        }
        if !(1..=TURNS_MAX).contains(&self.turns) {
            bail!("turns must be 1 to {TURNS_MAX}");
        }
        if !(0.1..=SECONDS_MAX).contains(&self.seconds) {
            bail!("seconds must be 0.1 to {SECONDS_MAX}");
        }
        let all = experiments::all();
        for name in &self.only {
            if !all.iter().any(|experiment| experiment.name == name) {
                let names: Vec<_> = all.iter().map(|experiment| experiment.name).collect();
                bail!("no experiment \"{name}\"; there are {}", names.join(", "));
            }
        }
        let ground = Ground {
            quintet: self.quintet.clone(),
            against: self.against.clone(),
            scratch: self.scratch.clone(),
        };
        fs::create_dir_all(&self.scratch)
            .with_context(|| format!("cannot make {}", self.scratch.display()))?;
        let ran = Ran {
            machine: Machine::here(&self.scratch),
            turns: self.turns,
            seconds: self.seconds,
            quintet: peers::commit(&self.root).unwrap_or_else(|| "an unknown commit".to_owned()),
            short: self.turns < FEWEST.0 || self.seconds < FEWEST.1,
        };
        println!("{}; Quintet at {}", ran.machine.describe(), ran.quintet);
        for binary in [Some(&self.quintet), self.against.as_ref()] {
            if let Some(binary) = binary.filter(|binary| !binary.is_file()) {
                bail!("no file {}", binary.display());
            }
        }
        if let Some(against) = &self.against {
            println!("{} against {}", self.quintet.display(), against.display());
        }
        let asked = |name: &str| self.only.is_empty() || self.only.iter().any(|n| n == name);
        for mut experiment in all.into_iter().filter(|experiment| asked(experiment.name)) {
            if self.against.is_some() {
                against::run(&experiment, self.effort(), &ground)?;
                continue;
            }
            let outcome = self.experiment(&mut experiment, &ground, &ran)?;
            if !self.print {
                write(&self.root, &experiment, &outcome, &ground)?;
            }
        }
        Ok(())
    }

    fn effort(&self) -> Effort {
        Effort {
            turns: self.turns,
            time: Duration::from_secs_f64(self.seconds),
        }
    }

    fn experiment(
        &self,
        experiment: &mut Experiment,
        ground: &Ground,
        ran: &Ran,
    ) -> Result<Outcome> {
        println!("\n## {}: {}\n", experiment.name, experiment.title);
        experiment.contenders.retain(|contender| {
            let here = contender.kind.is_installed(ground);
            if !here {
                println!("({} is not installed and left out)", contender.name());
            }
            here
        });
        let sync = SyncTimes::measure(&self.scratch)?;
        let effort = self.effort();
        let mut tables = Vec::new();
        for scenario in &experiment.scenarios {
            let samples = driver::alternate(&experiment.contenders, scenario, effort, ground)?;
            tables.push(Table {
                scenario: scenario.clone(),
                contenders: experiment.contenders.clone(),
                samples,
            });
        }
        let figures = tables
            .iter()
            .flat_map(experiment.figures)
            .flatten()
            .collect();
        let ran = ran.clone();
        let outcome = Outcome {
            ran,
            sync,
            tables,
            figures,
        };
        println!("{}", page::tables(experiment, &outcome));
        Ok(outcome)
    }
}

fn write(root: &Path, experiment: &Experiment, outcome: &Outcome, ground: &Ground) -> Result<()> {
    let name = experiment.name;
    let results = root.join("bench/results");
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let put = |path: PathBuf, text: &str| {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let found = serde_json::to_string_pretty(&to_json(experiment, outcome, ground))?;
    put(results.join(format!("{name}.json")), &(found + "\n"))?;
    let plot = plot::bars(experiment.title, experiment.metric, &outcome.tables);
    put(results.join(format!("{name}.svg")), &plot)?;
    let path = root.join("docs/performance.md");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let text = page::replace(&text, name, &page::block(experiment, outcome))?;
    put(path, &text)
}

/// Everything, for whoever wants to reckon again.
fn to_json(experiment: &Experiment, outcome: &Outcome, ground: &Ground) -> Value {
    let mut servers = BTreeMap::new();
    for contender in &experiment.contenders {
        let kind = contender.kind;
        servers.entry(kind.name()).or_insert_with(|| {
            json!({
                "version": kind.version(ground),
                "settings": kind.describe_settings(),
                "voice": kind.voice(),
                "durable": kind.is_durable(),
            })
        });
    }
    let scenarios: Vec<Value> = outcome
        .tables
        .iter()
        .map(|table| {
            let pairs = table.contenders.iter().zip(&table.samples);
            let samples: Vec<Value> = pairs
                .map(|(contender, samples)| json!({ "name": contender.name(), "turns": samples }))
                .collect();
            json!({ "scenario": table.scenario, "contenders": samples })
        })
        .collect();
    json!({
        "experiment": experiment.name,
        "title": experiment.title,
        "ran": outcome.ran,
        "fdatasync_4k": outcome.sync,
        "servers": servers,
        "scenarios": scenarios,
        "figures": outcome.figures,
    })
}

#[cfg(test)]
mod tests {
    use super::{experiments, page};

    #[test]
    fn the_page_has_a_part_for_each_experiment() {
        let text = include_str!("../../../docs/performance.md");
        for experiment in experiments::all() {
            page::replace(text, experiment.name, "").unwrap();
        }
    }

    #[test]
    fn every_experiment_has_its_figures_asked_of_who_is_there() {
        for experiment in experiments::all() {
            for scenario in &experiment.scenarios {
                let table = super::Table {
                    scenario: scenario.clone(),
                    contenders: experiment.contenders.clone(),
                    samples: vec![Vec::new(); experiment.contenders.len()],
                };
                let figures = (experiment.figures)(&table);
                assert!(!figures.is_empty(), "{}", experiment.name);
                for figure in figures {
                    assert!(
                        figure.is_some(),
                        "{} names somebody absent",
                        experiment.name
                    );
                }
            }
        }
    }
}
