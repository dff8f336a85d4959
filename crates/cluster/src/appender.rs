//! The window with a stream below it: does what the window says, and tells it what came of it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use quintet_log::{Epoch, LogError, Position};

use crate::{
    Ends, EntryLookup, Moment, ReplyFn, Result, Seq, Stream, Ticks, World,
    resolve::Kind,
    window::{Act, Stop, Window},
};

/// How long a purge is left without an answer.
const PURGE_AGAIN: Moment = Moment::from_secs(1);

/// Told that something was settled, by any thread, which holds no lock of the log's.
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// Shared by a log, those who wait for it, and the stream's answers.
pub(crate) struct Appender {
    stream: Arc<dyn Stream>,
    world: Arc<dyn World>,
    epoch: Epoch,
    lease: Duration,
    /// When the lease ends, ns; to look at without a lock. 0: there is none.
    leased: AtomicU64,
    /// There is no lease any more, whatever is acknowledged.
    unleased: AtomicBool,
    wants_heartbeat: AtomicBool,
    /// The entry that the log begins with.
    begins: AtomicU64,
    /// The entry that the stream began with when that was asked last; 0: not known.
    first: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    state: Mutex<State>,
    itself: Weak<Self>,
}

struct State {
    window: Window,
    /// Somebody does what the window says; others leave it to them, so that it is done in order.
    busy: bool,
    /// When the caller comes next.
    armed: Option<Moment>,
}

impl Appender {
    pub(crate) fn new(
        stream: Arc<dyn Stream>,
        world: Arc<dyn World>,
        epoch: Epoch,
        lease: Duration,
        window: Window,
    ) -> Arc<Self> {
        let appender = Arc::new_cyclic(|itself: &Weak<Self>| Self {
            stream,
            world,
            epoch,
            lease,
            leased: AtomicU64::new(0),
            unleased: AtomicBool::new(false),
            wants_heartbeat: AtomicBool::new(false),
            begins: AtomicU64::new(0),
            first: AtomicU64::new(0),
            listeners: Mutex::default(),
            state: Mutex::new(State {
                window,
                busy: false,
                armed: None,
            }),
            itself: Weak::clone(itself),
        });
        let driven: Weak<Self> = Arc::downgrade(&appender);
        appender.world.drive(driven);
        appender
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the window something.
    pub(crate) fn with_window<T>(&self, with_window: impl FnOnce(&Window) -> T) -> T {
        with_window(&self.lock().window)
    }

    /// Takes entries for the next places. The last one completes a frame that ends at `end`.
    pub(crate) fn push(
        &self,
        entries: impl Iterator<Item = Bytes>,
        kind: Kind,
        end: Position,
    ) -> Seq {
        let mut first = Seq(0);
        self.change(|window, now| {
            first = window.next();
            let mut entries = entries.peekable();
            while let Some(entry) = entries.next() {
                let whole = entries.peek().is_none().then_some(end);
                window.push(now, entry, kind, whole);
            }
        });
        first
    }

    fn change(&self, change: impl FnOnce(&mut Window, Moment)) {
        let now = self.world.now();
        let mut state = self.lock();
        let before = progress(&state.window);
        change(&mut state.window, now);
        let after = progress(&state.window);
        if after.1 {
            // Whatever its clock says: another may own the log.
            self.end_lease();
        }
        if let Some(sent) = state.window.acked_sent() {
            let until = u64::try_from((sent + self.lease).as_nanos()).unwrap_or(u64::MAX);
            self.leased.fetch_max(until, Ordering::Release);
        }
        let due = state.window.deadline();
        let sooner = due.is_some_and(|due| state.armed.is_none_or(|armed| due < armed));
        if sooner {
            state.armed = due;
        }
        if state.busy {
            drop(state);
        } else {
            state.busy = true;
            loop {
                let Some(act) = state.window.act() else {
                    state.busy = false;
                    drop(state);
                    break;
                };
                drop(state);
                self.run(act);
                state = self.lock();
            }
        }
        self.world.wake();
        if before != after {
            // The lock goes first: a listener may listen.
            let listeners = self.listeners().clone();
            listeners.iter().for_each(|callback| callback());
        }
        if sooner {
            self.world.remind();
        }
    }

    fn run(&self, act: Act) {
        match act {
            Act::Append { sent, entry } => {
                let callback =
                    self.callback(move |window, now, answer| window.answered(now, sent, answer));
                self.stream.append(sent.seq.before(), entry, callback);
            }
            Act::Get(seq) => {
                let callback = self.callback(move |window, now, found: EntryLookup| {
                    window.found(now, seq, &found);
                });
                self.stream.get(seq, callback);
            }
            Act::Ends => self.stream.ends(self.callback(Window::ends)),
        }
    }

    /// Changes the window by an answer of the stream.
    fn callback<T: 'static>(
        &self,
        change: impl FnOnce(&mut Window, Moment, T) + Send + 'static,
    ) -> ReplyFn<T> {
        let itself = Weak::clone(&self.itself);
        Box::new(move |answer| {
            if let Some(appender) = itself.upgrade() {
                appender.change(|window, now| change(window, now, answer));
            }
        })
    }

    /// Returns when everything before `end` is durable.
    pub(crate) fn wait(&self, end: Position) -> Result<()> {
        // What is acknowledged is so whatever came later.
        self.wait_for(|window| window.acked() >= end)
    }

    /// Returns when nothing is waited for any more.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        self.wait_for(Window::is_empty)
    }

    fn wait_for(&self, done: impl Fn(&Window) -> bool) -> Result<()> {
        let mut outcome = Ok(());
        self.world.wait(None, &mut || {
            let state = self.lock();
            if done(&state.window) {
                return true;
            }
            outcome = self.stopped(&state.window);
            outcome.is_err()
        });
        outcome
    }

    /// Why nothing is appended any more, if that is so.
    fn stopped(&self, window: &Window) -> Result<()> {
        match window.stop() {
            None => Ok(()),
            Some(Stop::Fenced(latest)) => Err(LogError::Fenced {
                epoch: self.epoch,
                latest: *latest,
            }),
            Some(Stop::Bad(seq, why)) => Err(self.bad(*seq, why.clone())),
        }
    }

    /// Sends nothing from now on, or goes on.
    pub(crate) fn hold(&self, held: bool) {
        self.change(|window, now| window.hold(now, held));
    }

    /// Whether all that was pushed is settled.
    pub(crate) fn is_settled(&self) -> Result<bool> {
        let state = self.lock();
        if state.window.is_empty() {
            return Ok(true);
        }
        self.stopped(&state.window).map(|()| false)
    }

    /// Has `callback` called from now on whenever something was settled, or nothing will be any more.
    pub(crate) fn listen(&self, callback: Listener) {
        self.listeners().push(callback);
    }

    pub(crate) fn begins(&self) -> Seq {
        Seq(self.begins.load(Ordering::Relaxed))
    }

    pub(crate) fn set_begins(&self, seq: Seq) {
        self.begins.store(seq.0, Ordering::Relaxed);
    }

    /// The entry that the stream began with when that was asked last; 0: not known.
    pub(crate) fn first(&self) -> Seq {
        Seq(self.first.load(Ordering::Relaxed))
    }

    /// Asks which entry the stream begins with, and wants one heartbeat if that is a later one than
    /// the log's.
    pub(crate) fn ask_first(&self) {
        let itself = Weak::clone(&self.itself);
        let callback = move |ends: Option<Ends>| {
            if let (Some(appender), Some(ends)) = (itself.upgrade(), ends) {
                let before = appender.first.swap(ends.first.0, Ordering::Relaxed);
                if ends.first > appender.begins() && before != ends.first.0 {
                    // The log says so with the next heartbeat.
                    appender.want_heartbeat(true);
                }
            }
        };
        self.stream.ends(Box::new(callback));
    }

    pub(crate) fn want_heartbeat(&self, wants: bool) {
        self.wants_heartbeat.store(wants, Ordering::Relaxed);
    }

    pub(crate) fn wants_heartbeat(&self) -> bool {
        self.wants_heartbeat.load(Ordering::Relaxed)
    }

    /// Whether what needs no append may be answered now.
    pub(crate) fn has_lease(&self) -> bool {
        let now = u64::try_from(self.world.now().as_nanos()).unwrap_or(u64::MAX);
        !self.unleased.load(Ordering::SeqCst) && now < self.leased.load(Ordering::Acquire)
    }

    /// From now on nothing is answered without an append.
    pub(crate) fn end_lease(&self) {
        self.unleased.store(true, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Moment {
        self.world.now()
    }

    /// Whether something may be appended.
    pub(crate) fn check(&self) -> Result<()> {
        let state = self.lock();
        self.stopped(&state.window)?;
        match state.window.full() {
            Some(why) => Err(LogError::NoSpace {
                file: self.stream.name(),
                why: why.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Removes entries below `seq`, asking again until it is known to be done.
    pub(crate) fn purge_below(&self, seq: Seq) -> Result<()> {
        if seq < Seq(2) {
            return Ok(());
        }
        loop {
            let callback = Arc::new(Mutex::new(None));
            let (answer, world) = (Arc::clone(&callback), Arc::clone(&self.world));
            self.stream.purge_below(
                seq,
                Box::new(move |done| {
                    *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                    world.wake();
                }),
            );
            let mut done = false;
            let mut stopped = Ok(());
            let again = self.world.now() + PURGE_AGAIN;
            self.world.wait(Some(again), &mut || {
                let callback = *callback.lock().unwrap_or_else(PoisonError::into_inner);
                done = callback == Some(true);
                stopped = self.stopped(&self.lock().window);
                done || stopped.is_err()
            });
            if done {
                return Ok(());
            }
            stopped?;
        }
    }

    pub(crate) fn bad(&self, seq: Seq, why: String) -> LogError {
        LogError::BadEntry {
            log: self.stream.name(),
            entry: seq.0,
            why,
        }
    }
}

/// The progress that listeners wait for.
fn progress(window: &Window) -> (Seq, bool) {
    (window.first(), window.stop().is_some())
}

impl Drop for Appender {
    /// Ends the appender, so its driver need not.
    fn drop(&mut self) {
        self.world.remind();
    }
}

impl Ticks for Appender {
    fn deadline(&self) -> Option<Moment> {
        let mut state = self.lock();
        state.armed = state.window.deadline();
        state.armed
    }

    fn tick(&self, now: Moment) {
        if self
            .with_window(Window::deadline)
            .is_some_and(|due| due <= now)
        {
            self.change(Window::tick);
        }
    }
}
