//! Rights: the engine asks for them, and others know them.

use std::fmt;
use std::sync::Arc;

use crate::account::Account;
use crate::caller::Principal;
use crate::command::Verb;
use crate::name::Name;

/// The rights of principals. A shard has one of its own and asks it under its lock, so it may
/// remember answers. It has to answer the same for the same question, and is never asked about
/// [`Principal::SERVER`].
pub trait Permits: Send {
    /// True if `principal` may do this to the messages of `queue`. Of a
    /// [`Verb::Move`] it is where they come from; that they may go where they
    /// go is asked as [`Verb::Put`].
    fn may(&mut self, principal: Principal, verb: Verb, queue: &Name) -> bool;

    /// True if `principal` may do this where no queue is named.
    fn may_all(&mut self, principal: Principal, verb: Verb) -> bool;

    /// Under which name queues that `principal` makes are remembered; `None`: under none.
    fn maker(&mut self, principal: Principal) -> Option<Box<[u8]>> {
        let _ = principal;
        None
    }

    /// The account that counts the queues of a maker; `None`: nobody counts them.
    fn account(&mut self, maker: &[u8]) -> Option<Arc<Account>> {
        let _ = maker;
        None
    }
}

/// Nobody asks what is in it.
impl fmt::Debug for dyn Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permits")
    }
}
