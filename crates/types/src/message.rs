//! A message as the engine keeps it and as a protocol is shown it.

use crate::after::After;
use crate::body::Body;
use crate::id::{MessageId, QueueId, RunId};
use crate::lease::Cancelled;
use crate::result::ReplyTo;
use crate::retry::Retry;
use crate::tie::Tie;
use crate::time::Ms;

use std::sync::Arc;

/// Which part of the log holds a message's image: the number of the segment.
/// The engine only counts messages by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentRef(pub u32);

impl SegmentRef {
    /// Set in references to runs, which are not segments of the log.
    const RUN: u32 = 1 << 31;

    /// The reference of messages that are in a run.
    pub fn of_run(run: RunId) -> Self {
        SegmentRef(Self::RUN | run.0)
    }

    /// The run that it refers to; `None`: it refers to a segment.
    pub fn run(self) -> Option<RunId> {
        // The reference of a body that has no chunk yet is no run.
        (self.0 & Self::RUN != 0 && self.0 != u32::MAX).then_some(RunId(self.0 & !Self::RUN))
    }

    /// True if it refers to a run, not to a segment.
    pub fn is_run(self) -> bool {
        self.run().is_some()
    }
}

/// The attribute that names a message's folder. Only queue scripts set it: any other client that
/// could would read, and remove, files of another message.
pub const FOLDER: &str = "dir";

/// Priority of messages put without one, unless the listener or queue says else.
pub const PRIORITY_DEFAULT: u32 = 1024;

coded! {
    /// Where a message is in its life. *Delayed* is not here: it is *ready* with a
    /// due time still to come, a predicate on engine time that needs no fact.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum State, "state" {
        /// Created, not yet committed; attributes and attachments may change.
        Prepared = 0,
        /// Waiting to be taken, from its due time on.
        #[default]
        Ready = 1,
        /// Held by a consumer under a lease.
        Reserved = 2,
        /// Set aside until somebody acts (RQ `err`, beanstalkd *buried*).
        Buried = 3,
        /// Finished and kept for a while (RQ `done`).
        Done = 4,
        /// Finished by passing it on, and kept for a while (RQ `relayed`).
        Relayed = 5,
    }
}

/// A message. Owned by the engine while stored; handed out by value when a
/// take removes it and as a copy (sharing the body) when it is leased or
/// looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    /// Order inside a priority; the id at birth unless something moved it.
    pub position: i64,
    /// When it was put.
    pub created: Ms,
    pub body: Body,
    /// Everything a plain message does not have.
    pub extra: Option<Box<Extra>>,
    /// Time to run in ms, given by the putter; `None`: not given;
    /// `Some(0)`: given as "no deadline" (Go Job Queue).
    pub ttr_ms: Option<u64>,
    /// 0 is the most urgent.
    pub priority: u32,
    /// Number of the queue in its shard.
    pub queue: QueueId,
    /// Client's flags (memcache); opaque, 0 from other protocols.
    pub flags: u32,
    /// Leases so far.
    pub reserves: u32,
    /// The segment of the log that holds its newest image, or the run it is in.
    pub segment_ref: SegmentRef,
    /// Its queue's generation when it last began to wait; engine's own (a flush
    /// starts a new generation and so forgets all that waits at once).
    pub generation: u32,
    /// Its entry in its run, if it is in one. Else the number under which
    /// it was chosen to leave memory, if nothing happened to it since, or 0.
    pub ordinal: u32,
    /// Where it is in its life.
    pub state: State,
    /// False: not selectable (pinpriq priority 0), leaves only as a companion, by
    /// id, by ttl or by flush.
    pub selectable: bool,
    /// True: its queue was dropped while it was reserved, so it vanishes when
    /// it is released.
    pub doomed: bool,
}

/// A named value: name, value.
pub type Attr = (Box<[u8]>, Box<[u8]>);

/// An attribute to set (`Some`) or remove (`None`).
pub type AttrChange = (Box<[u8]>, Option<Box<[u8]>>);

/// The rarer parts of a message.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Extra {
    /// Groups messages for pinpriq; `None` is not the empty key.
    pub key: Option<Arc<[u8]>>,
    /// Not taken before this time.
    pub due: Option<Ms>,
    /// The delay it was last put or released with, ms; also when it is over.
    pub delay_ms: u64,
    /// Gone from this time on, unless reserved.
    pub expires: Option<Ms>,
    /// Named values, sorted by name (RQ src, dest, params, ...).
    pub attrs: Vec<Attr>,
    /// Files that belong to the message, beside the log.
    pub attachments: Vec<Attachment>,
    /// The last report about it: status text, reason of the last failure.
    pub status: Box<[u8]>,
    /// When its state last changed, as far as that is recorded.
    pub changed: Ms,
    /// Its turn among the buried messages of its queue.
    pub bury_order: u64,
    /// Leases that ran out.
    pub timeouts: u32,
    /// Times it was given back.
    pub releases: u32,
    /// Times it was buried.
    pub buries: u32,
    /// Times it was kicked.
    pub kicks: u32,
    /// Tries that failed, as its queue counts them, since it came there or was put.
    pub failures: u32,
    /// Its own name, by which its sender knows it.
    pub name: Option<Arc<[u8]>>,
    /// How it is tried again, if it says so itself.
    pub retry: Option<Box<Retry>>,
    /// The id it was first put under, if a move to a queue of another shard gave it another; else
    /// 0.
    pub born: MessageId,
    /// When its first lease began, if that is over and had a deadline; else 0.
    pub first_leased: Ms,
    /// The batch it belongs to, and as what.
    pub batch: Option<Tie>,
    /// Gone from this time on, while it is buried; as was said when it was last buried.
    pub buried_until: Option<Ms>,
    /// The outcome can be asked for by its name ([`crate::PutMore::tracked`]).
    pub tracked: bool,
    /// Where its result goes; `None` once it has ended.
    pub reply: Option<Box<ReplyTo>>,
    /// It is cancelled, and its holder has yet to end its work.
    pub cancelled: Option<Box<Cancelled>>,
    /// The messages for which it was held. Of one that is held now the shard knows them.
    pub after: Option<Box<After>>,
    /// Where its queue's clock of aging stood when it began to wait: it stands so much behind
    /// earlier messages of its priority.
    pub aged_from: u32,
}

/// Overhead of an allocation beside its bytes: its head, and the rounding.
const ALLOCATED: usize = 16;

impl Extra {
    /// Bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        let of = |bytes: &[u8]| match bytes.len() {
            0 => 0,
            len => len + ALLOCATED,
        };
        let shared = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().map_or(0, |bytes| of(bytes) + 16);
        let attrs = self.attrs.iter();
        let attrs: usize = attrs
            .map(|(name, value)| size_of::<Attr>() + of(name) + of(value))
            .sum();
        let files = self.attachments.iter();
        let files: usize = files
            .map(|file| size_of::<Attachment>() + of(&file.name))
            .sum();
        let retry = self.retry.as_ref().map_or(0, |_| size_of::<Retry>());
        let cancelled = self.cancelled.as_ref().map_or(0, |cancelled| {
            size_of::<Cancelled>() + of(&cancelled.reason)
        });
        let reply = self.reply.as_ref().map_or(0, |reply| reply.bytes());
        let reply = usize::try_from(reply).unwrap_or(0);
        let after = self.after.as_ref().map_or(0, |after| after.bytes());
        let own = size_of::<Self>() + ALLOCATED + retry + cancelled + reply + after;
        // That of a tracked message is counted with its track.
        let name = if self.tracked { 0 } else { shared(&self.name) };
        (own + attrs + files + of(&self.status) + shared(&self.key) + name) as u64
    }

    /// Bytes of what clients stored in it.
    #[inline(never)]
    fn content(&self) -> u64 {
        let attrs = self.attrs.iter();
        let attrs: usize = attrs.map(|(name, value)| name.len() + value.len()).sum();
        let files: usize = self.attachments.iter().map(|file| file.name.len()).sum();
        let shared = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        (attrs + files + self.status.len() + shared(&self.key) + shared(&self.name)) as u64
    }

    /// A lease that had a deadline is over; 0: it had none, or there was none.
    pub fn was_leased(&mut self, since: Ms) {
        if self.first_leased == Ms(0) {
            self.first_leased = since;
        }
    }
}

/// A file beside the log, named by a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name shown to users.
    pub name: Box<[u8]>,
    /// Length in bytes.
    pub len: u64,
    /// MD5 of the content, as RQ shows it.
    pub md5: [u8; 16],
}

impl Message {
    /// A message as it is born where `at` says: ready, with nothing that a
    /// plain one does not have.
    pub fn new(at: At, created: Ms, body: Body) -> Self {
        Self {
            id: at.id,
            position: at.position,
            created,
            body,
            extra: None,
            ttr_ms: None,
            priority: at.priority,
            queue: at.queue,
            flags: 0,
            reserves: 0,
            segment_ref: SegmentRef(0),
            generation: 0,
            ordinal: 0,
            state: State::Ready,
            selectable: true,
            doomed: false,
        }
    }

    /// Where it stands among those that are ready.
    #[inline]
    pub fn order(&self) -> crate::Order {
        let aged_from = self.extra.as_ref().map_or(0, |extra| extra.aged_from);
        let priority = self.priority.saturating_add(aged_from);
        (priority, self.position, self.id)
    }

    /// The grouping key, if any.
    pub fn key(&self) -> Option<&Arc<[u8]>> {
        self.extra.as_ref()?.key.as_ref()
    }

    /// How far the work on it has come, in percent, if its holder said so
    /// ([`crate::PROGRESS`]).
    pub fn progress(&self) -> Option<u8> {
        let attrs = &self.extra.as_ref()?.attrs;
        let (_, value) = attrs.iter().find(|(name, _)| **name == *crate::PROGRESS)?;
        let percent = std::str::from_utf8(value).ok()?.parse().ok();
        percent.filter(|percent| *percent <= 100)
    }

    /// How it is tried again, if not as its queue says.
    pub fn retry(&self) -> Option<Retry> {
        self.extra.as_ref()?.retry.as_deref().copied()
    }

    /// The batch it belongs to, and as what.
    pub fn tie(&self) -> Option<Tie> {
        self.extra.as_ref()?.batch
    }

    /// True if what becomes of it can be asked by its name.
    pub fn is_tracked(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.tracked)
    }

    /// Where its result goes, if it has not ended yet.
    pub fn reply_to(&self) -> Option<&ReplyTo> {
        self.extra.as_ref()?.reply.as_deref()
    }

    /// That it is cancelled, if it is.
    pub fn cancelled(&self) -> Option<&Cancelled> {
        self.extra.as_ref()?.cancelled.as_deref()
    }

    /// Its own name, if it was given one.
    pub fn name(&self) -> Option<&Arc<[u8]>> {
        self.extra.as_ref()?.name.as_ref()
    }

    /// The id it was first put under.
    pub fn born(&self) -> MessageId {
        let born = self.extra.as_ref().map(|extra| extra.born);
        born.filter(|born| born.0 != 0).unwrap_or(self.id)
    }

    /// Due time, if it was put or released with a delay.
    pub fn due(&self) -> Option<Ms> {
        self.extra.as_ref()?.due
    }

    /// Tries that failed.
    pub fn failures(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.failures)
    }

    /// Expiry time, if any.
    pub fn expires(&self) -> Option<Ms> {
        self.extra.as_ref()?.expires
    }

    /// When its time runs out in the state it is in, if it does.
    pub fn ends(&self) -> Option<Ms> {
        match self.state {
            State::Ready | State::Prepared => self.expires(),
            State::Buried => self.extra.as_ref()?.buried_until,
            State::Reserved | State::Done | State::Relayed => None,
        }
    }

    /// True if it is waiting for its due time at `now`.
    pub fn is_delayed(&self, now: Ms) -> bool {
        self.state == State::Ready && self.due().is_some_and(|due| due > now)
    }

    /// True if its time ran out at `now` while it waited. Expiry does not touch reserved,
    /// buried and archived messages; buried ones have a time of their own
    /// ([`Extra::buried_until`]).
    pub fn is_expired(&self, now: Ms) -> bool {
        matches!(self.state, State::Ready | State::Prepared)
            && self.expires().is_some_and(|at| at <= now)
    }

    /// The number under which it was chosen to leave memory; 0: it was not,
    /// or something happened to it since.
    pub fn pick(&self) -> u32 {
        if self.segment_ref.is_run() {
            0
        } else {
            self.ordinal
        }
    }

    /// Something happens to it: it stays in memory.
    pub fn unpick(&mut self) {
        if !self.segment_ref.is_run() {
            self.ordinal = 0;
        }
    }

    /// Bytes of memory that the rarer parts take; 0: it has none.
    #[inline]
    pub fn extra_bytes(&self) -> u64 {
        self.extra.as_deref().map_or(0, Extra::bytes)
    }

    /// Bytes of its content: body, key, name, attributes, names of attachments, status. Limits of
    /// bytes are compared with it.
    #[inline]
    pub fn size(&self) -> u64 {
        self.body.len() + self.extra.as_deref().map_or(0, Extra::content)
    }

    /// The rarer parts, made on first use.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }
}

/// A place in a queue's order, with the identity of what stands there. Facts
/// carry it whole, so that replay never has to look a message up on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    pub queue: QueueId,
    pub priority: u32,
    /// The place in the priority.
    pub position: i64,
    pub id: MessageId,
}

impl Message {
    /// Where it stands.
    pub fn at(&self) -> At {
        At {
            queue: self.queue,
            priority: self.priority,
            position: self.position,
            id: self.id,
        }
    }
}

/// The first `max` bytes of a text, or a few less: a character of UTF-8 is not cut.
pub fn cut(text: &[u8], max: usize) -> &[u8] {
    let Some(start) = text.get(..max).filter(|_| text.len() > max) else {
        return text;
    };
    match std::str::from_utf8(start) {
        // It is text up to a character that is not whole.
        Err(error) if error.error_len().is_none() => &start[..error.valid_up_to()],
        _ => start,
    }
}
