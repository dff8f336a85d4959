//! The end of a server for which there is no space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use quintet_host::Core;

/// Consequence for clients.
pub const LOST: &str = "the disk is full: the last changes without a reply are lost";
/// How often is looked whether anything can be written.
const LOOK: Duration = Duration::from_millis(50);

/// A stop waits for parts that ask through the client API, and these for answers, which may not
/// leave before what they say is written. Where it cannot be, the server ends without them after
/// `time_limit`.
///
/// # Errors
/// There is no thread to be had.
pub fn watch_stop(core: &Arc<Core>, time_limit: Duration) -> Result<()> {
    let began = Instant::now();
    watch(core, || false, move || began.elapsed() >= time_limit)
}

/// A start waits for the same parts, and obeys no order meanwhile: told to stop while nothing can
/// be written, the server ends. `stops` is set by the signal. Until the answer is dropped.
///
/// # Errors
/// There is no thread to be had.
pub fn watch_start(core: &Arc<Core>, stops: Arc<AtomicBool>) -> Result<Arc<()>> {
    let starting = Arc::new(());
    let waits = Arc::downgrade(&starting);
    let started = move || Weak::strong_count(&waits) == 0;
    watch(core, started, move || stops.load(Ordering::Relaxed))?;
    Ok(starting)
}

/// Ends the server where nothing can be written once it `is_due`; until it `is_over`.
fn watch(
    core: &Arc<Core>,
    is_over: impl Fn() -> bool + Send + 'static,
    is_due: impl Fn() -> bool + Send + 'static,
) -> Result<()> {
    let core = Arc::downgrade(core);
    let check = move || {
        while let Some(core) = core.upgrade()
            && !is_over()
        {
            if is_due() && core.is_stuck() {
                eprintln!("quintet: {LOST}");
                std::process::exit(1);
            }
            drop(core);
            thread::sleep(LOOK);
        }
    };
    quintet_host::thread("stuck", check)
}
