//! Messages out of memory.

use quintet_engine::write_message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quintet_engine::format::{key_hash, state_index_tag};
use quintet_engine::{Picked, Spill, Written};
use quintet_log::LogError;
use quintet_log::run::{Run, RunWriter};
use quintet_types::{Body, ChunkPlace, LargeBody, MessageId, RunId, SegmentRef};

use super::PACE;
use crate::{Core, Shard, Work, locked};

/// Messages chosen in one hold of a shard's lock.
const PICK_SLICE: usize = 256;
/// Slots looked at in one hold of a shard's lock.
const SLOT_SLICE: u32 = 1024;
/// Queues looked at in one hold of a shard's lock.
const QUEUE_SLICE: usize = 1024;
/// State indexes shorter than this stay: a block of their own would cost as much
/// memory as they do.
const STATE_INDEX_MIN: usize = 16;
/// Copies of blocks that are kept in any case, so that takes are not starved.
const LOADED_MIN: usize = 24;
/// A new run is synced each time so many bytes are written, so that no
/// request waits behind all of it.
const SYNC_BYTES: u64 = 2 << 20;

impl Core {
    /// Brings a shard back into its budget. Returns true if a message left memory.
    pub(crate) fn relieve(&self, number: usize, stop: &AtomicBool) -> bool {
        let fixed = self.in_engine(number, Work::Spill, |engine| engine.fixed_bytes());
        let budget = self.runs.budget().beside(fixed);
        let memory = || self.in_engine(number, Work::Spill, |engine| engine.memory_bytes());
        if memory() <= budget.high {
            self.set_room(number, budget.limit);
            return false;
        }
        // Copies first: they cost nothing to drop.
        while memory() > budget.low {
            let mut shard = self.shards[number].lock_last(Work::Spill);
            let Shard { engine, batch, .. } = &mut *shard;
            if !engine.unload_oldest(LOADED_MIN, batch) {
                break;
            }
        }
        let mut any = false;
        loop {
            // A run is worth a file of some size: what came meanwhile waits.
            let over = memory().saturating_sub(budget.low);
            if over <= budget.least || stop.load(Ordering::SeqCst) {
                break;
            }
            let mut plan = Spill::of(over);
            while self.shards[number]
                .lock_last(Work::Spill)
                .engine
                .plan_spill(&mut plan, QUEUE_SLICE, STATE_INDEX_MIN)
            {}
            let mut plan = plan.planned();
            match self.spill(number, &mut plan, budget.picks) {
                Ok(0) => break,
                Ok(_) => any = true,
                Err(error) => {
                    self.cannot_write_run(&error);
                    break;
                }
            }
        }
        // What cannot be helped must not stop anybody: then only memory_max
        // bounds what is held.
        let stuck = memory() > budget.limit;
        self.set_room(number, if stuck { 0 } else { budget.limit });
        if stuck && !any && !self.runs.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "messages take more memory than the budget allows and cannot leave it now \
                 (reserved, in very short queues, or the disk is full)"
            );
        }
        if !stuck {
            self.runs.warned.store(false, Ordering::Relaxed);
        }
        self.supply(number, Vec::new());
        any
    }

    /// The server stops: puts that wait for room are decided now, without it.
    pub fn end_room_waits(&self) {
        self.runs.stops.store(true, Ordering::SeqCst);
        self.in_each(|at| {
            at.engine.set_memory_room(0);
            at.engine
                .supply(at.now, Vec::new(), at.journal, at.deliveries);
        });
    }

    /// A step: puts that now have room are decided, by the timer thread.
    fn set_room(&self, number: usize, bytes: u64) {
        self.shards[number].give_way();
        self.with_access_for(Work::Spill, |access| {
            access.step(number, |at| {
                let stops = self.runs.stops.load(Ordering::SeqCst);
                at.engine.set_memory_room(if stops { 0 } else { bytes });
            });
        });
    }

    /// Writes one run of what the plan chooses. Answers how many left memory.
    fn spill(&self, number: usize, plan: &mut Spill, most: usize) -> Result<u64, LogError> {
        let mut picked = Vec::new();
        loop {
            let mut shard = self.shards[number].lock_last(Work::Spill);
            let max = PICK_SLICE.min(most.saturating_sub(picked.len()));
            let more = shard.engine.pick(plan, max, &mut picked);
            drop(shard);
            if !more || picked.len() >= most {
                break;
            }
        }
        self.evict(number, picked)
    }

    /// Sends what lives in a segment of the log to a run. False: something
    /// could not be written now.
    pub(crate) fn spill_segment_ref(&self, segment_ref: SegmentRef, stop: &AtomicBool) -> bool {
        let most = self.runs.budget().picks;
        for number in 0..self.shards.len() {
            let mut from = Some(0);
            while let Some(first) = from {
                let mut picked = Vec::new();
                from = self.pick_segment_ref(number, segment_ref, first, most, &mut picked);
                if stop.load(Ordering::SeqCst) {
                    self.unpick(number, &picked);
                    return false;
                }
                if let Err(error) = self.evict(number, picked) {
                    self.cannot_write_run(&error);
                    return false;
                }
            }
        }
        true
    }

    fn pick_segment_ref(
        &self,
        number: usize,
        segment_ref: SegmentRef,
        first: u32,
        most: usize,
        picked: &mut Vec<Picked>,
    ) -> Option<u32> {
        let mut from = Some(first);
        while let Some(at) = from {
            if picked.len() >= most {
                break;
            }
            from = self.in_engine(number, Work::Spill, |engine| {
                engine.pick_segment_ref(segment_ref, at, SLOT_SLICE, picked)
            });
        }
        from
    }

    fn unpick(&self, number: usize, picked: &[Picked]) {
        for slice in picked.chunks(PICK_SLICE) {
            let ids: Vec<MessageId> = slice.iter().map(|picked| picked.message.id).collect();
            self.in_engine(number, Work::Spill, |engine| engine.unpick(&ids));
        }
    }

    /// Writes chosen messages as a run and puts its blocks in force.
    fn evict(&self, number: usize, mut picked: Vec<Picked>) -> Result<u64, LogError> {
        if picked.is_empty() {
            return Ok(0);
        }
        // Chosen twice: it changed in between, and the later choice counts.
        picked.sort_unstable_by_key(|p| (p.message.id, std::cmp::Reverse(p.pick)));
        picked.dedup_by_key(|p| p.message.id);
        picked.sort_unstable_by_key(|p| {
            (
                p.message.queue,
                p.state_index,
                p.state_index.order(&p.message),
            )
        });
        let run = match self.write_run(number, &mut picked) {
            Ok(run) => run,
            Err(error) => {
                self.unpick(number, &picked);
                return Err(error);
            }
        };
        let id = RunId(run.name().number.0);
        let mut left = 0;
        // Until its last block is in force nobody may judge it by what lives
        // in it: the other thread that evicts would write it again, or
        // delete it, with blocks still to come.
        locked(&self.runs.unfinished).insert(id.0);
        for block in 0..run.blocks() {
            let Some(info) = run.block(block) else { break };
            let first = info.first_ordinal as usize;
            let entries = &picked[first..first + info.count as usize];
            let Some(head) = entries.first() else { break };
            let written = Written {
                number: block,
                ordinal: info.first_ordinal,
                queue: head.message.queue,
                state_index: head.state_index,
                entries: entries.iter().map(|p| (p.message.id, p.pick)).collect(),
            };
            let mut shard = self.shards[number].lock_last(Work::Spill);
            let Shard { engine, batch, .. } = &mut *shard;
            left += u64::from(engine.evict(id, &written, batch));
            drop(shard);
            if block % 8 == 7 {
                // Puts that wait for room, and the batch, go on.
                self.supply(number, Vec::new());
            }
        }
        locked(&self.runs.unfinished).remove(&id.0);
        self.supply(number, Vec::new());
        if left == 0 {
            self.runs.remove(number, id.0);
        }
        self.runs.counts.spilled.fetch_add(left, Ordering::Relaxed);
        Ok(left)
    }

    /// Writes them in this order. Those that a run cannot hold stay out of it, and those that are
    /// left when the server stops.
    fn write_run(&self, number: usize, picked: &mut Vec<Picked>) -> Result<Arc<Run>, LogError> {
        let options = self.run_options();
        let name = self.runs.next_name(number);
        let mut writer = RunWriter::create(Arc::clone(&self.runs.storage), name, options)?;
        let (mut state_index, mut payload, mut synced) = (None, Vec::new(), 0);
        let mut stay = Vec::new();
        for (at, picked) in picked.iter().enumerate() {
            if self.runs.stops.load(Ordering::SeqCst) {
                stay.push(at);
                continue;
            }
            let message = &picked.message;
            payload.clear();
            match &message.body {
                Body::Small(_) => write_message(message, &mut payload),
                Body::Large(body) => {
                    let body = match self.copy_body(&mut writer, RunId(name.number.0), body)? {
                        Some(body) => body,
                        None => {
                            stay.push(at);
                            continue;
                        }
                    };
                    let mut moved = message.clone();
                    moved.body = Body::Large(body);
                    write_message(&moved, &mut payload);
                }
            }
            if payload.len() > quintet_log::run::ENTRY_BYTES_MAX {
                stay.push(at);
                continue;
            }
            if state_index != Some((message.queue, picked.state_index)) {
                state_index = Some((message.queue, picked.state_index));
                writer.state_index(&state_index_tag(message.queue, picked.state_index))?;
            }
            let key = message.key().map(|key| key_hash(message.queue, key));
            writer.push(message.id.0, key, &payload)?;
            if writer.bytes() - synced > SYNC_BYTES {
                synced = writer.bytes();
                writer.sync()?;
                std::thread::sleep(PACE);
            }
        }
        let run = writer.finish()?;
        let mut at = 0;
        let mut stays = Vec::new();
        picked.retain(|picked| {
            let stay = stay.binary_search(&at).is_ok();
            at += 1;
            if stay {
                stays.push(picked.clone());
            }
            !stay
        });
        self.unpick(number, &stays);
        self.runs
            .counts
            .spilled_bytes
            .fetch_add(run.file_bytes(), Ordering::Relaxed);
        Ok(self.runs.add(run))
    }

    /// Copies a large body into a run. `None`: it cannot be read, which was
    /// reported.
    pub(super) fn copy_body(
        &self,
        writer: &mut RunWriter,
        run: RunId,
        body: &LargeBody,
    ) -> Result<Option<LargeBody>, LogError> {
        let segment_ref = SegmentRef::of_run(run).0;
        let mut places = Vec::new();
        for position in body.places() {
            let bytes = match self.body_source().read(&position) {
                Ok(bytes) => bytes,
                // A retirement may have moved it just now.
                Err(error) => {
                    tracing::warn!("a large body stays in the log for now: {error}");
                    return Ok(None);
                }
            };
            let bytes = &bytes[bytes.len().saturating_sub(position.len as usize)..];
            let chunk = writer.chunk(bytes.len(), &mut |out| {
                out.copy_from_slice(bytes);
                Ok(())
            })?;
            places.push(ChunkPlace {
                segment: segment_ref,
                offset: chunk.offset,
                frame_len: chunk.len,
                len: chunk.len,
            });
        }
        let copy = LargeBody::new(body.id(), body.len(), segment_ref);
        copy.set_places(places, segment_ref);
        Ok(Some(copy))
    }
}
