//! Telling systemd how the server stands (sd_notify(3)).

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Every listener accepts.
pub fn ready() {
    notify("READY=1");
}

/// The server has begun to stop.
pub fn stopping() {
    notify("STOPPING=1");
}

/// The server answers.
pub fn alive() {
    notify("WATCHDOG=1");
}

/// How long systemd waits to hear so (`WatchdogSec=`). `None`: it does not.
pub fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().ok());
    // Meant for another process of this service.
    if number("WATCHDOG_PID").is_some_and(|pid| pid != Some(u64::from(std::process::id()))) {
        return None;
    }
    let us = number("WATCHDOG_USEC")??;
    (us > 0).then(|| Duration::from_micros(us))
}

fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!("cannot tell systemd {state}: {error}");
    }
}

/// A path that begins with `@` is a name in the abstract namespace.
fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
