//! Quintet's JSON API over HTTP/1.1: a message a request, and `reserve` followed by `finish`. Both
//! halves of a take count as one request. Bodies are letters, which are themselves in JSON, and
//! queues' names need no encoding.

use anyhow::{Context as _, Result, bail};
use memchr::memmem;

use super::{ClientRequest, Keys, Outcome, Protocol, Reading, ReplyHead, fixed, shown, speaker};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "http",
    port: 3333,
    open: |queue, body, keys| {
        let body = String::from_utf8_lossy(body);
        let path = format!("queues/{queue}/messages");
        let put = |more: &str| {
            let message = format!(r#"{{"messages":[{{"body":"{body}{more}{TAIL}"#);
            request(&path, &message)
        };
        let take = request(&format!("queues/{queue}/reserve"), "{}");
        let Some(mut keys) = keys else {
            return speaker(fixed(put("")), take, read);
        };
        let put = put(&format!(r#"","key":"{}"#, "0".repeat(Keys::LEN)));
        let put = move |out: &mut Vec<u8>| {
            out.extend_from_slice(&put);
            let end = out.len() - TAIL.len();
            keys.write(&mut out[end - Keys::LEN..end]);
        };
        speaker(put, take, read)
    },
};

/// The end of a put, behind the body or the key.
const TAIL: &str = r#""}]}"#;
/// Fields of a head at most.
const FIELDS: usize = 32;

fn request(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn read(ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
    let Some((status, head, body)) = whole(input)? else {
        return Ok(None);
    };
    let len = body.len();
    let whole = |outcome| Ok(Some(ReplyHead::line(head + len, outcome)));
    match (ask, status) {
        (ClientRequest::Put, 201) | (ClientRequest::Settle, 204) => whole(Outcome::Done),
        (ClientRequest::Take, 200) if memmem::find(body, b"\"messages\":[]").is_some() => {
            whole(Outcome::Empty)
        }
        (ClientRequest::Take, 200) => {
            let (Some((at, text)), Some((_, lease))) =
                (member(body, b"\"body\":\""), member(body, b"\"lease\":\""))
            else {
                bail!("wrong reply: {}", shown(body));
            };
            let lease = std::str::from_utf8(lease)?;
            out.extend_from_slice(&request(&format!("leases/{lease}/finish"), ""));
            let reply = ReplyHead::reserved(head + at, text.len(), head + len);
            Ok(Some(reply))
        }
        _ => bail!("wrong reply: {}", shown(input)),
    }
}

/// Status, length of the head, and the body; `None` until all of it is there.
pub(super) fn whole(input: &[u8]) -> Result<Option<(u16, usize, &[u8])>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut reply = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = reply.parse(input)? else {
        return Ok(None);
    };
    let status = reply.code.context("no status")?;
    let len = reply
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let len: usize = match len {
        Some(field) => std::str::from_utf8(field.value)?.parse()?,
        None if status == 204 => 0,
        None => bail!("a reply without a length: {}", shown(input)),
    };
    let body = input.get(head..).and_then(|rest| rest.get(..len));
    Ok(body.map(|body| (status, head, body)))
}

/// Where the text of a member begins that `opening` opens, and the text.
pub(super) fn member<'a>(json: &'a [u8], opening: &[u8]) -> Option<(usize, &'a [u8])> {
    let at = memmem::find(json, opening)? + opening.len();
    let len = memchr::memchr(b'"', &json[at..])?;
    Some((at, &json[at..at + len]))
}
