//! Records of tracked messages.

use std::sync::Arc;

use super::FactError;
use super::read::Reader;
use super::write::Writer;
use quintet_types::{Ms, Name, Track};

/// Layout in `docs/log-format.md`, "Tracked messages".
pub(super) fn write(w: &mut Writer<'_>, track: &Track) {
    w.bytes(track.queue.as_bytes());
    w.bytes(&track.name);
    w.coded(track.state);
    w.number(track.percent.map_or(0, |percent| u64::from(percent) + 1));
    w.bytes(&track.note);
    w.number(track.changed.0);
    w.number(track.until.0);
}

pub(super) fn read(r: &mut Reader<'_>) -> Result<Track, FactError> {
    Ok(Track {
        queue: Name::new(r.bytes()?),
        name: Arc::from(r.bytes()?),
        state: r.coded()?,
        percent: match r.number()? {
            0 => None,
            above => {
                let percent = u8::try_from(above - 1)
                    .ok()
                    .filter(|percent| *percent <= 100);
                Some(percent.ok_or(FactError::BadField("percent"))?)
            }
        },
        note: r.bytes()?.into(),
        changed: Ms(r.number()?),
        until: Ms(r.number()?),
    })
}
