//! Blocks of runs, as the log has them.

use super::FactError;
use super::read::Reader;
use super::write::Writer;
use quintet_types::{MessageId, Ms, Order};

use crate::cold::Block;

pub(super) fn write_block(w: &mut Writer<'_>, block: &Block) {
    let small = [block.number, block.ordinal, block.count, block.queue.0].map(u64::from);
    small.into_iter().for_each(|number| w.number(number));
    w.coded(block.state_index);
    write_order(w, block.first);
    write_order(w, block.last);
    w.number(u64::from(block.live));
    w.number(block.bytes);
    w.number(u64::from(block.urgent));
    w.number(u64::from(block.apart));
    w.flag(block.keyed);
    w.time(block.expires);
    w.number(block.created.0);
}

pub(super) fn read_block(r: &mut Reader<'_>) -> Result<Block, FactError> {
    let number = r.small("block")?;
    let ordinal = r.small("ordinal")?;
    let count = r.small("count")?;
    let queue = r.queue()?;
    let state_index = r.coded()?;
    let (first, last) = (read_order(r)?, read_order(r)?);
    let block = Block {
        number,
        ordinal,
        count,
        queue,
        state_index,
        first,
        last,
        live: r.small("live")?,
        bytes: r.number()?,
        urgent: r.small("urgent")?,
        apart: r.small("apart")?,
        keyed: r.flag()?,
        expires: r.time()?,
        created: Ms(r.number()?),
    };
    // A block has a MiB and one entry at most, an entry two bytes at least. What it has lost is a
    // bit array as long as the count.
    if block.live > count || count > 1 << 20 || ordinal.checked_add(count).is_none() {
        return Err(FactError::BadField("count"));
    }
    Ok(block)
}

fn write_order(w: &mut Writer<'_>, (priority, position, id): Order) {
    w.number(u64::from(priority));
    w.signed(position);
    w.number(id.0);
}

fn read_order(r: &mut Reader<'_>) -> Result<Order, FactError> {
    let priority = r.small("priority")?;
    let position = r.signed()?;
    let id = r.number()?;
    if id >= 1 << 63 {
        return Err(FactError::BadField("id"));
    }
    Ok((priority, position, MessageId(id)))
}

/// Each as its distance from the one before; 0 for one that is dead.
pub(super) fn write_ids(w: &mut Writer<'_>, ids: &[MessageId]) {
    let mut before = 0u64;
    for id in ids {
        if id.0 == 0 {
            w.number(0);
        } else {
            w.signed(id.0.wrapping_sub(before) as i64);
            before = id.0;
        }
    }
}

pub(super) fn read_ids(r: &mut Reader<'_>, block: &Block) -> Result<Vec<MessageId>, FactError> {
    let mut ids = Vec::new();
    let mut before = 0u64;
    for _ in 0..block.count {
        match r.signed()? {
            0 => ids.push(MessageId(0)),
            step => {
                before = before.wrapping_add(step as u64);
                if before >= 1 << 63 {
                    return Err(FactError::BadField("id"));
                }
                ids.push(MessageId(before));
            }
        }
    }
    let live = ids.iter().filter(|id| id.0 != 0).count();
    if live != block.live as usize {
        return Err(FactError::BadField("live"));
    }
    Ok(ids)
}

pub(super) fn write_dead(w: &mut Writer<'_>, dead: Option<&[u64]>) {
    w.flag(dead.is_some());
    for word in dead.unwrap_or_default() {
        w.0.extend_from_slice(&word.to_le_bytes());
    }
}

pub(super) fn read_dead(
    r: &mut Reader<'_>,
    block: &Block,
) -> Result<Option<Box<[u64]>>, FactError> {
    if !r.flag()? {
        return if block.live == block.count {
            Ok(None)
        } else {
            Err(FactError::BadField("live"))
        };
    }
    let words = (block.count as usize).div_ceil(64);
    let bytes = r.exactly(words * 8)?;
    let words: Box<[u64]> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    let set: u32 = words.iter().map(|word| word.count_ones()).sum();
    if set + block.live != block.count {
        return Err(FactError::BadField("dead"));
    }
    Ok(Some(words))
}
