//! The pending replies to requests that were read, for every protocol.

use std::collections::VecDeque;

use quintet_types::Command;

use crate::foreign::Foreign;
use crate::output::Output;
use crate::session::{ClientRequest, HostRequest, Next, Step};

/// Replies to come, that of the oldest request first. `R` is what a protocol
/// remembers of a request to write its reply.
pub(crate) struct Owed<R> {
    replies: VecDeque<R>,
    /// The client speaks TLS: an alert behind all of those is the last word.
    tls: bool,
}

impl<R> Owed<R> {
    pub(crate) const fn new() -> Self {
        let replies = VecDeque::new();
        Self {
            replies,
            tls: false,
        }
    }

    /// Hands out a request, to which `used` bytes of the input belong.
    pub(crate) fn ask(&mut self, used: usize, ask: ClientRequest, reply: R) -> Step {
        self.replies.push_back(reply);
        Step::ClientRequest { used, ask }
    }

    /// The same, for the engine.
    pub(crate) fn engine(&mut self, used: usize, command: Command, reply: R) -> Step {
        self.ask(used, ClientRequest::Engine(command), reply)
    }

    /// The same, whose reply is known.
    pub(crate) fn own(&mut self, used: usize, reply: R) -> Step {
        self.ask(used, ClientRequest::Own, reply)
    }

    /// The same, and the connection closes behind the reply.
    pub(crate) fn close(&mut self, used: usize, reply: R) -> Step {
        self.ask(used, ClientRequest::Close, reply)
    }

    /// Tells the host of a client that speaks TLS; the connection closes behind the answer.
    pub(crate) fn tls(&mut self) -> Step {
        self.tls = true;
        let ask = ClientRequest::Host(HostRequest::Foreign(Foreign::Tls));
        Step::ClientRequest { used: 0, ask }
    }

    /// Every request is answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// For a request that never came whole.
    pub(crate) fn last_word(&mut self, reply: R) {
        self.replies.push_back(reply);
    }

    /// The reply to the oldest request, which is answered with this.
    pub(crate) fn pop(&mut self) -> Option<R> {
        self.replies.pop_front()
    }

    /// The same; where there is none the connection closes, which an alert says to TLS.
    #[inline]
    pub(crate) fn pop_or_alert(&mut self, output: &mut Output) -> Option<R> {
        let reply = self.pop();
        if reply.is_none() && self.tls {
            output.put(Foreign::Tls.answer());
        }
        reply
    }

    /// The reply to the oldest request, which it stays owed.
    pub(crate) fn oldest(&self) -> Option<&R> {
        self.replies.front()
    }

    /// The replies to the requests behind the oldest.
    pub(crate) fn behind(&self) -> impl Iterator<Item = &R> {
        self.replies.iter().skip(1)
    }

    /// Continues the request that [`Owed::pop`] just returned with this command, whose outcome gets
    /// this reply.
    pub(crate) fn again(&mut self, reply: R, command: Command) -> Next {
        self.replies.push_front(reply);
        Next::Again(Box::new(command))
    }
}
