//! Checks that every index agrees with the messages. For tests: it looks at
//! everything.

use super::Durable;
use quintet_types::{HELD, Message, MessageId, State};

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

impl Durable {
    /// # Errors
    /// The first disagreement found.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let mut alive = 0u64;
        let mut segment_refs = std::collections::BTreeMap::new();
        let mut body_bytes = 0;
        for (slot, message) in self.messages.iter() {
            ensure!(
                self.ids.get(message.id.0) == Some(slot),
                "{:?} not in ids",
                message.id
            );
            if !message.segment_ref.is_run() {
                *segment_refs.entry(message.segment_ref).or_insert(0u64) += 1;
            }
            body_bytes += Self::held_bytes(message);
            if self.is_alive(message) {
                alive += 1;
                self.verify_message(slot, message)?;
            }
        }
        for sent in &self.outbox {
            *segment_refs.entry(sent.message.segment_ref).or_insert(0) += 1;
            body_bytes += Self::held_bytes(&sent.message);
            ensure!(
                self.ids.get(sent.message.id.0).is_none(),
                "{:?} is sent and still here",
                sent.message.id
            );
        }
        for memory in self.dedupe_records.values() {
            *segment_refs.entry(memory.segment_ref).or_insert(0) += 1;
        }
        for segment_ref in self.segments_of_dependencies() {
            *segment_refs.entry(segment_ref).or_insert(0) += 1;
        }
        ensure!(
            segment_refs == self.segment_refs,
            "homes {segment_refs:?} counted as {:?}",
            self.segment_refs
        );
        self.batches.verify()?;
        self.tracks.verify()?;
        self.dependencies.verify()?;
        ensure!(
            body_bytes == self.body_bytes,
            "body bytes {body_bytes} {}",
            self.body_bytes
        );
        self.verify_dedupe()?;
        self.verify_named()?;
        self.verify_cold()?;
        self.verify_tables()?;
        self.verify_weights()?;
        self.verify_accounts()?;
        self.verify_groups()?;
        self.verify_sums()?;
        self.verify_queues(alive)
    }

    fn verify_message(&self, slot: u32, message: &Message) -> Result<(), String> {
        let id = message.id;
        let queue = self
            .queue(message.queue)
            .ok_or(format!("{id:?} in no queue"))?;
        let order = message.order();
        let lease = self.leases.get(&slot);
        ensure!(
            lease.is_some() == (message.state == State::Reserved),
            "{id:?} lease {lease:?}"
        );
        let found = match message.state {
            State::Ready => {
                let delayed = message
                    .due()
                    .is_some_and(|due| queue.delayed.get(&(due, id)) == Some(&slot));
                let map = if message.selectable {
                    &queue.ready
                } else {
                    &queue.not_selectable
                };
                delayed != (map.get(&order) == Some(&slot))
            }
            State::Prepared => queue.prepared.get(&id) == Some(&slot),
            State::Reserved => queue.reserved.get(&id) == Some(&slot),
            State::Buried => queue.buried.values().any(|&other| other == slot),
            State::Done | State::Relayed => queue.archived.values().any(|&other| other == slot),
        };
        ensure!(found, "{id:?} is not where its state says: {message:?}");
        if let Some(lease) = lease {
            if let Some(until) = lease.until {
                ensure!(
                    self.lease_ends.contains(&(until, id)),
                    "{id:?} has no lease end"
                );
            }
            if lease.client_id.0 != 0 {
                // A lease bound to time alone outlives its client.
                let held = self
                    .held
                    .get(&lease.client_id)
                    .is_some_and(|held| held.contains(&id));
                let free = lease.bound == quintet_types::Bound::Time;
                ensure!(held || free, "{id:?} is not among its client's");
            }
        }
        if let Some(at) = message.ends() {
            ensure!(self.expiries.contains(&(at, id)), "{id:?} has no expiry");
        }
        Ok(())
    }

    fn verify_cold(&self) -> Result<(), String> {
        use super::cold::Shelf;
        use crate::cold::BlockAt;
        let (mut blocks, mut dead_bytes, mut damaged, mut loaded) = (0u64, 0u64, 0u64, 0usize);
        let mut queues: std::collections::BTreeMap<_, super::cold::QueueCold> = Default::default();
        for (&run, table) in &self.cold.runs {
            let mut live = 0;
            for (&ordinal, block) in &table.blocks {
                let at = BlockAt { run, ordinal };
                let row = &block.row;
                let alive = (0..row.count)
                    .filter(|n| block.is_alive(ordinal + n))
                    .count();
                ensure!(
                    alive == row.live as usize && alive > 0,
                    "{at:?}: {alive} live, {row:?}"
                );
                live += u64::from(row.live);
                blocks += 1;
                dead_bytes += block.dead.as_ref().map_or(0, |dead| dead.len() as u64 * 8);
                let queue = queues.entry(row.queue).or_default();
                match &block.shelf {
                    Shelf::Stored | Shelf::Wanted => queue.enter(at, row),
                    Shelf::Damaged => damaged += u64::from(row.live),
                    Shelf::Loaded(turn, ids) => {
                        loaded += 1;
                        queue.loaded.insert(at);
                        ensure!(
                            self.cold.loaded.get(turn) == Some(&at),
                            "{at:?} has no turn"
                        );
                        let here = ids.iter().filter(|id| {
                            self.message(**id).is_some_and(|m| {
                                m.segment_ref == quintet_types::SegmentRef::of_run(run)
                                    && block.is_alive(m.ordinal)
                            })
                        });
                        ensure!(here.count() == alive, "{at:?}: copies are missing");
                    }
                }
                let rings = block
                    .rings
                    .is_none_or(|rings| self.cold.rings.contains(&(rings, at)));
                ensure!(rings, "{at:?} does not ring");
            }
            ensure!(
                live == table.live,
                "{run:?}: {live} live, not {}",
                table.live
            );
        }
        ensure!(
            (blocks, dead_bytes, damaged, loaded)
                == (
                    self.cold.blocks,
                    self.cold.dead_bytes,
                    self.cold.damaged,
                    self.cold.loaded.len()
                ),
            "cold counts are wrong"
        );
        for queue in self.queues.iter() {
            let expected = queues.remove(&queue.id).unwrap_or_default();
            let none = super::cold::QueueCold::default();
            let found = queue.cold.as_deref().unwrap_or(&none);
            ensure!(
                *found == expected,
                "{}: {found:?} is not {expected:?}",
                queue.name
            );
        }
        ensure!(queues.is_empty(), "blocks of no queue");
        self.verify_bodies_in_runs()
    }

    fn verify_bodies_in_runs(&self) -> Result<(), String> {
        let mut bodies = std::collections::BTreeMap::new();
        for (_, message) in self.messages.iter() {
            if !message.segment_ref.is_run()
                && let Some(run) = super::cold::run_of_body(message)
            {
                *bodies.entry(run).or_insert(0u64) += 1;
            }
        }
        for sent in &self.outbox {
            if let Some(run) = super::cold::run_of_body(&sent.message) {
                *bodies.entry(run).or_insert(0u64) += 1;
            }
        }
        ensure!(
            bodies == self.cold.bodies,
            "bodies {bodies:?} in runs, not {:?}",
            self.cold.bodies
        );
        Ok(())
    }

    fn verify_queues(&self, alive: u64) -> Result<(), String> {
        let mut counted = 0;
        for queue in self.queues.iter() {
            let name = &queue.name;
            let lists = [
                queue.reserved.len(),
                queue.buried.len(),
                queue.prepared.len(),
                queue.archived.len(),
            ];
            counted += queue.waiting_in_memory() + lists.iter().sum::<usize>() as u64;
            let slots = queue.ready.values().chain(queue.not_selectable.values());
            let len = |slot: &u32| self.messages.get(*slot).map_or(0, Message::size);
            let waiting: u64 = slots.chain(queue.delayed.values()).map(len).sum();
            ensure!(
                waiting == queue.waiting_bytes,
                "{name}: waiting bytes {waiting}"
            );
            let held = queue.delayed.range((HELD, MessageId(0))..).count();
            ensure!(
                held == queue.held,
                "{name}: {held} held, not {}",
                queue.held
            );
            let held: u64 = queue.reserved.values().map(len).sum();
            ensure!(
                held == queue.reserved_bytes,
                "{name}: reserved bytes {held} not {}",
                queue.reserved_bytes
            );
            let others = queue.buried.values().chain(queue.archived.values());
            let others: u64 = others.chain(queue.prepared.values()).map(len).sum();
            ensure!(
                queue.live.dropped || waiting + held + others == queue.bytes,
                "{name}: {} bytes, not {waiting}, {held} and {others}",
                queue.bytes
            );
            let ready = queue.ready.values();
            let ready = ready.filter_map(|slot| self.messages.get(*slot));
            let urgent = ready.filter(|message| message.priority < 1024);
            let urgent = urgent.count() as u64;
            ensure!(
                urgent == queue.urgent,
                "{name}: urgent {urgent} not {}",
                queue.urgent
            );
            let keyed = |slot: &&u32| self.messages.get(**slot).is_some_and(|m| m.key().is_some());
            let ready = queue.ready.values();
            let ready = ready.chain(queue.not_selectable.values());
            let with_key = ready.filter(keyed).count();
            #[expect(clippy::disallowed_methods, reason = "they are counted")]
            let grouped: usize = queue.keys.values().map(|group| group.len()).sum();
            ensure!(
                with_key == grouped,
                "{name}: {with_key} have keys, {grouped} in groups"
            );
            let found = self.names.get(name) == Some(&queue.id);
            ensure!(found != queue.live.dropped, "{name}: wrong under its name");
            if queue.live.alarm != queue.alarm(&self.cold) {
                return Err(format!("{name}: alarm {:?}", queue.live.alarm));
            }
        }
        ensure!(counted == alive, "{counted} in maps, {alive} alive");
        Ok(())
    }
}
