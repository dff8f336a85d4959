//! The requests of clients to a queue server and the answers, and the check whether a server may
//! answer so: rules that hold whatever it is made of, and whatever happened to it.
//!
//! Every body is put once at most. What was never answered may have been done or not.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use rules::Broken;

/// A moment: later ones are larger, and no two are the same.
pub type At = u64;

/// A body, which says which message it is.
pub type Body = u64;

/// Requests of clients that a history records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// To store a message.
    Put(Body),
    /// For one message: to have it and remove it, or under a lease that ends with the connection.
    Take { removes: bool },
    /// To remove a message that is leased.
    Finish(Body),
    /// To give it back.
    Release(Body),
}

/// Replies that a history records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Stored under this id.
    Stored(u64),
    /// A message.
    Got(Body),
    /// There was none.
    Empty,
    Done,
    /// It was not done.
    Refused,
}

/// A command and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The connection: a client that connects again has another.
    pub connection: u64,
    pub queue: u8,
    pub ask: ClientRequest,
    /// When it was asked.
    pub requested: At,
    /// When it was answered, by the owner of which epoch, and what.
    pub answered: Option<(At, u64, Answer)>,
    /// Nothing was decided for it from then on; only of what was not answered.
    pub left: At,
}

/// Which command of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(usize);

/// Commands in the order they were asked.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
    /// When connections were closed, by their clients or at the other end.
    closed: BTreeMap<u64, At>,
    now: At,
}

impl History {
    fn next(&mut self) -> At {
        self.now += 1;
        self.now
    }

    /// A command was asked.
    pub fn begin_call(&mut self, connection: u64, queue: u8, ask: ClientRequest) -> CallId {
        let requested = self.next();
        self.calls.push(Call {
            connection,
            queue,
            ask,
            requested,
            answered: None,
            left: At::MAX,
        });
        CallId(self.calls.len() - 1)
    }

    /// It was answered, by the owner of this epoch.
    pub fn answered(&mut self, call: CallId, epoch: u64, answer: Answer) {
        let now = self.next();
        self.calls[call.0].answered = Some((now, epoch, answer));
    }

    /// The client of a connection began to close it: it holds nothing there any more.
    pub fn closed(&mut self, connection: u64) {
        let now = self.next();
        self.closed.entry(connection).or_insert(now);
    }

    /// A connection ended at the other side: nothing that was asked on it is decided from now on.
    pub fn ended(&mut self, connection: u64) {
        let now = self.next();
        self.closed.entry(connection).or_insert(now);
        for call in &mut self.calls {
            if call.connection == connection && call.answered.is_none() {
                call.left = call.left.min(now);
            }
        }
    }

    /// The answer to a command, if there was one.
    pub fn answer(&self, call: CallId) -> Option<Answer> {
        self.calls[call.0].answered.map(|(_, _, answer)| answer)
    }

    /// All commands.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// How many were answered with something else than an error or that there was nothing.
    pub fn acknowledged(&self) -> usize {
        let done = |call: &&Call| {
            let answer = call.answered.map(|(_, _, answer)| answer);
            answer.is_some_and(|answer| !matches!(answer, Answer::Refused | Answer::Empty))
        };
        self.calls.iter().filter(done).count()
    }

    /// Whether a server may have answered so; at the end of the history everything that was left
    /// has been taken away.
    ///
    /// # Errors
    /// The first rule that is broken, and by what.
    pub fn check(&self) -> Result<(), Broken> {
        rules::check(self)
    }
}
