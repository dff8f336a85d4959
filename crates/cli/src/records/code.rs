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

/// The places of the bits of [`optional`] numbers, in the order in which they follow.
const NUMBERS: [u64; 11] = [1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14];

/// Appends a head, without its queue.
pub(super) fn write(head: &Head, out: &mut Vec<u8>) {
    let numbers = optional(head);
    let others = [
        (has::NOT_SELECTABLE, head.not_selectable),
        (has::KEY, head.key.is_some()),
        (has::NAME, head.name.is_some()),
        (has::ATTRS, !head.attrs.is_empty()),
        (has::STATUS, !head.status.0.is_empty()),
    ];
    let of_numbers = NUMBERS.iter().zip(&numbers);
    let of_numbers = of_numbers.map(|(at, value)| (1_u64 << at, value.is_some()));
    let there = of_numbers.chain(others).filter(|(_, is)| *is);
    varint::put(out, there.map(|(bit, _)| bit).sum());
    varint::put(out, head.id);
    varint::put(out, head.state as u64);
    let priority = head.priority.unwrap_or(quintet_types::PRIORITY_DEFAULT);
    varint::put(out, u64::from(priority));
    varint::put(out, ((head.place << 1) ^ (head.place >> 63)) as u64);
    varint::put(out, head.created_ms.unwrap_or(0));
    for value in numbers.into_iter().flatten() {
        varint::put(out, value);
    }
    for word in [&head.key, &head.name].into_iter().flatten() {
        text(out, word);
    }
    if !head.attrs.is_empty() {
        varint::put(out, head.attrs.len() as u64);
        for (name, value) in &head.attrs {
            text(out, name);
            text(out, value);
        }
    }
    if !head.status.0.is_empty() {
        text(out, &head.status);
    }
    varint::put(out, head.bytes);
}

/// The optional numbers.
fn optional(head: &Head) -> [Option<u64>; 11] {
    let count = |n: u32| (n > 0).then_some(u64::from(n));
    let number = |n: u64| (n > 0).then_some(n);
    [
        count(head.flags),
        head.due_ms,
        head.expires_ms,
        head.ttr_ms,
        number(head.changed_ms),
        number(head.bury_order),
        count(head.reserves),
        count(head.timeouts),
        count(head.releases),
        count(head.buries),
        count(head.kicks),
    ]
}

fn text(out: &mut Vec<u8>, text: &Text) {
    varint::put(out, text.0.len() as u64);
    out.extend_from_slice(&text.0);
}

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
        for head in [plain, full] {
            let mut bytes = Vec::new();
            write(&head, &mut bytes);
            let mut from = &bytes[..];
            assert_eq!(read("q", &mut from).as_ref(), Some(&head));
            assert!(from.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(read("q", &mut &bytes[..len]), None);
            }
        }
    }
}
