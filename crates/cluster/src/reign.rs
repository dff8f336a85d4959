//! Frames of the log's own: claims, heartbeats and handoffs. Their payload is in
//! `docs/cluster-format.md`.

use bytes::Buf as _;
use quintet_log::{Epoch, FrameBuf, FrameKind, SegmentNumber};

use crate::{Seq, Writer};

const CLAIM: u8 = 1;
const AGAIN: u8 = 2;
const HANDOFF: u8 = 3;
const CLAIM_FROM: u8 = 4;
const AGAIN_FROM: u8 = 5;

/// The entry with which a node becomes owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch that begins.
    pub epoch: Epoch,
    pub writer: Writer,
    /// The node's name; at most 255 bytes.
    pub node: String,
    /// Where proxies reach it; at most 65,535 bytes.
    pub peer_address: String,
}

/// Where the log begins, as its owners decided: entries before this one may be purged, no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The oldest segment that is kept.
    pub segment: SegmentNumber,
    /// The place of its first entry.
    pub seq: Seq,
}

/// A frame of kind [`FrameKind::Reign`]. Claims and heartbeats of version 1 do not say where the
/// log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reign {
    /// The owner had nothing else to append.
    Heartbeat,
    /// The same, and says again who reigns: the claim itself may have been given up.
    Again(Claim, Option<Beginning>),
    /// Another owner.
    Claim(Claim, Option<Beginning>),
    /// The owner's last frame: it decides and answers nothing any more, and wishes the node of
    /// this name, at most 255 bytes, to take over; empty: any node that can.
    Handoff(String),
}

impl Reign {
    /// The frame that says so.
    ///
    /// # Panics
    /// If a node's name or the claim's peer address is too long.
    pub fn frame(&self) -> FrameBuf {
        let mut frame = FrameBuf::new(FrameKind::Reign);
        let out = frame.payload_mut();
        match self {
            Self::Heartbeat => {}
            Self::Again(claim, from) => claim.write([AGAIN, AGAIN_FROM], *from, out),
            Self::Claim(claim, from) => claim.write([CLAIM, CLAIM_FROM], *from, out),
            Self::Handoff(to) => {
                out.push(HANDOFF);
                write_name(to, out);
            }
        }
        frame
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// It is of no kind this program knows.
    pub fn read(payload: &[u8]) -> Result<Self, &'static str> {
        match payload.split_first() {
            None => Ok(Self::Heartbeat),
            Some((kind @ &(CLAIM | CLAIM_FROM), rest)) => {
                let (claim, from) =
                    claim(rest, *kind == CLAIM_FROM).ok_or("a claim is cut short")?;
                Ok(Self::Claim(claim, from))
            }
            Some((kind @ &(AGAIN | AGAIN_FROM), rest)) => {
                let (claim, from) =
                    claim(rest, *kind == AGAIN_FROM).ok_or("a heartbeat is cut short")?;
                Ok(Self::Again(claim, from))
            }
            Some((&HANDOFF, rest)) => {
                let to = handoff(rest).map(Self::Handoff);
                to.ok_or("a handoff is cut short")
            }
            Some(_) => Err("this program does not know this record of the owner"),
        }
    }
}

impl Claim {
    /// `kinds`: without a beginning, and with one.
    fn write(&self, kinds: [u8; 2], from: Option<Beginning>, out: &mut Vec<u8>) {
        let peer_address = u16::try_from(self.peer_address.len()).expect("an address is short");
        out.push(kinds[usize::from(from.is_some())]);
        out.extend(self.epoch.0.to_le_bytes());
        out.extend(self.writer.0.to_le_bytes());
        write_name(&self.node, out);
        out.extend(peer_address.to_le_bytes());
        out.extend(self.peer_address.as_bytes());
        if let Some(Beginning { segment, seq }) = from {
            out.extend(segment.0.to_le_bytes());
            out.extend(seq.0.to_le_bytes());
        }
    }
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.push(u8::try_from(name.len()).expect("a node's name is short"));
    out.extend(name.as_bytes());
}

fn handoff(mut rest: &[u8]) -> Option<String> {
    let len = rest.try_get_u8().ok()?;
    let to = text(&mut rest, len.into())?;
    rest.is_empty().then_some(to)
}

fn claim(mut rest: &[u8], tells: bool) -> Option<(Claim, Option<Beginning>)> {
    let epoch = rest.try_get_u64_le().ok()?;
    let writer = rest.try_get_u64_le().ok()?;
    let node = rest.try_get_u8().ok()?;
    let node = text(&mut rest, node.into())?;
    let peer_address = rest.try_get_u16_le().ok()?;
    let peer_address = text(&mut rest, peer_address.into())?;
    let from = match tells {
        true => Some(Beginning {
            segment: SegmentNumber(rest.try_get_u32_le().ok()?),
            seq: Seq(rest.try_get_u64_le().ok()?),
        }),
        false => None,
    };
    let claim = Claim {
        epoch: Epoch(epoch),
        writer: Writer(writer),
        node,
        peer_address,
    };
    rest.is_empty().then_some((claim, from))
}

fn text(rest: &mut &[u8], len: usize) -> Option<String> {
    let (first, later) = rest.split_at_checked(len)?;
    *rest = later;
    String::from_utf8(first.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::{Beginning, Claim, Reign};
    use crate::{Seq, Writer};
    use quintet_log::{Epoch, SegmentNumber};

    #[test]
    fn a_claim_is_read_as_it_was_written_and_no_shorter_one() {
        let claim = Claim {
            epoch: Epoch(7),
            writer: Writer(u64::MAX),
            node: "one".to_owned(),
            peer_address: "10.0.0.1:4600".to_owned(),
        };
        let from = Beginning {
            segment: SegmentNumber(3),
            seq: Seq(1 << 40),
        };
        for from in [None, Some(from)] {
            let again = Reign::Again(claim.clone(), from);
            for record in [Reign::Claim(claim.clone(), from), again] {
                let frame = record.frame();
                assert_eq!(Reign::read(frame.payload()).as_ref(), Ok(&record));
                for len in 1..frame.payload().len() {
                    assert!(Reign::read(&frame.payload()[..len]).is_err());
                }
                let longer = [frame.payload(), &[0]].concat();
                assert!(Reign::read(&longer).is_err());
            }
        }
        assert!(Reign::read(&[6]).is_err());
        assert_eq!(
            Reign::read(Reign::Heartbeat.frame().payload()),
            Ok(Reign::Heartbeat)
        );
    }

    #[test]
    fn a_handoff_is_read_as_it_was_written_and_no_shorter_one() {
        for to in ["", "two"] {
            let handoff = Reign::Handoff(to.to_owned());
            let frame = handoff.frame();
            assert_eq!(Reign::read(frame.payload()).as_ref(), Ok(&handoff));
            for len in 1..frame.len() {
                assert!(Reign::read(&frame.payload()[..len]).is_err());
            }
            let longer = [frame.payload(), &[0]].concat();
            assert!(Reign::read(&longer).is_err());
        }
    }
}
