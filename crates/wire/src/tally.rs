//! Command counters of a protocol.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a protocol, a row each: its index, and its name in statistics.
macro_rules! counters {
    ($($count:ident $name:literal,)*) => {
        /// Indexes of this protocol's counters.
        #[derive(Clone, Copy)]
        pub(crate) enum Count {
            $($count,)*
        }

        const TALLY_NAMES: &[&str] = &[$($name,)*];
        const _: () = assert!(TALLY_NAMES.len() <= crate::Tally::LEN);
    };
}
pub(crate) use counters;

/// Counters by index, of which only their thread adds.
#[derive(Debug)]
pub struct Counters<const N: usize>([AtomicU64; N]);

/// Counters of a protocol, which says what its indexes mean
/// ([`crate::Protocol::tally_names`]). One instance per protocol and I/O thread, so
/// the adds are not contended; statistics sum them.
pub type Tally = Counters<48>;

impl<const N: usize> Counters<N> {
    /// Number of counters.
    pub const LEN: usize = N;

    /// All zero.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// Adds one. Only the owning thread writes, so a plain load and store do.
    pub fn bump(&self, index: usize) {
        let counter = &self.0[index];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The value of one counter.
    pub fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    /// Adds all counters to `sum`.
    pub fn add_to(&self, sum: &mut Vec<u64>) {
        sum.resize(N, 0);
        for (sum, counter) in sum.iter_mut().zip(&self.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self::new()
    }
}
