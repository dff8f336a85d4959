//! Put and take on a backlog beside the same on an empty queue of the same
//! server, in pairs.

use anyhow::Result;
use quintet_bench::Report;

use super::bulk::{Pile, measure};
use super::server::{DEFAULT, Server};
use super::{ExperimentResult, Lab};
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, bytes, count, fine, us};

/// The least part of the rate on an empty queue.
const WANTED: f64 = 0.9;
/// Bytes of a message.
const SIZE: usize = 1024;

/// Results of a pair of queues, turn by turn.
struct Pair {
    empty: Vec<Report>,
    deep: Vec<Report>,
}

/// Measures both queues by turns, the other one first every second time.
fn pairs(lab: &Lab, server: &Server, empty: Pile, deep: Pile) -> Result<Pair> {
    let loads = [empty, deep].map(|pile| -> Result<_> {
        let mut load = pile.load(server)?;
        load.time = lab.time;
        Ok(load)
    });
    let [empty_load, deep_load] = loads;
    let loads = [empty_load?, deep_load?];
    let mut found = [Vec::new(), Vec::new()];
    for turn in 0..=lab.turns {
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let what = format!("turn {turn} of {}: {}", lab.turns, loads[at].queue);
            let report = measure(&loads[at], &what, &mut |_| {})?;
            // The first turn warms both up.
            if turn > 0 {
                found[at].push(report);
            }
        }
    }
    let [empty, deep] = found;
    Ok(Pair { empty, deep })
}

fn spread(reports: &[Report], of: impl Fn(&Report) -> f64) -> Spread {
    Spread::of(reports.iter().map(of))
}

/// Rates with the backlog as parts of those without, turn by turn.
fn ratios(pair: &Pair) -> impl Iterator<Item = f64> {
    let pairs = pair.deep.iter().zip(&pair.empty);
    pairs.map(|(deep, empty)| deep.rate / empty.rate)
}

/// The rate on backlogs of growing depth, first in first out and by priorities.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn depth(lab: &Lab) -> Result<ExperimentResult> {
    const COLUMNS: [(&str, Show); 7] = [
        ("empty queue, requests/s", count),
        ("backlog, requests/s", count),
        ("ratio", fine),
        ("p99, empty", us),
        ("p99, backlog", us),
        ("longest, backlog", us),
        ("resident", bytes),
    ];
    let mut found = ExperimentResult::default();
    for (name, protocol) in [
        ("first in, first out", "memcache"),
        ("100 priorities", "beanstalk-priorities"),
    ] {
        let server = Server::new(&lab.ground, DEFAULT)?;
        let [empty, deep] = ["empty", "deep"].map(|prefix| Pile {
            protocol,
            prefix,
            size: SIZE,
        });
        let mut table = Sheet::new(format!("{name}, 10 connections"), &COLUMNS);
        let mut held = 0;
        for backlog in [0, lab.share(64, 10_000), lab.share(1, 10), lab.share(4, 10)] {
            if backlog > held {
                deep.put(&server, backlog - held, &mut |_| {})?;
                held = backlog;
                server.rest()?;
            }
            let pair = pairs(lab, &server, empty, deep)?;
            let text = count(held as f64);
            // Two empty queues tell how far two runs of the same differ.
            let bound = (held > 0).then_some(Bound::AtLeast(WANTED));
            let what = format!("{name}: rate with {text} held / empty");
            let figure = Figure::new(what, ratios(&pair), bound);
            let values = [
                spread(&pair.empty, |report| report.rate).median,
                spread(&pair.deep, |report| report.rate).median,
                figure.value.median,
                spread(&pair.empty, |report| report.latency.p99_us).median,
                spread(&pair.deep, |report| report.latency.p99_us).median,
                spread(&pair.deep, |report| report.latency.max_us).most,
                server.memory()?.sum() as f64,
            ];
            table.row(format!("{text} held"), values);
            found.figures.push(figure);
        }
        found.tables.push(table);
    }
    Ok(found)
}
