//! Connections, counted by where they come from.

use std::any::Any;
use std::net::IpAddr;

/// The counter of arriving clients.
pub trait Arrivals: Send + Sync {
    /// A connection comes from `address`. Its answer counts the connection until it is dropped;
    /// `None`: the connection is one too many, or too much failed there.
    fn arrive(&self, address: IpAddr) -> Option<Box<dyn Any + Send>>;

    /// A login or a handshake has failed there.
    fn failed(&self, address: IpAddr);
}
