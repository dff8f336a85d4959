//! Replaying a transcript, and writing down what came back.

use std::collections::BTreeMap;

use super::text::Part;
use super::text::{Match, Names, bytes, compare};
use super::{Act, Step, Transcript, hex, text};

/// The way to a server under test.
pub trait Link {
    /// Sends bytes; opens the connection first if it is not open.
    fn send(&mut self, connection: u8, bytes: &[u8]);

    /// Appends what has come on a connection since the last call, waiting a
    /// while for it if the link can wait.
    fn receive(&mut self, connection: u8, into: &mut Vec<u8>) -> Received;

    /// Lets time pass.
    fn advance(&mut self, ms: u64);

    /// Closes the connection.
    fn close(&mut self, connection: u8);

    /// Closes its sending side.
    fn shut(&mut self, connection: u8);

    /// The server's Unix time in seconds.
    fn now_s(&self) -> u64;

    /// True if all that the server has to say is there as soon as `send` or
    /// `advance` returns, so that silence can be distinguished from delay.
    fn is_instant(&self) -> bool;
}

/// Result of [`Link::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes were appended.
    Some,
    Nothing,
    /// The server has closed the connection, and all it sent was received.
    End,
}

/// How what is sent is cut up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunking {
    /// As the transcript says.
    Whole,
    /// One byte at a time.
    Bytes,
}

/// Input that was not compared yet.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    ended: bool,
}

/// The connections' inboxes, in order.
struct Inboxes<'a, L> {
    link: &'a mut L,
    /// Bytes are shown as words of hex digits.
    hex: bool,
    open: BTreeMap<u8, Inbox>,
    names: Names,
}

impl<L: Link> Inboxes<'_, L> {
    /// Receives more; false if there is no more to come.
    fn fill(&mut self, connection: u8) -> bool {
        let inbox = self.open.entry(connection).or_default();
        match self.link.receive(connection, &mut inbox.bytes) {
            Received::Some => true,
            Received::Nothing => false,
            Received::End => {
                inbox.ended = true;
                false
            }
        }
    }

    /// Receives all there is.
    fn drain(&mut self, connection: u8) {
        while self.fill(connection) {}
    }

    fn bytes(&mut self, connection: u8) -> &mut Vec<u8> {
        &mut self.open.entry(connection).or_default().bytes
    }

    fn compare(&mut self, connection: u8, parts: &[Part]) -> Match {
        self.names.now_s = self.link.now_s();
        let inbox = self.open.entry(connection).or_default();
        compare(parts, &inbox.bytes, &mut self.names)
    }

    fn ended(&self, connection: u8) -> bool {
        self.open.get(&connection).is_some_and(|inbox| inbox.ended)
    }

    /// Refuses what came unasked for, on links where that can be known.
    fn expect_silence(&mut self) -> Result<(), String> {
        let hex = self.hex;
        if !self.link.is_instant() {
            return Ok(());
        }
        let connections: Vec<u8> = self.open.keys().copied().collect();
        for connection in connections {
            self.drain(connection);
            let bytes = self.bytes(connection);
            if !bytes.is_empty() {
                return Err(format!(
                    "unexpected on connection {connection}:\n{}",
                    shown(bytes, hex)
                ));
            }
        }
        Ok(())
    }

    fn act(&mut self, act: &Act, connection: u8) {
        match act {
            Act::Wait(ms) => self.link.advance(*ms),
            Act::Close => {
                self.link.close(connection);
                self.open.remove(&connection);
            }
            Act::Shut => self.link.shut(connection),
            Act::Send(_) | Act::Expect(_) | Act::End => {}
        }
    }
}

/// Writes bytes as a transcript has them.
fn lines(bytes: &[u8], hex: bool) -> Vec<String> {
    match hex {
        true => hex::lines(bytes),
        false => text::lines(bytes),
    }
}

/// Received bytes for an error message, cut to a readable length.
fn shown(bytes: &[u8], hex: bool) -> String {
    let mut all = lines(&bytes[..bytes.len().min(2000)], hex).join("\n");
    if all.is_empty() {
        all.push_str("(nothing)");
    }
    all
}

/// Whether the next step that takes no time is a reply.
fn replies_next(rest: &[Step]) -> bool {
    let mut acts = rest.iter().map(|step| &step.act);
    let next = acts.find(|act| !matches!(act, Act::Wait(_)));
    matches!(next, Some(Act::Expect(_) | Act::End))
}

impl Transcript {
    /// Replays the transcript.
    ///
    /// # Errors
    /// The line where the server answered differently, with both answers.
    pub fn run(&self, link: &mut impl Link, chunking: Chunking) -> Result<(), String> {
        let mut inboxes = Inboxes {
            link,
            hex: self.hex,
            open: BTreeMap::new(),
            names: Names::default(),
        };
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            at += self
                .step(step, &self.steps[at..], &mut inboxes, chunking)
                .map_err(|error| format!("line {}: {error}", step.line))?;
        }
        inboxes
            .expect_silence()
            .map_err(|error| format!("at the end: {error}"))
    }

    /// Does one step, or a run of sends; answers how many steps that was.
    fn step<L: Link>(
        &self,
        step: &Step,
        rest: &[Step],
        inboxes: &mut Inboxes<'_, L>,
        chunking: Chunking,
    ) -> Result<usize, String> {
        let connection = step.connection;
        match &step.act {
            Act::Send(_) => return Ok(send_run(rest, inboxes, chunking)),
            // On a socket the time passes while the reply is waited for.
            Act::Wait(_) if !inboxes.link.is_instant() && replies_next(rest) => {}
            Act::Expect(parts) => loop {
                match inboxes.compare(connection, parts) {
                    Match::Yes(used) => {
                        inboxes.bytes(connection).drain(..used);
                        break;
                    }
                    Match::More if inboxes.fill(connection) => {}
                    Match::More | Match::No => {
                        let ended = if inboxes.ended(connection) {
                            "\n(end of the connection)"
                        } else {
                            ""
                        };
                        return Err(format!(
                            "expected on connection {connection}:\n{}\nreceived:\n{}{ended}",
                            self.source[step.line - 1],
                            shown(inboxes.bytes(connection), self.hex)
                        ));
                    }
                }
            },
            Act::End => {
                inboxes.drain(connection);
                let bytes = inboxes.bytes(connection);
                if !bytes.is_empty() {
                    return Err(format!(
                        "expected the end, received:\n{}",
                        shown(bytes, self.hex)
                    ));
                }
                if !inboxes.ended(connection) {
                    return Err("expected the end, but the connection stays open".to_owned());
                }
            }
            act @ (Act::Wait(_) | Act::Close | Act::Shut) => {
                inboxes.expect_silence()?;
                inboxes.act(act, connection);
            }
        }
        Ok(1)
    }

    /// Replays the transcript and answers its source with the received lines
    /// as they really were. Only for links that are instant.
    pub fn record(&self, link: &mut impl Link) -> String {
        let mut inboxes = Inboxes {
            link,
            hex: self.hex,
            open: BTreeMap::new(),
            names: Names::default(),
        };
        let mut out: Vec<String> = Vec::new();
        let mut copied = 0;
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            let connection = step.connection;
            let expectation = |step: &Step| matches!(step.act, Act::Expect(_) | Act::End);
            if expectation(step) {
                let group: Vec<&Step> = self.steps[at..]
                    .iter()
                    .take_while(|next| expectation(next) && next.connection == connection)
                    .collect();
                // Comments between the lines stay in front of the group.
                let last = group.last().map_or(step.line, |last| last.line);
                out.extend(self.comments(copied, last));
                copied = last;
                inboxes.drain(connection);
                self.write_received(&group, connection, &mut inboxes, &mut out);
                at += group.len();
                continue;
            }
            if !matches!(step.act, Act::Send(_)) {
                self.write_unasked(&mut inboxes, &mut out);
            }
            let used = if matches!(step.act, Act::Send(_)) {
                send_run(&self.steps[at..], &mut inboxes, Chunking::Whole)
            } else {
                inboxes.act(&step.act, connection);
                1
            };
            at += used;
            let through = self.steps[at - 1].line;
            out.extend_from_slice(&self.source[copied..through]);
            copied = through;
        }
        self.write_unasked(&mut inboxes, &mut out);
        out.extend_from_slice(&self.source[copied..]);
        out.join("\n") + "\n"
    }

    /// The lines for the reader in a stretch of the source.
    fn comments(&self, from: usize, through: usize) -> Vec<String> {
        self.source[from..through]
            .iter()
            .filter(|line| line.is_empty() || line.starts_with('#') || line.starts_with('@'))
            .cloned()
            .collect()
    }

    /// Writes what came, keeping the old lines as far as they still fit.
    fn write_received<L: Link>(
        &self,
        group: &[&Step],
        connection: u8,
        inboxes: &mut Inboxes<'_, L>,
        out: &mut Vec<String>,
    ) {
        for step in group {
            let Act::Expect(parts) = &step.act else { break };
            let Match::Yes(used) = inboxes.compare(connection, parts) else {
                break;
            };
            inboxes.bytes(connection).drain(..used);
            out.push(self.source[step.line - 1].clone());
        }
        write_rest(connection, inboxes, out);
        if inboxes.ended(connection) {
            let prefix = prefix(connection);
            out.push(if prefix.is_empty() {
                "EOF".to_owned()
            } else {
                format!("{prefix} EOF")
            });
        }
    }

    /// Writes what came where the transcript had nothing.
    fn write_unasked<L: Link>(&self, inboxes: &mut Inboxes<'_, L>, out: &mut Vec<String>) {
        let connections: Vec<u8> = inboxes.open.keys().copied().collect();
        for connection in connections {
            inboxes.drain(connection);
            write_rest(connection, inboxes, out);
        }
    }
}

fn write_rest<L: Link>(connection: u8, inboxes: &mut Inboxes<'_, L>, out: &mut Vec<String>) {
    let bytes = std::mem::take(inboxes.bytes(connection));
    for line in lines(&bytes, inboxes.hex) {
        out.push(
            format!("{}< {line}", prefix(connection))
                .trim_end()
                .to_owned(),
        );
    }
}

fn prefix(connection: u8) -> String {
    if connection == 1 {
        String::new()
    } else {
        format!("c{connection}")
    }
}

/// Sends the run of sends in front of `steps`; answers its length.
fn send_run<L: Link>(steps: &[Step], inboxes: &mut Inboxes<'_, L>, chunking: Chunking) -> usize {
    let Some(first) = steps.first() else { return 0 };
    inboxes.names.now_s = inboxes.link.now_s();
    let mut all = Vec::new();
    let mut count = 0;
    for step in steps {
        match &step.act {
            Act::Send(parts) if step.connection == first.connection => {
                all.extend(bytes(parts, &inboxes.names));
                count += 1;
            }
            _ => break,
        }
    }
    inboxes.open.entry(first.connection).or_default();
    match chunking {
        Chunking::Whole => inboxes.link.send(first.connection, &all),
        Chunking::Bytes => {
            for byte in &all {
                inboxes
                    .link
                    .send(first.connection, std::slice::from_ref(byte));
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that echoes, and closes after a line "quit".
    #[derive(Default)]
    struct Echo {
        sent: BTreeMap<u8, Vec<u8>>,
        writes: usize,
        now_s: u64,
    }

    impl Link for Echo {
        fn send(&mut self, connection: u8, bytes: &[u8]) {
            self.writes += 1;
            self.sent
                .entry(connection)
                .or_default()
                .extend_from_slice(bytes);
        }

        fn receive(&mut self, connection: u8, into: &mut Vec<u8>) -> Received {
            let sent = self.sent.entry(connection).or_default();
            if sent == b"quit\r\n" {
                return Received::End;
            }
            let came = !sent.is_empty();
            into.append(sent);
            if came {
                Received::Some
            } else {
                Received::Nothing
            }
        }

        fn advance(&mut self, ms: u64) {
            self.now_s += ms / 1000;
        }

        fn close(&mut self, _: u8) {}

        fn shut(&mut self, _: u8) {}

        fn now_s(&self) -> u64 {
            self.now_s
        }

        fn is_instant(&self) -> bool {
            true
        }
    }

    fn run(source: &str) -> Result<(), String> {
        Transcript::parse(source)
            .unwrap()
            .run(&mut Echo::default(), Chunking::Bytes)
    }

    #[test]
    fn an_exchange_is_replayed() {
        run("# hi\n> a\n> b\n< a\n< b\nc2> x{now}\nc2< x0\n~ 2000\n> {now}\n< {any}\nc2 close\n")
            .unwrap();
        run("> quit\nEOF\n").unwrap();
    }

    #[test]
    fn differences_are_reported() {
        assert!(
            run("> a\n< b\n")
                .unwrap_err()
                .starts_with("line 2: expected")
        );
        assert!(
            run("> a\n")
                .unwrap_err()
                .starts_with("at the end: unexpected")
        );
        assert!(
            run("> a\n~ 1\n")
                .unwrap_err()
                .starts_with("line 2: unexpected")
        );
        assert!(run("> a\n< a\nEOF\n").unwrap_err().contains("stays open"));
        assert!(Transcript::parse("! x").is_err());
    }

    #[test]
    fn received_bytes_are_recorded() {
        let source = "# say\n> a{now}\n> b\n< wrong\nc2> c\n# tail\n";
        let recorded = Transcript::parse(source)
            .unwrap()
            .record(&mut Echo::default());
        assert_eq!(
            recorded,
            "# say\n> a{now}\n> b\n< a0\n< b\nc2> c\nc2< c\n# tail\n"
        );
        let kept = "> a\n< {any}\n";
        assert_eq!(
            Transcript::parse(kept)
                .unwrap()
                .record(&mut Echo::default()),
            kept
        );
    }

    #[test]
    fn sends_in_a_row_are_one_write() {
        let mut echo = Echo::default();
        Transcript::parse("> a\n> b\n< a\n< b\n")
            .unwrap()
            .run(&mut echo, Chunking::Whole)
            .unwrap();
        assert_eq!(echo.writes, 1);
    }
}
