//! Recorded exchanges with a server, replayed over any [`Link`]: a session in
//! memory, or a socket of a real server.
//!
//! A transcript is a text file; each line is one of
//!
//! | line | means |
//! |---|---|
//! | `> text` | sent; CR LF is added unless the line ends in a backslash |
//! | `< text` | received |
//! | `~ 300` | so many milliseconds pass |
//! | `EOF` | the server has closed the connection |
//! | `close` | the client closes it |
//! | `shut` | the client closes its sending side |
//! | `@ option NAME VALUE` | the listener is set up so |
//! | `@ queue NAME KEY VALUE` | the queue is set up so |
//! | `@ hex` | text is bytes in words, as below; in front of all that is sent |
//! | `@ instant` | only for links that are instant: what happens depends on the clock, or on which connection acts first |
//! | `@ one shard` | only for servers of one shard: it shows ids or an order that more have otherwise |
//! | `# text`, nothing | for the reader |
//!
//! Connections have numbers: `c2> text` is sent on the second one, which is
//! opened by being mentioned; no number means the first. In text, `\r`, `\n`,
//! `\0`, `\\` and `\xNN` are bytes, `{repeat N x}` is `x` N times, `{bytes}` is
//! all 256 byte values, `{le32 N}` and `{le64 N}` are numbers in little-endian
//! order, `{now-5}` is a Unix time, `{at 5}` the moment in five seconds as RFC 3339
//! writes it (received, `{time}` is any such moment, with milliseconds,
//! and `{clock}` any time of day), and in what is received `{any}` is whatever
//! comes before the line's end. `{id NAME}` is a number the server chose:
//! received, it gives the name to the digits that come, or, once it has them,
//! expects the same. Sent lines that follow each other on
//! one connection leave as one write.
//!
//! In a transcript of a binary protocol (`@ hex`) text is words: hex digits, two
//! for a byte, in any groups; `'text'`, bytes as they are; `{repeat N words}`.
//! Nothing is added at the end of a line.

mod hex;
mod run;
mod text;

pub use run::{Chunking, Link, Received};

use text::Part;

/// A parsed transcript.
#[derive(Debug)]
pub struct Transcript {
    setup: Vec<Setup>,
    instant: bool,
    hex: bool,
    one_shard: bool,
    steps: Vec<Step>,
    source: Vec<String>,
}

/// How the server is set up for a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setup {
    /// An option of the listener.
    Option {
        name: String,
        /// Its value as written.
        value: String,
    },
    /// A setting of a queue.
    Queue {
        /// The queue's name or pattern.
        queue: String,
        /// The setting's name.
        key: String,
        /// Its value as written.
        value: String,
    },
}

/// The event of one line.
#[derive(Debug)]
struct Step {
    /// Line number, from 1.
    line: usize,
    /// Which connection; 0 for a step that concerns none.
    connection: u8,
    act: Act,
}

#[derive(Debug)]
enum Act {
    Send(Vec<Part>),
    Expect(Vec<Part>),
    End,
    Close,
    Shut,
    Wait(u64),
}

impl Transcript {
    /// Reads a transcript.
    ///
    /// # Errors
    /// The number of the line that is none of the above, and why.
    pub fn parse(source: &str) -> Result<Self, String> {
        let mut transcript = Self {
            setup: Vec::new(),
            instant: false,
            hex: false,
            one_shard: false,
            steps: Vec::new(),
            source: source.lines().map(str::to_owned).collect(),
        };
        for (index, text) in source.lines().enumerate() {
            let line = index + 1;
            transcript
                .line(line, text)
                .map_err(|error| format!("line {line}: {error}"))?;
        }
        Ok(transcript)
    }

    /// How the server is to be set up.
    pub fn setup(&self) -> &[Setup] {
        &self.setup
    }

    /// True if it can only be replayed over a link that is instant
    /// ([`Link::is_instant`]).
    pub fn needs_instant(&self) -> bool {
        self.instant
    }

    /// True if it can only be replayed against a server of one shard.
    pub fn needs_one_shard(&self) -> bool {
        self.one_shard
    }

    /// The input of each connection, in order of the connections, with times as of `now_s`: food
    /// for tests of decoders.
    pub fn sent(&self, now_s: u64) -> Vec<Vec<u8>> {
        let mut sent = std::collections::BTreeMap::<u8, Vec<u8>>::new();
        for step in &self.steps {
            if let Act::Send(parts) = &step.act {
                let all = sent.entry(step.connection).or_default();
                all.extend(text::bytes(parts, &text::Names::at(now_s)));
            }
        }
        sent.into_values().collect()
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        if text == "@ instant" {
            self.instant = true;
            return Ok(());
        }
        if text == "@ hex" {
            self.hex = true;
            return Ok(());
        }
        if text == "@ one shard" {
            self.one_shard = true;
            return Ok(());
        }
        if let Some(setup) = text.strip_prefix("@ ") {
            self.setup.push(setup_line(setup)?);
            return Ok(());
        }
        if let Some(ms) = text.strip_prefix("~ ") {
            let ms = ms.parse().map_err(|_| format!("bad time {ms}"))?;
            self.steps.push(Step {
                line,
                connection: 0,
                act: Act::Wait(ms),
            });
            return Ok(());
        }
        let (connection, rest) = connection(text);
        let act = match rest {
            "EOF" => Act::End,
            "close" => Act::Close,
            "shut" => Act::Shut,
            ">" => Act::Send(self.text("")?),
            "<" => Act::Expect(self.text("")?),
            _ => {
                if let Some(sent) = rest.strip_prefix("> ") {
                    let parts = self.text(sent)?;
                    if parts
                        .iter()
                        .any(|part| matches!(part, Part::Any | Part::Time(_)))
                    {
                        return Err("{any} and {time} cannot be sent".to_owned());
                    }
                    Act::Send(parts)
                } else if let Some(expected) = rest.strip_prefix("< ") {
                    Act::Expect(self.text(expected)?)
                } else {
                    return Err(format!("not a line of a transcript: \"{text}\""));
                }
            }
        };
        self.steps.push(Step {
            line,
            connection,
            act,
        });
        Ok(())
    }

    fn text(&self, text: &str) -> Result<Vec<Part>, String> {
        match self.hex {
            true => Ok(vec![Part::Bytes(hex::parse(text)?)]),
            false => text::parse(text),
        }
    }
}

/// `c2> x`, `c2 close`: 2 and what follows; 1 without a number.
fn connection(text: &str) -> (u8, &str) {
    let numbered = text.strip_prefix('c').and_then(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest[..digits].parse().ok().filter(|&number| number > 0)?;
        Some((number, rest[digits..].trim_start()))
    });
    numbered.unwrap_or((1, text))
}

fn setup_line(text: &str) -> Result<Setup, String> {
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["option", name, value] => Ok(Setup::Option {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        }),
        ["queue", queue, key, value] => Ok(Setup::Queue {
            queue: (*queue).to_owned(),
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        }),
        _ => Err("@ option NAME VALUE, or @ queue NAME KEY VALUE".to_owned()),
    }
}
