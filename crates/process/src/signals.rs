//! Signals become requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::{MainRequest, again};

/// Exit code after a second SIGTERM or SIGINT.
const IMPATIENT: i32 = 1;

/// From now on SIGTERM and SIGINT stop the server (a second one ends it at
/// once), SIGHUP reloads the configuration, SIGUSR1 drains. The flag is set with the first stop.
///
/// # Errors
/// The system does not let this process handle signals.
pub fn listen(requests: Sender<MainRequest>) -> Result<Arc<AtomicBool>> {
    // A file that may not grow is a full disk, not an end: the write says so.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot handle signals")?;
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).context("cannot handle signals")?;
    let stops = Arc::new(AtomicBool::new(false));
    let received = Arc::clone(&stops);
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread
        .spawn(move || {
            for signal in signals.forever() {
                let request = match signal {
                    SIGHUP => MainRequest::Reload(None, None),
                    SIGUSR1 => MainRequest::Drain(true),
                    _ if received.swap(true, Ordering::Relaxed) => std::process::exit(IMPATIENT),
                    _ => {
                        again::stops();
                        MainRequest::Stop
                    }
                };
                let stops = matches!(request, MainRequest::Stop);
                if requests.send(request).is_err() && !stops {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(stops)
}
