//! Settings of queues that do not go together: `aging` and `when_full = "drop_oldest"`.
//!
//! Where messages age, the last ones of a queue are not its oldest, so a full queue drops none: it
//! refuses puts. Rules combine by pattern, so the two may come from different tables.

use quintet_types::{Overrides, Pattern, QueueSettings, Settings, WhenFull};

use super::Config;
use super::wrong::Wrong;

/// The end of each sentence.
pub(crate) const WHY: &str = "aging and when_full = \"drop_oldest\" do not go together: a queue \
                              with aging refuses puts when it is full";

pub(crate) fn clash(settings: &QueueSettings) -> bool {
    settings.aging.count > 0 && settings.when_full == WhenFull::DropOldest
}

impl Config {
    /// Queues that would have both settings; the answer names pairs of patterns that some name may
    /// match both of.
    ///
    /// # Errors
    /// A queue that matches one table has both.
    pub fn together(&self) -> Result<Vec<String>, Wrong> {
        let settings = self.engine_settings();
        if clash(&settings.defaults) {
            return Err(
                Wrong::of_key("aging", format!("in [defaults]: {WHY}")).of_table("defaults")
            );
        }
        for (row, (name, own)) in self.rules.iter().enumerate() {
            // A pattern is a name that it matches itself.
            if clash(&settings.resolve(name.as_bytes())) {
                let (aging, full) = self.sources(name.as_bytes());
                let key = if ages(own) { "aging" } else { "when_full" };
                let from = format!("aging is from {aging}, when_full from {full}");
                let wrong = Wrong::of_key(key, format!("in [[queue]] {name}: {WHY} ({from})"));
                return Err(wrong.of_row(row).of_table("queue"));
            }
        }
        let mut doubts = Vec::new();
        for (row, (one, first)) in self.rules.iter().enumerate() {
            for (other, second) in &self.rules[row + 1..] {
                if both_match(&settings, (one, first), (other, second)) {
                    doubts.push(format!(
                        "a queue may match both [[queue]] {one} and [[queue]] {other}: {WHY}"
                    ));
                }
            }
        }
        Ok(doubts)
    }

    /// The tables that give a queue of this name the two settings.
    fn sources(&self, name: &[u8]) -> (String, String) {
        let of = |gives: fn(&Overrides) -> bool| {
            let rules = self
                .rules
                .iter()
                .map(|(name, rule)| (Pattern::new(name), name, rule));
            let mut from = "[defaults]".to_owned();
            let mut exact = false;
            for (pattern, rule_name, rule) in rules {
                let is_exact = matches!(pattern, Pattern::Exact(_));
                if pattern.matches(name) && gives(rule) && (is_exact || !exact) {
                    exact = is_exact;
                    from = format!("[[queue]] {rule_name}");
                }
            }
            from
        };
        (
            of(|rule| rule.aging.is_some()),
            of(|rule| rule.when_full.is_some()),
        )
    }
}

fn ages(rule: &Overrides) -> bool {
    rule.aging.is_some_and(|rate| rate.count > 0)
}

/// True if two patterns give one of the settings each, and a name may match both.
fn both_match(
    settings: &Settings,
    (one, first): (&str, &Overrides),
    (other, second): (&str, &Overrides),
) -> bool {
    let drops = |rule: &Overrides| rule.when_full == Some(WhenFull::DropOldest);
    if !(ages(first) && drops(second) || drops(first) && ages(second)) {
        return false;
    }
    let (Pattern::Glob(one), Pattern::Glob(other)) = (Pattern::new(one), Pattern::new(other))
    else {
        // Known for certain by the exact name.
        return false;
    };
    let mut both = settings.defaults.clone();
    first.lay_over(&mut both);
    second.lay_over(&mut both);
    clash(&both) && may_meet(&one, &other)
}

/// True if a name matches both patterns.
fn may_meet(one: &[u8], other: &[u8]) -> bool {
    // The patterns' ends that may still match the same rest, for each end of `one`.
    let mut ends = vec![vec![false; other.len() + 1]; one.len() + 1];
    for i in (0..=one.len()).rev() {
        for j in (0..=other.len()).rev() {
            let (a, b) = (one.get(i), other.get(j));
            ends[i][j] = match (a, b) {
                (None, None) => true,
                (Some(b'*'), _) if ends[i + 1][j] => true,
                (_, Some(b'*')) if ends[i][j + 1] => true,
                (Some(b'*'), Some(_)) => ends[i][j + 1],
                (Some(_), Some(b'*')) => ends[i + 1][j],
                (Some(a), Some(b)) => (a == b || *a == b'?' || *b == b'?') && ends[i + 1][j + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
    }
    ends[0][0]
}

#[cfg(test)]
mod tests {
    use super::may_meet;
    use crate::from_text;

    #[test]
    fn two_patterns_meet_where_a_name_matches_both() {
        for (one, other, expected) in [
            ("a*", "*b", true),
            ("a*", "b*", false),
            ("*", "", true),
            ("a?c", "ab*", true),
            ("a?", "abc", false),
            ("*x*", "*y*", true),
            ("a*c", "a*d", false),
        ] {
            let (one, other) = (one.as_bytes(), other.as_bytes());
            assert_eq!(may_meet(one, other), expected, "{one:?} {other:?}");
            assert_eq!(may_meet(other, one), expected, "{other:?} {one:?}");
        }
    }

    /// Error, or doubts.
    fn found(file: &str) -> Result<Vec<String>, String> {
        let config = from_text(file).map_err(|error| format!("{error:#}"))?;
        let together = config.together();
        together.map_err(|wrong| wrong.on_line(file, "queue").to_string())
    }

    const AGES: &str = "aging = '1 per 10m'\n";
    const DROPS: &str = "when_full = 'drop_oldest'\n";

    #[test]
    fn aging_and_drop_oldest_of_one_queue_are_an_error_that_names_the_tables() {
        let queue = |name: &str, more: &str| format!("[[queue]]\nname = '{name}'\n{more}");
        let error = |file: String| found(&file).expect_err(&file);
        let both = AGES.to_owned() + DROPS;
        assert!(error(format!("[defaults]\n{both}")).contains("[defaults]"));
        let one = error(queue("work", &both));
        assert!(
            one.starts_with("line 3: in [[queue]] work: aging and when_full"),
            "{one}"
        );
        let two = error(format!("[defaults]\n{DROPS}") + &queue("w*", AGES));
        let from = "(aging is from [[queue]] w*, when_full from [defaults])";
        assert!(two.ends_with(from), "{two}");
        let three = error(queue("w*", AGES) + &queue("work", DROPS));
        let from = "(aging is from [[queue]] w*, when_full from [[queue]] work)";
        assert!(
            three.starts_with("line 6: ") && three.ends_with(from),
            "{three}"
        );
        // The narrower table takes one of them back.
        for file in [
            format!("[defaults]\n{DROPS}") + &queue("w*", &format!("{AGES}when_full = 'refuse'")),
            queue("w*", DROPS) + &queue("work", "aging = '1 per 10m'\nwhen_full = 'refuse'"),
            queue("work", AGES) + &queue("other", DROPS),
            queue("a*", AGES) + &queue("b*", DROPS),
        ] {
            assert_eq!(found(&file), Ok(Vec::new()), "{file}");
        }
        let doubts = found(&(queue("w*", AGES) + &queue("*k", DROPS))).expect("no error");
        assert_eq!(doubts.len(), 1);
        let names = "both [[queue]] w* and [[queue]] *k";
        assert!(doubts[0].contains(names), "{doubts:?}");
    }
}
