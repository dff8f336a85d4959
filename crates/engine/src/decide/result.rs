//! Results of messages: answering a client that asks for one, and telling the clients that wait.

use quintet_types::{
    Answer, At, Body, CORRELATION, ClientId, CommandError, Ended, Hold, MESSAGE_NAME_BYTES_MAX,
    Message, MessageId, MessageResult, Name, Outcome, Principal, Put, QueueId, REPLY_STATE,
    Removal, ReplyTo, ResultState, State, TRACK_NOTE_BYTES_MAX, TrackState, Transfer, Verb,
};

use super::Stop;
use super::cold::{Cold, durable};
use crate::awaits::ClientWait;
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::Call;

/// Waits that end in one tick.
const STEPS: usize = 256;

/// The effect of a fact that is about to be applied on messages that clients wait for.
pub(crate) enum Fate {
    Ends(Box<MessageResult>),
    /// A message goes to another queue of this shard.
    Goes(MessageId, QueueId),
    /// Messages of a queue may end, and no fact names them.
    Purges(QueueId),
}

impl Engine {
    /// Answers how a message ended; enters the client if it has not ended.
    pub(crate) fn await_result(
        &mut self,
        call: Call,
        client_id: ClientId,
        id: MessageId,
        wait_ms: u64,
    ) -> Result<Answer, Cold> {
        let found = self.look_up(id)?;
        let Some(slot) = found else {
            // It is gone, or the client made up its id.
            return durable(self.result_of_gone(call.caller.principal, id));
        };
        let message = self.store.messages.at(slot);
        let queue = message.queue;
        if let Some((state, text)) = message.result() {
            let queue = self.store.name_of(queue);
            return durable::<Stop>(Ok(Outcome::Result(Box::new(MessageResult {
                id,
                queue,
                state,
                text,
            }))));
        }
        if wait_ms == 0 {
            return durable::<Stop>(Ok(Outcome::Empty));
        }
        if self.many_wait() {
            return durable(Err(CommandError::TooManyWaiters));
        }
        self.follow();
        let wait = ClientWait {
            principal: call.caller.principal,
            id,
            until: self.after(wait_ms),
            more: queue,
        };
        self.awaits.waits.add(client_id, wait);
        Ok(Answer::Later)
    }

    /// The result of a message that is not there, as far as it is known: by its record as a tracked
    /// message, or among the newest ends.
    fn result_of_gone(
        &mut self,
        requester: Principal,
        id: MessageId,
    ) -> Result<Outcome, CommandError> {
        let now = self.now;
        let track = self.store.tracks.of(id).filter(|track| track.until > now);
        let ended = self.store.end_of(id);
        let (why, note) = (ended.as_ref().map(|end| end.why), track.map(|t| &t.note));
        let non_empty = |note: &[u8]| (!note.is_empty()).then(|| note.into());
        let (state, text) = match (why, track.map(|track| track.state)) {
            // A note that may have been cut is no result. It may lack a part of a character.
            (Some(Ended::Forgotten), _) => {
                let whole = note.filter(|note| note.len() + 3 < TRACK_NOTE_BYTES_MAX);
                (ResultState::Done, whole.cloned())
            }
            (Some(why), _) => {
                let state = state_of(why);
                let failed = matches!(state, ResultState::Failed | ResultState::Cancelled);
                (
                    state,
                    note.filter(|_| failed).and_then(|note| non_empty(note)),
                )
            }
            (None, Some(TrackState::Done)) => (ResultState::Done, None),
            (None, Some(TrackState::Failed)) => {
                (ResultState::Failed, note.and_then(|note| non_empty(note)))
            }
            (None, Some(TrackState::Cancelled)) => (
                ResultState::Cancelled,
                note.and_then(|note| non_empty(note)),
            ),
            (None, Some(TrackState::Gone)) => (ResultState::Gone, None),
            // Nobody says so of a message that a purge has removed.
            (None, Some(TrackState::Waiting | TrackState::Reserved | TrackState::Buried))
            | (None, None) => return Err(CommandError::NotFound),
        };
        let queue = ended.and_then(|end| end.queue);
        let queue = queue.or_else(|| track.map(|track| track.queue.clone()));
        let may = match &queue {
            Some(queue) => self.may(requester, Verb::Peek, queue),
            None => self.may_all(requester, Verb::Peek),
        };
        if !may {
            return Err(CommandError::NotPermitted);
        }
        Ok(Outcome::Result(Box::new(MessageResult {
            id,
            queue: queue.unwrap_or_default(),
            state,
            text,
        })))
    }

    /// The end that a fact, which is about to be applied, brings to a message.
    pub(crate) fn result_in(&self, fact: &Fact) -> Option<MessageResult> {
        let (id, state) = end_in(fact)?;
        let message = self.store.message(id)?;
        let extra = message.extra.as_deref();
        let status = extra.map_or(&[][..], |extra| &extra.status);
        let non_empty = |text: &[u8]| (!text.is_empty()).then(|| text.into());
        let text = match (fact, state) {
            (Fact::Archived { status, .. }, _) => Some(status.clone()),
            (Fact::Buried { reason, .. }, _) if !reason.is_empty() => non_empty(reason),
            (_, ResultState::Failed | ResultState::Dead) => non_empty(status),
            (_, ResultState::Cancelled) => {
                let cancelled = message.cancelled();
                cancelled.and_then(|cancelled| non_empty(&cancelled.reason))
            }
            _ => None,
        };
        Some(MessageResult {
            id,
            queue: self.store.name_of(message.queue),
            state,
            text,
        })
    }

    /// Whether a put may name the queue that it names for its reply.
    #[inline]
    pub(super) fn may_reply(&mut self, call: Call, put: &Put) -> Result<(), CommandError> {
        let reply = put.more.as_ref().and_then(|more| more.reply.as_deref());
        reply.map_or(Ok(()), |reply| self.may_reply_to(call, &put.queue, reply))
    }

    /// A reply shows what became of the message, as a peek does. Its queue is made under the limits
    /// of its caller, as if the caller put into it.
    #[cold]
    fn may_reply_to(
        &mut self,
        call: Call,
        from: &Name,
        reply: &ReplyTo,
    ) -> Result<(), CommandError> {
        // Each message of a backlog may have one.
        if !reply.queue.is_possible() || reply.queue.as_bytes().len() > MESSAGE_NAME_BYTES_MAX {
            return Err(CommandError::BadName);
        }
        if reply.correlation.len() > MESSAGE_NAME_BYTES_MAX {
            return Err(CommandError::BadMessageName);
        }
        let principal = call.caller.principal;
        if !self.may(principal, Verb::Put, &reply.queue) || !self.may(principal, Verb::Peek, from) {
            return Err(CommandError::NotPermitted);
        }
        // An earlier put of the same command may have made it, and counts on it.
        if !self.belongs_elsewhere(&reply.queue) && self.store.find(&reply.queue).is_none() {
            let made = self.find_or_make(call, &reply.queue)?;
            self.forget_unused(made);
        }
        Ok(())
    }

    /// The reply of a message that a fact, which is about to be applied, ends; its queue is not yet
    /// known by number.
    #[cold]
    pub(crate) fn reply_in(&self, fact: &Fact) -> Option<Box<(Name, Message)>> {
        let (id, state) = end_in(fact)?;
        let message = self.store.message(id)?;
        let reply = message.reply_to().filter(|_| state != ResultState::Moved)?;
        if let Fact::Removed { why, .. } = fact {
            // As where a purge or a drop removes it in one fact with all others; or it makes room
            // there.
            let silent = matches!(why, Removal::Purged | Removal::Doomed)
                || *why == Removal::Discarded && reply.queue == self.store.name_of(message.queue);
            if silent {
                return None;
            }
        }
        let result = self.result_in(fact)?;
        let at = At {
            id: MessageId(0),
            ..message.at()
        };
        let body = Body::new(&result.text.unwrap_or_default());
        let mut notice = Message::new(at, self.now, body);
        notice.extra_mut().attrs = vec![
            (CORRELATION.into(), reply.correlation.clone()),
            (REPLY_STATE.into(), state.word().as_bytes().into()),
        ];
        Some(Box::new((reply.queue.clone(), notice)))
    }

    /// Puts a reply in the step that ends its message; sets it aside if its queue is another
    /// shard's. Its queue is made if need be, and takes it when it is full: nothing could refuse it
    /// but the end of the message. Where no more queues may be made there is no reply.
    #[cold]
    pub(crate) fn send_reply<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        (to, mut message): (Name, Message),
    ) {
        self.replies += 1;
        if self.belongs_elsewhere(&to) {
            message.id = self.next_id(cx, true);
            message.position = message.id.0 as i64;
            message.state = State::Prepared;
            message.segment_ref = self.segment_ref;
            self.fact_alone(cx, Fact::SentImage(message, to));
            // It goes to a queue of another shard: the router carries it there.
            return;
        }
        let Ok(queue) = self.find_or_make_ours(&to) else {
            self.replies -= 1;
            // Clients have made as many queues as there may be.
            return;
        };
        self.record_queue(cx, queue);
        let logged = self.store.is_logged(queue);
        message.id = self.next_id(cx, logged);
        message.position = message.id.0 as i64;
        message.queue = queue;
        message.extra_mut().expires = self.expiry_in(queue);
        if self.store.expect_queue(queue).ages() {
            self.begin_aging(cx, &mut message);
        }
        self.fact_alone(cx, Fact::Put(message));
        cx.wake(queue);
    }

    /// The effect of a fact that is about to be applied; `None`: nobody waits for its message.
    #[cold]
    pub(crate) fn fate_in(&self, fact: &Fact) -> Option<Fate> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others leave a message where it is"
        )]
        match fact {
            Fact::QueueFlushed { queue, .. }
            | Fact::QueuePurged { queue, .. }
            | Fact::QueueDropped { queue, .. } => Some(Fate::Purges(*queue)),
            Fact::Moved { at, to, why, .. } if !ends_by(*why) => {
                let is_awaited = self.awaits.waits.has(at.id);
                is_awaited.then_some(Fate::Goes(at.id, *to))
            }
            _ => {
                let (id, _) = end_in(fact)?;
                let result = self.awaits.waits.has(id).then(|| self.result_in(fact))?;
                result.map(|result| Fate::Ends(Box::new(result)))
            }
        }
    }

    /// Notifies the clients that wait; the fact has been applied.
    #[cold]
    pub(crate) fn notify_outcome(&mut self, fate: Fate) {
        match fate {
            Fate::Ends(result) => self.awaits.ended(&result),
            Fate::Goes(id, to) => self.awaits.renamed(id, id, Some(to)),
            Fate::Purges(queue) => {
                // In a run none is found by its id; all of a queue go together.
                let gone = self
                    .awaits
                    .messages()
                    .filter(|&(id, from)| from == queue && self.store.message(id).is_none());
                let gone: Vec<MessageId> = gone.map(|(id, _)| id).collect();
                for id in gone {
                    self.awaits.ended(&MessageResult {
                        id,
                        queue: self.store.name_of(queue),
                        state: ResultState::Gone,
                        text: None,
                    });
                }
            }
        }
    }

    /// Delivers to clients whose wait has ended in this step.
    #[cold]
    pub(crate) fn deliver_results<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for (client_id, principal, mut outcome) in self.awaits.take_notifications() {
            let mut hold = Hold::Turn;
            if let Outcome::Result(result) = &outcome {
                hold = Hold::Durable;
                // Its rights may have changed, and the message have gone elsewhere.
                if result.queue != Name::default()
                    && !self.may(principal, Verb::Peek, &result.queue)
                {
                    outcome = Outcome::Refused(CommandError::NotPermitted);
                }
            }
            self.deliver(cx, client_id, false, false, outcome, hold);
            cx.only_peeked();
        }
    }

    /// Ends the waits whose time is over.
    pub(crate) fn end_awaits(&mut self) {
        for _ in 0..STEPS {
            let Some(client_id) = self.awaits.waits.due(self.now) else {
                // No other is over.
                return;
            };
            self.awaits.notify(client_id, Outcome::Empty);
            assert_ne!(
                self.awaits.waits.due(self.now),
                Some(client_id),
                "a client that was told waits for no result"
            );
        }
    }
}

/// The message that a fact ends, and how.
pub(super) fn end_in(fact: &Fact) -> Option<(MessageId, ResultState)> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others end no message by its id"
    )]
    Some(match fact {
        Fact::Removed { at, why } => {
            why.succeeded()?;
            (at.id, state_of((*why).into()))
        }
        Fact::Archived { at, .. } => (at.id, ResultState::Done),
        Fact::Buried { at, .. } => (at.id, ResultState::Dead),
        Fact::Moved { at, why, .. } | Fact::Sent { at, why, .. } if ends_by(*why) => {
            let dead = why.is_dead_letter();
            let state = if dead {
                ResultState::Dead
            } else {
                ResultState::Expired
            };
            (at.id, state)
        }
        Fact::Sent { at, .. } => (at.id, ResultState::Moved),
        _ => return None,
    })
}

/// True if a message that goes to another queue for this reason has ended in its own.
fn ends_by(why: Transfer) -> bool {
    why.is_dead_letter() || why == Transfer::Expired
}

pub(super) fn state_of(why: Ended) -> ResultState {
    match why {
        Ended::Taken | Ended::Finished | Ended::Forgotten => ResultState::Done,
        Ended::Failed => ResultState::Failed,
        Ended::Expired => ResultState::Expired,
        Ended::Cancelled => ResultState::Cancelled,
        Ended::Deleted | Ended::Dropped | Ended::Purged | Ended::QueueDeleted | Ended::Replaced => {
            ResultState::Gone
        }
        Ended::Edited | Ended::Moved | Ended::Sent => ResultState::Moved,
    }
}
