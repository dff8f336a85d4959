//! The memcache text protocol, as Darner and Kestrel give it queues: `set`
//! puts and `get` takes. memcached itself answers the same bytes, and its
//! `get` leaves the item where it is.

use anyhow::{Result, bail};

use super::{ClientRequest, Outcome, Protocol, ReplyHead, Speaker, line, number, shown};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "memcache",
    port: 22133,
    open: |queue, body| {
        let mut put = format!("set {queue} 0 0 {}\r\n", body.len()).into_bytes();
        put.extend_from_slice(body);
        put.extend_from_slice(b"\r\n");
        let take = format!("get {queue}\r\n").into_bytes();
        Box::new(Memcache { put, take })
    },
};

struct Memcache {
    put: Vec<u8>,
    take: Vec<u8>,
}

impl Speaker for Memcache {
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
            Some(body) => Ok(Some(ReplyHead {
                head,
                body,
                tail: b"\r\nEND\r\n",
                rest: 0,
                outcome: Outcome::Done,
            })),
            None => bail!("wrong reply: {}", shown(input)),
        }
    }
}
