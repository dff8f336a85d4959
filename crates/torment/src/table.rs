//! What came out, as text.

use std::fmt::Write as _;

use crate::ledger::{DEEDS, Ledger, VOICES};

/// How often a kind of fault was tried, did something, and to how many calls.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) tried: u64,
    pub(crate) happened: u64,
    pub(crate) calls: u64,
}

/// All of a campaign.
pub(crate) struct Sums {
    pub(crate) rounds: u64,
    pub(crate) checks: u64,
    pub(crate) seconds: u64,
    /// By name, in the order they are shown.
    pub(crate) kinds: Vec<(&'static str, Tally)>,
    pub(crate) longest_us: u64,
    pub(crate) undone: u64,
    pub(crate) script_runs: u64,
}

impl Sums {
    /// Of a campaign with these kinds of faults, in the order they are shown.
    pub(crate) fn new(kinds: impl Iterator<Item = &'static str>) -> Self {
        Self {
            rounds: 0,
            checks: 0,
            seconds: 0,
            kinds: kinds.map(|name| (name, Tally::default())).collect(),
            longest_us: 0,
            undone: 0,
            script_runs: 0,
        }
    }

    pub(crate) fn add(&mut self, name: &'static str, calls: u64) {
        if let Some((_, tally)) = self.kinds.iter_mut().find(|(kind, _)| *kind == name) {
            tally.tried += 1;
            tally.happened += u64::from(calls > 0);
            tally.calls += calls;
        }
    }

    /// What did not come often enough.
    pub(crate) fn too_few(&self, ledger: &Ledger, at_least: u64) -> Vec<String> {
        let voices = VOICES.iter().zip(&ledger.counts);
        let mut few: Vec<String> = voices
            .filter(|(_, counts)| counts.puts < at_least)
            .map(|(voice, counts)| format!("{voice}: {} puts", counts.puts))
            .collect();
        let deeds = DEEDS.iter().zip(&ledger.deeds);
        few.extend(
            deeds
                .filter(|(_, times)| **times < at_least)
                .map(|(deed, times)| format!("{deed}: {times} times")),
        );
        let kinds = self.kinds.iter();
        few.extend(
            kinds
                .filter(|(_, tally)| tally.happened < at_least)
                .map(|(name, tally)| format!("{name}: {} times", tally.happened)),
        );
        few
    }

    /// Who did how much, and what was found.
    pub(crate) fn counts(&self, ledger: &Ledger) -> String {
        let mut text = String::new();
        let out = &mut text;
        // Writing to a String does not fail.
        let (rounds, checks, seconds) = (self.rounds, self.checks, self.seconds);
        writeln!(out, "{rounds} rounds and {checks} checks in {seconds} s\n").ok();
        let head = ["voice", "puts", "refused", "finishes", "unknown"];
        let [a, b, c, d, e] = head;
        writeln!(out, "{a:10} {b:>9} {c:>9} {d:>9} {e:>9}").ok();
        let mut sum = [0; 4];
        for (voice, counts) in VOICES.iter().zip(&ledger.counts) {
            let row = [counts.puts, counts.refused, counts.finishes, counts.unknown];
            let [b, c, d, e] = row;
            writeln!(out, "{voice:10} {b:>9} {c:>9} {d:>9} {e:>9}").ok();
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
        let [b, c, d, e] = sum;
        writeln!(out, "{:10} {b:>9} {c:>9} {d:>9} {e:>9}\n", "all").ok();
        for (deed, times) in DEEDS.iter().zip(&ledger.deeds) {
            writeln!(out, "{deed:24} {times:>9}").ok();
        }
        writeln!(out, "\nlost {}, twice {}", ledger.lost, ledger.twice).ok();
        writeln!(
            out,
            "not there, and as many removals without a reply: {}",
            ledger.explained
        )
        .ok();
        writeln!(out, "runs of the script: {}", self.script_runs).ok();
        text
    }

    /// All of it.
    pub(crate) fn table(&self, ledger: &Ledger) -> String {
        let mut text = self.counts(ledger);
        let out = &mut text;
        writeln!(out).ok();
        let head = ["fault", "tried", "happened", "calls"];
        let [a, b, c, d] = head;
        writeln!(out, "{a:24} {b:>9} {c:>9} {d:>9}").ok();
        for (name, tally) in &self.kinds {
            let (b, c, d) = (tally.tried, tally.happened, tally.calls);
            writeln!(out, "{name:24} {b:>9} {c:>9} {d:>9}").ok();
        }
        let longest = self.longest_us / 1000;
        writeln!(out, "\nundone by power cuts: {} bytes", self.undone).ok();
        writeln!(
            out,
            "longest wait of a well-behaved client beside hostile ones: {longest} ms"
        )
        .ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Sums;
    use crate::ledger::{DEEDS, Ledger, VOICES};

    #[test]
    fn what_came_too_seldom_is_named() {
        let mut sums = Sums::new(["often", "seldom"].into_iter());
        let mut ledger = Ledger::new();
        for counts in &mut ledger.counts[1..] {
            counts.puts = 3;
        }
        ledger.deeds = [3; DEEDS.len()];
        ledger.deeds[1] = 2;
        for _ in 0..3 {
            sums.add("often", 5);
            // Tried is not enough.
            sums.add("seldom", 0);
        }
        let few = sums.too_few(&ledger, 3);
        assert_eq!(
            few,
            [
                format!("{}: 0 puts", VOICES[0]),
                format!("{}: 2 times", DEEDS[1]),
                "seldom: 0 times".into()
            ]
        );
        assert!(sums.too_few(&ledger, 0).is_empty());
    }
}
