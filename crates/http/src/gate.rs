//! Identity and rights of a client, as the server decides.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use quintet_client::{Did, Share};
use quintet_types::{Name, Operation, Principal, Verb};

use crate::reply::Problem;

/// The server's users and what they may do.
pub trait Gate: Send + Sync {
    /// True if there are any. Without, listeners go by their own logins, and
    /// each client that is let in may do everything.
    fn is_used(&self) -> bool;

    /// Logs a client in with the credentials it shows. `notify` may be called at once, or later
    /// from another thread.
    fn log_in(&self, peer: Option<IpAddr>, shown: LoginCredentials<'_>, notify: Tell);

    /// A connection comes from `peer`; it is kept count of until what is
    /// answered is dropped.
    ///
    /// # Errors
    /// Why it has to go.
    fn arrive(&self, peer: Option<IpAddr>) -> Result<Counted, &'static str>;

    /// A handshake with `peer` failed.
    fn failed(&self, peer: Option<IpAddr>);

    /// When a request may be answered: one that comes from `peer`, or one of
    /// `principal`.
    fn pace(&self, peer: Option<IpAddr>, principal: Option<Principal>) -> Pace;

    /// A request that comes from `peer`, and is of `principal` if somebody is
    /// known, holds `bytes` more in memory, until what is answered is dropped.
    ///
    /// # Errors
    /// One of the two holds as much as it may.
    fn hold(
        &self,
        peer: Option<IpAddr>,
        principal: Option<Principal>,
        bytes: u64,
    ) -> Result<Vec<Share>, Full>;

    /// True if `principal` may do this to the messages of `queue`.
    fn may(&self, principal: Principal, verb: Verb, queue: &Name) -> bool;

    /// True if it may do what concerns all queues.
    fn may_server(&self, principal: Principal) -> bool;

    /// True if it may read `/metrics`.
    fn may_read_metrics(&self, principal: Principal) -> bool;

    /// The name of a user, if there still is one of this number.
    fn name_of(&self, principal: Principal) -> Option<Arc<str>>;

    /// True if a login still counts: the user exists, and so does the password, secret or token
    /// with the number that [`Answer::In`] gave.
    fn counts(&self, principal: Principal, proof: u64) -> bool;

    /// Writes down what a client has done to a queue or the server, in the words of its request,
    /// and the status of the reply.
    fn note(&self, who: Principal, peer: Option<IpAddr>, act: (Operation, &str), came: (u16, Did));
}

/// A connection that counts, until it is dropped; `None`: it does not.
pub type Counted = Option<Box<dyn Send + Sync>>;

/// The client of a connection, as the one who accepted it knows it.
#[derive(Clone)]
pub struct AuthenticatedClient {
    pub principal: Principal,
    /// Asked for this connection.
    pub gate: Arc<dyn Gate>,
}

/// When a request may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// In so much time.
    In(Duration),
    /// Not soon: why, and in how long.
    Not(&'static str, Duration),
}

/// No more fits into a limit: why, and in how long it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full(pub &'static str, pub Duration);

/// Told who a client is.
pub type Tell = Box<dyn FnOnce(Answer) + Send>;

/// Credentials as a request carries them, not yet checked.
#[derive(Clone, Copy)]
pub enum LoginCredentials<'a> {
    Nothing,
    /// A name and a password.
    Basic(&'a [u8], &'a [u8]),
    Bearer(&'a [u8]),
    /// A certificate that was checked; this is its subject's common name.
    Certificate(&'a str),
}

/// Result of the check of a client's credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The number of the password, secret or token that showed it; 0: none of these did.
    In(Principal, u64),
    No,
    /// Not looked at, and why.
    NotNow(&'static str),
}

/// The reply to a client that is known and lacks the right: 403.
pub fn not_permitted() -> Problem {
    Problem::with_text(StatusCode::FORBIDDEN, "not permitted")
}

/// With a response: words that follow the address in its audit line, such as the queue, if the
/// address does not say it.
#[derive(Clone, Debug)]
pub struct DoneWith(pub String);
