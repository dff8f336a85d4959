//! Numbers asked for on behalf of a requester.

use quintet_types::{
    Command, HeldKey, Name, Outcome, QueuePage, QueueSetup, QueueStats, ShardStats, StatsOf,
    StatsReply,
};

use super::{Api, Problem};
use quintet_http::Requester;

impl Api {
    pub(super) async fn stats(
        &self,
        requester: &Requester,
        of: StatsOf,
    ) -> Result<StatsReply, Problem> {
        let (Outcome::Stats(stats), _) = self.ask(requester, Command::Stats(of)).await? else {
            return Err(Problem::unexpected());
        };
        Ok(*stats)
    }

    /// Sums over all queues.
    ///
    /// # Errors
    /// The error of the shards, as of all these.
    pub(crate) async fn sums(&self, requester: &Requester) -> Result<ShardStats, Problem> {
        let StatsReply::Shard(stats) = self.stats(requester, StatsOf::Shard).await? else {
            return Err(Problem::unexpected());
        };
        Ok(stats)
    }

    /// A queue that is there and may be seen.
    pub async fn queue_stats(
        &self,
        requester: &Requester,
        queue: &Name,
    ) -> Result<QueueStats, Problem> {
        let answer = self.stats(requester, StatsOf::Queue(queue.clone())).await;
        let StatsReply::Queue(stats) = answer.map_err(|problem| problem.of_queue(queue))? else {
            return Err(Problem::unexpected());
        };
        Ok(stats)
    }

    /// How a queue is set up.
    pub async fn setup(&self, requester: &Requester, queue: &Name) -> Result<QueueSetup, Problem> {
        let answer = self.stats(requester, StatsOf::Setup(queue.clone())).await;
        let StatsReply::Setup(setup) = answer.map_err(|problem| problem.of_queue(queue))? else {
            return Err(Problem::unexpected());
        };
        Ok(*setup)
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
        let of = StatsOf::HeldKeys(queue.clone());
        let answer = self.stats(requester, of).await;
        let StatsReply::HeldKeys(held) = answer.map_err(|problem| problem.of_queue(queue))? else {
            return Err(Problem::unexpected());
        };
        Ok(held)
    }

    /// A part of all queues that may be seen, from a place on.
    pub async fn queue_page(
        &self,
        requester: &Requester,
        from: (u8, u32),
    ) -> Result<QueuePage, Problem> {
        let StatsReply::Queues(page) = self.stats(requester, StatsOf::Queues { from }).await?
        else {
            return Err(Problem::unexpected());
        };
        Ok(page)
    }
}
