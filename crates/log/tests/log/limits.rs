//! A full disk, a failing disk, spares, locks and backups.

use crate::common;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use common::{open, open_with};
use quintet_log::{
    DirLock, Disk, LocalLog, Log, LogError, Options, SegmentNumber, SpareState, Spares, Storage,
    backup, check,
};
use quintet_sim::{
    disk::{Fault, Keep, SimDisk},
    log_tests::{FrameRecord, append, facts, sync},
};

const SEGMENT: u64 = 16 << 10;

fn small(spares: usize) -> Options {
    Options {
        segment_bytes: SEGMENT,
        spares,
        ..Options::default()
    }
}

fn stamp() -> quintet_log::Stamp {
    quintet_log::Stamp {
        epoch: quintet_log::Epoch(1),
        time_ms: 1,
    }
}

fn segment_name(number: u32) -> String {
    format!("segment-{number:010}.log")
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    let spares = log.spares();
    let stop = AtomicBool::new(false);
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Ready);
    disk.set_capacity(2 * SEGMENT);
    append(&mut log, 1, b"into the first spare");
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Low);
    assert!(spares.low(), "the server must know before it hurts");
    // The reserve: all of this segment and the spare after it.
    log.begin_segment();
    append(&mut log, 1, b"into the last spare");
    sync(&mut log);
    log.begin_segment();
    let end = log.end();
    for _ in 0..3 {
        let refused = log.append(end, stamp(), &mut facts(b"too much"));
        assert!(
            matches!(refused, Err(LogError::NoSpace { .. })),
            "{refused:?}"
        );
        assert_eq!(log.end(), end);
    }
    // The oldest segment makes room for itself.
    assert_eq!(log.retire(SegmentNumber(1)).expect("retire"), SEGMENT);
    assert!(!spares.low());
    append(&mut log, 1, b"there is room again");
    disk.set_capacity(u64::MAX);
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Ready);
    sync(&mut log);
    drop(log);
    let (_, recovery, seen) =
        open_with(Arc::new(disk.power_cut(Keep::Synced)), small(2)).expect("open");
    assert_eq!((seen.len(), recovery.cut), (2, None));
}

#[test]
fn low_ends_once_a_whole_spare_could_be_made() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(1)).expect("open");
    append(&mut log, 1, b"one");
    disk.set_capacity(disk.used() + SEGMENT / 2);
    let spares = log.spares();
    assert_eq!(spares.fill_slice().expect("fill"), SpareState::Low);
    assert_eq!(spares.fill_slice().expect("fill"), SpareState::Low);
    assert!(spares.low());
    disk.set_capacity(u64::MAX);
    assert_eq!(spares.fill_slice().expect("fill"), SpareState::Ready);
    assert!(!spares.low());
}

#[test]
fn a_failed_sync_is_final_and_loses_nothing_acknowledged() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 1, b"acknowledged");
    sync(&mut log);
    append(&mut log, 1, b"written");
    let point = log.sync_point();
    let second = log.sync_point();
    disk.fault_at(disk.operations() + 1, Fault::Io);
    let error = point.wait().expect_err("the sync fails");
    let is_final = matches!(error, LogError::Io { .. } | LogError::Stopped { .. });
    assert!(is_final, "{error}");
    assert!(error.to_string().contains(&segment_name(1)), "{error}");
    // A second sync would succeed, and mean nothing.
    assert!(matches!(second.wait(), Err(LogError::Stopped { .. })));
    let refused = log.append(log.end(), stamp(), &mut facts(b"more"));
    assert!(matches!(refused, Err(LogError::Stopped { .. })));
    assert!(log.retire(SegmentNumber(1)).is_err());
    drop(log);
    // The same system goes on: its cache shows the frame, and the disk lacks it.
    let restarted = disk.fork();
    let (_, _, seen) = open(Arc::new(restarted.clone())).expect("open");
    assert_eq!(seen.len(), 2);
    let (_, _, seen) = open(Arc::new(restarted.power_cut(Keep::Synced))).expect("open");
    assert_eq!(
        seen.len(),
        2,
        "what a start found must be durable before it is served"
    );
}

#[test]
fn a_failed_write_is_final() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 1, b"one");
    disk.fault_at(disk.operations() + 1, Fault::Io);
    let failed = log.append(log.end(), stamp(), &mut facts(b"two"));
    assert!(matches!(failed, Err(LogError::Io { .. })), "{failed:?}");
    let refused = log.append(log.end(), stamp(), &mut facts(b"two"));
    assert!(
        matches!(refused, Err(LogError::Stopped { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_failed_read_at_any_point_of_opening_changes_nothing() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    for number in 0..6_u8 {
        log.begin_segment();
        append(&mut log, 1, &[number; 100]);
        sync(&mut log);
    }
    for number in 1.. {
        let failing = disk.fork();
        failing.fail_read_at(number);
        match open(Arc::new(failing.clone())) {
            Ok(_) => {
                assert!(number > 12, "only {number} reads");
                break;
            }
            Err(error) => assert!(matches!(error, LogError::Io { .. }), "{error}"),
        }
        failing.heal();
        assert_eq!(open(Arc::new(failing)).expect("open").2.len(), 6);
    }
}

#[test]
fn an_append_is_one_write_and_an_idle_log_writes_nothing() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(Arc::new(disk.clone())).expect("open");
    append(&mut log, 1, b"one");
    sync(&mut log);
    let before = disk.operations();
    append(&mut log, 1, &[1; 5000]);
    assert_eq!(disk.operations(), before + 1);
    assert_eq!(disk.write_len(before + 1), Some(52 + 5000));
    sync(&mut log);
    assert_eq!(disk.operations(), before + 2);
    sync(&mut log);
    assert_eq!(disk.operations(), before + 2);
}

#[test]
fn a_segment_begins_without_a_sync() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    log.spares().fill(&AtomicBool::new(false)).expect("fill");
    append(&mut log, 1, b"one");
    sync(&mut log);
    // Its header, its name, the frame; and so for the next one, which finds no spare, before any
    // of it is durable.
    for _ in 0..2 {
        let before = disk.operations();
        log.begin_segment();
        append(&mut log, 1, b"two");
        assert_eq!(disk.operations(), before + 3);
    }
    // Both files, their names, the directory, what must be there.
    let before = disk.operations();
    sync(&mut log);
    assert_eq!(disk.operations(), before + 6);
}

#[test]
fn the_oldest_segment_is_never_one_a_crash_could_take() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    append(&mut log, 1, b"one");
    sync(&mut log);
    for number in 2..4_u32 {
        log.begin_segment();
        append(&mut log, 1, b"more");
        let freed = log.retire(SegmentNumber(number - 1)).expect("retire");
        assert_eq!(freed, 0, "segment {number} is not durable yet");
    }
    sync(&mut log);
    assert!(log.retire(SegmentNumber(2)).expect("retire") > 0);
    assert_eq!(log.segments().len(), 1);
}

#[test]
fn a_backup_has_unfinished_messages() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    let expected: Vec<Vec<u8>> = (0..4_u8).map(|number| vec![number; 300]).collect();
    for (index, payload) in expected.iter().enumerate() {
        log.begin_segment();
        append(&mut log, 1, payload);
        if index == 0 {
            sync(&mut log);
        }
    }
    let target = SimDisk::new(2);
    let summary = backup(&disk, &target).expect("backup");
    assert_eq!((summary.segments, summary.end), (4, log.end()));
    let after = target.power_cut(Keep::Synced);
    let (_, recovery, seen) = open_with(Arc::new(after), small(2)).expect("open the backup");
    assert_eq!((recovery.cut, payloads(&seen).len()), (None, 4));
    // One whose header is still to be written is not in it.
    log.begin_segment();
    disk.set_content("segment-0000000005.new", &[0; 4096]);
    let summary = backup(&disk, &SimDisk::new(3)).expect("backup");
    assert_eq!((summary.segments, summary.end), (4, log.end()));
}

/// Segments and spares.
fn count_files(dir: &std::path::Path) -> usize {
    let mut names = Disk::new(dir).list().expect("list");
    names.retain(|name| !name.starts_with("extent-"));
    names.len()
}

#[test]
fn retired_segments_become_spares_and_then_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut log, ..) = open_with(Arc::new(Disk::new(dir.path())), small(2)).expect("open");
    log.spares().fill(&AtomicBool::new(false)).expect("fill");
    for number in 1..=12_u32 {
        log.begin_segment();
        append(&mut log, 1, &vec![9; 9000]);
        sync(&mut log);
        log.retire(SegmentNumber(number - 1)).expect("retire");
        let files = count_files(dir.path());
        assert!(files <= 3, "one segment and two spares, not {files} files");
    }
    drop(log);
    let options = Options {
        segment_bytes: 2 * SEGMENT,
        ..small(2)
    };
    let (log, recovery, seen) =
        open_with(Arc::new(Disk::new(dir.path())), options).expect("open with other segments");
    assert_eq!((seen.len(), recovery.cut), (1, None));
    assert_eq!(log.segment(), SegmentNumber(12));
    let files = count_files(dir.path());
    assert_eq!(files, 2, "spares of another size are removed, one is made");
}

#[test]
fn a_second_server_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let lock = DirLock::acquire(&data).expect("lock");
    match DirLock::acquire(&data) {
        Err(LogError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("locked twice: {other:?}"),
    }
    drop(lock);
    DirLock::acquire(&data).expect("lock again");
}

fn payloads(seen: &[FrameRecord]) -> Vec<&[u8]> {
    seen.iter().map(|frame| frame.payload.as_slice()).collect()
}

#[test]
fn a_backup_keeps_its_content_while_the_log_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = tempfile::tempdir().expect("a directory");
    let source = Disk::new(dir.path());
    let (mut log, ..) = open_with(Arc::new(Disk::new(dir.path())), small(2)).expect("open");
    // Only whole files are recycled.
    log.spares().fill(&AtomicBool::new(false)).expect("fill");
    let expected: Vec<Vec<u8>> = (0..6_u8).map(|number| vec![number; 3000]).collect();
    for (index, payload) in expected.iter().enumerate() {
        if index % 2 == 0 {
            log.begin_segment();
        }
        append(&mut log, 1, payload);
    }
    sync(&mut log);
    let summary = backup(&source, &Disk::new(target.path())).expect("backup");
    assert_eq!(
        (summary.segments, summary.linked, summary.end),
        (3, 2, log.end())
    );
    // Every file the backup shares is retired, and would be recycled if nobody looked.
    for _ in 0..6 {
        log.begin_segment();
        append(&mut log, 1, &[0xEE; 6000]);
        sync(&mut log);
        log.retire(SegmentNumber(log.segment().0 - 1))
            .expect("retire");
    }
    let again = backup(&source, &Disk::new(target.path()));
    assert!(matches!(again, Err(LogError::NotEmpty { .. })), "{again:?}");
    let checked = check(&Disk::new(target.path()), &mut |_| {}).expect("check");
    assert_eq!(
        (checked.frames, checked.damaged, checked.tail),
        (6, 0, false)
    );
    let (mut copy, _, seen) =
        open_with(Arc::new(Disk::new(target.path())), small(2)).expect("open the backup");
    assert_eq!(payloads(&seen), expected);
    append(&mut copy, 2, b"the backup lives");
    sync(&mut copy);
}

/// Every call of a backup fails once, at the log or at the copy: an error, the log is as it was,
/// and the next backup into the same directory is whole.
#[test]
fn a_backup_that_fails_leaves_nothing_and_can_be_made_again() {
    let source = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(source.clone()), small(0)).expect("open");
    let expected: Vec<Vec<u8>> = (0..6_u8).map(|number| vec![number; 3000]).collect();
    for (index, payload) in expected.iter().enumerate() {
        if index % 2 == 0 {
            log.begin_segment();
        }
        append(&mut log, 1, payload);
    }
    sync(&mut log);
    let whole = |target: &SimDisk| {
        let (_, _, seen) = open_with(Arc::new(target.fork()), small(0)).expect("the copy opens");
        assert_eq!(payloads(&seen), expected);
    };
    let read = None;
    for fault in [
        read,
        Some(Fault::Io),
        Some(Fault::NoSpace(0)),
        Some(Fault::NoSpace(100)),
    ] {
        for at_target in [false, true] {
            for fails in 1.. {
                let (source, target) = (source.fork(), SimDisk::new(2));
                let failing = if at_target { &target } else { &source };
                match fault {
                    Some(fault) => failing.fault_at(failing.operations() + fails, fault),
                    None => failing.fail_read_at(failing.reads() + fails),
                }
                let done = backup(&source, &target);
                let reached = match fault {
                    Some(_) => failing.operations() >= fails,
                    None => failing.reads() >= fails,
                };
                failing.heal();
                if let Err(error) = &done {
                    let known = matches!(error, LogError::Io { .. } | LogError::NoSpace { .. });
                    assert!(known && reached, "{fault:?} at {fails}: {error}");
                    backup(&source, &target).expect("again");
                }
                whole(&target);
                whole(&source);
                if done.is_ok() && !reached {
                    break;
                }
                // A copy made of less than all would be found by `whole`.
                assert!(fails < 1000, "{fault:?}, target {at_target}");
            }
        }
    }
}

/// A backup that begins while the log begins a segment: every file can be linked, and the newest
/// file has no header yet.
#[test]
fn a_backup_of_links_alone_says_where_it_ends() {
    for linkable in [1, 3] {
        let dir = tempfile::tempdir().expect("a directory");
        let target = tempfile::tempdir().expect("a directory");
        let (mut log, ..) = open_with(Arc::new(Disk::new(dir.path())), small(2)).expect("open");
        for number in 0..linkable {
            log.begin_segment();
            append(&mut log, 1, &[number; 3000]);
            sync(&mut log);
        }
        let next = format!("segment-{:010}.new", linkable + 1);
        std::fs::write(dir.path().join(next), [0; 4096]).expect("written");
        let copy = Disk::new(target.path());
        let summary = backup(&Disk::new(dir.path()), &copy).expect("backup");
        assert_eq!(
            (summary.segments, summary.linked, summary.copied_bytes),
            (u64::from(linkable), u64::from(linkable), 0)
        );
        assert_eq!(summary.end, log.end());
        let (copy, recovery, seen) = open_with(Arc::new(copy), small(2)).expect("open");
        assert_eq!((recovery.cut, seen.len()), (None, usize::from(linkable)));
        assert_eq!(copy.end(), summary.end);
    }
}

#[test]
fn backups_beside_a_busy_writer_are_always_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut log, ..) = open_with(Arc::new(Disk::new(dir.path())), small(2)).expect("open");
    append(&mut log, 1, &0_u64.to_le_bytes());
    sync(&mut log);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ends by itself, should the other side fail.
            for number in 1..200_000_u64 {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                if number % 40 == 0 {
                    log.begin_segment();
                }
                let mut payload = number.to_le_bytes().to_vec();
                payload.resize(8 + (number % 300) as usize, number as u8);
                append(&mut log, 1, &payload);
                if number % 200 == 0 {
                    sync(&mut log);
                    let keep = log.segment().0.saturating_sub(20);
                    log.retire(SegmentNumber(keep)).expect("retire");
                }
            }
        });
        for round in 0..10 {
            let target = tempfile::tempdir().expect("a directory");
            let copy = Disk::new(target.path());
            // A simulated disk cannot be linked to, so this one is copied byte by byte.
            let far = SimDisk::new(round);
            let source = Disk::new(dir.path());
            let linked = backup(&source, &copy).expect("backup");
            whole(Arc::new(copy), linked.end);
            match backup(&source, &far) {
                Ok(copied) => {
                    assert_eq!(copied.linked, 0);
                    whole(Arc::new(far.power_cut(Keep::Synced)), copied.end);
                }
                // Copying may be too slow for a writer that retires this fast.
                Err(error) => assert!(error.to_string().contains("go away"), "{error}"),
            }
        }
        stop.store(true, Ordering::Release);
    });
}

/// The backup opens without a cut, and its frames are a run of what was appended.
fn whole(storage: Arc<dyn Storage>, end: quintet_log::Position) {
    let (log, recovery, seen) = open_with(storage, small(2)).expect("open the backup");
    assert_eq!(recovery.cut, None);
    assert_eq!(log.end(), end);
    let numbers: Vec<u64> = seen
        .iter()
        .map(|frame| u64::from_le_bytes(frame.payload[..8].try_into().expect("8 bytes")))
        .collect();
    assert!(!numbers.is_empty());
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "a gap in the backup"
    );
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = SimDisk::new(1);
    for name in [
        "lock",
        "quintet.toml",
        "segment-1.log",
        "notes.tmp",
        "segment-0000000001.tmp",
    ] {
        disk.set_content(name, b"x");
    }
    let (log, ..) = open(Arc::new(disk.clone())).expect("open");
    assert_eq!(log.segments(), []);
    let mut names = disk.list().expect("list");
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "lock",
            "notes.tmp",
            "quintet.toml",
            "segment-1.log",
            "spare-0000000001.log"
        ]
    );
}

/// Room left in the segment being written is used to the last frame.
fn fill_segment(log: &mut dyn Log) -> u64 {
    let mut frames = 0;
    while log.segment_bytes_left() >= 1000 {
        append(log, 1, &[7; 1000]);
        frames += 1;
    }
    frames
}

#[test]
fn the_first_segment_is_made_ahead() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    disk.set_capacity(disk.used());
    assert!(
        fill_segment(&mut log) > 10,
        "the disk was full from the first byte on"
    );
    assert!(log.is_whole());
    sync(&mut log);
    log.begin_segment();
    let refused = log.append(log.end(), stamp(), &mut facts(b"no more"));
    assert!(
        matches!(refused, Err(LogError::NoSpace { .. })),
        "{refused:?}"
    );
    // So is one that follows a tail that was cut, or one that could grow.
    disk.set_capacity(u64::MAX);
    append(&mut log, 1, b"in a file that grows");
    sync(&mut log);
    assert!(!log.is_whole());
    let last = log.segment();
    drop(log);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open again");
    disk.set_capacity(disk.used());
    assert!(fill_segment(&mut log) > 10);
    assert_eq!(log.segment().0, last.0 + 1);
}

#[test]
fn a_log_on_a_full_disk_opens_and_goes_on_as_far_as_it_gets() {
    let disk = SimDisk::new(1);
    disk.set_capacity(8 << 10);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
    append(&mut log, 1, b"one");
    sync(&mut log);
    let spares = log.spares();
    assert!(!log.is_whole() && !spares.any() && spares.low());
    assert!(spares.why().contains("no space left"), "{}", spares.why());
    disk.set_capacity(u64::MAX);
    let stop = AtomicBool::new(false);
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Ready);
    log.begin_segment();
    append(&mut log, 1, b"two");
    assert!(log.is_whole());
    sync(&mut log);
    drop(log);
    assert_eq!(
        open_with(Arc::new(disk), small(2)).expect("open").2.len(),
        2
    );
}

/// ENOSPC, EDQUOT, EFBIG and ENOMEM (as EMFILE and ENFILE), out of every call that may say so.
#[test]
fn every_error_of_a_full_disk_is_recognized() {
    use std::io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    for kind in [StorageFull, QuotaExceeded, FileTooLarge, OutOfMemory] {
        let full = |first| Fault::Refused(kind, first);
        let disk = SimDisk::new(1);
        let (mut log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
        let spares = log.spares();
        append(&mut log, 1, b"one");
        sync(&mut log);
        let again = |log: &mut LocalLog, payload: &[u8]| {
            let end = log.end();
            let refused = log.append(end, stamp(), &mut facts(payload));
            assert!(
                matches!(refused, Err(LogError::NoSpace { .. })),
                "{kind:?}: {refused:?}"
            );
            assert_eq!(log.end(), end);
            append(log, 1, payload);
        };
        // A frame, whole or in part.
        for first in [0, 3] {
            disk.fault_at(disk.operations() + 1, full(first));
            again(&mut log, b"two");
        }
        // Making a spare: its file, zeros, sync, name, directory.
        let before = disk.operations();
        assert_eq!(
            spares.fill(&AtomicBool::new(false)).expect("fill"),
            SpareState::Ready
        );
        let (each, spare) = ((disk.operations() - before) / 2, log.spares());
        for at in 1..=each {
            let disk = SimDisk::new(at);
            let (log, ..) = open_with(Arc::new(disk.clone()), small(2)).expect("open");
            disk.fault_at(disk.operations() + at, full(0));
            let spares = log.spares();
            while spares.fill_slice().expect("not the end") == SpareState::Filling {}
            assert!(spares.low() || spares.any(), "{kind:?} at {at}");
            let stop = AtomicBool::new(false);
            assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Ready);
        }
        // Beginning a segment: the header, the name.
        for at in 1..=2 {
            log.begin_segment();
            disk.fault_at(disk.operations() + at, full(9));
            again(&mut log, b"in the next");
            sync(&mut log);
        }
        assert!(spare.any() || log.is_whole());
        // Giving one up: the name of a spare. Removing needs no room.
        disk.fault_at(disk.operations() + 1, full(0));
        assert!(log.retire(SegmentNumber(1)).expect("retire") > 0);
        let seen = open_with(Arc::new(disk.fork()), small(2)).expect("open").2;
        assert_eq!(seen.len(), 2, "{kind:?}");
        // A sync that says so may have lost anything: that is the end.
        append(&mut log, 1, b"lost?");
        disk.fault_at(disk.operations() + 1, full(0));
        let point = log.sync_point();
        let failed = point.wait().expect_err("the sync fails");
        let is_final = matches!(failed, LogError::Io { .. } | LogError::Stopped { .. });
        assert!(is_final, "{kind:?}: {failed}");
        let refused = log.append(log.end(), stamp(), &mut facts(b"more"));
        assert!(matches!(refused, Err(LogError::Stopped { .. })));
    }
}

/// A background step that the system has no memory or file for is done later, whichever it is.
#[test]
fn want_of_memory_ends_nothing_but_a_sync() {
    let life = |log: &mut LocalLog| -> Result<u32, LogError> {
        let spares = log.spares();
        let mut stored = 0;
        for number in 0..4_u32 {
            loop {
                let end = log.end();
                match log.append(end, stamp(), &mut facts(&number.to_be_bytes())) {
                    Ok(_) => break,
                    Err(LogError::NoSpace { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            stored += 1;
            let point = log.sync_point();
            point.wait()?;
            log.synced(point);
            log.begin_segment();
            spares.fill(&AtomicBool::new(false))?;
            if number == 2 {
                log.retire(SegmentNumber(1))?;
            }
        }
        Ok(stored)
    };
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), small(1)).expect("open");
    let before = disk.operations();
    assert_eq!(life(&mut log).expect("no fault"), 4);
    let operations = disk.operations() - before;
    assert!(operations > 30, "{operations}");
    let mut ended = 0;
    for at in 1..=operations {
        let disk = SimDisk::new(1);
        let (mut log, ..) = open_with(Arc::new(disk.clone()), small(1)).expect("open");
        let fault = Fault::Refused(std::io::ErrorKind::OutOfMemory, 0);
        disk.fault_at(disk.operations() + at, fault);
        match life(&mut log) {
            Ok(stored) => assert_eq!(stored, 4),
            Err(error) => {
                assert!(
                    error.to_string().starts_with("cannot sync"),
                    "at {at}: {error}"
                );
                ended += 1;
            }
        }
        drop(log);
        let (_, _, seen) = open_with(Arc::new(disk), small(1)).expect("open");
        assert!(
            seen.len() <= 3 && (ended > 0 || seen.len() == 3),
            "{}",
            seen.len()
        );
    }
    assert!(ended < operations / 3, "{ended} of {operations} end it");
}

/// The spares' lengths in MiB, the shortest first.
fn spares_of(disk: &SimDisk) -> Vec<u64> {
    let names = disk.list().expect("list");
    let spares = names
        .iter()
        .filter(|name| name.starts_with("spare-") && name.ends_with(".log"));
    let mut lens: Vec<u64> = spares
        .map(|name| disk.open(name).expect("open").len().expect("len") >> 20)
        .collect();
    lens.sort_unstable();
    lens
}

/// Fills slice by slice; a filler that does not end fails.
fn filled(spares: &Spares, each: impl Fn()) -> SpareState {
    for _ in 0..100 {
        let state = spares.fill_slice().expect("fill");
        each();
        if state != SpareState::Filling {
            return state;
        }
    }
    panic!("the filler does not end");
}

fn growing() -> Options {
    Options {
        segment_bytes: 8 << 20,
        ..Options::default()
    }
}

#[test]
fn a_new_log_begins_with_short_files_which_grow() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), growing()).expect("open");
    let spares = log.spares();
    append(&mut log, 1, b"one");
    sync(&mut log);
    assert_eq!(filled(&spares, || {}), SpareState::Ready);
    assert_eq!(
        (log.segment_bytes(), spares_of(&disk)),
        (Some(2 << 20), vec![2, 2])
    );

    // There is never less in reserve while the longer ones are made.
    spares.grow(4 << 20);
    filled(&spares, || assert!(spares_of(&disk).len() >= 2));
    assert_eq!(spares_of(&disk), [4, 4]);
    spares.grow(1 << 20);
    assert_eq!(spares.bytes(), 4 << 20, "they do not become shorter");
    log.begin_segment();
    assert_eq!(log.segment_bytes(), Some(4 << 20));
    append(&mut log, 1, b"two");
    assert!(log.is_whole());
    sync(&mut log);
    // The first, which is too short by now, is not kept.
    assert!(log.retire(log.segments()[0].number).expect("retire") > 0);
    assert_eq!(spares_of(&disk), [4]);

    spares.grow(1 << 40);
    assert_eq!(spares.bytes(), 8 << 20, "segment_bytes is the most");
    assert_eq!(filled(&spares, || {}), SpareState::Ready);
    assert_eq!(spares_of(&disk), [8, 8]);
    drop((log, spares));
    // What it reached a restart goes on with, and in the segment that is there.
    let (log, ..) = open_with(Arc::new(disk.clone()), growing()).expect("open again");
    assert!(log.is_whole());
    assert_eq!(
        (log.segment_bytes(), log.spares().bytes()),
        (Some(4 << 20), 8 << 20)
    );
}

#[test]
fn a_disk_that_is_full_before_they_grow_keeps_the_short_spares() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), growing()).expect("open");
    let (spares, stop) = (log.spares(), AtomicBool::new(false));
    append(&mut log, 1, b"one");
    sync(&mut log);
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Ready);
    disk.set_capacity(disk.used() + (1 << 20));
    spares.grow(4 << 20);
    assert_eq!(spares.fill(&stop).expect("fill"), SpareState::Low);
    assert_eq!(
        (log.next_bytes(), spares_of(&disk)),
        (Some(2 << 20), vec![2, 2])
    );
    for _ in 0..2 {
        log.begin_segment();
        append(&mut log, 1, b"in the reserve");
        assert!(log.is_whole());
        sync(&mut log);
    }
}
