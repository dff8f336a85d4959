//! A stream in memory, as it should be: for tests of what stands above it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;

use quintet_cluster::{
    Answer, Distrusted, Ends, EntryLookup, ReplyFn, Seq, Stream, Tail, TailEvent,
};

/// A stream that lives as long as somebody holds it. Every call is answered before it returns.
#[derive(Clone, Default)]
pub(crate) struct MemStream(Arc<Mutex<State>>);

struct State {
    /// The place of the first entry.
    first: Seq,
    entries: VecDeque<Bytes>,
    bytes: usize,
    capacity: usize,
    tails: Vec<Weak<Mutex<Following>>>,
}

struct Following {
    next: Seq,
    each: Box<dyn FnMut(TailEvent) + Send>,
    over: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            first: Seq(1),
            entries: VecDeque::new(),
            bytes: 0,
            capacity: usize::MAX,
            tails: Vec::new(),
        }
    }
}

impl State {
    fn last(&self) -> Seq {
        Seq(self.first.0 + self.entries.len() as u64 - 1)
    }

    fn entry(&self, seq: Seq) -> Option<&Bytes> {
        let index = seq.0.checked_sub(self.first.0)?;
        self.entries.get(usize::try_from(index).ok()?)
    }
}

impl MemStream {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Lets it hold so many bytes.
    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.lock().capacity = bytes;
    }

    /// Replaces what stands at `seq`, as no stream ever does.
    pub(crate) fn damage(&self, seq: Seq, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        let index = usize::try_from(seq.0 - state.first.0).unwrap_or(usize::MAX);
        let mut bytes = state.entries[index].to_vec();
        damage(&mut bytes);
        state.entries[index] = bytes.into();
    }

    /// The entries, from the first position on.
    pub(crate) fn entries(&self) -> (Seq, Vec<Bytes>) {
        let state = self.lock();
        (state.first, state.entries.iter().cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        let mut state = self.lock();
        state.tails.retain(|tail| tail.strong_count() > 0);
        let tails = state.tails.clone();
        drop(state);
        for tail in tails.iter().filter_map(Weak::upgrade) {
            self.follow(&tail);
        }
    }

    fn follow(&self, tail: &Mutex<Following>) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        while !tail.over {
            let state = self.lock();
            let (next, first) = (tail.next, state.first);
            let entry = state.entry(next).cloned();
            drop(state);
            match entry {
                Some(entry) => {
                    (tail.each)(TailEvent::Entry(next, entry));
                    tail.next = next.after();
                }
                None if next < first => {
                    (tail.each)(TailEvent::Purged(first));
                    tail.over = true;
                }
                None => return,
            }
        }
    }
}

impl Stream for MemStream {
    fn name(&self) -> String {
        "the stream in memory".to_owned()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        let mut state = self.lock();
        let answer = if state.last() != expected {
            Answer::Wrong
        } else if state.bytes + entry.len() > state.capacity {
            Answer::Full("it holds as much as it may".to_owned())
        } else {
            state.bytes += entry.len();
            state.entries.push_back(entry);
            Answer::Stored(state.last())
        };
        drop(state);
        self.notify();
        callback(answer);
    }

    fn ends(&self, callback: ReplyFn<Option<Ends>>) {
        let state = self.lock();
        let (first, last) = (state.first, state.last());
        drop(state);
        callback(Some(Ends::whole(first, last)));
    }

    fn get(&self, seq: Seq, callback: ReplyFn<EntryLookup>) {
        let found = self.lock().entry(seq).cloned();
        callback(found.map_or(EntryLookup::Nothing, EntryLookup::Entry));
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        let tail = Arc::new(Mutex::new(Following {
            next: from,
            each,
            over: false,
        }));
        self.lock().tails.push(Arc::downgrade(&tail));
        self.follow(&tail);
        Tail::new(tail)
    }

    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>) {
        assert!(seq >= Seq(2), "a purge below {seq} would take everything");
        let mut state = self.lock();
        while state.first < seq && !state.entries.is_empty() {
            let gone = state.entries.pop_front();
            state.bytes -= gone.map_or(0, |entry| entry.len());
            state.first = state.first.after();
        }
        drop(state);
        callback(true);
    }

    fn distrust(&self, _: Ends, _: &[String], _: &[String], callback: ReplyFn<Distrusted>) {
        callback(Distrusted::NoOther(self.name()));
    }
}
