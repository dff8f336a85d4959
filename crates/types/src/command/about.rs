//! Verb and subject of a command. Routing to shards, hooks and rights ask this and not the command,
//! so a new command answers for itself in one place.

use super::{BulkAction, BulkOp, Command, Operation, Peek, Put, StatsOf};
use crate::batch::BatchRequest;
use crate::command::TableRequest;
use crate::id::MessageId;
use crate::name::Name;
use crate::tie::BatchId;

/// Verb and subject of a command. With the [`super::Principal`] of its [`super::Caller`] a right
/// depends on nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About<'a> {
    pub verb: Verb,
    pub subject: Subject<'a>,
}

macro_rules! verbs {
    ($($verb:ident = $name:literal, $operation:ident;)*) => {
        /// The verb of a command. Hooks, rights and audit lines use the same names.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Verb {
            $(#[doc = concat!("`", $name, "`.")] $verb,)*
        }

        impl Verb {
            /// Every verb, in the order of the declaration.
            pub const ALL: &'static [Verb] = &[$(Verb::$verb),*];

            /// One word in lower case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Verb::$verb => $name,)*
                }
            }

            /// The operation of an operator that a command with this verb may be.
            pub(super) fn operation(self) -> Operation {
                match self {
                    $(Verb::$verb => Operation::$operation,)*
                }
            }
        }
    };
}

verbs! {
    Put = "put", Work;
    Take = "take", Work;
    Peek = "peek", Work;
    StopWaiting = "stop_waiting", Work;
    Refer = "refer", Work;
    Settle = "settle", Work;
    Touch = "touch", Work;
    Reserve = "reserve", Work;
    Delete = "delete", Work;
    Kick = "kick", Kick;
    Move = "move", Move;
    Commit = "commit", Work;
    Edit = "edit", Edit;
    Pause = "pause", Pause;
    Configure = "configure", Configure;
    Join = "join", Join;
    Flush = "flush", Flush;
    FlushExpired = "flush_expired", FlushExpired;
    Drop = "drop", Drop;
    DropQueues = "drop_queues", DropQueues;
    BurnId = "burn_id", Work;
    Restore = "restore", Work;
    Transaction = "transaction", Work;
    Table = "table", Work;
    Batch = "batch", ForgetBatch;
    Stats = "stats", Work;
}

/// The subject of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// No queue or message.
    Nothing,
    /// Everything the caller has, or all there is, in every shard.
    All,
    /// Queues of this shard, a slice of them.
    Slice(u8),
    Queue(&'a Name),
    /// Queues whose messages the caller waits for or takes.
    Queues(&'a [Name]),
    /// The queues of these puts.
    Puts(&'a [Put]),
    /// From a queue to a queue.
    Between(&'a Name, &'a Name),
    /// A message, whatever its queue.
    Message(MessageId),
    /// A message, by its own name, in whichever queue and shard it is.
    Named,
    /// A message that goes to a queue.
    MessageTo(MessageId, &'a Name),
    Table(&'a Name),
    /// A batch, or a child of it.
    Batch(BatchId),
    /// Several of all these.
    Several,
}

impl<'a> Subject<'a> {
    /// The queues it names, in order.
    pub fn queues(self) -> impl Iterator<Item = &'a Name> {
        let (names, puts): (&[Name], &[Put]) = match self {
            Subject::Queue(name) | Subject::MessageTo(_, name) => (std::slice::from_ref(name), &[]),
            Subject::Queues(names) => (names, &[]),
            Subject::Puts(puts) => (&[], puts),
            Subject::Between(from, _) => (std::slice::from_ref(from), &[]),
            Subject::Nothing
            | Subject::All
            | Subject::Slice(_)
            | Subject::Message(_)
            | Subject::Named
            | Subject::Table(_)
            | Subject::Batch(_)
            | Subject::Several => (&[], &[]),
        };
        let to = if let Subject::Between(_, to) = self {
            Some(to)
        } else {
            None
        };
        names
            .iter()
            .chain(puts.iter().map(|put| &put.queue))
            .chain(to)
    }

    /// The message it names.
    pub fn message(self) -> Option<MessageId> {
        if let Subject::Message(id) | Subject::MessageTo(id, _) = self {
            Some(id)
        } else {
            None
        }
    }
}

impl Command {
    /// Its verb and subject.
    pub fn about(&self) -> About<'_> {
        let (verb, subject) = match self {
            Command::Put(put) => (Verb::Put, Subject::Queue(&put.queue)),
            Command::PutMany(puts) => (Verb::Put, Subject::Puts(puts)),
            Command::Take(take) => {
                let verb = if take.peek { Verb::Peek } else { Verb::Take };
                (verb, Subject::Queues(&take.queues))
            }
            Command::Watch(Some(take)) | Command::Rewatch(take) => {
                (Verb::Take, Subject::Queues(&take.queues))
            }
            Command::WatchQueue { queue, .. } => (Verb::Take, Subject::Queue(queue)),
            Command::Watch(None) => (Verb::Take, Subject::All),
            Command::StopWaiting => (Verb::StopWaiting, Subject::All),
            Command::Refer { queue, .. } => (Verb::Refer, Subject::Queue(queue)),
            Command::Settle { id, .. } => (Verb::Settle, Subject::Message(*id)),
            Command::SettleHolding { id, .. } => (Verb::Settle, Subject::Message(*id)),
            Command::SettleHeld { queue, .. } => (Verb::Settle, queue_or_all(queue)),
            Command::Touch(id) => (Verb::Touch, Subject::Message(*id)),
            Command::Extend { id, .. } => (Verb::Touch, Subject::Message(*id)),
            Command::Progress { id, .. } => (Verb::Touch, Subject::Message(*id)),
            Command::ByName(by_name) => {
                let queue = by_name.queue.as_ref();
                let subject = queue.map_or(Subject::Named, Subject::Queue);
                (by_name.action.verb(), subject)
            }
            Command::ReserveId { id, .. } => (Verb::Reserve, Subject::Message(*id)),
            Command::AwaitResult { id, .. } => (Verb::Peek, Subject::Message(*id)),
            // As those who may extend it.
            Command::AwaitLease(ask) => (Verb::Touch, Subject::Message(ask.id)),
            Command::Peek(Peek::Id(id)) => (Verb::Peek, Subject::Message(*id)),
            Command::Peek(Peek::Ready(queue) | Peek::Delayed(queue) | Peek::Buried(queue)) => {
                (Verb::Peek, Subject::Queue(queue))
            }
            Command::Delete { id, .. } => (Verb::Delete, Subject::Message(*id)),
            Command::Cancel(id, _) => (Verb::Delete, Subject::Message(*id)),
            Command::Kick { queue, .. } => (Verb::Kick, Subject::Queue(queue)),
            Command::KickId(id) => (Verb::Kick, Subject::Message(*id)),
            Command::Redrive(id) => (Verb::Move, Subject::Message(*id)),
            Command::Move { id, to } => (Verb::Move, Subject::MessageTo(*id, to)),
            Command::BulkOp(bulk_op) => bulk_op_about(bulk_op),
            Command::Commit(id) => (Verb::Commit, Subject::Message(*id)),
            Command::Edit(id, _) => (Verb::Edit, Subject::Message(*id)),
            Command::Pause { queue, .. } | Command::Hold { queue, .. } => {
                (Verb::Pause, Subject::Queue(queue))
            }
            Command::Create { queue, .. }
            | Command::Configure { queue, .. }
            | Command::Reconfigure { queue, .. } => (Verb::Configure, Subject::Queue(queue)),
            // A child lives in its parent's shard: what is joined is the parent.
            Command::Join { parent, child } => (Verb::Join, Subject::Between(parent, child)),
            Command::Flush { queue, .. } => (Verb::Flush, Subject::Queue(queue)),
            Command::FlushAll => (Verb::Flush, Subject::All),
            Command::Drop(queue) => (Verb::Drop, Subject::Queue(queue)),
            Command::DropQueues { from, .. } => (Verb::DropQueues, Subject::Slice(from.0)),
            Command::FlushExpired(queue) => (Verb::FlushExpired, queue_or_all(queue)),
            // An import asks this before it puts.
            Command::Remembered { queue, .. } => (Verb::Put, Subject::Queue(queue)),
            Command::BurnId => (Verb::BurnId, Subject::Nothing),
            Command::Restore(messages) => {
                let first = messages.first();
                let subject = first.map_or(Subject::Nothing, |first| Subject::Message(first.id));
                (Verb::Restore, subject)
            }
            Command::Transaction(_) => (Verb::Transaction, Subject::Several),
            Command::Table(
                TableRequest::Get { table, .. }
                | TableRequest::List { table, .. }
                | TableRequest::Drop(table),
            ) => (Verb::Table, Subject::Table(table)),
            Command::Batch(ask) => (Verb::Batch, batch_subject(ask)),
            Command::Stats(of) => {
                let subject = match of {
                    StatsOf::Shard => Subject::All,
                    StatsOf::Queue(queue) | StatsOf::Setup(queue) | StatsOf::HeldKeys(queue) => {
                        Subject::Queue(queue)
                    }
                    StatsOf::Queues { from } => Subject::Slice(from.0),
                    StatsOf::Names { shard, .. } => Subject::Slice(*shard),
                    StatsOf::Dependants { from, .. } => Subject::Slice(from.0),
                    StatsOf::Message(id) => Subject::Message(*id),
                };
                (Verb::Stats, subject)
            }
        };
        About { verb, subject }
    }
}

fn batch_subject(ask: &BatchRequest) -> Subject<'_> {
    if let Some(batch) = ask.batch() {
        return Subject::Batch(batch);
    }
    match ask {
        // It lives where its first callback goes.
        BatchRequest::New(new) => {
            let first = new.callbacks().next();
            first.map_or(Subject::Nothing, |callback| Subject::Queue(&callback.queue))
        }
        BatchRequest::Number { queue, .. } => Subject::Queue(queue),
        BatchRequest::List { shard, .. } => Subject::Slice(*shard),
        BatchRequest::Open(_)
        | BatchRequest::Commit(_)
        | BatchRequest::Show(_)
        | BatchRequest::Forget(_) => Subject::Nothing,
    }
}

/// The effect on each message counts as done to its queue.
fn bulk_op_about(bulk_op: &BulkOp) -> (Verb, Subject<'_>) {
    let queue = Subject::Queue(&bulk_op.queue);
    match &bulk_op.action {
        // A count by the content of bodies reads them.
        BulkAction::Show | BulkAction::ShowBack | BulkAction::Count | BulkAction::CountToCancel => {
            (Verb::Peek, queue)
        }
        BulkAction::Delete | BulkAction::Purge | BulkAction::Cancel(_) => (Verb::Flush, queue),
        BulkAction::Kick => (Verb::Kick, queue),
        BulkAction::Move(to) => (Verb::Move, Subject::Between(&bulk_op.queue, to)),
        // Where each message goes is looked at with the message.
        BulkAction::Redrive { to: Some(to) } | BulkAction::RedriveInto(to) => {
            (Verb::Move, Subject::Between(&bulk_op.queue, to))
        }
        BulkAction::Redrive { to: None } => (Verb::Move, queue),
    }
}

fn queue_or_all(queue: &Option<Name>) -> Subject<'_> {
    queue.as_ref().map_or(Subject::All, Subject::Queue)
}
