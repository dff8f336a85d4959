//! A queue's history as pages show it.

use quintet_client::{ClientApi, History, Rates, Sample, Series};
use quintet_types::{QueueStats, WallAhead};

use super::graph::{self, Chart, Line, Spark, Times, Unit};
use super::words;

/// ms.
const HOUR: u64 = 3_600_000;

/// How fast a queue moves, in words: in, and out by consumers.
pub(super) fn speed(rates: Rates) -> [String; 2] {
    [rates.into, rates.consumed()].map(per_second)
}

/// A rate in words: a small one is not 0.
fn per_second(rate: f32) -> String {
    match rate > 0.0 && rate < 0.1 {
        true => "<0.1".to_owned(),
        false => words::rate(tenths(rate)),
    }
}

/// How fast delayed messages become due, if they do.
pub(super) fn comes_due(rates: Rates) -> Option<String> {
    (rates.due > 0.0).then(|| per_second(rates.due))
}

/// How fast messages are dropped or expire, if they do.
pub(super) fn loses(rates: Rates) -> Option<String> {
    let lost = lost(rates);
    (lost > 0.0).then(|| per_second(lost))
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

fn tenths(rate: f32) -> u64 {
    // Text has no casts to lose anything by; what is no number is nothing.
    format!("{:.0}", rate * 10.0).parse().unwrap_or(0)
}

/// The charts of a page, over the last hour or day.
pub(super) fn charts(client_api: &dyn ClientApi, series: &Series, day: bool) -> Vec<Chart> {
    let ahead = WallAhead::between(client_api.now(), client_api.wall());
    // A window of the same length, also where less is known.
    let (steps, every_ms) = if day { (96, 6 * HOUR) } else { (60, HOUR / 4) };
    let times = Times {
        end: ahead.wall_at(series.end).0,
        step_ms: series.step_ms,
        steps,
        every_ms,
    };
    let line = |name, of: &dyn Fn(&Sample) -> u64| {
        let known = values(series, of);
        let unknown = steps.saturating_sub(known.len());
        let values = std::iter::repeat_n(None, unknown).chain(known);
        Line {
            name,
            values: values.collect(),
        }
    };
    let oldest = line("oldest ready", &|sample| u64::from(sample.oldest_s));
    let ready = line("ready", &|sample| u64::from(sample.ready));
    let into = line("in", &|sample| tenths(sample.rates.into));
    let finished = line("finished", &|sample| tenths(sample.rates.left.finished));
    let due = line("came due", &|sample| tenths(sample.rates.due));
    let lost = line("dropped or expired", &|sample| tenths(lost(sample.rates)));
    let others = line("failed, removed or moved", &|sample| {
        let left = sample.rates.left;
        tenths(left.failed + left.removed + left.moved)
    });
    let otherwise = [lost, others];
    let moves = |line: &Line| {
        let mut values = line.values.iter().flatten();
        values.any(|value| *value > 0)
    };
    let any = otherwise.iter().any(moves);
    let mut speed = vec![into, finished];
    if moves(&due) {
        speed.push(due);
    }
    let all = [
        graph::chart("Oldest ready", Unit::Seconds, &[oldest], &times),
        graph::chart("Ready", Unit::Count, &[ready], &times),
        graph::chart("Per second", Unit::Rate, &speed, &times),
        any.then(|| {
            graph::chart(
                "Ended unfinished, per second",
                Unit::Rate,
                &otherwise,
                &times,
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_rate_is_not_shown_as_0() {
        let shown = [0.0, 0.016, 0.1, 61.24].map(per_second);
        assert_eq!(shown, ["0", "<0.1", "0.1", "61.2"]);
    }
}
