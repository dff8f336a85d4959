//! Put and take on a backlog beside the same on an empty queue of the same
//! server, in pairs.

use anyhow::Result;
use quintet_bench::Report;

use super::Lab;
use super::bulk::{Pile, measure};
use super::plot::{Line, Plot};
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::{Bound, Figure, Spread};

/// The least part of the rate on an empty queue.
const WANTED: f64 = 0.9;
/// Bytes of a message.
const SIZE: usize = 1024;
/// Requests a second of the steady load.
const STEADY: f64 = 5_000.0;

/// What a pair of queues found, turn by turn.
struct Pair {
    empty: Vec<Report>,
    deep: Vec<Report>,
}

/// Measures both queues by turns, the other one first every second time; at
/// `rate` requests a second or in a closed loop.
fn pairs(lab: &Lab, server: &Server, empty: Pile, deep: Pile, rate: Option<f64>) -> Result<Pair> {
    let loads = [empty, deep].map(|pile| -> Result<_> {
        let mut load = pile.load(server)?;
        (load.rate, load.time) = (rate, lab.time);
        Ok(load)
    });
    let [empty_load, deep_load] = loads;
    let loads = [empty_load?, deep_load?];
    let mut found = [Vec::new(), Vec::new()];
    for turn in 0..=lab.turns {
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let what = format!("turn {turn} of {}: {}", lab.turns, loads[at].queue);
            let report = measure(&loads[at], &what)?;
            // The first turn warms both up.
            if turn > 0 {
                found[at].push(report);
            }
        }
    }
    let [empty, deep] = found;
    Ok(Pair { empty, deep })
}

fn middle(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    Spread::of(reports.iter().map(of)).median
}

fn most(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    Spread::of(reports.iter().map(of)).most
}

/// The rate on backlogs of growing depth, first in first out and by ranks.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn depth(lab: &Lab) -> Result<Found> {
    let mut found = Found::default();
    let mut lines = Vec::new();
    for (name, voice) in [
        ("first in, first out", "memcache"),
        ("100 ranks", "beanstalk-ranks"),
    ] {
        let points = depths(lab, name, voice, &mut found)?;
        let name = name.to_owned();
        lines.push(Line { name, points });
    }
    found.plots.push(Plot {
        title: "Rate on a backlog / on an empty queue".to_owned(),
        x: "messages of 1 KiB in the backlog",
        y: "ratio of the rates",
        lines,
    });
    Ok(found)
}

/// Backlogs and the ratio on each.
fn depths(
    lab: &Lab,
    name: &str,
    voice: &'static str,
    found: &mut Found,
) -> Result<Vec<(f64, f64)>> {
    const COLUMNS: [(&str, Unit); 7] = [
        ("empty queue", Unit::Rate),
        ("backlog", Unit::Rate),
        ("ratio", Unit::Ratio),
        ("p99, empty", Unit::Microseconds),
        ("p99, backlog", Unit::Microseconds),
        ("longest, backlog", Unit::Microseconds),
        ("resident", Unit::Bytes),
    ];
    let server = Server::new(&lab.ground, Settings::DEFAULT)?;
    let [empty, deep] = ["empty", "deep"].map(|prefix| Pile {
        voice,
        prefix,
        size: SIZE,
    });
    let mut table = Table::new(format!("{name}, 10 connections"), &COLUMNS);
    let (mut held, mut points) = (0, Vec::new());
    for backlog in [0, lab.share(64, 10_000), lab.share(1, 10), lab.share(4, 10)] {
        if backlog > held {
            deep.put(&server, backlog - held)?;
            held = backlog;
            server.rest()?;
        }
        let pair = pairs(lab, &server, empty, deep, None)?;
        let ratios = pair.deep.iter().zip(&pair.empty);
        let ratios: Vec<f64> = ratios.map(|(deep, empty)| deep.rate / empty.rate).collect();
        let ratio = Spread::of(ratios.iter().copied()).median;
        let held_text = Unit::Count.show(held as f64);
        let values = [
            middle(&pair.empty, |report| report.rate),
            middle(&pair.deep, |report| report.rate),
            ratio,
            middle(&pair.empty, |report| report.latency.p99_us),
            middle(&pair.deep, |report| report.latency.p99_us),
            most(&pair.deep, |report| report.latency.max_us),
            server.memory()?.sum() as f64,
        ];
        table.row(format!("{held_text} held"), values);
        points.push((held as f64, ratio));
        // Two empty queues tell how far two runs of the same differ.
        let bound = (held > 0).then_some(Bound::AtLeast(WANTED));
        let what = format!("{name}: rate with {held_text} held / empty");
        found.figures.push(Figure::new(what, ratios, bound));
    }
    found.tables.push(table);
    Ok(points)
}

/// How long puts and takes take with a backlog and without.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn fairness(lab: &Lab) -> Result<Found> {
    const COLUMNS: [(&str, Unit); 5] = [
        ("rate", Unit::Rate),
        ("p50", Unit::Microseconds),
        ("p99", Unit::Microseconds),
        ("p99.9", Unit::Microseconds),
        ("longest", Unit::Microseconds),
    ];
    let server = Server::new(&lab.ground, Settings::SMALL)?;
    let (empty, deep) = (Pile::small("empty"), Pile::small("deep"));
    deep.put(&server, lab.messages)?;
    server.rest()?;
    let mut table = Table::new("10 connections on one queue", &COLUMNS);
    let mut found = Found::default();
    let backlog = format!("{} held", Unit::Count.show(lab.messages as f64));
    for (pace, rate) in [
        ("closed loop".to_owned(), None),
        (format!("{STEADY:.0} requests/s"), Some(STEADY)),
    ] {
        let pair = pairs(lab, &server, empty, deep, rate)?;
        for (what, reports) in [("no backlog", &pair.empty), (backlog.as_str(), &pair.deep)] {
            let values = [
                middle(reports, |report| report.rate),
                middle(reports, |report| report.latency.p50_us),
                middle(reports, |report| report.latency.p99_us),
                middle(reports, |report| report.latency.p999_us),
                most(reports, |report| report.latency.max_us),
            ];
            table.row(format!("{pace}, {what}"), values);
        }
        let ratios = pair.deep.iter().zip(&pair.empty);
        let ratios = ratios.map(|(deep, empty)| deep.latency.p99_us / empty.latency.p99_us);
        let what = format!("{pace}: p99 with the backlog / without");
        let figure = Figure::new(what, ratios.collect(), None);
        found.figures.push(figure);
    }
    found.tables.push(table);
    Ok(found)
}
