//! A queue's history as pages show it.

use quintet_door::{Door, History, Rates, Sample, Series};
use quintet_engine::{QueueStats, WallAhead};

use super::graph::{self, Chart, Line, Spark, Unit};
use super::words;

/// How fast a queue moves, in words: in and out.
pub(super) fn speed(rates: Rates) -> [String; 2] {
    [rates.into, rates.out()].map(|rate| words::rate(tenths(rate)))
}

/// How fast messages are dropped or expire, if they do.
pub(super) fn loses(rates: Rates) -> Option<String> {
    let lost = lost(rates);
    (lost > 0.0).then(|| words::rate(tenths(lost).max(1)))
}

fn lost(rates: Rates) -> f32 {
    rates.left.dropped + rates.left.expired
}

/// The graph of a row: what was ready in the last hour.
pub(super) fn spark(history: &History) -> Option<Spark> {
    graph::spark(&values(&history.minutes, |sample| u64::from(sample.ready)))
}

fn values(series: &Series, of: impl Fn(&Sample) -> u64) -> Vec<Option<u64>> {
    let samples = series.samples.iter();
    samples.map(|sample| sample.as_ref().map(&of)).collect()
}

/// Tenths of a rate.
fn tenths(rate: f32) -> u64 {
    // Text has no casts to lose anything by; what is no number is nothing.
    format!("{:.0}", rate * 10.0).parse().unwrap_or(0)
}

/// The charts of a queue's page, over the last hour or day.
pub(super) fn charts(door: &dyn Door, history: &History, day: bool) -> Vec<Chart> {
    let series = if day {
        &history.quarters
    } else {
        &history.minutes
    };
    let ahead = WallAhead::between(door.now(), door.wall());
    let last = series.samples.len().saturating_sub(1);
    let moment = |step: usize| {
        let back = series.step_ms.saturating_mul((last - step) as u64);
        words::hour_and_minute(ahead.wall_at(series.end - back).0)
    };
    let line = |name, of: &dyn Fn(&Sample) -> u64| Line {
        name,
        values: values(series, of),
    };
    let oldest = line("oldest ready", &|sample| u64::from(sample.oldest_s));
    let ready = line("ready", &|sample| u64::from(sample.ready));
    let into = line("in", &|sample| tenths(sample.rates.into));
    let finished = line("finished", &|sample| tenths(sample.rates.left.finished));
    let lost = line("dropped or expired", &|sample| tenths(lost(sample.rates)));
    let others = line("failed, removed or moved", &|sample| {
        let left = sample.rates.left;
        tenths(left.failed + left.removed + left.moved)
    });
    let otherwise = [lost, others];
    let any = otherwise.iter().any(|line| {
        let mut values = line.values.iter().flatten();
        values.any(|value| *value > 0)
    });
    let all = [
        graph::chart("Oldest ready", Unit::Seconds, &[oldest], moment),
        graph::chart("Ready", Unit::Count, &[ready], moment),
        graph::chart("Per second", Unit::Rate, &[into, finished], moment),
        any.then(|| graph::chart("Left otherwise, per second", Unit::Rate, &otherwise, moment))
            .flatten(),
    ];
    all.into_iter().flatten().collect()
}

/// When a queue will be empty at the speed of the last minute.
pub(super) fn empty_in(stats: &QueueStats, rates: Rates) -> String {
    let faster = tenths(rates.out()).saturating_sub(tenths(rates.into));
    match (stats.gauges.ready, faster) {
        (0, _) => "now".to_owned(),
        (_, 0) => "never".to_owned(),
        (ready, faster) => words::duration(ready.saturating_mul(10_000) / faster),
    }
}
