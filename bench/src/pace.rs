//! When each request of a thread is meant to leave, at a fixed rate.

/// The times of one thread's requests, nanoseconds since the start.
///
/// They depend on nothing that happens: a request that could not leave in
/// time keeps its place in the row, and its latency counts from there.
pub(crate) struct Pace {
    /// Nanoseconds from one request to the next.
    interval: f64,
    /// When the first is due.
    offset: f64,
    next: u64,
    /// Requests at most.
    count: u64,
    /// No request is due at this time or later.
    end: u64,
}

impl Pace {
    /// The share of thread `thread` of `threads` in `rate` requests a second;
    /// `count` of them, and none from `end` nanoseconds on.
    pub(crate) fn new(rate: f64, thread: usize, threads: usize, count: u64, end: u64) -> Self {
        let step = 1e9 / rate;
        Self {
            interval: step * threads as f64,
            offset: step * thread as f64,
            next: 0,
            count,
            end,
        }
    }

    /// When the next request is due; `None` if there are no more.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let at = (self.offset + self.interval * self.next as f64) as u64;
        (self.next < self.count && at < self.end).then_some(at)
    }

    /// Takes the next request if it is due at `now`; answers when it was.
    pub(crate) fn take(&mut self, now: u64) -> Option<u64> {
        let at = self.next_at().filter(|&at| at <= now)?;
        self.next += 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use crate::report::Recorder;

    const MS: u64 = 1_000_000;

    #[test]
    fn threads_share_the_rate() {
        let mut all: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut pace = Pace::new(1000.0, thread, 3, u64::MAX, 9 * MS);
                std::iter::from_fn(move || pace.take(u64::MAX)).collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..9).map(|n| n * MS).collect::<Vec<_>>());
    }

    #[test]
    fn the_count_ends_it() {
        let mut pace = Pace::new(1000.0, 0, 1, 2, u64::MAX);
        assert_eq!(pace.take(0), Some(0));
        assert_eq!(pace.take(0), None, "not due yet");
        assert_eq!(pace.take(5 * MS), Some(MS));
        assert_eq!((pace.take(5 * MS), pace.next_at()), (None, None));
    }

    /// A server that answers in 1 ms but stands still from 1 s to 2 s, with
    /// one connection and 100 requests a second for 10 s. Counted from the
    /// moment of sending, one request of 1,000 is slow. Counted from when
    /// they were due, all the 100 that the stall held up are.
    #[test]
    fn a_stall_is_charged_with_all_it_held_up() {
        let mut pace = Pace::new(100.0, 0, 1, u64::MAX, 10_000 * MS);
        let (mut due, mut sent) = (Recorder::default(), Recorder::default());
        let mut free = 0;
        while let Some(at) = pace.next_at() {
            let now = free.max(at);
            assert_eq!(pace.take(now), Some(at));
            let stalled = (1000 * MS..2000 * MS).contains(&now);
            free = if stalled { 2000 * MS } else { now } + MS;
            due.record(free - at);
            sent.record(free - now);
        }
        assert_eq!((due.count(), sent.count()), (1000, 1000));
        assert_eq!(sent.count_over(500 * MS), 1);
        // Number n after the stall began was due n x 10 ms into it and is
        // answered n ms after its end: 1001 - 9n ms later.
        assert_eq!(due.count_over(500 * MS), 56);
        assert!(due.latency().p99_us > 900_000.0);
        assert!(sent.latency().p99_us < 2_000.0);
    }
}
