//! Sends that are sent again are answered as the first time: SDKs name a call
//! over all its attempts.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_http::locked;
use ring::digest;
use tokio::sync::watch;

use crate::fault::Fault;

/// Calls that are remembered at most.
const CALLS_MAX: usize = 65_536;

/// Results of messages of all these calls at most: ten for each, as many as AWS takes.
const RESULTS_MAX: usize = 10 * CALLS_MAX;

/// A call: a hash of its name, its action and its body.
pub(crate) type Call = [u8; 16];

/// Result for each message of a call: the id, or why it was not put.
pub(crate) type Stored = Arc<[Result<u64, Fault>]>;

/// A call's hash.
pub(crate) fn call(parts: &[&[u8]]) -> Call {
    let mut sum = digest::Context::new(&digest::SHA256);
    for part in parts {
        sum.update(&(part.len() as u64).to_be_bytes());
        sum.update(part);
    }
    let mut call = [0; 16];
    call.copy_from_slice(&sum.finish().as_ref()[..16]);
    call
}

/// The calls of late.
pub(crate) struct Once {
    window: Duration,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    known: HashMap<Call, watch::Receiver<Option<Result<Stored, Fault>>>>,
    /// In the order they came, with the number of their messages.
    order: VecDeque<(Instant, Call, usize)>,
    /// Messages of them all.
    results: usize,
}

impl Once {
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window,
            calls: Mutex::default(),
        }
    }

    /// Does a call with so many messages, or tells what came of it before, or
    /// waits for that. It is done to its end also if nobody waits any more. One
    /// that failed as a whole may be done again.
    ///
    /// # Errors
    /// The call's.
    pub(crate) async fn run<F>(
        self: &Arc<Self>,
        call: Call,
        messages: usize,
        put: F,
    ) -> Result<Stored, Fault>
    where
        F: Future<Output = Result<Stored, Fault>> + Send + 'static,
    {
        let (mut received, sender) = {
            let mut calls = locked(&self.calls);
            calls.forget(self.window);
            match calls.known.get(&call) {
                Some(received) => (received.clone(), None),
                None => {
                    let (sender, received) = watch::channel(None);
                    calls.known.insert(call, received.clone());
                    calls.order.push_back((Instant::now(), call, messages));
                    calls.results += messages;
                    (received, Some(sender))
                }
            }
        };
        if let Some(sender) = sender {
            let own = Arc::clone(self);
            tokio::spawn(async move {
                let came = put.await;
                if came.is_err() {
                    locked(&own.calls).known.remove(&call);
                }
                sender.send_replace(Some(came));
            });
        }
        let came = received.wait_for(Option::is_some).await;
        match came.as_deref() {
            Ok(Some(came)) => came.clone(),
            _ => Err(Fault::internal("a send was not done to its end")),
        }
    }
}

impl Calls {
    fn forget(&mut self, window: Duration) {
        while let Some((since, call, messages)) = self.order.front()
            && (self.order.len() >= CALLS_MAX
                || self.results >= RESULTS_MAX
                || since.elapsed() > window)
        {
            self.known.remove(call);
            self.results -= messages;
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_call_is_done_once_and_its_reply_repeated() {
        let once = Arc::new(Once::new(Duration::from_secs(120)));
        let done = Arc::new(AtomicU64::new(0));
        let run = |name: &str| {
            let done = Arc::clone(&done);
            once.run(call(&[name.as_bytes()]), 1, async move {
                tokio::task::yield_now().await;
                let id = done.fetch_add(1, Ordering::Relaxed);
                Ok(Arc::from([Ok(id)]))
            })
        };
        let id = |stored: Result<Stored, Fault>| stored.expect("stored")[0].clone().expect("an id");
        let (first, again) = tokio::join!(run("a"), run("a"));
        assert_eq!((id(first), id(again)), (0, 0));
        assert_eq!(id(run("b").await), 1);
        assert_eq!(id(run("a").await), 0);
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_call_that_failed_is_done_again() {
        let once = Arc::new(Once::new(Duration::from_secs(120)));
        let failed = once
            .run([1; 16], 1, async { Err(Fault::internal("full")) })
            .await;
        assert!(failed.is_err());
        let good = once.run([1; 16], 1, async { Ok(Arc::from([Ok(7)])) }).await;
        assert!(good.is_ok());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn calls_are_bounded_and_forgotten() {
        let once = Arc::new(Once::new(Duration::ZERO));
        for number in 0..100_u128 {
            let run = once.run(number.to_be_bytes(), 1, async { Ok(Arc::from([Ok(7)])) });
            assert!(run.await.is_ok());
        }
        assert!(locked(&once.calls).known.len() <= 1);
        let once = Arc::new(Once::new(Duration::from_secs(1000)));
        for number in 0..CALLS_MAX as u128 + 100 {
            let run = once.run(number.to_be_bytes(), 1, async { Ok(Arc::from([Ok(7)])) });
            assert!(run.await.is_ok());
        }
        assert!(locked(&once.calls).known.len() <= CALLS_MAX);
        // Long batches are fewer.
        let once = Arc::new(Once::new(Duration::from_secs(1000)));
        for number in 0..5_u128 {
            let (call, messages) = (number.to_be_bytes(), RESULTS_MAX / 2);
            let run = once.run(call, messages, async { Ok(Arc::from([Ok(7)])) });
            assert!(run.await.is_ok());
        }
        let calls = locked(&once.calls);
        assert_eq!((calls.known.len(), calls.results), (2, RESULTS_MAX));
    }
}
