//! The machine's clock and random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};

/// The wall clock, Unix ms; 0 for a time before 1970.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
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
