//! `cargo xtask test`: its parts, which run beside each other, and how they ended.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::cluster::{self, PIP};
use crate::context::{Extra, Run};
use crate::needs::{self, Need, library, program};
use crate::programs;
use crate::show::say;
use crate::{book, cargo, clients, crates, mutants, package, plant, real, tidy, torment, unit};

/// A part of `cargo xtask test`, also run alone by its name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// For `cargo xtask test --list`.
    what: &'static str,
    /// The most seconds that it should take on two cores once everything is built, beside the
    /// others. The summary names a part that took longer.
    seconds: u64,
    lane: Lane,
    /// Programs of the system without which it cannot run.
    needs: &'static [&'static [Need]],
    /// Tests of it that need more: they are left out where that is missing.
    extras: &'static [Extra],
    /// What it gets into the working copy, below folders that git ignores.
    fetches: &'static str,
    /// Gets that; runs beside the build.
    fetch: fn(&Path) -> Result<()>,
    /// Is told which tests are left out.
    run: fn(&Run, &[&'static str]) -> Result<()>,
}

/// Parts of one lane run one after the other, and the lanes beside each other: most tests wait
/// for something most of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    /// Before all others: seconds.
    Checks,
    /// Behind those and before all others: the build.
    Build,
    Unit,
    Torment,
    Cluster,
    Python,
    Clients,
    /// Behind all others, alone: only with `--long`.
    Long,
}

/// Lanes that run beside each other.
const BESIDE: [Lane; 5] = [
    Lane::Unit,
    Lane::Torment,
    Lane::Cluster,
    Lane::Python,
    Lane::Clients,
];

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
const RUBY_DALLI: Need = library(
    "ruby",
    "-e",
    "require 'dalli'",
    "the library dalli",
    "ruby-dalli",
);
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
    RUBY_DALLI,
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
/// Tests of the part unit that need more than the compiler.
const UNIT_EXTRAS: &[Extra] = &[
    Extra {
        needs: LANGUAGES,
        tests: &[
            "the_readmes_sessions_work_from_top_to_bottom",
            "the_api_pages_session_works",
            "the_first_pages_session_works",
            "the_tls_pages_session_works",
            "the_tutorial_works_and_prints_its_files",
            "the_outbox_pages_session_works",
            "the_faktory_tutorials_session_works",
            "the_batches_pages_session_works",
            "the_hooks_pages_session_works",
            "the_sessions_of_the_pages_of_voices_work",
        ],
    },
    Extra {
        needs: &[program("python3", "python3")],
        tests: &["examples::python"],
    },
    Extra {
        needs: &[program("ruby", "ruby")],
        tests: &["examples::ruby"],
    },
    Extra {
        needs: &[program("node", "nodejs")],
        tests: &["examples::node"],
    },
    Extra {
        needs: &[program("beanstalkd", "beanstalkd")],
        tests: &[
            "all_of_a_beanstalkd_moves_with_states_priorities_and_times",
            "one_tube_moves_into_a_queue_of_another_name",
            "a_beanstalkd_that_dies_half_way_loses_nothing_and_the_rest_comes_later",
            "what_is_refused_here_stays_there_as_it_was",
            "interrupted_it_gives_back_what_it_holds",
            "a_job_of_one_second_is_stored_before_its_time_is_over",
            "somebody_else_is_named_and_nothing_there_is_not_an_error",
            "all_of_a_kestrel_moves_in_order_with_flags",
        ],
    },
];
const PYTHON_EXTRAS: &[Extra] = &[
    Extra {
        needs: PEERS,
        tests: &[
            "clients/python/test_libmemcached.py",
            "clients/python/test_metrics.py",
        ],
    },
    Extra {
        needs: &[program("ruby", "ruby"), RUBY_DALLI],
        tests: &["clients/python/test_dalli.py"],
    },
    Extra {
        needs: QUICK,
        tests: &["clients/python/test_quick_starts.py"],
    },
];
const DEBIAN: &[Need] = &[program("dpkg-deb", "dpkg"), program("strip", "binutils")];
const CHROMIUM: &[Need] = &[program("chromium", "chromium")];
const NODE: &[Need] = &[program("node", "nodejs"), program("npm", "npm")];

/// What most parts fetch.
const NOTHING: fn(&Path) -> Result<()> = |_| Ok(());

/// All there are. A new one is a line here.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "tidy",
        what: "the house rules",
        seconds: 10,
        lane: Lane::Checks,
        needs: &[],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| tidy::run(&run.root),
    },
    Part {
        name: "format",
        what: "cargo fmt --check, also of clients/rust",
        seconds: 20,
        lane: Lane::Checks,
        needs: &[],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| {
            cargo(&["fmt", "--all", "--check"]).and_then(|()| clients::rust_format(&run.root))
        },
    },
    Part {
        name: "crates",
        what: "licences, duplicates and sources of third-party crates, by deny.toml",
        seconds: 20,
        lane: Lane::Checks,
        needs: &[],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| crates::check(&run.root),
    },
    Part {
        name: "clippy",
        what: "the build of everything, also without the feature cluster, by clippy; warnings are errors",
        seconds: 600,
        lane: Lane::Build,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| programs::clippy(&run.root),
    },
    Part {
        name: "unit",
        what: "the workspace's own tests",
        seconds: 480,
        lane: Lane::Unit,
        needs: &[BUILD],
        extras: UNIT_EXTRAS,
        fetches: "",
        fetch: NOTHING,
        run: unit::run,
    },
    Part {
        name: "torment",
        what: "the real binary under load, faults, kills and hostile clients",
        seconds: 330,
        lane: Lane::Torment,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| torment::run(&run.root, &torment_words(run)),
    },
    Part {
        name: "cluster",
        what: "the log and three nodes over real NATS servers; killed, frozen and cut off",
        seconds: 600,
        lane: Lane::Cluster,
        needs: &[BUILD, PIP],
        extras: &[],
        fetches: "nats-server by pip",
        fetch: |root| {
            cluster::program(root)
                .and(cluster::next_program(root))
                .map(drop)
        },
        run: |run, _| real::run(run, &cluster_words(run)),
    },
    Part {
        name: "python",
        what: "Python's client libraries, and quick starts in Ruby, PHP and Go, against the real binary",
        seconds: 420,
        lane: Lane::Python,
        needs: &[BUILD, PIP],
        extras: PYTHON_EXTRAS,
        fetches: "client libraries by pip",
        fetch: clients::python_libraries,
        run: clients::python,
    },
    Part {
        name: "node",
        what: "Node's client libraries against the real binary",
        seconds: 60,
        lane: Lane::Clients,
        needs: &[BUILD, NODE],
        extras: &[],
        fetches: "client libraries by npm",
        fetch: clients::node_libraries,
        run: |run, _| clients::node(run),
    },
    Part {
        name: "browser",
        what: "the console, clicked through in Chromium, and read by axe",
        seconds: 120,
        lane: Lane::Clients,
        needs: &[BUILD, NODE, CHROMIUM],
        extras: &[],
        fetches: "puppeteer-core and axe-core by npm",
        fetch: clients::browser_libraries,
        run: |run, _| clients::browser(run),
    },
    Part {
        name: "rust",
        what: "the crates faktory and aws-sdk-sqs against the real binary, with clippy",
        seconds: 180,
        lane: Lane::Clients,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| clients::rust(run),
    },
    Part {
        name: "packages",
        what: "the Debian package and the container's script, unpacked and started",
        seconds: 60,
        lane: Lane::Clients,
        needs: &[BUILD, DEBIAN],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| package::try_out(&run.root),
    },
    Part {
        name: "book",
        what: "the site of docs/, built; its links lead somewhere",
        seconds: 120,
        lane: Lane::Clients,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| book::build(&run.root),
    },
    Part {
        name: "plant",
        what: "planted defects, which the tests must find; only with --long",
        seconds: 3_600,
        lane: Lane::Long,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| plant::run(&run.root, &[]),
    },
    Part {
        name: "mutants",
        what: "random changes to functions, which the tests should find; only with --long",
        seconds: 3_900,
        lane: Lane::Long,
        needs: &[BUILD],
        extras: &[],
        fetches: "",
        fetch: NOTHING,
        run: |run, _| mutants::run(&run.root, &[]),
    },
];

/// Each fault once, 60 kills and a million messages; or with `--long` ten minutes, and each fault
/// twenty times.
fn torment_words(run: &Run) -> Vec<String> {
    let words = match run.long {
        true => "--minutes 10 --at-least 20",
        false => "--minutes 5 --at-least 1 --kills 60 --puts 1000000 --early",
    };
    with_seed(words, run)
}

/// Every kind of fault once, or with `--long` twenty times.
fn cluster_words(run: &Run) -> Vec<String> {
    let words = match run.long {
        true => "--minutes 30 --at-least 20 --early",
        false => "--minutes 3 --at-least 1 --early",
    };
    with_seed(words, run)
}

fn with_seed(words: &str, run: &Run) -> Vec<String> {
    let words = words.split(' ').map(str::to_owned);
    words
        .chain(["--seed".to_owned(), run.seed.to_string()])
        .collect()
}

/// What `cargo xtask lint` runs.
pub(crate) const LINT: [&str; 4] = ["tidy", "format", "crates", "clippy"];
/// What `cargo xtask clients` runs.
pub(crate) const CLIENTS: [&str; 3] = ["python", "node", "rust"];

/// What the command line asks for.
#[derive(Default, PartialEq, Eq, Debug)]
struct Asked {
    names: Vec<String>,
    list: bool,
    yes: bool,
    long: bool,
    seed: Option<u64>,
    timings: Option<PathBuf>,
}

impl Asked {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut asked = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match *word {
                "--list" => asked.list = true,
                needs::YES => asked.yes = true,
                "--long" => asked.long = true,
                "--seed" => asked.seed = Some(value()?.parse().context("--seed takes a number")?),
                "--timings" => asked.timings = Some(value()?.into()),
                option if option.starts_with('-') => bail!(
                    "no option {option}; there are --list, --yes, --long, --seed N, --timings FILE"
                ),
                name => asked.names.push(name.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// Runs the parts that `words` name, or all if they name none.
///
/// # Errors
/// There is no such part or option; parts failed, which are then named.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let mut out = std::io::stdout();
    let asked = Asked::parse(words)?;
    if asked.list {
        return list(PARTS, &mut out);
    }
    let parts = chosen(PARTS, &asked.names, asked.long)?;
    let run = Run {
        root: root.to_owned(),
        long: asked.long,
        seed: asked.seed.unwrap_or_else(|| seed_of_commit(root)),
        strict: needs::may_install(asked.yes),
        timings: Mutex::default(),
        left_out: Mutex::default(),
    };
    announce(&parts, &run, &mut out)?;
    let all = parts.iter().flat_map(|part| part.all_needs());
    let missing = needs::missing(all);
    let installs = needs::consent(&missing, run.strict, &mut out)?;
    let missing = if installs { missing } else { Vec::new() };
    let result = run_of(&parts, &run, missing, &mut out);
    if let Some(file) = &asked.timings {
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
        true => long || part.lane != Lane::Long,
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
    let of = |lane: Lane| parts.iter().copied().filter(move |part| part.lane == lane);
    // The compiler of C first: nothing is built without it.
    let (first, rest): (Vec<Need>, Vec<Need>) =
        install.into_iter().partition(|need| BUILD.contains(need));
    install_all(&first);
    let fetched = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| {
            in_thread("fetch", || {
                install_all(&rest);
                fetch_all(parts, &run.root)
            })
        });
        for part in of(Lane::Checks).chain(of(Lane::Build)) {
            in_thread(part.name, || one(part, Ok(())));
        }
        let fetched = fetching.join();
        fetched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let of_lane = |lane: Lane| {
        for part in of(lane) {
            let failed = fetched.iter().find(|(name, _)| *name == part.name);
            let fetched = failed.map_or(Ok(()), |(_, error)| Err(error.clone()));
            in_thread(part.name, || one(part, fetched));
        }
    };
    std::thread::scope(|scope| {
        for lane in BESIDE {
            scope.spawn(move || of_lane(lane));
        }
    });
    of_lane(Lane::Long);
    run.timings().build_s = programs::build_seconds();
    let mut ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |end: &End| parts.iter().position(|part| part.name == end.name);
    ends.sort_by_key(place);
    run.timings().parts = ends.iter().map(|end| (end.name, end.seconds)).collect();
    sum_up(&ends, run, out)
}

/// Calls `work` in a thread of this name, which stands before the lines that it prints.
fn in_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn_scoped(scope, work).expect("a thread starts");
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What cannot be installed is missing where it is needed, and told there.
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
    match left_out.is_empty() {
        true => writeln!(out, "xtask: everything passed")?,
        false => writeln!(out, "xtask: everything that ran passed")?,
    }
    Ok(())
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
