//! Small messages beside large ones and a backlog.

use anyhow::Result;
use quintet_bench::Report;

use super::Lab;
use super::bulk::{Pile, measure};
use super::server::{DEFAULT, Server};
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, count, us};
use crate::common::{Found, alternate, beside_large};

/// Small requests a second, over so many connections that each has sent few
/// of them when a slow reply comes.
const STEADY: f64 = 1_000.0;
const CONNECTIONS: usize = 50;
/// Milliseconds within which 99 % of the small requests should be answered.
const WANTED_MS: Bound = Bound::AtMost(5.0);

/// Small messages at a steady rate on the backlog's queue and on queues of
/// their own; with and without ten connections that put and take messages of
/// 8 MiB as fast as they can.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn large(lab: &Lab) -> Result<Found> {
    const COLUMNS: [(&str, Show); 5] = [
        ("p50", us),
        ("p99, median of the turns", us),
        ("p99, most", us),
        ("longest", us),
        ("large messages/s", count),
    ];
    let server = Server::new(&lab.ground, DEFAULT)?;
    let backlog = lab.share(1, 10);
    let deep = Pile::small("deep");
    deep.put(&server, backlog, &mut |_| {})?;
    server.rest()?;
    let mut own = deep.load(&server)?;
    (own.connections, own.rate, own.time) = (CONNECTIONS, Some(STEADY), lab.time);
    let shared = own.clone();
    (own.queue, own.queues) = ("own".to_owned(), None);
    let cases = [
        ("own queues", &own, false),
        ("the backlog's queue", &shared, false),
        ("own queues, beside large ones", &own, true),
        ("the backlog's queue, beside large ones", &shared, true),
    ];
    let found = alternate(lab.turns, cases.len(), |turn, at| {
        let (name, load, beside) = cases[at];
        let what = format!("turn {} of {}: {name}", turn + 1, lab.turns);
        let small = || measure(load, &what, &mut |_| {});
        match beside {
            true => beside_large(load, load.time, small),
            false => Ok((small()?, 0.0)),
        }
    })?;
    let held = count(backlog as f64);
    let mut table = Sheet::new(format!("{STEADY} requests/s, {held} held"), COLUMNS);
    let mut figures = Vec::new();
    for ((name, _, beside), reports) in cases.iter().zip(&found) {
        let of = |of: fn(&Report) -> f64| Spread::of(reports.iter().map(|(report, _)| of(report)));
        let p99 = of(|report| report.latency.p99_us);
        let values = [
            of(|report| report.latency.p50_us).median,
            p99.median,
            p99.most,
            of(|report| report.latency.max_us).most,
            Spread::of(reports.iter().map(|found| found.1)).median,
        ];
        table.row(*name, values);
        if *beside {
            let p99 = reports.iter();
            let p99 = p99.map(|(report, _)| report.latency.p99_us / 1e3);
            figures.push(Figure::new(format!("{name}: p99, ms"), p99, WANTED_MS));
        }
    }
    Ok(Found::of(table, figures))
}
