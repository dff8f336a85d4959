//! Queues whose names are most like one that is not there.

use quintet_types::{CommandError, Name};

use super::PageRequest;
use quintet_api::Problem;

/// Names that are shown at most.
const TOLD: usize = 5;
/// Queues that are looked at, so that nobody waits for it.
const LOOKED: usize = 10_000;
/// Letters of a name that are compared.
const LETTERS: usize = 100;
/// How alike two names have to be, of 1.
const ALIKE: f64 = 0.8;

/// The page for a queue that is not there; any other problem as it is.
pub(super) async fn or_nearest(context: &PageRequest, queue: &Name, problem: Problem) -> Problem {
    if problem.code != CommandError::QueueNotFound.code() {
        return problem;
    }
    let mut nearest = Nearest::to(queue);
    let (mut from, mut examined) = ((0, 0), 0);
    // Without a list there is nothing to propose. Others are served between its
    // pages.
    while let Ok(page) = context.queues(from).await {
        examined += page.queues.len();
        nearest.consider(page.queues.into_iter().map(|stats| stats.name));
        match page.next {
            Some(next) if examined < LOOKED => from = next,
            _ => break,
        }
    }
    Problem {
        detail: format!("There is no queue {queue}. Its first message creates it."),
        nearest: nearest.names(),
        ..problem
    }
}

/// The most alike of those that were looked at.
struct Nearest {
    wanted: String,
    /// Best first, [`TOLD`] at most.
    best: Vec<(f64, Name)>,
}

impl Nearest {
    fn to(queue: &Name) -> Self {
        Self {
            wanted: letters(queue),
            best: Vec::new(),
        }
    }

    fn consider(&mut self, names: impl Iterator<Item = Name>) {
        for name in names {
            let alike = strsim::jaro_winkler(&self.wanted, &letters(&name));
            if alike >= ALIKE {
                self.best.push((alike, name));
            }
        }
        self.best
            .sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
        self.best.truncate(TOLD);
    }

    fn names(self) -> Box<[Name]> {
        self.best.into_iter().map(|(_, name)| name).collect()
    }
}

fn letters(name: &Name) -> String {
    let shown = name.to_string().to_lowercase();
    shown.chars().take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_come_first_and_strangers_not_at_all() {
        let all = ["work", "works", "Work", "worker:mail", "orders", "krow"];
        let mut near = Nearest::to(&Name::from("wrok"));
        // In pages, as they come.
        for page in all.chunks(2) {
            near.consider(page.iter().map(|name| Name::from(*name)));
        }
        let near: Vec<String> = near.names().iter().map(Name::to_string).collect();
        assert_eq!(near, ["Work", "work", "works"]);
        let mut many = Nearest::to(&Name::from("queue-7x"));
        many.consider((0..100).map(|n| Name::new(format!("queue-{n}").as_bytes())));
        assert_eq!(many.names().len(), TOLD);
    }
}
