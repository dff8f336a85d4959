//! The codec of [`Change`], the fields that an edit sets.

use super::FactError;
use super::read::Reader;
use super::write::Writer;
use quintet_types::{Cancelled, Ms, Rate};

use crate::fact::{AgingClock, Change};

pub(super) fn write_change(w: &mut Writer<'_>, change: &Change) {
    let bits = u8::from(change.priority.is_some())
        | u8::from(change.due.is_some()) << 1
        | u8::from(change.status.is_some()) << 2
        | u8::from(change.attrs.is_some()) << 3
        | u8::from(change.attachments.is_some()) << 4
        | u8::from(change.expires.is_some()) << 5
        | u8::from(change.cancelled.is_some()) << 6;
    w.byte(bits);
    w.number(change.now.0);
    if let Some(priority) = change.priority {
        w.number(u64::from(priority));
    }
    if let Some(due) = change.due {
        w.time(due);
    }
    if let Some(status) = &change.status {
        w.bytes(status);
    }
    if let Some(attrs) = &change.attrs {
        w.attrs(attrs);
    }
    if let Some(attachments) = &change.attachments {
        w.attachments(attachments);
    }
    if let Some(expires) = change.expires {
        w.time(expires);
    }
    if let Some(cancelled) = &change.cancelled {
        write_cancelled(w, cancelled);
    }
}

pub(super) fn write_clock(w: &mut Writer<'_>, clock: Option<&AgingClock>) {
    w.flag(clock.is_some());
    if let Some(clock) = clock {
        let AgingClock { steps, since, rate } = *clock;
        for number in [steps.into(), since.0, rate.count.into(), rate.per_ms] {
            w.number(number);
        }
    }
}

pub(super) fn read_clock(r: &mut Reader<'_>) -> Result<Option<AgingClock>, FactError> {
    if !r.flag()? {
        return Ok(None);
    }
    Ok(Some(AgingClock {
        steps: r.small("steps")?,
        since: Ms(r.number()?),
        rate: Rate {
            count: r.small("rate")?,
            per_ms: r.number()?,
        },
    }))
}

pub(super) fn write_cancelled(w: &mut Writer<'_>, cancelled: &Cancelled) {
    w.number(cancelled.until.0);
    w.bytes(&cancelled.reason);
}

pub(super) fn read_cancelled(r: &mut Reader<'_>) -> Result<Box<Cancelled>, FactError> {
    Ok(Box::new(Cancelled {
        until: Ms(r.number()?),
        reason: r.bytes()?.into(),
    }))
}

pub(super) fn read_change(r: &mut Reader<'_>) -> Result<Change, FactError> {
    let bits = r.byte()?;
    if bits >= 1 << 7 {
        return Err(FactError::BadField("change"));
    }
    let has = |bit: u8| bits & (1 << bit) != 0;
    Ok(Change {
        now: Ms(r.number()?),
        priority: if has(0) {
            Some(r.small("priority")?)
        } else {
            None
        },
        due: if has(1) { Some(r.time()?) } else { None },
        status: if has(2) {
            Some(r.bytes()?.into())
        } else {
            None
        },
        attrs: if has(3) { Some(r.attrs()?) } else { None },
        attachments: if has(4) { Some(r.attachments()?) } else { None },
        expires: if has(5) { Some(r.time()?) } else { None },
        cancelled: if has(6) {
            Some(read_cancelled(r)?)
        } else {
            None
        },
    })
}
