//! The campaign against the real binary: `crates/torment`, built and run.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo;
use crate::programs::built;

const HELP: &str = "\
Usage: cargo xtask torment [--minutes N] [--seed S] [--at-least N]
                           [--early [--kills N] [--puts N]] [--release]

The real binary with all voices under random load, kill -9, power cuts, failing
calls, clock steps and hostile clients; what it acknowledged is compared with
what is there. Ends with a table; a violation is told with the message's
history, and the data directory is kept.

  --minutes N   How long [5]
  --seed S      The order of settings, faults and requests; without it one is
                chosen and printed
  --at-least N  Fail unless each voice and each kind of fault came so often [0];
                a slow machine may take three times as long for that
  --early       End as soon as --at-least, --kills and --puts are reached
  --kills N     With --early: so many kills and power cuts [0]
  --puts N      With --early: so many acknowledged messages [0]
  --release     The optimised binary, as for an hour of it
";

const CLUSTER_HELP: &str = "\
Usage: cargo xtask cluster [--minutes N] [--seed S] [--at-least N] [--early]
                           [--only KIND] [--release]

Three nodes over three NATS servers on this machine, clients of every voice at any
of them; owners, standbys, leaders and their servers are killed, stopped and cut
off by chance, a server's store is damaged, and what was acknowledged is compared
with what is there. As root each server's store is a file system of its own, whose
power is cut. Ends with a table, and for how long nobody could put; a violation is
told with the message's history, and the directory is kept. QUINTET_NATS_SERVER is the server's
program, QUINTET_NATS_SERVER_NEXT the one of another version that servers are
replaced by; without them they are got as for the tests. Without an option this is
also the part of `cargo xtask test` of that name, which runs the tests over real
servers beside it.

  --minutes N   How long [5]
  --seed S      The order of faults and requests; without it one is chosen and
                printed
  --at-least N  Fail unless each voice and each kind of fault came so often [0];
                a slow machine may take three times as long for that
  --early       End as soon as --at-least is reached
  --plain       No damaged stores and no power cuts of servers: these take long, and
                cargo xtask test has them with --long
  --only KIND   Only faults whose name, as the table has it, contains this:
                --only 'leader cut off'
  --release     The optimised binary
";

/// How it is run.
#[derive(PartialEq, Eq, Debug, Default)]
struct Wanted {
    release: bool,
    /// For the campaign itself.
    arguments: Vec<String>,
}

/// None if help is wanted.
///
/// # Errors
/// There is no such option, or its value is missing or no number.
fn wanted(arguments: &[String], help: &str) -> Result<Option<Wanted>> {
    let mut wanted = Wanted::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--release" => wanted.release = true,
            "--plain" if help == CLUSTER_HELP => wanted.arguments.push(argument.clone()),
            "--early" => wanted.arguments.push(argument.clone()),
            "--minutes" | "--seed" | "--at-least" | "--kills" | "--puts" => {
                let value = arguments.next();
                let Some(value) = value.filter(|value| value.parse::<u64>().is_ok()) else {
                    bail!("{argument} takes a number\n\n{help}");
                };
                wanted.arguments.extend([argument.clone(), value.clone()]);
            }
            "--only" if help == CLUSTER_HELP => {
                let Some(kind) = arguments.next() else {
                    bail!("--only takes a kind of fault\n\n{help}");
                };
                wanted.arguments.extend([argument.clone(), kind.clone()]);
            }
            other => bail!("no option \"{other}\"\n\n{help}"),
        }
    }
    Ok(Some(wanted))
}

/// Builds the server and the campaign and runs it as `arguments` say.
///
/// # Errors
/// A wrong option; it does not build; a promise was broken, or something came
/// too seldom.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let Some(wanted) = wanted(arguments, HELP)? else {
        print!("{HELP}");
        return Ok(());
    };
    campaign(root, &wanted, "cargo xtask torment", &[])
}

/// The same over a cluster.
///
/// # Errors
/// As those of [`run`]; the NATS server cannot be had.
pub(crate) fn run_cluster(root: &Path, arguments: &[String]) -> Result<()> {
    let Some(wanted) = wanted(arguments, CLUSTER_HELP)? else {
        print!("{CLUSTER_HELP}");
        return Ok(());
    };
    let nats = crate::cluster::program(root)?;
    let next = crate::cluster::next_program(root)?;
    let mut more = vec![
        "--cluster".into(),
        "--nats-server".into(),
        nats.into(),
        "--nats-server-next".into(),
        next.into(),
    ];
    let plain = wanted.arguments.iter().any(|word| word == "--plain");
    match crate::cluster::no_power() {
        _ if plain => println!("left out: damaged stores and power cuts, which --long has"),
        Some(why) => println!("left out: power cuts of servers: {why}"),
        None => more.push("--power".into()),
    }
    campaign(root, &wanted, "cargo xtask cluster", &more)
}

/// Builds what a campaign runs.
///
/// # Errors
/// It does not build.
fn build(root: &Path, release: bool) -> Result<()> {
    match release {
        // The whole workspace, so that its crates have the same features as in the tests.
        true => cargo(&["build", "--workspace", "--bins", "--release"]),
        false => built(root).map(drop),
    }
}

fn campaign(root: &Path, wanted: &Wanted, command: &str, more: &[OsString]) -> Result<()> {
    build(root, wanted.release)?;
    let mut again = command.to_owned();
    if wanted.release {
        again.push_str(" --release");
    }
    let target = crate::target(root);
    let built = target.join(if wanted.release { "release" } else { "debug" });
    let program = built.join("quintet-torment");
    // Mounts go with the last process that sees them, however that ends.
    let mut command = match more.iter().any(|word| word == "--power") {
        true => Command::new("unshare"),
        false => Command::new(&program),
    };
    if command.get_program() != program {
        command.arg("--mount").arg(&program);
    }
    crate::run(
        command
            .arg("--quintet")
            .arg(built.join("quintet"))
            .arg("--scratch")
            .arg(target.join("torment"))
            .args(["--command", &again])
            .args(more)
            .args(&wanted.arguments)
            .current_dir(root),
    )
}

#[cfg(test)]
mod tests {
    use super::{CLUSTER_HELP, HELP, Wanted, wanted};

    fn said_of(help: &str, words: &[&str]) -> anyhow::Result<Option<Wanted>> {
        let words = words.iter().map(|word| (*word).to_owned());
        wanted(&words.collect::<Vec<_>>(), help)
    }

    fn said(words: &[&str]) -> anyhow::Result<Option<Wanted>> {
        said_of(HELP, words)
    }

    #[test]
    fn options_are_checked_and_passed_on() {
        let all = said(&["--seed", "7", "--release", "--minutes", "60", "--early"]);
        let all = all.expect("options").expect("no help");
        assert!(all.release);
        assert_eq!(all.arguments, ["--seed", "7", "--minutes", "60", "--early"]);
        assert_eq!(said(&["--help"]).expect("help"), None);
        for wrong in [&["--seed"][..], &["--minutes", "x"], &["--hours", "1"]] {
            let error = said(wrong).expect_err("wrong").to_string();
            assert!(error.contains("Usage"), "{error}");
        }
        let one_kind = ["--only", "leader cut off"];
        let of_cluster = said_of(CLUSTER_HELP, &one_kind).expect("options");
        assert_eq!(of_cluster.expect("no help").arguments, one_kind);
        assert!(said_of(CLUSTER_HELP, &one_kind[..1]).is_err());
        assert!(said(&one_kind).is_err(), "a single server has other faults");
    }
}
