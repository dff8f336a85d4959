//! Between shards: what a shard sends to a queue of another, and how it gets
//! there.
//!
//! A shard decides alone, so a message for another shard's queue is first
//! *sent*: a fact takes it out of its queue and keeps it aside. A thread that can
//! lock both shards then *carries* it over: a fact in each, of one frame group.
//! A crash in between leaves it sent, and carrying it again is safe, as what
//! has arrived is no longer aside.

use std::collections::BTreeSet;

use quintet_types::{
    Answer, BatchId, Caller, Command, CommandError, Delivery, Hold, MessageId, Ms, Name, Outcome,
    Put, State, Tally, Transfer, shard_of_id, shard_of_queue,
};

use crate::decide::{TOLD_PER_TICK, put_of};
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::{Call, Step};
use crate::store::{Maker, Sent};

/// One of the shards of a carry.
#[derive(Debug)]
pub struct Side<'a, J> {
    pub engine: &'a mut Engine,
    /// Where its facts go.
    pub journal: &'a mut J,
}

/// Carries up to `max` messages that `from` sent to queues of `into`. The
/// caller sees to it that the facts of both become durable together.
/// `deliveries` gets the outcomes of takes that waited in `into`.
pub fn carry<J: Journal>(
    now: Ms,
    from: Side<'_, J>,
    into: Side<'_, J>,
    max: usize,
    deliveries: &mut Vec<Delivery>,
) {
    from.engine.advance(now);
    into.engine.advance(now);
    let mut unheard = Vec::new();
    let mut step = Step::default();
    let mut leaving = Cx::new(from.journal, &mut unheard, &mut step);
    let mut step = Step::default();
    let mut arriving = Cx::new(into.journal, deliveries, &mut step);
    for _ in 0..max {
        let engine = &into.engine;
        let mut sent = from.engine.store.outbox.iter();
        let Some(sent) = sent.find(|sent| !engine.belongs_elsewhere(&sent.to)) else {
            break;
        };
        let sent = sent.clone();
        let id = sent.message.id;
        into.engine.arrive(&mut arriving, sent);
        from.engine.fact(&mut leaving, Fact::Carried(id));
    }
    for _ in 0..max {
        let engine = &into.engine;
        let mut owed = from.engine.store.batches.owed().keys();
        let Some(&batch) = owed.find(|batch| engine.is_our_batch(**batch)) else {
            break;
        };
        count_owed(
            batch,
            (from.engine, &mut leaving),
            (into.engine, &mut arriving),
        );
    }
    carry_ends(
        (from.engine, &mut leaving),
        (into.engine, &mut arriving),
        max,
    );
    for _ in 0..max {
        let Some((batch, event, callback)) = from.engine.call_elsewhere() else {
            break;
        };
        if into.engine.belongs_elsewhere(&callback.queue) {
            break;
        }
        let (id, put) = (batch.id, put_of(batch, event));
        match put.map(|put| into.engine.put_callback(&mut arriving, put)) {
            None | Some(Ok(())) => from.engine.has_said(&mut leaving, id, event),
            Some(Err(stop)) => from.engine.put_off(id, &stop),
        }
    }
    into.engine.go_on_after(&mut arriving, TOLD_PER_TICK);
    into.engine.call_back(&mut arriving);
    into.engine.serve(&mut arriving);
    // Its parent may be next.
    from.engine.call_back(&mut leaving);
}

/// Counts in a batch of the shard `counter` what `from` owes it. The caller sees to it that the
/// facts of both become durable together.
pub fn carry_owed<J: Journal>(now: Ms, batch: BatchId, from: Side<'_, J>, counter: Side<'_, J>) {
    from.engine.advance(now);
    counter.engine.advance(now);
    let mut unheard = Vec::new();
    let mut step = Step::default();
    let mut leaving = Cx::new(from.journal, &mut unheard, &mut step);
    let mut unheard = Vec::new();
    let mut step = Step::default();
    let mut counting = Cx::new(counter.journal, &mut unheard, &mut step);
    count_owed(
        batch,
        (from.engine, &mut leaving),
        (counter.engine, &mut counting),
    );
}

fn count_owed<J: Journal>(
    batch: BatchId,
    (from, leaving): (&mut Engine, &mut Cx<'_, J>),
    (counter, counting): (&mut Engine, &mut Cx<'_, J>),
) {
    let Some(&tally) = from.store.batches.owed().get(&batch) else {
        return;
    };
    counter.count_member(counting, batch, tally);
    let owed = Tally::default();
    from.fact(leaving, Fact::BatchOwed { batch, owed });
}

/// Tells `into` of the ends of messages of `from` for which some wait there, and that nobody waits
/// in `from` any more for messages of `into`.
fn carry_ends<J: Journal>(
    (from, leaving): (&mut Engine, &mut Cx<'_, J>),
    (into, arriving): (&mut Engine, &mut Cx<'_, J>),
    max: usize,
) {
    let gone = |parent, shard| Fact::Watched {
        parent,
        shard,
        state: None,
    };
    for _ in 0..max {
        let due = from.store.dependencies.watches.due_for(into.shard);
        let Some((parent, succeeded)) = due else {
            break;
        };
        into.fact_alone(arriving, Fact::ParentEnded { parent, succeeded });
        from.fact_alone(leaving, gone(parent, into.shard));
    }
    for _ in 0..max {
        let unwatched = from.store.dependencies.first_unwatched(into.shard.into());
        let Some(parent) = unwatched else {
            break;
        };
        // Nobody hears of it: it says that the other shard knows.
        let succeeded = false;
        from.fact_alone(leaving, Fact::ParentEnded { parent, succeeded });
        let watches = &into.store.dependencies.watches;
        if watches.get(parent, from.shard).is_some() {
            into.fact_alone(arriving, gone(parent, from.shard));
        }
    }
}

/// From now on `held` hears of the ends of messages of `watched`, if some wait there for them.
/// The caller sees to it that the facts of both become durable together.
pub fn watch_parents<J: Journal>(
    now: Ms,
    parents: &BTreeSet<MessageId>,
    held: &Engine,
    watched: Side<'_, J>,
) {
    watched.engine.advance(now);
    let mut unheard = Vec::new();
    let mut step = Step::default();
    let mut cx = Cx::new(watched.journal, &mut unheard, &mut step);
    for &parent in parents {
        if watched.engine.is_of_our_shard(parent) && held.store.dependencies.is_awaited(parent) {
            watched.engine.watch_for(&mut cx, parent, held.shard);
        }
    }
}

/// Stores a message whose step is about other shards too: as a member of a batch of one, which
/// counts it, or held for messages of theirs ([`Engine::ask_parents`]). The caller sees to it that
/// the facts of all become durable together. `deliveries` gets the outcomes of takes that waited in
/// `into`, the queue's shard.
pub fn put_with_others<J: Journal>(
    now: Ms,
    caller: Caller,
    put: Put,
    into: Side<'_, J>,
    counter: Option<(BatchId, Side<'_, J>)>,
    deliveries: &mut Vec<Delivery>,
) -> Answer {
    into.engine.advance(now);
    let refused = |command_error| Answer::Now(Outcome::Refused(command_error), Hold::Durable);
    let call = Call {
        vouched: counter.is_some(),
        ..Call::of(caller)
    };
    let mut counter = counter;
    if let Some((batch, counter)) = &mut counter {
        counter.engine.advance(now);
        if let Err(command_error) = counter.engine.may_join(caller.principal, *batch) {
            return refused(command_error);
        }
    }
    let mut step = Step::default();
    let mut cx = Cx::new(into.journal, deliveries, &mut step);
    into.engine.remove_expired(&mut cx);
    let decided = into
        .engine
        .decide_or_ask(&mut cx.by(call), &mut Command::Put(put));
    // What has to make way for it is being read; asked again it is there.
    let answer = decided.unwrap_or_else(|_| refused(CommandError::Conflict));
    if let Some((batch, counter)) = counter {
        let mut unheard = Vec::new();
        let mut step = Step::default();
        let mut counting = Cx::new(counter.journal, &mut unheard, &mut step);
        // Its batch is still open, and may be committed as soon as its shard is let go.
        count_owed(
            batch,
            (into.engine, &mut cx),
            (counter.engine, &mut counting),
        );
    }
    into.engine.remove_expired(&mut cx);
    into.engine.call_back(&mut cx);
    into.engine.serve(&mut cx);
    answer
}

impl Engine {
    /// The shard that something waits to be carried to: a message, what is owed to a batch, the end
    /// of a message that others wait for, or a batch's callback.
    pub fn sends_to(&self) -> Option<usize> {
        let shards = self.shards.into();
        if let Some(sent) = self.store.outbox.front() {
            return Some(shard_of_queue(sent.to.as_bytes(), shards));
        }
        if let Some(batch) = self.store.batches.owed().keys().next() {
            return Some(shard_of_id(batch.as_id(), shards));
        }
        if let Some(shard) = self.store.dependencies.first_to_carry() {
            return Some(shard);
        }
        let (_, _, callback) = self.call_elsewhere()?;
        Some(shard_of_queue(callback.queue.as_bytes(), shards))
    }

    /// Whether `command` of another shard could move messages to the queue of this name.
    ///
    /// # Errors
    /// Why the queue, which does not exist, cannot be made; or that it has to be there.
    pub fn may_receive(&mut self, name: &Name, command: &Command) -> Result<(), CommandError> {
        if let Command::BulkOp(bulk_op) = command
            && bulk_op.action.must_exist()
        {
            return self.existing(name).map(drop);
        }
        let queue = self.find_or_make(Call::SERVER, name)?;
        self.forget_unused(queue);
        Ok(())
    }

    /// True if the queue of this name is another shard's. A name that no queue
    /// can have is refused by every shard, so by this one.
    pub(crate) fn belongs_elsewhere(&self, name: &Name) -> bool {
        self.shards > 1
            && name.is_possible()
            && shard_of_queue(name.as_bytes(), self.shards.into()) != usize::from(self.shard)
    }

    /// Sets a message aside for a queue of another shard.
    pub(crate) fn send<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        to: Name,
        why: Transfer,
    ) {
        if let Some(message) = self.store.message(id) {
            let (at, now) = (message.at(), self.now);
            self.fact(cx, Fact::Sent { at, to, why, now });
        }
    }

    /// Stores a message of another shard, under an id of this one. The queue
    /// is made if need be, also beyond the limit: the message has to go
    /// somewhere, and only settings and moves that were found good name queues.
    fn arrive<J: Journal>(&mut self, cx: &mut Cx<'_, J>, sent: Sent) {
        let Sent {
            mut message,
            to,
            why,
        } = sent;
        let to = &to;
        if message.is_tracked() || message.reply_to().is_some() {
            self.follow();
        }
        // A reply was in no queue before.
        let is_new = message.state == State::Prepared;
        let queue = match is_new {
            true => self.find_or_make_ours(to).ok(),
            false => Some(
                self.store
                    .find(to)
                    .unwrap_or_else(|| self.make(to, Maker::default())),
            ),
        };
        let Some(queue) = queue else { return };
        self.record_queue(cx, queue);
        let logged = !self.store.expect_queue(queue).live.settings.memory;
        let from = message.id;
        if !is_new {
            message.extra_mut().born = message.born();
        }
        message.id = self.next_id(cx, logged);
        // Ids stay below 2^63. Behind all that is there, as any newcomer.
        message.position = message.id.0 as i64;
        message.queue = queue;
        message.state = State::Ready;
        message.segment_ref = self.segment_ref;
        if why.lives_anew() || is_new {
            message.extra_mut().expires = self.expiry_in(queue);
        }
        if let Some(extra) = &mut message.extra {
            extra.aged_from = 0;
        }
        if self.store.expect_queue(queue).ages() {
            self.begin_aging(cx, &mut message);
        }
        let fact = match is_new {
            true => Fact::Put(message),
            false => Fact::Arrived { message, from },
        };
        self.fact(cx, fact);
        cx.wake(queue);
    }
}
