//! Commands to the shards: which they go to, and what came of them.

mod afar;
mod permit;
mod several;
mod step;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::atomic::Ordering;

use quintet_engine::Across;
use quintet_types::{
    Answer, Caller, ClientId, Command, CommandError, Hold, Message, MessageId, Ms, Name, Outcome,
    ShardStats, StatsReply, Subject, Track,
};

pub(crate) use step::Inside;
pub use step::{Access, Trail};

use super::{Core, Required, Shard};

/// The result of a command.
pub enum Decided {
    /// The outcome, the queue its first message came from, what its reply
    /// waits for.
    Now(Outcome, Name, Required),
    /// A delivery will follow.
    Later,
}

/// Where a command goes.
enum Route {
    One(usize),
    All,
    /// Through some of them, one after the other.
    Across(Box<Across>),
    /// A move: from where, where to.
    Between(usize, usize, Name),
    /// One after the other, from this one on, until one has what it names.
    InTurn(usize),
    /// All it names at once: queues, messages, batches.
    Together,
    /// A put into the queue of this shard that is about others too: its batch is one of another,
    /// or messages for which it is held.
    WithOthers(usize),
}

impl Access<'_> {
    /// Decides a command in the locked shard. Its outcome may leave once `Required` is done.
    pub fn submit(&mut self, caller: Caller, command: Command) -> Decided {
        let core = self.core;
        if core.shards.len() == 1
            && !core.is_shared()
            && core.is_available()
            && !core.are_permits_checked()
        {
            // The common case; the same as below, and each command is copied less often.
            return self.ask(0, caller, command);
        }
        let is_logged = !matches!(command, Command::Refer { .. });
        if !core.is_available() && is_logged && !leaves(&command) {
            core.unavailable.fetch_add(1, Ordering::Relaxed);
            return refused_at_once(CommandError::Unavailable);
        }
        let decided = match core.are_permits_checked() {
            true => self.decide_permitted(caller, command),
            false => self.decide(caller, command),
        };
        match decided {
            // In a cluster other replies wait until what they rest on is acknowledged.
            Decided::Now(outcome, name, _) if !is_logged && core.is_shared() => {
                Decided::Now(outcome, name, Required::default())
            }
            decided @ (Decided::Now(..) | Decided::Later) => decided,
        }
    }

    #[inline(always)]
    fn decide(&mut self, caller: Caller, command: Command) -> Decided {
        match self.route(caller.client_id, &command) {
            Route::One(shard) => self.ask(shard, caller, command),
            Route::All => self.ask_all(caller, &command),
            Route::InTurn(first) => self.ask_in_turn(first, caller, &command),
            Route::Across(across) => self.ask_across(caller, *across, command),
            Route::Between(from, into, to) => self.move_between(from, into, &to, caller, command),
            Route::WithOthers(into) => self.put_with_others(into, caller, command),
            Route::Together => {
                if let Command::PutMany(puts) = command {
                    self.put_many(caller, puts)
                } else if let Command::Transaction(transaction) = command {
                    self.ask_transaction(caller, *transaction)
                } else {
                    self.ask(0, caller, command)
                }
            }
        }
    }

    /// Whether the client holds leases in any shard.
    pub fn holds_leases(&mut self, client_id: ClientId) -> bool {
        let mut shards = 0..self.core.shards.len();
        shards.any(|shard| self.step(shard, |at| at.engine.holds_leases(client_id)))
    }

    /// The connection is gone: ends its waits and the leases bound to it.
    pub fn disconnect(&mut self, client_id: ClientId) {
        for shard in 0..self.core.shards.len() {
            self.step(shard, |at| {
                at.engine
                    .disconnect(at.now, client_id, at.journal, at.deliveries);
            });
        }
    }

    /// Undoes takes whose replies never began to leave.
    pub fn restore(&mut self, caller: Caller, messages: Vec<Message>) {
        let mut by_shard: Vec<Vec<Message>> = vec![Vec::new(); self.core.shards.len()];
        for message in messages {
            by_shard[self.core.shard_of_id(message.id)].push(message);
        }
        for (shard, messages) in by_shard.into_iter().enumerate() {
            if !messages.is_empty() {
                self.ask(shard, caller, Command::Restore(messages));
            }
        }
    }

    /// Gives up the places in line of a wait that one of its shards has ended.
    pub fn leave_lines(&mut self, client_id: ClientId) {
        for shard in 0..self.core.shards.len() {
            self.step(shard, |at| at.engine.leave_lines(client_id));
        }
    }

    fn ask(&mut self, shard: usize, caller: Caller, command: Command) -> Decided {
        let core = self.core;
        let at = self.hold(shard);
        // No closure as in `step_in`: it would copy the command.
        let inside = self.inside(at);
        let answer = inside.engine.submit(
            inside.now,
            caller,
            command,
            inside.journal,
            inside.deliveries,
        );
        decided_in(core, self.collected(at), answer)
    }

    /// The answer of the last step in a shard, and the condition for sending its reply.
    fn decided(&mut self, shard: usize, answer: Answer) -> Decided {
        let core = self.core;
        decided_in(core, self.shard(shard), answer)
    }

    fn refused(&mut self, shard: usize, command_error: CommandError) -> Decided {
        let required = self.required(shard, hold_of(command_error));
        Decided::Now(Outcome::Refused(command_error), Name::default(), required)
    }

    /// Asks every shard and joins the answers. What has a limit asks the next
    /// shard for what is left of it.
    fn ask_all(&mut self, caller: Caller, command: &Command) -> Decided {
        let mut joined: Option<(Outcome, Required)> = None;
        let mut command = command.clone();
        for shard in 0..self.core.shards.len() {
            // None of the commands that go to all shards waits.
            let Decided::Now(outcome, _, required) = self.ask(shard, caller, command.clone())
            else {
                continue;
            };
            if let (Command::SettleHeld { max, .. }, Outcome::Count(count)) =
                (&mut command, &outcome)
            {
                *max = max.saturating_sub(u32::try_from(*count).unwrap_or(u32::MAX));
            }
            joined = Some(match joined {
                None => (outcome, required),
                Some((before, earlier)) => (join(before, outcome), earlier.and(required)),
            });
        }
        let (outcome, required) = joined.unwrap_or((Outcome::Done, Required::default()));
        Decided::Now(outcome, Name::default(), required)
    }

    /// Asks the shards one after the other, `first` before the others, until one has what the
    /// command is about.
    fn ask_in_turn(&mut self, first: usize, caller: Caller, command: &Command) -> Decided {
        let first = self.best_named(first, caller, command);
        let mut newest: Option<(MessageId, Box<Track>, Name)> = None;
        let mut missed = Required::default();
        for shard in self.in_turn(first) {
            match self.ask(shard, caller, command.clone()) {
                Decided::Now(Outcome::Refused(CommandError::NotFound), _, required) => {
                    missed = missed.and(required);
                }
                // Another shard may have a later message of the name.
                Decided::Now(Outcome::Tracked(id, track), name, required) => {
                    missed = missed.and(required);
                    let known = newest.as_ref().map(|(_, track, _)| track.newness());
                    if known < Some(track.newness()) {
                        newest = Some((id, track, name));
                    }
                }
                decided @ (Decided::Now(..) | Decided::Later) => return decided,
            }
        }
        let (outcome, name) = match newest {
            Some((id, track, name)) => (Outcome::Tracked(id, track), name),
            None => (Outcome::Refused(CommandError::NotFound), Name::default()),
        };
        Decided::Now(outcome, name, missed)
    }

    /// All shards, this one before the others.
    fn in_turn(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let others = (0..self.core.shards.len()).filter(move |&shard| shard != first);
        std::iter::once(first).chain(others)
    }

    /// The shard to ask first: of a report or a cancel, which a shard takes also for a message
    /// that nobody holds, the one that knows the name best.
    fn best_named(&mut self, first: usize, caller: Caller, command: &Command) -> usize {
        let mut best = (None, first);
        let Command::ByName(by_name) = command else {
            return first;
        };
        if by_name.action.is_of_tracks() {
            for shard in self.in_turn(first) {
                let known = self.step(shard, |at| at.engine.knows_named(caller, by_name));
                if known > best.0 {
                    best = (known, shard);
                }
                if known == Some((Ms::NEVER, true)) {
                    break;
                }
            }
        }
        best.1
    }

    fn route(&self, client_id: ClientId, command: &Command) -> Route {
        let shards = self.core.shards.len();
        if shards == 1 {
            return Route::One(0);
        }
        let of = |name: &Name| self.core.shard_of_queue(name.as_bytes());
        let between = |from: usize, to: &Name| match of(to) {
            into if into == from => Route::One(from),
            into => Route::Between(from, into, to.clone()),
        };
        let across = if let Command::Take(take) = command {
            Across::new(client_id, take, shards)
        } else if let Command::Watch(Some(take)) = command {
            Some(Across::watch(client_id, (**take).clone(), shards))
        } else if let Command::Rewatch(take) = command {
            Some(Across::rewatch(client_id, (**take).clone(), shards))
        } else {
            None
        };
        if let Some(across) = across {
            return Route::Across(Box::new(across));
        }
        if let Command::Put(put) = command
            && put.more.is_some()
        {
            let into = of(&put.queue);
            return match self.others_of(put).iter().all(|shard| *shard == into) {
                true => Route::One(into),
                false => Route::WithOthers(into),
            };
        }
        match command.about().subject {
            Subject::Nothing => Route::One(0),
            Subject::All => Route::All,
            Subject::Named => Route::InTurn(self.core.reserved.first_for(command)),
            Subject::Slice(shard) => Route::One(usize::from(shard).min(shards - 1)),
            Subject::Queue(name) | Subject::Table(name) => Route::One(of(name)),
            Subject::Queues(names) => Route::One(names.first().map_or(0, of)),
            Subject::Puts(puts) => {
                let others = puts.iter().flat_map(|put| self.others_of(put));
                let mut about = puts.iter().map(|put| of(&put.queue)).chain(others);
                match about.next() {
                    None => Route::One(0),
                    Some(first) if about.all(|shard| shard == first) => Route::One(first),
                    Some(_) => Route::Together,
                }
            }
            Subject::Message(id) => Route::One(self.core.shard_of_id(id)),
            Subject::Batch(batch) => Route::One(self.core.shard_of_id(batch.as_id())),
            Subject::MessageTo(id, to) => between(self.core.shard_of_id(id), to),
            // A child lives in its parent's shard.
            Subject::Between(parent, _) if matches!(command, Command::Join { .. }) => {
                Route::One(of(parent))
            }
            Subject::Between(from, to) => between(of(from), to),
            Subject::Several => Route::Together,
        }
    }
}

#[inline(always)]
fn decided_in(core: &Core, shard: &mut Shard, answer: Answer) -> Decided {
    let Answer::Now(outcome, hold) = answer else {
        return Decided::Later;
    };
    let hold = if let Outcome::Refused(command_error) = outcome {
        hold_of(command_error)
    } else {
        core.hold(hold)
    };
    let name = match outcome.first_handed() {
        Some(message) => {
            core.reserved.note(&outcome);
            shard.engine.queue_name(message.queue)
        }
        None => Name::default(),
    };
    let required = core.required(shard, hold);
    Decided::Now(outcome, name, required)
}

/// An error that rests on nothing in the log, and waits for nothing.
fn refused_at_once(command_error: CommandError) -> Decided {
    let refused = Outcome::Refused(command_error);
    Decided::Now(refused, Name::default(), Required::default())
}

/// True for what only takes its caller out of lines.
fn leaves(command: &Command) -> bool {
    matches!(command, Command::StopWaiting | Command::Watch(None))
}

/// The condition for sending an error. "No room" rests on nothing in the log, and could never be
/// sent if it waited for the log.
fn hold_of(command_error: CommandError) -> Hold {
    match matches!(
        command_error,
        CommandError::NoSpace | CommandError::Draining
    ) {
        true => Hold::Turn,
        false => Hold::Durable,
    }
}

/// Joins the answers of two shards to one command.
fn join(a: Outcome, b: Outcome) -> Outcome {
    match (a, b) {
        (Outcome::Count(a), Outcome::Count(b)) => Outcome::Count(a + b),
        (Outcome::Stats(mut a), Outcome::Stats(b)) => {
            if let (StatsReply::Shard(a), StatsReply::Shard(b)) = (&mut *a, *b) {
                add(a, &b);
            }
            Outcome::Stats(a)
        }
        (Outcome::Refused(_), b) => b,
        (a, _) => a,
    }
}

fn add(sum: &mut ShardStats, other: &ShardStats) {
    macro_rules! add {
        ($($field:ident),*) => {
            $(sum.$field += other.$field;)*
        };
    }
    add! {
        queues, queues_made, queues_dropped, queues_expired, waiters, sent, memory_bytes,
        snapshot_bytes, batches, tracked, result_waiters, replies, held, dedupe_ids, batches_waiting
    }
    sum.last_id = sum.last_id.max(other.last_id);
    sum.gauges.add(&other.gauges);
    sum.totals.add(&other.totals);
    sum.cold.add(&other.cold);
}
