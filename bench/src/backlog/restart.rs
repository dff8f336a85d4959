//! The time to the first reply after a stop and after `kill -9`.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Lab;
use super::bulk::Pile;
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::{Bound, Figure, Spread};

/// Seconds to the first reply after a stop, and after `kill -9`.
const WANTED: (f64, f64) = (1.0, 2.0);
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
    const COLUMNS: [(&str, Unit); 6] = [
        ("first reply, median", Unit::Seconds),
        ("least", Unit::Seconds),
        ("most", Unit::Seconds),
        ("log when it ended", Unit::Bytes),
        ("runs when it ended", Unit::Bytes),
        ("more or fewer messages", Unit::Count),
    ];
    let mut server = Server::new(&lab.ground, Settings::SMALL)?;
    let pile = Pile::small("held");
    pile.put(&server, lab.messages)?;
    server.rest()?;
    let held = Unit::Count.show(lab.messages as f64);
    let mut table = Table::new(format!("{held} held"), &COLUMNS);
    let mut figures = Vec::new();
    for (how, wanted) in [(How::Stop, WANTED.0), (How::Kill, WANTED.1)] {
        let (mut times, mut log, mut runs) = (Vec::new(), 0, 0);
        for _ in 0..lab.turns {
            match how {
                How::Stop => {
                    server.stop()?;
                }
                How::Kill => kill(lab, &mut server, pile)?,
            }
            let disk = server.disk()?;
            (log, runs) = (log.max(disk.log), runs.max(disk.runs));
            times.push(server.start_timed(&pile.queue())?.as_secs_f64());
        }
        let Spread {
            median,
            least,
            most,
        } = Spread::of(times.iter().copied());
        let left = server
            .talk()?
            .stat(&format!("queue_{}_items", pile.queue()))?;
        let values = [
            median,
            least,
            most,
            log as f64,
            runs as f64,
            left as f64 - lab.messages as f64,
        ];
        table.row(how.name(), values);
        let what = format!("seconds to the first reply {}", how.name());
        figures.push(Figure::new(what, times, Some(Bound::AtMost(wanted))));
    }
    let (tables, plots) = (vec![table], Vec::new());
    Ok(Found {
        tables,
        figures,
        plots,
    })
}

/// How a server ends.
#[derive(Clone, Copy)]
enum How {
    Stop,
    Kill,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Stop => "after SIGTERM",
            How::Kill => "after kill -9 under load",
        }
    }
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
        server.kill()?;
    }
    match load.join() {
        Ok(Err(_)) if begun.is_ok() => Ok(()),
        Ok(Err(error)) => Err(error).context("before the kill"),
        Ok(Ok(_)) => bail!("the load ended before the kill"),
        Err(_) => bail!("the load panicked"),
    }
}
