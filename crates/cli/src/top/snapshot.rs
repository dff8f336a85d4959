//! Data of `top`: the server's queues and connections at a moment.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_client::words::count;
use quintet_types::{Left, QueueTotals};
use serde_json::Value;

use super::super::table::{age, named, seen};
use super::super::verbs::preview;

/// Looks of a trend.
pub(super) const TREND: usize = 8;

/// A queue at a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Queue {
    /// In the notation of the API.
    pub(super) name: String,
    /// For people.
    pub(super) shown: String,
    pub(super) ready: u64,
    pub(super) delayed: u64,
    pub(super) reserved: u64,
    pub(super) buried: u64,
    /// Age of the oldest ready message, ms.
    pub(super) oldest_ms: u64,
    pub(super) waiters: u64,
    pub(super) paused: bool,
    /// Messages that came, each second; `None`: not known yet.
    pub(super) into: Option<f64>,
    /// Messages that consumers finished, or that failed for good, each second.
    pub(super) out: Option<f64>,
    /// The same by why they left.
    pub(super) left: Option<Left<f64>>,
    /// Ready messages at the last snapshots, the newest last.
    pub(super) trend: Vec<u64>,
    created_ms: u64,
    totals: QueueTotals,
}

/// Why a queue needs attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Finding {
    /// In the notation of the API; empty: it is about several, or about the server.
    pub(in super::super) queue: String,
    pub(super) alarm: bool,
    /// Sentences, for people.
    pub(in super::super) text: String,
}

/// Why queues need attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Findings {
    /// The worst first.
    pub(in super::super) listed: Vec<Finding>,
    /// How many there are besides, which the server does not list.
    pub(in super::super) more: u64,
}

/// A message that failed for good: its id, age, attempts, error and body, for people.
pub(super) type Dead = [String; 5];

/// A connection: its id, protocol, peer, rest, leases, user and the queues it waits on, for people.
pub(super) type Connection = [String; 7];

/// The server at a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Snapshot {
    /// A clock of the client's own that nobody sets, ms.
    pub(super) at_ms: u64,
    pub(super) queues: Vec<Queue>,
    /// `None`: the principal may not list connections.
    pub(super) connections: Option<Vec<Connection>>,
    /// `None`: the server does not say.
    pub(super) findings: Option<Findings>,
}

/// Reads a message of the API.
pub(super) fn dead(message: &Value) -> Dead {
    let number = |key: &str| message[key].as_u64().unwrap_or(0);
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    let body = match text("body_base64") {
        "" => text("body").as_bytes().to_vec(),
        coded => BASE64_STANDARD.decode(coded).unwrap_or_default(),
    };
    [
        number("id").to_string(),
        age(quintet_host::wall_ms().saturating_sub(number("created_ms"))),
        number("attempts").to_string(),
        seen(text("status")),
        preview(&body),
    ]
}

impl Queue {
    /// Messages that were dropped or expired, each second.
    pub(super) fn lost(&self) -> Option<f64> {
        self.left.map(|left| left.dropped + left.expired)
    }

    /// Reads one of the API's.
    pub(super) fn of(queue: &Value) -> Self {
        let number = |key: &str| queue[key].as_u64().unwrap_or(0);
        let name = queue["name"].as_str().unwrap_or_default();
        Self {
            name: name.to_owned(),
            shown: named(name),
            trend: vec![number("ready")],
            left: None,
            ready: number("ready"),
            delayed: number("delayed"),
            reserved: number("reserved"),
            buried: number("buried"),
            oldest_ms: number("oldest_ms"),
            waiters: number("waiters"),
            paused: queue["paused"].as_bool().unwrap_or(false),
            into: queue["in_per_s"].as_f64(),
            out: queue["out_per_s"].as_f64(),
            created_ms: number("created_ms"),
            totals: totals(queue),
        }
    }
}

impl Finding {
    /// Reads one of the API's.
    pub(super) fn of(response: &Value) -> Self {
        let text = |key: &str| response[key].as_str().unwrap_or_default();
        let queue = text("queue");
        let says = match text("text").strip_prefix(queue) {
            Some(rest) => format!("{}{}", named(queue), seen(rest)),
            None => seen(text("text")),
        };
        let because = seen(text("because"));
        Self {
            queue: queue.to_owned(),
            alarm: text("level") == "alarm",
            text: format!("{says} {because}").trim_end().to_owned(),
        }
    }
}

impl Findings {
    /// Reads the API's; `None`: it does not say.
    pub(super) fn of(response: &Value) -> Option<Self> {
        let listed = response["findings"].as_array()?.iter().map(Finding::of);
        let listed: Vec<Finding> = listed.collect();
        let total = response["total"].as_u64().unwrap_or(0);
        let more = total.saturating_sub(listed.len() as u64);
        Some(Self { listed, more })
    }

    /// A line for each, and one for those that are not listed.
    pub(in super::super) fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("and {} more", count(self.more)));
        let listed = self.listed.iter().map(|finding| finding.text.clone());
        listed.chain(more)
    }
}

impl Snapshot {
    /// Works out how fast queues moved since the last snapshot. One that is new or made anew keeps
    /// what the server says of its last minute.
    pub(super) fn since(mut self, before: &Snapshot) -> Self {
        let ms = self.at_ms.saturating_sub(before.at_ms);
        let known = before.queues.iter();
        let known: HashMap<&str, &Queue> =
            known.map(|queue| (queue.name.as_str(), queue)).collect();
        for queue in &mut self.queues {
            let last = known.get(queue.name.as_str());
            let same = last.filter(|last| last.created_ms == queue.created_ms && ms > 0);
            if let Some(last) = same {
                let came = queue.totals.came().saturating_sub(last.totals.came());
                queue.into = Some(per_second(came, ms));
                let mut left = queue.totals.left().values();
                for (now, then) in left.iter_mut().zip(last.totals.left().values()) {
                    *now = now.saturating_sub(then);
                }
                let left = Left::from_values(left.map(|count| per_second(count, ms)));
                queue.out = Some(left.finished + left.failed);
                queue.left = Some(left);
                let older = last.trend.len().saturating_sub(TREND - 1);
                queue.trend.splice(..0, last.trend[older..].iter().copied());
            }
        }
        self
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn per_second(count: u64, ms: u64) -> f64 {
    count as f64 * 1000.0 / ms as f64
}

/// A queue's counters, as the API tells them.
fn totals(queue: &Value) -> QueueTotals {
    let names = QueueTotals::NAMES.iter();
    let response = names.map(|name| queue[format!("total_{name}")].as_u64().unwrap_or(0));
    QueueTotals::from_values(&response.collect::<Vec<_>>())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A queue with so many ready that came, and so many that left.
    pub(in super::super) fn queue(name: &str, ready: u64, left: u64) -> Value {
        json!({ "name": name, "ready": ready, "oldest_ms": ready * 1000, "created_ms": 5,
            "total_puts": ready + left, "total_finished": left })
    }

    #[test]
    fn rates_are_those_between_two_snapshots_and_of_the_last_minute_before() {
        let of_the_last_minute = |queue: &Value| {
            let mut queue = queue.clone();
            if queue["name"] == "work" {
                (queue["in_per_s"], queue["out_per_s"]) = (7.5.into(), 0.0.into());
            }
            Queue::of(&queue)
        };
        let snapshot = |at_ms, queues: &[Value]| Snapshot {
            at_ms,
            queues: queues.iter().map(of_the_last_minute).collect(),
            connections: None,
            findings: None,
        };
        let first = snapshot(1000, &[queue("work", 10, 0)]);
        assert_eq!(
            (first.queues[0].into, first.queues[0].out),
            (Some(7.5), Some(0.0))
        );
        let mut drops = queue("work", 10, 40);
        drops["total_discarded"] = 8.into();
        let second = snapshot(3000, &[drops, queue("new", 1, 0)]).since(&first);
        assert_eq!(
            (second.queues[0].into, second.queues[0].out),
            (Some(20.0), Some(20.0))
        );
        let left = second.queues[0].left.expect("known");
        assert_eq!((left.finished, left.dropped), (20.0, 4.0));
        assert_eq!(second.queues[0].trend, [10, 10]);
        assert_eq!(second.queues[1].into, None);
        let mut last = second.clone();
        for at_ms in 4..20 {
            last = snapshot(at_ms * 1000, &[queue("work", at_ms, 40)]).since(&last);
        }
        let trend: Vec<u64> = (12..20).collect();
        assert_eq!(last.queues[0].trend, trend);
        let mut anew = queue("work", 1, 0);
        anew["created_ms"] = 9.into();
        let third = snapshot(4000, &[anew]).since(&second);
        assert_eq!(third.queues[0].into, Some(7.5), "it is another queue");
    }

    #[test]
    fn a_finding_shows_its_queue_as_letters_and_steers_no_terminal() {
        let found = Finding::of(&json!({ "queue": "stra\\xc3\\x9fe", "level": "alarm",
            "text": "stra\\xc3\\x9fe fails: 3 of 3 tries.", "because": "\u{1b}[2J" }));
        assert_eq!(found.text, "stra\u{df}e fails: 3 of 3 tries. \\x1b[2J");
        assert!(found.alarm);
        let many = json!({ "queue": null, "level": "warning", "text": "2 queues.", "because": "" });
        let many = Finding::of(&many);
        assert_eq!((many.text.as_str(), many.queue.as_str()), ("2 queues.", ""));
    }
}
