//! Reading from runs what engines ask for.

use quintet_engine::read_message;
use std::sync::atomic::{AtomicBool, Ordering};

use quintet_engine::format::key_hash;
use quintet_engine::{BlockAt, LookupResult, Want};
use quintet_log::LogError;
use quintet_log::run::Run;
use quintet_types::{Message, MessageId, RunId};

use crate::{Core, Shard, Work, locked};

impl Core {
    /// Passes on what a shard's engine asked for. Cheap if that is nothing.
    pub(crate) fn forward_wants(&self, shard: &mut Shard) {
        if shard.engine.has_wants() {
            let wants = shard.engine.take_wants();
            self.ask_runs(shard.engine.shard(), wants);
        }
    }

    pub(super) fn ask_runs(&self, shard: usize, wants: Vec<Want>) {
        if wants.is_empty() {
            return;
        }
        let before = wants.len();
        let wants = wants.into_iter().filter(|want| *want != Want::Room);
        let mut wanted = locked(&self.runs.wanted);
        let had = wanted.len();
        wanted.extend(wants.map(|want| (shard, want)));
        let added = wanted.len() - had;
        drop(wanted);
        if added > 0 {
            self.runs.work.raise();
        }
        if added < before {
            self.runs.pressed.raise();
        }
    }

    /// The fetch thread: runs until `stop`.
    pub fn run_fetch(&self, stop: &AtomicBool) {
        loop {
            self.runs.work.wait();
            if stop.load(Ordering::SeqCst) {
                return;
            }
            self.fetch_all(stop);
        }
    }

    /// Reads until nothing is requested any more, or `stop`: then nobody waits for it.
    pub(crate) fn fetch_all(&self, stop: &AtomicBool) {
        loop {
            let wanted = std::mem::take(&mut *locked(&self.runs.wanted));
            if wanted.is_empty() {
                return;
            }
            for (shard, want) in wanted {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let found = self.read_run(shard, want);
                self.supply(shard, found.into_iter().collect());
            }
        }
    }

    /// Hands a shard what was read, and its answers to those who waited.
    pub(super) fn supply(&self, number: usize, found: Vec<LookupResult>) {
        self.shards[number].give_way();
        self.with_access_for(Work::Load, |access| {
            access.step(number, |at| {
                at.engine.supply(at.now, found, at.journal, at.deliveries);
            });
        });
    }

    fn read_run(&self, shard: usize, want: Want) -> Option<LookupResult> {
        match want {
            Want::Room => None,
            Want::Block(at, number) => Some(LookupResult::Block(at, self.read_block(at, number))),
            Want::Id(id) => Some(LookupResult::Id(
                id,
                self.look_up(shard, |run| Ok(run.find_id(id.0)?.into_iter().collect())),
            )),
            Want::Key(queue, key) => {
                let hash = key_hash(queue, &key);
                let places = self.look_up(shard, |run| run.find_key(hash));
                Some(LookupResult::Key(queue, key, places))
            }
        }
    }

    /// Asks every run of a shard.
    fn look_up(
        &self,
        shard: usize,
        find: impl Fn(&Run) -> Result<Vec<u32>, LogError>,
    ) -> Vec<(RunId, u32)> {
        let all: Vec<_> = locked(&self.runs.open).values().cloned().collect();
        let mut places = Vec::new();
        for run in all
            .iter()
            .filter(|run| usize::from(run.name().shard) == shard)
        {
            let id = RunId(run.name().number.0);
            match find(run) {
                Ok(ordinals) => places.extend(ordinals.into_iter().map(|ordinal| (id, ordinal))),
                Err(error) => self.unreadable(&error),
            }
        }
        places
    }

    /// `None`: it cannot be read, which was reported.
    fn read_block(&self, at: BlockAt, number: u32) -> Option<Vec<(u32, Message)>> {
        let run = self.runs.get(at.run)?;
        let block = match run.read_block(number) {
            Ok(block) => block,
            Err(error) => {
                self.unreadable(&error);
                return None;
            }
        };
        let mut messages = Vec::with_capacity(block.count() as usize);
        for entry in block.entries() {
            match read_message(entry.payload) {
                Ok(message) if message.id == MessageId(entry.id) => {
                    messages.push((entry.ordinal, message));
                }
                Ok(_) => tracing::error!("{}: entry {} has another id", run.name(), entry.ordinal),
                Err(error) => {
                    tracing::error!("{}: entry {}: {error}", run.name(), entry.ordinal);
                }
            }
        }
        self.runs.counts.fetched.fetch_add(1, Ordering::Relaxed);
        self.runs
            .counts
            .fetched_messages
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        Some(messages)
    }

    fn unreadable(&self, error: &LogError) {
        self.runs.counts.errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!("messages in a run are out of reach, the others are served: {error}");
    }
}
