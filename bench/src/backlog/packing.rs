//! What is on the disk for what is still to be taken.

use anyhow::Result;
use quintet_bench::Live;

use super::Lab;
use super::bulk::Pile;
use super::disk::Disk;
use super::plot::{Line, Plot};
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::Figure;

/// Parts of the messages that are taken when the disk is looked at.
const TAKEN: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
/// Part that is taken in the end.
const END: f64 = 0.95;

const COLUMNS: [(&str, Unit); 6] = [
    ("messages left", Unit::Count),
    ("bodies left", Unit::Bytes),
    ("runs", Unit::Bytes),
    ("log", Unit::Bytes),
    ("runs / bodies", Unit::Ratio),
    ("all / bodies", Unit::Ratio),
];

/// A look at the disk.
#[derive(Clone, Copy)]
struct Sample {
    seconds: f64,
    taken: u64,
    disk: Disk,
}

/// In the order they were put; then by a hundred ranks, so that each run has
/// some of every one.
///
/// # Errors
/// A server or a load fails, or a message is missing.
pub(crate) fn packing(lab: &Lab) -> Result<Found> {
    let mut found = Found::default();
    let ranks = Pile {
        voice: "beanstalk-ranks",
        prefix: "ranks",
        size: 100,
    };
    one(
        lab,
        "first in, first out",
        Pile::small("fifo"),
        lab.messages,
        &mut found,
    )?;
    one(lab, "100 ranks", ranks, lab.share(1, 5), &mut found)?;
    Ok(found)
}

fn one(lab: &Lab, name: &str, pile: Pile, count: u64, found: &mut Found) -> Result<()> {
    let server = Server::new(&lab.ground, Settings::SMALL)?;
    pile.put(&server, count)?;
    server.rest()?;
    let full = server.disk()?;
    let mut samples = Vec::new();
    let mut load = pile.load(&server)?;
    load.depth = 64;
    let taken = (count as f64 * END) as u64;
    let mut failed = None;
    let bulk = pile.take_by(load, taken, &mut |live: Live| match server.disk() {
        Ok(disk) => samples.push(Sample {
            seconds: live.seconds,
            taken: live.requests,
            disk,
        }),
        Err(error) => failed = Some(error),
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    samples.push(Sample {
        seconds: bulk.report.seconds,
        taken,
        disk: server.disk()?,
    });
    server.rest()?;
    let rest = server.disk()?;

    let bodies = |taken: u64| ((count - taken) * pile.size as u64) as f64;
    let mut table = Table::new(name, &COLUMNS);
    let mut row = |name: String, taken: u64, disk: Disk| {
        let left = bodies(taken);
        let values = [
            (count - taken) as f64,
            left,
            disk.runs as f64,
            disk.log as f64,
            disk.runs as f64 / left,
            disk.without_spares() as f64 / left,
        ];
        table.row(name, values);
    };
    row("all there, at rest".to_owned(), 0, full);
    for part in TAKEN {
        if let Some(sample) = reached(&samples, (count as f64 * part) as u64) {
            let name = format!("{:.0} % taken", part * 100.0);
            row(name, sample.taken, sample.disk);
        }
    }
    let end = format!("{:.0} % taken", END * 100.0);
    if let Some(last) = samples.last() {
        row(end.clone(), taken, last.disk);
    }
    row(format!("{end}, at rest"), taken, rest);
    found.tables.push(table);
    let ratio = rest.runs as f64 / bodies(taken);
    let what = format!("{name}: runs / bodies, {end}, at rest");
    found.figures.push(Figure::new(what, vec![ratio], None));
    found.plots.push(plot(name, &samples, bodies));
    Ok(())
}

/// The first look after so many were taken.
fn reached(samples: &[Sample], taken: u64) -> Option<Sample> {
    samples.iter().copied().find(|sample| sample.taken >= taken)
}

fn plot(name: &str, samples: &[Sample], bodies: impl Fn(u64) -> f64) -> Plot {
    let line = |name: &str, of: &dyn Fn(&Sample) -> f64| Line {
        name: name.to_owned(),
        points: samples
            .iter()
            .map(|sample| (sample.seconds, of(sample) / f64::from(1 << 20)))
            .collect(),
    };
    Plot {
        title: format!("Disk while messages are taken, {name}"),
        x: "seconds",
        y: "MiB",
        lines: vec![
            line("bodies left", &|sample| bodies(sample.taken)),
            line("runs", &|sample| sample.disk.runs as f64),
            line("log", &|sample| sample.disk.log as f64),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Sample, reached};

    #[test]
    fn the_first_look_at_or_after() {
        let samples = [0, 30, 60].map(|taken| Sample {
            seconds: 0.0,
            taken,
            disk: Disk::default(),
        });
        let taken = |least| reached(&samples, least).map(|sample| sample.taken);
        assert_eq!([30, 31, 61].map(taken), [Some(30), Some(60), None]);
    }
}
