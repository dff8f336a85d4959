//! The retry policy of a queue: how long a failed message rests, and when it was tried enough.

use crate::id::MessageId;
use crate::lease::Return;
use crate::retry::mixed;
use crate::settings::QueueSettings;

impl QueueSettings {
    /// True if the end of a lease for this reason is a failure here, though nobody said so.
    pub fn fails_by(&self, why: Return) -> bool {
        (self.retry_delay_ms > 0 || self.retry_max > 0) && self.retry_on.counts(why)
    }

    /// How long a message rests after its so many-th failure, ms: the first delay, times the factor
    /// for each failure before, `retry_delay_max_ms` at most; and up to `retry_jitter` percent of
    /// it more, by a hash of the message's id and the number, so that those that failed together do
    /// not come back together, and the same decision is made wherever it is made.
    pub fn retry_after_ms(&self, id: MessageId, failures: u32) -> u64 {
        let most = self.retry_delay_max_ms;
        let mut delay = self.retry_delay_ms.min(most);
        if self.retry_factor > 1 && delay > 0 {
            for _ in 1..failures {
                if delay >= most {
                    break;
                }
                delay = delay.saturating_mul(u64::from(self.retry_factor)).min(most);
            }
        }
        let share = u128::from(mixed(id.0 ^ u64::from(failures).rotate_left(32)) >> 32);
        let more = u128::from(delay) * u128::from(self.retry_jitter) * share / (100 << 32);
        delay.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    /// True if a message that failed so often is not tried again.
    pub fn failed_enough(&self, failures: u32) -> bool {
        self.retry_max > 0 && failures > self.retry_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryOn;

    fn policy(delay_ms: u64, factor: u32, most: u64, jitter: u32) -> QueueSettings {
        QueueSettings {
            retry_delay_ms: delay_ms,
            retry_factor: factor,
            retry_delay_max_ms: most,
            retry_jitter: jitter,
            ..QueueSettings::default()
        }
    }

    #[test]
    fn each_rest_is_longer_up_to_the_longest() {
        let policy = policy(100, 3, 5000, 0);
        let rests = [1, 2, 3, 4, 5, u32::MAX].map(|n| policy.retry_after_ms(MessageId(7), n));
        assert_eq!(rests, [100, 300, 900, 2700, 5000, 5000]);
    }

    #[test]
    fn without_a_factor_all_rests_are_alike_and_without_a_delay_there_is_none() {
        for failures in [1, 2, u32::MAX] {
            let id = MessageId(1);
            assert_eq!(policy(100, 1, 5000, 0).retry_after_ms(id, failures), 100);
            assert_eq!(policy(0, 2, 5000, 100).retry_after_ms(id, failures), 0);
            assert_eq!(policy(100, 2, 0, 100).retry_after_ms(id, failures), 0);
        }
        let longest = policy(u64::MAX, u32::MAX, u64::MAX, 100);
        assert_eq!(longest.retry_after_ms(MessageId(3), u32::MAX), u64::MAX);
    }

    #[test]
    fn jitter_adds_its_share_and_parts_those_that_failed_together() {
        let policy = policy(1000, 2, 1000, 20);
        let rests: Vec<u64> = (1..1000)
            .map(|id| policy.retry_after_ms(MessageId(id), 1))
            .collect();
        assert!(rests.iter().all(|rest| (1000..1200).contains(rest)));
        let mut hundredths = [0; 10];
        for rest in rests {
            hundredths[((rest - 1000) / 20) as usize] += 1;
        }
        assert!(hundredths.iter().all(|&count| count > 50), "{hundredths:?}");
    }

    #[test]
    fn causes_that_are_left_out_are_no_failures() {
        let all = QueueSettings {
            retry_max: 1,
            ..QueueSettings::default()
        };
        let some = QueueSettings {
            retry_on: RetryOn::TIMEOUT.and(RetryOn::LOST),
            ..all.clone()
        };
        let by = |settings: &QueueSettings| {
            Return::ALL
                .iter()
                .map(|why| settings.fails_by(*why))
                .collect::<Vec<_>>()
        };
        assert_eq!(by(&all), [true, true, true, false, false]);
        assert_eq!(by(&some), [false, true, true, false, false]);
        assert_eq!(by(&QueueSettings::default()), [false; 5], "no policy");
        assert!(!all.failed_enough(1) && all.failed_enough(2));
    }
}
