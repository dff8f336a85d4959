//! Output of a connection, and the conditions it waits for.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use quintet_host::BodySource;
use quintet_log::LogError;
use quintet_types::{Handed, LargeBody, Message};

use quintet_tls::Scratch;
use quintet_wire::Output;

use super::Stream;
use super::counts::{ProtocolCounts, Read, Replies};
use quintet_host::{Completed, Required};

/// So much a connection holds without its being counted, bytes: what small
/// requests take, and what one that rests keeps. Bounded by the number of
/// connections.
pub(super) const FREE_BYTES: usize = 8 << 10;

/// Replies in order, each released when its commit numbers are complete.
#[derive(Default)]
pub(super) struct Outbox {
    /// Reply bytes and large bodies.
    pub(super) output: Output,
    /// Bytes that left.
    sent: usize,
    /// Large bodies that left.
    large_sent: usize,
    /// Bytes, and large bodies, that may leave.
    free: (usize, usize),
    /// Ends of replies that wait, rising.
    checkpoints: VecDeque<Checkpoint>,
    /// Since when the first of them waits, or an earlier one could leave.
    waits_since: Option<Instant>,
    /// Messages to go back if their reply never begins to leave, with its
    /// offset.
    kept: VecDeque<(usize, Handed)>,
    /// Bytes of their bodies.
    kept_bytes: usize,
    /// The large body that is leaving.
    sending: Option<Sending>,
}

/// Replies that wait for the same.
#[derive(Clone, Copy)]
struct Checkpoint {
    /// Their end in bytes, and in large bodies.
    end: (usize, usize),
    required: Required,
    replies: Replies,
}

/// Result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    /// No due reply is left.
    Done,
    /// The socket takes no more now.
    Blocked,
    /// It would take more of a large body, but others are to have a turn.
    More,
    /// The connection is dead, or a body cannot be read: close it.
    Dead,
}

/// Where it goes, and what that takes.
struct To<'a> {
    stream: &'a mut Stream,
    records: &'a mut Scratch,
    /// Counts bytes that left.
    written: &'a mut u64,
    /// Bytes of large bodies that may leave in this turn.
    budget: usize,
}

impl To<'_> {
    /// Writes some of these bytes, or says why none can leave.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other is its end")]
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Flushed> {
        loop {
            match self.stream.write(bytes, self.records) {
                Ok(0) => return Err(Flushed::Dead),
                Ok(n) => {
                    *self.written += n as u64;
                    return Ok(n);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Err(Flushed::Blocked),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Flushed::Dead),
                },
            }
        }
    }
}

struct Sending {
    body: LargeBody,
    chunk: usize,
    bytes: Vec<u8>,
    at: usize,
}

impl Outbox {
    /// Ends a reply that began at offset `start`. `undone` are messages that
    /// go back if it never begins to leave.
    pub(super) fn end_reply(
        &mut self,
        start: usize,
        required: Required,
        undone: Option<Handed>,
        replies: Replies,
    ) {
        let end = (self.output.len(), self.output.large().len());
        // Replies leave in order, so one waits for all that its predecessors
        // wait for.
        let last = self.checkpoints.back_mut();
        let required = last
            .as_ref()
            .map_or(required, |last| last.required.and(required));
        let both = last.and_then(|last| {
            let both = last
                .replies
                .and(replies)
                .filter(|_| last.required == required)?;
            Some((last, both))
        });
        match both {
            Some((last, both)) => (last.end, last.replies) = (end, both),
            None => self.checkpoints.push_back(Checkpoint {
                end,
                required,
                replies,
            }),
        }
        if let Some(undone) = undone {
            self.kept_bytes += small_bytes(&undone);
            self.kept.push_back((start, undone));
        }
    }

    /// Lets go what has been reached by `at`, which counts `now`. True if replies still wait.
    pub(super) fn release(
        &mut self,
        completed: Completed,
        at: Instant,
        now: Read,
        counts: &ProtocolCounts,
    ) -> bool {
        while let Some(&checkpoint) = self.checkpoints.front() {
            if !completed.satisfies(checkpoint.required) {
                self.waits_since.get_or_insert(at);
                return true;
            }
            self.free = checkpoint.end;
            checkpoint.replies.released(now, counts);
            self.checkpoints.pop_front();
            self.waits_since = None;
        }
        false
    }

    /// For how long the first reply that waits has.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        let since = self.waits_since.filter(|_| !self.checkpoints.is_empty());
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The newest batch a reply waits for; 0: none.
    pub(super) fn needed(&self) -> Required {
        self.checkpoints
            .back()
            .map_or(Required::default(), |checkpoint| checkpoint.required)
    }

    /// True if the next reply is durable where it must be, and waits only for
    /// a batch to be written.
    pub(super) fn waits_for_write(&self, completed: Completed) -> bool {
        self.checkpoints
            .front()
            .is_some_and(|&Checkpoint { required, .. }| {
                !completed.satisfies(required)
                    && completed.satisfies(Required {
                        written: 0,
                        ..required
                    })
            })
    }

    /// Bytes not sent yet, those of large bodies not counted.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Bytes of memory it takes.
    pub(super) fn footprint(&self) -> usize {
        let sending = self.sending.as_ref();
        self.output.capacity()
            + self.kept_bytes
            + sending.map_or(0, |sending| sending.bytes.capacity())
    }

    /// True if a large body is next or on its way: sending takes a while.
    pub(super) fn is_large(&self) -> bool {
        self.large_sent < self.free.1
    }

    /// True if nothing is left to send.
    pub(super) fn is_empty(&self) -> bool {
        self.unsent() == 0
            && self.large_sent == self.output.large().len()
            && self.checkpoints.is_empty()
    }

    /// Sends what may leave: one write, unless large bodies are among it.
    pub(super) fn flush(
        &mut self,
        stream: &mut Stream,
        records: &mut Scratch,
        bodies: &BodySource<'_>,
        written: &mut u64,
    ) -> Flushed {
        let mut to = To {
            stream,
            records,
            written,
            budget: LARGE_PER_TURN,
        };
        let sent = self.send(&mut to, bodies);
        let mut flushed = sent.err().unwrap_or(Flushed::Done);
        if flushed == Flushed::Done && stream.is_pending() {
            flushed = match stream.flush() {
                Ok(true) => Flushed::Done,
                Ok(false) => Flushed::Blocked,
                Err(_) => Flushed::Dead,
            };
        }
        while self
            .kept
            .front()
            .is_some_and(|(start, _)| *start < self.sent)
        {
            let left = self.kept.pop_front();
            self.kept_bytes -= left.map_or(0, |(_, messages)| small_bytes(&messages));
        }
        if self.is_empty() {
            self.output.clear(FREE_BYTES);
            (self.sent, self.large_sent, self.free) = (0, 0, (0, 0));
        } else if self.sent > COMPACT && self.sent * 2 > self.output.len() {
            self.compact();
        }
        flushed
    }

    /// True if something was removed for a reply that may not leave yet.
    pub(super) fn owes(&self) -> bool {
        let last = self.kept.back();
        last.is_some_and(|(start, _)| *start >= self.free.0)
    }

    /// The messages whose replies never began to leave.
    pub(super) fn take_unsent(&mut self) -> Vec<Message> {
        self.kept_bytes = 0;
        self.kept
            .drain(..)
            .flat_map(|(_, messages)| messages)
            .collect()
    }

    /// `Err`: why not all that may leave has left.
    fn send(&mut self, to: &mut To<'_>, bodies: &BodySource<'_>) -> Result<(), Flushed> {
        loop {
            let next =
                (self.large_sent < self.free.1).then(|| self.output.large()[self.large_sent].0);
            let stop = next.unwrap_or(self.free.0);
            if self.sent < stop {
                self.sent += to.write(&self.output.bytes()[self.sent..stop])?;
                if self.sent < stop {
                    return Err(Flushed::Blocked);
                }
            }
            if next.is_none() {
                return Ok(());
            }
            self.send_large(to, bodies)?;
            self.large_sent += 1;
        }
    }

    /// Sends the next large body, chunk by chunk as the socket takes them.
    fn send_large(&mut self, to: &mut To<'_>, bodies: &BodySource<'_>) -> Result<(), Flushed> {
        let sending = self.sending.get_or_insert_with(|| Sending {
            body: self.output.large()[self.large_sent].1.clone(),
            chunk: 0,
            bytes: Vec::new(),
            at: 0,
        });
        loop {
            if sending.at == sending.bytes.len() {
                match sending.load(bodies) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.sending = None;
                        return Ok(());
                    }
                    Err(why) => {
                        tracing::error!("cannot send a large body: {why}");
                        return Err(Flushed::Dead);
                    }
                }
            }
            if to.budget == 0 {
                return Err(Flushed::More);
            }
            let rest = &sending.bytes[sending.at..];
            let n = to.write(&rest[..rest.len().min(to.budget)])?;
            sending.at += n;
            to.budget = to.budget.saturating_sub(n);
        }
    }

    /// Forgets what was sent, so that a connection that never catches up does
    /// not keep all it ever got.
    fn compact(&mut self) {
        let sent = self.sent;
        self.output.forget_front(sent, self.large_sent);
        self.sent = 0;
        self.free = (self.free.0 - sent, self.free.1 - self.large_sent);
        for checkpoint in &mut self.checkpoints {
            checkpoint.end.0 -= sent;
            checkpoint.end.1 -= self.large_sent;
        }
        for (start, _) in &mut self.kept {
            *start -= sent;
        }
        self.large_sent = 0;
    }
}

/// Bytes of large bodies that one connection is sent in one turn: a client
/// that reads as fast as it is sent to would else hold up all others of its
/// thread for the length of the body.
const LARGE_PER_TURN: usize = 64 << 10;

/// Bytes sent but still held, at most, beside as many unsent.
const COMPACT: usize = 64 << 10;

/// Bytes of the bodies that are in memory.
pub(super) fn small_bytes(messages: &Handed) -> usize {
    let small = messages
        .iter()
        .filter_map(|message| message.body.as_small());
    small.map(<[u8]>::len).sum()
}

impl Sending {
    /// Reads the next chunk, verified. False at the end of the body.
    fn load(&mut self, bodies: &BodySource<'_>) -> Result<bool, String> {
        // A retirement may move a chunk between looking up its place and
        // reading it; then its new place is known.
        for attempt in 0.. {
            let places = self.body.places();
            let Some(place) = places.get(self.chunk) else {
                let stored: u64 = places.iter().map(|place| u64::from(place.len)).sum();
                if stored < self.body.len() {
                    return Err(format!("{stored} of {} bytes are stored", self.body.len()));
                }
                return Ok(false);
            };
            match bodies.read(place) {
                Ok(bytes) => {
                    self.at = bytes.len().saturating_sub(place.len as usize);
                    self.bytes = bytes;
                    self.chunk += 1;
                    return Ok(true);
                }
                Err(LogError::NoSegment(_) | LogError::BadRead { .. })
                    if attempt < 3 && self.body.places().get(self.chunk) != Some(place) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_counts_from_when_a_reply_could_leave_last() {
        let (mut out, start) = (Outbox::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let needs = |durable| Required {
            durable,
            ..Required::default()
        };
        for durable in [1, 2] {
            out.output.put(b"yes");
            out.end_reply(0, needs(durable), None, Replies::none());
        }
        assert_eq!(out.waited(at(5)), Duration::ZERO, "no reply may leave");
        let counts = ProtocolCounts::new();
        let release = |out: &mut Outbox, durable, at| {
            let (written, leased) = (durable, true);
            let completed = Completed {
                written,
                durable,
                leased,
            };
            out.release(completed, at, Read::at(at, start), &counts)
        };
        assert!(release(&mut out, 0, at(1)));
        assert!(release(&mut out, 0, at(20)));
        assert_eq!(out.waited(at(31)), Duration::from_secs(30));
        assert!(release(&mut out, 1, at(31)));
        assert_eq!(out.waited(at(40)), Duration::from_secs(9));
        assert!(!release(&mut out, 2, at(41)));
        assert_eq!(out.waited(at(90)), Duration::ZERO, "all have left");
    }
}
