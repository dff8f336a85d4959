//! What other threads leave for an I/O thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mio::Waker;
use quintet_engine::Delivery;

use super::{Need, locked};
use crate::io::{Origin, Stream};

/// One thing left.
pub(crate) enum Mail {
    /// An outcome for a take that waited.
    Delivery(Delivery, Need),
    /// A new connection of the listener with this number.
    Socket(Stream, Origin, usize),
    /// Accept no more; finish and end.
    Stop,
}

/// The mailbox of one I/O thread.
pub(crate) struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    waker: Arc<Waker>,
    /// The thread holds replies back until batches are written.
    pub(crate) wants_written: AtomicBool,
    /// The thread holds replies back until batches are durable.
    pub(crate) wants_durable: AtomicBool,
    /// Connections the thread has or will have.
    pub(crate) connections: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self {
            mail: Mutex::new(Vec::new()),
            waker,
            wants_written: AtomicBool::new(false),
            wants_durable: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        }
    }

    /// Leaves something; wakes the thread unless it was woken already.
    pub(crate) fn post(&self, mail: Mail) {
        let first = {
            let mut box_ = locked(&self.mail);
            box_.push(mail);
            box_.len() == 1
        };
        if first {
            self.wake();
        }
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // Only a full or closed eventfd does this; the thread is awake or gone.
            tracing::warn!("cannot wake an I/O thread: {error}");
        }
    }

    /// Takes all that was left; `into` is empty before.
    pub(crate) fn collect(&self, into: &mut Vec<Mail>) {
        std::mem::swap(&mut *locked(&self.mail), into);
    }

    /// Wakes the thread if it holds replies for what was just written.
    pub(crate) fn tell_written(&self) {
        if self.wants_written.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread if it holds replies for what just became durable.
    pub(crate) fn tell_durable(&self) {
        if self.wants_durable.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }
}
