//! Commands of the parts that have no connection, which come in through the client API.
//!
//! A command is decided by the thread that brings it. Its outcome is sent
//! when it is durable, mostly by the dispatcher's own thread, which also gets what
//! arrives for takes that waited.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quintet_client::{Arrive, OnOutcome};
use quintet_hooks::Decided as Hooked;
use quintet_host::{
    Access, ClientKey, Completed, Core, Decided, Post as _, Required, SLOTS_MAX, Trail, locked,
};
use quintet_types::{Caller, ClientId, Command, CommandError, Delivery, Handed, Name, Outcome};

use crate::hooks::{Hooks, NotLoaded, Runner, at_client_api, not_loaded};
use crate::io::{Mail, Mailbox};

/// A wait of clients at a stop lasts so long at most, and so often it is looked whether replies
/// that others acknowledge are given up.
pub(crate) const HELD_LOOK: Duration = Duration::from_secs(1);

/// Clients without an I/O thread, and their replies to come.
pub(crate) struct Dispatcher {
    core: Arc<Core>,
    hooks: Arc<Hooks>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Its number among those that have clients, behind the I/O threads.
    pub(crate) thread: usize,
    /// Whether the decisions of a turn are written together, at its end.
    gathers: bool,
    /// The newest batch that is to be written at the end of the turn; 0: none.
    unwritten: AtomicU64,
    inside: Mutex<Inside>,
    /// A command has been decided.
    decided: Condvar,
}

#[derive(Default)]
struct Inside {
    requesters: HashMap<ClientId, Requester>,
    entered: u64,
    /// Outcomes that wait for what they need, in the order they were decided, and since when.
    held: Vec<Held>,
    /// Commands that are being decided.
    deciding: usize,
    /// No command is begun any more.
    closing: bool,
    /// Nothing is sent any more.
    closed: bool,
}

impl Inside {
    /// A client's command is answered; the one it brought next.
    fn next_of(&mut self, client_id: ClientId) -> Option<(Caller, Command, OnOutcome)> {
        let requester = self.requesters.get_mut(&client_id)?;
        let next = requester.queue.pop_front();
        requester.busy = next.is_some();
        next
    }
}

struct Requester {
    arrive: Arc<Mutex<Arrive>>,
    /// Its command is being decided, or waits.
    busy: bool,
    /// Receiver of the outcome, if it waits.
    waiting: Option<OnOutcome>,
    /// That is a take, or a wait for a result, which nothing has come of while it waits.
    takes: bool,
    /// Its next commands.
    queue: VecDeque<(Caller, Command, OnOutcome)>,
}

/// A notification with what it requires, and since when it is held.
type Held = (Required, Notification, Instant);

/// A reply or an arrival, for when it is durable.
enum Notification {
    Outcome(OnOutcome, Outcome, Name),
    Arrived(Arc<Mutex<Arrive>>, Handed, Name),
}

impl Notification {
    fn say(self) {
        match self {
            Notification::Outcome(reply, outcome, name) => reply(outcome, name),
            Notification::Arrived(arrive, messages, name) => locked(&arrive)(messages, name),
        }
    }
}

impl Dispatcher {
    /// With this number among those that have clients.
    pub(crate) fn new(
        core: Arc<Core>,
        hooks: Arc<Hooks>,
        mailbox: Arc<Mailbox>,
        thread: usize,
        gathers: bool,
    ) -> Self {
        Self {
            core,
            hooks,
            mailbox,
            thread,
            gathers,
            unwritten: AtomicU64::new(0),
            inside: Mutex::default(),
            decided: Condvar::new(),
        }
    }

    /// As [`quintet_client::ClientApi::enter`].
    pub(crate) fn enter(&self, arrive: Arrive) -> ClientId {
        let mut inside = locked(&self.inside);
        inside.entered += 1;
        let key = ClientKey {
            thread: self.thread,
            slot: u32::try_from(inside.entered % u64::from(SLOTS_MAX)).unwrap_or(0),
            generation: u32::try_from(1 + inside.entered / u64::from(SLOTS_MAX)).unwrap_or(1),
        };
        let requester = Requester {
            arrive: Arc::new(Mutex::new(arrive)),
            busy: false,
            waiting: None,
            takes: false,
            queue: VecDeque::new(),
        };
        inside.requesters.insert(key.client_id(), requester);
        key.client_id()
    }

    /// As [`quintet_client::ClientApi::leave`].
    pub(crate) fn leave(&self, client_id: ClientId) {
        let gone = locked(&self.inside).requesters.remove(&client_id);
        let forget = |runner: &mut Runner| runner.state.forget(client_id);
        // Hooks that could not be loaded know nothing of it.
        let _forgotten = self.hooks.at_dispatcher(&self.core, forget);
        self.core.with_access(|access| access.disconnect(client_id));
        drop(gone);
    }

    /// Decides a client's command, and those it brought meanwhile. `is_next`: the command has been
    /// in the client's line.
    pub(crate) fn decide(&self, caller: Caller, command: Command, reply: OnOutcome, is_next: bool) {
        let mut next = Some((caller, command, reply));
        let mut is_next = is_next;
        while let Some((caller, command, reply)) = next.take() {
            // Before it is decided: what it waits for may come at once.
            let stops = matches!(command, Command::StopWaiting);
            let takes = matches!(
                command,
                Command::Take(_) | Command::AwaitResult { .. } | Command::AwaitLease(_)
            );
            let mut inside = locked(&self.inside);
            let inside_now = &mut *inside;
            let requester = inside_now.requesters.get_mut(&caller.client_id);
            let mut requester = requester.filter(|_| !stops);
            if let Some(requester) = &mut requester
                && !is_next
            {
                if requester.busy {
                    requester.queue.push_back((caller, command, reply));
                    return;
                }
                requester.busy = true;
            }
            if inside_now.closing {
                if !stops {
                    next = inside_now.next_of(caller.client_id);
                }
                drop(inside);
                reply(Outcome::Refused(CommandError::Draining), Name::default());
                is_next = true;
                continue;
            }
            let kept = match requester {
                Some(requester) => {
                    requester.waiting = Some(reply);
                    requester.takes = takes;
                    None
                }
                None => Some(reply),
            };
            inside_now.deciding += 1;
            drop(inside);
            let decided = self.submit(caller, command);
            let mut inside = locked(&self.inside);
            inside.deciding -= 1;
            if inside.closing {
                self.decided.notify_all();
            }
            let Some((outcome, name, required)) = decided else {
                // A client that has left gets no answer. Without the lock.
                drop(inside);
                return;
            };
            let reply =
                kept.or_else(|| inside.requesters.get_mut(&caller.client_id)?.waiting.take());
            if !stops {
                next = inside.next_of(caller.client_id);
                is_next = true;
            }
            match reply {
                Some(reply) => self.notify(
                    inside,
                    required,
                    Notification::Outcome(reply, outcome, name),
                ),
                // What is left is dropped without the lock.
                None => drop(inside),
            }
        }
    }

    /// Decides a command, with the events around it; `None`: it waits.
    fn submit(&self, caller: Caller, command: Command) -> Option<(Outcome, Name, Required)> {
        let mut command = Some(command);
        let hooked = self.hooks.at_dispatcher(&self.core, |runner| {
            let command = command.take_if(|command| !runner.state.ignores(command))?;
            let decided = runner.state.submit(&at_client_api(caller), command);
            Some((decided, runner.take_did()))
        });
        let hooked = match hooked {
            Ok(hooked) => hooked.flatten(),
            // It only takes its client out of lines.
            Err(NotLoaded) if command == Some(Command::StopWaiting) => None,
            Err(NotLoaded) => return Some((not_loaded(), Name::default(), Required::default())),
        };
        if let Some((decided, did)) = hooked {
            let required = did.see_to(&self.core);
            return plain(decided).map(|(outcome, name)| (outcome, name, required));
        }
        let command = command?;
        let mut trail = Trail::default();
        let mut access = Access::new(&self.core, self.core.clock.now(), &mut trail);
        access.is_for(command.about().verb);
        let decided = access.submit(caller, command);
        drop(access);
        self.write(std::mem::take(&mut trail.recorded));
        self.core.see_to(trail);
        match decided {
            Decided::Now(outcome, name, required) => Some((outcome, name, required)),
            Decided::Later => None,
        }
    }

    /// Sees to it that a batch gets written: now, or at the end of the turn.
    fn write(&self, commit_number: u64) {
        if !self.gathers {
            self.core.write(commit_number);
        } else if commit_number > self.core.written()
            && self.unwritten.fetch_max(commit_number, Ordering::SeqCst) == 0
        {
            self.mailbox.wake();
        }
    }

    /// The outcome that a client waited for, after the hooks have seen it; `None`: it waits again.
    fn arrived(&self, delivery: &mut Delivery, required: Required) -> Option<(Outcome, Required)> {
        let outcome = std::mem::replace(&mut delivery.outcome, Outcome::Done).of_command();
        let (client_id, standing) = (delivery.to, delivery.standing);
        let mut outcome = Some(outcome);
        let hooked = self.hooks.at_dispatcher(&self.core, |runner| {
            if !runner.state.awaits(client_id, standing) {
                return None;
            }
            let caller = Caller::server(client_id);
            let (who, queue) = (at_client_api(caller), delivery.queue.clone());
            let decided = runner.state.arrived(&who, standing, outcome.take()?, queue);
            Some((decided, runner.take_did()))
        });
        match hooked.ok().flatten().flatten() {
            Some((decided, did)) => {
                let required = required.and(did.see_to(&self.core));
                let (outcome, queue) = plain(decided)?;
                delivery.queue = queue;
                Some((outcome, required))
            }
            None => outcome.map(|outcome| (outcome, required)),
        }
    }

    /// Sends a notification, now or when its commit numbers are complete.
    fn notify(
        &self,
        mut inside: MutexGuard<'_, Inside>,
        required: Required,
        notification: Notification,
    ) {
        if self.core.completed().satisfies(required) {
            drop(inside);
            notification.say();
            return;
        }
        if inside.closed {
            // Without the lock.
            drop(inside);
            return;
        }
        // The first reply that is held wakes the dispatcher, which looks again until none is held.
        let is_first = inside.held.is_empty();
        inside.held.push((required, notification, Instant::now()));
        drop(inside);
        self.write(required.written);
        if is_first {
            self.mailbox.wake();
        }
    }

    /// Does what there is to do. True: the server stops. `mail` is empty before and afterwards.
    pub(crate) fn turn(&self, mail: &mut Vec<Mail>) -> bool {
        let mut stops = false;
        self.mailbox.collect(mail);
        for item in mail.drain(..) {
            match item {
                Mail::Delivery(delivery, required) => self.deliver(delivery, required),
                Mail::Stop => stops = true,
                // Connections are never placed here.
                Mail::Socket(..)
                | Mail::Login(..)
                | Mail::Logins
                | Mail::Census(..)
                | Mail::Close(..)
                | Mail::Refuse
                | Mail::Answer(..) => {}
            }
        }
        self.core.write(self.unwritten.swap(0, Ordering::SeqCst));
        self.say_reached();
        stops
    }

    /// Tells nobody anything any more.
    pub(crate) fn close(&self) {
        let (requesters, held) = {
            let mut inside = locked(&self.inside);
            inside.closed = true;
            (
                std::mem::take(&mut inside.requesters),
                std::mem::take(&mut inside.held),
            )
        };
        // Without the lock. A reply that is dropped says that nobody knows what came of it.
        drop(held);
        for requester in requesters.into_values() {
            for (_, _, reply) in requester.queue {
                reply(Outcome::Refused(CommandError::Draining), Name::default());
            }
        }
    }

    /// Begins no command any more, and takes those that wait out of their lines. The engine
    /// delivers to each either nothing or the messages that were on their way.
    pub(crate) fn end_takes(&self) {
        let mut inside = locked(&self.inside);
        inside.closing = true;
        while inside.deciding > 0 {
            let decided = self.decided.wait(inside);
            inside = decided.unwrap_or_else(PoisonError::into_inner);
        }
        let takes = inside
            .requesters
            .iter()
            .filter(|(_, requester)| requester.takes);
        let waiting: Vec<ClientId> = takes.map(|(client_id, _)| *client_id).collect();
        drop(inside);
        for client_id in waiting {
            self.submit(Caller::server(client_id), Command::StopWaiting);
        }
    }

    /// True while a take waits for its delivery after [`Dispatcher::end_takes`].
    pub(crate) fn takes_wait(&self) -> bool {
        let inside = locked(&self.inside);
        let mut requesters = inside.requesters.values();
        requesters.any(|requester| requester.takes && requester.waiting.is_some())
    }

    /// Delivers an outcome that a client waited for.
    fn deliver(&self, mut delivery: Delivery, required: Required) {
        let client_id = delivery.to;
        if delivery.claimed {
            self.core
                .with_access(|access| access.leave_lines(client_id));
        }
        let Some((outcome, required)) = self.arrived(&mut delivery, required) else {
            return;
        };
        let mut inside = locked(&self.inside);
        let closing = inside.closing;
        let notification = match (inside.requesters.get_mut(&client_id), outcome) {
            (Some(requester), Outcome::Messages(messages)) if delivery.standing => Ok(
                Notification::Arrived(Arc::clone(&requester.arrive), messages, delivery.queue),
            ),
            (Some(requester), outcome) => match requester.waiting.take() {
                Some(reply) if closing && outcome == Outcome::Empty => Ok(Notification::Outcome(
                    reply,
                    Outcome::Refused(CommandError::Draining),
                    Name::default(),
                )),
                Some(reply) => Ok(Notification::Outcome(reply, outcome, delivery.queue)),
                None => Err(outcome),
            },
            (None, outcome) => Err(outcome),
        };
        let next = match delivery.standing {
            true => None,
            false => inside.next_of(client_id),
        };
        match notification {
            Ok(notification) => self.notify(inside, required, notification),
            // Too late: leases of the client end with it, the rest is undone.
            Err(Outcome::Messages(messages)) if !delivery.peeked => {
                drop(inside);
                let caller = Caller::server(client_id);
                self.core
                    .with_access(|access| access.restore(caller, messages.into_vec()));
            }
            Err(_) => drop(inside),
        }
        if let Some((caller, command, reply)) = next {
            self.decide(caller, command, reply, true);
        }
    }

    /// Sends the notifications whose commit numbers are complete.
    fn say_reached(&self) {
        let mailbox = &self.mailbox;
        loop {
            let completed = self.core.completed();
            for notification in self.take_reached(completed) {
                notification.say();
            }
            if locked(&self.inside).held.is_empty() {
                return;
            }
            mailbox.wants_durable.store(true, Ordering::SeqCst);
            mailbox.wants_written.store(true, Ordering::SeqCst);
            // What was reached before the flags were up rang no bell.
            if self.core.completed() == completed {
                return;
            }
        }
    }

    fn take_reached(&self, completed: Completed) -> Vec<Notification> {
        let mut inside = locked(&self.inside);
        let is_free = |held: &mut Held| completed.satisfies(held.0);
        let free = inside.held.extract_if(.., is_free);
        free.map(|(_, notification, _)| notification).collect()
    }

    /// Gives up replies that nobody acknowledges: its drop notifies the client that waits for one.
    pub(crate) fn give_up(&self) {
        let mut inside = locked(&self.inside);
        let is_late = |held: &mut Held| self.core.gives_up(held.2.elapsed());
        let late: Vec<Held> = inside.held.extract_if(.., is_late).collect();
        // Without the lock.
        drop(inside);
        drop(late);
    }
}

/// The decision of hooks; `None`: it waits.
fn plain(decided: Hooked) -> Option<(Outcome, Name)> {
    match decided {
        Hooked::Now(outcome, name) => Some((outcome, name)),
        Hooked::Denied(text) => Some((Outcome::Denied(text.into()), Name::default())),
        // Nobody reads a text here: the hook has done what there was to do.
        Hooked::Answer(_) => Some((Outcome::Done, Name::default())),
        Hooked::Later => None,
    }
}
