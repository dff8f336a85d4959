//! How much memory a process has, apart by kind, and its peaks.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How often a watch looks.
const LOOK: Duration = Duration::from_millis(50);

/// Resident memory of a process, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// `RssAnon`: what it allocated.
    pub(crate) anon: u64,
    /// `RssFile`: of its program and of files it mapped.
    pub(crate) file: u64,
}

impl Memory {
    /// Of the process with this id.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("an unknown form of {path}"))
    }

    /// proc_pid_status(5); a process that has ended has no such lines.
    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib = line.strip_suffix(" kB")?.trim();
            Some(kib.parse::<u64>().ok()? * 1024)
        };
        Some(Self {
            anon: bytes("RssAnon:")?,
            file: bytes("RssFile:")?,
        })
    }

    /// Both.
    pub(crate) fn sum(self) -> u64 {
        self.anon + self.file
    }
}

/// The most of each kind, and of both at one time, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    pub(crate) anon: u64,
    pub(crate) file: u64,
    pub(crate) sum: u64,
}

impl Peak {
    fn raise(&mut self, memory: Memory) {
        self.anon = self.anon.max(memory.anon);
        self.file = self.file.max(memory.file);
        self.sum = self.sum.max(memory.sum());
    }
}

/// A thread that looks at a process's memory until it is told to end.
pub(crate) struct Watch {
    end: Sender<()>,
    thread: JoinHandle<Result<Peak>>,
}

impl Watch {
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(pid: u32) -> Result<Self> {
        let (end, ended) = mpsc::channel();
        let watch = move || {
            let mut peak = Peak::default();
            loop {
                peak.raise(Memory::of(pid)?);
                // Told, or dropped.
                if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                    return Ok(peak);
                }
            }
        };
        let named = std::thread::Builder::new().name("watch".into());
        let thread = named.spawn(watch).context("cannot start a thread")?;
        Ok(Self { end, thread })
    }

    /// What it saw, at least once.
    ///
    /// # Errors
    /// The process ended meanwhile.
    pub(crate) fn end(self) -> Result<Peak> {
        drop(self.end);
        match self.thread.join() {
            Ok(peak) => peak,
            Err(_) => bail!("the watch panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Peak, Watch};

    #[test]
    fn kinds_apart() {
        let status = "Name:\tx\nVmRSS:\t    9 kB\nRssAnon:\t    2048 kB\nRssFile:\t   3 kB\n";
        let found = Memory::parse(status).unwrap();
        assert_eq!((found.anon, found.file), (2 << 20, 3 << 10));
        assert_eq!(found.sum(), (2 << 20) + (3 << 10));
        assert_eq!(Memory::parse("Name:\tgone\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_peak_of_the_sum_is_of_one_moment() {
        let mut peak = Peak::default();
        peak.raise(Memory { anon: 5, file: 1 });
        peak.raise(Memory { anon: 1, file: 4 });
        assert_eq!((peak.anon, peak.file, peak.sum), (5, 4, 6));
    }

    #[test]
    fn a_watch_sees_this_process() {
        let watch = Watch::start(std::process::id()).unwrap();
        assert!(watch.end().unwrap().sum > 0);
        assert!(Watch::start(u32::MAX).unwrap().end().is_err());
    }
}
