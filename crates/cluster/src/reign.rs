//! Frames of the log's own: claims, beats and farewells. Their payload is in `docs/cluster-format.md`.

use quintet_log::{Epoch, FrameBuf, FrameKind};

use crate::Writer;

const CLAIM: u8 = 1;
const AGAIN: u8 = 2;
const FAREWELL: u8 = 3;

/// What a node says when it becomes owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch that begins.
    pub epoch: Epoch,
    /// Who writes from here on.
    pub writer: Writer,
    /// The node's name; at most 255 bytes.
    pub node: String,
    /// Where fronts reach it; at most 65,535 bytes.
    pub link: String,
}

/// A frame of kind [`FrameKind::Reign`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reign {
    /// The owner had nothing else to append.
    Beat,
    /// The same, and says again who reigns: the claim itself may have been given up.
    Again(Claim),
    /// Another owner.
    Claim(Claim),
    /// The owner's last frame: it decides and answers nothing any more, and wishes the node of
    /// this name, at most 255 bytes, to take over; empty: whoever can.
    Farewell(String),
}

impl Reign {
    /// The frame that says so.
    ///
    /// # Panics
    /// If a node's name or the claim's link is too long.
    pub fn frame(&self) -> FrameBuf {
        let mut frame = FrameBuf::new(FrameKind::Reign);
        let out = frame.payload_mut();
        match self {
            Self::Beat => {}
            Self::Again(claim) => claim.write(AGAIN, out),
            Self::Claim(claim) => claim.write(CLAIM, out),
            Self::Farewell(to) => {
                out.push(FAREWELL);
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
            None => Ok(Self::Beat),
            Some((&CLAIM, rest)) => claim(rest).map(Self::Claim).ok_or("a claim is cut short"),
            Some((&AGAIN, rest)) => claim(rest).map(Self::Again).ok_or("a beat is cut short"),
            Some((&FAREWELL, rest)) => {
                let to = farewell(rest).map(Self::Farewell);
                to.ok_or("a farewell is cut short")
            }
            Some(_) => Err("it says of the owner what this program does not know"),
        }
    }
}

impl Claim {
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        let link = u16::try_from(self.link.len()).expect("an address is short");
        out.push(kind);
        out.extend(self.epoch.0.to_le_bytes());
        out.extend(self.writer.0.to_le_bytes());
        write_name(&self.node, out);
        out.extend(link.to_le_bytes());
        out.extend(self.link.as_bytes());
    }
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.push(u8::try_from(name.len()).expect("a node's name is short"));
    out.extend(name.as_bytes());
}

fn farewell(mut rest: &[u8]) -> Option<String> {
    let len = usize::from(u8::from_le_bytes(*chunk(&mut rest)?));
    let to = text(&mut rest, len)?;
    rest.is_empty().then_some(to)
}

fn claim(mut rest: &[u8]) -> Option<Claim> {
    let epoch = u64::from_le_bytes(*chunk(&mut rest)?);
    let writer = u64::from_le_bytes(*chunk(&mut rest)?);
    let node = usize::from(u8::from_le_bytes(*chunk(&mut rest)?));
    let node = text(&mut rest, node)?;
    let link = usize::from(u16::from_le_bytes(*chunk(&mut rest)?));
    let link = text(&mut rest, link)?;
    rest.is_empty().then_some(Claim {
        epoch: Epoch(epoch),
        writer: Writer(writer),
        node,
        link,
    })
}

fn chunk<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, later) = rest.split_first_chunk()?;
    *rest = later;
    Some(first)
}

fn text(rest: &mut &[u8], len: usize) -> Option<String> {
    let (first, later) = rest.split_at_checked(len)?;
    *rest = later;
    String::from_utf8(first.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::{Claim, Reign};
    use crate::Writer;
    use quintet_log::Epoch;

    #[test]
    fn a_claim_is_read_as_it_was_written_and_no_shorter_one() {
        let claim = Reign::Claim(Claim {
            epoch: Epoch(7),
            writer: Writer(u64::MAX),
            node: "one".to_owned(),
            link: "10.0.0.1:4600".to_owned(),
        });
        let frame = claim.frame();
        assert_eq!(Reign::read(frame.payload()).as_ref(), Ok(&claim));
        let Reign::Claim(again) = claim else {
            unreachable!("made above");
        };
        let again = Reign::Again(again);
        assert_eq!(Reign::read(again.frame().payload()).as_ref(), Ok(&again));
        for len in 1..frame.len() {
            assert!(Reign::read(&frame.payload()[..len]).is_err());
        }
        let longer = [frame.payload(), &[0]].concat();
        assert!(Reign::read(&longer).is_err());
        assert!(Reign::read(&[4]).is_err());
        assert_eq!(Reign::read(Reign::Beat.frame().payload()), Ok(Reign::Beat));
    }

    #[test]
    fn a_farewell_is_read_as_it_was_written_and_no_shorter_one() {
        for to in ["", "two"] {
            let farewell = Reign::Farewell(to.to_owned());
            let frame = farewell.frame();
            assert_eq!(Reign::read(frame.payload()).as_ref(), Ok(&farewell));
            for len in 1..frame.len() {
                assert!(Reign::read(&frame.payload()[..len]).is_err());
            }
            let longer = [frame.payload(), &[0]].concat();
            assert!(Reign::read(&longer).is_err());
        }
    }
}
