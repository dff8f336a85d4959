//! Producers alone, then consumers alone; and a cold backlog over one
//! connection.

use anyhow::Result;

use super::Lab;
use super::bulk::{Bulk, Pile};
use super::plot::{Line, Plot};
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::{Bound, Figure};

/// Requests on their way over the one connection.
const DRAIN_DEPTH: usize = 64;
/// Thousands of messages a second it should reach.
const DRAIN_WANTED: f64 = 200.0;

const COLUMNS: [(&str, Unit); 6] = [
    ("messages", Unit::Count),
    ("time", Unit::Seconds),
    ("rate", Unit::Rate),
    ("first fifth", Unit::Rate),
    ("last fifth", Unit::Rate),
    ("longest request", Unit::Microseconds),
];

fn row(table: &mut Table, name: String, bulk: &Bulk) {
    let Bulk { report, trace } = bulk;
    let values = [
        report.requests as f64,
        report.seconds,
        report.rate,
        trace.rate(0.0, 0.2),
        trace.rate(0.8, 1.0),
        report.latency.max_us,
    ];
    table.row(name, values);
}

fn line(name: &str, bulk: &Bulk) -> Line {
    Line {
        name: name.to_owned(),
        points: bulk.trace.rates(),
    }
}

/// All messages are put as fast as they are taken in, then taken as fast as
/// they come.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn flood(lab: &Lab) -> Result<Found> {
    let server = Server::new(&lab.ground, Settings::SMALL)?;
    let pile = Pile::small("flood");
    let put = pile.put(&server, lab.messages)?;
    let taken = pile.take(&server, lab.messages)?;
    let mut table = Table::new("10 connections, 64 deep", &COLUMNS);
    row(&mut table, "put".to_owned(), &put);
    row(&mut table, "take".to_owned(), &taken);
    let slope = |what: &str, bulk: &Bulk| {
        let ratio = bulk.trace.rate(0.8, 1.0) / bulk.trace.rate(0.0, 0.2);
        let what = format!("{what}: rate of the last fifth / of the first");
        Figure::new(what, vec![ratio], None)
    };
    Ok(Found {
        figures: vec![slope("put", &put), slope("take", &taken)],
        tables: vec![table],
        plots: vec![Plot {
            title: "Flood, then drain".to_owned(),
            x: "seconds of each",
            y: "messages/s",
            lines: vec![line("put", &put), line("take", &taken)],
        }],
    })
}

/// A cold backlog is taken through one pipelined connection.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn drain(lab: &Lab) -> Result<Found> {
    let count = lab.share(1, 5);
    let mut server = Server::new(&lab.ground, Settings::SMALL)?;
    let pile = Pile::small("drain");
    let mut table = Table::new("one connection, 64 deep", &COLUMNS);
    let (mut rates, mut lines) = (Vec::new(), Vec::new());
    for turn in 1..=lab.turns {
        pile.put(&server, count)?;
        server.rest()?;
        // What is left in memory is what was put last.
        server.restart()?;
        let cold = server.number("cold_messages")? as f64 / count as f64;
        let mut load = pile.load(&server)?;
        (load.connections, load.depth) = (1, DRAIN_DEPTH);
        let bulk = pile.take_by(load, count, &mut |_| {})?;
        let name = format!("turn {turn}, {:.0} % cold", cold * 100.0);
        row(&mut table, name, &bulk);
        rates.push(bulk.report.rate / 1e3);
        lines.push(line(&format!("turn {turn}"), &bulk));
    }
    let wanted = Some(Bound::AtLeast(DRAIN_WANTED));
    Ok(Found {
        figures: vec![Figure::new(
            "thousand cold messages/s through one connection".to_owned(),
            rates,
            wanted,
        )],
        tables: vec![table],
        plots: vec![Plot {
            title: "A cold backlog through one connection".to_owned(),
            x: "seconds",
            y: "messages/s",
            lines,
        }],
    })
}
