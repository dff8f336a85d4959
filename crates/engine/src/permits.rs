//! Who may do what: asked here, known outside.

use std::fmt;
use std::sync::Arc;

use crate::account::Account;
use crate::command::{Command, Principal, Verb};
use crate::decide::Cold;
use crate::engine::Engine;
use crate::name::Name;
use crate::outcome::Refusal;
use crate::store::Maker;

/// What principals may do. A shard has one of its own and asks it under its
/// lock, so it may remember answers. It has to answer the same for the same
/// question, and is never asked about [`Principal::SERVER`].
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

    /// What the queues of a maker are counted in; `None`: nobody counts them.
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

impl Engine {
    /// Replaces what principals may do. `None`: everybody everything.
    pub fn set_permits(&mut self, permits: Option<Box<dyn Permits>>) {
        self.permits = permits;
        let permits = &mut self.permits;
        self.store
            .count_makers(&mut |maker| permits.as_mut()?.account(maker));
    }

    /// Who makes a queue now, and what it is counted in.
    ///
    /// # Errors
    /// Whoever it is has made as many as may be.
    pub(crate) fn making(&mut self) -> Result<Maker, Refusal> {
        let asker = self.asker;
        let Some(permits) = self.permits.as_mut().filter(|_| asker != Principal::SERVER) else {
            return Ok(Maker::default());
        };
        let Some(name) = permits.maker(asker) else {
            return Ok(Maker::default());
        };
        let account = permits.account(&name);
        let good = self.found_good;
        let enter = |account: &Account| account.enter(good);
        match account.as_deref().is_none_or(enter) {
            true => Ok(Maker {
                name: Some(name),
                account,
            }),
            false => Err(Refusal::UserQueues),
        }
    }

    /// True if `principal` may do this to the messages of `queue`.
    pub fn may(&mut self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        match &mut self.permits {
            Some(permits) if principal != Principal::SERVER => permits.may(principal, verb, queue),
            Some(_) | None => true,
        }
    }

    /// True if `principal` may do this where no queue is named.
    pub fn may_all(&mut self, principal: Principal, verb: Verb) -> bool {
        match &mut self.permits {
            Some(permits) if principal != Principal::SERVER => permits.may_all(principal, verb),
            Some(_) | None => true,
        }
    }

    /// True if a command that names a message may be done to that message. One
    /// that names queues was looked at by whoever brought it.
    #[cold]
    pub(crate) fn may_touch(
        &mut self,
        principal: Principal,
        command: &Command,
    ) -> Result<bool, Cold> {
        let about = command.about();
        let Some(id) = about.subject.message() else {
            return Ok(true);
        };
        // That it is not there is said by the command itself.
        let Some(slot) = self.look_up(id)? else {
            return Ok(true);
        };
        let queue = self.store.messages.at(slot).queue;
        let name = self.store.name_of(queue);
        Ok(self.may(principal, about.verb, &name))
    }
}
