//! A log, the disk under it, and the replies to a client: what must hold after any crash.

use std::{collections::BTreeSet, sync::Arc};

use quintet_log::{
    Epoch, FrameBuf, FrameKind, LocalLog, Log, LogError, Options, SegmentNumber, Stamp, SyncPoint,
};
use quintet_sim::{Random, disk::SimDisk};

/// One thing a server does to its log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Appends a frame of so many bytes.
    Append(usize),
    /// Syncs everything.
    Sync,
    /// Takes a sync point, appends, and only then waits.
    SyncLate(usize),
    Begin,
    /// Gives up all but so many segments.
    Retire(usize),
    FillSpare,
    /// Stops and starts again, without a crash.
    Reopen,
    /// Makes everything durable and says that the log ends there; goes on.
    End,
}

/// History of the requests to a log, over all its lives.
pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    log: Option<LocalLog>,
    /// Payloads in order; those a crash took are gone from here too.
    requested: Vec<Vec<u8>>,
    /// How many of them were acknowledged: durable as far as the client knows.
    acknowledged: usize,
    /// How many of the first may have been retired, and how many certainly were.
    retirable: usize,
    retired: usize,
    /// Indexes into `requested` at which segments begin.
    firsts: BTreeSet<usize>,
    /// Segment of each payload.
    segments: Vec<SegmentNumber>,
    made: u64,
    epoch: u64,
}

impl World {
    pub(crate) fn new(disk: SimDisk, options: Options) -> Self {
        Self {
            disk,
            options,
            log: None,
            requested: Vec::new(),
            acknowledged: 0,
            retirable: 0,
            retired: 0,
            firsts: BTreeSet::from([0]),
            segments: Vec::new(),
            made: 0,
            epoch: 0,
        }
    }

    /// Starts the server on `disk` and checks what it finds against what was promised.
    pub(crate) fn open(&mut self) -> Result<(), LogError> {
        self.log = None;
        let (log, recovery, seen) =
            super::open_with(Arc::new(self.disk.clone()), self.options.clone())?;
        let found: Vec<Vec<u8>> = seen.iter().map(|frame| frame.payload.clone()).collect();
        // Nothing found: all that is left is what was never promised.
        let start = match found.first() {
            Some(first) => self.requested.iter().position(|payload| payload == first),
            None => Some(self.retirable.min(self.acknowledged)),
        };
        let start = start.expect("found a frame that was not appended");
        assert!(
            (self.retired..=self.retirable).contains(&start),
            "begins at {start}; {} were retired, {} could be",
            self.retired,
            self.retirable
        );
        assert!(self.firsts.contains(&start), "begins inside a segment");
        let end = start + found.len();
        assert!(end <= self.requested.len(), "found more than was appended");
        assert_eq!(
            found,
            self.requested[start..end],
            "found is no run of the appended frames"
        );
        assert!(
            end >= self.acknowledged,
            "lost {} acknowledged frames",
            self.acknowledged - end
        );
        for pair in seen.windows(2) {
            assert!(pair[0].position < pair[1].position);
        }
        assert_eq!(recovery.frames, seen.len() as u64);
        assert_eq!(log.end(), recovery.end);
        self.requested.truncate(end);
        self.segments.truncate(end);
        self.firsts.retain(|first| *first <= end);
        self.acknowledged = end;
        self.retired = start;
        self.retirable = self.retirable.min(end);
        self.epoch += 1;
        self.log = Some(log);
        Ok(())
    }

    /// The server is gone; the next [`World::open`] finds `disk`.
    pub(crate) fn crash(&mut self, disk: SimDisk) {
        self.log = None;
        self.disk = disk;
    }

    pub(crate) fn log(&mut self) -> &mut LocalLog {
        self.log.as_mut().expect("an open log")
    }

    pub(crate) fn step(&mut self, step: Step) -> Result<(), LogError> {
        match step {
            Step::Append(bytes) => self.append(bytes),
            Step::Sync => {
                let point = self.log().sync_point();
                let requested = self.requested.len();
                self.wait(point, requested)
            }
            Step::SyncLate(bytes) => {
                let point = self.log().sync_point();
                let requested = self.requested.len();
                self.append(bytes)?;
                self.wait(point, requested)
            }
            Step::Begin => {
                self.log().begin_segment();
                Ok(())
            }
            Step::Retire(keep) => self.retire(keep),
            Step::FillSpare => {
                self.log().spares().fill_slice()?;
                Ok(())
            }
            Step::Reopen => self.open(),
            Step::End => {
                self.step(Step::Sync)?;
                self.log().end_in_order()
            }
        }
    }

    fn append(&mut self, bytes: usize) -> Result<(), LogError> {
        let mut payload = self.made.to_le_bytes().to_vec();
        let byte = self.made as u8;
        payload.resize(payload.len().max(bytes), byte);
        self.made += 1;
        let mut frame = FrameBuf::new(FrameKind::Facts);
        frame.payload_mut().extend_from_slice(&payload);
        // It counts as asked before the answer: a crash may keep what was never answered.
        let index = self.requested.len();
        self.requested.push(payload);
        let epoch = Epoch(self.epoch);
        let log = self.log();
        let before = log.segment();
        let begins = log.segments().is_empty();
        let result = log.append(log.end(), Stamp { epoch, time_ms: 5 }, &mut frame);
        let after = log.segment();
        if begins || after != before {
            self.firsts.insert(index);
        }
        // A crash between the new segment and its first frame: it may begin here all the same.
        match result {
            Ok(placed) => {
                self.segments.push(placed.segment);
                Ok(())
            }
            Err(LogError::NoSpace { .. }) => {
                self.requested.pop();
                Ok(())
            }
            Err(error) => {
                self.firsts.insert(index);
                self.segments.push(after);
                Err(error)
            }
        }
    }

    fn wait(&mut self, point: SyncPoint, requested: usize) -> Result<(), LogError> {
        point.wait()?;
        self.log().synced(point);
        self.acknowledged = self.acknowledged.max(requested);
        Ok(())
    }

    /// As a server does: only what is durable further on is given up.
    fn retire(&mut self, keep: usize) -> Result<(), LogError> {
        self.step(Step::Sync)?;
        let numbers: Vec<SegmentNumber> = self
            .log()
            .segments()
            .iter()
            .map(|segment| segment.number)
            .collect();
        let Some(index) = numbers.len().checked_sub(keep.max(1) + 1) else {
            return Ok(());
        };
        let through = numbers[index];
        let first_kept = self.segments.iter().position(|number| *number > through);
        let first_kept = first_kept.unwrap_or(self.segments.len());
        self.retirable = self.retirable.max(first_kept);
        self.log().retire(through)?;
        self.retired = self.retired.max(first_kept);
        Ok(())
    }
}

/// A script that comes by every operation the log has.
pub(crate) fn script() -> Vec<Step> {
    use Step::{Append, Begin, End, FillSpare, Reopen, Retire, Sync, SyncLate};
    vec![
        Append(20),
        Append(700),
        Sync,
        FillSpare,
        Append(10),
        SyncLate(530),
        Begin,
        Append(300),
        Append(600),
        SyncLate(40),
        Sync,
        Begin,
        Append(100),
        Begin,
        Append(900),
        Sync,
        Retire(2),
        Append(513),
        Begin,
        Append(30),
        Append(460),
        End,
        Append(31),
        End,
        Reopen,
        Append(77),
        Begin,
        Append(5),
        Sync,
        Retire(1),
        FillSpare,
        Begin,
        Append(1100),
        Append(12),
        SyncLate(600),
        Append(9),
    ]
}

/// Any step, biased towards appends.
pub(crate) fn any_step(random: &mut Random) -> Step {
    match random.below(20) {
        // Equal lengths, so that a new frame can end where an old one did.
        0..=4 => Step::Append(random.index(4) * 200),
        5..=8 => Step::Append(random.index(900)),
        9..=11 => Step::Sync,
        12..=13 => Step::SyncLate(random.index(700)),
        14..=15 => Step::Begin,
        16 => Step::Retire(1 + random.index(3)),
        17 => Step::FillSpare,
        18 => Step::End,
        _ => Step::Reopen,
    }
}
