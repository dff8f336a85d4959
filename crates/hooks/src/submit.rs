//! A command and the events around it.

use quintet_types::{
    ClientId, Command, CommandError, How, MessageId, Name, NamedAction, Outcome, Put, Subject,
    Transaction, Verb,
};

use crate::error::HookError;
use crate::host::Who;
use crate::state::HookState;
use crate::verdict::{CommandVerdict, Yes, line, of_command, of_yes};
use quintet_policy::Event;

/// The result of a command.
#[derive(Debug)]
pub enum Decided {
    /// This, with the queue its first message came from.
    Now(Outcome, Name),
    /// It waits; bring what comes to [`HookState::arrived`].
    Later,
    /// A hook refused it, with this text for the client.
    Denied(String),
    /// A hook answered in its place: text or bytes for the client.
    Answer(Vec<u8>),
}

/// A step that was taken: what was planned, what came of its command, and the
/// messages it has put.
pub(crate) type Stepped<T> = Result<(T, Option<Decided>, Vec<(Put, MessageId)>), Missed>;

/// Why a step was not taken.
pub(crate) enum Missed {
    Failed(Event, HookError),
    /// The data that the functions read changes faster than they run.
    Conflict,
}

/// The client of steps that are on nobody's behalf.
const NOBODY: ClientId = ClientId(u64::MAX - 1);

impl HookState {
    /// True if a command can be submitted without [`HookState::submit`].
    pub fn ignores(&self, command: &Command) -> bool {
        let events = self.events();
        if events.has(Event::Command) || events.has(Event::Error) {
            return false;
        }
        match command.about().verb {
            Verb::Put => {
                !(events.has(Event::BeforePut)
                    || events.has(Event::AfterPut)
                    || events.has(Event::Full))
            }
            Verb::Take => {
                !(events.has(Event::BeforeTake)
                    || events.has(Event::AfterTake)
                    || events.has(Event::Empty))
            }
            Verb::Reserve => !events.has(Event::AfterTake),
            Verb::Settle | Verb::Delete | Verb::Transaction => {
                !(settles(command) && events.has(Event::Settle))
            }
            Verb::Peek
            | Verb::StopWaiting
            | Verb::Refer
            | Verb::Touch
            | Verb::Kick
            | Verb::Move
            | Verb::Commit
            | Verb::Edit
            | Verb::Pause
            | Verb::Configure
            | Verb::Join
            | Verb::Flush
            | Verb::FlushExpired
            | Verb::Drop
            | Verb::DropQueues
            | Verb::BurnId
            | Verb::Restore
            | Verb::Table
            | Verb::Batch
            | Verb::Stats => true,
        }
    }

    /// Submits a command and runs the events around it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "`ignores` has all verbs")]
    pub fn submit(&mut self, who: &Who, command: Command) -> Decided {
        self.enter(who);
        if self.has(Event::Command)
            && let Some(decided) = self.before_command(who, &command)
        {
            return decided;
        }
        let decided = match command {
            Command::Put(put) => self.submit_put(who, put),
            Command::PutMany(puts) => self.submit_many(who, puts),
            Command::Take(take) if !take.peek => self.submit_take(who, take, false),
            Command::Watch(Some(take)) if !take.peek => self.submit_take(who, *take, true),
            Command::Rewatch(take) => self.submit_rewatch(who, *take),
            Command::WatchQueue { queue, on } => self.submit_watch_queue(who, queue, on),
            command @ Command::ReserveId { .. } if self.has(Event::AfterTake) => {
                self.submit_reserve(who, command)
            }
            command if settles(&command) && self.has(Event::Settle) => {
                self.submit_settle(who, command)
            }
            command => self.plain(command),
        };
        if self.has(Event::Error)
            && let Decided::Now(Outcome::Refused(command_error), name) = decided
        {
            return self.worded(who, command_error, name);
        }
        decided
    }

    /// Submits a command as it is.
    pub(crate) fn plain(&self, command: Command) -> Decided {
        let mut work = self.work();
        let caller = work.caller;
        match work.host.ask(caller, command) {
            (Some(outcome), name) => Decided::Now(outcome, name),
            (None, _) => Decided::Later,
        }
    }

    /// Asks `run` what is to be submitted, submits it together with the step
    /// that was made meanwhile, and begins anew if what was read has changed.
    /// Answers what `run` answered, what came of its command, and what the
    /// step has put. `run` gives its command by value.
    pub(crate) fn in_step<T>(
        &mut self,
        who: &Who,
        event: Event,
        mut run: impl FnMut(&mut Self) -> Result<(T, Option<Command>), HookError>,
    ) -> Stepped<T> {
        for _ in 0..self.program.limits.attempts_max.max(1) {
            self.enter(who);
            let (value, command) = match run(self) {
                Ok(planned) => planned,
                Err(error) => {
                    self.uncount();
                    return Err(Missed::Failed(event, error));
                }
            };
            let mut work = self.work();
            // What was only read binds nothing when nothing is done.
            if work.step.is_quiet() && (command.is_none() || work.step.guards.is_empty()) {
                drop(work);
                let decided = command.map(|command| self.plain(command));
                return Ok((value, decided, Vec::new()));
            }
            let wanted = self.has(Event::AfterPut);
            let puts = if wanted { work.step.puts() } else { Vec::new() };
            let had_command = command.is_some();
            let mut transaction = work.step.transaction();
            if let Some(Command::Transaction(own)) = command {
                // The client's conditions are those of the step, too.
                transaction.guards.extend(own.guards);
                transaction.then = own.then;
            } else {
                transaction.then = command.map(Box::new);
            }
            drop(work);
            // Where no client waits for it, none is notified if it has to wait.
            let nobodys = transaction.then.is_none()
                && transaction
                    .effects
                    .iter()
                    .all(|effect| effect.message().is_none());
            if nobodys {
                self.work().caller.client_id = NOBODY;
            }
            let decided = self.plain(Command::Transaction(Box::new(transaction)));
            self.work().caller = who.caller;
            let (ids, decided) = match decided {
                Decided::Now(Outcome::Refused(CommandError::Conflict), _) => {
                    self.uncount();
                    continue;
                }
                Decided::Now(Outcome::Transaction { ids, then }, name) => {
                    (ids, then.map(|then| Decided::Now(*then, name)))
                }
                Decided::Now(refused @ Outcome::Refused(_), name) => {
                    // Nothing was done: no message that was requested either.
                    self.uncount();
                    if !had_command && let Outcome::Refused(command_error) = refused {
                        let text =
                            format!("the server refused its request: {}", command_error.text());
                        return Err(Missed::Failed(event, self.blamed(text)));
                    }
                    (Vec::new(), Some(Decided::Now(refused, name)))
                }
                decided @ (Decided::Now(..)
                | Decided::Later
                | Decided::Denied(_)
                | Decided::Answer(_)) => (Vec::new(), Some(decided)),
            };
            let stored = puts
                .into_iter()
                .zip(ids)
                .filter(|(_, id)| id.0 != 0)
                .collect();
            return Ok((value, decided, stored));
        }
        Err(Missed::Conflict)
    }

    /// Takes back what the step has counted.
    fn uncount(&self) {
        let mut work = self.work();
        let now = work.host.now();
        let counted = std::mem::take(&mut work.step.counted);
        for (name, by) in counted {
            self.env
                .shared
                .counters
                .add(&name, by.saturating_neg(), None, now);
        }
        work.step.clear();
    }

    /// The error for a client whose command's hook was not done with it. `None`: the command goes
    /// on without.
    pub(crate) fn missed(&self, missed: Missed) -> Option<String> {
        match missed {
            Missed::Failed(event, error) => {
                self.report(event, &error);
                self.program
                    .limits
                    .refuse_on_error
                    .has(event)
                    .then(|| "refused: a hook failed".to_owned())
            }
            Missed::Conflict => Some("busy: the data of a hook changes too fast".to_owned()),
        }
    }

    /// `command`: what a function says in the command's place.
    fn before_command(&mut self, who: &Who, command: &Command) -> Option<Decided> {
        let result = self.in_step(who, Event::Command, |state| {
            let shown = shown_command(&state.lua, command)?;
            let args = (&shown, &state.conn);
            Ok((state.verdict(Event::Command, args, of_command)?, None))
        });
        match result {
            Ok((verdict, _, stored)) => {
                self.after_puts(who, stored);
                match verdict {
                    CommandVerdict::Go => None,
                    CommandVerdict::Refuse(text) => Some(Decided::Denied(text)),
                    CommandVerdict::Answer(bytes) => Some(Decided::Answer(bytes)),
                }
            }
            Err(missed) => self.missed(missed).map(Decided::Denied),
        }
    }

    fn submit_settle(&mut self, who: &Who, command: Command) -> Decided {
        let result = self.in_step(who, Event::Settle, |state| {
            let shown = shown_settle(&state.lua, &command)?;
            let read = |returned| of_yes(Event::Settle, returned);
            let yes = state.verdict(Event::Settle, (&shown, &state.conn), read)?;
            let command = (yes == Yes::Go).then(|| command.clone());
            Ok((yes, command))
        });
        match result {
            Ok((Yes::Refuse(text), ..)) => Decided::Denied(text),
            Ok((Yes::Go, decided, stored)) => {
                self.after_puts(who, stored);
                decided.unwrap_or(Decided::Now(Outcome::Done, Name::default()))
            }
            Err(missed) => {
                if let (Missed::Conflict, Command::Transaction(own)) = (&missed, &command) {
                    // What the client has seen is kept apart from what the hook has.
                    let own = Transaction {
                        guards: own.guards.clone(),
                        ..Transaction::default()
                    };
                    // No client waits for this: one that has to wait is reported once.
                    self.work().caller.client_id = NOBODY;
                    let decided = self.plain(Command::Transaction(Box::new(own)));
                    self.work().caller = who.caller;
                    if matches!(decided, Decided::Now(Outcome::Refused(_), _)) {
                        return decided;
                    }
                }
                let denied = self.missed(missed).map(Decided::Denied);
                denied.unwrap_or_else(|| self.plain(command))
            }
        }
    }

    /// `on_error`: another text for an error.
    fn worded(&mut self, who: &Who, command_error: CommandError, name: Name) -> Decided {
        let result = self.in_step(who, Event::Error, |state| {
            let returned = state.call(Event::Error, (command_error.text(), &state.conn))?;
            Ok((returned.map(|returned| returned.0), None))
        });
        match result {
            Ok((Some(mlua::Value::String(text)), ..)) => Decided::Denied(line(&text)),
            Ok(_) => Decided::Now(Outcome::Refused(command_error), name),
            Err(missed) => {
                self.missed(missed);
                Decided::Now(Outcome::Refused(command_error), name)
            }
        }
    }
}

/// The command that a transaction only puts under conditions, such as that a lease lasts; else the
/// command itself.
fn inner(command: &Command) -> &Command {
    if let Command::Transaction(step) = command
        && step.effects.is_empty()
    {
        step.then.as_deref().unwrap_or(command)
    } else {
        command
    }
}

fn shown_command(lua: &mlua::Lua, command: &Command) -> mlua::Result<mlua::Table> {
    let about = inner(command).about();
    let table = lua.create_table()?;
    table.raw_set("name", about.verb.name())?;
    if let Some(queue) = first_queue(about.subject) {
        table.raw_set("queue", lua.create_string(queue.as_bytes())?)?;
    }
    if let Some(id) = about.subject.message() {
        table.raw_set("id", id.0)?;
    }
    Ok(table)
}

/// The queue a command is shown with: where a message goes is not it.
fn first_queue(subject: Subject<'_>) -> Option<&Name> {
    if let Subject::MessageTo(..) = subject {
        return None;
    }
    if let Subject::Table(table) = subject {
        return Some(table);
    }
    subject.queues().next()
}

/// True if it ends leases, deletes or cancels the message that it names.
fn settles(command: &Command) -> bool {
    let command = inner(command);
    if let Command::ByName(by_name) = command {
        return matches!(
            by_name.action,
            NamedAction::Settle(_) | NamedAction::SettleHolding(..) | NamedAction::Cancel(_)
        );
    }
    matches!(
        command,
        Command::Settle { .. }
            | Command::SettleHolding { .. }
            | Command::SettleHeld { .. }
            | Command::Delete { .. }
            | Command::Cancel(..)
    )
}

fn shown_settle(lua: &mlua::Lua, command: &Command) -> mlua::Result<mlua::Table> {
    let command = inner(command);
    let table = shown_command(lua, command)?;
    let cancels = matches!(command, Command::Cancel(..));
    let mut word = if cancels { "cancel" } else { "delete" };
    let how = if let Command::Settle { how, .. }
    | Command::SettleHolding { how, .. }
    | Command::SettleHeld { how, .. } = command
    {
        Some(how)
    } else if let Command::ByName(by_name) = command {
        table.raw_set("message_name", lua.create_string(&by_name.name)?)?;
        if let NamedAction::Settle(how) | NamedAction::SettleHolding(how, _) = &by_name.action {
            Some(how)
        } else {
            word = "cancel";
            None
        }
    } else {
        None
    };
    if let Some(how) = how {
        word = match how {
            How::Finish => "finish",
            How::Archive { .. } => "archive",
            How::Release { .. } => "release",
            How::Fail { .. } => "fail",
            How::Bury { .. } => "bury",
        };
    }
    table.raw_set("how", word)?;
    Ok(table)
}
