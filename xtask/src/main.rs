//! Project tasks: `cargo xtask test` runs everything CI runs.

mod clients;
mod compare;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "\
Usage: cargo xtask <task>

Tasks:
  test      Install what the tests need, then run them all: what CI runs
  lint      Format check, house rules, clippy
  unit      The workspace's own tests (cargo test)
  clients   Real client libraries against the real binary
  tidy      The house rules alone
  bench     A short comparison with memcached and Redis, printed alone
  compare   The whole comparison, written to bench/results and docs/performance.md;
            takes options: cargo xtask compare --help
  backlog   Backlogs far larger than memory, written to bench/results;
            takes options: cargo xtask backlog --help
  help      This text
";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let result = match task.as_str() {
        "test" | "ci" => test(),
        "lint" => lint(),
        "unit" => unit(),
        "clients" => clients::run_all(&root()),
        "tidy" => tidy::run(&root()),
        "bench" => compare::short(&root()),
        "compare" => compare::run(&root(), &arguments),
        "backlog" => compare::backlog(&root(), &arguments),
        "" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: no task \"{other}\"\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root folder: the one cargo runs this in, not the one it was
/// built in, as a target directory may have come from somewhere else.
fn root() -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in);
    Path::new(&package)
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

fn test() -> Result<()> {
    clients::install(&root())?;
    lint()?;
    unit()?;
    clients::run_all(&root())?;
    println!("xtask: everything passed");
    Ok(())
}

fn lint() -> Result<()> {
    tidy::run(&root())?;
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])
}

fn unit() -> Result<()> {
    cargo(&["test", "--workspace"])
}

fn cargo(args: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(args).current_dir(root()))
}

/// Runs a command to its end, showing what it is.
///
/// # Errors
/// If it cannot be started or does not end well.
fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}").replace('"', "");
    println!("xtask: {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start: {line}"))?;
    if !status.success() {
        bail!("failed ({status}): {line}");
    }
    Ok(())
}
