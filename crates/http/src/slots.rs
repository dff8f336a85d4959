//! Places of a listener, and the connections that make way when all are taken.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use quintet_types::locked;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::clients::{Client, Clients};
use crate::undo::Undo;

/// Time after which a connection without a whole head ends when places are few.
const SILENT: Duration = Duration::from_secs(2);
/// The same where no place is left: a few of those who are silent longest.
const SILENT_WHEN_FULL: Duration = Duration::from_millis(250);
/// How many end then at a time.
const WAY: usize = 8;
/// How often it is looked while places are few.
const LOOK: Duration = Duration::from_millis(100);

/// Places beside all others, for who asks how the server is.
const SPARE: usize = 16;
/// Requests without a place that wait for one.
const LINE: usize = 64;

/// The places of one listener.
pub struct Slots {
    free: Arc<Semaphore>,
    most: usize,
    spare: Arc<Semaphore>,
    line: Semaphore,
    /// Polls that may wait beside the places, and unfinished bodies.
    polls: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    silent: Mutex<Silent>,
    /// Connections of each address that counts.
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection's place.
pub struct SlotPermit {
    /// False: it is one for who asks how the server is, until there is one of its own.
    own: bool,
    _permit: OwnedSemaphorePermit,
}

/// False also if there is none.
fn is_own(place: &Option<SlotPermit>) -> bool {
    place.as_ref().is_some_and(|place| place.own)
}

impl SlotPermit {
    fn own(_permit: OwnedSemaphorePermit) -> Self {
        Self { own: true, _permit }
    }
}

/// Waits of a connection that hold no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// Messages.
    Poll,
    /// The rest of a request's body.
    Body,
}

/// A connection that waits is counted apart, until this is dropped.
pub struct Apart {
    connection_slot: Arc<ConnectionSlot>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Without one its next request waits for one.
        self.connection_slot.try_place();
    }
}

/// A connection counts among those of its address, until this is dropped.
pub(crate) struct OfAddress(Arc<Slots>, IpAddr);

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut addresses = locked(&self.0.addresses);
        if let Some(count) = addresses.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.1);
            }
        }
    }
}

/// Connections in the middle of no request, by the order in which they became
/// so.
#[derive(Default)]
struct Silent {
    last: u64,
    connection_slots: BTreeMap<u64, (Instant, Arc<ConnectionSlot>)>,
}

/// A connection's place within the limits of its listener.
pub struct ConnectionSlot {
    slots: Arc<Slots>,
    /// Number among the silent ones, and whether it is over.
    state: Mutex<(Option<u64>, bool)>,
    cut: Notify,
    /// The client of the connection, once it is past its handshake.
    pub client: OnceLock<Arc<Client>>,
    place: Mutex<Option<SlotPermit>>,
}

impl Slots {
    /// `most` connections, and beside them `apart` polls and as many unfinished bodies.
    pub fn new(most: usize, apart: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            spare: Arc::new(Semaphore::new(SPARE)),
            line: Semaphore::new(LINE),
            polls: Arc::new(Semaphore::new(apart)),
            bodies: Arc::new(Semaphore::new(apart)),
            silent: Mutex::default(),
            addresses: Mutex::default(),
        })
    }

    /// Waits for a place; while none is free, silent connections make way.
    pub async fn connection_slot(self: &Arc<Self>) -> SlotPermit {
        loop {
            self.make_way();
            if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
                return SlotPermit::own(place);
            }
            let spare = Arc::clone(&self.spare).acquire_owned();
            if let Ok(Ok(spare)) = tokio::time::timeout(LOOK, spare).await {
                return SlotPermit {
                    own: false,
                    _permit: spare,
                };
            }
        }
    }

    /// Counts a connection among those of its address, of which there are three quarters of the
    /// places at most; `None`: there are as many. Of IPv6 a /64 counts as one address.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<OfAddress> {
        let address = match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        };
        let mut addresses = locked(&self.addresses);
        let count = addresses.entry(address).or_default();
        if *count >= (self.most / 4 * 3).max(1) {
            return None;
        }
        *count += 1;
        Some(OfAddress(Arc::clone(self), address))
    }

    /// Awaits a future, and checks again and again while places are few.
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

    /// Places that are free, or are once silent connections have made way.
    fn to_be_had(&self) -> usize {
        let silent = locked(&self.silent);
        let silent = silent.connection_slots.values();
        let own = silent.filter(|(_, slot)| is_own(&locked(&slot.place)));
        self.free.available_permits() + own.count()
    }

    fn make_way(&self) {
        if !self.is_short() {
            return;
        }
        let full = self.free.available_permits() == 0;
        let now = Instant::now();
        let mut silent = locked(&self.silent);
        let mut way = 0;
        while let Some(entry) = silent.connection_slots.first_entry() {
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

impl ConnectionSlot {
    /// A new connection: nothing came from it yet.
    pub fn new(slots: &Arc<Slots>, place: SlotPermit) -> Arc<Self> {
        let connection_slot = Arc::new(Self {
            slots: Arc::clone(slots),
            state: Mutex::default(),
            cut: Notify::new(),
            client: OnceLock::new(),
            place: Mutex::new(Some(place)),
        });
        connection_slot.is_silent();
        connection_slot
    }

    /// It is in the middle of no request.
    fn is_silent(self: &Arc<Self>) {
        let mut state = locked(&self.state);
        if state.1 {
            return;
        }
        let mut silent = locked(&self.slots.silent);
        silent.last += 1;
        let number = silent.last;
        if let Some(before) = state.0.take() {
            silent.connection_slots.remove(&before);
        }
        let entry = (Instant::now(), Arc::clone(self));
        silent.connection_slots.insert(number, entry);
        state.0 = Some(number);
    }

    /// The head of a request is there.
    pub(crate) fn is_busy(&self) {
        if let Some(number) = locked(&self.state).0.take() {
            locked(&self.slots.silent).connection_slots.remove(&number);
        }
    }

    /// Takes a place of its own, if it has none and one is free; true: it has one.
    fn try_place(&self) -> bool {
        let mut place = locked(&self.place);
        if !is_own(&place)
            && let Ok(own) = Arc::clone(&self.slots.free).try_acquire_owned()
        {
            *place = Some(SlotPermit::own(own));
        }
        is_own(&place)
    }

    /// Waits for a place of its own, for so long at most; false: there is none, or too many wait
    /// for one.
    pub(crate) async fn takes_place(&self, at_most: Duration) -> bool {
        if self.try_place() {
            return true;
        }
        let Ok(_in_line) = self.slots.line.try_acquire() else {
            return false;
        };
        // Those who ask how the server is have it.
        self.gives_place();
        let until = Instant::now() + at_most;
        while Instant::now() < until {
            self.slots.make_way();
            let free = Arc::clone(&self.slots.free).acquire_owned();
            if let Ok(Ok(own)) = tokio::time::timeout(LOOK, free).await {
                *locked(&self.place) = Some(SlotPermit::own(own));
                return true;
            }
        }
        false
    }

    /// It waits, and gives its place to another meanwhile; where too many have done so, it keeps
    /// its place, as long as a quarter of all places is free or of silent connections, which make
    /// way. `None`: fewer are.
    pub fn waits(self: &Arc<Self>, what: Waits) -> Option<Apart> {
        let of = match what {
            Waits::Poll => &self.slots.polls,
            Waits::Body => &self.slots.bodies,
        };
        let permit = Arc::clone(of).try_acquire_owned().ok();
        if permit.is_some() {
            self.gives_place();
        } else if self.slots.to_be_had() <= self.slots.most / 4 {
            return None;
        }
        Some(Apart {
            connection_slot: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Its place is free for another: it is counted elsewhere.
    pub fn gives_place(&self) {
        locked(&self.place).take();
    }

    /// A part of a reply waits for its client.
    pub fn is_blocked(&self) -> bool {
        self.client.get().is_some_and(|client| client.is_blocked())
    }

    /// It is over.
    pub(crate) fn leave(&self) {
        locked(&self.state).1 = true;
        self.is_busy();
    }

    /// Returns when the server stops, if it is in the middle of no request then: half of a
    /// request's head is none.
    pub(crate) async fn ends_with(&self, clients: &Clients) {
        clients.is_stopped().await;
        if locked(&self.state).0.is_none() || self.is_blocked() {
            // It ends when it is answered.
            std::future::pending::<()>().await;
        }
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
    connection_slot: Arc<ConnectionSlot>,
    /// The undoing if it never begins to leave.
    undo: Option<Undo>,
}

impl Busy {
    pub(crate) fn new(
        body: Body,
        connection_slot: Arc<ConnectionSlot>,
        undo: Option<Undo>,
    ) -> Self {
        Self {
            body,
            connection_slot,
            undo,
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(client) = self.connection_slot.client.get() {
            client.asks_no_more();
        }
        self.connection_slot.is_silent();
    }
}

impl hyper::body::Body for Busy {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(mut undo) = self.undo.take() {
            undo.disarm();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_gets_three_quarters_of_the_places() {
        for (most, own) in [(1, 1), (3, 1), (4, 3), (10, 6), (2000, 1500)] {
            let slots = Slots::new(most, most);
            let admit = |last| slots.admit(address(last));
            let mut first: Vec<_> = (0..own).map(|_| admit(1)).collect();
            assert!(first.iter().all(Option::is_some), "{most}");
            assert!(admit(1).is_none(), "{most}");
            assert!(admit(2).is_some(), "another address has its own");
            first.pop();
            assert!(admit(1).is_some(), "one has left");
            drop(first);
            assert!(locked(&slots.addresses).is_empty());
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_connection_that_waits_gives_its_place_to_another() {
        for what in [Waits::Poll, Waits::Body] {
            let slots = Slots::new(4, 2);
            let connection_slots = async |count: usize| {
                let mut connection_slots = Vec::new();
                for _ in 0..count {
                    let slot = ConnectionSlot::new(&slots, slots.connection_slot().await);
                    slot.is_busy();
                    connection_slots.push(slot);
                }
                connection_slots
            };
            let first = connection_slots(4).await;
            assert_eq!(slots.free.available_permits(), 0);
            let apart: Vec<_> = first[..2]
                .iter()
                .map(|connection_slot| connection_slot.waits(what))
                .collect();
            assert!(apart.iter().all(Option::is_some));
            assert_eq!(slots.free.available_permits(), 2, "{what:?}");
            // A third one keeps its place while more than a quarter is free.
            let third = first[2].waits(what);
            assert!(third.is_some());
            assert_eq!(slots.free.available_permits(), 2);
            let others = connection_slots(1).await;
            assert!(first[3].waits(what).is_none(), "{what:?}");
            // A connection that no longer waits has a place of its own again.
            drop((apart, third));
            assert_eq!(slots.free.available_permits(), 0);
            assert!(
                first
                    .iter()
                    .chain(&others)
                    .filter(|connection_slot| connection_slot.try_place())
                    .count()
                    == 4
            );
        }
    }

    /// As on the control socket, where no body is counted apart: idle clients have all places, and
    /// a command's body comes a moment after its head.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn silent_connections_make_way_for_the_rest_of_a_body() {
        let slots = Slots::new(4, 0);
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(ConnectionSlot::new(&slots, slots.connection_slot().await));
        }
        assert_eq!(slots.free.available_permits(), 0);
        for (busy, waits) in [(0, true), (1, true), (2, false), (3, false)] {
            all[busy].is_busy();
            assert_eq!(all[0].waits(Waits::Body).is_some(), waits, "{busy}");
        }
    }

    /// Those have their places beside the others, and leave none for them.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn silent_connections_in_spare_places_make_no_way() {
        let slots = Slots::new(4, 0);
        let mut all = Vec::new();
        for number in 0..7 {
            let slot = ConnectionSlot::new(&slots, slots.connection_slot().await);
            if number < 4 {
                slot.is_busy();
            }
            all.push(slot);
        }
        assert_eq!(slots.spare.available_permits(), SPARE - 3);
        assert!(all[0].waits(Waits::Body).is_none());
    }
}
