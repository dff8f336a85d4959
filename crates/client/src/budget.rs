//! A bound on bytes that many hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that connections hold for input, uploads and output, all together,
/// and the bound on them. Shared by all who serve clients.
#[derive(Default, Debug)]
pub struct ByteBudget {
    limit: AtomicU64,
    used: AtomicU64,
    /// How many hold any.
    holders: AtomicU64,
    /// Connections closed or refused because of the bound.
    turned_away: AtomicU64,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            ..Self::default()
        })
    }

    /// Another bound from now on.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The bound, bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes held.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// More is held than there should be.
    pub fn is_over(&self) -> bool {
        self.used() > self.limit()
    }

    /// Seven eighths are held: who has much gets no more.
    pub fn is_tight(&self) -> bool {
        self.used() > self.limit() / 8 * 7
    }

    /// Average size of a holder, bytes.
    pub fn average(&self) -> u64 {
        self.used() / self.holders.load(Ordering::Relaxed).max(1)
    }

    /// A holder that had `before` bytes has `after`. Never refused: who asks
    /// looks at [`ByteBudget::is_tight`] before it takes more.
    pub fn change(&self, before: u64, after: u64) {
        if after > before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
        match (before, after) {
            (0, 1..) => self.holders.fetch_add(1, Ordering::Relaxed),
            (1.., 0) => self.holders.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Takes `bytes` unless that would be over the bound; gives them back when
    /// the share is dropped.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        self.fits(bytes).then(|| self.share(bytes))
    }

    /// The same, but who is alone gets what it wants, however much: a bound
    /// under the longest single thing is not to refuse it for ever.
    pub fn take_or_alone(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        (self.used() == 0 || self.fits(bytes)).then(|| self.share(bytes))
    }

    fn fits(&self, bytes: u64) -> bool {
        let fits = self.used().saturating_add(bytes) <= self.limit();
        if !fits {
            self.turn_away();
        }
        fits
    }

    fn share(self: &Arc<Self>, bytes: u64) -> Share {
        self.change(0, bytes);
        Share {
            budget: Arc::clone(self),
            bytes,
        }
    }

    /// Counts one that was closed or refused; answers how many there were.
    pub fn turn_away(&self) -> u64 {
        self.turned_away.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many were closed or refused because of the bound.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }
}

/// Bytes of a [`ByteBudget`] somebody holds.
#[derive(Debug)]
pub struct Share {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

impl Share {
    /// Takes `bytes` more, unless that would be over the bound. False: it has
    /// what it had.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.budget.fits(bytes);
        if fits {
            self.budget.change(self.bytes, self.bytes + bytes);
            self.bytes += bytes;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.change(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_back() {
        let budget = ByteBudget::new(100);
        let mut share = budget.take(60).expect("room");
        assert!(share.grow(20) && !share.grow(21));
        assert!(budget.take(21).is_none());
        let other = budget.take(20).expect("room");
        assert_eq!((budget.used(), budget.average()), (100, 50));
        assert!(budget.is_tight() && !budget.is_over());
        drop(share);
        assert_eq!((budget.used(), budget.average()), (20, 20));
        drop(other);
        assert_eq!((budget.used(), budget.turned_away()), (0, 2));
        let alone = budget.take_or_alone(500).expect("nobody else");
        assert!(budget.take_or_alone(1).is_none());
        drop(alone);
        budget.change(0, 101);
        assert!(budget.is_over());
        budget.set_limit(200);
        assert!(!budget.is_tight());
    }
}
