//! Clients that refer to queues without a message or a wait there. All of it
//! is volatile: a restart forgets it.

use hashbrown::HashMap;
use smallvec::SmallVec;

use quintet_types::{ClientId, QueueId};

/// The relation of one client to one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) queue: QueueId,
    pub(crate) uses: bool,
    pub(crate) watches: bool,
}

/// All references, by client. The queues count theirs.
#[derive(Debug, Default)]
pub(crate) struct Referrers {
    pub(crate) by_client: HashMap<ClientId, SmallVec<[Reference; 2]>, foldhash::fast::RandomState>,
}
