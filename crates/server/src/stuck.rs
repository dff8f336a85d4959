//! The end of a server for which there is no space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quintet_host::locked;

use crate::server::Server;

/// What that means for clients.
pub(crate) const LOST: &str = "the disk is full: what was decided last and not answered is lost";
/// How often is looked whether anything can be written.
const LOOK: Duration = Duration::from_millis(50);

/// A stop waits for parts that ask through the door, and these for answers, which may not leave
/// before what they say is written. Where it cannot be, the server ends without them, once clients
/// and scripts have had their time.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn watch_stop(server: &Arc<Server>) -> Result<()> {
    let stop_wait = server.limits.stop_wait_ms.load(Ordering::Relaxed);
    let grace = locked(&server.config).script_grace_ms;
    let (began, given) = (
        Instant::now(),
        Duration::from_millis(stop_wait.saturating_add(grace)),
    );
    watch(server, || false, move || began.elapsed() >= given)
}

/// A start waits for the same parts, and obeys no order meanwhile: told to stop while nothing can
/// be written, the server ends. `stops` is set by the signal. Until the answer is dropped.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn watch_start(server: &Arc<Server>, stops: Arc<AtomicBool>) -> Result<Arc<()>> {
    let starting = Arc::new(());
    let waits = Arc::downgrade(&starting);
    let started = move || Weak::strong_count(&waits) == 0;
    watch(server, started, move || stops.load(Ordering::Relaxed))?;
    Ok(starting)
}

/// Ends the server where nothing can be written once it `is_due`; until it `is_over`.
fn watch(
    server: &Arc<Server>,
    is_over: impl Fn() -> bool + Send + 'static,
    is_due: impl Fn() -> bool + Send + 'static,
) -> Result<()> {
    let server = Arc::downgrade(server);
    let look = move || {
        while let Some(server) = server.upgrade()
            && !is_over()
        {
            if is_due() && server.core.is_stuck() {
                eprintln!("quintet: {LOST}");
                std::process::exit(1);
            }
            drop(server);
            thread::sleep(LOOK);
        }
    };
    let thread = thread::Builder::new().name("stuck".to_owned());
    thread.spawn(look).context("cannot start a thread")?;
    Ok(())
}
