//! Files that other queue servers leave on disk: bytes as records, any bytes without a panic.
//!
//! Which files there are, what comes of several and where messages go is `quintet import`'s
//! (`crates/cli/src/import`).

pub mod binlog;
pub mod journal;
pub mod rq;
