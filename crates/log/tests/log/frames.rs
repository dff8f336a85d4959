//! Frames of a log that is being written, read behind the writer.

use crate::common;

use std::sync::Arc;

use common::open_with;
use quintet_log::{LocalLog, Log, Options, Placed, Position};
use quintet_sim::{
    disk::SimDisk,
    log_tests::{append, sync},
};

/// A log of one segment, with so many frames of so many bytes.
fn written(disk: &SimDisk, count: u8, bytes: usize) -> (LocalLog, Vec<Placed>) {
    let options = Options {
        segment_bytes: 32 << 20,
        spares: 0,
        ..Options::default()
    };
    let (mut log, ..) = open_with(Arc::new(disk.clone()), options).expect("open");
    log.begin_segment();
    let frames = 0..count;
    let placed = frames.map(|number| append(&mut log, 1, &vec![number; bytes]));
    let placed = placed.collect();
    sync(&mut log);
    (log, placed)
}

/// Flips a bit so many bytes before the end of this frame's header, or in its payload.
fn flip(disk: &SimDisk, frame: &Placed, before: u64) {
    let name = format!("segment-{:010}.log", frame.segment.0);
    let mut content = disk.content(&name).expect("there");
    let at = usize::try_from(frame.offset - before).expect("small");
    content[at] ^= 1;
    disk.set_content(&name, &content);
}

#[test]
fn frames_in_a_row_that_cannot_be_read_are_one_stretch() {
    let disk = SimDisk::new(12);
    let (log, placed) = written(&disk, 5, 100);
    let (reader, end) = (log.reader(), log.durable());
    let begin = |number: usize| placed[number - 1].end;
    let behind = |known, at| {
        let found = reader.behind_damage(placed[0].segment, known, (at, end));
        found.expect("it is read")
    };
    flip(&disk, &placed[1], 0);
    flip(&disk, &placed[2], 0);
    for known in [None, Some(begin(1))] {
        assert_eq!(behind(known, begin(1)), Some((begin(3), Some(1001))));
    }
    assert_eq!(behind(None, begin(2)), Some((begin(3), Some(1001))));
    flip(&disk, &placed[3], 1);
    flip(&disk, &placed[4], 0);
    assert_eq!(behind(None, begin(1)), Some((end, None)));
}

#[test]
fn a_made_up_position_is_refused_without_reading_its_segment() {
    let disk = SimDisk::new(13);
    let (mut log, placed) = written(&disk, 240, 64 << 10);
    // Longer than what is read at first.
    let long = append(&mut log, 1, &vec![7; 3 << 20]);
    let last = append(&mut log, 1, b"the last one");
    sync(&mut log);
    let (reader, end) = (log.reader(), log.durable());
    let behind = |at| {
        let found = reader.behind_damage(placed[0].segment, None, (at, end));
        found.expect("it is read")
    };
    let before = disk.reads();
    assert_eq!(behind(Position(placed[238].end.0 + 1)), None);
    let reads = disk.reads() - before;
    assert!(reads < 9, "{reads} reads of up to 1 MiB of 15 MiB");
    assert_eq!(behind(Position(long.end.0 - 9)), None);
    flip(&disk, &placed[200], 1);
    flip(&disk, &last, 0);
    let next = (placed[200].end, Some(1001));
    assert_eq!(behind(placed[199].end), Some(next));
    assert_eq!(behind(long.end), Some((end, None)));
}
