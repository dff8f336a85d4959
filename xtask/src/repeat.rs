//! `cargo xtask repeat`: tests again and again, on a machine that is busy.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::programs::{Program, built, failed_tests};

/// Where tests wait for something or race with it: a package, and one of its
/// test files if it is not all of them. All that has a thread, a process, a
/// socket or a clock belongs here.
const WAITING: &[(&str, Option<&str>)] = &[
    ("quintet", None),
    ("quintet-bench", None),
    ("quintet-cli", None),
    ("quintet-hooks", None),
    ("quintet-host", None),
    ("quintet-http", None),
    ("quintet-log", Some("log")),
    ("quintet-scripts", None),
    ("quintet-trial", None),
    ("quintet-web", None),
];

pub(crate) const HELP: &str = "\
A test that fails stops no other. The output of each run that failed is in target/repeat.

  cargo xtask repeat                                             every one, 200 times
  cargo xtask repeat --times 20 --test quintet-log:log limits::  one file; builds no more
  cargo xtask repeat --times 500 backups_beside_a_busy           one test";

/// The tests to repeat.
#[derive(clap::Parser, Debug)]
pub(crate) struct RepeatArgs {
    /// How often each is run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Busy loops beside them
    #[arg(long, default_value_t = 8)]
    load: usize,
    /// A test program (protocols), or PACKAGE:PROGRAM (quintet-http:lib); may be repeated. Without
    /// one all that wait for something or race with it
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Parts of the tests' names, as for cargo test
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

impl RepeatArgs {
    /// Whether `package`'s test file `name` is asked for.
    fn wants(&self, package: &str, name: &str) -> bool {
        if self.tests.is_empty() {
            return WAITING
                .iter()
                .any(|(whose, file)| *whose == package && file.is_none_or(|file| file == name));
        }
        let full = format!("{package}:{name}");
        self.tests.iter().any(|test| *test == name || *test == full)
    }
}

/// Repeats these tests.
///
/// # Errors
/// It does not build, there is no such test, or one failed.
pub(crate) fn run(root: &Path, args: &RepeatArgs) -> Result<()> {
    let programs: Vec<Program> = built(root)?
        .into_iter()
        .filter(|program| args.wants(&program.package, &program.name))
        .collect();
    if programs.is_empty() {
        bail!("no test file {}", args.tests.join(", "));
    }
    let kept = crate::target(root).join("repeat");
    std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    let over = AtomicBool::new(false);
    let failures = std::thread::scope(|scope| {
        for _ in 0..args.load {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let failures = repeat_all(&programs, args, &kept);
        over.store(true, Ordering::Relaxed);
        failures
    })?;
    if failures.is_empty() {
        println!("xtask: no failure");
        return Ok(());
    }
    for (test, times) in &failures {
        println!("xtask: {test} failed in {times} of {} runs", args.times);
    }
    bail!(
        "{} tests failed; what they said is in {}",
        failures.len(),
        kept.display()
    )
}

/// Answers how often which test failed.
fn repeat_all(
    programs: &[Program],
    args: &RepeatArgs,
    kept: &Path,
) -> Result<BTreeMap<String, u32>> {
    let mut failures = BTreeMap::new();
    let mut any = false;
    for program in programs {
        let label = format!("{}:{}", program.package, program.name);
        let count = count(program, args)?;
        if count == 0 {
            continue;
        }
        any = true;
        let began = Instant::now();
        let mut failed = 0;
        for time in 1..=args.times {
            let output = command(program, args)
                .output()
                .with_context(|| program.file.display().to_string())?;
            if output.status.success() {
                continue;
            }
            failed += 1;
            let file = kept.join(format!("{}-{}-{time}.txt", program.package, program.name));
            let text = [output.stdout.as_slice(), &output.stderr].concat();
            std::fs::write(&file, &text).with_context(|| file.display().to_string())?;
            let mut names = failed_tests(&String::from_utf8_lossy(&text));
            if names.is_empty() {
                names.push(format!("(all: {})", output.status));
            }
            for name in names {
                println!("xtask: {label} {name} failed");
                *failures.entry(format!("{label} {name}")).or_insert(0) += 1;
            }
        }
        println!(
            "xtask: {label}, {count} tests, {} times under a load of {}: {failed} runs failed ({} s)",
            args.times,
            args.load,
            began.elapsed().as_secs()
        );
    }
    if !any {
        bail!("no test has {} in its name", args.filters.join(" or "));
    }
    Ok(failures)
}

/// Seeds that simulations try in each repetition, unless told: what is repeated are their waits.
const SEEDS: &str = "200";

fn command(program: &Program, args: &RepeatArgs) -> Command {
    let mut command = program.command(&args.filters);
    if std::env::var_os("SEEDS").is_none() {
        command.env("SEEDS", SEEDS);
    }
    command
}

/// How many tests of the program are asked for.
fn count(program: &Program, args: &RepeatArgs) -> Result<usize> {
    let output = command(program, args).arg("--list").output();
    let output = output.with_context(|| program.file.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter(|line| line.ends_with(": test")).count())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{RepeatArgs, WAITING};

    fn parse_args(line: &str) -> RepeatArgs {
        RepeatArgs::parse_from(format!("repeat {line}").split_whitespace())
    }

    #[test]
    fn programs_are_chosen_by_name() {
        let all = parse_args("");
        assert_eq!((all.times, all.load), (200, 8));
        assert!(all.wants("quintet-log", "log") && !all.wants("quintet-log", "lib"));
        let some = parse_args("--times 3 --load 0 --test limits --test quintet-http:lib a_b c");
        assert_eq!((some.times, some.load), (3, 0));
        assert_eq!(some.filters, ["a_b", "c"]);
        assert!(some.wants("quintet-log", "limits") && some.wants("quintet-http", "lib"));
        assert!(!some.wants("quintet-scripts", "lib") && !some.wants("quintet", "protocols"));
    }

    /// A name that is none would never be repeated.
    #[test]
    fn a_repeated_test_exists() {
        let root = crate::root();
        for (package, file) in WAITING {
            let folder = match *package {
                "quintet" => "crates/server".to_owned(),
                "quintet-bench" => "bench".to_owned(),
                other => format!("crates/{}", other.trim_start_matches("quintet-")),
            };
            let folder = root.join(folder);
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            assert!(
                manifest.contains(&format!("name = \"{package}\"")),
                "{package}"
            );
            if let Some(file) = file {
                let file = folder.join("tests").join(file).join("main.rs");
                assert!(file.is_file(), "{}", file.display());
            }
        }
    }
}
