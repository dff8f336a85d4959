//! Reading any directory neither panics nor grows memory, and open, check and repair agree on it.
//!
//! Directories are made from one sound log by a list of edits: those kept in `tests/corpus`, and
//! random ones. An edit may set a field and make the checksum right again, so that what is behind
//! the checksums is reached too. A failure prints its edits; add them to the corpus.

use crate::common;

use std::{fmt::Write as _, sync::Arc};

use common::open_with;
use quintet_log::{Log, LogError, Options, Storage, check, repair};
use quintet_sim::{
    Random,
    disk::SimDisk,
    log_tests::{append, sync},
};

/// Lists of edits tried at random in each run of the test.
const RANDOM_RUNS: u64 = 4000;

fn options() -> Options {
    Options {
        segment_bytes: 8 << 10,
        spares: 1,
        ..Options::default()
    }
}

/// Three segments, the last with a tail that was not synced, one that was only begun, and a spare.
fn base() -> SimDisk {
    let disk = SimDisk::new(11);
    let (mut log, ..) = open_with(Arc::new(disk.clone()), options()).expect("open");
    for segment in 1..=3_u8 {
        log.begin_segment();
        for number in 1..=5_u8 {
            append(
                &mut log,
                1,
                &vec![segment * 16 + number; usize::from(number) * 37],
            );
            if segment < 3 || number < 4 {
                sync(&mut log);
            }
        }
    }
    log.begin_segment();
    append(&mut log, 1, &[4; 99]);
    log.spares().fill_slice().expect("fill");
    disk
}

/// One change to the directory. Offsets and lengths are taken modulo the file.
#[derive(Clone, Debug)]
enum Edit {
    Flip {
        file: String,
        offset: usize,
        bit: u8,
    },
    Fill {
        file: String,
        offset: usize,
        len: usize,
        byte: u8,
    },
    Cut {
        file: String,
        len: usize,
    },
    Move {
        file: String,
        from: usize,
        to: usize,
        len: usize,
    },
    Rename {
        file: String,
        to: String,
    },
    /// Sets eight bytes of a frame header and seals it again.
    Frame {
        file: String,
        index: usize,
        field: usize,
        value: u64,
    },
    /// Sets eight bytes of both copies of a segment header and seals them again.
    Segment {
        file: String,
        field: usize,
        value: u64,
    },
}

impl Edit {
    fn random(random: &mut Random) -> Self {
        let name = |random: &mut Random| {
            let number = 1 + random.below(4);
            let begun = if number == 4 { 3 } else { 1 };
            let suffix = if random.chance(begun, 4) {
                "new"
            } else {
                "log"
            };
            format!("segment-{number:010}.{suffix}")
        };
        let file = name(random);
        let offset = random.index(6000);
        let value = match random.below(5) {
            0 => random.next_u64(),
            1 => random.below(300),
            2 => 1 << random.below(64),
            3 => u64::MAX - random.below(300),
            _ => random.below(3000),
        };
        match random.below(12) {
            0..=2 => Self::Flip {
                file,
                offset,
                bit: random.below(8) as u8,
            },
            3 => {
                let byte = if random.chance(1, 2) {
                    0
                } else {
                    random.below(256) as u8
                };
                Self::Fill {
                    file,
                    offset,
                    len: random.index(700),
                    byte,
                }
            }
            4..=5 => Self::Cut {
                file,
                len: random.index(6000),
            },
            6 => Self::Move {
                file,
                from: offset,
                to: random.index(6000),
                len: random.index(700),
            },
            7 => Self::Rename {
                file,
                to: name(random),
            },
            8..=10 => {
                let index = random.index(6);
                Self::Frame {
                    file,
                    index,
                    field: 4 + random.index(41),
                    value,
                }
            }
            // Not the first position: with a good checksum no accident changes it, and a repair
            // would fill the gap up to there, however long.
            _ if random.chance(1, 2) => {
                let field = 8 + random.index(9);
                Self::Segment { file, field, value }
            }
            _ => {
                let field = 40 + random.index(9);
                Self::Segment { file, field, value }
            }
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Flip { file, offset, bit } => format!("flip {file} {offset} {bit}"),
            Self::Fill {
                file,
                offset,
                len,
                byte,
            } => format!("fill {file} {offset} {len} {byte}"),
            Self::Cut { file, len } => format!("cut {file} {len}"),
            Self::Move {
                file,
                from,
                to,
                len,
            } => format!("move {file} {from} {to} {len}"),
            Self::Rename { file, to } => format!("rename {file} {to}"),
            Self::Frame {
                file,
                index,
                field,
                value,
            } => {
                format!("frame {file} {index} {field} {value}")
            }
            Self::Segment { file, field, value } => format!("segment {file} {field} {value}"),
        }
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let size = |index: usize| usize::try_from(number(index)).expect("a size");
        let file = words[1].to_owned();
        match words[0] {
            "flip" => Self::Flip {
                file,
                offset: size(2),
                bit: number(3) as u8,
            },
            "fill" => Self::Fill {
                file,
                offset: size(2),
                len: size(3),
                byte: number(4) as u8,
            },
            "cut" => Self::Cut { file, len: size(2) },
            "move" => Self::Move {
                file,
                from: size(2),
                to: size(3),
                len: size(4),
            },
            "rename" => Self::Rename {
                file,
                to: words[2].to_owned(),
            },
            "frame" => Self::Frame {
                file,
                index: size(2),
                field: size(3),
                value: number(4),
            },
            "segment" => Self::Segment {
                file,
                field: size(2),
                value: number(3),
            },
            other => panic!("{other} is not an edit"),
        }
    }

    fn apply(&self, disk: &SimDisk) {
        if let Self::Rename { file, to } = self {
            if disk.rename(file, to).is_ok() {
                disk.sync_dir().expect("sync");
            }
            return;
        }
        let (Self::Flip { file, .. }
        | Self::Fill { file, .. }
        | Self::Cut { file, .. }
        | Self::Move { file, .. }
        | Self::Rename { file, .. }
        | Self::Frame { file, .. }
        | Self::Segment { file, .. }) = self;
        let Some(mut bytes) = disk.content(file) else {
            return;
        };
        let size = bytes.len();
        if size < 4096 + 52 {
            return;
        }
        match self {
            Self::Flip { offset, bit, .. } => bytes[offset % size] ^= 1 << bit,
            Self::Fill {
                offset, len, byte, ..
            } => {
                let start = offset % size;
                bytes[start..(start + len).min(size)].fill(*byte);
            }
            Self::Cut { len, .. } => bytes.truncate(len % size),
            Self::Move { from, to, len, .. } => {
                let from = from % size;
                let end = (from + len).min(size);
                let to = (to % size).min(size - (end - from));
                bytes.copy_within(from..end, to);
            }
            Self::Frame {
                index,
                field,
                value,
                ..
            } => frame(&mut bytes, *index, *field, *value),
            Self::Segment { field, value, .. } => {
                for copy in [0, 2048] {
                    bytes[copy + field..copy + field + 8].copy_from_slice(&value.to_le_bytes());
                    let crc = crc32c::crc32c(&bytes[copy..copy + 2044]);
                    bytes[copy + 2044..copy + 2048].copy_from_slice(&crc.to_le_bytes());
                }
            }
            Self::Rename { .. } => {}
        }
        disk.set_content(file, &bytes);
    }
}

/// Sets eight bytes in the header of a segment's frame `index`, and seals it with the salt there.
fn frame(bytes: &mut [u8], index: usize, field: usize, value: u64) {
    let mut at = 4096;
    for _ in 0..index {
        let Some(len) = bytes.get(at + 4..at + 8) else {
            return;
        };
        let len = u32::from_le_bytes(len.try_into().expect("4 bytes"));
        at += 52 + len as usize;
    }
    if at + 52 > bytes.len() {
        return;
    }
    let salt: [u8; 8] = bytes[24..32].try_into().expect("8 bytes");
    bytes[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&salt), &bytes[at + 4..at + 52]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Properties of every directory.
fn examine(disk: &SimDisk) {
    let before = disk.operations();
    let checked = check(disk, &mut |_| {});
    assert_eq!(disk.operations(), before, "a check changes nothing");
    let opened = disk.fork();
    let result = open_with(Arc::new(opened.clone()), options());
    match &checked {
        Err(LogError::NewerFormat { .. }) => {
            assert!(result.is_err(), "opened what check calls newer");
            return;
        }
        Err(error) => panic!("check failed: {error}"),
        Ok(_) => {}
    }
    let checked = checked.expect("a summary");
    match result {
        Ok((log, recovery, seen)) => {
            drop(log);
            assert_eq!(checked.damaged, 0, "opened what check calls damaged");
            assert_eq!(recovery.end, checked.end);
            assert_eq!(recovery.frames, checked.frames);
            assert_eq!(recovery.cut.is_some(), checked.tail);
            let (_, again, seen_again) =
                open_with(Arc::new(opened), options()).expect("open again");
            assert_eq!((again.end, seen_again), (recovery.end, seen));
        }
        Err(LogError::OtherShard { .. }) => {}
        Err(LogError::Damaged { .. }) => {
            assert_ne!(checked.damaged, 0, "refused what check calls sound");
            assert_eq!(opened.operations(), 0, "an error changes nothing");
        }
        Err(error) => panic!("open failed: {error}"),
    }
    let repaired = repair(disk, &mut |_| {}, &mut |_| Ok(())).expect("repair");
    assert_eq!(repaired.lost.len() as u64, checked.damaged);
    let after = check(disk, &mut |_| {}).expect("check after repair");
    assert_eq!(after.damaged, 0, "damage is left after a repair");
    assert_eq!(
        after.frames - repaired.frames,
        after.frames.saturating_sub(checked.frames)
    );
    match open_with(Arc::new(disk.clone()), options()) {
        Ok((log, recovery, _)) => {
            drop(log);
            assert_eq!(recovery.frames, after.frames);
        }
        Err(LogError::OtherShard { .. }) => {}
        Err(error) => panic!("a repaired log does not open: {error}"),
    }
}

fn run(edits: &[Edit]) -> bool {
    let disk = base();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for edit in edits {
            edit.apply(&disk);
        }
        examine(&disk);
    }))
    .is_ok()
}

#[test]
fn the_corpus() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let edits: Vec<Edit> = lines.map(Edit::parse).collect();
        assert!(!edits.is_empty(), "{} has no edits", path.display());
        assert!(run(&edits), "{}", path.display());
        count += 1;
    }
    assert!(count > 5, "only {count} files");
}

#[test]
fn random_edits() {
    for seed in 0..RANDOM_RUNS {
        let mut random = Random::new(seed);
        let count = 1 + random.below(4);
        let mut edits: Vec<Edit> = (0..count).map(|_| Edit::random(&mut random)).collect();
        if run(&edits) {
            continue;
        }
        // Leave out what the failure does not need.
        let mut index = 0;
        while index < edits.len() {
            let mut fewer = edits.clone();
            fewer.remove(index);
            if run(&fewer) {
                index += 1;
            } else {
                edits = fewer;
            }
        }
        let mut shown = String::new();
        for edit in &edits {
            writeln!(shown, "{}", edit.show()).expect("a string");
        }
        panic!("seed {seed}; add to the corpus:\n{shown}");
    }
}

#[test]
fn a_length_is_not_believed_before_the_file_has_the_bytes() {
    let disk = base();
    let length = (1 << 30) - 1;
    Edit::Frame {
        file: "segment-0000000003.log".to_owned(),
        index: 4,
        field: 4,
        value: length,
    }
    .apply(&disk);
    let before = peak_kib();
    examine(&disk);
    let grown = peak_kib() - before;
    assert!(
        grown < 256 << 10,
        "memory grew by {grown} KiB for a frame that is not there"
    );
}

/// The most memory this process ever mapped, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmPeak:"))
        .expect("a peak");
    line.split_whitespace()
        .nth(1)
        .expect("a figure")
        .parse()
        .expect("a number")
}
