//! The rings of samples, without clocks and threads.
//!
//! A pass looks at all queues, a page at a time. Of a queue nothing but a mark is kept until its
//! counters move; then it has rings, while there is room, until it has not moved for a day or is
//! gone. Time is engine time, which no clock that is set moves back.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use quintet_door::{History, Rates, Sample, Series};
use quintet_engine::{Ms, Name, QueueStats, QueueTotals};

/// A step of the finer ring, ms.
pub(crate) const MINUTE: u64 = 60_000;
const MINUTES: usize = 60;
const QUARTER: u64 = 15 * MINUTE;
const QUARTERS: usize = 96;
/// Minutes of a quarter.
const PART: usize = 15;
/// A queue that has not moved for so long has no rings any more, ms.
const FORGOTTEN: u64 = QUARTER * QUARTERS as u64;

/// What a queue has counted, at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    at: Ms,
    into: u64,
    out: u64,
}

impl Counted {
    fn of(totals: &QueueTotals, at: Ms) -> Self {
        let t = totals;
        Self {
            at,
            into: t.puts + t.moved_in,
            out: t.taken
                + t.finished
                + t.deleted
                + t.expired
                + t.discarded
                + t.flushed
                + t.moved_out,
        }
    }

    /// The same numbers, whenever.
    fn is_still(&self, before: &Self) -> bool {
        (self.into, self.out) == (before.into, before.out)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "for people"
    )]
    fn rates(&self, before: &Self) -> Rates {
        let seconds = (self.at.since(before.at).max(1)) as f64 / 1000.0;
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds) as f32;
        Rates {
            into: rate(self.into, before.into),
            out: rate(self.out, before.out),
        }
    }
}

/// The newest samples, `None` where there is none; the last is of step `newest`.
struct Ring<const N: usize> {
    newest: u64,
    samples: VecDeque<Packed>,
}

/// A sample in 16 bytes; a gap has a rate that is no number.
#[derive(Clone, Copy)]
struct Packed(Sample);

impl Packed {
    const GAP: Self = Self(Sample {
        ready: 0,
        oldest_s: 0,
        rates: Rates {
            into: f32::NAN,
            out: f32::NAN,
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

/// At most 2.5 KiB of samples.
struct Rings {
    counted: Counted,
    moved: Ms,
    minutes: Ring<MINUTES>,
    quarters: Ring<QUARTERS>,
}

/// What is kept of a queue without rings.
struct Mark {
    counted: Counted,
    pass: u64,
}

/// The history of all queues.
pub(crate) struct Histories {
    hasher: RandomState,
    /// By name and birth, hashed: one that is made anew is another. Two that are taken for one
    /// have rings too early.
    marks: HashMap<u64, Mark>,
    rings: HashMap<Name, (u64, Rings)>,
    pass: u64,
    /// When the pass before began.
    before: Option<Ms>,
    began: Option<Ms>,
    left_out: u64,
    left_out_now: u64,
}

impl Histories {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            marks: HashMap::new(),
            rings: HashMap::new(),
            pass: 0,
            before: None,
            began: None,
            left_out: 0,
            left_out_now: 0,
        }
    }

    /// A pass begins, about the minute that is over at `now`.
    pub(crate) fn begin(&mut self, now: Ms) {
        self.pass += 1;
        self.before = self.began.replace(now);
        self.left_out_now = 0;
    }

    /// Looks at some queues, as they were at `now`; `most` have rings.
    pub(crate) fn look(&mut self, now: Ms, queues: &[QueueStats], most: usize) {
        let Some(began) = self.began else { return };
        let step = (began.0 / MINUTE).saturating_sub(1);
        for queue in queues {
            self.look_at(now, step, queue, most);
        }
    }

    fn look_at(&mut self, now: Ms, step: u64, queue: &QueueStats, most: usize) {
        let key = self.hasher.hash_one((&queue.name, queue.created));
        let counted = Counted::of(&queue.totals, now);
        let last = match self.marks.get(&key) {
            Some(mark) => Some(mark.counted),
            // Made since the pass before: all it has counted it has counted since.
            None => self
                .before
                .filter(|before| queue.created >= *before)
                .map(|_| Counted {
                    at: queue.created,
                    into: 0,
                    out: 0,
                }),
        };
        let pass = self.pass;
        self.marks.insert(key, Mark { counted, pass });
        let Some(last) = last else { return };
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
        self.marks.retain(|_, mark| mark.pass == pass);
        let marks = &self.marks;
        self.rings.retain(|_, (key, rings)| {
            marks.contains_key(key) && now.since(rings.moved) < FORGOTTEN
        });
        self.left_out = self.left_out_now;
    }

    /// A queue's history.
    pub(crate) fn of(&self, queue: &Name) -> Option<History> {
        let (_, rings) = self.rings.get(queue)?;
        Some(History {
            minutes: rings.minutes.series(MINUTE),
            quarters: rings.quarters.series(QUARTER),
        })
    }

    /// How fast a queue moved in the last minute that was looked at.
    pub(crate) fn rates(&self, queue: &Name) -> Option<Rates> {
        let (_, rings) = self.rings.get(queue)?;
        Some(rings.minutes.samples.back()?.get()?.rates)
    }

    /// The rates of all queues that have some.
    pub(crate) fn all_rates(&self) -> impl Iterator<Item = (&Name, Rates)> {
        let names = self.rings.keys();
        names.filter_map(|name| Some((name, self.rates(name)?)))
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
        let before = self.minutes.newest;
        let first = self.minutes.samples.is_empty();
        if !self.minutes.push(step, Some(sample)) {
            return;
        }
        if !counted.is_still(&self.counted) {
            self.moved = counted.at;
        }
        self.counted = counted;
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
            rates: Rates {
                into: all.rates.into + sample.rates.into,
                out: all.rates.out + sample.rates.out,
            },
        }));
    }
    let mut all = all?;
    all.rates.into /= count;
    all.rates.out /= count;
    Some(all)
}

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
