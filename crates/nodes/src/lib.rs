//! The part that nodes of a cluster and the commands about them share: the registry, reports and
//! orders, checks of the NATS servers, and logs made from directories.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod checks;
mod detach;
mod files;
mod fill;
pub mod mirror;
mod order;
pub mod registry;
mod report;
mod source;
pub mod stores;
mod together;

pub use detach::{detach, doubt, finish, is_unfinished};
pub use files::Files;
pub use fill::{Ahead, Filled, ahead, fill};
pub use order::{DRAIN, Fault, MOVE, REPORT, REPORT_OF, Reply, Successor, UNDRAIN};
pub use registry::Fill;
pub use report::{
    ClusterReport, GroupReport, NodeReport, NodeResponse, Replica, STALE_MS, StreamReport, Verdict,
};
pub use source::{LogContents, RUNS, Source, report_shards};
pub use together::together;

/// Where a node answers tools on its own machine, in its data directory.
pub const NODE_SOCKET: &str = "node.sock";
