//! Runs in which little lives are written again.

use quintet_engine::read_message;
use quintet_engine::write_message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quintet_engine::format::state_index_tag;
use quintet_engine::{EntryFacts, Rewritten};
use quintet_log::LogError;
use quintet_log::run::{Block, BlockPosition, Run, RunWriter};
use quintet_types::{Body, Message, QueueId, RunId, StateIndex};

use crate::{Core, Work, locked};

/// How many runs are merged at once at most, and at least.
const MERGE: std::ops::RangeInclusive<usize> = 4..=16;

/// A message on its way from one run to another.
struct Moving {
    queue: QueueId,
    state_index: StateIndex,
    facts: EntryFacts,
    from: RunId,
    block: u32,
    ordinal: u32,
}

impl Core {
    /// Writes runs again of which less than a quarter lives, if that frees
    /// enough, and merges some if there are very many.
    pub(crate) fn rewrite_thin(&self, number: usize, stop: &AtomicBool) {
        let mut runs = self.shards[number].lock_last(Work::Rewrite).engine.runs();
        let left_alone = locked(&self.runs.left_alone).clone();
        runs.retain(|(run, ..)| !left_alone.contains(&run.0));
        let unfinished = locked(&self.runs.unfinished).clone();
        runs.retain(|(run, ..)| !unfinished.contains(&run.0));
        let budget = self.runs.budget();
        // Each takes some memory meanwhile.
        let most = 2 * budget.picks as u64;
        let mut thin = Vec::new();
        let (mut dead, mut live_sum) = (0, 0);
        for &(run, live, _) in &runs {
            let Some(file) = self.runs.get(run) else {
                continue;
            };
            let all = u64::from(file.entries()).max(1);
            if live * 4 < all && live_sum + live <= most {
                dead += file.file_bytes() / all * (all - live);
                live_sum += live;
                thin.push(run);
            }
        }
        if dead < budget.slack {
            thin.clear();
        }
        if thin.is_empty() && runs.len() > budget.runs {
            let mut by_size: Vec<(u64, RunId)> =
                runs.iter().map(|&(r, live, _)| (live, r)).collect();
            by_size.sort_unstable();
            let mut sum = 0;
            for (live, run) in by_size.into_iter().take(*MERGE.end()) {
                sum += live;
                if sum <= most {
                    thin.push(run);
                }
            }
            // Those that are left are long enough.
            if thin.len() < *MERGE.start() {
                return;
            }
        }
        if thin.is_empty() || stop.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = self.rewrite(number, &thin) {
            self.cannot_write_run(&error);
        }
    }

    fn rewrite(&self, number: usize, old: &[RunId]) -> Result<(), LogError> {
        let Some(mut moving) = self.gather(number, old) else {
            // They stay as they are.
            locked(&self.runs.left_alone).extend(old.iter().map(|run| run.0));
            return Ok(());
        };
        moving.sort_unstable_by_key(|m| (m.queue, m.state_index, m.facts.order));
        let run = self.write_again(number, &mut moving)?;
        let mut blocks = Vec::new();
        for number in 0..run.blocks() {
            let Some(info) = run.block(number) else { break };
            let first = info.first_ordinal as usize;
            let entries = &moving[first..first + info.count as usize];
            let Some(head) = entries.first() else { break };
            blocks.push(Rewritten {
                number,
                ordinal: info.first_ordinal,
                queue: head.queue,
                state_index: head.state_index,
                entries: entries
                    .iter()
                    .map(|m| (m.facts, m.from, m.ordinal))
                    .collect(),
            });
        }
        let id = RunId(run.name().number.0);
        let needed = self.with_access_for(Work::Rewrite, |access| {
            access.step(number, |at| {
                at.engine
                    .replace_runs(at.now, old, id, &blocks, at.journal, at.deliveries);
                at.engine.needs_run(id)
            })
        });
        if !needed {
            self.runs.remove(number, id.0);
        }
        self.runs
            .counts
            .rewritten
            .fetch_add(old.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The living messages of these runs. `None`: one of them cannot be read, or the server stops.
    fn gather(&self, number: usize, old: &[RunId]) -> Option<Vec<Moving>> {
        let mut moving = Vec::new();
        for &from in old {
            let run = self.runs.get(from)?;
            let blocks = self.in_engine(number, Work::Rewrite, |engine| engine.blocks_of(from));
            for block in blocks {
                if self.runs.stops.load(Ordering::SeqCst) {
                    return None;
                }
                let read = run.read_block(block.number).ok()?;
                let mut found: Vec<(u32, Message)> = Vec::new();
                for entry in read.entries() {
                    found.push((entry.ordinal, read_message(entry.payload).ok()?));
                }
                let shard = self.shards[number].lock_last(Work::Rewrite);
                found.retain(|(ordinal, _)| shard.engine.is_alive_in(from, *ordinal));
                drop(shard);
                moving.extend(found.iter().map(|(ordinal, message)| Moving {
                    queue: block.queue,
                    state_index: block.state_index,
                    facts: EntryFacts::of(message, block.state_index),
                    from,
                    block: block.number,
                    ordinal: *ordinal,
                }));
            }
        }
        Some(moving)
    }

    /// Writes them in this order into a new run. Blocks are read once more:
    /// their messages are not all held in memory.
    fn write_again(&self, number: usize, moving: &mut Vec<Moving>) -> Result<Arc<Run>, LogError> {
        let options = self.run_options();
        let name = self.runs.next_name(number);
        let mut writer = RunWriter::create(Arc::clone(&self.runs.storage), name, options)?;
        let mut state_index = None;
        let mut payload = Vec::new();
        // One block of each run is at hand: entries of a run come in its order.
        let mut at_hand: BTreeMap<RunId, (Block, BlockPosition)> = BTreeMap::new();
        let mut written = Vec::with_capacity(moving.len());
        for item in moving.drain(..) {
            let Some(run) = self.runs.get(item.from) else {
                continue;
            };
            if at_hand
                .get(&item.from)
                .is_none_or(|(block, _)| block.number() != item.block)
            {
                let block = run.read_block(item.block)?;
                at_hand.insert(item.from, (block, BlockPosition::default()));
            }
            let found = at_hand.get_mut(&item.from);
            let found =
                found.and_then(|(block, position)| block.entry_from(position, item.ordinal));
            let Some(entry) = found else {
                continue;
            };
            payload.clear();
            match read_message(entry.payload) {
                Ok(Message {
                    body: Body::Small(_),
                    ..
                }) => payload.extend_from_slice(entry.payload),
                Ok(mut message) => {
                    let Body::Large(body) = &message.body else {
                        continue;
                    };
                    let copy = self.copy_body(&mut writer, RunId(name.number.0), body)?;
                    message.body = Body::Large(copy.ok_or_else(|| LogError::BadRead {
                        file: run.name().to_string(),
                        offset: 0,
                        why: "a large body cannot be read".to_owned(),
                    })?);
                    write_message(&message, &mut payload);
                }
                Err(_) => continue,
            }
            if state_index != Some((item.queue, item.state_index)) {
                state_index = Some((item.queue, item.state_index));
                writer.state_index(&state_index_tag(item.queue, item.state_index))?;
            }
            // Of the key and the queue, which stay.
            writer.push(item.facts.id.0, entry.key, &payload)?;
            written.push(item);
        }
        *moving = written;
        let run = writer.finish()?;
        Ok(self.runs.add(run))
    }
}
