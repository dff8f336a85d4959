//! Engine time. The engine has no clock: the caller brings the time along.

use std::fmt;
use std::ops::{Add, Sub};

/// A moment: milliseconds since the Unix epoch (UTC).
///
/// Engine time begins at the larger of the wall clock and the time of the
/// newest frame in the log, so it never goes back and the time a server was
/// down counts; from there it goes on at the speed of a monotonic clock,
/// whatever the wall clock does ([`WallAhead`]).
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

/// How many milliseconds the wall clock is ahead of engine time; negative:
/// behind. Not 0 once the wall clock was set while a server ran, or where the
/// log was written under a clock that ran ahead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WallAhead(pub i64);

impl WallAhead {
    /// Of two readings of one moment.
    pub fn between(engine: Ms, wall: Ms) -> Self {
        let signed = |ms: Ms| i64::try_from(ms.0).unwrap_or(i64::MAX);
        Self(signed(wall) - signed(engine))
    }

    /// The wall clock's time at `engine`.
    pub fn wall_at(self, engine: Ms) -> Ms {
        Ms(engine.0.saturating_add_signed(self.0))
    }

    /// Engine time when the wall clock will show `wall`, if nobody sets it.
    pub fn engine_at(self, wall: Ms) -> Ms {
        Ms(wall.0.saturating_add_signed(self.0.saturating_neg()))
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
