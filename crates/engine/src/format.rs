//! The layer between facts and files, byte by byte: how records are grouped in a frame, whose chunk
//! of a large body it is, and how runs index and sort messages. `docs/log-format.md` and
//! `docs/run-format.md` describe the same; the facts themselves are in `codec`, frames and blocks
//! in `quintet-log`.

use quintet_types::{QueueId, StateIndex, fnv, varint};

/// Appends a group to the payload of a frame of facts: the shard's number, how
/// long its records are, the records. Nothing if there are none.
#[inline]
pub fn put_group(payload: &mut Vec<u8>, shard: usize, records: &[u8]) {
    if !records.is_empty() {
        varint::put(payload, shard as u64);
        varint::put(payload, records.len() as u64);
        payload.extend_from_slice(records);
    }
}

/// Splits a group off the payload of a frame of facts: shard and records.
/// `None`: it is cut short.
pub fn next_group<'a>(payload: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let shard = varint::take(payload)?;
    let len = usize::try_from(varint::take(payload)?).ok()?;
    let (records, rest) = payload.split_at_checked(len)?;
    *payload = rest;
    Some((shard, records))
}

/// Begins the payload of a frame that is a chunk of a large body: the body's
/// number and the chunk's, from 0. The body's bytes follow.
pub fn put_chunk_head(payload: &mut Vec<u8>, body: u64, index: u32) {
    varint::put(payload, body);
    varint::put(payload, u64::from(index));
}

/// A chunk's body, number and bytes; `None`: the head is none.
pub fn chunk(mut payload: &[u8]) -> Option<(u64, u32, &[u8])> {
    let body = varint::take(&mut payload)?;
    let index = u32::try_from(varint::take(&mut payload)?).ok()?;
    Some((body, index, payload))
}

/// Hash of a message's key, as runs index it: FNV-1a of 64 bits over the
/// number of the queue (four bytes, low one first) and the key.
pub fn key_hash(queue: QueueId, key: &[u8]) -> u64 {
    fnv(queue.0.to_le_bytes().iter().chain(key))
}

/// The tag of a state index of a run: queue and state.
pub fn state_index_tag(queue: QueueId, state_index: StateIndex) -> Vec<u8> {
    let mut tag = Vec::with_capacity(6);
    varint::put(&mut tag, u64::from(queue.0));
    tag.push(state_index as u8);
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, from the pages that describe them.
    #[test]
    fn every_byte_stands_where_the_pages_say() {
        let mut payload = Vec::new();
        put_group(&mut payload, 1, b"ab");
        put_group(&mut payload, 2, b"");
        put_group(&mut payload, 300, b"c");
        assert_eq!(payload, b"\x01\x02ab\xac\x02\x01c");
        let mut rest = &payload[..];
        assert_eq!(next_group(&mut rest), Some((1, &b"ab"[..])));
        assert_eq!(next_group(&mut rest), Some((300, &b"c"[..])));
        assert_eq!(next_group(&mut rest), None);
        assert_eq!(next_group(&mut &payload[..3]), None);

        let mut payload = Vec::new();
        put_chunk_head(&mut payload, 1 << 33, 7);
        payload.extend_from_slice(b"bytes");
        assert_eq!(payload, b"\x80\x80\x80\x80\x20\x07bytes");
        assert_eq!(chunk(&payload), Some((1 << 33, 7, &b"bytes"[..])));
        assert_eq!(chunk(&payload[..5]), None);

        assert_eq!(
            state_index_tag(QueueId(300), StateIndex::Buried),
            b"\xac\x02\x03"
        );
        // FNV-1a of 00 00 00 00, and of 01 00 00 00 "k".
        assert_eq!(key_hash(QueueId(0), b""), 0x4d25_767f_9dce_13f5);
        assert_eq!(key_hash(QueueId(1), b"k"), 0xd80d_17ae_a7db_ee7d);
    }
}
