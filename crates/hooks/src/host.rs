//! The server as hooks need it.

use quintet_types::{Caller, Command, Ms, Name, Outcome};

/// How important a line of the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// For the curious.
    Info,
    /// To be looked at some time.
    Warn,
    /// To be looked at.
    Error,
}

/// The server, as hooks see it. One for each state; a state takes it along to
/// the thread it lives on.
pub trait Host: Send {
    /// Engine time.
    fn now(&self) -> Ms;

    /// The wall clock's time; it can be set at any moment, forward or back.
    fn wall(&self) -> Ms;

    /// Asks the shards; answers the outcome (`None`: it waits, and the caller
    /// will be notified, if it is a client that exists: `u64::MAX - 1` stands for
    /// nobody) and the queue its first message came from.
    fn ask(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name);

    /// As [`Host::ask`], for a hook, which cannot wait: a command that only reads is answered at
    /// once.
    fn ask_at_once(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        self.ask(caller, command)
    }

    /// A line for the server's log.
    fn log(&mut self, level: Level, text: &str);
}

/// On whose behalf an event happens.
#[derive(Clone, Debug, Default)]
pub struct Who {
    /// The author of commands to the shards.
    pub caller: Caller,
    /// Number of the connection; 0: none.
    pub connection: u64,
    /// Name of the protocol; empty: none.
    pub protocol: &'static str,
    /// The client's address; empty: none.
    pub peer: std::sync::Arc<str>,
    /// The client's user name; empty: the client did not give one.
    pub user: std::sync::Arc<str>,
}
