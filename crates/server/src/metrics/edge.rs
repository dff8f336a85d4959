//! What is told of listeners and of those who come there.

use quintet_door::ByteBudget;
use quintet_host::{Point, Spread};

/// Numbers of all listeners together. The voices' numbers are only of those that are spoken.
#[derive(Default)]
pub(crate) struct EdgeNumbers {
    /// Connections open now, but those of HTTP and SQS.
    pub(crate) open: u64,
    /// All that ever came.
    pub(crate) accepted: u64,
    /// Those for whom there was no place.
    pub(crate) refused: u64,
    /// Those the system could not give.
    pub(crate) accepts_failed: u64,
    pub(crate) spoke_tls: u64,
    pub(crate) spoke_http: u64,
    /// Worker processes that are known.
    pub(crate) workers: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Held by connections for input, uploads and replies.
    pub(crate) memory: Budget,
    /// Of large messages that are not whole yet.
    pub(crate) uploads: Budget,
    pub(crate) tls_open: u64,
    pub(crate) tls_handshakes: u64,
    /// By reason.
    pub(crate) tls_failures: Vec<Point>,
    /// When the first certificate ends, seconds since 1970.
    pub(crate) certificate_end: Option<u64>,
    pub(crate) logins: LoginNumbers,
    /// Server commands of clients without the right.
    pub(crate) not_permitted: u64,
    /// By limit, and whose it is.
    pub(crate) limit_refusals: Vec<Point>,
    /// By whose limit it is.
    pub(crate) limit_delays: Vec<Point>,
    /// Connections of HTTP and SQS.
    pub(crate) http_open: u64,
    /// Those of them refused, as their address had too many.
    pub(crate) http_crowded: u64,
    pub(crate) streams: StreamNumbers,
    /// By voice and command.
    pub(crate) commands: Vec<Point>,
    /// By voice and reason.
    pub(crate) refusals: Vec<Point>,
    /// By voice and family of commands.
    pub(crate) latencies: Vec<Spread>,
    /// By family and status.
    pub(crate) http_replies: Vec<Point>,
    /// The same of SQS.
    pub(crate) sqs_replies: Vec<Point>,
    /// By voice and name.
    pub(crate) voice_counts: Vec<Point>,
}

/// Bytes of a bounded supply.
#[derive(Default)]
pub(crate) struct Budget {
    pub(crate) used: u64,
    pub(crate) limit: u64,
    /// Times that it was not enough.
    pub(crate) turned_away: u64,
}

impl Budget {
    /// As they are now.
    pub(crate) fn of(budget: &ByteBudget) -> Self {
        Self {
            used: budget.used(),
            limit: budget.limit(),
            turned_away: budget.turned_away(),
        }
    }
}

/// What came of logins since the start.
#[derive(Default)]
pub(crate) struct LoginNumbers {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) throttled: u64,
    pub(crate) busy: u64,
}

/// Event streams of HTTP.
#[derive(Default)]
pub(crate) struct StreamNumbers {
    /// Open now.
    pub(crate) open: u64,
    pub(crate) refused: u64,
    /// Ended because their client did not read.
    pub(crate) slow: u64,
}
