//! Real client libraries, from their own registries, in folders of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::{cargo, run};

/// Debian packages the tests need, each with a program that shows it is there.
const DEBIAN: &[(&str, &str)] = &[
    ("libmemcached-tools", "memccat"),
    ("memcached", "memcached"),
    ("prometheus", "promtool"),
    ("ruby", "ruby"),
];

/// A shell finds this program.
pub(crate) fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn venv(root: &Path) -> PathBuf {
    root.join(".tests/venv")
}

/// Installs those of `packages` whose program is not there, where this may.
///
/// # Errors
/// If one is missing and cannot be installed; says which.
pub(crate) fn install_debian(packages: &[(&str, &str)]) -> Result<()> {
    let there = |program: &str| {
        let folders = ["/usr/bin", "/usr/sbin"];
        has(program)
            || folders
                .iter()
                .any(|folder| Path::new(folder).join(program).exists())
    };
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, program)| !there(program))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !has("apt-get") {
        bail!("please install: {}", missing.join(" "));
    }
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Servers are wanted as programs: at this level init starts none.
        .env("RUNLEVEL", "1"))
}

/// What a client's tests need of the machine, but for its own packages.
///
/// # Errors
/// If something is missing and cannot be installed; says what.
fn prepare(programs: &[&str]) -> Result<()> {
    install_debian(DEBIAN)?;
    for program in programs {
        if !has(program) {
            bail!("the client tests need {program}: please install it");
        }
    }
    Ok(())
}

/// Installs Python's packages that the file `wanted` lists in a private folder
/// under `.tests`; answers the folder of their programs.
///
/// # Errors
/// If one cannot be had.
pub(crate) fn pip(root: &Path, wanted: &Path, options: &[&str]) -> Result<PathBuf> {
    let programs = venv(root).join("bin");
    let python = programs.join("python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv(root)))?;
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
/// If something is missing and cannot be installed, or a build or a test fails.
pub(crate) fn python(root: &Path) -> Result<()> {
    prepare(&["python3"])?;
    let python = pip(root, &root.join("clients/python/requirements.txt"), &[])?.join("python");
    let binary = binary(root)?;
    run(Command::new(&python)
        .args(["-m", "pytest", "-q", "clients/python"])
        .env("QUINTET", &binary)
        .current_dir(root))
}

/// Installs Node's packages in a private folder and runs their tests against
/// the real binary.
///
/// # Errors
/// As [`python`].
pub(crate) fn node(root: &Path) -> Result<()> {
    prepare(&["node", "npm"])?;
    let folder = root.join("clients/node");
    run(Command::new("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
        ])
        .current_dir(&folder))?;
    let binary = binary(root)?;
    run(Command::new("node")
        .args(["--test", "."])
        .env("QUINTET", &binary)
        .current_dir(&folder))
}
