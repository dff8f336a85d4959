//! Writing durable state again, so that old segments of the log can go.

use super::Store;
use crate::body::{Body, LargeBody};
use crate::fact::Fact;
use crate::message::{Home, QueueId};
use crate::name::Name;
use crate::settings::Overrides;
use crate::stats::QueueTotals;

/// What a slice of copying out came to.
#[derive(Debug, Default)]
pub struct CopiedOut {
    /// Where to go on; `None`: all was looked at.
    pub next: Option<u32>,
    /// Images written.
    pub images: u64,
    /// Large bodies with a chunk in the segment: their owner copies the chunks,
    /// sets their places, and copies out again.
    pub large: Vec<LargeBody>,
}

impl Store {
    /// The facts that every segment begins with: queue table, settings,
    /// pauses, counters and the id mark. Messages are not among them: those
    /// whose segment goes are imaged one by one.
    pub(crate) fn snapshot(&self, record: &mut dyn FnMut(&Fact)) {
        record(&Fact::IdMark(self.next_id.max(self.marked)));
        let recorded = || {
            self.live_queues()
                .filter(|queue| queue.live.recorded && !queue.live.settings.memory)
        };
        // Parents first, as a child names its parent.
        let (roots, children): (Vec<_>, Vec<_>) =
            recorded().partition(|queue| queue.parent.is_none());
        for queue in roots.into_iter().chain(children) {
            record(&Fact::QueueMade {
                queue: queue.id,
                name: queue.name.clone(),
                parent: queue.parent,
                created: queue.created,
            });
            if queue.overrides != Overrides::default() {
                record(&Fact::QueueConfigured {
                    queue: queue.id,
                    overrides: Box::new(queue.overrides.clone()),
                });
            }
            if queue.pause.is_some() {
                record(&Fact::QueuePaused {
                    queue: queue.id,
                    pause: queue.pause,
                });
            }
            record(&Fact::QueueCounted {
                queue: queue.id,
                totals: Box::new(durable(queue.totals)),
                head: queue.head,
                bury_order: queue.bury_order,
            });
        }
        // Last, as making a queue counts it.
        record(&Fact::ShardCounted(self.counts));
    }

    /// Images of messages and marks that live in `home`, into segment `into`;
    /// looks at up to `max` slots from `from` on.
    pub(crate) fn copy_out(
        &mut self,
        home: Home,
        into: Home,
        from: u32,
        max: u32,
        record: &mut dyn FnMut(&Fact, bool),
    ) -> CopiedOut {
        let mut copied = CopiedOut::default();
        let end = self.messages.bound().min(from.saturating_add(max));
        for slot in from..end {
            let Some(message) = self.messages.get(slot) else {
                continue;
            };
            if message.home != home || message.doomed || !self.is_alive(message) {
                continue;
            }
            if let Body::Large(large) = &message.body
                && large.home() <= home.0
            {
                copied.large.push(large.clone());
                continue;
            }
            let memory = self
                .queue(message.queue)
                .is_some_and(|q| q.live.settings.memory);
            let fact = Fact::Image(message.clone(), self.leases.get(&slot).copied());
            record(&fact, memory);
            copied.images += 1;
            if let Some(message) = self.messages.get_mut(slot) {
                message.home = into;
            }
            self.uncount_home(home);
            self.count_home(into);
        }
        if end < self.messages.bound() {
            copied.next = Some(end);
        } else {
            self.copy_marks(home, into, record);
        }
        copied
    }

    fn copy_marks(&mut self, home: Home, into: Home, record: &mut dyn FnMut(&Fact, bool)) {
        let mut again = 0;
        for ((queue, kind, mark), memory) in &mut self.marks {
            if memory.home == home {
                let fact = Fact::Remembered {
                    queue: *queue,
                    kind: *kind,
                    mark: mark.clone(),
                    id: memory.id,
                    until: memory.until,
                };
                record(&fact, false);
                memory.home = into;
                again += 1;
            }
        }
        for _ in 0..again {
            self.uncount_home(home);
            self.count_home(into);
        }
    }

    /// Durable state as comparable facts, in a fixed order: what a restart
    /// must give again. For tests and `quintet check`.
    pub(crate) fn image(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.snapshot(&mut |fact| facts.push(fact.clone()));
        for (_, slot) in self.ids.after(0) {
            let Some(message) = self.messages.get(slot) else {
                continue;
            };
            if message.doomed || !self.is_alive(message) {
                continue;
            }
            let mut message = message.clone();
            message.home = Home(0);
            message.era = 0;
            facts.push(Fact::Image(message, self.leases.get(&slot).copied()));
        }
        let mut marks: Vec<_> = self.marks.iter().collect();
        marks.sort_by(|a, b| a.0.cmp(b.0));
        facts.extend(
            marks
                .into_iter()
                .map(|((queue, kind, mark), memory)| Fact::Remembered {
                    queue: *queue,
                    kind: *kind,
                    mark: mark.clone(),
                    id: memory.id,
                    until: memory.until,
                }),
        );
        facts
    }

    /// The queue's name for messages about it.
    pub(crate) fn name_of(&self, queue: QueueId) -> Name {
        self.queue(queue)
            .map_or_else(Name::default, |queue| queue.name.clone())
    }
}

/// The totals without those that are not remembered.
fn durable(totals: QueueTotals) -> QueueTotals {
    QueueTotals {
        looks: 0,
        misses: 0,
        skipped: 0,
        refused_full: 0,
        repeats: 0,
        pauses: 0,
        delete_commands: 0,
        expired: totals.expired,
        ..totals
    }
}
