//! The time to the first reply after a stop and after `kill -9`.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Lab;
use super::bulk::Pile;
use super::server::{SMALL, Server};
use crate::common::Found;
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, bytes, count, fine, whole};

/// Seconds to the first reply after a stop, and after `kill -9`.
const WANTED: (Bound, Bound) = (Bound::AtMost(1.0), Bound::AtMost(2.0));
/// Requests of each of the ten connections at once when it is killed.
const DEPTH: usize = 16;
/// The load that a kill ends would end itself after this.
const LOAD_MAX: Duration = Duration::from_secs(600);

/// With all messages held. A kill may leave one more or one fewer for each
/// request that was on its way. The first reply is the backlog's next message; the
/// system's page cache is warm.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn restart(lab: &Lab) -> Result<Found> {
    let columns: [(&str, Show); 6] = [
        ("seconds, median", fine),
        ("least", fine),
        ("most", fine),
        ("log at most", bytes),
        ("runs at most", bytes),
        ("messages more", whole),
    ];
    let mut server = Server::new(&lab.ground, SMALL)?;
    let pile = Pile::small("held");
    pile.put(&server, lab.messages, &mut |_| {})?;
    server.rest()?;
    let mut table = Sheet::new(format!("{} held", count(lab.messages as f64)), columns);
    let mut figures = Vec::new();
    for (how, killed, wanted) in [
        ("after SIGTERM", false, WANTED.0),
        ("after kill -9 under load", true, WANTED.1),
    ] {
        let (mut times, mut log, mut runs) = (Vec::new(), 0, 0);
        for _ in 0..lab.turns {
            match killed {
                false => server.stop()?,
                true => kill(lab, &mut server, pile)?,
            }
            let disk = server.disk()?;
            (log, runs) = (log.max(disk.log), runs.max(disk.runs));
            times.push(server.start_timed(&pile.queue())?.as_secs_f64());
        }
        let left = format!("queue_{}_items", pile.queue());
        let more = server.talk("memcache")?.stat(&left)? as f64 - lab.messages as f64;
        let what = format!("seconds to the first reply {how}");
        let figure = Figure::new(what, times, wanted);
        let Spread {
            median,
            least,
            most,
        } = figure.value;
        table.row(how, [median, least, most, log as f64, runs as f64, more]);
        figures.push(figure);
    }
    Ok(Found::of(table, figures))
}

/// Kills the server while puts and takes are on their way, both to the queue
/// of the backlog.
fn kill(lab: &Lab, server: &mut Server, pile: Pile) -> Result<()> {
    let mut load = pile.load(server)?;
    (load.depth, load.time) = (DEPTH, LOAD_MAX);
    let (under_way, wait) = mpsc::channel();
    let load = thread::spawn(move || {
        load.run(&mut |live| {
            if live.requests > 0 {
                // Nobody listens after the first.
                under_way.send(()).ok();
            }
        })
    });
    let begun = wait.recv();
    if begun.is_ok() {
        thread::sleep(lab.time);
        server.kill();
    }
    match load.join() {
        Ok(Err(_)) if begun.is_ok() => Ok(()),
        Ok(Err(error)) => Err(error).context("before the kill"),
        Ok(Ok(_)) => bail!("the load ended before the kill"),
        Err(_) => bail!("the load panicked"),
    }
}
