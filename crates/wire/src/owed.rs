//! The pending replies to requests that were read, for every protocol.

use std::collections::VecDeque;

use quintet_types::Command;

use crate::foreign::Foreign;
use crate::session::{ClientRequest, HostRequest, Next, Step};

/// Replies to come, that of the oldest request first. `R` is what a protocol
/// remembers of a request to write its reply.
pub(crate) struct Owed<R>(VecDeque<R>);

impl<R> Owed<R> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Hands out a request, to which `used` bytes of the input belong.
    pub(crate) fn ask(&mut self, used: usize, ask: ClientRequest, reply: R) -> Step {
        self.0.push_back(reply);
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

    /// Tells the host of a client that speaks another protocol.
    pub(crate) fn foreign(&mut self, foreign: Foreign, reply: R) -> Step {
        let ask = ClientRequest::Host(HostRequest::Foreign(foreign));
        self.ask(0, ask, reply)
    }

    /// Every request is answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a request that never came whole.
    pub(crate) fn last_word(&mut self, reply: R) {
        self.0.push_back(reply);
    }

    /// The reply to the oldest request, which is answered with this.
    pub(crate) fn pop(&mut self) -> Option<R> {
        self.0.pop_front()
    }

    /// The same, which it stays owed.
    pub(crate) fn oldest(&self) -> Option<&R> {
        self.0.front()
    }

    /// The replies to the requests behind the oldest.
    pub(crate) fn behind(&self) -> impl Iterator<Item = &R> {
        self.0.iter().skip(1)
    }

    /// Continues the request that [`Owed::pop`] just returned with this command, whose outcome gets
    /// this reply.
    pub(crate) fn again(&mut self, reply: R, command: Command) -> Next {
        self.0.push_front(reply);
        Next::Again(Box::new(command))
    }
}
