//! What an operator should look at, told from a queue's numbers alone.

use quintet_engine::QueueStats;

use super::words::{count, duration, of};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Level {
    /// Nothing is wrong.
    Quiet,
    Warning,
    Alarm,
}

/// What is wrong with a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Worry {
    pub(super) level: Level,
    /// Goes on from the queue's name: `is paused; 1,204 wait.`
    pub(super) says: String,
    /// Why, as far as the numbers tell.
    pub(super) because: String,
    /// What can be done about it at once.
    pub(super) way: Way,
}

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Look,
    Resume,
    /// To its buried messages.
    Buried,
}

/// So long a ready message waits before nobody's taking it is worth a word, ms.
const NOT_TAKEN_MS: u64 = 5 * 60_000;

/// The worst thing about a queue, if there is any.
pub(super) fn worry(stats: &QueueStats) -> Option<Worry> {
    let gauges = &stats.gauges;
    let waits = gauges.ready;
    let warning = |says: String, because: String, way| {
        Some(Worry {
            level: Level::Warning,
            says,
            because,
            way,
        })
    };
    if stats.down {
        return Some(Worry {
            level: Level::Alarm,
            says: format!(
                "is down: puts are refused, takes wait; {} ready.",
                count(waits)
            ),
            because: String::new(),
            way: Way::Look,
        });
    }
    if stats.paused && waits > 0 {
        let left = match stats.paused_left_ms {
            0 => "until it is resumed".to_owned(),
            left => format!("for another {}", duration(left)),
        };
        let says = format!("is paused {left}; {} ready.", count(waits));
        return warning(says, takers(gauges.waiters), Way::Resume);
    }
    if waits > 0 && not_taken(stats) {
        let says = format!(
            "is not taken from: {} ready, the oldest for {}.",
            count(waits),
            duration(stats.oldest_ms)
        );
        return warning(says, takers(gauges.waiters), Way::Look);
    }
    if gauges.buried > 0 {
        let says = format!("has {} buried.", of(gauges.buried, "message", "messages"));
        let because = "They wait until somebody retries, moves or deletes them.".to_owned();
        return warning(says, because, Way::Buried);
    }
    None
}

/// Nobody holds or waits for anything, and something waits for long.
pub(super) fn not_taken(stats: &QueueStats) -> bool {
    let gauges = &stats.gauges;
    gauges.ready > 0
        && stats.oldest_ms >= NOT_TAKEN_MS
        && gauges.waiters + gauges.lookers + gauges.reserved == 0
}

fn takers(waiters: u64) -> String {
    match waiters {
        0 => "Nobody waits to take.".to_owned(),
        1 => "1 connection waits to take.".to_owned(),
        more => format!("{} connections wait to take.", count(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl FnOnce(&mut QueueStats)) -> Option<(Level, String)> {
        let mut stats = QueueStats::default();
        change(&mut stats);
        worry(&stats).map(|worry| (worry.level, worry.says))
    }

    #[test]
    fn a_healthy_queue_is_quiet() {
        assert_eq!(told(|_| {}), None);
        assert_eq!(
            told(|stats| {
                stats.gauges.ready = 1_000_000;
                stats.oldest_ms = 2000;
            }),
            None
        );
        // Somebody works on it.
        assert_eq!(
            told(|stats| {
                stats.gauges.ready = 5;
                stats.gauges.reserved = 1;
                stats.oldest_ms = NOT_TAKEN_MS;
            }),
            None
        );
        // A pause that holds nothing up.
        assert_eq!(told(|stats| stats.paused = true), None);
    }

    #[test]
    fn the_worst_is_told() {
        let paused = |stats: &mut QueueStats| {
            stats.paused = true;
            stats.gauges.ready = 1204;
            stats.gauges.buried = 3;
        };
        let says = "is paused until it is resumed; 1,204 ready.".to_owned();
        assert_eq!(told(paused), Some((Level::Warning, says)));
        let (level, says) = told(|stats| {
            paused(stats);
            stats.down = true;
        })
        .expect("a worry");
        assert_eq!(level, Level::Alarm);
        assert!(says.starts_with("is down"), "{says}");
        let (_, says) = told(|stats| stats.gauges.buried = 1).expect("a worry");
        assert_eq!(says, "has 1 message buried.");
        let (_, says) = told(|stats| {
            stats.gauges.ready = 1;
            stats.oldest_ms = NOT_TAKEN_MS;
        })
        .expect("a worry");
        assert_eq!(says, "is not taken from: 1 ready, the oldest for 5 m 00 s.");
    }
}
