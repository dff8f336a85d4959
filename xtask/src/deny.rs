//! `cargo xtask deny`: licences, duplicates and sources of third-party crates, by `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{run, tool};

/// Of cargo-deny. Another one may find other things.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny.
///
/// # Errors
/// It cannot be built, or `deny.toml` is not kept.
pub(crate) fn check(root: &Path) -> Result<()> {
    let program = tool::installed(root, "cargo-deny", VERSION)?;
    run(Command::new(program)
        .args(["check", "licenses", "bans", "sources"])
        .current_dir(root))
}
