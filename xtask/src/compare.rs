//! What is measured: the programs it needs, built and installed.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cargo;
use crate::clients::install_debian;

/// Debian packages of the servers compared, each with its program.
const PEERS: &[(&str, &str)] = &[
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("beanstalkd", "beanstalkd"),
];

/// Whether `arguments` ask for help alone.
fn helps(arguments: &[&str]) -> bool {
    let mut arguments = arguments.iter();
    arguments.any(|argument| ["-h", "--help"].contains(argument))
}

/// Builds what is needed and measures `what` as `arguments` ask for.
///
/// # Errors
/// If something does not build, or a server or load fails.
fn measure(root: &Path, what: &str, arguments: &[&str]) -> Result<()> {
    if !helps(arguments) {
        cargo(&["build", "--release", "-p", "quintet"])?;
    }
    cargo(&["build", "--release", "-p", "quintet-bench"])?;
    let target = crate::target(root);
    let release = target.join("release");
    crate::run(
        Command::new(release.join("quintet-bench"))
            .arg(what)
            .arg("--quintet")
            .arg(release.join("quintet"))
            .arg("--scratch")
            .arg(target.join(what))
            .args(arguments)
            .current_dir(root),
    )
}

/// Compares as `arguments` ask for.
///
/// # Errors
/// If a peer cannot be installed; as [`measure`].
fn compare(root: &Path, arguments: &[&str]) -> Result<()> {
    if !helps(arguments) {
        install_debian(PEERS)?;
    }
    measure(root, "compare", arguments)
}

/// As the command line asks for.
///
/// # Errors
/// As [`compare`].
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    compare(root, &arguments)
}

/// What backlogs do, as the command line asks for.
///
/// # Errors
/// As [`measure`].
pub(crate) fn backlog(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    measure(root, "backlog", &arguments)
}

/// A first look, printed and not written.
///
/// # Errors
/// As [`compare`].
pub(crate) fn short(root: &Path) -> Result<()> {
    compare(root, &["--only", "small,pipelined", "--quick", "--print"])
}
