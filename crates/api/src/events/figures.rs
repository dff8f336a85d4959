//! Figures of queues in a stream, and their changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use quintet_client::Rates;
use quintet_types::QueueStats;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

/// Figures of a queue.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Figures {
    pub(super) ready: u64,
    pub(super) delayed: u64,
    pub(super) reserved: u64,
    pub(super) buried: u64,
    /// Age of the oldest ready message, ms.
    pub(super) oldest_ms: u64,
    pub(super) paused: bool,
    pub(super) waiters: u64,
    /// Messages that came each second, in the last minute that is over; null: not known.
    pub(super) in_per_s: Option<f64>,
    /// Messages that consumers finished, or that failed for good.
    pub(super) out_per_s: Option<f64>,
    /// Messages dropped or expired.
    pub(super) lost_per_s: Option<f64>,
}

impl Figures {
    pub(crate) fn of(stats: &QueueStats, rates: Option<Rates>) -> Self {
        let lost = rates.map(|rates| rates.left_rounded());
        let rates = rates.map(Rates::rounded);
        Self {
            ready: stats.gauges.ready,
            delayed: stats.gauges.delayed,
            reserved: stats.gauges.reserved,
            buried: stats.gauges.buried,
            oldest_ms: stats.oldest_ms,
            paused: stats.paused,
            waiters: stats.gauges.waiters,
            in_per_s: rates.map(|[into, _]| into),
            out_per_s: rates.map(|[_, out]| out),
            lost_per_s: lost.map(|[_, _, _, dropped, expired, _]| dropped + expired),
        }
    }
}

/// Queues by name.
pub(crate) type Queues = BTreeMap<String, Figures>;

/// The event that tells all of them.
pub(super) fn all(queues: &Queues) -> Bytes {
    event(queues.iter().map(|(name, figures)| (name, Some(figures))))
}

/// The event that tells what became of `before`: queues that changed, and null for those that are
/// gone. `None`: nothing changed.
pub(super) fn change(before: &Queues, now: &Queues) -> Option<Bytes> {
    let is_new = |name: &String, figures: &Figures| before.get(name) != Some(figures);
    let changed = now.iter().filter(|(name, figures)| is_new(name, figures));
    let changed = changed.map(|(name, figures)| (name, Some(figures)));
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let mut news = changed.chain(gone.map(|name| (name, None))).peekable();
    news.peek().is_some().then_some(())?;
    Some(event(news))
}

fn event<'a>(queues: impl Iterator<Item = (&'a String, Option<&'a Figures>)>) -> Bytes {
    let queues: BTreeMap<_, _> = queues.collect();
    Bytes::from(format!("event: queues\ndata: {}\n\n", json!(queues)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(of: &[(&str, u64)]) -> Queues {
        let queues = of.iter().map(|(name, ready)| {
            let mut stats = QueueStats::default();
            stats.gauges.ready = *ready;
            ((*name).to_owned(), Figures::of(&stats, None))
        });
        queues.collect()
    }

    fn data(event: &Bytes) -> serde_json::Value {
        let text = std::str::from_utf8(event).expect("text");
        let data = text.strip_prefix("event: queues\ndata: ");
        let data = data.and_then(|rest| rest.strip_suffix("\n\n"));
        serde_json::from_str(data.expect("an event")).expect("JSON")
    }

    #[test]
    fn only_changed_queues_are_sent_and_gone_ones_are_null() {
        let before = queues(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(change(&before, &before), None);
        let now = queues(&[("a", 1), ("b", 5), ("d\n", 1)]);
        let news = data(&change(&before, &now).expect("an event"));
        assert_eq!(news["b"]["ready"], 5);
        assert_eq!(
            news["d\n"]["ready"], 1,
            "a line end in a name ends no event"
        );
        assert_eq!(news["c"], serde_json::Value::Null);
        assert_eq!(news.as_object().expect("an object").len(), 3);
        assert_eq!(data(&all(&before)).as_object().expect("one").len(), 3);
    }
}
