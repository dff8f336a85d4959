//! The condition for sending a reply.
//!
//! A commit number is the number of a batch. One batch is open at any time and takes
//! the facts of all shards; it is taken by the thread that commits it, while all shards
//! are locked, and becomes one frame of the log.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_types::MessageId;

use super::observe::Settled;

/// The commit numbers that must have come so far before a reply may leave. The default
/// waits for nothing: what it says rests on nothing in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// This batch is with the operating system.
    pub written: u64,
    /// This batch survives a power cut.
    pub durable: u64,
    /// The owner that decided it still owns the log when the reply leaves.
    pub lease: bool,
}

impl Required {
    /// All of both.
    pub fn and(self, other: Required) -> Required {
        Required {
            written: self.written.max(other.written),
            durable: self.durable.max(other.durable),
            lease: self.lease || other.lease,
        }
    }
}

/// How far the batches have come.
pub(crate) struct Progress {
    open: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    /// The receiver of reports, and whether they are of durable facts.
    reported: OnceLock<(Settled, bool)>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            open: AtomicU64::new(1),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            reported: OnceLock::new(),
        }
    }

    /// From now on reports which batches are durable, or written. False: another receiver
    /// is known already.
    pub(crate) fn notify_settled(&self, settled: Settled, durable: bool) -> bool {
        self.reported.set((settled, durable)).is_ok()
    }

    /// The number of the open batch. Stable while a shard is locked.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Closes the open batch and gives its number. Only with all shards locked.
    pub(crate) fn take(&self) -> u64 {
        self.open.fetch_add(1, Ordering::AcqRel)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    pub(crate) fn set_written(&self, commit_number: u64) {
        self.written.fetch_max(commit_number, Ordering::SeqCst);
        self.notify(commit_number, false);
    }

    pub(crate) fn set_durable(&self, commit_number: u64) {
        self.durable.fetch_max(commit_number, Ordering::SeqCst);
        self.notify(commit_number, true);
    }

    fn notify(&self, commit_number: u64, durable: bool) {
        if let Some((settled, of_durable)) = self.reported.get()
            && *of_durable == durable
        {
            settled(commit_number);
        }
    }

    /// How far the batches are complete, in the terms of [`Required`].
    pub(crate) fn completed(&self) -> Completed {
        // Durable first: it never passes written, and must not seem to.
        let durable = self.durable();
        Completed {
            written: self.written(),
            durable,
            leased: true,
        }
    }
}

/// A moment's view of [`Progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completed {
    /// The last batch that is with the operating system.
    pub written: u64,
    /// The last that survives a power cut.
    pub durable: u64,
    /// No other owner of the log had begun to decide.
    pub leased: bool,
}

impl Completed {
    /// True if all required commit numbers are complete.
    pub fn satisfies(self, required: Required) -> bool {
        (self.leased || !required.lease)
            && self.written >= required.written
            && self.durable >= required.durable
    }

    /// The same, where nothing may be answered unless `leased`.
    pub(crate) fn under_lease(self, leased: bool) -> Self {
        Self { leased, ..self }
    }
}

/// Which batch holds the put of an id, for the batches that are not durable.
#[derive(Default)]
pub(crate) struct Ring {
    /// Puts of ids up to this one are durable.
    settled: u64,
    /// (commit number, newest id when the batch was taken), both rising.
    taken: VecDeque<(u64, u64)>,
}

impl Ring {
    /// Everything up to `last_id` is durable (start of the server).
    pub(crate) fn settle(&mut self, last_id: u64) {
        self.settled = last_id;
        self.taken.clear();
    }

    /// A batch was taken when `last_id` was the newest id, and `durable` was
    /// the newest durable batch.
    pub(crate) fn push(&mut self, commit_number: u64, last_id: u64, durable: u64) {
        self.forget(durable);
        self.taken.push_back((commit_number, last_id));
    }

    /// The batch that must be durable so that the put of `id` is; 0 if it is
    /// already. `last` is the newest batch that has anything of the shard: a
    /// put that is in none before it is in that one, or is not logged at all.
    pub(crate) fn commit_number_of(&mut self, id: MessageId, last: u64, durable: u64) -> u64 {
        self.forget(durable);
        if id.0 <= self.settled {
            return 0;
        }
        let at = self.taken.partition_point(|&(_, last_id)| last_id < id.0);
        self.taken
            .get(at)
            .map_or(last, |&(commit_number, _)| commit_number)
    }

    fn forget(&mut self, durable: u64) {
        while let Some(&(commit_number, last_id)) = self.taken.front() {
            if commit_number > durable {
                break;
            }
            self.settled = last_id;
            self.taken.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_finds_the_batch_of_an_id() {
        for (id, durable, expected) in [
            (3, 0, 0),
            (5, 0, 1),
            (10, 0, 1),
            (11, 0, 2),
            (20, 0, 2),
            (21, 0, 4),
            (5, 1, 0),
            (11, 1, 2),
            (20, 3, 0),
            (21, 3, 4),
        ] {
            let mut ring = Ring::default();
            ring.settle(4);
            ring.push(1, 10, 0);
            ring.push(2, 20, 0);
            ring.push(3, 20, 0);
            assert_eq!(
                ring.commit_number_of(MessageId(id), 4, durable),
                expected,
                "{id} {durable}"
            );
        }
    }

    #[test]
    fn a_thread_is_notified_when_its_replies_may_leave() {
        for durable in [false, true] {
            let progress = Progress::new();
            let (sender, reported) = std::sync::mpsc::channel();
            let settled = || -> Settled {
                let sender = sender.clone();
                Box::new(move |batch| sender.send(batch).expect("sent"))
            };
            assert!(progress.notify_settled(settled(), durable));
            assert!(!progress.notify_settled(settled(), !durable));
            progress.set_written(5);
            progress.set_durable(4);
            let wanted = if durable { 4 } else { 5 };
            assert_eq!(reported.try_iter().collect::<Vec<_>>(), [wanted]);
        }
    }

    #[test]
    fn a_need_is_met_by_both_parts() {
        let progress = Progress::new();
        let required = Required {
            written: 2,
            durable: 1,
            lease: false,
        }
        .and(Required {
            written: 1,
            durable: 1,
            lease: true,
        });
        progress.set_written(2);
        assert!(!progress.completed().satisfies(required));
        progress.set_durable(1);
        assert!(progress.completed().satisfies(required));
        assert!(!progress.completed().under_lease(false).satisfies(required));
        let refused = Required {
            lease: false,
            ..required
        };
        assert!(progress.completed().under_lease(false).satisfies(refused));
    }
}
