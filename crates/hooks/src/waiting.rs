//! A take that waits.

use quintet_types::{BackTo, LeaseOwner, LeaseRequest, LeaseTime, Name, Take};
use smallvec::SmallVec;

/// A take whose message has not come.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// As it was asked, with the queues a hook chose.
    pub(crate) take: Take,
    /// The queues of a subscription as they were asked.
    pub(crate) named: SmallVec<[Name; 1]>,
    /// Its message is leased in place of being removed.
    pub(crate) leased: bool,
}

impl Waiting {
    /// The take that goes to the shards.
    pub(crate) fn as_take(&self) -> Take {
        let mut take = self.take.clone();
        if self.leased {
            take.lease = Some(LeaseRequest {
                owner: LeaseOwner::Connection,
                time: LeaseTime::Fixed(0),
                back_to: BackTo::Position,
                held_max: take.refuse_if_held,
            });
        }
        take
    }
}
