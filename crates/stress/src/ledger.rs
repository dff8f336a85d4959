//! The requests, their answers, and the contents that they permit.
//!
//! A message is known by a number, which its body carries in front of bytes
//! that follow from it. An operation whose reply did not come is *unknown*: it
//! may have happened or not.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quintet_testkit::Protocol;

use crate::history::History;

/// The protocols, and RQ's scripts; the index of a count.
pub(crate) const PROTOCOLS: [&str; 10] = [
    "memcache",
    "lineup",
    "jobqueue",
    "pinpriq",
    "beanstalk",
    "control",
    "http",
    "sqs",
    "faktory",
    "api",
];

/// State of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// Sent; nothing came back.
    Unknown,
    /// Acknowledged, or seen by a consumer.
    Stored,
    /// Refused, never sent whole, or not there when it was looked for.
    Absent,
}

struct Event {
    at: Instant,
    round: u64,
    protocol: usize,
    what: &'static str,
}

struct Message {
    queue: &'static str,
    put: Put,
    /// When the reply to its removal or finish had come.
    finished: Option<Instant>,
    /// It came out by a take that removes.
    removed: bool,
    /// A finish was sent whose reply did not come, or said nothing.
    finish_unknown: bool,
    /// It has a time to live, and may be gone at any time.
    mortal: bool,
    /// Nobody may have it before; in this round, which is one server's life.
    due: Option<(Instant, u64)>,
    /// When the reply to its burying had come; nobody kicked it since.
    buried: Option<Instant>,
    events: Vec<Event>,
}

/// Options of a put.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// Seconds before anybody may take it.
    pub(crate) delay_s: u32,
    /// Seconds it lives; 0: for good.
    pub(crate) ttl_s: u32,
    /// It goes through a hook, which moves it to its queue, or refuses it.
    pub(crate) hook: Option<Hook>,
}

/// The hook's effect on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hook {
    Moves,
    Refuses,
}

/// Events beside puts, takes and finishes; the index of a count.
pub(crate) const DEEDS: [&str; 8] = [
    "put with a delay",
    "put with a time to live",
    "put moved by a hook",
    "put refused by a hook",
    "release with a delay",
    "bury",
    "kick of one",
    "delivery to a subscriber",
];
pub(crate) const DELAYED: usize = 0;
pub(crate) const MORTAL: usize = 1;
pub(crate) const MOVED: usize = 2;
pub(crate) const REFUSED: usize = 3;
pub(crate) const PUT_OFF: usize = 4;
pub(crate) const BURIED: usize = 5;
pub(crate) const KICKED: usize = 6;
pub(crate) const DELIVERED: usize = 7;

/// Counts of a protocol.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) puts: u64,
    pub(crate) refused: u64,
    pub(crate) finishes: u64,
    pub(crate) unknown: u64,
}

/// All there is to know; behind a lock.
pub(crate) struct Ledger {
    began: Instant,
    next: u64,
    pub(crate) round: u64,
    messages: HashMap<u64, Message>,
    /// By queue: takes that remove, whose reply did not come.
    unknown_takes: BTreeMap<&'static str, u64>,
    pub(crate) counts: [Counts; PROTOCOLS.len()],
    /// How often each of [`DEEDS`] was acknowledged.
    pub(crate) deeds: [u64; DEEDS.len()],
    /// Messages that must be there.
    pub(crate) live: u64,
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    /// Acknowledged and not found, but as many removals are unknown.
    pub(crate) explained: u64,
    pub(crate) violations: Vec<String>,
    /// Of all messages since the queues were empty.
    pub(crate) history: History,
}

/// The longest head of a body.
pub(crate) const HEAD: usize = 27;

/// The body of message `number`, at least as long as its head.
pub(crate) fn body(number: u64, len: usize) -> Vec<u8> {
    let len = len.max(HEAD);
    let mut body = format!("T{number:016x}:{len:08}:").into_bytes();
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while body.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let more = state.to_le_bytes();
        let room = (len - body.len()).min(8);
        body.extend_from_slice(&more[..room]);
    }
    body
}

/// The number of a body, if it is whole.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let head = std::str::from_utf8(bytes.get(..HEAD)?).ok()?;
    let number = u64::from_str_radix(head.get(1..17)?, 16).ok()?;
    (body(number, bytes.len()) == bytes).then_some(number)
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            next: 1,
            round: 0,
            messages: HashMap::new(),
            unknown_takes: BTreeMap::new(),
            counts: [Counts::default(); PROTOCOLS.len()],
            deeds: [0; DEEDS.len()],
            live: 0,
            lost: 0,
            twice: 0,
            explained: 0,
            violations: Vec::new(),
            history: History::default(),
        }
    }

    /// A number for a message that is about to be put.
    pub(crate) fn begin_put(&mut self, protocol: usize, queue: &'static str) -> u64 {
        let number = self.next;
        self.next += 1;
        let message = Message {
            queue,
            put: Put::Unknown,
            finished: None,
            removed: false,
            finish_unknown: false,
            mortal: false,
            due: None,
            buried: None,
            events: Vec::new(),
        };
        self.messages.insert(number, message);
        self.note(number, protocol, "put sent");
        number
    }

    /// The same, with wishes.
    pub(crate) fn begin_put_with(
        &mut self,
        protocol: usize,
        queue: &'static str,
        wishes: Wishes,
    ) -> u64 {
        let number = self.begin_put(protocol, queue);
        let round = self.round;
        if let Some(message) = self.messages.get_mut(&number) {
            message.mortal = wishes.ttl_s > 0;
            // Half of it, and not all: the server may see the time late. It
            // is about delays that are forgotten.
            let half = Duration::from_millis(u64::from(wishes.delay_s) * 500);
            message.due = (wishes.delay_s > 0).then(|| (Instant::now() + half, round));
        }
        if wishes.delay_s > 0 {
            self.note(number, protocol, "with a delay");
        }
        if wishes.ttl_s > 0 {
            self.note(number, protocol, "with a time to live");
        }
        if wishes.hook.is_some() {
            self.note(number, protocol, "through a hook");
        }
        number
    }

    /// The reply to such a put.
    pub(crate) fn end_put_with(
        &mut self,
        number: u64,
        protocol: usize,
        stored: Option<bool>,
        wishes: Wishes,
    ) {
        self.end_put(number, protocol, stored);
        if stored == Some(true) {
            self.history.stored(number);
        }
        match (stored, wishes.hook) {
            (Some(true), Some(Hook::Refuses)) => {
                self.violation(number, "a hook refuses it, and it was acknowledged");
            }
            (Some(true), Some(Hook::Moves)) => self.deeds[MOVED] += 1,
            (Some(false), Some(Hook::Refuses)) => self.deeds[REFUSED] += 1,
            _ => {}
        }
        if stored == Some(true) {
            self.deeds[DELAYED] += u64::from(wishes.delay_s > 0);
            self.deeds[MORTAL] += u64::from(wishes.ttl_s > 0);
        }
    }

    /// The reply to a burying: done, too late, none.
    pub(crate) fn end_bury(&mut self, number: u64, protocol: usize, done: Option<bool>) {
        let what = match done {
            Some(true) => "buried",
            Some(false) => "the burying was too late",
            None => "no reply to the burying",
        };
        self.note(number, protocol, what);
        if done == Some(true) {
            self.deeds[BURIED] += 1;
            if let Some(message) = self.messages.get_mut(&number) {
                message.buried = Some(Instant::now());
            }
        }
    }

    /// A kick of this one is about to be sent.
    pub(crate) fn begin_kick(&mut self, number: u64, protocol: usize) {
        self.note(number, protocol, "kick sent");
        if let Some(message) = self.messages.get_mut(&number) {
            message.buried = None;
        }
    }

    /// All of a queue are kicked: out of their burial and their delays.
    pub(crate) fn kick_all(&mut self, queue: &str) {
        for message in self.messages.values_mut() {
            if message.queue == queue {
                message.buried = None;
                message.due = None;
            }
        }
    }

    /// The reply to a put has come, or not (`None`).
    pub(crate) fn end_put(&mut self, number: u64, protocol: usize, stored: Option<bool>) {
        let what = match stored {
            Some(true) => "put acknowledged",
            Some(false) => "put refused",
            None => "no reply to the put",
        };
        self.note(number, protocol, what);
        let counts = &mut self.counts[protocol];
        match stored {
            Some(true) => counts.puts += 1,
            Some(false) => counts.refused += 1,
            None => counts.unknown += 1,
        }
        let Some(message) = self.messages.get_mut(&number) else {
            return;
        };
        match stored {
            // A consumer may have seen it before the reply was read.
            Some(true) if message.put == Put::Unknown => {
                message.put = Put::Stored;
                self.live += 1;
            }
            Some(false) if message.put == Put::Stored => {
                self.violation(number, "it was refused, and somebody took it");
            }
            Some(false) => message.put = Put::Absent,
            _ => {}
        }
    }

    /// A message that is never sent whole.
    pub(crate) fn half_put(&mut self, protocol: usize, queue: &'static str) -> u64 {
        let number = self.begin_put(protocol, queue);
        if let Some(message) = self.messages.get_mut(&number) {
            message.put = Put::Absent;
        }
        self.note(number, protocol, "only half of it is sent");
        number
    }

    /// Somebody was given these bytes by a take that was sent at `requested`.
    /// Returns the number.
    pub(crate) fn taken(
        &mut self,
        bytes: &[u8],
        protocol: usize,
        queue: &'static str,
        requested: Instant,
        removes: bool,
    ) -> Option<u64> {
        let known = number(bytes).filter(|number| self.messages.contains_key(number));
        let Some(number) = known else {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
            let (len, protocol) = (bytes.len(), PROTOCOLS[protocol]);
            self.violations.push(format!(
                "{protocol} gave out of {queue} a body of {len} bytes that nobody put so: {start:?}"
            ));
            return None;
        };
        let what = match removes {
            true => "taken and removed",
            false => "reserved",
        };
        self.note(number, protocol, what);
        let message = self.messages.get_mut(&number)?;
        let mut wrong = Vec::new();
        if message.queue != queue {
            wrong.push("it came out of another queue");
        }
        if message.put == Put::Absent {
            wrong.push("it was refused, half sent or gone, and somebody got it");
        }
        let late = message
            .finished
            .is_some_and(|finished| requested > finished);
        let again = late || (removes && message.removed);
        if again {
            wrong.push("it came again after its finish or removal was acknowledged");
        }
        if message.buried.is_some_and(|buried| requested > buried) {
            wrong.push("it was buried, nobody kicked it, and it came");
        }
        let round = self.round;
        if message
            .due
            .is_some_and(|(due, of)| of == round && Instant::now() < due)
        {
            wrong.push("it came before half of its delay had passed");
        }
        if message.put == Put::Unknown {
            message.put = Put::Stored;
            self.live += 1;
        }
        if removes {
            message.removed = true;
            self.finish(number, protocol);
        }
        self.twice += u64::from(again);
        for wrong in wrong {
            self.violation(number, wrong);
        }
        Some(number)
    }

    /// A take that removes was sent and its reply did not come.
    pub(crate) fn take_unknown(&mut self, protocol: usize, queue: &'static str) {
        *self.unknown_takes.entry(queue).or_default() += 1;
        self.counts[protocol].unknown += 1;
    }

    /// A finish is about to be sent.
    pub(crate) fn begin_finish(&mut self, number: u64, protocol: usize) {
        if let Some(message) = self.messages.get_mut(&number) {
            message.finish_unknown = true;
        }
        self.note(number, protocol, "finish sent");
    }

    /// The reply to a finish: done, refused or without meaning, none.
    pub(crate) fn end_finish(&mut self, number: u64, protocol: usize, done: Option<bool>) {
        match done {
            Some(true) => self.finish(number, protocol),
            Some(false) => self.note(number, protocol, "the finish was too late"),
            None => {
                self.note(number, protocol, "no reply to the finish");
                self.counts[protocol].unknown += 1;
            }
        }
    }

    fn finish(&mut self, number: u64, protocol: usize) {
        self.note(number, protocol, "finish acknowledged");
        self.counts[protocol].finishes += 1;
        let Some(message) = self.messages.get_mut(&number) else {
            return;
        };
        if message.finished.is_none() {
            message.finished = Some(Instant::now());
            self.live = self.live.saturating_sub(1);
        }
    }

    /// Messages of `queue` that must be there (acknowledged, no finish sent, no time to live), and
    /// the number of unknown removals that may explain missing ones.
    pub(crate) fn missing(&self, queue: &str) -> (Vec<u64>, u64) {
        let mut missing: Vec<u64> = self
            .messages
            .iter()
            .filter(|(_, m)| m.queue == queue && m.put == Put::Stored)
            .filter(|(_, m)| m.finished.is_none() && !m.finish_unknown && !m.mortal)
            .map(|(number, _)| *number)
            .collect();
        missing.sort_unstable();
        let unknown = self.unknown_takes.get(queue).copied().unwrap_or(0);
        (missing, unknown)
    }

    /// The queue was emptied: what did not come is gone for good, and lost if
    /// nothing explains that.
    pub(crate) fn close(&mut self, queue: &str) {
        let (missing, unknown) = self.missing(queue);
        if missing.len() as u64 > unknown {
            self.lost += missing.len() as u64 - unknown;
            for number in missing.iter().take(5) {
                let text = format!(
                    "lost: {} messages of {queue} were acknowledged and are not there, {unknown} \
                     removals are unknown",
                    missing.len()
                );
                self.violation(*number, &text);
            }
        } else {
            self.explained += missing.len() as u64;
        }
        for message in self.messages.values_mut() {
            if message.queue == queue && message.finished.is_none() {
                if message.put == Put::Stored {
                    self.live = self.live.saturating_sub(1);
                }
                message.put = Put::Absent;
            }
        }
        self.unknown_takes.remove(queue);
    }

    /// Every message of this queue is done: those whose script ran are finished;
    /// of the others `failed` are explained, as they stand in `err`.
    pub(crate) fn scripts_ran(
        &mut self,
        queue: &'static str,
        counts: &HashMap<String, u64>,
        failed: u64,
    ) {
        let http = Protocol::Http as usize;
        let done: Vec<u64> = self
            .messages
            .iter()
            .filter(|(number, message)| {
                let name = String::from_utf8_lossy(&body(**number, HEAD)[..17]).into_owned();
                message.queue == queue && message.finished.is_none() && counts.contains_key(&name)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in done {
            let message = self.messages.get_mut(&number);
            if message.as_ref().is_some_and(|m| m.put == Put::Absent) {
                self.violation(number, "it was refused, and its script ran");
            } else if let Some(message) = message {
                if message.put == Put::Unknown {
                    message.put = Put::Stored;
                    self.live += 1;
                }
                self.finish(number, http);
            }
        }
        if failed > 0 {
            self.unknown_takes.insert(queue, failed);
        }
        self.close(queue);
    }

    /// # Errors
    /// Something was broken: what, and the first histories.
    pub(crate) fn settled(&self) -> anyhow::Result<()> {
        let shown = &self.violations[..self.violations.len().min(5)];
        if !shown.is_empty() {
            anyhow::bail!("{} violations\n{}", self.violations.len(), shown.join("\n"));
        }
        Ok(())
    }

    /// The queues are empty: says what of their history cannot be.
    pub(crate) fn close_history(&mut self, lease: Duration) {
        for (number, why) in self.history.close(lease) {
            self.violation(number, &why);
        }
    }

    /// Forgets all messages: their directory is gone.
    pub(crate) fn forget(&mut self) {
        self.history = History::default();
        self.messages.clear();
        self.unknown_takes.clear();
        self.live = 0;
    }

    pub(crate) fn note(&mut self, number: u64, protocol: usize, what: &'static str) {
        let round = self.round;
        if let Some(message) = self.messages.get_mut(&number) {
            let at = Instant::now();
            message.events.push(Event {
                at,
                round,
                protocol,
                what,
            });
        }
    }

    /// Says that something is wrong with a message, and its history.
    pub(crate) fn violation(&mut self, number: u64, what: &str) {
        let mut text = format!("message {number}: {what}\n");
        if let Some(message) = self.messages.get(&number) {
            writeln!(text, "  queue {}", message.queue).ok();
            for event in &message.events {
                let ms = event.at.duration_since(self.began).as_millis();
                let (round, protocol) = (event.round, PROTOCOLS[event.protocol]);
                writeln!(
                    text,
                    "  {ms:>9} ms  round {round:<4} {protocol:9} {}",
                    event.what
                )
                .ok();
            }
        }
        self.violations.push(text);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Ledger, body, number};

    const MEMCACHE: usize = 0;

    fn stored(ledger: &mut Ledger) -> (u64, Vec<u8>) {
        let number = ledger.begin_put(MEMCACHE, "q");
        ledger.end_put(number, MEMCACHE, Some(true));
        (number, body(number, 100))
    }

    #[test]
    fn a_body_is_known_whole_only() {
        let bytes = body(7, 1000);
        assert_eq!(number(&bytes), Some(7));
        assert_eq!(number(&bytes[..999]), None);
        let mut other = bytes;
        other[500] ^= 1;
        assert_eq!(number(&other), None);
        assert_eq!(number(b"short"), None);
    }

    #[test]
    fn an_acknowledged_message_that_is_absent_is_lost() {
        let mut ledger = Ledger::new();
        stored(&mut ledger);
        ledger.close("q");
        assert_eq!((ledger.lost, ledger.violations.len()), (1, 1));
        assert!(ledger.violations[0].contains("put acknowledged"));
    }

    #[test]
    fn an_unknown_removal_explains_one_and_not_two() {
        let mut ledger = Ledger::new();
        stored(&mut ledger);
        ledger.take_unknown(MEMCACHE, "q");
        ledger.close("q");
        assert_eq!((ledger.lost, ledger.explained), (0, 1));
        stored(&mut ledger);
        stored(&mut ledger);
        ledger.take_unknown(MEMCACHE, "q");
        ledger.close("q");
        assert_eq!(ledger.lost, 1);
    }

    #[test]
    fn an_unknown_put_may_be_there_or_not() {
        let mut ledger = Ledger::new();
        let absent = ledger.begin_put(MEMCACHE, "q");
        ledger.end_put(absent, MEMCACHE, None);
        let there = ledger.begin_put(MEMCACHE, "q");
        ledger.end_put(there, MEMCACHE, None);
        let requested = Instant::now();
        ledger.taken(&body(there, 50), MEMCACHE, "q", requested, true);
        ledger.close("q");
        assert!(ledger.violations.is_empty(), "{:?}", ledger.violations);
        // It was not there; it cannot be there later.
        ledger.taken(&body(absent, 50), MEMCACHE, "q", requested, true);
        assert_eq!(ledger.violations.len(), 1);
    }

    #[test]
    fn a_seen_message_must_stay() {
        let mut ledger = Ledger::new();
        let number = ledger.begin_put(MEMCACHE, "q");
        ledger.end_put(number, MEMCACHE, None);
        ledger.taken(&body(number, 50), MEMCACHE, "q", Instant::now(), false);
        ledger.close("q");
        assert_eq!(ledger.lost, 1);
    }

    #[test]
    fn twice_is_after_the_acknowledgement_only() {
        let mut ledger = Ledger::new();
        let (number, body) = stored(&mut ledger);
        let before = Instant::now();
        ledger.taken(&body, MEMCACHE, "q", before, false);
        ledger.begin_finish(number, MEMCACHE);
        ledger.end_finish(number, MEMCACHE, Some(true));
        // Asked before that: the lease had ended and this consumer was faster.
        ledger.taken(&body, MEMCACHE, "q", before, false);
        assert_eq!(ledger.twice, 0);
        ledger.taken(&body, MEMCACHE, "q", Instant::now(), false);
        assert_eq!((ledger.twice, ledger.violations.len()), (1, 1));
    }

    #[test]
    fn two_removals_of_one_message_are_one_too_many() {
        let mut ledger = Ledger::new();
        let (_, body) = stored(&mut ledger);
        let requested = Instant::now();
        ledger.taken(&body, MEMCACHE, "q", requested, true);
        ledger.taken(&body, MEMCACHE, "q", requested, true);
        assert_eq!(ledger.twice, 1);
    }

    #[test]
    fn a_refused_half_sent_or_unknown_message_must_not_come() {
        let mut ledger = Ledger::new();
        let requested = Instant::now();
        let refused = ledger.begin_put(MEMCACHE, "q");
        ledger.end_put(refused, MEMCACHE, Some(false));
        ledger.taken(&body(refused, 50), MEMCACHE, "q", requested, true);
        let half = ledger.half_put(MEMCACHE, "q");
        ledger.taken(&body(half, 50), MEMCACHE, "q", requested, true);
        ledger.taken(b"something else", MEMCACHE, "q", requested, true);
        let (_, other) = stored(&mut ledger);
        ledger.taken(&other, MEMCACHE, "elsewhere", requested, true);
        assert_eq!(ledger.violations.len(), 4, "{:?}", ledger.violations);
    }

    #[test]
    fn an_unknown_finish_leaves_both_open() {
        let mut ledger = Ledger::new();
        let (number, bytes) = stored(&mut ledger);
        ledger.taken(&bytes, MEMCACHE, "q", Instant::now(), false);
        ledger.begin_finish(number, MEMCACHE);
        ledger.end_finish(number, MEMCACHE, None);
        ledger.taken(&bytes, MEMCACHE, "q", Instant::now(), false);
        ledger.close("q");
        assert!(ledger.violations.is_empty(), "{:?}", ledger.violations);
    }
}
