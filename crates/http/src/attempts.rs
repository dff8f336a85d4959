//! Takes that wait under a token. One that is sent again ends the wait of the one before it, so
//! that both together get the messages of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use quintet_types::{Principal, locked};
use tokio::sync::watch;

/// Those of all listeners, the newest of each token.
#[derive(Clone, Default)]
pub struct Attempts(Arc<Mutex<Newest>>);

/// By queue and token: told when the take is sent again.
type Newest = HashMap<Box<[u8]>, Arc<watch::Sender<bool>>>;

/// A take under a token, until this is dropped.
pub struct Attempt {
    all: Attempts,
    /// Behind the name of its queue.
    token: Box<[u8]>,
    replaced: Arc<watch::Sender<bool>>,
}

impl Attempts {
    fn locked(&self) -> MutexGuard<'_, Newest> {
        locked(&self.0)
    }

    /// Begins one, and returns when the one before it under the same token in the same queue is
    /// over. Other users' tokens are others.
    pub async fn begin(&self, user: Principal, queue: &[u8], token: &[u8]) -> Attempt {
        let user = user.0.to_le_bytes();
        let token: Box<[u8]> = [&user[..], queue, b"\0", token].concat().into();
        let replaced = Arc::new(watch::Sender::new(false));
        let before = self.locked().insert(token.clone(), Arc::clone(&replaced));
        let attempt = Attempt {
            all: self.clone(),
            token,
            replaced,
        };
        if let Some(before) = before {
            before.send_replace(true);
            let mut over = before.subscribe();
            drop(before);
            // It is over when its sender is gone.
            while over.changed().await.is_ok() {}
        }
        attempt
    }
}

impl Attempt {
    /// Returns when it was sent again.
    pub async fn is_replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        let _gone = replaced.wait_for(|replaced| *replaced).await;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut all = self.all.locked();
        let newest = all.get(&self.token);
        if newest.is_some_and(|newest| Arc::ptr_eq(newest, &self.replaced)) {
            all.remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Principal = Principal(1);

    #[tokio::test(flavor = "current_thread")]
    async fn an_attempt_begins_when_the_one_before_it_is_over() {
        let attempts = Attempts::default();
        let first = attempts.begin(USER, b"q", b"a").await;
        let other = attempts.begin(USER, b"q", b"b").await;
        let elsewhere = attempts.begin(USER, b"r", b"a").await;
        let another = attempts.begin(Principal(2), b"q", b"a").await;
        let first = tokio::spawn(async move { first.is_replaced().await });
        let second = attempts.begin(USER, b"q", b"a").await;
        assert!(first.is_finished(), "it was answered, and ended");
        drop((second, other, elsewhere, another));
        assert!(attempts.locked().is_empty());
    }
}
