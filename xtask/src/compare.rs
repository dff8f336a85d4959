//! The comparison with other servers: what it needs, built and installed.

use std::path::{Path, PathBuf};
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

/// Compares as `arguments` ask for.
///
/// # Errors
/// If something is missing, does not build, or a server or load fails.
fn compare(root: &Path, arguments: &[&str]) -> Result<()> {
    let helps = arguments
        .iter()
        .any(|argument| ["-h", "--help"].contains(argument));
    if !helps {
        install_debian(PEERS)?;
        cargo(&["build", "--release", "-p", "quintet"])?;
    }
    cargo(&["build", "--release", "-p", "quintet-bench"])?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let release = target.join("release");
    crate::run(
        Command::new(release.join("quintet-bench"))
            .arg("compare")
            .arg("--quintet")
            .arg(release.join("quintet"))
            .arg("--scratch")
            .arg(target.join("compare"))
            .args(arguments)
            .current_dir(root),
    )
}

/// As the command line asks for.
///
/// # Errors
/// As [`compare`].
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    compare(root, &arguments)
}

/// A first look, printed and not written.
///
/// # Errors
/// As [`compare`].
pub(crate) fn short(root: &Path) -> Result<()> {
    compare(root, &["--only", "small,pipelined", "--quick", "--print"])
}
