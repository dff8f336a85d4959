//! Reading a command line.

use std::sync::Arc;

use quintet_types::{
    BackTo, BatchId, BatchRequest, By, ByName, Command, Event, How, LeaseOwner, LeaseRequest,
    LeaseTime, MESSAGE_NAME_BYTES_MAX, MessageId, Name, NamedAction, Peek, StatsOf, Wait, When,
};

use super::Count;
use super::names::{is_name_byte, tube};
use super::reply::{self, BeanstalkReply};

/// Longest command line, its CR LF included.
pub(super) const LINE_MAX: usize = 224;

/// Longest wait of `reserve-with-timeout`, seconds.
const WAIT_MAX_S: u64 = i32::MAX as u64;

/// Most jobs of a `reserve-batch`.
pub(super) const BATCH_MAX: u32 = 1000;

/// The lease of a reserve: a job belongs to its connection until its time is over.
pub(super) const LEASE: LeaseRequest = LeaseRequest {
    owner: LeaseOwner::Connection,
    time: LeaseTime::TtrOrDefault,
    back_to: BackTo::Position,
    held_max: 0,
};

/// One request line.
#[derive(Debug, PartialEq)]
pub(super) enum Request<'a> {
    /// This of the engine, to get that reply.
    Engine(Command, BeanstalkReply),
    Put(Announced, Option<Beside>),
    /// A batch, of whose callbacks the bodies follow.
    NewBatch(Callbacks),
    Reserve(Wait),
    /// So many jobs at most.
    ReserveBatch(u32, Wait),
    Use(&'a [u8]),
    Watch(&'a [u8]),
    Ignore(&'a [u8]),
    Kick(u64),
    Stats,
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    Quit,
    /// A request that gets this error.
    Fault(&'static [u8]),
}

/// Extras of a job that a plain job does not have.
#[derive(Debug, PartialEq)]
pub(super) enum Beside {
    /// Key that makes the job unique.
    Unique(Box<[u8]>),
    /// The batch it is counted in.
    Batch(BatchId),
    /// Its name, by which it is asked what became of it.
    Tracked(Arc<[u8]>),
}

/// The announcement of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) priority: u32,
    pub(super) due: When,
    pub(super) ttr_ms: u64,
    pub(super) len: u32,
}

/// The announcement of a batch: its callbacks, in the order of their bodies, and the rest of the
/// line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Callbacks {
    pub(super) first: Announcement,
    pub(super) second: Option<Announcement>,
    pub(super) parent: Option<BatchId>,
    pub(super) description: Box<[u8]>,
}

impl Callbacks {
    pub(super) fn all(&self) -> impl Iterator<Item = &Announcement> {
        std::iter::once(&self.first).chain(&self.second)
    }
}

/// The announcement of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) event: Event,
    pub(super) tube: Name,
    pub(super) len: u32,
}

/// Reads a line, given without its CR LF, and says how it is counted.
pub(super) fn parse<'a>(line: &'a [u8], used: &Name) -> (Count, Request<'a>) {
    let fault = |reply| (Count::Fault, Request::Fault(reply));
    if memchr::memchr(0, line).is_some() {
        return fault(reply::BAD_FORMAT);
    }
    let (verb, rest) = match memchr::memchr(b' ', line) {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    };
    let used = || used.clone();
    let found = |peek| engine(Command::Peek(peek), BeanstalkReply::Job(b"FOUND "));
    match (verb, rest) {
        (b"reserve", None) => (Count::Reserve, Request::Reserve(Wait::Forever)),
        (b"peek-ready", None) => (Count::PeekReady, found(Peek::Ready(used()))),
        (b"peek-delayed", None) => (Count::PeekDelayed, found(Peek::Delayed(used()))),
        (b"peek-buried", None) => (Count::PeekBuried, found(Peek::Buried(used()))),
        (b"stats", None) => (Count::Stats, Request::Stats),
        (b"list-tubes", None) => (Count::ListTubes, Request::ListTubes),
        (b"list-tube-used", None) => (Count::ListTubeUsed, Request::ListTubeUsed),
        (b"list-tubes-watched", None) => (Count::ListTubesWatched, Request::ListTubesWatched),
        (b"quit", None) => (Count::Other, Request::Quit),
        (_, None) => fault(unknown(line)),
        (_, Some(rest)) => match arguments(verb, rest, used) {
            Some((count, Some(request))) => (count, request),
            Some((_, None)) => fault(reply::BAD_FORMAT),
            None => fault(unknown(line)),
        },
    }
}

fn batch_id(word: &[u8]) -> Option<BatchId> {
    BatchId::parse(std::str::from_utf8(word).ok()?)
}

/// Asks for the outcome of the tracked job of this name.
fn track(queue: Name, name: &[u8]) -> Option<Request<'static>> {
    let by_name = ByName {
        queue: Some(queue),
        name: message_name(name)?.into(),
        by: By::Owner,
        action: NamedAction::Track,
    };
    let ask = Command::ByName(Box::new(by_name));
    Some(engine(ask, BeanstalkReply::StatsTrack))
}

/// A word that a job may have as its name.
fn message_name(word: &[u8]) -> Option<&[u8]> {
    let is_name = (1..=MESSAGE_NAME_BYTES_MAX).contains(&word.len()) && !word.contains(&b' ');
    is_name.then_some(word)
}

/// `EVENT TUBE BYTES`, once or twice; behind them, if they are there, `parent=BATCH`, and
/// `description=` with all that is left of the line. No tube's name has a `=`.
fn callbacks(rest: &[u8]) -> Option<Callbacks> {
    let (rest, description) = cut(rest, b" description=");
    let (rest, parent) = cut(rest, b" parent=");
    let parent = match parent {
        Some(batch) => Some(batch_id(batch)?),
        None => None,
    };
    let mut words = rest.split(|&byte| byte == b' ');
    let first = announcement(words.next()?, &mut words)?;
    let second = match words.next() {
        Some(event) => Some(announcement(event, &mut words)?),
        None => None,
    };
    let twice = second
        .as_ref()
        .is_some_and(|second| second.event == first.event);
    (!twice && words.next().is_none()).then(|| Callbacks {
        first,
        second,
        parent,
        description: description.unwrap_or_default().into(),
    })
}

/// Splits a line at `word`: the part before it, and the part behind it if the word is there.
fn cut<'a>(line: &'a [u8], word: &[u8]) -> (&'a [u8], Option<&'a [u8]>) {
    match memchr::memmem::find(line, word) {
        Some(at) => (&line[..at], Some(&line[at + word.len()..])),
        None => (line, None),
    }
}

fn announcement<'a>(
    event: &[u8],
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<Announcement> {
    let events = [Event::Complete, Event::Success];
    let event = events
        .into_iter()
        .find(|known| known.word().as_bytes() == event)?;
    let tube = Name::new(tube(words.next()?)?);
    let len = Fields(words.next()?).last_small()?;
    Some(Announcement { event, tube, len })
}

/// A command with arguments; `Some((_, None))` if they are bad, `None` if
/// there is no such command.
fn arguments<'a>(
    verb: &[u8],
    rest: &'a [u8],
    used: impl FnOnce() -> Name,
) -> Option<(Count, Option<Request<'a>>)> {
    use BeanstalkReply::Line;
    let fields = Fields(rest);
    let other = |request| (Count::Other, request);
    let put = |read: fn(&[u8]) -> Option<Beside>| (Count::Put, fields.put_with(read));
    let of_batch = |ask: fn(BatchId) -> BatchRequest, reply| {
        Some(engine(Command::Batch(ask(batch_id(rest)?)), reply))
    };
    let of_job = |command: fn(MessageId) -> Command, reply| {
        Some(engine(command(MessageId(fields.last(u64::MAX)?)), reply))
    };
    Some(match verb {
        b"put" => (Count::Put, fields.put()),
        b"put-unique" => put(|id| Some(Beside::Unique(id.into()))),
        b"put-member" => put(|batch| batch_id(batch).map(Beside::Batch)),
        b"put-tracked" => put(|name| Some(Beside::Tracked(message_name(name)?.into()))),
        b"stats-track" => other(track(used(), rest)),
        b"new-batch" => other(callbacks(rest).map(Request::NewBatch)),
        b"open-batch" => other(of_batch(BatchRequest::Open, Line(b"OPENED\r\n"))),
        b"commit-batch" => other(of_batch(BatchRequest::Commit, Line(b"COMMITTED\r\n"))),
        b"forget-batch" => other(of_batch(BatchRequest::Forget, Line(b"FORGOTTEN\r\n"))),
        b"stats-batch" => other(of_batch(BatchRequest::Show, BeanstalkReply::StatsBatch)),
        b"reserve-with-timeout" => {
            let wait = fields.last(WAIT_MAX_S);
            let request = |seconds: u64| Request::Reserve(Wait::For(seconds * 1000));
            (Count::ReserveWithTimeout, wait.map(request))
        }
        b"reserve-batch" => other(fields.reserve_batch()),
        b"delete" => {
            const BY: By = By::OwnerOrFree;
            let delete = |id| Command::Delete { id, by: BY };
            (Count::Delete, of_job(delete, Line(b"DELETED\r\n")))
        }
        b"release" => (Count::Release, fields.release()),
        b"bury" => (Count::Bury, fields.bury()),
        b"touch" => (Count::Touch, of_job(Command::Touch, Line(b"TOUCHED\r\n"))),
        b"progress" => other(fields.progress()),
        b"use" => (Count::Use, tube(rest).map(Request::Use)),
        b"watch" => (Count::Watch, tube(rest).map(Request::Watch)),
        b"ignore" => (Count::Ignore, tube(rest).map(Request::Ignore)),
        b"reserve-job" => {
            let reserve = |id| Command::ReserveId { id, lease: LEASE };
            other(of_job(reserve, BeanstalkReply::ReservedId))
        }
        b"peek" => {
            let peek = |id| Command::Peek(Peek::Id(id));
            (Count::Peek, of_job(peek, BeanstalkReply::Job(b"FOUND ")))
        }
        b"kick" => (Count::Kick, fields.last(u64::MAX).map(Request::Kick)),
        b"kick-job" => other(of_job(Command::KickId, Line(b"KICKED\r\n"))),
        b"stats-job" => {
            let stats = |id| Command::Stats(StatsOf::Message(id));
            (Count::StatsJob, of_job(stats, BeanstalkReply::StatsJob))
        }
        b"stats-tube" => {
            let request = |name| {
                let name = Name::new(name);
                let stats = Command::Stats(StatsOf::Queue(name.clone()));
                engine(stats, BeanstalkReply::StatsTube(name))
            };
            (Count::StatsTube, tube(rest).map(request))
        }
        b"pause-tube" => (Count::PauseTube, fields.pause()),
        b"clear-tube" => {
            let clear = |name| {
                let (queue, reserved) = (Name::new(name), false);
                engine(Command::Flush { queue, reserved }, BeanstalkReply::Cleared)
            };
            other(tube(rest).map(clear))
        }
        _ => return None,
    })
}

fn engine(command: Command, reply: BeanstalkReply) -> Request<'static> {
    Request::Engine(command, reply)
}

/// The error for a word that begins like a command without arguments, or `pause-tube`: a bad
/// format. beanstalkd reads no further than this either.
fn unknown(line: &[u8]) -> &'static [u8] {
    const KNOWN: [&[u8]; 8] = [
        b"reserve",
        b"peek-ready",
        b"peek-delayed",
        b"peek-buried",
        b"stats",
        b"list-tubes",
        b"list-tube-used",
        b"pause-tube",
    ];
    match KNOWN.iter().any(|known| line.starts_with(known)) {
        true => reply::BAD_FORMAT,
        false => reply::UNKNOWN_COMMAND,
    }
}

/// Arguments: decimal numbers after any number of spaces.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn number(&mut self, most: u64) -> Option<u64> {
        self.skip_spaces();
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit());
        let len = digits.count();
        let (digits, rest) = self.0.split_at(len);
        self.0 = rest;
        let value = digits.iter().try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })?;
        (len > 0 && value <= most).then_some(value)
    }

    /// A number that nothing follows.
    fn last(mut self, most: u64) -> Option<u64> {
        self.number(most).filter(|_| self.0.is_empty())
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number(u64::from(u32::MAX))?).ok()
    }

    fn last_small(self) -> Option<u32> {
        u32::try_from(self.last(u64::from(u32::MAX))?).ok()
    }

    /// Reads the announcement of a put.
    fn announced(&mut self) -> Option<Announced> {
        let (priority, delay_s, ttr_s) = (self.small()?, self.small()?, self.small()?);
        Some(Announced {
            priority,
            due: when(delay_s),
            ttr_ms: u64::from(ttr_s.max(1)) * 1000,
            len: self.small()?,
        })
    }

    fn put(mut self) -> Option<Request<'a>> {
        let announced = self.announced()?;
        self.0.is_empty().then_some(Request::Put(announced, None))
    }

    /// A put, with a word behind it that says what stands beside the job.
    fn put_with(mut self, read: impl Fn(&[u8]) -> Option<Beside>) -> Option<Request<'a>> {
        let announced = self.announced()?;
        let [b' ', word @ ..] = self.0 else {
            return None;
        };
        if word.is_empty() || word.contains(&b' ') {
            return None;
        }
        Some(Request::Put(announced, Some(read(word)?)))
    }

    fn progress(mut self) -> Option<Request<'a>> {
        let id = MessageId(self.number(u64::MAX)?);
        let percent = u8::try_from(self.number(100)?).ok()?;
        let text = match self.0 {
            [] => None,
            [b' ', text @ ..] => Some(text.into()),
            _ => return None,
        };
        let progress = Command::Progress {
            id,
            by: By::Owner,
            percent: Some(percent),
            text,
        };
        Some(engine(progress, BeanstalkReply::Line(b"NOTED\r\n")))
    }

    fn reserve_batch(mut self) -> Option<Request<'a>> {
        let most = self.small().filter(|most| (1..=BATCH_MAX).contains(most))?;
        let wait = match self.0.is_empty() {
            true => Wait::No,
            false => Wait::For(self.last(WAIT_MAX_S)? * 1000),
        };
        Some(Request::ReserveBatch(most, wait))
    }

    fn release(mut self) -> Option<Request<'a>> {
        let id = self.number(u64::MAX)?;
        let how = How::Release {
            priority: Some(self.small()?),
            due: when(self.last_small()?),
            back_to: Some(BackTo::Position),
        };
        Some(settle(id, how, b"RELEASED\r\n"))
    }

    fn bury(mut self) -> Option<Request<'a>> {
        let id = self.number(u64::MAX)?;
        let how = How::Bury {
            priority: Some(self.last_small()?),
            reason: Box::default(),
        };
        Some(settle(id, how, b"BURIED\r\n"))
    }

    fn pause(mut self) -> Option<Request<'a>> {
        self.skip_spaces();
        let name = self.0.split(|byte| !is_name_byte(*byte)).next()?;
        self.0 = &self.0[name.len()..];
        let pause = Command::Pause {
            for_ms: Some(u64::from(self.last_small()?) * 1000),
            queue: Name::new(tube(name)?),
        };
        Some(engine(pause, BeanstalkReply::Line(b"PAUSED\r\n")))
    }
}

fn settle(id: u64, how: How, reply: &'static [u8]) -> Request<'static> {
    let (id, by) = (MessageId(id), By::Owner);
    engine(Command::Settle { id, by, how }, BeanstalkReply::Line(reply))
}

fn when(delay_s: u32) -> When {
    match delay_s {
        0 => When::Now,
        seconds => When::In(u64::from(seconds) * 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a line into a short form; the transcripts show the rest.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others as they are")]
    fn read(line: &str) -> String {
        match parse(line.as_bytes(), &Name::from("used")).1 {
            Request::Fault(reply) => String::from_utf8_lossy(reply).trim_end().to_owned(),
            Request::Engine(command, _) => format!("{command:?}"),
            request => format!("{request:?}"),
        }
    }

    #[test]
    fn numbers_and_what_stands_around_them() {
        for (line, expected) in [
            ("delete 1", "Delete { id: MessageId(1), by: OwnerOrFree }"),
            (
                "touch   18446744073709551615",
                "Touch(MessageId(18446744073709551615))",
            ),
            ("touch 18446744073709551616", "BAD_FORMAT"),
            ("touch 1 ", "BAD_FORMAT"),
            ("touch 1x", "BAD_FORMAT"),
            ("touch x", "BAD_FORMAT"),
            ("touch\t1", "UNKNOWN_COMMAND"),
            ("kick 3", "Kick(3)"),
            (
                "reserve-with-timeout 2147483647",
                "Reserve(For(2147483647000))",
            ),
            ("reserve-with-timeout 2147483648", "BAD_FORMAT"),
            ("reserve-with-timeout -1", "BAD_FORMAT"),
            ("reserve", "Reserve(Forever)"),
            ("reserve ", "BAD_FORMAT"),
            ("reservex", "BAD_FORMAT"),
            (
                "pause-tube  t  5",
                "Pause { queue: \"t\", for_ms: Some(5000) }",
            ),
            ("pause-tube -t 1", "BAD_FORMAT"),
            ("list-tube", "UNKNOWN_COMMAND"),
            ("put-unique 1 0 1 2", "BAD_FORMAT"),
            ("put-unique 1 0 1 2 ", "BAD_FORMAT"),
            ("put-unique 1 0 1 2 a b", "BAD_FORMAT"),
            ("put-unique 1 0 1 2  a", "BAD_FORMAT"),
            ("put-unique 1 0 1 2x a", "BAD_FORMAT"),
            ("put-unique", "UNKNOWN_COMMAND"),
            ("put-member 1 0 1 2", "BAD_FORMAT"),
            ("put-member 1 0 1 2 b-", "BAD_FORMAT"),
            ("put-member 1 0 1 2 b-00800000000000AB", "BAD_FORMAT"),
            ("put-member 1 0 1 2 b-00800000000000ab ", "BAD_FORMAT"),
            ("commit-batch x", "BAD_FORMAT"),
            ("commit-batch b-00800000000000ab ", "BAD_FORMAT"),
            ("commit-batch", "UNKNOWN_COMMAND"),
            ("stats-batch b-7", "BAD_FORMAT"),
            ("open-batch b-00800000000000ab x", "BAD_FORMAT"),
            (
                "open-batch b-00800000000000ab",
                "Batch(Open(BatchId(36028797018964139)))",
            ),
            ("new-batch", "UNKNOWN_COMMAND"),
            ("new-batch ", "BAD_FORMAT"),
            ("new-batch 1", "BAD_FORMAT"),
            ("new-batch done t 1", "BAD_FORMAT"),
            ("new-batch complete t", "BAD_FORMAT"),
            ("new-batch complete t ", "BAD_FORMAT"),
            ("new-batch complete -t 1", "BAD_FORMAT"),
            ("new-batch complete t 1x", "BAD_FORMAT"),
            ("new-batch complete t 1 ", "BAD_FORMAT"),
            ("new-batch complete t 4294967296", "BAD_FORMAT"),
            ("new-batch complete t 1 complete u 2", "BAD_FORMAT"),
            ("new-batch complete t 1 success u", "BAD_FORMAT"),
            ("new-batch complete t 1 success u 2 x", "BAD_FORMAT"),
            ("new-batch complete t 1 parent=", "BAD_FORMAT"),
            ("new-batch complete t 1 parent=b-7", "BAD_FORMAT"),
            ("new-batch complete t 1 x description=y", "BAD_FORMAT"),
            ("new-batch complete t 1  description=y", "BAD_FORMAT"),
            ("new-batch parent=b-00800000000000ab", "BAD_FORMAT"),
            ("new-batch description=", "BAD_FORMAT"),
            (
                "new-batch complete t 1 parent=b-00800000000000ab parent=b-00800000000000ab",
                "BAD_FORMAT",
            ),
            ("forget-batch b-7", "BAD_FORMAT"),
            ("forget-batch", "UNKNOWN_COMMAND"),
            (
                "forget-batch b-00800000000000ab",
                "Batch(Forget(BatchId(36028797018964139)))",
            ),
            (
                "new-batch success u 2",
                "NewBatch(Callbacks { first: Announcement { event: Success, tube: \"u\", len: 2 }, \
                 second: None, parent: None, description: [] })",
            ),
            (
                "new-batch success u 2 parent=b-00800000000000ab description=a  parent=b",
                "NewBatch(Callbacks { first: Announcement { event: Success, tube: \"u\", len: 2 }, \
                 second: None, parent: Some(BatchId(36028797018964139)), \
                 description: [97, 32, 32, 112, 97, 114, 101, 110, 116, 61, 98] })",
            ),
            (
                "new-batch success u 2 complete t 1",
                "NewBatch(Callbacks { first: Announcement { event: Success, tube: \"u\", len: 2 }, \
                 second: Some(Announcement { event: Complete, tube: \"t\", len: 1 }), \
                 parent: None, description: [] })",
            ),
            ("put-tracked 1 0 1 2", "BAD_FORMAT"),
            ("put-tracked 1 0 1 2 ", "BAD_FORMAT"),
            ("put-tracked 1 0 1 2 a b", "BAD_FORMAT"),
            // As everything that begins so, as beanstalkd reads it.
            ("stats-track", "BAD_FORMAT"),
            ("stats-track ", "BAD_FORMAT"),
            ("stats-track a b", "BAD_FORMAT"),
            ("progress 1", "BAD_FORMAT"),
            ("progress 1 101", "BAD_FORMAT"),
            ("progress 1 5x", "BAD_FORMAT"),
            ("reserve-batch 0", "BAD_FORMAT"),
            ("reserve-batch 1001", "BAD_FORMAT"),
            ("reserve-batch 10 x", "BAD_FORMAT"),
            ("reserve-batch 10 1 2", "BAD_FORMAT"),
            ("reserve-batch 10 ", "BAD_FORMAT"),
            ("clear-tube -a", "BAD_FORMAT"),
            ("clear-tube", "UNKNOWN_COMMAND"),
            ("quit", "Quit"),
            ("quitx", "UNKNOWN_COMMAND"),
            ("quit\0", "BAD_FORMAT"),
        ] {
            assert_eq!(read(line), expected, "{line:?}");
        }
        let put = Announced {
            priority: u32::MAX,
            due: When::In(2000),
            ttr_ms: 1000,
            len: 4,
        };
        let line = b"put  4294967295 2 0 4";
        let (_, request) = parse(line, &Name::default());
        assert_eq!(request, Request::Put(put, None));
    }
}
