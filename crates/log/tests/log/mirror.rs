//! A log that is a copy of another: the same frames at the same places, and no syncs but those that
//! are asked for.

use crate::common;

use std::sync::Arc;

use quintet_log::{
    Epoch, LocalLog, Log, LogError, Options, Position, SegmentNumber, Stamp, Storage,
};
use quintet_sim::{
    disk::{Keep, SimDisk},
    log_tests::{append, facts, sync},
};

fn scratch() -> Options {
    Options {
        scratch: true,
        ..common::options()
    }
}

fn begin(disk: &SimDisk, segment: u32, first: u64) -> Result<LocalLog, LogError> {
    let at = (SegmentNumber(segment), Position(first));
    LocalLog::begin_at(Arc::new(disk.clone()), scratch(), at.0, at.1)
}

#[test]
fn a_copy_that_begins_anywhere_has_every_frame_at_its_place() {
    let (mut log, _, _) = common::open(Arc::new(SimDisk::new(1))).expect("open");
    append(&mut log, 1, b"before");
    log.begin_segment();
    let (at, second) = (log.end(), SegmentNumber(log.segment().0 + 1));
    let disk = SimDisk::new(2);
    let mut copy = begin(&disk, second.0, at.0).expect("begin");
    assert_eq!(
        (copy.end(), copy.durable(), copy.segment()),
        (at, at, second)
    );
    assert_eq!(copy.segments(), []);
    for length in [0, 1, 700, 9_000] {
        let payload = vec![length as u8; length];
        let placed = append(&mut log, 2, &payload);
        assert_eq!(append(&mut copy, 2, &payload), placed);
        if length == 700 {
            log.begin_segment();
            copy.begin_segment();
        }
        let read = copy.reader();
        let read = read.read_frame_payload(placed.segment, placed.offset, placed.len);
        assert_eq!(read.expect("read"), payload);
    }
    let ends = |log: &LocalLog| {
        let all = log.segments().into_iter();
        all.map(|one| (one.number, one.first, one.bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&log)[1..], ends(&copy));
}

#[test]
fn a_copy_syncs_only_on_request() {
    let disk = SimDisk::new(1);
    let mut log = begin(&disk, 9, 5_000).expect("begin");
    for number in 0..5 {
        log.begin_segment();
        append(&mut log, 1, &[number; 300]);
    }
    log.retire(SegmentNumber(10)).expect("retire");
    let kept = [11, 12, 13].map(SegmentNumber);
    let numbers: Vec<_> = log.segments().iter().map(|one| one.number).collect();
    assert_eq!(numbers, kept, "they are given up though nothing is durable");
    let names = disk.list().expect("list");
    assert_eq!(
        names.iter().filter(|name| name.ends_with(".log")).count(),
        3
    );
    assert!(log.files_ahead().is_some_and(|spares| !spares.any()));
    let lost = disk.clone().power_cut(Keep::Synced);
    assert_eq!(lost.list().expect("list"), [""; 0], "something was synced");

    // What was asked for and ended in order is a log like any other.
    let disk = SimDisk::new(1);
    let mut log = begin(&disk, 9, 5_000).expect("begin");
    for number in 0..5 {
        log.begin_segment();
        append(&mut log, 1, &[number; 300]);
    }
    log.retire(SegmentNumber(10)).expect("retire");
    sync(&mut log);
    log.end_in_order().expect("end");
    let end = log.end();
    drop(log);
    let (log, recovery, seen) = common::open(Arc::new(disk.power_cut(Keep::Synced))).expect("open");
    assert_eq!((log.end(), recovery.cut), (end, None));
    assert_eq!((seen.len(), seen[0].payload[0]), (3, 2));
}

#[test]
fn a_copy_is_begun_where_there_is_none() {
    let disk = SimDisk::new(1);
    let mut log = begin(&disk, 3, 100).expect("begin");
    let stamp = Stamp {
        epoch: Epoch(1),
        time_ms: 0,
    };
    let elsewhere = log.append(Position(0), stamp, &mut facts(b"x"));
    assert!(matches!(elsewhere, Err(LogError::Moved { .. })));
    append(&mut log, 1, b"one");
    drop(log);
    assert!(matches!(
        begin(&disk, 3, 100),
        Err(LogError::NotEmpty { .. })
    ));
}
