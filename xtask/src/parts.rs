//! `cargo xtask test`: its parts, which run beside each other, and how they ended.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::context::Run;
use crate::needs::{self, Need};
use crate::programs;
use crate::show::{in_thread, say};
use crate::table::{BESIDE, BUILD, Group, PARTS, Part};

pub(crate) const HELP: &str = "\
A part that fails stops no other; the end says how to repeat the parts that failed, and names the
slowest tests. Where a program of the system stays missing, the tests that need it are left out, and
the end names them.

The part unit leaves out a test program that passed with the same seed, if neither it nor anything
that it uses has changed since; --all runs it again, and so do --long, --yes and CI.";

/// The parts to run.
#[derive(clap::Parser, Default, PartialEq, Eq, Debug)]
pub(crate) struct PartsArgs {
    /// The parts; without a name all of them
    names: Vec<String>,
    /// Print the parts, their times and missing programs
    #[arg(long)]
    list: bool,
    /// Install packages of the system without a question, as with CI in the environment
    #[arg(long)]
    yes: bool,
    /// More seeds and faults, and planted defects: some hours, as every night
    #[arg(long)]
    long: bool,
    /// Run also test programs that passed and have not changed since
    #[arg(long)]
    all: bool,
    /// The seed of random choices; without it the commit chooses
    #[arg(long)]
    seed: Option<u64>,
    /// Write all times into this file as JSON
    #[arg(long, value_name = "FILE")]
    timings: Option<PathBuf>,
}

impl PartsArgs {
    /// These parts alone.
    pub(crate) fn of(names: &[&str]) -> Self {
        Self::default().and(names)
    }

    /// These parts too.
    pub(crate) fn and(mut self, names: &[&str]) -> Self {
        self.names.extend(names.iter().map(|&name| name.to_owned()));
        self
    }
}

/// Runs the parts that are named, or all if none is.
///
/// # Errors
/// There is no such part; parts failed, which are then named.
pub(crate) fn run(root: &Path, args: &PartsArgs) -> Result<()> {
    let mut out = std::io::stdout();
    if args.list {
        return list(PARTS, &mut out);
    }
    let parts = chosen(PARTS, &args.names, args.long)?;
    let run = Run {
        root: root.to_owned(),
        long: args.long,
        seed: args.seed.unwrap_or_else(|| seed_of_commit(root)),
        strict: needs::may_install(args.yes),
        again: args.all,
        timings: Mutex::default(),
        left_out: Mutex::default(),
    };
    announce(&parts, &run, &mut out)?;
    let all = parts.iter().flat_map(|part| part.all_needs());
    let missing = needs::missing(all);
    let installs = needs::consent(&missing, run.strict, &mut out)?;
    let missing = if installs { missing } else { Vec::new() };
    let result = run_of(&parts, &run, missing, &mut out);
    if let Some(file) = &args.timings {
        run.timings().write(file)?;
    }
    result
}

/// A number that another commit has another one of, so that each tries something else.
fn seed_of_commit(root: &Path) -> u64 {
    let mut git = std::process::Command::new("git");
    let output = git.args(["rev-parse", "HEAD"]).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let digits = text.unwrap_or_default();
    u64::from_str_radix(digits.get(..7).unwrap_or("0"), 16).unwrap_or_default()
}

impl Part {
    fn all_needs(&self) -> impl Iterator<Item = Need> {
        let extras = self.extras.iter().map(|extra| extra.needs);
        let needs = self.needs.iter().copied().chain(extras);
        needs.flatten().copied()
    }
}

/// Those of these names, in the order of the table; all without one, those for `long` only if that
/// is asked for.
fn chosen(parts: &'static [Part], names: &[String], long: bool) -> Result<Vec<&'static Part>> {
    for name in names {
        if !parts.iter().any(|part| part.name == *name) {
            let all: Vec<&str> = parts.iter().map(|part| part.name).collect();
            bail!("no part \"{name}\"; there are {}", all.join(", "));
        }
    }
    let wanted = |part: &&Part| match names.is_empty() {
        true => long || part.group != Group::Long,
        false => names.iter().any(|name| name == part.name),
    };
    Ok(parts.iter().filter(wanted).collect())
}

/// Prints every part, how long it takes, and what this machine lacks for it.
fn list(parts: &[Part], out: &mut dyn Write) -> Result<()> {
    for part in parts {
        writeln!(out, "{:8} {:4} s  {}", part.name, part.seconds, part.what)?;
        let missing = needs::missing(part.all_needs());
        if !missing.is_empty() {
            writeln!(out, "{:17} not there: {}", "", needs::names(&missing))?;
        }
    }
    writeln!(
        out,
        "{:8} {MINUTES:2} min  from nothing on two cores: parts run beside each other",
        "all"
    )?;
    Ok(())
}

/// How long all of it takes from nothing on two cores.
const MINUTES: u64 = 20;

/// Says what will be done and fetched, and by which seed.
fn announce(parts: &[&Part], run: &Run, out: &mut dyn Write) -> Result<()> {
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    writeln!(out, "xtask: {}", names.join(", "))?;
    if parts.len() > 1 {
        writeln!(
            out,
            "xtask: all parts take about {MINUTES} minutes from nothing on two cores"
        )?;
    }
    writeln!(
        out,
        "xtask: seed {}, by the commit; --seed {0} repeats it",
        run.seed
    )?;
    for part in parts.iter().filter(|part| !part.fetches.is_empty()) {
        writeln!(
            out,
            "xtask: {} gets {} into this folder",
            part.name, part.fetches
        )?;
    }
    Ok(())
}

/// How a part ended.
struct End {
    name: &'static str,
    limit: u64,
    seconds: u64,
    how: How,
}

enum How {
    Passed,
    Failed(String),
    /// It did not run.
    LeftOut,
}

/// Runs these `parts`, each whatever became of the others, and sums up. `install` is installed
/// meanwhile.
fn run_of(parts: &[&Part], run: &Run, install: Vec<Need>, out: &mut dyn Write) -> Result<()> {
    let ends = Mutex::new(Vec::new());
    let one = |part: &Part, fetched: Result<(), String>| {
        let end = end_of(part, run, fetched);
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(end);
    };
    let of = |group: Group| {
        parts
            .iter()
            .copied()
            .filter(move |part| part.group == group)
    };
    // The compiler of C first: nothing is built without it.
    let (first, rest): (Vec<Need>, Vec<Need>) =
        install.into_iter().partition(|need| BUILD.contains(need));
    install_all(&first);
    let files = OnceLock::new();
    // Runs once; others wait for it meanwhile.
    let fetch = || {
        files.get_or_init(|| {
            in_thread("fetch", || {
                install_all(&rest);
                fetch_all(parts, &run.root)
            })
        })
    };
    let run_group = |group: Group| {
        for part in of(group) {
            let waits = !rest.is_empty() || !part.fetches.is_empty();
            let mut failed = waits.then(fetch).into_iter().flatten();
            let failed = failed.find(|(name, _)| *name == part.name);
            let fetched = failed.map_or(Ok(()), |(_, error)| Err(error.clone()));
            in_thread(part.name, || one(part, fetched));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(fetch);
        for part in of(Group::Checks).chain(of(Group::Build)) {
            in_thread(part.name, || one(part, Ok(())));
        }
        for group in BESIDE {
            scope.spawn(move || run_group(group));
        }
    });
    run_group(Group::Long);
    run.timings().build_s = programs::build_seconds();
    let mut ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |end: &End| parts.iter().position(|part| part.name == end.name);
    ends.sort_by_key(place);
    run.timings().parts = ends.iter().map(|end| (end.name, end.seconds)).collect();
    sum_up(&ends, run, out)
}

/// Installs these. A part that misses one of them says so itself.
fn install_all(needs: &[Need]) {
    if let Err(error) = needs::install(needs) {
        say(&format!("xtask: not installed: {error:#}"));
    }
}

/// The parts whose files could not be fetched, and why.
fn fetch_all(parts: &[&Part], root: &Path) -> Vec<(&'static str, String)> {
    let mut failed = Vec::new();
    for part in parts {
        if !needs::missing(part.needs.iter().copied().flatten().copied()).is_empty() {
            continue;
        }
        if let Err(error) = (part.fetch)(root) {
            failed.push((part.name, format!("{error:#}")));
        }
    }
    failed
}

/// Runs `part` if it can run.
fn end_of(part: &Part, run: &Run, fetched: Result<(), String>) -> End {
    say(&format!("xtask: {}", part.what));
    let began = Instant::now();
    let missing = needs::missing(part.needs.iter().copied().flatten().copied());
    let how = match (missing.is_empty(), fetched) {
        (true, Ok(())) => {
            let left_out = run.left_out(part.name, part.extras);
            match left_out.and_then(|left_out| (part.run)(run, &left_out)) {
                Ok(()) => How::Passed,
                Err(error) => How::Failed(format!("{error:#}")),
            }
        }
        (true, Err(error)) if run.strict => How::Failed(error),
        (true, Err(error)) => {
            let first = error.lines().next().unwrap_or_default();
            run.note_left_out(format!("{}: it could not be fetched: {first}", part.name));
            How::LeftOut
        }
        (false, _) if run.strict => {
            How::Failed(format!("please install: {}", needs::names(&missing)))
        }
        (false, _) => {
            run.leaves_out(part.name, &missing);
            How::LeftOut
        }
    };
    let seconds = began.elapsed().as_secs();
    match &how {
        How::Passed => say(&format!("xtask: passed in {seconds} s")),
        How::Failed(error) => {
            // Its output is above, and again in the summary.
            let first = error.lines().next().unwrap_or_default();
            say(&format!("xtask: FAILED: {first}"));
        }
        How::LeftOut => {}
    }
    End {
        name: part.name,
        limit: part.seconds,
        seconds,
        how,
    }
}

/// Says how each part ended and how long everything took, what was left out, and how to repeat
/// the parts that failed.
fn sum_up(ends: &[End], run: &Run, out: &mut dyn Write) -> Result<()> {
    writeln!(out)?;
    let timings = run.timings();
    timings.print(out)?;
    for end in ends {
        let End { name, seconds, .. } = end;
        match &end.how {
            How::Passed if *seconds > end.limit => writeln!(
                out,
                "xtask: {name:8} passed in {seconds} s, longer than {} s",
                end.limit
            )?,
            How::Passed => writeln!(out, "xtask: {name:8} passed in {seconds} s")?,
            How::Failed(error) => writeln!(out, "xtask: {name:8} FAILED in {seconds} s: {error}")?,
            How::LeftOut => writeln!(out, "xtask: {name:8} left out")?,
        }
    }
    let failed: Vec<&str> = ends
        .iter()
        .filter(|end| matches!(end.how, How::Failed(_)))
        .map(|end| end.name)
        .collect();
    let left_out = run.left_out.lock().unwrap_or_else(PoisonError::into_inner);
    for line in left_out.iter() {
        writeln!(out, "xtask: left out: {line}")?;
    }
    if !left_out.is_empty() {
        writeln!(
            out,
            "xtask: cargo xtask test {} installs all of it",
            needs::YES
        )?;
    }
    if timings.passed + timings.failed > 0 {
        writeln!(out, "{} passed, {} failed", timings.passed, timings.failed)?;
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} parts failed; to repeat only these: cargo xtask test --seed {} {}",
            failed.len(),
            ends.len(),
            run.seed,
            failed.join(" ")
        );
    }
    match left_out.is_empty() && timings.unchanged == 0 {
        true => writeln!(out, "xtask: everything passed")?,
        false => writeln!(out, "xtask: everything that ran passed")?,
    }
    Ok(())
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
