//! Numbers asked for on behalf of a requester.

use quintet_types::{
    Command, HeldKey, Name, Outcome, QueuePage, QueueSetup, QueueStats, ShardStats, StatsOf,
    StatsReply,
};

use super::problem::only;
use super::{Api, Problem};
use quintet_http::Requester;

impl Api {
    pub(super) async fn stats(
        &self,
        requester: &Requester,
        of: StatsOf,
    ) -> Result<StatsReply, Problem> {
        let answer = self.ask(requester, Command::Stats(of)).await?;
        Ok(only!(answer, (Outcome::Stats(stats), _) => *stats))
    }

    /// Statistics of one queue.
    async fn of_queue(
        &self,
        requester: &Requester,
        queue: &Name,
        of: fn(Name) -> StatsOf,
    ) -> Result<StatsReply, Problem> {
        let answer = self.stats(requester, of(queue.clone())).await;
        answer.map_err(|problem| problem.of_queue(queue))
    }

    /// Sums over all queues.
    ///
    /// # Errors
    /// The error of the shards, as of all these.
    pub(crate) async fn sums(&self, requester: &Requester) -> Result<ShardStats, Problem> {
        let answer = self.stats(requester, StatsOf::Shard).await?;
        Ok(only!(answer, StatsReply::Shard(stats) => stats))
    }

    /// A queue that is there and may be seen.
    pub async fn queue_stats(
        &self,
        requester: &Requester,
        queue: &Name,
    ) -> Result<QueueStats, Problem> {
        let answer = self.of_queue(requester, queue, StatsOf::Queue).await?;
        Ok(only!(answer, StatsReply::Queue(stats) => stats))
    }

    /// How a queue is set up.
    pub async fn setup(&self, requester: &Requester, queue: &Name) -> Result<QueueSetup, Problem> {
        let answer = self.of_queue(requester, queue, StatsOf::Setup).await?;
        Ok(only!(answer, StatsReply::Setup(setup) => *setup))
    }

    /// Held keys of a queue with the ends of their holds.
    ///
    /// # Errors
    /// There is no such queue, or `requester` has no right to see it.
    pub async fn held_keys(
        &self,
        requester: &Requester,
        queue: &Name,
    ) -> Result<Vec<HeldKey>, Problem> {
        let answer = self.of_queue(requester, queue, StatsOf::HeldKeys).await?;
        Ok(only!(answer, StatsReply::HeldKeys(held) => held))
    }

    /// A part of all queues that may be seen, from a place on.
    pub async fn queue_page(
        &self,
        requester: &Requester,
        from: (u8, u32),
    ) -> Result<QueuePage, Problem> {
        let answer = self.stats(requester, StatsOf::Queues { from }).await?;
        Ok(only!(answer, StatsReply::Queues(page) => page))
    }
}
