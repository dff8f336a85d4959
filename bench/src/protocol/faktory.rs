//! faktory: `PUSH`, and `FETCH` followed by `ACK`, which count as one request
//! together. A job's only argument is the body.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;

use super::{
    ClientRequest, Outcome, Protocol, Reading, ReplyHead, line, number, shown, speaker, welcome,
};

pub(super) const PROTOCOL: Protocol = Protocol {
    name: "faktory",
    port: 7419,
    open: |queue, body, _| {
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let (len, mut pushed) = (body.len(), 0_u64);
        let take = format!("FETCH {queue}\r\n").into_bytes();
        let (queue, body) = (queue.to_owned(), body.to_vec());
        let put = move |out: &mut Vec<u8>| {
            pushed += 1;
            // Writing to a vector cannot fail.
            write!(out, "PUSH {{\"jid\":\"{connection:08x}{pushed:08x}\",").ok();
            write!(
                out,
                "\"queue\":\"{queue}\",\"jobtype\":\"Bench\",\"args\":[\""
            )
            .ok();
            out.extend_from_slice(&body);
            out.extend_from_slice(b"\"]}\r\n");
        };
        let read = move |ask, input: &[u8], out: &mut Vec<u8>| read(ask, input, len, out);
        let hello = b"HELLO {\"v\":2}\r\n".to_vec();
        speaker(put, take, read).greeted(hello, |input| welcome(input, &WELCOME))
    },
};

/// Starts of the lines that come before the first reply.
const WELCOME: [&[u8]; 2] = [b"+HI ", b"+OK"];
/// The bytes before a job's only argument.
const ARGUMENT: &[u8] = b"\"args\":[\"";
/// So far in this process: the first half of jobs' ids.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

fn read(ask: ClientRequest, input: &[u8], body: usize, out: &mut Vec<u8>) -> Reading {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    match (ask, line) {
        (ClientRequest::Put | ClientRequest::Settle, b"+OK") => {
            return Ok(Some(ReplyHead::line(head, Outcome::Done)));
        }
        (ClientRequest::Take, b"$-1") => return Ok(Some(ReplyHead::line(head, Outcome::Empty))),
        (ClientRequest::Take, [b'$', digits @ ..]) if let Some(length) = number(digits) => {
            let whole = head + length + 2;
            if input.len() < whole {
                return Ok(None);
            }
            let job = &input[head..whole];
            let find = |text: &[u8]| memchr::memmem::find(job, text).map(|at| at + text.len());
            if let (Some(at), Some(argument)) = (find(b"\"jid\":\""), find(ARGUMENT))
                && let Some(jid) = job[at..].split(|&byte| byte == b'"').next()
                && head + argument + body < whole
            {
                for part in [b"ACK {\"jid\":\"", jid, b"\"}\r\n"] {
                    out.extend_from_slice(part);
                }
                let reply = ReplyHead::reserved(head + argument, body, whole);
                return Ok(Some(reply));
            }
        }
        _ => {}
    }
    bail!("wrong reply: {}", shown(input))
}

#[cfg(test)]
mod tests {
    use super::PROTOCOL;
    use crate::protocol::{ClientRequest, Outcome};

    #[test]
    fn a_job_is_acknowledged_by_its_id() {
        let mut speaker = (PROTOCOL.open)("q", b"abc", None);
        let mut out = Vec::new();
        speaker.ask(ClientRequest::Take, &mut out);
        assert_eq!(out, b"HELLO {\"v\":2}\r\nFETCH q\r\n");
        out.clear();
        let job = r#"{"retry":25,"jid":"12345678","args":["abc"]}"#;
        let reply = format!("+HI {{\"v\":2}}\r\n+OK\r\n${}\r\n{job}\r\n", job.len());
        for cut in 0..reply.len() {
            let read = speaker.read(ClientRequest::Take, &reply.as_bytes()[..cut], &mut out);
            assert_eq!(read.unwrap(), None, "{cut}");
        }
        let received = speaker.read(ClientRequest::Take, reply.as_bytes(), &mut out);
        let received = received.unwrap().unwrap();
        assert_eq!((received.outcome, received.body), (Outcome::Reserved, 3));
        assert_eq!(&reply[received.head..received.head + 3], "abc");
        let len = received.head + received.body + received.tail.len() + received.rest;
        assert_eq!(len, reply.len());
        assert_eq!(out, b"ACK {\"jid\":\"12345678\"}\r\n");
        out.clear();
        speaker.ask(ClientRequest::Put, &mut out);
        assert!(out.starts_with(b"PUSH {\"jid\":\"") && out.ends_with(b"[\"abc\"]}\r\n"));
    }
}
