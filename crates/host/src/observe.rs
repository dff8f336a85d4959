//! Observers of decisions, beside the log.

use quintet_engine::{Engine, Fact};
use quintet_types::Name;

use super::{Core, Work};

/// Receives a shard's facts, under its lock: has to be short, and must not ask
/// the shards.
pub trait Observer: Send {
    /// A fact was decided, of a queue that is in the log.
    fn decided(&mut self, fact: &Fact);

    /// The same of a queue that is in memory only, of this name. It is in no batch.
    fn passed(&mut self, _fact: &Fact, _name: &Name) {}

    /// The batch of this number is closed; what was decided since the one
    /// before is in it.
    fn batch_over(&mut self, engine: &Engine, batch: u64);

    /// True behind a batch: it is dropped, and told nothing more.
    fn is_done(&self) -> bool {
        false
    }
}

/// Told the newest batch whose commands may be answered, rising, from any
/// thread: has to be short.
pub type Settled = Box<dyn Fn(u64) + Send + Sync>;

impl Core {
    /// From now on each shard's facts are passed to one of these. The first such
    /// call counts; others do nothing.
    pub fn observe(&self, mut make: impl FnMut() -> Box<dyn Observer>, settled: Settled) {
        let for_disk = self.waits_for_disk() || self.acked.is_some();
        if self.progress.notify_settled(settled, for_disk) {
            for shard in &self.shards {
                shard.lock(Work::Server).batch.observers.push(make());
            }
        }
    }

    /// From now on each shard's facts are passed to one of these as well, before they are settled.
    pub fn watch(&self, mut make: impl FnMut() -> Box<dyn Observer>) {
        for shard in &self.shards {
            shard.lock(Work::Server).batch.observers.push(make());
        }
    }
}
