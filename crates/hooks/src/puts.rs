//! The events around a put.

use std::collections::VecDeque;

use quintet_types::{Command, CommandError, MessageId, Name, Outcome, Put, locked};

use crate::error::HookError;
use crate::host::Who;
use crate::state::HookState;
use crate::subject::Subject;
use crate::submit::Decided;
use crate::verdict::{self, PutVerdict};
use quintet_policy::Event;

/// Puts in place of one, or its error.
enum Planned {
    One(Put),
    Several(Vec<Put>),
    /// With this text, or as it was refused already.
    Deny(Option<String>),
}

/// Calls of `after_put` that one command can cause.
const AFTER_MAX: usize = 1000;

impl HookState {
    pub(crate) fn submit_put(&mut self, who: &Who, put: Put) -> Decided {
        let decided = if self.has(Event::BeforePut) {
            self.put_with(who, Event::BeforePut, put.clone())
        } else {
            self.put_plainly(who, put.clone())
        };
        if self.has(Event::Full)
            && matches!(
                decided,
                Decided::Now(Outcome::Refused(CommandError::QueueFull), _)
            )
        {
            return self.put_with(who, Event::Full, put);
        }
        decided
    }

    fn put_plainly(&mut self, who: &Who, put: Put) -> Decided {
        let kept = self.has(Event::AfterPut).then(|| put.clone());
        let decided = self.plain(Command::Put(put));
        if let (Some(put), Decided::Now(Outcome::Put { id, fresh: true }, _)) = (kept, &decided)
            && id.0 != 0
        {
            self.after_puts(who, vec![(put, *id)]);
        }
        decided
    }

    /// A put of which a function of `event` decides. Without one that answers
    /// to [`Event::Full`] it stays refused.
    fn put_with(&mut self, who: &Who, event: Event, put: Put) -> Decided {
        let after = self.has(Event::AfterPut);
        let result = self.in_step(who, event, |state| {
            let planned = state.plan_put(event, put.clone())?;
            let (shape, command) = match planned {
                Planned::Deny(text) => (Err(text), None),
                Planned::One(put) => {
                    let kept = if after { vec![put.clone()] } else { Vec::new() };
                    (Ok(kept), Some(Command::Put(put)))
                }
                Planned::Several(puts) if puts.is_empty() => (Ok(Vec::new()), None),
                Planned::Several(puts) => (Ok(puts.clone()), Some(Command::PutMany(puts))),
            };
            Ok((shape, command))
        });
        let (shape, decided, mut stored) = match result {
            Ok(done) => done,
            Err(missed) => {
                return match self.missed(missed) {
                    Some(text) => Decided::Denied(text),
                    None if event == Event::Full => full(),
                    None => self.put_plainly(who, put),
                };
            }
        };
        let kept = match shape {
            Err(text) => {
                self.after_puts(who, stored);
                return text.map_or_else(full, Decided::Denied);
            }
            Ok(kept) => kept,
        };
        let decided = match decided {
            // Dropped without an error.
            None => Decided::Now(
                Outcome::Put {
                    id: MessageId(0),
                    fresh: true,
                },
                Name::default(),
            ),
            Some(Decided::Now(Outcome::PutMany(ids), name)) => {
                let id = ids.first().copied().unwrap_or_default();
                stored.extend(kept.into_iter().zip(ids));
                Decided::Now(Outcome::Put { id, fresh: true }, name)
            }
            Some(decided) => {
                if let Decided::Now(Outcome::Put { id, fresh: true }, _) = &decided {
                    stored.extend(kept.into_iter().map(|put| (put, *id)));
                }
                decided
            }
        };
        self.after_puts(who, stored);
        decided
    }

    /// Plans a put of a function of `event`.
    fn plan_put(&self, event: Event, put: Put) -> Result<Planned, HookError> {
        let (returned, subject) = self.about(Subject::Put(put, None), |state| {
            state.call(event, (&state.msg, &state.conn))
        });
        let returned = returned?;
        let Subject::Put(put, _) = subject else {
            return Err(HookError::of_file("", "the message of the event is gone"));
        };
        let verdict = match returned {
            Some(returned) => self.judged(event, verdict::of_put(event, returned, &put))?,
            None if event == Event::Full => {
                return Ok(Planned::Deny(None));
            }
            None => PutVerdict::Go,
        };
        Ok(match verdict {
            PutVerdict::Go => Planned::One(put),
            PutVerdict::Refuse(text) => Planned::Deny(Some(text)),
            PutVerdict::Instead(mut puts) if puts.len() == 1 => {
                Planned::One(puts.pop().unwrap_or_default())
            }
            PutVerdict::Instead(puts) => Planned::Several(puts),
        })
    }

    /// Several puts in one command: each goes through `before_put`, and one
    /// that is refused refuses all.
    pub(crate) fn submit_many(&mut self, who: &Who, puts: Vec<Put>) -> Decided {
        if !self.has(Event::BeforePut) {
            let kept = self.has(Event::AfterPut).then(|| puts.clone());
            let decided = self.plain(Command::PutMany(puts));
            if let (Some(kept), Decided::Now(Outcome::PutMany(ids), _)) = (kept, &decided) {
                let stored = kept.into_iter().zip(ids.iter().copied()).collect();
                self.after_puts(who, stored);
            }
            return decided;
        }
        let result = self.in_step(who, Event::BeforePut, |state| {
            // How many became of each.
            let (mut counts, mut all) = (Vec::new(), Vec::new());
            for put in &puts {
                match state.plan_put(Event::BeforePut, put.clone())? {
                    Planned::One(put) => {
                        counts.push(1);
                        all.push(put);
                    }
                    Planned::Several(puts) => {
                        counts.push(puts.len());
                        all.extend(puts);
                    }
                    Planned::Deny(text) => return Ok((Err(text), None)),
                }
            }
            let command = (!all.is_empty()).then(|| Command::PutMany(all.clone()));
            Ok((Ok((counts, all)), command))
        });
        let (shape, decided, mut stored) = match result {
            Ok(done) => done,
            Err(missed) => {
                let denied = self.missed(missed).map(Decided::Denied);
                return denied.unwrap_or_else(|| self.plain(Command::PutMany(puts)));
            }
        };
        let (counts, all) = match shape {
            Ok(shape) => shape,
            Err(text) => return text.map_or_else(full, Decided::Denied),
        };
        let (ids, name) = match decided {
            None => (Vec::new(), Name::default()),
            Some(Decided::Now(Outcome::PutMany(ids), name)) => (ids, name),
            Some(decided) => return decided,
        };
        let mut rest = ids.as_slice();
        let mut answered = Vec::with_capacity(counts.len());
        for count in counts {
            let (own, others) = rest.split_at(count.min(rest.len()));
            answered.push(own.first().copied().unwrap_or_default());
            rest = others;
        }
        stored.extend(all.into_iter().zip(ids));
        self.after_puts(who, stored);
        Decided::Now(Outcome::PutMany(answered), name)
    }

    /// `after_put` for each of these, and for what those put, and so on.
    pub(crate) fn after_puts(&mut self, who: &Who, stored: Vec<(Put, MessageId)>) {
        if !self.has(Event::AfterPut) {
            return;
        }
        let mut line: VecDeque<(Put, MessageId, u32)> = stored
            .into_iter()
            .filter(|(_, id)| id.0 != 0)
            .map(|(put, id)| (put, id, 1))
            .collect();
        let depth_max = self.program.limits.depth_max;
        let mut calls = 0;
        while let Some((put, id, depth)) = line.pop_front() {
            calls += 1;
            if calls > AFTER_MAX {
                let text = format!("one command caused more than {AFTER_MAX} calls of after_put");
                self.report(Event::AfterPut, &self.blamed(text));
                break;
            }
            let result = self.in_step(who, Event::AfterPut, |state| {
                let (returned, _) = state.about(Subject::Put(put.clone(), Some(id)), |state| {
                    state.call(Event::AfterPut, (&state.msg, &state.conn))
                });
                returned?;
                if depth > depth_max && !state.work().step.puts().is_empty() {
                    return Err(state.blamed(format!(
                        "after_put puts messages whose after_put puts messages, more than \
                         {depth_max} deep"
                    )));
                }
                Ok(((), None))
            });
            match result {
                Ok(((), _, stored)) => {
                    let deeper = stored.into_iter().map(|(put, id)| (put, id, depth + 1));
                    line.extend(deeper);
                }
                Err(missed) => self.report_missed(Event::AfterPut, missed),
            }
        }
        // Nobody keeps the last message alive.
        *locked(&self.subject) = Subject::Gone;
    }
}

fn full() -> Decided {
    Decided::Now(Outcome::Refused(CommandError::QueueFull), Name::default())
}
