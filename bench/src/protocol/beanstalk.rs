//! beanstalk: `put`, and `reserve-with-timeout 0` followed by `delete`. Both
//! halves of a take count as one request. Every connection works on the tube
//! `default`, as a stock worker does.

use anyhow::{Result, bail};

use super::{ClientRequest, Outcome, Protocol, ReplyHead, Speaker, line, number, shown};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "beanstalk",
    port: 11300,
    open: |_, body| {
        let mut put = format!("put 100 0 120 {}\r\n", body.len()).into_bytes();
        put.extend_from_slice(body);
        put.extend_from_slice(b"\r\n");
        Box::new(Beanstalk { put })
    },
};

struct Beanstalk {
    put: Vec<u8>,
}

impl Speaker for Beanstalk {
    fn ask(&mut self, ask: ClientRequest, out: &mut Vec<u8>) {
        let put = ask == ClientRequest::Put;
        let take = b"reserve-with-timeout 0\r\n";
        out.extend_from_slice(if put { &self.put } else { take });
    }

    fn read(
        &mut self,
        ask: ClientRequest,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<ReplyHead>> {
        read(ask, input, out)
    }
}

/// [`Speaker::read`] of anybody who speaks beanstalk.
pub(super) fn read(
    ask: ClientRequest,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<ReplyHead>> {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    let done = match (ask, line) {
        (ClientRequest::Put, line) if line.starts_with(b"INSERTED ") => Some(Outcome::Done),
        (ClientRequest::Settle, b"DELETED") => Some(Outcome::Done),
        (ClientRequest::Take, b"TIMED_OUT") => Some(Outcome::Empty),
        _ => None,
    };
    if let Some(outcome) = done {
        return Ok(Some(ReplyHead::line(head, outcome)));
    }
    if ask == ClientRequest::Take
        && let Some(rest) = line.strip_prefix(b"RESERVED ")
        && let Some(space) = memchr::memchr(b' ', rest)
        && let Some(body) = number(&rest[space + 1..])
    {
        out.extend_from_slice(b"delete ");
        out.extend_from_slice(&rest[..space]);
        out.extend_from_slice(b"\r\n");
        return Ok(Some(ReplyHead {
            head,
            body,
            tail: b"\r\n",
            rest: 0,
            outcome: Outcome::Reserved,
        }));
    }
    bail!("wrong reply: {}", shown(input))
}
