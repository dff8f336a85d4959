//! Counters of an I/O thread: bytes, commands, errors, and the duration of replies.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use quintet_host::{Distribution, Histogram, TIMES};
use quintet_types::{CommandError, Ms, Verb};
use quintet_wire::{Counters, Env, Logins, Tally};

quintet_types::named! {
    /// Kinds of requests, for the time that they take.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Family, name {
        Put = "put",
        Take = "take",
        /// Ends a lease, or makes it last.
        Settle = "settle",
        #[default]
        Other = "other",
    }
}

impl Family {
    /// The family of a command.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other is of the last")]
    pub(super) fn of(verb: Verb) -> Self {
        match verb {
            Verb::Put => Self::Put,
            Verb::Take | Verb::Reserve => Self::Take,
            Verb::Settle | Verb::Touch | Verb::Delete => Self::Settle,
            _ => Self::Other,
        }
    }
}

/// Commands, errors and reply times of a protocol since the start.
pub struct ProtocolCounts {
    /// The protocol's own counters.
    pub tally: Tally,
    commands: Counters<{ Verb::ALL.len() }>,
    command_errors: Counters<{ CommandError::CODES.len() }>,
    latencies: [Histogram; Family::ALL.len()],
}

impl ProtocolCounts {
    pub(super) fn new() -> Self {
        Self {
            tally: Tally::new(),
            commands: Counters::new(),
            command_errors: Counters::new(),
            latencies: std::array::from_fn(|_| Histogram::new(TIMES)),
        }
    }

    /// For replies that come after logins.
    pub(super) fn env(&self, now: Ms) -> Env<'_> {
        Env {
            now,
            tally: &self.tally,
            logins: Logins::Off,
        }
    }

    /// A command was decided, or waits.
    pub(super) fn command(&self, verb: Verb) {
        self.commands.bump(verb as usize);
    }

    /// An error is said.
    pub(super) fn refused(&self, command_error: CommandError) {
        let code = command_error.code();
        let index = CommandError::CODES.iter().position(|known| *known == code);
        self.command_errors
            .bump(index.expect("the list has every code"));
    }

    /// Replies could leave so long after their requests were there to be read, by family.
    fn replied(&self, took: Duration, by_family: u64) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (family, latency) in self.latencies.iter().enumerate() {
            let count = (by_family >> (family * FAMILY_BITS)) & u64::from(u16::MAX);
            if count > 0 {
                latency.add(took, count);
            }
        }
    }

    /// How often each command came, by its name.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let verbs = Verb::ALL.iter();
        verbs.map(|&verb| (verb.name(), self.commands.get(verb as usize)))
    }

    /// How often each error was said, by its code.
    pub fn command_errors(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let codes = CommandError::CODES.iter().enumerate();
        codes.map(|(index, code)| (*code, self.command_errors.get(index)))
    }

    /// Adds how long replies of a family took, microseconds.
    pub fn add_latency_to(&self, family: Family, sum: &mut Distribution) {
        self.latencies[family as usize].add_to(sum);
    }
}

/// A thread's counters. Only the thread adds, statistics read.
pub struct ThreadCounts {
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub protocols: Vec<ProtocolCounts>,
}

impl ThreadCounts {
    pub(crate) fn new(protocols: usize) -> Self {
        Self {
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            protocols: (0..protocols).map(|_| ProtocolCounts::new()).collect(),
        }
    }
}

/// When requests were there to be read. Four bytes of each reply that waits, so it is the time of a
/// clock of its own, which begins anew after 71 minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Read(u32);

impl Read {
    #[expect(clippy::cast_possible_truncation, reason = "it begins anew")]
    pub(super) fn at(instant: Instant, start: Instant) -> Self {
        Self(instant.saturating_duration_since(start).as_micros() as u32)
    }

    /// From then to now, if that is not longer than the clock goes.
    fn until(self, now: Self) -> Duration {
        Duration::from_micros(u64::from(now.0.wrapping_sub(self.0)))
    }
}

/// Replies that are released together, by family, and when the first of their requests was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Replies {
    pub(super) read: Read,
    /// Sixteen bits for each family, the first lowest: every reply adds to one of them.
    by_family: u64,
}

/// Bits that a family's replies are counted in.
const FAMILY_BITS: usize = 16;
/// The highest bit of each family: where none is set, a sum overflows into no other family.
const HIGHEST: u64 = 0x8000_8000_8000_8000;
const _: () = assert!(Family::ALL.len() * FAMILY_BITS == u64::BITS as usize);

impl Replies {
    pub(super) fn one(read: Read, family: Family) -> Self {
        let by_family = 1 << (family as usize * FAMILY_BITS);
        Self { read, by_family }
    }

    /// No request: for messages that a server sends unasked.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Both, if they were read in one turn and can be counted together.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        let fits = (self.by_family | other.by_family) & HIGHEST == 0;
        (fits && self.read == other.read).then_some(Self {
            by_family: self.by_family + other.by_family,
            ..self
        })
    }

    /// They may leave.
    pub(super) fn released(self, now: Read, counts: &ProtocolCounts) {
        if self.by_family != 0 {
            counts.replied(self.read.until(now), self.by_family);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &ProtocolCounts, family: Family) -> (u64, u64) {
        let mut sum = Distribution::of(TIMES);
        counts.add_latency_to(family, &mut sum);
        (sum.count(), sum.sum())
    }

    #[test]
    fn replies_of_a_turn_are_counted_by_family() {
        let (counts, read) = (ProtocolCounts::new(), Read(100));
        let put = Replies::one(read, Family::Put);
        let all = put
            .and(put)
            .and_then(|puts| puts.and(Replies::one(read, Family::Take)));
        all.expect("one turn").released(Read(130), &counts);
        assert_eq!(counted(&counts, Family::Put), (2, 60));
        assert_eq!(counted(&counts, Family::Take), (1, 30));
        assert_eq!(counted(&counts, Family::Settle), (0, 0));
        assert_eq!(put.and(Replies::one(Read(101), Family::Put)), None);
    }

    #[test]
    fn the_clock_begins_again_and_no_count_is_lost() {
        let (counts, read) = (ProtocolCounts::new(), Read(u32::MAX - 9));
        let mut many = Replies::one(read, Family::Put);
        while let Some(more) = many.and(Replies::one(read, Family::Put)) {
            many = more;
        }
        many.released(Read(10), &counts);
        let most = 1 << (FAMILY_BITS - 1);
        assert_eq!(counted(&counts, Family::Put), (most, most * 20));
    }

    #[test]
    fn every_command_error_is_counted_under_its_code() {
        let counts = ProtocolCounts::new();
        counts.refused(CommandError::NotFound);
        counts.refused(CommandError::Unavailable);
        let texts: Vec<_> = counts
            .command_errors()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(texts, [("not_found", 1), ("unavailable", 1)]);
    }
}
