//! Redis lists: `LPUSH` puts and `RPOP` takes the oldest.

use anyhow::{Result, bail};

use super::{ClientRequest, Outcome, Protocol, ReplyHead, Speaker, line, number, shown};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "resp",
    port: 6379,
    open: |queue, body| {
        let name = format!("${}\r\n{queue}\r\n", queue.len());
        let mut put = format!("*3\r\n$5\r\nLPUSH\r\n{name}${}\r\n", body.len()).into_bytes();
        put.extend_from_slice(body);
        put.extend_from_slice(b"\r\n");
        let take = format!("*2\r\n$4\r\nRPOP\r\n{name}").into_bytes();
        Box::new(Resp { put, take })
    },
};

struct Resp {
    put: Vec<u8>,
    take: Vec<u8>,
}

impl Speaker for Resp {
    fn ask(&mut self, ask: ClientRequest, out: &mut Vec<u8>) {
        let put = ask == ClientRequest::Put;
        out.extend_from_slice(if put { &self.put } else { &self.take });
    }

    fn read(
        &mut self,
        ask: ClientRequest,
        input: &[u8],
        _: &mut Vec<u8>,
    ) -> Result<Option<ReplyHead>> {
        let Some((line, head)) = line(input)? else {
            return Ok(None);
        };
        match (ask, line) {
            (ClientRequest::Put, [b':', digits @ ..]) if number(digits).is_some() => {
                return Ok(Some(ReplyHead::line(head, Outcome::Done)));
            }
            (ClientRequest::Take, b"$-1") => {
                return Ok(Some(ReplyHead::line(head, Outcome::Empty)));
            }
            (ClientRequest::Take, [b'$', digits @ ..]) => {
                if let Some(body) = number(digits) {
                    return Ok(Some(ReplyHead {
                        head,
                        body,
                        tail: b"\r\n",
                        rest: 0,
                        outcome: Outcome::Done,
                    }));
                }
            }
            _ => {}
        }
        bail!("wrong reply: {}", shown(input))
    }
}
