//! Counters of listeners and their connections, summed up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quintet_host::{Distribution, Point, Spread, TIMES};
use quintet_wire::{PROTOCOLS, Protocol};

use super::counts::{Family, ProtocolCounts};
use crate::edge::Edge;

impl Edge {
    /// Every counter of the protocols that are spoken, by protocol and name.
    pub fn protocol_counts(&self) -> Vec<Point> {
        let mut all = Vec::new();
        for (protocol, counts) in self.spoken() {
            let mut sum = Vec::new();
            counts.for_each(|counts| counts.tally.add_to(&mut sum));
            let named = protocol.tally_names.iter().zip(sum);
            all.extend(named.map(|(name, value)| {
                let labels = vec![protocol.name.into(), Cow::Borrowed(*name)];
                (labels, value as f64)
            }));
        }
        all
    }

    /// Each thread's counters of the protocols in use.
    fn spoken(
        &self,
    ) -> impl Iterator<Item = (&'static Protocol, impl Iterator<Item = &ProtocolCounts>)> {
        let protocols = PROTOCOLS.iter().enumerate();
        let spoken =
            protocols.filter(|&(tally, _)| self.listeners.iter().any(|l| l.tally == tally));
        spoken.map(|(tally, protocol)| {
            let threads = self.threads.iter();
            let counts = threads.map(move |thread| &thread.protocols[tally]);
            (protocol, counts)
        })
    }

    /// Named counters of the protocols that are spoken, but those that never counted.
    fn by_protocol(&self, counters: fn(&ProtocolCounts) -> Vec<(&'static str, u64)>) -> Vec<Point> {
        let mut all = Vec::new();
        for (protocol, counts) in self.spoken() {
            let mut sums = BTreeMap::new();
            for (name, count) in counts.flat_map(counters) {
                *sums.entry(name).or_default() += count;
            }
            sums.retain(|_, count: &mut u64| *count > 0);
            let named = sums.into_iter();
            all.extend(
                named.map(|(name, count)| (vec![protocol.name.into(), name.into()], count as f64)),
            );
        }
        all
    }

    /// How long replies took, by protocol and family of commands.
    pub fn latencies(&self) -> Vec<Spread> {
        let mut all = Vec::new();
        for (protocol, counts) in self.spoken() {
            let mut sums = Family::ALL.map(|family| (family, Distribution::of(TIMES)));
            for counts in counts {
                for (family, sum) in &mut sums {
                    counts.add_latency_to(*family, sum);
                }
            }
            all.extend(
                sums.map(|(family, sum)| (vec![protocol.name.into(), family.name().into()], sum)),
            );
        }
        all.extend(self.http.latencies());
        all.extend(self.sqs.latencies());
        all
    }

    /// How often each command came, by protocol.
    pub fn commands(&self) -> Vec<Point> {
        self.by_protocol(|counts| counts.commands().collect())
    }

    /// How often each error was said, by protocol and reason.
    pub fn command_errors(&self) -> Vec<Point> {
        self.by_protocol(|counts| counts.command_errors().collect())
    }
}
