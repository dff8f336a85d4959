//! The events around a take.
//!
//! Where `after_take` has a function, a take that would remove its message
//! leases it to the caller's connection instead, and the hook's answer ends
//! that lease. So a message is never lost between the two steps.

use quintet_types::{
    ClientId, Command, CommandError, Effect, Handed, How, Message, Name, Outcome, State, Take,
    Wait, When,
};

use crate::error::HookError;
use crate::host::Who;
use crate::state::HookState;
use crate::subject::{Stored, Subject, body_of};
use crate::submit::{Decided, Missed};
use crate::verdict::{self, PutVerdict, TakeVerdict, TakenVerdict};
use crate::waiting::Waiting;
use quintet_policy::Event;

impl HookState {
    /// Submits a take, or a subscription.
    pub(crate) fn submit_take(&mut self, who: &Who, take: Take, standing: bool) -> Decided {
        let waiting = match self.chosen(who, take) {
            Ok(waiting) => waiting,
            Err(text) => return Decided::Denied(text),
        };
        if standing {
            return self.stand(who, waiting);
        }
        match self.plain(Command::Take(waiting.as_take())) {
            Decided::Later => {
                self.waits(who.caller.client_id, false, waiting);
                Decided::Later
            }
            Decided::Now(outcome, name) => self.handed(who, &waiting, outcome, name),
            answer @ (Decided::Denied(_) | Decided::Answer(_)) => answer,
        }
    }

    /// Changes a subscription.
    pub(crate) fn submit_rewatch(&mut self, who: &Who, take: Take) -> Decided {
        let waiting = match self.chosen(who, take) {
            Ok(waiting) => waiting,
            Err(text) => return Decided::Denied(text),
        };
        let decided = self.plain(Command::Rewatch(Box::new(waiting.as_take())));
        // One that was served, though it was not told yet, is not begun anew.
        if let Some(known) = self.waiting.get_mut(&(who.caller.client_id, true)) {
            *known = waiting;
        }
        decided
    }

    /// Adds a queue to a subscription or takes it away. What a hook decides of
    /// a take it decides of all its queues.
    pub(crate) fn submit_watch_queue(&mut self, who: &Who, queue: Name, on: bool) -> Decided {
        let before = self.has(Event::BeforeTake);
        let known = self.waiting.get_mut(&(who.caller.client_id, true));
        let Some(known) = known else {
            return self.plain(Command::WatchQueue { queue, on });
        };
        known.named.retain(|name| *name != queue);
        if on {
            known.named.push(queue.clone());
        }
        let mut take = known.take.clone();
        take.queues = known.named.clone();
        if before {
            return self.submit_rewatch(who, take);
        }
        known.take = take;
        self.plain(Command::WatchQueue { queue, on })
    }

    /// Leases a message by its id.
    pub(crate) fn submit_reserve(&mut self, who: &Who, command: Command) -> Decided {
        let mut decided = self.plain(command);
        if let Decided::Now(Outcome::Messages(messages), name) = decided {
            decided = self.after_take(who, messages, name, false);
        }
        // The hook sent it elsewhere.
        if let Decided::Now(outcome @ Outcome::Empty, _) = &mut decided {
            *outcome = Outcome::Refused(CommandError::NotFound);
        }
        decided
    }

    /// A take as `before_take` leaves it, or the text it is refused with.
    fn chosen(&mut self, who: &Who, mut take: Take) -> Result<Waiting, String> {
        let named = take.queues.clone();
        if self.has(Event::BeforeTake) && !take.queues.is_empty() {
            match self.choose(who, &take) {
                Ok(TakeVerdict::Go) => {}
                Ok(TakeVerdict::Refuse(text)) => return Err(text),
                Ok(TakeVerdict::From(queues)) => take.queues = queues.into_iter().collect(),
                Err(missed) => {
                    if let Some(text) = self.missed(missed) {
                        return Err(text);
                    }
                }
            }
        }
        Ok(Waiting {
            leased: self.has(Event::AfterTake) && take.lease.is_none(),
            named,
            take,
        })
    }

    /// Sets a subscription.
    fn stand(&mut self, who: &Who, waiting: Waiting) -> Decided {
        let decided = self.plain(Command::Watch(Some(Box::new(waiting.as_take()))));
        if !matches!(decided, Decided::Now(Outcome::Refused(_), _)) {
            // What it brings comes later, whatever was answered.
            self.waits(who.caller.client_id, true, waiting);
        }
        decided
    }

    fn waits(&mut self, client_id: ClientId, standing: bool, waiting: Waiting) {
        // What is to be decided anew when it changes, or when it is served.
        let changes = standing && self.has(Event::BeforeTake);
        if changes || self.has(Event::AfterTake) || self.has(Event::Empty) {
            self.waiting.insert((client_id, standing), waiting);
        }
    }

    /// True if what a waiting take or a subscription brings has to go through
    /// [`HookState::arrived`].
    pub fn awaits(&self, client_id: ClientId, standing: bool) -> bool {
        self.waiting.contains_key(&(client_id, standing))
    }

    /// Handles messages for a waiting take or a subscription: runs `after_take` or `empty` and
    /// returns the reply. A subscription whose messages a hook has all sent elsewhere answers
    /// `Empty`, and stands again.
    pub fn arrived(&mut self, who: &Who, standing: bool, outcome: Outcome, name: Name) -> Decided {
        let Some(waiting) = self.waiting.remove(&(who.caller.client_id, standing)) else {
            return Decided::Now(outcome, name);
        };
        self.enter(who);
        let decided = self.handed(who, &waiting, outcome, name);
        if standing && matches!(decided, Decided::Now(Outcome::Empty, _)) {
            self.stand(who, waiting);
        }
        decided
    }

    /// Goes on with the takes that wait in `old`, a state of hooks that are no
    /// longer in force: a message that is leased in place of being removed is
    /// still removed when it is handed out.
    pub fn take_over(&mut self, old: HookState) {
        self.waiting = old.waiting;
    }

    /// The client is gone, or does not wait any more.
    pub fn forget(&mut self, client_id: ClientId) {
        self.waiting.remove(&(client_id, false));
        self.waiting.remove(&(client_id, true));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "others as they are")]
    fn handed(&mut self, who: &Who, waiting: &Waiting, outcome: Outcome, name: Name) -> Decided {
        match outcome {
            Outcome::Messages(messages) if self.has(Event::AfterTake) => {
                self.after_take(who, messages, name, waiting.leased)
            }
            Outcome::Empty if self.has(Event::Empty) && !waiting.take.queues.is_empty() => {
                self.supply(who, waiting)
            }
            // The function that wanted it leased is gone.
            Outcome::Messages(messages) if waiting.leased => {
                self.end_leases(&messages, &How::Finish);
                reply_of(messages, name, true)
            }
            outcome => Decided::Now(outcome, name),
        }
    }

    /// `before_take`.
    fn choose(&mut self, who: &Who, take: &Take) -> Result<TakeVerdict, Missed> {
        let result = self.in_step(who, Event::BeforeTake, |state| {
            let shown = shown_take(&state.lua, take)?;
            let args = (&shown, &state.conn);
            let verdict = state.verdict(Event::BeforeTake, args, verdict::of_take)?;
            Ok((verdict, None))
        })?;
        let (verdict, _, stored) = result;
        self.after_puts(who, stored);
        Ok(verdict)
    }

    /// `after_take` for each message; then the lease ends as it says.
    fn after_take(&mut self, who: &Who, messages: Handed, name: Name, leased: bool) -> Decided {
        let result = self.in_step(who, Event::AfterTake, |state| {
            let mut kept = Handed::new();
            for message in &messages {
                let (verdict, message) = state.judge_taken(message.clone(), &name)?;
                let id = message.id;
                let effect = match verdict {
                    TakenVerdict::Deliver => {
                        kept.push(message);
                        leased.then_some(Effect::Settle {
                            id,
                            how: How::Finish,
                        })
                    }
                    TakenVerdict::Back(ms) => Some(Effect::Settle {
                        id,
                        how: How::release(if ms == 0 { When::Now } else { When::In(ms) }),
                    }),
                    TakenVerdict::To(to) => Some(Effect::Move { id, to }),
                };
                if let Some(effect) = effect {
                    // The hook's own limit is not for what its answer costs.
                    state.work().step.effects.push(effect);
                }
            }
            Ok((kept, None))
        });
        match result {
            Ok((kept, _, stored)) => {
                self.after_puts(who, stored);
                reply_of(kept, name, leased)
            }
            Err(missed) => {
                let text = self.missed(missed);
                if let Some(text) = text {
                    if leased {
                        let back = How::release(When::Now);
                        self.end_leases(&messages, &back);
                    }
                    return Decided::Denied(text);
                }
                if leased {
                    self.end_leases(&messages, &How::Finish);
                }
                reply_of(messages, name, leased)
            }
        }
    }

    fn judge_taken(
        &self,
        mut message: Message,
        queue: &Name,
    ) -> Result<(TakenVerdict, Message), HookError> {
        let stored = Stored {
            message: message.clone(),
            queue: queue.clone(),
            now: self.now(),
            open: true,
        };
        let (verdict, subject) = self.about(Subject::Stored(Box::new(stored)), |state| {
            let args = (&state.msg, &state.conn);
            state.verdict(Event::AfterTake, args, verdict::of_taken)
        });
        if let Some(body) = body_of(subject) {
            message.body = body;
        }
        Ok((verdict?, message))
    }

    fn end_leases(&self, messages: &Handed, how: &How) {
        for message in messages {
            self.plain(Command::Settle {
                id: message.id,
                by: quintet_types::By::Owner,
                how: how.clone(),
            });
        }
    }

    /// `empty`: what a function supplies is put, and the take tried again.
    fn supply(&mut self, who: &Who, waiting: &Waiting) -> Decided {
        let queue = waiting.take.queues[0].clone();
        let again = Take {
            wait: Wait::No,
            ..waiting.take.clone()
        };
        let result = self.in_step(who, Event::Empty, |state| {
            let name = state.lua.create_string(queue.as_bytes())?;
            let read = |returned| verdict::of_empty(returned, &queue);
            let puts = match state.verdict(Event::Empty, (&name, &state.conn), read)? {
                PutVerdict::Go => Vec::new(),
                PutVerdict::Instead(puts) => puts,
                PutVerdict::Refuse(text) => return Ok((Some(text), None)),
            };
            if puts.is_empty() {
                return Ok((None, None));
            }
            let effects = puts.into_iter().map(Effect::Put);
            state.work().step.effects.extend(effects);
            Ok((None, Some(Command::Take(again.clone()))))
        });
        match result {
            Ok((Some(text), ..)) => Decided::Denied(text),
            Ok((None, decided, stored)) => {
                self.after_puts(who, stored);
                decided.unwrap_or(Decided::Now(Outcome::Empty, Name::default()))
            }
            Err(missed) => match self.missed(missed) {
                Some(text) => Decided::Denied(text),
                None => Decided::Now(Outcome::Empty, Name::default()),
            },
        }
    }
}

/// The reply to a consumer. One that asked for removal sees messages as they were before their
/// lease.
fn reply_of(mut messages: Handed, name: Name, leased: bool) -> Decided {
    if messages.is_empty() {
        return Decided::Now(Outcome::Empty, Name::default());
    }
    if leased {
        for message in &mut messages {
            message.state = State::Ready;
            message.reserves = message.reserves.saturating_sub(1);
        }
    }
    Decided::Now(Outcome::Messages(messages), name)
}

fn shown_take(lua: &mlua::Lua, take: &Take) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    let queues = lua.create_table()?;
    for (at, queue) in take.queues.iter().enumerate() {
        queues.raw_set(at + 1, lua.create_string(queue.as_bytes())?)?;
    }
    if let Some(first) = take.queues.first() {
        table.raw_set("queue", lua.create_string(first.as_bytes())?)?;
    }
    table.raw_set("queues", queues)?;
    table.raw_set("lease", take.lease.is_some())?;
    table.raw_set("waits", take.wait != Wait::No)?;
    Ok(table)
}
