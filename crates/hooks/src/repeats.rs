//! Lines that say the same again and again, told once in some seconds.

use std::collections::BTreeMap;

use quintet_types::Ms;

/// Time between two lines of the same error, ms.
const EVERY_MS: u64 = 5_000;
/// Different lines that are remembered; more share one place.
const LINES_MAX: usize = 64;

/// Texts that were logged lately.
#[derive(Debug, Default)]
pub(crate) struct Repeats(BTreeMap<String, LoggedText>);

#[derive(Debug)]
struct LoggedText {
    at: Ms,
    /// The newest that was not told.
    last: String,
    /// How often it came since.
    more: u64,
}

impl LoggedText {
    fn line(self) -> String {
        match self.more {
            0 | 1 => self.last,
            more => format!("{} ({more} times)", self.last),
        }
    }
}

impl Repeats {
    /// The line to log now, if it is time for one. `key`: what makes two lines
    /// the same.
    pub(crate) fn admit(&mut self, key: &str, line: &str, now: Ms) -> Option<String> {
        let key = match self.0.contains_key(key) || self.0.len() < LINES_MAX {
            true => key,
            false => "",
        };
        if let Some(logged) = self.0.get_mut(key) {
            logged.more += 1;
            line.clone_into(&mut logged.last);
            if now.since(logged.at) < EVERY_MS {
                return None;
            }
            let logged = self.0.remove(key)?;
            let line = logged.line();
            self.remember(key, now);
            return Some(line);
        }
        self.remember(key, now);
        Some(line.to_owned())
    }

    fn remember(&mut self, key: &str, at: Ms) {
        let logged = LoggedText {
            at,
            last: String::new(),
            more: 0,
        };
        self.0.insert(key.to_owned(), logged);
    }

    /// The lines whose time has come while nothing new did. Forgets those that
    /// do not come any more.
    pub(crate) fn overdue(&mut self, now: Ms) -> Vec<String> {
        let due = |logged: &LoggedText| now.since(logged.at) >= EVERY_MS;
        let over: Vec<String> = self
            .0
            .iter()
            .filter(|(_, logged)| due(logged))
            .map(|(key, _)| key.clone())
            .collect();
        let gone = over.into_iter().filter_map(|key| self.0.remove(&key));
        gone.filter(|logged| logged.more > 0)
            .map(LoggedText::line)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_in_some_seconds_with_a_count() {
        let mut repeats = Repeats::default();
        let mut logged = Vec::new();
        for ms in 0..3_000 {
            logged.extend(repeats.admit("a", "broken", Ms(ms)));
        }
        assert_eq!(logged, ["broken"]);
        assert_eq!(
            repeats.admit("a", "broken", Ms(5_000)).as_deref(),
            Some("broken (3000 times)")
        );
        // Another one is logged.
        assert_eq!(repeats.admit("b", "other", Ms(1)).as_deref(), Some("other"));
        assert_eq!(repeats.admit("a", "broken", Ms(5_001)), None);
        assert_eq!(repeats.overdue(Ms(9_999)), Vec::<String>::new());
        assert_eq!(repeats.overdue(Ms(10_000)), ["broken"]);
        assert_eq!(repeats.overdue(Ms(60_000)), Vec::<String>::new());
        // After a pause it is new.
        assert_eq!(
            repeats.admit("a", "broken", Ms(60_000)).as_deref(),
            Some("broken")
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut repeats = Repeats::default();
        let mut logged = 0;
        for n in 0..10_000 {
            logged += usize::from(repeats.admit(&n.to_string(), "x", Ms(n)).is_some());
        }
        assert!(
            repeats.0.len() <= LINES_MAX + 1 && logged < LINES_MAX + 5,
            "{logged}"
        );
    }
}
