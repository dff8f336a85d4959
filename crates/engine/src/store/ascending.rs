//! An ordered map that costs least where keys come in ascending order and go
//! from the front, as the messages of a queue mostly do: such an entry is
//! appended and popped without a search. Any other order is right too, and
//! costs what a `BTreeMap` costs.

use std::collections::{BTreeMap, VecDeque, btree_map};
use std::iter::Peekable;
use std::ops::Bound;

/// Entries of a chunk: so few that moving half of them is nothing, so many
/// that chunks are few.
const CHUNK: usize = 128;
/// Entries for which an emptied map keeps its room.
const KEPT: usize = 8;

/// A stretch of ascending keys. What left from the midst is a hole, `None`,
/// which keeps its key, so that it can come back to its place.
#[derive(Debug)]
struct Chunk<K, V> {
    /// Unless there are none, the last one is no hole.
    entries: Vec<(K, Option<V>)>,
    /// The first one that is no hole.
    first: u32,
    /// Entries that are no holes.
    live: u32,
}

impl<K, V> Default for Chunk<K, V> {
    fn default() -> Self {
        Self::with_room(0)
    }
}

impl<K, V> Chunk<K, V> {
    fn with_room(room: usize) -> Self {
        Self {
            entries: Vec::with_capacity(room),
            first: 0,
            live: 0,
        }
    }
}

impl<K: Copy + Ord, V> Chunk<K, V> {
    fn first_key(&self) -> Option<K> {
        self.entries.get(self.start()).map(|entry| entry.0)
    }

    fn start(&self) -> usize {
        self.first as usize
    }

    fn last_key(&self) -> Option<K> {
        self.entries.last().map(|entry| entry.0)
    }

    /// Appends an entry; there is room, or may be made.
    fn push(&mut self, key: K, value: V) {
        let len = self.entries.len();
        let start = self.start();
        if len == self.entries.capacity() && start > 0 && start * 2 >= len {
            self.entries.drain(..start);
            self.first = 0;
        }
        self.entries.push((key, Some(value)));
        self.live += 1;
    }

    /// Where a key is, or was.
    fn find(&self, key: &K) -> Option<usize> {
        if self.first_key() == Some(*key) {
            return Some(self.start());
        }
        let found = self.entries.binary_search_by(|entry| entry.0.cmp(key));
        found.ok()
    }

    /// Sets an entry whose key is there already.
    fn set(&mut self, at: usize, value: V) -> Option<V> {
        let old = self.entries[at].1.replace(value);
        self.live += u32::from(old.is_none());
        self.first = self.first.min(position(at));
        old
    }

    fn take(&mut self, at: usize) -> Option<V> {
        let value = self.entries[at].1.take()?;
        self.live -= 1;
        if self.live == 0 {
            self.first = 0;
            match self.entries.capacity() > KEPT {
                true => self.entries = Vec::new(),
                false => self.entries.clear(),
            }
            return Some(value);
        }
        if at == self.start() {
            let behind = self.entries[at..].iter();
            self.first += position(behind.take_while(|entry| entry.1.is_none()).count());
        } else if at + 1 == self.entries.len() {
            while self.entries.last().is_some_and(|entry| entry.1.is_none()) {
                self.entries.pop();
            }
        }
        let live = self.live as usize;
        if self.entries.capacity() > KEPT && live * 8 <= self.entries.capacity() {
            let old = std::mem::replace(&mut self.entries, Vec::with_capacity(live));
            self.entries
                .extend(old.into_iter().filter(|entry| entry.1.is_some()));
            self.first = 0;
        }
        Some(value)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "no chunk has more than CHUNK live entries and as many holes before them"
)]
fn position(at: usize) -> u32 {
    at as u32
}

/// The map.
#[derive(Debug)]
pub(crate) struct Ascending<K, V> {
    /// The newest chunk.
    open: Chunk<K, V>,
    /// Entries that do not fit there; mostly none.
    more: Option<Box<Overflow<K, V>>>,
    len: usize,
}

#[derive(Debug)]
struct Overflow<K, V> {
    /// Chunks to which nothing is added, in their order; none is empty.
    full: VecDeque<Chunk<K, V>>,
    /// Entries that came out of order. No key is here and in a chunk.
    rest: BTreeMap<K, V>,
}

impl<K, V> Default for Overflow<K, V> {
    fn default() -> Self {
        Self {
            full: VecDeque::new(),
            rest: BTreeMap::new(),
        }
    }
}

impl<K, V> Default for Ascending<K, V> {
    fn default() -> Self {
        Self {
            open: Chunk::default(),
            more: None,
            len: 0,
        }
    }
}

impl<K: Copy + Ord, V> Ascending<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn full(&self) -> Option<&VecDeque<Chunk<K, V>>> {
        self.more.as_ref().map(|more| &more.full)
    }

    fn rest(&self) -> Option<&BTreeMap<K, V>> {
        self.more.as_ref().map(|more| &more.rest)
    }

    fn chunk(&self, at: usize) -> &Chunk<K, V> {
        let full = self.full().and_then(|full| full.get(at));
        full.unwrap_or(&self.open)
    }

    fn chunk_mut(&mut self, at: usize) -> &mut Chunk<K, V> {
        let full = self.more.as_mut().and_then(|more| more.full.get_mut(at));
        full.unwrap_or(&mut self.open)
    }

    fn last_lined(&self) -> Option<K> {
        self.open
            .last_key()
            .or_else(|| self.full()?.back()?.last_key())
    }

    fn last_of_rest(&self) -> Option<K> {
        let last = self.rest()?.last_key_value();
        last.map(|(&key, _)| key)
    }

    /// The first chunk of which `behind` is true, as it is of all behind that.
    fn chunk_where(&self, behind: impl Fn(K) -> bool) -> usize {
        let before = |chunk: &Chunk<K, V>| chunk.last_key().is_some_and(|last| !behind(last));
        self.full().map_or(0, |full| full.partition_point(before))
    }

    /// The chunk, and where in it a key is or was.
    fn find(&self, key: &K) -> Option<(usize, usize)> {
        let front = self.chunk(0);
        if front.first_key() == Some(*key) {
            return Some((0, front.start()));
        }
        let chunk = self.chunk_where(|last| last >= *key);
        Some((chunk, self.chunk(chunk).find(key)?))
    }

    /// Answers what was there under this key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = match self.last_lined().is_none_or(|last| last < key) {
            true => self.append(key, value),
            false => self.insert_before(key, value),
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// Enters what is behind all that is in chunks.
    fn append(&mut self, key: K, value: V) -> Option<V> {
        if self.last_of_rest().is_some_and(|last| last >= key) {
            return self.more.get_or_insert_default().rest.insert(key, value);
        }
        if self.open.entries.len() >= CHUNK && self.open.start() < CHUNK / 2 {
            let filled = std::mem::replace(&mut self.open, Chunk::with_room(CHUNK));
            self.more.get_or_insert_default().full.push_back(filled);
        }
        self.open.push(key, value);
        None
    }

    fn insert_before(&mut self, key: K, value: V) -> Option<V> {
        // It may come back to where it was.
        match self.find(&key) {
            Some((chunk, at)) => self.chunk_mut(chunk).set(at, value),
            None => self.more.get_or_insert_default().rest.insert(key, value),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let lined = self.find(key);
        let lined = lined.and_then(|(chunk, at)| Some((chunk, self.chunk_mut(chunk).take(at)?)));
        let value = match (lined, &mut self.more) {
            (None, None) => return None,
            (None, Some(more)) => more.rest.remove(key)?,
            (Some((_, value)), None) => value,
            (Some((chunk, value)), Some(more)) => {
                if more.full.get(chunk).is_some_and(|chunk| chunk.live == 0) {
                    more.full.remove(chunk);
                }
                value
            }
        };
        self.len -= 1;
        if self.len == 0 {
            self.more = None;
        }
        Some(value)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let lined = self.find(key);
        let lined = lined.and_then(|(chunk, at)| self.chunk(chunk).entries[at].1.as_ref());
        lined.or_else(|| self.rest()?.get(key))
    }

    pub(crate) fn first_key_value(&self) -> Option<(K, &V)> {
        let front = self.chunk(0);
        let lined = front.entries.get(front.start());
        let lined = lined.and_then(|(key, value)| Some((*key, value.as_ref()?)));
        let rest = self.rest().and_then(BTreeMap::first_key_value);
        let rest = rest.map(|(&key, value)| (key, value));
        match (lined, rest) {
            (Some(lined), Some(rest)) if rest.0 < lined.0 => Some(rest),
            (None, rest) => rest,
            (lined, _) => lined,
        }
    }

    pub(crate) fn last_key(&self) -> Option<K> {
        self.last_lined().max(self.last_of_rest())
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let (key, _) = self.first_key_value()?;
        self.remove(&key).map(|value| (key, value))
    }

    /// From the first one on.
    pub(crate) fn range(
        &self,
        range: (Bound<K>, Bound<K>),
    ) -> impl Iterator<Item = (K, &V)> + use<'_, K, V> {
        let (lined, rest) = self.parts(range);
        merged(lined, rest.map(|(&key, value)| (key, value)), |a, b| a < b)
    }

    /// From the last one back.
    pub(crate) fn range_back(
        &self,
        range: (Bound<K>, Bound<K>),
    ) -> impl Iterator<Item = (K, &V)> + use<'_, K, V> {
        let (lined, rest) = self.parts(range);
        let rest = rest.rev().map(|(&key, value)| (key, value));
        merged(lined.rev(), rest, |a, b| a > b)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> + use<'_, K, V> {
        self.range((Bound::Unbounded, Bound::Unbounded))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> + use<'_, K, V> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.iter().map(|(_, value)| value)
    }

    fn parts(
        &self,
        (from, to): (Bound<K>, Bound<K>),
    ) -> (Lined<'_, K, V>, btree_map::Range<'_, K, V>) {
        let at = match from {
            Bound::Unbounded => (0, self.chunk(0).start()),
            Bound::Included(from) => self.seek(|key| key >= from),
            Bound::Excluded(from) => self.seek(|key| key > from),
        };
        let end = match to {
            Bound::Unbounded => {
                let chunks = self.full().map_or(0, VecDeque::len);
                (chunks, self.open.entries.len())
            }
            Bound::Included(to) => self.seek(|key| key > to),
            Bound::Excluded(to) => self.seek(|key| key >= to),
        };
        let lined = Lined { map: self, at, end };
        let rest = self.rest().filter(|rest| !rest.is_empty());
        (
            lined,
            rest.map_or_else(Default::default, |rest| rest.range((from, to))),
        )
    }

    /// The first entry in the chunks of which `behind` is true, as it is of all
    /// behind that.
    fn seek(&self, behind: impl Fn(K) -> bool) -> (usize, usize) {
        let at = self.chunk_where(&behind);
        let entries = &self.chunk(at).entries;
        (at, entries.partition_point(|entry| !behind(entry.0)))
    }
}

/// Entries in chunks, from one place up to another.
struct Lined<'a, K, V> {
    map: &'a Ascending<K, V>,
    at: (usize, usize),
    end: (usize, usize),
}

impl<'a, K: Copy + Ord, V> Iterator for Lined<'a, K, V> {
    type Item = (K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            let Some((key, value)) = self.map.chunk(self.at.0).entries.get(self.at.1) else {
                // The chunk has no more.
                self.at = (self.at.0 + 1, 0);
                continue;
            };
            self.at.1 += 1;
            if let Some(value) = value {
                return Some((*key, value));
            }
        }
        None
    }
}

impl<K: Copy + Ord, V> DoubleEndedIterator for Lined<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            if self.end.1 == 0 {
                let before = self.end.0 - 1;
                self.end = (before, self.map.chunk(before).entries.len());
                continue;
            }
            self.end.1 -= 1;
            let (key, value) = &self.map.chunk(self.end.0).entries[self.end.1];
            if let Some(value) = value {
                return Some((*key, value));
            }
        }
        None
    }
}

/// Two sorted iterators as one.
struct Merged<A: Iterator, B: Iterator, F> {
    one: Peekable<A>,
    other: Peekable<B>,
    goes_first: F,
}

fn merged<'a, K, V: 'a, A, B, F>(one: A, other: B, goes_first: F) -> Merged<A, B, F>
where
    A: Iterator<Item = (K, &'a V)>,
    B: Iterator<Item = (K, &'a V)>,
    F: Fn(&K, &K) -> bool,
{
    Merged {
        one: one.peekable(),
        other: other.peekable(),
        goes_first,
    }
}

impl<'a, K, V: 'a, A, B, F> Iterator for Merged<A, B, F>
where
    A: Iterator<Item = (K, &'a V)>,
    B: Iterator<Item = (K, &'a V)>,
    F: Fn(&K, &K) -> bool,
{
    type Item = (K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let Some(other) = self.other.peek() else {
            // Nothing of the other is left.
            return self.one.next();
        };
        match self.one.peek() {
            Some(one) if (self.goes_first)(&one.0, &other.0) => self.one.next(),
            _ => self.other.next(),
        }
    }
}

#[cfg(test)]
#[path = "ascending_tests.rs"]
mod tests;
