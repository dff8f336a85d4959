//! Events from other threads for an I/O thread, or a dispatcher.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use mio::{Poll, Token, Waker};
use quintet_host::{Post, Required, locked};
use quintet_tls::Identity;
use quintet_types::{ClientId, Delivery};

use super::{Origin, Stream};
use crate::auth::LoginResult;
use crate::clients::Census;
use crate::quotas::Meter;

/// Token of a thread's waker.
pub(crate) const WAKE: Token = Token(usize::MAX);

/// One thing left.
pub enum Mail {
    /// An outcome for a take that waited.
    Delivery(Delivery, Required),
    /// A new connection.
    Socket(Arrival),
    /// Result of a connection's login.
    Login(ClientId, LoginResult),
    /// Logins have ended: their connections are to be closed.
    Logins,
    /// A list of connections, for this thread to add its own.
    Census(Box<Census>),
    /// A connection is to be closed; told whether it was there.
    Close(ClientId, Box<dyn FnOnce(bool) + Send>),
    /// Answer to a connection's request from elsewhere.
    Answer(ClientId, Result<String, String>),
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
    /// One that its own listener has accepted.
    pub(super) fn direct(stream: Stream, listener: usize) -> Self {
        Self {
            number: 0,
            origin: Origin::new(stream.peer(), listener),
            stream,
            listener,
            way: Way::Direct,
            user: None,
            identity: None,
            meter: Meter::default(),
        }
    }

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
    Forwarded(Option<SocketAddr>),
}

impl Way {
    /// Where the client is; a unix socket has no address.
    pub(super) fn peer(self, stream: &Stream) -> Option<SocketAddr> {
        match self {
            Self::Direct => stream.peer(),
            Self::Forwarded(peer) => peer,
        }
    }
}

/// How the owner of a mailbox is woken.
enum Bell {
    /// A thread that polls.
    Poll(Waker),
    /// A task, as long as there is one; else the owner of the other mailbox.
    Task(Mutex<Option<std::task::Waker>>, Arc<Mailbox>),
}

/// Messages from other threads to one I/O thread, which the bell wakes.
pub struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    bell: Bell,
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
        Ok((poll, Self::of(Bell::Poll(waker))))
    }

    /// The mailbox of a task that is still to come. Without a task, the owner of `other` is woken.
    pub fn of_task(other: &Arc<Self>) -> Arc<Self> {
        Self::of(Bell::Task(Mutex::new(None), Arc::clone(other)))
    }

    fn of(bell: Bell) -> Arc<Self> {
        Arc::new(Self {
            mail: Mutex::new(Vec::new()),
            bell,
            wants_written: AtomicBool::new(false),
            wants_durable: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        })
    }

    /// The task that is woken from now on.
    pub(crate) fn has_now(&self, task: &std::task::Waker) {
        if let Bell::Task(now, _) = &self.bell {
            let mut now = locked(now);
            if now.as_ref().is_none_or(|now| !now.will_wake(task)) {
                *now = Some(task.clone());
            }
        }
    }

    /// The task is gone; the owner of the other mailbox goes on with its work.
    pub(crate) fn loses_task(&self) {
        if let Bell::Task(now, other) = &self.bell {
            *locked(now) = None;
            other.wake();
        }
    }

    pub(crate) fn has_task(&self) -> bool {
        matches!(&self.bell, Bell::Task(now, _) if locked(now).is_some())
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
    fn post(&self, delivery: Delivery, required: Required) {
        self.leave(Mail::Delivery(delivery, required));
    }

    fn notify_written(&self) {
        if self.wants_written.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn notify_durable(&self) {
        if self.wants_durable.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        match &self.bell {
            Bell::Poll(waker) => {
                if let Err(error) = waker.wake() {
                    // Only a full or closed eventfd does this; the thread is awake or gone.
                    tracing::warn!("cannot wake an I/O thread: {error}");
                }
            }
            Bell::Task(now, other) => match &*locked(now) {
                Some(task) => task.wake_by_ref(),
                None => other.wake(),
            },
        }
    }
}
