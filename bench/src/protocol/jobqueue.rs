//! Go Job Queue: `ADD`, `RESERVE` with the shortest wait there is, `DELETE`.

use anyhow::bail;

use super::{ClientRequest, Fixed, Outcome, Protocol, Reading, ReplyHead, shown};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "jobqueue",
    port: 11223,
    open: |queue, body| {
        let mut put = [b"ADD\0", queue.as_bytes(), b"\0"].concat();
        let priority = 5_u32;
        let ttp = 60_u32;
        // A length the protocol cannot say shows in the server's reply.
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        for number in [priority, ttp, len] {
            put.extend_from_slice(&number.to_le_bytes());
        }
        put.extend_from_slice(body);
        let mut take = [b"RESERVE\0", queue.as_bytes(), b"\0"].concat();
        take.extend_from_slice(&1_u32.to_le_bytes());
        Box::new(Fixed { put, take, read })
    },
};

const RESERVED: &[u8] = b"RESERVED\0";
const STATUS: &[u8] = b"reserved\0";
/// Up to the body: word, id, priority, ttp, status and length.
const HEAD: usize = RESERVED.len() + 8 + 4 + 4 + STATUS.len() + 4;
const ID: usize = RESERVED.len();

fn read(ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
    let whole = |word: &[u8], more: usize, outcome| {
        let head = word.len() + more;
        let there = input.len() >= head;
        there.then_some(ReplyHead::line(head, outcome))
    };
    match ask {
        ClientRequest::Put if begins(input, b"ADDED\0") => Ok(whole(b"ADDED\0", 8, Outcome::Done)),
        ClientRequest::Settle if begins(input, b"OK\0") => Ok(whole(b"OK\0", 0, Outcome::Done)),
        ClientRequest::Take if begins(input, b"TIMEOUT\0") => {
            Ok(whole(b"TIMEOUT\0", 0, Outcome::Empty))
        }
        ClientRequest::Take if begins(input, RESERVED) => {
            let Some(head) = input.first_chunk::<HEAD>() else {
                return Ok(None);
            };
            let Some(len) = head.last_chunk() else {
                bail!("wrong reply: {}", shown(input))
            };
            out.extend_from_slice(b"DELETE\0");
            out.extend_from_slice(&head[ID..ID + 8]);
            let body = u32::from_le_bytes(*len) as usize;
            let reply = ReplyHead::with_body(HEAD, body, b"", Outcome::Reserved);
            Ok(Some(reply))
        }
        _ => bail!("wrong reply: {}", shown(input)),
    }
}

/// True if this may be the beginning of such a reply.
fn begins(input: &[u8], word: &[u8]) -> bool {
    let common = input.len().min(word.len());
    input[..common] == word[..common]
}
