//! The part that the comparison and the experiments share: their arguments, the machine, how a
//! server is started, tables, and where results are written.

pub(crate) mod machine;
pub(crate) mod peers;
pub(crate) mod sheet;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_bench::Load;
use serde::Serialize;
use serde_json::{Value, json};

use machine::{Machine, SyncTimes};
use peers::Ground;
use sheet::{Figure, Sheet};

/// Turns and seconds of a short run.
const QUICK: (usize, f64) = (2, 1.0);
/// Turns and seconds below which a run is called short.
const FEWEST: (usize, f64) = (5, 1.0);
/// Seconds of a load at most, and turns.
const SECONDS_MAX: f64 = 600.0;
const TURNS_MAX: usize = 100;

/// Arguments of both.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Only these, by name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Two turns of a second: to see that it works, not to believe.
    #[arg(long, conflicts_with_all = ["turns", "seconds"])]
    pub(crate) quick: bool,
    /// Turns of what is measured several times.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) turns: usize,
    /// Seconds of each load that is measured for a time.
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Print what was found and write no file.
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    ground: Ground,
    /// Root of the sources, with bench/results.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

/// How it was measured.
#[derive(Clone, Serialize)]
pub(crate) struct Ran {
    pub(crate) machine: Machine,
    pub(crate) turns: usize,
    pub(crate) seconds: f64,
    /// Commit of the sources.
    pub(crate) quintet: String,
    /// Too short to be believed.
    pub(crate) short: bool,
    #[serde(skip)]
    pub(crate) sync: SyncTimes,
}

/// Results of an experiment.
#[derive(Default, Serialize)]
pub(crate) struct Found {
    pub(crate) tables: Vec<Sheet>,
    pub(crate) figures: Vec<Figure>,
    /// Its parameters, and samples.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<&'static str, Value>,
}

impl Found {
    pub(crate) fn of(table: Sheet, figures: Vec<Figure>) -> Self {
        Self {
            tables: vec![table],
            figures,
            more: BTreeMap::new(),
        }
    }
}

/// Connections with large messages beside others, and bytes of these.
const LARGE: (usize, usize) = (10, 8 << 20);
/// Large messages run this long before and after what is measured.
const MARGIN: Duration = Duration::from_millis(500);

/// Does `work`, which takes so long, while ten connections put and take messages of 8 MiB over the
/// server of `load`. Answers their rate too.
///
/// # Errors
/// The work or the load fails.
pub(crate) fn beside_large<T>(
    load: &Load,
    time: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let mut large = Load::new(load.target.clone(), load.protocol);
    (large.connections, large.size) = LARGE;
    (large.queue, large.time) = ("large".to_owned(), time + MARGIN * 2);
    let large = thread::spawn(move || large.run(&mut |_| {}));
    thread::sleep(MARGIN);
    let done = work();
    let Ok(large) = large.join() else {
        bail!("the load of large messages panicked");
    };
    Ok((done?, large.context("large messages")?.rate))
}

/// Measures so many cases by turns, the other way round every second time. `measure` receives the
/// turn and the case; answers the results of each case.
///
/// # Errors
/// One of them fails.
pub(crate) fn alternate<T>(
    turns: usize,
    cases: usize,
    mut measure: impl FnMut(usize, usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut found: Vec<Vec<T>> = (0..cases).map(|_| Vec::new()).collect();
    for turn in 0..turns {
        for at in 0..cases {
            let at = if turn % 2 == 0 { at } else { cases - 1 - at };
            found[at].push(measure(turn, at)?);
        }
    }
    Ok(found)
}

/// Name and title of an experiment.
pub(crate) type Named<'a> = (&'a str, &'a str);

impl Common {
    /// Refuses what cannot be, of these experiments.
    ///
    /// # Errors
    /// A number is out of its range, or there is no such experiment.
    pub(crate) fn check(&mut self, experiments: &[Named<'_>]) -> Result<()> {
        if self.quick {
            (self.turns, self.seconds) = QUICK;
        }
        let turns = (1..=TURNS_MAX).contains(&self.turns);
        ensure!(turns, "turns must be 1 to {TURNS_MAX}");
        let seconds = (0.1..=SECONDS_MAX).contains(&self.seconds);
        ensure!(seconds, "seconds must be 0.1 to {SECONDS_MAX}");
        let names: Vec<&str> = experiments.iter().map(|(name, _)| *name).collect();
        for name in &self.only {
            let known = names.contains(&name.as_str());
            let names = names.join(", ");
            ensure!(known, "no experiment \"{name}\"; there are {names}");
        }
        Ok(())
    }

    /// True if the experiment is to be run; says that it begins.
    pub(crate) fn begins(&self, (name, title): Named<'_>) -> bool {
        let wanted = self.only.is_empty() || self.only.iter().any(|n| n == name);
        if wanted {
            println!("\n## {name}: {title}\n");
        }
        wanted
    }

    /// Runs the experiments that are asked for, each whatever became of the others; prints what
    /// each found and, unless told not to, writes it into `bench/results/`. `run`
    /// receives the number of the experiment.
    ///
    /// # Errors
    /// An experiment failed, or a file cannot be written.
    pub(crate) fn run(
        &self,
        prefix: &str,
        ran: &Ran,
        experiments: &[Named<'_>],
        mut run: impl FnMut(usize) -> Result<Found>,
    ) -> Result<()> {
        let (mut failed, mut ran) = (Vec::new(), ran.clone());
        for (at, &named) in experiments.iter().enumerate() {
            if !self.begins(named) {
                continue;
            }
            let (name, _) = named;
            let start = Instant::now();
            // A disk may be slower by now.
            ran.sync = SyncTimes::measure(&self.ground.scratch)?;
            let found = match run(at) {
                Ok(found) => found,
                Err(error) => {
                    eprintln!("{name} failed: {error:#}");
                    failed.push(name);
                    continue;
                }
            };
            for table in &found.tables {
                println!("{}", table.markdown());
            }
            println!("{}", sheet::figures(&found.figures));
            println!("{:.0} s", start.elapsed().as_secs_f64());
            if !self.print {
                self.write(&format!("{prefix}{name}"), named, &ran, json!(found))?;
            }
        }
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }

    /// How long a load is measured.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Makes the directory servers write to, and looks for the binaries.
    ///
    /// # Errors
    /// It cannot be made, or a binary is not there.
    pub(crate) fn ground(&self, against: Option<PathBuf>) -> Result<Ground> {
        let mut ground = self.ground.clone();
        ground.against = against;
        let scratch = &ground.scratch;
        fs::create_dir_all(scratch)
            .with_context(|| format!("cannot make {}", scratch.display()))?;
        for binary in [&ground.quintet].into_iter().chain(&ground.against) {
            ensure!(binary.is_file(), "no file {}", binary.display());
        }
        Ok(ground)
    }

    /// Says how it is measured, and measures how long the disk takes to sync.
    ///
    /// # Errors
    /// The disk cannot be written to.
    pub(crate) fn ran(&self) -> Result<Ran> {
        let ran = Ran {
            machine: Machine::here(&self.ground.scratch),
            turns: self.turns,
            seconds: self.seconds,
            quintet: peers::commit(&self.root).unwrap_or_else(|| "an unknown commit".to_owned()),
            short: self.turns < FEWEST.0 || self.seconds < FEWEST.1,
            sync: SyncTimes::measure(&self.ground.scratch)?,
        };
        println!("{}; Quintet at {}", ran.machine.describe(), ran.quintet);
        println!("{}", ran.sync.describe());
        Ok(ran)
    }

    /// Writes the results of an experiment into `bench/results/FILE.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(
        &self,
        file: &str,
        (name, title): Named<'_>,
        ran: &Ran,
        mut found: Value,
    ) -> Result<()> {
        found["experiment"] = name.into();
        found["title"] = title.into();
        found["ran"] = json!(ran);
        found["fdatasync_4k"] = json!(ran.sync);
        let text = serde_json::to_string_pretty(&found)? + "\n";
        let results = self.root.join("bench/results");
        let path = results.join(format!("{file}.json"));
        let written = fs::create_dir_all(&results).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}
