//! Facts as bytes. The layout is described in `docs/log-format.md`, section
//! "Records"; change the two together and raise the format version.

use quintet_types::{
    At, BackTo, BatchId, Bound, ClientId, Coded, LargeBody, Lease, Message, MessageId, Ms, Name,
    QueueId, QueueTotals, Return, RunId,
};

use crate::fact::{DedupeId, Fact, Pause, ShardCounts};

mod after;
mod batch;
mod change;
mod message;
mod overrides;
mod read;
mod run;
mod table;
mod track;
mod write;

use read::{Reader, of_byte};
use write::Writer;

use change::{read_change, read_clock, write_change, write_clock};
pub use table::FactKind;

/// Resolves a large body by its id and length: its chunks came before the fact.
pub type LargeBodies<'a> = dyn FnMut(u64, u64) -> LargeBody + 'a;

/// A record that is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactError {
    /// The bytes end inside the record.
    Short,
    /// No such operation: written by a newer version, or damaged.
    UnknownOperation(u8),
    /// A field has a value it cannot have; the text names it.
    BadField(&'static str),
}

impl std::fmt::Display for FactError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FactError::Short => f.write_str("record ends too early"),
            FactError::UnknownOperation(op) => write!(f, "unknown operation {op:#04x}"),
            FactError::BadField(field) => write!(f, "bad value in field \"{field}\""),
        }
    }
}

impl std::error::Error for FactError {}

/// Beside what a lease depends on: who gave it and when it began follow.
const LEASE_GIVEN: u8 = 0x80;
/// Beside why a message was released: the length of its delay follows.
const DELAYED: u8 = 4;
/// The same of the byte of a failure: its error follows.
const FAILED: u8 = 8;
/// The condition that ends a deduplication record besides its time stands in the upper bits of its
/// kind.
const SCOPE_SHIFT: u32 = 4;
/// In the byte of a deduplication record's kind and scope: its id is a hash.
const HASHED: u8 = 4;
/// In the byte of a deduplication record's kind and scope: its sum follows.
const SUMMED: u8 = 8;

impl Fact {
    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        w.coded(self.kind());
        match self {
            Fact::Put(message) => {
                message::write(&mut w, message);
            }
            Fact::Removed { at, why } => {
                w.at(at);
                w.coded(*why);
            }
            Fact::Leased { at, lease } | Fact::Reheld { at, lease } => {
                w.at(at);
                w.lease(lease);
            }
            Fact::Released {
                at,
                priority,
                position,
                due,
                delay_ms,
                why,
                failed,
            } => {
                w.at(at);
                w.number(u64::from(*priority));
                w.signed(position.wrapping_sub(at.position));
                w.time(*due);
                let delayed = if *delay_ms > 0 { DELAYED } else { 0 };
                let counts = if failed.is_some() { FAILED } else { 0 };
                w.byte(why.byte() | delayed | counts);
                if *delay_ms > 0 {
                    w.number(*delay_ms);
                }
                if let Some(error) = failed {
                    w.bytes(error);
                }
            }
            Fact::Touched { at, until } => {
                w.at(at);
                w.number(until.0);
            }
            Fact::Buried {
                at,
                priority,
                now,
                dead,
                reason,
                until,
                by_time,
            } => {
                w.at(at);
                w.number(u64::from(*priority));
                w.number(now.0);
                let by_time = u8::from(*by_time) << 2;
                w.byte(u8::from(*dead) | u8::from(until.is_some()) << 1 | by_time);
                w.bytes(reason);
                if let Some(until) = until {
                    w.number(until.0);
                }
            }
            Fact::Archived {
                at,
                relayed,
                now,
                status,
            } => {
                w.at(at);
                w.flag(*relayed);
                w.number(now.0);
                w.bytes(status);
            }
            Fact::Kicked { at } => {
                w.at(at);
            }
            Fact::Moved {
                at,
                to,
                position,
                why,
                now,
            } => {
                w.at(at);
                w.number(u64::from(to.0));
                w.signed(*position);
                w.coded(*why);
                w.number(now.0);
            }
            Fact::Sent { at, to, why, now } => {
                w.at(at);
                w.bytes(to.as_bytes());
                w.coded(*why);
                w.number(now.0);
            }
            Fact::SentImage(message, to) => {
                message::write(&mut w, message);
                w.bytes(to.as_bytes());
            }
            Fact::Arrived { message, from } => {
                message::write(&mut w, message);
                w.number(from.0);
            }
            Fact::Carried(id) => {
                w.number(id.0);
            }
            Fact::Committed { at } => {
                w.at(at);
            }
            Fact::Edited { at, change } => {
                w.at(at);
                write_change(&mut w, change);
            }
            Fact::Image(message, lease) => {
                message::write(&mut w, message);
                w.flag(lease.is_some());
                if let Some(lease) = lease {
                    w.lease(lease);
                }
            }
            Fact::Restored(message) => {
                message::write(&mut w, message);
            }
            Fact::Remembered {
                queue,
                kind,
                dedupe_record,
                id,
                until,
                scope,
                sum,
            } => {
                w.number(u64::from(queue.0));
                let summed = if *sum > 0 { SUMMED } else { 0 };
                let hashed = match dedupe_record {
                    DedupeId::Whole(_) => 0,
                    DedupeId::Hash(_) => HASHED,
                };
                w.byte(kind.byte() | hashed | summed | scope.byte() << SCOPE_SHIFT);
                match dedupe_record {
                    DedupeId::Whole(id) => w.bytes(id),
                    DedupeId::Hash(halves) => {
                        halves
                            .iter()
                            .for_each(|half| w.exactly(&half.to_le_bytes()));
                    }
                }
                w.number(id.0);
                w.number(until.0);
                if *sum > 0 {
                    w.number(*sum);
                }
            }
            Fact::Evicted { run, block, ids } => {
                w.number(u64::from(run.0));
                run::write_block(&mut w, block);
                run::write_ids(&mut w, ids);
            }
            Fact::Loaded {
                run,
                ordinal,
                at,
                bytes,
                apart,
            } => {
                w.number(u64::from(run.0));
                w.number(u64::from(*ordinal));
                w.at(at);
                w.number(*bytes);
                w.flag(*apart);
            }
            Fact::RunImage { run, block, dead } => {
                w.number(u64::from(run.0));
                run::write_block(&mut w, block);
                run::write_dead(&mut w, dead.as_deref());
            }
            Fact::RunGone(run) => {
                w.number(u64::from(run.0));
            }
            Fact::Pending { at, client_id } => {
                w.at(at);
                w.number(client_id.0);
            }
            Fact::TableSet {
                table,
                key,
                value,
                until,
                version,
            } => {
                w.bytes(table.as_bytes());
                w.bytes(key);
                w.flag(value.is_some());
                w.bytes(value.as_deref().unwrap_or_default());
                w.time(*until);
                w.number(*version);
            }
            Fact::TableDropped(table) => {
                w.bytes(table.as_bytes());
            }
            Fact::BatchMade(batch) => batch::write(&mut w, batch),
            Fact::BatchProgress { batch, progress } => {
                w.number(batch.0);
                batch::write_progress(&mut w, progress);
            }
            Fact::BatchGone(batch) => w.number(batch.0),
            Fact::Tracked { id, track } => {
                w.number(id.0);
                w.flag(track.is_some());
                if let Some(track) = track {
                    track::write(&mut w, track);
                }
            }
            Fact::Awaits { .. }
            | Fact::ParentEnded { .. }
            | Fact::ParentTold { .. }
            | Fact::Freed { .. }
            | Fact::Watched { .. } => after::write_fact(&mut w, self),
            Fact::BatchOwed { batch, owed } => {
                w.number(batch.0);
                batch::write_tally(&mut w, owed);
            }
            Fact::Epoch { epoch, now } => {
                w.number(*epoch);
                w.number(now.0);
            }
            Fact::IdMark(next) => {
                w.number(*next);
            }
            Fact::HashKey(key) => w.exactly(key),
            Fact::QueueMade {
                queue,
                name,
                parent,
                created,
            } => {
                w.number(u64::from(queue.0));
                w.bytes(name.as_bytes());
                w.number(parent.map_or(0, |parent| u64::from(parent.0) + 1));
                w.number(created.0);
            }
            Fact::QueueMaker { queue, maker } => {
                w.number(u64::from(queue.0));
                w.bytes(maker);
            }
            Fact::QueueConfigured { queue, overrides } => {
                w.number(u64::from(queue.0));
                overrides::write(&mut w, overrides);
            }
            Fact::QueuePaused { queue, pause } => {
                w.number(u64::from(queue.0));
                w.flag(pause.is_some());
                if let Some(pause) = pause {
                    w.time(pause.until);
                    w.number(pause.for_ms);
                }
            }
            Fact::KeyHeld {
                queue,
                key,
                now,
                until,
            } => {
                w.number(u64::from(queue.0));
                w.bytes(key);
                w.number(now.0);
                w.time(*until);
            }
            Fact::AgingSet { queue, clock } => {
                w.number(u64::from(queue.0));
                write_clock(&mut w, clock.as_ref());
            }
            Fact::QueueFlushed {
                queue,
                through,
                count,
            }
            | Fact::QueuePurged {
                queue,
                through,
                count,
            } => {
                w.number(u64::from(queue.0));
                w.number(through.0);
                w.number(*count);
            }
            Fact::DedupeForgotten { queue } => w.number(u64::from(queue.0)),
            Fact::QueueDropped {
                queue,
                through,
                idle,
            } => {
                w.number(u64::from(queue.0));
                w.number(through.0);
                w.flag(*idle);
            }
            Fact::QueueCounted {
                queue,
                totals,
                head,
                bury_order,
            } => {
                w.number(u64::from(queue.0));
                w.signed(*head);
                w.number(*bury_order);
                w.totals(totals);
            }
            Fact::ShardCounted(counts) => {
                w.number(counts.made);
                w.number(counts.dropped);
                w.number(counts.expired);
                w.totals(&counts.gone);
            }
        }
    }

    /// Reads one record from the front of `bytes` and moves past it.
    ///
    /// # Errors
    /// [`FactError`] if there is no record; `bytes` is left where it was.
    pub fn decode(bytes: &mut &[u8], large: &mut LargeBodies<'_>) -> Result<Fact, FactError> {
        let mut r = Reader(bytes);
        let fact = decode(&mut r, large)?;
        *bytes = r.0;
        Ok(fact)
    }
}

/// Appends the message alone, as runs hold it.
pub fn write_message(message: &Message, out: &mut Vec<u8>) {
    message::write(&mut Writer(out), message);
}

/// Reads the bytes that [`write_message`] wrote.
///
/// # Errors
/// They are no such record, or the body would have to be in the log.
pub fn read_message(bytes: &[u8]) -> Result<Message, FactError> {
    let mut r = Reader(bytes);
    let mut strays = false;
    let message = message::read(&mut r, &mut |id, len| {
        strays = true;
        LargeBody::new(id, len, 0)
    })?;
    if strays || !r.0.is_empty() {
        return Err(FactError::BadField("message in a run"));
    }
    Ok(message)
}

fn decode(r: &mut Reader<'_>, large: &mut LargeBodies<'_>) -> Result<Fact, FactError> {
    let operation = r.byte()?;
    let kind = FactKind::of(operation).ok_or(FactError::UnknownOperation(operation))?;
    Ok(match kind {
        FactKind::Put => Fact::Put(message::read(r, large)?),
        FactKind::Removed => Fact::Removed {
            at: r.at()?,
            why: r.coded()?,
        },
        FactKind::Evicted => {
            let run = RunId(r.small("run")?);
            let block = run::read_block(r)?;
            let ids = run::read_ids(r, &block)?;
            Fact::Evicted {
                run,
                block: Box::new(block),
                ids,
            }
        }
        FactKind::Loaded => Fact::Loaded {
            run: RunId(r.small("run")?),
            ordinal: r.small("ordinal")?,
            at: r.at()?,
            bytes: r.number()?,
            apart: r.flag()?,
        },
        FactKind::RunImage => {
            let run = RunId(r.small("run")?);
            let block = run::read_block(r)?;
            let dead = run::read_dead(r, &block)?;
            Fact::RunImage {
                run,
                block: Box::new(block),
                dead,
            }
        }
        FactKind::RunGone => Fact::RunGone(RunId(r.small("run")?)),
        FactKind::Leased => Fact::Leased {
            at: r.at()?,
            lease: r.lease()?,
        },
        FactKind::Reheld => Fact::Reheld {
            at: r.at()?,
            lease: r.lease()?,
        },
        FactKind::Released => {
            let at = r.at()?;
            let priority = r.small("priority")?;
            let position = at.position.wrapping_add(r.signed()?);
            let (due, byte) = (r.time()?, r.byte()?);
            Fact::Released {
                at,
                priority,
                position,
                due,
                why: Coded::of(byte & !(DELAYED | FAILED))
                    .ok_or(FactError::BadField(Return::FIELD))?,
                delay_ms: match byte & DELAYED {
                    0 => 0,
                    _ => r.number()?,
                },
                failed: match byte & FAILED {
                    0 => None,
                    _ => Some(r.bytes()?.into()),
                },
            }
        }
        FactKind::Touched => Fact::Touched {
            at: r.at()?,
            until: Ms(r.number()?),
        },
        FactKind::Buried => {
            let (at, priority, now) = (r.at()?, r.small("priority")?, Ms(r.number()?));
            let bits = r.byte()?;
            if bits > 7 {
                return Err(FactError::BadField("buried"));
            }
            Fact::Buried {
                at,
                priority,
                now,
                dead: bits & 1 != 0,
                reason: r.bytes()?.into(),
                until: match bits & 2 {
                    0 => None,
                    _ => Some(Ms(r.number()?)),
                },
                by_time: bits & 4 != 0,
            }
        }
        FactKind::Archived => Fact::Archived {
            at: r.at()?,
            relayed: r.flag()?,
            now: Ms(r.number()?),
            status: r.bytes()?.into(),
        },
        FactKind::Kicked => Fact::Kicked { at: r.at()? },
        FactKind::Moved => Fact::Moved {
            at: r.at()?,
            to: QueueId(r.small("queue")?),
            position: r.signed()?,
            why: r.coded()?,
            now: Ms(r.number()?),
        },
        FactKind::Sent => Fact::Sent {
            at: r.at()?,
            to: Name::new(r.bytes()?),
            why: r.coded()?,
            now: Ms(r.number()?),
        },
        FactKind::SentImage => Fact::SentImage(message::read(r, large)?, Name::new(r.bytes()?)),
        FactKind::Arrived => Fact::Arrived {
            message: message::read(r, large)?,
            from: MessageId(r.number()?),
        },
        FactKind::Carried => Fact::Carried(MessageId(r.number()?)),
        FactKind::Committed => Fact::Committed { at: r.at()? },
        FactKind::Edited => Fact::Edited {
            at: r.at()?,
            change: Box::new(read_change(r)?),
        },
        FactKind::Image => {
            let message = message::read(r, large)?;
            let lease = if r.flag()? {
                Some(Box::new(r.lease()?))
            } else {
                None
            };
            Fact::Image(message, lease)
        }
        FactKind::Restored => Fact::Restored(message::read(r, large)?),
        FactKind::Remembered => {
            let queue = QueueId(r.small("queue")?);
            let byte = r.byte()?;
            let summed = byte & SUMMED != 0;
            Fact::Remembered {
                queue,
                kind: of_byte(byte & (HASHED - 1))?,
                dedupe_record: match byte & HASHED {
                    0 => DedupeId::Whole(r.bytes()?.into()),
                    _ => DedupeId::Hash([
                        u64::from_le_bytes(r.array()?),
                        u64::from_le_bytes(r.array()?),
                    ]),
                },
                id: MessageId(r.number()?),
                until: Ms(r.number()?),
                scope: of_byte(byte >> SCOPE_SHIFT)?,
                sum: match summed {
                    true => match r.number()? {
                        0 => return Err(FactError::BadField("sum")),
                        sum => sum,
                    },
                    false => 0,
                },
            }
        }
        FactKind::Pending => Fact::Pending {
            at: r.at()?,
            client_id: ClientId(r.number()?),
        },
        FactKind::TableSet => {
            let table = Name::new(r.bytes()?);
            let key = r.bytes()?.into();
            let is_set = r.flag()?;
            let value = r.bytes()?;
            if !is_set && !value.is_empty() {
                return Err(FactError::BadField("value"));
            }
            Fact::TableSet {
                table,
                key,
                value: is_set.then(|| value.into()),
                until: r.time()?,
                version: r.number()?,
            }
        }
        FactKind::TableDropped => Fact::TableDropped(Name::new(r.bytes()?)),
        FactKind::BatchMade => Fact::BatchMade(Box::new(batch::read(r)?)),
        FactKind::BatchProgress => Fact::BatchProgress {
            batch: BatchId(r.number()?),
            progress: batch::read_progress(r)?,
        },
        FactKind::BatchGone => Fact::BatchGone(BatchId(r.number()?)),
        FactKind::Tracked => Fact::Tracked {
            id: MessageId(r.number()?),
            track: match r.flag()? {
                true => Some(Box::new(track::read(r)?)),
                false => None,
            },
        },
        FactKind::Awaits
        | FactKind::ParentEnded
        | FactKind::ParentTold
        | FactKind::Freed
        | FactKind::Watched => after::read_fact(r, kind)?,
        FactKind::BatchOwed => Fact::BatchOwed {
            batch: BatchId(r.number()?),
            owed: batch::read_tally(r)?,
        },
        FactKind::Epoch => Fact::Epoch {
            epoch: r.number()?,
            now: Ms(r.number()?),
        },
        FactKind::IdMark => Fact::IdMark(r.number()?),
        FactKind::HashKey => Fact::HashKey(r.array()?),
        FactKind::QueueMade => {
            let queue = r.queue_number()?;
            let name = Name::new(r.bytes()?);
            let parent = match r.number()? {
                0 => None,
                next => Some(QueueId(
                    u32::try_from(next - 1).map_err(|_| FactError::BadField("parent"))?,
                )),
            };
            Fact::QueueMade {
                queue,
                name,
                parent,
                created: Ms(r.number()?),
            }
        }
        FactKind::QueueMaker => Fact::QueueMaker {
            queue: r.queue_number()?,
            maker: r.bytes()?.into(),
        },
        FactKind::QueueConfigured => Fact::QueueConfigured {
            queue: r.queue_number()?,
            overrides: Box::new(overrides::read(r)?),
        },
        FactKind::QueuePaused => {
            let queue = r.queue_number()?;
            let pause = if r.flag()? {
                Some(Pause {
                    until: r.time()?,
                    for_ms: r.number()?,
                })
            } else {
                None
            };
            Fact::QueuePaused { queue, pause }
        }
        FactKind::KeyHeld => Fact::KeyHeld {
            queue: r.queue_number()?,
            key: r.bytes()?.into(),
            now: Ms(r.number()?),
            until: r.time()?,
        },
        FactKind::AgingSet => Fact::AgingSet {
            queue: r.queue_number()?,
            clock: read_clock(r)?,
        },
        FactKind::QueueFlushed => Fact::QueueFlushed {
            queue: r.queue_number()?,
            through: MessageId(r.number()?),
            count: r.number()?,
        },
        FactKind::QueuePurged => Fact::QueuePurged {
            queue: r.queue_number()?,
            through: MessageId(r.number()?),
            count: r.number()?,
        },
        FactKind::DedupeForgotten => Fact::DedupeForgotten {
            queue: r.queue_number()?,
        },
        FactKind::QueueDropped => Fact::QueueDropped {
            queue: r.queue_number()?,
            through: MessageId(r.number()?),
            idle: r.flag()?,
        },
        FactKind::QueueCounted => {
            let queue = r.queue_number()?;
            let (head, bury_order) = (r.signed()?, r.number()?);
            Fact::QueueCounted {
                queue,
                head,
                bury_order,
                totals: Box::new(r.totals()?),
            }
        }
        FactKind::ShardCounted => Fact::ShardCounted(Box::new(ShardCounts {
            made: r.number()?,
            dropped: r.number()?,
            expired: r.number()?,
            gone: r.totals()?,
        })),
    })
}

impl Writer<'_> {
    fn at(&mut self, at: &At) {
        self.number(u64::from(at.queue.0));
        self.number(at.id.0);
        self.number(u64::from(at.priority));
        // A place is mostly the id itself.
        self.signed(at.position.wrapping_sub(at.id.0 as i64));
    }

    fn lease(&mut self, lease: &Lease) {
        let granted = lease.epoch != 0 || lease.since != Ms(0);
        let given_bit = if granted { LEASE_GIVEN } else { 0 };
        self.byte(lease.bound.byte() | lease.back_to.byte() << 4 | given_bit);
        self.number(lease.client_id.0);
        self.time(lease.until);
        self.number(lease.span_ms);
        if granted {
            self.number(lease.epoch);
            self.number(lease.since.0);
        }
    }

    fn totals(&mut self, totals: &QueueTotals) {
        let values = totals.values();
        let used = values
            .iter()
            .rposition(|&value| value != 0)
            .map_or(0, |at| at + 1);
        self.number(used as u64);
        for value in &values[..used] {
            self.number(*value);
        }
    }
}

impl Reader<'_> {
    fn at(&mut self) -> Result<At, FactError> {
        let queue = self.queue_number()?;
        let id = MessageId(self.number()?);
        let priority = self.small("priority")?;
        let position = (id.0 as i64).wrapping_add(self.signed()?);
        Ok(At {
            queue,
            priority,
            position,
            id,
        })
    }

    fn queue_number(&mut self) -> Result<QueueId, FactError> {
        let number: u32 = self.small("queue")?;
        // A table of queues is an array: a damaged number must not make it huge.
        if number >= 1 << 28 {
            Err(FactError::BadField("queue"))
        } else {
            Ok(QueueId(number))
        }
    }

    fn lease(&mut self) -> Result<Lease, FactError> {
        let tag = self.byte()?;
        let bound = Bound::of(tag & 0x0f).ok_or(FactError::BadField("lease"))?;
        let back_to = BackTo::of((tag & !LEASE_GIVEN) >> 4).ok_or(FactError::BadField("lease"))?;
        let mut lease = Lease {
            client_id: ClientId(self.number()?),
            bound,
            back_to,
            until: self.time()?,
            span_ms: self.number()?,
            epoch: 0,
            since: Ms(0),
        };
        if tag & LEASE_GIVEN != 0 {
            (lease.epoch, lease.since) = (self.number()?, Ms(self.number()?));
        }
        Ok(lease)
    }

    fn totals(&mut self) -> Result<QueueTotals, FactError> {
        let count = self.number()?;
        if count > 256 {
            return Err(FactError::BadField("totals"));
        }
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.number()?);
        }
        Ok(QueueTotals::from_values(&values))
    }
}
