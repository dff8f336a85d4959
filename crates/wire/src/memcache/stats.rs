//! The numbers Kestrel shows, under its names.

use quintet_types::{Name, QueueStats, ServerStats};

use super::Count;
use super::reply::Listing;
use crate::output::Output;

/// Writes what the reply to `stats` says of the server.
pub(super) fn write_server(server: &ServerStats, version: &str, output: &mut Output) {
    let shard = &server.shard;
    let tally = |count: Count| server.tally.get(count as usize).copied().unwrap_or(0);
    stat(output, "uptime", server.number("uptime_s"));
    stat(output, "time", server.time_s);
    output.put(b"STAT version ");
    output.line(version.as_bytes());
    stat(output, "curr_items", waiting(&shard.gauges));
    stat(output, "total_items", shard.totals.puts);
    stat(output, "bytes", shard.gauges.waiting_bytes);
    output.put(b"STAT reserved_memory_ratio ");
    ratio(output, shard.memory_bytes, server.memory_limit);
    output.put(b"\r\n");
    for (key, value) in [
        ("curr_connections", server.number("connections")),
        ("total_connections", server.number("connections_total")),
        ("cmd_get", tally(Count::Get)),
        ("cmd_set", tally(Count::Set)),
        ("cmd_peek", tally(Count::Peek)),
        ("get_hits", tally(Count::Hit)),
        ("get_misses", tally(Count::Miss)),
        ("bytes_read", server.number("bytes_read")),
        ("bytes_written", server.number("bytes_written")),
        ("queue_creates", shard.queues_made),
        ("queue_deletes", shard.queues_dropped),
        ("queue_expires", shard.queues_expired),
    ] {
        stat(output, key, value);
    }
}

/// Writes what the reply to `stats` or `dump_stats` says of these queues.
pub(super) fn write_queues(queues: &[QueueStats], listing: &Listing, output: &mut Output) {
    for queue in queues.iter().filter(|queue| shown(&queue.name)) {
        let Some(only) = &listing.dump else {
            for (key, value) in numbers(queue, listing) {
                output.put(b"STAT queue_");
                output.put(queue.name.as_bytes());
                pair(output, ["_", key, " "], value, "\r\n");
            }
            continue;
        };
        if !only.is_empty() && !only.contains(&queue.name) {
            continue;
        }
        output.put(b"queue '");
        output.put(queue.name.as_bytes());
        output.put(b"' {\r\n");
        for (key, value) in numbers(queue, listing) {
            pair(output, ["  ", key, "="], value, "\r\n");
        }
        output.put(b"}\r\n");
    }
}

/// Writes the numbers that `me` has of a queue behind its name, and the line's end.
pub(super) fn write_described(queue: &QueueStats, output: &mut Output) {
    let listing = Listing {
        dump: None,
        log: (0, 0),
    };
    for (key, value) in numbers(queue, &listing) {
        // Those are the log's, which is not asked.
        if key.starts_with("journal_") {
            continue;
        }
        pair(output, [" ", key, "="], value, "");
    }
    output.put(b"\r\n");
}

/// One queue's numbers. Items and bytes exclude open reads. One log holds all
/// queues: the size of a queue's share is that of its bodies, and what the log
/// did is shown with every queue.
fn numbers(queue: &QueueStats, listing: &Listing) -> [(&'static str, u64); 16] {
    let (gauges, totals) = (&queue.gauges, &queue.totals);
    let items = waiting(gauges);
    let canceled = totals.cancels + totals.releases + totals.timeouts;
    [
        ("items", items),
        ("bytes", gauges.waiting_bytes),
        ("total_items", totals.puts),
        ("logsize", if queue.memory { 0 } else { gauges.bytes }),
        ("expired_items", totals.expired),
        ("mem_items", items),
        ("mem_bytes", gauges.waiting_bytes),
        ("age", queue.age_ms),
        ("discarded", totals.discarded),
        ("waiters", gauges.waiters),
        ("open_transactions", gauges.reserved),
        ("transactions", totals.leases),
        ("canceled_transactions", canceled),
        ("total_flushes", totals.flushes),
        ("journal_rewrites", listing.log.0),
        ("journal_rotations", listing.log.1),
    ]
}

fn waiting(gauges: &quintet_types::QueueGauges) -> u64 {
    gauges.ready + gauges.not_selectable + gauges.delayed
}

/// Queues of other protocols may have names that would break these lines.
fn shown(name: &Name) -> bool {
    name.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn stat(output: &mut Output, key: &str, value: u64) {
    pair(output, ["STAT ", key, " "], value, "\r\n");
}

/// Writes a number between what names it and what ends it.
fn pair(output: &mut Output, named: [&str; 3], value: u64, end: &str) {
    named.iter().for_each(|part| output.put(part.as_bytes()));
    output.number(value);
    output.put(end.as_bytes());
}

/// Writes `part / whole` with three decimals; 0.000 of nothing.
fn ratio(output: &mut Output, part: u64, whole: u64) {
    let thousandths = if whole == 0 {
        0
    } else {
        u128::from(part) * 1000 / u128::from(whole)
    };
    let thousandths = u64::try_from(thousandths).unwrap_or(u64::MAX);
    output.number(thousandths / 1000);
    output.put(b".");
    for unit in [100, 10, 1] {
        output.number(thousandths / unit % 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_decimals() {
        let text = |part, whole| {
            let mut output = Output::new();
            ratio(&mut output, part, whole);
            String::from_utf8(output.bytes().to_vec()).unwrap()
        };
        assert_eq!(text(1, 0), "0.000");
        assert_eq!(text(5, 1000), "0.005");
        assert_eq!(text(3, 2), "1.500");
    }
}
