//! The table as a shard asks it, with what it was answered lately.

use std::sync::Arc;

use hashbrown::HashMap;
use quintet_types::{Account, Name, Permits, Principal, Verb};

use crate::rights::{Needs, Right, Rights, needs};
use crate::table::Table;

/// Answers remembered at most; then all are forgotten, which costs little: each
/// takes as long as a user has grants with `*`.
const REMEMBERED_MAX: usize = 8192;
/// Longer names are looked up each time, so that what is remembered stays
/// small.
const NAME_MAX: usize = 128;

/// Accounts that count the queues of a user, if they are counted.
pub type Accounts = dyn Fn(&[u8]) -> Option<Arc<Account>> + Send + Sync;

/// A table, as one shard asks it.
pub struct ShardPermits {
    table: Arc<Table>,
    accounts: Option<Arc<Accounts>>,
    remembered: HashMap<Principal, HashMap<Name, Rights>>,
    count: usize,
    /// The last answer: what one connection asks in a row is mostly about one queue.
    last: Option<(Principal, Name, Rights)>,
}

impl ShardPermits {
    /// Remembers nothing yet.
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            accounts: None,
            remembered: HashMap::new(),
            count: 0,
            last: None,
        }
    }

    /// Counts queues for the users that made them.
    #[must_use]
    pub fn counting(self, accounts: Arc<Accounts>) -> Self {
        Self {
            accounts: Some(accounts),
            ..self
        }
    }

    fn rights(&mut self, principal: Principal, queue: &Name) -> Rights {
        if let Some((who, name, rights)) = &self.last
            && *who == principal
            && name == queue
        {
            return *rights;
        }
        let rights = self.looked_up(principal, queue);
        if queue.as_bytes().len() <= NAME_MAX {
            self.last = Some((principal, queue.clone(), rights));
        }
        rights
    }

    fn looked_up(&mut self, principal: Principal, queue: &Name) -> Rights {
        let known = self.remembered.get(&principal);
        if let Some(rights) = known.and_then(|known| known.get(queue)) {
            return *rights;
        }
        let rights = self.table.rights(principal, queue.as_bytes());
        if queue.as_bytes().len() <= NAME_MAX {
            if self.count >= REMEMBERED_MAX {
                self.remembered.clear();
                self.count = 0;
            }
            let known = self.remembered.entry(principal).or_default();
            known.insert(queue.clone(), rights);
            self.count += 1;
        }
        rights
    }
}

impl Permits for ShardPermits {
    fn may(&mut self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        let needs = needs(verb);
        needs == Needs::Nothing || needs.met_by(self.rights(principal, queue))
    }

    fn may_all(&mut self, principal: Principal, verb: Verb) -> bool {
        match needs(verb) {
            Needs::Nothing => true,
            Needs::Any | Needs::On(_) => self.table.everywhere(principal).has(Right::Server),
        }
    }

    fn maker(&mut self, principal: Principal) -> Option<Box<[u8]>> {
        let name = self.table.name_of(principal)?;
        Some(name.as_bytes().into())
    }

    fn account(&mut self, maker: &[u8]) -> Option<Arc<Account>> {
        self.accounts.as_ref()?(maker)
    }
}
