//! Queues whose names are most like one that is not there.

use quintet_engine::{Name, Refusal};

use super::{Asked, overview};
use crate::api::Problem;

/// Names that are told at most.
const TOLD: usize = 5;
/// Queues that are looked at, so that nobody waits for it.
const LOOKED: usize = 10_000;
/// Letters of a name that are compared.
const LETTERS: usize = 100;
/// How alike two names have to be, of 1.
const ALIKE: f64 = 0.8;

/// What is told of a queue that is not there; any other problem as it is.
pub(super) async fn or_nearest(asked: &Asked, queue: &Name, problem: Problem) -> Problem {
    if problem.code != Refusal::QueueNotFound.code() {
        return problem;
    }
    let mut all = Vec::new();
    let mut from = (0, 0);
    // Without a list there is nothing to propose.
    while let Ok(page) = overview::queues(asked, from).await {
        all.extend(page.queues.into_iter().map(|stats| stats.name));
        match page.next {
            Some(next) if all.len() < LOOKED => from = next,
            _ => break,
        }
    }
    Problem {
        detail: format!("There is no queue {queue}. A message that is put into it makes it."),
        nearest: of(queue, all),
        ..problem
    }
}

/// The most alike of them, best first.
fn of(queue: &Name, all: Vec<Name>) -> Box<[Name]> {
    let letters = |name: &Name| -> String {
        let shown = name.to_string().to_lowercase();
        shown.chars().take(LETTERS).collect()
    };
    let wanted = letters(queue);
    let alike = |name: Name| {
        let alike = strsim::jaro_winkler(&wanted, &letters(&name));
        (alike >= ALIKE).then_some((alike, name))
    };
    let mut near: Vec<(f64, Name)> = all.into_iter().filter_map(alike).collect();
    near.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    near.truncate(TOLD);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_come_first_and_strangers_not_at_all() {
        let all = ["work", "works", "Work", "worker:mail", "orders", "krow"];
        let near = of(&Name::from("wrok"), all.map(Name::from).to_vec());
        let near: Vec<String> = near.iter().map(Name::to_string).collect();
        assert_eq!(near, ["Work", "work", "works"]);
        let many = (0..100).map(|n| Name::new(format!("queue-{n}").as_bytes()));
        assert_eq!(of(&Name::from("queue-7x"), many.collect()).len(), TOLD);
    }
}
