//! Leases that takes give, and give again to one that is sent again.

use quintet_types::{
    AT_ONCE_MS, BackTo, Bound, ClientId, CommandError, Handed, Lease, LeaseOwner, LeaseRequest,
    LeaseTime, Message, MessageId, Ms, Outcome, QueueId, Return, State, Take,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::take_tokens::LeaseGrant;

impl Engine {
    pub(crate) fn lease_for(&self, client_id: ClientId, slot: u32, ask: &LeaseRequest) -> Lease {
        let message = self.store.messages.at(slot);
        let queue = self.store.expect_queue(message.queue);
        let default = queue.live.settings.default_ttr_ms;
        let span_ms = match ask.time {
            LeaseTime::OwnTtr => message.ttr_ms.unwrap_or(0),
            LeaseTime::TtrOrDefault | LeaseTime::TtrOrOver => message.ttr_ms.unwrap_or(default),
            LeaseTime::TtrOrDefaultElse(ms) => match message.ttr_ms.unwrap_or(default) {
                0 => ms,
                own => own,
            },
            LeaseTime::Fixed(ms) => ms,
            LeaseTime::TtrElse(ms) => message.ttr_ms.unwrap_or(ms),
            LeaseTime::Over => 0,
        };
        let (span_ms, until) = match is_over(ask, Some(span_ms)) {
            true => (0, Some(self.now)),
            false => (span_ms, (span_ms > 0).then(|| self.after(span_ms))),
        };
        assert!(
            until.is_none_or(|until| until >= self.now),
            "a lease ends no sooner than it begins"
        );
        // In an ordered queue a message keeps its place.
        let ordered = queue.groups.as_ref().is_some_and(|g| g.is_ordered());
        let back_to = match ordered && message.key().is_some() {
            true => BackTo::Position,
            false => ask.back_to,
        };
        let bound = match (ask.owner, until) {
            (LeaseOwner::Connection, _) | (LeaseOwner::TimeElseConnection, None) => {
                Bound::Connection
            }
            (LeaseOwner::Process, _) => Bound::Process,
            (LeaseOwner::Time | LeaseOwner::TimeElseConnection, _) => Bound::Time,
        };
        Lease {
            client_id,
            bound,
            until,
            span_ms,
            back_to,
            epoch: 0,
            since: Ms(0),
        }
    }

    /// Leases that are over in their own step end.
    #[cold]
    pub(super) fn end_over<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        ask: &LeaseRequest,
        handed: &[Message],
    ) {
        // A consumer that asked for no time was not late.
        let why = match ask.time == LeaseTime::Over {
            true => Return::Released,
            false => Return::Timeout,
        };
        for message in handed.iter().filter(|message| is_over(ask, message.ttr_ms)) {
            self.give_back(cx, message.id, why);
            cx.wake(message.queue);
        }
    }

    /// The leases that a take with this token gave, if all of them last as they were given.
    /// Refused if the token came with another request.
    #[cold]
    pub(super) fn take_again<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
    ) -> Option<Outcome> {
        let (ask, queue, token) = with_token(take, queues)?;
        let taken = self.take_tokens.of(queue, token, self.now)?;
        if taken.sum > 0 && take.token_sum > 0 && taken.sum != take.token_sum {
            let first = taken.granted.first().map_or(MessageId(0), |lease| lease.id);
            return Some(Outcome::Refused(CommandError::TokenUsed(first)));
        }
        let mut again = Vec::with_capacity(taken.granted.len());
        for lease in &taken.granted {
            // What is reserved is in memory.
            let slot = self.store.slot(lease.id)?;
            let message = self.store.messages.at(slot);
            let lasts = message.queue == queue
                && message.state == State::Reserved
                && message.reserves == lease.number
                && message.cancelled().is_none();
            let as_granted = |held: &Lease| {
                let granted = (lease.until, lease.client_id);
                held.bound == Bound::Time && (held.until, held.client_id) == granted
            };
            if !lasts || !self.store.leases.get(&slot).is_some_and(as_granted) {
                return None;
            }
            again.push((slot, lease.client_id));
        }
        let mut granted = Vec::with_capacity(again.len());
        let mut handed = Handed::new();
        for (slot, client_id) in again {
            let lease = self.lease_for(ClientId(0), slot, ask);
            let message = self.store.messages.at(slot);
            let at = message.at();
            granted.push(LeaseGrant {
                id: at.id,
                number: message.reserves,
                until: lease.until,
                client_id,
            });
            let mut message = message.clone();
            message.ttr_ms = shown_ms(message.ttr_ms, ask, &lease);
            // Its first lease may be this one, which goes on.
            if let Some(held) = self.store.leases.get(&slot)
                && held.since != Ms(0)
            {
                message.extra_mut().was_leased(held.since);
            }
            handed.push(message);
            if let Some(until) = lease.until {
                self.fact(cx, Fact::Touched { at, until });
            }
        }
        self.take_tokens.renew(queue, token, granted.into());
        Some(Outcome::Messages(handed))
    }

    /// A take with a token was given these.
    #[cold]
    pub(super) fn note_token(&mut self, take: &Take, queues: &[QueueId], handed: &[Message]) {
        let Some((_, queue, token)) = with_token(take, queues) else {
            // A token counts for a lease by time from one queue alone.
            return;
        };
        let granted = handed.iter().filter_map(|message| {
            let slot = self.store.slot(message.id)?;
            let lease = self.store.leases.get(&slot)?;
            Some(LeaseGrant {
                id: message.id,
                number: message.reserves,
                until: lease.until,
                client_id: lease.client_id,
            })
        });
        let granted = granted.collect();
        let (sum, now) = (take.token_sum, self.now);
        self.take_tokens.note(queue, token, sum, granted, now);
    }
}

/// The token of a take that may be sent again, and its queue.
fn with_token<'a>(
    take: &'a Take,
    queues: &[QueueId],
) -> Option<(&'a LeaseRequest, QueueId, &'a [u8])> {
    let token = take.token.as_deref()?;
    let ask = take.lease.as_ref().filter(|_| !take.peek)?;
    let lasts = ask.owner == LeaseOwner::Time && ask.time != LeaseTime::Over;
    match queues {
        [queue] if lasts && take.queues.len() <= 1 => Some((ask, *queue, token)),
        _ => None,
    }
}

/// The time to process that the consumer of a message with this one of its own is shown.
pub(super) fn shown_ms(own: Option<u64>, ask: &LeaseRequest, lease: &Lease) -> Option<u64> {
    let granted = match ask.time {
        // The consumer has put another time in the place of none.
        LeaseTime::TtrOrDefaultElse(_) if own == Some(0) => None,
        LeaseTime::TtrOrDefault
        | LeaseTime::TtrOrDefaultElse(_)
        | LeaseTime::TtrOrOver
        | LeaseTime::TtrElse(_) => own,
        LeaseTime::OwnTtr | LeaseTime::Fixed(_) | LeaseTime::Over => return own,
    };
    granted.or(Some(match lease.until {
        Some(_) => lease.span_ms.max(AT_ONCE_MS),
        None => lease.span_ms,
    }))
}

/// True if such a lease is over in the step that gives it. `ttr_ms`: that of the
/// message as its consumer is shown it.
pub(super) fn is_over(ask: &LeaseRequest, ttr_ms: Option<u64>) -> bool {
    match ask.time {
        LeaseTime::Over => true,
        LeaseTime::TtrOrDefault | LeaseTime::TtrOrDefaultElse(_) => ttr_ms == Some(AT_ONCE_MS),
        LeaseTime::TtrOrOver => matches!(ttr_ms, Some(0 | AT_ONCE_MS)),
        LeaseTime::OwnTtr | LeaseTime::Fixed(_) | LeaseTime::TtrElse(_) => false,
    }
}
