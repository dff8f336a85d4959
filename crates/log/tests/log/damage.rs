//! Damage to what had been durable is found, shown and repaired; a torn tail is not damage.

use crate::common;

use std::sync::Arc;

use common::open;
use quintet_log::{
    Cut, Finding, FrameKind, LocalLog, Log, LogError, Position, RepairSummary, SegmentNumber,
    Storage, check, repair,
};
use quintet_sim::{
    Random,
    disk::{Fault, Keep, SimDisk},
    log_tests::{FrameRecord, append, sync},
};

const HEADER: u64 = 4096;

/// A log of two segments of which all but the last frame is known to have been synced; also its
/// payloads, and the synced part of each file.
fn sound() -> (SimDisk, Vec<Vec<u8>>, Vec<(String, u64)>) {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    let mut payloads = Vec::new();
    let mut synced = Vec::new();
    for segment in 1..=2_u8 {
        log.begin_segment();
        for number in 1..=4_u8 {
            let payload = vec![segment * 16 + number; usize::from(number) * 20];
            let placed = append(&mut log, 1, &payload);
            payloads.push(payload);
            if number < 4 || segment == 1 {
                synced.retain(|(name, _)| *name != name_of(placed.segment));
                synced.push((
                    name_of(placed.segment),
                    placed.offset + u64::from(placed.len),
                ));
            }
            sync(&mut log);
        }
    }
    (disk, payloads, synced)
}

fn name_of(segment: SegmentNumber) -> String {
    format!("segment-{:010}.log", segment.0)
}

fn payloads(seen: &[FrameRecord]) -> Vec<Vec<u8>> {
    seen.iter().map(|frame| frame.payload.clone()).collect()
}

fn open_error(disk: &SimDisk) -> (String, u64) {
    match open(Arc::new(disk.fork())) {
        Err(LogError::Damaged { file, offset, .. }) => (file, offset),
        Err(other) => panic!("refused for another reason: {other}"),
        Ok((_, recovery, _)) => panic!("opened a damaged log: {recovery:?}"),
    }
}

fn damage(disk: &SimDisk) -> Vec<quintet_log::LostRange> {
    let mut found = Vec::new();
    let summary = check(disk, &mut |finding| {
        if let Finding::Damage(range) = finding {
            found.push(range.clone());
        }
    });
    let summary = summary.expect("check");
    assert_eq!(summary.damaged, found.len() as u64);
    found
}

fn repaired(disk: &SimDisk) -> RepairSummary {
    let summary = repair(disk, &mut |_| {}, &mut |_| Ok(())).expect("repair");
    assert_eq!(damage(disk), [], "a repaired log has no damage");
    summary
}

#[test]
fn a_sound_log_has_nothing_to_find() {
    let (disk, expected, _) = sound();
    let mut frames = 0;
    let summary = check(&disk, &mut |finding| match finding {
        Finding::Frame(_) => frames += 1,
        Finding::Progress { done, total } => assert!(done <= total && total > 0),
        Finding::Damage(_) | Finding::Tail(_) => panic!("found {finding:?}"),
    });
    let summary = summary.expect("check");
    assert_eq!((summary.frames, frames), (8, 8));
    assert_eq!(
        (summary.segments, summary.records, summary.damaged),
        (2, 8, 0)
    );
    assert!(!summary.tail);
    let before = disk.operations();
    let repaired = repair(&disk, &mut |_| {}, &mut |_| Ok(())).expect("repair");
    assert_eq!((repaired.replaced, repaired.frames), (0, 8));
    assert_eq!(
        disk.operations(),
        before,
        "check and repair leave a sound log alone"
    );
    let (log, _, seen) = open(Arc::new(disk)).expect("open");
    assert_eq!(log.end(), summary.end);
    assert_eq!(payloads(&seen), expected);
}

#[test]
fn every_flipped_bit_below_synced_through_is_found() {
    let (disk, expected, synced) = sound();
    let mut random = Random::new(5);
    for (name, end) in &synced {
        let sound = disk.content(name).expect("a segment");
        for byte in 0..usize::try_from(*end).expect("a small file") {
            // The header is long and one checksum covers it: a bit of each byte. Of frames, all.
            let header = (byte as u64) < HEADER;
            let bits = if header {
                vec![random.below(8)]
            } else {
                (0..8).collect()
            };
            for bit in bits {
                let mut content = sound.clone();
                content[byte] ^= 1 << bit;
                let damaged = disk.fork();
                damaged.set_content(name, &content);
                let (file, offset) = open_error(&damaged);
                assert_eq!(&file, name, "byte {byte}, bit {bit}");
                assert!(offset <= byte as u64, "named byte {offset}, not {byte}");
            }
        }
        // One in a hundred is checked and repaired too: each takes a while.
        for byte in (0..usize::try_from(*end).expect("a small file")).step_by(97) {
            let mut content = sound.clone();
            content[byte] ^= 0x20;
            let damaged = disk.fork();
            damaged.set_content(name, &content);
            let found = damage(&damaged);
            assert_eq!(found.len(), 1, "byte {byte}");
            assert_eq!(&found[0].file, name);
            let range = found[0].offset..found[0].offset + found[0].bytes;
            assert!(
                range.contains(&(byte as u64)),
                "{range:?} lacks byte {byte}"
            );
            assert_eq!(repaired(&damaged).lost, found);
            let lost = usize::from(byte as u64 >= HEADER);
            opens_without(&damaged, &expected, lost);
        }
    }
}

/// The log opens and holds what was expected but for `lost` frames, at their old places.
fn opens_without(disk: &SimDisk, expected: &[Vec<u8>], lost: usize) {
    let (mut log, recovery, seen) = open(Arc::new(disk.clone())).expect("open a repaired log");
    assert_eq!(recovery.cut, None);
    let good: Vec<&FrameRecord> = seen
        .iter()
        .filter(|frame| frame.kind != FrameKind::Lost)
        .collect();
    assert_eq!(good.len() + lost, expected.len());
    assert!(good.iter().all(|frame| expected.contains(&frame.payload)));
    for pair in seen.windows(2) {
        assert!(pair[0].position < pair[1].position);
    }
    append(&mut log, 9, b"after the repair");
    sync(&mut log);
}

#[test]
fn a_flipped_bit_in_the_last_frame_never_panics() {
    let (disk, expected, _) = sound();
    let name = name_of(SegmentNumber(2));
    let sound = disk.content(&name).expect("a segment");
    let last = sound.len() - 52 - 80;
    for byte in last..sound.len() {
        for bit in 0..8 {
            let mut content = sound.clone();
            content[byte] ^= 1 << bit;
            let torn = disk.fork();
            torn.set_content(&name, &content);
            let (mut log, _, seen) = open(Arc::new(torn.clone())).expect("a tail is cut");
            assert_eq!(payloads(&seen), expected[..7]);
            append(&mut log, 2, b"instead");
            sync(&mut log);
            drop(log);
            let (_, recovery, seen) = open(Arc::new(torn)).expect("open");
            assert_eq!((seen.len(), recovery.cut), (8, None));
        }
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    let mut expected = Vec::new();
    for number in 0..4_u8 {
        log.begin_segment();
        for _ in 0..2 {
            append(&mut log, 1, &[number; 50]);
            expected.push(vec![number; 50]);
            sync(&mut log);
        }
    }
    drop(log);
    disk.remove(&name_of(SegmentNumber(2))).expect("remove");
    assert_eq!(open_error(&disk), (name_of(SegmentNumber(2)), 0));
    let summary = repaired(&disk);
    assert_eq!(summary.lost.len(), 1);
    assert_eq!(summary.lost[0].bytes, 2 * (52 + 50));
    opens_without(&disk, &expected, 2);
}

#[test]
fn a_segment_with_no_header_left_is_set_aside() {
    let (disk, expected, _) = sound();
    for (number, lost) in [(1, 4), (2, 4)] {
        let damaged = disk.fork();
        let name = name_of(SegmentNumber(number));
        let mut content = disk.content(&name).expect("a segment");
        content[..HEADER as usize].fill(0xEE);
        damaged.set_content(&name, &content);
        assert_eq!(open_error(&damaged).0, name);
        repaired(&damaged);
        assert_eq!(damaged.content(&format!("{name}.damaged")), Some(content));
        opens_without(&damaged, &expected, lost);
    }
}

/// A sound log, and behind it a segment that was begun and not synced, with a frame in it.
fn begun() -> (SimDisk, Vec<Vec<u8>>, String) {
    let (disk, expected, _) = sound();
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    log.begin_segment();
    append(&mut log, 1, b"not durable");
    let name = "segment-0000000003.new".to_owned();
    assert!(disk.content(&name).is_some(), "it is not durable yet");
    (disk, expected, name)
}

#[test]
fn a_segment_that_was_only_begun_may_have_no_header() {
    let (disk, expected, name) = begun();
    let whole = disk.content(&name).expect("a segment");
    for (from, to) in [(0, 4096), (0, 512), (2000, 2512), (3584, 4096)] {
        let torn = disk.fork();
        let mut content = whole.clone();
        content[from..to].fill(0);
        torn.set_content(&name, &content);
        assert_eq!(damage(&torn), [], "{from}: a tail is no damage");
        assert_eq!(repaired(&torn).replaced, 0);
        let (mut log, recovery, seen) = open(Arc::new(torn.clone())).expect("open");
        assert_eq!(payloads(&seen), expected);
        assert_eq!(recovery.cut.expect("a cut is reported").file, name);
        assert_eq!(torn.content(&name), None, "it is gone");
        // Its number comes again, if not its name.
        log.begin_segment();
        append(&mut log, 1, b"after");
        sync(&mut log);
        let (_, recovery, seen) = open(Arc::new(torn.fork())).expect("open again");
        assert_eq!((recovery.cut, seen.len()), (None, expected.len() + 1));
    }
    // With its header it is what it was, and has its name from then on.
    let (_, recovery, seen) = open(Arc::new(disk.clone())).expect("open");
    assert_eq!((recovery.cut, seen.len()), (None, expected.len() + 1));
    assert!(disk.content(&name).is_none());
    assert!(disk.content(&name_of(SegmentNumber(3))).is_some());
}

#[test]
fn a_begun_segment_before_a_durable_one_was_durable_too() {
    let (disk, ..) = begun();
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    log.begin_segment();
    append(&mut log, 1, b"durable");
    sync(&mut log);
    let mut content = disk.content(&name_of(SegmentNumber(3))).expect("a segment");
    content[..HEADER as usize].fill(0);
    for name in ["segment-0000000003.new", "segment-0000000003.log"] {
        let damaged = disk.fork();
        damaged.remove(&name_of(SegmentNumber(3))).expect("remove");
        damaged.set_content(name, &content);
        assert_eq!(open_error(&damaged).0, name);
        assert!(damage(&damaged).iter().any(|range| range.file == name));
    }
}

#[test]
fn two_files_of_one_number_are_damage() {
    let (disk, _, name) = begun();
    let content = disk.content(&name).expect("a segment");
    disk.set_content(&name_of(SegmentNumber(3)), &content);
    assert_eq!(open_error(&disk).0, name);
    assert_eq!(repaired(&disk).lost[0].file, name);
    open(Arc::new(disk)).expect("open the repaired log");
}

#[test]
fn several_lost_ranges_and_what_is_between_them() {
    let (disk, expected, _) = sound();
    let name = name_of(SegmentNumber(1));
    let mut content = disk.content(&name).expect("a segment");
    // The first frame's payload, and the third's header: the second stays.
    content[4096 + 60] ^= 1;
    content[4096 + 52 + 20 + 52 + 40 + 3] ^= 1;
    disk.set_content(&name, &content);
    assert_eq!(open_error(&disk), (name.clone(), HEADER));
    let summary = repaired(&disk);
    let lost: Vec<(u64, u64)> = summary
        .lost
        .iter()
        .map(|one| (one.offset, one.bytes))
        .collect();
    assert_eq!(lost, [(4096, 72), (4096 + 72 + 92, 112)]);
    assert_eq!(disk.content(&format!("{name}.damaged")), Some(content));
    opens_without(&disk, &expected, 2);
}

#[test]
fn a_repair_cut_short_can_be_run_again() {
    let (disk, expected, _) = sound();
    let name = name_of(SegmentNumber(1));
    let mut content = disk.content(&name).expect("a segment");
    content[4096 + 60] ^= 1;
    disk.set_content(&name, &content);
    let found = damage(&disk);
    let before = disk.operations();
    let full = || {
        LogError::io(
            "write",
            "the losses",
            0,
            std::io::ErrorKind::StorageFull.into(),
        )
    };
    repair(&disk, &mut |_| {}, &mut |_| Err(full())).expect_err("they are not noted");
    assert_eq!(disk.operations(), before, "nothing changes before");
    for number in 1.. {
        let torn = disk.fork();
        torn.fault_at(number, Fault::PowerOff(100));
        let mut noted = Vec::new();
        let mut note = |lost: &[quintet_log::LostRange]| {
            noted.extend_from_slice(lost);
            Ok(())
        };
        let done = repair(&torn, &mut |_| {}, &mut note).is_ok();
        assert_eq!(noted, found);
        if done {
            break;
        }
        for seed in 0..8 {
            let after = torn.fork().power_cut(Keep::Random(seed));
            repaired(&after);
            opens_without(&after, &expected, 1);
        }
    }
}

/// Every call of a check and a repair fails once: an error, and the second try finds all that the
/// first would have found.
#[test]
fn a_check_and_a_repair_that_fail_lose_nothing_and_can_be_run_again() {
    let (disk, expected, _) = sound();
    let name = name_of(SegmentNumber(1));
    let mut content = disk.content(&name).expect("a segment");
    content[4096 + 60] ^= 1;
    disk.set_content(&name, &content);
    let found = damage(&disk);
    for fails in 1.. {
        let failing = disk.fork();
        failing.fail_read_at(failing.reads() + fails);
        let before = failing.operations();
        let done = check(&failing, &mut |_| {}).is_ok();
        assert_eq!(failing.operations(), before, "a check changes nothing");
        failing.heal();
        assert_eq!(damage(&failing), found, "read {fails}");
        if done {
            assert!(fails > 3, "{fails} reads");
            break;
        }
    }
    let faults = [Fault::Io, Fault::NoSpace(0), Fault::NoSpace(100)];
    for fault in faults.map(Some).into_iter().chain([None]) {
        for fails in 1.. {
            let failing = disk.fork();
            match fault {
                Some(fault) => failing.fault_at(failing.operations() + fails, fault),
                None => failing.fail_read_at(failing.reads() + fails),
            }
            let done = repair(&failing, &mut |_| {}, &mut |_| Ok(()));
            failing.heal();
            match done {
                Ok(summary) => {
                    assert_eq!(summary.lost, found);
                    assert!(fails > 3, "{fails} operations");
                    opens_without(&failing, &expected, 1);
                    break;
                }
                Err(LogError::Io { .. } | LogError::NoSpace { .. }) => {}
                Err(error) => panic!("{fault:?} at {fails}: {error}"),
            }
            // The damaged file is kept, under its name or aside.
            let kept = [name.clone(), format!("{name}.damaged")];
            let kept = kept
                .iter()
                .any(|name| failing.content(name).as_ref() == Some(&content));
            assert!(kept, "{fault:?} at {fails}");
            repaired(&failing);
            opens_without(&failing, &expected, 1);
        }
    }
}

#[test]
fn a_body_that_forges_frames_makes_no_damage_of_a_torn_tail() {
    // A client that knows everything but the salt, and guesses positions: each forged frame says
    // that all before it was synced.
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 1, b"first");
    sync(&mut log);
    let start = log.end().0 + 52;
    let mut body = Vec::new();
    for _ in 0..200 {
        let position = start + body.len() as u64;
        body.extend_from_slice(&forged(position));
    }
    append(&mut log, 1, &body);
    let name = name_of(SegmentNumber(1));
    let mut content = disk.content(&name).expect("a segment");
    let last = 4096 + log.end().0 as usize - 1;
    content[last] ^= 1;
    disk.set_content(&name, &content);
    let (_, recovery, seen) = open(Arc::new(disk.fork())).expect("a torn tail");
    assert_eq!(seen.len(), 1);
    assert!(matches!(recovery.cut, Some(Cut { bytes, .. }) if bytes == body.len() as u64 + 52));
    let summary = check(&disk, &mut |_| {}).expect("check");
    assert_eq!(
        (summary.frames, summary.damaged, summary.tail),
        (1, 0, true)
    );
    assert_eq!(summary.end, Position(57));
}

/// A frame as an empty salt would make it.
fn forged(position: u64) -> Vec<u8> {
    let mut frame = vec![0; 52];
    frame[8..16].copy_from_slice(&position.to_le_bytes());
    frame[32..40].copy_from_slice(&position.to_le_bytes());
    frame[48] = 1;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 8]), &frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    frame
}

#[test]
fn a_newer_format_names_its_writer() {
    let (disk, ..) = sound();
    let name = name_of(SegmentNumber(1));
    for (at, value) in [(8, 2_u8), (16, 1)] {
        let newer = disk.fork();
        let mut content = disk.content(&name).expect("a segment");
        for copy in [0, 2048] {
            content[copy + at] = value;
            content[copy + 56..copy + 69].copy_from_slice(b"quintet 9.8.7");
            let crc = crc32c::crc32c(&content[copy..copy + 2044]);
            content[copy + 2044..copy + 2048].copy_from_slice(&crc.to_le_bytes());
        }
        newer.set_content(&name, &content);
        let error = open(Arc::new(newer.clone())).err().expect("an error");
        assert!(matches!(error, LogError::NewerFormat { .. }), "{error}");
        assert!(error.to_string().contains("quintet 9.8.7"), "{error}");
        assert!(matches!(
            check(&newer, &mut |_| {}),
            Err(LogError::NewerFormat { .. })
        ));
        assert!(matches!(
            repair(&newer, &mut |_| {}, &mut |_| Ok(())),
            Err(LogError::NewerFormat { .. })
        ));
    }
}

#[test]
fn the_log_of_another_shard_is_refused() {
    let (disk, ..) = sound();
    let options = quintet_log::Options {
        shard: 3,
        ..common::options()
    };
    let result = LocalLog::open(Arc::new(disk), options, &mut |_| Ok(()));
    assert!(matches!(
        result,
        Err(LogError::OtherShard {
            found: 0xFFFF,
            wanted: 3,
            ..
        })
    ));
}

#[test]
fn a_frame_the_caller_cannot_replay_is_named() {
    let (disk, ..) = sound();
    let mut count = 0;
    let result = LocalLog::open(Arc::new(disk), common::options(), &mut |_| {
        count += 1;
        if count == 2 {
            Err("an unknown operation".to_owned())
        } else {
            Ok(())
        }
    });
    let error = result.err().expect("an error").to_string();
    assert!(error.contains("segment-0000000001.log"), "{error}");
    assert!(
        error.contains(&(4096 + 52 + 20 + 52).to_string()),
        "{error}"
    );
    assert!(error.contains("an unknown operation"), "{error}");
}

#[test]
fn a_frame_that_was_cut_off_does_not_come_back() {
    // Of two unsynced frames the first was torn and the second was not. A frame of the first one's
    // length then takes its place: the second must not follow it.
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 1, b"kept");
    sync(&mut log);
    let torn = append(&mut log, 1, b"torn");
    append(&mut log, 1, b"whole, but behind a gap");
    drop(log);
    let name = name_of(SegmentNumber(1));
    let mut content = disk.content(&name).expect("a segment");
    content[usize::try_from(torn.offset).expect("a small file")] ^= 1;
    disk.set_content(&name, &content);
    let (mut log, recovery, _) = open(Arc::new(disk.clone())).expect("a torn tail");
    assert!(recovery.cut.is_some());
    append(&mut log, 1, b"next");
    sync(&mut log);
    let end = log.end();
    drop(log);
    let (log, recovery, seen) = open(Arc::new(disk)).expect("open");
    assert_eq!(payloads(&seen), [b"kept", b"next"]);
    assert_eq!((log.end(), recovery.cut), (end, None));
}

/// Faults of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Oldest,
    Newest,
    Middle,
    All,
    /// The newest is shorter than it was.
    Cut,
    /// The newest has its length, and zeros where its last frame was.
    Zeros,
}

/// A log of four segments, two frames each, after an orderly end or without.
fn four_segments(in_order: bool) -> (SimDisk, Vec<Vec<u8>>) {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    log.spares()
        .fill(&std::sync::atomic::AtomicBool::new(false))
        .expect("fill");
    let mut expected = Vec::new();
    for number in 0..4_u8 {
        log.begin_segment();
        for half in 0..2 {
            append(&mut log, 1, &[2 * number + half; 50]);
            expected.push(vec![2 * number + half; 50]);
            sync(&mut log);
        }
        log.spares()
            .fill(&std::sync::atomic::AtomicBool::new(false))
            .expect("fill");
    }
    if in_order {
        log.end_in_order().expect("ended");
    }
    drop(log);
    (disk, expected)
}

fn lose(disk: &SimDisk, loss: Loss) {
    let name = |number| name_of(SegmentNumber(number));
    match loss {
        Loss::Oldest => disk.remove(&name(1)).expect("remove"),
        Loss::Newest => disk.remove(&name(4)).expect("remove"),
        Loss::Middle => disk.remove(&name(2)).expect("remove"),
        Loss::All => (1..=4).for_each(|n| disk.remove(&name(n)).expect("remove")),
        Loss::Cut | Loss::Zeros => {
            let mut content = disk.content(&name(4)).expect("a segment");
            let end = HEADER as usize + 102 + 60;
            match loss {
                Loss::Cut => content.truncate(end),
                _ => content[end - 60..].fill(0),
            }
            disk.set_content(&name(4), &content);
        }
    }
}

#[test]
fn files_that_are_missing_or_cut_are_named_and_repaired() {
    use Loss::{All, Cut, Middle, Newest, Oldest, Zeros};
    for (loss, named, lost) in [
        (Oldest, 1, 2),
        (Newest, 4, 2),
        (Middle, 2, 2),
        (All, 1, 8),
        (Cut, 4, 1),
        (Zeros, 4, 1),
    ] {
        for in_order in [true, false] {
            // The crash may have come before anything behind the last sync of the directory, so
            // there is no telling this from the end of the log.
            if loss == Zeros && !in_order {
                continue;
            }
            let (disk, expected) = four_segments(in_order);
            assert_eq!(damage(&disk), []);
            lose(&disk, loss);
            let name = name_of(SegmentNumber(named));
            assert_eq!(open_error(&disk).0, name, "{loss:?} {in_order}");
            let found = damage(&disk);
            assert!(
                found
                    .iter()
                    .any(|range| range.file == name || range.why.contains(&name)),
                "{loss:?}: {found:?}"
            );
            // Not mended by looking, or by trying to open it.
            assert_eq!(damage(&disk), found);
            let summary = repaired(&disk);
            assert!(!summary.lost.is_empty());
            opens_without(&disk, &expected, lost);
            // Numbers of segments are not used again.
            if loss == Newest {
                assert!(disk.content(&name).is_none());
            }
            assert_eq!(damage(&disk), []);
        }
    }
}

#[test]
fn a_crash_after_a_stop_in_order_is_a_cut_again() {
    let (disk, expected) = four_segments(true);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 2, b"not synced");
    drop(log);
    lose(&disk, Loss::Zeros);
    // What the stop had said is durable is still damage.
    assert_eq!(open_error(&disk).0, name_of(SegmentNumber(4)));
    let (disk, _) = four_segments(true);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 2, b"not synced");
    let end = log.end();
    drop(log);
    let name = name_of(SegmentNumber(4));
    let mut content = disk.content(&name).expect("a segment");
    let last = HEADER as usize + 2 * 102 + 52 + 3;
    content[last] ^= 1;
    disk.set_content(&name, &content);
    let (log, recovery, seen) = open(Arc::new(disk)).expect("a torn tail");
    assert_eq!(payloads(&seen), expected);
    assert!(recovery.cut.is_some() && log.end() < end);
}

#[test]
fn runs_without_a_log_are_damage() {
    let disk = SimDisk::new(1);
    let runs = ["run-00000-0000000001.qrun", "run-00000-0000000002.qrun"];
    for run in runs {
        disk.set_content(run, b"whatever it was");
    }
    assert_eq!(open_error(&disk), (runs[0].to_owned(), 0));
    let lost: Vec<String> = damage(&disk).into_iter().map(|range| range.file).collect();
    assert_eq!(lost, runs);
    repaired(&disk);
    let (log, ..) = open(Arc::new(disk.clone())).expect("a new log");
    assert_eq!(log.segments(), []);
    let names = disk.list().expect("list");
    assert!(
        names.contains(&"run-00000-0000000001.qrun.damaged".to_owned()),
        "{names:?}"
    );
}

/// From before there were extents, and without the lengths in headers.
#[test]
fn a_directory_without_an_extent_opens_as_before() {
    for loss in [None, Some(Loss::Oldest), Some(Loss::Newest)] {
        let (disk, expected) = four_segments(false);
        for name in disk.list().expect("list") {
            if name.starts_with("extent-") {
                disk.remove(&name).expect("remove");
            }
        }
        loss.into_iter().for_each(|loss| lose(&disk, loss));
        assert_eq!(damage(&disk), []);
        let (log, _, seen) = open(Arc::new(disk.clone())).expect("open");
        let gone = if loss.is_some() { 2 } else { 0 };
        assert_eq!(seen.len() + gone, expected.len());
        drop(log);
        // From now on it is known.
        let names = disk.list().expect("list");
        assert_eq!(
            names
                .iter()
                .filter(|name| name.starts_with("extent-"))
                .count(),
            1
        );
        let oldest = if loss == Some(Loss::Oldest) { 2 } else { 1 };
        disk.remove(&name_of(SegmentNumber(oldest)))
            .expect("remove");
        assert_eq!(open_error(&disk), (name_of(SegmentNumber(oldest)), 0));
    }
}

/// Any bytes anywhere in a segment. `FRAME_CASES` sets how many times.
#[test]
fn a_segment_with_any_bytes_in_it_is_answered() {
    let cases = std::env::var("FRAME_CASES")
        .map_or(2000, |text| text.parse().expect("FRAME_CASES is a number"));
    // Not far behind what is written: the rest is zeros.
    let written = quintet_sim::damage::sound_len().min(HEADER as usize + 1000) as u64;
    for case in 0..cases {
        let mut random = Random::new(case);
        let position = random.below(written) as u16;
        let mut input = position.to_le_bytes().to_vec();
        for _ in 0..=random.below(40) {
            let byte = match random.below(4) {
                0 => 0,
                1 => 0xff,
                _ => random.next_u64() as u8,
            };
            input.push(byte);
        }
        let shown = InputPrinter(&input);
        quintet_sim::damage::survive(shown.0);
    }
}

/// Prints the input if a check of it panics.
struct InputPrinter<'a>(&'a [u8]);

impl Drop for InputPrinter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input {:02x?}", self.0);
        }
    }
}
