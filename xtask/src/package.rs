//! `cargo xtask package`: what strangers install, from one commit, always the
//! same bytes.

mod build;
mod deb;
mod sbom;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::run;

pub(crate) use trial::run as try_out;

pub(crate) const HELP: &str = "\
Writes into target/package: the program as one static file without symbols, its symbols, a Debian
package, the list of its crates as CycloneDX (the first run builds cargo-cyclonedx), and the sums of
all. Two builds of one commit are the same, byte for byte, wherever they are made with the same
compilers.";

/// The program without its symbols is no larger than this, bytes.
const PROGRAM_MAX: u64 = 15 << 20;

/// The name of the source's folder in all that is published, wherever it was built.
const SOURCES: &str = "/usr/src/quintet";

/// The options.
#[derive(clap::Args)]
pub(crate) struct PackageArgs {
    /// Link glibc instead of musl, also where musl is to be had
    #[arg(long)]
    glibc: bool,
    /// The address of the source archive: writes that and Homebrew's formula
    #[arg(long)]
    url: Option<String>,
}

/// A commit, as packages name it.
pub(crate) struct Source {
    root: PathBuf,
    /// The workspace's version.
    version: String,
    /// When it was committed, seconds since 1970: the time of all files in packages.
    time: String,
}

impl Source {
    /// The commit that is checked out.
    ///
    /// # Errors
    /// This is no checkout, or Cargo.toml has no version.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let version = manifest
            .lines()
            .find_map(|line| line.strip_prefix("version = \""))
            .context("Cargo.toml names no version")?;
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(time) => time,
            Err(_) => output_of(
                Command::new("git")
                    .args(["log", "-1", "--format=%ct"])
                    .current_dir(root),
            )?,
        };
        Ok(Self {
            root: root.to_owned(),
            version: version.trim_end_matches('"').to_owned(),
            time,
        })
    }

    /// A file of `packaging`.
    fn template(&self, name: &str) -> Result<String> {
        let path = self.root.join("packaging").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// `cargo xtask sbom`: writes the list of crates into the target directory.
///
/// # Errors
/// As [`sbom::write`].
pub(crate) fn sbom(root: &Path) -> Result<()> {
    sbom::write(&Source::new(root)?, &crate::target(root)).map(drop)
}

/// The output of a command, without the line end.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Builds all.
///
/// # Errors
/// Something is missing, does not build, or the program is too large.
pub(crate) fn run_task(root: &Path, args: &PackageArgs) -> Result<()> {
    let source = Source::new(root)?;
    let out = crate::target(root).join("package");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let program = build::program(&source, &out, args.glibc)?;
    let deb = deb::build(&source, &program, 6, &out)?;
    let crates = sbom::write(&source, &out)?;
    let mut files = vec![program.clone(), build::symbols(&program), deb, crates];
    if let Some(url) = &args.url {
        files.extend(formula(&source, url, &out)?);
    }
    let names = files.iter().filter_map(|file| file.file_name());
    let sums = output_of(Command::new("sha256sum").args(names).current_dir(&out))?;
    fs::write(out.join("SHA256SUMS"), format!("{sums}\n"))?;
    for file in &files {
        println!(
            "xtask: {:9} bytes {}",
            fs::metadata(file)?.len(),
            file.display()
        );
    }
    let bytes = fs::metadata(&program)?.len();
    ensure!(
        bytes <= PROGRAM_MAX,
        "the program has {bytes} bytes, over {PROGRAM_MAX}"
    );
    Ok(())
}

/// The source archive of the commit, and the formula that names it.
fn formula(source: &Source, url: &str, out: &Path) -> Result<[PathBuf; 2]> {
    let folder = format!("quintet-{}", source.version);
    let archive = out.join(format!("{folder}.tar.gz"));
    run(Command::new("git")
        .args([
            "-c",
            "tar.tar.gz.command=gzip -9n",
            "archive",
            "--format=tar.gz",
        ])
        .arg(format!("--prefix={folder}/"))
        .arg("--output")
        .arg(&archive)
        .arg("HEAD")
        .current_dir(&source.root))?;
    let sum = output_of(Command::new("sha256sum").arg(&archive))?;
    let sum = sum.split(' ').next().unwrap_or_default();
    let text = source
        .template("homebrew/quintet.rb")?
        .lines()
        .skip_while(|line| line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .replace("@URL@", url)
        .replace("@UPSTREAM@", &source.version)
        .replace("@SHA256@", sum);
    let path = out.join("quintet.rb");
    fs::write(&path, text)?;
    Ok([archive, path])
}
