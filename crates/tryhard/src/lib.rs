//! What async-nats uses of the crate `tryhard`, without tokio's `test-util`.

use std::time::Duration;

/// Something to ask until it succeeds.
#[derive(Debug)]
pub struct Retry<F> {
    ask: F,
    most: u32,
}

/// Asks `ask`, and no more than once until [`Retry::retries`] allows it.
pub fn retry_fn<F>(ask: F) -> Retry<F> {
    Retry { ask, most: 0 }
}

impl<F> Retry<F> {
    /// So many times more at most.
    #[must_use]
    pub fn retries(mut self, most: u32) -> Self {
        self.most = most;
        self
    }

    /// Asks, and between two times waits as long as `backoff` says of the number of failures.
    ///
    /// # Errors
    /// Of the last time.
    pub async fn custom_backoff<T, E, Asked, B>(mut self, mut backoff: B) -> Result<T, E>
    where
        F: FnMut() -> Asked,
        Asked: Future<Output = Result<T, E>>,
        B: FnMut(u32, &E) -> Duration,
    {
        for failures in 1..=self.most {
            let wait = match (self.ask)().await {
                Ok(answer) => return Ok(answer),
                Err(error) => backoff(failures, &error),
            };
            tokio::time::sleep(wait).await;
        }
        (self.ask)().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::retry_fn;

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_until_it_succeeds_or_as_often_as_allowed() {
        for (most, succeeds, asked) in [(0, 1, 1), (3, 2, 2), (3, 4, 4), (3, 9, 4)] {
            let began = tokio::time::Instant::now();
            let mut times = 0;
            let ask = || {
                times += 1;
                let now = times;
                async move { if now == succeeds { Ok(now) } else { Err(now) } }
            };
            let backoff = |failures, last: &u32| {
                assert_eq!(failures, *last);
                Duration::from_secs(u64::from(failures))
            };
            let end = retry_fn(ask).retries(most).custom_backoff(backoff).await;
            assert_eq!(
                end,
                if succeeds == asked {
                    Ok(asked)
                } else {
                    Err(asked)
                }
            );
            let waited = (1..asked).map(u64::from).sum();
            assert_eq!(began.elapsed(), Duration::from_secs(waited));
        }
    }
}
