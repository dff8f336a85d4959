//! A take that waits.

use quintet_types::{BackTo, LeaseOwner, LeaseRequest, LeaseTime, Name, Take};
use smallvec::SmallVec;

/// A lease of a connection for so long, of which it may hold so many.
pub fn lease_for(ms: u64, held_max: u32) -> LeaseRequest {
    LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(ms),
        back_to: BackTo::Position,
        held_max,
    }
}

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
            take.lease = Some(lease_for(0, take.refuse_if_held));
        }
        take
    }
}
