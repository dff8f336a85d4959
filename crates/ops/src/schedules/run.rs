//! The thread that puts what is due.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::SecondsFormat;
use quintet_client::words::date;
use quintet_client::{ClientApi, ScopedClient};
use quintet_host::locked;
use quintet_policy::Schedule;
use quintet_types::{Command, CommandError, Effect, MessageId, Ms, Outcome, Put, TableEntry};

use super::book::{Item, Sums};
use super::load::{
    DEFINITIONS, Loaded, MARKS, ask_all, entries, free_step, get, is_full, page, set, set_cursor,
};
use super::plan::{Cursor, NextStep, late_at, next_check, next_step};
use super::{Schedules, forgotten};

/// The attribute that says when a message was due.
const SCHEDULED_AT: &[u8] = b"scheduled_at";
/// The wall clock may be set at any moment, so it is looked at this often. A
/// put that was refused is tried again as often.
const LOOK: Duration = Duration::from_secs(1);
/// Where there are no schedules nothing has to be looked at.
const NOTHING: Duration = Duration::from_secs(3600);
/// Schedules that are read, and put, at once. A definition has some 64 KiB at most.
const AT_ONCE: usize = 64;
/// Schedules that are looked at, at most, before requests are obeyed.
const TURN: usize = 1024;

/// Schedules that are due within this time, ms, are read beforehand.
const AHEAD_MS: u64 = 1500;
/// Schedules that are read beforehand at most, and the bytes of such a one: some 12 KiB with its
/// cron expression.
const AHEAD_MAX: usize = 2048;
const AHEAD_BYTES: u64 = 1024;

/// The thread at work.
pub(super) struct Runner<'a> {
    pub(super) schedules: &'a Schedules,
    pub(super) client_api: &'a dyn ClientApi,
    client: ScopedClient<'a>,
    /// Schedules that are due soon. A changed one fails its guards, and is read again.
    ahead: RefCell<HashMap<Arc<str>, Loaded>>,
    /// Cursors with the messages of puts, to be written with the next commands.
    notes: RefCell<Vec<Command>>,
}

/// The planned step of a schedule.
struct Planned {
    loaded: Loaded,
    schedule: Arc<Schedule>,
    cursor: Cursor,
    missed: u64,
    puts: bool,
    /// It was read beforehand.
    was_known: bool,
}

impl Schedules {
    /// The thread of schedules: runs until `stop`.
    pub fn run(&self, client_api: &dyn ClientApi, stop: &AtomicBool) {
        let runner = Runner {
            schedules: self,
            client_api,
            client: ScopedClient::new(client_api),
            ahead: RefCell::default(),
            notes: RefCell::default(),
        };
        runner.run(stop);
        self.close();
    }
}

impl Runner<'_> {
    fn run(&self, stop: &AtomicBool) {
        let mut tried = Instant::now();
        while !stop.load(Ordering::SeqCst) {
            let (read, newest) = {
                let inside = locked(&self.schedules.inside);
                (inside.read, inside.version)
            };
            if read != newest && !self.read(read == 0, newest, stop) {
                // Tables that cannot be read are tried again.
                self.schedules.work.wait_for(LOOK);
                continue;
            }
            if tried.elapsed() >= LOOK {
                tried = Instant::now();
                locked(&self.schedules.inside).book.try_refused(TURN);
            }
            self.put_what_is_due();
            self.obey(newest);
            self.read_ahead();
            let rest = self.rest();
            if !rest.is_zero() {
                self.schedules.work.wait_for(rest);
            }
        }
    }

    /// How long there is nothing to do.
    fn rest(&self) -> Duration {
        let inside = locked(&self.schedules.inside);
        if inside.book.is_empty() {
            return NOTHING;
        }
        let next = inside.book.next();
        drop(inside);
        let wait = next.since(self.client_api.wall());
        Duration::from_millis(wait).min(LOOK)
    }

    /// Asks all of these at once and waits.
    pub(super) fn ask_all(&self, commands: Vec<Command>) -> Vec<Outcome> {
        // Commands of one client are decided in their order, so these see the notes.
        let mut all = self.notes.take();
        let notes = all.len();
        all.extend(commands);
        let mut outcomes = ask_all(self.client_api, &self.client, all);
        outcomes.split_off(notes)
    }

    fn ask(&self, command: Command) -> Outcome {
        let outcome = self.ask_all(vec![command]).pop();
        outcome.unwrap_or(Outcome::Refused(CommandError::Unknown))
    }

    /// Forgets what was read beforehand of a schedule.
    pub(super) fn forget_ahead(&self, name: &str) {
        self.ahead.borrow_mut().remove(name);
    }

    /// Reads what is due soon, as long as nothing is due.
    fn read_ahead(&self) {
        let wall = self.client_api.wall();
        let inside = locked(&self.schedules.inside);
        let until = Ms(wall.0.saturating_add(AHEAD_MS));
        let soon = inside.book.due_at(until, AHEAD_MAX);
        drop(inside);
        let mut ahead = self.ahead.borrow_mut();
        let names: HashSet<&Arc<str>> = soon.iter().collect();
        ahead.retain(|name, _| names.contains(name));
        let names: Vec<Arc<str>> = soon
            .into_iter()
            .filter(|name| !ahead.contains_key(name))
            .collect();
        for names in names.chunks(AT_ONCE) {
            let inside = locked(&self.schedules.inside);
            let is_due = inside.book.next() <= self.client_api.wall();
            drop(inside);
            if is_due {
                return;
            }
            for loaded in self.load_all(names).into_iter().flatten() {
                let schedule = loaded.schedule.as_ref();
                if schedule.is_ok_and(|schedule| schedule.put.size() <= AHEAD_BYTES) {
                    ahead.insert(Arc::clone(&loaded.name), loaded);
                }
            }
        }
    }

    /// Reads these of the book from the tables; `None`: they cannot be read.
    pub(super) fn load_all(&self, names: &[Arc<str>]) -> Vec<Option<Loaded>> {
        if names.is_empty() {
            return Vec::new();
        }
        let requested = names
            .iter()
            .flat_map(|name| [get(DEFINITIONS, name), get(MARKS, name)]);
        let mut outcomes = self.ask_all(requested.collect()).into_iter();
        let mut next = || outcomes.next().and_then(entries);
        let inside = locked(&self.schedules.inside);
        let all = names.iter().map(|name| {
            let item = inside.book.get(name);
            let of_file = item.and_then(|item| item.of_file.as_ref());
            let (definition, cursor) = (next(), next());
            let (definition, cursor) = (definition?, cursor?);
            let (definition, cursor) = (definition.first(), cursor.first());
            Some(Loaded::new(Arc::clone(name), of_file, definition, cursor))
        });
        all.collect()
    }

    /// Reads the definitions, if it is the `first` time, and the cursors; forgets those of tables
    /// that the configuration has no more. False: they cannot be read.
    fn read(&self, first: bool, newest: u64, stop: &AtomicBool) -> bool {
        let files = locked(&self.schedules.inside).files.clone();
        self.ahead.borrow_mut().clear();
        let read = match first {
            true => self.read_definitions(&files, stop) && self.forget_cursors(&files, stop),
            false => true,
        };
        if !read || !self.read_files(&files) {
            return false;
        }
        let mut inside = locked(&self.schedules.inside);
        if inside.version == newest {
            inside.read = newest;
        }
        true
    }

    /// Reads every definition and its cursor.
    fn read_definitions(&self, files: &[Arc<Schedule>], stop: &AtomicBool) -> bool {
        let files: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        self.each_page(DEFINITIONS, stop, |found| {
            let named = found.iter().filter_map(|entry| {
                let name = std::str::from_utf8(&entry.key).ok()?;
                (!files.contains(name)).then_some((name, entry))
            });
            let named: Vec<(&str, &TableEntry)> = named.collect();
            let cursors = named.iter().map(|(name, _)| get(MARKS, name)).collect();
            for ((name, entry), cursor) in named.into_iter().zip(self.ask_all(cursors)) {
                let Some(cursor) = entries(cursor) else {
                    return false;
                };
                let loaded = Loaded::new(name, None, Some(entry), cursor.first());
                let mut inside = locked(&self.schedules.inside);
                inside.book.insert(name, None, Ms::NEVER);
                drop(inside);
                self.take(&loaded);
            }
            true
        })
    }

    /// Calls `each` with the entries of a table, page by page, as long as it answers true. False:
    /// it did not, or they cannot be read.
    fn each_page(
        &self,
        table: &str,
        stop: &AtomicBool,
        each: impl Fn(&[TableEntry]) -> bool,
    ) -> bool {
        let mut after = None;
        loop {
            let max = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
            let found = entries(self.ask(page(table, after.take(), max)));
            let Some(found) = found.filter(|_| !stop.load(Ordering::SeqCst)) else {
                return false;
            };
            let Some(last) = found.last() else {
                return true;
            };
            after = Some(last.key.clone());
            if !each(&found) {
                return false;
            }
        }
    }

    /// Forgets the cursors of schedules that are defined nowhere.
    fn forget_cursors(&self, files: &[Arc<Schedule>], stop: &AtomicBool) -> bool {
        let files: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        self.each_page(MARKS, stop, |found| {
            for entry in found {
                let name = String::from_utf8_lossy(&entry.key).into_owned();
                let known = locked(&self.schedules.inside).book.get(&name).is_some();
                if !known && !files.contains(name.as_str()) {
                    let cursor = serde_json::from_slice(&entry.value).unwrap_or_default();
                    self.forget(&name, &cursor);
                }
            }
            true
        })
    }

    fn forget(&self, name: &str, cursor: &Cursor) {
        if cursor.paused {
            tracing::warn!("{}", forgotten(name));
        }
        self.ask(free_step(set::<Cursor>(MARKS, name, None)));
    }

    /// Brings the book in line with the tables of the configuration.
    fn read_files(&self, files: &[Arc<Schedule>]) -> bool {
        let inside = locked(&self.schedules.inside);
        let gone = inside.book.behind(None).filter(|(name, item)| {
            item.of_file.is_some() && !files.iter().any(|file| file.name == ***name)
        });
        let gone: Vec<Arc<str>> = gone.map(|(name, _)| Arc::clone(name)).collect();
        drop(inside);
        for name in gone {
            let Some(loaded) = self.load(&name, None) else {
                return false;
            };
            let mut inside = locked(&self.schedules.inside);
            if loaded.definition.is_some() {
                // The one that was defined at run time takes over.
                inside.book.insert(&name, None, Ms::NEVER);
                drop(inside);
                self.take(&loaded);
            } else {
                inside.book.remove(&name);
                drop(inside);
                self.forget(&name, &loaded.cursor);
            }
        }
        for file in files {
            let Some(loaded) = self.load(&file.name, Some(file)) else {
                return false;
            };
            let mut inside = locked(&self.schedules.inside);
            let shadows = loaded.definition.is_some();
            match inside.book.get(&file.name) {
                Some(item) if item.of_file.is_some() => {
                    inside.book.change(&file.name, |item, _| {
                        item.of_file = Some(Arc::clone(file));
                    });
                }
                _ => {
                    inside
                        .book
                        .insert(&file.name, Some(Arc::clone(file)), Ms::NEVER);
                    if shadows {
                        tracing::warn!(
                            "[[cron]] {}: a schedule of this name was also created at run time; the \
                             configuration wins",
                            file.name
                        );
                    }
                }
            }
            inside.book.set_shadows(&file.name, shadows);
            drop(inside);
            self.take(&loaded);
            let wall = self.client_api.wall();
            self.change(&file.name, |item, _| item.checked = item.due > wall);
        }
        true
    }

    /// Reads a schedule from the tables; `None`: they cannot be read.
    pub(super) fn load(&self, name: &str, of_file: Option<&Arc<Schedule>>) -> Option<Loaded> {
        let requested = vec![get(DEFINITIONS, name), get(MARKS, name)];
        let mut outcomes = self.ask_all(requested).into_iter();
        let definition = entries(outcomes.next()?)?;
        let cursor = entries(outcomes.next()?)?;
        let definition = definition.first();
        Some(Loaded::new(name, of_file, definition, cursor.first()))
    }

    /// Has the book know what the tables say of a schedule.
    pub(super) fn take(&self, loaded: &Loaded) {
        let name = &loaded.name;
        let mut inside = locked(&self.schedules.inside);
        let due = match &loaded.schedule {
            Ok(schedule) => next_check(schedule, &loaded.cursor),
            Err(why) => {
                let item = inside.book.get(name);
                if item.is_some_and(|item| item.invalid.as_deref() != Some(why)) {
                    tracing::warn!("schedule {}: it puts nothing: {why}", name.escape_debug());
                }
                Ms::NEVER
            }
        };
        inside.book.change(name, |item, _| {
            let why = loaded.schedule.as_ref().err();
            item.invalid = why.map(|why| why.as_str().into());
            item.paused = loaded.cursor.paused;
            item.last_run = loaded.cursor.last_run;
        });
        inside.book.check_at(name, due);
    }

    /// Puts what is due, as far as a turn goes.
    fn put_what_is_due(&self) {
        let mut left = TURN;
        while left > 0 {
            let wall = self.client_api.wall();
            let inside = locked(&self.schedules.inside);
            // Runs that are on time go before those that are made up for.
            let most = left.min(AT_ONCE);
            let mut names = inside.book.due_between(late_at(wall), wall, most);
            if names.len() < most {
                let late = inside.book.due_at(late_at(wall), most - names.len());
                names.extend(late);
            }
            drop(inside);
            if names.is_empty() {
                break;
            }
            left -= names.len();
            let again = self.check_at(&names);
            // They are others than was read beforehand.
            for name in self.check_at(&again) {
                self.try_again(&name);
            }
        }
        self.ask_all(Vec::new());
    }

    /// Does what is due of these. Answers those that have changed since they were read beforehand.
    fn check_at(&self, names: &[Arc<str>]) -> Vec<Arc<str>> {
        if names.is_empty() {
            return Vec::new();
        }
        let mut ahead = self.ahead.borrow_mut();
        let known: Vec<Option<Loaded>> = names.iter().map(|name| ahead.remove(name)).collect();
        drop(ahead);
        let missing = names.iter().zip(&known);
        let missing = missing.filter(|(_, known)| known.is_none());
        let missing: Vec<Arc<str>> = missing.map(|(name, _)| Arc::clone(name)).collect();
        let mut read = self.load_all(&missing).into_iter();
        let (mut planned, mut steps) = (Vec::new(), Vec::new());
        for (name, known) in names.iter().zip(known) {
            let was_known = known.is_some();
            let Some(loaded) = known.or_else(|| read.next().flatten()) else {
                self.put_off(name, CommandError::Unknown);
                continue;
            };
            if let Some((plan, [step, lean])) = self.plan(loaded, was_known) {
                steps.push(step);
                planned.push((plan, lean));
            }
        }
        let outcomes = self.ask_all(steps);
        let (mut steps, mut skipped, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for ((planned, lean), outcome) in planned.into_iter().zip(outcomes) {
            let loaded = &planned.loaded;
            match put_id(&outcome, planned.puts) {
                Ok(Some(id)) => {
                    // Of no consequence: it is only shown. Nobody else writes the cursor.
                    let cursor = planned.cursor.with_message(id.0);
                    let note = free_step(set_cursor(&loaded.name, &cursor, false));
                    self.notes.borrow_mut().push(note);
                    self.has_put(&loaded.name);
                    self.done(&planned);
                }
                Ok(None) => self.done(&planned),
                Err(CommandError::Duplicate(_)) => {
                    let wall = self.client_api.wall();
                    let cursor = loaded.cursor.skipped(&planned.cursor, wall);
                    steps.push(loaded.step(vec![set_cursor(&loaded.name, &cursor, false)]));
                    skipped.push(Planned {
                        cursor,
                        puts: false,
                        ..planned
                    });
                }
                // What earlier runs came to makes room.
                Err(command_error) if is_full(command_error) => {
                    steps.push(lean);
                    skipped.push(planned);
                }
                Err(CommandError::Conflict) if planned.was_known => {
                    again.push(planned.loaded.name);
                }
                Err(command_error) => self.put_off(&loaded.name, command_error),
            }
        }
        if steps.is_empty() {
            return again;
        }
        for (planned, outcome) in skipped.into_iter().zip(self.ask_all(steps)) {
            match put_id(&outcome, planned.puts) {
                Ok(id) => {
                    if id.is_some() {
                        self.has_put(&planned.loaded.name);
                    }
                    self.done(&planned);
                }
                Err(command_error) => self.put_off(&planned.loaded.name, command_error),
            }
        }
        again
    }

    /// The step of a schedule that is due, as a command and as a lean one; `None`: no step is.
    fn plan(&self, loaded: Loaded, was_known: bool) -> Option<(Planned, [Command; 2])> {
        let Ok(schedule) = &loaded.schedule else {
            self.take(&loaded);
            return None;
        };
        let (name, wall) = (&loaded.name, self.client_api.wall());
        let (cursor, missed, due) = match next_step(schedule, &loaded.cursor, wall) {
            NextStep::Rest => {
                self.take(&loaded);
                self.change(name, |item, _| item.checked = true);
                return None;
            }
            NextStep::Note { cursor, missed } => (cursor, missed, None),
            NextStep::Put {
                cursor,
                missed,
                due,
            } => (cursor, missed, Some(due)),
        };
        let run = |full| {
            let put = due.map(|due| Effect::Put(scheduled(&schedule.put, due)));
            let mut effects: Vec<Effect> = put.into_iter().collect();
            effects.push(set_cursor(name, &cursor, full));
            loaded.step(effects)
        };
        let steps = [run(false), run(true)];
        let plan = Planned {
            schedule: Arc::clone(schedule),
            loaded,
            cursor,
            missed,
            puts: due.is_some(),
            was_known,
        };
        Some((plan, steps))
    }

    /// The cursor of a schedule is durable.
    fn done(&self, planned: &Planned) {
        let (name, missed) = (&planned.loaded.name, planned.missed);
        let cursor = &planned.cursor;
        if missed > 0 {
            tracing::warn!(
                "schedule {}: {missed} runs were missed",
                name.escape_debug()
            );
        }
        let mut inside = locked(&self.schedules.inside);
        inside.book.change(name, |item, sums| {
            item.checked = true;
            item.paused = cursor.paused;
            item.last_run = cursor.last_run;
            item.missed += missed;
            sums.missed += missed;
            if planned.puts {
                item.error = None;
            }
        });
        inside
            .book
            .check_at(name, next_check(&planned.schedule, cursor));
    }

    /// Changes what is counted of a schedule.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Item, &mut Sums)) {
        locked(&self.schedules.inside).book.change(name, change);
    }

    /// A put was refused, and is tried again soon.
    fn put_off(&self, name: &str, command_error: CommandError) {
        self.failed(name, command_error);
        self.try_again(name);
    }

    fn try_again(&self, name: &str) {
        locked(&self.schedules.inside).book.try_again(name);
    }

    /// Counts a put.
    fn has_put(&self, name: &str) {
        self.change(name, |item, sums| {
            item.runs += 1;
            sums.runs += 1;
            item.error = None;
        });
    }

    /// Puts the message of a schedule by hand, with its cursor. Answers the message.
    ///
    /// # Errors
    /// Why not; nothing was put.
    pub(super) fn put_by_hand(
        &self,
        schedule: &Schedule,
        loaded: &Loaded,
    ) -> Result<MessageId, CommandError> {
        let name = &schedule.name;
        let wall = self.client_api.wall();
        let cursor = loaded.cursor.by_hand(wall);
        let run = |full| {
            let put = Effect::Put(scheduled(&schedule.put, wall));
            let effects = vec![put, set_cursor(name, &cursor, full)];
            put_id(&self.ask(loaded.step(effects)), true)
        };
        let id = match run(false) {
            Err(command_error) if is_full(command_error) => run(true),
            id => id,
        };
        let id = id?.ok_or(CommandError::Unknown)?;
        self.has_put(name);
        let cursor = cursor.with_message(id.0);
        self.ask(free_step(set_cursor(name, &cursor, false)));
        Ok(id)
    }

    /// A put was refused: says so, once for each reason.
    pub(super) fn failed(&self, name: &str, command_error: CommandError) {
        let text = command_error.text();
        self.change(name, |item, sums| {
            item.checked = true;
            item.failures += 1;
            sums.failures += 1;
            if item.error.as_deref() != Some(text) {
                tracing::warn!("schedule {}: not put: {text}", name.escape_debug());
                item.error = Some(text.into());
            }
        });
    }
}

/// The message that a step has put, if it `puts` one.
///
/// # Errors
/// Why nothing was done, or it is not known whether it was; or the queue could not be made any
/// more.
fn put_id(outcome: &Outcome, puts: bool) -> Result<Option<MessageId>, CommandError> {
    let Outcome::Transaction { ids, .. } = outcome else {
        return Err(refusal(outcome).unwrap_or(CommandError::NotPermitted));
    };
    match ids.first() {
        Some(MessageId(0)) => Err(CommandError::TooManyQueues),
        Some(id) => Ok(Some(*id)),
        None if puts => Err(CommandError::Unknown),
        None => Ok(None),
    }
}

/// Why a step was not done.
pub(super) fn refusal(outcome: &Outcome) -> Option<CommandError> {
    if let Outcome::Transaction { .. } = outcome {
        None
    } else if let Outcome::Refused(command_error) = outcome {
        Some(*command_error)
    } else {
        // A hook of commands does not want it.
        Some(CommandError::NotPermitted)
    }
}

/// The put of a schedule with the time it was due, unless it has such an attribute itself.
fn scheduled(put: &Put, due: Ms) -> Put {
    let mut put = put.clone();
    let attrs = &mut put.more.get_or_insert_default().attrs;
    if let Some(time) = date(due.0)
        && !attrs.iter().any(|(name, _)| **name == *SCHEDULED_AT)
    {
        let time = time.to_rfc3339_opts(SecondsFormat::Secs, true);
        attrs.push((SCHEDULED_AT.into(), time.into_bytes().into()));
    }
    put
}
