//! Bytes that come back as they are: what the machine, the sockets and the
//! loop alone can do. A put and a take are the same.

use super::{ClientRequest, Outcome, Protocol, Reading, ReplyHead, Speaker};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "echo",
    port: 7,
    open: |_, body| {
        let body = body.to_vec();
        Box::new(Echo { body })
    },
};

struct Echo {
    body: Vec<u8>,
}

impl Speaker for Echo {
    fn ask(&mut self, _: ClientRequest, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }

    fn read(&mut self, _: ClientRequest, input: &[u8], _: &mut Vec<u8>) -> Reading {
        let whole = ReplyHead::with_body(0, self.body.len(), b"", Outcome::Done);
        Ok((!input.is_empty()).then_some(whole))
    }
}
