//! The client's side of each protocol, as the generator needs it: bytes of a
//! put and of a take, and where their replies end. No socket and no clock.
//!
//! A new protocol is a file here and a line in [`PROTOCOLS`].

mod beanstalk;
mod faktory;
mod http;
pub(crate) mod pinpriq;
mod plain;
pub(crate) mod sqs;

use anyhow::{Context as _, Result, bail, ensure};

/// Every protocol the generator speaks.
pub const PROTOCOLS: &[Protocol] = &[
    plain::MEMCACHE,
    plain::LINEUP,
    plain::JOBQUEUE,
    beanstalk::DEFAULT_TUBE,
    faktory::PROTOCOL,
    beanstalk::PRIORITIES,
    plain::RESP,
    pinpriq::PROTOCOL,
    http::PROTOCOL,
    sqs::ONE,
    sqs::TEN,
    plain::ECHO,
];

/// A protocol that the benchmark can speak, with its requests and replies.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// As the command line names it.
    pub name: &'static str,
    /// Port its servers listen on unless told otherwise.
    pub port: u16,
    /// The state of one connection that works on `queue` with bodies `body`. Only `http` gives
    /// messages keys.
    pub open: fn(queue: &str, body: &[u8], keys: Option<Keys>) -> Speaker,
}

impl Protocol {
    /// The protocol of this name.
    ///
    /// # Errors
    /// A sentence that names all there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let mut all = PROTOCOLS.iter();
        all.find(|one| one.name == name).copied().ok_or_else(|| {
            let names: Vec<&str> = PROTOCOLS.iter().map(|one| one.name).collect();
            format!("no protocol \"{name}\"; there are {}", names.join(", "))
        })
    }
}

/// A request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// Put a message.
    Put,
    Take,
    /// The second half of a take, in protocols where a message is reserved
    /// and then settled.
    Settle,
}

/// Meaning of a reply for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done; a take has got a message.
    Done,
    /// The take found nothing.
    Empty,
    /// The first half of a take is done, and the settle was written: its
    /// reply comes after those that are awaited now.
    Reserved,
}

/// A reply whose head was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// Bytes up to the body.
    pub head: usize,
    /// Bytes of the body that follows.
    pub body: usize,
    /// The bytes behind the body.
    pub tail: &'static [u8],
    /// Bytes of the reply after that, whatever they are.
    pub rest: usize,
    /// Its meaning.
    pub outcome: Outcome,
}

impl ReplyHead {
    /// A reply of `head` bytes without a body.
    fn line(head: usize, outcome: Outcome) -> Self {
        Self::with_body(head, 0, b"", outcome)
    }

    /// A reply of `whole` bytes, of which a JSON string of `body` bytes begins at `head`.
    fn reserved(head: usize, body: usize, whole: usize) -> Self {
        Self {
            rest: whole - head - body - 1,
            ..Self::with_body(head, body, b"\"", Outcome::Reserved)
        }
    }

    /// A reply of `head` bytes, a body of so many, and `tail`.
    fn with_body(head: usize, body: usize, tail: &'static [u8], outcome: Outcome) -> Self {
        Self {
            head,
            body,
            tail,
            rest: 0,
            outcome,
        }
    }
}

/// The head of a reply, or `None` until all of it is there.
type Reading = Result<Option<ReplyHead>>;

/// Length of the server's greeting, if all of it is there.
type Welcome = fn(&[u8]) -> Result<Option<usize>>;
/// Appends a put.
type Put = dyn FnMut(&mut Vec<u8>) + Send;
/// [`Speaker::read`].
type Read = dyn FnMut(ClientRequest, &[u8], &mut Vec<u8>) -> Reading + Send;

/// One connection's half of a conversation.
pub struct Speaker {
    /// Sent before the first request; empty once it went.
    greeting: Vec<u8>,
    /// Length of its answers, as [`welcome`]; `None` once they came.
    welcome: Option<Welcome>,
    put: Box<Put>,
    take: Vec<u8>,
    read: Box<Read>,
}

impl Speaker {
    /// Appends the bytes of a put or a take to `out`.
    pub fn ask(&mut self, ask: ClientRequest, out: &mut Vec<u8>) {
        out.append(&mut self.greeting);
        match ask == ClientRequest::Put {
            true => (self.put)(out),
            false => out.extend_from_slice(&self.take),
        }
    }

    /// Reads the head of the reply to `ask` at the start of `input`; `None`
    /// until all of it is there. May append a settle to `out`.
    ///
    /// # Errors
    /// The reply is none that a working server gives.
    pub fn read(&mut self, ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
        let Some(used) = self.welcome.map_or(Ok(Some(0)), |welcome| welcome(input))? else {
            return Ok(None);
        };
        let Some(reply) = (self.read)(ask, &input[used..], out)? else {
            return Ok(None);
        };
        self.welcome = None;
        let head = used + reply.head;
        Ok(Some(ReplyHead { head, ..reply }))
    }

    /// The same, with a greeting before its first request.
    fn greeted(self, greeting: Vec<u8>, welcome: Welcome) -> Self {
        Self {
            greeting,
            welcome: Some(welcome),
            ..self
        }
    }
}

/// A speaker whose takes are always the same bytes.
fn speaker(
    put: impl FnMut(&mut Vec<u8>) + Send + 'static,
    take: Vec<u8>,
    read: impl FnMut(ClientRequest, &[u8], &mut Vec<u8>) -> Reading + Send + 'static,
) -> Speaker {
    Speaker {
        greeting: Vec::new(),
        welcome: None,
        put: Box::new(put),
        take,
        read: Box::new(read),
    }
}

/// A put that is always the same bytes.
fn fixed(put: Vec<u8>) -> impl FnMut(&mut Vec<u8>) + Send + 'static {
    move |out: &mut Vec<u8>| out.extend_from_slice(&put)
}

/// The keys of one connection's messages: all of so many, in turn.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    next: u64,
    of: u64,
}

impl Keys {
    /// Bytes of a key.
    const LEN: usize = 12;

    /// Of `of` keys, from the one of this number on.
    #[must_use]
    pub fn new(first: u64, of: u64) -> Self {
        Self {
            next: first % of,
            of,
        }
    }

    /// Writes the next one, which is digits.
    fn write(&mut self, to: &mut [u8]) {
        let mut number = self.next;
        for digit in to.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.next = (self.next + 1) % self.of;
    }
}

/// Heads of replies are shorter than this in every protocol here, bytes.
const HEAD_BYTES_MAX: usize = 1024;

/// The line at the start of `input` without its CR LF, and its length with
/// it; `None` until it is whole.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>> {
    match memchr::memchr(b'\n', &input[..input.len().min(HEAD_BYTES_MAX)]) {
        Some(end) => match input[..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, end + 1))),
            None => bail!("a line without CR: {}", shown(input)),
        },
        None if input.len() >= HEAD_BYTES_MAX => bail!("no reply: {}", shown(input)),
        None => Ok(None),
    }
}

/// Meaning of a line, and bytes of the body that follows it, if one does.
type Line = (Outcome, Option<usize>);

/// A reply that begins with a line, and ends with `tail` if it has a body. `meaning` answers `None`
/// for a line that no working server sends.
fn by_line(
    input: &[u8],
    tail: &'static [u8],
    meaning: impl FnOnce(&[u8]) -> Option<Line>,
) -> Reading {
    let Some((line, head)) = line(input)? else {
        return Ok(None);
    };
    let meaning = meaning(line);
    let (outcome, body) = meaning.with_context(|| format!("wrong reply: {}", shown(input)))?;
    let reply = match body {
        Some(body) => ReplyHead::with_body(head, body, tail, outcome),
        None => ReplyHead::line(head, outcome),
    };
    Ok(Some(reply))
}

/// A line, a body and the end of line behind it.
fn framed(line: &str, body: &[u8]) -> Vec<u8> {
    [line.as_bytes(), body, b"\r\n"].concat()
}

/// Length of the lines that begin with these, one after the other; `None` until all are there.
fn welcome(input: &[u8], starts: &[&[u8]]) -> Result<Option<usize>> {
    let mut used = 0;
    for start in starts {
        let Some((line, length)) = line(&input[used..])? else {
            return Ok(None);
        };
        let fits = line.starts_with(start);
        ensure!(fits, "wrong reply: {}", shown(&input[used..]));
        used += length;
    }
    Ok(Some(used))
}

/// Decimal digits as a number of bytes.
fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The start of some bytes for an error message.
fn shown(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    format!("{start:?}")
}

#[cfg(test)]
mod tests {
    use super::{ClientRequest, Keys, Outcome, PROTOCOLS, Protocol};

    /// A reply is found at its last byte, however it is cut.
    #[track_caller]
    fn check(protocol: &str, ask: ClientRequest, reply: &str, outcome: Outcome, body: usize) {
        let protocol = Protocol::named(protocol).unwrap();
        let mut speaker = (protocol.open)("q", b"abc", None);
        let (mut out, mut found) = (Vec::new(), None);
        for end in 0..=reply.len() {
            found = speaker
                .read(ask, &reply.as_bytes()[..end], &mut out)
                .unwrap();
            if found.is_some() {
                break;
            }
        }
        let found = found.expect("a whole reply");
        assert_eq!((found.outcome, found.body), (outcome, body));
        assert_eq!(
            found.head + found.body + found.tail.len() + found.rest,
            reply.len()
        );
        let end = reply.len() - found.rest;
        assert!(reply.as_bytes()[..end].ends_with(found.tail));
    }

    #[test]
    fn replies_end_where_they_end() {
        use ClientRequest::{Put, Settle, Take};
        use Outcome::{Done, Empty, Reserved};
        for (protocol, ask, reply, outcome, body) in [
            ("memcache", Put, "STORED\r\n", Done, 0),
            ("memcache", Take, "VALUE q 0 3\r\nabc\r\nEND\r\n", Done, 3),
            ("memcache", Take, "END\r\n", Empty, 0),
            ("lineup", Put, "+OK\r\n", Done, 0),
            ("lineup", Take, "$3\r\nabc\r\n", Done, 3),
            ("lineup", Take, "-NO_MESSAGES\r\n", Empty, 0),
            ("resp", Put, ":17\r\n", Done, 0),
            ("resp", Take, "$3\r\nabc\r\n", Done, 3),
            ("resp", Take, "$-1\r\n", Empty, 0),
            ("beanstalk", Put, "INSERTED 7\r\n", Done, 0),
            ("beanstalk", Take, "RESERVED 7 3\r\nabc\r\n", Reserved, 3),
            ("beanstalk", Take, "TIMED_OUT\r\n", Empty, 0),
            ("beanstalk", Settle, "DELETED\r\n", Done, 0),
            (
                "beanstalk-priorities",
                Put,
                "USING q\r\nWATCHING 2\r\nWATCHING 1\r\nINSERTED 7\r\n",
                Done,
                0,
            ),
            ("pinpriq", Put, "\0\0", Done, 0),
            ("pinpriq", Take, "\0\x01\0\x08\0\x0312345678abc", Done, 3),
            ("pinpriq", Take, "\0\0", Empty, 0),
            ("jobqueue", Put, "ADDED\0iiiiiiii", Done, 0),
            (
                "jobqueue",
                Take,
                "RESERVED\0iiiiiiiippppttttreserved\0\x03\0\0\0abc",
                Reserved,
                3,
            ),
            ("jobqueue", Take, "TIMEOUT\0", Empty, 0),
            ("jobqueue", Settle, "OK\0", Done, 0),
            (
                "http",
                Put,
                "HTTP/1.1 201 Created\r\ncontent-length: 11\r\n\r\n{\"ids\":[1]}",
                Done,
                0,
            ),
            (
                "http",
                Take,
                "HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n[{\"body\":\"abc\",\"lease\":\"1.2-3l\",\"a\":0}]",
                Reserved,
                3,
            ),
            (
                "http",
                Take,
                "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"messages\":[]}",
                Empty,
                0,
            ),
            ("http", Settle, "HTTP/1.1 204 No Content\r\n\r\n", Done, 0),
            ("echo", Put, "abc", Done, 3),
            ("echo", Take, "abc", Done, 3),
        ] {
            check(protocol, ask, reply, outcome, body);
        }
    }

    #[test]
    fn a_wrong_reply_is_an_error() {
        for (protocol, ask, reply) in [
            (
                "memcache",
                ClientRequest::Put,
                "SERVER_ERROR out of memory\r\n",
            ),
            ("memcache", ClientRequest::Take, "VALUE q 0\r\n"),
            ("lineup", ClientRequest::Put, "-MESSAGE_TOO_LARGE\r\n"),
            ("resp", ClientRequest::Put, "-WRONGTYPE no list\r\n"),
            ("resp", ClientRequest::Take, "$x\r\n"),
            ("pinpriq", ClientRequest::Put, "\0\x01"),
            ("pinpriq", ClientRequest::Take, "\0\x02"),
            (
                "pinpriq",
                ClientRequest::Take,
                "\0\x01\0\0\0\x0312345678abc",
            ),
            ("beanstalk", ClientRequest::Put, "OUT_OF_MEMORY\r\n"),
            ("beanstalk-priorities", ClientRequest::Put, "INSERTED 7\r\n"),
            ("beanstalk", ClientRequest::Settle, "NOT_FOUND\r\n"),
            ("jobqueue", ClientRequest::Put, "ERROR\0Queue full\0"),
            (
                "http",
                ClientRequest::Put,
                "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            ),
            ("http", ClientRequest::Put, "HTTP/1.1 201 Created\r\n\r\n"),
            (
                "http",
                ClientRequest::Settle,
                "HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n",
            ),
            (
                "http",
                ClientRequest::Take,
                "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"body\":\"a\"}",
            ),
            (
                "jobqueue",
                ClientRequest::Settle,
                "ERROR\0Job 7 already deleted\0",
            ),
        ] {
            let mut speaker = (Protocol::named(protocol).unwrap().open)("q", b"abc", None);
            let read = speaker.read(ask, reply.as_bytes(), &mut Vec::new());
            assert!(read.is_err(), "{protocol}: {reply}");
        }
    }

    #[test]
    fn names_are_found_and_unknown_ones_are_errors() {
        for protocol in PROTOCOLS {
            assert_eq!(Protocol::named(protocol.name).unwrap().port, protocol.port);
        }
        let error = Protocol::named("amqp").unwrap_err();
        assert!(error.contains("memcache"), "{error}");
    }

    #[test]
    fn messages_get_keys_in_turn() {
        let keys = Some(Keys::new(3, 2));
        let mut speaker = (Protocol::named("http").unwrap().open)("q", b"abc", keys);
        let mut out = Vec::new();
        let mut keys = Vec::new();
        for _ in 0..3 {
            out.clear();
            speaker.ask(ClientRequest::Put, &mut out);
            let text = String::from_utf8(out.clone()).unwrap();
            let (head, json) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.ends_with(&format!("Content-Length: {}", json.len())),
                "{head}"
            );
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            keys.push(json["messages"][0]["key"].as_str().unwrap().to_owned());
        }
        assert_eq!(keys, ["000000000001", "000000000000", "000000000001"]);
    }

    #[test]
    fn a_settle_names_the_job() {
        let mut speaker = (Protocol::named("beanstalk").unwrap().open)("q", b"abc", None);
        let mut out = Vec::new();
        let reply = b"RESERVED 42 3\r\n";
        speaker.read(ClientRequest::Take, reply, &mut out).unwrap();
        assert_eq!(out, b"delete 42\r\n");

        let mut speaker = (Protocol::named("http").unwrap().open)("q", b"abc", None);
        let mut out = Vec::new();
        let reply =
            b"HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{\"body\":\"abc\",\"lease\":\"1.2\"}";
        speaker.read(ClientRequest::Take, reply, &mut out).unwrap();
        assert!(out.starts_with(b"POST /api/v1/leases/1.2/finish HTTP/1.1\r\n"));

        let mut speaker = (Protocol::named("jobqueue").unwrap().open)("q", b"abc", None);
        let mut out = Vec::new();
        let reply = b"RESERVED\x0012345678ppppttttreserved\0\x03\0\0\0";
        speaker.read(ClientRequest::Take, reply, &mut out).unwrap();
        assert_eq!(out, b"DELETE\x0012345678");
    }
}
