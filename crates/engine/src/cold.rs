//! Words for messages that do not die young: they leave memory for *runs*,
//! immutable sorted files that the engine knows of but never reads
//! (`docs/run-format.md`).

use quintet_types::{Message, MessageId, Ms, Order, QueueId, RunId, State, StateIndex};

use std::sync::Arc;

/// A block of a run: by its first entry's ordinal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockAt {
    pub run: RunId,
    /// Ordinal of the block's first entry.
    pub ordinal: u32,
}

impl BlockAt {
    pub(crate) fn of(run: RunId, ordinal: u32) -> Self {
        Self { run, ordinal }
    }
}

/// The engine's knowledge of a block that it has not read. All messages of a block are of one state
/// index of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Its number in the file.
    pub number: u32,
    /// Ordinal of its first entry.
    pub ordinal: u32,
    /// Entries, dead ones included.
    pub count: u32,
    pub queue: QueueId,
    pub state_index: StateIndex,
    /// Nothing in it stands before this.
    pub first: Order,
    /// Nothing in it stands behind this.
    pub last: Order,
    /// Entries that are alive.
    pub live: u32,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// How many of them have a priority below 1024 (ready state index only).
    pub urgent: u32,
    /// How many of them are counted apart: of the archived state index those that are done, not
    /// relayed; of the delayed state index those that have failed.
    pub apart: u32,
    pub keyed: bool,
    /// When the first of their times runs out; from then on the block must be read.
    pub expires: Option<Ms>,
    /// When the first one was put.
    pub created: Ms,
}

impl Block {
    /// An empty block at this place, to which [`Block::count_in`] adds.
    pub fn new(number: u32, ordinal: u32, queue: QueueId, state_index: StateIndex) -> Self {
        Self {
            number,
            ordinal,
            queue,
            state_index,
            ..Self::default()
        }
    }

    /// Counts one more live message, which stands behind the others.
    pub(crate) fn count_in(&mut self, message: &EntryFacts) {
        if self.live == 0 {
            self.first = message.order;
            self.created = message.created;
        }
        self.last = message.order;
        self.live += 1;
        self.bytes += message.bytes;
        self.urgent += u32::from(message.urgent);
        self.apart += u32::from(message.apart);
        self.keyed |= message.keyed;
        self.expires = match (self.expires, message.expires) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A block's knowledge of one of its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryFacts {
    pub id: MessageId,
    /// Where it stands in its state index.
    pub order: Order,
    /// See [`Message::size`].
    pub bytes: u64,
    /// When it was put.
    pub created: Ms,
    /// When its time runs out in this state index.
    pub expires: Option<Ms>,
    /// Its priority is below 1024, and the state index is that of ready messages.
    pub urgent: bool,
    /// See [`Block::apart`].
    pub apart: bool,
    pub keyed: bool,
}

impl EntryFacts {
    /// Reads them from a message that is about to be stored in a run of `state_index`.
    pub fn of(message: &Message, state_index: StateIndex) -> Self {
        Self {
            id: message.id,
            order: state_index.order(message),
            bytes: message.size(),
            created: message.created,
            expires: message.ends(),
            urgent: state_index == StateIndex::Ready && message.priority < URGENT_BELOW,
            apart: match state_index {
                StateIndex::Delayed | StateIndex::Archived => is_apart(message),
                StateIndex::Ready | StateIndex::NotSelectable | StateIndex::Buried => false,
            },
            keyed: message.key().is_some(),
        }
    }
}

/// True if it is counted apart where it stands, if that is a state index where such are.
pub(crate) fn is_apart(message: &Message) -> bool {
    match message.state {
        State::Done => true,
        State::Relayed => false,
        State::Prepared | State::Ready | State::Reserved | State::Buried => message.failures() > 0,
    }
}

/// Priority below which a ready message counts as urgent (beanstalkd).
pub(crate) const URGENT_BELOW: u32 = 1024;

/// A message that was chosen to leave memory.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The state index it stands in.
    pub state_index: StateIndex,
    /// Number of this choice; see [`Written::entries`].
    pub pick: u32,
    /// Itself; shares its body.
    pub message: Message,
}

/// A block that was written and synced, to be put in force.
#[derive(Clone, Debug)]
pub struct Written<E = (MessageId, u32)> {
    /// Its number in the file.
    pub number: u32,
    /// Ordinal of its first entry.
    pub ordinal: u32,
    pub queue: QueueId,
    pub state_index: StateIndex,
    /// Its messages, in order, by default with the number under which each was chosen.
    pub entries: Vec<E>,
}

/// A block of a run that takes the place of others: its messages, in order, and where each comes
/// from.
pub type Rewritten = Written<(EntryFacts, RunId, u32)>;

/// Something the engine needs from a run before it can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// The messages of a block, by its number in the file.
    Block(BlockAt, u32),
    /// Where the message with this id is, if it is in any run.
    Id(MessageId),
    /// Where messages of a queue with this key are.
    Key(QueueId, Arc<[u8]>),
    /// Memory: puts wait until messages have left for a run. Answered by
    /// nothing but [`crate::Engine::supply`].
    Room,
}

/// The block or entry found for a [`Want`].
#[derive(Clone, Debug)]
pub enum LookupResult {
    /// The block's messages with their ordinals; `None`: it cannot be read.
    Block(BlockAt, Option<Vec<(u32, Message)>>),
    /// Where it is: several places if it left some of them.
    Id(MessageId, Vec<(RunId, u32)>),
    /// Where they are.
    Key(QueueId, Arc<[u8]>, Vec<(RunId, u32)>),
}
