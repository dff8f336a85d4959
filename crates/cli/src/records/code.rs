//! The bytes of a message in the binary form (`docs/export-format.md`, "The
//! binary form").

use quintet_control::{Head, Standing, Text};
use quintet_types::varint;

/// Which optional fields follow: the bits of those that are no numbers.
mod has {
    pub(super) const NOT_SELECTABLE: u64 = 1;
    pub(super) const KEY: u64 = 1 << 5;
    pub(super) const ATTRS: u64 = 1 << 6;
    pub(super) const STATUS: u64 = 1 << 7;
    pub(super) const NAME: u64 = 1 << 15;
    pub(super) const ALL: u64 = (1 << 16) - 1;
}

/// The places of the bits of optional numbers, in the order in which they follow.
const NUMBERS: [u64; 11] = [1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14];

/// Reads a head of a message of `queue`; `None`: this is none.
pub(super) fn read(queue: &str, from: &mut &[u8]) -> Option<Head> {
    let bits = varint::take(from)?;
    if bits & !has::ALL != 0 {
        return None;
    }
    let id = varint::take(from)?;
    let state = usize::try_from(varint::take(from)?).ok()?;
    let state = *Standing::ALL.get(state)?;
    let priority = u32::try_from(varint::take(from)?).ok()?;
    let place = varint::take(from)?;
    let created = varint::take(from)?;
    let mut numbers = [None; NUMBERS.len()];
    for (at, value) in NUMBERS.iter().zip(&mut numbers) {
        if bits & (1_u64 << at) != 0 {
            *value = Some(varint::take(from)?);
        }
    }
    let [flags, due_ms, expires_ms, ttr_ms, rest @ ..] = numbers;
    let [changed_ms, bury_order, counters @ ..] = rest;
    let count = |value: Option<u64>| u32::try_from(value.unwrap_or(0)).ok();
    let [reserves, timeouts, releases, buries, kicks] = counters.map(count);
    let word = |bit: u64, from: &mut &[u8]| match bits & bit {
        0 => Some(None),
        _ => take_text(from).map(Some),
    };
    let (key, name) = (word(has::KEY, from)?, word(has::NAME, from)?);
    let mut attrs = Vec::new();
    if bits & has::ATTRS != 0 {
        for _ in 0..varint::take(from)? {
            attrs.push((take_text(from)?, take_text(from)?));
        }
    }
    let status = word(has::STATUS, from)?.unwrap_or_default();
    Some(Head {
        queue: queue.to_owned(),
        id,
        state,
        priority: Some(priority),
        place: (place >> 1) as i64 ^ -((place & 1) as i64),
        not_selectable: bits & has::NOT_SELECTABLE != 0,
        flags: count(flags)?,
        created_ms: Some(created),
        due_ms,
        expires_ms,
        ttr_ms,
        key,
        name,
        attrs,
        status,
        changed_ms: changed_ms.unwrap_or(0),
        bury_order: bury_order.unwrap_or(0),
        reserves: reserves?,
        timeouts: timeouts?,
        releases: releases?,
        buries: buries?,
        kicks: kicks?,
        bytes: varint::take(from)?,
        ..Head::default()
    })
}

pub(super) fn take_text(from: &mut &[u8]) -> Option<Text> {
    let len = usize::try_from(varint::take(from)?).ok()?;
    let (text, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(Text(text.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are of `write` in commit 8486fd84: bits, id, state, priority, position, time,
    /// attempts, key, length.
    #[test]
    fn an_old_head_is_read() {
        let mut old = &[0xa1, 0x08, 7, 3, 9, 5, 1, 4, 1, b'k', 13][..];
        let head = Head {
            queue: "q".to_owned(),
            id: 7,
            state: Standing::Buried,
            priority: Some(9),
            place: -3,
            not_selectable: true,
            created_ms: Some(1),
            reserves: 4,
            key: Some(Text(b"k".to_vec())),
            bytes: 13,
            ..Head::default()
        };
        assert_eq!(read("q", &mut old), Some(head));
        assert!(old.is_empty());
    }

    /// The bytes are as `docs/export-format.md` has them, written by another program.
    #[test]
    fn heads_come_back_and_cut_ones_do_not() {
        let plain = Head {
            queue: "q".to_owned(),
            priority: Some(1024),
            created_ms: Some(7),
            ..Head::default()
        };
        let full = Head {
            id: u64::MAX,
            state: Standing::Relayed,
            priority: Some(u32::MAX),
            place: i64::MIN,
            not_selectable: true,
            flags: 1,
            due_ms: Some(0),
            expires_ms: Some(u64::MAX),
            ttr_ms: Some(0),
            key: Some(Text::default()),
            attrs: vec![(Text(vec![1]), Text(vec![0xff; 300]))],
            status: Text(b"why".to_vec()),
            changed_ms: 2,
            bury_order: 3,
            reserves: 4,
            timeouts: 5,
            releases: 6,
            buries: 7,
            kicks: u32::MAX,
            bytes: 8,
            ..plain.clone()
        };
        let (most_64, most_32) = ([&[0xff; 9][..], &[1]].concat(), [255, 255, 255, 255, 15]);
        let full_bytes = [
            &[0xff, 0xff, 1][..],
            &most_64,
            &[6],
            &most_32,
            &most_64,
            &[7, 1, 0],
            &most_64,
            &[0, 2, 3, 4, 5, 6, 7],
            &most_32,
            &[0, 1, 1, 1, 0xac, 2],
            &[0xff; 300],
            b"\x03why\x08",
        ]
        .concat();
        for (head, bytes) in [(plain, vec![0, 0, 0, 0x80, 8, 0, 7, 0]), (full, full_bytes)] {
            let mut from = &bytes[..];
            assert_eq!(read("q", &mut from).as_ref(), Some(&head));
            assert!(from.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(read("q", &mut &bytes[..len]), None);
            }
        }
    }
}
