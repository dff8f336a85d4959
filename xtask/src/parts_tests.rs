use std::path::Path;
use std::sync::Mutex;

use anyhow::bail;
use clap::Parser as _;

use super::{PartsArgs, announce, chosen, list, run_of};
use crate::Task;
use crate::context::{Extra, Run};
use crate::needs::{Need, program};
use crate::table::{CLIENTS, Group, LINT, PART, PARTS, Part};

const ABSENT: &[Need] = &[program("no-such-program", "a-package")];

const fn fake(
    name: &'static str,
    group: Group,
    run: fn(&Run, &[&'static str]) -> anyhow::Result<()>,
) -> Part {
    Part {
        name,
        what: "tries",
        seconds: 60,
        group,
        run,
        ..PART
    }
}

const FAKES: &[Part] = &[
    fake("one", Group::Checks, |_, _| Ok(())),
    fake("two", Group::Unit, |_, _| bail!("broken")),
    fake("three", Group::Unit, |_, _| Ok(())),
    Part {
        needs: &[ABSENT],
        ..fake("four", Group::Clients, |_, _| {
            unreachable!("its needs are not there")
        })
    },
    Part {
        fetches: "a file",
        fetch: |_: &Path| bail!("no network"),
        ..fake("five", Group::Cluster, |_, _| {
            unreachable!("nothing is fetched")
        })
    },
    fake("six", Group::Long, |_, _| Ok(())),
];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn run_with(strict: bool) -> Run {
    Run {
        root: ".".into(),
        long: false,
        seed: 7,
        strict,
        again: true,
        timings: Mutex::default(),
        left_out: Mutex::default(),
    }
}

/// The lines that are printed, and the error.
fn run(strict: bool, of: &[&str]) -> (String, Option<String>) {
    let mut out = Vec::new();
    let parts = chosen(FAKES, &names(of), false);
    let end = parts.and_then(|parts| run_of(&parts, &run_with(strict), Vec::new(), &mut out));
    let error = end.err().map(|error| error.to_string());
    (String::from_utf8(out).unwrap(), error)
}

#[test]
fn a_part_that_fails_stops_no_other_and_is_named_at_the_end() {
    let (output, error) = run(true, &[]);
    for line in [
        "xtask: one      passed in 0 s",
        "xtask: two      FAILED in 0 s: broken",
        "xtask: three    passed in 0 s",
        "xtask: four     FAILED in 0 s: please install: no-such-program",
        "xtask: five     FAILED in 0 s: no network",
    ] {
        assert!(output.contains(line), "{line}:\n{output}");
    }
    assert!(
        !output.contains("everything") && !output.contains("six"),
        "{output}"
    );
    assert_eq!(
        error.unwrap(),
        "3 of 5 parts failed; to repeat only these: cargo xtask test --seed 7 two four five"
    );
}

#[test]
fn a_machine_that_lacks_something_leaves_out_that_and_says_how_to_get_it() {
    let (output, error) = run(false, &["one", "four", "five"]);
    assert_eq!(error, None);
    for line in [
        "xtask: four     left out",
        "xtask: left out: four: needs no-such-program: apt-get install a-package",
        "xtask: left out: five: it could not be fetched: no network",
        "xtask: cargo xtask test --yes installs all of it",
    ] {
        assert!(output.contains(line), "{line}:\n{output}");
    }
    assert!(
        output.ends_with("xtask: everything that ran passed\n"),
        "{output}"
    );
    let (_, error) = run(false, &["two", "four"]);
    assert!(error.unwrap().starts_with("1 of 2 parts failed"));
}

#[test]
fn parts_are_run_by_name() {
    let (output, error) = run(true, &["three", "one"]);
    assert!(output.contains("three") && !output.contains("two") && error.is_none());
    assert!(output.ends_with("xtask: everything passed\n"), "{output}");
    let (output, error) = run(true, &["one", "seven"]);
    assert_eq!(output, "", "nothing is run for a wrong name");
    assert_eq!(
        error.unwrap(),
        "no part \"seven\"; there are one, two, three, four, five, six"
    );
    assert_eq!(chosen(FAKES, &[], true).unwrap().len(), 6);
}

#[test]
fn the_command_line_is_read() {
    let read = |line: &str| Task::try_parse_from(line.split(' '));
    let parse_args = |line: &str| match read(line).expect("options") {
        Task::Part(words) => PartsArgs::parse_from(crate::part(words)),
        Task::Test(args) => args,
        _ => unreachable!("{line}"),
    };
    let test = parse_args("xtask test unit --seed 9 --timings t.json --long");
    assert_eq!((&test.names, test.seed), (&names(&["unit"]), Some(9)));
    assert!(test.long && !test.yes && !test.list && test.timings.is_some());
    assert_eq!(
        test,
        parse_args("xtask unit --seed 9 --timings t.json --long")
    );
    for wrong in ["--seed", "--seed x", "--slow"] {
        assert!(read(&format!("xtask test {wrong}")).is_err(), "{wrong}");
    }
    for passed in ["--minutes 2 --release", "--help", "--only=leader"] {
        let Ok(Task::Cluster(options)) = read(&format!("xtask cluster {passed}")) else {
            unreachable!("{passed}");
        };
        assert_eq!(options.options.join(" "), passed);
    }
}

#[test]
fn a_list_has_seconds_and_missing_programs() {
    let mut out = Vec::new();
    list(FAKES, &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert!(output.starts_with("one        60 s  tries\n"), "{output}");
    assert!(output.contains("not there: no-such-program\n"), "{output}");
    assert!(output.contains("\nall      20 min"), "{output}");
}

#[test]
fn the_seed_and_the_downloads_are_announced() {
    let mut out = Vec::new();
    let parts = chosen(PARTS, &names(&["node", "tidy"]), false).unwrap();
    announce(&parts, &run_with(false), &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert!(output.starts_with("xtask: tidy, node\n"), "{output}");
    assert!(output.contains("seed 7"), "{output}");
    assert!(
        output.contains("node gets client libraries by npm"),
        "{output}"
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

/// A name that is in no test would leave nothing out.
#[test]
fn tests_that_need_more_are_there() {
    let listed = std::process::Command::new("git")
        .args([
            "grep",
            "-hE",
            "fn [a-z_0-9]+\\(|^def test_",
            "--",
            "*.rs",
            "*.py",
        ])
        .current_dir(crate::root())
        .output()
        .expect("git");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let extras: Vec<&Extra> = PARTS.iter().flat_map(|part| part.extras).collect();
    for test in extras.iter().flat_map(|extra| extra.tests) {
        let name = test.rsplit("::").next().unwrap_or(test);
        let is_file = crate::root().join(test).is_file();
        assert!(is_file || listed.contains(&format!("{name}(")), "{test}");
    }
}
