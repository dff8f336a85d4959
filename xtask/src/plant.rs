//! `cargo xtask plant`: defects planted one by one, and whether the tests that
//! are about them notice.
//!
//! Each is a change of text in a copy of the tree below the target directory;
//! the copy is built and the tests named with it are run. A listed defect that
//! passes them has survived, which is a defect of the tests; a change by chance
//! may be none.

mod cluster;
mod features;
mod found;
mod random;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{cargo_command, files_of_git, target};

pub(crate) const HELP: &str = "\
Plants defects in a copy of the tree, one after the other, and runs the tests that should notice.
Fails if a listed one survives. A change by chance that survives needs a test, or a reason in
docs/reliability.md. The first run builds everything in a folder of its own; plan for an hour on two
cores.";

/// Arguments of `cargo test`, options before filters.
type Tests = &'static [&'static [&'static str]];

/// A listed defect, and the tests that must not pass with it.
struct Planted {
    name: &'static str,
    what: &'static str,
    /// File, text that is there once, and what comes in its place.
    edits: &'static [(&'static str, &'static str, &'static str)],
    tests: Tests,
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
                "                if commit_number > durable || locked",
                "                if commit_number > durable.max(newest) || locked",
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
                "                if position.segment <= segment {\n",
                "                if position.segment > segment {\n",
            ),
        ],
        tests: &[&["--test=protocols", "no_segment_is_retired_with_chunks"]],
    },
    Planted {
        name: "touched-not-replayed",
        what: "replay in the server leaves out `Touched`",
        edits: &[(
            "crates/host/src/recover.rs",
            "                engine.replay(fact, segment_ref);\n",
            "                if !matches!(fact, Fact::Touched { .. }) {\n                    engine.replay(fact, segment_ref);\n                }\n",
        )],
        tests: &[&["--lib", "bytes_read_from_the_log"]],
    },
    Planted {
        name: "cancelled-comes-back",
        what: "a cancelled message is ready again after a restart that ended its lease",
        edits: &[(
            "crates/engine/src/engine.rs",
            "if !self.end_cancelled(&mut cx, id) {",
            "if true {",
        )],
        tests: &[&["--test=life", "cancelled"]],
    },
    Planted {
        name: "grace-extended",
        what: "a lease is extended beyond the grace of its cancelled message",
        edits: &[(
            "crates/engine/src/decide/settle.rs",
            "until = until.min(cancelled.until).max(ends);",
            "until = until.max(cancelled.until).max(ends);",
        )],
        tests: &[&["--test=life", "cancelled"]],
    },
    Planted {
        name: "wait-result",
        what: "the end of a message does not end the waits for its result",
        edits: &[(
            "crates/engine/src/store/gate.rs",
            "            self.notify_outcome(fate);",
            "            drop(fate);",
        )],
        tests: &[&["--test=life", "results"]],
    },
    Planted {
        name: "wait-lease",
        what: "what happens to a lease does not end the waits for news of it",
        edits: &[(
            "crates/engine/src/store/gate.rs",
            "            self.wake_lease(&fact);",
            "            let _ = &fact;",
        )],
        tests: &[&["--test=life", "watched"]],
    },
    Planted {
        name: "pause-shortened",
        what: "a worker's hold of a queue ends a longer pause",
        edits: &[(
            "crates/engine/src/decide/hold.rs",
            "if self.store.expect_queue(queue).is_paused_until(until) {",
            "if false {",
        )],
        tests: &[&["--test=life", "held_keys"]],
    },
    Planted {
        name: "reply-twice",
        what: "a dead message that is kicked sends a second reply",
        edits: &[(
            "crates/engine/src/store/apply.rs",
            "            extra.changed = now;\n            extra.reply = None;",
            "            extra.changed = now;",
        )],
        tests: &[&["--test=life", "replies"]],
    },
    Planted {
        name: "gather-repeats-itself",
        what: "the parts of a reserve that gathers have one token, so they get the same messages",
        edits: &[(
            "crates/api/src/gather.rs",
            "0 => format!(\"\\0{missing}\"),",
            "0 => String::new(),",
        )],
        tests: &[&["--test=http", "gathered"]],
    },
    Planted {
        name: "gather-outlasts-lease",
        what: "a reserve gathers messages until its first leases are over",
        edits: &[(
            "crates/api/src/gather.rs",
            "Duration::from_millis(ms / 2)",
            "Duration::from_millis(ms * 2)",
        )],
        tests: &[&["--test=http", "gathered"]],
    },
    Planted {
        name: "hold-forgotten",
        what: "other settings of a queue end the holds of its keys",
        edits: &[(
            "crates/engine/src/store/keyed.rs",
            "groups.hold(&held.key, Some(held.until), held.since);",
            "groups.hold(&held.key, None, held.since);",
        )],
        tests: &[&["--test=life", "held_keys"]],
    },
    Planted {
        name: "hold-shortened",
        what: "a worker that holds a key makes a longer hold shorter",
        edits: &[(
            "crates/engine/src/decide/hold.rs",
            "self.held_until(queue, &key) < Some(until)",
            "self.held_until(queue, &key) != Some(until)",
        )],
        tests: &[&["--test=life", "held_keys"]],
    },
    Planted {
        name: "dead-runs-come-back",
        what: "a start leaves runs that died in the log, and their numbers, to the compactor",
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
        tests: &[&["--test=faults", "on_another_thread_gets_only_durable"]],
    },
    Planted {
        name: "answered-early",
        what: "replies leave before what they say is durable",
        edits: &[(
            "crates/host/src/commit_numbers.rs",
            "            && self.durable >= required.durable\n",
            "\n",
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
    Planted {
        name: "archived-counted-twice",
        what: "the end of a finished message that was kept counts as another one",
        edits: &[(
            "crates/engine/src/decide/settle.rs",
            "        State::Done | State::Relayed if why == Removal::Purged => Removal::PurgedDone,\n        State::Done | State::Relayed => Removal::DeletedDone,\n",
            "        State::Done | State::Relayed => why,\n",
        )],
        tests: &[&["--test=life", "a_message_that_was_archived_is_counted_once"]],
    },
    Planted {
        name: "silent-places-not-counted",
        what: "a body is refused while silent connections hold the places",
        edits: &[(
            "crates/http/src/slots.rs",
            "        } else if self.slots.to_be_had() <= self.slots.most / 4 {\n",
            "        } else if self.slots.free.available_permits() <= self.slots.most / 4 {\n",
        )],
        tests: &[&["--lib", "silent_connections_make_way_for_the_rest"]],
    },
    Planted {
        name: "lease-ignores-its-queue",
        what: "a lease of the API does not ask for the time of its queue",
        edits: &[(
            "crates/api/src/leases.rs",
            "                LeaseTime::TtrOrDefaultElse(LEASE_WITHOUT_TTR_MS),\n",
            "                LeaseTime::Fixed(LEASE_WITHOUT_TTR_MS),\n",
        )],
        tests: &[&["--test=http", "a_lease_has_the_time_of_its_queue"]],
    },
    Planted {
        name: "mutate-not-counted",
        what: "MUTATE does not count the jobs that it changes one by one",
        edits: &[(
            "crates/wire/src/faktory/mutate.rs",
            "            self.jobs += 1;\n",
            "            self.jobs |= 1;\n",
        )],
        tests: &[&[
            "--test=operations",
            "administrative_commands_are_in_the_audit",
        ]],
    },
    Planted {
        name: "move-task-not-audited",
        what: "the end of a message move task is not in the audit",
        edits: &[(
            "crates/sqs/src/moves.rs",
            "                if is_stored {\n                    self.audit_move",
            "                if is_stored && task.moved > 99 {\n                    self.audit_move",
        )],
        tests: &[&[
            "--test=operations",
            "administrative_commands_are_in_the_audit",
        ]],
    },
];

fn all() -> impl Iterator<Item = &'static Planted> {
    let features = features::FEATURES
        .iter()
        .chain(found::FOUND)
        .chain(waits::WAITS);
    PLANTED.iter().chain(cluster::CLUSTER).chain(features)
}

/// A defect as it is planted.
struct Defect {
    name: String,
    what: String,
    /// The files that it changes, as they are with it.
    files: Vec<(String, String)>,
    tests: Tests,
    /// By chance: it need not build, and it may survive.
    random: bool,
}

/// The defects to plant.
#[derive(clap::Parser)]
pub(crate) struct PlantArgs {
    /// Print the listed defects
    #[arg(long)]
    list: bool,
    /// Of the listed defects only this one; may be repeated. `none`: no listed one
    #[arg(long, value_name = "NAME", value_parser = known)]
    only: Vec<String>,
    /// Then change functions of types, engine, log and host by chance, for so long, as
    /// cargo-mutants lists the changes (it is built first)
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// The order of these changes; without it one is chosen and printed
    #[arg(long)]
    seed: Option<u64>,
}

impl PlantArgs {
    /// All listed defects, then changes by chance.
    pub(crate) fn all(minutes: u64) -> Self {
        Self {
            list: false,
            only: Vec::new(),
            minutes,
            seed: None,
        }
    }
}

fn known(name: &str) -> Result<String> {
    let known = name == "none" || all().any(|one| one.name == name);
    ensure!(known, "no such defect; see cargo xtask plant --list");
    Ok(name.to_owned())
}

/// Plants them.
///
/// # Errors
/// A listed defect survives, does not fit the tree any more or does not build; the tests
/// fail without any.
pub(crate) fn run(root: &Path, args: &PlantArgs) -> Result<()> {
    if args.list {
        all().for_each(|one| println!("{:26} {}", one.name, one.what));
        return Ok(());
    }
    let position = target(root).join("planted");
    let mut field = Field {
        tree: position.join("tree"),
        build: position.join("build"),
        took: BTreeMap::new(),
    };
    copy(root, &field.tree)?;
    let wanted =
        |one: &&Planted| args.only.is_empty() || args.only.iter().any(|only| only == one.name);
    let listed = all().filter(wanted).map(|one| changed(&field.tree, one));
    let listed: Vec<Defect> = listed.collect::<Result<_>>()?;
    println!("xtask: plant: the tests pass without a defect");
    let tests: BTreeSet<_> = listed.iter().flat_map(|one| one.tests).collect();
    for tests in tests {
        field.time(tests)?;
    }
    let mut rows = Rows::default();
    for one in listed {
        rows.add(&one, field.planted(&one)?)?;
    }
    if args.minutes > 0 {
        let time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let seed = args.seed.unwrap_or(time.as_secs() % 1_000_000);
        println!("xtask: plant: by chance: --seed {seed}");
        let end = Instant::now() + Duration::from_secs(args.minutes * 60);
        let changes = random::Changes::list(root, &field.tree, seed)?;
        for one in changes.take_while(|_| Instant::now() < end) {
            let one = one?;
            rows.add(&one, field.planted(&one)?)?;
        }
    }
    rows.end()
}

/// The outcome of a defect.
enum End {
    Noticed(String),
    Survived,
    /// With what the compiler says.
    NotBuilt(String),
}

/// The report.
#[derive(Default)]
struct Rows {
    rows: Vec<String>,
    /// By chance: noticed, survived, not built.
    random: [usize; 3],
    survived: usize,
}

impl Rows {
    fn add(&mut self, one: &Defect, end: End) -> Result<()> {
        let (kind, end) = match end {
            End::Noticed(by) => (0, format!("killed by {by}")),
            End::Survived => (1, "SURVIVED".to_owned()),
            End::NotBuilt(_) if one.random => (2, "does not build".to_owned()),
            End::NotBuilt(printed) => bail!("{}: it does not build:\n{printed}", one.name),
        };
        println!("xtask: plant: {}: {end}", one.name);
        match one.random {
            true => self.random[kind] += 1,
            false => self.survived += usize::from(kind == 1),
        }
        // Of changes by chance the others are many, and say nothing.
        if !one.random || kind == 1 {
            let Defect { name, what, .. } = one;
            self.rows.push(format!("| `{name}` | {what} | {end} |"));
        }
        Ok(())
    }

    fn end(&self) -> Result<()> {
        println!(
            "\n| name | planted | |\n|---|---|---|\n{}",
            self.rows.join("\n")
        );
        let [noticed, survived, unbuilt] = self.random;
        if self.random != [0; 3] {
            println!(
                "\nby chance: {noticed} noticed, {survived} survived, {unbuilt} did not build"
            );
        }
        ensure!(self.survived == 0, "{} survived", self.survived);
        Ok(())
    }
}

/// The listed defect as it is planted.
fn changed(root: &Path, one: &Planted) -> Result<Defect> {
    let mut files: Vec<(String, String)> = Vec::new();
    for (file, find, put) in one.edits {
        let at = match files.iter().position(|(name, _)| name == file) {
            Some(at) => at,
            None => {
                let text = std::fs::read_to_string(root.join(file)).context(*file)?;
                files.push(((*file).to_owned(), text));
                files.len() - 1
            }
        };
        let text = &mut files[at].1;
        let found = text.matches(find).count();
        ensure!(found == 1, "{}: {file} has {found} times: {find}", one.name);
        *text = text.replacen(find, put, 1);
    }
    Ok(Defect {
        name: one.name.to_owned(),
        what: one.what.to_owned(),
        files,
        tests: one.tests,
        random: false,
    })
}

/// Makes `tree` what `root` is, and leaves alone what is so already: cargo goes
/// by the times of files.
pub(crate) fn copy(root: &Path, tree: &Path) -> Result<()> {
    for file in files_of_git(root)? {
        let (from, to) = (root.join(&file), tree.join(&file));
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

/// The copy of the tree in which defects are planted.
struct Field {
    tree: PathBuf,
    build: PathBuf,
    /// How long tests take without a defect.
    took: BTreeMap<&'static [&'static str], Duration>,
}

/// The longest time that tests may take without a defect.
const HOUR: Duration = Duration::from_secs(3_600);
/// With a defect they may take so many times as long, and this longer: listed, and by chance.
const TIMES: [u32; 2] = [5, 2];
const LONGER: Duration = Duration::from_secs(60);

impl Field {
    /// Plants a defect, runs its tests, and takes it out again. The tree is as it was copied:
    /// somebody may go on working in the root meanwhile.
    fn planted(&mut self, one: &Defect) -> Result<End> {
        println!("xtask: plant: {}: {}", one.name, one.what);
        for tests in one.tests {
            self.time(tests)?;
        }
        let mut before = Vec::new();
        for (file, text) in &one.files {
            let path = self.tree.join(file);
            before.push((std::fs::read(&path)?, path.clone()));
            std::fs::write(path, text)?;
        }
        let end = self.end_of(one);
        for (text, path) in before {
            std::fs::write(path, text)?;
        }
        end.with_context(|| one.name.clone())
    }

    fn end_of(&mut self, one: &Defect) -> Result<End> {
        for tests in one.tests {
            if let Some(printed) = self.build(tests)? {
                return Ok(End::NotBuilt(printed));
            }
            let limit = self.time(tests)? * TIMES[usize::from(one.random)] + LONGER;
            match self.fails(tests, limit) {
                Ok(None) => {}
                Ok(Some(by)) => return Ok(End::Noticed(by)),
                // A change may overflow the stack, or exhaust memory.
                Err(error) if one.random => return Ok(End::Noticed(format!("{error:#}"))),
                Err(error) => return Err(error),
            }
        }
        Ok(End::Survived)
    }

    /// How long these tests take without a defect.
    ///
    /// # Errors
    /// They do not build, or fail without one.
    fn time(&mut self, tests: &'static [&'static str]) -> Result<Duration> {
        if let Some(took) = self.took.get(tests) {
            return Ok(*took);
        }
        let printed = self.build(tests)?;
        ensure!(
            printed.is_none(),
            "it does not build:\n{}",
            printed.unwrap_or_default()
        );
        let began = Instant::now();
        if let Some(by) = self.fails(tests, HOUR)? {
            bail!("{} fails without a planted defect: {by}", tests.join(" "));
        }
        let took = began.elapsed();
        self.took.insert(tests, took);
        Ok(took)
    }

    /// Builds these tests; what the compiler says if they do not build.
    fn build(&self, tests: &[&str]) -> Result<Option<String>> {
        let built = self.cargo(tests, HOUR, &["--no-run"])?;
        let printed = String::from_utf8_lossy(&built.stderr).into_owned();
        Ok((!built.status.success()).then_some(printed))
    }

    /// The first test that fails, if one does.
    fn fails(&self, tests: &[&str], limit: Duration) -> Result<Option<String>> {
        let mut words = vec!["--", "--format=pretty"];
        words.extend(tests.iter().filter(|word| !word.starts_with('-')));
        let output = self.cargo(tests, limit, &words)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut lines = printed
            .lines()
            .filter_map(|line| line.strip_prefix("test "));
        let failed = lines.find_map(|line| line.strip_suffix(" ... FAILED"));
        if matches!(output.status.code(), Some(TIMED_OUT | KILLED)) {
            return Ok(Some(format!("the time: over {} s", limit.as_secs())));
        }
        let ran = failed.is_some() || printed.contains(" ... ok");
        ensure!(ran, "no test is called {}", tests.join(" "));
        match (output.status.success(), failed) {
            (true, _) => Ok(None),
            (false, Some(name)) => Ok(Some(format!("`{name}`"))),
            (false, None) => bail!("the tests ended otherwise: {}", output.status),
        }
    }

    /// The output of `cargo test`, which is stopped after `limit`.
    fn cargo(&self, tests: &[&str], limit: Duration, more: &[&str]) -> Result<Output> {
        let cargo = cargo_command();
        let mut command = Command::new("timeout");
        command
            .arg("--kill-after=30")
            .arg(limit.as_secs().to_string())
            .arg(cargo.get_program())
            .args(["test", "--quiet"]);
        if !tests[0].starts_with("--package") {
            command.arg("--workspace");
        }
        command
            .args(tests.iter().filter(|word| word.starts_with('-')))
            .args(more)
            .current_dir(&self.tree)
            // Built more often than run.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &self.build);
        for (name, value) in cargo.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.output().context("timeout (of coreutils)")
    }
}

/// The exit status of `timeout` if the time was over, and if the tests went on all the same.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;

#[cfg(test)]
mod tests {
    use super::{Planted, all, changed, known};

    #[test]
    fn each_planted_defect_still_fits_the_tree() {
        let all: Vec<&Planted> = all().collect();
        let fits = |one: &&&Planted| !one.edits.is_empty() && !one.tests.is_empty();
        assert!(all.iter().all(|one| fits(&one)));
        let misfits = all.iter().map(|one| changed(&crate::root(), one));
        let misfits: Vec<String> = misfits
            .filter_map(|it| Some(it.err()?.to_string()))
            .collect();
        assert!(misfits.is_empty(), "{}", misfits.join("\n"));
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other.name != one.name));
        }
    }

    #[test]
    fn names_are_checked() {
        assert!(known("none").is_ok() && known("run-not-synced").is_ok());
        assert!(known("nothing").is_err());
    }
}
