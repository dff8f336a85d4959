//! The words of the log's contract.

use std::fmt;

use crate::FrameKind;

/// A place in the log. Opaque and strictly rising; not assumed dense: the local log counts bytes,
/// a replicated one may count entries. Only compare it, or hand it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// One reign over the log: rises by one with each start or takeover, never falls along the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Which segment. Rises along the log; a number is never used again for other content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

/// Numbers that are shown as such.
macro_rules! shown {
    ($($type:ident),*) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })*
    };
}

shown!(Position, Epoch, SegmentNumber);

/// Writer and time of a frame. Both come from the caller: the log has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// Wall clock, Unix milliseconds.
    pub time_ms: u64,
}

/// Where an appended frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The segment that holds the frame.
    pub segment: SegmentNumber,
    /// Offset of the payload in the segment, bytes; what [`crate::BodyReader`] takes.
    pub offset: u64,
    /// Length of the payload, bytes.
    pub len: u32,
    /// The log's end after this frame: durable means `durable() >= end`.
    pub end: Position,
}

/// One frame handed back when a log is opened, in the order it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayFrame<'a> {
    /// Where the frame begins.
    pub position: Position,
    /// Epoch of its writer.
    pub epoch: Epoch,
    /// Wall clock of its writer, Unix milliseconds. May fall when a clock was set back.
    pub time_ms: u64,
    /// Kind of the payload. [`FrameKind::Lost`] appears only after a repair.
    pub kind: FrameKind,
    /// The segment that holds it.
    pub segment: SegmentNumber,
    /// Offset of the payload in the segment, bytes.
    pub offset: u64,
    /// Whether this is the first frame of its segment (where the caller put its snapshot).
    pub first_in_segment: bool,
    /// How many records the writer counted in the payload.
    pub count: u32,
    /// The payload, byte for byte as appended.
    pub payload: &'a [u8],
}

/// A segment that still belongs to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub number: SegmentNumber,
    /// Position of its first frame.
    pub first: Position,
    /// Bytes it holds: header and frames, without unused room.
    pub bytes: u64,
    /// Wall clock of its last frame, or of its creation while it has none; Unix milliseconds.
    pub modified_ms: u64,
}
