//! The control channel's session.

use std::collections::VecDeque;

use quintet_engine::{Body, Command, LargeBody, Put, Refusal};
use quintet_wire::{Ask, Env, Given, HalfClose, Next, Output, STREAM_OVER, Session, Step};

use super::reply;
use super::request::{Request, parse};

/// Bytes of a request line at most.
const LINE_MAX: usize = 128 << 10;

/// One connection of the command line.
#[derive(Default)]
pub(super) struct AdminSession {
    /// A put whose body is coming.
    put: Option<(Box<Put>, u64)>,
    /// Its body, stored or refused.
    stored: Option<Result<LargeBody, Refusal>>,
    /// For each unanswered request: why it was not asked.
    wrong: VecDeque<Option<String>>,
}

impl AdminSession {
    fn ask(&mut self, used: usize, ask: Ask) -> Step {
        self.wrong.push_back(None);
        Step::Ask { used, ask }
    }

    /// Answers with why the request makes no sense, and closes: bytes of a
    /// body may follow that nobody knows the length of.
    fn refuse(&mut self, used: usize, why: String) -> Step {
        self.wrong.push_back(Some(why));
        Step::Ask {
            used,
            ask: Ask::Close,
        }
    }

    fn body(&mut self, input: &[u8], mut put: Box<Put>, bytes: u64) -> Step {
        if let Some(stored) = self.stored.take() {
            return match stored {
                Ok(large) => {
                    put.body = Body::Large(large);
                    self.ask(0, Ask::Engine(Command::Put(*put)))
                }
                Err(refusal) => {
                    self.wrong.push_back(Some(refusal.text().to_owned()));
                    Step::Ask {
                        used: 0,
                        ask: Ask::Own,
                    }
                }
            };
        }
        if bytes > STREAM_OVER {
            let queue = put.queue.clone();
            self.put = Some((put, bytes));
            return Step::Stream {
                used: 0,
                len: bytes,
                queue,
            };
        }
        // At most STREAM_OVER.
        let len = bytes as usize;
        match input.get(..len) {
            Some(body) => {
                put.body = Body::new(body);
                self.ask(len, Ask::Engine(Command::Put(*put)))
            }
            None => {
                self.put = Some((put, bytes));
                Step::More
            }
        }
    }
}

impl Session for AdminSession {
    fn decode(&mut self, input: &[u8], _env: &Env<'_>) -> Step {
        if let Some((put, bytes)) = self.put.take() {
            return self.body(input, put, bytes);
        }
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            if input.len() > LINE_MAX {
                return self.refuse(input.len(), "the request is too long".to_owned());
            }
            return Step::More;
        };
        match parse(&input[..end]) {
            Ok(Request::Ask(ask)) => self.ask(end + 1, ask),
            Ok(Request::Put(put, bytes)) => {
                self.put = Some((put, bytes));
                Step::Skip { used: end + 1 }
            }
            Err(why) => self.refuse(end + 1, why),
        }
    }

    fn encode(&mut self, given: &Given, _env: &Env<'_>, output: &mut Output) -> Next {
        match self.wrong.pop_front().flatten() {
            Some(why) => reply::end_line(output, &serde_json::json!({ "error": why })),
            None => reply::write(given, output),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, Refusal>) {
        self.stored = Some(body);
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::Close
    }
}
