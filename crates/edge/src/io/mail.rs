//! Events from other threads for an I/O thread, or the desk's.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use mio::{Poll, Token, Waker};
use quintet_host::{Need, Post, locked};
use quintet_tls::Identity;
use quintet_types::{Delivery, Party};

use super::{Origin, Stream};
use crate::clients::Census;
use crate::quotas::Meter;
use crate::trust::Told;

/// Token of a thread's waker.
pub(crate) const WAKE: Token = Token(usize::MAX);

/// One thing left.
pub enum Mail {
    /// An outcome for a take that waited.
    Delivery(Delivery, Need),
    /// A new connection.
    Socket(Arrival),
    /// Result of a connection's login.
    Login(Party, Told),
    /// Logins have ended: their connections are to be closed.
    Logins,
    /// A list of connections, for this thread to add its own.
    Census(Box<Census>),
    /// A connection is to be closed; told whether it was there.
    Close(Party, Box<dyn FnOnce(bool) + Send>),
    /// Answer to a connection's request from elsewhere.
    Told(Party, Result<String, String>),
    /// Accept no more.
    Refuse,
    /// The same; finish and end.
    Stop,
}

/// A connection that was admitted and has no thread yet.
pub struct Arrival {
    /// As log lines name the connection; 0 until it was admitted.
    pub number: u64,
    pub stream: Stream,
    pub origin: Origin,
    /// Number of the listener it came by.
    pub listener: usize,
    pub way: Way,
    /// The client's user, if another node has it from the client itself.
    pub user: Option<String>,
    /// The client's identity, if the node it came through knows it.
    pub identity: Option<Arc<Identity>>,
    /// Its share of its address's limits.
    pub meter: Meter,
}

impl Arrival {
    /// Where its client is, as limits count it; a unix socket has no address.
    pub fn address(&self) -> Option<IpAddr> {
        let peer = self.way.peer(&self.stream);
        peer.map(|peer| peer.ip().to_canonical())
    }
}

/// How a client's bytes get here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By its own connection.
    Direct,
    /// Through another node of the cluster, which saw it at this address.
    Linked(Option<SocketAddr>),
}

impl Way {
    /// Where the client is; a unix socket has no address.
    pub(super) fn peer(self, stream: &Stream) -> Option<SocketAddr> {
        match self {
            Self::Direct => stream.peer(),
            Self::Linked(peer) => peer,
        }
    }
}

/// The mailbox of one thread.
pub struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    waker: Waker,
    /// The thread holds replies back until batches are written.
    pub wants_written: AtomicBool,
    /// The thread holds replies back until batches are durable.
    pub wants_durable: AtomicBool,
    /// Connections the thread has or will have.
    pub connections: AtomicU64,
}

impl Mailbox {
    /// A thread's poll, and its mailbox.
    ///
    /// # Errors
    /// The system has no files to give.
    pub fn open() -> Result<(Poll, Arc<Self>)> {
        let poll = Poll::new().context("cannot make a poll")?;
        let waker = Waker::new(poll.registry(), WAKE).context("cannot make a waker")?;
        let mailbox = Self {
            mail: Mutex::new(Vec::new()),
            waker,
            wants_written: AtomicBool::new(false),
            wants_durable: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        };
        Ok((poll, Arc::new(mailbox)))
    }

    /// Leaves something; wakes the thread unless it was woken already.
    pub fn leave(&self, mail: Mail) {
        let first = {
            let mut box_ = locked(&self.mail);
            box_.push(mail);
            box_.len() == 1
        };
        if first {
            self.wake();
        }
    }

    /// Takes all that was left; `into` is empty before.
    pub fn collect(&self, into: &mut Vec<Mail>) {
        std::mem::swap(&mut *locked(&self.mail), into);
    }
}

impl Post for Mailbox {
    fn post(&self, delivery: Delivery, need: Need) {
        self.leave(Mail::Delivery(delivery, need));
    }

    fn tell_written(&self) {
        if self.wants_written.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn tell_durable(&self) {
        if self.wants_durable.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // Only a full or closed eventfd does this; the thread is awake or gone.
            tracing::warn!("cannot wake an I/O thread: {error}");
        }
    }
}
