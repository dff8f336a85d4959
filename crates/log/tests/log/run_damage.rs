//! Damage to a run is found wherever it is, named, and takes nothing but what it hit.

use crate::common;

use std::sync::Arc;

use common::runs::{Bodies, Item, NAME, Plan, verify, wrong_reads};
use quintet_log::{
    LogError, Storage,
    run::{Run, RunPart},
};
use quintet_sim::{Random, disk::SimDisk};

const COVER: usize = 128;
const PART_HEADER: usize = 24;

struct Sound {
    disk: SimDisk,
    plan: Plan,
    bodies: Bodies,
    bytes: Vec<u8>,
}

impl Sound {
    fn new(plan: Plan) -> Self {
        let disk = SimDisk::new(3);
        let (_, bodies) = plan.write(Arc::new(disk.clone()), NAME).expect("write");
        let bytes = disk.content(&NAME.to_string()).expect("the run");
        Self {
            disk,
            plan,
            bodies,
            bytes,
        }
    }

    /// The run with other bytes.
    fn open(&self, bytes: &[u8]) -> Result<Run, LogError> {
        self.disk.set_content(&NAME.to_string(), bytes);
        Run::open(&self.disk, NAME)
    }

    /// Offsets of the parts, and behind the last.
    fn parts(&self) -> Vec<usize> {
        let mut parts = vec![COVER];
        let end = self.bytes.len() - COVER;
        while let Some(&at) = parts.last().filter(|at| **at < end) {
            parts.push(at + PART_HEADER + u32_at(&self.bytes, at + 4) as usize);
        }
        assert_eq!(parts.last(), Some(&end));
        parts
    }

    fn salt(&self) -> &[u8] {
        &self.bytes[24..32]
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Makes the checksums of the part at `at` right again, as far as its length allows.
fn seal_part(bytes: &mut [u8], salt: &[u8], at: usize) {
    let end = (at + PART_HEADER + u32_at(bytes, at + 4) as usize).min(bytes.len());
    let content = crc32c::crc32c(&bytes[at + PART_HEADER..end]);
    bytes[at + 8..at + 12].copy_from_slice(&content.to_le_bytes());
    let mut covered = salt.to_vec();
    covered.extend_from_slice(&(at as u64).to_le_bytes());
    covered.extend_from_slice(&bytes[at + 4..at + PART_HEADER]);
    bytes[at..at + 4].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
}

fn seal_cover(bytes: &mut [u8], at: usize) {
    let crc = crc32c::crc32c(&bytes[at..at + COVER - 4]);
    bytes[at + COVER - 4..at + COVER].copy_from_slice(&crc.to_le_bytes());
}

fn open_error(result: Result<Run, LogError>) -> (u64, String) {
    match result.map(|run| run.name()) {
        Err(LogError::Damaged { file, offset, why }) => {
            assert_eq!(file, NAME.to_string());
            (offset, why)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flipped_bit_is_found_and_misleads_no_reader() {
    let sound = Sound::new(Plan::small());
    let mut random = Random::new(1);
    let mut bytes = sound.bytes.clone();
    for byte in 0..bytes.len() {
        // Of the gap, which is long and all alike, one bit of each byte.
        let bits = match bytes[byte] {
            0 => vec![random.below(8)],
            _ => (0..8).collect(),
        };
        for bit in bits {
            bytes[byte] ^= 1 << bit;
            let run = sound
                .open(&bytes)
                .unwrap_or_else(|error| panic!("byte {byte}: {error}"));
            let (_, damage) = verify(&run);
            assert_eq!(damage.len(), 1, "byte {byte}: {damage:?}");
            let hit = damage[0].offset..damage[0].offset + damage[0].bytes;
            assert!(hit.contains(&(byte as u64)), "byte {byte}: {damage:?}");
            let expected = match damage[0].part {
                RunPart::Block(_) | RunPart::IdPage(_) | RunPart::KeyPage(_) | RunPart::Chunk => {
                    false
                }
                // There are two of these, or nobody needs them.
                _ => true,
            };
            let reads = wrong_reads(&run, &sound.plan, &sound.bodies);
            assert_eq!(reads.is_ok(), expected, "byte {byte}: {damage:?}");
            bytes[byte] ^= 1 << bit;
        }
    }
}

#[test]
fn every_other_length_is_refused() {
    let sound = Sound::new(Plan::small());
    let whole = sound.bytes.len();
    for len in 0..whole {
        let (offset, _) = open_error(sound.open(&sound.bytes[..len]));
        assert!(offset <= len as u64, "{len} bytes: named byte {offset}");
    }
    for more in [1, 128, 5000] {
        let mut bytes = sound.bytes.clone();
        bytes.resize(whole + more, 0);
        assert_eq!(open_error(sound.open(&bytes)).0, whole as u64);
    }
}

#[test]
fn a_lost_sector_anywhere_takes_only_its_own_bytes() {
    let mut tried = 0;
    for sound in (0..60).map(|seed| Sound::new(Plan::any(seed))) {
        // Large enough to have many parts, small enough to try every sector.
        let entries = sound.plan.entries().len();
        if entries > 100 && sound.bytes.len() < 30_000 {
            lose_every_sector(&sound);
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried} runs");
}

fn lose_every_sector(sound: &Sound) {
    for start in (0..sound.bytes.len()).step_by(512) {
        let mut bytes = sound.bytes.clone();
        let end = bytes.len().min(start + 512);
        for byte in &mut bytes[start..end] {
            *byte ^= 0xa5;
        }
        let run = sound.open(&bytes).expect("open");
        let (check, damage) = verify(&run);
        let inside = |offset: u64, len: u64| offset < end as u64 && offset + len > start as u64;
        assert!(!damage.is_empty());
        for found in &damage {
            assert!(inside(found.offset, found.bytes), "{start}: {found:?}");
        }
        let hit = (0..run.blocks()).filter(|number| {
            let block = run.block(*number).expect("a block");
            inside(block.offset, block.bytes)
        });
        let hit: Vec<u32> = hit.collect();
        assert_eq!(check.damaged_blocks, hit);
        for number in 0..run.blocks() {
            let read = run.read_block(number);
            assert_eq!(read.is_err(), hit.contains(&number), "block {number}");
        }
        wrong_reads(&run, &sound.plan, &sound.bodies).ok();
    }
}

#[test]
fn the_ids_of_damaged_blocks_are_listed() {
    let sound = Sound::new(Plan::small());
    let parts = sound.parts();
    let run = sound.open(&sound.bytes).expect("open");
    let first = run.block(0).expect("a block");
    let last = run.block(run.blocks() - 1).expect("a block");
    let mut bytes = sound.bytes.clone();
    bytes[first.offset as usize + 3] ^= 1;
    bytes[last.offset as usize + 40] ^= 1;
    let run = sound.open(&bytes).expect("open");
    let (check, damage) = verify(&run);
    assert_eq!(check.damaged_blocks, [0, run.blocks() - 1]);
    assert_eq!(check.lost_entries, first.count + last.count);
    assert_eq!(damage[0].part, RunPart::Block(0));
    assert_eq!(damage[0].offset, first.offset);
    assert!(damage[0].why.contains("checksum"), "{}", damage[0].why);

    let mut named = Vec::new();
    let lost = run.ids_in(&check.damaged_blocks, &mut |id, ordinal| {
        named.push((ordinal, id))
    });
    named.sort_unstable();
    let expected: Vec<(u32, u64)> = (0..)
        .zip(sound.plan.entries())
        .map(|(ordinal, entry)| (ordinal, entry.0))
        .filter(|(ordinal, _)| {
            let inside = |block: &quintet_log::run::BlockInfo| {
                (block.first_ordinal..block.first_ordinal + block.count).contains(ordinal)
            };
            inside(&first) || inside(&last)
        })
        .collect();
    assert_eq!(named, expected);
    assert_eq!((lost.named, lost.unnamed), (check.lost_entries, 0));

    // With the index gone too, what is lost can still be counted.
    let page = parts
        .iter()
        .find(|at| sound.bytes[**at + 20] == 3)
        .expect("a page of ids");
    bytes[*page] ^= 1;
    let run = sound.open(&bytes).expect("open");
    assert!(!verify(&run).0.ids_good);
    let lost = run.ids_in(&check.damaged_blocks, &mut |_, _| {
        panic!("nothing can be named")
    });
    assert_eq!((lost.named, lost.unnamed), (0, check.lost_entries));
}

#[test]
fn a_part_in_the_wrong_place_or_of_another_file_is_not_taken() {
    let sound = Sound::new(Plan::small());
    let run = sound.open(&sound.bytes).expect("open");
    let (one, two) = (
        run.block(0).expect("a block"),
        run.block(1).expect("a block"),
    );
    let range = |block: &quintet_log::run::BlockInfo| {
        block.offset as usize..(block.offset + block.bytes) as usize
    };
    let mut bytes = sound.bytes.clone();
    let len = range(&one).len().min(range(&two).len());
    bytes.copy_within(
        range(&one).start..range(&one).start + len,
        range(&two).start,
    );
    let run = sound.open(&bytes).expect("open");
    assert!(run.read_block(0).is_ok() && run.read_block(1).is_err());

    // The same run written again has another salt.
    let again = SimDisk::new(4);
    sound
        .plan
        .write(Arc::new(again.clone()), NAME)
        .expect("write");
    let mut bytes = sound.bytes.clone();
    let other = again.content(&NAME.to_string()).expect("the run");
    bytes[range(&two)].copy_from_slice(&other[range(&two)]);
    let run = sound.open(&bytes).expect("open");
    assert!(run.read_block(0).is_ok() && run.read_block(1).is_err());
}

#[test]
fn chunks_that_changed_places_are_not_taken() {
    // Alike in everything but their place.
    let mut plan = Plan::small();
    plan.state_indexes[0].1 = vec![Item::Large(vec![1; 50]), Item::Large(vec![2; 50])];
    let sound = Sound::new(plan);
    let parts = sound.parts();
    let mut bytes = sound.bytes.clone();
    bytes.copy_within(parts[0]..parts[1], parts[1]);
    bytes[parts[0]..parts[1]].copy_from_slice(&sound.bytes[parts[1]..parts[2]]);
    assert_ne!(bytes, sound.bytes);
    let run = sound.open(&bytes).expect("open");
    assert_eq!(wrong_reads(&run, &sound.plan, &sound.bodies), Err(2));
    let (_, damage) = verify(&run);
    assert_eq!(damage[0].part, RunPart::Chunk);
}

#[test]
fn a_run_under_another_name_is_refused() {
    let sound = Sound::new(Plan::small());
    for (shard, number) in [(3, 8), (2, 7)] {
        let mut other = NAME;
        other.shard = shard;
        other.number.0 = number;
        sound.disk.set_content(&other.to_string(), &sound.bytes);
        match Run::open(&sound.disk, other).map(|run| run.name()) {
            Err(LogError::Damaged { file, why, .. }) => {
                assert_eq!(file, other.to_string());
                assert!(why.contains(&NAME.to_string()), "{why}");
            }
            result => panic!("{result:?}"),
        }
    }
}

#[test]
fn a_later_format_is_refused_by_the_name_of_its_writer() {
    let sound = Sound::new(Plan::small());
    let trailer = sound.bytes.len() - COVER;
    for (offset, what) in [(8, "format version 2"), (16, "feature flags 0x2")] {
        let mut bytes = sound.bytes.clone();
        for at in [0, trailer] {
            bytes[at + offset] = 2;
            bytes[at + 56..at + 69].copy_from_slice(b"quintet 9.9.9");
            seal_cover(&mut bytes, at);
        }
        match sound.open(&bytes).map(|run| run.name()) {
            Err(LogError::NewerFormat {
                what: found,
                written_by,
                ..
            }) => {
                assert_eq!((&found[..], &written_by[..]), (what, "quintet 9.9.9"));
            }
            result => panic!("{result:?}"),
        }
        // Flags that may be ignored are.
        let mut bytes = sound.bytes.clone();
        for at in [0, trailer] {
            bytes[at + 20] = 2;
            seal_cover(&mut bytes, at);
        }
        sound
            .plan
            .assert_is(&sound.open(&bytes).expect("open"), &sound.bodies);
    }
}

#[test]
fn reads_that_fail_are_errors_and_no_more() {
    let sound = Sound::new(Plan::small());
    let mut refused = 0;
    for number in 1..60 {
        let disk = sound.disk.fork();
        disk.fail_read_at(number);
        match Run::open(&disk, NAME) {
            Ok(run) => {
                let (_, damage) = verify(&run);
                let reads = wrong_reads(&run, &sound.plan, &sound.bodies);
                assert!(
                    damage.len() <= 1 && reads.is_ok() | reads.is_err_and(|failed| failed == 1)
                );
            }
            Err(LogError::Io { .. } | LogError::BadRead { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // Opening the file, asking for its length: the only reads without a second chance.
    assert_eq!(refused, 2);
}

/// Reads all there is to read of a run that may be anything.
fn read_all(run: &Run, plan: &Plan, bodies: &Bodies) {
    let check = run.verify(&mut |_| {});
    run.ids_in(&check.damaged_blocks, &mut |_, _| {});
    for number in 0..run.blocks() {
        if let Ok(block) = run.read_block(number) {
            assert_eq!(block.entries().count(), block.count() as usize);
        }
    }
    for (id, key, _) in plan.entries() {
        run.find_id(id).ok();
        run.find_key(key.unwrap_or(id)).ok();
    }
    for (chunks, _) in bodies {
        for chunk in chunks {
            run.read_chunk(*chunk, &mut vec![0; chunk.len as usize])
                .ok();
        }
    }
    assert!(
        run.memory_bytes() < 100_000,
        "allocated for what cannot be there"
    );
}

#[test]
fn contents_that_no_writer_makes_do_no_harm_even_with_good_checksums() {
    let sound = Sound::new(Plan::small());
    let parts = sound.parts();
    let (mut opened, mut refused) = (0, 0);
    let mut same = sound.bytes.clone();
    for at in &parts[..parts.len() - 1] {
        seal_part(&mut same, sound.salt(), *at);
    }
    assert_eq!(same, sound.bytes, "this is how a part is sealed");
    for seed in 0..30_000 {
        let mut random = Random::new(seed);
        let mut bytes = sound.bytes.clone();
        let at = parts[random.index(parts.len() - 1)];
        let content = at + PART_HEADER..at + PART_HEADER + u32_at(&bytes, at + 4) as usize;
        for _ in 0..=random.index(3) {
            // Contents mostly; now and then a header's length or counts.
            let byte = match random.below(4) {
                0 => at + 4 + random.index(16),
                _ => content.start + random.index(content.len().min(200)),
            };
            bytes[byte] = match random.below(3) {
                0 => random.next_u64() as u8,
                1 => 0xff,
                _ => bytes[byte] ^ (1 << random.below(8)),
            };
        }
        seal_part(&mut bytes, sound.salt(), at);
        if bytes[at + 20] == 5 {
            // Both footers alike, or the good one would be used.
            let second = parts[parts.len() - 2];
            let first = parts[parts.len() - 4];
            let len = content.len();
            bytes.copy_within(
                at + PART_HEADER..at + PART_HEADER + len,
                first + PART_HEADER,
            );
            bytes.copy_within(
                at + PART_HEADER..at + PART_HEADER + len,
                second + PART_HEADER,
            );
            seal_part(&mut bytes, sound.salt(), first);
            seal_part(&mut bytes, sound.salt(), second);
        }
        match sound.open(&bytes) {
            Ok(run) => {
                read_all(&run, &sound.plan, &sound.bodies);
                opened += 1;
            }
            Err(LogError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        opened > 1000 && refused > 1000,
        "{opened} opened, {refused} refused"
    );
}

#[test]
fn parts_that_do_not_agree_are_found_even_with_good_checksums() {
    let sound = Sound::new(Plan::small());
    let parts = sound.parts();
    let of_kind = |kind: u8| {
        let found = parts
            .iter()
            .filter(|at| sound.bytes.get(**at + 20) == Some(&kind));
        found.copied().collect::<Vec<usize>>()
    };
    // Kind of part, byte of its content, what is there, what to put there: the second id stands
    // for the ordinal behind its own, the first key for another entry, a payload byte more, a chunk
    // more.
    for (kind, byte, old, new, what) in [
        (3, 3, 7, 5, "the id index"),
        (4, 1, 2, 0, "the key index"),
        (5, 0, 0xfa, 0xfb, "as long as the footer says"),
        (5, 2, 1, 2, "chunks"),
    ] {
        let mut bytes = sound.bytes.clone();
        for at in of_kind(kind) {
            let byte = &mut bytes[at + PART_HEADER + byte];
            assert_eq!(*byte, old, "{what}");
            *byte = new;
            seal_part(&mut bytes, sound.salt(), at);
        }
        let run = sound.open(&bytes).expect("open");
        let (check, damage) = verify(&run);
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].part, RunPart::Whole);
        assert!(damage[0].why.contains(what), "{damage:?}");
        assert_eq!((check.ids_good, check.keys_good), (kind != 3, kind != 4));
    }
}

#[test]
fn covers_that_no_writer_makes_do_no_harm_even_with_good_checksums() {
    let sound = Sound::new(Plan::small());
    let trailer = sound.bytes.len() - COVER;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut bytes = sound.bytes.clone();
        let field = [24, 40, 48][random.index(3)] + random.index(8);
        let value = random.next_u64() as u8;
        for at in [0, trailer] {
            bytes[at + field] = value;
            seal_cover(&mut bytes, at);
        }
        match sound.open(&bytes) {
            Ok(run) => read_all(&run, &sound.plan, &sound.bodies),
            Err(LogError::Damaged { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

#[test]
fn arbitrary_bytes_are_no_run() {
    let sound = Sound::new(Plan::small());
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let len = random.index(6000);
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
        open_error(sound.open(&bytes));
    }
    sound.disk.remove(&NAME.to_string()).expect("remove");
    assert!(matches!(
        Run::open(&sound.disk, NAME),
        Err(LogError::Io { .. })
    ));
}
