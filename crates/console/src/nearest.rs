//! Queues whose names are most like one that is not there.

use quintet_client::Nearest;
use quintet_types::{CommandError, Name};

use super::PageRequest;
use quintet_api::Problem;

/// Names that are shown at most.
const TOLD: usize = 5;
/// Queues that are looked at, so that nobody waits for it.
const LOOKED: usize = 10_000;

/// The page for a queue that is not there; any other problem as it is.
pub(super) async fn or_nearest(context: &PageRequest, queue: &Name, problem: Problem) -> Problem {
    if problem.code != CommandError::QueueNotFound.code() {
        return problem;
    }
    let mut nearest = Nearest::to(&queue.to_string(), TOLD);
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
        nearest: nearest.names().collect(),
        ..problem
    }
}
