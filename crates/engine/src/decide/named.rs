//! Operations on messages by their own names.

use super::Stop;
use quintet_types::{
    By, ByName, Caller, ClientId, MESSAGE_NAME_BYTES_MAX, MessageId, Ms, NamedAction, Outcome,
    Principal, Put,
};

use crate::engine::{Cx, Engine};
use crate::fact::Journal;

use smallvec::SmallVec;

/// Reserved messages of one name that are looked at in one step. A client that gives more of them
/// the same name finds those whose leases have run longest.
const NAMESAKES_MAX: usize = 256;

/// True if a put gives its message a name that no message can have, or none though it is to be
/// found by it.
pub(super) fn has_bad_name(put: &Put) -> bool {
    // No name, and not tracked.
    let Some(more) = &put.more else { return false };
    match &more.name {
        Some(name) => !(1..=MESSAGE_NAME_BYTES_MAX).contains(&name.len()),
        None => more.tracked,
    }
}

impl Engine {
    pub(crate) fn by_name<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        by_name: &ByName,
    ) -> Result<Outcome, Stop> {
        if by_name.action == NamedAction::Track {
            return self.tracked(cx.call().caller.principal, by_name);
        }
        let Some(id) = self.named(cx.call().caller.principal, client_id, by_name) else {
            // Not reserved here; a track may know it.
            return self.say_of_track(cx, by_name);
        };
        match &by_name.action {
            NamedAction::Track => unreachable!("a question for a track was answered before"),
            NamedAction::Peek => {
                let message = self.store.message(id);
                let message = message.expect("a message is there that was found by its name");
                Ok(Outcome::Messages(SmallVec::from_iter([message.clone()])))
            }
            NamedAction::Settle(how) => self.settle(cx, client_id, id, by_name.by, how),
            NamedAction::SettleHolding(how, hold) => {
                self.settle_holding(cx, (client_id, by_name.by), id, how, *hold)
            }
            NamedAction::Extend(ms) => self.extend(cx, client_id, (id, By::Anyone), *ms),
            NamedAction::Until(at) => {
                let lease = self
                    .store
                    .slot(id)
                    .and_then(|slot| self.store.leases.get(&slot));
                match lease.and_then(|lease| lease.until) {
                    Some(until) if until < *at => {
                        let ms = Some(at.since(self.now).max(1));
                        self.extend(cx, client_id, (id, By::Anyone), ms)
                    }
                    _ => Ok(Outcome::Done),
                }
            }
            NamedAction::Cancel(cancel) => self.cancel(cx, id, cancel),
            NamedAction::Progress(percent, text) => {
                let by = (id, by_name.by);
                Ok(self.progress(cx, client_id, by, *percent, text.as_deref())?)
            }
        }
    }

    /// How well this shard knows the message that a report or a cancel names: `Ms::NEVER` if it is
    /// reserved here (and false if it is cancelled already and is to be again), else as new as its
    /// newest record is.
    pub fn knows_named(&mut self, caller: Caller, by_name: &ByName) -> Option<(Ms, bool)> {
        let (requester, verb) = (caller.principal, by_name.action.verb());
        if let Some(id) = self.named(requester, caller.client_id, by_name) {
            let message = self.store.message(id);
            let is_cancelled = message.is_some_and(|message| message.cancelled().is_some());
            let again = is_cancelled && matches!(by_name.action, NamedAction::Cancel(_));
            return Some((Ms::NEVER, !again));
        }
        let track = self.track_named(requester, by_name, verb);
        track.ok().map(|(_, track)| track.newness())
    }

    /// The reserved message it is about; of a cancel one that is cancelled only if there is no
    /// other. Where no queue is named, those of queues that its caller may not do this to are none.
    fn named(
        &mut self,
        requester: Principal,
        client_id: ClientId,
        by_name: &ByName,
    ) -> Option<MessageId> {
        let queue = match &by_name.queue {
            Some(name) => Some(self.store.find(name)?),
            None => None,
        };
        let ids = self.store.reserved_as(&by_name.name);
        let ids: SmallVec<[MessageId; 4]> = ids.take(NAMESAKES_MAX).collect();
        let mut cancelled = None;
        for id in ids {
            let Some(message) = self.store.message(id) else {
                // A flush took it.
                continue;
            };
            let (own, is_cancelled) = (message.queue, message.cancelled().is_some());
            if queue.is_some_and(|queue| queue != own) || !self.allows(client_id, id, by_name.by) {
                continue;
            }
            let name = self.store.name_of(own);
            if queue.is_none() && !self.may(requester, by_name.action.verb(), &name) {
                continue;
            }
            if !is_cancelled || !matches!(by_name.action, NamedAction::Cancel(_)) {
                return Some(id);
            }
            cancelled = cancelled.or(Some(id));
        }
        cancelled
    }
}
