//! Real client libraries, from their own registries, in folders of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{cargo, run};

fn venv(root: &Path) -> PathBuf {
    root.join(".tests/venv")
}

/// Installs Python's packages that the file `wanted` lists in a private folder
/// under `.tests`; answers the folder of their programs.
///
/// # Errors
/// If one cannot be had.
pub(crate) fn pip(root: &Path, wanted: &Path, options: &[&str]) -> Result<PathBuf> {
    pip_into(&venv(root), wanted, options)
}

/// [`pip`] into this folder.
fn pip_into(venv: &Path, wanted: &Path, options: &[&str]) -> Result<PathBuf> {
    let programs = venv.join("bin");
    let python = programs.join("python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(options)
        .arg("-r")
        .arg(wanted))?;
    Ok(programs)
}

/// Builds the binary that is tested.
///
/// # Errors
/// It does not build.
fn binary(root: &Path) -> Result<PathBuf> {
    cargo(&["build", "--package", "quintet"])?;
    Ok(crate::target(root).join("debug/quintet"))
}

/// Installs Python's packages in a private folder under `.tests` and runs their
/// tests against the real binary.
///
/// # Errors
/// A package cannot be had, or a build or a test fails.
pub(crate) fn python(root: &Path) -> Result<()> {
    let python = pip(root, &root.join("clients/python/requirements.txt"), &[])?.join("python");
    // An older boto3, which others of the packages would not have beside them.
    let older = pip_into(
        &root.join(".tests/venv-query"),
        &root.join("clients/python/requirements-query.txt"),
        &[],
    )?;
    // AWS's command line, which wants a botocore of its own.
    let aws = pip_into(
        &root.join(".tests/venv-aws"),
        &root.join("clients/python/requirements-aws.txt"),
        &[],
    )?;
    let binary = binary(root)?;
    run(Command::new(&python)
        // What passed leaves no data directory behind: they are 200 MB each.
        .args([
            "-m",
            "pytest",
            "-q",
            "-o",
            "tmp_path_retention_policy=failed",
        ])
        .arg("clients/python")
        .env("QUINTET_QUERY_PYTHON", older.join("python"))
        .env("QUINTET_AWS", aws.join("aws"))
        .env("QUINTET", &binary)
        .current_dir(root))
}

/// Installs Node's packages in a private folder and runs their tests against
/// the real binary.
///
/// # Errors
/// As [`python`].
pub(crate) fn node(root: &Path) -> Result<()> {
    let how = ["install", "--no-package-lock"];
    node_tests(root, &root.join("clients/node"), &how)
}

/// Runs the tests of crates that are clients against the real binary. They are a
/// workspace of their own, so that nothing of them is built with the server.
///
/// # Errors
/// As [`python`].
pub(crate) fn rust(root: &Path) -> Result<()> {
    let binary = binary(root)?;
    run(in_rust(root, &["test", "--quiet", "--locked"]).env("QUINTET", &binary))
}

/// Builds those tests, and has clippy look at them.
///
/// # Errors
/// They do not build, or clippy finds something.
pub(crate) fn rust_clippy(root: &Path) -> Result<()> {
    run(&mut in_rust(
        root,
        &["test", "--quiet", "--locked", "--no-run"],
    ))
}

/// Looks at how they are formatted.
///
/// # Errors
/// Otherwise than rustfmt does it.
pub(crate) fn rust_format(root: &Path) -> Result<()> {
    run(&mut in_rust(root, &["fmt", "--check"]))
}

/// Cargo in the workspace of those tests. Clippy stands in for the compiler of what is their own,
/// so that what is built for it is what is run: `cargo clippy` would build the crates they take
/// once more. That its warnings are errors says their Cargo.toml.
fn in_rust(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(args)
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CARGO_TARGET_DIR", crate::target(root).join("clients"))
        .current_dir(root.join("clients/rust"));
    command
}

/// Clicks through the console in Chromium; the packages are those of the lock
/// file.
///
/// # Errors
/// As [`python`].
pub(crate) fn browser(root: &Path) -> Result<()> {
    node_tests(root, &root.join("clients/browser"), &["ci"])
}

fn node_tests(root: &Path, folder: &Path, install: &[&str]) -> Result<()> {
    run(Command::new("npm")
        .args(install)
        .args(["--silent", "--no-audit", "--no-fund"])
        .current_dir(folder))?;
    let binary = binary(root)?;
    run(Command::new("node")
        .args(["--test", "."])
        .env("QUINTET", &binary)
        .current_dir(folder))
}
