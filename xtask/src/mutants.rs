//! `cargo xtask mutants`: `cargo mutants` over some functions of the engine,
//! the log and the host, chosen by a seed, for a time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{target, tool};

const HELP: &str = "\
Usage: cargo xtask mutants [--minutes N] [--seed S]

Changes functions one by one (by cargo-mutants, which is built first), by
turns of the engine, the log and the host, and runs the tests of that
crate. Ends with those that no test noticed, which is no failure: each has to
get a test or a reason in docs/reliability.md.

  --minutes N  How long at most, building included [60]
  --seed S     Which; without it one is chosen and printed
";

/// Of cargo-mutants.
const VERSION: &str = "27.1.0";

/// Where mutants are made, and which tests are to notice.
struct Room {
    name: &'static str,
    files: &'static str,
    /// More options of cargo mutants.
    options: &'static [&'static str],
}

const ROOMS: [Room; 4] = [
    Room {
        name: "types",
        files: "crates/types/src/**/*.rs",
        options: &[
            "--test-package=quintet-types",
            "--test-package=quintet-engine",
            "--test-package=quintet-sim",
        ],
    },
    Room {
        name: "engine",
        files: "crates/engine/src/**/*.rs",
        options: &[
            "--test-package=quintet-engine",
            "--test-package=quintet-sim",
        ],
    },
    Room {
        name: "log",
        files: "crates/log/src/**/*.rs",
        options: &[],
    },
    Room {
        name: "host",
        files: "crates/host/src/**/*.rs",
        options: &[],
    },
];

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `count` of them, by the seed.
fn sample(mut names: Vec<String>, count: usize, seed: u64) -> Vec<String> {
    let mut state = seed;
    let mut chosen = Vec::new();
    while !names.is_empty() && chosen.len() < count {
        let at = next(&mut state) % names.len() as u64;
        chosen.push(names.swap_remove(usize::try_from(at).unwrap_or(0)));
    }
    chosen
}

/// The names as a pattern that matches these alone.
fn pattern(names: &[String]) -> String {
    let escaped = names.iter().map(|name| {
        let mut text = String::new();
        for letter in name.chars() {
            if r".+*?()|[]{}^$\".contains(letter) {
                text.push('\\');
            }
            text.push(letter);
        }
        text
    });
    format!("^({})$", escaped.collect::<Vec<_>>().join("|"))
}

/// Minutes and seed.
///
/// # Errors
/// There is no such option, or its value is missing or no number.
fn wanted(arguments: &[String]) -> Result<Option<(u64, u64)>> {
    let time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (mut minutes, mut seed) = (60, time.as_secs() % 1_000_000);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let into = match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--minutes" => &mut minutes,
            "--seed" => &mut seed,
            other => bail!("no option \"{other}\"\n\n{HELP}"),
        };
        let value = arguments.next().and_then(|value| value.parse().ok());
        *into = value.with_context(|| format!("{argument} takes a number\n\n{HELP}"))?;
    }
    Ok(Some((minutes, seed)))
}

/// # Errors
/// A wrong option; cargo mutants is not there, or cannot list.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let Some((minutes, seed)) = wanted(arguments)? else {
        print!("{HELP}");
        return Ok(());
    };
    println!("xtask: mutants: seed {seed}, {minutes} minutes");
    let program = tool::installed(root, "cargo-mutants", VERSION)?;
    let mut rows = Vec::new();
    let mut counts = [0; 4];
    for (number, room) in ROOMS.iter().enumerate() {
        let time = Duration::from_secs(minutes * 60 / ROOMS.len() as u64);
        let out = target(root).join("mutants").join(number.to_string());
        let of = seed.wrapping_add(number as u64);
        let (ends, left) = one_room(root, &program, room, &out, time, of)?;
        println!(
            "xtask: mutants: {}: {left} of them were not tried",
            room.name
        );
        for (at, kind) in ["caught", "missed", "timeout", "unviable"]
            .iter()
            .enumerate()
        {
            let names = ends.iter().filter(|(end, _)| end == kind);
            for (_, name) in names {
                counts[at] += 1;
                if *kind == "missed" {
                    rows.push(format!("| `{name}` | |"));
                }
            }
        }
    }
    let [caught, missed, timeout, unviable] = counts;
    println!(
        "\n{caught} were noticed, {timeout} by going on for ever, {unviable} did not build, \
         {missed} were noticed by nobody:\n"
    );
    println!("| mutant | why |\n|---|---|\n{}", rows.join("\n"));
    Ok(())
}

/// How each ended, and how many were not come to.
fn one_room(
    root: &Path,
    program: &Path,
    room: &Room,
    out: &Path,
    time: Duration,
    seed: u64,
) -> Result<(Vec<(&'static str, String)>, usize)> {
    let listed = Command::new(program)
        .args(["mutants", "--workspace", "--list", "--file", room.files])
        .current_dir(root)
        .output()?;
    ensure!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let all: Vec<String> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    // They are tried in the order of their files: not many more than there is
    // time for, or only the first files would be tried.
    let most = usize::try_from(time.as_secs() / 30).unwrap_or(usize::MAX);
    let chosen = sample(all, most.clamp(1, 300), seed);
    std::fs::create_dir_all(out)?;
    // Its own folder of results is renamed and goes with the run before.
    let results = out.join("mutants.out");
    std::fs::remove_dir_all(&results).ok();
    let mut command = Command::new("timeout");
    command
        .args(["--signal=INT", "--kill-after=30"])
        .arg(time.as_secs().to_string())
        .arg(program)
        .args(["mutants", "--workspace", "--no-shuffle", "--baseline=skip"])
        .args(["--timeout=300", "--colors=never", "--file", room.files])
        .arg(format!("--re={}", pattern(&chosen)))
        .arg("--output")
        .arg(out)
        .args(room.options)
        // Built more often than run.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env(
            "CARGO_TARGET_DIR",
            target(root).join("mutants").join("build"),
        )
        .current_dir(root);
    let began = Instant::now();
    // Survivors and the end of the time are both told by its exit status.
    command.status().context("timeout (of coreutils)")?;
    println!(
        "xtask: mutants: {}: {} s",
        room.name,
        began.elapsed().as_secs()
    );
    let mut ends = Vec::new();
    for kind in ["caught", "missed", "timeout", "unviable"] {
        let text = std::fs::read_to_string(results.join(format!("{kind}.txt")));
        let text = text.unwrap_or_default();
        ends.extend(text.lines().map(|line| (kind, line.to_owned())));
    }
    let left = chosen.len().saturating_sub(ends.len());
    Ok((ends, left))
}

#[cfg(test)]
mod tests {
    use super::{pattern, sample, wanted};

    #[test]
    fn a_seed_chooses_the_same_again() {
        let names = || {
            (0..100)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        };
        let first = sample(names(), 10, 7);
        assert_eq!(first, sample(names(), 10, 7));
        assert_ne!(first, sample(names(), 10, 8));
        let mut all = sample(names(), 1000, 7);
        all.sort_by_key(|name| name.parse::<u32>().unwrap_or(0));
        assert_eq!(all, names());
    }

    #[test]
    fn a_pattern_matches_names_as_they_are() {
        let names = [
            "a.rs:1: replace x -> (u8, &'a str) with ()".to_owned(),
            "b".to_owned(),
        ];
        assert_eq!(
            pattern(&names),
            r"^(a\.rs:1: replace x -> \(u8, &'a str\) with \(\)|b)$"
        );
    }

    #[test]
    fn options_are_checked() {
        let said = |words: &[&str]| {
            wanted(
                &words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            said(&["--seed", "7", "--minutes", "2"]).unwrap(),
            Some((2, 7))
        );
        assert_eq!(said(&["-h"]).unwrap(), None);
        assert!(said(&["--seed"]).is_err() && said(&["--x"]).is_err());
    }
}
