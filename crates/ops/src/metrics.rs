//! Every number the server tells, a row each. What prints numbers walks this
//! table: `GET /server` of the API ([`samples`]), what is scraped ([`text`]), and
//! protocols, whose statistics are looked up in what [`samples`] read. The part
//! of each queue is in `queues`, the formats are in `exposition`.

mod cluster;
mod edge;
mod exposition;
mod process;
mod queues;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quintet_client::{ClusterNumbers, Exposition};
use quintet_hooks::EventStats;
use quintet_host::{Core, Holder, Point, Spread};
use quintet_otlp::Counts;
use quintet_types::ShardStats;

use crate::history::HistoryRecorder;
use crate::schedules::{Schedules, next_ms};
use crate::webhooks::Webhooks;
use cluster::{of_each, of_node, of_some};
use exposition::{Family, Text, labels};

pub use edge::{Budget, EdgeNumbers, LoginNumbers, StreamNumbers};
pub use process::Process;
pub use queues::{QueueSurvey, survey_queues};

/// How a number behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises while the process lives.
    Counter,
    Gauge,
    /// How large numbers were.
    Histogram,
}

/// One number, or one for each value of some labels.
pub struct Metric {
    /// By Prometheus' conventions, without `quintet_`: base units at the end,
    /// `_total` behind counters.
    name: &'static str,
    help: &'static str,
    kind: Kind,
    /// As `quintet stats` shows it, a `{}` for each label's value, and of a
    /// histogram one for which of its numbers is shown. Its last word says the
    /// unit, if that is not the base unit ([`Metric::per_base`]).
    stat: &'static str,
    read: Read,
}

#[derive(Clone, Copy)]
enum Read {
    One(fn(&Reading<'_>) -> u64),
    /// By these labels.
    Each(&'static [&'static str], fn(&Reading<'_>) -> Vec<Point>),
    /// The same of histograms.
    Spread(&'static [&'static str], fn(&Reading<'_>) -> Vec<Spread>),
}

/// The percentiles of a histogram in `quintet stats`.
const SHOWN: [(&str, u32); 2] = [("p50", 50), ("p99", 99)];

/// Sources of the rows.
pub struct Reading<'a> {
    /// Since the server was ready.
    pub uptime: Duration,
    pub process: Process,
    pub core: &'a Core,
    /// Summed over the shards.
    pub shard: &'a ShardStats,
    pub edge: EdgeNumbers,
    pub hooks: &'a quintet_hooks::Shared,
    pub schedules: &'a Schedules,
    pub webhooks: &'a Webhooks,
    pub histories: &'a HistoryRecorder,
    /// Spans that were made for a collector.
    pub spans: &'a Counts,
    /// The host's numbers of runs.
    pub cold: Vec<(&'static str, u64)>,
    /// Of a node of a cluster.
    pub cluster: Option<ClusterNumbers>,
}

impl Reading<'_> {
    fn cold(&self, name: &str) -> u64 {
        let found = self.cold.iter().find(|(known, _)| *known == name);
        found.expect("the host tells it").1
    }
}

macro_rules! metrics {
    (@read path $($field:ident).+) => { Read::One(|reading| reading.$($field).+) };
    (@read |$r:ident| $read:expr) => { Read::One(|$r| $read) };
    (@read Histogram [$($label:literal),*] $read:expr) => { Read::Spread(&[$($label),*], $read) };
    (@read $kind:ident [$($label:literal),*] $read:expr) => { Read::Each(&[$($label),*], $read) };
    ($($kind:ident $name:literal ($stat:literal) $help:literal = $($($field:ident).+)? $(|$r:ident| $one:expr)? $(; [$($label:literal),*] $each:expr)?;)*) => {
        /// All there are. Which protocols and hooks there are decides what labels
        /// have values.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            help: $help,
            kind: Kind::$kind,
            stat: $stat,
            read: metrics!(@read $(path $($field).+)? $(|$r| $one)? $($kind [$($label),*] $each)?),
        }),*];
    };
}

/// A number of each kind of work that held a shard while others waited.
fn of_holders(reading: &Reading<'_>, number: fn(&Holder) -> u64) -> Vec<Point> {
    let holders = reading.core.lock_holders().into_iter();
    let point = |holder: Holder| {
        (
            vec![Cow::Owned(holder.name.clone())],
            number(&holder) as f64,
        )
    };
    holders.map(point).collect()
}

/// A number of each event of hooks.
fn of_hooks(reading: &Reading<'_>, number: fn(&EventStats) -> u64) -> Vec<Point> {
    let events = reading.hooks.stats().into_iter();
    let events = events.map(|event| (vec![event.event.name().into()], number(&event) as f64));
    events.collect()
}

/// A number that may be missing.
fn alone(number: Option<u64>) -> Vec<Point> {
    number
        .map(|number| (Vec::new(), number as f64))
        .into_iter()
        .collect()
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

metrics! {
    Gauge "build_info" ("build_info_{}") "Always 1; the label has the version of the server."
        =; ["version"] |_r| vec![(vec![Cow::Borrowed(env!("CARGO_PKG_VERSION"))], 1.0)];
    Gauge "group_info" ("group_info_{}")
        "Always 1; the label has the number of the server's group of shards."
        =; ["group"] |r| vec![(vec![Cow::Owned(r.core.group().to_string())], 1.0)];
    Gauge "uptime_seconds" ("uptime_s") "Time since the server was ready." = |r| r.uptime.as_secs();
    Gauge "process_id" ("pid") "Process id." = |_r| u64::from(std::process::id());
    Counter "cpu_user_seconds_total" ("cpu_user_us") "Processor time in user mode."
        = process.cpu_user_us;
    Counter "cpu_system_seconds_total" ("cpu_system_us") "Processor time in the kernel."
        = process.cpu_system_us;
    Gauge "resident_bytes" ("resident_bytes") "Resident memory of the process."
        = process.resident_bytes;

    Gauge "connections" ("connections") "Connections open now, over all protocols." = edge.open;
    Counter "connections_accepted_total" ("connections_total") "Connections accepted."
        = edge.accepted;
    Gauge "workers" ("workers") "Known worker processes (faktory)." = edge.workers;
    Gauge "batches" ("batches") "Batches that exist." = shard.batches;
    Gauge "batches_waiting" ("batches_waiting")
        "Batches whose callback waits for room in its queue." = shard.batches_waiting;
    Gauge "tracked" ("tracked") "Tracked messages with a known state or outcome." = shard.tracked;
    Gauge "result_waiters" ("result_waiters") "Clients that wait for the result of a message."
        = shard.result_waiters;
    Counter "replies_total" ("replies") "Results put into the reply queues of messages."
        = shard.replies;
    Gauge "held" ("held") "Messages held until other messages have ended." = shard.held;
    Counter "received_bytes_total" ("bytes_read") "Bytes read from clients." = edge.bytes_read;
    Counter "sent_bytes_total" ("bytes_written") "Bytes written to clients." = edge.bytes_written;
    Gauge "connections_memory_bytes" ("connections_memory_bytes")
        "Memory that connections use for input, uploads and replies." = edge.memory.used;
    Gauge "connections_memory_max_bytes" ("connections_memory_max")
        "Limit of this memory (connection_memory)." = edge.memory.limit;
    Counter "connections_closed_for_memory_total" ("connections_closed_for_memory")
        "Connections closed because all together used too much memory." = edge.memory.turned_away;
    Counter "connections_refused_total" ("connections_refused")
        "Connections closed at once because of connections_max." = edge.refused;
    Counter "connections_accept_failed_total" ("connections_accept_failed")
        "Connections that the system failed to accept." = edge.accepts_failed;
    Counter "connections_spoke_tls_total" ("connections_spoke_tls")
        "Connections that spoke TLS to a listener without TLS." = edge.spoke_tls;
    Gauge "tls_connections" ("tls_connections")
        "Connections open now with a complete TLS handshake." = edge.tls_open;
    Counter "tls_handshakes_total" ("tls_handshakes") "Complete TLS handshakes."
        = edge.tls_handshakes;
    Counter "tls_failures_total" ("tls_failures_{}")
        "Connections closed by a TLS error, mostly in the handshake."
        =; ["reason"] |r| r.edge.tls_failures.clone();
    Gauge "tls_certificate_end_seconds" ("tls_certificate_end_s")
        "Unix time at which the first certificate of a listener expires."
        =; [] |r| alone(r.edge.certificate_end);
    Counter "connections_spoke_http_total" ("connections_spoke_http")
        "Connections closed because a web page sent a request to another protocol."
        = edge.spoke_http;
    Counter "logins_total" ("logins") "Clients that logged in." = edge.logins.ok;
    Counter "logins_failed_total" ("logins_failed") "Logins with a wrong name or secret."
        = edge.logins.failed;
    Counter "logins_throttled_total" ("logins_throttled")
        "Logins rejected unchecked because too many from their address had failed."
        = edge.logins.throttled;
    Counter "logins_busy_total" ("logins_busy")
        "Logins rejected unchecked because too many were waiting." = edge.logins.busy;
    Counter "limit_errors_total" ("limit_refusals_{}_{}")
        "Requests rejected and connections closed because of a [[limit]]."
        =; ["limit", "of"] |r| r.edge.limit_command_errors.clone();
    Counter "limit_delays_total" ("limit_delays_{}")
        "Delays of connections because of requests_per_second."
        =; ["of"] |r| r.edge.limit_delays.clone();
    Counter "commands_not_permitted_total" ("commands_not_permitted")
        "Commands rejected because a right was missing."
        = |r| r.edge.not_permitted + r.core.not_permitted();
    Gauge "upload_bytes" ("connections_upload_bytes")
        "Bytes of large messages that are still incomplete." = edge.uploads.used;
    Counter "uploads_refused_total" ("connections_uploads_refused")
        "Large messages rejected because of upload_bytes_max." = edge.uploads.turned_away;

    Gauge "log_bytes" ("log_bytes") "Size of the log on disk." = |r| of(&r.core.counts.log_bytes);
    Counter "log_rotations_total" ("log_rotations") "Segments begun."
        = |r| of(&r.core.counts.rotations);
    Counter "log_syncs_total" ("log_syncs") "Syncs of the log." = |r| of(&r.core.counts.syncs);
    Gauge "log_sync_seconds" ("log_sync_us") "Recent duration of a sync."
        = |r| u64::try_from(r.core.usual_sync().as_micros()).unwrap_or(u64::MAX);
    Counter "log_retired_total" ("log_retired") "Segments retired."
        = |r| of(&r.core.counts.retired);
    Histogram "log_sync_duration_seconds" ("log_sync_{}_us") "Duration of syncs."
        =; [] |r| vec![(Vec::new(), r.core.counts.sync_times.read())];
    Histogram "log_frame_records" ("log_frame_records_{}") "Records written together."
        =; [] |r| vec![(Vec::new(), r.core.counts.frame_records.read())];
    Gauge "disk_free_bytes" ("disk_free_bytes") "Free space of the disk with the data directory."
        =; [] |r| alone(r.core.disk_free());
    Gauge "log_shortage" ("log_shortage")
        "0: enough disk space and files; 1: too little, and puts fail; 2: takes fail too."
        = |r| r.core.shortage();
    Counter "log_records_total" ("log_records") "Records written to the log."
        = |r| of(&r.core.counts.records);
    Counter "log_records_copied_total" ("log_records_copied")
        "Records of these that were copied so that a segment could be deleted."
        = |r| of(&r.core.counts.copied);
    Counter "log_written_bytes_total" ("log_written_bytes") "Bytes written to the log."
        = |r| of(&r.core.counts.log_written);
    Counter "log_written_snapshot_bytes_total" ("log_written_snapshot_bytes")
        "Bytes of these for the snapshots at the start of segments."
        = |r| of(&r.core.counts.log_snapshots);
    Counter "log_written_copy_bytes_total" ("log_written_copy_bytes")
        "Bytes of these for messages copied so that a segment could be deleted."
        = |r| of(&r.core.counts.log_copied);

    Gauge "queues" ("queues") "Queues that exist." = shard.queues;
    Gauge "http_connections" ("http_connections")
        "Connections of HTTP and SQS open now, event streams included." = edge.http_open;
    Counter "http_connections_crowded_total" ("http_connections_crowded")
        "Connections of HTTP and SQS rejected because their address had three quarters of \
         max_connections." = edge.http_crowded;
    Gauge "event_streams" ("event_streams") "Event streams of HTTP open now." = edge.streams.open;
    Counter "event_streams_refused_total" ("event_streams_refused")
        "Event streams rejected because there were too many (max_streams) or no memory was left."
        = edge.streams.refused;
    Counter "event_streams_slow_total" ("event_streams_slow")
        "Event streams closed because their client did not read." = edge.streams.slow;
    Counter "otlp_spans_sent_total" ("otlp_spans_sent")
        "Spans that the collector accepted (otlp_endpoint)." = |r| of(&r.spans.sent);
    Counter "otlp_spans_dropped_total" ("otlp_spans_dropped")
        "Spans dropped because too many waited (otlp_spans_max), and messages not traced \
         (otlp_messages_max)." = |r| of(&r.spans.dropped);
    Counter "otlp_spans_failed_total" ("otlp_spans_failed")
        "Spans that the collector did not accept." = |r| of(&r.spans.failed);
    Gauge "history_queues" ("history_queues") "Queues with a history." = |r| r.histories.counts().0;
    Gauge "history_queues_left_out" ("history_queues_left_out")
        "Queues with traffic in the last minute but no history, because history_queues is reached."
        = |r| r.histories.counts().1;
    Counter "queues_made_total" ("queues_made") "Queues created." = shard.queues_made;
    Counter "queues_dropped_total" ("queues_dropped") "Queues dropped by command."
        = shard.queues_dropped;
    Counter "queues_expired_total" ("queues_expired") "Queues dropped because they were idle."
        = shard.queues_expired;
    Gauge "last_id" ("last_id") "Id of the newest message." = shard.last_id;
    Gauge "memory_bytes" ("memory_bytes")
        "Memory of messages, names and tables, as the memory budget counts it."
        = shard.memory_bytes;
    Gauge "dedupe_ids" ("dedupe_ids")
        "Deduplication records: ids and idempotency keys (dedupe_memory)." = shard.dedupe_ids;
    Gauge "snapshot_bytes" ("snapshot_bytes")
        "Size of the snapshot at the start of a segment: names, settings, tables, blocks."
        = shard.snapshot_bytes;

    Counter "cron_runs_total" ("cron_{}_runs") "Messages put by a [[cron]] table since the start."
        =; ["name"] |r| r.schedules.points(|item| item.runs);
    Counter "cron_missed_total" ("cron_{}_missed") "Due times that a [[cron]] table missed."
        =; ["name"] |r| r.schedules.points(|item| item.missed);
    Counter "cron_failures_total" ("cron_{}_failures") "Puts of a [[cron]] table that failed."
        =; ["name"] |r| r.schedules.points(|item| item.failures);
    Gauge "cron_paused" ("cron_{}_paused") "1 while a [[cron]] table is paused, else 0."
        =; ["name"] |r| r.schedules.points(|item| u64::from(item.is_paused()));
    Gauge "cron_next_run_timestamp_seconds" ("cron_{}_next_ms")
        "Unix time at which a [[cron]] table is due next; absent while it is paused."
        =; ["name"] |r| r.schedules.moments(next_ms);
    Gauge "cron_last_run_timestamp_seconds" ("cron_{}_last_ms")
        "Unix time of the last put of a [[cron]] table; absent before the first."
        =; ["name"] |r| r.schedules.moments(|item| item.last_run);

    Gauge "schedules" ("schedules")
        "Schedules: [[cron]] tables, and those that were created at run time."
        = |r| r.schedules.sums().schedules;
    Gauge "schedules_paused" ("schedules_paused") "Schedules that are paused."
        = |r| r.schedules.sums().paused;
    Counter "schedule_runs_total" ("schedule_runs") "Messages put by all schedules since the start."
        = |r| r.schedules.sums().runs;
    Counter "schedule_missed_total" ("schedule_missed") "Due times that schedules missed."
        = |r| r.schedules.sums().missed;
    Counter "schedule_failures_total" ("schedule_failures") "Puts of schedules that failed."
        = |r| r.schedules.sums().failures;

    Counter "webhook_events_total" ("webhook_{}_events") "Events that a [[webhook]] has accepted."
        =; ["name"] |r| r.webhooks.points(|row| Some(row.sent.load(Ordering::Relaxed)));
    Counter "webhook_failures_total" ("webhook_{}_failures")
        "Requests to a [[webhook]] that failed."
        =; ["name"] |r| r.webhooks.points(|row| Some(row.failures.load(Ordering::Relaxed)));
    Counter "webhook_gaps_total" ("webhook_{}_gaps")
        "Times that the log was retired before a [[webhook]] got its events."
        =; ["name"] |r| r.webhooks.points(|row| Some(row.gaps.load(Ordering::Relaxed)));
    Counter "webhook_gap_bytes_total" ("webhook_{}_gap_bytes")
        "Log that was retired before a [[webhook]] got its events."
        =; ["name"] |r| r.webhooks.points(|row| Some(row.gap_bytes.load(Ordering::Relaxed)));
    Gauge "webhook_lag_bytes" ("webhook_{}_lag") "Log that a [[webhook]] has not been told of."
        =; ["name"] |r| r.webhooks.points(|row| row.lag(r.core));

    Counter "clock_steps_total" ("clock_steps") "Times the wall clock was set."
        = |r| r.core.clock.steps();
    Gauge "clock_wall_ahead_seconds" ("clock_wall_ahead_ms")
        "Lead of the wall clock over the internal clock."
        = |r| r.core.clock.ahead().0.max(0).unsigned_abs();
    Gauge "clock_wall_behind_seconds" ("clock_wall_behind_ms")
        "Lag of the wall clock behind the internal clock."
        = |r| r.core.clock.ahead().0.min(0).unsigned_abs();

    Gauge "cluster_epoch" ("cluster_epoch") "Epoch of the cluster's log."
        =; [] |r| of_node(r, |n| n.epoch);
    Gauge "cluster_owner" ("cluster_owns") "1 while this node owns the queues, else 0."
        =; [] |r| of_node(r, |n| u64::from(n.owns));
    Gauge "cluster_role_seconds" ("cluster_role_s") "Time since this node has its role."
        =; [] |r| of_node(r, |n| n.role_s);
    Gauge "cluster_drained_nodes" ("cluster_drained_nodes")
        "Drained nodes, which should not own the queues." =; [] |r| of_node(r, |n| n.drained_nodes);
    Gauge "cluster_survives" ("cluster_survives")
        "1 if the cluster survives the loss of any one machine, as the owner saw it recently, else \
         0." =; [] |r| of_some(r, |n| n.survives.map(u64::from));
    Gauge "cluster_node_role" ("cluster_node_{}_{}")
        "Always 1; the labels have the node and its role, as the owner saw it recently."
        =; ["node", "role"] cluster::roles;
    Gauge "cluster_node_drained" ("cluster_node_{}_drained") "1 if the node is drained, else 0."
        =; ["node"] |r| of_each(r, |n| Some(u64::from(n.drained)));
    Gauge "cluster_standby_ready" ("cluster_standby_{}_ready")
        "1 if the node can take over at once, else 0."
        =; ["node"] |r| of_each(r, |n| Some(u64::from(n.ready)));
    Gauge "cluster_standby_lag_entries" ("cluster_standby_{}_lag_entries")
        "Log entries that the node has not applied yet."
        =; ["node"] |r| of_each(r, |n| n.lag_entries);
    Gauge "cluster_standby_lag_seconds" ("cluster_standby_{}_lag_ms")
        "99th percentile of the time from the owner's stamp until the node applied a frame, over \
         the newest frames." =; ["node"] |r| of_each(r, |n| n.lag_ms);
    Gauge "cluster_standby_runs_missing" ("cluster_standby_{}_runs_missing")
        "Runs that the node has not fetched yet." =; ["node"] |r| of_each(r, |n| n.runs_missing);
    Counter "cluster_divergences_total" ("cluster_node_{}_divergences")
        "Times that the log in a node differed from the stream."
        =; ["node"] |r| of_each(r, |n| n.divergences);
    Gauge "cluster_node_clock_off_seconds" ("cluster_node_{}_clock_off_ms")
        "Difference between the wall clock of a node and the time of the cluster."
        =; ["node"] |r| of_each(r, |n| n.clock_off_ms);
    Gauge "cluster_copy_damaged" ("cluster_copy_{}_damaged")
        "1 if the copy of the log on this NATS server lacks entries, as the owner saw it recently, \
         else 0." =; ["server"] cluster::copies;
    Gauge "cluster_tunneled_connections" ("cluster_node_{}_spliced")
        "Client connections that the node tunnels to the owner."
        =; ["node"] |r| of_each(r, |n| n.tunneled);
    Counter "cluster_takeovers_total" ("cluster_takeovers")
        "Takeovers after missing heartbeats, since this node was first a standby."
        =; [] |r| of_node(r, |n| n.takeovers);
    Counter "cluster_handovers_total" ("cluster_handovers")
        "Handoffs to another owner, since this node was first a standby."
        =; [] |r| of_node(r, |n| n.handovers);
    Counter "cluster_entries_appended_total" ("cluster_entries_appended")
        "Entries that this owner has appended." =; [] |r| of_node(r, |n| n.appended);
    Counter "cluster_entries_acked_total" ("cluster_entries_acked")
        "Entries of these that are acknowledged." =; [] |r| of_node(r, |n| n.acknowledged);
    Gauge "cluster_window_entries" ("cluster_window_entries")
        "Entries sent but not yet acknowledged (window)." =; [] |r| of_node(r, |n| n.on_way);
    Gauge "cluster_unacked_bytes" ("cluster_unacked_bytes")
        "Bytes appended but not yet acknowledged." =; [] |r| of_node(r, |n| n.unacked_bytes);
    Gauge "cluster_last_ack_age_seconds" ("cluster_last_ack_age_ms")
        "Time since the newest acknowledged entry was sent."
        =; [] |r| of_some(r, |n| n.last_ack_ms);
    Gauge "cluster_append_seconds" ("cluster_append_p99_ms")
        "99th percentile of the time from append to acknowledgement, over the newest frames."
        =; [] |r| of_some(r, |n| n.ack_p99_ms);
    Counter "cluster_resolves_total" ("cluster_resolves")
        "Queries for the fate of an unacknowledged entry." =; [] |r| of_node(r, |n| n.resolves);
    Gauge "cluster_log_entries" ("cluster_log_entries")
        "Entries of the stream, as the owner saw it recently."
        =; [] |r| of_some(r, |n| Some(n.log?.0));
    Gauge "cluster_log_bytes" ("cluster_log_bytes") "Bytes of these entries, in one copy."
        =; [] |r| of_some(r, |n| Some(n.log?.1));
    Counter "commands_unavailable_total" ("commands_unavailable")
        "Commands rejected because the servers of the log had no quorum."
        = |r| r.core.unavailable();

    Gauge "messages_ready" ("ready") "Messages that are ready and selectable." = shard.gauges.ready;
    Gauge "messages_urgent" ("urgent") "Messages of these with a priority below 1024."
        = shard.gauges.urgent;
    Gauge "messages_not_selectable" ("not_selectable") "Messages that are ready but not selectable."
        = shard.gauges.not_selectable;
    Gauge "messages_held_back" ("held_back")
        "The old name of messages_not_selectable, for one release." = shard.gauges.not_selectable;
    Gauge "messages_delayed" ("delayed") "Messages that are delayed until their due time."
        = shard.gauges.delayed;
    Gauge "messages_retrying" ("retrying") "Messages of these that have failed."
        = shard.gauges.retrying;
    Gauge "messages_reserved" ("reserved") "Messages under a lease." = shard.gauges.reserved;
    Gauge "messages_buried" ("buried") "Buried messages." = shard.gauges.buried;
    Gauge "messages_prepared" ("prepared") "Prepared messages, not yet committed."
        = shard.gauges.prepared;
    Gauge "messages_done" ("done") "Messages kept after they are done." = shard.gauges.done;
    Gauge "messages_relayed" ("relayed") "Messages kept after they were relayed."
        = shard.gauges.relayed;
    Gauge "messages_waiting_bytes" ("waiting_bytes")
        "Bytes of messages that are ready, not selectable or delayed." = shard.gauges.waiting_bytes;
    Gauge "messages_bytes" ("bytes") "Bytes of all bodies." = shard.gauges.bytes;
    Gauge "messages_cold" ("cold") "Messages in runs but not in memory." = shard.gauges.cold;
    Gauge "waiters" ("waiters") "Waiting consumers; one for each queue that a take names."
        = shard.gauges.waiters;
    Gauge "waiting_peeks" ("waiting_peeks")
        "Waiting peeks, which take no message; one for each queue that a peek names."
        = shard.gauges.waiting_peeks;
    Gauge "lookers" ("lookers") "The old name of waiting_peeks, for one release."
        = shard.gauges.waiting_peeks;
    Gauge "queue_users" ("users") "Clients that put into queues, summed over the queues."
        = shard.gauges.users;
    Gauge "queue_watchers" ("watchers") "Clients that take from queues, summed over the queues."
        = shard.gauges.watchers;

    Counter "messages_put_total" ("total_puts") "Messages put." = shard.totals.puts;
    Counter "messages_put_bytes_total" ("total_put_bytes") "Bytes of bodies put."
        = shard.totals.put_bytes;
    Counter "messages_taken_total" ("total_taken") "Messages removed by takes."
        = shard.totals.taken;
    Counter "leases_total" ("total_leases") "Leases given." = shard.totals.leases;
    Counter "leases_finished_total" ("total_finished") "Leases finished." = shard.totals.finished;
    Counter "messages_deleted_total" ("total_deleted") "Messages deleted by id."
        = shard.totals.deleted;
    Counter "leases_released_total" ("total_releases") "Messages released by their holder."
        = shard.totals.releases;
    Counter "leases_canceled_total" ("total_cancels") "Leases ended by a disconnect or a restart."
        = shard.totals.cancels;
    Counter "leases_timed_out_total" ("total_timeouts") "Leases that ran out."
        = shard.totals.timeouts;
    Counter "tries_failed_total" ("total_failures")
        "Failed tries, as the settings of queues count them." = shard.totals.failures;
    Counter "buries_total" ("total_buries") "Messages buried." = shard.totals.buries;
    Counter "messages_kicked_total" ("total_kicks") "Messages kicked." = shard.totals.kicks;
    Counter "messages_expired_total" ("total_expired") "Messages that expired."
        = shard.totals.expired;
    Counter "messages_discarded_total" ("total_discarded")
        "Messages dropped because their queue was full." = shard.totals.discarded;
    Counter "messages_replaced_total" ("total_replaced")
        "Dropped messages that a put with their deduplication id replaced." = shard.totals.replaced;
    Counter "messages_given_up_total" ("total_failed")
        "Dropped messages that failed and do not allow another try." = shard.totals.failed;
    Counter "messages_restored_total" ("total_restored")
        "Messages that a take had removed and that came back, as its reply could not be sent."
        = shard.totals.restored;
    Counter "messages_cancelled_total" ("total_cancelled") "Messages that were cancelled."
        = shard.totals.cancelled;
    Counter "messages_flushed_total" ("total_flushed") "Messages discarded by flush."
        = shard.totals.flushed;
    Counter "flushes_total" ("total_flushes") "Flushes." = shard.totals.flushes;
    Counter "messages_moved_out_total" ("total_moved_out") "Messages moved to another queue."
        = shard.totals.moved_out;
    Counter "messages_dead_moved_total" ("total_dead_moved")
        "Messages moved by the dead-letter rule." = shard.totals.dead_moved;
    Counter "messages_expired_moved_total" ("total_expired_moved")
        "Messages moved because they expired." = shard.totals.expired_moved;
    Counter "messages_moved_in_total" ("total_moved_in") "Messages moved from another queue."
        = shard.totals.moved_in;
    Counter "dead_letters_total" ("total_dead_letters")
        "Messages to which the dead-letter rule was applied." = shard.totals.dead_letters;
    Counter "peeks_total" ("total_peeks") "Peeks that found a message." = shard.totals.peeks;
    Counter "looks_total" ("total_looks") "The old name of peeks_total, for one release."
        = shard.totals.peeks;
    Counter "takes_missed_total" ("total_misses") "Takes that found nothing." = shard.totals.misses;
    Counter "messages_skipped_total" ("total_skipped")
        "Messages skipped because a protocol cannot frame their body." = shard.totals.skipped;
    Counter "puts_refused_full_total" ("total_refused_full")
        "Puts rejected because the queue was full." = shard.totals.refused_full;
    Counter "puts_repeated_total" ("total_repeats") "Puts answered as duplicates."
        = shard.totals.repeats;
    Counter "pauses_total" ("total_pauses") "Commands that paused or resumed a queue."
        = shard.totals.pauses;
    Counter "delete_commands_total" ("total_delete_commands")
        "Deletes by id, leases finished included." = shard.totals.delete_commands;

    Gauge "cold_messages" ("cold_messages")
        "Messages in runs, including those that are also in memory." = |r| r.cold("messages");
    Gauge "cold_runs" ("cold_runs") "Runs in use." = |r| r.cold("runs");
    Gauge "cold_run_bytes" ("cold_run_bytes") "Size of the runs on disk." = |r| r.cold("run_bytes");
    Gauge "cold_live_ratio" ("cold_live_percent")
        "Part of the content of runs that is still in use." = |r| r.cold("live_percent");
    Gauge "cold_blocks" ("cold_blocks") "Blocks in use." = |r| r.cold("blocks");
    Gauge "cold_blocks_loaded" ("cold_blocks_loaded")
        "Blocks of these whose messages are in memory too." = |r| r.cold("blocks_loaded");
    Gauge "cold_messages_damaged" ("cold_messages_damaged") "Messages that cannot be read."
        = |r| r.cold("messages_damaged");
    Counter "cold_spilled_total" ("cold_spilled") "Messages moved from memory to runs."
        = |r| r.cold("spilled");
    Counter "cold_spilled_bytes_total" ("cold_spilled_bytes") "Bytes of these messages."
        = |r| r.cold("spilled_bytes");
    Gauge "cold_spill_rate" ("cold_spilled_per_s")
        "Messages a second recently moved from memory to runs." = |r| r.cold("spilled_per_s");
    Counter "cold_fetched_total" ("cold_fetched") "Messages read from runs."
        = |r| r.cold("fetched");
    Counter "cold_fetched_blocks_total" ("cold_fetched_blocks") "Blocks read."
        = |r| r.cold("fetched_blocks");
    Gauge "cold_fetch_rate" ("cold_fetched_per_s") "Messages a second recently read from runs."
        = |r| r.cold("fetched_per_s");
    Counter "cold_runs_rewritten_total" ("cold_runs_rewritten")
        "Runs rewritten without their gone messages." = |r| r.cold("runs_rewritten");
    Counter "cold_read_errors_total" ("cold_read_errors") "Reads of runs that failed."
        = |r| r.cold("read_errors");

    Counter "commands_total" ("{}_commands_{}") "Commands executed for clients, by protocol."
        =; ["protocol", "command"] |r| r.edge.commands.clone();
    Counter "errors_total" ("{}_refusals_{}") "Command errors, by protocol and reason."
        =; ["protocol", "reason"] |r| r.edge.command_errors.clone();
    Histogram "reply_seconds" ("{}_{}_{}_us")
        "Time from the arrival of a request to its reply, without waits for messages."
        =; ["protocol", "family"] |r| r.edge.latencies.clone();
    Counter "http_replies_total" ("http_replies_{}_{}")
        "HTTP replies, by request family and status."
        =; ["family", "status"] |r| r.edge.http_replies.clone();
    Counter "sqs_replies_total" ("sqs_replies_{}_{}") "SQS replies, by request family and status."
        =; ["family", "status"] |r| r.edge.sqs_replies.clone();
    Counter "protocol_counts_total" ("{}_{}") "Counters of single protocols, by name."
        =; ["protocol", "what"] |r| r.edge.protocol_counts.clone();
    Counter "shard_lock_waits_total" ("lock_{}_waits")
        "Times that work made others wait for a shard for more than 1 ms."
        =; ["holder"] |r| of_holders(r, |holder| holder.times);
    Counter "shard_lock_wait_seconds_total" ("lock_{}_us") "Duration of these waits."
        =; ["holder"] |r| of_holders(r, |holder| holder.total_us);
    Gauge "shard_lock_wait_longest_seconds" ("lock_{}_longest_us")
        "Longest of these waits since the start."
        =; ["holder"] |r| of_holders(r, |holder| holder.longest_us);
    Counter "hook_calls_total" ("hook_{}_calls") "Calls of hook functions."
        =; ["event"] |r| of_hooks(r, |event| event.calls);
    Counter "hook_errors_total" ("hook_{}_errors") "Calls of hook functions that failed."
        =; ["event"] |r| of_hooks(r, |event| event.errors);
    Counter "hook_seconds_total" ("hook_{}_us") "Time spent in hook functions."
        =; ["event"] |r| of_hooks(r, |event| event.ns / 1000);
    Gauge "hook_metric" ("hook_metric_{}") "Sums that hooks keep themselves (quintet.metric)."
        =; ["name"] |r| {
            let sums = r.hooks.metrics.all().into_iter();
            sums.map(|(name, sum)| (vec![String::from(name).into()], sum)).collect()
        };
}

impl Metric {
    /// How many of what `quintet stats` shows are one of the units that
    /// Prometheus gets.
    fn per_base(&self) -> f64 {
        match self.stat.rsplit('_').next() {
            Some("us") => 1e6,
            Some("ms") => 1e3,
            Some("percent") => 1e2,
            Some(_) | None => 1.0,
        }
    }

    fn labels(&self) -> &'static [&'static str] {
        match self.read {
            Read::One(_) => &[],
            Read::Each(labels, _) | Read::Spread(labels, _) => labels,
        }
    }

    fn points(&self, reading: &Reading<'_>) -> Points {
        match self.read {
            Read::One(read) => Points::Numbers(vec![(Vec::new(), read(reading) as f64)]),
            Read::Each(_, read) => Points::Numbers(read(reading)),
            Read::Spread(_, read) => Points::Spreads(read(reading)),
        }
    }
}

/// Points of a row.
enum Points {
    Numbers(Vec<Point>),
    Spreads(Vec<Spread>),
}

impl Points {
    /// As `quintet stats` shows them; of a histogram nothing while it is empty.
    fn shown(self) -> Vec<Point> {
        match self {
            Points::Numbers(numbers) => numbers,
            Points::Spreads(spreads) => {
                let shown = spreads.into_iter().flat_map(|(values, spread)| {
                    SHOWN.iter().filter_map(move |&(name, per_cent)| {
                        let number = spread.percentile(per_cent)? as f64;
                        Some(([&values[..], &[name.into()]].concat(), number))
                    })
                });
                shown.collect()
            }
        }
    }
}

/// All numbers, under the names `quintet stats` has for them.
pub fn samples(reading: &Reading<'_>) -> Vec<(Cow<'static, str>, f64)> {
    let mut all = Vec::new();
    for metric in METRICS {
        for (values, number) in metric.points(reading).shown() {
            let mut stat = Cow::Borrowed(metric.stat);
            for value in values {
                stat = stat.replacen("{}", &value, 1).into();
            }
            all.push((stat, number));
        }
    }
    all
}

/// Old names of metrics, written for one release, and their names now.
const OLD_NAMES: &[(&str, &str)] = &[
    ("voice_counts_total", "protocol_counts_total"),
    ("refusals_total", "errors_total"),
    ("limit_refusals_total", "limit_errors_total"),
    (
        "cluster_spliced_connections",
        "cluster_tunneled_connections",
    ),
];

/// All numbers of the table, and those of `queues` if they are given.
pub fn text(
    reading: &Reading<'_>,
    queues: Option<&QueueSurvey>,
    exposition: Exposition,
    names: &[String],
) -> String {
    let mut text = Text::new(exposition, names);
    for metric in METRICS {
        write(metric, || metric.points(reading), &mut text);
        let old = OLD_NAMES.iter().find(|(_, name)| *name == metric.name);
        if let Some(&(name, _)) = old {
            let old = Metric { name, ..*metric };
            write(&old, || old.points(reading), &mut text);
        }
    }
    if let Some(queues) = queues {
        queues::write(queues, &mut text);
    }
    text.end()
}

fn write(metric: &Metric, points: impl FnOnce() -> Points, text: &mut Text) {
    let Metric {
        name, help, kind, ..
    } = *metric;
    let family = Family { name, help, kind };
    if !text.begin(family) {
        return;
    }
    let labelled = |values: Vec<Cow<'static, str>>| {
        let values = values.iter().map(|value| &**value);
        labels(metric.labels().iter().copied().zip(values))
    };
    match points() {
        Points::Numbers(numbers) => {
            for (values, number) in numbers {
                text.number(family, &labelled(values), number / metric.per_base());
            }
        }
        Points::Spreads(spreads) => {
            for (values, spread) in spreads {
                text.spread(family, &labelled(values), &spread, metric.per_base());
            }
        }
    }
}

#[cfg(test)]
mod tests;
