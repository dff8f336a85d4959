//! Frames: bytes to requests, messages to groups. Integers are big endian.
//!
//! | frame | bytes |
//! |---|---|
//! | push | `70 qlen(2) ttl(2) prio(1) keylen(2) paylen(2) key payload qname` |
//! | pop, subscribe, unsubscribe | `50`, `73`, `75`, then `qlen(2) qname` |
//! | ready | `41` |
//! | group | `count(2)`, then each packet: `keylen(2) paylen(2) key payload` |

use quintet_types::Message;

use crate::output::Output;

/// Bytes of a push before its key.
const PUSH_HEAD: usize = 10;
/// Bytes before the queue's name in a frame that has nothing else.
pub(super) const NAME_HEAD: usize = 3;

/// The frame at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// More bytes are needed to tell.
    Part,
    /// A push whose packet nobody wants, or that names no queue; so many bytes
    /// belong to it, of which not all need be there.
    Unwanted(usize),
    Push(Push<'a>),
    /// A frame that names a queue.
    Named(Verb, &'a [u8]),
    Ready,
    /// No frame begins like this.
    Unknown,
}

/// Operations on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Pop,
    Subscribe,
    Unsubscribe,
}

/// A push, whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Push<'a> {
    /// Time to live in ms.
    pub(super) ttl: u16,
    /// 1 is the most urgent, 0 is never selected.
    pub(super) priority: u8,
    pub(super) key: &'a [u8],
    pub(super) payload: &'a [u8],
    pub(super) queue: &'a [u8],
}

impl Push<'_> {
    /// Bytes of the frame.
    pub(super) fn len(&self) -> usize {
        PUSH_HEAD + self.key.len() + self.payload.len() + self.queue.len()
    }
}

/// Looks at the front of the input: at the frame's head, and no further until
/// the whole is there.
pub(super) fn first(input: &[u8], packet_max: usize) -> Frame<'_> {
    let verb = match input.first() {
        None => return Frame::Part,
        Some(0x70) => return push(input, packet_max),
        Some(0x41) => return Frame::Ready,
        Some(0x50) => Verb::Pop,
        Some(0x73) => Verb::Subscribe,
        Some(0x75) => Verb::Unsubscribe,
        Some(_) => return Frame::Unknown,
    };
    let Some(&[_, high, low]) = input.first_chunk::<NAME_HEAD>() else {
        return Frame::Part;
    };
    let name = input.get(NAME_HEAD..NAME_HEAD + number(high, low));
    name.map_or(Frame::Part, |name| Frame::Named(verb, name))
}

fn push(input: &[u8], packet_max: usize) -> Frame<'_> {
    let Some(head) = input.first_chunk::<PUSH_HEAD>() else {
        return Frame::Part;
    };
    let &[_, q0, q1, t0, t1, priority, k0, k1, p0, p1] = head;
    let (name_len, key_len, payload_len) = (number(q0, q1), number(k0, k1), number(p0, p1));
    let whole = PUSH_HEAD + key_len + payload_len + name_len;
    if name_len == 0 || key_len + payload_len > packet_max {
        return Frame::Unwanted(whole);
    }
    let Some(rest) = input.get(PUSH_HEAD..whole) else {
        return Frame::Part;
    };
    let (key, rest) = rest.split_at(key_len);
    let (payload, queue) = rest.split_at(payload_len);
    Frame::Push(Push {
        ttl: u16::from_be_bytes([t0, t1]),
        priority,
        key,
        payload,
        queue,
    })
}

fn number(high: u8, low: u8) -> usize {
    u16::from_be_bytes([high, low]).into()
}

/// Writes a group. A take of this protocol brings at most 65,535 messages, each
/// with a body of at most 65,535 bytes, and the engine stores no longer key.
pub(super) fn group(messages: &[Message], output: &mut Output) {
    output.put(&length(messages.len() as u64));
    for message in messages {
        let key = message.key().map_or(&[][..], |key| &**key);
        output.put(&length(key.len() as u64));
        output.put(&length(message.body.len()));
        output.put(key);
        output.body(&message.body);
    }
}

fn length(len: u64) -> [u8; 2] {
    let len = u16::try_from(len).expect("a take of this protocol brings nothing longer");
    len.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_part_until_its_last_byte() {
        let push = b"\x70\x00\x01\x03\xe8\x05\x00\x01\x00\x02khiqrest";
        for end in 0..14 {
            assert_eq!(first(&push[..end], 100), Frame::Part, "{end} bytes");
        }
        let Frame::Push(whole) = first(push, 100) else {
            panic!("no push");
        };
        let expected = Push {
            ttl: 1000,
            priority: 5,
            key: b"k",
            payload: b"hi",
            queue: b"q",
        };
        assert_eq!((whole.len(), &whole), (14, &expected));
        for (byte, verb) in [
            (0x50, Verb::Pop),
            (0x73, Verb::Subscribe),
            (0x75, Verb::Unsubscribe),
        ] {
            let named = [byte, 0, 2, b'a', b'b', b'c'];
            for end in 0..5 {
                assert_eq!(first(&named[..end], 100), Frame::Part);
            }
            assert_eq!(first(&named, 100), Frame::Named(verb, b"ab"));
        }
    }

    #[test]
    fn the_head_alone_decides_what_is_unwanted() {
        let head = b"\x70\x00\x01\x03\xe8\x05\x00\x02\x00\x02";
        assert_eq!(first(head, 4), Frame::Part);
        assert_eq!(first(head, 3), Frame::Unwanted(15));
        let nameless = b"\x70\x00\x00\x03\xe8\x05\xff\xff\xff\xff";
        assert_eq!(first(nameless, 200_000), Frame::Unwanted(131_080));
    }

    #[test]
    fn every_other_byte_begins_no_frame() {
        for byte in 0..=u8::MAX {
            let known = [0x70, 0x50, 0x73, 0x75, 0x41].contains(&byte);
            assert_eq!(first(&[byte], 1) == Frame::Unknown, !known, "{byte:#x}");
        }
    }
}
