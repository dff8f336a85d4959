//! YAML, key by key as beanstalkd 1.13 writes it.

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use quintet_types::{Batch, MessageStats, Ms, Name, QueueStats, ServerStats, Track};

use super::names::{DEFAULT, is_tube};
use super::{Count, Shared, TALLY_NAMES};
use crate::output::Output;

/// A document being written.
#[derive(Debug, PartialEq)]
struct Yaml(String);

impl Yaml {
    fn new() -> Self {
        Self("---\n".to_owned())
    }

    fn pair(&mut self, key: &str, value: impl fmt::Display) {
        // Writing to a string cannot fail.
        writeln!(self.0, "{key}: {value}").ok();
    }

    fn text(&mut self, key: &str, value: impl fmt::Display) {
        self.pair(key, format_args!("\"{value}\""));
    }

    fn item(&mut self, name: &[u8]) {
        self.0.push_str("- ");
        // Legal names are ASCII.
        self.0.extend(name.iter().map(|&byte| char::from(byte)));
        self.0.push('\n');
    }

    fn send(self, output: &mut Output) {
        output.put(b"OK ");
        output.block_of(self.0.as_bytes());
    }
}

/// True if clients see the queue as a tube: one of a legal name in which
/// something is, or to which somebody refers.
pub(super) fn is_shown(queue: &QueueStats) -> bool {
    let held = &queue.gauges;
    let jobs = held.ready
        + held.not_selectable
        + held.delayed
        + held.reserved
        + held.buried
        + held.prepared
        + held.waiters;
    let name = queue.name.as_bytes();
    let alive = jobs + held.users + held.watchers > 0 || queue.paused;
    is_tube(name) && (alive || name == DEFAULT)
}

/// The names of the tubes among these queues, but for `default`, which is
/// always there.
pub(super) fn tubes(queues: &[QueueStats]) -> impl Iterator<Item = &[u8]> {
    let shown = queues.iter().filter(|queue| is_shown(queue));
    let names = shown.map(|queue| queue.name.as_bytes());
    names.filter(|name| *name != DEFAULT)
}

/// So many tubes are listed in order; more would hold others up.
const SORTED_MAX: usize = 1024;

/// A list of tubes being made: its length goes ahead of it.
#[derive(Debug, PartialEq)]
pub(super) struct Tubes {
    yaml: Yaml,
    count: usize,
}

impl Tubes {
    /// With `default`.
    pub(super) fn new() -> Self {
        let mut yaml = Yaml::new();
        yaml.item(DEFAULT);
        Self { yaml, count: 0 }
    }

    /// Adds one that is not `default`.
    pub(super) fn add(&mut self, name: &[u8]) {
        self.yaml.item(name);
        self.count += 1;
    }

    /// Bytes of memory it takes.
    pub(super) fn capacity(&self) -> usize {
        self.yaml.0.capacity()
    }

    pub(super) fn send(self, output: &mut Output) {
        if self.count > SORTED_MAX {
            return self.yaml.send(output);
        }
        let mut lines: Vec<&str> = self.yaml.0.split_inclusive('\n').collect();
        // Behind the head of the document and `default`.
        if let Some(names) = lines.get_mut(2..) {
            names.sort_unstable();
        }
        Yaml(lines.concat()).send(output);
    }
}

pub(super) fn list<'a>(names: impl Iterator<Item = &'a [u8]>, output: &mut Output) {
    let mut yaml = Yaml::new();
    names.for_each(|name| yaml.item(name));
    yaml.send(output);
}

/// Milliseconds as the whole seconds in them.
fn seconds(ms: u64) -> u64 {
    ms / 1000
}

/// The whole seconds left of a time that has begun, however lately: of 10
/// seconds 9, as beanstalkd shows it.
fn seconds_left(ms: u64) -> u64 {
    seconds(ms.saturating_sub(1))
}

pub(super) fn job(stats: &MessageStats, output: &mut Output) {
    let message = &stats.message;
    let extra = message.extra.as_deref();
    let mut yaml = Yaml::new();
    yaml.pair("id", message.id.0);
    yaml.text("tube", &stats.queue);
    yaml.pair("state", stats.state_word());
    yaml.pair("pri", message.priority);
    yaml.pair("age", seconds(stats.age_ms));
    yaml.pair("delay", seconds(extra.map_or(0, |extra| extra.delay_ms)));
    yaml.pair("ttr", seconds(stats.ttr_ms));
    yaml.pair("time-left", seconds_left(stats.left_ms));
    let file = stats.logged.then_some(message.segment_ref.0);
    yaml.pair("file", file.unwrap_or(0));
    yaml.pair("reserves", message.reserves);
    yaml.pair("timeouts", extra.map_or(0, |extra| extra.timeouts));
    yaml.pair("releases", extra.map_or(0, |extra| extra.releases));
    yaml.pair("buries", extra.map_or(0, |extra| extra.buries));
    yaml.pair("kicks", extra.map_or(0, |extra| extra.kicks));
    if let Some(percent) = message.progress() {
        yaml.pair("progress", percent);
    }
    yaml.send(output);
}

pub(super) fn batch(batch: &Batch, now: Ms, output: &mut Output) {
    let progress = &batch.progress;
    let state = match progress.open {
        true => "open",
        false => "committed",
    };
    let mut yaml = Yaml::new();
    yaml.pair("id", batch.id);
    if let Some(parent) = batch.made.parent {
        yaml.pair("parent", parent);
    }
    let description = &batch.made.description;
    if !description.is_empty() {
        yaml.text("description", Quoted(&String::from_utf8_lossy(description)));
    }
    yaml.pair("state", state);
    yaml.pair("age", seconds(now.since(batch.created)));
    for (key, number) in [
        ("total", progress.total),
        ("pending", progress.pending),
        ("failed", progress.failed),
    ] {
        yaml.pair(key, number);
    }
    yaml.text("complete", progress.complete.word());
    yaml.text("success", progress.success.word());
    yaml.send(output);
}

pub(super) fn track(track: &Track, now: Ms, output: &mut Output) {
    let mut yaml = Yaml::new();
    yaml.text("name", Quoted(&String::from_utf8_lossy(&track.name)));
    yaml.text("tube", &track.queue);
    yaml.pair("state", track.state.word());
    yaml.pair("age", seconds(now.since(track.changed)));
    if let Some(percent) = track.percent {
        yaml.pair("progress", percent);
    }
    if !track.note.is_empty() {
        yaml.text("status", Quoted(&String::from_utf8_lossy(&track.note)));
    }
    yaml.send(output);
}

/// A text as it stands between double quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                // What ends a line, also to YAML alone, or cannot be seen.
                '\u{2028}' | '\u{2029}' | '\u{feff}' => write!(f, "\\u{:04x}", u32::from(char))?,
                _ if char.is_control() => write!(f, "\\x{:02x}", u32::from(char))?,
                _ => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

fn jobs(yaml: &mut Yaml, held: &quintet_types::QueueGauges) {
    yaml.pair("current-jobs-urgent", held.urgent);
    yaml.pair("current-jobs-ready", held.ready);
    yaml.pair("current-jobs-reserved", held.reserved);
    yaml.pair("current-jobs-delayed", held.delayed);
    yaml.pair("current-jobs-buried", held.buried);
}

pub(super) fn tube(name: &Name, stats: &QueueStats, output: &mut Output) {
    let held = &stats.gauges;
    let mut yaml = Yaml::new();
    yaml.text("name", name);
    jobs(&mut yaml, held);
    yaml.pair("total-jobs", stats.totals.puts);
    yaml.pair("current-using", held.users);
    yaml.pair("current-watching", held.watchers);
    yaml.pair("current-waiting", held.waiters);
    yaml.pair("cmd-delete", stats.totals.delete_commands);
    yaml.pair("cmd-pause-tube", stats.totals.pauses);
    yaml.pair("pause", seconds(stats.paused_for_ms));
    yaml.pair("pause-time-left", seconds_left(stats.paused_left_ms));
    yaml.send(output);
}

pub(super) fn server(stats: &ServerStats, tubes: usize, shared: &Shared, output: &mut Output) {
    let shard = &stats.shard;
    let mut yaml = Yaml::new();
    jobs(&mut yaml, &shard.gauges);
    let shown = &TALLY_NAMES[..Count::Other as usize];
    for (name, at) in shown.iter().zip(0..) {
        let count: &u64 = stats.tally.get(at).unwrap_or(&0);
        yaml.pair(name, count);
    }
    yaml.pair("job-timeouts", shard.totals.timeouts);
    yaml.pair("total-jobs", shard.totals.puts);
    yaml.pair("max-job-size", shared.job_max);
    yaml.pair("current-tubes", tubes);
    yaml.pair("current-connections", stats.number("connections"));
    for (key, count) in [
        ("current-producers", &shared.producers),
        ("current-workers", &shared.workers),
    ] {
        yaml.pair(key, count.load(Ordering::Relaxed));
    }
    yaml.pair("current-waiting", shard.waiters);
    yaml.pair("total-connections", stats.number("connections_total"));
    yaml.pair("pid", stats.number("pid"));
    yaml.text("version", &shared.version);
    for (key, us) in [
        ("rusage-utime", stats.number("cpu_user_us")),
        ("rusage-stime", stats.number("cpu_system_us")),
    ] {
        yaml.pair(
            key,
            format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000),
        );
    }
    yaml.pair("uptime", stats.number("uptime_s"));
    yaml.pair("binlog-oldest-index", stats.log_segments.0);
    yaml.pair("binlog-current-index", stats.log_segments.1);
    yaml.pair(
        "binlog-records-migrated",
        stats.number("log_records_copied"),
    );
    yaml.pair("binlog-records-written", stats.number("log_records"));
    yaml.pair("binlog-max-size", stats.segment_bytes);
    yaml.pair("draining", stats.draining);
    yaml.pair("id", format_args!("{:016x}", stats.instance));
    for (key, value) in ["hostname", "os", "platform"].iter().zip(&stats.machine) {
        yaml.text(key, value.escape_default());
    }
    yaml.send(output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_down_and_those_left_are_never_all() {
        for (ms, whole, left) in [
            (0, 0, 0),
            (1, 0, 0),
            (999, 0, 0),
            (1000, 1, 0),
            (1001, 1, 1),
            (4999, 4, 4),
            (5000, 5, 4),
            (5001, 5, 5),
            (411_000, 411, 410),
            (u64::MAX, u64::MAX / 1000, u64::MAX / 1000),
        ] {
            assert_eq!((seconds(ms), seconds_left(ms)), (whole, left), "{ms}");
        }
    }
}
