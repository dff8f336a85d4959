//! The workspace's test programs: built once for all parts, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::context::Run;
use crate::show::{line_of, say, shown};

/// A program of tests.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) package: String,
    /// The name of its file or folder below `tests`, or `lib`.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// Cargo runs a test program in the folder of its package.
    pub(crate) folder: PathBuf,
}

/// How the one build ended: the test programs, and the number of warnings.
type Built = Result<(Vec<Program>, usize), String>;

/// Every part needs the build: the first one that asks starts it.
static BUILT: OnceLock<Built> = OnceLock::new();

/// Milliseconds of all builds of the workspace: [`clippy`] makes some before and behind the one.
static BUILDING_MS: AtomicU64 = AtomicU64::new(0);

/// Builds all test programs and the binaries, once, and answers the test programs.
///
/// Clippy stands in for the compiler of the workspace's own crates, so that one build serves
/// clippy, the tests and the real binary.
///
/// # Errors
/// The build fails.
pub(crate) fn built(root: &Path) -> Result<Vec<Program>> {
    Ok(built_once(root)?.0)
}

fn built_once(root: &Path) -> Result<(Vec<Program>, usize)> {
    let built = BUILT.get_or_init(|| build(root).map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build(root: &Path) -> Result<(Vec<Program>, usize)> {
    let mut command = clippy_command(root);
    // Without the examples: `--long` builds these.
    command.args(["test", "--workspace", "--no-run", "--tests"]);
    timed(|| test_programs(&mut command))
}

/// Adds the time of a build of the workspace to those before.
fn timed<T>(build: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let built = build();
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    BUILDING_MS.fetch_add(ms, Relaxed);
    built
}

/// Builds by `cargo`, which runs no tests, and answers the test programs, in their order, and the
/// number of warnings.
///
/// # Errors
/// It does not build.
pub(crate) fn test_programs(cargo: &mut Command) -> Result<(Vec<Program>, usize)> {
    let (messages, warnings) = messages(cargo)?;
    let mut programs: Vec<Program> = messages.lines().filter_map(program).collect();
    programs.sort_by(|a, b| (&a.package, &a.name).cmp(&(&b.package, &b.name)));
    Ok((programs, warnings))
}

/// Runs cargo, shows what the compiler says, and answers cargo's messages and the number of
/// warnings among them.
fn messages(cargo: &mut Command) -> Result<(String, usize)> {
    say(&format!("xtask: {}", line_of(cargo)));
    let output = cargo
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut warnings = 0;
    for output_text in text.lines().filter_map(diagnostic) {
        say(&output_text);
        warnings += 1;
    }
    ensure!(
        output.status.success(),
        "it does not build: {}",
        line_of(cargo)
    );
    Ok((text, warnings))
}

/// The text of a warning or an error, if this message of cargo's is one.
fn diagnostic(message: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    Some(message["message"]["rendered"].as_str()?.to_owned())
}

/// The seconds that all builds of the workspace took, if there was one.
pub(crate) fn build_seconds() -> Option<u64> {
    let ms = BUILDING_MS.load(Relaxed);
    (ms > 0).then_some(ms / 1000)
}

/// The part `clippy`: builds everything, also the server without the feature `cluster`. That one
/// stands where the tests' server stands, until [`built`] puts that there.
///
/// # Errors
/// The build fails, or clippy warns.
pub(crate) fn clippy(run: &Run) -> Result<()> {
    let build = |what: &[&str]| {
        let mut command = clippy_command(&run.root);
        timed(|| messages(command.args(["build", "--workspace"]).args(what)))
    };
    let (_, alone) = build(&["--bins", "--no-default-features"])?;
    let (_, warnings) = built_once(&run.root)?;
    let examples = match run.long {
        true => build(&["--examples"])?.1,
        false => 0,
    };
    ensure!(
        warnings + alone + examples == 0,
        "clippy warns; its output is above"
    );
    Ok(())
}

/// How everything is built in CI; `.ci/run` has the same.
const IN_CI: [(&str, &str); 4] = [
    // Nobody edits and builds again there, and nobody runs a debugger.
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    // Two processors: what more units do beside each other is done twice. Macros and build scripts
    // do not have it from the profile.
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "2"),
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_CODEGEN_UNITS", "2"),
];

/// Cargo with clippy in the compiler's place for the workspace's crates. `cargo clippy` would
/// build every crate of others a second time.
fn clippy_command(root: &Path) -> Command {
    let mut command = crate::cargo_command();
    command
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .current_dir(root);
    if std::env::var_os("CI").is_some() {
        command.envs(IN_CI);
    }
    command
}

/// A test program, if this message of cargo's is about one.
fn program(message: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let file = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    // `path+file:///somewhere/log#quintet-log@0.1.0`, or without the name if it
    // is the folder's.
    let id = message["package_id"].as_str()?;
    let (path, last) = id.rsplit_once('#')?;
    let package = match last.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    };
    let target = &message["target"];
    let name = match target["kind"][0].as_str()? {
        "lib" => "lib",
        _ => target["name"].as_str()?,
    };
    Some(Program {
        package: package.to_owned(),
        name: name.to_owned(),
        file: file.into(),
        folder: folder.to_owned(),
    })
}

/// How a run of a program ended.
pub(crate) struct Ran {
    pub(crate) passed: usize,
    /// Names of the tests that failed.
    pub(crate) failed: Vec<String>,
    pub(crate) time: Duration,
    /// How long each test took, as far as the output tells.
    pub(crate) tests: Vec<(String, Duration)>,
    /// The end of its output if it failed.
    pub(crate) output_text: String,
}

impl Program {
    /// `PACKAGE:PROGRAM`, without the prefix that all packages share.
    pub(crate) fn label(&self) -> String {
        let package = self.package.trim_start_matches("quintet-");
        let package = if package == "quintet" {
            "server"
        } else {
            package
        };
        format!("{package}:{}", self.name)
    }

    /// The program with these arguments, as cargo would start it.
    pub(crate) fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.file);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("QUINTET", server(&crate::root()))
            // Login shells of scripts read no profile of the one who runs the tests: it may be
            // slow.
            .env("HOME", crate::target(&crate::root()))
            .stdin(Stdio::null());
        command
    }

    /// Runs its tests, `threads` at a time, without those whose names contain one of `skipped`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run(
        &self,
        threads: usize,
        skipped: &[&str],
        more: &dyn Fn(&mut Command),
    ) -> Result<Ran> {
        let mut arguments = vec![format!("--test-threads={threads}")];
        for name in skipped {
            arguments.extend(["--skip".to_owned(), (*name).to_owned()]);
        }
        let mut command = self.command(&arguments);
        more(&mut command);
        let began = Instant::now();
        let mut ends = Vec::new();
        let mut failed = Vec::new();
        let mut passed = 0;
        let mut fails = false;
        let (status, output_text) = shown(&mut command, &mut |line| {
            if let Some((name, ok)) = ended(line) {
                ends.push((name.to_owned(), began.elapsed()));
                match ok {
                    true => passed += 1,
                    false => failed.push(name.to_owned()),
                }
                return !ok;
            }
            // A line of a server may stand within the line of a test; this one counts all tests.
            passed = all_passed(line).unwrap_or(passed);
            // The servers that it starts say much meanwhile; behind this line stand the failures.
            fails |= line == "failures:";
            fails
        })
        .with_context(|| self.file.display().to_string())?;
        if !status.success() && failed.is_empty() {
            failed.push(format!("(all: {status})"));
        }
        Ok(Ran {
            passed,
            failed,
            time: began.elapsed(),
            tests: durations(ends, threads),
            output_text,
        })
    }
}

/// The test that ended with this line of a test program, and whether it passed.
fn ended(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_prefix("test ")?;
    let (name, ok) = match line.strip_suffix(" ... ok") {
        Some(name) => (name, true),
        None => (line.strip_suffix(" ... FAILED")?, false),
    };
    Some((name.trim_end_matches(" - should panic"), ok))
}

/// How many tests passed, by the last line of a test program.
fn all_passed(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_once(" passed;")?.0.parse().ok()
}

/// The names of tests that failed in the output of a test program.
pub(crate) fn failed_tests(text: &str) -> Vec<String> {
    let failed = text.lines().filter_map(ended).filter(|(_, ok)| !ok);
    failed.map(|(name, _)| name.to_owned()).collect()
}

/// How long each test took, by when each ended: tests begin in the order of their names, each as
/// soon as one of `threads` is free.
fn durations(ends: Vec<(String, Duration)>, threads: usize) -> Vec<(String, Duration)> {
    let moments: Vec<Duration> = ends.iter().map(|(_, end)| *end).collect();
    let mut ends = ends;
    ends.sort();
    let began = |at: usize| match at.checked_sub(threads) {
        Some(before) => moments[before],
        None => Duration::ZERO,
    };
    let one =
        |(at, (name, end)): (usize, (String, Duration))| (name, end.saturating_sub(began(at)));
    ends.into_iter().enumerate().map(one).collect()
}

fn server(root: &Path) -> PathBuf {
    crate::target(root).join("debug/quintet")
}

/// The path of the server's binary, which [`built`] builds.
///
/// # Errors
/// As [`built`].
pub(crate) fn binary(root: &Path) -> Result<PathBuf> {
    built(root)?;
    let binary = server(root);
    if !binary.exists() {
        bail!("{} is not there", binary.display());
    }
    Ok(binary)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IN_CI, all_passed, durations, failed_tests, program};

    /// Otherwise the crates that xtask takes are built twice.
    #[test]
    fn ci_builds_xtask_as_xtask_builds_the_workspace() {
        let script = std::fs::read_to_string(crate::root().join(".ci/run")).unwrap();
        for (name, value) in IN_CI {
            assert!(
                script.contains(&format!("\nexport {name}={value}\n")),
                "{name}"
            );
        }
    }

    #[test]
    fn test_programs_are_known_by_cargos_messages() {
        let message = |target: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///q/crates/log#quintet-log@0.1.0","manifest_path":"/q/crates/log/Cargo.toml","target":{target},"profile":{{"test":{test}}},"executable":"/q/target/x"}}"#
            )
        };
        let found = program(&message(r#"{"kind":["test"],"name":"limits"}"#, true)).unwrap();
        assert_eq!(
            (found.package.as_str(), found.name.as_str()),
            ("quintet-log", "limits")
        );
        assert_eq!(found.folder.to_str(), Some("/q/crates/log"));
        let found = program(&message(r#"{"kind":["lib"],"name":"quintet_log"}"#, true)).unwrap();
        assert_eq!(found.name, "lib");
        assert_eq!(found.label(), "log:lib");
        assert!(program(&message(r#"{"kind":["bin"],"name":"quintet"}"#, false)).is_none());
        assert!(program("Compiling").is_none());
    }

    #[test]
    fn the_tests_that_failed_are_named() {
        let text = "test a ... ok\ntest b::c ... FAILED\n\ntest d ... ignored\n";
        assert_eq!(failed_tests(text), ["b::c"]);
    }

    #[test]
    fn the_last_line_counts_the_tests_that_passed() {
        let of = |what: &str| format!("test result: {what}. 17 passed; 1 failed; 0 ignored");
        assert_eq!(all_passed(&of("ok")), Some(17));
        assert_eq!(all_passed(&of("FAILED")), Some(17));
        assert_eq!(all_passed("test a ... ok"), None);
    }

    #[test]
    fn a_test_takes_from_when_a_thread_was_free_until_its_end() {
        let s = Duration::from_secs;
        let ends = |names: [&str; 4], at: [u64; 4]| {
            let all = names.into_iter().zip(at);
            all.map(|(name, at)| (name.to_owned(), s(at))).collect()
        };
        // Two at a time: a and b begin at 0, c when b ends, d when c ends.
        let found = durations(ends(["b", "c", "a", "d"], [1, 3, 4, 5]), 2);
        let found: Vec<u64> = found.iter().map(|(_, time)| time.as_secs()).collect();
        assert_eq!(found, [4, 1, 2, 2]);
    }
}
