//! A message's image.

use std::sync::Arc;

use super::after;
use super::change::{read_cancelled, write_cancelled};
use super::read::Reader;
use super::write::Writer;
use super::{FactError, LargeBodies};
use quintet_types::{
    Backoff, BatchId, Body, ChunkPlace, Extra, LargeBody, Message, MessageId, Ms, Name, ReplyTo,
    Retry, RunId, SegmentRef, State, Tie,
};

/// Which optional parts follow.
mod has {
    pub(super) const FLAGS: u64 = 1;
    pub(super) const TTR: u64 = 1 << 1;
    pub(super) const EXTRA: u64 = 1 << 2;
    pub(super) const NOT_SELECTABLE: u64 = 1 << 3;
    pub(super) const LARGE: u64 = 1 << 4;
    pub(super) const STATE: u64 = 1 << 5;
    pub(super) const RESERVES: u64 = 1 << 6;
    pub(super) const DOOMED: u64 = 1 << 7;
    /// The large body lies in a run, and where follows.
    pub(super) const IN_RUN: u64 = 1 << 8;
    pub(super) const ALL: u64 = (1 << 9) - 1;
}

/// Layout in `docs/log-format.md`, "Message image".
pub(super) fn write(w: &mut Writer<'_>, message: &Message) {
    let bit = |is: bool, bit: u64| if is { bit } else { 0 };
    let bits = bit(message.flags != 0, has::FLAGS)
        | bit(message.ttr_ms.is_some(), has::TTR)
        | bit(message.extra.is_some(), has::EXTRA)
        | bit(!message.selectable, has::NOT_SELECTABLE)
        | bit(matches!(message.body, Body::Large(_)), has::LARGE)
        | bit(message.state != State::Ready, has::STATE)
        | bit(message.reserves != 0, has::RESERVES)
        | bit(message.doomed, has::DOOMED)
        | bit(in_run(message).is_some(), has::IN_RUN);
    w.number(bits);
    w.at(&message.at());
    w.number(message.created.0);
    if message.flags != 0 {
        w.number(u64::from(message.flags));
    }
    if let Some(ttr) = message.ttr_ms {
        w.number(ttr);
    }
    if message.state != State::Ready {
        w.coded(message.state);
    }
    if message.reserves != 0 {
        w.number(u64::from(message.reserves));
    }
    if let Some(extra) = &message.extra {
        write_extra(w, extra);
    }
    match &message.body {
        Body::Small(bytes) => w.bytes(bytes),
        Body::Large(large) => {
            w.number(large.id());
            w.number(large.len());
            if let Some(run) = in_run(message) {
                let places = large.places();
                w.number(u64::from(run.0));
                w.number(places.len() as u64);
                for position in places {
                    w.number(position.offset);
                    w.number(u64::from(position.frame_len));
                    w.number(u64::from(position.len));
                }
            }
        }
    }
}

fn in_run(message: &Message) -> Option<RunId> {
    match &message.body {
        Body::Large(large) => SegmentRef(large.segment_ref()).run(),
        Body::Small(_) => None,
    }
}

/// A body that lies in a run is known by the message alone.
fn read_body_in_run(r: &mut Reader<'_>) -> Result<LargeBody, FactError> {
    let (id, len) = (r.number()?, r.number()?);
    let run = r.small("run")?;
    if run >= 1 << 31 {
        return Err(FactError::BadField("run"));
    }
    let segment_ref = SegmentRef::of_run(RunId(run)).0;
    let mut places = Vec::new();
    for _ in 0..r.number()? {
        places.push(ChunkPlace {
            segment: segment_ref,
            offset: r.number()?,
            frame_len: r.small("chunk")?,
            len: r.small("chunk")?,
        });
    }
    let body = LargeBody::new(id, len, segment_ref);
    body.set_places(places, segment_ref);
    Ok(body)
}

fn write_extra(w: &mut Writer<'_>, extra: &Extra) {
    let bits = [
        extra.key.is_some(),
        extra.due.is_some(),
        extra.expires.is_some(),
        !extra.attrs.is_empty(),
        !extra.attachments.is_empty(),
        !extra.status.is_empty(),
        extra.changed != Ms(0),
        extra.bury_order != 0,
        extra.timeouts != 0,
        extra.releases != 0,
        extra.buries != 0,
        extra.kicks != 0,
        extra.delay_ms != 0,
        extra.failures != 0,
        extra.name.is_some(),
        extra.retry.is_some(),
        extra.born != MessageId(0),
        extra.first_leased != Ms(0),
    ];
    // Bits of the parts that are not in the list.
    const BATCH: u64 = 1 << BATCH_BIT;
    const BURIED_UNTIL: u64 = 1 << BURIED_UNTIL_BIT;
    const TRACKED: u64 = 1 << TRACKED_BIT;
    const CANCELLED: u64 = 1 << CANCELLED_BIT;
    const REPLY: u64 = 1 << REPLY_BIT;
    const AFTER: u64 = 1 << AFTER_BIT;
    const AGED_FROM: u64 = 1 << AGED_FROM_BIT;
    let batch = if extra.batch.is_some() { BATCH } else { 0 };
    let buried_until = extra.buried_until.map_or(0, |_| BURIED_UNTIL);
    let tracked = if extra.tracked { TRACKED } else { 0 };
    let cancelled = extra.cancelled.as_ref().map_or(0, |_| CANCELLED);
    let reply = extra.reply.as_ref().map_or(0, |_| REPLY);
    let after = extra.after.as_ref().map_or(0, |_| AFTER);
    let aged_from = if extra.aged_from > 0 { AGED_FROM } else { 0 };
    w.number(
        bits.iter()
            .enumerate()
            .map(|(at, &is)| u64::from(is) << at)
            .sum::<u64>()
            | batch
            | buried_until
            | tracked
            | cancelled
            | reply
            | after
            | aged_from,
    );
    if let Some(key) = &extra.key {
        w.bytes(key);
    }
    for time in [extra.due, extra.expires].into_iter().flatten() {
        w.number(time.0);
    }
    if !extra.attrs.is_empty() {
        w.attrs(&extra.attrs);
    }
    if !extra.attachments.is_empty() {
        w.attachments(&extra.attachments);
    }
    if !extra.status.is_empty() {
        w.bytes(&extra.status);
    }
    let counts = [extra.timeouts, extra.releases, extra.buries, extra.kicks].map(u64::from);
    for number in [extra.changed.0, extra.bury_order]
        .into_iter()
        .chain(counts)
        .chain([extra.delay_ms, u64::from(extra.failures)])
    {
        if number != 0 {
            w.number(number);
        }
    }
    if let Some(name) = &extra.name {
        w.bytes(name);
    }
    if let Some(retry) = &extra.retry {
        write_retry(w, retry);
    }
    for number in [extra.born.0, extra.first_leased.0] {
        if number != 0 {
            w.number(number);
        }
    }
    if let Some(tie) = &extra.batch {
        w.number(tie.batch.0);
        w.coded(tie.role);
    }
    if let Some(until) = extra.buried_until {
        w.number(until.0);
    }
    if let Some(cancelled) = &extra.cancelled {
        write_cancelled(w, cancelled);
    }
    if let Some(reply) = &extra.reply {
        w.bytes(reply.queue.as_bytes());
        w.bytes(&reply.correlation);
    }
    if let Some(known) = &extra.after {
        after::write(w, known);
    }
    if extra.aged_from > 0 {
        w.number(u64::from(extra.aged_from));
    }
}

/// The bit of the batch that a message belongs to.
const BATCH_BIT: u32 = 19;
/// The bit of when a buried one is gone.
const BURIED_UNTIL_BIT: u32 = 20;
/// The bit that says it is tracked, of which nothing follows.
const TRACKED_BIT: u32 = 21;
/// The bit of the mark of one that is cancelled.
const CANCELLED_BIT: u32 = 22;
/// The bit of where its result goes.
const REPLY_BIT: u32 = 23;
/// The bit of the messages for which it was held.
const AFTER_BIT: u32 = 24;
/// The bit of where it stood on its queue's clock of aging.
const AGED_FROM_BIT: u32 = 25;
/// All bits there are.
const EXTRA_ALL: u64 = ((1 << 18) - 1)
    | (1 << BATCH_BIT)
    | (1 << BURIED_UNTIL_BIT)
    | (1 << TRACKED_BIT)
    | (1 << CANCELLED_BIT)
    | (1 << REPLY_BIT)
    | (1 << AFTER_BIT)
    | (1 << AGED_FROM_BIT);

pub(super) fn write_retry(w: &mut Writer<'_>, retry: &Retry) {
    let backoff = &retry.backoff;
    let buried_ttl = retry.buried_ttl_ms != 0;
    w.signed(retry.max);
    w.byte(u8::from(retry.on_timeout) | u8::from(buried_ttl) << 1);
    w.byte(backoff.power);
    for number in [
        u64::from(retry.failures),
        backoff.base_ms,
        backoff.factor_ms,
        backoff.jitter_ms,
        backoff.cap_ms,
    ] {
        w.number(number);
    }
    if buried_ttl {
        w.number(retry.buried_ttl_ms);
    }
}

pub(super) fn read_retry(r: &mut Reader<'_>) -> Result<Retry, FactError> {
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
        buried_ttl_ms: if bits & 2 != 0 { r.number()? } else { 0 },
    })
}

pub(super) fn read(r: &mut Reader<'_>, large: &mut LargeBodies<'_>) -> Result<Message, FactError> {
    let bits = r.number()?;
    if bits & !has::ALL != 0 || bits & has::IN_RUN != 0 && bits & has::LARGE == 0 {
        return Err(FactError::BadField("message"));
    }
    let has = |bit: u64| bits & bit != 0;
    let at = r.at()?;
    let created = Ms(r.number()?);
    let flags = if has(has::FLAGS) {
        r.small("flags")?
    } else {
        0
    };
    let ttr_ms = if has(has::TTR) {
        Some(r.number()?)
    } else {
        None
    };
    let state = if has(has::STATE) {
        r.coded()?
    } else {
        State::Ready
    };
    let reserves = if has(has::RESERVES) {
        r.small("reserves")?
    } else {
        0
    };
    let extra = if has(has::EXTRA) {
        Some(Box::new(read_extra(r)?))
    } else {
        None
    };
    let body = if has(has::LARGE) && has(has::IN_RUN) {
        Body::Large(read_body_in_run(r)?)
    } else if has(has::LARGE) {
        let (id, len) = (r.number()?, r.number()?);
        Body::Large(large(id, len))
    } else {
        Body::Small(Arc::from(r.bytes()?))
    };
    if at.id == MessageId(0) || at.id.0 >= 1 << 63 {
        return Err(FactError::BadField("id"));
    }
    Ok(Message {
        extra,
        ttr_ms,
        flags,
        reserves,
        state,
        selectable: !has(has::NOT_SELECTABLE),
        doomed: has(has::DOOMED),
        ..Message::new(at, created, body)
    })
}

fn read_extra(r: &mut Reader<'_>) -> Result<Extra, FactError> {
    let bits = r.number()?;
    if bits & !EXTRA_ALL != 0 {
        return Err(FactError::BadField("extra"));
    }
    let has = |bit: u32| bits & (1 << bit) != 0;
    Ok(Extra {
        key: if has(0) {
            Some(Arc::from(r.bytes()?))
        } else {
            None
        },
        due: if has(1) { Some(Ms(r.number()?)) } else { None },
        expires: if has(2) { Some(Ms(r.number()?)) } else { None },
        attrs: if has(3) { r.attrs()? } else { Vec::new() },
        attachments: if has(4) { r.attachments()? } else { Vec::new() },
        status: if has(5) {
            r.bytes()?.into()
        } else {
            Box::default()
        },
        changed: if has(6) { Ms(r.number()?) } else { Ms(0) },
        bury_order: if has(7) { r.number()? } else { 0 },
        timeouts: if has(8) { r.small("timeouts")? } else { 0 },
        releases: if has(9) { r.small("releases")? } else { 0 },
        buries: if has(10) { r.small("buries")? } else { 0 },
        kicks: if has(11) { r.small("kicks")? } else { 0 },
        delay_ms: if has(12) { r.number()? } else { 0 },
        failures: if has(13) { r.small("failures")? } else { 0 },
        name: if has(14) {
            Some(Arc::from(r.bytes()?))
        } else {
            None
        },
        retry: if has(15) {
            Some(Box::new(read_retry(r)?))
        } else {
            None
        },
        born: MessageId(if has(16) { r.number()? } else { 0 }),
        first_leased: Ms(if has(17) { r.number()? } else { 0 }),
        batch: if has(BATCH_BIT) {
            Some(Tie {
                batch: BatchId(r.number()?),
                role: r.coded()?,
            })
        } else {
            None
        },
        buried_until: if has(BURIED_UNTIL_BIT) {
            Some(Ms(r.number()?))
        } else {
            None
        },
        tracked: has(TRACKED_BIT),
        cancelled: if has(CANCELLED_BIT) {
            Some(read_cancelled(r)?)
        } else {
            None
        },
        reply: if has(REPLY_BIT) {
            Some(Box::new(ReplyTo {
                queue: Name::new(r.bytes()?),
                correlation: r.bytes()?.into(),
            }))
        } else {
            None
        },
        after: if has(AFTER_BIT) {
            Some(Box::new(after::read(r)?))
        } else {
            None
        },
        aged_from: if has(AGED_FROM_BIT) {
            r.small("aged from")?
        } else {
            0
        },
    })
}
