//! Rules for batches, tracked and held messages and key groups. They are checked on the state that
//! the engine shows, after each of its steps; no model foretells it.

mod batches;
mod keys;
mod tracks;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quintet_engine::*;
use quintet_types::*;

use super::runs::Runs;
use super::world::Checked;

/// A queue as it is in force.
pub(super) struct SeenQueue {
    name: Name,
    created: Ms,
    settings: QueueSettings,
    /// `Some(None)`: until resumed.
    pause: Option<Option<Ms>>,
}

impl SeenQueue {
    /// Settings whose change makes a queue forget what it handed out.
    fn meaning_of_keys(&self) -> (Groups, u64, Rate, u32) {
        let s = &self.settings;
        (
            s.groups,
            s.key_in_flight_max,
            s.key_take_rate,
            s.key_take_burst,
        )
    }

    /// True if it is the same queue, whose keys mean the same. A number is given again.
    fn goes_on(&self, before: Option<&Self>) -> bool {
        let this = |queue: &Self| (queue.name.clone(), queue.created, queue.meaning_of_keys());
        before.is_some_and(|before| this(before) == this(self))
    }

    fn has_groups(&self) -> bool {
        let (groups, in_flight, rate, _) = self.meaning_of_keys();
        groups != Groups::None || in_flight > 0 || rate.count > 0
    }
}

/// The durable state of an engine.
#[derive(Default)]
pub(super) struct Seen {
    messages: BTreeMap<MessageId, Message>,
    queues: BTreeMap<QueueId, SeenQueue>,
    batches: BTreeMap<BatchId, Batch>,
    tracks: BTreeMap<MessageId, Track>,
    awaits: BTreeMap<MessageId, After>,
    held_keys: BTreeMap<(QueueId, Box<[u8]>), Ms>,
}

impl Seen {
    pub(super) fn of(core: &quintet_sim::world::World, runs: &Runs) -> Self {
        let mut seen = Self::default();
        for fact in core.engine.image() {
            match fact {
                Fact::Image(message, _) => {
                    seen.messages.insert(message.id, message);
                }
                Fact::RunImage { run, block, dead } => {
                    for mut message in runs.living(run, &block, dead.as_deref()) {
                        message.queue = block.queue;
                        seen.messages.insert(message.id, message);
                    }
                }
                Fact::QueueMade {
                    queue,
                    name,
                    created,
                    ..
                } => {
                    let settings = core.settings.resolve(name.as_bytes());
                    seen.queues.entry(queue).or_insert(SeenQueue {
                        name,
                        created,
                        settings,
                        pause: None,
                    });
                }
                Fact::QueueConfigured { queue, overrides } => {
                    if let Some(queue) = seen.queues.get_mut(&queue) {
                        overrides.lay_own_over(&mut queue.settings);
                    }
                }
                Fact::QueuePaused { queue, pause } => {
                    if let Some(queue) = seen.queues.get_mut(&queue) {
                        queue.pause = pause.map(|pause| pause.until);
                    }
                }
                Fact::KeyHeld {
                    queue,
                    key,
                    until: Some(until),
                    ..
                } => {
                    seen.held_keys.insert((queue, key), until);
                }
                Fact::BatchMade(batch) => {
                    seen.batches.insert(batch.id, *batch);
                }
                Fact::Tracked {
                    id,
                    track: Some(track),
                } => {
                    seen.tracks.insert(id, *track);
                }
                Fact::Awaits {
                    child,
                    after: Some(after),
                } => {
                    seen.awaits.insert(child, *after);
                }
                _ => {}
            }
        }
        seen
    }

    /// True if a put to a queue of this name may be refused.
    fn may_refuse(&self, name: &Name, settings: &Settings) -> bool {
        let known = self.queues.values().find(|queue| queue.name == *name);
        let queue = match known {
            Some(queue) => queue.settings.clone(),
            None => settings.resolve(name.as_bytes()),
        };
        let limits = [
            queue.messages_max,
            queue.bytes_max,
            queue.dedupe_by_key_ms,
            settings.dedupe_max,
        ];
        queue.down
            || queue.unique_by_body
            || queue.message_bytes_max < 1000
            || settings.queues_max < 100
            || limits.into_iter().any(|max| max > 0)
    }
}

/// Messages that are gone, and why.
type Removals = BTreeMap<MessageId, Removal>;

fn removals(facts: &[Fact]) -> Removals {
    let removal = |fact: &Fact| match fact {
        Fact::Removed { at, why } => Some((at.id, *why)),
        _ => None,
    };
    facts.iter().filter_map(removal).collect()
}

/// A command, its outcome unless it waits, and whether that came without a read of a run.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) command: &'a Command,
    pub(super) outcome: Option<&'a Outcome>,
    pub(super) at_once: bool,
}

/// The rules, and what of earlier steps they need.
#[derive(Default)]
pub(super) struct Properties {
    /// As it was after the last step.
    seen: Seen,
    /// What was recorded since.
    facts: Vec<Fact>,
    /// Batches that there ever were.
    made: BTreeSet<BatchId>,
    /// The callback that was put for each event of a batch.
    callbacks: BTreeMap<(BatchId, bool), MessageId>,
    /// Members that have not run and went with their queue, which no batch counts.
    adrift: BTreeMap<BatchId, u64>,
    /// When a callback to a queue may last have been refused.
    refusals: BTreeMap<Name, Ms>,
    /// A take brings other messages of its message's key, which have no limits.
    companions: bool,
    /// When messages of a key were handed out.
    handed: BTreeMap<(QueueId, Box<[u8]>), Vec<Ms>>,
    /// Messages in a row of keys under their share, while one of a key over its share waited.
    /// `None`: not known.
    quiet_run: BTreeMap<QueueId, Option<u64>>,
}

impl Properties {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.seen.messages.keys().copied().collect()
    }

    /// Tracked messages that are gone.
    pub(super) fn ended(&self) -> impl Iterator<Item = MessageId> + '_ {
        let tracked = self.seen.tracks.keys().copied();
        tracked.filter(move |id| !self.seen.messages.contains_key(id))
    }

    pub(super) fn batches(&self) -> Vec<BatchId> {
        self.seen.batches.keys().copied().collect()
    }

    pub(super) fn message(&self, id: MessageId) -> Option<&Message> {
        self.seen.messages.get(&id)
    }

    pub(super) fn note(&mut self, facts: &[Fact]) {
        self.facts.extend(facts.iter().cloned());
    }

    /// The process began anew: it remembers nothing of what it handed out.
    pub(super) fn restarted(&mut self) {
        self.handed.clear();
        self.quiet_run.clear();
    }

    /// The engine did something.
    pub(super) fn step(
        &mut self,
        core: &quintet_sim::world::World,
        runs: &Runs,
        asked: Option<Asked<'_>>,
        deliveries: &[Delivery],
    ) -> Checked {
        let (now, settings) = (core.now, &core.settings);
        self.note_refusals(now, settings);
        if asked.is_none() && deliveries.is_empty() && self.facts.is_empty() {
            // What the engine shows changes by facts alone.
            return Ok(());
        }
        let facts = std::mem::take(&mut self.facts);
        let seen = Seen::of(core, runs);
        let removals = removals(&facts);
        self.check_answer(now, settings, asked)?;
        self.check_batches(now, asked, &facts, &removals, &seen)?;
        self.check_tracks(settings, &removals, &seen)?;
        self.check_found(now, asked)?;
        self.check_parents(&facts, &removals, &seen)?;
        self.check_keys(now, asked, deliveries, &seen, runs.is_empty())?;
        self.seen = seen;
        self.note_refusals(now, settings);
        Ok(())
    }

    /// Nothing is due, and who could be served was; so many consumers wait on each queue.
    pub(super) fn settled(
        &self,
        core: &quintet_sim::world::World,
        waiters: &BTreeMap<Name, u64>,
    ) -> Checked {
        self.check_callbacks_are_put(core.now)?;
        self.check_held(core.now)?;
        self.check_waits(core.now, waiters)
    }

    /// Defects it sees: a held message hears of a success that is none, or of a failure in its
    /// stead; a new one does not know how a parent stands.
    fn check_parents(&self, facts: &[Fact], removals: &Removals, seen: &Seen) -> Checked {
        for (child, after) in &seen.awaits {
            let before = self.seen.awaits.get(child);
            let is_new = !self.seen.messages.contains_key(child);
            for parent in &after.parents {
                let (known, lives) = (
                    self.seen.messages.get(&parent.id),
                    seen.messages.get(&parent.id),
                );
                if let (true, Some(known), Some(lives)) = (is_new, known, lives)
                    && known.state == lives.state
                {
                    let state = match known.state {
                        State::Done | State::Relayed => ParentState::Done,
                        State::Buried => ParentState::Failed,
                        State::Prepared | State::Ready | State::Reserved => ParentState::Waiting,
                    };
                    prop_assert_eq!(parent.state, state, "{:?} of {:?}", child, known);
                }
                let old = before.and_then(|old| old.parents.iter().find(|p| p.id == parent.id));
                let waited = old.is_some_and(|old| old.state == ParentState::Waiting);
                if !waited || parent.state == ParentState::Waiting {
                    continue;
                }
                let done = parent.state == ParentState::Done;
                let archived =
                    lives.is_none_or(|m| matches!(m.state, State::Done | State::Relayed));
                prop_assert!(!done || archived, "{child:?}: {parent:?} is {lives:?}");
                // It may have become a dead letter before somebody took it.
                let moved =
                    |fact: &Fact| matches!(fact, Fact::Moved { at, .. } if at.id == parent.id);
                let ended = match removals.get(&parent.id) {
                    Some(_) if facts.iter().any(moved) => done,
                    Some(Removal::Taken | Removal::Finished) => true,
                    None
                    | Some(Removal::DeletedDone | Removal::PurgedDone | Removal::Retention) => done,
                    Some(_) => false,
                };
                prop_assert_eq!(ended, done, "{:?}: the end of {:?}", child, parent);
            }
        }
        Ok(())
    }

    /// Defects it sees: a held message does not hear of a parent's end, is held for ever, or is
    /// held though all that it waited for has come.
    fn check_held(&self, now: Ms) -> Checked {
        for message in self.seen.messages.values() {
            if message.state != State::Ready || message.due() != Some(HELD) {
                continue;
            }
            let Some(after) = self.seen.awaits.get(&message.id) else {
                let id = message.id;
                return Err(TestCaseError::fail(format!("{id:?} is held for nothing")));
            };
            let is = |state| after.parents.iter().any(|parent| parent.state == state);
            for parent in &after.parents {
                prop_assert!(
                    parent.state != ParentState::Waiting || self.seen.goes_on(parent.id, now),
                    "{:?} waits for {parent:?}, which has ended",
                    message.id
                );
            }
            let failed = is(ParentState::Failed) && after.on == AfterOn::Success;
            let held = match (failed, after.if_failed) {
                (true, IfFailed::Hold) => true,
                (true, IfFailed::Fail) => false,
                (true, IfFailed::Run) | (false, _) => is(ParentState::Waiting),
            };
            prop_assert!(held, "{:?} is held, and may go: {after:?}", message.id);
        }
        Ok(())
    }
}

impl Seen {
    /// True if a message has not come to its end.
    fn goes_on(&self, id: MessageId, now: Ms) -> bool {
        let state = |m: &&Message| {
            matches!(m.state, State::Prepared | State::Ready | State::Reserved)
                && !m.is_expired(now)
        };
        self.messages.get(&id).filter(state).is_some()
    }
}
