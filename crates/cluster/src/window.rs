//! The entries that an owner has sent without an acknowledgement: a pure machine. Its input is
//! events and their times, its output the next actions.
//!
//! An entry has its place from the moment it is pushed, and is only ever sent there, with the same
//! bytes. So copies that are late or doubled do nothing: the place is taken. What became of an
//! entry is only believed in order; everything that is not plain is left to `resolve`.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use quintet_log::{Epoch, Position};

use crate::{
    Answer, Ends, EntryLookup, Moment, Seq, WINDOW_MAX,
    resolve::{self, Kind, Ours, Resolve, Verdict},
};

/// How much may be sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries, 1 to [`WINDOW_MAX`]; 32 unless told.
    pub entries: usize,
    /// Bytes; 4 MiB unless told. One entry goes whatever its length.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 32,
            bytes: 4 << 20,
        }
    }
}

/// Shortest and longest wait for an answer, before the owner asks for an entry's fate.
const DEADLINE_MIN: Duration = Duration::from_millis(100);
const DEADLINE_MAX: Duration = Duration::from_secs(1);
/// After how many times the usual time of an acknowledgement.
const DEADLINE_TIMES: u32 = 8;
/// Acknowledgements that are kept in mind: some seconds of a load.
const TOOK_KEPT: usize = 1024;
/// How long a question is left without an answer, and how long a full stream is left alone.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Append { sent: Sent, entry: Bytes },
    Get(Seq),
    Ends,
}

/// Which sending of which entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    round: u64,
}

/// Why nothing more is sent, ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Another owner's entry stands where ours should be.
    Fenced(Epoch),
    /// The position has an impossible content.
    Bad(Seq, String),
}

struct Pending {
    entry: Bytes,
    kind: Kind,
    /// Where the log ends with it; absent of what completes no frame.
    end: Option<Position>,
    stored: bool,
    pushed: Moment,
    sent_at: Moment,
    /// When it was sent for the first time.
    sent_first: Option<Moment>,
}

pub(crate) struct Window {
    ours: Ours,
    limits: Limits,
    /// Fence: acknowledgements count in order.
    in_order: bool,
    /// In order; the first is the oldest that is not acknowledged.
    pending: VecDeque<Pending>,
    /// The place of the first.
    first: Seq,
    /// The place of the first there ever was.
    began: Seq,
    /// How many of them have been sent, from the first.
    sent: usize,
    sent_bytes: usize,
    /// Rises when everything is sent again.
    round: u64,
    resolve: Option<Resolve>,
    /// Nothing is sent for a moment.
    held: bool,
    /// When a full stream is tried again.
    full: Option<(String, Moment)>,
    /// Everything before is durable.
    acked: Position,
    usual: Duration,
    /// Of the newest frames: from their being pushed to their acknowledgement.
    took: VecDeque<Duration>,
    /// When the newest frame that is acknowledged, with all before it, was sent first.
    acked_sent: Option<Moment>,
    /// When an entry was pushed last.
    pushed: Moment,
    stop: Option<Stop>,
    acts: VecDeque<Act>,
    /// How often it had to be asked what became of an entry.
    pub(crate) resolves: u64,
}

impl Window {
    /// Nothing sent yet; the first entry's place is `first`, and the log ends at `end`.
    pub(crate) fn new(ours: Ours, limits: Limits, first: Seq, end: Position) -> Self {
        Self {
            ours,
            limits: Limits {
                entries: limits.entries.clamp(1, WINDOW_MAX),
                ..limits
            },
            in_order: true,
            pending: VecDeque::new(),
            first,
            began: first,
            sent: 0,
            sent_bytes: 0,
            round: 0,
            resolve: None,
            held: false,
            full: None,
            acked: end,
            usual: DEADLINE_MAX / DEADLINE_TIMES,
            took: VecDeque::new(),
            acked_sent: None,
            pushed: Moment::ZERO,
            stop: None,
            acts: VecDeque::new(),
            resolves: 0,
        }
    }

    /// Lets acknowledgements count in any order, which loses what they acknowledge.
    pub(crate) fn count_out_of_order(&mut self) {
        self.in_order = false;
    }

    /// The place of the next entry pushed.
    pub(crate) fn next(&self) -> Seq {
        Seq(self.first.0 + self.pending.len() as u64)
    }

    pub(crate) fn acked(&self) -> Position {
        self.acked
    }

    /// The place of the oldest entry that is not acknowledged.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    /// When the newest frame that is acknowledged, with all before it, was sent first.
    pub(crate) fn acked_sent(&self) -> Option<Moment> {
        self.acked_sent
    }

    /// When an entry was pushed last.
    pub(crate) fn pushed(&self) -> Moment {
        self.pushed
    }

    /// Since when the oldest entry that is not acknowledged has been on its way, or in line.
    pub(crate) fn waits_since(&self) -> Option<Moment> {
        let oldest = self.pending.front()?;
        Some(oldest.sent_first.unwrap_or(oldest.sent_at))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Entries that were pushed so far, and those of them that are acknowledged.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let since = |seq: Seq| seq.0 - self.began.0;
        (since(self.next()), since(self.first))
    }

    /// Entries and bytes that are not acknowledged.
    pub(crate) fn unacked(&self) -> (u64, u64) {
        let bytes = self
            .pending
            .iter()
            .map(|pending| pending.entry.len() as u64);
        (self.pending.len() as u64, bytes.sum())
    }

    /// Whether one more entry would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < self.limits.entries && self.sent_bytes < self.limits.bytes
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// The stream's text when it had no room, while it has none.
    pub(crate) fn full(&self) -> Option<&str> {
        self.full.as_ref().map(|(why, _)| why.as_str())
    }

    /// Takes an entry for the next place.
    pub(crate) fn push(&mut self, now: Moment, entry: Bytes, kind: Kind, end: Option<Position>) {
        self.pending.push_back(Pending {
            entry,
            kind,
            end,
            stored: false,
            pushed: now,
            sent_at: now,
            sent_first: None,
        });
        self.pushed = now;
        self.send(now);
    }

    /// Sends nothing from now on, or goes on. For a moment only: nothing is acknowledged meanwhile.
    pub(crate) fn hold(&mut self, now: Moment, held: bool) {
        self.held = held;
        self.send(now);
    }

    /// Entries that were sent and not acknowledged.
    pub(crate) fn on_way(&self) -> usize {
        self.sent
    }

    /// The next thing to do, in order.
    pub(crate) fn act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// An append was answered.
    pub(crate) fn answered(&mut self, now: Moment, sent: Sent, answer: Answer) {
        if self.stop.is_some() {
            return;
        }
        match answer {
            Answer::Stored(at) if at != sent.seq => {
                let why = format!("an append there was acknowledged as entry {at}");
                self.stop = Some(Stop::Bad(sent.seq, why));
            }
            Answer::Stored(_) => self.stored(now, sent),
            // About a sending that was given up, or of something settled since.
            _ if sent.round != self.round || sent.seq < self.first => {}
            // The deadline sees to it.
            Answer::Unknown => {}
            Answer::Wrong if self.resolve.is_none() && self.full.is_none() => self.ask(now),
            Answer::Wrong => {}
            Answer::Full(why) => self.full = Some((why, now + ASK_AGAIN)),
        }
    }

    fn stored(&mut self, now: Moment, sent: Sent) {
        let Some(index) = sent.seq.0.checked_sub(self.first.0) else {
            return;
        };
        // What was sent is pending until it is popped, so its index is one.
        let pending = &mut self.pending[index as usize];
        pending.stored = true;
        if sent.round == self.round {
            let took = now.saturating_sub(pending.sent_at);
            self.usual = (self.usual * 7 + took) / 8;
        }
        if !self.in_order {
            self.acked = self.acked.max(pending.end.unwrap_or_default());
        }
        self.full = None;
        self.settle(now);
    }

    /// Takes off the front what is stored, and sends what there is room for.
    fn settle(&mut self, now: Moment) {
        while self.pending.front().is_some_and(|front| front.stored) {
            self.pop(now);
        }
        if self.sent == 0 {
            self.resolve = None;
        }
        self.send(now);
    }

    fn pop(&mut self, now: Moment) {
        let Some(front) = self.pending.pop_front() else {
            return;
        };
        if self.sent > 0 {
            self.sent -= 1;
            self.sent_bytes -= front.entry.len();
        }
        self.first = self.first.after();
        // A padding's place may have been filled by somebody, at any time.
        if front.kind == Kind::Frame {
            self.acked_sent = self.acked_sent.max(front.sent_first);
        }
        if let Some(end) = front.end {
            self.acked = self.acked.max(end);
            if self.took.len() == TOOK_KEPT {
                self.took.pop_front();
            }
            self.took.push_back(now.saturating_sub(front.pushed));
        }
    }

    /// Within so much 99 of 100 of the newest frames were acknowledged; none: there was none.
    pub(crate) fn took_p99(&self) -> Option<Duration> {
        let mut took: Vec<Duration> = self.took.iter().copied().collect();
        took.sort_unstable();
        let at = (took.len() * 99).div_ceil(100);
        at.checked_sub(1).map(|at| took[at])
    }

    /// Sends in order as far as the window reaches.
    fn send(&mut self, now: Moment) {
        let waits = self.resolve.is_some() || self.full.is_some() || self.stop.is_some();
        if waits || self.held {
            return;
        }
        while let Some(next) = self.pending.get_mut(self.sent) {
            let len = next.entry.len();
            let fits = self.sent < self.limits.entries
                && (self.sent == 0 || self.sent_bytes + len <= self.limits.bytes);
            if !fits {
                break;
            }
            next.sent_at = now;
            next.sent_first.get_or_insert(now);
            self.acts.push_back(Act::Append {
                sent: Sent {
                    seq: Seq(self.first.0 + self.sent as u64),
                    round: self.round,
                },
                entry: next.entry.clone(),
            });
            self.sent += 1;
            self.sent_bytes += len;
        }
    }

    /// Sends everything from the first again, the same bytes to the same places.
    fn send_again(&mut self, now: Moment) {
        self.resolve = None;
        self.full = None;
        self.sent = 0;
        self.sent_bytes = 0;
        self.round += 1;
        self.send(now);
    }

    fn ask(&mut self, now: Moment) {
        self.resolves += u64::from(self.resolve.is_none());
        self.resolve = Some(Resolve::get(now));
        self.acts.push_back(Act::Get(self.first));
    }

    /// [`Act::Get`] was answered.
    pub(crate) fn found(&mut self, now: Moment, seq: Seq, found: &EntryLookup) {
        if self.stop.is_some() || self.resolve.is_none() {
            return;
        }
        let Some(front) = self.pending.front() else {
            return;
        };
        if seq != self.first {
            return self.ask(now);
        }
        match found {
            EntryLookup::Unknown => {}
            EntryLookup::Nothing => {
                self.resolve = Some(Resolve::ends(now));
                self.acts.push_back(Act::Ends);
            }
            EntryLookup::Entry(entry) => {
                match resolve::judge(&self.ours, &front.entry, front.kind, entry) {
                    Verdict::Settled => {
                        self.pop(now);
                        // Acknowledgements that came meanwhile count now.
                        self.settle(now);
                        if self.resolve.is_some() {
                            self.ask(now);
                        }
                    }
                    Verdict::Stop(epoch) => self.stop = Some(Stop::Fenced(epoch)),
                    Verdict::Bad(why) => self.stop = Some(Stop::Bad(seq, why)),
                }
            }
        }
    }

    /// [`Act::Ends`] was answered.
    pub(crate) fn ends(&mut self, now: Moment, ends: Option<Ends>) {
        let (Some(Resolve { ends: true, .. }), Some(ends)) = (self.resolve, ends) else {
            return;
        };
        if self.stop.is_some() {
            return;
        }
        if ends.first > self.first && ends.last >= self.first {
            // What cannot have been ours, as nobody gives up what is not acknowledged.
            let why = "the entries at the position of an append are purged: another node owns the \
                       log, or another program purged the stream";
            self.stop = Some(Stop::Bad(self.first, why.to_owned()));
        } else if ends.last < self.first && self.full.is_some() {
            self.resolve = None;
        } else if ends.last < self.first {
            self.send_again(now);
        }
        // Else something is there that was not found a moment ago: it is asked again.
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Moment) {
        if self.stop.is_some() || self.deadline().is_none_or(|due| now < due) {
            return;
        }
        if self.full.is_some() {
            self.send_again(now);
        } else {
            self.ask(now);
        }
    }

    /// When [`Window::tick`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        if self.stop.is_some() {
            return None;
        }
        if let Some((_, again)) = &self.full {
            return Some(*again);
        }
        if let Some(resolve) = self.resolve {
            return Some(resolve.requested_at + ASK_AGAIN);
        }
        let oldest = self.pending.front().filter(|_| self.sent > 0)?;
        let wait = (self.usual * DEADLINE_TIMES).clamp(DEADLINE_MIN, DEADLINE_MAX);
        Some(oldest.sent_at + wait)
    }
}
