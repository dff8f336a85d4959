//! Protocols whose requests are always the same bytes.

use anyhow::{bail, ensure};

use super::ClientRequest::{Put, Settle, Take};
use super::Outcome::{Done, Empty, Reserved};
use super::{
    ClientRequest, Line, Protocol, Reading, ReplyHead, by_line, fixed, framed, number, shown,
    speaker,
};

/// The memcache text protocol, as Darner and Kestrel give it queues: `set` puts and `get` takes.
/// memcached itself answers the same bytes, and its `get` leaves the item where it is.
pub(super) const MEMCACHE: Protocol = Protocol {
    name: "memcache",
    port: 22133,
    open: |queue, body, _| {
        let put = framed(&format!("set {queue} 0 0 {}\r\n", body.len()), body);
        let take = format!("get {queue}\r\n").into_bytes();
        speaker(fixed(put), take, |ask, input, _| {
            by_line(input, b"\r\nEND\r\n", |line| match (ask, line) {
                (Put, b"STORED") => Some((Done, None)),
                (Take, b"END") => Some((Empty, None)),
                (Take, line) => {
                    let mut words = line.strip_prefix(b"VALUE ")?.split(|&b| b == b' ');
                    let body = words.nth(2).and_then(number)?;
                    words.next().is_none().then_some((Done, Some(body)))
                }
                (Put | Settle, _) => None,
            })
        })
    },
};

/// lineup: `PUSH` and `POP`. The queue is the listener's, so every connection works on the same one.
pub(super) const LINEUP: Protocol = Protocol {
    name: "lineup",
    port: 9876,
    open: |_, body, _| {
        let put = framed(&format!("PUSH 5 {}\r\n", body.len()), body);
        speaker(fixed(put), b"POP\r\n".to_vec(), |ask, input, _| {
            by_line(input, b"\r\n", |line| match (ask, line) {
                (Put, b"+OK") => Some((Done, None)),
                (Take, b"-NO_MESSAGES") => Some((Empty, None)),
                _ => bulk(ask, line),
            })
        })
    },
};

/// Redis lists: `LPUSH` puts and `RPOP` takes the oldest.
pub(super) const RESP: Protocol = Protocol {
    name: "resp",
    port: 6379,
    open: |queue, body, _| {
        let name = format!("${}\r\n{queue}\r\n", queue.len());
        let put = format!("*3\r\n$5\r\nLPUSH\r\n{name}${}\r\n", body.len());
        let take = format!("*2\r\n$4\r\nRPOP\r\n{name}").into_bytes();
        speaker(fixed(framed(&put, body)), take, |ask, input, _| {
            by_line(input, b"\r\n", |line| match (ask, line) {
                (Put, [b':', digits @ ..]) => number(digits).map(|_| (Done, None)),
                (Take, b"$-1") => Some((Empty, None)),
                _ => bulk(ask, line),
            })
        })
    },
};

/// The bulk string that a take got.
fn bulk(ask: ClientRequest, line: &[u8]) -> Option<Line> {
    let body = number(line.strip_prefix(b"$")?)?;
    (ask == Take).then_some((Done, Some(body)))
}

/// Bytes that come back as they are: what the machine, the sockets and the loop alone can do. A put
/// and a take are the same.
pub(super) const ECHO: Protocol = Protocol {
    name: "echo",
    port: 7,
    open: |_, body, _| {
        let whole = ReplyHead::with_body(0, body.len(), b"", Done);
        speaker(fixed(body.to_vec()), body.to_vec(), move |_, input, _| {
            Ok((!input.is_empty()).then_some(whole))
        })
    },
};

/// Go Job Queue: `ADD`, `RESERVE` with the shortest wait there is, `DELETE`.
pub(super) const JOBQUEUE: Protocol = Protocol {
    name: "jobqueue",
    port: 11223,
    open: |queue, body, _| {
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
        speaker(fixed(put), take, read_job)
    },
};

const RESERVED: &[u8] = b"RESERVED\0";
/// Up to the body: word, id, priority, ttp, status and length.
const HEAD: usize = RESERVED.len() + 8 + 4 + 4 + b"reserved\0".len() + 4;

fn read_job(ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
    let (word, more, outcome): (&[u8], _, _) = match ask {
        Put => (b"ADDED\0", 8, Done),
        Settle => (b"OK\0", 0, Done),
        Take if begins(input, RESERVED) => {
            let Some(head) = input.first_chunk::<HEAD>() else {
                return Ok(None);
            };
            let Some(len) = head.last_chunk() else {
                bail!("wrong reply: {}", shown(input))
            };
            out.extend_from_slice(b"DELETE\0");
            out.extend_from_slice(&head[RESERVED.len()..][..8]);
            let body = u32::from_le_bytes(*len) as usize;
            let reply = ReplyHead::with_body(HEAD, body, b"", Reserved);
            return Ok(Some(reply));
        }
        Take => (b"TIMEOUT\0", 0, Empty),
    };
    ensure!(begins(input, word), "wrong reply: {}", shown(input));
    let head = word.len() + more;
    Ok((input.len() >= head).then_some(ReplyHead::line(head, outcome)))
}

/// True if this may be the beginning of such a reply.
fn begins(input: &[u8], word: &[u8]) -> bool {
    let common = input.len().min(word.len());
    input[..common] == word[..common]
}
