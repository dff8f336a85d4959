//! `cargo xtask plant`: defects planted one by one, and whether the tests that
//! are about them notice.
//!
//! Each is a change of text in a copy of the tree below the target directory;
//! the copy is built and the tests named with it are run. One that passes them
//! has survived, which is a defect of the tests.

mod cluster;
mod waits;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo_command, target};

const HELP: &str = "\
Usage: cargo xtask plant [--list] [--only NAME]...

Plants defects in a copy of the tree, one after the other, and runs the tests
that should notice. Fails if one survives. The first run builds everything in a
folder of its own; plan for an hour on two cores.

  --list       Say which there are
  --only NAME  This one; may be repeated
";

/// A defect, and the tests that must not pass with it.
struct Planted {
    name: &'static str,
    what: &'static str,
    /// File, text that is there once, and what comes in its place.
    edits: &'static [(&'static str, &'static str, &'static str)],
    /// Arguments of `cargo test --workspace`: a target, then a filter.
    tests: &'static [&'static [&'static str]],
}

const PLANTED: &[Planted] = &[
    Planted {
        name: "sync-not-called",
        what: "`fdatasync` is never called",
        edits: &[("crates/log/src/storage.rs", "self.0.sync_data()", "Ok(())")],
        tests: &[&["--test=faults", "survives_a_power_cut"]],
    },
    Planted {
        name: "sync-error-ignored",
        what: "a failed sync is ignored by who waits for it",
        edits: &[(
            "crates/host/src/sync.rs",
            "        if let Err(error) = point.wait() {\n            self.fail(&error);\n            return false;\n        }\n",
            "        point.wait().ok();\n",
        )],
        tests: &[&["--test=faults", "a_sync_that_fails"]],
    },
    Planted {
        name: "sync-error-ignored-in-log",
        what: "a failed sync is ignored by the log itself",
        edits: &[(
            "crates/log/src/local.rs",
            "                .sync_data()\n                .map_err(|error| fail(\"sync\", &name(), error))?;",
            "                .sync_data()\n                .ok();",
        )],
        tests: &[&["--test=faults", "a_sync_that_fails"]],
    },
    Planted {
        name: "directory-not-synced",
        what: "the name of a new segment is not synced",
        edits: &[(
            "crates/log/src/local.rs",
            "        if self.dir {\n",
            "        if self.dir && self.files.is_empty() {\n",
        )],
        tests: &[&["--test=faults", "survives_a_power_cut"]],
    },
    Planted {
        name: "run-deleted-early",
        what: "a run's file is deleted before its fact is durable",
        edits: &[
            (
                "crates/host/src/keep/mod.rs",
                "if self.progress.durable() < newest && self.write_now() {",
                "if newest == u64::MAX && self.write_now() {",
            ),
            (
                "crates/host/src/keep/mod.rs",
                "                if ticket > durable || locked",
                "                if ticket > durable.max(newest) || locked",
            ),
        ],
        tests: &[&["--test=faults", "a_run_is_deleted_only_after"]],
    },
    Planted {
        name: "run-not-synced",
        what: "a run is put in force before it is on the disk",
        edits: &[(
            "crates/log/src/run/writer.rs",
            "            .sync_data()\n",
            "            .is_empty()\n            .map(|_| ())\n",
        )],
        tests: &[&["--test=faults", "a_run_in_force_survives"]],
    },
    Planted {
        name: "chunks-passed-by",
        what: "a segment is retired with chunks of large bodies in it",
        edits: &[
            (
                "crates/host/src/retire.rs",
                "}) || !self.bodies.with_chunks_through(segment).is_empty()",
                "})",
            ),
            (
                "crates/host/src/retire.rs",
                "                if place.segment <= segment {\n",
                "                if place.segment > segment {\n",
            ),
        ],
        tests: &[&["--test=voices", "no_segment_is_retired_with_chunks"]],
    },
    Planted {
        name: "touched-not-replayed",
        what: "replay in the server leaves out `Touched`",
        edits: &[(
            "crates/host/src/recover.rs",
            "                engine.replay(fact, home);\n",
            "                if !matches!(fact, Fact::Touched { .. }) {\n                    engine.replay(fact, home);\n                }\n",
        )],
        tests: &[&["--lib", "what_is_read_from_the_log"]],
    },
    Planted {
        name: "dead-runs-come-back",
        what: "a start leaves runs that died in the log, and their numbers, to the keeper",
        edits: &[(
            "crates/host/src/recover.rs",
            "        .flat_map(|shard| shard.engine.take_dead_runs())\n",
            "        .flat_map(|_| Vec::<quintet_types::RunId>::new())\n",
        )],
        tests: &[&["--test=storage", "take_no_others_with_them"]],
    },
    Planted {
        name: "hook-time-ignored",
        what: "a hook's time budget is ignored",
        edits: &[(
            "crates/hooks/src/meter.rs",
            "from if cpu - from >= self.limits.time_ms_max * 1_000_000 => {",
            "from if cpu < from => {",
        )],
        tests: &[&["--test=hooks", "time_is_bounded"]],
    },
    Planted {
        name: "others-not-told",
        what: "other I/O threads are not told what is durable",
        edits: &[(
            "crates/host/src/sync.rs",
            "            if at != thread {\n",
            "            if at == usize::MAX - thread {\n",
        )],
        tests: &[&["--test=faults", "on_another_thread_is_told"]],
    },
    Planted {
        name: "answered-early",
        what: "replies leave before what they say is durable",
        edits: &[(
            "crates/host/src/tickets.rs",
            "self.written >= need.written && self.durable >= need.durable",
            "self.written >= need.written",
        )],
        tests: &[&["--test=faults", "survives_a_power_cut"]],
    },
    Planted {
        name: "clock-of-the-wall",
        what: "time inside is what the wall clock shows",
        edits: &[(
            "crates/host/src/clock.rs",
            "        let now = self.source.steady().saturating_add_signed(lead);\n",
            "        let now = self.source.wall().saturating_add(lead.unsigned_abs() & 1);\n",
        )],
        tests: &[&["--test=faults", "outlive_steps_of_the_clock"]],
    },
];

fn all() -> impl Iterator<Item = &'static Planted> {
    PLANTED.iter().chain(cluster::CLUSTER).chain(waits::WAITS)
}

/// # Errors
/// One survives, does not fit the tree any more or does not build; the tests
/// fail without any.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut only = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => {
                for one in all() {
                    println!("{:26} {}", one.name, one.what);
                }
                return Ok(());
            }
            "--only" => {
                let name = arguments.next().context("--only takes a name")?;
                let known = all().any(|one| one.name == name);
                ensure!(known, "no \"{name}\"; see cargo xtask plant --list");
                only.push(name.as_str());
            }
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(());
            }
            other => bail!("no option \"{other}\"\n\n{HELP}"),
        }
    }
    let chosen = all().filter(|one| only.is_empty() || only.contains(&one.name));
    let chosen: Vec<&Planted> = chosen.collect();
    let place = target(root).join("planted");
    let tree = place.join("tree");
    copy(root, &tree)?;
    println!("xtask: plant: the tests pass without a defect");
    let tests: BTreeSet<_> = chosen.iter().flat_map(|one| one.tests).collect();
    for tests in tests {
        if let Some(by) = fails(&tree, &place, tests)? {
            bail!("{} fails without a planted defect: {by}", tests.join(" "));
        }
    }
    let mut rows = Vec::new();
    let mut survived = 0;
    for one in chosen {
        println!("xtask: plant: {}: {}", one.name, one.what);
        let began = Instant::now();
        let killer = planted(&tree, one, &mut || {
            for tests in one.tests {
                if let Some(by) = fails(&tree, &place, tests)? {
                    return Ok(Some(by));
                }
            }
            Ok(None)
        });
        let end = match killer.with_context(|| one.name)? {
            Some(by) => format!("killed by `{by}`"),
            None => {
                survived += 1;
                "SURVIVED".to_owned()
            }
        };
        println!(
            "xtask: plant: {}: {end}, {} s",
            one.name,
            began.elapsed().as_secs()
        );
        rows.push(format!("| `{}` | {} | {end} |", one.name, one.what));
    }
    println!("\n| name | planted | |\n|---|---|---|\n{}", rows.join("\n"));
    ensure!(survived == 0, "{survived} survived");
    Ok(())
}

/// The files an edit changes, as they are after all edits of `one`.
fn changed(root: &Path, one: &Planted) -> Result<Vec<(&'static str, String)>> {
    let mut files: Vec<(&str, String)> = Vec::new();
    for (file, find, put) in one.edits {
        let at = match files.iter().position(|(name, _)| name == file) {
            Some(at) => at,
            None => {
                let text = std::fs::read_to_string(root.join(file)).context(*file)?;
                files.push((file, text));
                files.len() - 1
            }
        };
        let text = &mut files[at].1;
        let found = text.matches(find).count();
        ensure!(found == 1, "{}: {file} has {found} times: {find}", one.name);
        *text = text.replacen(find, put, 1);
    }
    Ok(files)
}

/// Runs `what` with the defect in the tree, and takes it out again. The tree is
/// as it was copied: somebody may go on working in the root meanwhile.
fn planted<T>(tree: &Path, one: &Planted, what: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    let mut before = Vec::new();
    for (file, text) in changed(tree, one)? {
        before.push((file, std::fs::read(tree.join(file))?));
        std::fs::write(tree.join(file), text)?;
    }
    let result = what();
    for (file, text) in before {
        std::fs::write(tree.join(file), text)?;
    }
    result
}

/// Makes `tree` what `root` is, and leaves alone what is so already: cargo goes
/// by the times of files.
pub(crate) fn copy(root: &Path, tree: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    for file in String::from_utf8_lossy(&listed.stdout).lines() {
        let (from, to): (PathBuf, PathBuf) = (root.join(file), tree.join(file));
        let Ok(new) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(&from, &to).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// The first test that fails, if one does.
fn fails(tree: &Path, place: &Path, tests: &[&str]) -> Result<Option<String>> {
    let cargo = |more: &[&str]| {
        let mut command = cargo_command();
        command
            .args(["test", "--workspace", "--quiet", tests[0]])
            .args(more)
            .current_dir(tree)
            // Built more often than run.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", place.join("build"));
        command
    };
    let built = cargo(&["--no-run"]).output()?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "it does not build:\n{said}");
    let mut filter = vec!["--", "--format=pretty"];
    filter.extend(&tests[1..]);
    let output = cargo(&filter).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let named = |end: &str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix("test "));
        lines
            .find_map(|line| line.strip_suffix(end))
            .map(str::to_owned)
    };
    let ran = said.contains(" ... ok") || said.contains(" ... FAILED");
    ensure!(ran, "no test is called {}", tests.join(" "));
    match (output.status.success(), named(" ... FAILED")) {
        (true, _) => Ok(None),
        (false, Some(name)) => Ok(Some(name)),
        (false, None) => bail!("the tests ended otherwise: {}", output.status),
    }
}

#[cfg(test)]
mod tests {
    use super::{Planted, all, changed};

    #[test]
    fn each_planted_defect_still_fits_the_tree() {
        let all: Vec<&Planted> = all().collect();
        for one in &all {
            let files = changed(&crate::root(), one).expect("it fits");
            assert!(!files.is_empty() && !one.tests.is_empty(), "{}", one.name);
        }
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other.name != one.name));
        }
    }
}
