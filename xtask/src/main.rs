//! Project tasks: `cargo xtask test` runs everything CI runs.

mod book;
mod circles;
mod clients;
mod cluster;
mod compare;
mod context;
mod deny;
mod documented;
mod needs;
mod package;
mod pages;
mod parts;
mod passed;
mod plant;
mod programs;
mod prose;
mod real;
mod repeat;
mod show;
mod stress;
mod table;
mod tidy;
mod timings;
mod tool;
mod unit;
mod words;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, CommandFactory as _, Parser};

/// Project tasks. Each part of the tests is a task too: `cargo xtask unit`
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
enum Task {
    /// Run all tests, as CI does, or the parts that are named
    #[command(alias = "ci", after_help = parts::HELP)]
    Test(parts::PartsArgs),
    /// Format check, house rules, clippy (also of clients/rust), and third-party crates
    Lint,
    /// Real client libraries against the real binary
    Clients(parts::PartsArgs),
    /// House rules
    Tidy {
        /// Lower the numbers of xtask/prose.txt to those of the comments and pages
        #[arg(long)]
        lower: bool,
    },
    /// Run tests that wait or race again and again on a busy machine
    #[command(after_help = repeat::HELP)]
    Repeat(repeat::RepeatArgs),
    /// Plant defects one by one, and see whether the tests notice
    #[command(after_help = plant::HELP)]
    Plant(plant::PlantArgs),
    /// Write the crates in the binary as CycloneDX: target/quintet.cdx.json
    ///
    /// The first run builds cargo-cyclonedx, for some minutes, below the target directory.
    Sbom,
    /// Build what is published: static program, Debian package, sums
    #[command(after_help = package::HELP)]
    Package(package::PackageArgs),
    /// Run the real binary under load, faults, kills and hostile clients, and check its promises
    Stress(Passed),
    /// The same of three nodes over three NATS servers; without an option the part of that name
    Cluster(Passed),
    /// Compare with memcached and Redis, shortly, and print that
    Bench,
    /// Compare everything, into bench/results
    Compare(Passed),
    /// Measure backlogs far larger than memory, into bench/results
    Backlog(Passed),
    /// Measure a cluster beside bare JetStream, into bench/results
    BenchCluster(Passed),
    /// A part of the tests.
    #[command(external_subcommand)]
    Part(Vec<String>),
}

/// Options of a program that checks and explains them itself.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

fn main() -> ExitCode {
    let root = root();
    let result = match Task::parse() {
        Task::Test(requested) => parts::run(&root, &requested),
        Task::Lint => parts::run(&root, &parts::PartsArgs::of(&table::LINT)),
        Task::Clients(requested) => parts::run(&root, &requested.and(&table::CLIENTS)),
        Task::Tidy { lower: false } => parts::run(&root, &parts::PartsArgs::of(&["tidy"])),
        Task::Tidy { lower: true } => {
            tidy::files(&root).and_then(|files| prose::lower(&root, &files))
        }
        Task::Repeat(requested) => repeat::run(&root, &requested),
        Task::Plant(requested) => plant::run(&root, &requested),
        Task::Sbom => package::sbom(&root),
        Task::Package(requested) => package::run_task(&root, &requested),
        Task::Stress(passed) => stress::run(&root, &passed.options),
        Task::Cluster(passed) if passed.options.is_empty() => {
            parts::run(&root, &parts::PartsArgs::of(&["cluster"]))
        }
        Task::Cluster(passed) => stress::run_cluster(&root, &passed.options),
        Task::Bench => compare::short(&root),
        Task::Compare(passed) => compare::run(&root, &passed.options),
        Task::Backlog(passed) => compare::backlog(&root, &passed.options),
        Task::BenchCluster(passed) => compare::cluster(&root, &passed.options),
        Task::Part(words) if words == ["help"] => Task::command().print_help().map_err(Into::into),
        Task::Part(words) => parts::run(&root, &parts::PartsArgs::parse_from(part(words))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if `arguments` ask for help alone.
fn helps(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter();
    arguments.any(|argument| ["-h", "--help"].contains(&argument.as_str()))
}

/// The command line of a part, behind the name of the program.
fn part(words: Vec<String>) -> impl Iterator<Item = String> {
    std::iter::once("cargo xtask test".to_owned()).chain(words)
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

/// The files of the working copy, named from the root, also those that are not committed yet.
///
/// # Errors
/// This is no working copy of git.
fn files_of_git(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    let names = String::from_utf8_lossy(&listed.stdout);
    Ok(names.lines().map(str::to_owned).collect())
}

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn cargo(args: &[&str]) -> Result<()> {
    run(cargo_command().args(args).current_dir(root()))
}

/// Cargo as it is when typed: what `cargo xtask` knows of the package
/// xtask would make build scripts that look at it run again, and all that
/// depends on them build again, each time.
fn cargo_command() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    if let Some(build) = build_dir(&target(&root())) {
        command.env("CARGO_BUILD_BUILD_DIR", build);
    }
    command
}

/// The folder for build scripts' output if the target directory cannot have it: jemalloc's
/// `configure` refuses a path with a blank.
fn build_dir(target: &Path) -> Option<PathBuf> {
    let refused = |path: &Path| {
        let is = |byte: &u8| byte.is_ascii_whitespace() || b"\\\"#$&'`".contains(byte);
        path.as_os_str().as_encoded_bytes().iter().any(is)
    };
    if !refused(target) || std::env::var_os("CARGO_BUILD_BUILD_DIR").is_some() {
        return None;
    }
    // One for each working copy.
    let name = BuildHasherDefault::<DefaultHasher>::default().hash_one(target);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::home_dir().map(|home| home.join(".cache"));
    let temp = Some(std::env::temp_dir());
    let folders = [cache, home, temp].into_iter().flatten();
    let mut fit = folders.filter(|folder| folder.is_absolute() && !refused(folder));
    Some(fit.next()?.join(format!("quintet-build-{name:016x}")))
}

/// Runs a command to its end, showing what it is.
///
/// # Errors
/// If it cannot be started or does not end well.
fn run(command: &mut Command) -> Result<()> {
    let line = show::line_of(command);
    show::say(&format!("xtask: {line}"));
    let context = || format!("cannot start: {line}");
    // A person at a terminal sees its colours and its progress, unless parts run beside each other.
    if std::thread::current().name() == Some("main") && std::io::stdout().is_terminal() {
        let status = command.status().with_context(context)?;
        ensure!(status.success(), "failed ({status}): {line}");
        return Ok(());
    }
    let (status, output) = show::shown(command, &mut |_| true).with_context(context)?;
    match output.is_empty() {
        _ if status.success() => Ok(()),
        true => bail!("failed ({status}): {line}"),
        false => bail!("failed ({status}): {line}\nIt said:\n{output}"),
    }
}
