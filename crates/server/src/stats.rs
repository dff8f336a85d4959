//! Requests of sessions to the host: numbers, the configuration, a stop.

use std::sync::atomic::{AtomicU64, Ordering};

use quintet_client::{Exposition, TellReload};
use quintet_config::{Secrets, print};
use quintet_edge::{Edge, Listening, Operator};
use quintet_host::{Decided, locked, wall_ms};
use quintet_ops::metrics::{
    Budget, EdgeNumbers, LoginNumbers, Process, QueueSurvey, Reading, StreamNumbers, samples, text,
};
use quintet_process::Order;
use quintet_types::{
    Caller, ClientId, Command, CommandError, Name, Needed, Outcome, Principal, ShardStats, StatsOf,
    StatsReply,
};
use quintet_wire::{Foreign, HostRequest, ServerResponse, ServerStats};
use serde_json::{Map, Value};

use crate::server::Server;

impl Operator for Server {
    fn answer(
        &self,
        ask: HostRequest,
        listening: &Listening,
        principal: Principal,
    ) -> ServerResponse {
        let needed = ask.operation().needs();
        if needed == Needed::Server && !self.security.auth.may_server(principal) {
            let refused = Outcome::Refused(CommandError::NotPermitted);
            return ServerResponse::Engine(refused, Name::default());
        }
        match ask {
            HostRequest::Stats => ServerResponse::Server(Box::new(self.stats(listening.tally))),
            HostRequest::Foreign(foreign) => {
                if foreign == Foreign::Tls {
                    self.edge.spoke_tls.fetch_add(1, Ordering::Relaxed);
                }
                listening.report_foreign(foreign);
                ServerResponse::Own
            }
            HostRequest::Listener | HostRequest::Noted(..) => {
                ServerResponse::Host(Ok(String::new()))
            }
            // Asked of another thread, unless it was refused.
            HostRequest::Reload => ServerResponse::Host(Err(String::new())),
            HostRequest::Config => {
                ServerResponse::Host(Ok(print(&locked(&self.operations.config), Secrets::Hidden)))
            }
            HostRequest::Shutdown if self.edge.limits.allow_shutdown.load(Ordering::Relaxed) => {
                ServerResponse::Host(self.operations.order(Order::Stop))
            }
            HostRequest::Shutdown => ServerResponse::Host(Err(
                "shutdown is not allowed: set allow_shutdown = true".to_owned(),
            )),
        }
    }

    fn reload(&self, principal: Principal, notify: TellReload) {
        self.operations.reload(principal, notify);
    }
}

impl Server {
    /// All numbers, and those of `queues` if they are given.
    pub(crate) fn metrics(
        &self,
        queues: Option<&QueueSurvey>,
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

    /// The last error of each event that had one.
    fn hook_errors(&self) -> Vec<(String, String)> {
        let events = self.security.hooks.shared().stats().into_iter();
        let errors = events.filter_map(|event| {
            let last = event.last?.to_string();
            Some((format!("hook_{}_last_error", event.event.name()), last))
        });
        errors.collect()
    }

    /// The texts among the statistics.
    fn texts(&self) -> Vec<(String, String)> {
        let mut texts = self.hook_errors();
        texts.extend(self.node.iter().flat_map(|node| node.texts()));
        texts
    }

    fn shard_stats(&self) -> ShardStats {
        let ask = Command::Stats(StatsOf::Shard);
        let outcome = self
            .core
            .with_access(|access| access.submit(Caller::server(ClientId::default()), ask));
        if let Decided::Now(Outcome::Stats(reply), ..) = outcome
            && let StatsReply::Shard(shard) = *reply
        {
            return shard;
        }
        ShardStats::default()
    }

    fn reading<'a>(&'a self, shard: &'a ShardStats) -> Reading<'a> {
        Reading {
            uptime: self.operations.started.elapsed(),
            process: Process::read(),
            core: &self.core,
            shard,
            edge: numbers(&self.edge),
            hooks: self.security.hooks.shared(),
            schedules: &self.operations.schedules,
            webhooks: &self.operations.webhooks,
            histories: &self.operations.histories,
            spans: &self.operations.spans,
            cold: self.core.cold_numbers(&shard.cold),
            cluster: self.node.as_ref().map(|node| node.numbers()),
        }
    }

    /// All numbers by name, and the texts.
    pub(crate) fn to_json(&self) -> Value {
        let shard = self.shard_stats();
        let mut map = Map::new();
        map.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        let draining = self.edge.draining.load(Ordering::Relaxed);
        map.insert("draining".into(), draining.into());
        let numbers = samples(&self.reading(&shard)).into_iter();
        map.extend(numbers.map(|(name, value)| (name.to_string(), number(value))));
        let texts = self.texts().into_iter();
        map.extend(texts.map(|(name, text)| (name, text.into())));
        Value::Object(map)
    }

    fn stats(&self, tally: usize) -> ServerStats {
        let shard = self.shard_stats();
        // Not below, where it would be locked while all else is read.
        let segment_bytes = locked(&self.operations.config).segment_bytes;
        let mut stats = ServerStats {
            version: env!("CARGO_PKG_VERSION"),
            time_s: wall_ms() / 1000,
            log_segments: self.core.log_span(),
            segment_bytes,
            instance: self.operations.instance,
            machine: machine(),
            draining: self.edge.draining.load(Ordering::Relaxed),
            numbers: samples(&self.reading(&shard)),
            shard,
            ..ServerStats::default()
        };
        for thread in &self.edge.threads {
            thread.protocols[tally].tally.add_to(&mut stats.tally);
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

/// Counters of all listeners, for the metrics.
fn numbers(edge: &Edge) -> EdgeNumbers {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let now = edge.core.clock.now();
    let (tls, http, logins) = (&edge.tls.shared, &edge.http, &edge.security.auth.counts);
    let failures = tls.failures();
    EdgeNumbers {
        open: of(&edge.guests.open),
        accepted: of(&edge.guests.total),
        refused: of(&edge.guests.refused),
        accepts_failed: of(&edge.accepts_failed),
        spoke_tls: of(&edge.spoke_tls),
        spoke_http: of(&edge.spoke_http),
        workers: edge.guests.workers(|all| all.count(now)),
        bytes_read: edge.threads.iter().map(|at| of(&at.bytes_read)).sum(),
        bytes_written: edge.threads.iter().map(|at| of(&at.bytes_written)).sum(),
        memory: Budget::of(&edge.connection_memory),
        uploads: Budget::of(&edge.uploads),
        tls_open: of(&tls.open),
        tls_handshakes: of(&tls.handshakes),
        tls_failures: failures
            .map(|(why, count)| (vec![why.into()], count as f64))
            .collect(),
        certificate_end: edge.tls.ends(),
        logins: LoginNumbers {
            ok: of(&logins.logins),
            failed: of(&logins.failed),
            throttled: of(&logins.throttled),
            busy: of(&logins.busy),
        },
        not_permitted: of(&logins.forbidden),
        limit_command_errors: edge.security.quotas.command_errors(),
        limit_delays: edge.security.quotas.delays(),
        http_open: http.clients.count(),
        http_crowded: http.clients.crowded(),
        streams: StreamNumbers {
            open: http.streams.open(),
            refused: http.streams.refused(),
            slow: http.streams.slow(),
        },
        commands: edge.commands(),
        command_errors: edge.command_errors(),
        latencies: edge.latencies(),
        http_replies: http.statuses(),
        sqs_replies: edge.sqs.statuses(),
        protocol_counts: edge.protocol_counts(),
    }
}

/// The kernel's report of the machine.
fn machine() -> [String; 3] {
    let uname = rustix::system::uname();
    [uname.nodename(), uname.version(), uname.machine()]
        .map(|text| text.to_string_lossy().into_owned())
}
