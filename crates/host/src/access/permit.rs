//! Rights of principals, checked before anything is decided.
//!
//! Queues that a command names are looked at here; of one that names a message
//! the engine looks at the message's queue, in the step that decides it
//! ([`quintet_types::Permits`]).

use std::sync::atomic::Ordering;

use quintet_types::{
    Caller, Command, CommandError, DeadLetter, Name, Outcome, Overrides, Permits, Principal,
    StatsReply, Subject, Verb,
};

use crate::{Core, Work};

use super::{Access, Decided, refused_at_once};

impl Core {
    /// Replaces what principals may do: `make` is called for each shard, and
    /// answers `None` if everybody may do everything. What is decided later
    /// keeps to it.
    pub fn set_permits(&self, make: impl Fn() -> Option<Box<dyn Permits>>) {
        let mut requested = false;
        for shard in 0..self.shards.len() {
            let permits = make();
            requested |= permits.is_some();
            // Before the last shard has them nobody is let in for want of them.
            self.permits_checked.fetch_or(requested, Ordering::SeqCst);
            self.lock(shard, Work::Server).engine.set_permits(permits);
        }
        self.permits_checked.store(requested, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn are_permits_checked(&self) -> bool {
        self.permits_checked.load(Ordering::Relaxed)
    }

    /// Commands refused since the start as their caller had no right.
    pub fn not_permitted(&self) -> u64 {
        self.not_permitted.load(Ordering::Relaxed)
    }
}

impl Access<'_> {
    /// Decides a command if its caller may do it.
    pub(super) fn decide_permitted(&mut self, caller: Caller, command: Command) -> Decided {
        if !self.permits(caller.principal, &command) {
            self.core.not_permitted.fetch_add(1, Ordering::Relaxed);
            return refused_at_once(CommandError::NotPermitted);
        }
        let lists = is_list(&command);
        match self.decide(caller, command) {
            Decided::Now(outcome, name, required) if lists => {
                let seen = self.what_is_seen(caller.principal, outcome);
                Decided::Now(seen, name, required)
            }
            Decided::Now(outcome, name, required) => {
                // Of a message by its id it is known in its step alone.
                if let Outcome::Refused(CommandError::NotPermitted) = outcome {
                    self.core.not_permitted.fetch_add(1, Ordering::Relaxed);
                }
                Decided::Now(outcome, name, required)
            }
            Decided::Later => Decided::Later,
        }
    }

    fn permits(&mut self, principal: Principal, command: &Command) -> bool {
        if principal == Principal::SERVER {
            return true;
        }
        // To give up a queue needs no right.
        if let Command::Refer { uses, watches, .. } = command
            && *uses != Some(true)
            && *watches != Some(true)
        {
            return true;
        }
        if let Command::Transaction(transaction) = command {
            // What a hook does it does as the server; the command it is about
            // stays the client's.
            let then = transaction.then.as_deref();
            return then.is_none_or(|then| self.permits(principal, then));
        }
        if let Command::Configure {
            overrides: Some(overrides),
            ..
        }
        | Command::Create { overrides, .. } = command
            && !self.may_lead_to(principal, overrides, None)
        {
            return false;
        }
        if let Command::Reconfigure { from, to, .. } = command
            && !self.may_lead_to(principal, to, Some(&**from))
        {
            return false;
        }
        let about = command.about();
        let verb = about.verb;
        match about.subject {
            // Lists show what may be seen of them.
            Subject::Slice(_) if is_list(command) => true,
            Subject::Nothing
            | Subject::All
            | Subject::Slice(_)
            | Subject::Table(_)
            | Subject::Several => self.may_all(principal, verb),
            Subject::Queue(queue) => self.may(principal, verb, queue),
            Subject::Queues(queues) => queues.iter().all(|queue| self.may(principal, verb, queue)),
            Subject::Puts(puts) => puts.iter().all(|put| self.may(principal, verb, &put.queue)),
            // A child has what its parent has, and perhaps more. To make one, which is given all
            // that is put into the parent, takes a right there; one that is there is only named.
            Subject::Between(parent, child) if verb == Verb::Join => {
                let shard = self.core.shard_of_queue(child.as_bytes());
                self.may(principal, verb, child)
                    && (self.may(principal, verb, parent)
                        || self.step(shard, |at| at.engine.is_child(child)))
            }
            Subject::Between(from, to) => {
                self.may(principal, verb, from) && self.may(principal, Verb::Put, to)
            }
            // Which queue it is in is known in the shard's step.
            Subject::Message(_) | Subject::Named | Subject::Batch(_) => true,
            Subject::MessageTo(_, to) => self.may(principal, Verb::Put, to),
        }
    }

    /// Checks the targets of dead and expired messages. Settings send them there for every client
    /// that put them, so this counts as a put by the author of the settings. Targets that were in
    /// `before` have their author already.
    fn may_lead_to(
        &mut self,
        principal: Principal,
        overrides: &Overrides,
        before: Option<&Overrides>,
    ) -> bool {
        let dead = overrides.dead_letter.as_ref();
        let dead = dead.filter(|to| before.is_none_or(|own| own.dead_letter.as_ref() != Some(*to)));
        let dead = match dead {
            Some(DeadLetter::To(name)) => Some(name),
            Some(DeadLetter::Bury) | None => None,
        };
        let expired = overrides.expire_to.as_ref();
        let expired =
            expired.filter(|to| before.is_none_or(|own| own.expire_to.as_ref() != Some(*to)));
        let mut queues = dead.into_iter().chain(expired);
        queues.all(|queue| queue.is_empty() || self.may(principal, Verb::Put, queue))
    }

    fn may(&mut self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        let shard = self.core.shard_of_queue(queue.as_bytes());
        self.step(shard, |at| at.engine.may(principal, verb, queue))
    }

    fn may_all(&mut self, principal: Principal, verb: Verb) -> bool {
        self.step(0, |at| at.engine.may_all(principal, verb))
    }

    /// A list of queues without those nothing may be seen of.
    fn what_is_seen(&mut self, principal: Principal, mut outcome: Outcome) -> Outcome {
        if principal != Principal::SERVER
            && let Outcome::Stats(reply) = &mut outcome
        {
            if let StatsReply::Queues(page) = &mut **reply {
                page.queues
                    .retain(|queue| self.may(principal, Verb::Stats, &queue.name));
            } else if let StatsReply::Names(page) = &mut **reply {
                page.names
                    .retain(|name| self.may(principal, Verb::Stats, name));
            }
        }
        outcome
    }
}

/// True for a command that shows many queues.
fn is_list(command: &Command) -> bool {
    matches!(
        command,
        Command::Stats(
            quintet_types::StatsOf::Queues { .. }
                | quintet_types::StatsOf::Names { .. }
                | quintet_types::StatsOf::Dependants { .. }
        ) | Command::Batch(quintet_types::BatchRequest::List { .. })
    )
}
