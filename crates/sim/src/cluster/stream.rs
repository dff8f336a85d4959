//! A stream whose answers are lost, late, stale and in any order, and whose leader changes; but
//! what it has stored it has.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use quintet_cluster::{
    Answer, Distrusted, Ends, EntryLookup, Moment, ReplyFn, Seq, Stream, Tail, TailEvent,
    World as _,
};

use super::SimWorld;
use crate::Random;

/// How bad it is: each is a chance in 1,000, of each message unless told.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// It never arrives.
    pub lost: u64,
    /// It takes up to some seconds instead of some milliseconds.
    pub late: u64,
    /// It comes twice.
    pub doubled: u64,
    /// Of each question: it is answered by somebody who is behind.
    pub stale: u64,
    /// Of each append: the leader goes, and for some seconds there is none.
    pub leader: u64,
    /// Of each leader that goes: for up to 20 seconds one whose store is damaged follows it.
    pub lies: u64,
    /// Test only: an append is stored wherever the stream ends.
    pub ignore_expected: bool,
    /// Test only: a purge takes the segment behind as well.
    pub purge_too_far: bool,
}

impl Faults {
    /// Nothing goes wrong; answers come in order.
    pub fn none() -> Self {
        Self {
            lost: 0,
            late: 0,
            doubled: 0,
            stale: 0,
            leader: 0,
            lies: 0,
            ignore_expected: false,
            purge_too_far: false,
        }
    }

    /// Faults from a seed: some runs have none of a kind, some many.
    pub fn any(random: &mut Random) -> Self {
        let mut some = |most: u64| [0, most / 10, most][random.index(3)];
        Self {
            lost: some(100),
            late: some(100),
            doubled: some(100),
            stale: some(300),
            leader: some(10),
            lies: 0,
            ignore_expected: false,
            purge_too_far: false,
        }
    }
}

/// How the store of the server that leads is damaged. What the others have is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It has nothing before this entry.
    First(Seq),
    /// It lacks these entries, both included.
    Hole(Seq, Seq),
    /// It is an old copy, from when the stream had these ends.
    Old(Seq, Seq),
}

/// A stream and everything that is on its way to it. Each node has a [`Link`].
#[derive(Clone)]
pub struct SimStream {
    world: SimWorld,
    state: Arc<Mutex<Server>>,
}

/// State of those who keep the stream.
struct Server {
    random: Random,
    faults: Faults,
    first: Seq,
    entries: VecDeque<Bytes>,
    /// All that was stored, with what was purged since.
    stored: Vec<Bytes>,
    /// Where it began after each purge, and its last place then.
    purges: Vec<Ends>,
    /// There is no leader until then.
    leaderless: Moment,
    lie: Option<Lie>,
    /// Changes of the leader so far.
    leads: u64,
    /// Leaders whose stores were damaged so far.
    lies: u64,
    /// The fixed answer to each request for another leader; `None`: the stream's own.
    distrusted: Option<Distrusted>,
    tails: Vec<Weak<Mutex<Following>>>,
}

struct Following {
    next: Seq,
    each: Box<dyn FnMut(TailEvent) + Send>,
    over: bool,
    planned: bool,
    link: Arc<Mutex<Cut>>,
}

#[derive(Clone, Copy, Default)]
struct Cut {
    to: bool,
    from: bool,
}

/// One node's connection to the stream.
pub struct Link {
    stream: SimStream,
    cut: Arc<Mutex<Cut>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a segment of the log begins with this entry.
fn begins(entry: &Bytes) -> bool {
    const FLAGS: usize = 5;
    entry.get(FLAGS).is_some_and(|flags| flags & 1 == 1)
}

impl Server {
    fn last(&self) -> Seq {
        Seq(self.first.0 + self.entries.len() as u64 - 1)
    }

    fn entry(&self, seq: Seq) -> Option<&Bytes> {
        let index = seq.0.checked_sub(self.first.0)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// Where the leader's copy begins and ends.
    fn seen(&self) -> (Seq, Seq) {
        match self.lie {
            Some(Lie::First(first)) => (first.max(self.first), self.last()),
            Some(Lie::Old(first, last)) => (first, last),
            Some(Lie::Hole(..)) | None => (self.first, self.last()),
        }
    }

    /// The entry at this place of the leader's copy.
    fn seen_entry(&self, seq: Seq) -> Option<&Bytes> {
        let (first, last) = self.seen();
        let is_there = match self.lie {
            Some(Lie::Hole(from, to)) => seq < from || seq > to,
            _ => first <= seq && seq <= last,
        };
        match self.lie {
            _ if !is_there => None,
            Some(Lie::Old(..)) => self.stored.get(usize::try_from(seq.0 - 1).ok()?),
            _ => self.entry(seq),
        }
    }

    /// Where the leader's copy, or one of somebody who is behind, begins and ends.
    fn seen_ends(&mut self) -> Ends {
        let (first, last) = self.seen();
        // A reader that is behind knows of the last purge, so both ends are from one moment.
        let last = match (self.lie, self.purges.last().map(|ends| ends.last)) {
            (None, purged) => self.seen_last().max(purged.unwrap_or(first).min(last)),
            (Some(_), _) => last,
        };
        let missing = match self.lie {
            Some(Lie::Hole(from, to)) => (from.max(first).0..=to.min(last).0).count() as u64,
            _ => 0,
        };
        let whole = Ends::whole(first, last);
        Ends {
            count: whole.count - missing,
            leader: Some(format!("n{}", self.leads).into()),
            ..whole
        }
    }

    /// A damage at random.
    fn any_lie(&mut self) -> Option<Lie> {
        let last = self.last();
        let any = |random: &mut Random, from: Seq| {
            Seq(from.0 + random.below((last.0 + 1).saturating_sub(from.0).max(1)))
        };
        let at = any(&mut self.random, self.first);
        match self.random.below(4) {
            0 => Some(Lie::First(at.after())),
            // As a segment does.
            1 => {
                let all = (self.first.0..).map(Seq).zip(&self.entries);
                let begin = all.filter(|(seq, entry)| *seq <= at && begins(entry));
                let begin = begin.last();
                begin.map(|(seq, _)| Lie::First(seq))
            }
            2 => Some(Lie::Hole(at, Seq(at.0 + self.random.below(50)).min(last))),
            _ => {
                let purge = self.random.index(self.purges.len() + 1);
                let old = purge.checked_sub(1).map(|purge| &self.purges[purge]);
                let (first, least) = old.map_or((Seq(1), Seq(0)), |ends| (ends.first, ends.last));
                Some(Lie::Old(first, any(&mut self.random, least)))
            }
        }
    }

    fn purge_below(&mut self, seq: Seq) {
        let before = self.first;
        while self.first < seq && !self.entries.is_empty() {
            self.entries.pop_front();
            self.first = self.first.after();
        }
        if self.first == before {
            return;
        }
        let behind = self.entries.iter().skip(1).position(begins);
        if let Some(more) = behind.filter(|_| self.faults.purge_too_far) {
            self.entries.drain(..=more);
            self.first = Seq(self.first.0 + more as u64 + 1);
        }
        self.purges.push(Ends::whole(self.first, self.last()));
    }

    /// Whether a fault happens now.
    fn meets(&mut self, which: impl Fn(&Faults) -> u64) -> bool {
        self.random.chance(which(&self.faults), 1000)
    }

    /// How long a message is on its way; none: for ever.
    fn way(&mut self) -> Option<Duration> {
        if self.meets(|faults| faults.lost) {
            return None;
        }
        if self.meets(|faults| faults.late) {
            return Some(Duration::from_micros(self.random.below(6_000_000)));
        }
        let spread = if self.faults.late > 0 { 3_000 } else { 1 };
        Some(Duration::from_micros(200 + self.random.below(spread)))
    }

    /// Where somebody who is behind thinks the stream ends.
    fn seen_last(&mut self) -> Seq {
        let last = self.last();
        if !self.meets(|faults| faults.stale) {
            return last;
        }
        Seq(last.0.saturating_sub(self.random.below(40)))
    }
}

impl SimStream {
    /// An empty stream.
    pub fn new(world: SimWorld, seed: u64, faults: Faults) -> Self {
        let state = Server {
            random: Random::new(seed),
            faults,
            first: Seq(1),
            entries: VecDeque::new(),
            stored: Vec::new(),
            purges: Vec::new(),
            leaderless: Moment::ZERO,
            lie: None,
            leads: 0,
            lies: 0,
            distrusted: None,
            tails: Vec::new(),
        };
        Self {
            world,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A node's way to it.
    pub fn link(&self) -> Link {
        Link {
            stream: self.clone(),
            cut: Arc::default(),
        }
    }

    /// From now on nothing goes wrong.
    pub fn heal(&self) {
        let mut state = lock(&self.state);
        state.faults = Faults {
            ignore_expected: state.faults.ignore_expected,
            purge_too_far: state.faults.purge_too_far,
            ..Faults::none()
        };
        state.leaderless = Moment::ZERO;
        drop(state);
        self.lead(None);
    }

    /// A server leads from now on whose copy is damaged like this, or is not.
    pub fn lead(&self, lie: Option<Lie>) {
        let tails: Vec<_> = {
            let mut state = lock(&self.state);
            state.lie = lie;
            state.leads += 1;
            state.lies += u64::from(lie.is_some());
            state.tails.iter().filter_map(Weak::upgrade).collect()
        };
        tails.iter().for_each(|tail| self.follow(tail));
    }

    /// Asking for another leader changes nothing from now on, and is answered like this; or, with
    /// none, changes a leader whose copy is damaged.
    pub fn answer_distrust(&self, answer: Option<Distrusted>) {
        lock(&self.state).distrusted = answer;
    }

    /// How many leaders so far had damaged copies.
    pub fn lies(&self) -> u64 {
        lock(&self.state).lies
    }

    /// The stored entries, from the first position on.
    pub fn entries(&self) -> (Seq, Vec<Bytes>) {
        let state = lock(&self.state);
        (state.first, state.entries.iter().cloned().collect())
    }

    /// The entries that were stored from this position on, with what was purged since.
    pub fn stored_from(&self, seq: Seq) -> Vec<Bytes> {
        let state = lock(&self.state);
        let from = usize::try_from(seq.0.saturating_sub(1)).unwrap_or(usize::MAX);
        let stored = state.stored.get(from..);
        stored.map_or_else(Vec::new, <[Bytes]>::to_vec)
    }

    /// Where it began after each purge that removed something, and its last place then.
    pub fn purges(&self) -> Vec<Ends> {
        lock(&self.state).purges.clone()
    }

    fn arrives(&self, expected: Seq, entry: Bytes) -> Option<Answer> {
        let now = self.world.now();
        let mut state = lock(&self.state);
        if now < state.leaderless {
            // Some get the error that nobody is there, the others nothing.
            return state.random.chance(1, 2).then_some(Answer::Unknown);
        }
        if state.meets(|faults| faults.leader) {
            let gone = Duration::from_millis(500 + state.random.below(8_500));
            state.leaderless = now + gone;
            let lie = match state.meets(|faults| faults.lies) {
                true => state.any_lie(),
                false => None,
            };
            let time = Duration::from_millis(state.random.below(20_000));
            let (stream, then) = (self.clone(), self.clone());
            self.world.plan(gone, move || {
                // None of whom is damaged once all is healed.
                let lies = lock(&stream.state).faults.lies > 0;
                stream.lead(lie.filter(|_| lies));
            });
            if lie.is_some() {
                let honest = move || {
                    // Another may lead by then.
                    if lock(&then.state).lie == lie {
                        then.lead(None);
                    }
                };
                self.world.plan(gone + time, honest);
            }
            if state.random.chance(1, 2) {
                return None;
            }
        }
        // Its followers do not follow it.
        if let Some(Lie::Old(..)) = state.lie {
            return None;
        }
        if state.last() != expected && !state.faults.ignore_expected {
            return Some(Answer::Wrong);
        }
        state.entries.push_back(entry.clone());
        state.stored.push(entry);
        let stored = state.last();
        let tails: Vec<_> = state.tails.iter().filter_map(Weak::upgrade).collect();
        state.tails.retain(|tail| tail.strong_count() > 0);
        drop(state);
        tails.iter().for_each(|tail| self.follow(tail));
        Some(Answer::Stored(stored))
    }

    /// Notifies a tail of the entries that it does not know.
    fn follow(&self, tail: &Arc<Mutex<Following>>) {
        {
            let mut following = lock(tail);
            if following.over || following.planned {
                return;
            }
            following.planned = true;
        }
        let delay = {
            let mut state = lock(&self.state);
            // A tail loses nothing: what was lost is requested.
            let late = state.meets(|faults| faults.late);
            let most = if late { 2_000_000 } else { 2_000 };
            Duration::from_micros(200 + state.random.below(most))
        };
        let (stream, tail) = (self.clone(), Arc::clone(tail));
        self.world.plan(delay, move || stream.notify(&tail));
    }

    fn notify(&self, tail: &Arc<Mutex<Following>>) {
        let mut following = lock(tail);
        following.planned = false;
        if lock(&following.link).from {
            drop(following);
            return self.follow(tail);
        }
        loop {
            let next = following.next;
            let (entry, first) = {
                let state = lock(&self.state);
                (state.seen_entry(next).cloned(), state.seen().0)
            };
            match entry {
                Some(entry) => {
                    (following.each)(TailEvent::Entry(next, entry));
                    following.next = next.after();
                }
                None if next < first => {
                    (following.each)(TailEvent::Purged(first));
                    following.over = true;
                    return;
                }
                None => return,
            }
        }
    }
}

impl Link {
    /// Lets nothing through to the stream, or from it.
    pub fn cut(&self, to: bool, from: bool) {
        *lock(&self.cut) = Cut { to, from };
    }

    /// Another hold on the same connection.
    pub fn share(&self) -> Self {
        Self {
            stream: self.stream.clone(),
            cut: Arc::clone(&self.cut),
        }
    }

    /// Sends a question, lets `ask` answer it at the stream, and brings back the first answer.
    fn send<T: Send + 'static>(
        &self,
        ask: impl Fn(&SimStream) -> Option<T> + Send + Sync + 'static,
        callback: ReplyFn<T>,
    ) {
        let stream = &self.stream;
        let copies = {
            let mut state = lock(&stream.state);
            1 + u64::from(state.meets(|faults| faults.doubled))
        };
        let callback = Arc::new(Mutex::new(Some(callback)));
        let ask = Arc::new(ask);
        for _ in 0..copies {
            let Some(there) = lock(&stream.state).way() else {
                continue;
            };
            if lock(&self.cut).to {
                continue;
            }
            let (ask, callback) = (Arc::clone(&ask), Arc::clone(&callback));
            let (stream, cut) = (stream.clone(), Arc::clone(&self.cut));
            let world = stream.world.clone();
            world.plan(there, move || {
                let Some(answer) = ask(&stream) else {
                    return;
                };
                let Some(back) = lock(&stream.state).way() else {
                    return;
                };
                stream.world.plan(back, move || {
                    let through = !lock(&cut).from;
                    let callback = lock(&callback).take().filter(|_| through);
                    if let Some(callback) = callback {
                        callback(answer);
                    }
                });
            });
        }
    }
}

impl Stream for Link {
    fn name(&self) -> String {
        "the simulated stream".to_owned()
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        self.send(
            move |stream| stream.arrives(expected, entry.clone()),
            callback,
        );
    }

    fn ends(&self, callback: ReplyFn<Option<Ends>>) {
        let ask = |stream: &SimStream| {
            let mut state = lock(&stream.state);
            if stream.world.now() < state.leaderless {
                return Some(None);
            }
            Some(Some(state.seen_ends()))
        };
        self.send(ask, callback);
    }

    fn get(&self, seq: Seq, callback: ReplyFn<EntryLookup>) {
        let ask = move |stream: &SimStream| {
            let mut state = lock(&stream.state);
            if stream.world.now() < state.leaderless {
                return Some(EntryLookup::Unknown);
            }
            if seq > state.seen_last() {
                return Some(EntryLookup::Nothing);
            }
            let found = state.seen_entry(seq).cloned();
            Some(found.map_or(EntryLookup::Nothing, EntryLookup::Entry))
        };
        self.send(ask, callback);
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        let tail = Arc::new(Mutex::new(Following {
            next: from,
            each,
            over: false,
            planned: false,
            link: Arc::clone(&self.cut),
        }));
        lock(&self.stream.state).tails.push(Arc::downgrade(&tail));
        self.stream.follow(&tail);
        Tail::new(tail)
    }

    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>) {
        assert!(seq >= Seq(2), "a purge below {seq} would take everything");
        let ask = move |stream: &SimStream| {
            let mut state = lock(&stream.state);
            if stream.world.now() < state.leaderless {
                return Some(false);
            }
            state.purge_below(seq);
            Some(true)
        };
        self.send(ask, callback);
    }

    fn distrust(&self, ends: Ends, _: &[String], _: &[String], callback: ReplyFn<Distrusted>) {
        let ask = move |stream: &SimStream| {
            let state = lock(&stream.state);
            if let Some(answer) = &state.distrusted {
                return Some(answer.clone());
            }
            let led = stream.world.now() >= state.leaderless;
            let leader = format!("n{}", state.leads);
            if !led || state.lie.is_none() || ends.leader.as_deref() != Some(&*leader) {
                return Some(Distrusted::Unknown);
            }
            drop(state);
            stream.lead(None);
            Some(Distrusted::Requested(leader))
        };
        self.send(ask, callback);
    }
}
