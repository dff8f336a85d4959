//! `quintet check` and `repair`.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use quintet_config::{CommandLine, load_text, old_names};
use quintet_host::{Contents, Lost, give_up_runs, wall_ms};
use quintet_log::{DirLock, Disk, Finding, LogError, LostRange};
use serde_json::json;

use super::CheckServer;
use super::progress::{count_of, transfer};
use super::runs::{self, BODIES, Runs, loss, of_queue};

/// Exit code of `check` when there is damage, and of `import` for a file that
/// is not what it should be.
pub(super) const DAMAGED: u8 = 3;

/// The losses that a repair has begun to replace, until its report has them.
const UNFINISHED: &str = "repair.unfinished";

/// How often to read the log again for a run that is missing. A server that
/// is at work removes one in seconds.
const ATTEMPTS: u32 = 4;

#[derive(clap::Args)]
#[command(
    after_help = "Reads everything and changes nothing. A server may run meanwhile. Exits with 3 \
                        if there is damage, and with 1 if a server would refuse to start with the \
                        configuration file.\n\nExamples:\n  quintet check --data \
                        /var/lib/quintet\n  quintet check --config /etc/quintet.toml\n  quintet \
                        check --json | jq .damaged_bytes"
)]
pub(super) struct Check {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// Check this configuration file instead: settings, users, grants, TLS files and hooks.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints all old names of a configuration file, and the other errors with which a server would
/// refuse to start. Writes nothing and opens no port.
fn check_config(path: PathBuf, server: CheckServer) -> Result<ExitCode> {
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = stdout().lock();
    let (old, text) = old_names(&text);
    for (line, why) in &old {
        writeln!(out, "{}:{line}: {why}", path.display())?;
    }
    let command_line = CommandLine {
        config: Some(path),
        ..CommandLine::default()
    };
    let config = load_text(&command_line, &text)?;
    for doubt in config.together().unwrap_or_default() {
        writeln!(out, "warning: {doubt}")?;
    }
    let errors = server(&config, command_line.config.as_deref());
    for error in &errors {
        writeln!(out, "error: {error:#}")?;
    }
    if !old.is_empty() || !errors.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    writeln!(
        out,
        "no errors found; a start also opens the addresses, the data directory and the trace collector"
    )?;
    Ok(ExitCode::SUCCESS)
}

impl Check {
    pub(super) fn run(self, server: CheckServer) -> Result<ExitCode> {
        if let Some(path) = self.config {
            return check_config(path, server);
        }
        exists(&self.data)?;
        let mut lost = Vec::new();
        let mut wrong = Vec::new();
        let mut contents = Contents::new(&self.data)?;
        let summary = transfer("checking the log", false, |report| {
            quintet_log::check(&Disk::new(&self.data), &mut |finding| match finding {
                Finding::Progress { done, total } => report(done, total),
                Finding::Damage(range) => lost.push(range.clone()),
                Finding::Frame(frame) => {
                    if let Err(why) = contents.frame(&frame) {
                        let (segment, offset) = (frame.segment, frame.offset);
                        wrong.push(format!("segment {segment} at byte {offset}: {why}"));
                    }
                }
                Finding::Tail(_) => {}
            })
        })?;
        if summary.segments == 0 && !self.data.join("lock").exists() {
            return Err(no_log(&self.data));
        }
        let runs = self.runs(contents)?;
        let damaged = !lost.is_empty() || !wrong.is_empty() || runs.is_damaged();
        let mut out = stdout().lock();
        if self.json {
            let found = json!({
                "segments": summary.segments,
                "frames": summary.frames,
                "records": summary.records,
                "bytes": summary.bytes,
                "unsynced_tail": summary.tail,
                "damaged": lost.iter().map(range_json).collect::<Vec<_>>(),
                "damaged_bytes": summary.damaged_bytes,
                "unreadable": wrong,
                "runs": runs.json(),
            });
            writeln!(out, "{found}")?;
        } else {
            writeln!(
                out,
                "{}, {}, {}, {}",
                count_of(summary.segments, "segment"),
                count_of(summary.frames, "frame"),
                count_of(summary.records, "record"),
                count_of(summary.bytes, "byte")
            )?;
            if summary.tail {
                writeln!(
                    out,
                    "the log ends in frames that are not synced: a server is writing them, or the \
                     next start cuts them off; this is no damage"
                )?;
            }
            print_ranges(&mut out, "damaged", &lost)?;
            for what in &wrong {
                writeln!(out, "unreadable: {what}")?;
            }
            runs.print(&mut out, false)?;
            match damaged {
                false => writeln!(out, "no damage")?,
                true => writeln!(
                    out,
                    "there is damage: stop the server and run `quintet repair`, which keeps the \
                     rest and lists the losses"
                )?,
            }
        }
        Ok(match damaged {
            false => ExitCode::SUCCESS,
            true => ExitCode::from(DAMAGED),
        })
    }

    /// Verifies the runs. A server may have removed one since the log was
    /// read; then the log says so by now.
    fn runs(&self, mut contents: Contents) -> Result<Runs> {
        let mut attempts = 0;
        transfer("checking runs", false, |report| -> Result<Runs> {
            loop {
                let found = runs::survey(&self.data, &contents, report)?;
                attempts += 1;
                if found.missing.is_empty() || attempts == ATTEMPTS {
                    return Ok(found);
                }
                contents = Contents::read(&self.data)?;
            }
        })
    }
}

#[derive(clap::Args)]
#[command(
    after_help = "Make a copy of the directory first. The command keeps every readable frame, in \
                        order, and renames damaged files to *.damaged. A damaged run stays, and \
                        the server serves its undamaged messages. A run that cannot be opened is \
                        renamed too, and the log records its loss. The command prints the losses \
                        and writes them to repair-TIME.json.\n\nExample:\n  cp -a \
                        /var/lib/quintet /var/lib/quintet-copy\n  quintet repair --data \
                        /var/lib/quintet"
)]
pub(super) struct Repair {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(super) fn run(self) -> Result<ExitCode> {
        exists(&self.data)?;
        // Before the lock, which is a file in the directory.
        if !has_log(&self.data)? {
            return Err(no_log(&self.data));
        }
        let _lock = lock(&self.data)?;
        let unfinished = self.data.join(UNFINISHED);
        let mut lost = noted(&unfinished)?;
        let summary = transfer("repairing", false, |report| {
            let mut progress = |finding: Finding<'_>| {
                if let Finding::Progress { done, total } = finding {
                    report(done, total);
                }
            };
            quintet_log::repair(&Disk::new(&self.data), &mut progress, &mut |found| {
                lost.retain(|known| !found.contains(known));
                lost.extend_from_slice(found);
                note(&unfinished, &lost)
            })
        })?;
        let contents = Contents::read(&self.data)?;
        let mut runs = transfer("checking runs", false, |report| {
            runs::survey(&self.data, &contents, report)
        })?;
        // What an earlier repair did not end with comes again.
        lost.retain(|known| !runs.gives_up(&known.file));
        let unnamed = runs.take_unnamed(&mut lost);
        if !unnamed.is_empty() {
            note(&unfinished, &lost)?;
            for run in unnamed {
                set_aside(&self.data.join(run))?;
            }
        }
        let bodies = self.give_up(&contents, &mut runs, &lost)?;
        let found = json!({
            "lost": lost.iter().map(range_json).collect::<Vec<_>>(),
            "replaced": summary.replaced,
            "frames": summary.frames,
            "runs": runs.json(),
            "lost_bodies": bodies.iter().map(|lost| {
                json!({ "queue": lost.queue.to_string(), "ids": lost.ids })
            }).collect::<Vec<_>>(),
        });
        let report = match lost.is_empty() && !runs.is_damaged() {
            true => None,
            false => Some(self.report(&found)?),
        };
        if unfinished.exists() {
            fs::remove_file(&unfinished)
                .with_context(|| format!("cannot remove {}", unfinished.display()))?;
        }
        let mut out = stdout().lock();
        if self.json {
            writeln!(out, "{found}")?;
            return Ok(ExitCode::SUCCESS);
        }
        print_ranges(&mut out, "lost", &lost)?;
        runs.print(&mut out, true)?;
        for lost in &bodies {
            runs::print_lost(&mut out, BODIES, lost, true)?;
        }
        writeln!(
            out,
            "{} kept, {} replaced, {} given up",
            count_of(summary.frames, "frame"),
            count_of(summary.replaced, "damaged segment"),
            count_of(runs.missing.len() as u64, "run")
        )?;
        if let Some(report) = report {
            writeln!(out, "the report is {report}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Sets runs aside that cannot be opened, and says in the log that they
    /// are gone. Answers messages that lost their bodies with them. All of it is noted before,
    /// beside what was `lost`, as a second repair does not find it.
    fn give_up(
        &self,
        contents: &Contents,
        runs: &mut Runs,
        lost: &[LostRange],
    ) -> Result<Vec<Lost>> {
        let gone: Vec<_> = runs.missing.iter().map(|(run, _)| *run).collect();
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        for run in &gone {
            let lost = contents.in_run(*run).into_iter();
            runs.lost.extend(lost.map(|lost| (*run, lost)));
        }
        let mut all = lost.to_vec();
        all.extend(runs.given_up());
        let unfinished = self.data.join(UNFINISHED);
        note(&unfinished, &all)?;
        for run in &gone {
            let path = self.data.join(run.to_string());
            if path.exists() {
                set_aside(&path)?;
            }
        }
        give_up_runs(&self.data, &gone, &mut |bodies| {
            let bodies = bodies.iter();
            all.extend(bodies.map(|lost| loss(BODIES, &of_queue(lost))));
            Ok(note(&unfinished, &all)?)
        })
    }

    /// Writes what was found beside the log; answers where.
    fn report(&self, found: &serde_json::Value) -> Result<String> {
        let name = format!("repair-{}.json", wall_ms());
        let path = self.data.join(name);
        quintet_log::replace_file(&path, format!("{found}\n").as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }
}

/// The losses that a repair which did not end had noted.
fn noted(path: &Path) -> Result<Vec<LostRange>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let cannot = || format!("cannot read {}", path.display());
    let text = fs::read(path).with_context(cannot)?;
    let ranges: Vec<(String, u64, u64, String)> =
        serde_json::from_slice(&text).with_context(cannot)?;
    let range = |(file, offset, bytes, why)| LostRange {
        file,
        offset,
        bytes,
        why,
    };
    Ok(ranges.into_iter().map(range).collect())
}

/// Notes them, durably.
fn note(path: &Path, lost: &[LostRange]) -> Result<(), LogError> {
    let range = |range: &LostRange| json!((&range.file, range.offset, range.bytes, &range.why));
    let ranges = serde_json::Value::from_iter(lost.iter().map(range));
    quintet_log::replace_file(path, ranges.to_string().as_bytes())
        .map_err(|error| LogError::io("write", UNFINISHED, 0, error))
}

fn set_aside(path: &Path) -> Result<()> {
    fs::rename(path, free_name(path)).with_context(|| format!("cannot rename {}", path.display()))
}

/// A name for what is set aside that no earlier repair has taken.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(match number {
            1 => ".damaged".to_owned(),
            number => format!(".{number}.damaged"),
        });
        PathBuf::from(name)
    };
    let mut number = 1;
    while name(number).exists() {
        number += 1;
    }
    name(number)
}

/// A check must not make the directory it is asked about.
pub(super) fn exists(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        bail!(
            "{} is not a directory: name the data directory with --data",
            dir.display()
        );
    }
    Ok(())
}

/// True if the directory has a file of a log, damaged or not.
///
/// # Errors
/// The directory cannot be read.
fn has_log(dir: &Path) -> Result<bool> {
    let cannot = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let name = name.to_string_lossy();
        if ["segment-", "extent-", "run-"]
            .iter()
            .any(|first| name.starts_with(first))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn no_log(dir: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "there is no log in {}: name the data directory of a server with --data",
        dir.display()
    )
}

fn lock(dir: &Path) -> Result<DirLock> {
    DirLock::acquire(dir).map_err(|error| match matches!(error, LogError::Locked { .. }) {
        true => anyhow::anyhow!(
            "{error}; a repair needs a stopped server, or a copy made with `quintet backup`"
        ),
        false => error.into(),
    })
}

fn range_json(range: &LostRange) -> serde_json::Value {
    json!({ "file": range.file, "offset": range.offset, "bytes": range.bytes, "why": range.why })
}

fn print_ranges(out: &mut dyn std::io::Write, what: &str, ranges: &[LostRange]) -> Result<()> {
    for range in ranges {
        let (file, bytes, why) = (&range.file, range.bytes, &range.why);
        let place = match (range.offset, bytes) {
            (0, 0) => file.clone(),
            (offset, _) => format!("{bytes} bytes of {file} at byte {offset}"),
        };
        writeln!(out, "{what}: {place}: {why}").context("cannot print")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_of_a_directory_without_a_log_creates_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let repair = || Repair {
            data: dir.path().to_owned(),
            json: false,
        };
        let error = repair().run().expect_err("no log").to_string();
        assert!(
            error.contains("there is no log in") && error.contains("--data"),
            "{error}"
        );
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_log_is_known_by_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("lock"), "1\n").expect("written");
        assert!(!has_log(dir.path()).expect("read"));
        fs::write(dir.path().join("segment-0000000001.log"), "").expect("written");
        assert!(has_log(dir.path()).expect("read"));
    }
}
