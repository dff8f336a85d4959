//! What sessions ask the host: numbers, the configuration, a stop.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_config::{Secrets, print};
use quintet_door::Exposition;
use quintet_host::{Decided, Distribution, Point, Spread, TIMES, locked};
use quintet_ops::metrics::{
    Budget, EdgeNumbers, LoginNumbers, Process, Reading, StreamNumbers, Told, samples, text,
};
use quintet_types::{
    Caller, Command, Name, Outcome, Party, Principal, Refusal, ShardStats, StatsOf, StatsReply,
};
use quintet_wire::{Foreign, Given, HostAsk, ServerStats, VOICES};

use crate::io::{Family, VoiceCounts};
use crate::server::{Listening, Order, Server, TellReload};

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
            HostAsk::Metrics => Given::Host(Ok(self.metrics(None, Exposition::Prometheus, &[]))),
            HostAsk::Rates => Given::Host(Ok(self.looks.all_rates())),
            HostAsk::Foreign(foreign) => {
                if foreign == Foreign::Tls {
                    self.spoke_tls.fetch_add(1, Ordering::Relaxed);
                }
                listening.tell_foreign(foreign);
                Given::Own
            }
            HostAsk::Listener | HostAsk::Noted(..) => Given::Host(Ok(String::new())),
            HostAsk::Steer(state, wid) => Given::Host(match self.steer_worker(state, &wid) {
                true => Ok(String::new()),
                false => Err(format!("there is no worker {}", wid.escape_debug())),
            }),
            // Asked of other threads, unless it was refused.
            HostAsk::Clients
            | HostAsk::Workers
            | HostAsk::CloseClient(_)
            | HostAsk::Crons
            | HostAsk::Cron(..)
            | HostAsk::Reload => Given::Host(Err(String::new())),
            HostAsk::Drain(on) => Given::Host(self.order(Order::Drain(on))),
            HostAsk::Config => Given::Host(Ok(print(&locked(&self.config), Secrets::Hidden))),
            HostAsk::Shutdown if self.limits.allow_shutdown.load(Ordering::Relaxed) => {
                Given::Host(self.order(Order::Stop))
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

    /// What comes in through the door is ordered as over a connection.
    pub(crate) fn ordered(
        &self,
        order: quintet_door::Order,
        principal: Principal,
    ) -> Result<(), String> {
        let order = match order {
            quintet_door::Order::Drain => Order::Drain(true),
            quintet_door::Order::Undrain => Order::Drain(false),
            quintet_door::Order::Reload => Order::Reload(client(principal), false),
        };
        self.order(order).map(|_| ())
    }

    /// Has the configuration read again, for `principal`; `tell` is told what came of it, or
    /// dropped where the server stops.
    pub(crate) fn reload_and_tell(&self, principal: Principal, tell: TellReload) {
        // Under one lock, so that tells stand in the order of the orders.
        let mut tells = locked(&self.reload_tells);
        if self
            .orders
            .send(Order::Reload(client(principal), true))
            .is_ok()
        {
            tells.push_back(tell);
        }
    }

    fn order(&self, order: Order) -> Result<String, String> {
        self.orders
            .send(order)
            .map_err(|_| "the server is stopping".to_owned())?;
        Ok(String::new())
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
        Reading {
            uptime: self.started.elapsed(),
            process: Process::read(),
            core: &self.core,
            shard,
            edge: self.edge_numbers(),
            hooks: self.hooks.shared(),
            crons: &self.crons,
            looks: &self.looks,
            spans: &self.spans,
            cold: self.core.cold_numbers(&shard.cold),
            cluster: self.node.as_ref().map(|node| node.numbers()),
        }
    }

    fn edge_numbers(&self) -> EdgeNumbers {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let now = self.core.clock.now();
        let (tls, http, logins) = (&self.tls.shared, &self.http, &self.trust.counts);
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
            limit_refusals: self.quotas.refusals(),
            limit_delays: self.quotas.delays(),
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
            errors: self.texts(),
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
