//! Reports of a server to those who operate it, beside its numbers.

use quintet_types::QueueSetup;

/// A setting with its value and source, as `quintet settings` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The table of the configuration it stands in, such as `[cluster]` or
    /// `[[queue]] work*`; empty: the top of the file.
    pub table: String,
    pub key: String,
    /// As the file says it; what is secret is hidden.
    pub value: String,
    pub source: Source,
    /// Effect, with unit and range; empty: see the documentation.
    pub help: String,
    /// Of a queue's: nobody but the file may change it.
    pub locked: bool,
    /// Of [`Source::Queue`]: who set it, if that is known.
    pub set_by: Option<SetBy>,
}

/// The user that set a setting, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetBy {
    /// The user's name; empty: nobody in particular.
    pub name: String,
    /// Wall clock, ms.
    pub at_ms: u64,
}

impl SetBy {
    /// As a queue's tag of this name says it.
    pub fn of(setup: &QueueSetup, tag: &[u8]) -> Option<Self> {
        let stamp = setup.own.tags.as_ref()?.get(tag)?;
        let (at_ms, name) = std::str::from_utf8(stamp).ok()?.split_once(' ')?;
        Some(Self {
            name: name.to_owned(),
            at_ms: at_ms.parse().ok()?,
        })
    }
}

/// A setting that is to be changed, and its value as JSON; `None`: it is cleared.
pub type Change = (String, Option<String>);

/// Why a setting cannot be changed so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoChange {
    pub key: String,
    /// Without the key.
    pub why: String,
    /// The file forbids it.
    pub locked: bool,
}

impl NoChange {
    /// The file has locked this setting.
    pub fn locked(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            why: "is locked by the configuration".to_owned(),
            locked: true,
        }
    }
}

/// Parts of the server that are configured: a menu leaves out the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parts {
    pub hooks: bool,
    pub cluster: bool,
    /// A protocol whose clients are workers with names.
    pub workers: bool,
}

quintet_types::named! {
    /// Where a setting's value comes from.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Source, name {
        /// Nobody said otherwise.
        Default = "default",
        File = "file",
        /// The command line, which wins over the file.
        CommandLine = "command line",
        /// Set for this queue while the server ran; wins over the file.
        Queue = "queue",
    }
}

/// Work of hooks at one event, since the server's start.
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

/// An address or a user that a `[[limit]]` has throttled since it was last idle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThrottledClient {
    /// `address 192.0.2.7`, `user ann`.
    pub who: String,
    /// The limits that it has reached now.
    pub now: Vec<&'static str>,
    /// Requests that had to wait, and what was refused.
    pub times: u64,
    /// How long ago that was last.
    pub ago_ms: u64,
}

/// The result of an act, beside that it was done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Did {
    /// Messages it was done to.
    pub messages: Option<u64>,
    /// The id that its message has from then on.
    pub new_id: Option<u64>,
}

impl Did {
    /// Done to so many messages.
    pub fn to(messages: u64) -> Self {
        Self {
            messages: Some(messages),
            new_id: None,
        }
    }
}

/// A cluster as one of its nodes sees it, with what the others say of themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterSeen {
    pub cluster: String,
    /// The node that tells this.
    pub told_by: String,
    /// Somebody owns the queues and gets acknowledgements.
    pub serves: bool,
    /// The loss of any one machine would be survived now.
    pub survives: bool,
    /// Both in a sentence.
    pub verdict: String,
    /// The faults, a sentence each.
    pub notes: Vec<String>,
    pub nodes: Vec<NodeSeen>,
    /// The logs of its groups.
    pub logs: Vec<LogSeen>,
}

/// A node as the cluster's status shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSeen {
    pub node: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Why nothing more is known of it, if it does not answer.
    pub silent: Option<String>,
    /// `owner`, `standby` and so on.
    pub role: String,
    /// Since when, ms ago.
    pub since_ms: u64,
    pub epoch: u64,
    pub owns: bool,
    /// It could own at once.
    pub ready: bool,
    /// It is to own nothing, if others can.
    pub drained: bool,
    /// Entries it has still to apply.
    pub lag_entries: u64,
    /// Within how many ms it applies 99 of 100 frames; of an owner, has them acknowledged.
    pub p99_ms: Option<u64>,
    /// Runs it has still to fetch.
    pub runs_missing: u64,
    pub version: String,
}

/// The log of a group, as JetStream reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSeen {
    pub group: u16,
    /// Why nothing more is known, if JetStream does not answer.
    pub silent: Option<String>,
    pub stream: String,
    /// Number of its first and its last entry.
    pub first: u64,
    pub last: u64,
    pub bytes: u64,
    /// NATS servers that keep it, the leader first, and how each stands.
    pub servers: Vec<(String, String)>,
}
