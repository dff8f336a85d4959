//! The campaign against the real binary: `crates/stress`, built and run.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::programs::built;
use crate::{cargo, helps};

/// Builds the server and the campaign, and runs it with these options.
///
/// # Errors
/// A wrong option; it does not build; a promise was broken, or a fault came too seldom.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if helps(arguments) {
        return help();
    }
    campaign(root, arguments, "cargo xtask stress", &[])
}

/// The same over a cluster.
///
/// # Errors
/// As those of [`run`]; the NATS server cannot be had.
pub(crate) fn run_cluster(root: &Path, arguments: &[String]) -> Result<()> {
    if helps(arguments) {
        return help();
    }
    let nats = crate::cluster::program(root)?;
    let next = crate::cluster::next_program(root)?;
    let mut more = vec![
        "--cluster".into(),
        "--nats-server".into(),
        nats.into(),
        "--nats-server-next".into(),
        next.into(),
    ];
    if !arguments.iter().any(|word| word == "--plain") {
        match crate::cluster::no_power() {
            Some(why) => println!("left out: power cuts of servers: {why}"),
            None => more.push("--power".into()),
        }
    }
    campaign(root, arguments, "cargo xtask cluster", &more)
}

/// The campaign explains its own options.
fn help() -> Result<()> {
    cargo(&["run", "--quiet", "-p", "quintet-stress", "--", "--help"])
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

fn campaign(root: &Path, arguments: &[String], command: &str, more: &[OsString]) -> Result<()> {
    let (optimised, arguments): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|word| *word == "--release");
    let (folder, again) = match optimised.is_empty() {
        true => ("debug", command.to_owned()),
        false => ("release", format!("{command} --release")),
    };
    build(root, !optimised.is_empty())?;
    let target = crate::target(root);
    let built = target.join(folder);
    let program = built.join("quintet-stress");
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
            .arg(target.join("stress"))
            .args(["--command", &again])
            .args(more)
            .args(arguments)
            .current_dir(root),
    )
}
