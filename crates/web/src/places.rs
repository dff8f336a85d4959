//! Who may sit on a listener, and who makes way when it is full.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::clients::Client;

/// Who has sent no whole head for so long ends when places are few.
const SILENT: Duration = Duration::from_secs(2);
/// The same where no place is left: a few of those who are silent longest.
const SILENT_WHEN_FULL: Duration = Duration::from_millis(250);
/// How many end then at a time.
const WAY: usize = 8;
/// How often it is looked while places are few.
const LOOK: Duration = Duration::from_millis(100);

/// The places of one listener.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    most: usize,
    silent: Mutex<Silent>,
}

/// Connections in the middle of no request, by the order in which they became
/// so.
#[derive(Default)]
struct Silent {
    last: u64,
    seats: BTreeMap<u64, (Instant, Arc<Seat>)>,
}

/// One connection's.
pub(crate) struct Seat {
    places: Arc<Places>,
    /// Number among the silent ones, and whether it is over.
    state: Mutex<(Option<u64>, bool)>,
    cut: Notify,
    /// What is known of the connection, once it is past its handshake.
    pub(crate) client: OnceLock<Arc<Client>>,
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            silent: Mutex::default(),
        })
    }

    /// Waits for a place; while none is free, silent connections make way.
    pub(crate) async fn seat(self: &Arc<Self>) -> OwnedSemaphorePermit {
        loop {
            self.make_way();
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(place)) = tokio::time::timeout(LOOK, free).await {
                return place;
            }
        }
    }

    /// Whatever comes, looked at again and again while places are few.
    pub(crate) async fn watched<T>(&self, coming: impl Future<Output = T>) -> T {
        tokio::pin!(coming);
        loop {
            if !self.is_short() {
                return coming.await;
            }
            self.make_way();
            if let Ok(come) = tokio::time::timeout(LOOK, &mut coming).await {
                return come;
            }
        }
    }

    /// Fewer than a tenth are free.
    fn is_short(&self) -> bool {
        self.free.available_permits() * 10 < self.most
    }

    fn make_way(&self) {
        if !self.is_short() {
            return;
        }
        let full = self.free.available_permits() == 0;
        let now = Instant::now();
        let mut silent = locked(&self.silent);
        let mut way = 0;
        while let Some(entry) = silent.seats.first_entry() {
            let for_long = now.duration_since(entry.get().0);
            let makes_way = full && way < WAY && for_long >= SILENT_WHEN_FULL;
            if for_long < SILENT && !makes_way {
                break;
            }
            way += 1;
            entry.remove().1.cut.notify_one();
        }
    }
}

impl Seat {
    /// A new connection: nothing came from it yet.
    pub(crate) fn new(places: &Arc<Places>, place: OwnedSemaphorePermit) -> Arc<Self> {
        let seat = Arc::new(Self {
            places: Arc::clone(places),
            state: Mutex::default(),
            cut: Notify::new(),
            client: OnceLock::new(),
            place: Mutex::new(Some(place)),
        });
        seat.is_silent();
        seat
    }

    /// It is in the middle of no request.
    fn is_silent(self: &Arc<Self>) {
        let mut state = locked(&self.state);
        if state.1 {
            return;
        }
        let mut silent = locked(&self.places.silent);
        silent.last += 1;
        let number = silent.last;
        if let Some(before) = state.0.take() {
            silent.seats.remove(&before);
        }
        let entry = (Instant::now(), Arc::clone(self));
        silent.seats.insert(number, entry);
        state.0 = Some(number);
    }

    /// The head of a request is there.
    pub(crate) fn is_busy(&self) {
        if let Some(number) = locked(&self.state).0.take() {
            locked(&self.places.silent).seats.remove(&number);
        }
    }

    /// Its place is free for another: it is counted elsewhere.
    pub(crate) fn gives_place(&self) {
        locked(&self.place).take();
    }

    /// A part of a reply waits for its client.
    pub(crate) fn is_blocked(&self) -> bool {
        self.client.get().is_some_and(|client| client.is_blocked())
    }

    /// It is over.
    pub(crate) fn leave(&self) {
        locked(&self.state).1 = true;
        self.is_busy();
    }

    /// Returns when it is to make way, but not in the middle of a reply.
    pub(crate) async fn makes_way(self: &Arc<Self>) {
        loop {
            self.cut.notified().await;
            // Asked while a request came, or while a reply waits for its
            // client.
            if locked(&self.state).0.is_none() {
                continue;
            }
            if !self.is_blocked() {
                return;
            }
            self.is_silent();
        }
    }
}

/// A reply on its way; when it is gone its connection is silent again.
pub(crate) struct Busy {
    body: Body,
    seat: Arc<Seat>,
}

impl Busy {
    pub(crate) fn new(body: Body, seat: Arc<Seat>) -> Self {
        Self { body, seat }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(client) = self.seat.client.get() {
            client.asks_no_more();
        }
        self.seat.is_silent();
    }
}

impl hyper::body::Body for Busy {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
