//! Errors on the way to a stream.

use std::fmt;

use crate::api;

/// Why there is no stream to work with.
#[derive(Debug)]
pub enum Error {
    /// No server could be reached; in the library's words.
    Unreachable(Vec<String>, String),
    /// Servers could be reached, and do not take this user.
    Denied(Vec<String>),
    /// The credentials cannot be read.
    Credentials(std::io::Error),
    /// Nobody answered in time: the servers may be without a leader.
    Silent,
    /// The servers said no.
    Refused(String, api::Refused),
    /// No thread could be had.
    Thread(std::io::Error),
    /// A bucket can neither be opened nor made; in the library's words.
    Bucket(String, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(addresses, why) => {
                write!(f, "cannot reach NATS at {}: {why}", addresses.join(", "))
            }
            Error::Denied(addresses) => write!(
                f,
                "NATS at {} does not accept this node's user: see cluster.user and \
                 cluster.password_file, or cluster.credentials",
                addresses.join(", ")
            ),
            Error::Credentials(error) => write!(f, "cannot read the NATS credentials: {error}"),
            Error::Silent => f.write_str(
                "JetStream does not answer: it is not enabled (`jetstream: enabled` in the \
                 servers' configuration), or its servers have no leader",
            ),
            Error::Refused(what, refused) => write!(f, "JetStream refuses {what}: {refused}"),
            Error::Bucket(bucket, why) => {
                write!(f, "cannot open JetStream's bucket {bucket}: {why}")
            }
            Error::Thread(error) => write!(f, "cannot start a thread for NATS: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Credentials(error) | Error::Thread(error) => Some(error),
            Error::Unreachable(..)
            | Error::Denied(..)
            | Error::Silent
            | Error::Refused(..)
            | Error::Bucket(..) => None,
        }
    }
}
