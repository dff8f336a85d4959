//! Memory while messages are held, three times as many of them, and drained.

use anyhow::Result;
use quintet_bench::Live;

use super::Lab;
use super::bulk::Pile;
use super::memory::{Memory, Watch};
use super::plot::{Line, Plot};
use super::server::Server;
use super::settings::Settings;
use super::sheet::{Found, Table, Unit};
use crate::compare::results::{Bound, Figure};

/// MiB it may take with a budget of 64 MiB.
const MIB_WANTED: f64 = 100.0;
/// Memory with three times as many messages, in parts of that with them.
const GROWTH_WANTED: f64 = 1.1;

const COLUMNS: [(&str, Unit); 7] = [
    ("RssAnon at rest", Unit::Bytes),
    ("RssFile at rest", Unit::Bytes),
    ("RssAnon at most", Unit::Bytes),
    ("RssFile at most", Unit::Bytes),
    ("both at most", Unit::Bytes),
    ("data directory", Unit::Bytes),
    ("disk bytes a message", Unit::Count),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Messages of 100 B are held, then three times as many.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn resident(lab: &Lab) -> Result<Found> {
    let server = Server::new(&lab.ground, Settings::SMALL)?;
    let pile = Pile::small("held");
    let title = format!("memory = \"{}\"", Settings::SMALL.memory);
    let mut table = Table::new(title, &COLUMNS);
    let empty = server.memory()?;
    let mut curves = Curves::default();
    let (mut held, mut rests, mut peaks) = (0, Vec::new(), Vec::new());
    for target in [lab.messages, lab.messages * 3] {
        let watch = Watch::start(server.pid()?)?;
        let mut look = |live: Live| {
            // A server that has ended fails the load, which says so.
            if let Ok(memory) = server.memory() {
                curves.add(held + live.requests, memory);
            }
        };
        pile.put_with(&server, target - held, &mut look)?;
        held = target;
        server.rest()?;
        let peak = watch.end()?;
        let (rest, disk) = (server.memory()?, server.disk()?);
        curves.add(held, rest);
        let bytes = disk.without_spares() as f64;
        let values = [
            rest.anon as f64,
            rest.file as f64,
            peak.anon as f64,
            peak.file as f64,
            peak.sum as f64,
            bytes,
            bytes / held as f64,
        ];
        table.row(format!("{} held", Unit::Count.show(held as f64)), values);
        rests.push(rest);
        peaks.push(peak);
    }
    let (first, last) = (rests[0], rests[rests.len() - 1]);
    let figure = |what: &str, value, bound| Figure::new(what.to_owned(), vec![value], bound);
    let most = Some(Bound::AtMost(MIB_WANTED));
    let grown = Some(Bound::AtMost(GROWTH_WANTED));
    let ratio = |of: fn(Memory) -> u64| of(last) as f64 / of(first) as f64;
    let figures = vec![
        figure("empty, MiB", mib(empty.sum()), None),
        figure("at rest, MiB", mib(first.sum()), most),
        figure("at most, MiB", mib(peaks[0].sum), most),
        figure(
            "RssAnon at rest, three times as many",
            ratio(|m| m.anon),
            grown,
        ),
        figure(
            "both at rest, three times as many",
            ratio(Memory::sum),
            grown,
        ),
    ];
    Ok(Found {
        tables: vec![table],
        figures,
        plots: vec![curves.plot()],
    })
}

/// Memory by messages held.
#[derive(Default)]
struct Curves {
    anon: Vec<(f64, f64)>,
    file: Vec<(f64, f64)>,
}

impl Curves {
    fn add(&mut self, held: u64, memory: Memory) {
        self.anon.push((held as f64, mib(memory.anon)));
        self.file.push((held as f64, mib(memory.file)));
    }

    fn plot(self) -> Plot {
        let line = |name: &str, points| Line {
            name: name.to_owned(),
            points,
        };
        Plot {
            title: "Resident memory while messages are put".to_owned(),
            x: "messages held",
            y: "MiB",
            lines: vec![line("RssAnon", self.anon), line("RssFile", self.file)],
        }
    }
}
