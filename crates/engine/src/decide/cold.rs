//! Commands that need messages which are in runs.
//!
//! The engine never reads a run. What it needs it asks for ([`Want`]); a
//! command that cannot be decided without it is parked and decided, in the
//! order the commands came, when it was supplied. Its answer is a
//! [`quintet_types::Delivery`], like that of a take that waited.

use std::sync::Arc;

use hashbrown::HashSet;
use smallvec::SmallVec;

use quintet_types::{
    Answer, BatchId, Caller, ClientId, ColdStats, Command, CommandError, Delivery, Effect, Hold,
    MESSAGES_PER_STEP, MessageId, Ms, Order, Outcome, QueueId, StateIndex, Wait,
};

use crate::cold::{BlockAt, LookupResult, Want, is_apart};
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::{Call, Step};
use crate::store::Hash;
use crate::store::cold::QueueCold;

/// Blocks read ahead in a state index, of some 32 KiB each: at 300,000 messages a
/// second half of them last for eight milliseconds, longer than a read takes.
const BLOCKS_AHEAD: usize = 16;
/// A flush of what has expired is about no more than this either, and a take of
/// many gets no more from runs at a time.
#[expect(clippy::cast_possible_truncation, reason = "4,096 fits any number")]
pub(super) const MANY: usize = MESSAGES_PER_STEP as usize;
/// Earlier searches that are remembered, at most.
const KNOWN_MAX: usize = 4096;

/// The answer is not known yet: something has to be read from a run, and was
/// asked for, or more has expired than one step removes. Found before the first
/// fact, so that the command can be decided anew. Made in this file only.
#[derive(Debug)]
pub(crate) struct Cold(());

/// Why nothing was done.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(CommandError),
    Cold(Cold),
}

impl Stop {
    /// The error for one who does not wait: what is being read is there when it is asked again.
    pub(crate) fn at_once(self) -> CommandError {
        match self {
            Stop::Refused(command_error) => command_error,
            Stop::Cold(_) => CommandError::Conflict,
        }
    }
}

impl From<CommandError> for Stop {
    fn from(command_error: CommandError) -> Self {
        Stop::Refused(command_error)
    }
}

impl From<Cold> for Stop {
    fn from(cold: Cold) -> Self {
        Stop::Cold(cold)
    }
}

/// An outcome that is sent when it is durable, or an error.
pub(crate) fn durable<E: Into<Stop>>(result: Result<Outcome, E>) -> Result<Answer, Cold> {
    let outcome = match result.map_err(Into::into) {
        Ok(outcome) => outcome,
        Err(Stop::Refused(command_error)) => Outcome::Refused(command_error),
        Err(Stop::Cold(cold)) => return Err(cold),
    };
    Ok(Answer::Now(outcome, Hold::Durable))
}

/// A command that waits for something from a run.
#[derive(Debug)]
struct Parked {
    caller: Caller,
    command: Command,
}

/// Blocks to be read from runs, and the commands that wait for them. All of it is volatile.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Blocks that are needed and were not asked for yet.
    wants: Vec<Want>,
    /// Commands that wait, in the order they came.
    parked: Vec<Parked>,
    /// Recent searches that found nothing or a message that is in memory now; valid for as long as
    /// nothing went back to a run.
    known: RunAnswers,
    /// Keys whose messages are looked for, to know which stands first.
    ordering: Vec<(QueueId, Arc<[u8]>)>,
    /// Waits that could not be served before something is read.
    pub(super) stalled: Vec<u64>,
    /// Batches whose callback needs something first.
    pub(super) callbacks: Vec<BatchId>,
    /// Waits whose time is over, but for what is being read. True: it is to be
    /// warned.
    pub(super) overdue: Vec<(u64, bool)>,
    /// Blocks that are read since something in them has expired.
    pub(super) ringing: Vec<BlockAt>,
    /// Somebody waits for nothing but another step: more had expired than one
    /// removes. The next tick goes on.
    pub(crate) again: bool,
    /// Puts wait while messages take more memory than this; 0: they do not.
    pub(crate) memory_room: u64,
    /// Some of the parked commands wait for nothing but that.
    room_waits: bool,
    /// When the next block of what is due is read, while memory is short.
    pub(crate) due_next: Ms,
    /// The place at a tail that was given last, for as long as something is read: what goes on then
    /// belongs to the step that waited for it.
    pub(super) tail: Option<i64>,
}

impl Reading {
    /// True while a decision waits for something from a run.
    fn is_pending(&self) -> bool {
        !(self.parked.is_empty()
            && self.stalled.is_empty()
            && self.callbacks.is_empty()
            && self.overdue.is_empty()
            && self.ringing.is_empty())
    }

    /// A step begins.
    pub(crate) fn forget_tail(&mut self) {
        if self.tail.is_some() && !self.is_pending() {
            self.tail = None;
        }
    }

    /// The client is gone, with what it asked.
    pub(crate) fn forget(&mut self, client_id: ClientId) {
        self.parked
            .retain(|parked| parked.caller.client_id != client_id);
    }

    /// A wait goes on for what is being read.
    pub(super) fn stall(&mut self, number: u64) {
        if !self.stalled.contains(&number) {
            self.stalled.push(number);
        }
    }
}

/// Answers of the runs that need not be asked for again.
#[derive(Debug, Default)]
struct RunAnswers {
    epoch: u64,
    ids: HashSet<MessageId, Hash>,
    keys: HashSet<(QueueId, Arc<[u8]>), Hash>,
}

impl Engine {
    /// Decides a command, or keeps it until it can be decided.
    // Into `submit`: measured.
    #[inline(always)]
    pub(crate) fn decide_or_park<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        mut command: Command,
    ) -> Answer {
        let room = self.reading.memory_room;
        // One that is refused anyway, as the server stops, is not kept from being told.
        if room > 0 && !self.draining && stores(&command) && self.store.memory_bytes() > room {
            self.reading.wants.push(Want::Room);
            self.reading.room_waits = true;
            return self.park(cx.call().caller, command);
        }
        match self.decide_or_ask(cx, &mut command) {
            Ok(answer) => answer,
            Err(Cold(())) => self.park(cx.call().caller, command),
        }
    }

    /// Decides a command. `Err`: nothing has happened but what time alone
    /// changes, and the command is as it was.
    #[inline]
    pub(crate) fn decide_or_ask<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        command: &mut Command,
    ) -> Result<Answer, Cold> {
        cx.step.began = false;
        let decided = self.decide(cx, command);
        if decided.is_err() {
            // Decided anew it would happen twice, in part.
            assert!(
                !cx.step.began,
                "what has to be read is found before the first fact: {:?}",
                command.about().verb
            );
        }
        decided
    }

    #[cold]
    fn park(&mut self, caller: Caller, command: Command) -> Answer {
        self.reading.parked.push(Parked { caller, command });
        Answer::Later
    }

    /// The blocks to be read from runs, once each. Their reader hands them to [`Engine::supply`].
    pub fn take_wants(&mut self) -> Vec<Want> {
        std::mem::take(&mut self.reading.wants)
    }

    /// True if [`Engine::take_wants`] would answer something.
    pub fn has_wants(&self) -> bool {
        !self.reading.wants.is_empty()
    }

    /// Takes what was read, and decides what waited for it.
    pub fn supply<J: Journal>(
        &mut self,
        now: Ms,
        found: Vec<LookupResult>,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        cx.step.tail = self.reading.tail;
        for found in found {
            self.take_in(&mut cx, found);
        }
        self.go_on(&mut cx);
    }

    /// True if parked commands can be decided now although nobody supplies anything: the engine
    /// asks for a step ([`Engine::next_deadline`]), and the step decides them. So a put that waits
    /// for memory depends on nobody who makes room.
    #[inline]
    pub(crate) fn may_go_on(&self) -> bool {
        let reading = &self.reading;
        reading.again || (reading.room_waits && self.has_room())
    }

    #[cold]
    fn has_room(&self) -> bool {
        let room = self.reading.memory_room;
        room == 0 || self.draining || self.store.memory_bytes() <= room
    }

    /// Decides what could not be decided before, in the order it came.
    pub(crate) fn go_on<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        self.reading.room_waits = false;
        self.remove_expired(cx);
        for Parked { caller, command } in std::mem::take(&mut self.reading.parked) {
            let is_peek = if let Command::Take(take) = &command {
                take.peek
            } else {
                !matches!(command, Command::ReserveId { .. })
            };
            let answer = self.decide_or_park(&mut cx.by(Call::of(caller)), command);
            if let Answer::Now(outcome, hold) = answer {
                self.deliver(cx, caller.client_id, false, false, outcome, hold);
                if is_peek {
                    cx.only_peeked();
                }
            }
        }
        self.remove_expired(cx);
        for batch in std::mem::take(&mut self.reading.callbacks) {
            self.store.put_off_batch(batch, self.now);
        }
        self.call_back(cx);
        let stalled = std::mem::take(&mut self.reading.stalled);
        let overdue = self.reading.overdue.iter().map(|(number, _)| number);
        for number in stalled.iter().chain(overdue) {
            if let Some(waiter) = self.waiters.get(*number) {
                waiter.queues.iter().for_each(|&queue| cx.wake(queue));
            }
        }
        self.serve(cx);
        self.end_overdue(cx);
    }

    /// How cold messages stand.
    pub fn cold_stats(&self) -> ColdStats {
        self.store.cold_stats()
    }

    fn take_in<J: Journal>(&mut self, cx: &mut Cx<'_, J>, found: LookupResult) {
        match found {
            LookupResult::Block(at, messages) => {
                self.reading.ringing.retain(|ringing| *ringing != at);
                let queue = self.store.cold.block(at).map(|block| block.row.queue);
                match messages {
                    Some(messages) => {
                        self.store.load(at, messages);
                    }
                    None => self.store.give_up(at),
                }
                if let Some(queue) = queue {
                    self.store.promote(queue, self.now);
                    cx.wake(queue);
                }
            }
            LookupResult::Id(id, places) => {
                let any = self.want_entries(&places);
                if !any {
                    self.forget_old_searches();
                    self.reading.known.ids.insert(id);
                }
            }
            LookupResult::Key(queue, key, places) if self.is_order_query(queue, &key) => {
                let blocks = self.blocks_of_entries(&places);
                self.store.looked_up(queue, &key, &blocks);
                cx.wake(queue);
            }
            LookupResult::Key(queue, key, places) => {
                let any = self.want_entries(&places);
                if !any {
                    self.forget_old_searches();
                    self.reading.known.keys.insert((queue, key));
                }
                cx.wake(queue);
            }
        }
    }

    /// Asks where messages of a key are, for their order.
    pub(super) fn ask_for_key(&mut self, queue: QueueId, key: Arc<[u8]>) -> Cold {
        let search = (queue, key);
        if !self.reading.ordering.contains(&search) {
            self.reading.ordering.push(search.clone());
            self.reading.wants.push(Want::Key(search.0, search.1));
        }
        Cold(())
    }

    /// True if somebody asked where messages of this key are for their order;
    /// asked once.
    fn is_order_query(&mut self, queue: QueueId, key: &Arc<[u8]>) -> bool {
        let ordering = &mut self.reading.ordering;
        let requested = |(other, known): &(QueueId, Arc<[u8]>)| *other == queue && known == key;
        let at = ordering.iter().position(requested);
        at.map(|at| ordering.swap_remove(at)).is_some()
    }

    /// Stored blocks these living entries are in.
    fn blocks_of_entries(&self, places: &[(quintet_types::RunId, u32)]) -> Vec<BlockAt> {
        let block_of = |&(run, ordinal): &(quintet_types::RunId, u32)| {
            let (first, block) = self.store.cold.runs.get(&run)?.block_of(ordinal)?;
            let ordinal = (block.is_stored() && block.is_alive(ordinal)).then_some(first)?;
            Some(BlockAt { run, ordinal })
        };
        let mut blocks: Vec<BlockAt> = places.iter().filter_map(block_of).collect();
        blocks.dedup();
        blocks
    }

    /// Asks for the stored blocks these living entries are in.
    fn want_entries(&mut self, places: &[(quintet_types::RunId, u32)]) -> bool {
        let mut any = false;
        for &(run, ordinal) in places {
            let found = self.store.cold.runs.get(&run).and_then(|table| {
                let (first, block) = table.block_of(ordinal)?;
                (block.is_stored() && block.is_alive(ordinal)).then_some(first)
            });
            if let Some(ordinal) = found {
                any = true;
                self.want(BlockAt { run, ordinal });
            }
        }
        any
    }

    fn forget_old_searches(&mut self) {
        let epoch = self.store.cold.epoch;
        let known = &mut self.reading.known;
        if known.epoch != epoch || known.ids.len() + known.keys.len() >= KNOWN_MAX {
            known.ids.clear();
            known.keys.clear();
            known.epoch = epoch;
        }
    }

    /// Asks for a block, unless somebody has.
    pub(crate) fn want(&mut self, at: BlockAt) {
        if let Some(number) = self.store.ask_for(at) {
            self.reading.wants.push(Want::Block(at, number));
        }
    }

    /// Asks for what begins a state index, and some more to come.
    pub(crate) fn want_ahead(&mut self, queue: QueueId, state_index: StateIndex) {
        let Some(cold) = self
            .store
            .queue(queue)
            .and_then(|queue| queue.cold.as_ref())
        else {
            // It has nothing in runs.
            return;
        };
        let blocks = cold.blocks(state_index).take(BLOCKS_AHEAD);
        let blocks: SmallVec<[BlockAt; BLOCKS_AHEAD]> = blocks.map(|&(_, at)| at).collect();
        for at in blocks {
            self.want(at);
        }
    }

    /// The same for a consumer from a queue with message groups: blocks in which
    /// nothing may go are passed over.
    pub(super) fn want_open_ahead(&mut self, queue: QueueId) {
        let groups = self.store.queue(queue).and_then(|q| q.groups.as_ref());
        let open = groups.map(|groups| groups.open_blocks());
        let blocks: SmallVec<[BlockAt; BLOCKS_AHEAD]> =
            open.into_iter().flatten().take(BLOCKS_AHEAD).collect();
        for at in blocks {
            self.want(at);
        }
    }

    /// The search for a message's companions is over.
    pub(super) fn companions_are_here(&mut self, slot: u32) -> Result<(), Cold> {
        let message = self.store.messages.at(slot);
        let (Some(key), queue) = (message.key(), message.queue) else {
            // Without a key it has none.
            return Ok(());
        };
        let cold = self
            .store
            .queue(queue)
            .and_then(|queue| queue.cold.as_ref());
        if cold.is_none_or(|cold| cold.sums.keyed == 0) {
            return Ok(());
        }
        let search = (queue, key.clone());
        let Reading { known, wants, .. } = &mut self.reading;
        if known.epoch == self.store.cold.epoch && known.keys.contains(&search) {
            return Ok(());
        }
        wants.push(Want::Key(search.0, search.1));
        Err(Cold(()))
    }

    /// The message of this id, if there is one.
    #[inline]
    pub(crate) fn look_up(&mut self, id: MessageId) -> Result<Option<u32>, Cold> {
        match self.store.slot(id) {
            None if !self.store.cold.is_empty() => self.ask_for_id(id),
            found => Ok(found),
        }
    }

    /// The slot of a message, or [`CommandError::NotFound`]. Stops the step if a run must be read.
    #[inline]
    pub(super) fn found(&mut self, id: MessageId) -> Result<u32, Stop> {
        Ok(self.look_up(id)?.ok_or(CommandError::NotFound)?)
    }

    /// It is in memory nowhere; perhaps it was looked for in all runs.
    #[cold]
    fn ask_for_id(&mut self, id: MessageId) -> Result<Option<u32>, Cold> {
        if !self.may_be_in_a_run(id) {
            return Ok(None);
        }
        self.reading.wants.push(Want::Id(id));
        Err(Cold(()))
    }

    /// False if it is known to be in no run.
    pub(super) fn may_be_in_a_run(&self, id: MessageId) -> bool {
        let known = &self.reading.known;
        let was_searched = known.epoch == self.store.cold.epoch && known.ids.contains(&id);
        !was_searched && self.store.may_be_cold(id)
    }

    /// Slots of the first `max` messages of a state index behind `after`.
    pub(super) fn state_index(
        &mut self,
        id: QueueId,
        state_index: StateIndex,
        after: Option<Order>,
        max: usize,
    ) -> Result<Vec<u32>, Cold> {
        let slots = self.state_index_slots(id, state_index, after, max);
        if slots.len() >= max {
            return Ok(slots);
        }
        let Some((_, next)) = self.store.next_cold(id, state_index, after) else {
            // No run has more.
            return Ok(slots);
        };
        match after {
            None => self.want_ahead(id, state_index),
            Some(_) => self.want(next),
        }
        Err(Cold(()))
    }

    /// Slots of the last `max` messages of a state index before `before`, from the last on.
    pub(super) fn state_index_back(
        &mut self,
        id: QueueId,
        state_index: StateIndex,
        before: Option<Order>,
        max: usize,
    ) -> Result<Vec<u32>, Cold> {
        let mut slots = self.tail(id, state_index, before, max);
        if let Some((last, block)) = self.store.previous_cold(id, state_index, before) {
            let order = |slot: u32| state_index.order(self.store.messages.at(slot));
            let behind = slots.iter().take_while(|&&slot| order(slot) > last);
            slots.truncate(behind.count());
            if slots.len() < max {
                return Err(self.ask_block(block));
            }
        }
        Ok(slots)
    }

    /// Asks for a block that may hold the beginning of a state index.
    pub(super) fn ask_ahead(
        &mut self,
        queue: QueueId,
        state_index: StateIndex,
        block: BlockAt,
    ) -> Cold {
        self.want(block);
        self.want_ahead(queue, state_index);
        Cold(())
    }

    /// Asks for a block that may hold the message.
    pub(super) fn ask_block(&mut self, block: BlockAt) -> Cold {
        self.want(block);
        Cold(())
    }

    /// Stops before the message, because more has expired in front of it than one step removes: the
    /// next tick goes on.
    pub(super) fn ask_again(&mut self) -> Cold {
        self.reading.again = true;
        Cold(())
    }

    /// Blocks in which something expires by now are read, so that it can.
    pub(crate) fn ring_blocks(&mut self) {
        while let Some(block) = self.store.next_ring(self.now) {
            self.reading.ringing.push(block);
            self.want(block);
        }
    }

    /// A take that waits for a run and may wait no longer ends with
    /// what is there when the run was read.
    pub(super) fn hurry(&mut self, client_id: ClientId) {
        for parked in &mut self.reading.parked {
            if parked.caller.client_id != client_id {
                continue;
            }
            if let Command::Take(take) = &mut parked.command {
                take.wait = Wait::No;
            } else if let Command::AwaitResult { wait_ms, .. } = &mut parked.command {
                *wait_ms = 0;
            } else if let Command::AwaitLease(ask) = &mut parked.command {
                ask.wait_ms = 0;
            }
        }
    }

    /// A message in memory that is a copy of one in a run leaves the run
    /// before anything happens to it.
    pub(crate) fn load_named<J: Journal>(&mut self, cx: &mut Cx<'_, J>, fact: &Fact) {
        // Others are made by what takes a message out of its run itself, or are about none that is
        // stored.
        if let Some(at) = fact.at() {
            let stays = !matches!(fact, Fact::Removed { .. });
            self.load_one(at.id, stays, cx.journal);
        }
    }

    /// The same for one message; if it `stays` in memory its image is
    /// recorded, since the log has none.
    pub(crate) fn load_one<J: Journal>(&mut self, id: MessageId, stays: bool, journal: &mut J) {
        let Some(slot) = self.store.slot(id) else {
            // It is gone, or of another shard.
            return;
        };
        let message = self.store.messages.at(slot);
        let Some(run) = message.segment_ref.run() else {
            // It is in no run.
            return;
        };
        let apply_loaded = Fact::Loaded {
            run,
            ordinal: message.ordinal,
            at: message.at(),
            bytes: message.size(),
            apart: is_apart(message),
        };
        let image = stays.then(|| Fact::Image(message.clone(), None));
        self.note(journal, apply_loaded);
        // It says what is here already.
        if let Some(image) = image {
            journal.record(&image);
        }
    }

    /// After a take of a message from a run: the next blocks are read before
    /// they are requested.
    pub(crate) fn look_ahead(&mut self, id: QueueId) {
        let Some(queue) = self.store.queue(id) else {
            // A dropped queue goes with the last message that is taken out of it.
            return;
        };
        let few = |cold: &QueueCold| cold.loaded.len() < BLOCKS_AHEAD / 2;
        if queue.cold.as_deref().is_some_and(few) {
            match queue.groups.is_some() {
                true => self.want_open_ahead(id),
                false => self.want_ahead(id, StateIndex::Ready),
            }
        }
    }
}

/// True if the command stores messages.
fn stores(command: &Command) -> bool {
    let puts = |command: &Command| matches!(command, Command::Put(_) | Command::PutMany(_));
    if let Command::Transaction(transaction) = command {
        let mut effects = transaction.effects.iter();
        effects.any(|effect| matches!(effect, Effect::Put(_)))
            || transaction.then.as_deref().is_some_and(puts)
    } else {
        puts(command)
    }
}
