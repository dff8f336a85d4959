//! Real client libraries, from their own registries, in folders of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::{cargo, run};

/// Debian packages the tests need, each with a program that shows it is there.
const DEBIAN: &[(&str, &str)] = &[
    ("libmemcached-tools", "memccat"),
    ("memcached", "memcached"),
    ("ruby", "ruby"),
];

/// A shell finds this program.
fn has(program: &str) -> bool {
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

/// Installs what the client tests need: Debian packages where this may, Python
/// and Node packages in private folders under `.tests`.
///
/// # Errors
/// If something is missing and cannot be installed; says what.
pub(crate) fn install(root: &Path) -> Result<()> {
    install_debian(DEBIAN)?;
    for program in ["python3", "node", "npm"] {
        if !has(program) {
            bail!("the client tests need {program}: please install it");
        }
    }
    let python = venv(root).join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv(root)))?;
    }
    run(Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
        ])
        .arg(root.join("clients/python/requirements.txt")))?;
    run(Command::new("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
        ])
        .current_dir(root.join("clients/node")))
}

/// Builds the binary and runs every client's tests against it.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run_all(root: &Path) -> Result<()> {
    cargo(&["build", "--package", "quintet"])?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let binary = target.join("debug/quintet");
    run(Command::new(venv(root).join("bin/python"))
        .args(["-m", "pytest", "-q", "clients/python"])
        .env("QUINTET", &binary)
        .current_dir(root))?;
    run(Command::new("node")
        .args(["--test", "."])
        .env("QUINTET", &binary)
        .current_dir(root.join("clients/node")))
}
