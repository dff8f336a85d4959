//! Cost of a backlog in memory and disk: while it is held, and while others pass an old message.

use std::time::Duration;

use anyhow::{Result, ensure};
use quintet_bench::Usage;

use super::Lab;
use super::bulk::{Pile, measure};
use super::disk::Disk;
use super::server::{DEFAULT, SMALL, Server};
use crate::common::Found;
use crate::common::sheet::{Bound, Figure, Sheet, Show, bytes, count, mib};

/// MiB it may take with a budget of 64 MiB, and with three times as many
/// messages, in parts of that.
const RESIDENT_WANTED: Bound = Bound::AtMost(100.0);
const GROWTH_WANTED: Bound = Bound::AtMost(1.1);
/// MiB the data directory may take beyond its spare segments while messages
/// pass.
const DISK_WANTED: Bound = Bound::AtMost(256.0);
/// Requests of each of the ten connections that pass the old messages.
const DEPTH: usize = 16;
/// No load takes longer.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Messages of 100 B are held, then three times as many.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn resident(lab: &Lab) -> Result<Found> {
    let server = Server::new(&lab.ground, SMALL)?;
    let pile = Pile::small("held");
    let columns: [(&str, Show); 7] = [
        ("RssAnon at rest", bytes),
        ("RssFile at rest", bytes),
        ("RssAnon at most", bytes),
        ("RssFile at most", bytes),
        ("both at most", bytes),
        ("data directory", bytes),
        ("disk bytes a message", count),
    ];
    let mut table = Sheet::new(format!("memory = \"{SMALL}\""), columns);
    let empty = server.memory()?;
    let (mut held, mut rests, mut peaks) = (0, Vec::new(), Vec::new());
    for target in [lab.messages, lab.messages * 3] {
        let mut peak = Usage::default();
        pile.put(&server, target - held, &mut |_| {
            // A server that has ended fails the load, which says so.
            peak.raise(server.memory().unwrap_or_default());
        })?;
        held = target;
        server.rest()?;
        let (rest, disk) = (server.memory()?, server.disk()?.without_spares());
        peak.raise(rest);
        let values = [
            rest.anon,
            rest.file,
            peak.anon,
            peak.file,
            peak.resident,
            disk,
            disk / held,
        ];
        table.row(
            format!("{} held", count(held as f64)),
            values.map(|n| n as f64),
        );
        rests.push(rest);
        peaks.push(peak);
    }
    let [first, thrice] = [rests[0], rests[1]];
    let anon = [thrice.anon as f64 / first.anon as f64];
    let both = [thrice.resident as f64 / first.resident as f64];
    let mib = |bytes: u64| [mib(bytes as f64)];
    let figures = vec![
        Figure::new("empty, MiB", mib(empty.resident), None::<Bound>),
        Figure::new("at rest, MiB", mib(first.resident), RESIDENT_WANTED),
        Figure::new("at most, MiB", mib(peaks[0].resident), RESIDENT_WANTED),
        Figure::new("RssAnon at rest, three times as many", anon, GROWTH_WANTED),
        Figure::new("both at rest, three times as many", both, GROWTH_WANTED),
    ];
    Ok(Found::of(table, figures))
}

/// One message stays under an open lease, one of the lowest priority waits
/// behind all others; twice as many messages as asked for pass them.
///
/// # Errors
/// A server or a load fails, or an old message is gone.
pub(crate) fn disk(lab: &Lab) -> Result<Found> {
    let server = Server::new(&lab.ground, DEFAULT)?;
    let pile = Pile::small("through");
    let queue = pile.queue();
    let mut leased = server.talk("memcache")?;
    leased.ask(&format!("set {queue} 0 0 3\r\nold\r\n"), "STORED")?;
    // The lease lasts as long as the connection.
    let reply = leased.ask(&format!("get {queue}/open\r\n"), "END")?;
    ensure!(reply.len() > 1, "the old message is not there");
    let mut last = server.talk("beanstalk")?;
    last.ask(&format!("use {queue}\r\n"), &format!("USING {queue}"))?;
    let lowest = format!("put {} 0 60 6\r\nlowest\r\n", u32::MAX);
    last.ask(&lowest, "INSERTED ")?;

    let all = lab.messages * 2;
    let mut load = pile.load(&server)?;
    (load.depth, load.count, load.time) = (DEPTH, Some(all * 2), TIME_MAX);
    let before = server.disk()?;
    let mut peak = before;
    let report = measure(&load, "through", &mut |_| {
        // A directory that cannot be read is reported below.
        peak = peak.larger(server.disk().unwrap_or_default());
    })?;
    let done = (report.puts, report.takes, report.empty);
    ensure!(
        done == (all, all, 0),
        "puts, takes and empty takes of {all}: {done:?}"
    );
    let end = server.disk()?;
    server.rest()?;
    let rest = server.disk()?;
    peak = peak.larger(end).larger(rest);
    let mut talk = server.talk("memcache")?;
    for name in ["items", "open_transactions"] {
        let left = talk.stat(&format!("queue_{queue}_{name}"))?;
        ensure!(left == 1, "{left} {name} are left, not one");
    }
    let columns =
        ["log", "runs", "spare segments", "all but spares"].map(|name| (name, bytes as Show));
    let mut table = Sheet::new(format!("{} through", count(all as f64)), columns);
    let mut figures = Vec::new();
    let bound = Some(DISK_WANTED);
    let looks = [
        ("before", before, None),
        ("at most", peak, None),
        ("after", end, bound),
    ];
    for (name, disk, bound) in looks.into_iter().chain([("at rest", rest, bound)]) {
        let Disk {
            log, runs, spare, ..
        } = disk;
        let beyond = disk.without_spares();
        table.row(name, [log, runs, spare, beyond].map(|bytes| bytes as f64));
        let what = format!("{name}, MiB beyond the spare segments");
        figures.push(Figure::new(what, [mib(beyond as f64)], bound));
    }
    Ok(Found::of(table, figures))
}
