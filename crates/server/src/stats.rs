//! What sessions ask the host: numbers, the configuration, a stop.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_config::{Secrets, print};
use quintet_door::{Exposition, TellReload};
use quintet_hooks::EventStats;
use quintet_host::{Decided, Distribution, TIMES, locked};
use quintet_types::{
    Caller, Command, Name, Outcome, Party, Principal, Refusal, ShardStats, StatsOf, StatsReply,
};
use quintet_wire::{Foreign, Given, HostAsk, ServerStats, VOICES};
use serde_json::{Map, Value};

use crate::io::{Family, VoiceCounts};
use crate::metrics::{Point, Reading, Spread, Told, samples, text};
use crate::server::{Listening, Order, Server};

impl Server {
    /// Answers what a session of this listener asks the host.
    pub(crate) fn answer(
        &self,
        ask: HostAsk,
        listening: &Listening,
        principal: Principal,
    ) -> Given {
        let anybodys = matches!(ask, HostAsk::Foreign(_) | HostAsk::Noted(..));
        if !anybodys && !self.trust.may_server(principal) {
            let refused = Outcome::Refused(Refusal::NotPermitted);
            return Given::Engine(refused, Name::default());
        }
        match ask {
            HostAsk::Stats => Given::Server(Box::new(self.stats(listening.tally))),
            HostAsk::Foreign(foreign) => {
                if foreign == Foreign::Tls {
                    self.spoke_tls.fetch_add(1, Ordering::Relaxed);
                }
                listening.tell_foreign(foreign);
                Given::Own
            }
            HostAsk::Listener | HostAsk::Noted(..) => Given::Host(Ok(String::new())),
            // Asked of another thread, unless it was refused.
            HostAsk::Reload => Given::Host(Err(String::new())),
            HostAsk::Config => Given::Host(Ok(print(&locked(&self.config), Secrets::Hidden))),
            HostAsk::Shutdown if self.limits.allow_shutdown.load(Ordering::Relaxed) => {
                let ordered = self.orders.send(Order::Stop);
                Given::Host(match ordered {
                    Ok(()) => Ok(String::new()),
                    Err(_) => Err("the server is stopping".to_owned()),
                })
            }
            HostAsk::Shutdown => Given::Host(Err(
                "shutdown is not allowed: set allow_shutdown = true".to_owned(),
            )),
        }
    }

    /// All numbers, and those of `queues` if they are told of.
    pub(crate) fn metrics(
        &self,
        queues: Option<&Told>,
        exposition: Exposition,
        names: &[String],
    ) -> String {
        text(
            &self.reading(&self.shard_stats()),
            queues,
            exposition,
            names,
        )
    }

    /// Every counter of the voices that are spoken, by voice and name.
    pub(crate) fn voice_counters(&self) -> Vec<Point> {
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

    /// How often each command came, by voice.
    pub(crate) fn commands(&self) -> Vec<Point> {
        self.by_voice(|counts| counts.commands().collect())
    }

    /// What was refused, by voice and reason.
    pub(crate) fn refusals(&self) -> Vec<Point> {
        self.by_voice(|counts| counts.refusals().collect())
    }

    /// How long replies took, by voice and family of commands.
    pub(crate) fn latencies(&self) -> Vec<Spread> {
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

    /// Connections that TLS ended, by reason.
    pub(crate) fn tls_failures(&self) -> Vec<Point> {
        let failures = self.tls.shared.failures();
        let points = failures.map(|(reason, count)| (vec![reason.into()], count as f64));
        points.collect()
    }

    /// What hooks did, by event.
    pub(crate) fn hook_counters(&self, of: fn(&EventStats) -> u64) -> Vec<Point> {
        let events = self.hooks.shared().stats().into_iter();
        let events = events.map(|event| (vec![event.event.name().into()], of(&event) as f64));
        events.collect()
    }

    /// What hooks count themselves, by name.
    pub(crate) fn hook_sums(&self) -> Vec<Point> {
        let sums = self.hooks.shared().metrics.all().into_iter();
        sums.map(|(name, sum)| (vec![String::from(name).into()], sum))
            .collect()
    }

    /// The last error of each event that had one.
    fn hook_errors(&self) -> Vec<(String, String)> {
        let events = self.hooks.shared().stats().into_iter();
        let errors = events.filter_map(|event| {
            let last = event.last?.to_string();
            Some((format!("hook_{}_last_error", event.event.name()), last))
        });
        errors.collect()
    }

    /// What is not a number.
    fn texts(&self) -> Vec<(String, String)> {
        let mut texts = self.hook_errors();
        texts.extend(self.node.iter().flat_map(|node| node.texts()));
        texts
    }

    /// Has the configuration read again, for `principal`; `tell` is told what came of it, or
    /// dropped where the server stops.
    pub(crate) fn reload_for(&self, principal: Principal, tell: TellReload) {
        let order = Order::Reload(client(principal), Some(tell));
        // Dropped with the order.
        let _stopping = self.orders.send(order);
    }

    fn shard_stats(&self) -> ShardStats {
        let ask = Command::Stats(StatsOf::Shard);
        let asked = self
            .core
            .visit(|access| access.submit(Caller::server(Party::default()), ask));
        if let Decided::Now(Outcome::Stats(reply), ..) = asked
            && let StatsReply::Shard(shard) = *reply
        {
            return shard;
        }
        ShardStats::default()
    }

    fn reading<'a>(&'a self, shard: &'a ShardStats) -> Reading<'a> {
        let mut traffic = (0, 0);
        for thread in &self.threads {
            traffic.0 += thread.bytes_read.load(Ordering::Relaxed);
            traffic.1 += thread.bytes_written.load(Ordering::Relaxed);
        }
        Reading {
            server: self,
            shard,
            process: Process::read(),
            traffic,
            cold: self.core.cold_numbers(&shard.cold),
            cluster: self.node.as_ref().map(|node| node.numbers()),
        }
    }

    /// All numbers by name, and the texts.
    pub(crate) fn told(&self) -> Value {
        let shard = self.shard_stats();
        let mut map = Map::new();
        map.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        let draining = self.draining.load(Ordering::Relaxed);
        map.insert("draining".into(), draining.into());
        let numbers = samples(&self.reading(&shard)).into_iter();
        map.extend(numbers.map(|(name, value)| (name.to_string(), number(value))));
        map.extend(
            self.texts()
                .into_iter()
                .map(|(name, text)| (name, text.into())),
        );
        Value::Object(map)
    }

    fn stats(&self, tally: usize) -> ServerStats {
        let shard = self.shard_stats();
        // Not below, where it would be locked while all else is read.
        let segment_bytes = locked(&self.config).segment_bytes;
        let mut stats = ServerStats {
            version: env!("CARGO_PKG_VERSION"),
            time_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            log_segments: self.core.log_span(),
            segment_bytes,
            instance: self.instance,
            machine: machine(),
            draining: self.draining.load(Ordering::Relaxed),
            numbers: samples(&self.reading(&shard)),
            shard,
            ..ServerStats::default()
        };
        for thread in &self.threads {
            thread.voices[tally].tally.add_to(&mut stats.tally);
        }
        stats
    }
}

/// Whole numbers without a point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole and below 2^53"
        )]
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// Whom a reload must not lock out; the operator gets in whatever it says.
fn client(principal: Principal) -> Option<Principal> {
    (principal != Principal::SERVER).then_some(principal)
}

/// What the kernel knows of the machine.
fn machine() -> [String; 3] {
    let uname = rustix::system::uname();
    [uname.nodename(), uname.version(), uname.machine()]
        .map(|text| text.to_string_lossy().into_owned())
}

/// What the kernel knows of this process. Zeros where it does not say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Process {
    /// Processor time in user mode, microseconds.
    pub(crate) cpu_user_us: u64,
    /// The same in the kernel.
    pub(crate) cpu_system_us: u64,
    pub(crate) resident_bytes: u64,
}

impl Process {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Fields are counted behind the name, which may hold spaces.
        let Some((_, fields)) = text.rsplit_once(')') else {
            return Self::default();
        };
        let field = |at: usize| -> u64 {
            let field = fields.split_ascii_whitespace().nth(at);
            field.and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // proc_pid_stat(5): utime is field 14, stime 15, rss, in pages, 24; the
        // state, here 0, is 3.
        Self {
            cpu_user_us: field(11) * tick_us,
            cpu_system_us: field(12) * tick_us,
            resident_bytes: field(21) * rustix::param::page_size() as u64,
        }
    }
}
