//! Names that are most like one that does not exist.

use std::fmt::Display;

/// Letters of a name that are compared.
const LETTERS: usize = 100;
/// How alike two names have to be, of 1.
const ALIKE: f64 = 0.8;

/// The most alike of the names that were considered.
pub struct Nearest<N> {
    wanted: String,
    /// Names that are kept at most.
    most: usize,
    /// Best first.
    best: Vec<(f64, N)>,
}

impl<N: Display + Ord> Nearest<N> {
    /// Of the names that are like `wanted` it keeps so many.
    pub fn to(wanted: &str, most: usize) -> Self {
        Self {
            wanted: letters(wanted),
            most,
            best: Vec::new(),
        }
    }

    /// Compares these too.
    pub fn consider(&mut self, names: impl Iterator<Item = N>) {
        for name in names {
            let alike = strsim::jaro_winkler(&self.wanted, &letters(&name.to_string()));
            if alike >= ALIKE {
                self.best.push((alike, name));
            }
        }
        self.best
            .sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
        self.best.truncate(self.most);
    }

    /// The best first.
    pub fn names(self) -> impl Iterator<Item = N> {
        self.best.into_iter().map(|(_, name)| name)
    }
}

fn letters(name: &str) -> String {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_come_first_and_strangers_not_at_all() {
        let all = ["work", "works", "Work", "worker:mail", "orders", "krow"];
        let mut near = Nearest::to("wrok", 5);
        // In pages, as they come.
        for page in all.chunks(2) {
            near.consider(page.iter());
        }
        let near: Vec<&str> = near.names().copied().collect();
        assert_eq!(near, ["Work", "work", "works"]);
        let mut many = Nearest::to("queue-7x", 5);
        many.consider((0..100).map(|n| format!("queue-{n}")));
        assert_eq!(many.names().count(), 5);
    }
}
