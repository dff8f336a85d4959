//! Numbers of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use quintet_client::Operator as _;
use quintet_edge::Edge;
use quintet_host::Decided;
use quintet_ops::metrics::{Budget, EdgeNumbers, LoginNumbers, Process, Reading, StreamNumbers};
use quintet_types::{Caller, ClientId, Command, Outcome, ShardStats, StatsOf, StatsReply};
use serde_json::Value;

use crate::server::Server;

impl Server {
    /// The texts among the statistics.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let events = self.hook_events().into_iter();
        let errors = events.filter_map(|event| {
            let last = event.last_error?;
            Some((format!("hook_{}_last_error", event.name), last))
        });
        let of_node = self.node.iter().flat_map(|node| node.texts());
        errors.chain(of_node).collect()
    }

    pub(crate) fn shard_stats(&self) -> ShardStats {
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

    pub(crate) fn reading<'a>(&'a self, shard: &'a ShardStats) -> Reading<'a> {
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
}

/// Whole numbers without a point.
pub(crate) fn number(value: f64) -> Value {
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
pub(crate) fn machine() -> [String; 3] {
    let uname = rustix::system::uname();
    [uname.nodename(), uname.version(), uname.machine()]
        .map(|text| text.to_string_lossy().into_owned())
}
