//! Runs as tests make them: a plan, the file it becomes, and whether that holds the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quintet_log::{
    LogError, Storage,
    run::{
        BlockPosition, CHUNK_BYTES_MAX, Chunk, Run, RunCheck, RunDamage, RunFinding, RunName,
        RunNumber, RunOptions, RunWriter,
    },
};
use quintet_sim::Random;

pub(crate) const NAME: RunName = RunName {
    shard: 3,
    number: RunNumber(7),
};

/// Entries for a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) options: RunOptions,
    pub(crate) state_indexes: Vec<(Vec<u8>, Vec<Item>)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Entry {
        id: u64,
        key: Option<u64>,
        payload: Vec<u8>,
    },
    Large(Vec<u8>),
}

/// A large body and where it went.
pub(crate) type Bodies = Vec<(Vec<Chunk>, Vec<u8>)>;

impl Plan {
    /// A few state indexes of a few entries in several blocks, keys that repeat, a body of two
    /// chunks: a file of which every byte can be tried.
    pub(crate) fn small() -> Self {
        let entry = |id: u64, key: Option<u64>, len: usize| Item::Entry {
            id,
            key,
            payload: vec![id as u8; len],
        };
        Self {
            options: RunOptions {
                block_bytes: 100,
                sort_bytes: 48,
                created_ms: 1_700_000_000_000,
            },
            state_indexes: vec![
                (
                    b"one".to_vec(),
                    vec![
                        entry(5, None, 30),
                        entry(6, Some(77), 30),
                        Item::Large((0..120).collect()),
                        entry(7, Some(u64::MAX), 40),
                    ],
                ),
                (b"none".to_vec(), vec![]),
                (
                    b"".to_vec(),
                    vec![entry(1 << 40, Some(77), 0), entry(3, Some(77), 150)],
                ),
            ],
        }
    }

    /// Any shape: ids and keys in any order, blocks and payloads of any size, sorting in one go or
    /// through many stretches.
    pub(crate) fn any(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let options = RunOptions {
            block_bytes: [1, 64, 300, 4096, 32 << 10][random.index(5)],
            sort_bytes: [0, 100, 16_000, 4 << 20][random.index(4)],
            created_ms: random.next_u64(),
        };
        let mut ids = Ids::any(&mut random);
        let keyed = random.below(4);
        let long = [1, 30, 700, 40_000][random.index(4)];
        let state_indexes = (0..random.index(6))
            .map(|_| {
                let tag: Vec<u8> = (0..random.index(65))
                    .map(|_| random.next_u64() as u8)
                    .collect();
                let most = [2, 40, 900][random.index(3)];
                let count = random.index(most);
                let count = if long > 1000 { count / 20 } else { count };
                let items = (0..count).map(|_| any_item(&mut random, &mut ids, keyed, long));
                (tag, items.collect())
            })
            .collect();
        Self {
            options,
            state_indexes,
        }
    }

    /// Writes it as a run.
    pub(crate) fn write(
        &self,
        storage: Arc<dyn Storage>,
        name: RunName,
    ) -> Result<(Run, Bodies), LogError> {
        let mut writer = RunWriter::create(storage, name, self.options)?;
        let mut bodies = Bodies::new();
        for (tag, items) in &self.state_indexes {
            writer.state_index(tag)?;
            for item in items {
                match item {
                    Item::Entry { id, key, payload } => {
                        let ordinal = writer.entries();
                        assert_eq!(writer.push(*id, *key, payload)?, ordinal);
                    }
                    Item::Large(body) => {
                        let chunks = body.chunks(CHUNK_BYTES_MAX).map(|part| {
                            writer.chunk(part.len(), &mut |bytes| {
                                bytes.copy_from_slice(part);
                                Ok(())
                            })
                        });
                        let chunks = chunks.collect::<Result<_, _>>()?;
                        bodies.push((chunks, body.clone()));
                    }
                }
            }
        }
        Ok((writer.finish()?, bodies))
    }

    pub(crate) fn entries(&self) -> Vec<(u64, Option<u64>, &[u8])> {
        let items = self.state_indexes.iter().flat_map(|(_, items)| items);
        items
            .filter_map(|item| match item {
                Item::Entry { id, key, payload } => Some((*id, *key, &payload[..])),
                Item::Large(_) => None,
            })
            .collect()
    }

    /// Asserts that a run is this plan, by every way of reading it.
    pub(crate) fn assert_is(&self, run: &Run, bodies: &Bodies) {
        assert_eq!(run.created_ms(), self.options.created_ms);
        self.assert_table(run);
        assert_eq!(wrong_reads(run, self, bodies), Ok(()));
        let (check, damage) = verify(run);
        assert_eq!(damage, []);
        assert_eq!((check.blocks, check.entries), (run.blocks(), run.entries()));
        let body_bytes: usize = bodies.iter().map(|(_, body)| body.len()).sum();
        assert_eq!(check.chunk_bytes, body_bytes as u64);
        assert_eq!(run.chunk_bytes(), body_bytes as u64);
    }

    /// State indexes, blocks and totals.
    fn assert_table(&self, run: &Run) {
        let entries = self.entries();
        assert_eq!(run.entries() as usize, entries.len());
        let ids = entries.iter().map(|entry| entry.0);
        assert_eq!(run.ids(), ids.clone().min().zip(ids.max()));
        assert_eq!(run.state_indexes().len(), self.state_indexes.len());
        let (mut block, mut ordinal, mut bytes) = (0, 0, 0);
        for (state_index, (tag, items)) in run.state_indexes().iter().zip(&self.state_indexes) {
            let payloads: Vec<usize> = items
                .iter()
                .filter_map(|item| match item {
                    Item::Entry { payload, .. } => Some(payload.len()),
                    Item::Large(_) => None,
                })
                .collect();
            assert_eq!(state_index.tag[..], tag[..]);
            assert_eq!(
                (state_index.first_block, state_index.first_ordinal),
                (block, ordinal)
            );
            assert_eq!(state_index.entries as usize, payloads.len());
            assert_eq!(
                state_index.payload_bytes,
                payloads.iter().sum::<usize>() as u64
            );
            for number in block..block + state_index.blocks {
                let info = run.block(number).expect("a block of the lane");
                assert_eq!(info.first_ordinal, ordinal);
                assert!(info.count > 0);
                for inside in ordinal..ordinal + info.count {
                    assert_eq!(run.block_of(inside), Some(number));
                }
                ordinal += info.count;
            }
            block += state_index.blocks;
            bytes += state_index.payload_bytes;
            assert_eq!(ordinal, state_index.first_ordinal + state_index.entries);
        }
        assert_eq!((run.blocks(), run.payload_bytes()), (block, bytes));
        assert_eq!(run.block_of(ordinal), None);
        assert_eq!(run.block(block), None);
    }
}

/// Reads a run by every way there is. `Ok` when all of it was as planned, else how many reads
/// failed. A read that succeeds with something else panics.
pub(crate) fn wrong_reads(run: &Run, plan: &Plan, bodies: &Bodies) -> Result<(), usize> {
    let entries = plan.entries();
    let mut failed = 0;
    let mut keys: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let ids: BTreeSet<u64> = entries.iter().map(|entry| entry.0).collect();
    for (ordinal, (id, key, _)) in (0_u32..).zip(&entries) {
        if let Some(key) = key {
            keys.entry(*key).or_default().push(ordinal);
        }
        match run.find_id(*id) {
            Ok(found) => assert_eq!(found, Some(ordinal), "id {id}"),
            Err(error) => failed += counted(&error),
        }
        let other = id.wrapping_add(1);
        if !ids.contains(&other) {
            match run.find_id(other) {
                Ok(found) => assert_eq!(found, None, "id {other}"),
                Err(error) => failed += counted(&error),
            }
        }
    }
    for (key, ordinals) in &keys {
        match run.find_key(*key) {
            Ok(found) => assert_eq!(&found, ordinals, "key {key}"),
            Err(error) => failed += counted(&error),
        }
    }
    if !keys.contains_key(&12_345) {
        match run.find_key(12_345) {
            Ok(found) => assert!(found.is_empty()),
            Err(error) => failed += counted(&error),
        }
    }
    // Kept from block to block, as one that reads several would.
    let mut position = BlockPosition::default();
    for number in 0..run.blocks() {
        match run.read_block(number) {
            Ok(block) => {
                assert_eq!(block.number(), number);
                assert_eq!(block.entries().count(), block.count() as usize);
                let end = block.first_ordinal() + block.count();
                // Forward with gaps, backward, behind the end, and the first again.
                let forward = (block.first_ordinal()..end).filter(|n| n % 3 != 1);
                let backward = (block.first_ordinal()..end).rev().step_by(2).take(9);
                let ends = [end, block.first_ordinal(), end, u32::MAX];
                for ordinal in forward.chain(backward).chain(ends) {
                    let found = block.entry_from(&mut position, ordinal);
                    assert_eq!(found, block.entry(ordinal), "entry {ordinal}");
                }
                for entry in block.entries() {
                    let (id, key, payload) = entries[entry.ordinal as usize];
                    assert_eq!((entry.id, entry.key, entry.payload), (id, key, payload));
                    assert_eq!(block.entry(entry.ordinal), Some(entry));
                }
                assert_eq!(block.entry(block.first_ordinal() + block.count()), None);
            }
            Err(error) => failed += counted(&error),
        }
    }
    for (chunks, body) in bodies {
        let mut rest = &body[..];
        for chunk in chunks {
            let mut bytes = vec![0; chunk.len as usize];
            let (expected, later) = rest.split_at(bytes.len());
            match run.read_chunk(*chunk, &mut bytes) {
                Ok(()) => assert_eq!(bytes, expected),
                Err(error) => failed += counted(&error),
            }
            rest = later;
        }
        assert!(rest.is_empty());
    }
    if failed == 0 { Ok(()) } else { Err(failed) }
}

fn counted(error: &LogError) -> usize {
    let named = match error {
        LogError::Damaged { file, .. } | LogError::BadRead { file, .. } => file,
        other => panic!("failed for another reason: {other}"),
    };
    assert_eq!(named, &NAME.to_string());
    1
}

/// All that a check of the run finds.
pub(crate) fn verify(run: &Run) -> (RunCheck, Vec<RunDamage>) {
    let (mut damage, mut last) = (Vec::new(), 0);
    let check = run.verify(&mut |finding| match finding {
        RunFinding::Damage(found) => damage.push(found.clone()),
        RunFinding::Progress { done, total } => {
            assert!(last <= done && done <= total);
            last = done;
        }
    });
    assert_eq!(last, run.file_bytes());
    assert_eq!(check.damaged, damage.len() as u64);
    (check, damage)
}

fn any_item(random: &mut Random, ids: &mut Ids, keyed: u64, long: usize) -> Item {
    if random.chance(1, 50) {
        let body = (0..=random.index(5000)).map(|_| random.next_u64() as u8);
        return Item::Large(body.collect());
    }
    let key = random.chance(keyed, 3).then(|| {
        // Few that repeat over several pages, and many that do not.
        if random.chance(1, 2) {
            random.below(3)
        } else {
            random.next_u64()
        }
    });
    Item::Entry {
        id: ids.next(random),
        key,
        payload: (0..random.index(long))
            .map(|_| random.next_u64() as u8)
            .collect(),
    }
}

/// Ids in some order, none twice.
enum Ids {
    Rising(u64),
    Falling(u64),
    Random(BTreeSet<u64>),
}

impl Ids {
    fn any(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Rising(random.below(1 << 50)),
            1 => Self::Falling(u64::MAX),
            _ => Self::Random(BTreeSet::new()),
        }
    }

    fn next(&mut self, random: &mut Random) -> u64 {
        match self {
            Self::Rising(last) => {
                *last += 1 + random.below(3);
                *last
            }
            Self::Falling(next) => {
                let id = *next;
                *next -= 1 + random.below(1 << 30);
                id
            }
            Self::Random(taken) => loop {
                let bits = random.below(63);
                let id = random.next_u64() >> bits;
                if taken.insert(id) {
                    return id;
                }
            },
        }
    }
}
