//! Opening a stream's log: read all of it, claim it, fill the padding.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use quintet_log::{
    Epoch, FrameBuf, LocalLog, Log, LogError, LogStore, Options, Position, Recovery, Replay,
    ReplayFrame, SegmentNumber, Stamp, Storage,
};

use crate::{
    Claim, ClusterId, Ends, Limits, Moment, PADDING, Reign, Seq, Stream, StreamLog, Tail,
    TailEvent, World, Writer,
    appender::Appender,
    entry::Author,
    reader::{Framed, Read, Reader},
    resolve::{Kind, Ours},
    streamlog::First,
    window::Window,
};

/// Bytes read and not taken in yet, about; then reading begins again where it was.
const AHEAD_BYTES: usize = 8 << 20;

/// How long a question about the stream is left without an answer.
const ASK_AGAIN: Moment = Moment::from_secs(1);

/// A stream's log, not open. Opening makes this node its owner, whoever owned it before: who else
/// could, and when one should, is decided elsewhere.
pub struct StreamStore {
    /// The stream.
    pub stream: Arc<dyn Stream>,
    /// An empty directory for the mirror. The one of an earlier life is removed by the caller when
    /// this one is complete, which it is when the log is open.
    pub mirror: Arc<dyn Storage>,
    /// How the mirror is laid out; it is scratch, whatever this says.
    pub options: Options,
    /// Which cluster's stream it must be.
    pub cluster: ClusterId,
    /// This node's name, and where fronts reach it.
    pub node: String,
    /// See `node`.
    pub link: String,
    /// How much may be sent and not acknowledged.
    pub limits: Limits,
    /// Time and waiting.
    pub world: Arc<dyn World>,
    /// All, but in tests.
    #[doc(hidden)]
    pub fences: Fences,
}

/// What keeps a deposed owner's late entries from doing harm. Tests take one away to show that it
/// is needed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// A claim is padded.
    pub padding: bool,
    /// Acknowledgements count in order.
    pub in_order: bool,
}

impl Default for Fences {
    fn default() -> Self {
        Self {
            padding: true,
            in_order: true,
        }
    }
}

impl LogStore for StreamStore {
    fn open(self: Box<Self>, replay: Replay<'_>) -> Result<(Box<dyn Log>, Recovery), LogError> {
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
    pub fn own(self, replay: Replay<'_>) -> Result<(StreamLog, Recovery), LogError> {
        let writer = Writer(self.mirror.random());
        let mut copy = Copy::new(&self, replay);
        loop {
            let ends = self.ends();
            copy.read_through(ends)?;
            let Some((appender, author, claim)) = self.claim(writer, &copy)? else {
                continue;
            };
            let place = copy.next();
            copy.take(place, &claim)?;
            if self.fences.padding {
                let (end, segment) = copy.place();
                let padding = (0..PADDING).map(|_| author.padding(end, segment));
                appender.push(padding, Kind::Padding, end);
                appender.wait_for_all()?;
            }
            return Ok(copy.finish(appender, author));
        }
    }

    /// Which places the stream has, asked until somebody answers.
    fn ends(&self) -> Ends {
        loop {
            let told = Arc::new(Mutex::new(None));
            let (answer, world) = (Arc::clone(&told), Arc::clone(&self.world));
            self.stream.ends(Box::new(move |ends| {
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = ends;
                world.wake();
            }));
            let mut ends = None;
            let again = self.world.now() + ASK_AGAIN;
            self.world.wait(Some(again), &mut || {
                ends = *told.lock().unwrap_or_else(PoisonError::into_inner);
                ends.is_some()
            });
            if let Some(ends) = ends {
                return ends;
            }
        }
    }

    /// Appends a claim behind what was read; nothing when somebody else was first.
    fn claim(
        &self,
        writer: Writer,
        copy: &Copy<'_>,
    ) -> Result<Option<(Arc<Appender>, Author, Bytes)>, LogError> {
        let tip = copy.reader.as_ref().and_then(Reader::tip);
        let last = copy.recovery.last_epoch;
        let epoch = Epoch(tip.map_or(last, |tip| tip.epoch.max(last)).0 + 1);
        let (end, segment) = copy.place();
        let mut author = Author {
            cluster: self.cluster,
            writer,
            epoch,
            chain: tip.map_or(0, |tip| tip.chain),
        };
        let claim = Reign::Claim(Claim {
            epoch,
            writer,
            node: self.node.clone(),
            link: self.link.clone(),
        });
        let mut frame = claim.frame();
        // The frames' epochs are the caller's, who begins the new one.
        let stamp = Stamp {
            epoch: last,
            time_ms: self.world.wall_ms(),
        };
        let sealed = frame.sealed(end, stamp);
        let after = Position(end.0 + sealed.len() as u64);
        let entries = author.entries(sealed, end, segment, copy.mirror.is_none());
        let entries: Vec<Bytes> = entries.collect();
        let ours = Ours {
            cluster: self.cluster,
            epoch,
            writer,
        };
        let mut window = Window::new(ours, self.limits, copy.next(), end);
        if !self.fences.in_order {
            window.count_out_of_order();
        }
        let stream = Arc::clone(&self.stream);
        let appender = Appender::new(stream, Arc::clone(&self.world), epoch, window);
        appender.push(entries.iter().cloned(), Kind::Claim, after);
        match appender.wait_for_all() {
            Ok(()) => Ok(Some((appender, author, entries[0].clone()))),
            Err(LogError::Fenced { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What was read and not taken in yet.
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

/// A stream as far as it was read, and the mirror with the same.
struct Copy<'a> {
    store: &'a StreamStore,
    replay: Replay<'a>,
    options: Options,
    reader: Option<Reader>,
    mirror: Option<LocalLog>,
    frame: FrameBuf,
    firsts: VecDeque<First>,
    recovery: Recovery,
    fresh: bool,
    room: u64,
}

impl<'a> Copy<'a> {
    fn new(store: &'a StreamStore, replay: Replay<'a>) -> Self {
        Self {
            store,
            replay,
            options: Options {
                scratch: true,
                ..store.options.clone()
            },
            reader: None,
            mirror: None,
            frame: FrameBuf::new(quintet_log::FrameKind::Facts),
            firsts: VecDeque::new(),
            recovery: Recovery::default(),
            fresh: true,
            room: 0,
        }
    }

    /// The place behind what was read.
    fn next(&self) -> Seq {
        self.reader.as_ref().map_or(Seq(1), Reader::next)
    }

    /// Where the next frame goes, and into which segment.
    fn place(&self) -> (Position, SegmentNumber) {
        let tip = self.reader.as_ref().and_then(Reader::tip);
        tip.map_or((Position(0), SegmentNumber(1)), |tip| {
            (tip.position, tip.segment)
        })
    }

    fn bad(&self, seq: Seq, why: String) -> LogError {
        LogError::BadEntry {
            log: self.store.stream.name(),
            entry: seq.0,
            why,
        }
    }

    /// Reads up to the last of `ends`.
    fn read_through(&mut self, ends: Ends) -> Result<(), LogError> {
        if ends.last < self.next() {
            return Ok(());
        }
        if self.reader.is_none() && ends.first > ends.last {
            let why = "everything up to here was purged: this is no longer the log it was";
            return Err(self.bad(ends.last, why.to_owned()));
        }
        let mut ahead = self.read_ahead(ends.first);
        while self.reader.is_none() || self.next() <= ends.last {
            let mut event = None;
            let world = &self.store.world;
            world.wait(None, &mut || {
                let mut ahead = ahead.0.lock().unwrap_or_else(PoisonError::into_inner);
                event = ahead.next();
                event.is_some() || ahead.over
            });
            match event {
                Some(TailEvent::Entry(seq, entry)) => self.take(seq, &entry)?,
                Some(TailEvent::Purged(first)) => {
                    let why = format!("it was purged while it was read; the first is now {first}");
                    return Err(self.bad(self.next(), why));
                }
                None => ahead = self.read_ahead(ends.first),
            }
        }
        Ok(())
    }

    /// Begins to read at the next place; the first is `first`, if nothing has been read.
    fn read_ahead(&self, first: Seq) -> (Arc<Mutex<Ahead>>, Tail) {
        let from = self.reader.as_ref().map_or(first, Reader::next);
        let ahead = Arc::new(Mutex::new(Ahead::default()));
        let (told, bell) = (Arc::clone(&ahead), Arc::clone(&self.store.world));
        let each = move |event| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.push(event);
            drop(told);
            bell.wake();
        };
        let tail = self.store.stream.tail(from, Box::new(each));
        (ahead, tail)
    }

    /// Takes in the entry at `seq`.
    fn take(&mut self, seq: Seq, entry: &[u8]) -> Result<(), LogError> {
        let cluster = self.store.cluster;
        // Taken out, as what it reads borrows it.
        let mut reader = self.reader.take();
        let reading = reader.get_or_insert_with(|| Reader::new(cluster, seq));
        let done = match reading.read(seq, entry) {
            Ok(Read::Frame(framed)) => self.frame(&framed),
            Ok(Read::Part | Read::Padding | Read::Void) => Ok(()),
            Err(refused) => Err(self.bad(seq, refused.to_string())),
        };
        self.reader = reader;
        done
    }

    fn frame(&mut self, framed: &Framed<'_>) -> Result<(), LogError> {
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            None => {
                let storage = Arc::clone(&self.store.mirror);
                let (segment, at) = (framed.segment, framed.position);
                let mirror = LocalLog::begin_at(storage, self.options.clone(), segment, at)?;
                self.room = mirror.segment_bytes_left();
                self.mirror.insert(mirror)
            }
        };
        if framed.begins {
            mirror.begin_segment();
            self.fresh = true;
        }
        let view = framed.view;
        self.frame.clear();
        self.frame.set_kind(view.kind);
        self.frame.count = view.count;
        self.frame.payload_mut().extend_from_slice(view.payload);
        let placed = mirror.append(framed.position, view.stamp, &mut self.frame)?;
        assert_eq!(
            placed.segment, framed.segment,
            "a mirror begins segments where the stream does"
        );
        if framed.begins {
            self.firsts.push_back(First {
                segment: framed.segment,
                seq: framed.first,
                end: placed.end,
            });
        }
        let found = &mut self.recovery;
        found.last_epoch = found.last_epoch.max(view.stamp.epoch);
        if framed.reign.is_some() {
            return Ok(());
        }
        found.frames += 1;
        found.records += u64::from(view.count);
        found.bytes += placed.end.0 - framed.position.0;
        found.last_time_ms = found.last_time_ms.max(view.stamp.time_ms);
        let first_in_segment = std::mem::take(&mut self.fresh);
        (self.replay)(ReplayFrame {
            position: framed.position,
            epoch: view.stamp.epoch,
            time_ms: view.stamp.time_ms,
            kind: view.kind,
            segment: framed.segment,
            offset: placed.offset,
            first_in_segment,
            count: view.count,
            payload: view.payload,
        })
        .map_err(|why| LogError::Replay {
            file: self.store.stream.name(),
            offset: placed.offset,
            why,
        })
    }

    fn finish(mut self, appender: Arc<Appender>, author: Author) -> (StreamLog, Recovery) {
        let mirror = self.mirror.take().expect("the claim is in the mirror");
        let end = mirror.end();
        self.recovery.end = end;
        self.recovery.segments = mirror.segments().len() as u64;
        // So that who begins the next epoch begins the one that was claimed.
        self.recovery.last_epoch = Epoch(author.epoch.0 - 1);
        let log = StreamLog {
            appender,
            author,
            mirror,
            firsts: self.firsts,
            durable: end,
            fresh: self.fresh,
            begin: false,
            room: self.room,
        };
        (log, self.recovery)
    }
}
