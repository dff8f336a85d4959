//! Many messages through a queue that two old ones stay in.

use std::time::Duration;

use anyhow::{Result, ensure};
use quintet_bench::Live;

use super::Lab;
use super::bulk::{Pile, measure_with};
use super::disk::Disk;
use super::plot::{Line, Plot};
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::{Bound, Figure};

/// MiB the data directory may take beyond its spare segments.
const MIB_WANTED: f64 = 256.0;
/// Requests of each of the ten connections at once.
const DEPTH: usize = 16;
/// No load takes longer.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// One message stays under an open lease, one of the lowest rank waits
/// behind all others; twice as many messages as asked for pass them.
///
/// # Errors
/// A server or a load fails, or an old message is gone.
pub(crate) fn disk(lab: &Lab) -> Result<Found> {
    const COLUMNS: [(&str, Unit); 4] = [
        ("log", Unit::Bytes),
        ("runs", Unit::Bytes),
        ("spare segments", Unit::Bytes),
        ("all but spares", Unit::Bytes),
    ];
    let server = Server::new(&lab.ground, Settings::DEFAULT)?;
    let pile = Pile::small("through");
    let queue = pile.queue();
    let mut leased = server.talk()?;
    leased.ask(&format!("set {queue} 0 0 3\r\nold\r\n"), "STORED")?;
    // The lease lasts as long as the connection.
    let reply = leased.ask(&format!("get {queue}/open\r\n"), "END")?;
    ensure!(reply.len() > 1, "the old message is not there");
    let mut last = server.talk_beanstalk()?;
    last.ask(&format!("use {queue}\r\n"), &format!("USING {queue}"))?;
    last.ask(
        &format!("put {} 0 60 6\r\nlowest\r\n", u32::MAX),
        "INSERTED ",
    )?;

    let count = lab.messages * 2;
    let mut load = pile.load(&server)?;
    load.depth = DEPTH;
    load.count = Some(count * 2);
    load.time = TIME_MAX;
    let mut table = Table::new(
        format!("{} through", Unit::Count.show(count as f64)),
        &COLUMNS,
    );
    let row = |table: &mut Table, name: &str, disk: Disk| {
        let Disk {
            log, runs, spare, ..
        } = disk;
        let values = [log, runs, spare, disk.without_spares()];
        table.row(name, values.map(|bytes| bytes as f64));
    };
    row(&mut table, "before", server.disk()?);
    let mut points = Vec::new();
    let mut peak = server.disk()?;
    let report = {
        let mut look = |live: Live| {
            // A directory that cannot be read is told of below.
            if let Ok(disk) = server.disk() {
                points.push((live.requests as f64 / 2.0, mib(disk.without_spares())));
                if disk.without_spares() > peak.without_spares() {
                    peak = disk;
                }
            }
        };
        measure_with(&load, "through", &mut look)?
    };
    ensure!(
        (report.puts, report.takes, report.empty) == (count, count, 0),
        "{} puts and {} takes of {count}, {} found nothing",
        report.puts,
        report.takes,
        report.empty
    );
    let end = server.disk()?;
    server.rest()?;
    let rest = server.disk()?;
    for disk in [end, rest] {
        if disk.without_spares() > peak.without_spares() {
            peak = disk;
        }
    }
    row(&mut table, "at most", peak);
    row(&mut table, "after", end);
    row(&mut table, "after, at rest", rest);
    let mut talk = server.talk()?;
    for name in ["items", "open_transactions"] {
        let left = talk.stat(&format!("queue_{queue}_{name}"))?;
        ensure!(left == 1, "{left} {name} are left, not one");
    }
    let figure = |what: &str, disk: Disk, bound| {
        let what = format!("{what}, MiB beyond the spare segments");
        Figure::new(what, vec![mib(disk.without_spares())], bound)
    };
    let bound = Some(Bound::AtMost(MIB_WANTED));
    Ok(Found {
        tables: vec![table],
        figures: vec![
            figure("after", end, bound),
            figure("at rest", rest, bound),
            figure("at most", peak, None),
        ],
        plots: vec![Plot {
            title: "Data directory while messages pass an old one".to_owned(),
            x: "messages through",
            y: "MiB beyond the spare segments",
            lines: vec![Line {
                name: "all but spares".to_owned(),
                points,
            }],
        }],
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
