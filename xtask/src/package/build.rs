//! The program as one static file, and its symbols.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{SOURCES, Source, output_of};
use crate::needs::has;
use crate::{cargo_command, run, target};

/// The name of other crates' folder in the program.
const CRATES: &str = "/usr/src/cargo";

const GLIBC: &str = "\
xtask: linked with glibc, statically. Names of other machines (relay, webhook, NATS
servers) are then resolved by libraries that glibc loads while it runs: it works where
the same version of glibc is installed, and else with addresses alone";

/// Builds the program into `out`; beside it, its symbols.
///
/// # Errors
/// It does not build, or binutils is missing.
pub(super) fn program(source: &Source, out: &Path, glibc: bool) -> Result<PathBuf> {
    let (triple, musl) = triple(glibc)?;
    let built = compile(source, &triple, musl)?;
    let program = out.join("quintet");
    let symbols = symbols(&program);
    let objcopy = |words: &[&str], from: &Path, to: &Path| {
        run(Command::new("objcopy")
            .args(words)
            .args([from, to])
            // The link to the symbols is by their name alone.
            .current_dir(out))
    };
    objcopy(&["--only-keep-debug"], &built, &symbols)?;
    objcopy(
        &["--strip-all", "--add-gnu-debuglink=quintet.debug"],
        &built,
        &program,
    )?;
    println!(
        "xtask: {}",
        output_of(Command::new("file").arg("-b").arg(&program))
            .unwrap_or_else(|_| "no program `file` to say what it is".to_owned())
    );
    Ok(program)
}

/// Where the symbols of a program are.
pub(super) fn symbols(program: &Path) -> PathBuf {
    program.with_extension("debug")
}

/// The target, and whether that is musl: it is, if its standard library and its C compiler are
/// there.
fn triple(glibc: bool) -> Result<(String, bool)> {
    let arch = std::env::consts::ARCH;
    let musl = format!("{arch}-unknown-linux-musl");
    let sysroot = output_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(&sysroot).join("lib/rustlib").join(&musl);
    let there = library.exists() && has("musl-gcc");
    if there && !glibc {
        return Ok((musl, true));
    }
    if !glibc {
        println!("xtask: musl is not there: rustup target add {musl}, apt-get install musl-tools");
    }
    println!("{GLIBC}");
    Ok((format!("{arch}-unknown-linux-gnu"), false))
}

/// Where the compiler has a linker that keeps one of functions with the same code, which is a
/// tenth of them: nothing here compares the addresses of two. `None`: with other compilers.
fn folding_linker() -> Result<Option<PathBuf>> {
    let sysroot = output_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let output = output_of(Command::new("rustc").arg("-vV"))?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    let folder = Path::new(&sysroot)
        .join("lib/rustlib")
        .join(host.context("rustc names no host")?)
        .join("bin/gcc-ld");
    Ok(folder.join("ld.lld").exists().then_some(folder))
}

fn compile(source: &Source, triple: &str, musl: bool) -> Result<PathBuf> {
    let home = cargo_home()?;
    let folders = [
        (home.as_path(), CRATES),
        // Later ones win: a target directory may be inside.
        (source.root.as_path(), SOURCES),
    ];
    let mut flags = vec![
        "-Clink-arg=-Wl,--build-id=sha1".to_owned(),
        // A bit for most of half a MiB of addresses. glibc reads these from 2.36 on, musl from
        // 1.2.4; the trial would see a program that cannot.
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
    ];
    if let Some(linker) = folding_linker()? {
        flags.push(format!("-Clink-arg=-B{}", linker.display()));
        flags.push("-Clink-arg=-fuse-ld=lld".to_owned());
        flags.push("-Clink-arg=-Wl,--icf=all".to_owned());
    }
    let mut c_flags = Vec::new();
    for (folder, name) in folders {
        flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
        c_flags.push(format!("-ffile-prefix-map={}={name}", folder.display()));
    }
    if !musl {
        flags.push("-Ctarget-feature=+crt-static".to_owned());
    }
    run(cargo_command()
        .args(["build", "--profile", "published", "--locked"])
        .args(["--package", "quintet"])
        .args(["--target", triple])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env(
            format!("CFLAGS_{}", triple.replace('-', "_")),
            c_flags.join(" "),
        )
        .env("SOURCE_DATE_EPOCH", &source.time)
        .current_dir(&source.root))?;
    let built = target(&source.root).join(triple).join("published/quintet");
    fs::canonicalize(&built).with_context(|| format!("cannot find {}", built.display()))
}

/// Where the sources of other people's crates are.
fn cargo_home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => Ok(home.into()),
        None => {
            let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
            Ok(Path::new(&home).join(".cargo"))
        }
    }
}
