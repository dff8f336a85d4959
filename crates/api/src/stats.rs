//! Numbers asked for on behalf of a visitor.

use quintet_types::{
    Command, Name, Outcome, QueuePage, QueueSetup, QueueStats, ShardStats, StatsOf, StatsReply,
};

use super::{Api, Problem};
use quintet_http::Visitor;

impl Api {
    async fn stats(&self, visitor: &Visitor, of: StatsOf) -> Result<StatsReply, Problem> {
        let (Outcome::Stats(stats), _) = self.ask(visitor, Command::Stats(of)).await? else {
            return Err(Problem::unexpected());
        };
        Ok(*stats)
    }

    /// Sums over all queues.
    ///
    /// # Errors
    /// The refusal of the shards, as of all these.
    pub(crate) async fn sums(&self, visitor: &Visitor) -> Result<ShardStats, Problem> {
        let StatsReply::Shard(stats) = self.stats(visitor, StatsOf::Shard).await? else {
            return Err(Problem::unexpected());
        };
        Ok(stats)
    }

    /// A queue that is there and may be seen.
    pub async fn queue_stats(
        &self,
        visitor: &Visitor,
        queue: &Name,
    ) -> Result<QueueStats, Problem> {
        let StatsReply::Queue(stats) = self.stats(visitor, StatsOf::Queue(queue.clone())).await?
        else {
            return Err(Problem::unexpected());
        };
        Ok(stats)
    }

    /// How a queue is set up.
    pub async fn setup(&self, visitor: &Visitor, queue: &Name) -> Result<QueueSetup, Problem> {
        let StatsReply::Setup(setup) = self.stats(visitor, StatsOf::Setup(queue.clone())).await?
        else {
            return Err(Problem::unexpected());
        };
        Ok(*setup)
    }

    /// A part of all queues that may be seen, from a place on.
    pub async fn queue_page(
        &self,
        visitor: &Visitor,
        from: (u8, u32),
    ) -> Result<QueuePage, Problem> {
        let StatsReply::Queues(page) = self.stats(visitor, StatsOf::Queues { from }).await? else {
            return Err(Problem::unexpected());
        };
        Ok(page)
    }
}
