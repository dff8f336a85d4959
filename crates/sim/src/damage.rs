//! Properties of the log's reader, whatever stands in a segment.

use std::sync::{Arc, LazyLock};

use quintet_log::{LocalLog, Log, LogError, Options, Recovery, check, repair};

use crate::disk::SimDisk;
use crate::log_tests::{append, sync};

const FILE: &str = "segment-0000000001.log";

/// A log of a few frames, the last of them not known to have been synced.
static SOUND: LazyLock<SimDisk> = LazyLock::new(|| {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, &mut 0).expect("an empty disk is a log");
    for number in 1..=5_u8 {
        append(&mut log, 1, &vec![number; usize::from(number) * 30]);
        sync(&mut log);
    }
    drop(log);
    disk
});

fn open(disk: &SimDisk, frames: &mut u64) -> Result<(impl Log + use<>, Recovery), LogError> {
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::default()
    };
    LocalLog::open(Arc::new(disk.clone()), options, &mut |_| {
        *frames += 1;
        Ok(())
    })
}

/// Bytes of the sound segment that [`survive`] writes over.
pub fn sound_len() -> usize {
    SOUND.content(FILE).map_or(0, |content| content.len())
}

/// A sound segment with any bytes written over any place: the first two of
/// `input` are the place, the rest is what is written there. Opening, checking
/// and repairing answer; what was repaired opens. Shared by the log's tests and
/// the fuzz target `frames`.
///
/// # Panics
/// If they do not.
pub fn survive(input: &[u8]) {
    let Some((position, bytes)) = input.split_first_chunk() else {
        return;
    };
    let mut content = SOUND.content(FILE).expect("the first segment");
    let from = usize::from(u16::from_le_bytes(*position)) % content.len();
    let len = bytes.len().min(content.len() - from);
    content[from..from + len].copy_from_slice(&bytes[..len]);
    let disk = SOUND.fork();
    disk.set_content(FILE, &content);

    let mut frames = 0;
    if let Ok((_, recovery)) = open(&disk.fork(), &mut frames) {
        assert_eq!(recovery.frames, frames);
    }
    check(&disk, &mut |_| {}).ok();
    if repair(&disk, &mut |_| {}, &mut |_| Ok(())).is_ok() {
        open(&disk, &mut frames).expect("the repaired log opens");
    }
}
