//! The shard's engine: decides, applies, and knows who waits.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use quintet_types::{
    Answer, BackTo, Bound, Caller, ClientId, Command, CommandError, Delivery, Ending, Hold,
    MessageId, Ms, Name, Outcome, ParentState, PendingDecisionKind, PendingDecisions, Permits,
    QueueId, Return, SegmentRef, Settings, WallAhead,
};

use crate::awaits::Awaits;
use crate::cold::BlockAt;
use crate::decide::{Cold, Reading, TOLD_PER_COMMAND, TOLD_PER_TICK, durable};
use crate::fact::{DedupeId, Fact, Journal};
use crate::lease_waits::LeaseWaits;
use crate::pace::Speed;
use crate::referrers::Referrers;
use crate::step::{Call, Step};
use crate::store::{Hash, Rules, Store};
use crate::take_tokens::TakeTokens;
use crate::waiters::Waiters;

pub(crate) use crate::step::Cx;
pub use crate::store::{CopiedOut, PurgedBlock};

/// How much room there is for facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Space {
    #[default]
    Enough,
    /// The disk is full: no puts. Leases, settles and deletes still work.
    NoPuts,
    /// Nothing more can be written: no takes either. What ends leases and
    /// deletes is decided, and answered when there is room.
    NoTakes,
}

/// One shard: durable state, and those who wait.
#[derive(Debug)]
pub struct Engine {
    /// Its number, and how many there are.
    pub(crate) shard: u8,
    pub(crate) shards: u8,
    pub(crate) store: Store,
    pub(crate) waiters: Waiters,
    pub(crate) awaits: Awaits,
    pub(crate) lease_waits: LeaseWaits,
    /// Replies sent since the start.
    pub(crate) replies: u64,
    pub(crate) referrers: Referrers,
    pub(crate) settings: Settings,
    pub(crate) now: Ms,
    pub(crate) segment_ref: SegmentRef,
    pub(crate) space: Space,
    pub(crate) draining: bool,
    /// When idle queues are looked for next, and from where on.
    pub(crate) idle_scan: Ms,
    pub(crate) idle_from: usize,
    /// The shortest rest after which a queue is dropped, ms; 0: none is.
    pub(crate) idle_least: u64,
    /// Blocks to be read from runs, and the commands that wait for them.
    pub(crate) reading: Reading,
    pub(crate) wall_ahead: WallAhead,
    /// When entries whose time is over were last looked for.
    pub(crate) tables_expired: Ms,
    pub(crate) pending_decisions: PendingDecisions,
    /// Rights of principals; `None`: everything is permitted.
    pub(crate) permits: Option<Box<dyn Permits>>,
    /// Messages that wait for such a decision.
    pub(crate) pending: HashMap<MessageId, PendingDecisionKind, Hash>,
    /// Those that were not reported yet.
    pub(crate) requested_decisions: Vec<MessageId>,
    /// Number of the last choice of a message to leave memory.
    pub(crate) picks: u32,
    /// Steps since the indexes were last verified.
    #[cfg(debug_assertions)]
    pub(crate) unverified: usize,
    /// Clients that are gone and held more than one step gives back.
    pub(crate) gone: VecDeque<ClientId>,
    /// Takes that may be sent again.
    pub(crate) take_tokens: TakeTokens,
    /// How messages have ended that are gone and that the puts of the present step wait for.
    pub(crate) ended_parents: BTreeMap<MessageId, ParentState>,
}

/// Forgotten messages freed with each command, and with each tick.
pub(crate) const COLLECT_PER_COMMAND: usize = 64;
/// The same for each fact that is replayed, of which a frame has a thousand that others wait for:
/// more than a fact can make.
pub(crate) const COLLECT_PER_FACT: usize = 2;
const COLLECT_PER_FRAME: usize = 2048;
const COLLECT_PER_TICK: usize = 4096;
/// Leases of clients that are gone, ended in one step.
const LEASES_PER_STEP: usize = 1024;
/// Entries of tables whose time is over are freed so often, ms; sooner if the
/// tables are full.
const TABLES_EXPIRE_MS: u64 = 60_000;

impl Engine {
    /// An empty shard, number `shard` of `shards`.
    pub fn new(shard: u8, shards: u8, settings: Settings) -> Self {
        let mut engine = Self {
            shard,
            shards,
            store: Store::new(shard, shards),
            waiters: Waiters::default(),
            awaits: Awaits::default(),
            lease_waits: LeaseWaits::default(),
            replies: 0,
            referrers: Referrers::default(),
            settings: Settings::default(),
            now: Ms(0),
            segment_ref: SegmentRef(0),
            space: Space::Enough,
            draining: false,
            idle_scan: Ms(0),
            idle_from: 0,
            idle_least: 0,
            reading: Reading::default(),
            wall_ahead: WallAhead::default(),
            tables_expired: Ms(0),
            pending_decisions: PendingDecisions::default(),
            permits: None,
            pending: HashMap::default(),
            requested_decisions: Vec::new(),
            picks: 0,
            #[cfg(debug_assertions)]
            unverified: 0,
            gone: VecDeque::new(),
            take_tokens: TakeTokens::default(),
            ended_parents: BTreeMap::new(),
        };
        engine.configure(settings);
        engine
    }

    /// Replaces the configured settings (start, SIGHUP).
    pub fn configure(&mut self, settings: Settings) {
        let rules = settings.rules.iter();
        let rests = rules.filter_map(|(_, rule)| rule.idle_ms);
        let rests = rests.chain([settings.defaults.idle_ms]);
        self.idle_least = rests.filter(|&ms| ms > 0).min().unwrap_or(0);
        self.store.keep_ends(settings.ends_max as usize);
        self.settings = settings;
        let queues = self.store.queues.iter();
        let queues: Vec<QueueId> = queues.map(|queue| queue.id).collect();
        for queue in queues {
            self.resettle(queue);
            // Nobody else tells those who wait that a limit or a pause is gone.
            let there = self.store.queue(queue);
            if there.is_some_and(|queue| !queue.live.line.is_empty()) {
                self.store.recheck(queue);
            }
        }
    }

    /// Resolves a queue's settings anew.
    pub(crate) fn resettle(&mut self, id: QueueId) {
        // The log may have settings of a queue that is not there.
        let Some(queue) = self.store.queue(id) else {
            return;
        };
        let recorded = queue.live.recorded;
        let memory = queue.live.settings.memory && recorded;
        let mut settings = self.settings.resolve(queue.name.as_bytes());
        queue.own().lay_own_over(&mut settings);
        // A queue cannot become durable, or stop being so, while it exists.
        if recorded {
            settings.memory = memory;
        }
        if settings.idle_ms > 0 && (settings.idle_ms < self.idle_least || self.idle_least == 0) {
            self.idle_least = settings.idle_ms;
        }
        let (now, rules) = (self.now, Rules::of(&settings));
        if let Some(live) = self.store.live_mut(id) {
            let speed = Speed::of_takes(&settings);
            if speed != Speed::of_takes(&live.settings) {
                live.pace.change(speed, now);
            }
            live.pace.settle(speed, now);
            live.settings = settings;
        }
        self.store.set_groups(id, rules);
        self.store.rearm(id);
    }

    /// Decides and applies one command. Facts go to `journal`, outcomes for
    /// others who waited to `deliveries`.
    pub fn submit<J: Journal>(
        &mut self,
        now: Ms,
        caller: Caller,
        command: Command,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Answer {
        self.advance(now);
        if !self.store.tombstones.is_empty() {
            self.store.collect(COLLECT_PER_COMMAND);
        }
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.remove_expired(&mut cx);
        let answer = self.decide_or_park(&mut cx.by(Call::of(caller)), command);
        self.remove_expired(&mut cx);
        self.go_on_after(&mut cx, TOLD_PER_COMMAND);
        self.call_back(&mut cx);
        self.serve(&mut cx);
        self.sample();
        answer
    }

    /// In debug builds verifies the indexes now and then: less often the more
    /// there is to look at.
    fn sample(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.unverified += 1;
            let size = self.store.messages.len() + self.store.queues.len();
            if self.unverified > 1000 + size {
                self.unverified = 0;
                let found = self.verify();
                assert!(found.is_ok(), "the indexes disagree: {found:?}");
            }
        }
    }

    /// [`Engine::submit`] of a part of a step that was found good under the
    /// same lock ([`Engine::may_transaction`]). It is never parked whole: if its
    /// own command needs something from a run first, that is requested, and
    /// nothing happens ([`CommandError::Conflict`]).
    ///
    /// That the batches of its puts take members was asked where they are
    /// ([`Engine::may_join`]). What those of other shards got is owed to them, and is to be
    /// carried ([`crate::carry_owed`]) before the lock of such a shard is given up.
    pub fn submit_part<J: Journal>(
        &mut self,
        now: Ms,
        caller: Caller,
        mut command: Command,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Answer {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        let conflict = Outcome::Refused(CommandError::Conflict);
        let call = Call {
            found_good: true,
            vouched: true,
            ..Call::of(caller)
        };
        let answer = self
            .decide_or_ask(&mut cx.by(call), &mut command)
            .unwrap_or(Answer::Now(conflict, Hold::Durable));
        self.remove_expired(&mut cx);
        self.go_on_after(&mut cx, TOLD_PER_COMMAND);
        self.call_back(&mut cx);
        self.serve(&mut cx);
        answer
    }

    /// Decides one command. What it brings is taken out of `command` with the
    /// first fact; `Err`: there was none, and it is to be decided anew when
    /// what was requested is there.
    pub(crate) fn decide<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        command: &mut Command,
    ) -> Result<Answer, Cold> {
        let caller = cx.call().caller;
        if self.permits.is_some() && !self.may_touch(caller.principal, command)? {
            return durable(Err(CommandError::NotPermitted));
        }
        let client_id = caller.client_id;
        let turn = |outcome| Ok(Answer::Now(outcome, Hold::Turn));
        match command {
            Command::Put(put) => durable(self.put(cx, put)),
            Command::Take(take) => self.take(cx, client_id, take),
            Command::Settle { id, by, how } => durable(self.settle(cx, client_id, *id, *by, how)),
            Command::SettleHeld { queue, how, max } => {
                durable(self.settle_held(cx, client_id, queue.as_ref(), how, *max))
            }
            Command::Delete { id, by } => durable(self.delete(cx, client_id, *id, *by)),
            Command::Touch(id) => durable(self.touch(cx, client_id, *id)),
            Command::Extend { id, by, ms } => durable(self.extend(cx, client_id, (*id, *by), *ms)),
            Command::Progress {
                id,
                by,
                percent,
                text,
            } => durable(self.progress(cx, client_id, (*id, *by), *percent, text.as_deref())),
            Command::ByName(by_name) => durable(self.by_name(cx, client_id, by_name)),
            Command::ReserveId { id, lease } => self.reserve_id(cx, client_id, *id, *lease),
            Command::PutMany(puts) => durable(self.put_many(cx, puts)),
            Command::Watch(take) => Ok(self.watch(cx, client_id, take.take())),
            Command::Rewatch(take) => Ok(self.rewatch(cx, client_id, std::mem::take(take))),
            Command::WatchQueue { queue, on } => Ok(self.watch_queue(cx, client_id, queue, *on)),
            Command::StopWaiting => {
                self.stop_waiting(cx, client_id);
                turn(Outcome::Done)
            }
            Command::Refer {
                queue,
                uses,
                watches,
            } => {
                let referred = self.refer(cx.call(), client_id, queue, *uses, *watches);
                turn(referred.unwrap_or_else(Outcome::Refused))
            }
            Command::Peek(peek) => durable(self.peek(peek)),
            Command::AwaitResult { id, wait_ms } => {
                self.await_result(cx.call(), client_id, *id, *wait_ms)
            }
            Command::AwaitLease(ask) => self.await_lease(cx.call(), client_id, *ask),
            Command::Cancel(id, cancel) => durable(self.cancel(cx, *id, cancel)),
            Command::Kick { queue, state, max } => durable(self.kick(cx, queue, *state, *max)),
            Command::KickId(id) => durable(self.kick_id(cx, *id)),
            Command::Redrive(id) => durable(self.redrive_one(cx, *id)),
            Command::Move { id, to } => durable(self.move_one(cx, *id, to)),
            Command::BulkOp(bulk_op) => durable(self.bulk_op(cx, bulk_op)),
            Command::Commit(id) => durable(self.commit(cx, *id)),
            Command::Edit(id, edit) => durable(self.edit(cx, *id, edit)),
            Command::Pause { queue, for_ms } => durable(self.pause(cx, queue, *for_ms)),
            Command::Hold { queue, key, for_ms } => {
                durable(self.hold_for(cx, queue, key.as_deref(), *for_ms))
            }
            Command::SettleHolding { id, by, how, hold } => {
                durable(self.settle_holding(cx, (client_id, *by), *id, how, *hold))
            }
            Command::Create { queue, overrides } => durable(self.create(cx, queue, overrides)),
            Command::Configure {
                queue,
                overrides,
                must_exist,
            } => {
                let there = match must_exist {
                    true => self.existing(queue).map(drop),
                    false => Ok(()),
                };
                durable(there.and_then(|()| self.configure_queue(cx, queue, overrides.as_deref())))
            }
            Command::Reconfigure { queue, from, to } => {
                durable(self.reconfigure(cx, queue, from, to))
            }
            Command::Join { parent, child } => durable(self.join(cx, parent, child)),
            Command::Flush { queue, reserved } => durable(self.flush(cx, queue, *reserved)),
            Command::FlushAll => durable(self.flush_all(cx)),
            Command::Drop(queue) => durable(self.drop_queue(cx, queue)),
            Command::DropQueues {
                pattern,
                messages,
                dry_run,
                from,
            } => {
                let dropped = self.drop_queues(cx, pattern, *messages, *dry_run, *from);
                Ok(Answer::Now(Outcome::Dropped(dropped), Hold::Durable))
            }
            Command::FlushExpired(queue) => durable(self.flush_expired(cx, queue.as_ref())),
            Command::Remembered { queue, id } => {
                durable(self.remembered(queue, std::mem::take(id)))
            }
            Command::BurnId => durable(self.burn_id(cx)),
            Command::Restore(messages) => {
                durable(self.restore(cx, client_id, std::mem::take(messages)))
            }
            Command::Transaction(transaction) => self.transaction(cx, transaction),
            Command::Table(ask) => durable(self.table(cx, ask)),
            Command::Batch(ask) => durable(self.batch(cx, ask)),
            Command::Stats(of) => match self.stats(cx.call().caller.principal, of) {
                Ok(stats) => turn(Outcome::Stats(Box::new(stats))),
                Err(stop) => durable(Err(stop)),
            },
        }
    }

    /// Does what is due by `now`: ends leases, promotes delayed messages,
    /// drops expired ones, ends waits and pauses. Bounded work per call; call
    /// again while [`Engine::next_deadline`] is not later than `now`.
    pub fn tick<J: Journal>(&mut self, now: Ms, journal: &mut J, deliveries: &mut Vec<Delivery>) {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.end_leases(&mut cx);
        self.end_leases_of_gone(&mut cx);
        self.ring_alarms(&mut cx);
        self.remove_expired(&mut cx);
        self.end_batches(&mut cx);
        self.end_tracks(&mut cx);
        self.ring_blocks();
        self.go_on_after(&mut cx, TOLD_PER_TICK);
        self.call_back(&mut cx);
        self.end_awaits();
        self.end_lease_waits(&mut cx);
        self.serve(&mut cx);
        self.end_waits(&mut cx);
        self.store.forget_dedupe(self.now, 256);
        self.drop_idle(&mut cx);
        self.forget_pending();
        self.expire_tables(self.now);
        self.store.collect(COLLECT_PER_TICK);
        if self.may_go_on() {
            self.reading.again = false;
            self.go_on(&mut cx);
        }
        self.sample();
    }

    /// When [`Engine::tick`] should be called next; [`Ms::NEVER`] if nothing
    /// is pending.
    pub fn next_deadline(&self) -> Ms {
        let store = &self.store;
        let unfinished =
            !store.tombstones.is_empty() || store.messages.has_old() || !self.gone.is_empty();
        let sends = !store.outbox.is_empty()
            || !store.batches.owed().is_empty()
            || store.dependencies.first_to_carry().is_some();
        if unfinished || sends || self.may_go_on() || store.dependencies.has_work() {
            return self.now;
        }
        let mut next = self.waiters.next_deadline().unwrap_or(Ms::NEVER);
        let awaits = [
            self.awaits.next_deadline(),
            self.lease_waits.waits.next_deadline(),
        ];
        for at in awaits.into_iter().flatten() {
            next = next.min(at);
        }
        if let Some(&(at, _)) = store.lease_ends.first() {
            next = next.min(at);
        }
        if let Some(&(at, _)) = store.alarms.first() {
            next = next.min(at);
        }
        if let Some(&(at, _)) = store.expiries.first() {
            next = next.min(at);
        }
        if let Some((at, _)) = store.batches.first_end() {
            next = next.min(at);
        }
        if let Some((at, _)) = store.tracks.first_end() {
            next = next.min(at);
        }
        if let Some(at) = store.batches.first_due() {
            next = next.min(at);
        }
        if let Some(&(at, _)) = store.cold.rings.first() {
            next = next.min(at);
        }
        if let Some((at, _)) = store.dedupe_ends.first() {
            next = next.min(*at);
        }
        if self.idle_least > 0 {
            next = next.min(self.idle_scan);
        }
        next
    }

    /// Whether the client holds leases, also those that do not end with it.
    pub fn holds_leases(&self, client_id: ClientId) -> bool {
        self.store.held_by(client_id) > 0
    }

    /// The client is gone: its waits end, leases bound to it end, and the
    /// messages keep their own order.
    pub fn disconnect<J: Journal>(
        &mut self,
        now: Ms,
        client_id: ClientId,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.remove_expired(&mut cx);
        self.reading.forget(client_id);
        self.awaits.waits.remove(client_id);
        self.lease_waits.waits.remove(client_id);
        for queue in self.waiters.forget(client_id, &mut self.store) {
            self.forget_unused(queue);
        }
        self.forget_references(client_id);
        self.gone.push_back(client_id);
        self.end_leases_of_gone(&mut cx);
        self.remove_expired(&mut cx);
        self.go_on_after(&mut cx, TOLD_PER_COMMAND);
        self.call_back(&mut cx);
        self.serve(&mut cx);
    }

    /// Ends leases of clients that are gone, no more than one step bears: a
    /// client may have held a million.
    fn end_leases_of_gone<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        let mut steps = 0;
        while let Some(&client_id) = self.gone.front() {
            // Newest first: each goes in front of what went before, so that in
            // the end the oldest stands first.
            while let Some(&id) = self.store.held.get(&client_id).and_then(|held| held.last()) {
                if steps >= LEASES_PER_STEP {
                    return;
                }
                steps += 1;
                let lease = self
                    .store
                    .slot(id)
                    .and_then(|slot| self.store.leases.get(&slot));
                if lease.is_some_and(|lease| lease.bound != Bound::Time)
                    && let Some(queue) = self.store.message(id).map(|message| message.queue)
                {
                    self.give_back(cx, id, Return::Lost);
                    cx.wake(queue);
                }
                // One that is bound to time alone has nobody to be found by.
                self.store.pass_held(client_id, id);
            }
            self.store.forget_client(client_id);
            self.gone.pop_front();
        }
    }

    /// Begins this process's (or owner's) time: ends the leases that were bound
    /// to what is gone. Call after replay, before the first command. `random` becomes the key of
    /// the shard's hashes, if it has none.
    pub fn begin_epoch<J: Journal>(
        &mut self,
        now: Ms,
        epoch: u64,
        random: [u8; 16],
        journal: &mut J,
    ) {
        self.advance(now);
        let mut tails = false;
        #[expect(clippy::disallowed_methods, reason = "they are sorted")]
        let mut lost: Vec<MessageId> = self
            .store
            .leases
            .iter()
            .filter(|(_, lease)| matches!(lease.bound, Bound::Connection | Bound::Process))
            .filter_map(|(&slot, lease)| {
                let message = self.store.messages.get(slot)?;
                if !self.store.is_alive(message) {
                    return None;
                }
                // One that is doomed does not come back.
                tails |= lease.back_to == BackTo::Tail && !message.doomed;
                Some(message.id)
            })
            .collect();
        let fact = Fact::Epoch {
            epoch,
            now: self.now,
        };
        self.note(journal, fact);
        if self.store.hash_key.is_none() {
            self.note(journal, Fact::HashKey(random));
        }
        if tails {
            // What comes to a tail from now on stands behind what has come there with it.
            let next = self.store.next_id + 1;
            self.note(journal, Fact::IdMark(next));
        }
        self.store.rest_anew(self.now);
        let mut deliveries = Vec::new();
        let mut step = Step::default();
        let mut cx = Cx::new(journal, &mut deliveries, &mut step);
        lost.sort_unstable();
        let queue_of = |id: &MessageId| Some(self.store.message(*id)?.queue);
        let mut queues: Vec<QueueId> = lost.iter().filter_map(queue_of).collect();
        // Cancelled ones whose leases have ended, also in an earlier epoch whose process ended
        // before it recorded all.
        for id in self.store.take_owed_removals() {
            queues.extend(self.store.message(id).map(|message| message.queue));
            self.end_cancelled(&mut cx, id);
        }
        for id in lost {
            self.track(&mut cx, id);
            self.bury_if_spent(&mut cx, id);
        }
        self.find_lost();
        // Who reads from behind a message's segment has not seen that it was
        // leased, and so not what its return has counted and moved.
        queues.sort_unstable();
        queues.dedup();
        for queue in queues {
            if self.store.is_logged(queue)
                && let Some(counted) = self.store.counted(queue)
            {
                cx.journal.record(&counted);
            }
        }
    }

    /// Frees a slice of what flushes and drops left. Called for each frame that is replayed, as
    /// nobody else does it while another process decides.
    pub fn collect_replayed(&mut self) {
        if !self.store.tombstones.is_empty() {
            self.store.collect(COLLECT_PER_FRAME);
        }
    }

    /// In what the counters of a queue or the living messages of a run that a snapshot has are
    /// not those to which the facts before it have led here, in words. Nothing is said of other
    /// facts.
    pub fn contradicts(&self, fact: &Fact) -> Option<String> {
        if let Fact::RunImage { run, block, .. } = fact {
            let at = BlockAt::of(*run, block.ordinal);
            let here = self.store.cold.block(at).map_or(0, |here| here.row.live);
            return (here != block.live).then(|| {
                format!(
                    "run {}, block {}: {here} living messages here, {} there",
                    run.0, block.number, block.live
                )
            });
        }
        let Fact::QueueCounted { queue, .. } = fact else {
            return None;
        };
        let here = self.store.counted(*queue);
        if here.as_ref() == Some(fact) {
            return None;
        }
        let name = self.store.name_of(*queue);
        Some(format!("queue {name}: {here:?} here, {fact:?} there"))
    }

    /// The segment in which the facts of the next commands will land.
    pub fn set_segment_ref(&mut self, segment_ref: SegmentRef) {
        self.segment_ref = segment_ref;
    }

    /// All the facts that a segment begins with, at once.
    pub fn snapshot(&self, record: &mut dyn FnMut(&Fact)) {
        self.store.snapshot(record);
    }

    /// Durable state as facts in a fixed order; equal states give equal lists.
    pub fn image(&self) -> Vec<Fact> {
        self.store.image()
    }

    /// Checks every index against the messages. Looks at everything: for tests.
    ///
    /// # Errors
    /// The first disagreement, in words.
    pub fn verify(&self) -> Result<(), String> {
        self.store.verify()
    }

    /// Messages and deduplication records whose newest image lies in `segment_ref`.
    pub fn segment_refs_live(&self, segment_ref: SegmentRef) -> u64 {
        let live = self.store.segment_refs.get(&segment_ref);
        live.copied().unwrap_or(0)
    }

    /// Tells how much room there is; puts and leases are refused accordingly.
    pub fn set_space(&mut self, space: Space) {
        self.space = space;
    }

    /// Puts wait from now on while messages take more than so many bytes of
    /// memory ([`Want::Room`]); 0: they do not.
    pub fn set_memory_room(&mut self, bytes: u64) {
        self.reading.memory_room = bytes;
    }

    /// How far the wall clock is ahead from now on. Asked only where a command
    /// brings a time of the wall clock ([`quintet_types::Expiry::AtWall`]).
    pub fn set_wall_ahead(&mut self, ahead: WallAhead) {
        self.wall_ahead = ahead;
    }

    /// The shard's number.
    pub fn shard(&self) -> usize {
        usize::from(self.shard)
    }

    /// Refuses puts from now on, or no longer.
    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// The id of the newest message; 0 if there was none.
    pub fn last_id(&self) -> MessageId {
        self.store.last_id()
    }

    /// A number that this log keeps for ever, and hardly another one has: of the shard's secret
    /// key.
    pub fn log_id(&self) -> u32 {
        match self.store.dedupe_id(&b"quintet events"[..]) {
            DedupeId::Hash([half, _]) => u32::try_from(half >> 32).unwrap_or(0),
            DedupeId::Whole(_) => 0,
        }
    }

    /// Sets the epoch in which the facts replayed from now on were written.
    pub fn replays_epoch(&mut self, epoch: u64) {
        self.store.replays_epoch(epoch);
    }

    /// Facts that are replayed from now on happened at this time. Forgets what is over by then and
    /// no fact records.
    pub fn replays_time(&mut self, now: Ms) {
        self.store.happen(now);
        self.store.forget_dedupe(now, COLLECT_PER_FRAME);
        self.expire_tables(now);
    }

    fn expire_tables(&mut self, now: Ms) {
        if now >= self.tables_expired + TABLES_EXPIRE_MS {
            self.tables_expired = now;
            self.store.expire_tables(now);
        }
    }

    /// The end of a message that is gone, or was moved from another shard; `None`: it is not
    /// known.
    pub fn end_of(&self, id: MessageId) -> Option<Ending> {
        self.store.end_of(id)
    }

    /// The newest purge to which a message belongs perhaps whose end is not known any more.
    pub fn purge_of(&self, id: MessageId) -> Option<Ending> {
        self.store.purge_of(id)
    }

    /// The newest epoch found in the log, which is that of this process when it began one; 0 if
    /// there was none.
    pub fn epoch(&self) -> u64 {
        self.store.epoch
    }

    /// Engine time.
    pub fn now(&self) -> Ms {
        self.now
    }

    /// The name of a queue a message came from; empty if it is gone.
    pub fn queue_name(&self, queue: QueueId) -> Name {
        self.store.name_of(queue)
    }

    /// True if the queue of this number has had this name since then.
    pub fn is_queue(&self, queue: QueueId, name: &Name, created: Ms) -> bool {
        let queue = self.store.queue(queue);
        queue.is_some_and(|queue| queue.name == *name && queue.created == created)
    }

    /// Time never goes back.
    pub(crate) fn advance(&mut self, now: Ms) {
        self.now = self.now.max(now);
        self.store.happen(self.now);
        self.reading.forget_tail();
    }
}
