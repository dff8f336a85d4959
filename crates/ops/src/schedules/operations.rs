//! Steering schedules. A cursor is shown only when it is durable.

use quintet_client::{
    BadSpec, Nearest, NotSteered, ScheduleAct, ScheduleSpec, Steered, TellSchedules, TellSteered,
    WhichSchedules,
};
use quintet_host::locked;
use quintet_types::{CommandError, Effect, Ms};

use super::load::{DEFINITIONS, Loaded, MARKS, Stored, set, set_cursor};
use super::plan::Cursor;
use super::run::{Runner, refusal};
use super::{Request, Schedules};

/// Requests that wait at most; more are refused.
const REQUESTS_MAX: usize = 1000;
/// Requests that are obeyed before what is due is looked at.
const TURN: usize = 16;
/// Names that are compared.
const COMPARED: usize = 1000;
/// Tries of an act whose cursor somebody else changes meanwhile.
const TRIES: usize = 3;

impl Schedules {
    /// Calls `notify` with these schedules, or with an error if too many requests wait; drops it if
    /// the server stops.
    pub fn list(&self, which: WhichSchedules, notify: TellSchedules) {
        self.ask(Request::List(which, notify));
    }

    /// Has this done to the schedule of this name, and tells when it is durable.
    pub fn steer(&self, act: ScheduleAct, name: &str, notify: TellSteered) {
        self.ask(Request::Steer(act, name.to_owned(), notify));
    }

    fn ask(&self, request: Request) {
        let mut inside = locked(&self.inside);
        let request = if inside.closed {
            Some(request)
        } else if inside.requests.len() < REQUESTS_MAX {
            inside.requests.push_back(request);
            None
        } else {
            drop(inside);
            let many = CommandError::TooManyWaiters;
            return match request {
                Request::List(_, notify) => notify(Err(many)),
                Request::Steer(_, _, notify) => notify(Err(NotSteered::Refused(many))),
            };
        };
        // Who is not told any more learns it by this, without the lock.
        drop(inside);
        drop(request);
        self.work.raise();
    }

    /// No request gets a reply from now on.
    pub(super) fn close(&self) {
        let mut inside = locked(&self.inside);
        inside.closed = true;
        let requests = std::mem::take(&mut inside.requests);
        drop(inside);
        drop(requests);
    }
}

impl Runner<'_> {
    /// Does what was ordered, some of it, if the configuration whose cursors were read still is the
    /// one in force.
    pub(super) fn obey(&self, version: u64) {
        for _ in 0..TURN {
            let request = {
                let mut inside = locked(&self.schedules.inside);
                if inside.version != version {
                    return;
                }
                inside.requests.pop_front()
            };
            match request {
                None => return,
                Some(Request::List(which, notify)) => {
                    // Dropped without a reply where the tables cannot be read: the server stops.
                    if let Some(page) = self.show(&which) {
                        notify(Ok(page));
                    }
                }
                Some(Request::Steer(act, name, notify)) => notify(self.steer(act, &name)),
            }
        }
        // There may be more.
        self.schedules.work.raise();
    }

    fn steer(&self, act: ScheduleAct, name: &str) -> Result<Steered, NotSteered> {
        let mut tries = 0;
        self.forget_ahead(name);
        loop {
            tries += 1;
            let inside = locked(&self.schedules.inside);
            let item = inside.book.get(name);
            let known = item.is_some();
            let of_file = item.and_then(|item| item.of_file.clone());
            let nearest = (!known && !matches!(act, ScheduleAct::Define { .. }))
                .then(|| nearest(name, inside.book.behind(None).map(|(name, _)| &**name)));
            drop(inside);
            if let Some(nearest) = nearest {
                let name = name.to_owned();
                return Err(NotSteered::None { name, nearest });
            }
            let loaded = self.load(name, of_file.as_ref());
            let loaded = loaded.ok_or(NotSteered::Refused(CommandError::Unknown))?;
            let done = match &act {
                ScheduleAct::Pause => self.pause(&loaded, true),
                ScheduleAct::Resume => self.pause(&loaded, false),
                ScheduleAct::Run => self.run_now(&loaded),
                ScheduleAct::Define { .. } | ScheduleAct::Remove { .. } if of_file.is_some() => {
                    Err(NotSteered::OfFile(name.to_owned()))
                }
                ScheduleAct::Define {
                    spec,
                    by,
                    seen,
                    never,
                } => self.define((spec, by), (*seen, *never), &loaded),
                ScheduleAct::Remove { seen } => self.remove(*seen, &loaded),
            };
            match done {
                Err(NotSteered::Refused(CommandError::Conflict)) if tries < TRIES => {}
                done => return done,
            }
        }
    }

    /// Does a step, and has the book know the outcome.
    fn commit(&self, loaded: &Loaded, effects: Vec<Effect>) -> Result<Loaded, NotSteered> {
        let outcome = self.ask_all(vec![loaded.step(effects)]).pop();
        if let Some(command_error) = outcome.as_ref().and_then(refusal) {
            return Err(NotSteered::Refused(command_error));
        }
        let loaded = self.load(&loaded.name, loaded.of_file.as_ref());
        loaded.ok_or(NotSteered::Refused(CommandError::Unknown))
    }

    fn pause(&self, loaded: &Loaded, pauses: bool) -> Result<Steered, NotSteered> {
        let cursor = match pauses {
            true => loaded.cursor.paused(),
            false => loaded.cursor.resumed(self.client_api.wall()),
        };
        let changed = cursor != loaded.cursor;
        if changed {
            let effects = vec![set_cursor(&loaded.name, &cursor, false)];
            let loaded = self.commit(loaded, effects)?;
            // What was due and refused is let go.
            self.change(&loaded.name, |item, _| item.error = None);
            self.take(&loaded);
        }
        Ok(Steered {
            changed,
            version: loaded.version(),
            ..Steered::default()
        })
    }

    fn run_now(&self, loaded: &Loaded) -> Result<Steered, NotSteered> {
        let schedule = loaded.schedule.as_ref().map_err(|why| {
            let (field, why) = ("name", why.clone());
            NotSteered::Bad(BadSpec { field, why })
        })?;
        match self.put_by_hand(schedule, loaded) {
            Ok(id) => {
                let now = self.client_api.wall().0;
                self.change(&loaded.name, |item, _| item.last_run = Some(now));
                Ok(Steered {
                    changed: true,
                    message: Some(id),
                    ..Steered::default()
                })
            }
            Err(command_error) => {
                if !matches!(
                    command_error,
                    CommandError::Conflict | CommandError::Duplicate(_)
                ) {
                    self.failed(&loaded.name, command_error);
                }
                Err(NotSteered::Refused(command_error))
            }
        }
    }

    fn define(
        &self,
        (spec, by): (&ScheduleSpec, &str),
        (seen, never): (Option<u64>, bool),
        loaded: &Loaded,
    ) -> Result<Steered, NotSteered> {
        if seen.is_some_and(|seen| loaded.definition != Some(seen)) {
            return Err(NotSteered::Changed);
        }
        let name = &loaded.name;
        let schedule = spec.schedule(name).map_err(NotSteered::Bad)?;
        if let Some((stored, version)) = &loaded.stored
            && stored.spec == *spec
        {
            return Ok(Steered {
                version: Some(*version),
                ..Steered::default()
            });
        }
        let now = self.client_api.wall();
        if never {
            let field = match (&spec.cron, spec.every_ms) {
                _ if spec.end_ms.is_some_and(|end| end <= now.0) => "end_ms",
                (Some(_), _) => "cron",
                (None, Some(_)) => "every_ms",
                (None, None) => "at_ms",
            };
            let why = "the schedule is never due: there is no such time from now on".to_owned();
            return Err(NotSteered::Bad(BadSpec { field, why }));
        }
        let made = loaded.definition.is_none();
        let inside = locked(&self.schedules.inside);
        if made && inside.book.defined() >= inside.most {
            return Err(NotSteered::TooMany(inside.most));
        }
        drop(inside);
        let stored = Stored::new(spec.clone(), by.to_owned(), now.0);
        let mut effects = vec![set(DEFINITIONS, name, Some(&stored))];
        if loaded.cursor.policy != schedule.policy {
            let cursor = loaded.cursor.of_policy(&schedule.policy, now);
            effects.push(set_cursor(name, &cursor, false));
        }
        let loaded = self.commit(loaded, effects)?;
        let mut inside = locked(&self.schedules.inside);
        if inside.book.get(name).is_none() {
            inside.book.insert(name, None, Ms::NEVER);
        }
        inside.book.change(name, |item, _| item.error = None);
        drop(inside);
        self.take(&loaded);
        Ok(Steered {
            changed: true,
            made,
            version: loaded.definition,
            ..Steered::default()
        })
    }

    fn remove(&self, seen: Option<u64>, loaded: &Loaded) -> Result<Steered, NotSteered> {
        if seen.is_some_and(|seen| loaded.definition != Some(seen)) {
            return Err(NotSteered::Changed);
        }
        let name = &loaded.name;
        let effects = vec![
            set::<Stored>(DEFINITIONS, name, None),
            set::<Cursor>(MARKS, name, None),
        ];
        self.commit(loaded, effects)?;
        locked(&self.schedules.inside).book.remove(name);
        Ok(Steered {
            changed: true,
            ..Steered::default()
        })
    }
}

/// The name that is most like this one, if one is like it.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut nearest = Nearest::to(name, 1);
    nearest.consider(names.take(COMPARED));
    nearest.names().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use quintet_config::Config;

    use super::*;

    #[test]
    fn a_list_behind_too_many_requests_is_told_why_it_is_not_there() {
        let schedules = Schedules::new(&Config::default()).expect("no tables");
        let (sender, told) = channel();
        for _ in 0..=REQUESTS_MAX {
            let sender = sender.clone();
            let notify: TellSchedules =
                Box::new(move |page| sender.send(page).expect("the test waits"));
            schedules.list(WhichSchedules::OfFile, notify);
        }
        drop(sender);
        let last = told.try_recv().expect("the last one is told");
        assert_eq!(last.err(), Some(CommandError::TooManyWaiters));
        assert!(told.try_recv().is_err(), "the others wait");
        // Those learn it from this.
        schedules.close();
        assert!(told.recv().is_err(), "no page comes");
    }
}
