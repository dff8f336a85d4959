//! pinpriq: push and pop. A push has no reply; behind each goes a pop of the
//! queue without a name, which is always empty and whose reply says that the
//! push was decided and, as far as the server syncs, stored. Each packet has a
//! key of its own, so that a pop gets one.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;

use super::{ClientRequest, Outcome, Protocol, Reading, ReplyHead, shown, speaker};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "pinpriq",
    port: 7050,
    open: |queue, body, _| {
        let pop = |name: &[u8]| [&[0x50_u8][..], &length(name.len()), name].concat();
        let mut next = KEYS.fetch_add(1 << 32, Ordering::Relaxed);
        let tail = [body, queue.as_bytes(), pop(b"").as_slice()].concat();
        let (queue_bytes, body_bytes) = (length(queue.len()), length(body.len()));
        let put = move |out: &mut Vec<u8>| {
            out.push(0x70);
            out.extend_from_slice(&queue_bytes);
            // No time to live; priority 5.
            out.extend_from_slice(&[0, 0, 5]);
            out.extend_from_slice(&length(KEY));
            out.extend_from_slice(&body_bytes);
            out.extend_from_slice(&next.to_be_bytes());
            out.extend_from_slice(&tail);
            next += 1;
        };
        speaker(put, pop(queue.as_bytes()), read)
    },
};

/// Where the next connection's keys begin.
static KEYS: AtomicU64 = AtomicU64::new(0);

/// Bytes of a key.
const KEY: usize = 8;
/// Bytes of a group of one before its payload: count, lengths, key.
const HEAD: usize = 6 + KEY;

/// The longest payload a packet can carry, bytes.
pub(crate) const PAYLOAD_MAX: usize = 65_535;

/// A 16-bit length, of what is no longer than that.
fn length(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}

fn read(ask: ClientRequest, input: &[u8], _: &mut Vec<u8>) -> Reading {
    let Some(count) = input.first_chunk::<2>() else {
        return Ok(None);
    };
    match (ask, count) {
        (ClientRequest::Put, [0, 0]) => Ok(Some(ReplyHead::line(2, Outcome::Done))),
        (ClientRequest::Take, [0, 0]) => Ok(Some(ReplyHead::line(2, Outcome::Empty))),
        (ClientRequest::Take, [0, 1]) => match input.first_chunk::<HEAD>() {
            None => Ok(None),
            Some(&[_, _, 0, 8, high, low, ..]) => {
                let body = usize::from(u16::from_be_bytes([high, low]));
                Ok(Some(ReplyHead::with_body(HEAD, body, b"", Outcome::Done)))
            }
            Some(head) => bail!("a packet with another key: {}", shown(head)),
        },
        _ => bail!("wrong reply: {}", shown(input)),
    }
}
