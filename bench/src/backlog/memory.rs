//! How much memory a process has, apart by kind, and its peaks.

use std::fs;

use anyhow::{Context, Result};

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
    /// Takes in another look.
    pub(crate) fn raise(&mut self, memory: Memory) {
        self.anon = self.anon.max(memory.anon);
        self.file = self.file.max(memory.file);
        self.sum = self.sum.max(memory.sum());
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Peak};

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
}
