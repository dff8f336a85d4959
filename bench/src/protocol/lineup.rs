//! lineup: `PUSH` and `POP`. The queue is the listener's, so every connection
//! works on the same one.

use anyhow::{Result, bail};

use super::{ClientRequest, Outcome, Protocol, ReplyHead, Speaker, line, number, shown};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "lineup",
    port: 9876,
    open: |_, body| {
        let mut put = format!("PUSH 5 {}\r\n", body.len()).into_bytes();
        put.extend_from_slice(body);
        put.extend_from_slice(b"\r\n");
        Box::new(Lineup { put })
    },
};

struct Lineup {
    put: Vec<u8>,
}

impl Speaker for Lineup {
    fn ask(&mut self, ask: ClientRequest, out: &mut Vec<u8>) {
        let put = ask == ClientRequest::Put;
        out.extend_from_slice(if put { &self.put } else { b"POP\r\n" });
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
            (ClientRequest::Put, b"+OK") => return Ok(Some(ReplyHead::line(head, Outcome::Done))),
            (ClientRequest::Take, b"-NO_MESSAGES") => {
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
