//! A message's image.

use std::sync::Arc;

use super::field::{Field, Part};
use super::read::Reader;
use super::write::Writer;
use super::{FactError, LargeBodies};
use quintet_types::{
    At, Body, ChunkPlace, LargeBody, Message, MessageId, Ms, RunId, SegmentRef, State,
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
    message.at().write(w);
    w.number(message.created.0);
    Part::write(&message.flags, w);
    Part::write(&message.ttr_ms, w);
    Part::write(&message.state, w);
    Part::write(&message.reserves, w);
    Part::write(&message.extra, w);
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
    let segment_ref = SegmentRef::of_run(r.run()?).0;
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

pub(super) fn read(r: &mut Reader<'_>, large: &mut LargeBodies<'_>) -> Result<Message, FactError> {
    let bits = r.number()?;
    if bits & !has::ALL != 0 || bits & has::IN_RUN != 0 && bits & has::LARGE == 0 {
        return Err(FactError::BadField("message"));
    }
    let has = |bit: u64| bits & bit != 0;
    let at = At::read(r, "at")?;
    let created = Ms(r.number()?);
    let flags = Part::read_if(has(has::FLAGS), r, "flags")?;
    let ttr_ms = Part::read_if(has(has::TTR), r, "ttr_ms")?;
    let state = Part::read_if(has(has::STATE), r, "state")?;
    let reserves = Part::read_if(has(has::RESERVES), r, "reserves")?;
    let extra = Part::read_if(has(has::EXTRA), r, "extra")?;
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
