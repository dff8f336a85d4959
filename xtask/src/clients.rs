//! Real client libraries, from their own registries, in folders of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::context::Run;
use crate::programs::{binary, test_programs};
use crate::run;
use crate::show::{line_of, say, shown};
use crate::timings::of_line;
use crate::unit::run_one;

/// The folder of Python's packages and programs.
pub(crate) fn venv(root: &Path) -> PathBuf {
    root.join(".tests/venv")
}

/// Installs Python's packages that the file `wanted` lists in the private folder `venv`, or by its
/// pip in a folder `apart`; answers the folder of their programs. What is there is not installed
/// again.
///
/// # Errors
/// If one cannot be had.
pub(crate) fn pip(
    venv: &Path,
    wanted: &Path,
    options: &[&str],
    apart: Option<&Path>,
) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    let folder = apart.unwrap_or(venv);
    let programs = folder.join("bin");
    let list = std::fs::read_to_string(wanted).with_context(|| wanted.display().to_string())?;
    let name = wanted.file_name().unwrap_or_default();
    let installed = folder.join("installed").join(name);
    if python.exists() && std::fs::read_to_string(&installed).is_ok_and(|there| there == list) {
        return Ok(programs);
    }
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    let mut command = Command::new(&python);
    command
        .args(["-m", "pip", "install", "--quiet", "--no-compile"])
        .arg("--disable-pip-version-check")
        .args(options);
    if let Some(folder) = apart {
        command.args(["--upgrade", "--target"]).arg(folder);
    }
    run(command.arg("-r").arg(wanted))?;
    std::fs::create_dir_all(folder.join("installed"))?;
    std::fs::write(&installed, list)?;
    Ok(programs)
}

/// Installs Python's packages in private folders under `.tests`.
///
/// # Errors
/// A package cannot be had.
pub(crate) fn python_libraries(root: &Path) -> Result<()> {
    for (folder, file) in [
        ("venv", "requirements.txt"),
        // An older boto3, which others of the packages would not have beside them.
        ("venv-query", "requirements-query.txt"),
        // AWS's command line, which wants a botocore of its own.
        ("venv-aws", "requirements-aws.txt"),
    ] {
        let wanted = root.join("clients/python").join(file);
        pip(&root.join(".tests").join(folder), &wanted, &[], None)?;
    }
    Ok(())
}

/// Runs the tests of Python's packages against the real binary, without the files or tests
/// `skipped`.
///
/// # Errors
/// A build or a test fails.
pub(crate) fn python(run: &Run, skipped: &[&str]) -> Result<()> {
    let root = &run.root;
    let tests = root.join(".tests");
    let mut command = Command::new(venv(root).join("bin/python"));
    command
        // Tests that passed leave no data directory behind: these have 200 MB each.
        .args(["-m", "pytest", "-q", "--durations=0", "--durations-min=1"])
        .args(["-o", "tmp_path_retention_policy=failed"])
        .arg("clients/python")
        .env("QUINTET_QUERY_PYTHON", tests.join("venv-query/bin/python"))
        .env("QUINTET_AWS", tests.join("venv-aws/bin/aws"))
        .env("QUINTET", binary(root)?)
        .current_dir(root);
    if run.long {
        command.env("QUINTET_EXAMPLES", "60");
    }
    for test in skipped {
        let option = if test.contains("::") {
            "--deselect"
        } else {
            "--ignore"
        };
        command.arg(format!("{option}={test}"));
    }
    timed(run, &mut command)
}

/// Installs Node's packages in `folder`, by its own options of `npm`.
///
/// # Errors
/// A package cannot be had.
pub(crate) fn npm(folder: &Path, install: &[&str]) -> Result<()> {
    crate::run(
        Command::new("npm")
            .args(install)
            .args(["--silent", "--no-audit", "--no-fund"])
            .current_dir(folder),
    )
}

/// Runs the tests of Node in `folder` against the real binary.
///
/// # Errors
/// As [`python`].
pub(crate) fn node(run: &Run, folder: &str) -> Result<()> {
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=spec", "."])
        .env("QUINTET", binary(&run.root)?)
        .current_dir(run.root.join(folder));
    if run.long {
        command.env("QUINTET_LONG", "1");
    }
    timed(run, &mut command)
}

/// Runs a test runner, shows its output and notes how long its tests took.
fn timed(run: &Run, command: &mut Command) -> Result<()> {
    let line = line_of(command);
    say(&format!("xtask: {line}"));
    let mut tests = Vec::new();
    let (status, output) = shown(command, &mut |line| {
        tests.extend(of_line(line));
        true
    })
    .with_context(|| format!("cannot start: {line}"))?;
    run.timings().tests.append(&mut tests);
    ensure!(
        status.success(),
        "failed ({status}): {line}\nIt said:\n{output}"
    );
    Ok(())
}

/// Runs the tests of crates that are clients against the real binary. They are a
/// workspace of their own, so that nothing of them is built with the server.
///
/// # Errors
/// As [`python`].
pub(crate) fn rust(run: &Run) -> Result<()> {
    binary(&run.root)?;
    let mut build = in_rust(&run.root, &["test", "--quiet", "--locked", "--no-run"]);
    let (programs, _) = test_programs(&mut build)?;
    ensure!(!programs.is_empty(), "there is no test of clients");
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut failed = Vec::new();
    for program in &programs {
        failed.extend(run_one(run, program, threads, &[], &[])?);
    }
    ensure!(failed.is_empty(), "tests failed:\n{}", failed.join("\n"));
    Ok(())
}

/// Looks at how they are formatted.
///
/// # Errors
/// Otherwise than rustfmt does it.
pub(crate) fn rust_format(root: &Path) -> Result<()> {
    crate::run(&mut in_rust(root, &["fmt", "--check"]))
}

/// Cargo in the workspace of those tests. Clippy stands in for the compiler of what is their own,
/// so that what is built for it is what is run: `cargo clippy` would build the crates they take
/// once more. That its warnings are errors says their Cargo.toml.
fn in_rust(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(args)
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CARGO_TARGET_DIR", crate::target(root).join("clients"))
        .current_dir(root.join("clients/rust"));
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::pip;

    #[test]
    fn packages_that_are_there_are_not_installed_again() {
        let folder = std::env::temp_dir().join(format!("quintet-pip-{}", std::process::id()));
        let (venv, apart) = (folder.join("venv"), folder.join("apart"));
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        let python = |program| {
            let python = venv.join("bin/python");
            std::fs::remove_file(&python).ok();
            symlink(program, &python).unwrap();
        };
        let wanted = folder.join("wanted.txt");
        let install = |apart| pip(&venv, &wanted, &["--no-deps"], apart).is_ok();
        let apart = Some(apart.as_path());
        std::fs::write(&wanted, "a==1\n").unwrap();
        python("/usr/bin/true");
        assert_eq!([install(None), install(apart)], [true, true]);
        // Now whatever is run fails, so nothing was.
        python("/usr/bin/false");
        assert_eq!([install(None), install(apart)], [true, true]);
        std::fs::write(&wanted, "a==2\n").unwrap();
        assert_eq!([install(None), install(apart)], [false, false]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
