//! The engine, its log in segments, and the model beside them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quintet_engine::*;
use quintet_sim::model::Model;
use quintet_types::*;

use super::ops::{LeaseChoice, On, Op};
use super::properties::{Asked, Properties};
use super::runs::Runs;

pub(crate) type Checked = Result<(), TestCaseError>;

/// A segment of the log: groups of facts, one a step, with the epoch of each.
#[derive(Default)]
pub(super) struct Segment {
    pub(super) segment_ref: SegmentRef,
    groups: Vec<(u64, Vec<Fact>)>,
}

/// Everything, and a clock that only the steps move.
pub(crate) struct World {
    pub(super) core: quintet_sim::world::World,
    /// `None`: the rules are checked on what the engine shows.
    model: Option<Model>,
    properties: Properties,
    wall: WallAhead,
    pub(super) log: Vec<Segment>,
    /// How often each of the clients was replaced.
    client_numbers: [u64; 3],
    /// Messages that removing takes handed out, as each side knows them.
    taken: Vec<(Vec<Message>, Vec<Message>)>,
    copied_from: u32,
    retired: bool,
    pub(super) runs: Runs,
    /// Chosen to leave memory, not yet written.
    pub(super) picked: Vec<Picked>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            model: Some(Model::new(settings.clone())),
            properties: Properties::default(),
            wall: WallAhead::default(),
            core: quintet_sim::world::World::with(settings),
            log: vec![Segment::default()],
            client_numbers: [1; 3],
            taken: Vec::new(),
            copied_from: 0,
            retired: false,
            runs: Runs::default(),
            picked: Vec::new(),
        }
    }

    /// One that no model follows.
    pub(crate) fn observed(mut settings: Settings) -> Self {
        // No image has what is in memory queues.
        settings.defaults.memory = false;
        for (_, rule) in &mut settings.rules {
            rule.memory = None;
        }
        let mut world = Self::new(settings);
        world.model = None;
        world
    }

    /// Steps, none of which disagrees.
    ///
    /// # Panics
    /// One does.
    pub(crate) fn agree(mut self, ops: impl IntoIterator<Item = Op>) {
        for op in ops {
            self.step(op).expect("agreed");
        }
    }

    /// Messages that there are.
    fn ids(&self) -> Vec<MessageId> {
        match &self.model {
            Some(model) => model.items.iter().map(|item| item.message.id).collect(),
            None => self.properties.ids(),
        }
    }

    /// One step, on both sides, and everything compared.
    pub(crate) fn step(&mut self, op: Op) -> Checked {
        match op {
            Op::ClientRequest(slot, command) => self.ask(slot, command)?,
            Op::On(slot, pick, on) => {
                let mut ids = self.ids();
                if let On::Result = on {
                    ids.extend(self.properties.ended());
                }
                let id = if ids.is_empty() || pick % 16 == 0 {
                    MessageId(u64::from(pick % 7))
                } else {
                    ids[usize::from(pick) % ids.len()]
                };
                let command = match on {
                    On::Shown(shown, on) => self.by_lease(id, shown, on.command(id)),
                    on => on.command(id),
                };
                self.ask(slot, command)?;
            }
            Op::Restore => self.restore()?,
            Op::Pass(ms) => self.pass(ms)?,
            Op::SetWall(ms) => self.set_wall(WallAhead(ms)),
            // Those who wait are served by the tick; a server never lets a
            // command overtake it while it has any.
            // What expires in a run is read by the tick too.
            Op::Lag(ms) if self.may_lag() => self.core.now = self.core.now + ms,
            Op::Lag(ms) => self.pass(ms)?,
            Op::HangUp(slot) => self.hang_up(slot),
            Op::Restart => self.restart()?,
            Op::Segment => self.begin_segment(),
            Op::Copy(slots) => self.copy_out(slots),
            Op::Evict(..) | Op::Pick(_) if self.is_all_hot() => {}
            Op::Evict(bytes, size) => self.evict(bytes, size),
            Op::Pick(bytes) => self.pick(bytes),
            Op::Rewrite(keep) => {
                self.rewrite(keep);
                self.pass(0)?;
            }
            Op::Unload(keep) => self.unload(keep),
        }
        // A segment that was begun goes on, by a queue or so.
        self.core.engine.restate(300, &mut self.core.facts);
        self.record_all();
        self.read_runs()?;
        match self.model {
            Some(_) => self.compare(),
            None => self.settle(),
        }
    }

    fn may_lag(&self) -> bool {
        let waits = self
            .model
            .as_ref()
            .is_none_or(|model| !model.nobody_waits());
        !waits && self.runs.is_empty()
    }

    /// Where many make way for one put, some may do so late if they are in a
    /// run, and a queue rests only when its last message was read; the model
    /// does not know of either.
    fn is_all_hot(&self) -> bool {
        let settings = &self.core.settings;
        let few = settings.defaults.idle_ms < 10_000 || settings.queues_max < 10;
        self.model.is_some() && few
    }

    fn client_id(&self, slot: u8) -> ClientId {
        ClientId(self.client_numbers[usize::from(slot)] * 10 + u64::from(slot))
    }

    fn ask(&mut self, slot: u8, mut command: Command) -> Checked {
        let client_id = self.client_id(slot);
        if self.model.is_none() {
            return self.ask_observed(client_id, command);
        }
        if !is_foretold(&mut command) {
            return Ok(());
        }
        let removes = removes(&command);
        let expected = self.foretell(client_id, command.clone());
        let mut outcome = self.submit(client_id, command);
        self.read_runs()?;
        if outcome.is_none() && expected.is_some() {
            outcome = self.parked(client_id);
        }
        let both = (outcome, expected);
        if let (Some(Outcome::Messages(ours)), Some(Outcome::Messages(theirs))) = &both
            && removes
        {
            self.taken.push((ours.to_vec(), theirs.to_vec()));
        }
        let (outcome, expected) = (both.0.map(|o| self.plain(o)), both.1.map(|o| self.plain(o)));
        prop_assert_eq!(outcome, expected, "the outcome (model on the right)");
        Ok(())
    }

    /// The outcome in the model; `None`: it waits, or there is no model.
    fn foretell(&mut self, client_id: ClientId, command: Command) -> Option<Outcome> {
        let model = self.model.as_mut()?;
        model.submit(self.core.now, client_id, command)
    }

    /// A command of which the rules are checked.
    fn ask_observed(&mut self, client_id: ClientId, mut command: Command) -> Checked {
        let alone = self.core.settings.defaults.key_in_flight_max > 0;
        self.pick_batches(&mut command);
        self.pick_parents(&mut command);
        take_whatever_comes(&mut command, alone);
        let mut outcome = self.submit(client_id, command.clone());
        let at_once = outcome.is_some();
        self.read_runs()?;
        if !at_once {
            outcome = self.parked(client_id);
        }
        if let Some(Outcome::Messages(messages)) = &outcome
            && removes(&command)
        {
            self.taken.push((messages.to_vec(), Vec::new()));
        }
        self.observe(Some(Asked {
            command: &command,
            outcome: outcome.as_ref(),
            at_once,
        }))
    }

    /// The rules, after a step of the engine.
    fn observe(&mut self, asked: Option<Asked<'_>>) -> Checked {
        if self.model.is_some() {
            return Ok(());
        }
        let deliveries = std::mem::take(&mut self.core.deliveries);
        self.properties
            .step(&self.core, &self.runs, asked, &deliveries)
    }

    /// The rules when all has been done that is due.
    fn settle(&mut self) -> Checked {
        prop_assert_eq!(self.core.engine.verify(), Ok(()));
        self.observe(None)?;
        if self.core.engine.next_deadline() <= self.core.now {
            self.tick_at(self.core.now)?;
        }
        let queues = self.queue_stats()?.into_iter();
        let waiters = queues.map(|queue| (queue.name, queue.gauges.waiters));
        let waiters: BTreeMap<Name, u64> = waiters.collect();
        self.properties.settled(&self.core, &waiters)
    }

    /// A batch is picked by how many were made after it.
    fn pick_batches(&self, command: &mut Command) {
        let made = self.properties.batches();
        let pick = |id: &mut BatchId| {
            let picked = made.iter().rev().nth(id.0 as usize);
            *id = picked.copied().unwrap_or(*id);
        };
        let join = |put: &mut Put| {
            let more = put.more.as_mut();
            if let Some(tie) = more.and_then(|more| more.batch.as_mut()) {
                pick(&mut tie.batch);
            }
        };
        match command {
            Command::Put(put) => join(put),
            Command::PutMany(puts) => puts.iter_mut().for_each(join),
            Command::Batch(BatchRequest::New(new)) => new.parent.iter_mut().for_each(pick),
            Command::Batch(
                BatchRequest::Open(id)
                | BatchRequest::Commit(id)
                | BatchRequest::Show(id)
                | BatchRequest::Forget(id),
            ) => pick(id),
            _ => {}
        }
    }

    /// A parent is picked by how many messages were put after it.
    fn pick_parents(&self, command: &mut Command) {
        let puts = match command {
            Command::Put(put) => std::slice::from_mut(put),
            Command::PutMany(puts) => puts,
            _ => return,
        };
        let all = self.ids();
        let afters = puts.iter_mut().filter_map(|put| put.more.as_mut());
        for after in afters.filter_map(|more| more.after.as_mut()) {
            for id in &mut after.ids {
                let picked = all.iter().rev().cycle().nth(id.0 as usize);
                *id = picked.copied().unwrap_or(MessageId(1 << 40));
            }
        }
    }

    fn submit(&mut self, client_id: ClientId, command: Command) -> Option<Outcome> {
        let caller = Caller {
            client_id,
            principal: Principal(0),
        };
        let answer = self.core.submit(caller, command);
        self.record_all();
        match answer {
            Answer::Now(outcome, _) => Some(outcome),
            Answer::Later => None,
        }
    }

    /// The facts of the last step.
    fn record_all(&mut self) {
        let group = std::mem::take(&mut self.core.facts);
        self.record(group);
    }

    pub(super) fn record(&mut self, group: Vec<Fact>) {
        if self.model.is_none() {
            self.properties.note(&group);
        }
        if let (Some(segment), false) = (self.log.last_mut(), group.is_empty()) {
            segment.groups.push((self.core.engine.epoch(), group));
        }
    }

    fn restore(&mut self) -> Checked {
        let Some((ours, theirs)) = self.taken.pop() else {
            return Ok(());
        };
        let outcome = self.submit(ClientId(99), Command::Restore(ours));
        if self.model.is_some() {
            let expected = self.foretell(ClientId(99), Command::Restore(theirs));
            prop_assert_eq!(outcome, expected);
        }
        Ok(())
    }

    fn set_wall(&mut self, ahead: WallAhead) {
        self.wall = ahead;
        if let Some(model) = &mut self.model {
            model.wall_ahead = ahead;
        }
        self.core.engine.set_wall_ahead(ahead);
    }

    /// Time passes. With something in runs the clock stops at each deadline, as
    /// a server's timer does: in a tick that comes late, who waits for a read may
    /// be served after what expires into its queue from a run, or before.
    fn pass(&mut self, ms: u64) -> Checked {
        let end = self.core.now + ms;
        loop {
            // What is due already (a first look for idle queues, say) comes
            // before time goes on.
            let next = self.core.engine.next_deadline().max(self.core.now);
            if self.runs.is_empty() || next >= end {
                break;
            }
            self.tick_at(next)?;
        }
        self.tick_at(end)
    }

    fn tick_at(&mut self, now: Ms) -> Checked {
        self.core.now = now;
        if self.model.is_some() {
            let late = self.expired_in_runs();
            if let Some(model) = &mut self.model {
                model.tick(now, &late);
            }
        }
        for round in 0.. {
            self.core.tick();
            self.record_all();
            self.read_runs()?;
            self.observe(None)?;
            if self.core.engine.next_deadline() > self.core.now {
                return Ok(());
            }
            prop_assert!(round < 1000, "the next deadline stays in the past");
        }
        Ok(())
    }

    fn hang_up(&mut self, slot: u8) {
        let client_id = self.client_id(slot);
        self.client_numbers[usize::from(slot)] += 1;
        self.core.disconnect(client_id);
        self.record_all();
        if let Some(model) = &mut self.model {
            model.disconnect(self.core.now, client_id);
        }
    }

    fn begin_segment(&mut self) {
        let segment_ref =
            SegmentRef(self.log.last().map_or(0, |segment| segment.segment_ref.0) + 1);
        // The one before is whole first.
        self.core.engine.restate(u64::MAX, &mut self.core.facts);
        self.record_all();
        let mut group = Vec::new();
        self.core.engine.begin_segment(segment_ref, &mut group);
        self.log.push(Segment {
            segment_ref,
            groups: vec![(self.core.engine.epoch(), group)],
        });
    }

    /// Copies a slice of the oldest segment, and lets it go when all is.
    fn copy_out(&mut self, slots: u32) {
        if self.log.len() < 2 {
            return;
        }
        let segment_ref = self.log[0].segment_ref;
        let mut group = Vec::new();
        let copied = self
            .core
            .engine
            .copy_out(segment_ref, self.copied_from, slots, &mut group);
        self.record(group);
        self.copied_from = copied.next.unwrap_or(0);
        if copied.next.is_none() && self.core.engine.segment_refs_live(segment_ref) == 0 {
            self.log.remove(0);
            self.retired = true;
        }
    }

    /// An engine made from what is left of the log, looked at after each fact.
    fn replayed(&self) -> Result<Engine, TestCaseError> {
        let mut engine = self.core.fresh();
        engine.set_wall_ahead(self.wall);
        for segment in &self.log {
            engine.set_segment_ref(segment.segment_ref);
            let groups = segment.groups.iter();
            for (epoch, fact) in
                groups.flat_map(|(epoch, facts)| facts.iter().map(move |fact| (epoch, fact)))
            {
                engine.replays_epoch(*epoch);
                let mut bytes = Vec::new();
                fact.encode(&mut bytes);
                let mut rest = bytes.as_slice();
                let again = Fact::decode(&mut rest, &mut |id, len| LargeBody::new(id, len, 0));
                prop_assert!(rest.is_empty());
                engine.replay(again.expect("encoded by us"), segment.segment_ref);
                if let Err(text) = engine.verify() {
                    return Err(TestCaseError::fail(format!(
                        "{text} after replay of {fact:?}"
                    )));
                }
            }
        }
        Ok(engine)
    }

    fn restart(&mut self) -> Checked {
        let mut engine = self.replayed()?;
        prop_assert_eq!(
            comparable(engine.image(), self.core.now),
            comparable(self.core.engine.image(), self.core.now),
            "the image after replay (before on the right)"
        );
        let mut group = Vec::new();
        if self.core.engine.is_restating() {
            // As each start, which makes whole what a segment began with.
            engine.snapshot(&mut |fact| group.push(fact.clone()));
        }
        engine.begin_epoch(self.core.now, engine.epoch() + 1, [7; 16], &mut group);
        self.core.engine = engine;
        self.record(group);
        if let Some(model) = &mut self.model {
            model.restart(self.core.now, self.retired);
        }
        self.properties.restarted();
        self.core.deliveries.clear();
        self.taken.clear();
        self.client_numbers = self.client_numbers.map(|slot| slot + 1);
        self.copied_from = 0;
        self.picked.clear();
        // What is due in runs is read by the tick that a start begins with, and what has
        // happened to batches said.
        match self.runs.is_empty() && self.model.is_some() {
            true => Ok(()),
            false => self.pass(0),
        }
    }

    /// A log cut after any group still gives a sound engine that can begin.
    pub(crate) fn check_every_cut(&self) -> Checked {
        let groups: Vec<(SegmentRef, &(u64, Vec<Fact>))> = self
            .log
            .iter()
            .flat_map(|segment| {
                segment
                    .groups
                    .iter()
                    .map(|group| (segment.segment_ref, group))
            })
            .collect();
        for cut in (0..=groups.len()).rev().step_by(groups.len() / 8 + 1) {
            let mut engine = self.core.fresh();
            for (segment_ref, (epoch, group)) in &groups[..cut] {
                engine.replays_epoch(*epoch);
                for fact in group {
                    engine.replay(fact.clone(), *segment_ref);
                }
            }
            let (mut facts, mut deliveries) = (Vec::new(), Vec::new());
            engine.begin_epoch(self.core.now, 1000, [7; 16], &mut facts);
            engine.tick(self.core.now + 100, &mut facts, &mut deliveries);
            prop_assert_eq!(engine.verify(), Ok(()), "cut after {} groups", cut);
        }
        Ok(())
    }

    fn compare(&mut self) -> Checked {
        prop_assert_eq!(self.core.engine.verify(), Ok(()));
        // Looking does what is due, so it is done to both.
        self.foretell(ClientId(99), Command::Stats(StatsOf::Shard));
        self.submit(ClientId(99), Command::Stats(StatsOf::Shard));
        let ours = self.core.deliveries.split_off(0);
        let mut ours: Vec<_> = ours
            .into_iter()
            .map(|d| (d.to, d.standing, self.plain(d.outcome)))
            .collect();
        let model = self.model.as_mut().map(|model| &mut model.deliveries);
        let theirs = model.map(std::mem::take).unwrap_or_default();
        let mut theirs: Vec<_> = theirs
            .into_iter()
            .map(|(p, s, o)| (p, s, self.plain(o)))
            .collect();
        // A client with two waits at once is told of both in either order.
        ours.sort_by_cached_key(|delivery| (delivery.0, delivery.1, format!("{:?}", delivery.2)));
        theirs.sort_by_cached_key(|delivery| (delivery.0, delivery.1, format!("{:?}", delivery.2)));
        prop_assert_eq!(ours, theirs, "deliveries (model on the right)");

        let mut ours: Vec<_> = self
            .queue_stats()?
            .into_iter()
            .map(|queue| {
                // The model has no runs.
                let gauges = QueueGauges {
                    cold: 0,
                    ..queue.gauges
                };
                (queue.name, gauges, self.counted(queue.totals))
            })
            .collect();
        let Some(model) = &self.model else {
            return Ok(());
        };
        let there = model.queues.iter().filter(|queue| !queue.dropped);
        let mut theirs: Vec<_> = there
            .map(|queue| {
                let gauges = model.gauges(queue.number);
                (queue.name.clone(), gauges, self.counted(queue.totals))
            })
            .collect();
        ours.sort_by(|a, b| a.0.cmp(&b.0));
        theirs.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(ours, theirs, "queues (model on the right)");
        self.compare_messages(model)
    }

    fn queue_stats(&mut self) -> Result<Vec<QueueStats>, TestCaseError> {
        let from = (0, 0);
        let stats = self.submit(ClientId(99), Command::Stats(StatsOf::Queues { from }));
        let Some(Outcome::Stats(stats)) = stats else {
            return Err(TestCaseError::fail("no numbers"));
        };
        match *stats {
            StatsReply::Queues(page) => Ok(page.queues),
            _ => Err(TestCaseError::fail("other numbers")),
        }
    }

    fn compare_messages(&self, model: &Model) -> Checked {
        let mut ours = Vec::new();
        for fact in self.core.engine.image() {
            if let Fact::Image(message, lease) = fact {
                let name = self.core.engine.queue_name(message.queue);
                let lease = lease.map(|lease| (lease.bound, lease.until));
                ours.push((message.id, name, self.plain_message(message), lease));
            } else if let Fact::RunImage { run, block, dead } = fact {
                for message in self.runs.living(run, &block, dead.as_deref()) {
                    let name = self.core.engine.queue_name(block.queue);
                    ours.push((message.id, name, self.plain_message(message), None));
                }
            }
        }
        ours.sort_by_key(|message| message.0);
        let mut theirs = Vec::new();
        for item in &model.items {
            let queue = model.queue(item.message.queue);
            if queue.dropped || model.settings_of(queue.number).memory {
                continue;
            }
            let message = self.plain_message(item.message.clone());
            let lease = item.lease.as_ref().map(|lease| (lease.bound, lease.until));
            theirs.push((message.id, queue.name.clone(), message, lease));
        }
        theirs.sort_by_key(|message| message.0);
        prop_assert_eq!(ours, theirs, "messages (model on the right)");
        Ok(())
    }

    /// Without the numbers that the model does not keep.
    fn counted(&self, totals: QueueTotals) -> QueueTotals {
        QueueTotals {
            peeks: 0,
            misses: 0,
            skipped: 0,
            refused_full: 0,
            repeats: 0,
            pauses: 0,
            delete_commands: 0,
            ..totals
        }
    }

    fn plain(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Messages(messages) => Outcome::Messages(
                messages
                    .into_iter()
                    .map(|m| self.plain_message(m))
                    .collect(),
            ),
            Outcome::BulkDone(mut done) => {
                let messages = std::mem::take(&mut done.messages).into_iter();
                done.messages = messages.map(|m| self.plain_message(m)).collect();
                // The model's leases have another form.
                done.leases.clear();
                // Turns of buried messages are the engine's to know.
                done.next = done.next.map(|next| Cursor {
                    order: (0, 0, next.order.2),
                    ..next
                });
                Outcome::BulkDone(done)
            }
            other => other,
        }
    }

    /// The command with the right of a client that shows this lease of its message.
    fn by_lease(&self, id: MessageId, shown: LeaseChoice, mut command: Command) -> Command {
        let own = match &self.model {
            Some(model) => {
                let mut messages = model.items.iter().map(|item| &item.message);
                messages.find(|message| message.id == id)
            }
            None => self.properties.message(id),
        };
        let lease = By::Lease(LeaseRef {
            position: own.map_or(0, |message| message.position),
            number: own
                .map_or(0, |message| message.reserves)
                .wrapping_sub(shown.earlier),
            epoch: self.core.engine.epoch() + u64::from(shown.other_epoch),
            over: shown.over,
        });
        if let Command::Settle { by, .. }
        | Command::Extend { by, .. }
        | Command::Delete { by, .. } = &mut command
        {
            *by = lease;
        }
        command
    }

    fn plain_message(&self, mut message: Message) -> Message {
        message.queue = QueueId(0);
        (message.segment_ref, message.generation, message.ordinal) = (SegmentRef(0), 0, 0);
        let now = self.core.now;
        let extra = message.extra_mut();
        (extra.bury_order, extra.changed) = (0, Ms(0));
        extra.due = extra.due.filter(|&due| due > now);
        message
    }
}

/// False for a command that the model knows nothing of. Of a put it knows neither batch nor
/// parents, and tracks nothing; keys mean nothing in its queues.
fn is_foretold(command: &mut Command) -> bool {
    use NamedAction::{SettleHolding, Track};
    let keyless = |own: &mut Overrides| {
        (own.groups, own.key_in_flight_max) = (None, None);
        (own.key_take_rate, own.key_take_burst) = (None, None);
    };
    let plain = |put: &mut Put| {
        if let Some(more) = &mut put.more {
            (more.batch, more.tracked, more.after) = (None, false, None);
        }
    };
    match command {
        Command::Batch(_)
        | Command::Hold { key: Some(_), .. }
        | Command::SettleHolding {
            hold: Holding::Key(_),
            ..
        } => return false,
        Command::ByName(by_name) => {
            let unknown = matches!(by_name.action, Track | SettleHolding(_, Holding::Key(_)));
            return !unknown;
        }
        Command::Create { overrides, .. } => keyless(overrides),
        Command::Configure {
            overrides: Some(overrides),
            ..
        } => keyless(overrides),
        Command::Reconfigure { from, to, .. } => {
            keyless(from);
            keyless(to);
        }
        Command::Put(put) => plain(put),
        Command::PutMany(puts) => puts.iter_mut().for_each(plain),
        _ => {}
    }
    true
}

/// True for a take of messages that are gone with it.
fn removes(command: &Command) -> bool {
    matches!(command, Command::Take(take) if take.lease.is_none() && !take.peek)
}

/// Who waits has what is free, so that nobody waits beside it. `alone`: messages of a key are
/// limited, and none goes with another.
fn take_whatever_comes(command: &mut Command, alone: bool) {
    let (take, waits) = match command {
        Command::Take(take) => {
            let waits = take.wait != Wait::No;
            (take, waits)
        }
        Command::Watch(Some(take)) | Command::Rewatch(take) => (&mut **take, true),
        _ => return,
    };
    if waits {
        (take.body_max, take.peek) = (None, false);
    }
    take.group = take.group.filter(|_| !alone);
}

/// An image without what is a predicate on time: pauses that are over and deduplication records
/// that are no longer in force.
fn comparable(image: Vec<Fact>, now: Ms) -> Vec<Fact> {
    let kept = image.into_iter().filter(|fact| match fact {
        Fact::QueuePaused {
            pause: Some(pause), ..
        } => pause.until.is_none_or(|at| at > now),
        Fact::Remembered { until, .. } => *until > now,
        Fact::KeyHeld { until, .. } => until.is_some_and(|at| at > now),
        _ => true,
    });
    kept.collect()
}
