//! The control channel's session.

use std::collections::VecDeque;

use quintet_types::{Body, Command, LargeBody, Outcome, Put, Refusal};
use quintet_wire::{
    Ask, Env, Given, HalfClose, Logins, Next, Output, STREAM_OVER, Said, Session, Step,
};

use super::reply;
use super::request::{Request, parse};

/// Bytes of a request line at most: the heads of a batch of messages, or one
/// with a long key.
pub const LINE_MAX: usize = 1 << 20;
/// Bytes of the line of who has to log in first.
const LOGIN_MAX: usize = 4096;
/// Bytes of bodies that come with one request and are kept in memory until the
/// last is there.
const BODIES_MAX: u64 = 4 << 20;

/// Of bodies that were seen to be within [`BODIES_MAX`].
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("some MiB")
}

/// One connection of the command line.
#[derive(Default)]
pub(crate) struct AdminSession {
    /// Puts whose bodies are coming.
    coming: Option<Coming>,
    /// The large body of one, stored or refused.
    stored: Option<Result<LargeBody, Refusal>>,
    /// The requests that are not answered.
    due: VecDeque<Due>,
}

/// Kind of a pending reply.
enum Due {
    /// An answer.
    Answer,
    /// An import; nothing is done after one that was refused.
    Import,
    /// Why nothing was asked.
    Wrong(String),
}

/// Puts that wait for their bodies.
struct Coming {
    puts: Vec<Put>,
    /// Lengths of the bodies.
    lens: Vec<u64>,
}

impl AdminSession {
    fn ask(&mut self, used: usize, ask: Ask) -> Step {
        self.due
            .push_back(match matches!(ask, Ask::EngineOrClose(_)) {
                true => Due::Import,
                false => Due::Answer,
            });
        Step::Ask { used, ask }
    }

    /// Answers with why the request makes no sense, and closes: bytes of a
    /// body may follow that nobody knows the length of.
    fn refuse(&mut self, used: usize, why: String) -> Step {
        self.due.push_back(Due::Wrong(why));
        Step::Ask {
            used,
            ask: Ask::Close,
        }
    }

    fn bodies(&mut self, input: &[u8], mut coming: Coming) -> Step {
        if let Some(stored) = self.stored.take() {
            return match (stored, coming.puts.first_mut()) {
                (Ok(large), Some(put)) => {
                    put.body = Body::Large(large);
                    self.put(0, coming)
                }
                (Ok(_), None) => self.refuse(0, "a body without a message".to_owned()),
                (Err(refusal), _) => {
                    self.due.push_back(Due::Wrong(refusal.text().to_owned()));
                    Step::Ask {
                        used: 0,
                        ask: Ask::Close,
                    }
                }
            };
        }
        if let ([put], &[len]) = (&coming.puts[..], &coming.lens[..])
            && len > STREAM_OVER
        {
            let queue = put.queue.clone();
            self.coming = Some(coming);
            return Step::Stream {
                used: 0,
                len,
                queue,
            };
        }
        let all = coming
            .lens
            .iter()
            .try_fold(0, |all: u64, &len| all.checked_add(len))
            .filter(|&all| all <= BODIES_MAX && coming.lens.iter().all(|&len| len <= STREAM_OVER));
        let Some(all) = all else {
            return self.refuse(0, "large messages are put one by one".to_owned());
        };
        let Some(mut bodies) = input.get(..in_memory(all)) else {
            self.coming = Some(coming);
            return Step::More;
        };
        for (put, &len) in coming.puts.iter_mut().zip(&coming.lens) {
            let (body, rest) = bodies.split_at(in_memory(len));
            (put.body, bodies) = (Body::new(body), rest);
        }
        self.put(in_memory(all), coming)
    }

    fn put(&mut self, used: usize, coming: Coming) -> Step {
        self.ask(used, Ask::EngineOrClose(Command::PutMany(coming.puts)))
    }
}

impl Session for AdminSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if let Some(coming) = self.coming.take() {
            return self.bodies(input, coming);
        }
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            let strange = env.logins == Logins::Needed;
            if input.len() > if strange { LOGIN_MAX } else { LINE_MAX } {
                return self.refuse(input.len(), "the request is too long".to_owned());
            }
            return Step::More;
        };
        match parse(&input[..end]) {
            Ok(Request::Ask(ask @ Ask::Login(_))) => self.ask(end + 1, ask),
            _ if env.logins == Logins::Needed => {
                self.refuse(end + 1, "log in first: --user NAME".to_owned())
            }
            Ok(Request::Ask(ask)) => self.ask(end + 1, ask),
            Ok(Request::Import(puts, lens)) => {
                self.coming = Some(Coming { puts, lens });
                Step::Skip { used: end + 1 }
            }
            Err(why) => self.refuse(end + 1, why),
        }
    }

    fn encode(&mut self, given: &Given, _env: &Env<'_>, output: &mut Output) -> Next {
        let import = match self.due.pop_front() {
            Some(Due::Wrong(why)) => {
                reply::end_line(output, &serde_json::json!({ "error": why }));
                return Next::Done;
            }
            Some(Due::Import) => true,
            Some(Due::Answer) | None => false,
        };
        reply::write(given, output);
        // Also one that waited before it was decided.
        match matches!(given, Given::Engine(Outcome::Refused(_), _)) && import {
            true => Next::Close,
            false => Next::Done,
        }
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        reply.starts_with(b"{\"error\"")
    }

    fn say(&mut self, said: Said<'_>, output: &mut Output) -> Next {
        let import = matches!(self.due.pop_front(), Some(Due::Import));
        let value = match said {
            Said::Line(text) => serde_json::json!({ "done": text }),
            Said::Message(bytes) => serde_json::json!({ "done": String::from_utf8_lossy(bytes) }),
            Said::Refused(text) | Said::Limited(text) => serde_json::json!({ "error": text }),
        };
        reply::end_line(output, &value);
        match matches!(said, Said::Refused(_) | Said::Limited(_)) && import {
            true => Next::Close,
            false => Next::Done,
        }
    }

    fn streamed(&mut self, body: Result<LargeBody, Refusal>) {
        self.stored = Some(body);
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::Close
    }
}
