//! A take over queues of several shards.
//!
//! Shards are locked one at a time, so a take that spans them is a sequence of
//! steps, each done in one shard:
//!
//! 1. *held*: if what the caller holds matters, count it in every shard;
//! 2. *look* at the best message of each shard;
//! 3. *take* from the shard with the best one, if that shard still has one
//!    that is not worse than what the others showed; else look again, a
//!    bounded number of times, and then take the *first* there is;
//! 4. stand in *line* in each shard, looking once more under the same lock,
//!    so that no put is missed. All entries share a claim: the first shard
//!    that has something takes it and serves; to the others the entry is dead;
//! 5. *leave* the lines, if the answer came while standing in some of them.
//!
//! A take whose queues are all in one shard is asked there directly, unless
//! step 1 is needed.
//!
//! A subscription stands in every shard, those without a queue of it too: so
//! it keeps its place in line wherever its queues change to. Its steps begin
//! with *find*, which tells whether one stands already. If so its claim stays,
//! and the shards that the change has not come to serve it as it was.

use hashbrown::HashSet;
use smallvec::SmallVec;

use quintet_types::{
    Answer, ClientId, CommandError, Delivery, End, Hold, MessageId, Ms, Outcome, Pick, QueueId,
    Take, Wait, shard_of_queue,
};

use crate::claim::Claim;
use crate::decide::{COLD_WAIT_MS, Cold};
use crate::engine::{Cx, Engine};
use crate::fact::Journal;
use crate::step::{Call, Step};
use crate::store::Hash;
use crate::waiters::{Lines, Waiter};

/// How often the best message may be snatched away before any will do.
const LOOKS_MAX: u32 = 4;

/// A message as it compares with those of other shards. Places mean nothing
/// there, so the oldest is the one that was put first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardBest {
    /// The turn of its queue among those of the take, if these are asked in order.
    turn: usize,
    priority: u32,
    created: Ms,
    id: MessageId,
}

impl ShardBest {
    /// True if a take from this end would get the other one first.
    pub fn is_worse_than(self, other: ShardBest, end: End) -> bool {
        let age = (self.created, self.id).cmp(&(other.created, other.id));
        let age = match end {
            End::Oldest => age,
            End::Newest => age.reverse(),
        };
        let urgency = self
            .turn
            .cmp(&other.turn)
            .then(self.priority.cmp(&other.priority));
        urgency.then(age).is_gt()
    }
}

/// The next step; numbers are indexes into the list of shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Of all shards, the number itself.
    Held(usize),
    Find,
    Search(usize),
    Take(usize),
    First(usize),
    Line(usize),
    Leave(usize),
    Done,
}

/// A take on its way through the shards. Lock [`Across::shard`], do
/// [`Across::step`] there, unlock, until there is no next shard.
#[derive(Debug)]
pub struct Across {
    client_id: ClientId,
    take: Take,
    standing: bool,
    /// Nothing is done if no subscription is found.
    only_change: bool,
    /// Shards with queues of it, in order.
    shards: SmallVec<[usize; 4]>,
    count: usize,
    phase: Phase,
    claim: Claim,
    passes: u32,
    best: Option<(ShardBest, usize)>,
    /// The best one of the other shards.
    rival: Option<ShardBest>,
    held: usize,
    until: Option<Ms>,
    warn: Option<Ms>,
    /// A candidate is in a run and is being read.
    cold: bool,
}

impl Across {
    /// A take over `count` shards; `None` if one shard can decide it alone.
    pub fn new(client_id: ClientId, take: &Take, count: usize) -> Option<Self> {
        let shards = shards_of(take, count);
        let held = take.deadline_soon_ms.is_some() || take.held_anywhere && held_max(take) > 0;
        let phase = match shards.len() {
            0 => return None,
            _ if held => Phase::Held(0),
            1 => return None,
            _ => Phase::Search(0),
        };
        Some(Self::begin(client_id, take.clone(), shards, count, phase))
    }

    /// Sets the client's subscription, or changes it ([`Command::Watch`]).
    pub fn watch(client_id: ClientId, take: Take, count: usize) -> Self {
        let shards = shards_of(&take, count);
        let mut across = Self::begin(client_id, take, shards, count, Phase::Find);
        across.standing = true;
        across
    }

    /// Changes the client's subscription, if one stands
    /// ([`Command::Rewatch`]).
    pub fn rewatch(client_id: ClientId, take: Take, count: usize) -> Self {
        let mut across = Self::watch(client_id, take, count);
        across.only_change = true;
        across
    }

    fn begin(
        client_id: ClientId,
        take: Take,
        shards: SmallVec<[usize; 4]>,
        count: usize,
        phase: Phase,
    ) -> Self {
        Self {
            client_id,
            take,
            standing: false,
            only_change: false,
            shards,
            count,
            phase,
            claim: Claim::default(),
            passes: 0,
            best: None,
            rival: None,
            held: 0,
            until: None,
            warn: None,
            cold: false,
        }
    }

    /// The shard the next step is to be done in; `None`: all is done.
    pub fn shard(&self) -> Option<usize> {
        match self.phase {
            Phase::Done => None,
            Phase::Find => Some(0),
            Phase::Held(shard) => Some(shard),
            Phase::Line(at) | Phase::Leave(at) if self.standing => Some(at),
            Phase::Search(at)
            | Phase::Take(at)
            | Phase::First(at)
            | Phase::Line(at)
            | Phase::Leave(at) => self.shards.get(at).copied(),
        }
    }

    /// Does the next step in its shard. Answers once, in the step that found
    /// the answer; there may be steps after it.
    pub fn step<J: Journal>(
        &mut self,
        now: Ms,
        engine: &mut Engine,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Option<Answer> {
        engine.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        engine.remove_expired(&mut cx);
        let answer = match self.phase {
            Phase::Held(shard) => self.count_held(engine, shard),
            Phase::Find => self.find(engine),
            Phase::Search(at) => self.search(&mut cx, engine, at),
            Phase::Take(_) => self.take_best(&mut cx, engine),
            Phase::First(at) => self.take_first(&mut cx, engine, at),
            Phase::Line(at) => self.line(&mut cx, engine, at),
            Phase::Leave(at) => {
                if self.standing {
                    engine.unwatch(self.client_id);
                }
                engine.leave_lines(self.client_id);
                self.leave(at);
                None
            }
            Phase::Done => None,
        };
        engine.remove_expired(&mut cx);
        engine.serve(&mut cx);
        answer
    }

    fn answer(&mut self, outcome: Outcome, hold: Hold) -> Option<Answer> {
        self.phase = Phase::Done;
        Some(Answer::Now(outcome, hold))
    }

    fn refuse(&mut self, command_error: CommandError) -> Option<Answer> {
        self.answer(Outcome::Refused(command_error), Hold::Durable)
    }

    fn count_held(&mut self, engine: &Engine, shard: usize) -> Option<Answer> {
        self.held += engine.held_by(self.client_id);
        let warn = engine.warning(self.client_id, &self.take);
        self.warn = self.warn.into_iter().chain(warn).min();
        if shard + 1 < self.count {
            self.phase = Phase::Held(shard + 1);
            return None;
        }
        let max = held_max(&self.take) as usize;
        if self.take.held_anywhere && max > 0 && self.held >= max {
            return self.refuse(CommandError::HeldLimit);
        }
        self.phase = match self.shards.len() {
            1 => Phase::First(0),
            _ => Phase::Search(0),
        };
        None
    }

    fn find(&mut self, engine: &Engine) -> Option<Answer> {
        match engine.standing_claim(self.client_id) {
            Some(claim) => self.claim = claim,
            None if self.only_change => return self.stood(),
            None => {}
        }
        self.phase = match self.shards.len() {
            0 => Phase::Line(0),
            _ => Phase::Search(0),
        };
        None
    }

    fn search<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
        at: usize,
    ) -> Option<Answer> {
        if let Err(command_error) = self.may_take(engine) {
            return self.refuse(command_error);
        }
        if at == 0 {
            (self.best, self.rival) = (None, None);
        }
        let found = self.best_of(cx, engine);
        if found.is_none() && self.passes == 0 && !self.standing {
            engine.count_miss(&self.take);
        }
        if let Some(found) = found {
            let before = self.best.map(|(best, _)| best);
            if before.is_none_or(|before| before.is_worse_than(found, self.take.end)) {
                self.best = Some((found, at));
                self.rival = before;
            } else if (self.rival).is_none_or(|rival| rival.is_worse_than(found, self.take.end)) {
                self.rival = Some(found);
            }
        }
        if at + 1 < self.shards.len() {
            self.phase = Phase::Search(at + 1);
            return None;
        }
        match self.best {
            Some((_, best)) => {
                self.phase = Phase::Take(best);
                None
            }
            None => self.wait(engine),
        }
    }

    fn take_best<J: Journal>(&mut self, cx: &mut Cx<'_, J>, engine: &mut Engine) -> Option<Answer> {
        let found = self.best_of(cx, engine);
        let end = self.take.end;
        let good = found.is_some_and(|found| {
            self.rival
                .is_none_or(|rival| !found.is_worse_than(rival, end))
        });
        if good && let Some(answer) = self.take_here(cx, engine) {
            return Some(answer);
        }
        self.passes += 1;
        self.phase = match self.passes {
            LOOKS_MAX => Phase::First(0),
            _ => Phase::Search(0),
        };
        None
    }

    fn take_first<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
        at: usize,
    ) -> Option<Answer> {
        if let Some(answer) = self.take_here(cx, engine) {
            return Some(answer);
        }
        if self.passes == 0 && !self.standing {
            engine.count_miss(&self.take);
        }
        if at + 1 < self.shards.len() {
            self.phase = Phase::First(at + 1);
            return None;
        }
        self.wait(engine)
    }

    /// Takes from this shard, if it has anything.
    fn take_here<J: Journal>(&mut self, cx: &mut Cx<'_, J>, engine: &mut Engine) -> Option<Answer> {
        if let Err(command_error) = self.may_take(engine) {
            return self.refuse(command_error);
        }
        let queues = engine.queues_of(&self.take);
        if self.standing {
            if !self.would_take(cx, engine, &queues) {
                return None;
            }
            return self.serve_standing(cx, engine, &queues);
        }
        let taken = engine.take_now(cx, self.client_id, &self.take, &queues);
        self.cold |= taken.is_err();
        let (outcome, hold) = taken.ok()??;
        self.answer(outcome, hold)
    }

    /// The best message for it here, unless something has to be read first.
    fn best_of<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
    ) -> Option<ShardBest> {
        let best = engine.best_of(cx, &self.take);
        self.cold |= best.is_err();
        best.ok()?
    }

    /// True if there is something for it here, and nothing has to be read first.
    fn would_take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
        queues: &[QueueId],
    ) -> bool {
        let found = engine.would_take(cx, &self.take, queues);
        self.cold |= found.is_err();
        matches!(found, Ok(Some(_)))
    }

    /// A subscription waits for what it may not take now.
    fn may_take(&self, engine: &Engine) -> Result<(), CommandError> {
        match self.standing {
            true => Ok(()),
            false => engine.may_take(self.client_id, &self.take, &engine.queues_of(&self.take)),
        }
    }

    /// This shard has something for the subscription: delivers it, unless
    /// another has served it meanwhile.
    fn serve_standing<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
        queues: &[QueueId],
    ) -> Option<Answer> {
        if !self.claim.take() {
            return self.stood();
        }
        let taken = engine.take_now(cx, self.client_id, &self.take, queues);
        if let Ok(Some((outcome, hold))) = taken {
            engine.deliver(cx, self.client_id, true, false, outcome, hold);
        }
        self.leave(self.count);
        Some(Answer::Now(Outcome::Done, Hold::Turn))
    }

    /// Nothing is left to do for a subscription.
    fn stood(&mut self) -> Option<Answer> {
        self.answer(Outcome::Done, Hold::Turn)
    }

    /// Nothing was found: stand in line, if the take waits.
    fn wait(&mut self, engine: &Engine) -> Option<Answer> {
        let now = engine.now();
        if self.standing {
            self.phase = Phase::Line(0);
            return None;
        }
        if self.warn.is_some_and(|at| at <= now) {
            return self.answer(Outcome::DeadlineSoon, Hold::Turn);
        }
        self.until = match self.take.wait {
            // It is given what is being read, and a bound in case others get it.
            Wait::No | Wait::For(0) if self.cold => Some(now + COLD_WAIT_MS),
            Wait::No | Wait::For(0) => return self.answer(Outcome::Empty, Hold::Turn),
            Wait::Until(at) if at <= now => return self.answer(Outcome::Empty, Hold::Turn),
            Wait::For(ms) => Some(engine.after(ms)),
            Wait::Until(at) => Some(at),
            Wait::Forever => None,
        };
        self.phase = Phase::Line(0);
        None
    }

    /// Stands in line in one more shard, or ends the wait there.
    fn line<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        engine: &mut Engine,
        at: usize,
    ) -> Option<Answer> {
        if self.claim.is_taken() {
            // A shard that was entered before has served it meanwhile.
            return self.next_line(at);
        }
        let queues = engine.queues_of(&self.take);
        let found = engine.would_take(cx, &self.take, &queues);
        let reads = found.is_err();
        if let Ok(Some(_)) = found {
            if self.standing {
                return self.serve_standing(cx, engine, &queues);
            }
            if !self.claim.take() {
                return self.next_line(at);
            }
            let taken = engine.take_now(cx, self.client_id, &self.take, &queues);
            let taken = taken.ok().flatten();
            let (outcome, hold) = taken.unwrap_or((Outcome::Empty, Hold::Turn));
            self.leave(at);
            return Some(Answer::Now(outcome, hold));
        }
        if let Err(command_error) = self.stand_in_line(engine, reads)
            && self.claim.take()
        {
            self.leave(if self.standing { self.count } else { at });
            return Some(Answer::Now(Outcome::Refused(command_error), Hold::Durable));
        }
        self.next_line(at)
    }

    fn stand_in_line(&self, engine: &mut Engine, reads: bool) -> Result<(), CommandError> {
        let (client_id, take) = (self.client_id, self.take.clone());
        if self.standing {
            engine.drop_dead_standing(client_id);
            return engine.stand_or_change(
                Call::SERVER,
                client_id,
                take,
                Some(self.claim.clone()),
                reads,
            );
        }
        let waiter = Waiter {
            client_id,
            standing: false,
            take,
            queues: SmallVec::new(),
            until: self.until,
            warn: self.warn,
            claim: (self.shards.len() > 1).then(|| self.claim.clone()),
        };
        engine.stand_in_line(Call::SERVER, waiter, reads)
    }

    fn next_line(&mut self, at: usize) -> Option<Answer> {
        let lines = match self.standing {
            true => self.count,
            false => self.shards.len(),
        };
        if at + 1 < lines && !self.claim.is_taken() {
            self.phase = Phase::Line(at + 1);
            return None;
        }
        self.phase = Phase::Done;
        Some(match self.standing {
            true => Answer::Now(Outcome::Done, Hold::Turn),
            false => Answer::Later,
        })
    }

    /// The only step left is to leave the lines of the first `count` shards.
    fn leave(&mut self, count: usize) {
        self.phase = match count {
            0 => Phase::Done,
            count => Phase::Leave(count - 1),
        };
    }
}

/// The shards with queues of the take, in order.
fn shards_of(take: &Take, count: usize) -> SmallVec<[usize; 4]> {
    let mut shards: SmallVec<[usize; 4]> = SmallVec::new();
    for name in &take.queues {
        let shard = shard_of_queue(name.as_bytes(), count);
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }
    shards.sort_unstable();
    shards
}

/// The limit on leases the caller may hold for this take; 0: none.
fn held_max(take: &Take) -> u32 {
    take.lease
        .map_or(take.refuse_if_held, |lease| lease.held_max)
}

impl Engine {
    /// Drops the client's places in line for takes that another shard has
    /// ended. For a caller that gets a [`Delivery`] that says it is `claimed`.
    pub fn leave_lines(&mut self, client_id: ClientId) {
        for number in self.waiters.served_elsewhere(client_id) {
            self.drop_waiter(number);
        }
    }

    /// Takes a waiter out of its lines, for nothing.
    pub(crate) fn drop_waiter(&mut self, number: u64) {
        if let Some(waiter) = self.waiters.remove(number, &mut self.store) {
            for queue in waiter.queues {
                self.forget_unused(queue);
            }
        }
    }

    /// The claim of the client's subscription, if it still stands.
    fn standing_claim(&self, client_id: ClientId) -> Option<Claim> {
        let waiter = self.waiters.get(self.waiters.of(client_id, true)?)?;
        waiter.claim.clone().filter(|claim| !claim.is_taken())
    }

    /// Drops a subscription of the client's that another shard has served,
    /// whose delivery is on its way.
    fn drop_dead_standing(&mut self, client_id: ClientId) {
        if let Some(number) = self.waiters.of(client_id, true)
            && let Some(waiter) = self.waiters.get(number)
            && waiter.claim.as_ref().is_some_and(Claim::is_taken)
        {
            self.drop_waiter(number);
        }
    }

    /// Leases the client holds in this shard.
    fn held_by(&self, client_id: ClientId) -> usize {
        self.store.held_by(client_id)
    }

    /// Those of the take's queues that exist here.
    #[inline]
    pub(crate) fn queues_of(&self, take: &Take) -> Lines {
        if let [name] = &take.queues[..] {
            // Most takes, on the hot path.
            return match self.store.find(name) {
                Some(queue) => Lines::from_elem(queue, 1),
                None => Lines::new(),
            };
        }
        let found = take.queues.iter().filter_map(|name| self.store.find(name));
        let mut queues: Lines = found.collect();
        if queues.len() > 1 {
            if take.pick == Pick::InOrder {
                return in_order(queues);
            }
            queues.sort_unstable();
            queues.dedup();
        }
        queues
    }

    fn count_miss(&mut self, take: &Take) {
        let queues = self.queues_of(take);
        self.count_misses(&queues);
    }

    /// The message this take would get here, as it compares with those of
    /// other shards.
    ///
    /// Changes by time alone (expiry) may be recorded.
    pub fn best_for<J: Journal>(
        &mut self,
        now: Ms,
        take: &Take,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Option<ShardBest> {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        let best = self.best_of(&mut cx, take);
        self.serve(&mut cx);
        best.ok()?
    }

    fn best_of<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
    ) -> Result<Option<ShardBest>, Cold> {
        let queues = self.queues_of(take);
        let Some(message) = self.would_take(cx, take, &queues)? else {
            return Ok(None);
        };
        let (queue, created, id, order) =
            (message.queue, message.created, message.id, message.order());
        let (priority, ..) = self.risen(queue, order);
        let turn = match take.pick {
            Pick::Best => 0,
            Pick::InOrder => {
                let name = &self.store.expect_queue(queue).name;
                let turn = take.queues.iter().position(|other| other == name);
                turn.unwrap_or(take.queues.len())
            }
        };
        Ok(Some(ShardBest {
            turn,
            priority,
            created,
            id,
        }))
    }
}

/// Each once, where it is first named.
fn in_order(queues: Lines) -> Lines {
    let mut seen: HashSet<QueueId, Hash> = HashSet::default();
    queues
        .into_iter()
        .filter(|&queue| seen.insert(queue))
        .collect()
}
