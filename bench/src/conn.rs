//! One connection under load: what is on its way, and what came back.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use mio::{Registry, Token};
use quintet_tls::Scratch;

use crate::protocol::{ClientRequest, Outcome, Speaker};
use crate::stream::Stream;

/// A request that was written.
struct Flight {
    ask: ClientRequest,
    /// When it was meant to leave, nanoseconds since the start; `None`: it is
    /// not part of the load.
    from: Option<u64>,
}

/// A reply that came.
pub(crate) struct Landed {
    /// Otherwise a take; a settle ends its take.
    pub(crate) is_put: bool,
    pub(crate) empty: bool,
    /// When its request was meant to leave, nanoseconds since the start;
    /// `None`: it is not part of the load.
    pub(crate) from: Option<u64>,
}

pub(crate) struct Conn {
    stream: Stream,
    speaker: Speaker,
    /// Every message is this one.
    body: Arc<[u8]>,
    out: Vec<u8>,
    sent: usize,
    token: Token,
    /// Set when the socket took less than there was: from then on room to write is an event.
    watches_writable: bool,
    /// The start of a reply whose head is not whole.
    partial: Vec<u8>,
    flights: VecDeque<Flight>,
    /// A reply whose body is still coming, and how many bytes of it.
    coming: Option<(Outcome, usize)>,
    /// Requests of this connection so far.
    pub(crate) requested: u64,
    /// It waits in the row of those with room for a request.
    pub(crate) in_row: bool,
}

impl Conn {
    pub(crate) fn new(stream: Stream, speaker: Speaker, body: Arc<[u8]>) -> Self {
        Self {
            stream,
            speaker,
            body,
            out: Vec::new(),
            sent: 0,
            token: Token(0),
            watches_writable: false,
            partial: Vec::new(),
            flights: VecDeque::new(),
            coming: None,
            requested: 0,
            in_row: false,
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> Result<()> {
        self.token = token;
        let registered = self.stream.register(registry, token);
        registered.context("cannot watch a connection")
    }

    /// Requests without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// A message was taken, and its settle has no reply.
    pub(crate) fn is_settling(&self) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|flight| flight.ask == ClientRequest::Settle)
    }

    /// From now on it speaks as this one.
    pub(crate) fn speak_as(&mut self, speaker: Speaker) {
        self.speaker = speaker;
    }

    /// When the requests without a reply were meant to leave.
    pub(crate) fn waiting_since(&self) -> impl Iterator<Item = u64> {
        self.flights.iter().filter_map(|flight| flight.from)
    }

    /// Writes a request into the output.
    pub(crate) fn ask(&mut self, ask: ClientRequest, from: u64) {
        self.push(ask, Some(from));
        self.requested += 1;
    }

    /// Takes `takes` messages outside of the load.
    pub(crate) fn clean_up(&mut self, takes: u64) {
        for _ in 0..takes {
            self.push(ClientRequest::Take, None);
        }
    }

    fn push(&mut self, ask: ClientRequest, from: Option<u64>) {
        self.speaker.ask(ask, &mut self.out);
        self.flights.push_back(Flight { ask, from });
    }

    /// Sends what the socket takes. The rest goes when it is writable.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn flush(&mut self, registry: &Registry, records: &mut Scratch) -> Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..], records) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !std::mem::replace(&mut self.watches_writable, true) {
                        let watched = self.stream.watch_writable(registry, self.token);
                        watched.context("cannot watch a connection")?;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads until there is no more and shows each whole reply to `landed`.
    ///
    /// # Errors
    /// The connection ended, or a reply is wrong.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        records: &mut Scratch,
        landed: &mut dyn FnMut(Landed),
    ) -> Result<()> {
        loop {
            match self.stream.read(buffer, records) {
                Ok((0, _)) => bail!("the server closed a connection"),
                Ok((count, more)) => {
                    self.take_in(&buffer[..count], landed)?;
                    if !more {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }

    fn take_in(&mut self, input: &[u8], landed: &mut dyn FnMut(Landed)) -> Result<()> {
        if self.partial.is_empty() {
            let used = self.read_replies(input, landed)?;
            self.partial.extend_from_slice(&input[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(input);
            let used = self.read_replies(&joined, landed)?;
            joined.drain(..used);
            self.partial = joined;
        }
        Ok(())
    }

    /// Answers how many bytes of `input` are done with.
    fn read_replies(&mut self, input: &[u8], landed: &mut dyn FnMut(Landed)) -> Result<usize> {
        let mut at = 0;
        loop {
            if let Some((outcome, missing)) = self.coming {
                let here = missing.min(input.len() - at);
                at += here;
                if here < missing {
                    self.coming = Some((outcome, missing - here));
                    return Ok(at);
                }
                self.coming = None;
                self.land(outcome, landed);
            }
            if at == input.len() {
                return Ok(at);
            }
            let Some(flight) = self.flights.front() else {
                bail!("{} bytes that answer nothing", input.len() - at);
            };
            let rest = &input[at..];
            let Some(reply) = self.speaker.read(flight.ask, rest, &mut self.out)? else {
                return Ok(at);
            };
            let has_body = flight.ask == ClientRequest::Take && reply.outcome != Outcome::Empty;
            let (got, wanted) = (reply.body, self.body.len());
            ensure!(
                !has_body || got == wanted,
                "a message of {got} bytes, not {wanted}: the queue held others before"
            );
            // What came with the head is compared; of a message that comes in
            // many reads, the rest is only counted.
            let (body, tail) = (&rest[reply.head..], reply.tail);
            let here = body.len().min(reply.body);
            let as_put = body[..here] == self.body[..here];
            ensure!(as_put, "a message differs from the put one");
            let after = &body[here..];
            let same = after.len().min(tail.len());
            let ends = here < reply.body || after[..same] == tail[..same];
            ensure!(ends, "a reply ends wrongly");
            at += reply.head;
            self.coming = Some((reply.outcome, reply.body + tail.len() + reply.rest));
        }
    }

    fn land(&mut self, outcome: Outcome, landed: &mut dyn FnMut(Landed)) {
        let Some(Flight { ask, from }) = self.flights.pop_front() else {
            return;
        };
        let empty = match outcome {
            Outcome::Reserved => {
                let ask = ClientRequest::Settle;
                self.flights.push_back(Flight { ask, from });
                return;
            }
            Outcome::Done => false,
            Outcome::Empty => true,
        };
        let is_put = ask == ClientRequest::Put;
        landed(Landed {
            is_put,
            empty,
            from,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Conn;
    use crate::protocol::{ClientRequest, Protocol};
    use crate::stream::Stream;

    fn conn(protocol: &str) -> Conn {
        let (here, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = Stream::of(std::os::fd::OwnedFd::from(here).into(), None).unwrap();
        let body: Arc<[u8]> = Arc::from(&b"abc"[..]);
        let speaker = (Protocol::named(protocol).unwrap().open)("q", &body, None);
        Conn::new(stream, speaker, body)
    }

    /// Feeds `input` in pieces of `size` bytes; answers what landed.
    fn feed(conn: &mut Conn, input: &[u8], size: usize) -> anyhow::Result<Vec<(bool, bool, u64)>> {
        let mut found = Vec::new();
        for piece in input.chunks(size) {
            conn.take_in(piece, &mut |l| {
                found.push((l.is_put, l.empty, l.from.unwrap_or(0)))
            })?;
        }
        Ok(found)
    }

    #[test]
    fn replies_cut_anywhere_land_the_same() {
        let input = b"STORED\r\nVALUE q 0 3\r\nabc\r\nEND\r\nEND\r\n";
        for size in 1..=input.len() {
            let mut conn = conn("memcache");
            conn.ask(ClientRequest::Put, 1);
            conn.ask(ClientRequest::Take, 2);
            conn.ask(ClientRequest::Take, 3);
            let found = feed(&mut conn, input, size).unwrap();
            let expected = [(true, false, 1), (false, false, 2), (false, true, 3)];
            assert_eq!(found, expected);
            assert_eq!(conn.in_flight(), 0);
        }
    }

    #[test]
    fn a_reserve_lands_with_its_settle() {
        let mut conn = conn("beanstalk");
        conn.ask(ClientRequest::Take, 1);
        conn.ask(ClientRequest::Put, 2);
        let found = feed(&mut conn, b"RESERVED 9 3\r\nabc\r\nINSERTED 10\r\n", 5).unwrap();
        assert_eq!(found, [(true, false, 2)]);
        assert!(conn.out.ends_with(b"delete 9\r\n"));
        let found = feed(&mut conn, b"DELETED\r\n", 4).unwrap();
        assert_eq!(found, [(false, false, 1)]);
    }

    #[test]
    fn a_message_that_was_not_put_is_an_error() {
        for reply in [
            &b"VALUE q 0 3\r\nabX\r\nEND\r\n"[..],
            b"VALUE q 0 4\r\nabcd\r\nEND\r\n",
            b"VALUE q 0 3\r\nabc\r\nERR\r\n",
            b"END\r\nEND\r\n",
        ] {
            let mut conn = conn("memcache");
            conn.ask(ClientRequest::Take, 0);
            assert!(feed(&mut conn, reply, reply.len()).is_err());
        }
    }
}
