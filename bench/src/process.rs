//! Usage of another process, from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// A process's usage so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time of all its threads, in user and kernel; the kernel
    /// tells it in steps of usually 10 ms.
    pub cpu: Duration,
    /// Bytes resident in memory now.
    pub resident: u64,
    /// Of them `RssAnon`: what it allocated.
    pub anon: u64,
    /// Of them `RssFile`: of its program and of files it mapped.
    pub file: u64,
}

impl Usage {
    /// Of the process with this id.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let ticks = cpu_ticks(&read("stat")?).context("an unknown form of /proc/PID/stat")?;
        let per_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
        let status = read("status")?;
        let memory = memory(&status).context("an unknown form of /proc/PID/status")?;
        Ok(Self {
            cpu: Duration::from_secs(1) * ticks / per_second,
            ..memory
        })
    }

    /// Takes in the memory of another look: the most of each kind, and of all at one time.
    pub fn raise(&mut self, memory: Self) {
        self.resident = self.resident.max(memory.resident);
        self.anon = self.anon.max(memory.anon);
        self.file = self.file.max(memory.file);
    }
}

/// The memory in proc_pid_status(5); a process that has ended has no such lines.
fn memory(status: &str) -> Option<Usage> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib = line.strip_suffix(" kB")?.trim();
        Some(kib.parse::<u64>().ok()? * 1024)
    };
    Some(Usage {
        cpu: Duration::ZERO,
        resident: bytes("VmRSS:")?,
        anon: bytes("RssAnon:")?,
        file: bytes("RssFile:")?,
    })
}

/// `utime` and `stime`: fields 14 and 15 of proc_pid_stat(5). The name of the
/// program, field 2, is in brackets and may hold anything.
fn cpu_ticks(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let kernel: u32 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_ticks, memory};

    #[test]
    fn the_name_of_a_program_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 100 0 0 0 25 17 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn kinds_apart() {
        let status = "Name:\tx\nVmRSS:\t    9 kB\nRssAnon:\t    2048 kB\nRssFile:\t   3 kB\n";
        let found = memory(status).unwrap();
        assert_eq!((found.anon, found.file), (2 << 20, 3 << 10));
        assert_eq!(found.resident, 9 << 10);
        assert!(memory("Name:\tgone\nState:\tZ (zombie)\n").is_none());
    }

    #[test]
    fn a_peak_of_the_sum_is_of_one_moment() {
        let mut peak = Usage::default();
        for (anon, file) in [(5, 1), (1, 4)] {
            peak.raise(Usage {
                anon,
                file,
                resident: anon + file,
                ..Usage::default()
            });
        }
        assert_eq!((peak.anon, peak.file, peak.resident), (5, 4, 6));
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 0);
        assert!(Usage::of(u32::MAX).is_err());
    }
}
