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

use quintet_client::Thresholds;
use quintet_policy::Events;
use quintet_scripts::QueueConfig;
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
pub use served::Served;
pub use tls::{ListenTls, TlsMode};
pub use units::{parse_duration_ms, show_duration};
pub use webhooks::{Webhook, WebhookTable};
pub use wrong::old_names;

quintet_types::defaults! {
    /// All settings of the server.
    #[derive(Clone)]
    pub struct Config {
        pub data: PathBuf = PathBuf::from("data"),
        pub sync: SyncPolicy = SyncPolicy::Always,
        pub shards: u64 = 1,
        /// 0: one for every two cores.
        pub io_threads: u64 = 0,
        /// 0: one for each core, at most [`HTTP_THREADS_MAX`].
        pub http_threads: u64 = 0,
        pub connections_max: u64 = 10_000,
        /// 0: as much as `memory`.
        pub connection_memory: u64 = 0,
        pub metrics_queues: u64 = 1000,
        pub history_queues: u64 = 10_000,
        pub tail_memory: u64 = 16 << 20,
        pub attention: Thresholds = Thresholds::default(),
        pub otlp_endpoint: String = String::new(),
        pub otlp_ca: String = String::new(),
        pub otlp_headers_file: String = String::new(),
        pub otlp_service_name: String = "quintet".to_owned(),
        pub otlp_spans_max: u64 = 4096,
        pub otlp_messages_max: u64 = 65_536,
        pub upload_bytes_max: u64 = 1 << 30,
        pub output_bytes_max: u64 = 1 << 20,
        pub chunk_bytes: u64 = 256 << 10,
        pub segment_bytes: u64 = 64 << 20,
        pub spare_segments: u64 = 2,
        pub log_bytes: u64 = 128 << 20,
        pub stop_wait_ms: u64 = 5000,
        pub log_level: String = "info".to_owned(),
        pub log_format: String = "text".to_owned(),
        /// Empty: `quintet.sock` in the data directory; `none`: no such socket.
        pub admin_socket: String = String::new(),
        pub queues_max: u64 = 100_000,
        pub waiters_max: u64 = 1_000_000,
        pub tables_bytes_max: u64 = 16 << 20,
        pub batches_max: u64 = 10_000,
        pub batch_bytes_max: u64 = 64 << 10,
        pub batch_open_ms: u64 = 30 * 60 * 1000,
        pub batch_ttl_ms: u64 = 30 * 24 * 3600 * 1000,
        pub batch_keep_ms: u64 = 24 * 3600 * 1000,
        pub tracked_max: u64 = 50_000,
        pub ends_max: u64 = 100_000,
        pub track_keep_ms: u64 = 30 * 60 * 1000,
        pub snapshot_bytes_max: u64 = 0,
        /// File or directory; empty: none.
        pub hooks: String = String::new(),
        pub hook_limits: HookLimits = HookLimits::default(),
        /// 0: no limit.
        pub memory: u64 = 256 << 20,
        pub memory_max: u64 = 0,
        pub dedupe_memory: u64 = 0,
        pub allow_shutdown: bool = false,
        /// Passwords checked at once.
        pub login_threads: u64 = 2,
        /// Logins that wait for that at most.
        pub logins_waiting_max: u64 = 256,
        pub tls: TlsMode = TlsMode::Auto,
        /// Files; empty: none.
        pub tls_cert: String = String::new(),
        pub tls_key: String = String::new(),
        pub tls_client_ca: String = String::new(),
        pub tls_handshake_ms: u64 = 10_000,
        /// `[defaults]`.
        pub defaults: Overrides = Overrides::default(),
        /// `[[queue]]`, in the order of the file.
        pub rules: Vec<(String, Overrides)> = Vec::new(),
        /// Scripts of `[[queue]]`, in the order of the file.
        pub scripts: Vec<QueueConfig> = Vec::new(),
        /// Empty: `rq` in the data directory.
        pub script_root: String = String::new(),
        pub ignore_rq_messages: bool = false,
        pub trace_url: String = String::new(),
        pub relay_hosts: String = String::new(),
        pub webhook_hosts: String = String::new(),
        /// File; empty: whom browsers trust.
        pub relay_ca: String = String::new(),
        /// Empty: the address of the first http listener.
        pub script_host: String = String::new(),
        pub script_env: String = "production".to_owned(),
        /// 0: no limit.
        pub script_time_ms: u64 = 0,
        pub script_grace_ms: u64 = 5000,
        /// 0: no limit.
        pub script_memory: u64 = 0,
        pub script_log_bytes: u64 = 64 << 20,
        pub scripts_max: u64 = 1000,
        pub cluster: Cluster = Cluster::default(),
        /// `[[user]]`, in the order of the file.
        pub users: Vec<UserTable> = Vec::new(),
        /// `[[grant]]`, in the order of the file.
        pub grants: Vec<GrantTable> = Vec::new(),
        /// `[[limit]]`, in the order of the file.
        pub limits: Vec<LimitRow> = Vec::new(),
        /// `[[cron]]`, in the order of the file.
        pub crons: Vec<CronTable> = Vec::new(),
        /// `[[schedule]]`, in the order of the file.
        pub schedules: Vec<CronTable> = Vec::new(),
        /// Tables of both kinds at most.
        pub crons_max: u64 = 1000,
        /// Schedules that are defined at run time at most.
        pub schedules_max: u64 = 100_000,
        /// `[[webhook]]`, in the order of the file.
        pub webhooks: Vec<WebhookTable> = Vec::new(),
        /// Bytes of the newest segments that readers of events find, though nothing lives in them.
        pub events_keep: u64 = 0,
        pub listen: Vec<Listen> = Vec::new(),
    }
}

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

/// Budgets of hooks, as they are set.
#[derive(Clone)]
pub struct HookLimits {
    pub instructions_max: u64,
    pub time_ms: u64,
    pub memory_bytes_max: u64,
    pub refuse_on_error: Events,
}

impl Default for HookLimits {
    fn default() -> Self {
        let limits = quintet_policy::Limits::default();
        Self {
            instructions_max: limits.instructions_max,
            time_ms: limits.time_ms_max,
            memory_bytes_max: limits.memory_bytes_max as u64,
            refuse_on_error: limits.refuse_on_error,
        }
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

    /// Budgets of hooks, as hooks want them.
    pub fn hook_limits(&self) -> quintet_policy::Limits {
        quintet_policy::Limits {
            instructions_max: self.hook_limits.instructions_max,
            time_ms_max: self.hook_limits.time_ms,
            memory_bytes_max: usize::try_from(self.hook_limits.memory_bytes_max)
                .unwrap_or(usize::MAX),
            refuse_on_error: self.hook_limits.refuse_on_error,
            ..quintet_policy::Limits::default()
        }
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
