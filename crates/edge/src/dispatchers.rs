//! The dispatchers: one on each thread of HTTP, for the clients of its connections, and one with a
//! thread of its own for all others. No two threads of HTTP share a lock on the way of a command.
//!
//! A dispatcher of HTTP is a task of its thread. The thread decides the requests that are ready,
//! and then the task writes them together and lets their replies go. The first dispatcher's thread
//! does the work of those without a task.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll as Polled};
use std::time::Instant;

use mio::{Events, Poll};
use quintet_client::{Arrive, OnOutcome};
use quintet_host::{ClientKey, Core};
use quintet_types::{Caller, ClientId, Command, LargeBody};

use crate::dispatcher::{Dispatcher, HELD_LOOK};
use crate::hooks::Hooks;
use crate::io::{Mail, Mailbox};

thread_local! {
    /// The number of the dispatcher of this thread.
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// All dispatchers. The first one has a thread of its own.
pub struct Dispatchers {
    core: Arc<Core>,
    all: Vec<Arc<Dispatcher>>,
    /// Dispatchers that have, or had, a task.
    taken: AtomicUsize,
}

impl Dispatchers {
    /// One for each of these mailboxes, for clients beside those of `threads` I/O threads.
    pub fn new(
        core: &Arc<Core>,
        hooks: &Arc<Hooks>,
        mailboxes: Vec<Arc<Mailbox>>,
        threads: usize,
    ) -> Self {
        let all = mailboxes.into_iter().enumerate().map(|(at, mailbox)| {
            let (core, hooks) = (Arc::clone(core), Arc::clone(hooks));
            Arc::new(Dispatcher::new(core, hooks, mailbox, threads + at, at > 0))
        });
        Self {
            core: Arc::clone(core),
            all: all.collect(),
            taken: AtomicUsize::new(1),
        }
    }

    fn first(&self) -> &Dispatcher {
        &self.all[0]
    }

    fn numbered(&self, thread: usize) -> &Dispatcher {
        let at = thread.checked_sub(self.first().thread);
        at.and_then(|at| self.all.get(at))
            .map_or(self.first(), |dispatcher| dispatcher)
    }

    fn of(&self, client_id: ClientId) -> &Dispatcher {
        self.numbered(ClientKey::of(client_id).thread)
    }

    /// The work of a dispatcher, as a task for one thread of HTTP until it is dropped. `None`: all
    /// are taken, and the first one serves the thread.
    pub fn task(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        let dispatcher = Arc::clone(self.all.get(at)?);
        let mail = Vec::new();
        Some(OnThread { dispatcher, mail })
    }

    /// As [`quintet_client::ClientApi::enter`].
    pub fn enter(&self, arrive: Arrive) -> ClientId {
        self.first().enter(arrive)
    }

    /// As [`quintet_client::ClientApi::enter_here`].
    pub fn enter_here(&self, arrive: Arrive) -> ClientId {
        match HERE.get() {
            Some(thread) => self.numbered(thread).enter(arrive),
            None => self.enter(arrive),
        }
    }

    /// As [`quintet_client::ClientApi::leave`].
    pub fn leave(&self, client_id: ClientId) {
        self.of(client_id).leave(client_id);
    }

    /// As [`quintet_client::ClientApi::submit`].
    pub fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        let dispatcher = self.of(caller.client_id);
        dispatcher.decide(caller, command, reply, false);
    }

    /// As [`quintet_client::ClientApi::read`], of a large body.
    ///
    /// # Errors
    /// As that.
    pub fn read_large(&self, body: &LargeBody, from: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut begin = 0;
        let mut filled = 0;
        for place in body.places() {
            let end = begin + u64::from(place.len);
            let at = from + filled as u64;
            if at < end && filled < into.len() {
                let bytes = self.core.body_source().read(&place);
                let bytes = bytes.map_err(io::Error::other)?;
                // The body's bytes are the last ones.
                let bytes = bytes
                    .len()
                    .checked_sub(place.len as usize)
                    .map(|skip| &bytes[skip..])
                    .ok_or_else(|| io::Error::other("a chunk of the body is incomplete"))?;
                let skip = usize::try_from(at - begin).unwrap_or(usize::MAX);
                let count = (bytes.len() - skip).min(into.len() - filled);
                into[filled..filled + count].copy_from_slice(&bytes[skip..skip + count]);
                filled += count;
            }
            begin = end;
        }
        Ok(filled)
    }

    /// Tells the thread of the first one to end.
    pub fn stop(&self) {
        self.first().mailbox.leave(Mail::Stop);
    }

    /// The thread of the first one: runs until it has to stop, when nobody comes in any more.
    pub fn run(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(4);
        let mut mail = Vec::new();
        let mut stops = None;
        while stops.is_none_or(|since| self.takes_wait(since)) {
            let polls = stops.is_some() || self.core.is_shared();
            if let Err(error) = poll.poll(&mut events, polls.then_some(HELD_LOOK))
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!("cannot wait for deliveries: {error}");
                std::process::exit(1);
            }
            for dispatcher in &self.all {
                if !dispatcher.mailbox.has_task() && dispatcher.turn(&mut mail) {
                    self.all
                        .iter()
                        .for_each(|dispatcher| dispatcher.end_takes());
                    stops = Some(Instant::now());
                }
            }
            self.all.iter().for_each(|dispatcher| dispatcher.give_up());
        }
        self.all.iter().for_each(|dispatcher| dispatcher.close());
    }

    /// True while a take waits for its delivery after [`Dispatcher::end_takes`].
    fn takes_wait(&self, since: Instant) -> bool {
        self.all.iter().any(|dispatcher| dispatcher.takes_wait()) && since.elapsed() < HELD_LOOK
    }
}

/// A dispatcher on a thread of HTTP.
struct OnThread {
    dispatcher: Arc<Dispatcher>,
    mail: Vec<Mail>,
}

impl Future for OnThread {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled<()> {
        let this = &mut *self;
        HERE.set(Some(this.dispatcher.thread));
        // Before the look: a wake behind it brings the next one.
        this.dispatcher.mailbox.has_now(context.waker());
        this.dispatcher.turn(&mut this.mail);
        Polled::Pending
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.dispatcher.mailbox.loses_task();
    }
}
