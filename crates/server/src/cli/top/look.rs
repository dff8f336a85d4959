//! What `top` shows: the server's queues and connections at a moment.

use std::collections::HashMap;

use serde_json::Value;

/// A queue at a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Queue {
    /// As names are shown everywhere.
    pub(super) name: String,
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
    /// Messages that left, each second.
    pub(super) out: Option<f64>,
    created_ms: u64,
    /// What it had counted.
    came: u64,
    left: u64,
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) voice: String,
    pub(super) peer: String,
    pub(super) user: String,
    pub(super) idle_ms: u64,
    pub(super) leases: u64,
    pub(super) waits_on: String,
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Look {
    /// A clock of the client's own that nobody sets, ms.
    pub(super) at_ms: u64,
    pub(super) queues: Vec<Queue>,
    /// `None`: whoever looks may not see them.
    pub(super) connections: Option<Vec<Connection>>,
}

fn sum(queue: &Value, names: &[&str]) -> u64 {
    let totals = names.iter().map(|name| &queue[format!("total_{name}")]);
    totals.filter_map(Value::as_u64).sum()
}

impl Queue {
    /// Reads one of the control channel's; `rates` are those of the last minute, by name.
    pub(super) fn of(queue: &Value, rates: &Value) -> Self {
        let number = |key: &str| queue[key].as_u64().unwrap_or(0);
        let name = queue["name"].as_str().unwrap_or_default();
        let known = &rates[name];
        Self {
            name: name.to_owned(),
            ready: number("ready"),
            delayed: number("delayed"),
            reserved: number("reserved"),
            buried: number("buried"),
            oldest_ms: number("oldest_ms"),
            waiters: number("waiters"),
            paused: queue["paused"].as_bool().unwrap_or(false),
            into: known[0].as_f64(),
            out: known[1].as_f64(),
            created_ms: number("created_ms"),
            came: sum(queue, super::super::tail::CAME),
            left: sum(queue, super::super::tail::LEFT),
        }
    }
}

impl Look {
    /// Works out how fast queues moved since the look before. One that is new or made anew keeps
    /// what the server says of its last minute.
    pub(super) fn since(mut self, before: &Look) -> Self {
        let ms = self.at_ms.saturating_sub(before.at_ms);
        let known = before.queues.iter();
        let known: HashMap<&str, &Queue> =
            known.map(|queue| (queue.name.as_str(), queue)).collect();
        for queue in &mut self.queues {
            let last = known.get(queue.name.as_str());
            let same = last.filter(|last| last.created_ms == queue.created_ms && ms > 0);
            if let Some(last) = same {
                queue.into = Some(per_second(queue.came.saturating_sub(last.came), ms));
                queue.out = Some(per_second(queue.left.saturating_sub(last.left), ms));
            }
        }
        self
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn per_second(count: u64, ms: u64) -> f64 {
    count as f64 * 1000.0 / ms as f64
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
    fn rates_are_those_between_two_looks_and_of_the_last_minute_before() {
        let look = |at_ms, queues: &[Value]| Look {
            at_ms,
            queues: queues
                .iter()
                .map(|queue| Queue::of(queue, &json!({ "work": [7.5, 0.0] })))
                .collect(),
            connections: None,
        };
        let first = look(1000, &[queue("work", 10, 0)]);
        assert_eq!(
            (first.queues[0].into, first.queues[0].out),
            (Some(7.5), Some(0.0))
        );
        let second = look(3000, &[queue("work", 10, 40), queue("new", 1, 0)]).since(&first);
        assert_eq!(
            (second.queues[0].into, second.queues[0].out),
            (Some(20.0), Some(20.0))
        );
        assert_eq!(second.queues[1].into, None);
        let mut anew = queue("work", 1, 0);
        anew["created_ms"] = 9.into();
        let third = look(4000, &[anew]).since(&second);
        assert_eq!(third.queues[0].into, Some(7.5), "it is another queue");
    }
}
