//! It does what a `BTreeMap` does, whatever the order of its keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Ascending, CHUNK, Chunk};

/// A generator that needs no crate: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let at = usize::try_from(self.next(list.len() as u64));
        &list[at.expect("below the length of a list")]
    }
}

impl<V> Ascending<u64, V> {
    fn check(&self) {
        let full = || self.full().into_iter().flatten();
        let mut last = None;
        let mut live = 0;
        for chunk in full().chain([&self.open]) {
            let Chunk { entries, first, .. } = chunk;
            for (at, (key, value)) in entries.iter().enumerate() {
                assert!(last < Some(*key), "keys ascend");
                last = Some(*key);
                assert!(
                    at >= *first as usize || value.is_none(),
                    "nothing before the first"
                );
                let twice =
                    value.is_some() && self.rest().is_some_and(|rest| rest.contains_key(key));
                assert!(!twice, "{key} is in two places");
            }
            let here = entries.iter().filter(|entry| entry.1.is_some()).count();
            assert_eq!(here, chunk.live as usize);
            live += here;
            assert!(entries.is_empty() || entries[*first as usize].1.is_some());
            assert!(entries.last().is_none_or(|entry| entry.1.is_some()));
            assert!(
                entries.len() <= CHUNK.max(2 * here),
                "{} for {here}",
                entries.len()
            );
        }
        assert!(full().all(|chunk| chunk.live > 0));
        assert_eq!(live + self.rest().map_or(0, BTreeMap::len), self.len);
    }
}

fn same(map: &Ascending<u64, u32>, model: &BTreeMap<u64, u32>, random: &mut Random) {
    map.check();
    assert_eq!(map.len(), model.len());
    let first = model.first_key_value().map(|(&key, value)| (key, value));
    assert_eq!(map.first_key_value(), first);
    assert_eq!(map.last_key(), model.keys().next_back().copied());
    let all: Vec<(u64, u32)> = model.iter().map(|(&key, &value)| (key, value)).collect();
    let found: Vec<(u64, u32)> = map.iter().map(|(key, &value)| (key, value)).collect();
    assert_eq!(found, all);
    let mut bound = |key: u64| match random.next(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let top = all.last().map_or(8, |last| last.0 + 8);
    let (from, to) = (bound(top / 3), bound(top / 2 + 1));
    let within: Vec<u64> = model.range((from, to)).map(|(&key, _)| key).collect();
    let range: Vec<u64> = map.range((from, to)).map(|(key, _)| key).collect();
    assert_eq!(range, within, "{from:?} to {to:?}");
    let mut back: Vec<u64> = map.range_back((from, to)).map(|(key, _)| key).collect();
    back.reverse();
    assert_eq!(back, within, "{from:?} back from {to:?}");
}

/// So many operations; `fresh` of ten keys come in order, `front` of ten go
/// from the front.
fn compare(seed: u64, fresh: u64, front: u64, grows: u64) {
    let mut random = Random(seed);
    let (mut map, mut model) = (Ascending::default(), BTreeMap::new());
    let mut next = 0;
    let mut gone = vec![0];
    for step in 0..4000_u32 {
        if random.next(10) < grows {
            let key = match random.next(10) < fresh {
                true => {
                    next += 1 + random.next(3);
                    next
                }
                // Mostly one that was there.
                false if random.next(4) > 0 => *random.one_of(&gone),
                false => random.next(next + 2),
            };
            assert_eq!(map.insert(key, step), model.insert(key, step));
        } else if random.next(10) < front {
            let popped = map.pop_first();
            assert_eq!(popped, model.pop_first());
            gone.extend(popped.map(|(key, _)| key));
        } else {
            let key = random.next(next + 2);
            assert_eq!(map.get(&key), model.get(&key));
            assert_eq!(map.remove(&key), model.remove(&key));
            gone.push(key);
        }
        if step % 61 == 0 {
            same(&map, &model, &mut random);
        }
    }
    same(&map, &model, &mut random);
    while let Some(first) = map.pop_first() {
        assert_eq!(Some(first), model.pop_first());
    }
    assert!(model.is_empty() && map.is_empty());
    map.check();
}

#[test]
fn it_is_an_ordered_map() {
    let mut seed = 0;
    for fresh in [0, 5, 9, 10] {
        for front in [0, 5, 10] {
            for grows in [4, 5, 7] {
                seed += 1;
                compare(seed, fresh, front, grows);
            }
        }
    }
}

#[test]
fn a_line_that_moves_on_keeps_its_room() {
    let mut map = Ascending::default();
    for key in 0..10_000_u64 {
        map.insert(key, ());
        if key >= 5 {
            map.pop_first();
        }
    }
    assert!(map.more.is_none() && map.open.entries.capacity() <= 16);
}

#[test]
fn few_remaining_entries_keep_little_memory() {
    let mut map = Ascending::default();
    for key in 0..100 * CHUNK as u64 {
        map.insert(key, ());
    }
    for key in 0..100 * CHUNK as u64 {
        if key % CHUNK as u64 != 7 {
            map.remove(&key);
        }
    }
    map.check();
    let room = map.full().into_iter().flatten().chain([&map.open]);
    let room: usize = room.map(|chunk| chunk.entries.capacity()).sum();
    assert!(
        map.len() == 100 && room <= 800,
        "{room} entries for {}",
        map.len()
    );
}
