//! Numbers, for every protocol's statistics and for operators.

use crate::command::ListState;
use crate::id::{MessageId, QueueId};
use crate::message::{Message, State};
use crate::name::Name;
use crate::settings::{Overrides, QueueSettings};
use crate::time::Ms;

macro_rules! counters {
    (@name $field:ident) => {
        stringify!($field)
    };
    (@name $field:ident $outside:literal) => {
        $outside
    };
    ($(#[$outer:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident $(= $outside:literal)?),* $(,)?
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$doc])* pub $field: u64),* }

        impl $name {
            /// The names of the counters, in the order of [`Self::values`].
            pub const NAMES: &'static [&'static str] = &[$(counters!(@name $field $($outside)?)),*];

            /// The values, in the order of [`Self::NAMES`].
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$field),*]
            }

            /// The counters from their values; missing ones are 0.
            pub fn from_values(values: &[u64]) -> Self {
                let mut all = values.iter().copied();
                Self { $($field: all.next().unwrap_or(0)),* }
            }

            /// Adds `other` to each counter.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Takes `other`, which was added, off each counter.
            pub fn subtract(&mut self, other: &Self) {
                $(self.$field -= other.$field;)*
            }
        }
    };
}

counters! {
    /// Totals of one queue since it was made. Durable.
    ///
    /// Written to the log in this order: add new ones at the end only.
    QueueTotals {
        puts,
        /// Bytes of bodies put.
        put_bytes,
        /// Messages removed by takes.
        taken,
        /// Leases given.
        leases,
        finished,
        /// Messages deleted by id.
        deleted,
        /// Messages given back by their holder.
        releases,
        /// Leases ended by a disconnect or a restart.
        cancels,
        /// Leases that ran out.
        timeouts,
        buries,
        kicks,
        /// Messages whose ttl ran out.
        expired,
        /// Messages dropped because the queue was full.
        discarded,
        /// Messages discarded by flush; those that go with their queue are in
        /// no total.
        flushed,
        /// Flush commands, whatever they found.
        flushes,
        /// Messages moved away.
        moved_out,
        moved_in,
        /// Messages that went by the dead-letter rule.
        dead_letters,
        /// Peeks that found a message. Not durable.
        peeks,
        /// Takes that found nothing. Not durable.
        misses,
        /// Bodies skipped because the consumer's protocol cannot frame them. Not durable.
        skipped,
        /// Puts refused because the queue was full. Not durable.
        refused_full,
        /// Puts answered as repeats. Not durable.
        repeats,
        /// Times the queue was paused (beanstalkd cmd-pause-tube). Not durable.
        pauses,
        /// Deletes by id (beanstalkd cmd-delete), leases finished included. Not durable.
        delete_commands,
        /// Tries that failed.
        failures,
        /// Of the discarded: a put with their dedupe id took their place.
        replaced,
        /// Of the discarded: they failed, and are not tried again.
        failed,
        /// Of those that were moved away: by the dead-letter rule.
        dead_moved,
        /// Of those that were moved away: their ttl ran out.
        expired_moved,
        /// Messages that were cancelled.
        cancelled,
        /// Of the taken: their reply could not be sent, so they came back.
        restored,
    }
}

counters! {
    /// The present content of a queue.
    QueueGauges {
        /// Ready now and selectable.
        ready,
        /// Ready with priority below 1024 (beanstalkd *urgent*).
        urgent,
        /// They leave only with a companion message, by id, by ttl or by flush.
        not_selectable,
        /// Waiting for their due time.
        delayed,
        /// Of those that are delayed, such as have failed.
        retrying,
        /// Under a lease.
        reserved,
        /// Set aside.
        buried,
        /// Not yet committed.
        prepared,
        /// Done and kept.
        done,
        /// Relayed and kept.
        relayed,
        /// Bytes of messages that are ready, not selectable or delayed ([`crate::Message::size`]).
        waiting_bytes,
        /// Bytes of all bodies.
        bytes,
        /// Of all its messages, those that are in runs and not in memory.
        cold,
        /// Takes waiting in line, peeking subscriptions not counted.
        waiters,
        /// Peeking subscriptions: parts of the server that wait for the news that
        /// something is there, and take nothing.
        waiting_peeks,
        /// Clients that refer to it as one they put into (beanstalkd *using*).
        users,
        /// Clients that refer to it as one they take from (beanstalkd
        /// *watching*).
        watchers,
    }
}

counters! {
    /// How cold messages stand, for statistics.
    ColdStats {
        /// Runs in force.
        runs,
        /// Blocks in force.
        blocks,
        /// Blocks whose messages are in memory as well.
        loaded,
        /// Messages in runs, those in memory as well included.
        messages,
        /// Messages in blocks that could not be read.
        damaged,
    }
}

impl QueueTotals {
    /// Messages that came, such as were taken and came back included.
    pub fn came(&self) -> u64 {
        self.puts + self.moved_in + self.restored
    }

    /// Messages that left, by why: each in one of them.
    pub fn left(&self) -> Left<u64> {
        let discarded = self.discarded.saturating_sub(self.replaced + self.failed);
        Left {
            finished: self.taken + self.finished,
            removed: self.deleted + self.flushed + self.replaced + self.cancelled,
            failed: self.failed + self.dead_moved,
            dropped: discarded,
            expired: self.expired.saturating_sub(self.expired_moved),
            moved: self.moved_out.saturating_sub(self.dead_moved),
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// A value for each reason for which messages leave a queue.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Left<T> {
            $($(#[$doc])* pub $field: T,)*
        }

        impl<T: Copy> Left<T> {
            /// The names, in the order of [`Self::values`].
            pub const NAMES: [&'static str; 6] = [$(stringify!($field)),*];

            /// In the order of [`Self::NAMES`].
            pub fn values(&self) -> [T; 6] {
                [$(self.$field),*]
            }

            /// Takes them in the order of [`Self::NAMES`].
            pub fn from_values([$($field),*]: [T; 6]) -> Self {
                Self { $($field),* }
            }
        }
    };
}

reasons! {
    /// Done: finished by the holder of their lease, or removed by a take.
    finished,
    /// By command: deleted, purged, cancelled, replaced by another put.
    removed,
    /// Failed for good: given up, or moved away as dead letters.
    failed,
    /// Dropped, as the queue was full.
    dropped,
    /// Gone, as their time to live ran out.
    expired,
    /// Moved away by command, or as their time to live ran out.
    moved,
}

impl<T: Copy + std::ops::Add<Output = T>> Left<T> {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (all, more) = (self.values(), other.values());
        Self::from_values(std::array::from_fn(|at| all[at] + more[at]))
    }
}

/// A limit that keeps messages from takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeLimit {
    /// Messages under leases: of the queue, or of a key.
    InFlight,
    /// Messages handed out within a time.
    Rate,
    Hold,
}

/// Totals, gauges and settings of one queue at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueueStats {
    pub name: Name,
    /// Its number in its shard: those of queues that are made later are higher.
    pub id: QueueId,
    /// When it was made.
    pub created: Ms,
    /// Present content.
    pub gauges: QueueGauges,
    /// Counters since the queue was made.
    pub totals: QueueTotals,
    /// How long the message taken last had waited, ms (Kestrel *age*).
    pub age_ms: u64,
    /// How long the oldest waiting message has waited, ms.
    pub oldest_ms: u64,
    /// Takes are not served.
    pub paused: bool,
    /// Rest of the pause, ms; 0 if it has no end.
    pub paused_left_ms: u64,
    /// Length of the pause as asked, ms; 0 if it is none or has no end.
    pub paused_for_ms: u64,
    /// The limit of the queue that makes takes wait, if one does.
    pub limited: Option<TakeLimit>,
    /// Takes that found nothing while a limit of the queue, or of a key, held something back;
    /// since the start.
    pub limited_takes: u64,
    /// Delayed messages that became due; since the start.
    pub came_due: u64,
    /// Keys that an index is kept of, as they mean something to takes.
    pub keys: u64,
    /// Those of which a limit holds something back.
    pub keys_limited: u64,
    /// That limit, of the key whose messages would be the next.
    pub key_limit: Option<TakeLimit>,
    pub down: bool,
    /// Not logged.
    pub memory: bool,
    /// Its leases end in the step that gives them ([`crate::AT_ONCE_MS`]), unless a message or a
    /// consumer gives another time.
    pub at_once: bool,
    /// The queue whose puts it gets copies of.
    pub parent: Option<Name>,
    /// It has settings of its own ([`QueueSetup::own`]).
    pub own: bool,
}

/// Totals of one shard at one moment; queues that were dropped stay counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardStats {
    pub queues: u64,
    /// Queues made since the data directory was.
    pub queues_made: u64,
    /// Queues dropped by command.
    pub queues_dropped: u64,
    /// Queues dropped because idle.
    pub queues_expired: u64,
    /// The id of the newest message (0: none yet).
    pub last_id: u64,
    /// Sum over the queues.
    pub gauges: QueueGauges,
    /// Sum over the queues, dropped ones included.
    pub totals: QueueTotals,
    /// Takes waiting in line, peeking subscriptions not counted.
    pub waiters: u64,
    /// Messages on their way to a queue of another shard.
    pub sent: u64,
    /// Estimate of the bytes of memory that messages, queues and their indexes
    /// use.
    pub memory_bytes: u64,
    /// Bytes the beginning of a segment of the log takes at most: names and
    /// settings of queues, tables, blocks of runs.
    pub snapshot_bytes: u64,
    /// Messages in runs, those in memory as well included.
    pub cold: ColdStats,
    pub batches: u64,
    /// Tracked messages of which something is known.
    pub tracked: u64,
    /// Clients that wait for the result of a message.
    pub result_waiters: u64,
    /// Replies of messages that have ended, since the start.
    pub replies: u64,
    /// Messages that are held until others have ended.
    pub held: u64,
    /// Deduplication records.
    pub dedupe_ids: u64,
    /// Of these, those whose callback found no room yet.
    pub batches_waiting: u64,
}

/// Numbers of one message.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageStats {
    pub message: Message,
    pub queue: Name,
    /// Waiting for its due time.
    pub delayed: bool,
    /// Time left until it is due or its lease ends, ms: at first as much as was
    /// asked for, then never more than there is.
    pub left_ms: u64,
    /// Age since it was put, ms.
    pub age_ms: u64,
    /// The log knows it: its queue is not in memory only.
    pub logged: bool,
    /// Time to run: its own or its queue's default, ms; 0: no deadline.
    pub ttr_ms: u64,
}

/// Some of the messages that wait for another one
/// ([`StatsOf::Dependants`](crate::StatsOf::Dependants)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DependantPage {
    /// In the order of their ids.
    pub dependants: Vec<Dependant>,
    /// Start of the next page; `None`: that was all.
    pub next: Option<(u8, MessageId)>,
}

/// A message that waits for another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependant {
    pub id: MessageId,
    pub queue: Name,
    pub state: ListState,
}

impl MessageStats {
    /// The state's name as beanstalkd gives it.
    pub fn state_word(&self) -> &'static str {
        match self.message.state {
            State::Ready if self.delayed => "delayed",
            State::Ready => "ready",
            State::Reserved => "reserved",
            State::Buried => "buried",
            State::Prepared => "prepared",
            State::Done => "done",
            State::Relayed => "relayed",
        }
    }
}

/// Leases and waiting requests of one client, in one shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientStats {
    pub leases: u64,
    /// Queues its takes wait for, 16 of them at most.
    pub waits_on: Vec<Name>,
}

/// How a queue is set up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueueSetup {
    pub name: Name,
    /// In force: what the configuration says, with `own` over it.
    pub settings: QueueSettings,
    /// The settings of this queue from a running server ([`crate::Command::Configure`]).
    pub own: Overrides,
    /// The queue whose puts it gets copies of.
    pub parent: Option<Name>,
    /// Queues that get copies of its puts, in the order they were joined.
    pub children: Vec<Name>,
}

/// Some of the queues. One that is there from the first page to the last is in
/// exactly one of them; one that is made or dropped meanwhile may be in none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueuePage {
    /// In the order they were made.
    pub queues: Vec<QueueStats>,
    /// Start of the next page ([`StatsOf::Queues`](crate::StatsOf::Queues)); `None`: that was all.
    pub next: Option<(u8, u32)>,
}

/// Some of the names of queues ([`StatsOf::Names`](crate::StatsOf::Names)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamePage {
    /// In order.
    pub names: Vec<Name>,
    /// Behind which name to go on in this shard; `None`: that was all.
    pub next: Option<Name>,
    /// The next shard, if there is one.
    pub next_shard: Option<u8>,
}

/// An answer to a stats command.
#[derive(Clone, PartialEq, Debug)]
pub enum StatsReply {
    /// The shard, or all shards summed.
    Shard(ShardStats),
    Queue(QueueStats),
    Queues(QueuePage),
    /// Some of their names.
    Names(NamePage),
    Message(MessageStats),
    /// Messages that wait for another one.
    Dependants(DependantPage),
    Setup(Box<QueueSetup>),
    /// Keys that are held, in their order.
    HeldKeys(Vec<HeldKey>),
}

/// A key of which nothing is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKey {
    pub key: std::sync::Arc<[u8]>,
    /// Begin of the hold.
    pub since: Ms,
    /// Its end.
    pub until: Ms,
}
