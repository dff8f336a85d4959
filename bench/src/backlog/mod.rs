//! Quintet with backlogs far larger than its memory: Darner's four
//! experiments (flood, resident memory, packing, fairness) and what a server
//! that keeps queues on disk is asked for beside them.
//!
//! All of it is one server of our own on loopback and its data directory;
//! ratios are of what that server did in the same minute.

mod bulk;
mod depth;
mod disk;
mod flood;
mod large;
mod memory;
mod packing;
mod plot;
mod resident;
mod restart;
mod results;
mod server;
mod settings;
mod sheet;
mod talk;
mod through;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::compare::machine::{Machine, SyncTimes};
use crate::compare::peers::{self, Ground};
use sheet::Found;

/// Messages, turns and seconds of a short run.
const QUICK: (u64, usize, f64) = (100_000, 2, 1.0);
/// Messages, turns and seconds below which a run is called short.
const FEWEST: (u64, usize, f64) = (10_000_000, 5, 1.0);
/// Messages at least, so that all shares of them are some; and at most.
const MESSAGES: std::ops::RangeInclusive<u64> = 10_000..=100_000_000;
/// Turns and seconds at most.
const TURNS_MAX: usize = 100;
const SECONDS_MAX: f64 = 600.0;
/// Bytes the disk must have left for each message asked for: three times as
/// many of 100 B are held at once, or four tenths of 1 KiB; merging needs as
/// much again for a while.
const DISK_BYTES: u64 = 1_500;

/// One experiment.
struct Experiment {
    /// On the command line, and of its plots.
    name: &'static str,
    title: &'static str,
    run: fn(&Lab) -> Result<Found>,
}

/// All there are, in the order they are run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "flood",
        title: "Producers alone, then consumers alone",
        run: flood::flood,
    },
    Experiment {
        name: "resident",
        title: "Memory with a backlog, and with three times as many",
        run: resident::resident,
    },
    Experiment {
        name: "packing",
        title: "Disk for what is still to be taken",
        run: packing::packing,
    },
    Experiment {
        name: "fairness",
        title: "How long puts and takes take on a backlog",
        run: depth::fairness,
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
        run: flood::drain,
    },
    Experiment {
        name: "disk",
        title: "Many messages through a queue that old ones stay in",
        run: through::disk,
    },
];

/// Arguments of `backlog`.
#[derive(clap::Args)]
#[command(after_help = "\
Experiments: flood, resident, packing, fairness, depth, restart, large, drain, disk.

Examples:
  cargo xtask backlog                          everything; about half an hour
  cargo xtask backlog --only resident,restart
  cargo xtask backlog --quick --print          a first look

Run nothing else meanwhile: server and load share the machine. Resident holds three times
--messages, disk passes twice as many; depth holds four tenths, of 1 KiB; drain takes a fifth;
large holds a tenth.")]
pub(crate) struct Args {
    /// Only these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// 100,000 messages, two turns of a second: to see that it works, not to believe.
    #[arg(long, conflicts_with_all = ["messages", "turns", "seconds"])]
    quick: bool,
    /// Messages of a backlog.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    messages: u64,
    /// Turns of what is measured several times.
    #[arg(long, value_name = "N", default_value_t = 5)]
    turns: usize,
    /// Seconds of each load that is measured for a time.
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Print what was found and write no file.
    #[arg(long)]
    print: bool,
    /// The quintet binary.
    #[arg(long, value_name = "FILE", default_value = "target/release/quintet")]
    quintet: PathBuf,
    /// Root of the sources, with bench/results.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Where the servers write; on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "target/backlog")]
    scratch: PathBuf,
}

/// What experiments need.
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

impl Args {
    /// Runs what is asked for; prints it and, unless told not to, writes it
    /// into `bench/results/backlog.json`, beside what others found, and
    /// `backlog-NAME.svg`. An experiment that fails keeps no other from being
    /// run.
    ///
    /// # Errors
    /// An experiment failed, or a file cannot be written.
    pub(crate) fn run(mut self) -> Result<()> {
        if self.quick {
            (self.messages, self.turns, self.seconds) = QUICK;
        }
        self.check()?;
        fs::create_dir_all(&self.scratch)
            .with_context(|| format!("cannot make {}", self.scratch.display()))?;
        let (free, needed) = (disk::free(&self.scratch)?, self.messages * DISK_BYTES);
        if free < needed {
            bail!("{needed} bytes of disk are needed and {free} are left; ask for fewer messages");
        }
        let ran = self.ran()?;
        let lab = Lab {
            ground: Ground {
                against: None,
                quintet: self.quintet.clone(),
                scratch: self.scratch.clone(),
            },
            messages: self.messages,
            turns: self.turns,
            time: Duration::from_secs_f64(self.seconds),
        };
        let asked = |name: &str| self.only.is_empty() || self.only.iter().any(|n| n == name);
        let mut failed = Vec::new();
        for experiment in EXPERIMENTS.iter().filter(|one| asked(one.name)) {
            println!("\n## {}: {}\n", experiment.name, experiment.title);
            let start = Instant::now();
            match (experiment.run)(&lab) {
                Ok(found) => {
                    println!("{}", found.markdown());
                    println!("{:.0} s", start.elapsed().as_secs_f64());
                    if !self.print {
                        results::write(&self.root, experiment, &ran, &found)?;
                    }
                }
                Err(error) => {
                    eprintln!("{} failed: {error:#}", experiment.name);
                    failed.push(experiment.name);
                }
            }
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if !MESSAGES.contains(&self.messages) {
            let (least, most) = (MESSAGES.start(), MESSAGES.end());
            bail!("messages must be {least} to {most}");
        }
        if !(1..=TURNS_MAX).contains(&self.turns) {
            bail!("turns must be 1 to {TURNS_MAX}");
        }
        if !(0.1..=SECONDS_MAX).contains(&self.seconds) {
            bail!("seconds must be 0.1 to {SECONDS_MAX}");
        }
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
        for name in &self.only {
            if !names.contains(&name.as_str()) {
                bail!("no experiment \"{name}\"; there are {}", names.join(", "));
            }
        }
        Ok(())
    }

    /// How it is measured, for whoever reads the figures; printed too.
    fn ran(&self) -> Result<Value> {
        let (machine, sync) = (
            Machine::here(&self.scratch),
            SyncTimes::measure(&self.scratch)?,
        );
        let commit = peers::commit(&self.root).unwrap_or_else(|| "an unknown commit".to_owned());
        println!(
            "{}; {}. Quintet at {commit}",
            machine.describe(),
            sync.describe()
        );
        let Self {
            messages,
            turns,
            seconds,
            ..
        } = *self;
        Ok(json!({
            "machine": machine,
            "fdatasync_4k": sync,
            "quintet": commit,
            "messages": messages,
            "turns": turns,
            "seconds": seconds,
            "short": messages < FEWEST.0 || turns < FEWEST.1 || seconds < FEWEST.2,
        }))
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
    fn what_is_asked_for_must_be_there_and_bounded() {
        let check = |line: &str| Cli::parse_from(line.split(' ')).args.check();
        check("x --only flood,disk --messages 30000000").unwrap();
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
