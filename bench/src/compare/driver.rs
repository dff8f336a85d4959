//! The same work for every contender, in alternation.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quintet_bench::{Latency, Load, Mix, Stream};
use serde::Serialize;

use super::contender::{Contender, Peer};
use super::experiments::{Metric, Scenario};
use crate::common::peers::Ground;
use crate::common::sheet::mib;
use crate::common::{self, beside_large};

/// Uncounted load before the first turn.
const WARM_UP: Duration = Duration::from_millis(500);
/// Messages that a turn of puts alone leaves in a server at most.
const KEPT_MAX: u64 = 1_000_000;
/// Depth of the puts before a turn of takes alone: in the same time they put
/// more than is taken.
const FILL_DEPTH: usize = 64;

/// Result of one load of one contender.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Requests a second.
    pub(crate) rate: f64,
    #[serde(flatten)]
    pub(crate) latency: Latency,
    /// The server's processor time for each request, microseconds; of a
    /// server with a background load, of both loads.
    pub(crate) cpu_us: f64,
    /// The server's memory after the load, bytes.
    pub(crate) resident: u64,
    /// Messages of 8 MiB a second in the background, puts and takes.
    pub(crate) background_rate: f64,
}

impl Sample {
    /// In the unit that the measure's title names.
    pub(crate) fn of(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Rate => self.rate,
            Metric::P99 => self.latency.p99_us / 1e3,
            Metric::Cpu => self.cpu_us,
            Metric::Resident => mib(self.resident as f64),
        }
    }
}

/// How many turns, and how long each load is.
pub(crate) type Effort = (usize, Duration);

/// Runs a scenario: all contenders are started, then take turns, the other
/// way round every second time. Answers the samples of each contender.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn alternate(
    contenders: &[Contender],
    scenario: &Scenario,
    (turns, time): Effort,
    ground: &Ground,
) -> Result<Vec<Vec<Sample>>> {
    let mut running = Vec::with_capacity(contenders.len());
    let idle: usize = contenders.iter().map(|contender| contender.idle).sum();
    quintet_bench::raise_file_limit(idle + scenario.connections);
    for contender in contenders {
        let context = || contender.name();
        let peer = contender.start(ground).with_context(context)?;
        let idle: Vec<Stream> = (0..contender.idle)
            .map(|_| Stream::connect(&peer.target, None))
            .collect::<Result<_, _>>()
            .with_context(context)?;
        let mut warm = load(&peer, contender, scenario, WARM_UP.min(time))?;
        warm.mix = Mix::BOTH;
        warm.run(&mut |_| {}).with_context(context)?;
        running.push((contender, peer, idle));
    }
    let samples = common::alternate(turns, running.len(), |turn, at| {
        let (contender, peer, _) = &running[at];
        let (work, who) = (&scenario.name, contender.name());
        let what = format!("{work}, turn {} of {turns}: {who}", turn + 1);
        measure(peer, contender, scenario, time, &what).context(who)
    })?;
    for (contender, _, idle) in &running {
        // Without them the figures would say nothing.
        let open = idle.iter().all(Stream::is_open);
        ensure!(open, "{} closed idle connections", contender.name());
    }
    Ok(samples)
}

fn load(peer: &Peer, contender: &Contender, scenario: &Scenario, time: Duration) -> Result<Load> {
    let mut load = contender.load(&peer.target)?;
    (load.connections, load.depth) = (scenario.connections, scenario.depth);
    (load.size, load.mix) = (scenario.size, scenario.mix);
    (load.rate, load.time) = (scenario.rate, time);
    if scenario.mix != Mix::BOTH {
        load.count = Some(KEPT_MAX);
    }
    Ok(load)
}

fn measure(
    peer: &Peer,
    contender: &Contender,
    scenario: &Scenario,
    time: Duration,
    what: &str,
) -> Result<Sample> {
    let mut load = load(peer, contender, scenario, time)?;
    if scenario.mix == Mix::TAKE {
        let mut puts = load.clone();
        (puts.mix, puts.depth) = (Mix::PUT, FILL_DEPTH);
        load.count = Some(puts.run(&mut |_| {})?.puts);
    }
    let sample = || -> Result<_> {
        let before = peer.usage()?;
        let report = load.measure(what, &mut |_| {})?;
        Ok((report, before, peer.usage()?))
    };
    let ((report, before, after), background_rate) = match contender.background {
        true => beside_large(&load, time, sample)?,
        false => (sample()?, 0.0),
    };
    Ok(Sample {
        rate: report.rate,
        latency: report.latency,
        cpu_us: (after.cpu - before.cpu).as_secs_f64() * 1e6 / report.requests.max(1) as f64,
        resident: after.resident,
        background_rate,
    })
}
