//! Errors on the way to a stream.

use crate::api;

/// Why there is no stream to work with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server could be reached; in the library's words.
    #[error("cannot reach NATS at {}: {}", .0.join(", "), .1)]
    Unreachable(Vec<String>, String),
    /// Servers could be reached, and do not take this user.
    #[error(
        "NATS at {} does not accept this node's user: see cluster.user and cluster.password_file, \
         or cluster.credentials",
        .0.join(", ")
    )]
    Denied(Vec<String>),
    /// The credentials cannot be read.
    #[error("cannot read the NATS credentials: {0}")]
    Credentials(#[source] std::io::Error),
    /// Nobody answered in time: the servers may be without a leader.
    #[error(
        "JetStream does not answer: it is not enabled (`jetstream: enabled` in the servers' \
         configuration), or its servers have no leader"
    )]
    Silent,
    /// The servers said no.
    #[error("JetStream refuses {0}: {1}")]
    Refused(String, api::Refused),
    /// No thread could be had.
    #[error("cannot start a thread for NATS: {0}")]
    Thread(#[source] std::io::Error),
    /// A bucket can neither be opened nor made; in the library's words.
    #[error("cannot open JetStream's bucket {0}: {1}")]
    Bucket(String, String),
}
