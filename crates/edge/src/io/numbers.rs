//! Counters of listeners and their connections, summed up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quintet_host::{Distribution, Point, Spread, TIMES};
use quintet_wire::VOICES;

use super::counts::{Family, VoiceCounts};
use crate::edge::Edge;

impl Edge {
    /// Every counter of the voices that are spoken, by voice and name.
    pub fn voice_counts(&self) -> Vec<Point> {
        let mut all = Vec::new();
        for (tally, voice) in VOICES.iter().enumerate() {
            if self.listeners.iter().any(|l| l.tally == tally) {
                let mut sum = Vec::new();
                for thread in &self.threads {
                    thread.voices[tally].tally.add_to(&mut sum);
                }
                let named = voice.tally_names.iter().zip(sum);
                all.extend(named.map(|(name, value)| {
                    let labels = vec![voice.name.into(), Cow::Borrowed(*name)];
                    (labels, value as f64)
                }));
            }
        }
        all
    }

    /// Each thread's counters of the protocols in use, with their names.
    fn spoken(&self) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &VoiceCounts>)> {
        let voices = VOICES.iter().enumerate();
        let spoken = voices.filter(|&(tally, _)| self.listeners.iter().any(|l| l.tally == tally));
        spoken.map(|(tally, voice)| {
            let threads = self.threads.iter();
            (voice.name, threads.map(move |thread| &thread.voices[tally]))
        })
    }

    /// Named counters of the voices that are spoken, but those that never counted.
    fn by_voice(&self, counters: fn(&VoiceCounts) -> Vec<(&'static str, u64)>) -> Vec<Point> {
        let mut all = Vec::new();
        for (voice, counts) in self.spoken() {
            let mut sums = BTreeMap::new();
            for (name, count) in counts.flat_map(counters) {
                *sums.entry(name).or_default() += count;
            }
            sums.retain(|_, count: &mut u64| *count > 0);
            let named = sums.into_iter();
            all.extend(named.map(|(name, count)| (vec![voice.into(), name.into()], count as f64)));
        }
        all
    }

    /// How long replies took, by voice and family of commands.
    pub fn latencies(&self) -> Vec<Spread> {
        let mut all = Vec::new();
        for (voice, counts) in self.spoken() {
            let mut sums = Family::ALL.map(|family| (family, Distribution::of(TIMES)));
            for counts in counts {
                for (family, sum) in &mut sums {
                    counts.add_latency_to(*family, sum);
                }
            }
            all.extend(sums.map(|(family, sum)| (vec![voice.into(), family.name().into()], sum)));
        }
        all.extend(self.http.latencies());
        all.extend(self.sqs.latencies());
        all
    }

    /// How often each command came, by voice.
    pub fn commands(&self) -> Vec<Point> {
        self.by_voice(|counts| counts.commands().collect())
    }

    /// How often each refusal was said, by voice and reason.
    pub fn refusals(&self) -> Vec<Point> {
        self.by_voice(|counts| counts.refusals().collect())
    }
}
