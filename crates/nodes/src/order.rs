//! Orders to a node, as an operator's tools and other nodes say them, and its answers.

use serde::{Deserialize, Serialize};

/// A node's own report.
pub const REPORT: &str = "report";
/// The report of the node at an address.
pub const REPORT_OF: &str = "report-of";
/// Another node is to own a group.
pub const MOVE: &str = "move";
/// A node is to own nothing, if others can.
pub const DRAIN: &str = "drain";
/// Or no longer so.
pub const UNDRAIN: &str = "undrain";
/// Why something was not done, for people and for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It makes no sense to this node.
    #[error("not understood")]
    Order,
    /// No such node has been heard of in the last ten minutes.
    #[error("unknown node")]
    UnknownNode,
    /// The node could not serve at once.
    #[error("no complete standby")]
    NoStandby,
    #[error("drained")]
    Drained,
    /// Nobody owns the queues, or the owner cannot be reached.
    #[error("no owner")]
    NoOwner,
    /// JetStream does not answer, or acknowledges nothing.
    #[error("no quorum")]
    NoQuorum,
    /// It was not done in time, and may be later.
    #[error("timed out")]
    TimedOut,
}

impl Fault {
    /// The exit code of a command that fails so.
    pub fn code(self) -> u8 {
        match self {
            Self::Order => 1,
            Self::UnknownNode => 3,
            Self::NoStandby => 4,
            Self::Drained => 5,
            Self::NoOwner => 6,
            Self::NoQuorum => 7,
            Self::TimedOut => 8,
        }
    }
}

/// Result of an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is so already.
    Done,
    /// The owner, in this epoch, lets another node own: this one, if it is known.
    Moving {
        from: String,
        epoch: u64,
        to: Successor,
    },
    /// It is in the registry, and this node is to find it there.
    Told { node: String, address: String },
    /// It was not done.
    Refused { fault: Fault, why: String },
}

/// A node that is to own, and where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Successor {
    pub node: String,
    pub address: String,
}
