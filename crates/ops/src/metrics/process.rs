//! The kernel's report of this process.

/// The kernel's report of this process. Zeros where it has none.
#[derive(Clone, Copy, Default)]
pub struct Process {
    /// Processor time in user mode, microseconds.
    pub cpu_user_us: u64,
    /// The same in the kernel.
    pub cpu_system_us: u64,
    pub resident_bytes: u64,
}

impl Process {
    /// Reads `/proc/self`; zeros where that fails.
    pub fn read() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Fields are counted behind the name, which may hold spaces.
        let Some((_, fields)) = text.rsplit_once(')') else {
            return Self::default();
        };
        let field = |at: usize| -> u64 {
            let field = fields.split_ascii_whitespace().nth(at);
            field.and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // proc_pid_stat(5): utime is field 14, stime 15, rss, in pages, 24; the
        // state, here 0, is 3.
        Self {
            cpu_user_us: field(11) * tick_us,
            cpu_system_us: field(12) * tick_us,
            resident_bytes: field(21) * rustix::param::page_size() as u64,
        }
    }
}
