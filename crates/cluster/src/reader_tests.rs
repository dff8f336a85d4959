//! The errors of a reader, by name.

use bytes::Bytes;
use proptest::prelude::*;
use quintet_log::{Epoch, FrameBuf, FrameKind, Position, SegmentNumber, Stamp};

use crate::{
    Claim, ClusterId, PADDING, Reign, Seq, Writer,
    entry::{Author, Entry, HEADER_BYTES, Header, PART_BYTES, Refused},
    reader::{Read, Reader},
};

const CLUSTER: ClusterId = ClusterId(0x1122_3344_5566_7788);

/// An owner without a window: what it writes, and where the next frame goes.
#[derive(Clone)]
struct Owner {
    author: Author,
    position: Position,
    segment: SegmentNumber,
}

impl Owner {
    fn new(epoch: u64, chain: u32, position: Position, segment: u32) -> Self {
        Self {
            author: Author {
                cluster: CLUSTER,
                writer: Writer(epoch * 100),
                epoch: Epoch(epoch),
                chain,
            },
            position,
            segment: SegmentNumber(segment),
        }
    }

    fn append(&mut self, mut frame: FrameBuf, begins: bool) -> Vec<Bytes> {
        let stamp = Stamp {
            epoch: self.author.epoch,
            time_ms: 5,
        };
        let sealed = frame.sealed(self.position, stamp);
        let (position, segment) = (self.position, self.segment);
        self.position = Position(position.0 + sealed.len() as u64);
        self.author
            .entries(sealed, position, segment, begins)
            .collect()
    }

    fn claim(&mut self, begins: bool) -> Bytes {
        let claim = Claim {
            epoch: self.author.epoch,
            writer: self.author.writer,
            node: "one".to_owned(),
            peer_address: String::new(),
        };
        self.append(Reign::Claim(claim, None).frame(), begins)
            .remove(0)
    }

    fn facts(&mut self, bytes: usize) -> Vec<Bytes> {
        let mut frame = FrameBuf::new(FrameKind::Facts);
        frame.payload_mut().extend((0..bytes).map(|n| n as u8));
        self.append(frame, false)
    }

    fn padding(&self) -> Bytes {
        self.author.padding(self.position, self.segment)
    }
}

/// Reads all of `entries` from 1 on.
fn read(entries: &[Bytes]) -> Result<Reader, Refused> {
    let mut reader = Reader::new(CLUSTER, Seq(1));
    for (seq, entry) in (1..).map(Seq).zip(entries) {
        reader.read(seq, entry)?;
    }
    Ok(reader)
}

/// A claim, some padding, three frames of which the second has three parts.
fn some() -> (Owner, Vec<Bytes>) {
    let mut owner = Owner::new(1, 0, Position(0), 1);
    let mut entries = vec![owner.claim(true), owner.padding(), owner.padding()];
    entries.extend(owner.facts(10));
    entries.extend(owner.facts(2 * PART_BYTES + 7));
    entries.extend(owner.facts(0));
    assert_eq!(entries.len(), 8);
    (owner, entries)
}

fn next(owner: &Owner, epoch: u64) -> Owner {
    Owner::new(epoch, owner.author.chain, owner.position, owner.segment.0)
}

fn refuses(entries: &[Bytes], last: Bytes, refused: Refused) {
    let entries = [entries, &[last]].concat();
    assert!(read(&entries[..entries.len() - 1]).is_ok());
    assert_eq!(read(&entries).map(|_| ()), Err(refused));
}

#[test]
fn every_byte_stands_where_the_page_says() {
    let header = Header {
        tells: true,
        begins: true,
        more: false,
        pads: false,
        part: 0,
        writer: Writer(0x0102_0304_0506_0708),
        epoch: Epoch(0x1112_1314_1516_1718),
        position: Position(0x2122_2324_2526_2728),
        segment: SegmentNumber(0x3132_3334),
        chain: 0x4142_4344,
    };
    let entry = header.encode(CLUSTER, b"ab");
    let mut expected = b"QENT\x02\x01\0\0".to_vec();
    expected.extend([8, 7, 6, 5, 4, 3, 2, 1]);
    expected.extend([0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
    expected.extend([0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
    expected.extend([0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41]);
    expected.extend([2, 0, 0, 0]);
    let crc = crc32c::crc32c(&[&CLUSTER.0.to_le_bytes(), &expected[..], b"ab"].concat());
    expected.extend(crc.to_le_bytes());
    expected.extend(b"ab");
    assert_eq!(entry, expected);
    let read = Entry::decode(CLUSTER, &entry).expect("it was just written");
    assert_eq!((read.header, read.carried), (header, &b"ab"[..]));
    assert_eq!(
        Entry::decode(ClusterId(1), &entry),
        Err(Refused::Checksum),
        "of another cluster"
    );
}

#[test]
fn frames_come_back_whole_and_where_they_were() {
    let (owner, entries) = some();
    let mut reader = Reader::new(CLUSTER, Seq(1));
    let mut frames = Vec::new();
    for (seq, entry) in (1..).map(Seq).zip(&entries) {
        if let Read::Frame(frame) = reader.read(seq, entry).expect("read") {
            frames.push((frame.first.0, frame.view.payload.len(), frame.begins));
        }
    }
    let claim = frames.remove(0);
    assert_eq!((claim.0, claim.2), (1, true));
    let expected = [
        (4, 10, false),
        (5, 2 * PART_BYTES + 7, false),
        (8, 0, false),
    ];
    assert_eq!(frames, expected);
    let tip = reader.tip().expect("something was read");
    assert_eq!(tip.position, owner.position);
    assert_eq!(tip.chain, owner.author.chain);
}

#[test]
fn no_flipped_bit_and_no_cut_entry_passes() {
    let (mut owner, mut entries) = some();
    entries.extend(owner.facts(20));
    for (index, entry) in entries.iter().enumerate() {
        // Long ones: the header, and some bits of the rest.
        let bits = (0..entry.len() * 8).filter(|bit| *bit < 400 || bit % 40_009 == 0);
        for bit in bits {
            let mut flipped = entry.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut all = entries.clone();
            all[index] = flipped.into();
            assert!(read(&all[..=index]).is_err(), "bit {bit} of entry {index}");
        }
        for len in (0..entry.len()).filter(|len| *len < 60 || len % 5_003 == 0) {
            let mut all = entries.clone();
            all[index] = entry.slice(..len);
            assert!(read(&all[..=index]).is_err());
        }
    }
}

#[test]
fn entries_that_do_not_follow_are_refused_by_name() {
    let (owner, entries) = some();
    let frame = owner.clone().facts(3).remove(0);
    let mut reader = read(&entries).expect("all is well");
    assert_eq!(
        reader.read(Seq(10), &frame),
        Err(Refused::Gap {
            expected: Seq(9),
            found: Seq(10)
        })
    );
    assert_eq!(read(&entries[3..]).map(|_| ()), Err(Refused::Start));
    // One left out, and the number with it.
    let missing = [&entries[..3], &entries[4..]].concat();
    assert_eq!(read(&missing).map(|_| ()), Err(Refused::Chain));

    let with = |change: fn(&mut Owner)| {
        let mut owner = owner.clone();
        change(&mut owner);
        owner
    };
    let chain = with(|owner| owner.author.chain ^= 1).facts(3).remove(0);
    refuses(&entries, chain, Refused::Chain);
    let moved = with(|owner| owner.position.0 += 1);
    let refused = Refused::Position {
        expected: owner.position,
        found: moved.position,
    };
    refuses(&entries, moved.clone().facts(3).remove(0), refused);
    let refused = Refused::Segment {
        current: SegmentNumber(1),
        found: SegmentNumber(2),
    };
    let other = with(|owner| owner.segment.0 = 2).facts(3).remove(0);
    refuses(&entries, other, refused);
    let mut far = with(|owner| owner.segment.0 = 3);
    let far = far.append(FrameBuf::new(FrameKind::Facts), true).remove(0);
    let refused = Refused::Segment {
        current: SegmentNumber(1),
        found: SegmentNumber(3),
    };
    refuses(&entries, far, refused);
    let stranger = with(|owner| owner.author.writer.0 += 1).facts(3).remove(0);
    refuses(&entries, stranger, Refused::Stranger(Writer(101)));
    let lost = with(|_| ()).append(FrameBuf::new(FrameKind::Lost), false);
    let why = "no owner writes such a kind";
    refuses(&entries, lost[0].clone(), Refused::Frame(why));
    // The parts of a frame, one left out.
    let parts = owner.clone().facts(3 * PART_BYTES);
    let entries = [&entries[..], &parts[..1]].concat();
    refuses(&entries, parts[2].clone(), Refused::Chain);
    refuses(&entries, parts[0].clone(), Refused::Chain);
    let mut again = owner.clone();
    again.author.chain = read(&entries).expect("a part").tip().expect("a tip").chain;
    let again = again.facts(3 * PART_BYTES).remove(0);
    let refused = Refused::Part {
        expected: 1,
        found: 0,
    };
    refuses(&entries, again, refused);
}

#[test]
fn an_epoch_begins_with_its_claim_and_ends_the_one_before() {
    let (mut first, mut entries) = some();
    let before = first.clone();
    refuses(
        &entries,
        next(&first, 2).facts(3).remove(0),
        Refused::NoClaim(Epoch(2)),
    );
    refuses(
        &entries,
        first.clone().claim(false),
        Refused::Claimed(Epoch(1)),
    );
    // Half a frame, which its owner was deposed over.
    entries.push(first.facts(2 * PART_BYTES).remove(0));
    let chain = read(&entries).expect("a part").tip().expect("a tip").chain;
    let mut second = Owner::new(2, chain, before.position, before.segment.0);
    entries.push(second.claim(false));
    // Late entries of the first owner stand in the padding, of both kinds.
    let late = first.facts(3).remove(0);
    entries.extend([second.padding(), late.clone(), second.padding()]);
    entries.push(first.padding());
    let claimed = read(&entries).expect("void entries in a padding");
    let last = claimed.tip().expect("a tip").padding.expect("a padding");
    let long: Vec<Bytes> = (claimed.next().0..=last.0)
        .map(|_| second.padding())
        .collect();
    let padded = [entries.clone(), long].concat();
    let refused = Refused::Falling {
        epoch: Epoch(1),
        latest: Epoch(2),
    };
    refuses(&padded, late.clone(), refused);
    refuses(&padded, second.padding(), Refused::Padding);
    assert_eq!(last.0, 10 + PADDING);
    // The first frame ends it.
    entries.extend(second.facts(3));
    refuses(&entries, late, refused);
    refuses(&entries, second.padding(), Refused::Padding);
    let third = next(&second, 3);
    refuses(&entries, third.padding(), Refused::Padding);
}

#[test]
fn a_stream_is_read_from_any_segment() {
    let (mut owner, _) = some();
    owner.segment = SegmentNumber(9);
    let first = owner
        .append(FrameBuf::new(FrameKind::Facts), true)
        .remove(0);
    let mut reader = Reader::new(CLUSTER, Seq(500));
    reader
        .read(Seq(500), &first)
        .expect("a segment's first entry");
    let padding = owner.padding();
    let refused = reader.read(Seq(501), &padding);
    assert_eq!(refused, Err(Refused::Padding), "nobody knows of a claim");
    let mut reader = Reader::new(CLUSTER, Seq(500));
    reader
        .read(Seq(500), &first)
        .expect("a segment's first entry");
    reader.read(Seq(501), &owner.facts(3)[0]).expect("the next");
    // One whose first frame has several parts.
    owner.segment = SegmentNumber(10);
    let mut long = FrameBuf::new(FrameKind::Facts);
    long.payload_mut().extend(vec![1; 2 * PART_BYTES]);
    let mut reader = Reader::new(CLUSTER, Seq(600));
    for (seq, part) in (600..).map(Seq).zip(owner.append(long, true)) {
        reader.read(seq, &part).expect("a part");
    }
    let tip = reader.tip().expect("a frame was read");
    assert_eq!((tip.segment, tip.position), (owner.segment, owner.position));
}

proptest! {
    #[test]
    fn any_header_is_read_as_it_was_written(
        tells: bool, begins: bool, writer: u64, epoch: u64, position: u64, segment: u32, chain: u32,
        part in 0_u16..9, cluster: u64, carried in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let part = if begins { 0 } else { part };
        let header = Header {
            tells,
            begins: begins && !carried.is_empty(),
            more: false,
            pads: carried.is_empty(),
            part: if carried.is_empty() { 0 } else { part },
            writer: Writer(writer),
            epoch: Epoch(epoch),
            position: Position(position),
            segment: SegmentNumber(segment),
            chain,
        };
        let entry = header.encode(ClusterId(cluster), &carried);
        prop_assert_eq!(entry.len(), HEADER_BYTES + carried.len());
        let read = Entry::decode(ClusterId(cluster), &entry).expect("it was just written");
        prop_assert_eq!(read.header, header);
        prop_assert_eq!(read.carried, &carried[..]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), bits: u8, part: u16, len: u32,
    ) {
        let (mut owner, entries) = some();
        let mut reader = read(&entries[..4]).expect("all is well");
        prop_assert!(reader.read(Seq(5), &bytes).is_err());
        // With a checksum that is right.
        let mut forged = owner.facts(30).remove(0).to_vec();
        forged[5] = bits;
        forged[6..8].copy_from_slice(&part.to_le_bytes());
        forged[40..44].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&CLUSTER.0.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &forged[..44]);
        let crc = crc32c::crc32c_append(crc, &forged[48..]);
        forged[44..48].copy_from_slice(&crc.to_le_bytes());
        let mut reader = read(&entries).expect("all is well");
        prop_assert!(reader.read(Seq(9), &forged).is_err());
    }
}
