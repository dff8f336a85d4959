//! The tests and the campaign over real NATS servers, side by side.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow, ensure};

use crate::context::Run;
use crate::programs::built;
use crate::show::in_threads;
use crate::unit::{REAL, run_one};
use crate::{cluster, stress};

/// Tests of nodes at a time, and of the log alone beside them. Each has three servers, which sync
/// each entry: more would wait for each other's elections.
const NODES: usize = 2;
const LOG: usize = 1;
/// The tests that need the program of an older build.
const UPGRADE: &str = "upgrade::";

/// Runs the tests that need real servers, a power cut, and a campaign with each of these options,
/// side by side: all mostly wait.
///
/// # Errors
/// The servers cannot be had, the build fails; tests fail, or a campaign.
pub(crate) fn run(run: &Run, campaigns: &[Vec<String>]) -> Result<()> {
    let now = cluster::program(&run.root)?;
    cluster::next_program(&run.root)?;
    let old = cluster::old_program(&run.root, run.long)?;
    built(&run.root)?;
    std::thread::scope(|scope| {
        let named = || std::thread::Builder::new().name("real".to_owned());
        let tests = named().spawn_scoped(scope, || tests(run, &now, old));
        let power = named().spawn_scoped(scope, || cut_power(run, &now));
        let campaigns = campaigns
            .iter()
            .map(|words| named().spawn_scoped(scope, || stress::run_cluster(&run.root, words)));
        let threads: Vec<_> = [tests, power].into_iter().chain(campaigns).collect();
        let ends = threads.into_iter().map(|thread| {
            let ended = thread.expect("a thread starts").join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.fold(Ok(()), both)
    })
}

/// Cuts the power under a server that has just purged.
fn cut_power(run: &Run, server: &Path) -> Result<()> {
    if let Some(why) = cluster::no_power() {
        run.note_left_out(format!("cluster: power cuts of servers: {why}"));
        return Ok(());
    }
    let script = run.root.join("crates/jetstream/tests/power/cut.py");
    crate::run(
        Command::new("unshare")
            .args(["--mount", "python3"])
            .args([&script, server]),
    )
}

/// The errors of the one and of the other.
fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Err(one), Err(other)) => Err(anyhow!("{one:#}; {other:#}")),
        (one, other) => one.and(other),
    }
}

/// Runs the programs side by side. Without an `old` program no nodes are upgraded.
fn tests(run: &Run, server: &Path, old: Option<PathBuf>) -> Result<()> {
    let mut environment: Vec<(&str, OsString)> = vec![("QUINTET_NATS_SERVER", server.into())];
    let mut skipped = vec![UPGRADE];
    match old {
        Some(old) => {
            environment.push(("QUINTET_OLD", old.into()));
            skipped.clear();
        }
        None => {
            let why = "set QUINTET_OLD to the program of an older build";
            run.note_left_out(format!("cluster: an upgrade of nodes: {why}"));
        }
    }
    let programs = built(&run.root)?;
    let (skipped, environment) = (&skipped, &environment);
    let real = programs.iter().filter(|program| program.name == REAL);
    let real = real.map(|program| {
        let threads = match program.package.as_str() {
            "quintet" => NODES,
            _ => LOG,
        };
        move || run_one(run, program, threads, skipped, environment)
    });
    let ends = in_threads("real", real).into_iter();
    let failed = ends.collect::<Result<Vec<_>>>()?.concat();
    ensure!(
        failed.is_empty(),
        "tests over real servers failed:\n{}",
        failed.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::both;

    #[test]
    fn both_of_two_errors_are_reported() {
        let fails = |what: &'static str| Err(anyhow!(what));
        assert!(both(Ok(()), Ok(())).is_ok());
        for (one, other, expected) in [
            (fails("one"), Ok(()), "one"),
            (Ok(()), fails("other"), "other"),
            (fails("one"), fails("other"), "one; other"),
        ] {
            let error = both(one, other).expect_err("one failed").to_string();
            assert_eq!(error, expected);
        }
    }
}
