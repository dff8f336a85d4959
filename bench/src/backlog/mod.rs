//! Quintet with backlogs far larger than its memory.
//!
//! All of it is one server of our own on loopback and its data directory;
//! ratios are of what that server did in the same minute.

mod bulk;
mod depth;
mod disk;
mod drain;
mod due;
mod held;
mod large;
mod memory;
mod restart;
mod server;
mod talk;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use serde_json::json;

use crate::common::Common;
use crate::common::peers::Ground;
use crate::common::sheet::{self, Figure, Sheet};

pub(crate) use talk::Talk;

/// Messages of a short run, and below which a run is called short.
const QUICK: u64 = 100_000;
const FEWEST: u64 = 10_000_000;
/// Messages at least, so that all shares of them are some; and at most.
const MESSAGES: std::ops::RangeInclusive<u64> = 10_000..=100_000_000;
/// Bytes the disk must have left for each message asked for: three times as
/// many of 100 B are held at once, or four tenths of 1 KiB; merging needs as
/// much again for a while.
const DISK_BYTES: u64 = 1_500;

/// An experiment that the command line can name.
struct Experiment {
    /// On the command line, and of its file.
    name: &'static str,
    title: &'static str,
    run: fn(&Lab) -> Result<ExperimentResult>,
}

/// All there are, in the order they are run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "resident",
        title: "Memory with a backlog, and with three times as many",
        run: held::resident,
    },
    Experiment {
        name: "depth",
        title: "Put and take of 1 KiB on a backlog and on an empty queue",
        run: depth::depth,
    },
    Experiment {
        name: "restart",
        title: "The first reply after a start on a backlog",
        run: restart::restart,
    },
    Experiment {
        name: "large",
        title: "Small messages beside a backlog and messages of 8 MiB",
        run: large::large,
    },
    Experiment {
        name: "drain",
        title: "A cold backlog through one connection",
        run: drain::drain,
    },
    Experiment {
        name: "disk",
        title: "Many messages through a queue that old ones stay in",
        run: held::disk,
    },
    Experiment {
        name: "due",
        title: "Many messages due in the same second",
        run: due::due,
    },
];

#[derive(clap::Args)]
#[command(after_help = "\
Experiments: resident, depth, restart, large, drain, disk, due.

Examples:
  cargo xtask backlog                          everything; about half an hour
  cargo xtask backlog --only resident,restart
  cargo xtask backlog --quick --print          a first look, with 100,000 messages

Run nothing else meanwhile: server and load share the machine. Resident holds three times
--messages, disk passes twice as many; depth holds four tenths, of 1 KiB; drain takes a fifth;
large and due hold a tenth.")]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Messages of a backlog.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000_000,
        conflicts_with = "quick"
    )]
    messages: u64,
}

/// Tools of experiments.
struct Lab {
    ground: Ground,
    messages: u64,
    turns: usize,
    /// Of a load that is measured for a time.
    time: Duration,
}

impl Lab {
    /// A part of the messages.
    fn share(&self, of: u64, whole: u64) -> u64 {
        self.messages * of / whole
    }
}

/// The figures of one experiment, as the report has them.
#[derive(Default, Serialize)]
struct ExperimentResult {
    tables: Vec<Sheet>,
    figures: Vec<Figure>,
}

impl Args {
    /// Runs what is asked for; prints it and, unless told not to, writes it
    /// into `bench/results/backlog-NAME.json`. An experiment that fails keeps
    /// no other from being run.
    ///
    /// # Errors
    /// An experiment failed, or a file cannot be written.
    pub(crate) fn run(mut self) -> Result<()> {
        self.check()?;
        let common = &self.common;
        let lab = Lab {
            ground: common.ground(None)?,
            messages: self.messages,
            turns: common.turns,
            time: common.time(),
        };
        let (free, needed) = (disk::free(&lab.ground.scratch)?, lab.messages * DISK_BYTES);
        ensure!(
            free >= needed,
            "{needed} bytes of disk are needed and {free} are left; ask for fewer messages"
        );
        let (mut ran, sync) = (common.ran(), common.sync_times()?);
        ran.short |= lab.messages < FEWEST;
        println!("{}", sync.describe());
        let mut failed = Vec::new();
        for Experiment { name, title, run } in EXPERIMENTS {
            if !common.begins(name, title) {
                continue;
            }
            let start = Instant::now();
            let found = match run(&lab) {
                Ok(found) => found,
                Err(error) => {
                    eprintln!("{name} failed: {error:#}");
                    failed.push(*name);
                    continue;
                }
            };
            for table in &found.tables {
                println!("{}", table.markdown());
            }
            println!("{}", sheet::figures(&found.figures));
            println!("{:.0} s", start.elapsed().as_secs_f64());
            if !common.print {
                let all = json!({
                    "experiment": name, "title": title, "ran": ran, "fdatasync_4k": sync,
                    "messages": lab.messages, "found": found,
                });
                common.write_json(&format!("backlog-{name}"), &all)?;
            }
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        if self.common.quick {
            self.messages = QUICK;
        }
        let (least, most) = (MESSAGES.start(), MESSAGES.end());
        let fine = MESSAGES.contains(&self.messages);
        ensure!(fine, "messages must be {least} to {most}");
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
        self.common.check(&names)
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn parameters_are_required_and_bounded() {
        let check = |line: &str| Cli::parse_from(line.split(' ')).args.check();
        check("x --only drain,disk --messages 30000000").unwrap();
        for line in [
            "x --only tides",
            "x --messages 9999",
            "x --messages 100000001",
            "x --turns 0",
            "x --seconds 0",
        ] {
            assert!(check(line).is_err(), "{line}");
        }
    }
}
