//! When a failed message is tried again: the reasons that count, and the rests a message asks for
//! itself.

use crate::id::MessageId;
use crate::lease::Return;

/// The events that count as a failed try, besides the holder's own report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryOn(u8);

impl RetryOn {
    /// The holder gave it back without a delay of its own.
    pub const RELEASE: Self = Self(1);
    /// The lease ran out.
    pub const TIMEOUT: Self = Self(1 << 1);
    /// The holder's connection or process is gone.
    pub const LOST: Self = Self(1 << 2);
    /// All of them.
    pub const ALL: Self = Self(Self::RELEASE.0 | Self::TIMEOUT.0 | Self::LOST.0);
    /// Only what is said to have failed.
    pub const NONE: Self = Self(0);

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` count.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As records hold it.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The one with these bits; `None`: one of them is not known.
    pub fn of_bits(bits: u32) -> Option<Self> {
        let known = u8::try_from(bits).ok();
        known.filter(|bits| bits & !Self::ALL.0 == 0).map(Self)
    }

    /// True if the end of a lease for this reason counts.
    pub fn counts(self, why: Return) -> bool {
        match why {
            Return::Released => self.has(Self::RELEASE),
            Return::Timeout => self.has(Self::TIMEOUT),
            Return::Lost => self.has(Self::LOST),
            Return::Pending | Return::Unheard => false,
        }
    }
}

/// How a message is tried again, in place of its queue's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retry {
    /// Failures after which it is tried again; one more ends it, by the
    /// dead-letter rule. Below 0: the first does. 0: the first removes it.
    pub max: i64,
    /// How often it has failed before it was put.
    pub failures: u32,
    /// How long it rests.
    pub backoff: Backoff,
    /// A lease that ran out, or was lost, is a failure too. Else only what is
    /// said to have failed.
    pub on_timeout: bool,
    /// How long it stays when it is buried, ms; 0: as its queue says.
    pub buried_ttl_ms: u64,
}

/// How long a message rests after its failure number `c`, counted from 0, ms:
/// `base_ms` + `factor_ms` × `c`^`power` + `jitter_ms` × (`c` + 1) × `r`, where
/// `r` is 0 to 29, by a hash of its id and the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backoff {
    pub base_ms: u64,
    pub factor_ms: u64,
    pub power: u8,
    pub jitter_ms: u64,
    /// The longest rest; 0: none is too long.
    pub cap_ms: u64,
}

/// Values of `r`.
const SPREAD: u64 = 30;

impl Backoff {
    /// The rest after so many failures, 1 or more.
    pub fn after_ms(&self, id: MessageId, failures: u32) -> u64 {
        let c = u64::from(failures.saturating_sub(1));
        let r = ((mixed(id.0 ^ c.rotate_left(32)) >> 32) * SPREAD) >> 32;
        let grown = self
            .factor_ms
            .saturating_mul(c.saturating_pow(u32::from(self.power)));
        let spread = self.jitter_ms.saturating_mul((c + 1) * r);
        let rest = self.base_ms.saturating_add(grown).saturating_add(spread);
        match self.cap_ms {
            0 => rest,
            cap => rest.min(cap),
        }
    }
}

impl Retry {
    /// True if the end of a lease for this reason is a failure, though nobody said so.
    pub fn fails_by(&self, why: Return) -> bool {
        self.on_timeout && matches!(why, Return::Timeout | Return::Lost)
    }

    /// True if a message that failed so often is not tried again.
    pub fn failed_enough(&self, failures: u32) -> bool {
        i64::from(failures) > self.max
    }
}

/// The finalizer of splitmix64: each bit of the number changes half of the others.
pub fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_by_the_power_and_spread_with_the_number() {
        let backoff = Backoff {
            base_ms: 15_000,
            factor_ms: 1000,
            power: 4,
            jitter_ms: 1000,
            cap_ms: 0,
        };
        for (failures, least) in [(1u32, 15_000u64), (2, 16_000), (4, 96_000), (6, 640_000)] {
            let mut seen = std::collections::BTreeSet::new();
            for id in 1..1000 {
                let more = backoff.after_ms(MessageId(id), failures) - least;
                let step = 1000 * u64::from(failures);
                assert!(more.is_multiple_of(step) && more / step < SPREAD, "{more}");
                seen.insert(more / step);
            }
            assert_eq!(seen.len() as u64, SPREAD);
        }
        let capped = Backoff {
            cap_ms: 20_000,
            jitter_ms: 0,
            ..backoff
        };
        assert_eq!(capped.after_ms(MessageId(1), 3), 20_000);
        let most = Backoff {
            base_ms: u64::MAX,
            factor_ms: u64::MAX,
            power: u8::MAX,
            jitter_ms: u64::MAX,
            cap_ms: 0,
        };
        assert_eq!(most.after_ms(MessageId(1), u32::MAX), u64::MAX);
    }

    #[test]
    fn one_retry_means_two_runs() {
        let retry = |max| Retry {
            max,
            ..Retry::default()
        };
        assert!(!retry(1).failed_enough(1) && retry(1).failed_enough(2));
        assert!(retry(0).failed_enough(1) && retry(-1).failed_enough(1));
        assert!(!retry(i64::MAX).failed_enough(u32::MAX));
    }
}
