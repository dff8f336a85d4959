//! A stream as far as it was read, and the mirror with the same.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use quintet_log::{
    Epoch, FrameBuf, LocalLog, Log as _, LogError, Options, Position, Recovery, Replay,
    ReplayFrame, SegmentNumber, Stamp, Storage,
};

use crate::{
    Beginning, Claim, ClusterId, Ends, Fences, Reign, Result, Seq, StreamLog,
    appender::Appender,
    entry::{Author, Refused},
    reader::{Framed, Read, Reader, Tip},
    streamlog::First,
};

/// Fed entry by entry, for as long as one likes; made the log of an owner when its claim stands.
pub(crate) struct Copy {
    /// The stream's name, for errors.
    name: String,
    cluster: ClusterId,
    storage: Arc<dyn Storage>,
    options: Options,
    reader: Option<Reader>,
    mirror: Option<LocalLog>,
    frame: FrameBuf,
    firsts: VecDeque<First>,
    pub(crate) recovery: Recovery,
    /// The newest claim that was read, or what was said again of it.
    pub(crate) claim: Option<Claim>,
    /// Where the log begins, as its owners said last.
    beginning: Option<Beginning>,
    /// The entry that a log of version 1 began with when the first owner of version 2 claimed it,
    /// and the place of that claim.
    taken_over: Option<(Seq, Seq)>,
    /// The newest time that an owner has given.
    pub(crate) time_ms: u64,
    /// They say so: absent only from logs of version 1.
    tells: bool,
    /// The owner's designated successor, if the last entry was its handoff.
    pub(crate) handoff: Option<String>,
    /// The last entry that was read.
    pub(crate) last: Option<(Seq, Bytes)>,
    fresh: bool,
    room: u64,
}

/// Whether a copy of the stream is the one its owners left, as far as its ends and what was read of
/// it say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Whole,
    /// It lacks entries; what it has and what it should have, in words.
    Damaged(String),
    /// It is whole, and the one that was read was not.
    ReadAgain,
}

impl Copy {
    /// Of a stream of which nothing was read. The mirror is made in `storage`, which is empty.
    pub(crate) fn new(
        name: String,
        cluster: ClusterId,
        storage: Arc<dyn Storage>,
        options: &Options,
    ) -> Self {
        Self {
            name,
            cluster,
            storage,
            options: Options {
                scratch: true,
                ..options.clone()
            },
            reader: None,
            mirror: None,
            frame: FrameBuf::new(quintet_log::FrameKind::Facts),
            firsts: VecDeque::new(),
            recovery: Recovery::default(),
            claim: None,
            beginning: None,
            taken_over: None,
            time_ms: 0,
            tells: false,
            handoff: None,
            last: None,
            fresh: true,
            room: 0,
        }
    }

    /// Whether an entry was read.
    pub(crate) fn has_begun(&self) -> bool {
        self.reader.is_some()
    }

    /// The place behind what was read.
    pub(crate) fn next(&self) -> Seq {
        self.reader.as_ref().map_or(Seq(1), Reader::next)
    }

    /// Where the next frame goes, and into which segment.
    pub(crate) fn place(&self) -> (Position, SegmentNumber) {
        self.tip().map_or((Position(0), SegmentNumber(1)), |tip| {
            (tip.position, tip.segment)
        })
    }

    pub(crate) fn tip(&self) -> Option<&Tip> {
        self.reader.as_ref().and_then(Reader::tip)
    }

    /// The newest epoch that anything was written in.
    pub(crate) fn epoch(&self) -> Epoch {
        let last = self.recovery.last_epoch;
        self.tip().map_or(last, |tip| tip.epoch.max(last))
    }

    /// The entry that the log begins with, as its owners said last.
    pub(crate) fn reported_begins(&self) -> Option<Seq> {
        self.beginning.map(|from| from.seq)
    }

    pub(crate) fn bad(&self, seq: Seq, why: String) -> LogError {
        LogError::BadEntry {
            log: self.name.clone(),
            entry: seq.0,
            why,
        }
    }

    /// Takes in the entry at `seq`, and hands `replay` the frame it completes, if it is one of the
    /// caller's.
    ///
    /// # Errors
    /// [`LogError::BadEntry`] when it cannot be believed; then nothing behind it is to be read.
    pub(crate) fn take(&mut self, seq: Seq, entry: &Bytes, replay: Replay<'_>) -> Result<()> {
        let cluster = self.cluster;
        self.handoff = None;
        // Taken out, as what it reads borrows it.
        let mut reader = self.reader.take();
        let reading = reader.get_or_insert_with(|| Reader::new(cluster, seq));
        let done = match reading.read(seq, entry) {
            Ok(Read::Frame(framed)) => self.frame(&framed, replay),
            Ok(Read::Part | Read::Padding | Read::Void) => Ok(()),
            Err(refused) => Err(self.bad(seq, refused.to_string())),
        };
        self.reader = reader;
        self.last = Some((seq, entry.clone()));
        done
    }

    fn frame(&mut self, framed: &Framed<'_>, replay: Replay<'_>) -> Result<()> {
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            None => {
                let storage = Arc::clone(&self.storage);
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
        self.note_owner(framed)?;
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
        replay(ReplayFrame {
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
            file: self.name.clone(),
            offset: placed.offset,
            why,
        })
    }

    /// Takes in what a frame says of its owner: the time, where the log begins, the claim, and the
    /// handoff.
    fn note_owner(&mut self, framed: &Framed<'_>) -> Result<()> {
        let old = !self.tells;
        self.tells |= framed.tells;
        // Who claims may not know it.
        if !matches!(framed.reign, Some(Reign::Claim(..))) {
            self.time_ms = self.time_ms.max(framed.view.stamp.time_ms);
        }
        if let Some(from) = framed.beginning() {
            let before = self.reported_begins();
            self.begins(from)
                .map_err(|refused| self.bad(framed.first, refused.to_string()))?;
            if before < Some(from.seq) {
                self.sync()?;
            }
            if old && !framed.begins {
                self.taken_over = Some((from.seq, framed.first));
            }
        }
        if let Some(Reign::Handoff(to)) = &framed.reign {
            self.handoff = Some(to.clone());
        }
        if let Some(claim) = framed
            .claim()
            .filter(|claim| self.claim.as_ref() != Some(claim))
        {
            self.claim = Some(claim.clone());
        }
        Ok(())
    }

    /// Syncs the mirror. A node that states another beginning purges then, and servers rewrite
    /// files for that: should they lose some of it when all lose power, the mirror has it.
    fn sync(&mut self) -> Result<()> {
        if let Some(mirror) = &mut self.mirror {
            let point = mirror.sync_point();
            point.wait()?;
            mirror.synced(point);
        }
        Ok(())
    }

    /// Takes in where the log begins.
    fn begins(&mut self, from: Beginning) -> Result<(), Refused> {
        let same = |first: &First| (first.segment, first.seq) == (from.segment, from.seq);
        let read = self.firsts.front().is_some_and(|at| at.seq <= from.seq);
        let falls = self.beginning.is_some_and(|before| before.seq > from.seq);
        if falls || read && !self.firsts.iter().any(same) {
            return Err(Refused::Beginning(from));
        }
        self.beginning = Some(from);
        Ok(())
    }

    /// Where the log begins: of one of version 1, where what was read does.
    pub(crate) fn beginning(&self) -> Beginning {
        let read = || match self.firsts.front() {
            Some(first) => (first.segment, first.seq),
            None => (self.place().1, self.next()),
        };
        self.beginning.unwrap_or_else(|| {
            let (segment, seq) = read();
            Beginning { segment, seq }
        })
    }

    /// The place of the claim that took over the log's beginning from version 1, until an owner
    /// states another beginning. A purge by the owner before may still be on its way: it leaves a
    /// segment that begins before this place.
    fn taken_over(&self) -> Option<Seq> {
        let (seq, claim) = self.taken_over?;
        (self.reported_begins() == Some(seq)).then_some(claim)
    }

    /// Judges a copy of the stream that ends like this. Where the log begins is not for those to
    /// say who keep it: a server that has lost its first entries says that it begins behind them.
    pub(crate) fn judge(&self, ends: &Ends) -> Judged {
        let Ends {
            first, last, count, ..
        } = *ends;
        let missing = ends.missing();
        if missing > 0 {
            return Judged::Damaged(format!(
                "it has {count} entries from {first} to {last}: {missing} are missing"
            ));
        }
        if !self.has_begun() && first > last && last > Seq(0) {
            return Judged::Damaged(format!("everything up to entry {last} is purged"));
        }
        // What says where it begins may be among what was not read.
        if !self.has_begun() || self.next() <= last {
            return Judged::Whole;
        }
        let is_read = self.firsts.iter().any(|one| one.seq == first);
        let Some(from) = self.reported_begins() else {
            // Of version 1: it is believed. A deposed leader may not know of the newest purge.
            let before = self.firsts.front().is_some_and(|read| first < read.seq);
            return match self.tells || !(is_read || before) {
                true => Judged::Damaged(format!("it begins with entry {first}, too late")),
                false => Judged::Whole,
            };
        };
        if first > from {
            if is_read && self.taken_over().is_some_and(|claim| first < claim) {
                return Judged::Whole;
            }
            return Judged::Damaged(format!(
                "it begins with entry {first}, and the log begins with entry {from}"
            ));
        }
        match self.firsts.front().is_some_and(|read| read.seq > from) {
            true => Judged::ReadAgain,
            false => Judged::Whole,
        }
    }

    /// Gives up what the mirror has of segments that the stream, which begins at `first` by now,
    /// has no longer. No further than the log says that it may: a damaged copy of the stream can
    /// begin anywhere.
    pub(crate) fn forget_below(&mut self, first: Seq, fences: Fences) -> Result<()> {
        let from = self.beginning.filter(|_| fences.beginning);
        let first = from.map_or(first, |from| first.min(from.seq));
        let mut last = None;
        while self.firsts.get(1).is_some_and(|next| next.seq <= first) {
            last = self.firsts.pop_front().map(|gone| gone.segment);
        }
        if let (Some(last), Some(mirror)) = (last, &mut self.mirror) {
            mirror.retire(last)?;
        }
        Ok(())
    }

    /// Returns the log that was read, for the owner whose claim was its last entry.
    pub(crate) fn finish(self, appender: Arc<Appender>, author: Author) -> (StreamLog, Recovery) {
        let taken_over = self.taken_over();
        let mirror = self.mirror.expect("the claim is in the mirror");
        let mut recovery = self.recovery;
        let end = mirror.end();
        recovery.end = end;
        recovery.segments = mirror.segments().len() as u64;
        // So that who begins the next epoch begins the one that was claimed.
        recovery.last_epoch = Epoch(author.epoch.0 - 1);
        let stamp = Stamp {
            epoch: recovery.last_epoch,
            time_ms: recovery.last_time_ms,
        };
        let from = self.beginning.expect("the claim says it");
        appender.set_begins(from.seq);
        // The heartbeat asks where the stream begins now.
        appender.want_heartbeat(taken_over.is_some());
        let log = StreamLog {
            from,
            taken_over,
            stamp,
            claim: self.claim.expect("the claim was read"),
            appender,
            author,
            mirror,
            firsts: self.firsts,
            durable: end,
            fresh: self.fresh,
            begin: false,
            room: self.room,
            over: false,
        };
        (log, recovery)
    }
}
