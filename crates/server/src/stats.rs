//! What sessions ask the host: numbers, the configuration, a stop.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_engine::{Caller, Command, Outcome, StatsOf, StatsReply};
use quintet_host::{Decided, locked};
use quintet_wire::{Given, HostAsk, ServerStats, VOICES};

use crate::config::{Secrets, print};
use crate::metrics::{Reading, samples};
use crate::server::{Listening, Order, Server};

impl Server {
    /// Answers what a session of this listener asks the host.
    pub(crate) fn answer(&self, ask: HostAsk, listening: &Listening) -> Given {
        match ask {
            HostAsk::Stats => Given::Server(Box::new(self.stats(listening.tally))),
            HostAsk::Foreign(foreign) => {
                listening.tell_foreign(foreign);
                Given::Own
            }
            HostAsk::Reload => Given::Host(self.order(Order::Reload)),
            HostAsk::Config => Given::Host(Ok(print(&locked(&self.config), Secrets::Hidden))),
            HostAsk::Shutdown if self.limits.allow_shutdown.load(Ordering::Relaxed) => {
                Given::Host(self.order(Order::Stop))
            }
            HostAsk::Shutdown => Given::Host(Err(
                "shutdown is not allowed: set allow_shutdown = true".to_owned(),
            )),
        }
    }

    /// Every counter of the voices that are spoken.
    pub(crate) fn voice_counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all = Vec::new();
        for (tally, voice) in VOICES.iter().enumerate() {
            if self.listeners.iter().any(|l| l.tally == tally) {
                let mut sum = Vec::new();
                for thread in &self.threads {
                    thread.tallies[tally].add_to(&mut sum);
                }
                let named = voice.tally_names.iter().zip(sum);
                all.extend(named.map(|(name, value)| (voice.name, *name, value)));
            }
        }
        all
    }

    /// What hooks did, by event, and what they count themselves.
    pub(crate) fn hook_numbers(&self) -> Vec<(String, f64)> {
        let shared = self.hooks.shared();
        let mut all = Vec::new();
        for event in shared.stats() {
            let name = event.event.name();
            for (what, value) in [
                ("calls", event.calls),
                ("errors", event.errors),
                ("us", event.ns / 1000),
            ] {
                all.push((format!("hook_{name}_{what}"), value as f64));
            }
        }
        let metrics = shared.metrics.all().into_iter();
        all.extend(metrics.map(|(name, value)| (format!("hook_metric_{name}"), value)));
        all
    }

    /// The last error of each event that had one.
    fn hook_errors(&self) -> Vec<(String, String)> {
        let events = self.hooks.shared().stats().into_iter();
        let errors = events.filter_map(|event| {
            let last = event.last?.to_string();
            Some((format!("hook_{}_last_error", event.event.name()), last))
        });
        errors.collect()
    }

    fn order(&self, order: Order) -> Result<String, String> {
        self.orders
            .send(order)
            .map_err(|_| "the server is stopping".to_owned())?;
        Ok(String::new())
    }

    fn stats(&self, tally: usize) -> ServerStats {
        let mut stats = ServerStats {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            time_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            connections: self.guests.open(),
            connections_total: self.guests.total(),
            log_bytes: self.core.counts.log_bytes.load(Ordering::Relaxed),
            log_rotations: self.core.counts.rotations.load(Ordering::Relaxed),
            log_retired: self.core.counts.retired.load(Ordering::Relaxed),
            log_segments: self.core.log_span(),
            segment_bytes: locked(&self.config).segment_bytes,
            log_records: self.core.counts.records.load(Ordering::Relaxed),
            log_copied: self.core.counts.copied.load(Ordering::Relaxed),
            instance: self.instance,
            machine: machine(),
            draining: self.draining.load(Ordering::Relaxed),
            ..ServerStats::default()
        };
        for thread in &self.threads {
            stats.bytes_read += thread.bytes_read.load(Ordering::Relaxed);
            stats.bytes_written += thread.bytes_written.load(Ordering::Relaxed);
            thread.tallies[tally].add_to(&mut stats.tally);
        }
        stats.errors = self.hook_errors();
        process(&mut stats);
        let ask = Command::Stats(StatsOf::Shard);
        let asked = self
            .core
            .visit(|access| access.submit(Caller::default(), ask));
        if let Decided::Now(Outcome::Stats(reply), ..) = asked
            && let StatsReply::Shard(shard) = *reply
        {
            stats.shard = shard;
        }
        let reading = Reading {
            server: self,
            stats: &stats,
        };
        let numbers = samples(&reading).into_iter();
        stats.numbers = numbers.map(|sample| (sample.stat, sample.value)).collect();
        stats
    }
}

/// What the kernel knows of the machine.
fn machine() -> [String; 3] {
    let uname = rustix::system::uname();
    [uname.nodename(), uname.version(), uname.machine()]
        .map(|text| text.to_string_lossy().into_owned())
}

/// What the kernel knows of this process. Zeros where it does not say.
fn process(stats: &mut ServerStats) {
    if let Ok(text) = std::fs::read_to_string("/proc/self/stat")
        // Fields are counted behind the name, which may hold spaces.
        && let Some((_, fields)) = text.rsplit_once(')')
    {
        let field = |at: usize| -> u64 {
            fields
                .split_ascii_whitespace()
                .nth(at)
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // proc_pid_stat(5): utime is field 14, stime 15; the state, here 0, is 3.
        stats.cpu_user_us = field(11) * tick_us;
        stats.cpu_system_us = field(12) * tick_us;
        let page = rustix::param::page_size() as u64;
        stats.resident_bytes = field(21) * page;
    }
}
