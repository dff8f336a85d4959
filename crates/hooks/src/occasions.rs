//! Events without a command of a client's: connections, what time brings, and
//! commands that hooks have added.

use mlua::Value;
use quintet_types::{
    BackTo, ClientId, CommandError, Effect, How, Ms, Outcome, PendingDecision, PendingDecisionKind,
    PendingDecisions, When,
};

use crate::fields::got;
use crate::host::Who;
use crate::register::TimerSchedule;
use crate::state::HookState;
use crate::subject::{Stored, Subject};
use crate::submit::{Decided, Missed, Stepped};
use crate::verdict::{self, FateVerdict, Returned, Yes, of_yes, wrong};
use quintet_policy::Event;

/// A wall clock that is set back by more than this begins its times anew, ms
/// (cron(8) has the same three hours).
const BACK_MS: u64 = 3 * 3_600_000;

/// The reply of an added command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookReply {
    /// Done, nothing to show.
    Done,
    /// Text or bytes to show.
    Text(Vec<u8>),
    /// Refused, with a text.
    Refused(String),
}

impl HookState {
    /// Events that the hooks decide for this client.
    pub fn pending_decisions(&self, client_id: ClientId) -> PendingDecisions {
        PendingDecisions {
            client_id,
            expire: self.has(Event::Expire),
            lease_end: self.has(Event::LeaseEnd),
            dead_letter: self.has(Event::DeadLetter),
        }
    }

    /// `start`, `stop` or `disconnect`.
    pub fn notify(&mut self, who: &Who, event: Event) {
        if !self.has(event) {
            return;
        }
        let result = self.in_step(who, event, |state| {
            state.call(event, &state.conn)?;
            Ok(((), None))
        });
        self.settle_up(who, event, result);
    }

    /// `connect`: the text with which a connection is refused.
    pub fn connect(&mut self, who: &Who) -> Option<String> {
        if !self.has(Event::Connect) {
            return None;
        }
        let event = Event::Connect;
        let result = self.in_step(who, event, |state| {
            let read = |returned| of_yes(event, returned);
            Ok((state.verdict(event, &state.conn, read)?, None))
        });
        match self.settle_up(who, event, result) {
            Some(Yes::Refuse(text)) => Some(text),
            _ => None,
        }
    }

    /// `auth`: whether a client that says it is `user` may be; `None`: no
    /// function says. One that fails lets nobody in.
    pub fn auth(&mut self, who: &Who, user: &str, secret: &[u8]) -> Option<bool> {
        if !self.has(Event::Auth) {
            return None;
        }
        let event = Event::Auth;
        let result = self.in_step(who, event, |state| {
            let secret = state.lua.create_string(secret)?;
            let read = |(may, _): Returned| match may.as_boolean() {
                Some(may) => Ok(Some(may)),
                None => Err(wrong(event, "true, false or nothing", &may)),
            };
            let args = (user, &secret, &state.conn);
            Ok((state.verdict(event, args, read)?, None))
        });
        self.settle_up(who, event, result).unwrap_or(Some(false))
    }

    /// `expire`, `lease_end` or `dead_letter`: decides, and submits the decision. False: the server
    /// cannot keep one now, and the message waits on.
    pub fn pending_decision(&mut self, who: &Who, pending_decision: &PendingDecision) -> bool {
        let event = match pending_decision.kind {
            PendingDecisionKind::Expire => Event::Expire,
            PendingDecisionKind::LeaseEnd => Event::LeaseEnd,
            PendingDecisionKind::DeadLetter => Event::DeadLetter,
        };
        let id = pending_decision.message.id;
        let result = self.in_step(who, event, |state| {
            let stored = Stored {
                message: pending_decision.message.clone(),
                queue: pending_decision.queue.clone(),
                now: state.now(),
                open: false,
            };
            let (fate, _) = state.about(Subject::Stored(Box::new(stored)), |state| {
                let read = |returned| verdict::of_fate(event, returned);
                state.verdict(event, &state.msg, read)
            });
            let fate = fate?;
            let mut work = state.work();
            // The function may have said what becomes of it by an effect. A kick says nothing: no
            // message that waits for a decision is buried or delayed.
            let logged =
                work.step.effects.iter().any(|effect| {
                    effect.message() == Some(id) && !matches!(effect, Effect::Kick(_))
                });
            let effect = match fate {
                FateVerdict::Default if logged => None,
                FateVerdict::Default => Some(Effect::Conclude(id)),
                FateVerdict::Drop => Some(Effect::Delete(id)),
                FateVerdict::Keep => Some(Effect::Settle {
                    id,
                    how: How::Release {
                        priority: None,
                        due: When::Now,
                        back_to: Some(BackTo::Position),
                    },
                }),
                FateVerdict::To(to) => Some(Effect::Move { id, to }),
            };
            work.step.effects.extend(effect);
            Ok(((), None))
        });
        if self.settle_up(who, event, result).is_none() {
            // What happens by itself. If it is not pending any more there is
            // nothing left to conclude.
            let conclude = quintet_types::Transaction {
                effects: vec![Effect::Conclude(id)],
                ..Default::default()
            };
            self.enter(who);
            let decided = self.plain(quintet_types::Command::Transaction(Box::new(conclude)));
            let unavailable = Outcome::Refused(CommandError::Unavailable);
            return !matches!(decided, Decided::Now(outcome, _) if outcome == unavailable);
        }
        true
    }

    /// When [`HookState::run_timers`] has something to do; [`Ms::NEVER`]: never.
    pub fn next_timer(&self) -> Ms {
        let (now, wall) = {
            let work = self.work();
            (work.host.now(), work.host.wall())
        };
        let timers = self.registered.timers.iter().zip(&self.due);
        timers
            .map(|(timer, due)| match &timer.when {
                TimerSchedule::Every(_) => *due,
                TimerSchedule::At(_) => now + due.since(wall),
            })
            .min()
            .unwrap_or(Ms::NEVER)
    }

    /// Times by the calendar that were do not come again where the wall clock
    /// is set back a little; set back by more, it begins anew.
    fn read_calendar(&mut self) -> Ms {
        let wall = self.work().host.wall();
        if self.wall_seen.since(wall) > BACK_MS {
            let timers = self.registered.timers.iter().zip(&mut self.due);
            for (timer, due) in timers {
                if let TimerSchedule::At(cron) = &timer.when {
                    *due = cron.after(wall);
                }
            }
            self.wall_seen = wall;
        }
        self.wall_seen = self.wall_seen.max(wall);
        wall
    }

    /// Runs the timers that are due. One that is late runs once. For one state
    /// of the server's only.
    pub fn run_timers(&mut self, who: &Who) {
        let (now, wall) = (self.now(), self.read_calendar());
        for index in 0..self.registered.timers.len() {
            let due = self.due[index];
            self.due[index] = match &self.registered.timers[index].when {
                TimerSchedule::Every(ms) if due <= now => now + *ms,
                TimerSchedule::At(cron) if due <= wall => cron.after(wall),
                TimerSchedule::Every(_) | TimerSchedule::At(_) => continue,
            };
            let result = self.in_step(who, Event::Timer, |state| {
                if let Some(timer) = state.registered.timers.get(index) {
                    state.call_one(Event::Timer, &timer.function, ())?;
                }
                Ok(((), None))
            });
            self.settle_up(who, Event::Timer, result);
        }
    }

    /// Runs a command that a hook has added: its line without the line's end.
    /// `None`: there is no such command.
    pub fn added(&mut self, who: &Who, line: &[u8]) -> Option<HookReply> {
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|word| !word.is_empty());
        let word = words.next()?;
        let index = self
            .registered
            .commands
            .iter()
            .position(|(known, _)| known.eq_ignore_ascii_case(word))?;
        let args: Vec<&[u8]> = words.collect();
        let event = Event::Added;
        let result = self.in_step(who, event, |state| {
            let table = state.lua.create_table()?;
            for arg in &args {
                table.raw_push(state.lua.create_string(arg)?)?;
            }
            let Some((_, function)) = state.registered.commands.get(index) else {
                return Ok((HookReply::Done, None));
            };
            let returned = state.call_one(event, function, (&table, &state.conn))?;
            let reply = match returned {
                (Value::Nil | Value::Boolean(true), _) => Ok(HookReply::Done),
                (Value::String(text), _) => Ok(HookReply::Text(text.as_bytes().to_vec())),
                (Value::Integer(number), _) => Ok(HookReply::Text(number.to_string().into_bytes())),
                refused @ (Value::Boolean(false), _) => match of_yes(event, refused) {
                    Ok(Yes::Refuse(text)) => Ok(HookReply::Refused(text)),
                    Ok(Yes::Go) => Ok(HookReply::Done),
                    Err(text) => Err(text),
                },
                (other, _) => Err(format!(
                    "nothing, a text, or false and a text expected, {}",
                    got(&other)
                )),
            };
            Ok((state.judged(event, reply)?, None))
        });
        let failed = || HookReply::Refused("the command failed".into());
        Some(self.settle_up(who, event, result).unwrap_or_else(failed))
    }

    /// Reports what failed, runs `after_put` of what was put; `None`: it
    /// failed.
    fn settle_up<T>(&mut self, who: &Who, event: Event, result: Stepped<T>) -> Option<T> {
        match result {
            Ok((value, _, stored)) => {
                self.after_puts(who, stored);
                Some(value)
            }
            Err(missed) => {
                self.report_missed(event, missed);
                None
            }
        }
    }

    /// Reports why a step for an event was not taken.
    pub(crate) fn report_missed(&self, event: Event, missed: Missed) {
        match missed {
            Missed::Failed(event, error) => self.report(event, &error),
            Missed::Conflict => {
                let error = self.blamed("the data that it reads changes too fast".into());
                self.report(event, &error);
            }
        }
    }
}
