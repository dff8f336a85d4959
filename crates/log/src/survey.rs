//! Reading a log that may be damaged: every good frame, and every range without one.
//!
//! Opening a log stops at the first bad frame; this goes on behind it. Check shows what it finds,
//! repair acts on it. Neither changes the rule that tells a tail from damage: "Recovery" in
//! `docs/log-format.md`.

use std::sync::Arc;

use crate::error::OfStorage as _;
use crate::{
    Cut, FRAME_HEADER_BYTES, LogError, Position, ReplayFrame, Result, SegmentNumber, Stamp,
    Storage, StorageFile,
    extent::{Extent, Missing, NO_SEGMENT},
    run::list_runs,
    scan::{Scan, Step, Stop, Window},
    segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, segment_name},
};

/// One report of a running check or repair.
#[derive(Debug)]
pub enum Finding<'a> {
    /// So much of the log has been read.
    Progress {
        /// Bytes of segment files read.
        done: u64,
        /// Bytes of all segment files.
        total: u64,
    },
    /// A good frame; also one behind damage, or in a tail that will be cut.
    Frame(ReplayFrame<'a>),
    /// A range that had been durable and does not read as it was written.
    Damage(&'a LostRange),
    /// An unsynced tail, which the next start cuts. Not damage.
    Tail(&'a Cut),
}

/// A range of a file that cannot be read as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The file. A segment that is missing counts as a range at the end of the one before it.
    pub file: String,
    /// Where the range begins, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// Description of the damage.
    pub why: String,
}

impl LostRange {
    fn new(file: &str, (offset, bytes): (u64, u64), why: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            offset,
            bytes,
            why: why.into(),
        }
    }
}

/// Everything there is to know about a log's files.
pub(crate) struct Survey {
    pub(crate) segments: Vec<Surveyed>,
    /// Ranges that had been durable, those of whole files and headers included.
    pub(crate) damage: Vec<LostRange>,
    pub(crate) tail: Option<Cut>,
    /// Where the log ends, the tail cut.
    pub(crate) end: Position,
    /// Names of the files that say what must be there, and the highest number of a segment.
    pub(crate) extents: Vec<String>,
    pub(crate) newest: SegmentNumber,
}

impl Survey {
    /// No segment says what of the runs is in force: each is damage.
    fn lose_runs(
        &mut self,
        storage: &dyn Storage,
        report: &mut dyn FnMut(Finding<'_>),
    ) -> Result<()> {
        for run in list_runs(storage)? {
            let range = LostRange::new(&run.to_string(), (0, 0), NO_SEGMENT);
            if !self.damage.contains(&range) {
                report(Finding::Damage(&range));
                self.damage.push(range);
            }
        }
        Ok(())
    }
}

/// One segment's file.
pub(crate) struct Surveyed {
    pub(crate) name: String,
    pub(crate) number: SegmentNumber,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) len: u64,
    /// `None`: no frame in it can be verified.
    pub(crate) header: Option<SegmentHeader>,
    /// A copy of the header that is bad, or all of it.
    header_damage: Option<(u64, String)>,
    /// It is shorter than it was made.
    cut: Option<String>,
    pub(crate) runs: Vec<Stretch>,
    pub(crate) holes: Vec<Hole>,
}

/// Good frames without a gap.
pub(crate) struct Stretch {
    pub(crate) from: Position,
    pub(crate) to: Position,
    pub(crate) frames: u64,
    pub(crate) records: u64,
}

/// A range without a good frame, before one or before the next segment.
pub(crate) struct Hole {
    pub(crate) from: Position,
    pub(crate) to: Position,
    pub(crate) why: &'static str,
    /// The last good frame before it.
    pub(crate) stamp: Stamp,
    /// Bytes of frames in it of which the header is good.
    recognised: u64,
}

impl Surveyed {
    /// Whether repair has to write it anew.
    pub(crate) fn is_damaged(&self, end: Position) -> bool {
        self.header_damage.is_some()
            || self.cut.is_some()
            || self.holes.iter().any(|hole| hole.from < end)
    }

    /// Why durable bytes in a hole are lost. `gap`: the next segment, where one before is missing.
    fn why_lost(&self, hole: &Hole, gap: Option<&SegmentHeader>) -> String {
        match gap {
            Some(next) if next.first == hole.to => {
                let missing = SegmentNumber(self.number.0 + 1);
                format!("{} behind it is missing", segment_name(missing))
            }
            _ => hole.why.to_owned(),
        }
    }
}

/// Reads all of it. Holds one frame, or 1 MiB, in memory.
///
/// # Errors
/// [`LogError::NewerFormat`], [`LogError::Io`]. Damage is not an error here.
pub(crate) fn survey(storage: &dyn Storage, report: &mut dyn FnMut(Finding<'_>)) -> Result<Survey> {
    // A server may be at work: what was durable before is still to be read, and what is needed
    // afterwards was there.
    let (before, _) = Extent::find(storage)?;
    let (mut segments, stray) = open_all(storage)?;
    let (after, extents) = Extent::find(storage)?;
    let first = segments.first().map(|first| first.number);
    let missing = Extent::missing(after, storage, first)?;
    let total = segments.iter().map(|segment| segment.len).sum();
    let mut state = SurveyState::default();
    let mut done = 0;
    for index in 0..segments.len() {
        let limit = segments[index + 1..]
            .iter()
            .find_map(|next| Some(next.header.as_ref()?.first));
        state.read_segment(&mut segments[index], limit, report)?;
        done += segments[index].len;
        report(Finding::Progress { done, total });
    }
    let before = before.unwrap_or_default();
    state.synced = state.synced.max(before.durable);
    let mut survey = state.conclude(segments, stray, missing, before, report);
    survey.extents = extents;
    survey.newest = survey.newest.max(before.newest);
    if !survey.damage.is_empty() && survey.segments.iter().all(|left| left.header.is_none()) {
        survey.lose_runs(storage, report)?;
    }
    Ok(survey)
}

/// The files, and the segment that was begun and never durable, whose header cannot be read: what
/// is behind it never was durable either.
fn open_all(storage: &dyn Storage) -> Result<(Vec<Surveyed>, Option<Cut>)> {
    let found = SegmentFile::list(storage, "the log's directory")?;
    // What has a durable one behind it was durable itself.
    let durable = found.iter().rposition(|segment| !segment.begun);
    let mut segments: Vec<Surveyed> = Vec::with_capacity(found.len());
    let (mut first, mut last) = (Position(0), None);
    for (index, segment) in found.into_iter().enumerate() {
        let doubles = segment.doubles(last.replace(segment));
        let (name, file) = segment.open_read(storage)?;
        let len = file.len().or_io("measure", &name)?;
        let (header, bad) = match SegmentHeader::salvage(&*file, &name) {
            Ok(found) => {
                let bad = found.bad_copy.map(|(at, why)| (at, why.to_owned()));
                (Some(found.header), bad)
            }
            Err(LogError::Damaged { offset, why, .. }) => (None, Some((offset, why))),
            Err(error) => return Err(error),
        };
        let never_durable = segment.begun && durable.is_none_or(|durable| index > durable);
        let (header, header_damage) = match (header, bad) {
            _ if doubles.is_some() => (None, doubles.map(|why| (0, why))),
            (_, Some((_, why))) if never_durable => {
                return Ok((segments, Some(Cut::at(name, 0, why))));
            }
            (Some(header), _) if header.first < first => {
                let why = "it begins before the segment before it".to_owned();
                (None, Some((32, why)))
            }
            (header, bad) => {
                first = header.as_ref().map_or(first, |header| header.first);
                (header, bad)
            }
        };
        let cut = header.as_ref().and_then(|header| header.is_cut(len));
        segments.push(Surveyed {
            cut,
            name,
            number: segment.number,
            file,
            len,
            header,
            header_damage,
            runs: Vec::new(),
            holes: Vec::new(),
        });
    }
    Ok((segments, None))
}

/// Results so far.
#[derive(Default)]
struct SurveyState {
    synced: Position,
    stamp: Stamp,
    end: Position,
    /// End of the last segment: its file, and the position in it.
    last: Option<(String, u64, Stop)>,
}

/// Bytes behind a position without a good frame, in the same segment.
#[derive(Default)]
struct Behind {
    /// The next good frame.
    good: Option<Position>,
    /// The end of the last frame before that of which the header is good, and the bytes of all
    /// such frames.
    end: Option<Position>,
    recognised: u64,
}

impl SurveyState {
    fn read_segment(
        &mut self,
        segment: &mut Surveyed,
        limit: Option<Position>,
        report: &mut dyn FnMut(Finding<'_>),
    ) -> Result<()> {
        let Some(header) = &segment.header else {
            return Ok(());
        };
        let mut window = Window::default();
        let mut scan = Scan::new(&*segment.file, &segment.name, header, limit, &mut window)?;
        self.synced = self.synced.max(header.synced_through);
        if self.stamp.time_ms == 0 {
            self.stamp.time_ms = header.created_ms;
        }
        let mut position = header.first;
        let mut run = Stretch {
            from: position,
            to: position,
            frames: 0,
            records: 0,
        };
        loop {
            let stop = match scan.at(position)? {
                Step::Frame(frame) => {
                    report(Finding::Frame(ReplayFrame {
                        position,
                        epoch: frame.epoch,
                        time_ms: frame.time_ms,
                        kind: frame.kind,
                        segment: segment.number,
                        offset: header.offset_of(position) + FRAME_HEADER_BYTES as u64,
                        first_in_segment: position == header.first,
                        count: frame.count,
                        payload: scan.payload()?,
                    }));
                    self.synced = self.synced.max(frame.synced_through);
                    self.stamp = Stamp {
                        epoch: frame.epoch,
                        time_ms: frame.time_ms,
                    };
                    position = frame.end();
                    run.to = position;
                    run.frames += 1;
                    run.records += u64::from(frame.count);
                    continue;
                }
                Step::Limit => break,
                Step::Stop(stop) => stop,
            };
            let file_end =
                Position(header.first.0 + segment.len.saturating_sub(SEGMENT_HEADER_BYTES));
            let behind = self.look_behind(&mut scan, position, file_end)?;
            // Up to the next good frame, or the next segment, or as far as there were frames.
            let Some(to) = behind.good.or(limit).or(behind.end) else {
                let offset = header.offset_of(position);
                self.last = Some((segment.name.clone(), offset, stop));
                break;
            };
            segment.holes.push(Hole {
                from: position,
                to,
                why: stop.why,
                stamp: self.stamp,
                recognised: behind.recognised,
            });
            position = to;
            let next_run = Stretch {
                from: to,
                to,
                frames: 0,
                records: 0,
            };
            segment.runs.push(std::mem::replace(&mut run, next_run));
        }
        segment.runs.push(run);
        self.end = position;
        Ok(())
    }

    /// Reads the bytes behind a position without a good frame.
    fn look_behind(
        &mut self,
        scan: &mut Scan<'_>,
        position: Position,
        file_end: Position,
    ) -> Result<Behind> {
        let mut behind = Behind::default();
        let mut from = position;
        while let Some(header) = scan.find_header(from)? {
            self.synced = self.synced.max(header.synced_through);
            if let Step::Frame(_) = scan.at(header.position)? {
                behind.good = Some(header.position);
                break;
            }
            behind.recognised += header.frame_len();
            // The file may end inside it.
            behind.end = Some(header.end().min(file_end));
            from = header.end();
        }
        Ok(behind)
    }

    /// The range that is lost behind `end`: the rest of the `last` segment, or files behind it if
    /// they are `gone`.
    fn lost_end(&self, last: SegmentNumber, gone: bool, end: Position) -> LostRange {
        let (file, offset, why) = match (&self.last, gone) {
            (Some((file, offset, stop)), false) => (file.clone(), *offset, stop.why),
            _ => {
                let next = SegmentNumber(last.0 + 1);
                (segment_name(next), 0, "the file is missing")
            }
        };
        let synced = self.synced;
        let why = format!("{why}, and the log was durable up to position {synced}");
        LostRange::new(&file, (offset, synced.0 - end.0), why)
    }

    fn conclude(
        self,
        segments: Vec<Surveyed>,
        stray: Option<Cut>,
        missing: Option<Missing>,
        before: Extent,
        report: &mut dyn FnMut(Finding<'_>),
    ) -> Survey {
        let mut damage = Vec::new();
        if let Some((file, why)) = missing {
            damage.push(LostRange::new(&file, (0, 0), why));
        }
        let mut tail: Option<Cut> = None;
        let mut end = self.end;
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1);
            let gap = next.filter(|next| next.number.0 > segment.number.0 + 1);
            let gap = gap.and_then(|next| next.header.as_ref());
            if let Some((offset, why)) = &segment.header_damage {
                let bytes = match segment.header {
                    Some(_) => 2048,
                    None => segment.len,
                };
                damage.push(LostRange::new(&segment.name, (*offset, bytes), why));
            }
            let Some(header) = &segment.header else {
                continue;
            };
            if let Some(why) = &segment.cut {
                let range = (segment.len, header.made - segment.len);
                damage.push(LostRange::new(&segment.name, range, why));
            }
            for hole in &segment.holes {
                let offset = header.offset_of(hole.from);
                if hole.from < self.synced {
                    let bytes = hole.to.0 - hole.from.0;
                    let why = segment.why_lost(hole, gap);
                    damage.push(LostRange::new(&segment.name, (offset, bytes), why));
                } else if tail.is_none() {
                    end = hole.from;
                    tail = Some(Cut::at(segment.name.clone(), offset, hole.why));
                }
            }
        }
        let last = segments.last();
        let cut = last.is_some_and(|last| last.cut.is_some());
        if let (Some(last), true) = (last, end < self.synced && !cut && tail.is_none()) {
            // What was durable ends before it should, and nothing follows.
            let gone = before.newest > last.number;
            damage.push(self.lost_end(last.number, gone, end));
        } else if let (None, Some((file, offset, stop))) = (&tail, self.last)
            && stop.looks_like_frame
        {
            tail = Some(Cut::at(file, offset, stop.why));
        }
        // Without a segment at all nothing is cut.
        if !segments.is_empty() {
            tail = tail.or(stray);
        }
        if let Some(tail) = &mut tail {
            tail.bytes = bytes_behind(&segments, end);
            report(Finding::Tail(tail));
        }
        for range in &damage {
            report(Finding::Damage(range));
        }
        let newest = segments.last().map(|last| last.number).unwrap_or_default();
        Survey {
            segments,
            damage,
            tail,
            end,
            extents: Vec::new(),
            newest,
        }
    }
}

/// Bytes of frames that were recognised behind `end`.
fn bytes_behind(segments: &[Surveyed], end: Position) -> u64 {
    let runs = segments.iter().flat_map(|segment| &segment.runs);
    let runs = runs
        .filter(|run| run.from >= end)
        .map(|run| run.to.0 - run.from.0);
    let holes = segments.iter().flat_map(|segment| &segment.holes);
    let holes = holes
        .filter(|hole| hole.from >= end)
        .map(|hole| hole.recognised);
    runs.sum::<u64>() + holes.sum::<u64>()
}

/// Totals of a log.
pub(crate) fn totals(survey: &Survey) -> (u64, u64, u64) {
    let runs = survey.segments.iter().flat_map(|segment| &segment.runs);
    runs.filter(|run| run.from < survey.end)
        .fold((0, 0, 0), |(frames, records, bytes), run| {
            (
                frames + run.frames,
                records + run.records,
                bytes + (run.to.0 - run.from.0),
            )
        })
}
