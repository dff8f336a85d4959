//! lineup: `PUSH` and `POP`. The queue is the listener's, so every connection
//! works on the same one.

use anyhow::bail;

use super::{
    ClientRequest, Fixed, Outcome, Protocol, Reading, ReplyHead, framed, line, number, shown,
};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "lineup",
    port: 9876,
    open: |_, body| {
        let put = framed(&format!("PUSH 5 {}\r\n", body.len()), body);
        let take = b"POP\r\n".to_vec();
        Box::new(Fixed { put, take, read })
    },
};

fn read(ask: ClientRequest, input: &[u8], _: &mut Vec<u8>) -> Reading {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    Ok(Some(match (ask, line) {
        (ClientRequest::Put, b"+OK") => ReplyHead::line(head, Outcome::Done),
        (ClientRequest::Take, b"-NO_MESSAGES") => ReplyHead::line(head, Outcome::Empty),
        (ClientRequest::Take, [b'$', digits @ ..]) if let Some(body) = number(digits) => {
            ReplyHead::with_body(head, body, b"\r\n", Outcome::Done)
        }
        _ => bail!("wrong reply: {}", shown(input)),
    }))
}
