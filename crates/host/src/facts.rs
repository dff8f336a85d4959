//! Facts of the durable log, read again behind the writer, for those who tell what happened.
//!
//! Nothing is kept for a reader: it reads files, and asks for nothing but where the log begins and
//! how far it is durable. A segment that is retired meanwhile is gone for it.

use quintet_engine::Fact;
use quintet_engine::format::next_group;
use quintet_log::{FrameKind, LogError, Position, ReplayFrame, SegmentInfo};
use quintet_types::{LargeBody, Ms, Name, Principal, QueueId, Verb};

use super::{Core, Work, locked};

/// A place in the log, between two facts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogPlace {
    /// Position of the frame with the next fact.
    pub frame: u64,
    /// Facts of that frame that lie before this place.
    pub facts: u32,
}

/// A fact where it stands in the log, or a part of the log that was lost.
#[derive(Debug)]
pub struct LoggedFact<'a> {
    /// The place before it.
    pub at: LogPlace,
    pub shard: u64,
    pub fact: Result<&'a Fact, NoFact>,
    /// When its frame was written, by the engine's clock. Of an unreadable part: the frame behind
    /// it, else the last one before it that was read, else the last one of the log file.
    pub time: Ms,
}

/// Why there is no fact at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFact {
    /// It was damaged, and a repair has cut it out.
    CutOut,
    /// It cannot be read.
    Unreadable,
}

/// Why the log cannot be read from a place.
#[derive(Debug)]
pub enum NotThere {
    /// The log begins later.
    Retired,
    /// The log does not reach so far, or has no fact there: the place is of another log.
    Unknown,
    /// It cannot be read, in words.
    Failed(String),
}

impl From<LogError> for NotThere {
    fn from(error: LogError) -> Self {
        if let LogError::NoSegment(_) = error {
            return Self::Retired;
        }
        Self::Failed(error.to_string())
    }
}

/// The part of the log that can be read.
struct Span {
    segments: Vec<SegmentInfo>,
    durable: Position,
}

impl Core {
    fn log_to_read(&self) -> Span {
        let committer = locked(&self.committer);
        let durable = match &self.acked {
            None => committer.log.durable(),
            Some(acked) => acked.durable(),
        };
        Span {
            segments: committer.log.segments(),
            // Only facts in the files are reported.
            durable: durable.min(committer.log.end()),
        }
    }

    /// A number that this log keeps for ever, and hardly another one has.
    pub fn log_id(&self) -> u32 {
        let read = || self.lock(0, Work::Server).engine.log_id();
        *self.log_id.get_or_init(read)
    }

    /// Where the oldest fact of the log is.
    pub fn oldest_place(&self) -> LogPlace {
        let span = self.log_to_read();
        let oldest = span.segments.first().map_or(span.durable, |one| one.first);
        place(oldest)
    }

    /// The place behind the newest fact that is durable.
    pub fn durable_place(&self) -> LogPlace {
        place(self.log_to_read().durable)
    }

    /// Where the segment of a place begins. Each queue is named there before the first fact about
    /// it.
    ///
    /// # Errors
    /// The log does not reach there.
    pub fn segment_of(&self, at: LogPlace) -> Result<LogPlace, NotThere> {
        let span = self.log_to_read();
        span.has(at)?;
        let (segment, _) = span.segment(at).ok_or(NotThere::Retired)?;
        Ok(place(segment.first))
    }

    /// Looks at the disk whether a place is one of this log, which reading a segment up to it would
    /// find out late. Where no frame can be read, the file from a frame before it on is.
    ///
    /// # Errors
    /// It is not, or the log does not reach there.
    pub fn has_place(&self, at: LogPlace) -> Result<(), NotThere> {
        let span = self.log_to_read();
        span.has(at)?;
        if at.frame == span.durable.0 {
            return Ok(());
        }
        let (segment, until) = span.segment(at).ok_or(NotThere::Retired)?;
        let (number, frame) = (segment.number, Position(at.frame));
        if self.reader.frame_begins(number, frame)? {
            return Ok(());
        }
        let behind = self.reader.behind_damage(number, None, (frame, until))?;
        behind.map(drop).ok_or(NotThere::Unknown)
    }

    /// Hands the durable facts from a place on to `seen`, until that returns false or `bytes` of
    /// frames were read. A part that cannot be read is handed on without its facts ([`NoFact`]). Returns
    /// the place from which to go on: before the fact that `seen` did not take. Blocks on the disk;
    /// holds one frame in memory.
    ///
    /// # Errors
    /// The log has no such place, or the disk fails.
    pub fn facts_from(
        &self,
        from: LogPlace,
        bytes: u64,
        seen: &mut dyn FnMut(&LoggedFact<'_>) -> bool,
    ) -> Result<LogPlace, NotThere> {
        let span = self.log_to_read();
        span.has(from)?;
        let (mut at, mut left, mut time) = (from, bytes, Ms(0));
        while at.frame < span.durable.0 && left > 0 {
            let (segment, until) = span.segment(at).ok_or(NotThere::Retired)?;
            let (mut stopped, mut wrong) = (None, None);
            let (begins, skip) = (Position(at.frame), at.facts);
            let read = self
                .reader
                .frames(segment.number, (begins, until), &mut |frame| {
                    let skip = if frame.position == begins { skip } else { 0 };
                    left = left.saturating_sub(frame.payload.len() as u64);
                    time = Ms(frame.time_ms);
                    match facts_of(frame, skip, seen) {
                        Ok(None) => left > 0,
                        Ok(place) => {
                            stopped = place;
                            false
                        }
                        Err(place) => {
                            wrong = Some(place);
                            false
                        }
                    }
                });
            let next = match read {
                Err(LogError::BadRead { .. } | LogError::Damaged { .. }) => {
                    // All frames from the second one on are where the one before ends.
                    let known = Some(begins).filter(|_| at > from);
                    let (number, place) = (segment.number, (begins, until));
                    let behind = self.reader.behind_damage(number, known, place)?;
                    let (next, written) = behind.ok_or(NotThere::Unknown)?;
                    if time == Ms(0) {
                        time = Ms(segment.modified_ms);
                    }
                    time = written.map_or(time, Ms);
                    wrong = Some(at);
                    next
                }
                read => read?,
            };
            let lost = |at| LoggedFact {
                at,
                shard: 0,
                fact: Err(NoFact::Unreadable),
                time,
            };
            if let Some(damaged) = wrong
                && !seen(&lost(damaged))
            {
                return Ok(damaged);
            }
            if let Some(stopped) = stopped {
                return Ok(stopped);
            }
            at = place(next);
        }
        Ok(at)
    }

    /// True if the queue of this number in a shard has had this name since then.
    pub fn is_queue(&self, shard: u64, queue: QueueId, name: &Name, created: Ms) -> bool {
        let shard = usize::try_from(shard).ok();
        let Some(shard) = shard.filter(|shard| *shard < self.shards.len()) else {
            return false;
        };
        let shard = self.lock(shard, Work::Server);
        shard.engine.is_queue(queue, name, created)
    }

    /// True if a principal may look at the messages of a queue of this name.
    pub fn may_peek(&self, principal: Principal, queue: &Name) -> bool {
        if principal == Principal::SERVER {
            return true;
        }
        let shard = self.shard_of_queue(queue.as_bytes());
        let mut shard = self.lock(shard, Work::Server);
        shard.engine.may(principal, Verb::Peek, queue)
    }
}

fn place(position: Position) -> LogPlace {
    LogPlace {
        frame: position.0,
        facts: 0,
    }
}

impl Span {
    fn has(&self, at: LogPlace) -> Result<(), NotThere> {
        let oldest = self.segments.first().map_or(self.durable, |one| one.first);
        match at.frame {
            frame if frame < oldest.0 => Err(NotThere::Retired),
            frame if frame > self.durable.0 => Err(NotThere::Unknown),
            _ => Ok(()),
        }
    }

    /// The segment with the frame at a place, and how far it can be read.
    fn segment(&self, at: LogPlace) -> Option<(&SegmentInfo, Position)> {
        let behind = self.segments.partition_point(|one| one.first.0 <= at.frame);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        let next = self.segments.get(behind).map(|next| next.first);
        let until = next.map_or(self.durable, |next| next.min(self.durable));
        Some((segment, until))
    }
}

/// Hands the facts of a frame to `seen`, but for the first ones. Returns the place of the one that
/// it did not take, if there is one.
///
/// # Errors
/// One cannot be read: its place, or that of the first one asked for.
fn facts_of(
    frame: &ReplayFrame<'_>,
    skip: u32,
    seen: &mut dyn FnMut(&LoggedFact<'_>) -> bool,
) -> Result<Option<LogPlace>, LogPlace> {
    let mut at = place(frame.position);
    let time = Ms(frame.time_ms);
    match frame.kind {
        FrameKind::Facts => {}
        FrameKind::Lost => {
            let (shard, fact) = (0, Err(NoFact::CutOut));
            let lost = LoggedFact {
                at,
                shard,
                fact,
                time,
            };
            return Ok((!seen(&lost)).then_some(at));
        }
        FrameKind::Body | FrameKind::Reign => return Ok(None),
    }
    let requested = |at: LogPlace| LogPlace {
        facts: at.facts.max(skip),
        ..at
    };
    let mut payload = frame.payload;
    while !payload.is_empty() {
        let (shard, mut records) = next_group(&mut payload).ok_or_else(|| requested(at))?;
        while !records.is_empty() {
            // Its bytes are not read.
            let large = &mut |id, len| LargeBody::new(id, len, frame.segment.0);
            let fact = Fact::decode(&mut records, large).map_err(|_| requested(at))?;
            let logged = LoggedFact {
                at,
                shard,
                fact: Ok(&fact),
                time,
            };
            if at.facts >= skip && !seen(&logged) {
                return Ok(Some(at));
            }
            at.facts += 1;
        }
    }
    Ok(None)
}
