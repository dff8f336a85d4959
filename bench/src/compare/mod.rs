//! Quintet and its peers under the same load, in alternation.
//!
//! Absolute rates on a shared machine mean little; the ratios of what two
//! servers did in the same turn are the figures.

mod against;
mod contender;
mod driver;
mod experiments;
mod page;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::common::peers::Ground;
use crate::common::sheet::Sheet;
use crate::common::{Common, Found, Named};
use contender::Contender;
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
        let all = experiments::all()?;
        let named: Vec<Named<'_>> = all.iter().map(Experiment::named).collect();
        self.common.check(&named)?;
        let ground = self.common.ground(self.against.clone())?;
        let ran = self.common.ran()?;
        let effort = (self.common.turns, self.common.time());
        if let Some(against) = &ground.against {
            println!("{} against {}", ground.quintet.display(), against.display());
            for experiment in &all {
                if self.common.begins(experiment.named()) {
                    against::run(experiment, effort, &ground)?;
                }
            }
            return Ok(());
        }
        self.common.run("", &ran, &named, |at| {
            let found = measure(&all[at], effort, &ground)?;
            if !self.common.print {
                self.write_page(named[at].0, &page::part(&found, &ran))?;
            }
            Ok(found)
        })
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
fn measure(experiment: &Experiment, effort: Effort, ground: &Ground) -> Result<Found> {
    let mut contenders = experiment.contenders.clone();
    contenders.retain(|contender| {
        let here = contender.is_installed(ground);
        if !here {
            println!("({} is not installed and left out)", contender.name());
        }
        here
    });
    let (turns, _) = effort;
    let tables = table::measure(experiment, &contenders, effort, turns, ground)?;
    let mut found = found(experiment, &contenders, &tables);
    let servers = servers(&contenders, ground);
    found.more.insert("servers", servers);
    Ok(found)
}

/// Medians, a row for each contender, the figures, and every sample for readers who want to
/// calculate again.
fn found(experiment: &Experiment, contenders: &[Contender], tables: &[Table]) -> Found {
    let (title, show) = experiment.metric.shown();
    let columns = tables
        .iter()
        .map(|table| (table.scenario.name.clone(), show));
    let mut medians = Sheet::new(title, columns);
    for (at, contender) in contenders.iter().enumerate() {
        let row = tables.iter();
        let row = row.map(|table| table.median(experiment.metric, at));
        medians.row(contender.name(), row.collect::<Vec<_>>());
    }
    let mut figures = Vec::new();
    for table in tables {
        let wanted = experiment.figures(&table.scenario).iter();
        figures.extend(wanted.filter_map(|one| table.figure(one, experiment.metric)));
    }
    let scenarios = tables.iter().map(|table| {
        let pairs = table.contenders.iter().zip(&table.samples);
        let samples =
            pairs.map(|(contender, turns)| json!({ "name": contender.name(), "turns": turns }));
        json!({ "scenario": table.scenario, "contenders": samples.collect::<Value>() })
    });
    let mut found = Found::of(medians, figures);
    found.more.insert("scenarios", scenarios.collect());
    found
}

fn servers(contenders: &[Contender], ground: &Ground) -> Value {
    let mut servers = BTreeMap::new();
    for contender in contenders {
        servers.entry(&contender.server).or_insert_with(|| {
            json!({
                "version": contender.version(ground),
                "settings": contender.describe_settings(),
                "protocol": contender.protocol,
                "durable": contender.durable,
            })
        });
    }
    json!(servers)
}

#[cfg(test)]
mod tests {
    use quintet_bench::Protocol;

    use super::{Table, experiments, page};

    #[test]
    fn the_page_has_a_part_for_each_experiment() {
        let text = include_str!("../../results/README.md");
        for experiment in experiments::all().unwrap() {
            page::replace(text, experiment.named().0, "").unwrap();
        }
    }

    #[test]
    fn every_experiment_has_figures_of_the_peers_that_ran() {
        for experiment in experiments::all().unwrap() {
            let (name, _) = experiment.named();
            for contender in &experiment.contenders {
                assert!(!contender.server.is_empty(), "{name}");
                Protocol::named(&contender.protocol).unwrap();
            }
            for scenario in &experiment.scenarios {
                let table = Table {
                    scenario: scenario.clone(),
                    contenders: experiment.contenders.clone(),
                    samples: vec![Vec::new(); experiment.contenders.len()],
                };
                let figures = experiment.figures(scenario);
                assert!(!figures.is_empty(), "{name}");
                for figure in figures {
                    let figure = table.figure(figure, experiment.metric);
                    assert!(figure.is_some(), "{name} names somebody absent");
                }
            }
        }
    }
}
