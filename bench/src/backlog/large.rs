//! Small messages beside large ones and a backlog.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quintet_bench::{Load, Report};

use super::bulk::{Pile, measure};
use super::server::{DEFAULT, Server};
use super::{ExperimentResult, Lab};
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, count, us};

/// Connections with large messages, and bytes of these.
const LARGE: (usize, usize) = (10, 8 << 20);
/// Large messages run this long before and after what is measured.
const MARGIN: Duration = Duration::from_millis(500);
/// Small requests a second, over so many connections that each has sent few
/// of them when a slow reply comes.
const STEADY: f64 = 1_000.0;
const CONNECTIONS: usize = 50;
/// Milliseconds within which 99 % of the small requests should be answered.
const WANTED_MS: f64 = 5.0;

/// Small messages at a steady rate on the backlog's queue and on queues of
/// their own; with and without ten connections that put and take messages of
/// 8 MiB as fast as they can.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn large(lab: &Lab) -> Result<ExperimentResult> {
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
    let mut found = [const { Vec::new() }; 4];
    for turn in 0..lab.turns {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (name, load, beside) = cases[at];
            let what = format!("turn {} of {}: {name}", turn + 1, lab.turns);
            let reports = if beside {
                with_large(&server, load, &what)?
            } else {
                (measure(load, &what, &mut |_| {})?, 0.0)
            };
            found[at].push(reports);
        }
    }
    let held = count(backlog as f64);
    let mut table = Sheet::new(format!("{STEADY} requests/s, {held} held"), &COLUMNS);
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
            let p99 = reports
                .iter()
                .map(|(report, _)| report.latency.p99_us / 1e3);
            let bound = Some(Bound::AtMost(WANTED_MS));
            figures.push(Figure::new(format!("{name}: p99, ms"), p99, bound));
        }
    }
    Ok(ExperimentResult {
        tables: vec![table],
        figures,
    })
}

/// Answers what the small ones found, and large puts and takes a second.
fn with_large(server: &Server, small: &Load, what: &str) -> Result<(Report, f64)> {
    let mut large = server.load("memcache")?;
    (large.connections, large.size) = LARGE;
    large.queue = "large".to_owned();
    large.time = small.time + MARGIN * 2;
    let large = thread::spawn(move || large.run(&mut |_| {}));
    thread::sleep(MARGIN);
    let report = measure(small, what, &mut |_| {});
    let Ok(large) = large.join() else {
        bail!("the load of large messages panicked");
    };
    Ok((report?, large.context("large messages")?.rate))
}
