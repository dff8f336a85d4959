//! beanstalk as [`beanstalk`](super::beanstalk) speaks it, with a tube for
//! each queue and one of a hundred priorities, at random, for each job.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ClientRequest, Protocol, Reading, ReplyHead, Speaker, beanstalk, framed, welcome};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "beanstalk-priorities",
    port: 11300,
    open: |queue, body| {
        Box::new(Priorities {
            greeting: format!("use {queue}\r\nwatch {queue}\r\nignore default\r\n").into_bytes(),
            greeted: false,
            tail: framed(&format!(" 0 120 {}\r\n", body.len()), body),
            random: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        })
    },
};

/// Priorities there are, from 0.
const PRIORITIES: u64 = 100;
/// Starts of the lines that answer the greeting.
const WELCOME: [&[u8]; 3] = [b"USING ", b"WATCHING 2", b"WATCHING 1"];
/// So far in this process: each has its own row of priorities.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

struct Priorities {
    /// Bytes before the first request; empty once they went.
    greeting: Vec<u8>,
    /// Its answers came.
    greeted: bool,
    /// A put behind its priority.
    tail: Vec<u8>,
    random: u64,
}

impl Priorities {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn priority(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % PRIORITIES
    }
}

impl Speaker for Priorities {
    fn ask(&mut self, ask: ClientRequest, out: &mut Vec<u8>) {
        out.append(&mut self.greeting);
        if ask == ClientRequest::Put {
            // Writing to a vector cannot fail.
            write!(out, "put {}", self.priority()).ok();
            out.extend_from_slice(&self.tail);
        } else {
            out.extend_from_slice(b"reserve-with-timeout 0\r\n");
        }
    }

    fn read(&mut self, ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
        let starts: &[&[u8]] = if self.greeted { &[] } else { &WELCOME };
        let Some(used) = welcome(input, starts)? else {
            return Ok(None);
        };
        let Some(reply) = beanstalk::read(ask, &input[used..], out)? else {
            return Ok(None);
        };
        self.greeted = true;
        let head = used + reply.head;
        Ok(Some(ReplyHead { head, ..reply }))
    }
}

#[cfg(test)]
mod tests {
    use super::{PRIORITIES, PROTOCOL};
    use crate::protocol::ClientRequest;

    #[test]
    fn a_tube_of_its_own_and_every_priority() {
        let mut speaker = (PROTOCOL.open)("q", b"abc");
        let mut out = Vec::new();
        speaker.ask(ClientRequest::Take, &mut out);
        assert_eq!(
            out,
            b"use q\r\nwatch q\r\nignore default\r\nreserve-with-timeout 0\r\n"
        );
        let mut seen = [false; PRIORITIES as usize];
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
