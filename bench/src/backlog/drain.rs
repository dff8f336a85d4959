//! A cold backlog over one connection.

use anyhow::Result;

use super::Lab;
use super::bulk::Pile;
use super::server::{SMALL, Server};
use crate::common::Found;
use crate::common::sheet::{Bound, Figure, Sheet, Show, count, fine, us};

/// Thousands of messages a second that one connection should drain.
const DRAIN_WANTED: Bound = Bound::AtLeast(200.0);

const COLUMNS: [(&str, Show); 4] = [
    ("messages", count),
    ("seconds", fine),
    ("messages/s", count),
    ("longest request", us),
];

/// A cold backlog is taken through one pipelined connection.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn drain(lab: &Lab) -> Result<Found> {
    let count = lab.share(1, 5);
    let mut server = Server::new(&lab.ground, SMALL)?;
    let pile = Pile::small("drain");
    let mut table = Sheet::new("one connection, 64 deep", COLUMNS);
    let mut rates = Vec::new();
    for turn in 1..=lab.turns {
        pile.put(&server, count, &mut |_| {})?;
        server.rest()?;
        // What is left in memory is what was put last.
        server.stop()?;
        server.start()?;
        let cold = server.number("cold_messages")? as f64 / count as f64;
        let report = pile.take(&server, count)?;
        let (requests, longest) = (report.requests as f64, report.latency.max_us);
        table.row(
            format!("turn {turn}, {:.0} % cold", cold * 100.0),
            [requests, report.seconds, report.rate, longest],
        );
        rates.push(report.rate / 1e3);
    }
    let what = "thousand cold messages/s through one connection";
    let figures = vec![Figure::new(what, rates, DRAIN_WANTED)];
    Ok(Found::of(table, figures))
}
