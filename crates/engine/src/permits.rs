//! Rights: the engine asks here, and the answers come from outside.

use quintet_types::{Account, Command, CommandError, Name, Permits, Principal, Verb};

use crate::decide::Cold;
use crate::engine::Engine;
use crate::step::Call;
use crate::store::Maker;

impl Engine {
    /// Replaces what principals may do. `None`: everybody everything.
    pub fn set_permits(&mut self, permits: Option<Box<dyn Permits>>) {
        self.permits = permits;
        let permits = &mut self.permits;
        self.store
            .count_makers(&mut |maker| permits.as_mut()?.account(maker));
    }

    /// The maker of a new queue, and the account that counts it.
    ///
    /// # Errors
    /// The user already has as many queues as its limit allows.
    pub(crate) fn making(&mut self, call: Call) -> Result<Maker, CommandError> {
        let Some(name) = self.user_of(call.caller.principal) else {
            return Ok(Maker::default());
        };
        let permits = self.permits.as_mut();
        let account = permits.and_then(|permits| permits.account(&name));
        let enter = |account: &Account| account.enter(call.found_good);
        match account.as_deref().is_none_or(enter) {
            true => Ok(Maker {
                name: Some(name),
                account,
            }),
            false => Err(CommandError::UserQueues),
        }
    }

    /// The name of a user; `None`: it is no user, or nobody looks at users.
    pub(crate) fn user_of(&mut self, principal: Principal) -> Option<Box<[u8]>> {
        let permits = self.permits.as_mut();
        permits
            .filter(|_| principal != Principal::SERVER)?
            .maker(principal)
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
    /// that names queues was looked at by the caller.
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
