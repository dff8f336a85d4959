//! A cluster beside bare JetStream: what Quintet costs on top of the servers that keep its log.
//!
//! Both publish to the same three servers in turns; what the bare publisher sends has the size that
//! the owner's entries had in the same turn, under the same condition, with as many on their way.

mod bare;
mod fleet;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use quintet_bench::{Load, Mix, Protocol};
use serde::Deserialize;

use crate::backlog::Talk;
use crate::common::sheet::{Bound, Figure, Sheet, Show, bytes, count, us, whole};
use crate::common::{Common, Found, Named};
use bare::{Bare, Published};
use fleet::Fleet;

/// Entries on their way, as a node's default.
const WINDOW: usize = 32;
/// Where bare publishes go, and the owner's log.
const BARE: &str = "BARE";
const LOG: &str = "Q_bench_0";
/// Publishes by which it is found what a stream stores beside an entry.
const PROBE: usize = 1024;

/// `bench/cluster.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// A load on the owner.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    title: String,
    size: usize,
    connections: usize,
    depth: usize,
    mix: Mix,
    window: usize,
    figures: Vec<Wanted>,
}

/// A figure of these columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    what: String,
    of: String,
    to: Option<String>,
    bound: Option<Bound>,
}

impl Wanted {
    fn figure(&self, turns: &[Turn]) -> Result<Figure> {
        let of = column(&self.of)?;
        let to = self.to.as_deref().map(column).transpose()?;
        let ratio = |turn| of(turn) / to.map_or(1.0, |to| to(turn));
        let values = turns.iter().map(ratio);
        Ok(Figure::new(self.what.as_str(), values, self.bound))
    }
}

fn cases() -> Result<Vec<Case>> {
    let file: File = toml::from_str(include_str!("../../cluster.toml")).context("cluster.toml")?;
    Ok(file.case)
}

#[derive(clap::Args)]
#[command(after_help = "\
Experiments: bytes, puts, lone.

Examples:
  cargo xtask bench-cluster                    everything; about two minutes
  cargo xtask bench-cluster --only lone --turns 9
  cargo xtask bench-cluster --quick --print

Three NATS servers and three nodes share this machine with the load: run nothing else
meanwhile. QUINTET_NATS_SERVER is the servers' program.")]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// The NATS servers' program.
    #[arg(
        long,
        value_name = "FILE",
        env = "QUINTET_NATS_SERVER",
        default_value = "nats-server"
    )]
    nats_server: PathBuf,
}

/// Result of one turn.
struct Turn {
    /// Requests a second, and how long half of them took at most.
    rate: f64,
    p50_us: f64,
    /// The owner's entries: how many a second, and their mean size.
    entries: f64,
    size: f64,
    bare: Published,
    /// Within how many ms 99 of 100 frames were applied on the slower standby.
    lag_ms: f64,
    /// Within how many ms 99 of 100 were acknowledged, which is a part of that.
    ack_ms: f64,
}

/// A number of a turn: its name, how it is shown, and where it is.
type Column = (&'static str, Show, fn(&Turn) -> f64);

static COLUMNS: [Column; 10] = [
    ("requests/s", count, |turn| turn.rate),
    ("p50", us, |turn| turn.p50_us),
    ("entries/s", whole, |turn| turn.entries),
    ("bytes an entry", whole, |turn| turn.size),
    ("bytes/s", bytes, |turn| turn.entries * turn.size),
    ("bare entries/s", whole, |turn| turn.bare.rate()),
    ("bare bytes/s", bytes, |turn| turn.bare.bytes()),
    ("bare p50", us, |turn| turn.bare.p50_us),
    ("owner's p99, ms", whole, |turn| turn.ack_ms),
    ("standby's p99, ms", whole, |turn| turn.lag_ms),
];

fn column(name: &str) -> Result<fn(&Turn) -> f64> {
    let found = COLUMNS.iter().find(|(column, ..)| *column == name);
    let (.., of) = found.with_context(|| format!("cluster.toml has a column {name}"))?;
    Ok(*of)
}

/// The cluster, and who publishes beside it.
struct Lab {
    fleet: Fleet,
    owner: usize,
    log: Bare,
    bare: Bare,
    /// Bytes that a stream stores beside an entry.
    beside: f64,
    time: Duration,
}

impl Args {
    /// Runs what is asked for; prints it and, unless told not to, writes it into
    /// `bench/results/cluster-NAME.json`.
    ///
    /// # Errors
    /// A program cannot be started, a load failed, or a file cannot be written.
    pub(crate) fn run(mut self) -> Result<()> {
        let cases = cases()?;
        let named = cases.iter();
        let named = named.map(|case| (case.name.as_str(), case.title.as_str()));
        let named: Vec<Named<'_>> = named.collect();
        self.common.check(&named)?;
        let common = &self.common;
        let ground = common.ground(None)?;
        let ran = common.ran()?;
        let mut lab = Lab::start(Fleet::start(&ground, &self.nats_server)?, common.time())?;
        common.run("cluster-", &ran, &named, |at| {
            let case = &cases[at];
            let columns = COLUMNS.iter().map(|(name, show, _)| (*name, *show));
            let mut table = Sheet::new("turn", columns);
            let mut turns: Vec<Turn> = Vec::new();
            for at in 0..common.turns {
                // Every second time the bare publisher is first, with entries as the turn before.
                let size = turns.last().filter(|_| at % 2 == 1).map(|turn| turn.size);
                let turn = lab.turn(case, size)?;
                table.row((at + 1).to_string(), COLUMNS.map(|(.., of)| of(&turn)));
                turns.push(turn);
            }
            let figures = case.figures.iter().map(|figure| figure.figure(&turns));
            let mut found = Found::of(table, figures.collect::<Result<_>>()?);
            found.more.insert("window", case.window.into());
            Ok(found)
        })
    }
}

impl Lab {
    fn start(fleet: Fleet, time: Duration) -> Result<Self> {
        let owner = fleet.owner()?;
        let port = fleet.ports[owner];
        let (mut log, mut bare) = (Bare::connect(port, LOG)?, Bare::connect(port, BARE)?);
        bare.create()?;
        let leader = log.info()?["cluster"]["leader"].clone();
        bare.lead_by(leader.as_str().context("the log has no leader")?)?;
        bare.publish(WINDOW, PROBE, Duration::from_millis(300))?;
        let stored = Stored::of(&mut bare)?;
        let beside = stored.bytes / stored.last - PROBE as f64;
        Ok(Self {
            fleet,
            owner,
            log,
            bare,
            beside,
            time,
        })
    }

    /// The owner under load, and the bare publisher; the other way round when it is known how long
    /// an entry is.
    fn turn(&mut self, case: &Case, size: Option<f64>) -> Result<Turn> {
        let first = size.map(|size| self.publish(case, size)).transpose()?;
        let mut turn = self.load(case)?;
        turn.bare = match first {
            Some(published) => published,
            None => self.publish(case, turn.size)?,
        };
        Ok(turn)
    }

    fn publish(&mut self, case: &Case, size: f64) -> Result<Published> {
        self.bare.purge()?;
        self.bare.publish(case.window, size as usize, self.time)
    }

    fn load(&mut self, case: &Case) -> Result<Turn> {
        let protocol = Protocol::named("memcache").map_err(anyhow::Error::msg)?;
        let mut load = Load::new(self.fleet.target(self.owner), protocol);
        (load.connections, load.depth) = (case.connections, case.depth);
        (load.size, load.mix, load.time) = (case.size, case.mix, self.time);
        let before = Stored::of(&mut self.log)?;
        let mut sizes = Sizes {
            seen: before,
            entries: 0.0,
            bytes: 0.0,
        };
        let log = &mut self.log;
        let report = load.run(&mut |_| {
            // One look less than there could be, if it fails.
            if let Ok(now) = Stored::of(log) {
                sizes.record(now);
            }
        })?;
        let (ack_ms, lag_ms) = self.lag()?;
        let after = Stored::of(&mut self.log)?;
        sizes.record(after);
        let entries = after.last - before.last;
        let size = sizes.mean().context("the log was purged all the time")? - self.beside;
        // Nothing of it is in the way of the next.
        let mut talk = Talk::connect(&self.fleet.target(self.owner))?;
        talk.ask("flush_all\r\nversion\r\n", "VERSION")?;
        Ok(Turn {
            rate: report.rate,
            p50_us: report.latency.p50_us,
            entries: entries / report.seconds,
            size,
            bare: Published::default(),
            lag_ms,
            ack_ms,
        })
    }

    /// The owner's acknowledgements, and the slower standby's lag.
    fn lag(&self) -> Result<(f64, f64)> {
        let status = self.fleet.status(self.owner)?;
        let nodes = status["nodes"].as_array().context("no nodes")?;
        let reports = nodes.iter().map(|node| &node["report"]);
        let owner = reports
            .clone()
            .find_map(|report| report["ack_p99_ms"].as_f64());
        let standbys = reports.filter(|report| report["role"] == "standby");
        let lags = standbys.filter_map(|report| report["lag_p99_ms"].as_f64());
        let lag = lags.reduce(f64::max).context("no standby")?;
        Ok((owner.context("no owner")?, lag))
    }
}

/// Content of a stream.
#[derive(Clone, Copy)]
struct Stored {
    first: f64,
    last: f64,
    bytes: f64,
}

impl Stored {
    fn of(stream: &mut Bare) -> Result<Self> {
        let info = stream.info()?;
        let number = |name: &str| {
            let number = info["state"][name].as_f64();
            number.with_context(|| format!("a stream without {name}: {info}"))
        };
        Ok(Self {
            first: number("first_seq")?,
            last: number("last_seq")?,
            bytes: number("bytes")?,
        })
    }
}

/// How much a log's entries take, from looks between which nothing was purged.
struct Sizes {
    seen: Stored,
    entries: f64,
    bytes: f64,
}

impl Sizes {
    fn record(&mut self, now: Stored) {
        if now.first == self.seen.first {
            self.entries += now.last - self.seen.last;
            self.bytes += now.bytes - self.seen.bytes;
        }
        self.seen = now;
    }

    fn mean(&self) -> Option<f64> {
        (self.entries > 0.0).then(|| self.bytes / self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::{Sizes, Stored, cases};

    #[test]
    fn every_figure_is_of_a_column() {
        for case in cases().unwrap() {
            assert!(!case.figures.is_empty(), "{}", case.name);
            for figure in case.figures {
                figure.figure(&[]).unwrap();
            }
        }
    }

    #[test]
    fn purged_entries_do_not_count_in_the_mean_size() {
        let stored = |first: f64, last: f64, bytes: f64| Stored { first, last, bytes };
        let mut sizes = Sizes {
            seen: stored(1.0, 10.0, 1000.0),
            entries: 0.0,
            bytes: 0.0,
        };
        assert_eq!(sizes.mean(), None);
        sizes.record(stored(1.0, 20.0, 3000.0));
        sizes.record(stored(15.0, 30.0, 700.0));
        sizes.record(stored(15.0, 40.0, 2700.0));
        assert_eq!(sizes.mean(), Some(200.0));
    }
}
