//! Project tasks: `cargo xtask test` runs everything CI runs.

mod book;
mod circles;
mod clients;
mod cluster;
mod compare;
mod context;
mod deny;
mod documented;
mod mutants;
mod needs;
mod package;
mod pages;
mod parts;
mod plant;
mod programs;
mod prose;
mod real;
mod repeat;
mod show;
mod table;
mod tidy;
mod timings;
mod tool;
mod torment;
mod unit;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

const HELP: &str = "\
Usage: cargo xtask <task>

Tasks:
  test      Run all tests, as CI does. A part that fails stops no other; the end says
            how to repeat the parts that failed, and names the slowest tests. It asks
            before it installs packages of the system; --yes, or CI in the
            environment, installs them without a question. Where something stays
            missing, the tests that need it are left out, and the end names them.
              cargo xtask test --list           the parts, their times, missing programs
              cargo xtask test unit torment     some parts
              cargo xtask test --timings FILE   writes all times as JSON
              cargo xtask test --seed N         random choices of another run
              cargo xtask test --long           more seeds and faults, planted defects,
                                                mutants: some hours, as every night
  lint      Of these: format check, house rules, clippy (both also of clients/rust),
            crates of others
  clients   Of these: real client libraries against the real binary
  tidy, unit, ...  Each part is a task of its own too
  tidy --lower  Lowers the numbers of xtask/prose.txt to those of the comments and pages
  repeat    Tests that wait or race, 200 times on a busy machine;
            takes options: cargo xtask repeat --help
  plant     Defects planted one by one: do the tests notice? Says so in a table;
            takes options: cargo xtask plant --help
  mutants   Changes by chance to functions of the engine, the log and the host of
            the queues: do the tests notice? takes options: cargo xtask mutants --help
  sbom      The crates in the binary as CycloneDX: target/quintet.cdx.json; builds
            cargo-cyclonedx first, for some minutes, below the target directory
  book      The site of docs/, in target/book; fails on links that lead nowhere
  package   What is published: static program, Debian package, sums; options:
            cargo xtask package --help
  torment   The real binary under load, faults, kills and hostile clients, and a
            check of what it acknowledged: cargo xtask torment --help
  cluster   The same of three nodes over three NATS servers: cargo xtask cluster --help;
            without an option the part of that name
  bench     A short comparison with memcached and Redis, printed alone
  compare   The whole comparison, written to bench/results and docs/performance.md;
            takes options: cargo xtask compare --help
  backlog   Backlogs far larger than memory, written to bench/results;
            takes options: cargo xtask backlog --help
  bench-cluster
            A cluster beside bare JetStream, written to bench/results;
            takes options: cargo xtask bench-cluster --help
  help      This text
";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let result = match task.as_str() {
        "test" | "ci" => {
            let words: Vec<&str> = words(&arguments).collect();
            parts::run(&root(), &words)
        }
        "lint" => parts::run(&root(), &table::LINT),
        "clients" => {
            let words: Vec<&str> = table::CLIENTS
                .into_iter()
                .chain(words(&arguments))
                .collect();
            parts::run(&root(), &words)
        }
        "tidy" if arguments == ["--lower"] => {
            tidy::files(&root()).and_then(|files| prose::lower(&root(), &files))
        }
        "package" => package::run_task(&root(), &arguments),
        "sbom" => package::sbom(&root()),
        "plant" => plant::run(&root(), &arguments),
        "mutants" => mutants::run(&root(), &arguments),
        "repeat" => repeat::run(&root(), &arguments),
        "torment" => torment::run(&root(), &arguments),
        // Without an option it is the part of the tests.
        "cluster" if !arguments.is_empty() => torment::run_cluster(&root(), &arguments),
        "bench" => compare::short(&root()),
        "compare" => compare::run(&root(), &arguments),
        "bench-cluster" => compare::cluster(&root(), &arguments),
        "backlog" => compare::backlog(&root(), &arguments),
        "" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        name if table::PARTS.iter().any(|part| part.name == name) => {
            let words: Vec<&str> = std::iter::once(name).chain(words(&arguments)).collect();
            parts::run(&root(), &words)
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

/// True if `arguments` ask for help alone.
fn helps(arguments: &[impl AsRef<str>]) -> bool {
    let asks = |argument: &str| ["-h", "--help"].contains(&argument);
    arguments.iter().any(|argument| asks(argument.as_ref()))
}

fn words(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
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

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn cargo(args: &[&str]) -> Result<()> {
    run(cargo_command().args(args).current_dir(root()))
}

/// Cargo as it is when typed: what `cargo xtask` is told about the package
/// xtask would make build scripts that look at it run again, and all that
/// depends on them build again, each time.
fn cargo_command() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
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
    let (status, said) = show::shown(command, &mut |_| true).with_context(context)?;
    match said.is_empty() {
        _ if status.success() => Ok(()),
        true => bail!("failed ({status}): {line}"),
        false => bail!("failed ({status}): {line}\nIt said:\n{said}"),
    }
}
