//! Chance that leaves nothing out.

use quintet_sim::Random;

/// Things in an order by chance; all of them before one comes again.
pub(crate) struct Deck {
    all: Vec<usize>,
    left: Vec<usize>,
}

impl Deck {
    /// Of the numbers below `size`.
    pub(crate) fn new(size: usize) -> Self {
        Self::of((0..size).collect())
    }

    /// Of these numbers, of which there is one at least.
    pub(crate) fn of(all: Vec<usize>) -> Self {
        let left = Vec::new();
        Self { all, left }
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> usize {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        let at = random.index(self.left.len());
        self.left.swap_remove(at)
    }
}
