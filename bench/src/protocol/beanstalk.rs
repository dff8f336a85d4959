//! beanstalk: `put`, and `reserve-with-timeout 0` followed by `delete`. Both
//! halves of a take count as one request.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ClientRequest::{Put, Settle, Take};
use super::Outcome::{Done, Empty, Reserved};
use super::{ClientRequest, Protocol, Reading, by_line, fixed, framed, number, speaker, welcome};

/// Every connection works on the tube `default`, as a stock worker does.
pub(super) const DEFAULT_TUBE: Protocol = Protocol {
    name: "beanstalk",
    port: 11300,
    open: |_, body, _| {
        let put = framed(&format!("put 100 0 120 {}\r\n", body.len()), body);
        speaker(fixed(put), TAKE.to_vec(), read)
    },
};

/// A tube for each queue, and one of a hundred priorities, at random, for each job.
pub(super) const PRIORITIES: Protocol = Protocol {
    name: "beanstalk-priorities",
    port: 11300,
    open: |queue, body, _| {
        // A put behind its priority.
        let tail = framed(&format!(" 0 120 {}\r\n", body.len()), body);
        let mut random = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let put = move |out: &mut Vec<u8>| {
            // Writing to a vector cannot fail.
            write!(out, "put {}", next(&mut random) % PRIORITY_COUNT).ok();
            out.extend_from_slice(&tail);
        };
        let greeting = format!("use {queue}\r\nwatch {queue}\r\nignore default\r\n");
        let speaker = speaker(put, TAKE.to_vec(), read);
        speaker.greeted(greeting.into_bytes(), |input| welcome(input, &WELCOME))
    },
};

const TAKE: &[u8] = b"reserve-with-timeout 0\r\n";
/// Priorities there are, from 0.
const PRIORITY_COUNT: u64 = 100;
/// Starts of the lines that answer the greeting.
const WELCOME: [&[u8]; 3] = [b"USING ", b"WATCHING 2", b"WATCHING 1"];
/// So far in this process: each has its own row of priorities.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn read(ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
    by_line(input, b"\r\n", |line| match (ask, line) {
        (Put, line) => line.starts_with(b"INSERTED ").then_some((Done, None)),
        (Settle, line) => (line == b"DELETED").then_some((Done, None)),
        (Take, b"TIMED_OUT") => Some((Empty, None)),
        (Take, line) => {
            let rest = line.strip_prefix(b"RESERVED ")?;
            let space = memchr::memchr(b' ', rest)?;
            let body = number(&rest[space + 1..])?;
            for part in [b"delete ", &rest[..space], b"\r\n"] {
                out.extend_from_slice(part);
            }
            Some((Reserved, Some(body)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{PRIORITIES, PRIORITY_COUNT};
    use crate::protocol::ClientRequest;

    #[test]
    fn a_tube_of_its_own_and_every_priority() {
        let mut speaker = (PRIORITIES.open)("q", b"abc", None);
        let mut out = Vec::new();
        speaker.ask(ClientRequest::Take, &mut out);
        assert_eq!(
            out,
            b"use q\r\nwatch q\r\nignore default\r\nreserve-with-timeout 0\r\n"
        );
        let mut seen = [false; PRIORITY_COUNT as usize];
        for _ in 0..10_000 {
            out.clear();
            speaker.ask(ClientRequest::Put, &mut out);
            let text = std::str::from_utf8(&out).unwrap();
            let priority = text.strip_prefix("put ").unwrap();
            let priority = priority.strip_suffix(" 0 120 3\r\nabc\r\n").unwrap();
            seen[priority.parse::<usize>().unwrap()] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
