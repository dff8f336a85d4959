//! The memcache text protocol, as Darner and Kestrel give it queues: `set`
//! puts and `get` takes. memcached itself answers the same bytes, and its
//! `get` leaves the item where it is.

use anyhow::bail;

use super::{
    ClientRequest, Fixed, Outcome, Protocol, Reading, ReplyHead, framed, line, number, shown,
};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "memcache",
    port: 22133,
    open: |queue, body| {
        let put = framed(&format!("set {queue} 0 0 {}\r\n", body.len()), body);
        let take = format!("get {queue}\r\n").into_bytes();
        Box::new(Fixed { put, take, read })
    },
};

fn read(ask: ClientRequest, input: &[u8], _: &mut Vec<u8>) -> Reading {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    if ask == ClientRequest::Put && line == b"STORED" {
        return Ok(Some(ReplyHead::line(head, Outcome::Done)));
    }
    if ask == ClientRequest::Take && line == b"END" {
        return Ok(Some(ReplyHead::line(head, Outcome::Empty)));
    }
    let bytes = line
        .strip_prefix(b"VALUE ")
        .filter(|rest| {
            ask == ClientRequest::Take && rest.iter().filter(|&&b| b == b' ').count() == 2
        })
        .and_then(|rest| rest.rsplit(|&b| b == b' ').next())
        .and_then(number);
    match bytes {
        Some(body) => {
            let reply = ReplyHead::with_body(head, body, b"\r\nEND\r\n", Outcome::Done);
            Ok(Some(reply))
        }
        None => bail!("wrong reply: {}", shown(input)),
    }
}
