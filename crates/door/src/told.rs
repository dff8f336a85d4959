//! What a server tells those who operate it, beside its numbers.

/// A setting in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The table of the configuration it stands in, such as `[cluster]` or
    /// `[[queue]] work*`; empty: the top of the file.
    pub table: String,
    pub key: String,
    /// As the file says it; what is secret is hidden.
    pub value: String,
    pub source: Source,
    /// What it does, with unit and range; empty: see the documentation.
    pub help: String,
}

/// Where a setting's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// The configuration file.
    File,
    /// The command line, which wins over the file.
    CommandLine,
}

/// What hooks did at one event, since the server's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookEvent {
    pub name: String,
    /// Calls of its functions, and those that failed.
    pub calls: u64,
    pub errors: u64,
    /// Time spent in them, ns.
    pub ns: u64,
    /// The last failure, in words.
    pub last_error: Option<String>,
}

/// A line of the audit: an administrative act, or a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditLine {
    /// Wall clock, ms since 1970.
    pub at_ms: u64,
    /// A user, or an account of the server's machine; empty: the server itself.
    pub who: String,
    /// The client's address; empty: the server's machine.
    pub from: String,
    pub act: String,
    /// Which queue or the like.
    pub what: String,
    /// `ok`, or the word of a refusal.
    pub result: String,
}
