//! What is tested over real NATS servers: tests and a campaign, side by side.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::{cargo, cargo_command, cluster, torment};

/// The tests of real servers.
const TESTS: [&str; 4] = ["test", "--workspace", "--test", "real"];

/// Runs the tests that need real servers, and the `campaign` as these options say, side by side:
/// both mostly wait.
///
/// # Errors
/// The servers cannot be had, it does not build; tests fail, or the campaign.
pub(crate) fn run(root: &Path, campaign: &[String]) -> Result<()> {
    let now = cluster::program(root)?;
    cluster::next_program(root)?;
    // Each builds with all cores.
    cargo(&[&TESTS[..], &["--no-run"]].concat())?;
    torment::build(false)?;
    let (tests, campaign) = std::thread::scope(|scope| {
        let tests = scope.spawn(|| run_tests(root, &now));
        let campaign = torment::run_cluster(root, campaign);
        let tests = tests.join();
        (
            tests.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            campaign,
        )
    });
    both(tests, campaign)
}

/// What came of the one and of the other.
fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Err(one), Err(other)) => Err(anyhow!("{one:#}; {other:#}")),
        (one, other) => one.and(other),
    }
}

/// Runs the tests; what they print is shown when they are done, as the campaign prints meanwhile.
fn run_tests(root: &Path, program: &Path) -> Result<()> {
    let began = Instant::now();
    let mut command = cargo_command();
    // Each test has three servers, which sync each entry: more at a time would
    // wait for each other's elections.
    command
        .args(TESTS)
        .args(["--no-fail-fast", "--", "--ignored", "--test-threads", "2"])
        .env("QUINTET_NATS_SERVER", program)
        .stdin(Stdio::null())
        .current_dir(root);
    let output = command.output().context("cannot start cargo")?;
    let said = [output.stdout, output.stderr].concat();
    let seconds = began.elapsed().as_secs();
    println!(
        "{}xtask: the tests over real servers took {seconds} s",
        String::from_utf8_lossy(&said)
    );
    ensure!(
        output.status.success(),
        "tests over real servers failed ({})",
        output.status
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::both;

    #[test]
    fn what_failed_beside_something_else_is_told() {
        let fails = |what: &'static str| Err(anyhow!(what));
        assert!(both(Ok(()), Ok(())).is_ok());
        for (one, other, told) in [
            (fails("one"), Ok(()), "one"),
            (Ok(()), fails("other"), "other"),
            (fails("one"), fails("other"), "one; other"),
        ] {
            let error = both(one, other).expect_err("one failed").to_string();
            assert_eq!(error, told);
        }
    }
}
