//! Producers alone, then consumers alone; and a cold backlog over one
//! connection.

use anyhow::Result;

use super::bulk::{Bulk, CONNECTIONS, Pile};
use super::server::{SMALL, Server};
use super::{ExperimentResult, Lab};
use crate::common::sheet::{Bound, Figure, Sheet, Show, count, fine, us};

/// Thousands of messages a second that one connection should drain.
const DRAIN_WANTED: f64 = 200.0;

const COLUMNS: [(&str, Show); 6] = [
    ("messages", count),
    ("seconds", fine),
    ("messages/s", count),
    ("first fifth", count),
    ("last fifth", count),
    ("longest request", us),
];

fn values(Bulk { report, trace }: &Bulk) -> [f64; 6] {
    let fifths = (trace.rate(0.0, 0.2), trace.rate(0.8, 1.0));
    let (requests, longest) = (report.requests as f64, report.latency.max_us);
    [
        requests,
        report.seconds,
        report.rate,
        fifths.0,
        fifths.1,
        longest,
    ]
}

/// All messages are put as fast as they are taken in, then taken as fast as
/// they come.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn flood(lab: &Lab) -> Result<ExperimentResult> {
    let server = Server::new(&lab.ground, SMALL)?;
    let pile = Pile::small("flood");
    let put = pile.put(&server, lab.messages, &mut |_| {})?;
    let taken = pile.take(&server, lab.messages, CONNECTIONS)?;
    let mut found = ExperimentResult::default();
    let mut table = Sheet::new("10 connections, 64 deep", &COLUMNS);
    for (name, bulk) in [("put", put), ("take", taken)] {
        let values = values(&bulk);
        table.row(name, values);
        let what = format!("{name}: rate of the last fifth / of the first");
        found
            .figures
            .push(Figure::new(what, [values[4] / values[3]], None));
    }
    found.tables.push(table);
    Ok(found)
}

/// A cold backlog is taken through one pipelined connection.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn drain(lab: &Lab) -> Result<ExperimentResult> {
    let count = lab.share(1, 5);
    let mut server = Server::new(&lab.ground, SMALL)?;
    let pile = Pile::small("drain");
    let mut table = Sheet::new("one connection, 64 deep", &COLUMNS);
    let mut rates = Vec::new();
    for turn in 1..=lab.turns {
        pile.put(&server, count, &mut |_| {})?;
        server.rest()?;
        // What is left in memory is what was put last.
        server.stop()?;
        server.start()?;
        let cold = server.number("cold_messages")? as f64 / count as f64;
        let bulk = pile.take(&server, count, 1)?;
        table.row(
            format!("turn {turn}, {:.0} % cold", cold * 100.0),
            values(&bulk),
        );
        rates.push(bulk.report.rate / 1e3);
    }
    let what = "thousand cold messages/s through one connection";
    let figures = vec![Figure::new(what, rates, Some(Bound::AtLeast(DRAIN_WANTED)))];
    Ok(ExperimentResult {
        tables: vec![table],
        figures,
    })
}
