//! Putting.

use hashbrown::{HashMap, HashSet};
use quintet_types::{
    At, BatchId, Caller, CommandError, Delivery, Expiry, Extra, Message, MessageId, Ms, Name,
    OnRepeat, Outcome, Put, PutMore, QueueId, QueueSettings, Removal, Scope, State, Tally, When,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{DedupeKind, Fact, Journal};
use crate::step::{Call, Step};
use crate::store::{DedupeKey, Hash};

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::Stop;
use super::cold::Cold;
use super::named::has_bad_name;

/// For how long an idempotency token is remembered: longer than any client
/// keeps trying, short enough that a busy server holds few.
const TOKEN_WINDOW_MS: u64 = 24 * 3600 * 1000;

/// Deduplication records that one put looks at to find expired ones, where there are too many.
const DEDUPE_AT_ONCE: usize = 256;

/// Result of looking for repeats.
pub(super) enum Repeat {
    No,
    /// No repeat; the put leaves so many deduplication records.
    New(usize),
    Of(MessageId),
    /// It takes the place of this one, which waits, and adds so many deduplication records; if the
    /// message is in no run and not in memory, it is gone.
    Instead(MessageId, usize),
}

impl Repeat {
    /// How many deduplication records the put adds.
    fn dedupe_records(&self) -> usize {
        match *self {
            Self::No | Self::Of(_) => 0,
            Self::New(dedupe_records) | Self::Instead(_, dedupe_records) => dedupe_records,
        }
    }
}

/// A record that a put leaves behind.
struct Left {
    key: DedupeKey,
    sum: u64,
    until: Ms,
    scope: Scope,
    on_repeat: OnRepeat,
}

impl Engine {
    pub(crate) fn put<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        put: &mut Put,
    ) -> Result<Outcome, Stop> {
        if put.more.is_some() {
            self.may_tie(cx.call(), [&*put])?;
            self.may_be_held(cx, [&mut *put])?;
        }
        let queue = self.queue_of(cx.call(), put)?;
        match self.make_room_for(cx, queue, put) {
            Ok(Repeat::Of(id)) => {
                self.count_live(queue, |totals| totals.repeats += 1);
                Ok(Outcome::Put { id, fresh: false })
            }
            Ok(repeat) => {
                if let Repeat::Instead(first, _) = repeat {
                    self.replace_first(cx, first);
                }
                let id = self.store_put(cx, queue, put);
                Ok(Outcome::Put { id, fresh: true })
            }
            Err(stop) => {
                if matches!(stop, Stop::Refused(CommandError::QueueFull)) {
                    self.count_live(queue, |totals| totals.refused_full += 1);
                }
                self.forget_unused(queue);
                Err(stop)
            }
        }
    }

    /// Finds one put good and makes room for it.
    fn make_room_for<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: QueueId,
        put: &Put,
    ) -> Result<Repeat, Stop> {
        let repeat = self.may_put((cx.call(), &[]), queue, put, (0, 0))?;
        if !matches!(repeat, Repeat::Of(_)) {
            let own = match self.is_fanout_only(queue) {
                true => 0,
                false => repeat.dedupe_records(),
            };
            let copies = self.copies_of(queue, put).into_iter();
            let copies = copies.map(|child| self.may_put((cx.call(), &[]), child, put, (0, 0)));
            let dedupe_records = own
                + copies
                    .flatten()
                    .map(|copy| copy.dedupe_records())
                    .sum::<usize>();
            self.may_leave(dedupe_records)?;
        }
        match repeat {
            Repeat::Of(_) => {}
            Repeat::No | Repeat::New(_) => {
                self.room_is_here([put])?;
                if !self.is_fanout_only(queue) {
                    self.make_room(cx, queue, put.size())?;
                }
            }
            // It leaves as much room as one needs, but for the bytes.
            Repeat::Instead(first, _) => {
                let slot = self.look_up(first)?;
                let left = slot.map_or(0, |slot| self.store.messages.at(slot).size());
                self.room_is_here([put])?;
                let bytes = put.size().saturating_sub(left);
                if !self.is_fanout_only(queue) && !self.fits(queue, 0, bytes) {
                    return Err(CommandError::QueueFull.into());
                }
            }
        }
        Ok(repeat)
    }

    /// Whether [`quintet_types::Command::PutMany`] of these would be refused, for a
    /// list that goes on in other shards. Their batches are not looked at: that they take
    /// members was asked where they are ([`Engine::may_join`]).
    ///
    /// # Errors
    /// Why; nothing changed but what time alone changes.
    pub fn may_put_many<J: Journal>(
        &mut self,
        now: Ms,
        caller: Caller,
        puts: &mut [Put],
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Result<(), CommandError> {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.remove_expired(&mut cx);
        self.serve(&mut cx);
        let call = Call {
            vouched: true,
            ..Call::of(caller)
        };
        self.may_wait_for(call, &mut *puts).map_err(Stop::at_once)?;
        let found = self.find_good(call, &[], &*puts);
        let queues = found?;
        let room = self.room_is_here(&*puts);
        for queue in queues {
            self.forget_unused(queue);
        }
        // What has to make way is being read; asked again it is there.
        room.map_err(|_| CommandError::Conflict)
    }

    /// All of them or none: every error is found before the first fact.
    pub(crate) fn put_many<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        puts: &mut Vec<Put>,
    ) -> Result<Outcome, Stop> {
        self.may_tie(cx.call(), &*puts)?;
        self.may_be_held(cx, &mut *puts)?;
        if !self.store.cold.is_empty() {
            // Whether a repeat may take the place of the first is known before what is full.
            self.replaced_are_here(&*puts)?;
        }
        let queues = self.find_good(cx.call(), &[], &*puts)?;
        if let Err(cold) = self.room_is_here(&*puts) {
            for queue in queues {
                self.forget_unused(queue);
            }
            return Err(cold.into());
        }
        assert_eq!(
            puts.len(),
            queues.len(),
            "each put that was found good has its queue"
        );
        let mut ids = Vec::with_capacity(puts.len());
        for (put, queue) in std::mem::take(puts).into_iter().zip(queues) {
            ids.push(self.store_good(cx, queue, put));
        }
        Ok(Outcome::PutMany(ids))
    }

    /// Stores one of several that were found good together.
    pub(crate) fn store_good<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: QueueId,
        mut put: Put,
    ) -> MessageId {
        // It may repeat an earlier one of them.
        match self.repeat_of(queue, &put) {
            Ok(Repeat::Of(id)) | Err(CommandError::Duplicate(id) | CommandError::TokenUsed(id)) => {
                self.count_live(queue, |totals| totals.repeats += 1);
                id
            }
            Ok(Repeat::Instead(first, _)) => {
                self.replace_first(cx, first);
                self.store_put(cx, queue, &mut put)
            }
            Ok(Repeat::No | Repeat::New(_)) | Err(_) => {
                // What refuses now is a copy of an earlier one that filled a
                // child, and all are stored or none.
                if !self.is_fanout_only(queue) && self.make_room(cx, queue, put.size()).is_err() {
                    self.count_live(queue, |totals| totals.refused_full += 1);
                }
                self.store_put(cx, queue, &mut put)
            }
        }
    }

    /// The queues of puts that can all be stored, in their order; makes those
    /// that do not exist.
    pub(crate) fn find_good<'a>(
        &mut self,
        call: Call,
        making: &[BatchId],
        puts: impl IntoIterator<Item = &'a Put>,
    ) -> Result<SmallVec<[QueueId; 8]>, CommandError> {
        let mut queues: SmallVec<[QueueId; 8]> = SmallVec::new();
        let mut requested: HashMap<QueueId, (u64, u64), Hash> = HashMap::default();
        // What tells repeats of earlier puts, and all that the puts and their copies add.
        let mut own: HashSet<DedupeKey, Hash> = HashSet::default();
        let mut added: HashSet<DedupeKey, Hash> = HashSet::default();
        for put in puts {
            let checked = self.queue_of(call, put).and_then(|queue| {
                queues.push(queue);
                let before = requested.get(&queue).copied().unwrap_or_default();
                if let Repeat::Of(_) = self.may_put((call, making), queue, put, before)? {
                    return Ok(());
                }
                let only = self.is_fanout_only(queue);
                let mut replaces = false;
                if !only {
                    let dedupe_records = self.dedupe_records_of(queue, put);
                    if let Some(repeated) =
                        dedupe_records.iter().find(|left| own.contains(&left.key))
                    {
                        if repeated.on_repeat != OnRepeat::Replace {
                            return Ok(());
                        }
                        replaces = true;
                    }
                    own.extend(dedupe_records.into_iter().map(|left| left.key));
                    added.extend(self.added_by(queue, put));
                }
                for child in self.copies_of(queue, put) {
                    let copy = self.may_put((call, making), child, put, (0, 0));
                    if matches!(copy, Ok(Repeat::New(_) | Repeat::Instead(..))) {
                        added.extend(self.added_by(child, put));
                    }
                }
                self.may_leave(added.len())?;
                if replaces {
                    return Ok(());
                }
                let (count, bytes) = (before.0 + 1, before.1 + put.size());
                requested.insert(queue, (count, bytes));
                if only || self.fits(queue, count, bytes) || self.may_drop_for(queue, put.size()) {
                    Ok(())
                } else {
                    Err(CommandError::QueueFull)
                }
            });
            if let Err(command_error) = checked {
                for queue in queues {
                    self.forget_unused(queue);
                }
                return Err(command_error);
            }
        }
        Ok(queues)
    }

    /// The first put with this dedupe id, if it is remembered.
    pub(crate) fn remembered(&self, queue: &Name, id: Box<[u8]>) -> Result<Outcome, CommandError> {
        let queue = self.store.find(queue).ok_or(CommandError::NotFound)?;
        let key = (queue, DedupeKind::Dedupe, self.store.dedupe_id(id));
        let dedupe_record = self.store.known(&key, self.now);
        let id = dedupe_record.ok_or(CommandError::NotFound)?.id;
        Ok(Outcome::Put { id, fresh: false })
    }

    /// The records that a put leaves behind so that a repeat is known, in the order repeats are
    /// looked for.
    fn dedupe_records_of(&self, id: QueueId, put: &Put) -> SmallVec<[Left; 1]> {
        let mut dedupe_records = SmallVec::new();
        let settings = &self.store.expect_queue(id).live.settings;
        let more = put.more.as_deref();
        let mut leave = |kind, dedupe_record: &[u8], window_ms: u64, scope, on_repeat| {
            let until = match (window_ms, scope) {
                (0, Scope::Window) => return,
                (0, Scope::Waiting | Scope::Started | Scope::Done) => Ms::NEVER,
                (window_ms, _) => self.now + window_ms,
            };
            dedupe_records.push(Left {
                key: (id, kind, self.store.dedupe_id(dedupe_record)),
                sum: match kind {
                    DedupeKind::Token => more.map_or(0, |more| more.token_sum),
                    DedupeKind::Dedupe | DedupeKind::Key => 0,
                },
                until,
                scope,
                on_repeat,
            });
        };
        if let Some(token) = more.and_then(|more| more.token.as_deref()) {
            let first = OnRepeat::First;
            leave(
                DedupeKind::Token,
                token,
                TOKEN_WINDOW_MS,
                Scope::Window,
                first,
            );
        }
        let dedupe = more.and_then(|more| more.dedupe.as_ref());
        // What was put elsewhere was unique there, or not.
        let of_body = settings.unique_by_body && more.is_none_or(|more| more.past.is_none());
        let body = put.body.as_small().filter(|_| of_body && dedupe.is_none());
        let body = body.map(Sha256::digest);
        let body = body.as_ref().map(|digest| digest.as_slice());
        if let Some(dedupe_record) = dedupe.map_or(body, |dedupe| Some(&*dedupe.id)) {
            let window_ms = dedupe.and_then(|dedupe| dedupe.window_ms);
            let scope = dedupe.and_then(|dedupe| dedupe.scope);
            let on_repeat = dedupe.and_then(|dedupe| dedupe.on_repeat);
            leave(
                DedupeKind::Dedupe,
                dedupe_record,
                window_ms.unwrap_or(settings.unique_for_ms),
                scope.unwrap_or(settings.unique_until),
                on_repeat.unwrap_or(settings.unique_repeat),
            );
        }
        if let Some(key) = more.and_then(|more| more.key.as_ref())
            && settings.dedupe_by_key_ms > 0
        {
            let (window_ms, refuse) = (settings.dedupe_by_key_ms, OnRepeat::Refuse);
            leave(DedupeKind::Key, key, window_ms, Scope::Window, refuse);
        }
        dedupe_records
    }

    /// The deduplication records that a put to this queue alone adds to the known ones.
    fn added_by(&self, queue: QueueId, put: &Put) -> impl Iterator<Item = DedupeKey> {
        let dedupe_records = self
            .dedupe_records_of(queue, put)
            .into_iter()
            .map(|left| left.key);
        dedupe_records.filter(|key| self.store.known(key, self.now).is_none())
    }

    /// The children that get a copy of a put to this queue.
    pub(super) fn copies_of(&self, queue: QueueId, put: &Put) -> Vec<QueueId> {
        let came = put.more.as_ref().is_some_and(|more| more.past.is_some());
        match self.store.queue(queue) {
            Some(queue) if !came || queue.live.settings.fanout_only => queue.children.clone(),
            _ => Vec::new(),
        }
    }

    /// Checks everything but room in the queue. `count` and `bytes` are those
    /// of puts of the same step that came before.
    fn may_put(
        &self,
        (call, making): (Call, &[BatchId]),
        id: QueueId,
        put: &Put,
        (count, bytes): (u64, u64),
    ) -> Result<Repeat, CommandError> {
        let queue = self.store.expect_queue(id);
        let settings = &queue.live.settings;
        if self.draining {
            return Err(CommandError::Draining);
        }
        if settings.down {
            return Err(CommandError::QueueDown);
        }
        if put.body.len() > settings.message_bytes_max {
            return Err(CommandError::MessageTooLarge);
        }
        if put.more.as_ref().is_some_and(|more| more.has_long_key()) {
            return Err(CommandError::MessageTooLarge);
        }
        if has_bad_name(put) {
            return Err(CommandError::BadMessageName);
        }
        let tie = put.more.as_ref().and_then(|more| more.batch);
        if let Some(tie) = tie.filter(|_| !call.vouched) {
            self.is_open(making, tie)?;
        }
        let repeat = self.repeat_of(id, put)?;
        if let Repeat::Instead(first, _) = repeat
            && put.waits_for(first)
        {
            return Err(CommandError::AfterItself);
        }
        if let Repeat::Of(_) = repeat {
            return Ok(repeat);
        }
        if self.space != Space::Enough && !settings.memory {
            return Err(CommandError::NoSpace);
        }
        if let Some(account) = &queue.live.account
            && !call.found_good
            && !account.has_room(bytes + put.size())
        {
            return Err(CommandError::UserBytes);
        }
        let limit = self.settings.memory_max;
        if limit > 0 {
            let body = put.body.as_small().map_or(0, |body| body.len() as u64);
            let more = bytes + body + put.more.as_ref().map_or(0, |more| more.bytes());
            if self.store.memory_bytes() + more + count * 256 > limit {
                return Err(CommandError::NoMemory);
            }
        }
        Ok(repeat)
    }

    /// Whether so many more deduplication records are allowed.
    #[inline(never)]
    fn may_leave(&mut self, more: usize) -> Result<(), CommandError> {
        let max = self.settings.dedupe_max;
        let fits = |known: usize| more == 0 || max == 0 || (known + more) as u64 <= max;
        if !fits(self.store.dedupe_records.len()) {
            // Those that are over make room.
            self.store.forget_dedupe(self.now, DEDUPE_AT_ONCE);
            self.store.free_dedupe(DEDUPE_AT_ONCE);
        }
        match fits(self.store.dedupe_records.len()) {
            true => Ok(()),
            false => Err(CommandError::DedupeFull),
        }
    }

    /// True if it leaves nothing behind by which a repeat is known.
    #[inline(always)]
    fn is_unmarked(&self, queue: QueueId, put: &Put) -> bool {
        put.more.is_none() && !self.store.expect_queue(queue).live.settings.unique_by_body
    }

    #[inline(always)]
    pub(super) fn repeat_of(&self, queue: QueueId, put: &Put) -> Result<Repeat, CommandError> {
        match self.is_unmarked(queue, put) {
            true => Ok(Repeat::No),
            false => self.repeat_of_marked(queue, put),
        }
    }

    #[inline(never)]
    fn repeat_of_marked(&self, queue: QueueId, put: &Put) -> Result<Repeat, CommandError> {
        let dedupe_records = self.dedupe_records_of(queue, put);
        for left in &dedupe_records {
            let Some(known) = self.store.known(&left.key, self.now) else {
                // No earlier put, or one that is forgotten.
                continue;
            };
            if left.sum > 0 && known.sum > 0 && left.sum != known.sum {
                return Err(CommandError::TokenUsed(known.id));
            }
            return match left.on_repeat {
                OnRepeat::First => Ok(Repeat::Of(known.id)),
                OnRepeat::Replace if self.may_wait(known.id) => {
                    let is_new = |left: &&Left| self.store.known(&left.key, self.now).is_none();
                    let added = dedupe_records.iter().filter(is_new).count();
                    Ok(Repeat::Instead(known.id, added))
                }
                OnRepeat::Replace | OnRepeat::Refuse => Err(CommandError::Duplicate(known.id)),
            };
        }
        Ok(Repeat::New(dedupe_records.len()))
    }

    /// True if the message waits, or may be in a run: a message tied to a deduplication record
    /// waits there.
    fn may_wait(&self, id: MessageId) -> bool {
        let waits = |message: &Message| matches!(message.state, State::Ready | State::Prepared);
        self.store.message(id).map_or_else(
            || self.may_be_in_a_run(id),
            |message| waits(message) && !message.is_expired(self.now),
        )
    }

    /// Checks that messages that puts replace are in memory, or gone.
    pub(super) fn replaced_are_here<'a>(
        &mut self,
        puts: impl IntoIterator<Item = &'a Put>,
    ) -> Result<(), Cold> {
        for put in puts {
            let Some(queue) = self.store.find(&put.queue) else {
                // The put makes it.
                continue;
            };
            let queue = self.store.expect_queue(queue);
            let copies: SmallVec<[QueueId; 4]> = queue.children.iter().copied().collect();
            for id in copies.into_iter().chain([queue.id]) {
                if let Ok(Repeat::Instead(first, _)) = self.repeat_of(id, put) {
                    self.look_up(first)?;
                }
            }
        }
        Ok(())
    }

    /// The first put makes way for the one that takes its place.
    fn replace_first<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if let Some(at) = self.store.message(id).map(Message::at) {
            let why = Removal::Replaced;
            self.fact(cx, Fact::Removed { at, why });
        }
    }

    /// Stores a message that was found good, and its copies in the queue's
    /// children.
    fn store_put<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: QueueId,
        put: &mut Put,
    ) -> MessageId {
        let only = self.is_fanout_only(queue);
        let mut first = MessageId(0);
        for child in self.copies_of(queue, put) {
            let mut copy = Put {
                queue: self.store.name_of(child),
                ..put.clone()
            };
            if let Some(more) = &mut copy.more {
                (more.batch, more.tracked, more.reply) = (None, false, None);
            }
            // A child that is down or full misses this one, as its own limits
            // say; the parent's putter is not told (Kestrel).
            let fits = match self.may_put((cx.call(), &[]), child, &copy, (0, 0)) {
                Ok(Repeat::Of(_)) | Err(_) => false,
                Ok(repeat) => {
                    let fits = self.may_leave(repeat.dedupe_records()).is_ok();
                    if fits && let Repeat::Instead(earlier, _) = repeat {
                        self.replace_first(cx, earlier);
                    }
                    fits
                }
            };
            if fits && self.make_room(cx, child, copy.size()).is_ok() {
                let id = self.store_one(cx, child, &mut copy);
                if first.0 == 0 {
                    first = id;
                }
            } else {
                self.count_live(child, |totals| totals.refused_full += 1);
            }
        }
        if only {
            self.record_queue(cx, queue);
            first
        } else {
            self.store_one(cx, queue, put)
        }
    }

    fn store_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: QueueId,
        put: &mut Put,
    ) -> MessageId {
        self.record_queue(cx, id);
        let after = put.more.as_deref_mut();
        let after = after.and_then(|more| more.after.take().filter(|_| more.past.is_none()));
        let mut after = after.map(|after| self.parents_of(cx, *after));
        let live = self.store.live_mut(id);
        let live = live.expect("a put goes into a queue that was found or made");
        live.used = self.now;
        let memory = live.settings.memory;
        let number = self.next_id(cx, !memory);
        let queue = self.store.expect_queue(id);
        let settings = &queue.live.settings;
        let expires = self.expiry_of(put.expires, settings);
        let mut due = match put.due {
            When::Default => self.due(When::In(settings.default_delay_ms)),
            due @ (When::Now | When::In(_) | When::At(_)) => self.due(due),
        };
        let is_held = after.as_mut().is_some_and(|after| after.hold(&mut due));
        let dedupe_records = match self.is_unmarked(id, put) {
            true => SmallVec::new(),
            false => self.dedupe_records_of(id, put),
        };
        let at = At {
            queue: id,
            priority: put.priority.unwrap_or(settings.default_priority),
            // Ids stay below 2^63.
            position: number.0 as i64,
            id: number,
        };
        let mut message = Message {
            ttr_ms: put.ttr_ms,
            flags: put.flags,
            // The body without a copy; an empty one to leave in its place would cost as much, at a
            // count that all threads share.
            ..Message::new(at, self.now, put.body.clone())
        };
        let ages = queue.ages();
        if due.is_some() || expires.is_some() {
            message.extra = Some(Box::new(Extra {
                due,
                delay_ms: due.filter(|_| !is_held).map_or(0, |due| self.left(due)),
                expires,
                ..Extra::default()
            }));
        }
        if let Some(more) = put.more.take() {
            self.add_more(&mut message, *more);
        }
        if !is_held && after.is_some() {
            message.extra_mut().after = after.take();
        }
        if ages {
            self.begin_aging(cx, &mut message);
        }
        let waits = matches!(message.state, State::Ready | State::Prepared);
        let tie = message.tie().filter(|tie| tie.is_member());
        self.fact(cx, Fact::Put(message));
        if after.is_some() {
            let child = number;
            self.fact(cx, Fact::Awaits { child, after });
        }
        // Where the batch is in another shard it is owed, and the caller that locked both carries
        // that before the batch's shard is let go.
        if let Some(tie) = tie {
            self.count_member(cx, tie.batch, Tally::JOINED);
        }
        // Otherwise it was put as what ends the record.
        let holds = |left: &Left| left.scope == Scope::Window || waits;
        for left in dedupe_records.into_iter().filter(holds) {
            self.remember(cx, number, left);
        }
        cx.wake(id);
        number
    }

    fn remember<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, left: Left) {
        let (queue, kind, dedupe_record) = left.key;
        self.fact(
            cx,
            Fact::Remembered {
                queue,
                kind,
                dedupe_record,
                id,
                until: left.until,
                scope: left.scope,
                sum: left.sum,
            },
        );
    }

    /// When a message expires that is put now into a queue with these settings.
    fn expiry_of(&self, expiry: Expiry, settings: &QueueSettings) -> Option<Ms> {
        let expires = match expiry {
            Expiry::Default => (settings.ttl_ms > 0).then(|| self.after(settings.ttl_ms)),
            Expiry::Never => None,
            Expiry::In(ms) => Some(self.after(ms)),
            Expiry::At(at) => Some(at),
            Expiry::AtWall(at) => Some(self.wall_ahead.engine_at(at)),
        };
        match (expires, settings.ttl_max_ms) {
            (expires, 0) => expires,
            (None, max) => Some(self.after(max)),
            (Some(at), max) => Some(at.min(self.after(max))),
        }
    }

    /// Gives a message the rarer parts of its put.
    fn add_more(&mut self, message: &mut Message, more: PutMore) {
        let PutMore {
            not_selectable,
            prepared,
            key,
            mut attrs,
            attachments,
            name,
            retry,
            batch,
            tracked,
            reply,
            past,
            ..
        } = more;
        if batch.is_some() {
            message.extra_mut().batch = batch;
        }
        if tracked || reply.is_some() {
            self.follow();
            let reply = reply.map(|reply| reply.known_by(name.as_deref(), message.id));
            let extra = message.extra_mut();
            (extra.tracked, extra.reply) = (tracked, reply);
        }
        message.selectable = !not_selectable;
        if prepared {
            message.state = State::Prepared;
        }
        if name.is_some() {
            message.extra_mut().name = name;
        }
        if let Some(retry) = retry {
            let extra = message.extra_mut();
            extra.failures = retry.failures;
            extra.retry = Some(Box::new(retry));
        }
        if key.is_some() || !attrs.is_empty() || !attachments.is_empty() {
            attrs.sort_by(|a, b| a.0.cmp(&b.0));
            attrs.dedup_by(|later, first| later.0 == first.0);
            let extra = message.extra_mut();
            (extra.key, extra.attrs, extra.attachments) = (key, attrs, attachments);
        }
        if let Some(past) = past {
            self.bring(message, *past);
        }
    }

    pub(crate) fn count_live(
        &mut self,
        queue: QueueId,
        add: impl Fn(&mut quintet_types::QueueTotals),
    ) {
        self.store.count_live(queue, add);
    }

    /// Where a message is put to, made if need be.
    #[inline]
    fn queue_of(&mut self, call: Call, put: &Put) -> Result<QueueId, CommandError> {
        self.may_reply(call, put)?;
        match put.must_exist {
            true => self.there(&put.queue),
            false => self.find_or_make(call, &put.queue),
        }
    }
}
