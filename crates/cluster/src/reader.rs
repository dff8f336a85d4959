//! Reading a stream: what of it is believed, entry by entry.
//!
//! The rules, and why they are these: "Reading" in `docs/cluster-format.md`.

use quintet_log::{Epoch, FrameKind, FrameView, Position, SegmentNumber, Stamp};

use crate::{
    Beginning, Claim, ClusterId, PADDING, Reign, Seq, Writer,
    entry::{Entry, Header, Refused},
};

/// Follows a stream from its beginning, or from wherever another reader was.
#[derive(Clone, Debug)]
pub struct Reader {
    cluster: ClusterId,
    next: Seq,
    tip: Option<Tip>,
    /// The parts so far of a frame that is not whole.
    parts: Vec<u8>,
    next_part: u16,
    begins: bool,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The reigning epoch.
    pub epoch: Epoch,
    /// The owner.
    pub writer: Writer,
    /// Checksum of the last entry that is in the chain.
    pub chain: u32,
    /// Where the next frame begins.
    pub position: Position,
    /// The segment being written.
    pub segment: SegmentNumber,
    /// The last place of the padding, while nothing has been appended behind the claim: up to here
    /// void entries may stand.
    pub padding: Option<Seq>,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// It completed a frame.
    Frame(Framed<'a>),
    /// A part of one that is not whole yet.
    Part,
    /// It fills a place behind a claim.
    Padding,
    /// It is of an older owner, came too late, and counts for nothing.
    Void,
}

/// A frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    pub view: FrameView<'a>,
    /// Where it begins.
    pub position: Position,
    pub segment: SegmentNumber,
    /// Whether it is the first of its segment.
    pub begins: bool,
    /// The sequence of its first part.
    pub first: Seq,
    /// Its owner says in each claim where the log begins.
    pub tells: bool,
    /// The owner that the entry names, if that is its purpose.
    pub reign: Option<Reign>,
}

impl Reader {
    /// Reads from `first`, the stream's first entry.
    pub fn new(cluster: ClusterId, first: Seq) -> Self {
        Self {
            cluster,
            next: first,
            tip: None,
            parts: Vec::new(),
            next_part: 0,
            begins: false,
        }
    }

    /// The entry to read next.
    pub fn next(&self) -> Seq {
        self.next
    }

    /// Where reading is; none before the first entry.
    pub fn tip(&self) -> Option<&Tip> {
        self.tip.as_ref()
    }

    /// Reads the entry at `seq`.
    ///
    /// # Errors
    /// It cannot be what an owner wrote there. Nothing behind it is to be read.
    pub fn read<'a>(&'a mut self, seq: Seq, bytes: &'a [u8]) -> Result<Read<'a>, Refused> {
        if seq != self.next {
            return Err(Refused::Gap {
                expected: self.next,
                found: seq,
            });
        }
        let entry = Entry::decode(self.cluster, bytes)?;
        let header = entry.header;
        let pads_to = self.tip.and_then(|tip| tip.padding);
        let in_padding = pads_to.is_some_and(|last| seq <= last);
        match self.tip {
            None if !header.begins => return Err(Refused::Start),
            None => {}
            Some(tip) if header.epoch < tip.epoch => {
                if !in_padding {
                    return Err(Refused::Falling {
                        epoch: header.epoch,
                        latest: tip.epoch,
                    });
                }
                self.next = seq.after();
                return Ok(Read::Void);
            }
            Some(tip) if header.epoch == tip.epoch && header.writer != tip.writer => {
                return Err(Refused::Stranger(header.writer));
            }
            Some(_) => {}
        }
        if header.pads {
            if !in_padding || self.tip.is_some_and(|tip| tip.epoch != header.epoch) {
                return Err(Refused::Padding);
            }
            self.next = seq.after();
            return Ok(Read::Padding);
        }
        self.follows(&header)?;
        self.carried(seq, entry)
    }

    /// Whether a header can stand behind what was read.
    fn follows(&self, header: &Header) -> Result<(), Refused> {
        let Some(tip) = self.tip else {
            return Ok(());
        };
        if header.chain != tip.chain {
            return Err(Refused::Chain);
        }
        if header.position != tip.position {
            return Err(Refused::Position {
                expected: tip.position,
                found: header.position,
            });
        }
        let (current, found) = (tip.segment, header.segment);
        let begins = header.begins || header.part > 0 && self.begins;
        if begins && found.0 != current.0.wrapping_add(1) || !begins && found != current {
            return Err(Refused::Segment { current, found });
        }
        // What a deposed owner left half written is void.
        let expected = match header.epoch == tip.epoch {
            true => self.next_part,
            false => 0,
        };
        if header.part != expected {
            return Err(Refused::Part {
                expected,
                found: header.part,
            });
        }
        Ok(())
    }

    fn carried<'a>(&'a mut self, seq: Seq, entry: Entry<'a>) -> Result<Read<'a>, Refused> {
        let header = entry.header;
        let newer = self.tip.is_none_or(|tip| tip.epoch < header.epoch);
        if header.part == 0 {
            self.parts.clear();
            self.begins = header.begins;
        }
        let whole = !header.more;
        let alone = whole && header.part == 0;
        if !alone {
            self.parts.extend_from_slice(entry.carried);
        }
        let mut tip = Tip {
            epoch: header.epoch,
            writer: header.writer,
            chain: entry.checksum,
            position: header.position,
            // A segment has begun when its first frame is whole.
            segment: self
                .tip
                .map_or(SegmentNumber(header.segment.0.wrapping_sub(1)), |tip| {
                    tip.segment
                }),
            padding: None,
        };
        if !whole {
            if newer && self.tip.is_some() {
                return Err(Refused::NoClaim(header.epoch));
            }
            self.tip = Some(tip);
            self.next_part = header.part + 1;
            self.next = seq.after();
            return Ok(Read::Part);
        }
        let frame = match alone {
            true => entry.carried,
            false => &self.parts[..],
        };
        let view = FrameView::read(frame, header.position).map_err(Refused::Frame)?;
        let reign = match view.kind {
            FrameKind::Reign => Some(Reign::read(view.payload).map_err(Refused::Frame)?),
            FrameKind::Facts | FrameKind::Body => None,
            FrameKind::Lost => return Err(Refused::Frame("no owner writes such a kind")),
        };
        match &reign {
            Some(Reign::Again(claim, _))
                if (claim.epoch, claim.writer) != (header.epoch, header.writer) =>
            {
                return Err(Refused::Frame("a heartbeat of another owner"));
            }
            Some(Reign::Claim(claim, _)) if self.tip.is_some() && !newer => {
                return Err(Refused::Claimed(claim.epoch));
            }
            Some(Reign::Claim(claim, _)) => {
                if (claim.epoch, claim.writer) != (header.epoch, header.writer) {
                    return Err(Refused::NoClaim(header.epoch));
                }
                tip.padding = Some(Seq(seq.0 + PADDING));
            }
            _ if newer && self.tip.is_some() => return Err(Refused::NoClaim(header.epoch)),
            _ => {}
        }
        tip.segment = header.segment;
        tip.position = Position(header.position.0 + frame.len() as u64);
        self.tip = Some(tip);
        self.next_part = 0;
        self.next = seq.after();
        Ok(Read::Frame(Framed {
            view,
            position: header.position,
            segment: header.segment,
            begins: self.begins,
            first: Seq(seq.0 - u64::from(header.part)),
            tells: header.tells,
            reign,
        }))
    }
}

impl Framed<'_> {
    /// Writer and time of the frame.
    pub fn stamp(&self) -> Stamp {
        self.view.stamp
    }

    /// The owner from here on, if the entry is a claim.
    pub fn claim(&self) -> Option<&Claim> {
        match &self.reign {
            Some(Reign::Claim(claim, _) | Reign::Again(claim, _)) => Some(claim),
            Some(Reign::Heartbeat | Reign::Handoff(_)) | None => None,
        }
    }

    /// Where the log begins, if it says so.
    pub fn beginning(&self) -> Option<Beginning> {
        match self.reign {
            Some(Reign::Claim(_, from) | Reign::Again(_, from)) => from,
            Some(Reign::Heartbeat | Reign::Handoff(_)) | None => None,
        }
    }
}
