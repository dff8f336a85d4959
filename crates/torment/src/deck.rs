//! Chance that leaves nothing out.

use quintet_sim::Random;

/// Things in an order by chance; all of them before one comes again.
pub(crate) struct Deck {
    size: usize,
    left: Vec<usize>,
}

impl Deck {
    pub(crate) fn new(size: usize) -> Self {
        let left = Vec::new();
        Self { size, left }
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> usize {
        if self.left.is_empty() {
            self.left = (0..self.size).collect();
        }
        let at = random.index(self.left.len());
        self.left.swap_remove(at)
    }
}
