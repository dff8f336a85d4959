//! `cargo xtask deny`: licences, duplicates and sources of the crates of
//! others, by `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{cargo_command, run, target};

/// Of cargo-deny. Another one may find other things.
const VERSION: &str = "0.20.2";

/// Installs cargo-deny below the target directory, unless it is there, and runs
/// it.
///
/// # Errors
/// It cannot be built, or `deny.toml` is not kept.
pub(crate) fn check(root: &Path) -> Result<()> {
    let tools = target(root).join("tools");
    let program = tools.join("bin/cargo-deny");
    if !is_there(&program) {
        run(cargo_command()
            .args(["install", "cargo-deny", "--locked", "--version", VERSION])
            .arg("--root")
            .arg(&tools)
            .arg("--target-dir")
            .arg(tools.join("build"))
            // Built once and run for a second.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"))?;
    }
    run(Command::new(program)
        .args(["check", "licenses", "bans", "sources"])
        .current_dir(root))
}

fn is_there(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION))
}
