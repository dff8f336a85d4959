//! News of a lease: for a client that asks, and for clients that wait.

use quintet_types::{
    Answer, AwaitLease, Cancelled, ClientId, CommandError, Hold, LeaseNews, LeaseState, Message,
    MessageId, MessageVersion, Ms, Name, Outcome, Removal, ResultState, Verb,
};

use super::Stop;
use super::cold::{Cold, durable};
use super::result::{end_in, state_of};
use crate::awaits::ClientWait;
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::lease_waits::Woken;
use crate::step::Call;

/// Waits that end in one tick.
const STEPS: usize = 256;

impl Engine {
    /// Answers how a lease is; enters the client if that is what it knows.
    pub(crate) fn await_lease(
        &mut self,
        call: Call,
        client_id: ClientId,
        ask: AwaitLease,
    ) -> Result<Answer, Cold> {
        let news = match self.look_up(ask.id)? {
            Some(slot) => news_of(self.store.messages.at(slot), self.lease_until(ask.id), ask),
            None => match self.news_of_gone(call, ask.id) {
                Ok(news) => news,
                Err(error) => return durable::<Stop>(Err(error.into())),
            },
        };
        if !is_known(&news, ask) {
            return durable::<Stop>(Ok(Outcome::Lease(Box::new(news))));
        }
        if ask.wait_ms == 0 {
            return durable::<Stop>(Ok(Outcome::Empty));
        }
        if self.many_wait() {
            return durable(Err(CommandError::TooManyWaiters));
        }
        self.follow();
        let wait = ClientWait {
            principal: call.caller.principal,
            id: ask.id,
            until: self.after(ask.wait_ms),
            more: ask,
        };
        self.lease_waits.waits.add(client_id, wait);
        Ok(Answer::Later)
    }

    /// True if no more clients may wait.
    pub(super) fn many_wait(&self) -> bool {
        let waits = self.waiters.len() + self.awaits.waits.len() + self.lease_waits.waits.len();
        waits >= self.settings.waiters_max as usize
    }

    fn lease_until(&self, id: MessageId) -> Option<Ms> {
        let slot = self.store.slot(id)?;
        self.store.leases.get(&slot)?.until
    }

    /// The message of the lease is gone; clients that may see how it ended are notified.
    fn news_of_gone(&mut self, call: Call, id: MessageId) -> Result<LeaseNews, CommandError> {
        let end = self.store.end_of(id);
        let queue = end.as_ref().and_then(|end| end.queue.clone());
        let principal = call.caller.principal;
        let may = match &queue {
            Some(queue) => self.may(principal, Verb::Touch, queue),
            None => self.may_all(principal, Verb::Touch),
        };
        match end {
            Some(end) if may => Ok(LeaseNews {
                state: LeaseState::Ended(state_of(end.why)),
                ..LeaseNews::default()
            }),
            _ => Err(CommandError::NotFound),
        }
    }

    /// Notes what a fact, which is about to be applied, does to leases that clients wait for.
    #[cold]
    pub(crate) fn wake_lease(&mut self, fact: &Fact) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others are about a message by its id, or about none"
        )]
        let at = match fact {
            Fact::QueueFlushed { .. } | Fact::QueuePurged { .. } | Fact::QueueDropped { .. } => {
                return self.lease_waits.wake_all();
            }
            Fact::Touched { at, .. } => Some(at),
            _ => fact.at(),
        };
        let Some(id) = at.map(|at| at.id) else {
            // The fact is about no message.
            return;
        };
        let marked = self.store.message(id).and_then(Message::cancelled);
        let marked = marked.map(|cancelled| Box::new(cancelled.clone()));
        let Some(woken) = self.lease_waits.wake(id) else {
            // Nobody waits for it.
            return;
        };
        if let Fact::Edited { change, .. } = fact
            && change.cancelled.is_some()
        {
            woken.cancelled.clone_from(&change.cancelled);
        }
        if let Some((_, state)) = end_in(fact) {
            woken.ended = Some(state);
            woken.cancelled = woken.cancelled.take().or(marked);
        }
        if let Fact::Removed { why, .. } = fact
            && *why == Removal::Cancelled
        {
            woken.cancelled.get_or_insert_default();
        }
    }

    /// Delivers to clients whose lease is another one than they know, at the end of a step.
    #[cold]
    pub(crate) fn notify_leases<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for (id, woken) in self.lease_waits.take_woken() {
            for (client_id, wait) in self.lease_waits.waits.of(id) {
                let ask = wait.more;
                let news = self.news_after(&woken, ask);
                if is_known(&news, ask) {
                    continue;
                }
                let message = self.store.message(id);
                let queue = message.map_or(ask.seen.queue, |message| message.queue);
                let queue = self.store.name_of(queue);
                // Its rights may have changed.
                let may = queue == Name::default() || self.may(wait.principal, Verb::Touch, &queue);
                let outcome = match may {
                    true => Outcome::Lease(Box::new(news)),
                    false => Outcome::Refused(CommandError::NotPermitted),
                };
                let waited = self.lease_waits.waits.remove(client_id);
                assert!(
                    waited.is_some(),
                    "a client has its news of a lease as it waits"
                );
                self.deliver(cx, client_id, false, false, outcome, Hold::Durable);
                cx.only_peeked();
            }
        }
    }

    fn news_after(&self, woken: &Woken, ask: AwaitLease) -> LeaseNews {
        let mut news = match self.store.message(ask.id) {
            Some(message) => news_of(message, self.lease_until(ask.id), ask),
            None => LeaseNews {
                state: LeaseState::Ended(woken.ended.unwrap_or(ResultState::Gone)),
                ..LeaseNews::default()
            },
        };
        if let (LeaseState::Back, Some(ended)) = (news.state, woken.ended) {
            news.state = LeaseState::Ended(ended);
        }
        if news.cancelled.is_none() {
            news.cancelled.clone_from(&woken.cancelled);
        }
        news
    }

    /// A client no longer waits for news of a lease.
    pub(crate) fn stop_lease_wait<J: Journal>(&mut self, cx: &mut Cx<'_, J>, client_id: ClientId) {
        if self.lease_waits.waits.remove(client_id).is_some() {
            self.deliver(cx, client_id, false, false, Outcome::Empty, Hold::Turn);
            cx.only_peeked();
        }
    }

    /// Ends the waits whose time is over.
    pub(crate) fn end_lease_waits<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for _ in 0..STEPS {
            let Some(client_id) = self.lease_waits.waits.due(self.now) else {
                // No other is over.
                return;
            };
            self.stop_lease_wait(cx, client_id);
            assert_ne!(
                self.lease_waits.waits.due(self.now),
                Some(client_id),
                "a client that was told waits for no lease"
            );
        }
    }
}

/// The state of the lease that is requested.
fn news_of(message: &Message, until: Option<Ms>, ask: AwaitLease) -> LeaseNews {
    if MessageVersion::of(message) != ask.seen {
        let state = match message.result() {
            Some((ended, _)) => LeaseState::Ended(ended),
            None => LeaseState::Back,
        };
        return LeaseNews {
            state,
            ..LeaseNews::default()
        };
    }
    let cancelled = message.cancelled();
    LeaseNews {
        state: LeaseState::Held,
        until,
        cancelled: cancelled.map(|cancelled: &Cancelled| Box::new(cancelled.clone())),
    }
}

/// True if a client knows all of it.
fn is_known(news: &LeaseNews, ask: AwaitLease) -> bool {
    let known = Some((news.cancelled.is_some(), news.until));
    news.state == LeaseState::Held && ask.known == known
}
