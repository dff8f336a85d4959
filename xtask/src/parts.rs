//! `cargo xtask test`: its parts, one after the other, and what failed.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{cargo, clients, cluster, tidy, torment};

/// A part of `cargo xtask test`, also run alone by its name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// For `cargo xtask test --list`.
    what: &'static str,
    run: fn(&Path) -> Result<()>,
}

/// All there are, in the order in which they are run. A new one is a line here.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "tidy",
        what: "the house rules",
        run: tidy::run,
    },
    Part {
        name: "format",
        what: "cargo fmt --check",
        run: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Part {
        name: "clippy",
        what: "its lints, all of them errors, also of a server without the feature cluster",
        run: |_| cargo(&CLIPPY).and_then(|()| cargo(&CLIPPY_ALONE)),
    },
    Part {
        name: "unit",
        what: "the workspace's own tests (cargo test)",
        run: |_| cargo(&["test", "--workspace", "--no-fail-fast"]),
    },
    Part {
        name: "torment",
        what: "the real binary under load, faults, kills and hostile clients, for five minutes",
        run: |root| torment::run(root, &FIVE_MINUTES.map(str::to_owned)),
    },
    Part {
        name: "cluster",
        what: "the log and three nodes over real NATS servers; killed, frozen and cut off",
        run: |root| {
            cluster::run_real(root)?;
            torment::run_cluster(root, &ONCE.map(str::to_owned))
        },
    },
    Part {
        name: "python",
        what: "Python's client libraries against the real binary",
        run: clients::python,
    },
    Part {
        name: "node",
        what: "Node's client libraries against the real binary",
        run: clients::node,
    },
];

/// Of torment: each voice, fault and deed ten times, or it fails.
const FIVE_MINUTES: [&str; 4] = ["--minutes", "5", "--at-least", "10"];

/// Of a cluster: every kind of fault once, which a slow machine may take nine minutes for.
const ONCE: [&str; 4] = ["--minutes", "3", "--at-least", "1"];

const CLIPPY: [&str; 6] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--",
    "-D",
    "warnings",
];

/// The server that knows no clusters.
const CLIPPY_ALONE: [&str; 7] = [
    "clippy",
    "--package",
    "quintet",
    "--no-default-features",
    "--",
    "-D",
    "warnings",
];

/// What `cargo xtask lint` runs.
pub(crate) const LINT: [&str; 3] = ["tidy", "format", "clippy"];
/// What `cargo xtask clients` runs.
pub(crate) const CLIENTS: [&str; 2] = ["python", "node"];

/// Runs the parts of these names, or all if there are none; `--list` lists them.
///
/// # Errors
/// There is no such part; parts failed, which are then named.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<()> {
    let mut out = std::io::stdout();
    if names.contains(&"--list") {
        for part in PARTS {
            writeln!(out, "{:8} {}", part.name, part.what)?;
        }
        return Ok(());
    }
    run_of(PARTS, root, names, &mut out)
}

/// How a part ended.
struct End {
    name: &'static str,
    seconds: u64,
    error: Option<String>,
}

/// Runs these `parts`, each whatever became of those before it, and sums up.
fn run_of(parts: &[Part], root: &Path, names: &[&str], out: &mut dyn Write) -> Result<()> {
    for name in names {
        if !parts.iter().any(|part| part.name == *name) {
            let all: Vec<&str> = parts.iter().map(|part| part.name).collect();
            bail!("no part \"{name}\"; there are {}", all.join(", "));
        }
    }
    let mut ends = Vec::new();
    for part in parts {
        if !names.is_empty() && !names.contains(&part.name) {
            continue;
        }
        writeln!(out, "xtask: {}: {}", part.name, part.what)?;
        let began = Instant::now();
        let error = (part.run)(root).err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            writeln!(out, "xtask: {} failed: {error}", part.name)?;
        }
        ends.push(End {
            name: part.name,
            seconds: began.elapsed().as_secs(),
            error,
        });
    }
    sum_up(&ends, out)
}

/// Says how each part ended, and how to repeat those that failed.
fn sum_up(ends: &[End], out: &mut dyn Write) -> Result<()> {
    writeln!(out)?;
    for end in ends {
        let (name, seconds) = (end.name, end.seconds);
        match &end.error {
            None => writeln!(out, "xtask: {name:8} passed in {seconds} s")?,
            Some(error) => writeln!(out, "xtask: {name:8} FAILED in {seconds} s: {error}")?,
        }
    }
    let failed: Vec<&str> = ends
        .iter()
        .filter(|end| end.error.is_some())
        .map(|end| end.name)
        .collect();
    if failed.is_empty() {
        writeln!(out, "xtask: everything passed")?;
        return Ok(());
    }
    bail!(
        "{} of {} parts failed; to repeat only what failed: cargo xtask test {}",
        failed.len(),
        ends.len(),
        failed.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anyhow::bail;

    use super::{CLIENTS, LINT, PARTS, Part, run_of};

    const FAKES: &[Part] = &[
        Part {
            name: "one",
            what: "passes",
            run: |_| Ok(()),
        },
        Part {
            name: "two",
            what: "fails",
            run: |_| bail!("broken"),
        },
        Part {
            name: "three",
            what: "passes",
            run: |_| Ok(()),
        },
        Part {
            name: "four",
            what: "fails",
            run: |_| bail!("broken too"),
        },
    ];

    /// What is printed, and the error.
    fn run(names: &[&str]) -> (String, Option<String>) {
        let mut out = Vec::new();
        let end = run_of(FAKES, Path::new("."), names, &mut out);
        let error = end.err().map(|error| error.to_string());
        (String::from_utf8(out).unwrap(), error)
    }

    #[test]
    fn the_parts_after_a_failing_one_are_run_and_what_failed_is_summed_up() {
        let (said, error) = run(&[]);
        for line in [
            "xtask: one      passed in 0 s",
            "xtask: two      FAILED in 0 s: broken",
            "xtask: three    passed in 0 s",
            "xtask: four     FAILED in 0 s: broken too",
        ] {
            assert!(said.contains(line), "{line}:\n{said}");
        }
        assert!(!said.contains("everything passed"), "{said}");
        assert_eq!(
            error.unwrap(),
            "2 of 4 parts failed; to repeat only what failed: cargo xtask test two four"
        );
    }

    #[test]
    fn parts_are_run_by_name() {
        let (said, error) = run(&["three", "one"]);
        assert!(
            said.contains("three") && !said.contains("two") && error.is_none(),
            "{said}"
        );
        assert!(said.ends_with("xtask: everything passed\n"), "{said}");
        let (said, error) = run(&["one", "five"]);
        assert_eq!(said, "", "nothing is run for a wrong name");
        assert_eq!(
            error.unwrap(),
            "no part \"five\"; there are one, two, three, four"
        );
    }

    #[test]
    fn the_names_are_those_of_parts() {
        for name in LINT.iter().chain(&CLIENTS) {
            assert!(PARTS.iter().any(|part| part.name == *name), "{name}");
        }
        for (at, part) in PARTS.iter().enumerate() {
            assert!(PARTS[..at].iter().all(|other| other.name != part.name));
        }
    }
}
