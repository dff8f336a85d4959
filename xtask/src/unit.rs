//! The part `unit`: the workspace's own tests, those that wait beside those that compute.

use std::sync::Mutex;

use anyhow::{Result, ensure};

use crate::context::Run;
use crate::passed::{LONG, Passed};
use crate::programs::{Program, built};
use crate::show::{in_threads, say};

/// Packages whose tests wait for sockets, children and disks most of the time. The programs of the
/// others compute with one thread each, one program for each processor.
const WAITING: [&str; 7] = [
    "quintet",
    "quintet-bench",
    "quintet-proxy",
    "quintet-http",
    "quintet-scripts",
    "quintet-sqs",
    "quintet-web",
];

/// Programs that wait, beside each other, and tests of each at a time for each processor; choices.
/// Two, as one may have tests that wait for each other: the pages' sessions share the default
/// ports.
const WAITING_PROGRAMS: usize = 2;
const WAITING_AT_A_TIME: usize = 2;

/// The programs that take longest, and so begin first.
const LONGEST: [(&str, &str); 4] = [
    ("quintet", "operations"),
    ("quintet-host", "lib"),
    ("quintet-sim", "sim"),
    ("quintet-log", "log"),
];

/// The program of tests over real NATS servers, which the part `cluster` runs.
pub(crate) const REAL: &str = "real";

/// Runs all test programs but those over real NATS servers, without the tests `skipped`.
///
/// # Errors
/// They do not build, or tests fail.
pub(crate) fn run(run: &Run, skipped: &[&str]) -> Result<()> {
    let programs = built(&run.root)?;
    let passed = Passed::of(run, skipped)?;
    let passed = passed.as_ref();
    let programs = programs.iter().filter(|program| program.name != REAL);
    let mut programs: Vec<&Program> = programs.collect();
    let place = |program: &&Program| {
        let name = (program.package.as_str(), program.name.as_str());
        let place = LONGEST.iter().position(|longest| *longest == name);
        place.unwrap_or(LONGEST.len())
    };
    programs.sort_by_key(place);
    let (waiting, computing): (Vec<&Program>, Vec<&Program>) = programs
        .into_iter()
        .partition(|program| WAITING.contains(&program.package.as_str()));
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let waiting = Mutex::new(waiting.into_iter());
    let computing = Mutex::new(computing.into_iter());
    let many = processors * WAITING_AT_A_TIME;
    let workers = std::iter::repeat_n((&computing, 1), processors)
        .chain(std::iter::repeat_n((&waiting, many), WAITING_PROGRAMS));
    let workers =
        workers.map(|(programs, threads)| move || run_all(run, programs, threads, skipped, passed));
    let ends = in_threads("unit", workers).into_iter();
    let failed = ends.collect::<Result<Vec<_>>>()?.concat();
    ensure!(failed.is_empty(), "tests failed:\n{}", failed.join("\n"));
    Ok(())
}

/// Runs `programs` one after the other, without those that `passed` has, and answers what failed.
fn run_all<'a>(
    run: &Run,
    programs: &Mutex<impl Iterator<Item = &'a Program>>,
    threads: usize,
    skipped: &[&str],
    passed: Option<&Passed>,
) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    loop {
        let next = programs.lock().map_or(None, |mut programs| programs.next());
        let Some(program) = next else {
            return Ok(failed);
        };
        let state = passed.map(|passed| (passed, passed.state(program)));
        if state.is_some_and(|(passed, state)| passed.has(program, state)) {
            say(&format!("xtask: {}: passed and unchanged", program.label()));
            run.timings().unchanged += 1;
            continue;
        }
        let found = run_one(run, program, threads, skipped, &[])?;
        if let Some((passed, state)) = state {
            passed.note(program, state, found.is_empty());
        }
        failed.extend(found);
    }
}

/// Runs a program and notes its times; answers which of its tests failed, and the end of its
/// output.
///
/// # Errors
/// It cannot be started.
pub(crate) fn run_one(
    run: &Run,
    program: &Program,
    threads: usize,
    skipped: &[&str],
    environment: &[(&str, std::ffi::OsString)],
) -> Result<Vec<String>> {
    let ran = program.run(threads, skipped, &|command| {
        command.env("FIRST_SEED", run.seed.to_string());
        if run.long {
            for name in LONG {
                command.env(name, MANY);
            }
        }
        // proptest's own name for it.
        command.env("PROPTEST_RNG_SEED", run.seed.to_string());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if program.name == REAL {
            command.arg("--ignored");
        }
    })?;
    let (label, failures) = (program.label(), ran.failed.len());
    let seconds = ran.time.as_secs_f64();
    say(&format!(
        "xtask: {label}: {} passed, {failures} failed, {seconds:.1} s",
        ran.passed
    ));
    let mut timings = run.timings();
    timings.passed += ran.passed;
    timings.failed += failures;
    let tests = ran.passed + failures;
    timings.programs.push((label.clone(), tests, ran.time));
    let named = ran.tests.into_iter();
    let named = named.map(|(name, time)| (format!("{label} {name}"), time));
    timings.tests.extend(named);
    if failures == 0 {
        return Ok(Vec::new());
    }
    let names = ran.failed.iter().map(|name| format!("{label} {name}"));
    Ok(names.chain([ran.output_text]).collect())
}

/// How many inputs or seeds tests try with `--long`.
const MANY: &str = "10000";

#[cfg(test)]
mod tests {
    use super::{LONGEST, WAITING};

    /// A package that is renamed would be run with one thread, and late.
    #[test]
    fn the_packages_that_are_named_are_there() {
        let metadata = std::fs::read_to_string(crate::root().join("Cargo.lock")).unwrap();
        for package in WAITING
            .into_iter()
            .chain(LONGEST.map(|(package, _)| package))
        {
            assert!(
                metadata.contains(&format!("name = \"{package}\"\n")),
                "{package}"
            );
        }
    }
}
