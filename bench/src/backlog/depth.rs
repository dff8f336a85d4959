//! Put and take on a backlog beside the same on an empty queue of the same
//! server, in pairs.

use anyhow::Result;
use quintet_bench::Report;

use super::Lab;
use super::bulk::{Pile, measure};
use super::server::{DEFAULT, Server};
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, bytes, count, fine, us};
use crate::common::{Found, alternate};

/// The least part of the rate on an empty queue.
const WANTED: Bound = Bound::AtLeast(0.9);
/// Bytes of a message.
const SIZE: usize = 1024;

/// Measures the empty queue and the deep one by turns, the other one first every second time.
fn pairs(lab: &Lab, server: &Server, piles: [Pile; 2]) -> Result<Vec<Vec<Report>>> {
    // The first turn warms both up.
    let mut found = alternate(1 + lab.turns, piles.len(), |turn, at| {
        let mut load = piles[at].load(server)?;
        load.time = lab.time;
        let what = format!("turn {turn} of {}: {}", lab.turns, load.queue);
        measure(&load, &what, &mut |_| {})
    })?;
    for reports in &mut found {
        reports.remove(0);
    }
    Ok(found)
}

fn spread(reports: &[Report], of: impl Fn(&Report) -> f64) -> Spread {
    Spread::of(reports.iter().map(of))
}

/// The rate on backlogs of growing depth, first in first out and by priorities.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn depth(lab: &Lab) -> Result<Found> {
    const COLUMNS: [(&str, Show); 7] = [
        ("empty queue, requests/s", count),
        ("backlog, requests/s", count),
        ("ratio", fine),
        ("p99, empty", us),
        ("p99, backlog", us),
        ("longest, backlog", us),
        ("resident", bytes),
    ];
    let mut found = Found::default();
    for (name, protocol) in [
        ("first in, first out", "memcache"),
        ("100 priorities", "beanstalk-priorities"),
    ] {
        let server = Server::new(&lab.ground, DEFAULT)?;
        let piles = ["empty", "deep"].map(|prefix| Pile {
            protocol,
            prefix,
            size: SIZE,
        });
        let mut table = Sheet::new(format!("{name}, 10 connections"), COLUMNS);
        let mut held = 0;
        for backlog in [0, lab.share(64, 10_000), lab.share(1, 10), lab.share(4, 10)] {
            if backlog > held {
                piles[1].put(&server, backlog - held, &mut |_| {})?;
                held = backlog;
                server.rest()?;
            }
            let pairs = pairs(lab, &server, piles)?;
            let (empty, deep) = (&pairs[0], &pairs[1]);
            let text = count(held as f64);
            // Two empty queues tell how far two runs of the same differ.
            let bound = (held > 0).then_some(WANTED);
            let what = format!("{name}: rate with {text} held / empty");
            let ratios = deep.iter().zip(empty);
            let ratios = ratios.map(|(deep, empty)| deep.rate / empty.rate);
            let figure = Figure::new(what, ratios, bound);
            let values = [
                spread(empty, |report| report.rate).median,
                spread(deep, |report| report.rate).median,
                figure.value.median,
                spread(empty, |report| report.latency.p99_us).median,
                spread(deep, |report| report.latency.p99_us).median,
                spread(deep, |report| report.latency.max_us).most,
                server.memory()?.resident as f64,
            ];
            table.row(format!("{text} held"), values);
            found.figures.push(figure);
        }
        found.tables.push(table);
    }
    Ok(found)
}
