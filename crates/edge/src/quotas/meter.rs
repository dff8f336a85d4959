//! One connection's share of the quotas it counts in.

use std::sync::Arc;

use quintet_auth::Rate;

use super::Of;
use super::quota::{Quota, Stay};

/// The quotas of one connection. Without any nothing is counted.
#[derive(Default)]
pub struct Meter {
    address: Option<Stay>,
    user: Option<Stay>,
    /// It has reserved a request, which counts from then on, ns.
    due_ns: Option<u64>,
    /// Bytes it was said to hold.
    bytes: u64,
}

impl Meter {
    pub(super) fn new(address: Option<Stay>) -> Self {
        let mut meter = Self::default();
        meter.address = address;
        meter
    }

    /// It counts as this user's from now on.
    pub(super) fn become_of(&mut self, user: Option<Stay>) {
        if let Some(before) = &self.user {
            before.0.bytes.change(self.bytes, 0);
        }
        if let Some(after) = &user {
            after.0.bytes.change(0, self.bytes);
        }
        self.user = user;
    }

    fn quotas(&self) -> impl Iterator<Item = &Arc<Quota>> {
        let stays = [&self.address, &self.user].into_iter().flatten();
        stays.map(|stay| &stay.0)
    }

    /// Those that limit requests, and how.
    fn rates(&self) -> impl Iterator<Item = (&Arc<Quota>, Rate)> {
        self.quotas()
            .filter_map(|quota| Some((quota, quota.rate()?)))
    }

    /// How many of `most` requests may be decided at `now_ns`.
    #[inline]
    pub fn room(&self, now_ns: impl FnOnce() -> u64, most: usize) -> usize {
        if self.address.is_none() && self.user.is_none() {
            return most;
        }
        self.limited_room(now_ns(), most)
    }

    fn limited_room(&self, now_ns: u64, most: usize) -> usize {
        let reserved = match self.due_ns {
            Some(due) if due > now_ns => return 0,
            Some(_) => 1,
            None => 0,
        };
        let rooms = self.rates().map(|(quota, rate)| {
            let room = quota.requests.room(rate, now_ns);
            usize::try_from(room).unwrap_or(usize::MAX)
        });
        rooms
            .min()
            .map_or(most, |room| room.saturating_add(reserved).min(most))
    }

    /// So many requests are decided.
    #[inline]
    pub fn charge(&mut self, now_ns: impl FnOnce() -> u64, count: usize) {
        if count == 0 || self.address.is_none() && self.user.is_none() {
            return;
        }
        let reserved = usize::from(self.due_ns.take().is_some());
        let count = (count - reserved.min(count)) as u64;
        let now_ns = now_ns();
        for (quota, rate) in self.rates() {
            quota.requests.take(rate, now_ns, count);
        }
    }

    /// Reserves a request; answers when it may be decided, ns, and `Some` whose
    /// limit makes it wait if it has not been made to wait before.
    pub fn reserve(&mut self, now_ns: u64) -> (u64, Option<Of>) {
        if let Some(due) = self.due_ns {
            return (due, None);
        }
        let mut due = (now_ns, Of::Address);
        for (stay, of) in [(&self.address, Of::Address), (&self.user, Of::User)] {
            if let Some(Stay(quota)) = stay
                && let Some(rate) = quota.rate()
            {
                let at = quota.requests.reserve(rate, now_ns);
                if at > now_ns {
                    quota.holds_back(now_ns);
                }
                if at > due.0 {
                    due = (at, of);
                }
            }
        }
        self.due_ns = Some(due.0);
        (due.0, Some(due.1))
    }

    /// It holds so many bytes from now on.
    #[inline]
    pub fn hold(&mut self, bytes: u64) {
        for quota in self.quotas() {
            quota.bytes.change(self.bytes, bytes);
        }
        self.bytes = bytes;
    }

    /// The holder whose connections hold almost as much as they may together.
    #[inline]
    pub fn is_tight(&self) -> Option<Of> {
        let tight = |stay: &Option<Stay>| {
            let stay = stay.as_ref();
            stay.is_some_and(|stay| stay.0.bytes.is_tight())
        };
        if tight(&self.address) {
            return Some(Of::Address);
        }
        tight(&self.user).then_some(Of::User)
    }

    /// The quota whose bytes are used up.
    pub fn tight(&self) -> Option<Arc<Quota>> {
        let tight = |quota: &&Arc<Quota>| quota.bytes.is_tight();
        self.quotas().find(tight).cloned()
    }

    /// True if `quota` is that of the connection's address or user.
    pub fn counts_in(&self, quota: &Arc<Quota>) -> bool {
        self.quotas().any(|own| Arc::ptr_eq(own, quota))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.hold(0);
        if self.due_ns.is_some() {
            for (quota, rate) in self.rates() {
                quota.requests.give_back(rate);
            }
        }
    }
}
