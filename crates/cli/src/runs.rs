//! Findings of `quintet check` and `repair` in run files.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use quintet_host::{Contents, Lost};
use quintet_log::run::{Run, RunDamage, RunFinding, RunName, RunPart, list_runs};
use quintet_log::{Disk, LogError, LostRange};
use quintet_types::Body;
use serde_json::{Value, json};

use super::progress::count_of;

/// Place of messages that lost their bodies with a run.
pub(super) const BODIES: &str = "memory, with the body in a run";

/// Counts of a check of runs.
#[derive(Default)]
pub(super) struct Runs {
    /// Runs read, and what is in them.
    files: u64,
    messages: u64,
    bytes: u64,
    damage: Vec<(RunName, RunDamage)>,
    /// Messages in damaged parts, by run and queue.
    pub(super) lost: Vec<(RunName, Lost)>,
    /// Runs that hold messages and cannot be opened, and why.
    pub(super) missing: Vec<(RunName, String)>,
    /// Runs that hold nothing, and what was never finished: the next start
    /// removes them.
    left_over: Vec<String>,
}

/// Reads all runs of a directory. Changes nothing.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn survey(
    dir: &Path,
    contents: &Contents,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Runs> {
    let disk = Disk::new(dir);
    let needed = contents.needed();
    let mut runs = Runs::default();
    for name in list_runs(&disk)? {
        if needed.binary_search(&name).is_err() {
            runs.left_over.push(name.to_string());
        }
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("run-") && name.ends_with(".tmp") {
            runs.left_over.push(name);
        }
    }
    let mut open = Vec::new();
    for name in needed {
        match Run::open(&disk, name) {
            Ok(run) => open.push(run),
            Err(error) => runs.missing.push((name, why(&error))),
        }
    }
    let total = open.iter().map(Run::file_bytes).sum();
    for run in open {
        runs.read(&run, contents, total, progress);
    }
    Ok(runs)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "others as they are")]
fn why(error: &LogError) -> String {
    match error {
        LogError::Io { why, .. } if why.kind() == std::io::ErrorKind::NotFound => {
            "there is no such file".to_owned()
        }
        error => error.to_string(),
    }
}

impl Runs {
    /// True if messages are out of reach, or could be soon.
    pub(super) fn is_damaged(&self) -> bool {
        !self.damage.is_empty() || !self.missing.is_empty()
    }

    /// True if a loss of this file is that of a run which cannot be opened.
    pub(super) fn gives_up(&self, file: &str) -> bool {
        let mut missing = self.missing.iter();
        missing.any(|(run, _)| file == BODIES || file == run.to_string())
    }

    /// The losses of runs that cannot be opened.
    pub(super) fn given_up(&self) -> Vec<LostRange> {
        let missing = self.missing.iter().map(|(run, why)| {
            let lost = self.lost.iter().filter(|(of, _)| of == run);
            let lost: Vec<String> = lost.map(|(_, lost)| of_queue(lost)).collect();
            loss(&run.to_string(), &format!("{why}: {}", lost.join(", ")))
        });
        missing.collect()
    }

    /// Takes the finished runs out of those that hold nothing, and adds them to what is `lost`, if
    /// that is a part of the log: it may have named them, and the next start deletes them.
    pub(super) fn take_unnamed(&mut self, lost: &mut Vec<LostRange>) -> Vec<String> {
        let is_of_run = |file: &str| file == BODIES || RunName::parse(file).is_some();
        if lost.iter().all(|known| is_of_run(&known.file)) {
            return Vec::new();
        }
        let is_run = |name: &mut String| RunName::parse(name).is_some();
        let unnamed: Vec<String> = self.left_over.extract_if(.., is_run).collect();
        // An earlier repair may have noted one, and not set it aside.
        lost.retain(|known| !unnamed.contains(&known.file));
        let why = "no record that can be read names it: it is set aside";
        lost.extend(unnamed.iter().map(|run| loss(run, why)));
        unnamed
    }

    fn read(
        &mut self,
        run: &Run,
        contents: &Contents,
        total: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) {
        let before = self.bytes;
        let mut damage = Vec::new();
        let check = run.verify(&mut |finding| match finding {
            RunFinding::Progress { done, .. } => progress(before + done, total),
            RunFinding::Damage(found) => damage.push(found.clone()),
        });
        self.files += 1;
        self.bytes += run.file_bytes();
        self.messages += u64::from(run.entries());
        let name = run.name();
        let blocks = contents.in_blocks(run, &check.damaged_blocks);
        self.lost
            .extend(blocks.into_iter().map(|lost| (name, lost)));
        if damage.iter().any(|found| found.part == RunPart::Chunk) {
            self.bodies(run, contents, &damage);
        }
        self.damage
            .extend(damage.into_iter().map(|found| (name, found)));
    }

    /// Messages whose bodies are in damaged chunks.
    fn bodies(&mut self, run: &Run, contents: &Contents, damage: &[RunDamage]) {
        let chunks = damage.iter().filter(|found| found.part == RunPart::Chunk);
        let ranges: Vec<_> = chunks
            .map(|found| found.offset..found.offset + found.bytes)
            .collect();
        let name = run.name();
        // Those that cannot be read are counted already.
        for block in (0..run.blocks()).filter_map(|block| run.read_block(block).ok()) {
            for entry in block.entries() {
                let Some(message) = contents.living(name, entry.ordinal, entry.payload) else {
                    continue;
                };
                let Body::Large(body) = &message.body else {
                    continue;
                };
                let places = body.places();
                let mut offsets = places.iter().map(|position| position.offset);
                if offsets.any(|offset| ranges.iter().any(|range| range.contains(&offset))) {
                    let queue = contents.queue_of(name, &message);
                    let of_queue =
                        |(run, lost): &&mut (RunName, Lost)| *run == name && lost.queue == queue;
                    match self.lost.iter_mut().find(of_queue) {
                        Some((_, lost)) => {
                            lost.messages += 1;
                            lost.ids.push(entry.id);
                        }
                        None => self.lost.push((
                            name,
                            Lost {
                                queue,
                                ids: vec![entry.id],
                                messages: 1,
                            },
                        )),
                    }
                }
            }
        }
    }

    /// The report of damaged and lost messages, for `--json`.
    pub(super) fn json(&self) -> Value {
        let damage = self.damage.iter().map(|(run, found)| {
            json!({
                "file": run.to_string(), "offset": found.offset, "bytes": found.bytes,
                "part": found.part.to_string(), "why": found.why,
            })
        });
        let missing = self
            .missing
            .iter()
            .map(|(run, why)| json!({ "file": run.to_string(), "why": why }));
        json!({
            "files": self.files,
            "messages": self.messages,
            "bytes": self.bytes,
            "damaged": damage.collect::<Vec<_>>(),
            "lost": self.lost.iter().map(lost_json).collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
            "left_over": self.left_over,
        })
    }

    /// Prints the summary line and what is wrong.
    ///
    /// # Errors
    /// `out` takes no more.
    pub(super) fn print(&self, out: &mut dyn Write, with_ids: bool) -> Result<()> {
        if self.files + self.missing.len() as u64 > 0 {
            writeln!(
                out,
                "{} runs, {} messages written to them, {} bytes",
                self.files, self.messages, self.bytes
            )?;
        }
        if !self.left_over.is_empty() {
            writeln!(
                out,
                "{} unfinished files of runs: a server is writing them, or the next start removes \
                 them; this is no damage",
                self.left_over.len()
            )?;
        }
        for (run, found) in &self.damage {
            let RunDamage {
                part,
                offset,
                bytes,
                why,
            } = found;
            writeln!(
                out,
                "damaged: {bytes} bytes of {run} at byte {offset}, {part}: {why}"
            )?;
        }
        for (run, why) in &self.missing {
            writeln!(out, "missing: {run}, which holds messages: {why}")?;
        }
        for (run, lost) in &self.lost {
            print_lost(out, &run.to_string(), lost, with_ids)?;
        }
        Ok(())
    }
}

/// A loss that is no range of its file.
pub(super) fn loss(file: &str, why: &str) -> LostRange {
    LostRange {
        file: file.to_owned(),
        offset: 0,
        bytes: 0,
        why: why.to_owned(),
    }
}

/// How many messages of which queue.
pub(super) fn of_queue(lost: &Lost) -> String {
    let messages = count_of(lost.messages, "message");
    format!("{messages} of the queue {}", lost.queue)
}

/// A line about messages that cannot be read.
///
/// # Errors
/// `out` takes no more.
pub(super) fn print_lost(
    out: &mut dyn Write,
    file: &str,
    lost: &Lost,
    with_ids: bool,
) -> Result<()> {
    write!(out, "lost: {} in {file}", of_queue(lost))?;
    if with_ids && !lost.ids.is_empty() {
        write!(out, ", ids {}", ranges(&lost.ids))?;
    }
    let unknown = lost.messages.saturating_sub(lost.ids.len() as u64);
    if with_ids && unknown > 0 {
        write!(out, ", {unknown} of them with unknown ids")?;
    }
    Ok(writeln!(out)?)
}

pub(super) fn lost_json((run, lost): &(RunName, Lost)) -> Value {
    json!({
        "file": run.to_string(), "queue": lost.queue.to_string(), "messages": lost.messages,
        "ids": lost.ids,
    })
}

/// Rising ids as `3-7, 9`.
fn ranges(ids: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for &id in ids {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == id => *end = id,
            _ => parts.push((id, id)),
        }
    }
    let part = |&(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use quintet_log::run::{RunName, RunNumber};

    use super::{BODIES, Lost, Runs, loss};

    #[test]
    fn the_loss_of_a_run_is_noted_with_its_messages() {
        let run = |number| RunName {
            shard: 0,
            number: RunNumber(number),
        };
        let lost = |queue: &str, messages| Lost {
            queue: queue.into(),
            ids: Vec::new(),
            messages,
        };
        let left_over = ["run-00000-0000000009.qrun", "run-00000-0000000010.tmp"];
        let mut runs = Runs {
            missing: vec![(run(7), "there is no such file".to_owned())],
            lost: vec![(run(7), lost("q", 2)), (run(8), lost("q", 3))],
            left_over: left_over.map(str::to_owned).to_vec(),
            ..Runs::default()
        };
        let name = run(7).to_string();
        let why = "there is no such file: 2 messages of the queue q";
        assert_eq!(runs.given_up(), [loss(&name, why)]);
        assert!(runs.gives_up(&name) && !runs.gives_up(&run(8).to_string()));
        // Runs that an earlier repair gave up have named no other.
        let mut noted = vec![loss(&run(3).to_string(), "gone"), loss(BODIES, "1 message")];
        assert_eq!(runs.take_unnamed(&mut noted), [""; 0]);
        assert_eq!(noted.len(), 2);
        // It may have noted one of them as lost with a part of the log.
        noted = vec![
            loss("segment-0000000001.log", "damaged"),
            loss(left_over[0], "x"),
        ];
        assert_eq!(runs.take_unnamed(&mut noted), left_over[..1]);
        let files: Vec<&str> = noted.iter().map(|lost| &*lost.file).collect();
        assert_eq!(files, ["segment-0000000001.log", left_over[0]]);
        assert_eq!(runs.left_over, left_over[1..]);
    }

    #[test]
    fn ids_in_a_row_are_a_range() {
        assert_eq!(super::ranges(&[]), "");
        assert_eq!(super::ranges(&[3, 4, 5, 9, 11, 12]), "3-5, 9, 11-12");
    }
}
