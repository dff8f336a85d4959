//! Helpers for the log's tests.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod runs;
pub(crate) mod world;

use std::sync::Arc;

use quintet_log::{LocalLog, LogError, Options, Recovery, Storage};
use quintet_sim::log_tests::FrameRecord;

/// Small enough that tests rotate, and that every byte can be tried.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

pub(crate) fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        ..Options::default()
    }
}

/// Opens a local log and returns all that it replayed.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
) -> Result<(LocalLog, Recovery, Vec<FrameRecord>), LogError> {
    open_with(storage, options())
}

pub(crate) fn open_with(
    storage: Arc<dyn Storage>,
    options: Options,
) -> Result<(LocalLog, Recovery, Vec<FrameRecord>), LogError> {
    let mut frames = Vec::new();
    let (log, recovery) = LocalLog::open(storage, options, &mut |frame| {
        frames.push(FrameRecord::of(&frame));
        Ok(())
    })?;
    Ok((log, recovery, frames))
}
