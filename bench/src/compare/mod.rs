//! Quintet and its peers under the same load, in alternation.
//!
//! Absolute rates on a shared machine mean little; the ratios of what two
//! servers did in the same turn are the figures.

mod against;
mod driver;
mod experiments;
mod page;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::common::machine::SyncTimes;
use crate::common::peers::Ground;
use crate::common::{Common, Named};
use driver::Effort;
use experiments::Experiment;
use table::Table;

#[derive(clap::Args)]
#[command(after_help = "\
Experiments: small, pipelined, synced, jobs, cpu, idle, large.

Examples:
  cargo xtask compare                          everything; about 15 minutes
  cargo xtask compare --only small,pipelined
  cargo xtask compare --quick --print          a first look
  cargo xtask compare --only small,pipelined --against ../before/quintet --turns 30 --seconds 1
                                               two binaries of Quintet, and nobody else

Run nothing else meanwhile: server and load share the machine. Each contender is measured once in
each turn.")]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// A second quintet binary, such as one of the commit before: the two take
    /// turns, peers stay away, and their ratios are printed. Writes no file.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

impl Args {
    /// Runs what is asked for; prints it and, unless told not to, writes
    /// `bench/results/NAME.json` and the page's part.
    ///
    /// # Errors
    /// A server does not start, a load fails, or a file cannot be written.
    pub(crate) fn run(mut self) -> Result<()> {
        let all = experiments::all();
        let named: Vec<Named> = all.iter().map(|one| one.named).collect();
        self.common.check(&named)?;
        let ground = self.common.ground(self.against.clone())?;
        let mut ran = self.common.ran()?;
        let effort = (self.common.turns, self.common.time());
        if let Some(against) = &ground.against {
            println!("{} against {}", ground.quintet.display(), against.display());
        }
        for mut experiment in all {
            if !self.common.begins(experiment.named) {
                continue;
            }
            if ground.against.is_some() {
                against::run(&experiment, effort, &ground)?;
                continue;
            }
            // A disk may be slower by now.
            ran.sync = SyncTimes::measure(&ground.scratch)?;
            let tables = measure(&mut experiment, effort, &ground)?;
            let page = page::tables(&experiment, &tables, &ran);
            println!("{page}");
            if !self.common.print {
                let found = to_json(&experiment, &tables, &ground);
                let name = experiment.named.0;
                self.common.write(name, experiment.named, &ran, found)?;
                self.write_page(name, &page)?;
            }
        }
        Ok(())
    }

    fn write_page(&self, name: &str, tables: &str) -> Result<()> {
        let path = self.common.root.join("bench/results/README.md");
        let context = || format!("cannot change {}", path.display());
        let text = fs::read_to_string(&path).with_context(context)?;
        let text = page::replace(&text, name, tables)?;
        fs::write(&path, text).with_context(context)
    }
}

/// Measures the contenders that are installed.
fn measure(experiment: &mut Experiment, effort: Effort, ground: &Ground) -> Result<Vec<Table>> {
    experiment.contenders.retain(|contender| {
        let here = contender.kind.is_installed(ground);
        if !here {
            println!("({} is not installed and left out)", contender.name());
        }
        here
    });
    let contenders = &experiment.contenders;
    let measured = experiment.scenarios.iter().map(|scenario| {
        let samples = driver::alternate(contenders, scenario, effort, ground)?;
        Ok(Table::new(scenario, contenders, samples))
    });
    measured.collect()
}

/// Everything, for readers who want to calculate again.
fn to_json(experiment: &Experiment, tables: &[Table], ground: &Ground) -> Value {
    let mut servers = BTreeMap::new();
    for contender in &experiment.contenders {
        let kind = contender.kind;
        servers.entry(kind.name()).or_insert_with(|| {
            json!({
                "version": kind.version(ground),
                "settings": kind.describe_settings(),
                "protocol": kind.protocol(),
                "durable": kind.is_durable(),
            })
        });
    }
    let scenarios = tables.iter().map(|table| {
        let pairs = table.contenders.iter().zip(&table.samples);
        let samples =
            pairs.map(|(contender, turns)| json!({ "name": contender.name(), "turns": turns }));
        json!({ "scenario": table.scenario, "contenders": samples.collect::<Value>() })
    });
    json!({
        "servers": servers,
        "scenarios": scenarios.collect::<Value>(),
        "figures": experiment.figures_of(tables),
    })
}

#[cfg(test)]
mod tests {
    use super::{experiments, page};

    #[test]
    fn the_page_has_a_part_for_each_experiment() {
        let text = include_str!("../../results/README.md");
        for experiment in experiments::all() {
            page::replace(text, experiment.named.0, "").unwrap();
        }
    }

    #[test]
    fn every_experiment_has_figures_of_the_peers_that_ran() {
        for experiment in experiments::all() {
            for scenario in &experiment.scenarios {
                let samples = vec![Vec::new(); experiment.contenders.len()];
                let table = super::Table::new(scenario, &experiment.contenders, samples);
                let figures = (experiment.figures)(&table);
                assert!(!figures.is_empty(), "{}", experiment.named.0);
                for figure in figures {
                    assert!(
                        figure.is_some(),
                        "{} names somebody absent",
                        experiment.named.0
                    );
                }
            }
        }
    }
}
