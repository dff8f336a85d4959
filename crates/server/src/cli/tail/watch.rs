//! What became of a queue's messages between two looks at it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::show::totals;

/// A message, as far as a look sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Seen {
    pub(in super::super) state: String,
    /// The first line of its body, fit for a terminal.
    pub(in super::super) body: String,
    pub(in super::super) bytes: u64,
}

/// A queue at a moment: the messages that were looked at, by id, and what it had counted before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Sight {
    pub(in super::super) messages: BTreeMap<u64, Seen>,
    /// Messages that came since it was made.
    pub(in super::super) came: u64,
    /// Messages that left.
    pub(in super::super) left: u64,
    /// There are more than were looked at.
    pub(in super::super) partly: bool,
}

impl Sight {
    /// Reads the totals out of a queue's numbers.
    pub(in super::super) fn counted(stats: &Value) -> Self {
        let totals = totals(stats);
        Self {
            came: totals.came(),
            left: totals.left().values().iter().sum(),
            ..Self::default()
        }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum Event {
    /// A message is there that was not.
    Came(u64, Seen),
    /// It is in another state than before: the one before comes first.
    Changed(u64, String, Seen),
    /// It is there no longer.
    Left(u64, Seen),
    /// So many came, and so many left, that no look has seen.
    Unseen(u64, u64),
}

/// Compares two looks. Where not all messages were looked at, one that is missing may only be out
/// of sight: it has left as far as totals say that so many did.
pub(in super::super) fn between(before: &Sight, after: &Sight) -> Vec<Event> {
    let mut events = Vec::new();
    let mut came = after.came.saturating_sub(before.came);
    let mut left = after.left.saturating_sub(before.left);
    for (id, seen) in &before.messages {
        match after.messages.get(id) {
            None if left > 0 || !after.partly => {
                left = left.saturating_sub(1);
                events.push(Event::Left(*id, seen.clone()));
            }
            None => {}
            Some(other) if other.state != seen.state => {
                events.push(Event::Changed(*id, seen.state.clone(), other.clone()));
            }
            Some(_) => {}
        }
    }
    for (id, seen) in &after.messages {
        let is_new = !before.messages.contains_key(id);
        if is_new && (came > 0 || !before.partly) {
            came = came.saturating_sub(1);
            events.push(Event::Came(*id, seen.clone()));
        }
    }
    if came > 0 || left > 0 {
        events.push(Event::Unseen(came, left));
    }
    events
}

impl Event {
    /// As a line for people, without the time.
    pub(in super::super) fn line(&self) -> String {
        match self {
            Self::Came(id, seen) => format!("+ {id}  {}  {}", seen.state, seen.body),
            Self::Changed(id, before, seen) => {
                format!("> {id}  {before} -> {}  {}", seen.state, seen.body)
            }
            Self::Left(id, seen) => format!("- {id}  {}  {}", seen.state, seen.body),
            Self::Unseen(came, left) => format!("~ unseen: {came} came, {left} left"),
        }
    }

    /// As JSON.
    pub(in super::super) fn json(&self, at_ms: u64) -> Value {
        let of = |event, id: &u64, seen: &Seen| {
            json!({ "at_ms": at_ms, "event": event, "id": id, "state": seen.state,
                "bytes": seen.bytes, "body_start": seen.body })
        };
        match self {
            Self::Came(id, seen) => of("came", id, seen),
            Self::Changed(id, before, seen) => {
                let mut told = of("changed", id, seen);
                told["before"] = before.as_str().into();
                told
            }
            Self::Left(id, seen) => of("left", id, seen),
            Self::Unseen(came, left) => {
                json!({ "at_ms": at_ms, "event": "unseen", "came": came, "left": left })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(messages: &[(u64, &str)], came: u64, left: u64, partly: bool) -> Sight {
        let seen = |state: &str| Seen {
            state: state.to_owned(),
            body: "b".to_owned(),
            bytes: 1,
        };
        let messages = messages.iter().map(|(id, state)| (*id, seen(state)));
        Sight {
            messages: messages.collect(),
            came,
            left,
            partly,
        }
    }

    fn lines(before: &Sight, after: &Sight) -> Vec<String> {
        let events = between(before, after);
        events.iter().map(Event::line).collect()
    }

    #[test]
    fn what_came_changed_and_left_is_told_once() {
        let before = sight(&[(1, "ready"), (2, "ready")], 2, 0, false);
        let after = sight(&[(2, "reserved"), (3, "ready")], 3, 1, false);
        let told = [
            "- 1  ready  b",
            "> 2  ready -> reserved  b",
            "+ 3  ready  b",
        ];
        assert_eq!(lines(&before, &after), told);
        assert!(lines(&after, &after).is_empty());
    }

    #[test]
    fn what_no_look_has_seen_is_counted() {
        let before = sight(&[], 5, 5, false);
        let after = sight(&[(9, "ready")], 15, 14, false);
        let told = ["+ 9  ready  b", "~ unseen: 9 came, 9 left"];
        assert_eq!(lines(&before, &after), told);
    }

    #[test]
    fn what_is_out_of_sight_has_not_left_and_what_comes_into_sight_has_not_come() {
        let before = sight(&[(1, "ready"), (2, "ready")], 10, 0, true);
        let after = sight(&[(2, "ready"), (3, "ready")], 10, 0, true);
        assert!(lines(&before, &after).is_empty());
        let after = sight(&[(2, "ready"), (3, "ready")], 10, 1, true);
        assert_eq!(lines(&before, &after), ["- 1  ready  b"]);
    }
}
