//! `cargo xtask plant`: defects planted one by one, and whether the tests that
//! are about them notice.
//!
//! Each is a change of text in a copy of the tree below the target directory;
//! the copy is built and the tests named with it are run. A listed defect that
//! passes them has survived, which is a defect of the tests; a change by chance
//! may be none.

mod cluster;
mod features;
mod field;
mod found;
mod libraries;
mod random;
mod results;
mod waits;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use field::Field;
pub(crate) use field::copy;
use results::Results;

use crate::target;

pub(crate) const HELP: &str = "\
Plants defects in a copy of the tree, one after the other, and runs the tests that should notice.
Fails if a listed one survives. A change by chance that survives needs a test, or a reason in
docs/reliability.md. The first run builds everything in a folder of its own; plan for hours on two
cores, or for several runs: target/planted/results.txt keeps which ones were noticed, at which
commit, and the next run goes on with the others.

  cargo xtask plant --time 20m                       as many as begin in 20 minutes
  cargo xtask plant --sample 10 --seed 7 --time 20m  ten by chance
  cargo xtask plant --only sync-not-called           one";

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

/// A list of defects. Of each: name and what it is; of each edit the file, the text and what comes
/// in its place; the arguments of each run of tests. Behind them some that are written in full.
macro_rules! planted {
    (
        $(
            $name:literal: $what:literal
            $($file:literal: $find:literal => $put:literal;)+
            $([$($test:literal)+])+
        )*
        $(Planted $full:tt),* $(,)?
    ) => {
        &[
            $($crate::plant::Planted {
                name: $name,
                what: $what,
                edits: &[$(($file, $find, $put)),+],
                tests: &[$(&[$($test),+]),+],
            },)*
            $($crate::plant::Planted $full,)*
        ]
    };
}
pub(crate) use planted;

const PLANTED: &[Planted] = planted![
    "sync-not-called": "`fdatasync` is never called"
        "crates/log/src/storage.rs": "self.0.sync_data()" => "Ok(())";
        ["--test=faults" "survives_a_power_cut"]
    "sync-error-ignored": "a failed sync is ignored by who waits for it"
        "crates/host/src/sync.rs":
        "        if let Err(error) = point.wait() {\n            self.fail(&error);\n            return false;\n        }\n"
        => "        point.wait().ok();\n"; ["--test=faults" "a_sync_that_fails"]
    "sync-error-ignored-in-log": "a failed sync is ignored by the log itself"
        "crates/log/src/local.rs":
        "                .sync_data()\n                .map_err(|error| fail(\"sync\", &name(), error))?;"
        => "                .sync_data()\n                .ok();";
        ["--test=faults" "a_sync_that_fails"]
    "directory-not-synced": "the name of a new segment is not synced"
        "crates/log/src/local.rs": "        if self.dir {\n"
        => "        if self.dir && self.files.is_empty() {\n";
        ["--test=faults" "survives_a_power_cut"]
    "run-deleted-early": "a run's file is deleted before its fact is durable"
        "crates/host/src/keep/mod.rs": "if self.progress.durable() < newest && self.write_now() {"
        => "if newest == u64::MAX && self.write_now() {";
        "crates/host/src/keep/mod.rs": "                if commit_number > durable || locked"
        => "                if commit_number > durable.max(newest) || locked";
        ["--test=faults" "a_run_is_deleted_only_after"]
    "run-not-synced": "a run is put in force before it is on the disk"
        "crates/log/src/run/writer.rs": "self.file.sync_data().or_full(\"sync\", &self.tmp)"
        => "self.file.is_empty().map(|_| ()).or_full(\"sync\", &self.tmp)";
        ["--test=faults" "a_run_in_force_survives"]
    "chunks-passed-by": "a segment is retired with chunks of large bodies in it"
        "crates/host/src/retire.rs":
        "any(|live| live > 0)\n            || !self.bodies.with_chunks_through(segment).is_empty()"
        => "any(|live| live > 0)";
        "crates/host/src/retire.rs": "                if position.segment <= segment {\n"
        => "                if position.segment > segment {\n";
        ["--test=protocols" "no_segment_is_retired_with_chunks"]
    "touched-not-replayed": "replay in the server leaves out `Touched`"
        "crates/host/src/recover.rs": "                engine.replay(fact, segment_ref);\n"
        => "                if !matches!(fact, Fact::Touched { .. }) {\n                    engine.replay(fact, segment_ref);\n                }\n";
        ["--lib" "bytes_read_from_the_log"]
    "cancelled-comes-back":
        "a cancelled message is ready again after a restart that ended its lease"
        "crates/engine/src/engine.rs": "            self.end_cancelled(&mut cx, id);\n" => "";
        ["--test=life" "cancelled"]
    "grace-extended": "a lease is extended beyond the grace of its cancelled message"
        "crates/engine/src/decide/settle.rs": "until = until.min(cancelled.until).max(ends);"
        => "until = until.max(cancelled.until).max(ends);"; ["--test=life" "cancelled"]
    "wait-result": "the end of a message does not end the waits for its result"
        "crates/engine/src/store/gate.rs": "            self.notify_outcome(fate);"
        => "            drop(fate);"; ["--test=life" "results"]
    "wait-lease": "what happens to a lease does not end the waits for news of it"
        "crates/engine/src/store/gate.rs": "            self.wake_lease(&fact);"
        => "            let _ = &fact;"; ["--test=life" "watched"]
    "pause-shortened": "a worker's hold of a queue ends a longer pause"
        "crates/engine/src/decide/hold.rs":
        "if self.store.expect_queue(queue).is_paused_until(until) {" => "if false {";
        ["--test=life" "held_keys"]
    "reply-twice": "a dead message that is kicked sends a second reply"
        "crates/engine/src/store/apply.rs":
        "            extra.changed = now;\n            extra.reply = None;"
        => "            extra.changed = now;"; ["--test=life" "replies"]
    "gather-repeats-itself":
        "the parts of a reserve that gathers have one token, so they get the same messages"
        "crates/api/src/gather.rs": "[token, part.as_bytes()].concat()"
        => "[token, &part.as_bytes()[..0]].concat()";
        ["--test=http" "gathered"]
    "gather-outlasts-lease": "a reserve gathers messages until its first leases are over"
        "crates/api/src/gather.rs": "Duration::from_millis(ms / 2)"
        => "Duration::from_millis(ms * 2)"; ["--test=http" "gathered"]
    "hold-forgotten": "other settings of a queue end the holds of its keys"
        "crates/engine/src/store/keyed.rs": "groups.hold(&held.key, Some(held.until), held.since);"
        => "groups.hold(&held.key, None, held.since);"; ["--test=life" "held_keys"]
    "hold-shortened": "a worker that holds a key makes a longer hold shorter"
        "crates/engine/src/decide/hold.rs": "self.held_until(queue, &key) < Some(until)"
        => "self.held_until(queue, &key) != Some(until)"; ["--test=life" "held_keys"]
    "dead-runs-come-back":
        "a start leaves runs that died in the log, and their numbers, to the compactor"
        "crates/host/src/recover.rs": "        .flat_map(|shard| shard.engine.take_dead_runs())\n"
        => "        .flat_map(|_| Vec::<quintet_types::RunId>::new())\n";
        ["--test=storage" "take_no_others_with_them"]
    "hook-time-ignored": "a hook's time budget is ignored"
        "crates/hooks/src/meter.rs":
        "from if cpu - from >= self.limits.time_ms_max * 1_000_000 => {"
        => "from if cpu < from => {"; ["--test=hooks" "time_is_bounded"]
    "others-not-told": "other I/O threads are not told what is durable"
        "crates/host/src/sync.rs": "            if at != thread {\n"
        => "            if at == usize::MAX - thread {\n";
        ["--lib" "every_thread_that_writes_or_syncs"]
    "answered-early": "replies leave before what they say is durable"
        "crates/host/src/commit_numbers.rs": "            && self.durable >= required.durable\n"
        => "\n"; ["--test=faults" "survives_a_power_cut"]
    "clock-of-the-wall": "time inside is what the wall clock shows"
        "crates/host/src/clock.rs":
        "        let now = self.source.steady().saturating_add_signed(lead);\n"
        => "        let now = self.source.wall().saturating_add(lead.unsigned_abs() & 1);\n";
        ["--test=faults" "outlive_steps_of_the_clock"]
    "archived-counted-twice": "the end of a finished message that was kept counts as another one"
        "crates/engine/src/decide/settle.rs":
        "        State::Done | State::Relayed if why == Removal::Purged => Removal::PurgedDone,\n        State::Done | State::Relayed => Removal::DeletedDone,\n"
        => "        State::Done | State::Relayed => why,\n";
        ["--test=life" "a_message_that_was_archived_is_counted_once"]
    "silent-places-not-counted": "a body is refused while silent connections hold the places"
        "crates/http/src/slots.rs":
        "        } else if self.slots.to_be_had() <= self.slots.most / 4 {\n"
        => "        } else if self.slots.free.available_permits() <= self.slots.most / 4 {\n";
        ["--lib" "silent_connections_make_way_for_the_rest"]
    "lease-ignores-its-queue": "a lease of the API does not ask for the time of its queue"
        "crates/api/src/leases.rs":
        "                LeaseTime::TtrOrDefaultElse(LEASE_WITHOUT_TTR_MS),\n"
        => "                LeaseTime::Fixed(LEASE_WITHOUT_TTR_MS),\n";
        ["--test=http" "a_lease_has_the_time_of_its_queue"]
    "mutate-not-counted": "MUTATE does not count the jobs that it changes one by one"
        "crates/wire/src/faktory/mutate.rs": "            self.jobs += 1;\n"
        => "            self.jobs |= 1;\n";
        ["--test=operations" "administrative_commands_are_in_the_audit"]
    "move-task-not-audited": "the end of a message move task is not in the audit"
        "crates/sqs/src/moves.rs":
        "                if is_stored {\n                    self.audit_move"
        => "                if is_stored && task.moved > 99 {\n                    self.audit_move";
        ["--test=operations" "administrative_commands_are_in_the_audit"]
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
#[derive(clap::Parser, Default)]
pub(crate) struct PlantArgs {
    /// Print the listed defects
    #[arg(long)]
    list: bool,
    /// Of the listed defects only this one; may be repeated. `none`: no listed one
    #[arg(long, value_name = "NAME", value_parser = known)]
    only: Vec<String>,
    /// Of the listed defects so many by chance
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Begin with no listed defect after this time: 90s, 20m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Plant also those that an earlier run noticed
    #[arg(long)]
    again: bool,
    /// The results that this run continues; without it target/planted/results.txt
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Then change functions of types, engine, log and host by chance, for so long, as
    /// cargo-mutants lists the changes (it is built first)
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// The choice of `--sample`, and the order of the changes by chance; without it one is chosen
    /// and printed
    #[arg(long)]
    seed: Option<u64>,
}

impl PlantArgs {
    /// All listed defects, then changes by chance.
    pub(crate) fn all(minutes: u64) -> Self {
        Self {
            again: true,
            minutes,
            ..Self::default()
        }
    }

    /// The listed defects to plant, without those that `results` has as noticed.
    fn chosen(&self, results: &Results, seed: u64) -> Vec<&'static Planted> {
        let mut chosen: Vec<_> = all()
            .filter(|one| match self.only.is_empty() {
                true => self.again || !results.is_noticed(one.name),
                false => self.only.iter().any(|only| only == one.name),
            })
            .collect();
        if let Some(count) = self.sample {
            let mut state = seed;
            while chosen.len() > count {
                let out = random::next(&mut state) % chosen.len() as u64;
                chosen.swap_remove(usize::try_from(out).unwrap_or_default());
            }
        }
        chosen.sort_by_key(|one| one.place());
        chosen
    }
}

impl Planted {
    /// The test program and the crate. Behind a defect of the same crate only that crate and those
    /// that depend on it are built.
    fn place(&self) -> (&'static str, &'static str) {
        let file = self.edits[0].0;
        let folder = file.split_once("/src/").map_or(file, |(folder, _)| folder);
        (self.tests[0][0], folder)
    }
}

fn known(name: &str) -> Result<String> {
    let known = name == "none" || all().any(|one| one.name == name);
    ensure!(known, "no such defect; see cargo xtask plant --list");
    Ok(name.to_owned())
}

/// A time with its unit.
fn duration(text: &str) -> Result<Duration> {
    let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .context("a number and s, m or h: 20m")?;
    let number: u32 = number.parse()?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
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
    let began = Instant::now();
    let is_over = || args.time.is_some_and(|time| began.elapsed() >= time);
    let position = target(root).join("planted");
    let mut field = Field::new(root, &position)?;
    let file = args.results.clone();
    let file = file.unwrap_or_else(|| position.join("results.txt"));
    let mut results = Results::read(root, file)?;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let seed = args.seed.unwrap_or(now.as_secs() % 1_000_000);
    if args.sample.is_some() || args.minutes > 0 {
        println!("xtask: plant: by chance: --seed {seed}");
    }
    let chosen = args.chosen(&results, seed);
    for one in &chosen {
        changed(&field.tree, one)?;
    }
    // Tests run without a defect first. Of few crates at a time where the time may end, of all where
    // it does not, as then less is built again.
    let group = |one: &Planted| match (one.place(), args.time) {
        (place, Some(_)) => place,
        ((program, _), None) => (program, ""),
    };
    for planted in chosen.chunk_by(|one, other| group(one) == group(other)) {
        let (program, _) = planted[0].place();
        println!("xtask: plant: {program}: the tests pass without a defect");
        for tests in planted.iter().flat_map(|one| one.tests) {
            if !is_over() {
                field.time(tests)?;
            }
        }
        for one in planted {
            if is_over() {
                break;
            }
            let defect = changed(&field.tree, one)?;
            let end = field.planted(&defect)?;
            results.add(&defect, end)?;
        }
    }
    if args.minutes > 0 {
        let end = Instant::now() + Duration::from_secs(args.minutes * 60);
        let changes = random::Changes::list(root, &field.tree, seed)?;
        for one in changes.take_while(|_| Instant::now() < end) {
            let one = one?;
            let end = field.planted(&one)?;
            results.add(&one, end)?;
        }
    }
    let is_shown =
        |one: &&Planted| args.only.is_empty() || chosen.iter().any(|it| it.name == one.name);
    results.print(all().filter(is_shown))
}

/// The outcome of a defect.
enum End {
    Noticed(String),
    Survived,
    /// With what the compiler says.
    NotBuilt(String),
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

#[cfg(test)]
mod tests {
    use super::{Planted, all, changed, duration, known};

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
        assert_eq!(duration("2h").unwrap(), duration("120m").unwrap());
        for wrong in ["20", "m", "-1s", "1.5h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
