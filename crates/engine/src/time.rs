//! Engine time. The engine has no clock: the caller brings the time along.

use std::fmt;
use std::ops::{Add, Sub};

/// A moment: milliseconds since the Unix epoch (UTC).
///
/// Engine time is the larger of the wall clock and the time of the newest
/// frame in the log, so it never goes back; deadlines are absolute, so the
/// time a server was down counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ms(pub u64);

impl Ms {
    /// The moment that never comes.
    pub const NEVER: Ms = Ms(u64::MAX);

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is the later one.
    pub fn since(self, earlier: Ms) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Ms {
    type Output = Ms;
    /// `ms` milliseconds later; saturates at [`Ms::NEVER`].
    fn add(self, ms: u64) -> Ms {
        Ms(self.0.saturating_add(ms))
    }
}

impl Sub<u64> for Ms {
    type Output = Ms;
    fn sub(self, ms: u64) -> Ms {
        Ms(self.0.saturating_sub(ms))
    }
}

impl fmt::Debug for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ms::NEVER {
            f.write_str("never")
        } else {
            write!(f, "{}ms", self.0)
        }
    }
}
