//! Opening a stream's log: read all of it, claim it, fill the padding.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use quintet_log::{Log, LogError, LogStore, Options, Recovery, Replay, Storage};

use crate::{
    ClusterId, Ends, Limits, Moment, Result, Seq, Stream, StreamLog, Tail, TailEvent, Timing,
    World, Writer,
    bid::Claimant,
    copy::{Copy, Judged},
};

/// Bytes read and not taken in yet, about; then reading begins again where it was.
const AHEAD_BYTES: usize = 8 << 20;

/// How long a question about the stream is left without an answer.
const ASK_AGAIN: Moment = Moment::from_secs(1);

/// A stream's log, not open. Opening makes this node its owner, also if another owned it before:
/// who else could, and when one should, is decided elsewhere.
pub struct StreamStore {
    pub stream: Arc<dyn Stream>,
    /// An empty directory for the mirror. The one of an earlier life is removed by the caller when
    /// this one is complete, which it is when the log is open.
    pub mirror: Arc<dyn Storage>,
    /// How the mirror is laid out; it is scratch, whatever this says.
    pub options: Options,
    /// Which cluster's stream it must be.
    pub cluster: ClusterId,
    /// This node's name, and where proxies reach it.
    pub node: String,
    /// See `node`.
    pub peer_address: String,
    /// How much may be sent and not acknowledged.
    pub limits: Limits,
    /// Time and waiting.
    pub world: Arc<dyn World>,
    /// All, but in tests.
    #[doc(hidden)]
    pub fences: Fences,
}

/// Fences that keep a deposed owner's late entries from doing harm. Tests take one away to show
/// that it is needed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// A claim is padded.
    pub padding: bool,
    /// Acknowledgements count in order.
    pub in_order: bool,
    /// Where the log begins is for its owners to say.
    pub beginning: bool,
}

impl Default for Fences {
    fn default() -> Self {
        Self {
            padding: true,
            in_order: true,
            beginning: true,
        }
    }
}

impl LogStore for StreamStore {
    fn open(self: Box<Self>, replay: Replay<'_>) -> Result<(Box<dyn Log>, Recovery)> {
        let (log, recovery) = self.own(replay)?;
        Ok((Box::new(log), recovery))
    }
}

impl StreamStore {
    /// [`LogStore::open`], as what it is.
    ///
    /// # Errors
    /// [`LogError::BadEntry`] when something in the stream cannot be believed, or was purged while
    /// it was read: then it may be opened again. [`LogError::Fenced`] when another node claimed
    /// the log right behind this one.
    pub fn own(self, replay: Replay<'_>) -> Result<(StreamLog, Recovery)> {
        let claimant = Claimant {
            stream: Arc::clone(&self.stream),
            world: Arc::clone(&self.world),
            cluster: self.cluster,
            writer: Writer(self.mirror.random()),
            node: self.node.clone(),
            peer_address: self.peer_address.clone(),
            limits: self.limits,
            lease: Timing::default().lease,
            fences: self.fences,
        };
        let (name, mirror) = (self.stream.name(), Arc::clone(&self.mirror));
        let mut copy = Copy::new(name, self.cluster, mirror, &self.options);
        loop {
            let ends = self.ends();
            self.read_through(&mut copy, &ends, replay)?;
            match copy.judge(&ends) {
                Judged::Whole => {}
                Judged::Damaged(why) => return Err(copy.bad(ends.first.min(ends.last), why)),
                Judged::ReadAgain => {
                    return Err(copy.bad(
                        ends.first,
                        "entries before it were missing when it was read".to_owned(),
                    ));
                }
            }
            let mut bid = claimant.claim(&copy, self.world.wall_ms());
            match bid.appender.wait_for_all() {
                Ok(()) => {}
                Err(LogError::Fenced { .. }) => continue,
                Err(error) => return Err(error),
            }
            while bid.pad(&mut copy)? {
                bid.appender.wait_for_all()?;
            }
            return Ok(bid.finish(copy));
        }
    }

    /// Reads up to the last of `ends`.
    fn read_through(&self, copy: &mut Copy, ends: &Ends, replay: Replay<'_>) -> Result<()> {
        if ends.last < copy.next() {
            return Ok(());
        }
        if ends.first > ends.last {
            // Judged next.
            return Ok(());
        }
        let mut ahead = self.read_ahead(copy, ends.first);
        while !copy.has_begun() || copy.next() <= ends.last {
            let mut event = None;
            self.world.wait(None, &mut || {
                let mut ahead = ahead.0.lock().unwrap_or_else(PoisonError::into_inner);
                event = ahead.next();
                event.is_some() || ahead.over
            });
            match event {
                Some(TailEvent::Entry(seq, entry)) => copy.take(seq, &entry, &mut *replay)?,
                Some(TailEvent::Purged(first)) => {
                    let why = format!("it was purged while it was read; the first is now {first}");
                    return Err(copy.bad(copy.next(), why));
                }
                None => ahead = self.read_ahead(copy, ends.first),
            }
        }
        Ok(())
    }

    /// Begins to read at the next place; the first is `first`, if nothing has been read.
    fn read_ahead(&self, copy: &Copy, first: Seq) -> (Arc<Mutex<Ahead>>, Tail) {
        let from = if copy.has_begun() { copy.next() } else { first };
        let ahead = Arc::new(Mutex::new(Ahead::default()));
        let (received, bell) = (Arc::clone(&ahead), Arc::clone(&self.world));
        let each = move |event| {
            let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
            received.push(event);
            drop(received);
            bell.wake();
        };
        let tail = self.stream.tail(from, Box::new(each));
        (ahead, tail)
    }

    /// Which places the stream has, asked until somebody answers.
    fn ends(&self) -> Ends {
        loop {
            let received = Arc::new(Mutex::new(None));
            let (answer, world) = (Arc::clone(&received), Arc::clone(&self.world));
            self.stream.ends(Box::new(move |ends| {
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = ends;
                world.wake();
            }));
            let mut ends = None;
            let again = self.world.now() + ASK_AGAIN;
            self.world.wait(Some(again), &mut || {
                ends = received
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                ends.is_some()
            });
            if let Some(ends) = ends {
                return ends;
            }
        }
    }
}

/// Entries that were read and not taken in yet.
#[derive(Default)]
struct Ahead {
    events: VecDeque<TailEvent>,
    bytes: usize,
    /// There was too much, and the rest is read again.
    over: bool,
}

impl Ahead {
    fn push(&mut self, event: TailEvent) {
        self.over |= self.bytes >= AHEAD_BYTES;
        if self.over {
            return;
        }
        if let TailEvent::Entry(_, entry) = &event {
            self.bytes += entry.len();
        }
        self.events.push_back(event);
    }

    fn next(&mut self) -> Option<TailEvent> {
        let event = self.events.pop_front();
        if let Some(TailEvent::Entry(_, entry)) = &event {
            self.bytes -= entry.len();
        }
        event
    }
}
