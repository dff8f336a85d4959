//! The machine's clock, threads and random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};

/// The wall clock, Unix ms; 0 for a time before 1970.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Starts a thread that ends by itself or with the process.
///
/// # Errors
/// There is no thread to be had.
pub fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(body).context("cannot start a thread")?;
    Ok(())
}

/// So many random bytes of the system's.
///
/// # Errors
/// It has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)
            .map_err(|error| anyhow!("the system has no random numbers: {error}"))?;
    }
    Ok(bytes)
}
