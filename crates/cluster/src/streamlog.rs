//! A log whose frames are entries of a stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use quintet_log::{
    BodyReader, FrameBuf, FrameKind, LocalLog, Log, LogError, Placed, Position, Retiring,
    SegmentInfo, SegmentNumber, Shared, Stamp, SyncPoint, SyncWork,
};

use crate::{
    Beginning, Claim, Moment, Reign, Result, Seq, appender::Appender, entry::Author, resolve::Kind,
    window::Window,
};

/// The log of an owner. Opened by [`StreamStore`](crate::StreamStore).
///
/// A frame goes to the mirror, files with the same frames at the same places from which bodies are
/// read, and to the stream, which alone makes it durable. A sync point waits for acknowledgements,
/// and so does everything that waits for one.
pub struct StreamLog {
    pub(crate) appender: Arc<Appender>,
    pub(crate) author: Author,
    /// The claim of this node.
    pub(crate) claim: Claim,
    /// Where the log begins.
    pub(crate) from: Beginning,
    /// The place of the claim that took over a log of version 1, until an owner of version 2 states
    /// another beginning than that claim.
    pub(crate) taken_over: Option<Seq>,
    /// The newest frame's.
    pub(crate) stamp: Stamp,
    pub(crate) mirror: LocalLog,
    /// Where the segments begin, oldest first.
    pub(crate) firsts: VecDeque<First>,
    pub(crate) durable: Position,
    /// The segment being written has no frame of the caller's, only claims and heartbeats.
    pub(crate) fresh: bool,
    /// The next frame of the caller's begins a segment.
    pub(crate) begin: bool,
    /// Payload bytes an empty segment has room for.
    pub(crate) room: u64,
    /// The owner has handed off.
    pub(crate) over: bool,
}

/// A segment's beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) segment: SegmentNumber,
    /// The place of its first entry.
    pub(crate) seq: Seq,
    /// Where its first frame ends.
    pub(crate) end: Position,
}

/// How far a log's appends are acknowledged, for others than who writes it.
#[derive(Clone)]
pub struct Acks(Arc<Appender>);

impl Acks {
    /// Whether there should be a heartbeat though something was appended: a segment has begun in
    /// which nothing says who reigns.
    pub fn wants_heartbeat(&self) -> bool {
        self.0.wants_heartbeat()
    }

    /// When something was appended last.
    pub fn appended(&self) -> Moment {
        self.0.with_window(Window::pushed)
    }

    /// When the newest frame that is acknowledged, with all before it, was sent first.
    pub fn sent(&self) -> Option<Moment> {
        self.0.with_window(Window::acked_sent)
    }

    /// The place of the last entry that was appended.
    pub fn last(&self) -> Seq {
        self.0.with_window(Window::next).before()
    }

    /// The entry that the log begins with, as its owner has decided.
    pub fn begins(&self) -> Seq {
        self.0.begins()
    }

    /// Entries and bytes that were appended and are not acknowledged.
    pub fn unacked(&self) -> (u64, u64) {
        self.0.with_window(Window::unacked)
    }

    /// Entries that this owner has appended, its claim and padding included, and those of them
    /// that are acknowledged.
    pub fn totals(&self) -> (u64, u64) {
        self.0.with_window(Window::totals)
    }

    /// Within so much of their being appended 99 of 100 of the newest frames were acknowledged;
    /// none: there was none.
    pub fn took_p99(&self) -> Option<Duration> {
        self.0.with_window(Window::took_p99)
    }

    /// Sends nothing from now on, or goes on; what is appended meanwhile waits. For a moment only:
    /// nothing is acknowledged, and the lease runs out.
    pub fn hold(&self, held: bool) {
        self.0.hold(held);
    }

    /// Entries that were sent and not acknowledged.
    pub fn on_way(&self) -> usize {
        self.0.with_window(Window::on_way)
    }

    /// How often it had to be asked what became of an entry.
    pub fn resolves(&self) -> u64 {
        self.0.with_window(|window| window.resolves)
    }

    /// Why nothing is appended any more, or not now.
    ///
    /// # Errors
    /// [`LogError::Fenced`] and [`LogError::BadEntry`] for ever, [`LogError::NoSpace`] for now.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }
}

impl StreamLog {
    /// How far appends are acknowledged.
    pub fn acks(&self) -> Acks {
        Acks(Arc::clone(&self.appender))
    }

    /// The epoch of this owner's claim.
    pub fn epoch(&self) -> quintet_log::Epoch {
        self.author.epoch
    }

    fn add(
        &mut self,
        expected: Position,
        stamp: Stamp,
        frame: &mut FrameBuf,
        begins: bool,
    ) -> Result<Placed> {
        self.appender.check()?;
        if begins {
            self.mirror.begin_segment();
        }
        let placed = self.mirror.append(expected, stamp, frame)?;
        self.stamp = stamp;
        let segment = placed.segment;
        let entries = self
            .author
            .entries(frame.unsalted(), expected, segment, begins);
        let first = self.appender.push(entries, Kind::Frame, placed.end);
        if begins {
            // Who reads from here on has not seen the claim.
            self.appender.want_heartbeat(true);
            self.firsts.push_back(First {
                segment,
                seq: first,
                end: placed.end,
            });
        }
        Ok(placed)
    }
}

impl StreamLog {
    /// Says who reigns, and that the log begins at `from`.
    fn say_again(&mut self, stamp: Stamp, from: Beginning) -> Result<()> {
        let end = self.mirror.end();
        let mut frame = Reign::Again(self.claim.clone(), Some(from)).frame();
        self.add(end, stamp, &mut frame, false)?;
        self.appender.want_heartbeat(false);
        Ok(())
    }

    /// States the beginning that a late purge by an owner of version 1 left, and asks for it until
    /// then: the claim was made before that purge.
    fn follow_late_purge(&mut self) {
        let Some(claim) = self.taken_over else {
            return;
        };
        let first = self.appender.first();
        let late = |at: &&First| at.seq == first && self.from.seq < first && first < claim;
        match self.firsts.iter().find(late) {
            Some(at) => self.begin_with(*at),
            None => self.appender.ask_first(),
        }
    }

    fn begin_with(&mut self, first: First) {
        let First { segment, seq, .. } = first;
        self.from = Beginning { segment, seq };
        self.taken_over = None;
        self.appender.set_begins(seq);
    }
}

impl Log for StreamLog {
    fn end(&self) -> Position {
        self.mirror.end()
    }

    fn durable(&self) -> Position {
        self.durable
    }

    fn append(&mut self, expected: Position, stamp: Stamp, frame: &mut FrameBuf) -> Result<Placed> {
        assert!(
            matches!(frame.kind(), FrameKind::Facts | FrameKind::Body),
            "frames of the log's own are not the caller's"
        );
        assert!(!self.over, "a handoff is an owner's last frame");
        let placed = self.add(expected, stamp, frame, self.begin)?;
        self.begin = false;
        self.fresh = false;
        Ok(placed)
    }

    fn begin_segment(&mut self) {
        self.begin |= !self.fresh;
    }

    fn segment(&self) -> SegmentNumber {
        self.mirror.segment()
    }

    fn segment_bytes_left(&self) -> u64 {
        match self.begin || self.fresh {
            true => self.room,
            false => self.mirror.segment_bytes_left(),
        }
    }

    fn sync_point(&mut self) -> SyncPoint {
        let end = self.mirror.end();
        let work = (end > self.durable).then(|| {
            Box::new(Acknowledged {
                appender: Arc::clone(&self.appender),
                end,
            }) as Box<dyn SyncWork>
        });
        SyncPoint::new(end, work)
    }

    fn synced(&mut self, point: SyncPoint) {
        self.durable = self.durable.max(point.finish());
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        self.mirror.segments()
    }

    fn begin_retire(&mut self, through: SegmentNumber) -> Result<Retiring> {
        // What the log says of its beginning comes before the purge.
        match self.appender.check() {
            _ if self.over => return Ok(Retiring::new(|| Ok(0))),
            Err(LogError::NoSpace { .. }) => return Ok(Retiring::new(|| Ok(0))),
            checked => checked?,
        }
        let acked = self.appender.with_window(Window::acked);
        let pairs = self.firsts.iter().zip(self.firsts.iter().skip(1));
        // The stream must begin with a whole frame, and what is not acknowledged may be none.
        let retired =
            pairs.take_while(|(oldest, next)| oldest.segment <= through && next.end <= acked);
        let (many, last) = (retired.clone().count(), retired.last());
        let Some((number, next)) = last.map(|(oldest, next)| (oldest.segment, *next)) else {
            return Ok(Retiring::new(|| Ok(0)));
        };
        let from = Beginning {
            segment: next.segment,
            seq: next.seq,
        };
        match self.say_again(self.stamp, from) {
            // It is tried again; nothing is given up that the log does not say.
            Err(LogError::NoSpace { .. }) => return Ok(Retiring::new(|| Ok(0))),
            stated => stated?,
        }
        self.firsts.drain(..many);
        self.begin_with(next);
        let stated = self.mirror.end();
        let files = self.mirror.begin_retire(number)?;
        let mirrored = self.mirror.sync_point();
        let appender = Arc::clone(&self.appender);
        Ok(Retiring::new(move || {
            // Nobody else finds entries missing before it stands in the log that they may be.
            appender.wait(stated)?;
            // Servers rewrite files for a purge: should they lose some of it when all lose power,
            // the mirror has what the purge keeps.
            mirrored.wait()?;
            appender.purge_below(next.seq)?;
            files.run()
        }))
    }

    /// Makes the mirror a log that can be opened by itself.
    fn end_in_order(&mut self) -> Result<()> {
        let point = self.mirror.sync_point();
        point.wait()?;
        self.mirror.synced(point);
        self.mirror.end_in_order()
    }

    fn reader(&self) -> BodyReader {
        self.mirror.reader()
    }

    /// Also says again who that is, for who has not seen the claim ([`Acks::wants_heartbeat`]).
    fn heartbeat(&mut self, stamp: Stamp) -> Result<()> {
        if self.over {
            return Ok(());
        }
        self.follow_late_purge();
        self.say_again(stamp, self.from)
    }

    /// From here on there is no lease: a node that takes over waits for none.
    fn handoff(&mut self, stamp: Stamp, to: &str) -> Result<()> {
        if self.over {
            return Ok(());
        }
        self.over = true;
        self.appender.end_lease();
        let end = self.mirror.end();
        let mut frame = Reign::Handoff(to.to_owned()).frame();
        self.add(end, stamp, &mut frame, false).map(drop)
    }

    fn shared(&self) -> Option<Arc<dyn Shared>> {
        Some(Arc::new(self.acks()))
    }
}

impl Shared for Acks {
    fn durable(&self) -> Position {
        self.0.with_window(Window::acked)
    }

    fn has_lease(&self) -> bool {
        self.0.has_lease()
    }

    fn has_room(&self) -> bool {
        self.0.with_window(Window::has_room)
    }

    fn waits(&self) -> Option<Duration> {
        let since = self.0.with_window(Window::waits_since)?;
        Some(self.0.now().saturating_sub(since))
    }

    fn unacked(&self) -> u64 {
        self.0.with_window(Window::unacked).1
    }

    fn listen(&self, callback: Arc<dyn Fn() + Send + Sync>) {
        self.0.listen(callback);
    }

    fn is_over(&self) -> bool {
        self.0.with_window(|window| window.stop().is_some())
    }
}

/// Work of a sync point.
struct Acknowledged {
    appender: Arc<Appender>,
    end: Position,
}

impl SyncWork for Acknowledged {
    fn sync(&self) -> Result<()> {
        self.appender.wait(self.end)
    }
}
