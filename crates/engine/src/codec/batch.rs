//! Batches, their progress, and what is owed to them.

use std::sync::Arc;

use super::FactError;
use super::message::{read_retry, write_retry};
use super::read::{Reader, of_byte};
use super::write::Writer;
use quintet_types::{Batch, BatchId, Callback, Coded as _, Ms, Name, NewBatch, Progress, Tally};

/// Layout in `docs/log-format.md`, "Batches".
pub(super) fn write(w: &mut Writer<'_>, batch: &Batch) {
    w.number(batch.id.0);
    w.number(batch.created.0);
    let made = &batch.made;
    w.bytes(&made.description);
    w.number(made.parent.map_or(0, |parent| parent.0));
    w.byte(u8::from(made.complete.is_some()) | made.cancelled.byte() << 1);
    if let Some(callback) = &made.complete {
        write_callback(w, callback);
    }
    w.flag(made.success.is_some());
    if let Some(callback) = &made.success {
        write_callback(w, callback);
    }
    write_progress(w, &batch.progress);
}

pub(super) fn read(r: &mut Reader<'_>) -> Result<Batch, FactError> {
    let (id, created) = (BatchId(r.number()?), Ms(r.number()?));
    let description = r.bytes()?.into();
    let parent = match r.number()? {
        0 => None,
        parent => Some(BatchId(parent)),
    };
    let bits = r.byte()?;
    let cancelled = of_byte(bits >> 1)?;
    let has_complete = bits & 1 != 0;
    let complete = has_complete.then(|| read_callback(r)).transpose()?;
    let has_success = r.flag()?;
    let success = has_success.then(|| read_callback(r)).transpose()?;
    Ok(Batch {
        id,
        created,
        made: NewBatch {
            description,
            parent,
            complete,
            success,
            cancelled,
        },
        progress: read_progress(r)?,
    })
}

fn write_callback(w: &mut Writer<'_>, callback: &Callback) {
    w.byte(
        u8::from(callback.priority.is_some())
            | u8::from(callback.ttr_ms.is_some()) << 1
            | u8::from(callback.name.is_some()) << 2
            | u8::from(callback.retry.is_some()) << 3,
    );
    w.bytes(callback.queue.as_bytes());
    w.bytes(&callback.body);
    w.attrs(&callback.attrs);
    if let Some(priority) = callback.priority {
        w.number(u64::from(priority));
    }
    if let Some(ttr) = callback.ttr_ms {
        w.number(ttr);
    }
    if let Some(name) = &callback.name {
        w.bytes(name);
    }
    if let Some(retry) = &callback.retry {
        write_retry(w, retry);
    }
}

fn read_callback(r: &mut Reader<'_>) -> Result<Callback, FactError> {
    let bits = r.byte()?;
    if bits >= 1 << 4 {
        return Err(FactError::BadField("callback"));
    }
    let has = |bit: u8| bits & (1 << bit) != 0;
    Ok(Callback {
        queue: Name::new(r.bytes()?),
        body: Arc::from(r.bytes()?),
        attrs: r.attrs()?,
        priority: if has(0) {
            Some(r.small("priority")?)
        } else {
            None
        },
        ttr_ms: if has(1) { Some(r.number()?) } else { None },
        name: if has(2) {
            Some(Arc::from(r.bytes()?))
        } else {
            None
        },
        retry: if has(3) { Some(read_retry(r)?) } else { None },
    })
}

pub(super) fn write_progress(w: &mut Writer<'_>, progress: &Progress) {
    w.flag(progress.open);
    w.coded(progress.complete);
    w.coded(progress.success);
    for number in [
        progress.total,
        progress.pending,
        progress.failed,
        progress.children_running,
        progress.children_pending,
        progress.until.0,
    ] {
        w.number(number);
    }
}

pub(super) fn read_progress(r: &mut Reader<'_>) -> Result<Progress, FactError> {
    Ok(Progress {
        open: r.flag()?,
        complete: r.coded()?,
        success: r.coded()?,
        total: r.number()?,
        pending: r.number()?,
        failed: r.number()?,
        children_running: r.number()?,
        children_pending: r.number()?,
        until: Ms(r.number()?),
    })
}

pub(super) fn write_tally(w: &mut Writer<'_>, tally: &Tally) {
    for number in [tally.total, tally.pending, tally.failed] {
        w.signed(number);
    }
    let cancels = tally.cancelled != 0;
    w.byte(u8::from(tally.complete_done) | u8::from(cancels) << 1);
    w.flag(tally.success_done);
    if cancels {
        w.signed(tally.cancelled);
    }
}

pub(super) fn read_tally(r: &mut Reader<'_>) -> Result<Tally, FactError> {
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
