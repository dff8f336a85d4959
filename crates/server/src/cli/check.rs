//! `quintet check` and `repair`.

use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use quintet_log::{DirLock, Disk, Finding, LogError, LostRange};
use serde_json::json;

use crate::core::verify_frame;

/// Exit code of `check` when there is damage, and of `import` for a file that
/// is not what it should be.
pub(super) const DAMAGED: u8 = 3;

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(
    after_help = "Reads everything and changes nothing; may run beside a server. Exits with \
                        3 if there is damage."
)]
pub(super) struct Check {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode> {
        exists(&self.data)?;
        let mut lost = Vec::new();
        let mut wrong = Vec::new();
        let mut bar = Bar::new("checking");
        let summary = quintet_log::check(&Disk::new(&self.data), &mut |finding| match finding {
            Finding::Progress { done, total } => bar.show(done, total),
            Finding::Damage(range) => lost.push(range.clone()),
            Finding::Frame(frame) => {
                if let Err(why) = verify_frame(&frame) {
                    wrong.push(format!(
                        "segment {} at byte {}: {why}",
                        frame.segment, frame.offset
                    ));
                }
            }
            Finding::Tail(_) => {}
        })?;
        bar.clear();
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
            });
            writeln!(out, "{found}")?;
        } else {
            writeln!(
                out,
                "{} segments, {} frames, {} records, {} bytes",
                summary.segments, summary.frames, summary.records, summary.bytes
            )?;
            if summary.tail {
                writeln!(
                    out,
                    "it ends in frames that are not synced: a server is writing them, or the next \
                     start cuts them off; that is no damage"
                )?;
            }
            print_ranges(&mut out, "damaged", &lost)?;
            match lost.len() {
                0 => writeln!(out, "no damage")?,
                n => writeln!(
                    out,
                    "{n} damaged ranges; `quintet repair` salvages the rest"
                )?,
            }
        }
        Ok(if lost.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(DAMAGED)
        })
    }
}

/// Arguments of `repair`.
#[derive(clap::Args)]
#[command(
    after_help = "Keeps every frame that can be read, in order, and sets the damaged files \
                        aside as *.damaged. Make a copy of the directory first."
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
        let _lock = lock(&self.data)?;
        let mut bar = Bar::new("repairing");
        let summary = quintet_log::repair(&Disk::new(&self.data), &mut |finding| {
            if let Finding::Progress { done, total } = finding {
                bar.show(done, total);
            }
        })?;
        bar.clear();
        let mut out = stdout().lock();
        if self.json {
            let found = json!({
                "lost": summary.lost.iter().map(range_json).collect::<Vec<_>>(),
                "replaced": summary.replaced,
                "frames": summary.frames,
            });
            writeln!(out, "{found}")?;
        } else {
            print_ranges(&mut out, "lost", &summary.lost)?;
            writeln!(
                out,
                "{} frames kept, {} damaged segments replaced",
                summary.frames, summary.replaced
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A check must not make the directory it is asked about.
pub(super) fn exists(dir: &std::path::Path) -> Result<()> {
    if !dir.is_dir() {
        bail!(
            "{} is not a directory: name the data directory with --data",
            dir.display()
        );
    }
    Ok(())
}

fn lock(dir: &std::path::Path) -> Result<DirLock> {
    DirLock::acquire(dir).map_err(|error| match error {
        LogError::Locked { .. } => anyhow::anyhow!(
            "{error}; a repair needs a stopped server, or a copy made with `quintet backup`"
        ),
        error => error.into(),
    })
}

fn range_json(range: &LostRange) -> serde_json::Value {
    json!({ "file": range.file, "offset": range.offset, "bytes": range.bytes, "why": range.why })
}

fn print_ranges(out: &mut dyn std::io::Write, what: &str, ranges: &[LostRange]) -> Result<()> {
    for LostRange {
        file,
        offset,
        bytes,
        why,
    } in ranges
    {
        writeln!(
            out,
            "{what}: {bytes} bytes of {file} at byte {offset}: {why}"
        )
        .context("cannot print")?;
    }
    Ok(())
}

/// A progress line on a terminal; nothing elsewhere.
struct Bar {
    what: &'static str,
    percent: u64,
    shown: bool,
}

impl Bar {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            percent: u64::MAX,
            shown: stderr().is_terminal(),
        }
    }

    fn show(&mut self, done: u64, total: u64) {
        let percent = (done * 100).checked_div(total).unwrap_or(100);
        if self.shown && percent != self.percent {
            self.percent = percent;
            eprint!(
                "\r{} {percent:3} %  {} of {} MiB",
                self.what,
                done >> 20,
                total >> 20
            );
        }
    }

    fn clear(&self) {
        if self.shown && self.percent != u64::MAX {
            eprint!("\r\x1b[K");
        }
    }
}
