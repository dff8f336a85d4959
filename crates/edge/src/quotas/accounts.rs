//! Contents of users' queues: an account for each user whose queues are limited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use quintet_auth::LimitTable;
use quintet_host::locked;
use quintet_types::Account;

/// Accounts that nothing is counted in are forgotten when twice as many are there as were then; not
/// below so many.
const LEAST: usize = 64;

/// All of them. What is counted is with the queues; this knows which account is whose.
#[derive(Default)]
pub(super) struct Accounts(Mutex<AccountTable>);

#[derive(Default)]
struct AccountTable {
    by: HashMap<Box<[u8]>, Weak<Account>>,
    cleanup_at: usize,
}

impl Accounts {
    /// The account of the user of this name, if it has limits.
    pub(super) fn of(&self, maker: &[u8], table: &LimitTable) -> Option<Arc<Account>> {
        let (queues, bytes) = table.of_user(std::str::from_utf8(maker).ok()?).stored()?;
        let mut known = locked(&self.0);
        if let Some(account) = known.by.get(maker).and_then(Weak::upgrade) {
            return Some(account);
        }
        if known.by.len() >= known.cleanup_at {
            known.by.retain(|_, account| account.strong_count() > 0);
            known.cleanup_at = (known.by.len() * 2).max(LEAST);
        }
        let account = Arc::new(Account::default());
        account.limit(queues, bytes);
        known.by.insert(maker.into(), Arc::downgrade(&account));
        Some(account)
    }

    /// By another table from now on.
    pub(super) fn reload(&self, table: &LimitTable) {
        for (maker, account) in &locked(&self.0).by {
            if let (Some(account), Ok(name)) = (account.upgrade(), std::str::from_utf8(maker)) {
                let (queues, bytes) = table.of_user(name).stored().unwrap_or_default();
                account.limit(queues, bytes);
            }
        }
    }
}
