//! A naive model of the engine: a list of messages, a list of queues, a list
//! of waiting takes, and scans. No index, no fact, no log.
//!
//! Written from the words of the design and of the protocol sheets, so that
//! it can be wrong only where they are unclear. It borrows the engine's
//! vocabulary ([`Command`], [`Outcome`], [`Message`] as a plain record) and
//! none of its code. A message's `queue` is the model's own number for it.
//!
//! It knows order, leases, limits and waits. Batches, tracked and held messages
//! and the meaning of keys are not here: the tests check rules for them.

mod admin;
mod aging;
mod cancel;
mod hold;
mod put;
mod settle;
mod show;
mod take;
mod time;

use std::collections::BTreeSet;

use quintet_types::{
    BackTo, Bound, ClientId, Command, CommandError, Message, MessageId, Ms, Name, Outcome,
    Overrides, QueueId, QueueSettings, QueueTotals, Scope, Settings, State, Take, WallAhead,
};

/// A queue; a dropped one stays while messages of it are reserved.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The model's number for it.
    pub number: QueueId,
    pub name: Name,
    /// False while it exists only because somebody waits on it.
    pub made: bool,
    /// True once it was dropped.
    pub dropped: bool,
    /// Counters since it was made.
    pub totals: QueueTotals,
    parent: Option<QueueId>,
    children: Vec<QueueId>,
    overrides: Overrides,
    /// `Some(None)`: until resumed.
    pause: Option<Option<Ms>>,
    aging: aging::Clock,
    head: i64,
    used: Ms,
    /// Nanoseconds at which the last one handed out would have gone, had each waited for its turn.
    paced_ns: u64,
}

/// A lease as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelLease {
    /// Its holder; 0 after a restart.
    pub client_id: ClientId,
    /// Its condition.
    pub bound: Bound,
    /// When it ends.
    pub until: Option<Ms>,
    span_ms: u64,
    back_to: BackTo,
    /// Its turn among all leases.
    turn: u64,
    /// The process that gave it, and when; 0: it had no deadline.
    epoch: u64,
    since: Ms,
}

impl Item {
    /// Its lease is over, and a client knows it.
    fn end_lease(&mut self) {
        let since = self.lease.take().map_or(Ms(0), |lease| lease.since);
        let extra = self.message.extra_mut();
        if extra.first_leased == Ms(0) {
            extra.first_leased = since;
        }
    }
}

/// A stored message.
#[derive(Clone, Debug)]
pub struct Item {
    pub message: Message,
    /// Its lease, if it is reserved.
    pub lease: Option<ModelLease>,
    /// Its turn among the buried.
    turn: u64,
}

#[derive(Clone, Debug)]
struct Waiter {
    client_id: ClientId,
    standing: bool,
    take: Take,
    until: Option<Ms>,
    warn: Option<Ms>,
}

impl Waiter {
    fn only_peeks(&self) -> bool {
        self.standing && self.take.peek
    }
}

/// A take that may be sent again.
#[derive(Clone, Debug)]
struct TakeRecord {
    queue: QueueId,
    token: Box<[u8]>,
    /// Of the request; 0: any.
    sum: u64,
    /// Each message, the number of its lease, and when that ends.
    granted: Vec<(MessageId, u32, Option<Ms>)>,
    ends: Ms,
}

#[derive(Clone, Debug)]
struct Reference {
    client_id: ClientId,
    name: Name,
    uses: bool,
    watches: bool,
}

#[derive(Clone, Debug)]
struct DedupeKind {
    queue: QueueId,
    kind: quintet_engine::DedupeKind,
    dedupe_record: Box<[u8]>,
    id: MessageId,
    until: Ms,
    scope: Scope,
    sum: u64,
    /// How often its message was leased when it was put.
    reserves: u32,
}

/// A slow and simple engine that the real one is compared with.
#[derive(Clone, Debug)]
pub struct Model {
    settings: Settings,
    /// Engine time.
    pub now: Ms,
    /// How far the wall clock is ahead of it.
    pub wall_ahead: WallAhead,
    /// Every message.
    pub items: Vec<Item>,
    /// Every queue, in the order they were made.
    pub queues: Vec<Queue>,
    /// Outcomes for those who waited: to whom, whether by a subscription.
    pub deliveries: Vec<(ClientId, bool, Outcome)>,
    next_id: u64,
    /// Ids below this one are known to the log as used.
    known: u64,
    waiters: Vec<Waiter>,
    tokens: Vec<TakeRecord>,
    references: Vec<Reference>,
    dedupe_records: Vec<DedupeKind>,
    turns: u64,
    /// The place of what has come back to a tail in this step.
    tail: Option<u64>,
    idle_scan: Ms,
    /// Of this process.
    epoch: u64,
}

/// How often idle queues are looked for, ms.
const IDLE_SCAN_MS: u64 = 1000;

impl Model {
    /// An empty model.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Ms(0),
            wall_ahead: WallAhead::default(),
            items: Vec::new(),
            queues: Vec::new(),
            deliveries: Vec::new(),
            next_id: 1,
            known: 1,
            waiters: Vec::new(),
            tokens: Vec::new(),
            references: Vec::new(),
            dedupe_records: Vec::new(),
            turns: 0,
            tail: None,
            idle_scan: Ms(0),
            epoch: 0,
        }
    }

    /// Does one command; `None`: the take waits.
    pub fn submit(&mut self, now: Ms, client_id: ClientId, command: Command) -> Option<Outcome> {
        self.now = now;
        self.tail = None;
        self.expire_all();
        let outcome = match self.run(client_id, command) {
            Ok(outcome) => outcome,
            Err(command_error) => Some(Outcome::Refused(command_error)),
        };
        self.expire_all();
        self.serve();
        self.tidy();
        outcome
    }

    fn run(
        &mut self,
        client_id: ClientId,
        command: Command,
    ) -> Result<Option<Outcome>, CommandError> {
        Ok(Some(match command {
            Command::Put(put) => self.put(put)?,
            Command::PutMany(puts) => self.put_many(puts)?,
            Command::Take(take) => return self.take(client_id, take),
            Command::Watch(take) => self.watch(client_id, take)?,
            Command::Rewatch(take) => self.rewatch(client_id, take)?,
            Command::WatchQueue { queue, on } => self.watch_queue(client_id, queue, on)?,
            Command::StopWaiting => self.stop_waiting(client_id),
            Command::Refer {
                queue,
                uses,
                watches,
            } => self.refer(client_id, queue, uses, watches)?,
            Command::Settle { id, by, how } => self.settle(client_id, id, by, how)?,
            Command::SettleHeld { queue, how, max } => self.settle_held(client_id, queue, how, max),
            Command::Touch(id) => self.touch(client_id, id)?,
            Command::Extend { id, by, ms } => self.extend((client_id, by), id, ms)?,
            Command::Progress {
                id,
                by,
                percent,
                text,
            } => self.progress((client_id, by), id, percent, text)?,
            Command::ByName(by_name) => self.by_name(client_id, *by_name)?,
            Command::ReserveId { id, lease } => self.reserve_id(client_id, id, lease)?,
            Command::Peek(peek) => self.peek(peek)?,
            Command::AwaitResult { id, .. } => self.result(id)?,
            // Waits for news of leases have tests of their own.
            Command::AwaitLease(_) => Outcome::Empty,
            Command::Delete { id, by } => self.delete(client_id, id, by)?,
            Command::Cancel(id, cancel) => self.cancel(id, &cancel)?,
            Command::Kick { queue, state, max } => self.kick(&queue, state, max),
            Command::KickId(id) => self.kick_id(id)?,
            Command::Redrive(id) => self.redrive_one(id)?,
            Command::Move { id, to } => self.move_one(id, &to)?,
            Command::BulkOp(bulk_op) => self.bulk_op(*bulk_op)?,
            Command::Commit(id) => self.commit(id)?,
            Command::Edit(id, edit) => self.edit(id, *edit)?,
            Command::Pause { queue, for_ms } => self.pause(&queue, for_ms)?,
            // Of a queue; holds of keys have rules of their own.
            Command::Hold { queue, for_ms, .. } => self.hold_for(&queue, for_ms)?,
            Command::SettleHolding { id, by, how, hold } => {
                self.settle_holding((client_id, by), id, how, hold)?
            }
            Command::Create { queue, overrides } => self.create(&queue, overrides)?,
            Command::Configure {
                queue,
                overrides,
                must_exist,
            } => {
                if must_exist {
                    self.find(&queue).ok_or(CommandError::QueueNotFound)?;
                }
                self.configure(&queue, overrides)?
            }
            Command::Reconfigure { queue, from, to } => {
                let number = self.find(&queue).ok_or(CommandError::QueueNotFound)?;
                if self.queue(number).overrides != *from {
                    return Err(CommandError::Conflict);
                }
                let mut all = Overrides::default();
                all.merge(&to);
                self.settle_own(number, all)?
            }
            Command::Join { parent, child } => self.join(&parent, &child)?,
            Command::Flush { queue, reserved } => self.flush(&queue, reserved),
            Command::FlushAll => self.flush_all(),
            Command::Drop(queue) => self.drop_queue(&queue),
            Command::DropQueues {
                pattern,
                messages,
                dry_run,
                ..
            } => self.drop_queues(&pattern, messages, dry_run),
            // What has expired went before the command began; the count is
            // the engine's to know.
            Command::FlushExpired(_) => Outcome::Count(0),
            Command::Remembered { queue, id } => self.remembered(&queue, &id)?,
            Command::BurnId => Outcome::Put {
                id: self.new_id(true),
                fresh: false,
            },
            Command::Restore(messages) => self.restore(messages),
            Command::Stats(_) => Outcome::Done,
            // Batches, and what hooks decide, have tests of their own.
            Command::Batch(_) | Command::Transaction(_) | Command::Table(_) => Outcome::Done,
        }))
    }

    /// Does what is due. What is `late` expires when all else is done: those
    /// who wait may be served before. Inside a tick nothing else is said of the
    /// order in which messages expire that are in runs and others.
    pub fn tick(&mut self, now: Ms, late: &BTreeSet<MessageId>) {
        self.now = now;
        self.tail = None;
        self.end_leases();
        self.end_retention();
        self.expire_all_but(late);
        self.serve();
        if !late.is_empty() {
            self.expire_all();
            self.serve();
        }
        self.end_waits();
        self.tidy();
        self.drop_idle();
    }

    /// The client is gone.
    pub fn disconnect(&mut self, now: Ms, client_id: ClientId) {
        self.now = now;
        self.tail = None;
        self.expire_all();
        self.waiters.retain(|waiter| waiter.client_id != client_id);
        self.references.retain(|other| other.client_id != client_id);
        self.tidy();
        let mut held = self.held(client_id);
        held.reverse();
        for id in held {
            let lease = self.item(id).and_then(|item| item.lease.clone());
            if lease.is_some_and(|lease| lease.bound != Bound::Time) {
                self.give_back(id, quintet_types::Return::Lost);
            }
        }
        self.expire_all();
        self.serve();
        self.tidy();
    }

    /// The process died and another begins. `forgets_doomed`: what was left of
    /// dropped queues was not copied when their segment of the log went.
    pub fn restart(&mut self, now: Ms, forgets_doomed: bool) {
        self.now = now;
        self.waiters.clear();
        self.references.clear();
        self.deliveries.clear();
        let memory: Vec<QueueId> = self
            .queues
            .iter()
            .filter(|queue| self.settings_of(queue.number).memory)
            .map(|queue| queue.number)
            .collect();
        self.queues
            .retain(|queue| queue.made && !memory.contains(&queue.number));
        for queue in &mut self.queues {
            queue.parent = queue.parent.filter(|parent| !memory.contains(parent));
            queue.children.retain(|child| !memory.contains(child));
            queue.used = now;
            queue.paced_ns = 0;
        }
        self.items
            .retain(|item| !memory.contains(&item.message.queue));
        self.dedupe_records
            .retain(|dedupe_record| !memory.contains(&dedupe_record.queue));
        self.items
            .retain(|item| !(item.message.doomed && forgets_doomed));
        self.next_id = self.known;
        self.idle_scan = Ms(0);
        self.epoch += 1;
        self.tokens.clear();

        let bound = |item: &&Item| item.lease.as_ref().is_some_and(|l| l.bound != Bound::Time);
        let mut lost: Vec<MessageId> = self
            .items
            .iter()
            .filter(bound)
            .map(|item| item.message.id)
            .collect();
        lost.sort();
        let to_tail = |item: &Item| {
            let lost = item.lease.as_ref().filter(|l| l.bound != Bound::Time);
            let comes_back = !item.message.doomed;
            comes_back && lost.is_some_and(|lease| lease.back_to == BackTo::Tail)
        };
        let tails = self.items.iter().any(to_tail);
        // They share a place, which is that of no message.
        self.tail = Some(self.next_id);
        for &id in lost.iter().rev() {
            self.end_lost(id);
        }
        self.next_id += u64::from(tails);
        self.known = self.next_id;
        for item in &mut self.items {
            if let Some(lease) = &mut item.lease {
                lease.client_id = ClientId(0);
            }
        }
        for id in lost {
            let message = self.item(id).map(|item| &item.message);
            if message.is_some_and(|message| message.cancelled().is_some()) {
                self.end_cancelled(id);
            } else if self.is_spent(id) {
                self.dead_letter(id);
            }
        }
        self.tidy();
    }

    /// Gauges and totals are compared by the tests; so is who waits.
    pub fn waiting_on(&self, name: &Name) -> u64 {
        let on = |waiter: &&Waiter| waiter.take.queues.contains(name) && !waiter.only_peeks();
        self.waiters.iter().filter(on).count() as u64
    }

    /// So are the peeking subscriptions.
    pub fn looking_at(&self, name: &Name) -> u64 {
        let on = |waiter: &&Waiter| waiter.take.queues.contains(name) && waiter.only_peeks();
        self.waiters.iter().filter(on).count() as u64
    }

    /// True if the model has no waiting consumer.
    pub fn nobody_waits(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The resolved settings of a queue.
    pub fn settings_of(&self, number: QueueId) -> QueueSettings {
        let queue = self.queue(number);
        let mut settings = self.settings.resolve(queue.name.as_bytes());
        queue.overrides.lay_own_over(&mut settings);
        settings
    }

    /// A queue by its number, dropped ones with messages included. Panics if there is none.
    pub fn queue(&self, number: QueueId) -> &Queue {
        let found = self.queues.iter().find(|queue| queue.number == number);
        found.expect("the model keeps a queue while it has messages")
    }

    fn queue_mut(&mut self, number: QueueId) -> &mut Queue {
        let found = self.queues.iter_mut().find(|queue| queue.number == number);
        found.expect("the model keeps a queue while it has messages")
    }

    fn totals(&mut self, number: QueueId) -> &mut QueueTotals {
        &mut self.queue_mut(number).totals
    }

    /// The queue of this name that exists.
    pub fn find(&self, name: &Name) -> Option<QueueId> {
        let found = self
            .queues
            .iter()
            .find(|queue| !queue.dropped && queue.name == *name);
        found.map(|queue| queue.number)
    }

    fn find_or_make(&mut self, name: &Name) -> Result<QueueId, CommandError> {
        if let Some(number) = self.find(name) {
            return Ok(number);
        }
        if name.is_empty() {
            return Err(CommandError::BadName);
        }
        let there = self.queues.iter().filter(|queue| !queue.dropped).count();
        if there >= self.settings.queues_max as usize {
            return Err(CommandError::TooManyQueues);
        }
        Ok(self.make(name))
    }

    fn make(&mut self, name: &Name) -> QueueId {
        let number = QueueId(self.turn() as u32);
        self.queues.push(Queue {
            number,
            name: name.clone(),
            made: false,
            dropped: false,
            totals: QueueTotals::default(),
            parent: None,
            children: Vec::new(),
            overrides: Overrides::default(),
            pause: None,
            aging: aging::Clock::default(),
            head: 0,
            used: self.now,
            paced_ns: 0,
        });
        number
    }

    /// Names of queues that somebody waits on or refers to.
    fn named(&self) -> Vec<Name> {
        let waited = self.waiters.iter().flat_map(|w| w.take.queues.iter());
        let referred = self.references.iter().map(|reference| &reference.name);
        waited.chain(referred).cloned().collect()
    }

    /// Queues that exist only because of waiting takes and references come and
    /// go with them; dropped ones go with their last message.
    fn tidy(&mut self) {
        self.forget_dedupe();
        let named = self.named();
        for name in &named {
            if self.find(name).is_none() {
                self.make(name);
            }
        }
        let items = &self.items;
        self.queues.retain(|queue| {
            let waited = || named.contains(&queue.name);
            let used = || items.iter().any(|item| item.message.queue == queue.number);
            if queue.dropped {
                used()
            } else {
                queue.made || waited()
            }
        });
    }

    fn refer(
        &mut self,
        client_id: ClientId,
        name: Name,
        uses: Option<bool>,
        watches: Option<bool>,
    ) -> Result<Outcome, CommandError> {
        let same = |other: &Reference| other.client_id == client_id && other.name == name;
        let before = self.references.iter().find(|other| same(other)).cloned();
        let (used, watched) = before.map_or((false, false), |was| (was.uses, was.watches));
        let (uses, watches) = (uses.unwrap_or(used), watches.unwrap_or(watched));
        if uses || watches {
            self.find_or_make(&name)?;
        }
        self.references.retain(|other| !same(other));
        if uses || watches {
            self.references.push(Reference {
                client_id,
                name,
                uses,
                watches,
            });
        }
        Ok(Outcome::Done)
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A fresh id. One that is not logged is covered by a block of 1024.
    fn new_id(&mut self, logged: bool) -> MessageId {
        let id = self.next_id;
        self.next_id += 1;
        if logged {
            self.known = self.known.max(self.next_id);
        } else if id >= self.known {
            self.known = id + 1024;
        }
        MessageId(id)
    }

    fn item(&self, id: MessageId) -> Option<&Item> {
        self.items.iter().find(|item| item.message.id == id)
    }

    fn item_mut(&mut self, id: MessageId) -> &mut Item {
        let found = self.items.iter_mut().find(|item| item.message.id == id);
        found.expect("looked up before")
    }

    fn message(&self, id: MessageId) -> Result<&Message, CommandError> {
        self.item(id)
            .map(|item| &item.message)
            .ok_or(CommandError::NotFound)
    }

    fn remove(&mut self, id: MessageId) -> Message {
        let at = self.items.iter().position(|item| item.message.id == id);
        self.items.remove(at.expect("looked up before")).message
    }

    /// Ids of the messages of one queue that `which` selects.
    fn ids(&self, queue: QueueId, which: impl Fn(&Message) -> bool) -> Vec<MessageId> {
        let here = self.items.iter().filter(|item| item.message.queue == queue);
        here.filter(|item| which(&item.message))
            .map(|item| item.message.id)
            .collect()
    }

    /// The client's leases, oldest first.
    fn held(&self, client_id: ClientId) -> Vec<MessageId> {
        let by = |item: &&Item| {
            item.lease
                .as_ref()
                .is_some_and(|l| l.client_id == client_id)
        };
        let mut held: Vec<&Item> = self.items.iter().filter(by).collect();
        held.sort_by_key(|item| item.lease.as_ref().map(|lease| lease.turn));
        held.iter().map(|item| item.message.id).collect()
    }

    fn is_ready(&self, message: &Message) -> bool {
        message.state == State::Ready && message.due().is_none_or(|due| due <= self.now)
    }
}
