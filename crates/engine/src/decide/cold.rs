//! Commands that need messages which are in runs.
//!
//! The engine never reads a run. What it needs it asks for ([`Want`]); a
//! command that cannot be decided without it is parked and decided, in the
//! order the commands came, when it was supplied. Its answer is a
//! [`crate::Delivery`], like that of a take that waited.

use smallvec::SmallVec;

use super::admin::kicked_lane;
use crate::cold::{BlockAt, ColdStats, Found, Lane, Order, Want};
use crate::command::{Caller, Command, ListState, MESSAGES_PER_STEP, Peek, StatsOf, Wait};
use crate::compound::{Compound, Effect, Guard};
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::message::{MessageId, QueueId, State};
use crate::outcome::{Answer, Delivery};
use crate::time::Ms;

/// Blocks read ahead in a lane, of some 32 KiB each: at 300,000 messages a
/// second half of them last for eight milliseconds, longer than a read takes.
const BLOCKS_AHEAD: usize = 16;
/// A flush of what has expired is about no more than this either, and a take of
/// many gets no more from runs at a time.
pub(super) const MANY: usize = MESSAGES_PER_STEP as usize;
/// What is remembered of earlier searches.
const KNOWN_MAX: usize = 4096;

/// A command that waits for something from a run.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) caller: Caller,
    command: Command,
}

impl Engine {
    pub(crate) fn decide_or_park<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        caller: Caller,
        command: Command,
    ) -> Answer {
        if self.memory_room > 0 && stores(&command) && self.store.memory_bytes() > self.memory_room
        {
            self.wants.push(Want::Room);
            return self.park(caller, command);
        }
        if self.store.cold.is_empty() {
            return self.decide(cx, caller, command);
        }
        match command {
            Command::Take(take) => self
                .take_or_ask(cx, caller.party, take)
                .unwrap_or_else(|take| self.park(caller, Command::Take(*take))),
            command => {
                if matches!(command, Command::StopWaiting) {
                    self.hurry(caller);
                }
                if self.needs(cx, &command) {
                    return self.park(caller, command);
                }
                self.decide(cx, caller, command)
            }
        }
    }

    fn park(&mut self, caller: Caller, command: Command) -> Answer {
        self.parked.push(Parked { caller, command });
        Answer::Later
    }

    /// What is to be read from runs, once each. Whoever reads it hands it to
    /// [`Engine::supply`].
    pub fn take_wants(&mut self) -> Vec<Want> {
        std::mem::take(&mut self.wants)
    }

    /// True if [`Engine::take_wants`] would answer something.
    pub fn has_wants(&self) -> bool {
        !self.wants.is_empty()
    }

    /// Takes what was read, and decides what waited for it.
    pub fn supply<J: Journal>(
        &mut self,
        now: Ms,
        found: Vec<Found>,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) {
        self.advance(now);
        let mut cx = Cx::new(journal, deliveries);
        for found in found {
            self.take_in(&mut cx, found);
        }
        self.sweep_expired(&mut cx);
        for Parked { caller, command } in std::mem::take(&mut self.parked) {
            let looks = match &command {
                Command::Take(take) => take.look,
                other => !matches!(other, Command::ReserveId { .. }),
            };
            let answer = self.decide_or_park(&mut cx, caller, command);
            if let Answer::Now(outcome, hold) = answer {
                self.deliver(&mut cx, caller.party, false, false, outcome, hold);
                if looks {
                    cx.only_looked();
                }
            }
        }
        self.sweep_expired(&mut cx);
        let stalled = std::mem::take(&mut self.stalled);
        let overdue = self.overdue.iter().map(|(number, _)| number);
        for number in stalled.iter().chain(overdue) {
            if let Some(waiter) = self.waiters.get(*number) {
                waiter.queues.iter().for_each(|&queue| cx.wake(queue));
            }
        }
        self.serve(&mut cx);
        self.end_overdue(&mut cx);
    }

    /// How cold messages stand.
    pub fn cold_stats(&self) -> ColdStats {
        self.store.cold_stats()
    }

    fn take_in<J: Journal>(&mut self, cx: &mut Cx<'_, J>, found: Found) {
        match found {
            Found::Block(at, messages) => {
                self.ringing.retain(|ringing| *ringing != at);
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
            Found::Id(id, places) => {
                let any = self.want_entries(&places);
                if !any {
                    self.forget_old_searches();
                    self.known.ids.insert(id);
                }
            }
            Found::Key(queue, key, places) => {
                let any = self.want_entries(&places);
                if !any {
                    self.forget_old_searches();
                    self.known.keys.insert((queue, key));
                }
                cx.wake(queue);
            }
        }
    }

    /// Asks for the stored blocks these living entries are in.
    fn want_entries(&mut self, places: &[(crate::cold::RunId, u32)]) -> bool {
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
        let known = &mut self.known;
        if known.epoch != epoch || known.ids.len() + known.keys.len() >= KNOWN_MAX {
            known.ids.clear();
            known.keys.clear();
            known.epoch = epoch;
        }
    }

    /// Asks for a block, unless somebody has.
    pub(crate) fn want(&mut self, at: BlockAt) {
        if let Some(number) = self.store.ask_for(at) {
            self.wants.push(Want::Block(at, number));
        }
    }

    /// Asks for what begins a lane, and some more to come.
    pub(crate) fn want_ahead(&mut self, queue: QueueId, lane: Lane) {
        let Some(cold) = self
            .store
            .queue(queue)
            .and_then(|queue| queue.cold.as_ref())
        else {
            return;
        };
        let blocks: SmallVec<[BlockAt; BLOCKS_AHEAD]> = cold
            .blocks(lane)
            .take(BLOCKS_AHEAD)
            .map(|&(_, at)| at)
            .collect();
        for at in blocks {
            self.want(at);
        }
    }

    /// True if the search for a message's companions is over.
    pub(crate) fn has_companions(&mut self, slot: u32) -> bool {
        let message = self.store.messages.at(slot);
        let (Some(key), queue) = (message.key(), message.queue) else {
            return true;
        };
        let cold = self
            .store
            .queue(queue)
            .and_then(|queue| queue.cold.as_ref());
        if cold.is_none_or(|cold| cold.sums.keyed == 0) {
            return true;
        }
        let search = (queue, key.clone());
        if self.known.epoch == self.store.cold.epoch && self.known.keys.contains(&search) {
            return true;
        }
        self.wants.push(Want::Key(search.0, search.1));
        false
    }

    /// Asks for the message, if it may be in a run and was not looked for.
    fn needs_id(&mut self, id: MessageId) -> bool {
        if !self.store.may_be_cold(id) {
            return false;
        }
        if self.known.epoch == self.store.cold.epoch && self.known.ids.contains(&id) {
            return false;
        }
        self.wants.push(Want::Id(id));
        true
    }

    /// Asks for what the command needs from runs; true if it must wait for it.
    fn needs<J: Journal>(&mut self, cx: &mut Cx<'_, J>, command: &Command) -> bool {
        match command {
            Command::Take(take) => {
                let queues = self.queues_of(take);
                !self.is_here(cx, take, &queues)
            }
            Command::Settle { id, .. }
            | Command::Delete { id, .. }
            | Command::ReserveId { id, .. }
            | Command::Peek(Peek::Id(id))
            | Command::KickId(id)
            | Command::Move { id, .. }
            | Command::Edit(id, _)
            | Command::Stats(StatsOf::Message(id)) => self.needs_id(*id),
            Command::Peek(Peek::Ready(name)) => self.needs_lane(name, Lane::Ready, None, 1),
            Command::Peek(Peek::Delayed(name)) => self.needs_lane(name, Lane::Delayed, None, 1),
            Command::Peek(Peek::Buried(name)) => self.needs_lane(name, Lane::Buried, None, 1),
            Command::Peek(Peek::List {
                queue,
                state,
                after,
                max,
            }) => {
                if let Some(after) = after
                    && self.needs_id(*after)
                {
                    return true;
                }
                let max = *max as usize;
                let after = after.and_then(|id| self.store.message(id));
                let order = |lane: Lane| after.map(|message| lane.order(message));
                match lanes_of(*state) {
                    [] => false,
                    &[lane] => self.needs_lane(queue, lane, order(lane), max),
                    // Those held back are listed behind all others.
                    _ => {
                        let from = order(Lane::Ready);
                        if after.is_some_and(|message| !message.selectable) {
                            return self.needs_lane(queue, Lane::HeldBack, from, max);
                        }
                        if self.needs_lane(queue, Lane::Ready, from, max) {
                            return true;
                        }
                        let ready = self
                            .store
                            .find(queue)
                            .map_or(0, |id| self.lane_slots(id, Lane::Ready, from, max).len());
                        ready < max && self.needs_lane(queue, Lane::HeldBack, None, max - ready)
                    }
                }
            }
            Command::Kick { queue, state, max } => {
                let max = usize::try_from(*max).unwrap_or(MANY).min(MANY);
                kicked_lane(*state).is_some_and(|lane| self.needs_lane(queue, lane, None, max))
            }
            Command::MoveAll {
                from, state, max, ..
            } => {
                let max = usize::try_from(*max).unwrap_or(MANY).min(MANY);
                let mut any = false;
                for &lane in lanes_of(*state) {
                    any |= self.needs_lane(from, lane, None, max);
                }
                any
            }
            Command::FlushExpired(_) => {
                self.ring_blocks();
                false
            }
            Command::Put(put) => self.needs_room([put]),
            Command::PutMany(puts) => self.needs_room(puts),
            Command::Compound(compound) => self.needs_for_compound(cx, compound),
            Command::SettleHeld { .. }
            | Command::Touch(_)
            | Command::Table(_)
            | Command::Watch(_)
            | Command::Rewatch(_)
            | Command::WatchQueue { .. }
            | Command::Refer { .. }
            | Command::StopWaiting
            | Command::Commit(_)
            | Command::Pause { .. }
            | Command::Configure { .. }
            | Command::Join { .. }
            | Command::Flush(_)
            | Command::FlushAll
            | Command::Drop(_)
            | Command::Remembered { .. }
            | Command::BurnId
            | Command::Restore(_)
            | Command::DropQueues { .. }
            | Command::Stats(_) => false,
        }
    }

    /// What its guards and effects are about, and what its command needs.
    pub(crate) fn needs_for_compound<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        compound: &Compound,
    ) -> bool {
        let mut any = false;
        for guard in &compound.guards {
            if let Guard::Message { id, .. } = guard {
                any |= self.needs_id(*id);
            }
        }
        let puts = compound.effects.iter().filter_map(|effect| match effect {
            Effect::Put(put) => Some(put),
            _ => None,
        });
        any |= self.needs_room(puts);
        for effect in &compound.effects {
            if let Some(id) = effect.message() {
                any |= self.needs_id(id);
            }
        }
        if let Some(then) = &compound.then
            && !matches!(**then, Command::Compound(_))
        {
            any |= self.needs(cx, then);
        }
        any
    }

    /// Asks for stored blocks until the first `count` messages of a lane
    /// behind `after` are in memory. True if some are not.
    fn needs_lane(
        &mut self,
        name: &crate::name::Name,
        lane: Lane,
        after: Option<Order>,
        count: usize,
    ) -> bool {
        let Some(id) = self.store.find(name) else {
            return false;
        };
        self.store.promote(id, self.now);
        let Some((bound, _)) = self.store.next_cold(id, lane, after) else {
            return false;
        };
        // Messages in memory before the first block, as many as count.
        let slots = self.lane_slots(id, lane, after, count);
        let last = slots
            .last()
            .map(|&slot| lane.order(self.store.messages.at(slot)));
        if slots.len() >= count && last.is_some_and(|last| last < bound) {
            return false;
        }
        let blocks: SmallVec<[BlockAt; BLOCKS_AHEAD]> = match after {
            None => self
                .store
                .queue(id)
                .and_then(|queue| queue.cold.as_ref())
                .map(|cold| {
                    cold.blocks(lane)
                        .take(BLOCKS_AHEAD)
                        .map(|&(_, at)| at)
                        .collect()
                })
                .unwrap_or_default(),
            Some(_) => self
                .store
                .next_cold(id, lane, after)
                .map(|(_, at)| at)
                .into_iter()
                .collect(),
        };
        for at in blocks {
            self.want(at);
        }
        true
    }

    /// Blocks in which something expires by now are read, so that it can.
    pub(crate) fn ring_blocks(&mut self) {
        while let Some(block) = self.store.next_ring(self.now) {
            self.ringing.push(block);
            self.want(block);
        }
    }

    /// A take that waits for a run and is told to wait no longer ends with
    /// what is there when the run was read.
    fn hurry(&mut self, caller: Caller) {
        for parked in &mut self.parked {
            if parked.caller.party == caller.party
                && let Command::Take(take) = &mut parked.command
            {
                take.wait = Wait::No;
            }
        }
    }

    /// A message in memory that is a copy of one in a run leaves the run
    /// before anything happens to it.
    pub(crate) fn thaw<J: Journal>(&mut self, cx: &mut Cx<'_, J>, fact: &Fact) {
        let (id, stays) = match fact {
            Fact::Removed { at, .. } => (at.id, false),
            Fact::Sent { at, .. } => (at.id, true),
            Fact::Leased { at, .. }
            | Fact::Released { at, .. }
            | Fact::Buried { at, .. }
            | Fact::Archived { at, .. }
            | Fact::Kicked { at }
            | Fact::Withheld { at, .. }
            | Fact::Moved { at, .. }
            | Fact::Edited { at, .. } => (at.id, true),
            _ => return,
        };
        self.thaw_one(id, stays, cx.journal);
    }

    /// The same for one message; if it `stays` in memory its image is
    /// recorded, since the log has none.
    pub(crate) fn thaw_one<J: Journal>(&mut self, id: MessageId, stays: bool, journal: &mut J) {
        let Some(slot) = self.store.slot(id) else {
            return;
        };
        let message = self.store.messages.at(slot);
        let Some(run) = message.home.run() else {
            return;
        };
        let thawed = Fact::Thawed {
            run,
            ordinal: message.ordinal,
            at: message.at(),
            bytes: message.body.len(),
            done: message.state == State::Done,
        };
        let image = stays.then(|| Fact::Image(message.clone(), None));
        self.note(journal, thawed);
        // It says what is here already.
        if let Some(image) = image {
            journal.record(&image);
        }
    }

    /// After a take of a message from a run: the next blocks are read before
    /// they are asked for.
    pub(crate) fn look_ahead(&mut self, id: QueueId) {
        let cold = self.store.queue(id).and_then(|queue| queue.cold.as_ref());
        if cold.is_some_and(|cold| cold.loaded.len() < BLOCKS_AHEAD / 2) {
            self.want_ahead(id, Lane::Ready);
        }
    }
}

/// The lanes a list of messages in this state goes through, in order.
fn lanes_of(state: ListState) -> &'static [Lane] {
    match state {
        ListState::Ready => &[Lane::Ready, Lane::HeldBack],
        ListState::Delayed => &[Lane::Delayed],
        ListState::Buried => &[Lane::Buried],
        ListState::Archived => &[Lane::Archived],
        ListState::Reserved | ListState::Prepared => &[],
    }
}

/// True if the command stores messages.
fn stores(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::PutMany(_) => true,
        Command::Compound(compound) => {
            compound
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Put(_)))
                || compound
                    .then
                    .as_deref()
                    .is_some_and(|then| matches!(then, Command::Put(_) | Command::PutMany(_)))
        }
        _ => false,
    }
}
