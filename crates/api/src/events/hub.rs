//! Streams and their queues: one look serves all streams of the same selection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quintet_http::locked;
use quintet_types::{Name, Principal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::MissedTickBehavior;

use super::figures::{Queues, all, change};
use super::reader::Reader;

/// Events that wait for a stream; who is further behind is dropped.
const BEHIND: usize = 4;

/// After so many looks without news a comment is sent, for a client that is gone to be noticed.
const QUIET: u32 = 8;

/// Which queues, and on whose behalf: it gets only events that it may see.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Selection {
    /// In order, each once; `None`: the first there are.
    pub(crate) queues: Option<Vec<Name>>,
    pub(crate) principal: Principal,
}

/// The streams of a listener.
pub(crate) struct Hub {
    followed: Mutex<HashMap<Selection, Arc<Followed>>>,
    places: Arc<Semaphore>,
    every: Duration,
    stop: watch::Sender<bool>,
}

/// State that the streams of a selection share.
struct Followed {
    /// `None`: nobody has looked yet.
    reported: Mutex<Option<Queues>>,
    events: broadcast::Sender<Bytes>,
}

impl Hub {
    /// For `most` streams, with a look `every` so often.
    pub(crate) fn new(most: usize, every: Duration) -> Self {
        Self {
            followed: Mutex::default(),
            places: Arc::new(Semaphore::new(most)),
            every,
            stop: watch::Sender::new(false),
        }
    }

    /// All streams end, and there will be none.
    pub(crate) fn stop(&self) {
        self.places.close();
        self.stop.send_replace(true);
        locked(&self.followed).clear();
    }

    /// A place for a stream, if one is left.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Follows a selection: what is known so far comes first. `query` looks at it, and answers
    /// `None` when no look will come any more; it is used by who is the first of its selection.
    pub(crate) fn follow<L, F>(self: &Arc<Self>, of: Selection, query: L) -> Reader
    where
        L: Fn() -> F + Send + 'static,
        F: Future<Output = Option<Queues>> + Send,
    {
        let mut all_followed = locked(&self.followed);
        if let Some(followed) = all_followed.get(&of) {
            let reported = locked(&followed.reported);
            let first = reported.as_ref().map(all);
            return Reader::new(first, followed.events.subscribe());
        }
        let (events, reader) = broadcast::channel(BEHIND);
        let followed = Arc::new(Followed {
            reported: Mutex::default(),
            events,
        });
        all_followed.insert(of.clone(), Arc::clone(&followed));
        drop(all_followed);
        let hub = Arc::clone(self);
        tokio::spawn(async move { hub.run(of, followed, query).await });
        Reader::new(None, reader)
    }

    /// Looks until nobody follows, or all ends.
    async fn run<L, F>(&self, of: Selection, followed: Arc<Followed>, query: L)
    where
        L: Fn() -> F + Send,
        F: Future<Output = Option<Queues>> + Send,
    {
        let mut stopped = self.stop.subscribe();
        let mut ticks = tokio::time::interval(self.every);
        // A look that takes long makes the next one later, not many at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            if self.is_left(&of, &followed) {
                return;
            }
            let found = tokio::select! {
                found = query() => found,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            let Some(now) = found else {
                locked(&self.followed).remove(&of);
                return;
            };
            let mut reported = locked(&followed.reported);
            let news = match &*reported {
                Some(before) => change(before, &now),
                None => Some(all(&now)),
            };
            *reported = Some(now);
            quiet = if news.is_some() { 0 } else { quiet + 1 };
            let comment = (quiet % QUIET == 1).then(|| Bytes::from_static(b":\n\n"));
            if let Some(event) = news.or(comment) {
                // They may all have gone since.
                let _delivered = followed.events.send(event);
            }
        }
    }

    /// True if nobody follows any more; then it is forgotten.
    fn is_left(&self, of: &Selection, followed: &Followed) -> bool {
        let mut all_followed = locked(&self.followed);
        let left = followed.events.receiver_count() == 0;
        if left {
            all_followed.remove(of);
        }
        left
    }
}
