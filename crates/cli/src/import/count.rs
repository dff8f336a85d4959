//! How many messages there are, by queue and state: what a dry run tells.

use std::collections::BTreeMap;
use std::fmt;

/// States as they are shown, with their numbers.
type States = BTreeMap<&'static str, u64>;

/// Messages by queue and state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    queues: BTreeMap<String, States>,
}

impl Counts {
    /// So many more in this state of this queue.
    pub(super) fn add(&mut self, queue: &str, state: &'static str, messages: u64) {
        if messages > 0 {
            let states = self.queues.entry(queue.to_owned()).or_default();
            *states.entry(state).or_default() += messages;
        }
    }

    /// The count of messages in one of these states.
    pub(super) fn sum(&self, of: &[&str]) -> u64 {
        let states = self.queues.values().flatten();
        states
            .filter(|(state, _)| of.contains(state))
            .map(|(_, messages)| messages)
            .sum()
    }
}

/// `QUEUE: 3 ready, 1 buried`, a line for each queue.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (queue, states) in &self.queues {
            let states: Vec<String> = states
                .iter()
                .map(|(state, messages)| format!("{messages} {state}"))
                .collect();
            writeln!(f, "{queue}: {}", states.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn counts_are_shown_by_queue() {
        let mut counts = Counts::default();
        counts.add("b", "ready", 2);
        counts.add("a", "ready", 1);
        counts.add("a", "buried", 3);
        counts.add("a", "ready", 4);
        counts.add("c", "ready", 0);
        assert_eq!(counts.to_string(), "a: 3 buried, 5 ready\nb: 2 ready\n");
        assert_eq!(counts.sum(&["ready"]), 7);
    }
}
