//! The rings of samples, without clocks and threads.
//!
//! A pass looks at all queues, a page at a time. Of a queue nothing but a mark is kept until its
//! counters move; then it has rings, while there is room, until it has not moved for a day or is
//! gone. Time is engine time, which no clock that is set moves back.

pub(super) mod kept;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use quintet_client::{History, Rates, Recent, Sample, Series};
use quintet_types::{Left, Ms, Name, QueueStats};

/// A step of the finer ring, ms.
pub(crate) const MINUTE: u64 = 60_000;
const MINUTES: usize = 60;
const QUARTER: u64 = 15 * MINUTE;
const QUARTERS: usize = 96;
/// So long are counters kept that [`Recent`] begins with, ms.
const RECENT: u64 = 5 * MINUTE;
/// Minutes of a quarter.
const PART: usize = 15;
/// A queue that has not moved for so long has no rings any more, ms.
const FORGOTTEN: u64 = QUARTER * QUARTERS as u64;

/// Counters of a queue: their lower halves, as only differences are requested.
const COUNTERS: usize = 14;

/// A queue's counters at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    at: Ms,
    counts: [u32; COUNTERS],
}

/// How much each counter rose.
#[derive(Clone, Copy)]
struct Risen {
    came: u64,
    left: Left<u64>,
    /// Delayed ones that became due.
    due: u64,
    failures: u64,
    timeouts: u64,
    refused: u64,
    limited: u64,
    /// Buried, or dead letters.
    dead: u64,
    /// Leases that ended.
    ended: u64,
}

impl Counted {
    /// The counters of a queue that was just made.
    fn none(at: Ms) -> Self {
        let counts = [0; COUNTERS];
        Self { at, counts }
    }

    fn of(queue: &QueueStats, at: Ms) -> Self {
        let t = &queue.totals;
        let [finished, removed, failed, dropped, expired, moved] = t.left().values();
        let ended = t.finished + t.releases + t.cancels + t.timeouts + t.buries + t.failures;
        let counts = [
            t.came(),
            finished,
            removed,
            failed,
            dropped,
            expired,
            moved,
            queue.came_due,
            t.failures,
            t.timeouts,
            t.refused_full,
            queue.limited_takes,
            t.buries + t.dead_moved,
            ended,
        ];
        #[expect(clippy::cast_possible_truncation, reason = "only differences count")]
        let counts = counts.map(|count| count as u32);
        Self { at, counts }
    }

    fn since(&self, before: &Self) -> Risen {
        let mut rise = self.counts.iter().zip(before.counts);
        let mut next = || {
            let rise = rise.next().map_or(0, |(now, then)| now.wrapping_sub(then));
            // A counter that went back has not risen.
            i32::try_from(rise).map_or(0, |rise| u64::from(rise.unsigned_abs()))
        };
        Risen {
            came: next(),
            left: Left::from_values([(); 6].map(|()| next())),
            due: next(),
            failures: next(),
            timeouts: next(),
            refused: next(),
            limited: next(),
            dead: next(),
            ended: next(),
        }
    }

    /// Nothing came, nothing left and nothing became due.
    fn is_still(&self, before: &Self) -> bool {
        self.counts[..8] == before.counts[..8]
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "for people"
    )]
    fn rates(&self, before: &Self) -> Rates {
        let seconds = (self.at.since(before.at).max(1)) as f64 / 1000.0;
        let rate = |count: u64| (count as f64 / seconds) as f32;
        let risen = self.since(before);
        Rates {
            into: rate(risen.came),
            due: rate(risen.due),
            left: Left::from_values(risen.left.values().map(rate)),
        }
    }
}

/// The newest samples, `None` where there is none; the last is of step `newest`.
struct Ring<const N: usize> {
    newest: u64,
    samples: VecDeque<Packed>,
}

/// A sample in 40 bytes; a gap has a rate that is no number.
#[derive(Clone, Copy)]
struct Packed(Sample);

impl Packed {
    const GAP: Self = Self(Sample {
        ready: 0,
        oldest_s: 0,
        rates: Rates {
            into: f32::NAN,
            due: 0.0,
            left: Left {
                finished: 0.0,
                removed: 0.0,
                failed: 0.0,
                dropped: 0.0,
                expired: 0.0,
                moved: 0.0,
            },
        },
    });

    fn get(self) -> Option<Sample> {
        (!self.0.rates.into.is_nan()).then_some(self.0)
    }
}

impl<const N: usize> Ring<N> {
    fn new() -> Self {
        Self {
            newest: 0,
            samples: VecDeque::new(),
        }
    }

    /// Puts the sample of a step; steps between are gaps. False: a step that was.
    fn push(&mut self, step: u64, sample: Option<Sample>) -> bool {
        if !self.samples.is_empty() {
            if step <= self.newest {
                return false;
            }
            let skipped = usize::try_from(step - self.newest - 1).unwrap_or(N).min(N);
            (0..skipped).for_each(|_| self.add(Packed::GAP));
        }
        self.add(sample.map_or(Packed::GAP, Packed));
        self.newest = step;
        true
    }

    fn add(&mut self, sample: Packed) {
        if self.samples.len() == N {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Those of the steps `from..to`.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Sample> {
        let first = (self.newest + 1).saturating_sub(self.samples.len() as u64);
        let steps = first..;
        let inside = steps.zip(&self.samples);
        let inside = inside.filter(move |(step, _)| (from..to).contains(step));
        inside.filter_map(|(_, sample)| sample.get())
    }

    fn series(&self, step_ms: u64) -> Series {
        Series {
            step_ms,
            end: Ms((self.newest + 1) * step_ms),
            samples: self.samples.iter().map(|sample| sample.get()).collect(),
        }
    }
}

/// At most 7 KiB.
struct Rings {
    counted: Counted,
    /// The counters of the last minutes, oldest first.
    recent: VecDeque<Counted>,
    /// Minutes of the last hour in which messages were buried or became dead letters, and how many.
    dead: VecDeque<(u64, u64)>,
    /// When a lease was last seen to end, or else the first of those that are held was seen.
    ended: Ms,
    /// Leases were held when it was looked at.
    held: bool,
    /// The queue's birth.
    created: Ms,
    moved: Ms,
    minutes: Ring<MINUTES>,
    quarters: Ring<QUARTERS>,
}

/// The record of a queue without rings.
struct Baseline {
    counted: Counted,
    pass: u64,
}

/// The history of all queues.
#[derive(Default)]
pub(crate) struct Histories {
    hasher: RandomState,
    /// By name and birth, hashed: one that is made anew is another. Two that are taken for one
    /// have rings too early.
    baselines: HashMap<u64, Baseline>,
    rings: HashMap<Name, (u64, Rings)>,
    pass: u64,
    /// When the pass before began.
    before: Option<Ms>,
    began: Option<Ms>,
    /// The minute up to which all queues were looked at.
    whole: u64,
    left_out: u64,
    left_out_now: u64,
}

impl Histories {
    /// A pass begins, about the minute that is over at `now`.
    pub(crate) fn begin(&mut self, now: Ms) {
        self.pass += 1;
        self.before = self.began.replace(now);
        self.left_out_now = 0;
    }

    /// Samples some queues, as they were at `now`; `most` have rings.
    pub(crate) fn sample(&mut self, now: Ms, queues: &[QueueStats], most: usize) {
        let Some(began) = self.began else { return };
        let step = (began.0 / MINUTE).saturating_sub(1);
        for queue in queues {
            self.observe(now, step, queue, most);
        }
    }

    fn observe(&mut self, now: Ms, step: u64, queue: &QueueStats, most: usize) {
        let key = self.hasher.hash_one((&queue.name, queue.created));
        let counted = Counted::of(queue, now);
        let last = match self.baselines.get(&key) {
            Some(baseline) => Some(baseline.counted),
            // Made since the pass before: all it has counted it has counted since.
            None => self
                .before
                .filter(|before| queue.created >= *before)
                .map(|_| Counted::none(queue.created)),
        };
        let pass = self.pass;
        self.baselines.insert(key, Baseline { counted, pass });
        let Some(last) = last else {
            // It is looked at for the first time, and may have rings from before a restart.
            if let Some((of, rings)) = self.rings.get_mut(&queue.name)
                && *of == key
            {
                rings.go_on(step, counted);
            }
            return;
        };
        if self
            .rings
            .get(&queue.name)
            .is_some_and(|(of, _)| *of != key)
        {
            self.rings.remove(&queue.name);
        }
        if !self.rings.contains_key(&queue.name) {
            if counted.is_still(&last) {
                return;
            }
            if self.rings.len() >= most {
                self.left_out_now += 1;
                return;
            }
            let rings = Rings {
                counted: last,
                recent: VecDeque::from([last]),
                dead: VecDeque::new(),
                ended: last.at,
                held: false,
                created: queue.created,
                moved: now,
                minutes: Ring::new(),
                quarters: Ring::new(),
            };
            self.rings.insert(queue.name.clone(), (key, rings));
        }
        if let Some((_, rings)) = self.rings.get_mut(&queue.name) {
            rings.add(step, counted, queue);
        }
    }

    /// The pass is over: what it has not seen is gone, what has not moved for a day forgotten.
    pub(crate) fn end(&mut self, now: Ms) {
        let pass = self.pass;
        self.baselines.retain(|_, baseline| baseline.pass == pass);
        let baselines = &self.baselines;
        self.rings.retain(|_, (key, rings)| {
            baselines.contains_key(key) && now.since(rings.moved) < FORGOTTEN
        });
        self.left_out = self.left_out_now;
        self.whole = self.began.map_or(0, |began| began.0 / MINUTE);
    }

    /// Takes rings of before a restart.
    fn keep(&mut self, name: Name, rings: Rings) {
        let key = self.hasher.hash_one((&name, rings.created));
        self.rings.insert(name, (key, rings));
    }

    /// A queue's history.
    pub(crate) fn of(&self, queue: &Name) -> Option<History> {
        let (_, rings) = self.rings.get(queue)?;
        Some(History {
            minutes: rings.minutes.series(MINUTE),
            quarters: rings.quarters.series(QUARTER),
        })
    }

    /// Adds a queue's last hour to that of others.
    pub(crate) fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {
        let Some((_, rings)) = self.rings.get(queue).filter(|_| self.whole > 0) else {
            return;
        };
        let sum = sum.get_or_insert_with(|| Series {
            step_ms: MINUTE,
            end: Ms(self.whole * MINUTE),
            samples: vec![None; MINUTES],
        });
        // Both from the newest on back.
        let ring = &rings.minutes;
        let steps = (0..=ring.newest).rev().zip(ring.samples.iter().rev());
        for (step, sample) in steps {
            let back = (sum.end.0 / MINUTE).checked_sub(step + 1);
            let at = back.and_then(|back| usize::try_from(back).ok());
            let at = at.and_then(|back| sum.samples.iter_mut().rev().nth(back));
            if let (Some(at), Some(sample)) = (at, sample.get()) {
                *at = Some(at.map_or(sample, |at| at.plus(sample)));
            }
        }
    }

    /// The newest counts of a queue with these numbers.
    pub(crate) fn recent(&self, queue: &QueueStats, now: Ms) -> Option<Recent> {
        let key = self.hasher.hash_one((&queue.name, queue.created));
        let rings = self.rings.get(&queue.name);
        let rings = rings.filter(|(of, _)| *of == key).map(|(_, rings)| rings);
        let from = match (rings, self.baselines.get(&key)) {
            (Some(rings), _) => *rings.recent.front()?,
            (None, Some(baseline)) => baseline.counted,
            (None, None) => {
                let new = self.began.is_some_and(|began| queue.created >= began);
                new.then(|| Counted::none(queue.created))?
            }
        };
        let counted = Counted::of(queue, now);
        let risen = counted.since(&from);
        let (mut dead, mut no_end_ms, mut idle_ms) = (risen.dead, 0, 0);
        if let Some(rings) = rings {
            let latest = counted.since(&rings.counted);
            let hour = (now.0 / MINUTE).saturating_sub(MINUTES as u64);
            let within = rings.dead.iter().filter(|(minute, _)| *minute >= hour);
            dead = latest.dead + within.map(|(_, count)| count).sum::<u64>();
            if latest.ended == 0 && rings.held {
                no_end_ms = now.since(rings.ended);
            }
            let idle = rings.recent.iter().find(|then| {
                let risen = counted.since(then);
                risen.ended + risen.left.finished == 0
            });
            idle_ms = idle.map_or(0, |then| now.since(then.at));
        }
        Some(Recent {
            span_ms: now.since(from.at),
            came: risen.came,
            left: risen.left,
            failures: risen.failures,
            timeouts: risen.timeouts,
            refused: risen.refused,
            limited: risen.limited,
            dead,
            no_end_ms,
            idle_ms,
        })
    }

    /// How fast a queue moved in the last minute that was looked at.
    pub(crate) fn rates(&self, queue: &Name) -> Option<Rates> {
        let (_, rings) = self.rings.get(queue)?;
        // Nothing was looked at since a restart: the last minute is of before it.
        rings.recent.back()?;
        Some(rings.minutes.samples.back()?.get()?.rates)
    }

    /// Queues with rings, and those that moved in the last pass and have none.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.rings.len() as u64, self.left_out)
    }
}

impl Rings {
    fn add(&mut self, step: u64, counted: Counted, queue: &QueueStats) {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let sample = Sample {
            ready: small(queue.gauges.ready),
            oldest_s: small(queue.oldest_ms / 1000),
            rates: counted.rates(&self.counted),
        };
        if !self.push(step, Some(sample)) {
            return;
        }
        if !counted.is_still(&self.counted) {
            self.moved = counted.at;
        }
        let risen = counted.since(&self.counted);
        if risen.ended > 0 || !self.held {
            self.ended = counted.at;
        }
        self.held = queue.gauges.reserved > 0;
        if risen.dead > 0 {
            self.dead.push_back((step, risen.dead));
        }
        let hour = step.saturating_sub(MINUTES as u64);
        while self.dead.front().is_some_and(|(minute, _)| *minute < hour) {
            self.dead.pop_front();
        }
        self.recent.push_back(counted);
        let is_old = |one: &Counted| counted.at.since(one.at) > RECENT;
        while self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.counted = counted;
    }

    /// Goes on after a restart, which is a gap: the counters of before it are not compared with.
    fn go_on(&mut self, step: u64, counted: Counted) {
        self.push(step, None);
        self.counted = counted;
        self.ended = counted.at;
        self.recent.push_back(counted);
    }

    /// Puts a minute, and the quarters that ended since the one before. False: it was put already.
    fn push(&mut self, step: u64, sample: Option<Sample>) -> bool {
        let before = self.minutes.newest;
        let first = self.minutes.samples.is_empty();
        if !self.minutes.push(step, sample) {
            return false;
        }
        // The quarters that ended since, unless there were no samples at all.
        let part = PART as u64;
        let ended = (step + 1) / part;
        let begun = if first {
            step / part
        } else {
            (before + 1) / part
        };
        for quarter in begun.max(ended.saturating_sub(QUARTERS as u64))..ended {
            let parts = self.minutes.between(quarter * part, (quarter + 1) * part);
            self.quarters.push(quarter, together(parts));
        }
        true
    }
}

fn both(a: Rates, b: Rates, rate: impl Fn(f32, f32) -> f32) -> Rates {
    let mut others = b.left.values().into_iter();
    let left = a.left.values().map(|a| rate(a, others.next().unwrap_or(a)));
    Rates {
        into: rate(a.into, b.into),
        due: rate(a.due, b.due),
        left: Left::from_values(left),
    }
}

/// Several minutes as one sample: the most of what there was, the mean of how fast it moved.
fn together(samples: impl Iterator<Item = Sample>) -> Option<Sample> {
    let (mut all, mut count) = (None::<Sample>, 0.0);
    for sample in samples {
        count += 1.0;
        all = Some(all.map_or(sample, |all| Sample {
            ready: all.ready.max(sample.ready),
            oldest_s: all.oldest_s.max(sample.oldest_s),
            rates: both(all.rates, sample.rates, |a, b| a + b),
        }));
    }
    let mut all = all?;
    all.rates = both(all.rates, all.rates, |rate, _| rate / count);
    Some(all)
}

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
