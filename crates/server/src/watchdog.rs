//! Tells systemd that the server lives, as long as it answers: each I/O thread
//! and every shard. What hangs is ended and started again by systemd
//! (`WatchdogSec=`), and loses nothing that was acknowledged.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quintet_edge::Edge;
use quintet_host::locked;
use quintet_process::notify;
use quintet_types::{Command, StatsOf};

/// The serving part, as long as it serves.
pub(crate) type Watched = Arc<Mutex<Weak<Edge>>>;

/// Starts the thread, if systemd wants to hear; it ends with the process. While nothing serves, as
/// on a node that stands by, it says only that the process lives.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn start() -> Result<Watched> {
    let watched = Watched::default();
    if let Some(within) = notify::watchdog() {
        let watched = Arc::clone(&watched);
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        let body = move || {
            loop {
                // As sd_watchdog_enabled(3) advises, and once more.
                std::thread::sleep(within / 3);
                let edge = locked(&watched).upgrade();
                if edge.is_none_or(|edge| answers(&edge, within)) {
                    notify::alive();
                }
            }
        };
        thread.spawn(body).context("cannot start a thread")?;
    }
    Ok(watched)
}

/// True if all parts of it answer in this time. A shard that is locked for good
/// keeps this from returning, which says the same.
fn answers(edge: &Edge, within: Duration) -> bool {
    let began = Instant::now();
    let (sender, receiver) = channel();
    let threads = edge.threads.len();
    for thread in 0..threads {
        let sender = sender.clone();
        edge.ask_thread(
            thread,
            Box::new(move || {
                // It may be too late.
                let _delivered = sender.send(());
            }),
        );
    }
    for _ in 0..threads {
        let left = within.saturating_sub(began.elapsed());
        if receiver.recv_timeout(left).is_err() {
            tracing::error!(
                "an I/O thread does not respond: the server does not notify the systemd watchdog"
            );
            return false;
        }
    }
    // Each shard is locked for it; what it says is of no interest.
    let _answer = edge.core.peek(Command::Stats(StatsOf::Shard));
    true
}
