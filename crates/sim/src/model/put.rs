//! Putting.

use std::collections::BTreeSet;

use quintet_engine::DedupeKind as Kind;
use quintet_types::{
    At, CommandError, Dedupe, Expiry, Extra, Message, MessageId, Ms, Name, OnRepeat, Outcome, Past,
    Put, QueueId, Scope, State, When, WhenFull,
};
use sha2::{Digest as _, Sha256};

use super::{DedupeKind, Item, Model};

/// How long an idempotency token is remembered, ms.
const TOKEN_WINDOW_MS: u64 = 24 * 3600 * 1000;

/// Kind, id, end, scope, what becomes of a repeat.
type Left = (Kind, Box<[u8]>, Ms, Scope, OnRepeat);

/// Result of looking for repeats.
enum Repeat {
    No,
    Of(MessageId),
    /// It takes the place of this one.
    Instead(MessageId),
}

/// Bytes of content that count for limits.
pub(super) fn size(message: &Message) -> u64 {
    let Some(extra) = &message.extra else {
        return message.body.len();
    };
    let mut parts: Vec<&[u8]> = vec![&extra.status];
    parts.extend(extra.key.as_deref());
    parts.extend(extra.name.as_deref());
    for (name, value) in &extra.attrs {
        parts.extend([&**name, &**value]);
    }
    parts.iter().map(|part| part.len() as u64).sum::<u64>() + message.body.len()
}

/// The same of the message that a put makes.
fn size_of(put: &Put) -> u64 {
    let mut parts: Vec<&[u8]> = Vec::new();
    if let Some(more) = &put.more {
        parts.extend(more.key.as_deref());
        parts.extend(more.name.as_deref());
        parts.extend(more.past.as_ref().map(|past| &*past.status));
        for (name, value) in &more.attrs {
            parts.extend([&**name, &**value]);
        }
    }
    parts.iter().map(|part| part.len() as u64).sum::<u64>() + put.body.len()
}

impl Model {
    pub(super) fn put(&mut self, put: Put) -> Result<Outcome, CommandError> {
        let queue = self.queue_of(&put)?;
        let only = self.settings_of(queue).fanout_only;
        let repeat = self.may_put(queue, &put)?;
        if !matches!(repeat, Repeat::Of(_)) {
            self.may_leave(self.added_by(queue, &put).len())?;
        }
        match repeat {
            Repeat::Of(id) => return Ok(Outcome::Put { id, fresh: false }),
            Repeat::Instead(id) => {
                let left = self.item(id).map_or(0, |item| size(&item.message));
                let bytes = size_of(&put).saturating_sub(left);
                if !only && !self.fits(queue, 0, bytes) {
                    return Err(CommandError::QueueFull);
                }
                self.replace(id);
            }
            Repeat::No => {
                if !only {
                    self.make_room(queue, size_of(&put))?;
                }
            }
        }
        let id = self.store(queue, put);
        Ok(Outcome::Put { id, fresh: true })
    }

    /// All or none. One that repeats an earlier one of the list, whatever its
    /// rule, is answered with that one's id.
    pub(super) fn put_many(&mut self, puts: Vec<Put>) -> Result<Outcome, CommandError> {
        let mut queues = Vec::new();
        let mut fresh: Vec<(QueueId, &Put)> = Vec::new();
        let mut own: Vec<(QueueId, Kind, Box<[u8]>)> = Vec::new();
        let mut added: BTreeSet<(QueueId, Kind, Box<[u8]>)> = BTreeSet::new();
        for put in &puts {
            let queue = self.queue_of(put)?;
            queues.push(queue);
            if matches!(self.may_put(queue, put)?, Repeat::Of(_)) {
                continue;
            }
            let dedupe_records = match self.settings_of(queue).fanout_only {
                true => Vec::new(),
                false => self.dedupe_records_of(queue, put),
            };
            let key = |left: &Left| (queue, left.0, left.1.clone());
            let repeated = dedupe_records.iter().find(|left| own.contains(&key(left)));
            if repeated.is_some_and(|left| left.4 != OnRepeat::Replace) {
                continue;
            }
            own.extend(dedupe_records.iter().map(key));
            added.extend(self.added_by(queue, put));
            self.may_leave(added.len())?;
            if repeated.is_some() {
                continue;
            }
            fresh.push((queue, put));
            let here = fresh.iter().filter(|(other, _)| *other == queue);
            let (count, bytes) = here.fold((0, 0), |(n, b), (_, put)| (n + 1, b + size_of(put)));
            let settings = self.settings_of(queue);
            let alone = settings.bytes_max == 0 || size_of(put) <= settings.bytes_max;
            let drops = settings.when_full == WhenFull::DropOldest && alone && !self.ages(queue);
            if !self.fits(queue, count, bytes) && !drops && !settings.fanout_only {
                return Err(CommandError::QueueFull);
            }
        }
        let mut ids = Vec::new();
        for (put, queue) in puts.into_iter().zip(queues) {
            ids.push(match self.repeat_of(queue, &put) {
                Ok(Repeat::Of(id))
                | Err(CommandError::Duplicate(id) | CommandError::TokenUsed(id)) => id,
                Ok(Repeat::Instead(id)) => {
                    self.replace(id);
                    self.store(queue, put)
                }
                _ => {
                    if !self.settings_of(queue).fanout_only {
                        // A copy of an earlier one may have filled a child.
                        self.make_room(queue, size_of(&put)).ok();
                    }
                    self.store(queue, put)
                }
            });
        }
        Ok(Outcome::PutMany(ids))
    }

    fn queue_of(&mut self, put: &Put) -> Result<QueueId, CommandError> {
        match put.must_exist {
            true => self.there(&put.queue),
            false => self.find_or_make(&put.queue),
        }
    }

    fn may_put(&self, queue: QueueId, put: &Put) -> Result<Repeat, CommandError> {
        let settings = self.settings_of(queue);
        if settings.down {
            return Err(CommandError::QueueDown);
        }
        if put.body.len() > settings.message_bytes_max {
            return Err(CommandError::MessageTooLarge);
        }
        let name = put.more.as_ref().and_then(|more| more.name.as_ref());
        if name.is_some_and(|name| name.is_empty() || name.len() > 255) {
            return Err(CommandError::BadMessageName);
        }
        self.repeat_of(queue, put)
    }

    /// The record of a put by which a repeat is known.
    pub(super) fn remembered(&self, queue: &Name, id: &[u8]) -> Result<Outcome, CommandError> {
        let number = self.find(queue).ok_or(CommandError::NotFound)?;
        let known = self.known(number, Kind::Dedupe, id);
        let id = known.ok_or(CommandError::NotFound)?.id;
        Ok(Outcome::Put { id, fresh: false })
    }

    fn dedupe_records_of(&self, queue: QueueId, put: &Put) -> Vec<Left> {
        let settings = self.settings_of(queue);
        let more = put.more.as_deref().cloned().unwrap_or_default();
        let mut dedupe_records = Vec::new();
        if let Some(token) = more.token {
            let until = self.now + TOKEN_WINDOW_MS;
            dedupe_records.push((Kind::Token, token, until, Scope::Window, OnRepeat::First));
        }
        let of_body = settings.unique_by_body && more.past.is_none();
        let body = put.body.as_small().filter(|_| of_body);
        let by_body = body.map(|body| Dedupe {
            id: Sha256::digest(body).as_slice().into(),
            window_ms: None,
            scope: None,
            on_repeat: None,
        });
        if let Some(dedupe) = more.dedupe.or(by_body) {
            let scope = dedupe.scope.unwrap_or(settings.unique_until);
            let until = match dedupe.window_ms.unwrap_or(settings.unique_for_ms) {
                0 if scope == Scope::Window => self.now,
                0 => Ms::NEVER,
                window => self.now + window,
            };
            let on_repeat = dedupe.on_repeat.unwrap_or(settings.unique_repeat);
            dedupe_records.push((Kind::Dedupe, dedupe.id, until, scope, on_repeat));
        }
        if let Some(key) = more.key.filter(|_| settings.dedupe_by_key_ms > 0) {
            let until = self.now + settings.dedupe_by_key_ms;
            let key = key.as_ref().into();
            dedupe_records.push((Kind::Key, key, until, Scope::Window, OnRepeat::Refuse));
        }
        dedupe_records.retain(|(_, _, until, ..)| *until > self.now);
        dedupe_records
    }

    /// The deduplication records that a put and its copies add to the known ones.
    fn added_by(&self, queue: QueueId, put: &Put) -> Vec<(QueueId, Kind, Box<[u8]>)> {
        let mut queues = self.copies_of(queue, put);
        queues.retain(
            |&child| matches!(self.may_put(child, put), Ok(r) if !matches!(r, Repeat::Of(_))),
        );
        if !self.settings_of(queue).fanout_only {
            queues.push(queue);
        }
        let all = queues.into_iter().flat_map(|queue| {
            let dedupe_records = self.dedupe_records_of(queue, put).into_iter();
            dedupe_records.map(move |(kind, dedupe_record, ..)| (queue, kind, dedupe_record))
        });
        all.filter(|(queue, kind, dedupe_record)| {
            self.known(*queue, *kind, dedupe_record).is_none()
        })
        .collect()
    }

    fn copies_of(&self, queue: QueueId, put: &Put) -> Vec<QueueId> {
        let came = put.more.as_ref().is_some_and(|more| more.past.is_some());
        match came && !self.settings_of(queue).fanout_only {
            true => Vec::new(),
            false => self.queue(queue).children.clone(),
        }
    }

    fn known(&self, queue: QueueId, kind: Kind, dedupe_record: &[u8]) -> Option<&DedupeKind> {
        self.dedupe_records.iter().find(|known| {
            (known.queue, known.kind, &*known.dedupe_record) == (queue, kind, dedupe_record)
                && known.until > self.now
                && self.is_in_scope(known)
        })
    }

    fn is_in_scope(&self, dedupe_record: &DedupeKind) -> bool {
        let message = self.item(dedupe_record.id).map(|item| &item.message);
        // What was put as expired is removed with the next step.
        let here = message.filter(|message| {
            message.queue == dedupe_record.queue && !message.is_expired(self.now)
        });
        let waits = |message: &Message| matches!(message.state, State::Ready | State::Prepared);
        let lives = |m: &Message| waits(m) || m.state == State::Reserved;
        match dedupe_record.scope {
            Scope::Window => true,
            Scope::Waiting => here.is_some_and(waits),
            Scope::Started => {
                here.is_some_and(|m| lives(m) && m.reserves == dedupe_record.reserves)
            }
            Scope::Done => here.is_some_and(lives),
        }
    }

    /// Forgets deduplication records whose messages are gone, or have become what ends them.
    pub(super) fn forget_dedupe(&mut self) {
        let mut dedupe_records = std::mem::take(&mut self.dedupe_records);
        dedupe_records.retain(|dedupe_record| {
            let waiting = dedupe_record.scope == Scope::Waiting;
            let held = self.item(dedupe_record.id).is_some_and(|item| {
                item.message.queue == dedupe_record.queue && item.message.state == State::Reserved
            });
            // It may come back.
            self.is_in_scope(dedupe_record) || waiting && held
        });
        self.dedupe_records = dedupe_records;
    }

    /// Whether so many more puts can be remembered.
    fn may_leave(&mut self, more: usize) -> Result<(), CommandError> {
        self.forget_dedupe();
        let now = self.now;
        self.dedupe_records
            .retain(|dedupe_record| dedupe_record.until > now);
        let (max, all) = (
            self.settings.dedupe_max,
            (self.dedupe_records.len() + more) as u64,
        );
        match more == 0 || max == 0 || all <= max {
            true => Ok(()),
            false => Err(CommandError::DedupeFull),
        }
    }

    /// Tokens are looked at first, then dedupe ids, then keys.
    fn repeat_of(&self, queue: QueueId, put: &Put) -> Result<Repeat, CommandError> {
        for (kind, dedupe_record, _, _, on_repeat) in self.dedupe_records_of(queue, put) {
            let Some(known) = self.known(queue, kind, &dedupe_record) else {
                continue;
            };
            let sum = put.more.as_ref().map_or(0, |more| more.token_sum);
            if kind == Kind::Token && sum > 0 && known.sum > 0 && sum != known.sum {
                return Err(CommandError::TokenUsed(known.id));
            }
            let waits = self
                .item(known.id)
                .is_some_and(|item| matches!(item.message.state, State::Ready | State::Prepared));
            return match on_repeat {
                OnRepeat::First => Ok(Repeat::Of(known.id)),
                OnRepeat::Replace if waits => Ok(Repeat::Instead(known.id)),
                OnRepeat::Refuse | OnRepeat::Replace => Err(CommandError::Duplicate(known.id)),
            };
        }
        Ok(Repeat::No)
    }

    /// The first makes way for the put that takes its place.
    fn replace(&mut self, id: MessageId) {
        if let Some(queue) = self.item(id).map(|item| item.message.queue) {
            let totals = self.totals(queue);
            totals.discarded += 1;
            totals.replaced += 1;
            self.remove(id);
        }
    }

    fn fits(&self, queue: QueueId, count: u64, bytes: u64) -> bool {
        let settings = self.settings_of(queue);
        let waiting = self.ids(queue, |message| message.state == State::Ready);
        let held: u64 = waiting
            .iter()
            .filter_map(|&id| self.item(id))
            .map(|item| size(&item.message))
            .sum();
        (settings.messages_max == 0 || waiting.len() as u64 + count <= settings.messages_max)
            && (settings.bytes_max == 0 || held + bytes <= settings.bytes_max)
    }

    fn make_room(&mut self, queue: QueueId, bytes: u64) -> Result<(), CommandError> {
        let settings = self.settings_of(queue);
        let alone = settings.bytes_max == 0 || bytes <= settings.bytes_max;
        let alone = alone && !self.ages(queue);
        while !self.fits(queue, 1, bytes) {
            if settings.when_full == WhenFull::Refuse || !alone {
                return Err(CommandError::QueueFull);
            }
            let id = self.least_wanted(queue).ok_or(CommandError::QueueFull)?;
            self.totals(queue).discarded += 1;
            self.remove(id);
        }
        Ok(())
    }

    /// The oldest of the least urgent priority; when nothing is ready, the first
    /// that is not selectable, then the one that is due last.
    fn least_wanted(&self, queue: QueueId) -> Option<MessageId> {
        let here = |which: &dyn Fn(&Message) -> bool| -> Vec<&Message> {
            let ids = self.ids(queue, which);
            ids.iter()
                .filter_map(|&id| self.item(id))
                .map(|item| &item.message)
                .collect()
        };
        let ready = here(&|m| self.is_ready(m) && m.selectable);
        let not_selectable = here(&|m| self.is_ready(m) && !m.selectable);
        let delayed = here(&|m| m.is_delayed(self.now));
        let first = ready
            .iter()
            .min_by_key(|m| (std::cmp::Reverse(m.order().0), m.position, m.id));
        let first = first.or(not_selectable.iter().min_by_key(|m| m.order()));
        first
            .or(delayed.iter().max_by_key(|m| (m.due(), m.id)))
            .map(|m| m.id)
    }

    /// Stores it and its copies; answers the id of the first copy if the queue
    /// itself takes none (0: there is no copy).
    fn store(&mut self, queue: QueueId, put: Put) -> MessageId {
        let mut first = MessageId(0);
        let children = self.copies_of(queue, &put);
        for child in children {
            let room = match self.may_put(child, &put) {
                Ok(Repeat::Of(_)) | Err(_) => false,
                Ok(repeat) => {
                    let dedupe_records = self.dedupe_records_of(child, &put).into_iter();
                    let new = dedupe_records
                        .filter(|left| self.known(child, left.0, &left.1).is_none())
                        .count();
                    let room = self.may_leave(new).is_ok();
                    if room && let Repeat::Instead(id) = repeat {
                        self.replace(id);
                    }
                    room
                }
            };
            let room = room && self.make_room(child, size_of(&put)).is_ok();
            if room {
                let id = self.store_one(child, put.clone());
                first = if first.0 == 0 { id } else { first };
            }
        }
        if self.settings_of(queue).fanout_only {
            self.queue_mut(queue).made = true;
            first
        } else {
            self.store_one(queue, put)
        }
    }

    fn store_one(&mut self, queue: QueueId, put: Put) -> MessageId {
        let settings = self.settings_of(queue);
        let id = self.new_id(!settings.memory);
        let now = self.now;
        let expires = match put.expires {
            Expiry::Default if settings.ttl_ms > 0 => Some(now + settings.ttl_ms),
            Expiry::Default | Expiry::Never => None,
            Expiry::In(ms) => Some(now + ms),
            Expiry::At(at) => Some(at),
            Expiry::AtWall(at) => Some(self.wall_ahead.engine_at(at)),
        };
        let bound = (settings.ttl_max_ms > 0).then(|| now + settings.ttl_max_ms);
        let past = put.more.as_ref().and_then(|more| more.past.as_ref());
        let reserves = past.map_or(0, |past| past.reserves);
        let token_sum = put.more.as_ref().map_or(0, |more| more.token_sum);
        for (kind, dedupe_record, until, scope, _) in self.dedupe_records_of(queue, &put) {
            self.dedupe_records.retain(|old| {
                (old.queue, old.kind, &old.dedupe_record) != (queue, kind, &dedupe_record)
            });
            self.dedupe_records.push(DedupeKind {
                queue,
                kind,
                dedupe_record,
                id,
                until,
                scope,
                sum: if kind == Kind::Token { token_sum } else { 0 },
                reserves,
            });
        }
        let more = put.more.map(|more| *more).unwrap_or_default();
        let at = At {
            queue,
            priority: put.priority.unwrap_or(settings.default_priority),
            position: id.0 as i64,
            id,
        };
        let rests = match put.due {
            When::Default => When::In(settings.default_delay_ms),
            granted => granted,
        };
        let rests = due(rests, now);
        let mut message = Message::new(at, now, put.body);
        message.ttr_ms = put.ttr_ms;
        message.flags = put.flags;
        if more.prepared {
            message.state = State::Prepared;
        }
        message.selectable = !more.not_selectable;
        message.extra = Some(Box::new(Extra {
            key: more.key,
            name: more.name,
            failures: more.retry.map_or(0, |retry| retry.failures),
            retry: more.retry.map(Box::new),
            due: rests,
            delay_ms: rests.map_or(0, |due| due.since(now)),
            expires: match (expires, bound) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            attrs: more.attrs,
            ..Extra::default()
        }));
        message.extra_mut().aged_from = self.begins_to_age(queue);
        let turn = match more.past {
            Some(past) => self.bring(&mut message, *past),
            None => 0,
        };
        let totals = self.totals(queue);
        totals.puts += 1;
        totals.finished += u64::from(matches!(message.state, State::Done | State::Relayed));
        totals.put_bytes += message.body.len();
        let kept = self.queue_mut(queue);
        (kept.made, kept.used) = (true, now);
        self.items.push(Item {
            message,
            lease: None,
            turn,
        });
        id
    }

    /// Sets its earlier history; returns its turn among the buried.
    fn bring(&mut self, message: &mut Message, past: Past) -> u64 {
        message.state = match past.state {
            State::Reserved => State::Ready,
            state => state,
        };
        message.created = past.created.min(self.now);
        message.reserves = past.reserves;
        let waits = matches!(message.state, State::Ready | State::Prepared);
        let changed = past.changed.min(self.now);
        let now = self.now;
        let extra = message.extra_mut();
        extra.changed = match changed.0 {
            0 if !waits => now,
            _ => changed,
        };
        if !waits {
            extra.due = None;
        }
        extra.status = past.status;
        (extra.timeouts, extra.releases) = (past.timeouts, past.releases);
        (extra.buries, extra.kicks) = (past.buries, past.kicks);
        extra.failures = extra.failures.max(past.failures);
        if message.state == State::Buried {
            let until = self.buried_until_of(message);
            message.extra_mut().buried_until = until;
        }
        match message.state {
            State::Buried => self.turn(),
            _ => 0,
        }
    }
}

/// A due time still to come.
pub(super) fn due(when: When, now: quintet_types::Ms) -> Option<quintet_types::Ms> {
    let at = match when {
        When::Default | When::Now => now,
        When::In(ms) => now + ms,
        When::At(at) => at,
    };
    (at > now).then(|| at.min(quintet_types::DUE_MAX))
}
