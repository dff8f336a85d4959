//! Metrics of listeners and their clients.

use quintet_client::ByteBudget;
use quintet_host::{Point, Spread};

/// Numbers of all listeners together. The protocols' numbers are only of those that are spoken.
#[derive(Default)]
pub struct EdgeNumbers {
    /// Connections open now, but those of HTTP and SQS.
    pub open: u64,
    /// Connections since the start.
    pub accepted: u64,
    /// Those for whom there was no place.
    pub refused: u64,
    /// Those the system could not give.
    pub accepts_failed: u64,
    pub spoke_tls: u64,
    pub spoke_http: u64,
    /// Worker processes that are known.
    pub workers: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Held by connections for input, uploads and replies.
    pub memory: Budget,
    /// Of large messages that are not whole yet.
    pub uploads: Budget,
    pub tls_open: u64,
    pub tls_handshakes: u64,
    /// By reason.
    pub tls_failures: Vec<Point>,
    /// When the first certificate ends, seconds since 1970.
    pub certificate_end: Option<u64>,
    pub logins: LoginNumbers,
    /// Server commands of clients without the right.
    pub not_permitted: u64,
    /// By limit, and whose it is.
    pub limit_command_errors: Vec<Point>,
    /// By whose limit it is.
    pub limit_delays: Vec<Point>,
    /// Connections of HTTP and SQS.
    pub http_open: u64,
    /// Those of them refused, as their address had too many.
    pub http_crowded: u64,
    pub streams: StreamNumbers,
    /// By protocol and command.
    pub commands: Vec<Point>,
    /// By protocol and reason.
    pub command_errors: Vec<Point>,
    /// By protocol and family of commands.
    pub latencies: Vec<Spread>,
    /// By family and status.
    pub http_replies: Vec<Point>,
    /// The same of SQS.
    pub sqs_replies: Vec<Point>,
    /// By protocol and name.
    pub protocol_counts: Vec<Point>,
}

/// Bytes of a bounded supply.
#[derive(Default)]
pub struct Budget {
    pub used: u64,
    pub limit: u64,
    /// Times that it was not enough.
    pub turned_away: u64,
}

impl Budget {
    /// As they are now.
    pub fn of(budget: &ByteBudget) -> Self {
        Self {
            used: budget.used(),
            limit: budget.limit(),
            turned_away: budget.turned_away(),
        }
    }
}

/// Results of logins since the start.
#[derive(Default)]
pub struct LoginNumbers {
    pub ok: u64,
    pub failed: u64,
    pub throttled: u64,
    pub busy: u64,
}

/// Event streams of HTTP.
#[derive(Default)]
pub struct StreamNumbers {
    pub open: u64,
    pub refused: u64,
    /// Ended because their client did not read.
    pub slow: u64,
}
