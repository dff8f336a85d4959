//! Every number the server tells, a row each. What prints numbers goes through
//! [`samples`]: the control channel today, `/metrics` tomorrow.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_engine::{QueueGauges, QueueTotals};
use quintet_wire::ServerStats;

use crate::server::Server;

/// How a number behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Only rises while the process lives.
    Counter,
    Gauge,
}

/// One number of the server as a whole.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "`/metrics`, which shows name, help and kind, is not there yet"
    )
)]
pub(crate) struct Metric {
    /// By Prometheus' conventions, without `quintet_`: base units at the end,
    /// `_total` behind counters.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    /// As `quintet stats` shows it.
    pub(crate) stat: &'static str,
    read: fn(&Reading<'_>) -> u64,
}

/// What rows read from.
pub(crate) struct Reading<'a> {
    pub(crate) server: &'a Server,
    /// With the shards summed.
    pub(crate) stats: &'a ServerStats,
}

/// A number as it was read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// As `quintet stats` shows it.
    pub(crate) stat: Cow<'static, str>,
    pub(crate) value: f64,
}

macro_rules! metrics {
    ($($kind:ident $name:literal ($stat:literal) $help:literal = $read:expr;)*) => {
        /// The numbers that are there whatever voices and hooks there are.
        pub(crate) const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            help: $help,
            kind: Kind::$kind,
            stat: $stat,
            read: $read,
        }),*];
    };
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

metrics! {
    Gauge "uptime_seconds" ("uptime_s") "Since the server was ready."
        = |r| r.stats.uptime_s;
    Gauge "process_id" ("pid") "Process id."
        = |r| u64::from(r.stats.pid);
    Counter "cpu_user_microseconds_total" ("cpu_user_us") "Processor time in user mode."
        = |r| r.stats.cpu_user_us;
    Counter "cpu_system_microseconds_total" ("cpu_system_us") "Processor time in the kernel."
        = |r| r.stats.cpu_system_us;
    Gauge "resident_bytes" ("resident_bytes") "Resident memory of the process."
        = |r| r.stats.resident_bytes;

    Gauge "connections" ("connections") "Connections open now, over all voices."
        = |r| r.stats.connections;
    Counter "connections_total" ("connections_total") "Connections accepted."
        = |r| r.stats.connections_total;
    Counter "received_bytes_total" ("bytes_read") "Bytes read from clients."
        = |r| r.stats.bytes_read;
    Counter "sent_bytes_total" ("bytes_written") "Bytes written to clients."
        = |r| r.stats.bytes_written;
    Gauge "connections_memory_bytes" ("connections_memory_bytes")
        "Held by connections for input, uploads and replies."
        = |r| r.server.connection_memory.used();
    Gauge "connections_memory_max_bytes" ("connections_memory_max")
        "As much as they may hold (connection_memory)."
        = |r| r.server.connection_memory.limit();
    Counter "connections_closed_for_memory_total" ("connections_closed_for_memory")
        "Closed because all together held too much."
        = |r| r.server.connection_memory.turned_away();
    Counter "connections_refused_total" ("connections_refused") "Closed as they came (connections_max)."
        = |r| r.server.guests.refused();
    Counter "connections_accept_failed_total" ("connections_accept_failed")
        "Connections the system could not give."
        = |r| of(&r.server.accepts_failed);
    Counter "connections_spoke_http_total" ("connections_spoke_http")
        "Closed because a web page's request came to another voice."
        = |r| of(&r.server.spoke_http);
    Gauge "upload_bytes" ("connections_upload_bytes") "Of large messages that are not whole yet."
        = |r| r.server.uploads.used();
    Counter "uploads_refused_total" ("connections_uploads_refused")
        "Large messages refused (upload_bytes_max)."
        = |r| r.server.uploads.turned_away();

    Gauge "log_bytes" ("log_bytes") "The log on disk."
        = |r| r.stats.log_bytes;
    Counter "log_rotations_total" ("log_rotations") "Segments begun."
        = |r| r.stats.log_rotations;
    Counter "log_syncs_total" ("log_syncs") "Times the log was synced."
        = |r| of(&r.server.core.counts.syncs);
    Gauge "log_sync_microseconds" ("log_sync_us") "What a sync took lately."
        = |r| u64::try_from(r.server.core.usual_sync().as_micros()).unwrap_or(u64::MAX);
    Counter "log_retired_total" ("log_retired") "Segments retired."
        = |r| r.stats.log_retired;
    Gauge "log_shortage" ("log_shortage") "1 while the disk or files are short, else 0."
        = |r| r.server.core.shortage();
    Counter "log_written_bytes_total" ("log_written_bytes") "Bytes written to the log."
        = |r| of(&r.server.core.counts.log_written);
    Counter "log_written_snapshot_bytes_total" ("log_written_snapshot_bytes")
        "Of them, what segments begin with."
        = |r| of(&r.server.core.counts.log_snapshots);
    Counter "log_written_copy_bytes_total" ("log_written_copy_bytes")
        "Of them, messages written again so that a segment can go."
        = |r| of(&r.server.core.counts.log_copied);

    Gauge "queues" ("queues") "Queues there are."
        = |r| r.stats.shard.queues;
    Counter "queues_made_total" ("queues_made") "Queues made."
        = |r| r.stats.shard.queues_made;
    Counter "queues_dropped_total" ("queues_dropped") "Queues dropped by command."
        = |r| r.stats.shard.queues_dropped;
    Counter "queues_expired_total" ("queues_expired") "Queues dropped because nobody used them (idle)."
        = |r| r.stats.shard.queues_expired;
    Gauge "last_id" ("last_id") "The newest message's id."
        = |r| r.stats.shard.last_id;
    Gauge "memory_bytes" ("memory_bytes") "Messages, names and tables in memory, as the budget counts them."
        = |r| r.stats.shard.memory_bytes;
    Gauge "snapshot_bytes" ("snapshot_bytes") "What a segment begins with: names, settings, tables, blocks."
        = |r| r.stats.shard.snapshot_bytes;

    Counter "clock_steps_total" ("clock_steps") "Times somebody set the wall clock."
        = |r| r.server.core.clock.steps();
    Gauge "clock_wall_ahead_milliseconds" ("clock_wall_ahead_ms") "The wall clock is ahead of time inside."
        = |r| r.server.core.clock.ahead().0.max(0).unsigned_abs();
    Gauge "clock_wall_behind_milliseconds" ("clock_wall_behind_ms") "The wall clock is behind time inside."
        = |r| r.server.core.clock.ahead().0.min(0).unsigned_abs();
}

/// All numbers, those of voices, states, runs and hooks included.
pub(crate) fn samples(reading: &Reading<'_>) -> Vec<Sample> {
    let Reading { server, stats } = reading;
    let mut all = Vec::new();
    let mut add = |stat: Cow<'static, str>, value: f64| all.push(Sample { stat, value });
    for metric in METRICS {
        add(metric.stat.into(), (metric.read)(reading) as f64);
    }
    let shard = &stats.shard;
    for (name, value) in QueueGauges::NAMES.iter().zip(shard.gauges.values()) {
        add((*name).into(), value as f64);
    }
    for (name, value) in QueueTotals::NAMES.iter().zip(shard.totals.values()) {
        add(format!("total_{name}").into(), value as f64);
    }
    for (voice, name, value) in server.voice_counters() {
        add(format!("{voice}_{name}").into(), value as f64);
    }
    for (name, value) in server.core.cold_numbers(&shard.cold) {
        add(format!("cold_{name}").into(), value as f64);
    }
    for (name, value) in server.hook_numbers() {
        add(name.into(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_there_once() {
        let mut names = std::collections::BTreeSet::new();
        let mut stats = std::collections::BTreeSet::new();
        for metric in METRICS {
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(metric.name.chars().all(plain), "{}", metric.name);
            let total = metric.name.ends_with("_total");
            assert_eq!(total, metric.kind == Kind::Counter, "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(names.insert(metric.name) && stats.insert(metric.stat));
        }
    }
}
