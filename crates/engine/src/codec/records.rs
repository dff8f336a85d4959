//! The records inside facts: those that are their fields in order, those that say which parts they
//! have, and those that are neither. Layout in `docs/log-format.md`.

use super::FactError;
use super::field::{Field, Part, fields, parted_record, records};
use super::read::{Reader, of_byte, queue_of};
use super::write::Writer;
use quintet_types::{
    After, At, BackTo, Backoff, Batch, BatchId, Bound, Callback, Cancelled, ClientId, Coded as _,
    Extra, Lease, MessageId, Ms, NewBatch, Parent, ParentState, Progress, QueueId, QueueTotals,
    Rate, ReplyTo, Retry, Tally, Tie, Track,
};

use crate::fact::{AgingClock, Change, Pause, ShardCounts};

records! {
    AgingClock { steps, since, rate }
    Cancelled { until, reason }
    Parent { id, state }
    Pause { until, for_ms }
    Progress {
        open, complete, success, total, pending, failed, children_running, children_pending, until
    }
    ReplyTo { queue, correlation }
    ShardCounts { made, dropped, expired, gone }
    Tie { batch, role }
    Track { queue, name, state, percent, note, changed, until }
}

parted_record! {
    Callback, "callback", u8: [queue, body, attrs]
    0 priority,
    1 ttr_ms,
    2 name,
    3 retry,
}

parted_record! {
    Change, "change", u8: [now]
    0 priority,
    1 due,
    2 status,
    3 attrs,
    4 attachments,
    5 expires,
    6 cancelled,
}

parted_record! {
    Extra, "extra", u64: []
    0 key,
    1 due,
    2 expires,
    3 attrs,
    4 attachments,
    5 status,
    6 changed,
    7 bury_order,
    8 timeouts,
    9 releases,
    10 buries,
    11 kicks,
    12 delay_ms,
    13 failures,
    14 name,
    15 retry,
    16 born,
    17 first_leased,
    19 batch,
    20 buried_until,
    21 tracked,
    22 cancelled,
    23 reply,
    24 after,
    25 aged_from "aged from",
}

/// Values behind a flag that says whether they are there.
macro_rules! flagged {
    ($($type:ty),*) => {
        $(impl Field for Option<$type> {
            fn write(&self, w: &mut Writer<'_>) {
                w.flag(self.is_some());
                Part::write(self, w);
            }
            fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError> {
                let is_there = r.flag()?;
                Part::read_if(is_there, r, name)
            }
        })*
    };
}

flagged! { AgingClock, Box<After>, Box<Lease>, Box<Track>, Callback, ParentState, Pause }

fields! {
    Option<QueueId>:
        |w, queue| w.number(queue.map_or(0, |queue| u64::from(queue.0) + 1)),
        |r, name| match r.number()? {
            0 => Ok(None),
            next => queue_of(next - 1, name).map(Some),
        };
    // A percentage.
    Option<u8>:
        |w, percent| w.number(percent.map_or(0, |percent| u64::from(percent) + 1)),
        |r, name| match r.number()? {
            0 => Ok(None),
            next => match u8::try_from(next - 1) {
                Ok(percent) if percent <= 100 => Ok(Some(percent)),
                Ok(_) | Err(_) => Err(FactError::BadField(name)),
            },
        };
    Rate:
        |w, rate| {
            w.number(u64::from(rate.count));
            w.number(rate.per_ms);
        },
        |r, name| Ok(Rate { count: r.small(name)?, per_ms: r.number()? });
}

impl Field for At {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(u64::from(self.queue.0));
        w.number(self.id.0);
        w.number(u64::from(self.priority));
        // A place is mostly the id itself.
        w.signed(self.position.wrapping_sub(self.id.0 as i64));
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let queue = r.queue()?;
        let id = MessageId(r.number()?);
        let priority = r.small("priority")?;
        let position = (id.0 as i64).wrapping_add(r.signed()?);
        Ok(At {
            queue,
            priority,
            position,
            id,
        })
    }
}

/// Beside what a lease depends on: who gave it and when it began follow.
const LEASE_GIVEN: u8 = 0x80;

impl Field for Lease {
    fn write(&self, w: &mut Writer<'_>) {
        let granted = self.epoch != 0 || self.since != Ms(0);
        let given_bit = if granted { LEASE_GIVEN } else { 0 };
        w.byte(self.bound.byte() | self.back_to.byte() << 4 | given_bit);
        w.number(self.client_id.0);
        w.time(self.until);
        w.number(self.span_ms);
        if granted {
            w.number(self.epoch);
            w.number(self.since.0);
        }
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let tag = r.byte()?;
        let mut lease = Lease {
            bound: of_byte::<Bound>(tag & 0x0f)?,
            back_to: of_byte::<BackTo>((tag & !LEASE_GIVEN) >> 4)?,
            client_id: ClientId(r.number()?),
            until: r.time()?,
            span_ms: r.number()?,
            epoch: 0,
            since: Ms(0),
        };
        if tag & LEASE_GIVEN != 0 {
            (lease.epoch, lease.since) = (r.number()?, Ms(r.number()?));
        }
        Ok(lease)
    }
}

/// Without the zeros at its end.
impl Field for QueueTotals {
    fn write(&self, w: &mut Writer<'_>) {
        let values = self.values();
        let used = values
            .iter()
            .rposition(|&value| value != 0)
            .map_or(0, |at| at + 1);
        w.number(used as u64);
        for value in &values[..used] {
            w.number(*value);
        }
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let count = r.number()?;
        if count > 256 {
            return Err(FactError::BadField("totals"));
        }
        let values: Vec<u64> = (0..count).map(|_| r.number()).collect::<Result<_, _>>()?;
        Ok(QueueTotals::from_values(&values))
    }
}

impl Field for Retry {
    fn write(&self, w: &mut Writer<'_>) {
        let backoff = &self.backoff;
        let buried_ttl = self.buried_ttl_ms != 0;
        w.signed(self.max);
        w.byte(u8::from(self.on_timeout) | u8::from(buried_ttl) << 1);
        w.byte(backoff.power);
        for number in [
            u64::from(self.failures),
            backoff.base_ms,
            backoff.factor_ms,
            backoff.jitter_ms,
            backoff.cap_ms,
        ] {
            w.number(number);
        }
        Part::write(&self.buried_ttl_ms, w);
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let (max, bits, power) = (r.signed()?, r.byte()?, r.byte()?);
        if bits > 3 {
            return Err(FactError::BadField("retry"));
        }
        Ok(Retry {
            max,
            failures: r.small("failures")?,
            backoff: Backoff {
                power,
                base_ms: r.number()?,
                factor_ms: r.number()?,
                jitter_ms: r.number()?,
                cap_ms: r.number()?,
            },
            on_timeout: bits & 1 != 0,
            buried_ttl_ms: Part::read_if(bits & 2 != 0, r, "buried_ttl_ms")?,
        })
    }
}

impl Field for After {
    fn write(&self, w: &mut Writer<'_>) {
        w.coded(self.on);
        w.coded(self.if_failed);
        w.time(self.due);
        w.number(self.parents.len() as u64);
        for parent in &self.parents {
            parent.write(w);
        }
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let (on, if_failed, due) = (r.coded()?, r.coded()?, r.time()?);
        let mut parents: Vec<Parent> = Vec::new();
        for _ in 0..r.number()? {
            let parent = Parent::read(r, "parent")?;
            // By id, each once: they are searched.
            if parents.last().is_some_and(|last| last.id >= parent.id) {
                return Err(FactError::BadField("parents"));
            }
            parents.push(parent);
        }
        Ok(After {
            parents: parents.into(),
            on,
            if_failed,
            due,
        })
    }
}

impl Field for Batch {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(self.id.0);
        w.number(self.created.0);
        let made = &self.made;
        w.bytes(&made.description);
        w.number(made.parent.map_or(0, |parent| parent.0));
        w.byte(u8::from(made.complete.is_some()) | made.cancelled.byte() << 1);
        Part::write(&made.complete, w);
        Field::write(&made.success, w);
        self.progress.write(w);
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let (id, created) = (BatchId(r.number()?), Ms(r.number()?));
        let description = r.bytes()?.into();
        let parent = Some(BatchId(r.number()?)).filter(|parent| parent.0 != 0);
        let bits = r.byte()?;
        let cancelled = of_byte(bits >> 1)?;
        Ok(Batch {
            id,
            created,
            made: NewBatch {
                description,
                parent,
                complete: Part::read_if(bits & 1 != 0, r, "complete")?,
                success: Field::read(r, "success")?,
                cancelled,
            },
            progress: Field::read(r, "progress")?,
        })
    }
}

impl Field for Tally {
    fn write(&self, w: &mut Writer<'_>) {
        for number in [self.total, self.pending, self.failed] {
            w.signed(number);
        }
        let cancels = self.cancelled != 0;
        w.byte(u8::from(self.complete_done) | u8::from(cancels) << 1);
        w.flag(self.success_done);
        if cancels {
            w.signed(self.cancelled);
        }
    }

    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let [total, pending, failed] = [r.signed()?, r.signed()?, r.signed()?];
        let bits = r.byte()?;
        if bits >= 1 << 2 {
            return Err(FactError::BadField("owed"));
        }
        Ok(Tally {
            total,
            pending,
            failed,
            complete_done: bits & 1 != 0,
            success_done: r.flag()?,
            cancelled: if bits & 2 != 0 { r.signed()? } else { 0 },
        })
    }
}
