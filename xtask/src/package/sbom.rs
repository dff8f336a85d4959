//! `cargo xtask sbom`: the third-party crates in the binary as CycloneDX, by cargo-cyclonedx.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{SOURCES, Source};
use crate::{plant, run, target, tool};

/// The version of cargo-cyclonedx.
const VERSION: &str = "0.5.9";
/// The name of the list, to which cargo-cyclonedx adds `.json`.
const NAME: &str = "quintet.cdx";

/// Writes the list into the folder `out`, and returns its path.
///
/// # Errors
/// cargo-cyclonedx cannot be built or fails, or a file cannot be written.
pub(super) fn write(source: &Source, out: &Path) -> Result<PathBuf> {
    let program = tool::installed(&source.root, "cargo-cyclonedx", VERSION)?;
    // It writes a file beside each manifest of the workspace, so it gets a copy.
    let tree = target(&source.root).join("sbom");
    plant::copy(&source.root, &tree)?;
    let server = tree.join("crates/server");
    run(Command::new(program)
        .args(["cyclonedx", "--quiet", "--no-build-deps"])
        .args(["--format", "json", "--spec-version", "1.5"])
        .args(["--override-filename", NAME, "--manifest-path"])
        .arg(server.join("Cargo.toml"))
        .env("SOURCE_DATE_EPOCH", &source.time)
        .current_dir(&tree))?;
    let file = format!("{NAME}.json");
    let text = fs::read_to_string(server.join(&file)).context(NAME)?;
    let path = out.join(file);
    // The same bytes wherever the list is made.
    let text = text.replace(&tree.display().to_string(), SOURCES);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("xtask: {}", path.display());
    Ok(path)
}
