//! The Debian package. Made by dpkg-deb, which every Debian has, from a tree
//! that is laid out here: cargo-deb would be built first, for minutes, and
//! brings nothing for a program that depends on no library.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::{Source, output_of};
use crate::run;

/// Files as they are, from the root of the source or of `packaging`.
const COPIES: [(&str, &str); 5] = [
    ("packaging/quintet.toml", "etc/quintet/quintet.toml"),
    (
        "packaging/quintet.service",
        "usr/lib/systemd/system/quintet.service",
    ),
    (
        "packaging/debian/copyright",
        "usr/share/doc/quintet/copyright",
    ),
    ("LICENSE-APACHE", "usr/share/doc/quintet/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/quintet/LICENSE-MIT"),
];
/// Shells, and where each looks for completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/quintet"),
    ("zsh", "usr/share/zsh/vendor-completions/_quintet"),
    ("fish", "usr/share/fish/vendor_completions.d/quintet.fish"),
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package of a `program` into `out`, compressed at a `level` of xz,
/// 0 to 9.
///
/// # Errors
/// dpkg-deb is missing, the program does not run here, or a file cannot be written.
pub(super) fn build(source: &Source, program: &Path, level: u8, out: &Path) -> Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no Debian architecture is known for {other}"),
    };
    let tree = out.join("tree");
    lay_out(source, program, &tree)?;
    control(source, architecture, &tree)?;
    modes(&tree)?;
    let package = out.join(format!("quintet_{}-1_{architecture}.deb", source.version));
    run(Command::new("dpkg-deb")
        .args([
            "--root-owner-group",
            "-Zxz",
            &format!("-z{level}"),
            "--build",
        ])
        .args([&tree, &package])
        .env("SOURCE_DATE_EPOCH", &source.time))?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

fn lay_out(source: &Source, program: &Path, tree: &Path) -> Result<()> {
    let copy = |from: &Path, to: &str| -> Result<()> {
        let to = place(tree, to)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    };
    copy(program, "usr/bin/quintet")?;
    for (from, to) in COPIES {
        copy(&source.root.join(from), to)?;
    }
    for (shell, to) in SHELLS {
        let script = output_of(Command::new(program).args(["completions", shell]))?;
        fs::write(place(tree, to)?, script + "\n")?;
    }
    let changes = "usr/share/doc/quintet/changelog";
    copy(&source.root.join("CHANGELOG.md"), changes)?;
    let manual = tree.join("usr/share/man/man1");
    run(Command::new(program)
        .args(["man", "--dir"])
        .arg(&manual)
        .stdout(Stdio::null()))?;
    let mut pages: Vec<PathBuf> = vec![tree.join(changes)];
    for page in fs::read_dir(&manual)? {
        pages.push(page?.path());
    }
    pages.sort();
    // Without their names and times, which differ each time.
    run(Command::new("gzip").arg("-9n").args(&pages))
}

/// A path below `tree`, whose folder is there.
fn place(tree: &Path, path: &str) -> Result<PathBuf> {
    let path = tree.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(path)
}

/// Writes dpkg's files of a package.
fn control(source: &Source, architecture: &str, tree: &Path) -> Result<()> {
    let kib = size(tree)?.div_ceil(1024);
    let folder = tree.join("DEBIAN");
    fs::create_dir_all(&folder)?;
    let text = source
        .template("debian/control")?
        .replace("@VERSION@", &format!("{}-1", source.version))
        .replace("@ARCHITECTURE@", architecture)
        .replace("@SIZE@", &kib.to_string());
    fs::write(folder.join("control"), text)?;
    for name in SCRIPTS.iter().chain(&["conffiles"]) {
        fs::write(
            folder.join(name),
            source.template(&format!("debian/{name}"))?,
        )?;
    }
    Ok(())
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => size(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

/// Sets modes that do not depend on the user who builds.
fn modes(tree: &Path) -> Result<()> {
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(tree)? {
        let path = entry?.path();
        if path.is_dir() {
            modes(&path)?;
            continue;
        }
        let folder = tree.file_name().unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let runs = folder == "bin" || SCRIPTS.iter().any(|script| name == *script);
        let mode = if runs { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
