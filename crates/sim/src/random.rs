//! Chance from a seed: the same seed gives the same run on every machine.

/// Seeds that a test tries: `SEEDS` of the environment or `count`, from `FIRST_SEED` or 0 on.
/// `cargo xtask test` begins at another one with each commit.
///
/// # Panics
/// A variable is not a number.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().expect("SEEDS and FIRST_SEED are numbers"),
        Err(_) => default,
    };
    let first = number("FIRST_SEED", 0);
    first..first + number("SEEDS", count)
}

/// SplitMix64 (Steele, Lea, Flood 2014): tiny, fast, and good enough for choosing faults.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// An index below `bound`, which is not 0.
    pub fn index(&mut self, bound: usize) -> usize {
        // A usize has at most 64 bits here, so nothing is cut.
        self.below(bound as u64) as usize
    }

    /// True `times` in `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}
