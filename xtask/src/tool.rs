//! Cargo's tools that some tasks use, in fixed versions, below the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{cargo_command, run, target};

/// Installs the crate `name` in this version, unless it is there, and answers its program.
///
/// # Errors
/// It cannot be built.
pub(crate) fn installed(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let tools = target(root).join("tools");
    let program = tools.join("bin").join(name);
    if !is_there(&program, version) {
        run(cargo_command()
            .args(["install", name, "--locked", "--version", version])
            .arg("--root")
            .arg(&tools)
            .arg("--target-dir")
            .arg(tools.join("build"))
            // Built once and run for a second.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"))?;
    }
    Ok(program)
}

fn is_there(program: &Path, version: &str) -> bool {
    // A subcommand of cargo is started with its own name, as cargo does it.
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_start_matches("cargo-").to_owned();
    let output = Command::new(program).args([&name, "--version"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}
