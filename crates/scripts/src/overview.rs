//! Queues with scripts, as those who operate the server look at them.

use std::ops::Bound;

use quintet_types::locked;

use crate::admin::Admin;
use crate::service::Rq;

/// A script queue with its state and its runs, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripted {
    pub name: String,
    /// The program: a path, or `builtin:NAME`.
    pub script: String,
    pub admin: Admin,
    /// Its script is not there, or cannot be run.
    pub missing: bool,
    /// Runs at a time, at most.
    pub workers: u32,
    /// Runs that are not over.
    pub running: usize,
    /// Ids of messages that failed last, the last one first; since the server's
    /// start. They may be elsewhere by now, or gone.
    pub failed: Vec<u64>,
}

impl Rq {
    /// True if there is a queue with a script that is not built in.
    pub fn has_own_scripts(&self) -> bool {
        let mut queues = self.all_scripted().into_iter();
        queues.any(|queue| !queue.config().script.starts_with("builtin:"))
    }

    /// Queues with a script in the order of their names, from behind `after`
    /// on, `most` at most, each with `failed` messages that failed at most.
    pub fn scripts(&self, after: Option<&str>, most: usize, failed: usize) -> Vec<Scripted> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let queues: Vec<_> = locked(&self.queues)
            .range::<str, _>((from, Bound::Unbounded))
            .take(most)
            .map(|(_, queue)| std::sync::Arc::clone(queue))
            .collect();
        let queues = queues.into_iter().map(|queue| {
            let config = queue.config();
            Scripted {
                name: queue.name.clone(),
                script: config.script.clone(),
                admin: self.read_admin(&queue.name),
                missing: queue.has_script_error(),
                workers: config.num_workers,
                running: queue.running_count(),
                failed: queue.failed(failed),
            }
        });
        queues.collect()
    }
}
