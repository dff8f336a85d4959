//! Redis lists: `LPUSH` puts and `RPOP` takes the oldest.

use anyhow::bail;

use super::{
    ClientRequest, Fixed, Outcome, Protocol, Reading, ReplyHead, framed, line, number, shown,
};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "resp",
    port: 6379,
    open: |queue, body| {
        let name = format!("${}\r\n{queue}\r\n", queue.len());
        let put = format!("*3\r\n$5\r\nLPUSH\r\n{name}${}\r\n", body.len());
        let take = format!("*2\r\n$4\r\nRPOP\r\n{name}").into_bytes();
        let put = framed(&put, body);
        Box::new(Fixed { put, take, read })
    },
};

fn read(ask: ClientRequest, input: &[u8], _: &mut Vec<u8>) -> Reading {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    Ok(Some(match (ask, line) {
        (ClientRequest::Put, [b':', digits @ ..]) if number(digits).is_some() => {
            ReplyHead::line(head, Outcome::Done)
        }
        (ClientRequest::Take, b"$-1") => ReplyHead::line(head, Outcome::Empty),
        (ClientRequest::Take, [b'$', digits @ ..]) if let Some(body) = number(digits) => {
            ReplyHead::with_body(head, body, b"\r\n", Outcome::Done)
        }
        _ => bail!("wrong reply: {}", shown(input)),
    }))
}
