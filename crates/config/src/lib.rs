//! The configuration: one file, every setting in one table ([`schema`]).
//!
//! The output of `--print-config`, the list in `docs/configuration.md` and the keys of the file all
//! follow from that table.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod address;
mod auth;
mod change;
mod cluster;
pub mod control;
mod files;
pub mod http;
mod in_force;
mod limits;
mod load;
mod machine;
mod print;
mod queues;
mod reach;
mod reload;
mod schedules;
mod schema;
mod scripts;
mod served;
pub mod sqs;
mod tls;
mod together;
mod units;
mod webhooks;
mod wrong;

use std::path::PathBuf;

use quintet_types::{Groups, Overrides, Pattern, QueueSettings, Settings};
use quintet_wire::Options;

pub use address::Address;
pub use auth::{GrantTable, UserTable, open_to_all};
pub use change::changed;
pub use cluster::Cluster;
pub use files::{Places, RESERVE};
pub use limits::LimitRow;
pub use load::{CommandLine, from_text, load, load_text};
pub use print::{Secrets, print};
pub use quintet_policy::SyncPolicy;
pub use reach::Reach;
pub use schedules::CronTable;
pub use schema::Config;
pub use served::Served;
pub use tls::{ListenTls, TlsMode};
pub use units::{parse_duration_ms, show_duration};
pub use webhooks::{Webhook, WebhookTable};
pub use wrong::old_names;

/// A listener: a `[[listen]]` table, a `--listen`, or a default one.
#[derive(Clone)]
pub struct Listen {
    pub served: Served,
    pub address: Address,
    /// Neither the file nor a flag names it: it is left out where its port is taken.
    pub is_default: bool,
    /// A connection without traffic is closed after so many ms; 0: never.
    pub idle_ms: u64,
    /// The user of a client that does not log in; empty: nobody in particular.
    pub user: String,
    /// Listens beyond this machine though nobody has to say who it is.
    pub insecure: bool,
    pub tls: ListenTls,
    pub options: Options,
}

impl Listen {
    /// True if an HTTP or SQS listener has the option `users`.
    pub fn has_users_option(&self) -> bool {
        matches!(self.served, Served::Http | Served::Sqs)
            && !self.options.text("users").trim().is_empty()
    }
}

impl Config {
    /// The part of the settings the engine decides by.
    pub fn engine_settings(&self) -> Settings {
        let mut defaults = QueueSettings::of_server();
        self.defaults.lay_over(&mut defaults);
        // Made by any client; what the file says of them comes after it and wins.
        let speaks_sqs = self.listen.iter().any(|l| matches!(l.served, Served::Sqs));
        let fifo = speaks_sqs.then(|| {
            let ordered = Overrides {
                groups: Some(Groups::Ordered),
                ..Overrides::default()
            };
            (Pattern::new("*.fifo"), ordered)
        });
        let own = self.rules.iter();
        let own = own.map(|(pattern, overrides)| (Pattern::new(pattern), overrides.clone()));
        Settings {
            defaults,
            rules: fifo.into_iter().chain(own).collect(),
            queues_max: clamp_u32(self.queues_max),
            waiters_max: clamp_u32(self.waiters_max),
            tables_bytes_max: self.tables_bytes_max,
            batches_max: clamp_u32(self.batches_max),
            batch_bytes_max: self.batch_bytes_max,
            batch_open_ms: self.batch_open_ms,
            batch_ttl_ms: self.batch_ttl_ms,
            batch_keep_ms: self.batch_keep_ms,
            tracked_max: clamp_u32(self.tracked_max),
            track_keep_ms: self.track_keep_ms,
            ends_max: clamp_u32(self.ends_max()),
            snapshot_bytes_max: self.snapshot_bytes_max() / self.shards.max(1),
            memory_max: self.memory_max() / self.shards.max(1),
            dedupe_max: self.dedupe_max(),
            clock_grain_ms: 1,
        }
    }

    /// Ends of messages that each shard remembers.
    fn ends_max(&self) -> u64 {
        const BYTES: u64 = 50;
        let most = match self.memory_max() {
            0 => self.ends_max,
            memory => self.ends_max.min(memory / 16 / BYTES),
        };
        most.div_ceil(self.shards.max(1))
    }

    /// Where the hooks are, if there are any.
    pub fn hooks_path(&self) -> Option<PathBuf> {
        (!self.hooks.is_empty()).then(|| PathBuf::from(&self.hooks))
    }

    /// True if others than `[[user]]` tables may know users.
    pub fn names_users_elsewhere(&self) -> bool {
        self.hooks_path().is_some() || self.listen.iter().any(Listen::has_users_option)
    }

    /// Budgets of hooks.
    pub fn hook_limits(&self) -> quintet_policy::Limits {
        self.hook_limits
    }

    /// Bytes a segment of the log may begin with: as set, or as much as one
    /// has.
    fn snapshot_bytes_max(&self) -> u64 {
        match self.snapshot_bytes_max {
            0 => self.segment_bytes,
            set => set,
        }
    }

    /// Bytes the messages may take: as set, or three quarters of the memory the machine, or the
    /// server's control group, has, so that a put is refused before the system kills the server.
    pub fn memory_max(&self) -> u64 {
        if self.cluster.is_on() {
            // Nothing leaves memory there yet, so that is the bound.
            return match self.memory_max {
                0 => self.memory,
                most => most.min(self.memory),
            };
        }
        if self.memory_max > 0 {
            return self.memory_max;
        }
        // Where nobody says how much there is, there is no limit.
        machine::memory().map_or(0, |bytes| bytes / 4 * 3)
    }

    /// Deduplication records that there may be in each shard; 0: no limit.
    fn dedupe_max(&self) -> u64 {
        let bytes = match (self.dedupe_memory, self.memory_max()) {
            (0, 0) => return 0,
            (0, most) => most / 4,
            (bytes, _) => bytes,
        };
        (bytes / quintet_types::DEDUPE_RECORD_BYTES / self.shards.max(1)).max(1)
    }

    /// Bytes all connections together may hold.
    pub fn connection_memory_bytes(&self) -> u64 {
        match self.connection_memory {
            0 => self.memory.max(64 << 20),
            bytes => bytes,
        }
    }

    /// The directory of queue scripts.
    pub fn scripts_dir(&self) -> PathBuf {
        match self.script_root.as_str() {
            "" => self.data.join("rq"),
            root => PathBuf::from(root),
        }
    }

    /// Where the control socket is, if there is one.
    pub fn admin_path(&self) -> Option<PathBuf> {
        match self.admin_socket.as_str() {
            "" => Some(self.data.join(ADMIN_SOCKET)),
            "none" => None,
            path => Some(PathBuf::from(path)),
        }
    }

    /// The number of I/O threads to run.
    pub fn io_threads(&self) -> usize {
        if self.io_threads > 0 {
            return usize::try_from(self.io_threads).unwrap_or(usize::MAX);
        }
        // The other half is for the kernel's share of the network, the log and
        // the clients beside it: on two cores one thread serves 117,000 requests
        // a second where two serve 82,000 (docs/performance.md).
        std::thread::available_parallelism().map_or(1, |n| (n.get() / 2).clamp(1, 64))
    }

    /// The number of threads to serve http with, and sqs.
    pub fn http_threads(&self) -> usize {
        if self.http_threads > 0 {
            return usize::try_from(self.http_threads).unwrap_or(usize::MAX);
        }
        // A request over HTTP takes several times what the network takes for it: here each
        // thread is of use (docs/performance.md).
        std::thread::available_parallelism().map_or(1, |n| n.get().min(HTTP_THREADS_MAX))
    }
}

/// Of each of http and sqs, where nobody says how many.
const HTTP_THREADS_MAX: usize = 8;

/// The forms of log lines that `log_format` takes.
pub const FORMATS: &[&str] = &["text", "json"];

/// Name of the control socket inside the data directory.
pub const ADMIN_SOCKET: &str = "quintet.sock";

fn clamp_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
