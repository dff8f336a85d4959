//! The results, as text.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Args;
use crate::ledger::{DEEDS, Ledger, PROTOCOLS};

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

/// Whether a kind of fault ends the server without a chance to write.
fn is_kill(kind: &str) -> bool {
    kind.starts_with("kill") || kind.starts_with("power cut")
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

    /// Whether a campaign ends: after its minutes, or before with `--early`, as soon as its minimum
    /// is reached. A slow machine has three times as long for `--at-least`.
    pub(crate) fn are_enough(&self, ledger: &Ledger, args: &Args, passed: Duration) -> bool {
        let time = Duration::from_secs(args.minutes * 60);
        let reached = || args.early && self.missed(ledger, args).is_empty();
        passed >= time * 3
            || (passed >= time || reached()) && self.too_few(ledger, args.at_least).is_empty()
    }

    /// What `--kills` and `--puts` ask for and the time was too short for: the campaign says so and
    /// does not fail, as a slow machine has fewer.
    pub(crate) fn missed(&self, ledger: &Ledger, args: &Args) -> Vec<String> {
        let kills = self.kinds.iter().filter(|(name, _)| is_kill(name));
        let kills: u64 = kills.map(|(_, tally)| tally.happened).sum();
        let puts: u64 = ledger.counts.iter().map(|counts| counts.puts).sum();
        let minima = [
            ("kills and power cuts", kills, args.kills),
            ("acknowledged messages", puts, args.puts),
        ];
        let missed = minima.into_iter().filter(|(_, count, least)| count < least);
        missed
            .map(|(what, count, least)| format!("{count} of {least} {what}"))
            .collect()
    }

    /// The events that did not happen often enough.
    pub(crate) fn too_few(&self, ledger: &Ledger, at_least: u64) -> Vec<String> {
        let protocols = PROTOCOLS.iter().zip(&ledger.counts);
        let mut few: Vec<String> = protocols
            .filter(|(_, counts)| counts.puts < at_least)
            .map(|(protocol, counts)| format!("{protocol}: {} puts", counts.puts))
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

    /// The counts of each client, and the findings.
    pub(crate) fn counts(&self, ledger: &Ledger) -> String {
        let mut text = String::new();
        let out = &mut text;
        // Writing to a String does not fail.
        let (rounds, checks, seconds) = (self.rounds, self.checks, self.seconds);
        writeln!(out, "{rounds} rounds and {checks} checks in {seconds} s\n").ok();
        let head = ["protocol", "puts", "refused", "finishes", "unknown"];
        let [a, b, c, d, e] = head;
        writeln!(out, "{a:10} {b:>9} {c:>9} {d:>9} {e:>9}").ok();
        let mut sum = [0; 4];
        for (protocol, counts) in PROTOCOLS.iter().zip(&ledger.counts) {
            let row = [counts.puts, counts.refused, counts.finishes, counts.unknown];
            let [b, c, d, e] = row;
            writeln!(out, "{protocol:10} {b:>9} {c:>9} {d:>9} {e:>9}").ok();
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
    use std::time::Duration;

    use clap::Parser as _;

    use super::Sums;
    use crate::Args;
    use crate::ledger::{DEEDS, Ledger, PROTOCOLS};

    #[test]
    fn an_early_end_waits_for_the_minimum_and_a_slow_machine_for_three_times_the_minutes() {
        let args = |words: &str| {
            let words = format!("stress --quintet q --scratch s --minutes 2 {words}");
            Args::parse_from(words.split_whitespace())
        };
        let (early, timed) = (
            args("--early --at-least 1 --kills 2 --puts 7"),
            args("--at-least 1"),
        );
        let mut sums = Sums::new(["kill -9", "power cut", "SIGTERM"].into_iter());
        let mut ledger = Ledger::new();
        for counts in &mut ledger.counts {
            counts.puts = 1;
        }
        ledger.deeds = [1; DEEDS.len()];
        let s = Duration::from_secs;
        sums.add("kill -9", 1);
        sums.add("SIGTERM", 1);
        for (args, at, over) in [
            (&early, 1, false),
            (&timed, 359, false),
            (&timed, 360, true),
        ] {
            assert_eq!(sums.are_enough(&ledger, args, s(at)), over, "{args:?} {at}");
        }
        let many = args("--early --kills 2 --puts 1000");
        let puts = ledger.counts.len();
        assert_eq!(
            sums.missed(&ledger, &many),
            [
                "1 of 2 kills and power cuts".to_owned(),
                format!("{puts} of 1000 acknowledged messages")
            ]
        );
        sums.add("power cut", 1);
        assert_eq!(sums.missed(&ledger, &timed), [""; 0]);
        assert!(
            sums.are_enough(&ledger, &timed, s(120)) && !sums.are_enough(&ledger, &timed, s(119))
        );
        assert!(sums.are_enough(&ledger, &early, s(1)) == (ledger.counts.len() >= 7));
        ledger.counts[0].puts = 7;
        assert!(sums.are_enough(&ledger, &early, s(1)));
    }

    #[test]
    fn a_rare_event_is_named() {
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
                format!("{}: 0 puts", PROTOCOLS[0]),
                format!("{}: 2 times", DEEDS[1]),
                "seldom: 0 times".into()
            ]
        );
        assert!(sums.too_few(&ledger, 0).is_empty());
    }
}
