//! beanstalk: `put`, and `reserve-with-timeout 0` followed by `delete`. Both
//! halves of a take count as one request. Every connection works on the tube
//! `default`, as a stock worker does.

use anyhow::bail;

use super::{
    ClientRequest, Fixed, Outcome, Protocol, Reading, ReplyHead, framed, line, number, shown,
};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "beanstalk",
    port: 11300,
    open: |_, body| {
        let put = framed(&format!("put 100 0 120 {}\r\n", body.len()), body);
        let take = b"reserve-with-timeout 0\r\n".to_vec();
        Box::new(Fixed { put, take, read })
    },
};

/// [`Speaker::read`](super::Speaker::read) of anybody who speaks beanstalk.
pub(super) fn read(ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
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
        let reply = ReplyHead::with_body(head, body, b"\r\n", Outcome::Reserved);
        return Ok(Some(reply));
    }
    bail!("wrong reply: {}", shown(input))
}
