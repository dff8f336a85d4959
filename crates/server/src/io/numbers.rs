//! What is counted of listeners and their connections, summed up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_host::{Distribution, Point, Spread, TIMES};
use quintet_ops::metrics::{Budget, EdgeNumbers, LoginNumbers, StreamNumbers};
use quintet_wire::VOICES;

use super::counts::{Family, VoiceCounts};
use crate::edge::Edge;

impl Edge {
    /// What is counted of all listeners, as metrics tell it.
    pub(crate) fn numbers(&self) -> EdgeNumbers {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let now = self.core.clock.now();
        let (tls, http, logins) = (&self.tls.shared, &self.http, &self.security.trust.counts);
        let failures = tls.failures();
        EdgeNumbers {
            open: self.guests.open(),
            accepted: self.guests.total(),
            refused: self.guests.refused(),
            accepts_failed: of(&self.accepts_failed),
            spoke_tls: of(&self.spoke_tls),
            spoke_http: of(&self.spoke_http),
            workers: self.guests.workers(|all| all.count(now)),
            bytes_read: self.threads.iter().map(|at| of(&at.bytes_read)).sum(),
            bytes_written: self.threads.iter().map(|at| of(&at.bytes_written)).sum(),
            memory: Budget::of(&self.connection_memory),
            uploads: Budget::of(&self.uploads),
            tls_open: tls.open(),
            tls_handshakes: tls.handshakes(),
            tls_failures: failures
                .map(|(why, count)| (vec![why.into()], count as f64))
                .collect(),
            certificate_end: self.tls.ends(),
            logins: LoginNumbers {
                ok: of(&logins.logins),
                failed: of(&logins.failed),
                throttled: of(&logins.throttled),
                busy: of(&logins.busy),
            },
            not_permitted: of(&logins.forbidden),
            limit_refusals: self.security.quotas.refusals(),
            limit_delays: self.security.quotas.delays(),
            http_open: http.clients.count(),
            http_crowded: http.clients.crowded(),
            streams: StreamNumbers {
                open: http.streams.open(),
                refused: http.streams.refused(),
                slow: http.streams.slow(),
            },
            commands: self.by_voice(|counts| counts.commands().collect()),
            refusals: self.by_voice(|counts| counts.refusals().collect()),
            latencies: self.latencies(),
            http_replies: http.statuses(),
            sqs_replies: self.sqs.statuses(),
            voice_counts: self.voice_counters(),
        }
    }

    /// Every counter of the voices that are spoken, by voice and name.
    fn voice_counters(&self) -> Vec<Point> {
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

    /// What each thread counts of the voices that are spoken, with their names.
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
    fn latencies(&self) -> Vec<Spread> {
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
}
