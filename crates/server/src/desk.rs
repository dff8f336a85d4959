//! The server's door: commands of the parts that have no connection.
//!
//! A command is decided by the thread that brings it. What it says is told
//! when it is durable, mostly by the desk's own thread, which also gets what
//! arrives for takes that waited.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use quintet_config::{Secrets, changed, print, told_of_queue};
use quintet_door::{
    Arrive, AuditLine, Change, ClusterSeen, CronAct, Door, Exposition, Followed, HeldBack, History,
    HookEvent, NoChange, NodeOrder, OnOutcome, Parts, Rates, Recent, Series, SetBy, Setting,
    StoreError, TellCron, TellCrons, TellReload, TellWorkers, Thresholds, WorkerAct,
};
use quintet_hooks::{Decided as Hooked, Who};
use quintet_host::{Decided, Need, PartyKey, Post as _, Reached, SLOTS_MAX, locked};
use quintet_types::{
    Body, Caller, Command, Delivery, Ending, Handed, LargeBody, Message, MessageId, Ms, Name,
    Outcome, Overrides, Party, Principal, QueueSetup, QueueStats, Refusal,
};
use quintet_wire::{STREAM_OVER, WorkerState};

use crate::audit;
use crate::io::{Mail, Upload};
use crate::metrics;
use crate::server::{Order, Server};

/// While something is held that others acknowledge it is looked so often whether it is given up.
const HELD_LOOK: Duration = Duration::from_secs(1);

/// Those who came in, and what they are still to be told.
#[derive(Default)]
pub(crate) struct Desk {
    inside: Mutex<Inside>,
    /// A command has been decided.
    decided: Condvar,
}

#[derive(Default)]
struct Inside {
    visitors: HashMap<Party, Visitor>,
    entered: u64,
    /// Outcomes that wait for what they need, in the order they were decided, and since when.
    held: Vec<(Need, Told, Instant)>,
    /// Commands that are being decided.
    deciding: usize,
    /// No command is begun any more.
    closing: bool,
    /// Nobody is told anything any more.
    closed: bool,
}

impl Inside {
    /// A party's command is answered; the one it brought next.
    fn next_of(&mut self, party: Party) -> Option<(Caller, Command, OnOutcome)> {
        let visitor = self.visitors.get_mut(&party)?;
        let next = visitor.queue.pop_front();
        visitor.busy = next.is_some();
        next
    }
}

struct Visitor {
    arrive: Arc<Mutex<Arrive>>,
    /// Its command is being decided, or waits.
    busy: bool,
    /// Who is told what came of it, if it waits.
    waiting: Option<OnOutcome>,
    /// That is a take, which nothing has come of while it waits.
    takes: bool,
    /// Its next commands.
    queue: VecDeque<(Caller, Command, OnOutcome)>,
}

/// Something to say once it is true.
enum Told {
    Outcome(OnOutcome, Outcome, Name),
    Arrived(Arc<Mutex<Arrive>>, Handed, Name),
}

impl Told {
    fn say(self) {
        match self {
            Told::Outcome(reply, outcome, name) => reply(outcome, name),
            Told::Arrived(arrive, messages, name) => locked(&arrive)(messages, name),
        }
    }
}

/// The door to a running server.
pub(crate) struct ServerDoor(pub(crate) Arc<Server>);

impl Door for ServerDoor {
    fn now(&self) -> Ms {
        self.0.core.clock.now()
    }

    fn wall(&self) -> Ms {
        self.0.core.clock.wall()
    }

    fn epoch(&self) -> u64 {
        self.0.core.epoch
    }

    fn held_back(&self, most: usize) -> Vec<HeldBack> {
        self.0.quotas.held_back(Instant::now(), most)
    }

    fn unready(&self) -> Option<&'static str> {
        let server = &self.0;
        if server.draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        if !server.core.is_available() {
            return Some("no quorum");
        }
        server.core.is_full().then_some("the disk is full")
    }

    fn role(&self) -> Option<String> {
        Some(self.0.node.as_ref()?.role())
    }

    fn trace_url(&self) -> String {
        let url = locked(&self.0.config).trace_url.clone();
        let leads = ["http://", "https://"]
            .iter()
            .any(|way| url.starts_with(way));
        if leads { url } else { String::new() }
    }

    fn parts(&self) -> Parts {
        let config = locked(&self.0.config);
        let mut served = config.listen.iter().map(|listen| listen.served.name());
        Parts {
            hooks: !config.hooks.is_empty(),
            cluster: self.0.node.is_some(),
            cron: !config.crons.is_empty(),
            workers: served.any(|name| name == "faktory"),
        }
    }

    fn cluster(&self) -> Option<ClusterSeen> {
        self.0.node.as_ref()?.seen()
    }

    fn order_node(&self, order: NodeOrder, node: &str) -> Result<String, String> {
        match &self.0.node {
            Some(ours) => ours.order(order, node),
            None => Err("this server is no node of a cluster".to_owned()),
        }
    }

    fn metrics(&self, exposition: Exposition, names: &[String], queues: bool) -> Option<String> {
        if !queues {
            return Some(self.0.metrics(None, exposition, names));
        }
        let most = locked(&self.0.config).metrics_queues;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let queues = metrics::look(self, most);
        Some(self.0.metrics(Some(&queues), exposition, names))
    }

    fn history(&self, queue: &Name) -> Option<History> {
        self.0.looks.of(queue)
    }

    fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {
        self.0.looks.add_hour(queue, sum);
    }

    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        self.0.looks.recent(queue, self.now())
    }

    fn follow(&self, queue: &Name, after: u64, contains: &[u8]) -> Option<Followed> {
        self.0.tails.follow(&self.0.core, queue, after, contains)
    }

    fn thresholds(&self) -> Thresholds {
        locked(&self.0.config).attention.clone()
    }

    fn rates(&self, queue: &Name) -> Option<Rates> {
        self.0.looks.rates(queue)
    }

    fn numbers(&self) -> String {
        self.0.told().to_string()
    }

    fn config(&self) -> String {
        print(&locked(&self.0.config), Secrets::Hidden)
    }

    fn settings(&self) -> Vec<Setting> {
        locked(&self.0.config).told(&self.0.given)
    }

    fn queue_settings(&self, setup: &QueueSetup) -> Vec<Setting> {
        told_of_queue(setup)
    }

    fn change(
        &self,
        setup: &QueueSetup,
        changes: &[Change],
        name: &str,
    ) -> Result<Overrides, NoChange> {
        let name = name.to_owned();
        let at_ms = self.wall().0;
        changed(setup, changes, &SetBy { name, at_ms })
    }

    fn end_of(&self, id: MessageId) -> Option<Ending> {
        self.0.core.end_of(id)
    }

    fn hook_events(&self) -> Vec<HookEvent> {
        let events = self.0.hooks.shared().stats().into_iter();
        let events = events.map(|stats| HookEvent {
            name: stats.event.name().to_owned(),
            calls: stats.calls,
            errors: stats.errors,
            ns: stats.ns,
            last_error: stats.last.map(|error| error.to_string()),
        });
        events.collect()
    }

    fn audit(&self, most: usize) -> io::Result<Vec<AuditLine>> {
        let data = locked(&self.0.config).data.clone();
        audit::newest(&data, most)
    }

    fn clients(&self, tell: Box<dyn FnOnce(String) + Send>) {
        self.0.list_clients(Box::new(move |clients| {
            // Nothing in it is no JSON.
            tell(serde_json::to_string(&clients).unwrap_or_default());
        }));
    }

    fn close_client(&self, id: u64, tell: Box<dyn FnOnce(bool) + Send>) {
        self.0.close_client(id, tell);
    }

    fn workers(&self, after: Option<String>, tell: TellWorkers) {
        self.0.list_workers(after, tell);
    }

    fn steer_worker(&self, act: WorkerAct, wid: &str) -> bool {
        let state = match act {
            WorkerAct::Quiet => WorkerState::Quiet,
            WorkerAct::Terminate => WorkerState::Terminate,
        };
        self.0.steer_worker(state, wid)
    }

    fn crons(&self, tell: TellCrons) {
        self.0.crons.list(tell, self.wall());
    }

    fn steer_cron(&self, act: CronAct, name: &str, tell: TellCron) {
        self.0.crons.steer(act, name, tell);
    }

    fn drain(&self, on: bool) -> bool {
        self.0.orders.send(Order::Drain(on)).is_ok()
    }

    fn reload(&self, principal: Option<Principal>, tell: TellReload) {
        self.0
            .reload_for(principal.unwrap_or(Principal::SERVER), tell);
    }

    fn enter(&self, arrive: Arrive) -> Party {
        let mut inside = locked(&self.0.desk.inside);
        inside.entered += 1;
        let key = PartyKey {
            thread: self.0.threads.len(),
            slot: u32::try_from(inside.entered % u64::from(SLOTS_MAX)).unwrap_or(0),
            generation: u32::try_from(1 + inside.entered / u64::from(SLOTS_MAX)).unwrap_or(1),
        };
        let visitor = Visitor {
            arrive: Arc::new(Mutex::new(arrive)),
            busy: false,
            waiting: None,
            takes: false,
            queue: VecDeque::new(),
        };
        inside.visitors.insert(key.party(), visitor);
        key.party()
    }

    fn leave(&self, party: Party) {
        let gone = locked(&self.0.desk.inside).visitors.remove(&party);
        let server = Arc::downgrade(&self.0);
        self.0
            .hooks
            .at_desk(&server, |runner| runner.state.forget(party));
        self.0.core.visit(|access| access.disconnect(party));
        drop(gone);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        self.0.decide_at_desk(caller, command, reply, false);
    }

    fn restore(&self, party: Party, messages: Vec<Message>) {
        let caller = Caller::server(party);
        self.0.core.visit(|access| access.restore(caller, messages));
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        match body {
            Body::Small(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let count = into.len().min(bytes.len() - from);
                into[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(count)
            }
            Body::Large(large) => self.0.read_large(large, from, into),
        }
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        if len <= STREAM_OVER {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            source.read_exact(&mut bytes).map_err(StoreError::Source)?;
            return Ok(Body::new(&bytes));
        }
        if let Some(refusal) = self.0.refuses_body(Principal::SERVER, queue, len) {
            return Err(StoreError::Refused(refusal));
        }
        let (core, chunk) = (&self.0.core, self.0.limits.chunk_bytes);
        let mut upload = Upload::new(core, &self.0.uploads, len, None);
        let mut buffer = vec![0; 64 << 10];
        let mut left = len;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = match source.read(&mut buffer[..most]) {
                Ok(0) => return Err(StoreError::Source(ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreError::Source(error)),
            };
            left -= read as u64;
            let mut fed = 0;
            while fed < read {
                fed += upload.feed(core, chunk, &buffer[fed..read]).0;
            }
        }
        upload
            .finish()
            .map(Body::Large)
            .map_err(StoreError::Refused)
    }
}

impl Server {
    /// Decides a party's command, and those it brought meanwhile. `is_next`: the command has been
    /// in the party's line.
    fn decide_at_desk(
        self: &Arc<Self>,
        caller: Caller,
        command: Command,
        reply: OnOutcome,
        is_next: bool,
    ) {
        let mut next = Some((caller, command, reply));
        let mut is_next = is_next;
        while let Some((caller, command, reply)) = next.take() {
            // Before it is decided: what it waits for may come at once.
            let stops = matches!(command, Command::StopWaiting);
            let takes = matches!(command, Command::Take(_));
            let mut inside = locked(&self.desk.inside);
            let inside_now = &mut *inside;
            let visitor = inside_now.visitors.get_mut(&caller.party);
            let mut visitor = visitor.filter(|_| !stops);
            if let Some(visitor) = &mut visitor
                && !is_next
            {
                if visitor.busy {
                    visitor.queue.push_back((caller, command, reply));
                    return;
                }
                visitor.busy = true;
            }
            if inside_now.closing {
                if !stops {
                    next = inside_now.next_of(caller.party);
                }
                drop(inside);
                reply(Outcome::Refused(Refusal::Draining), Name::default());
                is_next = true;
                continue;
            }
            let kept = match visitor {
                Some(visitor) => {
                    visitor.waiting = Some(reply);
                    visitor.takes = takes;
                    None
                }
                None => Some(reply),
            };
            inside_now.deciding += 1;
            drop(inside);
            let decided = self.submit_at_desk(caller, command);
            let mut inside = locked(&self.desk.inside);
            inside.deciding -= 1;
            if inside.closing {
                self.desk.decided.notify_all();
            }
            let Some((outcome, name, need)) = decided else {
                // A party that has left gets no answer. Without the lock.
                drop(inside);
                return;
            };
            let reply = kept.or_else(|| inside.visitors.get_mut(&caller.party)?.waiting.take());
            if !stops {
                next = inside.next_of(caller.party);
                is_next = true;
            }
            match reply {
                Some(reply) => self.tell(inside, need, Told::Outcome(reply, outcome, name)),
                // What is left is dropped without the lock.
                None => drop(inside),
            }
        }
    }

    /// Decides a command, with the events around it; `None`: it waits.
    fn submit_at_desk(
        self: &Arc<Self>,
        caller: Caller,
        command: Command,
    ) -> Option<(Outcome, Name, Need)> {
        let mut command = Some(command);
        let hooked = self.hooks.at_desk(&Arc::downgrade(self), |runner| {
            let command = command.take_if(|command| !runner.state.ignores(command))?;
            let decided = runner.state.submit(&who(caller), command);
            Some((decided, runner.take_did()))
        });
        if let Some((decided, did)) = hooked.flatten() {
            let need = did.see_to(&self.core);
            return plain(decided).map(|(outcome, name)| (outcome, name, need));
        }
        match self.core.visit(|access| {
            let command = command?;
            access.is_for(command.about().verb);
            Some(access.submit(caller, command))
        }) {
            Some(Decided::Now(outcome, name, need)) => Some((outcome, name, need)),
            Some(Decided::Later) | None => None,
        }
    }

    /// `auth`: whether somebody who comes in by HTTP may; `None`: no hook says.
    pub(crate) fn may_log_in(self: &Arc<Self>, user: &str, secret: &[u8]) -> Option<bool> {
        let asked = self.hooks.at_desk(&Arc::downgrade(self), |runner| {
            let may = runner
                .state
                .auth(&who(Caller::server(Party::default())), user, secret);
            (may, runner.take_did())
        });
        let (may, did) = asked?;
        did.see_to(&self.core);
        may
    }

    /// What a party waited for, after the hooks have seen it; `None`: it waits
    /// again.
    fn arrived_at_desk(
        self: &Arc<Self>,
        delivery: &mut Delivery,
        need: Need,
    ) -> Option<(Outcome, Need)> {
        let outcome = std::mem::replace(&mut delivery.outcome, Outcome::Done).of_command();
        let (party, standing) = (delivery.to, delivery.standing);
        let mut outcome = Some(outcome);
        let hooked = self.hooks.at_desk(&Arc::downgrade(self), |runner| {
            if !runner.state.awaits(party, standing) {
                return None;
            }
            let caller = Caller::server(party);
            let (who, queue) = (who(caller), delivery.queue.clone());
            let decided = runner.state.arrived(&who, standing, outcome.take()?, queue);
            Some((decided, runner.take_did()))
        });
        match hooked.flatten() {
            Some((decided, did)) => {
                let need = need.and(did.see_to(&self.core));
                let (outcome, queue) = plain(decided)?;
                delivery.queue = queue;
                Some((outcome, need))
            }
            None => outcome.map(|outcome| (outcome, need)),
        }
    }

    /// Says something, now or when what it needs has been reached.
    fn tell(&self, mut inside: MutexGuard<'_, Inside>, need: Need, told: Told) {
        if self.core.reached().satisfies(need) {
            drop(inside);
            told.say();
            return;
        }
        if inside.closed {
            // Without the lock.
            drop(inside);
            return;
        }
        // The first reply that is held wakes the desk, which looks again until none is held.
        let is_first = inside.held.is_empty();
        inside.held.push((need, told, Instant::now()));
        drop(inside);
        self.core.write(need.written);
        if is_first {
            self.mail[self.threads.len()].wake();
        }
    }

    /// The desk's own thread: runs until it is told to stop, when nobody comes
    /// in any more.
    pub(crate) fn run_desk(self: &Arc<Self>, mut poll: Poll) {
        let mut events = Events::with_capacity(4);
        let mut mail = Vec::new();
        let mut stops = None;
        while stops.is_none_or(|since: Instant| self.takes_wait(since)) {
            let timeout = stops.map_or_else(|| self.desk_timeout(), |_| Some(HELD_LOOK));
            if let Err(error) = poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!("cannot wait for deliveries: {error}");
                std::process::exit(1);
            }
            self.mail[self.threads.len()].collect(&mut mail);
            for item in mail.drain(..) {
                match item {
                    Mail::Delivery(delivery, need) => self.deliver_at_desk(delivery, need),
                    Mail::Stop => {
                        self.end_takes();
                        stops = Some(Instant::now());
                    }
                    // Connections are never placed here.
                    Mail::Socket(..)
                    | Mail::Login(..)
                    | Mail::Logins
                    | Mail::Census(..)
                    | Mail::Close(..)
                    | Mail::Refuse
                    | Mail::Told(..) => {}
                }
            }
            self.say_reached();
            self.give_up_at_desk();
        }
        let (visitors, held) = {
            let mut inside = locked(&self.desk.inside);
            inside.closed = true;
            (
                std::mem::take(&mut inside.visitors),
                std::mem::take(&mut inside.held),
            )
        };
        // Without the lock. A reply that is dropped says that nobody knows what came of it.
        drop(held);
        for visitor in visitors.into_values() {
            for (_, _, reply) in visitor.queue {
                reply(Outcome::Refused(Refusal::Draining), Name::default());
            }
        }
    }

    /// Begins no command any more, and takes those that wait out of their lines. The engine
    /// delivers to each either nothing or the messages that were on their way.
    fn end_takes(self: &Arc<Self>) {
        let mut inside = locked(&self.desk.inside);
        inside.closing = true;
        while inside.deciding > 0 {
            let decided = self.desk.decided.wait(inside);
            inside = decided.unwrap_or_else(PoisonError::into_inner);
        }
        let takes = inside.visitors.iter().filter(|(_, visitor)| visitor.takes);
        let waiting: Vec<Party> = takes.map(|(party, _)| *party).collect();
        drop(inside);
        for party in waiting {
            self.submit_at_desk(Caller::server(party), Command::StopWaiting);
        }
    }

    /// True while a take waits for its delivery after [`Server::end_takes`].
    fn takes_wait(&self, since: Instant) -> bool {
        let inside = locked(&self.desk.inside);
        let mut visitors = inside.visitors.values();
        visitors.any(|visitor| visitor.takes && visitor.waiting.is_some())
            && since.elapsed() < HELD_LOOK
    }

    /// What a party waited for has come.
    fn deliver_at_desk(self: &Arc<Self>, mut delivery: Delivery, need: Need) {
        let party = delivery.to;
        if delivery.claimed {
            self.core.visit(|access| access.leave_lines(party));
        }
        let Some((outcome, need)) = self.arrived_at_desk(&mut delivery, need) else {
            return;
        };
        let mut inside = locked(&self.desk.inside);
        let closing = inside.closing;
        let told =
            match (inside.visitors.get_mut(&party), outcome) {
                (Some(visitor), Outcome::Messages(messages)) if delivery.standing => Ok(
                    Told::Arrived(Arc::clone(&visitor.arrive), messages, delivery.queue),
                ),
                (Some(visitor), outcome) => match visitor.waiting.take() {
                    Some(reply) if closing && outcome == Outcome::Empty => Ok(Told::Outcome(
                        reply,
                        Outcome::Refused(Refusal::Draining),
                        Name::default(),
                    )),
                    Some(reply) => Ok(Told::Outcome(reply, outcome, delivery.queue)),
                    None => Err(outcome),
                },
                (None, outcome) => Err(outcome),
            };
        let next = match delivery.standing {
            true => None,
            false => inside.next_of(party),
        };
        match told {
            Ok(told) => self.tell(inside, need, told),
            // Too late: leases of the party end with it, the rest is undone.
            Err(Outcome::Messages(messages)) if !delivery.looked => {
                drop(inside);
                let caller = Caller::server(party);
                self.core
                    .visit(|access| access.restore(caller, messages.into_vec()));
            }
            Err(_) => drop(inside),
        }
        if let Some((caller, command, reply)) = next {
            self.decide_at_desk(caller, command, reply, true);
        }
    }

    /// Says what waited for something that has been reached.
    fn say_reached(&self) {
        let mailbox = &self.mail[self.threads.len()];
        loop {
            let reached = self.core.reached();
            for told in self.take_reached(reached) {
                told.say();
            }
            if locked(&self.desk.inside).held.is_empty() {
                return;
            }
            mailbox.wants_durable.store(true, Ordering::SeqCst);
            mailbox.wants_written.store(true, Ordering::SeqCst);
            // What was reached before the flags were up rang no bell.
            if self.core.reached() == reached {
                return;
            }
        }
    }

    fn take_reached(&self, reached: Reached) -> Vec<Told> {
        let mut inside = locked(&self.desk.inside);
        let (free, held) = std::mem::take(&mut inside.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(need, ..)| reached.satisfies(*need));
        inside.held = held;
        free.into_iter().map(|(_, told, _)| told).collect()
    }

    /// How long nothing has to be looked at without a bell.
    fn desk_timeout(&self) -> Option<Duration> {
        let held = self.core.is_shared() && !locked(&self.desk.inside).held.is_empty();
        held.then_some(HELD_LOOK)
    }

    /// Gives up replies that nobody acknowledges: who waits for one is told by its being dropped.
    fn give_up_at_desk(&self) {
        let mut inside = locked(&self.desk.inside);
        let (late, held) = std::mem::take(&mut inside.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, _, since)| self.core.gives_up(since.elapsed()));
        inside.held = held;
        // Without the lock.
        drop(inside);
        drop(late);
    }

    fn read_large(&self, body: &LargeBody, from: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut begin = 0;
        let mut filled = 0;
        for place in body.places() {
            let end = begin + u64::from(place.len);
            let at = from + filled as u64;
            if at < end && filled < into.len() {
                let bytes = self.core.body_source().read(&place);
                let bytes = bytes.map_err(io::Error::other)?;
                // The body's bytes are the last ones.
                let bytes = bytes
                    .len()
                    .checked_sub(place.len as usize)
                    .map(|skip| &bytes[skip..])
                    .ok_or_else(|| io::Error::other("a chunk of the body is cut short"))?;
                let skip = usize::try_from(at - begin).unwrap_or(usize::MAX);
                let count = (bytes.len() - skip).min(into.len() - filled);
                into[filled..filled + count].copy_from_slice(&bytes[skip..skip + count]);
                filled += count;
            }
            begin = end;
        }
        Ok(filled)
    }
}

/// Who comes in through the door, as hooks are shown it.
fn who(caller: Caller) -> Who {
    Who {
        caller,
        connection: caller.party.0,
        voice: "door",
        ..Who::default()
    }
}

/// What hooks decided; `None`: it waits.
fn plain(decided: Hooked) -> Option<(Outcome, Name)> {
    match decided {
        Hooked::Now(outcome, name) => Some((outcome, name)),
        Hooked::Denied(text) => Some((Outcome::Denied(text.into()), Name::default())),
        // Nobody reads a text here: the hook has done what there was to do.
        Hooked::Answer(_) => Some((Outcome::Done, Name::default())),
        Hooked::Later => None,
    }
}
