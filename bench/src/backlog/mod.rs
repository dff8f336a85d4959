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
mod restart;
mod server;
mod talk;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::common::peers::Ground;
use crate::common::{Common, Found, Named};

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
    named: Named<'static>,
    run: fn(&Lab) -> Result<Found>,
}

/// All there are, in the order they are run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        named: (
            "resident",
            "Memory with a backlog, and with three times as many",
        ),
        run: held::resident,
    },
    Experiment {
        named: (
            "depth",
            "Put and take of 1 KiB on a backlog and on an empty queue",
        ),
        run: depth::depth,
    },
    Experiment {
        named: ("restart", "The first reply after a start on a backlog"),
        run: restart::restart,
    },
    Experiment {
        named: (
            "large",
            "Small messages beside a backlog and messages of 8 MiB",
        ),
        run: large::large,
    },
    Experiment {
        named: ("drain", "A cold backlog through one connection"),
        run: drain::drain,
    },
    Experiment {
        named: (
            "disk",
            "Many messages through a queue that old ones stay in",
        ),
        run: held::disk,
    },
    Experiment {
        named: ("due", "Many messages due in the same second"),
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
        let mut ran = common.ran()?;
        ran.short |= lab.messages < FEWEST;
        common.run("backlog-", &ran, &named(), |at| {
            let mut found = (EXPERIMENTS[at].run)(&lab)?;
            found.more.insert("messages", lab.messages.into());
            Ok(found)
        })
    }

    fn check(&mut self) -> Result<()> {
        if self.common.quick {
            self.messages = QUICK;
        }
        let (least, most) = (MESSAGES.start(), MESSAGES.end());
        let fine = MESSAGES.contains(&self.messages);
        ensure!(fine, "messages must be {least} to {most}");
        self.common.check(&named())
    }
}

fn named() -> Vec<Named<'static>> {
    EXPERIMENTS.iter().map(|one| one.named).collect()
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
