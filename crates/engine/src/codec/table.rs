//! The one list of facts, with the bytes they have in a record: the operation byte, and the fields
//! in order. A new fact is a variant of [`Fact`] and a line here; the round-trip test then asks for
//! a generator, the test of `docs/log-format.md` for its line there.

use quintet_types::{At, Coded as _, MessageId, Ms, Name, coded};

use super::field::{Field, Part};
use super::read::{Reader, of_byte};
use super::write::Writer;
use super::{FactError, LargeBodies, message, run};
use crate::fact::{DedupeId, Fact};

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

macro_rules! facts {
    (
        |$w:ident, $r:ident, $large:ident|
        $($variant:ident = $byte:literal
            $({ $($field:ident),* })?
            $(($part:ident))?
            $(by $pattern:pat => $write:block, $read:block)?,)*
    ) => {
        coded! {
            /// Which fact, without its fields; as a number the operation byte
            /// its record begins with. 0x40 and above are the server's.
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub enum FactKind, "operation" {
                $(#[doc = concat!("[`Fact::", stringify!($variant), "`].")] $variant = $byte,)*
            }
        }

        impl Fact {
            /// The number and name of the fact, without its fields.
            pub fn kind(&self) -> FactKind {
                match self {
                    $(Fact::$variant { .. } => FactKind::$variant,)*
                }
            }

            /// Appends the record to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                let $w = &mut Writer(out);
                $w.coded(self.kind());
                match self {
                    $(
                        $(Fact::$variant { $($field),* } => { $(Field::write($field, $w);)* },)?
                        $(Fact::$variant($part) => Field::write($part, $w),)?
                        $($pattern => $write,)?
                    )*
                }
            }
        }

        pub(super) fn read(
            $r: &mut Reader<'_>,
            $large: &mut LargeBodies<'_>,
        ) -> Result<Fact, FactError> {
            let operation = $r.byte()?;
            let kind = FactKind::of(operation).ok_or(FactError::UnknownOperation(operation))?;
            Ok(match kind {
                $(
                    $(FactKind::$variant => Fact::$variant {
                        $($field: Field::read($r, stringify!($field))?),*
                    },)?
                    $(FactKind::$variant => Fact::$variant(Field::read($r, stringify!($part))?),)?
                    $(FactKind::$variant => $read,)?
                )*
            })
        }
    };
}

facts! {
    |w, r, large|
    Put = 0x01 by Fact::Put(message) => {
        message::write(w, message);
    }, {
        Fact::Put(message::read(r, large)?)
    },
    Removed = 0x02 { at, why },
    Leased = 0x03 { at, lease },
    Released = 0x04 by Fact::Released { at, priority, position, due, delay_ms, why, failed } => {
        at.write(w);
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
    }, {
        let at = At::read(r, "at")?;
        let priority = r.small("priority")?;
        let position = at.position.wrapping_add(r.signed()?);
        let (due, byte) = (r.time()?, r.byte()?);
        Fact::Released {
            at,
            priority,
            position,
            due,
            why: of_byte(byte & !(DELAYED | FAILED))?,
            delay_ms: Part::read_if(byte & DELAYED != 0, r, "delay_ms")?,
            failed: Part::read_if(byte & FAILED != 0, r, "failed")?,
        }
    },
    Touched = 0x05 { at, until },
    Buried = 0x06 by Fact::Buried { at, priority, now, dead, reason, until, by_time } => {
        at.write(w);
        w.number(u64::from(*priority));
        w.number(now.0);
        let by_time = u8::from(*by_time) << 2;
        w.byte(u8::from(*dead) | u8::from(until.is_some()) << 1 | by_time);
        w.bytes(reason);
        Part::write(until, w);
    }, {
        let (at, priority, now) = (At::read(r, "at")?, r.small("priority")?, Ms(r.number()?));
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
            until: Part::read_if(bits & 2 != 0, r, "until")?,
            by_time: bits & 4 != 0,
        }
    },
    Archived = 0x07 { at, relayed, now, status },
    Kicked = 0x08 { at },
    Moved = 0x09 by Fact::Moved { at, to, position, why, now } => {
        at.write(w);
        to.write(w);
        w.signed(*position);
        w.coded(*why);
        w.number(now.0);
    }, {
        Fact::Moved {
            at: At::read(r, "at")?,
            to: r.queue()?,
            position: r.signed()?,
            why: r.coded()?,
            now: Ms(r.number()?),
        }
    },
    Committed = 0x0a { at },
    Edited = 0x0b { at, change },
    Image = 0x0c by Fact::Image(message, lease) => {
        message::write(w, message);
        Field::write(lease, w);
    }, {
        Fact::Image(message::read(r, large)?, Field::read(r, "lease")?)
    },
    Restored = 0x0d by Fact::Restored(message) => {
        message::write(w, message);
    }, {
        Fact::Restored(message::read(r, large)?)
    },
    Remembered = 0x0e by Fact::Remembered {
        queue, kind, dedupe_record, id, until, scope, sum
    } => {
        queue.write(w);
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
        Part::write(sum, w);
    }, {
        let queue = r.queue()?;
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
    },
    Sent = 0x0f { at, to, why, now },
    SentImage = 0x10 by Fact::SentImage(message, to) => {
        message::write(w, message);
        to.write(w);
    }, {
        Fact::SentImage(message::read(r, large)?, Name::new(r.bytes()?))
    },
    Arrived = 0x11 by Fact::Arrived { message, from } => {
        message::write(w, message);
        w.number(from.0);
    }, {
        Fact::Arrived {
            message: message::read(r, large)?,
            from: MessageId(r.number()?),
        }
    },
    Carried = 0x12 (id),
    Evicted = 0x13 by Fact::Evicted { run, block, ids } => {
        run.write(w);
        run::write_block(w, block);
        run::write_ids(w, ids);
    }, {
        let run = r.run()?;
        let block = run::read_block(r)?;
        let ids = run::read_ids(r, &block)?;
        Fact::Evicted {
            run,
            block: Box::new(block),
            ids,
        }
    },
    Loaded = 0x14 { run, ordinal, at, bytes, apart },
    RunImage = 0x15 by Fact::RunImage { run, block, dead } => {
        run.write(w);
        run::write_block(w, block);
        run::write_dead(w, dead.as_deref());
    }, {
        let run = r.run()?;
        let block = run::read_block(r)?;
        let dead = run::read_dead(r, &block)?;
        Fact::RunImage {
            run,
            block: Box::new(block),
            dead,
        }
    },
    RunGone = 0x16 (run),
    Pending = 0x17 { at, client_id },
    TableSet = 0x18 by Fact::TableSet { table, key, value, until, version } => {
        table.write(w);
        w.bytes(key);
        w.flag(value.is_some());
        w.bytes(value.as_deref().unwrap_or_default());
        w.time(*until);
        w.number(*version);
    }, {
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
    },
    TableDropped = 0x19 (table),
    Epoch = 0x20 { epoch, now },
    IdMark = 0x21 (next),
    QueueMade = 0x22 { queue, name, parent, created },
    QueueConfigured = 0x23 { queue, overrides },
    QueuePaused = 0x24 { queue, pause },
    QueueFlushed = 0x25 { queue, through, count },
    QueueDropped = 0x26 { queue, through, idle },
    QueueCounted = 0x27 { queue, head, bury_order, totals },
    ShardCounted = 0x28 (counts),
    QueueMaker = 0x29 { queue, maker },
    Reheld = 0x2a { at, lease },
    QueuePurged = 0x2b { queue, through, count },
    DedupeForgotten = 0x2c { queue },
    HashKey = 0x2d (key),
    KeyHeld = 0x2e { queue, key, now, until },
    AgingSet = 0x2f { queue, clock },
    BatchMade = 0x30 (batch),
    BatchProgress = 0x31 { batch, progress },
    BatchGone = 0x32 (batch),
    BatchOwed = 0x33 { batch, owed },
    Tracked = 0x34 { id, track },
    Awaits = 0x35 { child, after },
    ParentEnded = 0x36 { parent, succeeded },
    ParentTold = 0x37 { child, parent, succeeded },
    Freed = 0x38 { at, after },
    Watched = 0x39 { parent, shard, state },
}

#[cfg(test)]
mod tests {
    use quintet_types::Coded;

    use super::*;

    #[test]
    fn the_page_of_the_format_has_a_line_for_each_fact_and_no_other() {
        let page = include_str!("../../../../docs/log-format.md");
        let lines: Vec<(u8, &str)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
                let (byte, name) = (cells.next()?, cells.next()?);
                let is_fact = byte.len() == 2 && name.starts_with(char::is_uppercase);
                is_fact.then(|| Some((u8::from_str_radix(byte, 16).ok()?, name)))?
            })
            .collect();
        let kinds: Vec<String> = FactKind::ALL
            .iter()
            .map(|kind| format!("{kind:?}"))
            .collect();
        let expected: Vec<(u8, &str)> = FactKind::ALL
            .iter()
            .zip(&kinds)
            .map(|(kind, name)| (kind.byte(), name.as_str()))
            .collect();
        assert_eq!(lines, expected);
    }
}
