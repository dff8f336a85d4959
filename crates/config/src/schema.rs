//! The table of the server's own settings.

use std::path::PathBuf;

use quintet_client::Thresholds;
use quintet_policy::{Event, Events, Limits};
use quintet_scripts::{Limits as ScriptLimits, QueueConfig};
use quintet_types::{Overrides, Settings};

use super::units::{parse_bytes, parse_duration_ms, show_bytes, show_duration};
use super::{
    Cluster, CronTable, FORMATS, GrantTable, LimitRow, Listen, SyncPolicy, TlsMode, UserTable,
    WebhookTable,
};

/// One setting of the server, or a key of a table.
pub(crate) struct Spec<T> {
    /// Its key in the file.
    pub key: &'static str,
    /// Effect, with unit and range.
    pub help: &'static str,
    /// True if SIGHUP makes a new value count; others need a restart.
    pub reload: bool,
    /// The place of a setting in the configuration, or in a row of tables.
    pub field: fn(&mut T) -> Field<'_>,
}

/// The types of the kinds of values, by their names in [`Field`].
pub(crate) mod kinds {
    use std::path::PathBuf;

    use super::super::{SyncPolicy, TlsMode};

    pub(crate) type Bytes = u64;
    pub(crate) type Duration = u64;
    pub(crate) type Number = u64;
    pub(crate) type Text = String;
    pub(crate) type Level = String;
    pub(crate) type Choice = String;
    pub(crate) type List = Vec<String>;
    pub(crate) type Flag = bool;
    pub(crate) type Path = PathBuf;
    pub(crate) type Sync = SyncPolicy;
    pub(crate) type Tls = TlsMode;
    pub(crate) type Texts = Vec<String>;
    pub(crate) type Given = Option<u64>;
}

/// A struct of settings and the table of them, a row each: `live` (a new value counts after SIGHUP)
/// or `fixed` (it needs a restart), the key, the kind of its value, then in round brackets the field
/// with its default and bounds, or in square ones the place of an inner field, and the effect. Last
/// the fields that have no row.
macro_rules! settings {
    (@live) => { true };
    (@fixed) => { false };
    (
        $(#[$meta:meta])*
        pub struct $struct:ident, $table:ident: |$config:ident| $place:expr;
        $($when:ident $key:literal $kind:ident
            $(($own:ident: $default:expr $(, $more:expr)*))?
            $([$($at:ident).+ $(, $bound:expr)*])?
            $help:literal;)*
        $($(#[$field_meta:meta])* + $field:ident: $type:ty;)*
    ) => {
        $(#[$meta])*
        pub struct $struct {
            $($(pub $own: $crate::schema::kinds::$kind,)?)*
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $struct {
            fn default() -> Self {
                Self {
                    $($($own: $default,)?)*
                    $($field: Default::default(),)*
                }
            }
        }

        /// The table, in the order in which settings are shown.
        pub(crate) const $table: &[$crate::schema::Spec<$crate::Config>] = &[
            $($crate::schema::Spec {
                key: $key,
                help: $help,
                reload: $crate::schema::settings!(@$when),
                field: |$config| {
                    $($crate::schema::Field::$kind(&mut $place.$own $(, $more)*))?
                    $($crate::schema::Field::$kind(&mut $config.$($at).+ $(, $bound)*))?
                },
            },)*
        ];
    };
}
pub(crate) use settings;

/// The keys of a table that may be there several times, a row each: the key, kind and place of its
/// value, its effect.
macro_rules! keys {
    ($($key:literal $kind:ident($($at:ident).+) $help:literal;)*) => {
        &[$($crate::schema::Spec {
            key: $key,
            help: $help,
            reload: true,
            field: |row| $crate::schema::Field::$kind(&mut row.$($at).+),
        }),*]
    };
}
pub(crate) use keys;

/// A struct of such a table and its rows, each with the field of that name; last the fields that
/// have no row.
macro_rules! table {
    (
        $(#[$meta:meta])*
        pub struct $struct:ident, $rows:ident;
        $($key:literal $kind:ident($field:ident) $help:literal;)*
        $(+ $more:ident: $type:ty;)*
    ) => {
        $(#[$meta])*
        pub struct $struct {
            $(pub $field: $crate::schema::kinds::$kind,)*
            $(pub(crate) $more: $type,)*
        }

        pub(crate) const $rows: &[$crate::schema::Spec<$struct>] = $crate::schema::keys! {
            $($key $kind($field) $help;)*
        };
    };
}
pub(crate) use table;

/// The place a setting is kept in, which also gives its type.
pub(crate) enum Field<'a> {
    /// Bytes with the least and the most allowed.
    Bytes(&'a mut u64, u64, u64),
    /// Milliseconds.
    Duration(&'a mut u64),
    /// A whole number with the least and the most allowed.
    Number(&'a mut u64, u64, u64),
    Text(&'a mut String),
    /// Texts.
    List(&'a mut Vec<String>),
    Flag(&'a mut bool),
    /// Events of hooks: true, false, or a list of names.
    Events(&'a mut Events),
    Path(&'a mut PathBuf),
    Sync(&'a mut SyncPolicy),
    Level(&'a mut String),
    /// One of these words.
    Choice(&'a mut String, &'static [&'static str]),
    Tls(&'a mut TlsMode),
    /// Texts of a row of tables.
    Texts(&'a mut Vec<String>),
    /// A whole number of such a row; `None`: not said.
    Given(&'a mut Option<u64>),
    /// The same of bytes.
    GivenBytes(&'a mut Option<u64>),
}

/// The levels `log_level` takes, least first.
pub(crate) const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

settings! {
    /// All settings of the server.
    #[derive(Clone)]
    pub struct Config, SETTINGS: |config| config;
    fixed "data" Path(data: PathBuf::from("data"))
        "Data directory: the log, its lock and the control socket. Created if absent.";
    fixed "sync" Sync(sync: SyncPolicy::Always)
        "When the log reaches the disk: \"always\" (replies wait for fdatasync), an interval such \
         as \"50ms\" (a power failure may lose that much; kill -9 loses nothing), or \"never\" \
         (the system decides).";
    fixed "shards" Number(shards: 1, 1, 64)
        "Parts that the queues are divided into, 1 to 64. Fixed when the data directory is \
         created.";
    fixed "io_threads" Number(io_threads: 0, 0, 64)
        "Threads that serve connections, at most 64; 0: one for every two cores.";
    fixed "http_threads" Number(http_threads: 0, 0, 64)
        "Most threads for http, and as many for sqs, up to 64; they begin with connections. 0: one \
         for each core, at most 8.";
    live "connections_max" Number(connections_max: 10_000, 1, 1_000_000)
        "Most connections over all listeners except http and sqs; more are closed at once.";
    live "connection_memory" Bytes(connection_memory: 0, 0, 1 << 40)
        "Memory of all connections for input, uploads and replies, beyond 8KiB each. Near it the \
         server stops reading from the largest, then closes them. 0: as much as memory, at least \
         64MiB.";
    live "metrics_queues" Number(metrics_queues: 1000, 0, 1_000_000)
        "Queues with their own series in http's /metrics, those with the most bytes; sums cover \
         all queues.";
    live "history_queues" Number(history_queues: 10_000, 0, 1_000_000)
        "Queues with a history of an hour and a day, the first that had traffic. Each takes up to \
         7KiB of memory. 0: none.";
    live "tail_memory" Bytes(tail_memory: 16 << 20, 0, 1 << 40)
        "Most memory of bodies that quintet tail --contains searches, shared by the queues that \
         are followed; of other bodies the first 256 bytes are searched.";
    live "attention_lost" Number[attention.lost, 0, u64::MAX]
        "Messages that a queue drops or lets expire within five minutes before it needs attention \
         (docs/attention.md). 0: the rule is off.";
    live "attention_failures" Number[attention.failures, 0, u64::MAX]
        "Failed tries of a queue within five minutes before it needs attention.";
    live "attention_failing_percent" Number[attention.failing_percent, 0, 100]
        "And their share of all tries, 0 to 100.";
    live "attention_growing" Number[attention.growing, 0, u64::MAX]
        "Ready messages of a queue that grows although consumers take from it.";
    live "attention_dead" Number[attention.dead, 0, u64::MAX]
        "Messages of a queue that are buried or become dead letters within an hour.";
    live "attention_timeouts" Number[attention.timeouts, 0, u64::MAX]
        "Leases of a queue that run out within five minutes, if they are one in twenty.";
    live "attention_stuck" Duration[attention.stuck_ms]
        "Time in which no lease of a queue ends while messages are ready.";
    live "attention_unconsumed" Number[attention.unconsumed, 0, u64::MAX]
        "Ready messages of a queue without consumers.";
    live "attention_unconsumed_for" Duration[attention.unconsumed_ms]
        "And the age of the oldest of them.";
    live "attention_muted" List[attention.muted]
        "Queues that may be without consumers, such as [\"archive*\"].";
    fixed "otlp_endpoint" Text(otlp_endpoint: String::new())
        "OpenTelemetry collector (OTLP over HTTP) for spans of messages, such as \
         \"http://localhost:4318\"; the server adds /v1/traces. Empty: none.";
    fixed "otlp_ca" Text(otlp_ca: String::new())
        "File with the authorities of the collector's certificate; empty: those that browsers \
         trust.";
    fixed "otlp_headers_file" Text(otlp_headers_file: String::new())
        "File with headers for the collector, such as its token: NAME: VALUE a line. Empty: none.";
    fixed "otlp_service_name" Text(otlp_service_name: "quintet".to_owned())
        "Name of this server at the collector.";
    fixed "otlp_spans_max" Number(otlp_spans_max: 4096, 1, 1_000_000)
        "Most spans that wait to be sent; more are dropped and counted.";
    fixed "otlp_messages_max" Number(otlp_messages_max: 65_536, 1, 10_000_000)
        "Messages of each shard that are followed at once, about 300 bytes each; others have no \
         spans and count as dropped.";
    live "upload_bytes_max" Bytes(upload_bytes_max: 1 << 30, 1 << 20, 1 << 50)
        "Disk space for all large messages (over 64KiB) that are not complete yet; more are \
         rejected as if the disk were full.";
    fixed "output_bytes_max" Bytes(output_bytes_max: 1 << 20, 4096, 1 << 30)
        "Unread replies of one connection before the server stops reading from it.";
    fixed "chunk_bytes" Bytes(chunk_bytes: 256 << 10, 64 << 10, 1 << 20)
        "Large bodies (over 64KiB) go to the log in pieces of this size, 64KiB to 1MiB.";
    fixed "segment_bytes" Bytes(segment_bytes: 64 << 20, 4 << 20, 1 << 30)
        "Largest file of the log, 4MiB to 1GiB. A new log begins with files of 2MiB, which grow.";
    fixed "spare_segments" Number(spare_segments: 2, 1, 16)
        "Zero-filled log files kept ready, 1 to 16, each as long as the current one.";
    live "log_bytes" Bytes(log_bytes: 128 << 20, 8 << 20, 1 << 50)
        "Beyond this size the server moves live messages of the oldest log files to run files, and \
         deletes these log files. A start reads this much at most.";
    live "events_keep" Bytes(events_keep: 0, 0, 1 << 50)
        "Newest log files that are kept for readers of events though nothing in them is alive, up \
         to this size, log_bytes and the space on the disk.";
    live "stop_wait" Duration(stop_wait_ms: 5000)
        "How long a stop (SIGTERM) waits for clients to read their replies; 1 s for those who read \
         nothing.";
    live "log_level" Level(log_level: "info".to_owned())
        "Level of messages on standard error: off, error, warn, info, debug or trace.";
    fixed "log_format" Choice(log_format: "text".to_owned(), FORMATS)
        "\"text\", or \"json\": one object a line, with fields beside the message.";
    fixed "admin_socket" Text(admin_socket: String::new())
        "Path of the control socket of the command line; empty: quintet.sock in the data \
         directory; \"none\": no socket.";
    live "queues_max" Number(queues_max: Settings::default().queues_max.into(), 1, 10_000_000)
        "Most queues in each shard.";
    live "waiters_max" Number(waiters_max: Settings::default().waiters_max.into(), 1, 10_000_000)
        "Most waiting takes in each shard.";
    live "crons_max" Number(crons_max: 1000, 0, 100_000)
        "Most [[cron]] and [[schedule]] tables.";
    live "schedules_max" Number(schedules_max: 100_000, 0, 10_000_000)
        "Most schedules that are defined at run time; tables_bytes_max bounds them too.";
    live "memory" Bytes(memory: 256 << 20, 32 << 20, 1 << 50)
        "Memory the server tries to stay in, at least 32MiB. Beyond it messages go to run files, \
         those that are taken last first, and come back in time.";
    live "memory_max" Bytes(memory_max: 0, 0, 1 << 50)
        "Most memory of messages that cannot leave it (reserved, in queues with memory = true, the \
         disk is full); puts over it fail. 0: three quarters of the machine's memory.";
    live "dedupe_memory" Bytes(dedupe_memory: 0, 0, 1 << 50)
        "Most memory of deduplication ids and idempotency keys, over all queues; a put with one \
         more fails (too many deduplication ids). 0: a quarter of memory_max.";
    live "hooks" Text(hooks: String::new())
        "Lua hooks: a file, or a directory of *.lua files, loaded in the order of their names \
         (docs/hooks.md). Changed files are read again. Empty: none.";
    live "hook_instructions_max" Number[hook_limits.instructions_max, 1000, 1 << 40]
        "Most Lua instructions of one call of a hook.";
    live "hook_time" Duration[hook_limits.time_ms_max]
        "Most processor time of one call of a hook, at least 1ms.";
    live "hook_memory_max" Bytes[hook_limits.memory_bytes_max, 1 << 20, 1 << 36]
        "Most memory of the hooks of one thread.";
    live "hook_refuse_on_error" Events[hook_limits.refuse_on_error]
        "true: a command whose hook fails is rejected; false: it continues as without a hook. A \
         list of events, such as [\"before_put\"]: rejected for these only.";
    live "tables_bytes_max"
        Bytes(tables_bytes_max: Settings::default().tables_bytes_max, 0, 1 << 30)
        "Most memory of the hooks' durable tables, in each shard; a step that sets more fails.";
    live "batches_max" Number(batches_max: Settings::default().batches_max.into(), 0, 10_000_000)
        "Most batches at once in each shard; one more fails (too many batches).";
    live "batch_bytes_max" Bytes(batch_bytes_max: Settings::default().batch_bytes_max, 0, 16 << 20)
        "Most bytes of a batch's description and callbacks; more fails (batch too large).";
    live "batch_open_time" Duration(batch_open_ms: Settings::default().batch_open_ms)
        "A batch that is created or opened and not committed in this time is gone.";
    live "batch_ttl" Duration(batch_ttl_ms: Settings::default().batch_ttl_ms)
        "A batch without success is gone this long after its commit.";
    live "batch_keep" Duration(batch_keep_ms: Settings::default().batch_keep_ms)
        "How long a successful batch stays visible.";
    live "tracked_max" Number(tracked_max: Settings::default().tracked_max.into(), 0, 10_000_000)
        "Most tracked messages whose outcome is known, in each shard; beyond it those that changed \
         longest ago are forgotten.";
    live "ends_max" Number(ends_max: 100_000, 0, 1_000_000)
        "Gone messages whose outcome is known (quintet trace), the newest; 50 bytes each, together \
         at most a sixteenth of memory_max. 0: none.";
    live "track_keep" Duration(track_keep_ms: Settings::default().track_keep_ms)
        "How long the outcome of a tracked message is known after its last change. 0: not at all.";
    live "snapshot_bytes_max" Bytes(snapshot_bytes_max: 0, 0, 1 << 40)
        "Most bytes of queue names and settings, batches, tables of hooks and records of runs, \
         shared evenly by the shards: each file of the log begins with them. More of them is \
         rejected (snapshot full). 0: as much as segment_bytes.";
    fixed "script_root" Text(script_root: String::new())
        "Directory of queue scripts: config/, queue/, scandir/, timers/, laid out as RQ's. Created \
         if absent; empty: rq in the data directory.";
    fixed "ignore_rq_messages" Flag(ignore_rq_messages: false)
        "Start although script_root has messages of RQ itself. Quintet does not read them; they \
         stay.";
    live "trace_url" Text(trace_url: String::new())
        "Link from the console to the trace of a message, such as \
         \"https://traces.example/trace/{trace_id}\"; {span_id} is the span. Empty: none.";
    fixed "relay_hosts" Text(relay_hosts: String::new())
        "Hosts that relay may send messages to: HOST, HOST:PORT or *.NAME, separated by spaces; \
         \"*\": all, as RQ does. Any client that may put a message chooses its address. Empty: \
         none.";
    fixed "webhook_hosts" Text(webhook_hosts: String::new())
        "Hosts that webhook may tell the outcome of a message; as relay_hosts.";
    fixed "relay_ca" Text(relay_ca: String::new())
        "Authorities of the https servers of relay, webhook and [[webhook]]. Empty: those that \
         browsers trust.";
    fixed "script_host" Text(script_host: String::new())
        "Address of this server for others, http://HOST:PORT/ with the relative root: ids of RQ's \
         messages begin with it. Empty: the first http listener.";
    fixed "script_env" Text(script_env: "production".to_owned())
        "RQ_ENV of scripts.";
    fixed "script_time" Duration(script_time_ms: 0)
        "Longest run of a script; then it is ended and its message is in err. 0: no limit.";
    fixed "script_grace" Duration(script_grace_ms: 5000)
        "Time between TERM and KILL when a script is ended.";
    fixed "script_memory" Bytes[script_limits.address_space_bytes, 0, 1 << 50]
        "Address space of each process of a script; 0: no limit.";
    fixed "script_log_bytes" Bytes[script_limits.log_bytes_max, 4096, 1 << 50]
        "Output of one run of a script that stdio.log keeps; the rest is dropped and marked.";
    fixed "scripts_max" Number[script_limits.children_max, 1, 100_000]
        "Most scripts that run at once, over all queues.";
    live "allow_shutdown" Flag(allow_shutdown: false)
        "Clients may stop the server (memcache \"shutdown\").";
    fixed "login_threads" Number(login_threads: 2, 1, 64)
        "Passwords checked at once, 1 to 64: each takes a core for tens of milliseconds and 19MiB \
         of memory.";
    fixed "logins_waiting_max" Number(logins_waiting_max: 256, 1, 100_000)
        "Most logins that wait for a check; the next fail (too many logins at once).";
    fixed "tls" Tls(tls: TlsMode::Auto)
        "TLS of TCP listeners without their own setting: \"auto\" (on if tls_cert is set), \
         \"off\", \"on\", or \"self-signed\" (the server creates a certificate, for a first try; \
         docs/tls.md).";
    live "tls_cert" Text(tls_cert: String::new())
        "File with the certificate (PEM) and the intermediate ones. Changed files are read again, \
         also of the next two. Empty: none.";
    live "tls_key" Text(tls_key: String::new())
        "Key of tls_cert (PEM); an error if other accounts can read it.";
    live "tls_client_ca" Text(tls_client_ca: String::new())
        "Authorities of client certificates: each client must show one. Empty: clients need none.";
    live "tls_handshake_time" Duration(tls_handshake_ms: 10_000)
        "Longest TLS handshake; then the connection closes.";
    + attention: Thresholds;
    + hook_limits: Limits;
    + script_limits: ScriptLimits;
    /// `[defaults]`.
    + defaults: Overrides;
    /// `[[queue]]`, in the order of the file.
    + rules: Vec<(String, Overrides)>;
    /// Scripts of `[[queue]]`, in the order of the file.
    + scripts: Vec<QueueConfig>;
    + cluster: Cluster;
    /// `[[user]]`, in the order of the file.
    + users: Vec<UserTable>;
    /// `[[grant]]`, in the order of the file.
    + grants: Vec<GrantTable>;
    /// `[[limit]]`, in the order of the file.
    + limits: Vec<LimitRow>;
    /// `[[cron]]`, in the order of the file.
    + crons: Vec<CronTable>;
    /// `[[schedule]]`, in the order of the file.
    + schedules: Vec<CronTable>;
    /// `[[webhook]]`, in the order of the file.
    + webhooks: Vec<WebhookTable>;
    + listen: Vec<Listen>;
}

impl Field<'_> {
    /// Exchanges the values of one setting in two configurations.
    pub(crate) fn swap(self, other: Field<'_>) {
        use std::mem::swap;
        match (self, other) {
            (Field::Bytes(a, ..), Field::Bytes(b, ..))
            | (Field::Duration(a), Field::Duration(b))
            | (Field::Number(a, ..), Field::Number(b, ..)) => swap(a, b),
            (Field::Text(a), Field::Text(b)) | (Field::Level(a), Field::Level(b)) => swap(a, b),
            (Field::Choice(a, _), Field::Choice(b, _)) => swap(a, b),
            (Field::Flag(a), Field::Flag(b)) => swap(a, b),
            (Field::List(a), Field::List(b)) => swap(a, b),
            (Field::Events(a), Field::Events(b)) => swap(a, b),
            (Field::Path(a), Field::Path(b)) => swap(a, b),
            (Field::Sync(a), Field::Sync(b)) => swap(a, b),
            (Field::Tls(a), Field::Tls(b)) => swap(a, b),
            _ => unreachable!("a setting's row has one kind of field"),
        }
    }

    /// Stores a value of the file.
    ///
    /// # Errors
    /// The value does not fit; the text names the values that do.
    pub(crate) fn set(self, value: &toml::Value) -> Result<(), String> {
        match self {
            Field::Bytes(at, least, most) => {
                let bytes = bytes(value)?;
                if bytes < least || bytes > most {
                    let (least, most) = (show_bytes(least), show_bytes(most));
                    return Err(takes(&format!("a size, {least} to {most}"), value));
                }
                *at = bytes;
            }
            Field::Duration(at) => *at = duration(value)?,
            Field::Number(at, least, most) => {
                let supplied = number(value).ok();
                let supplied = supplied.filter(|n| (least..=most).contains(n));
                *at = supplied.ok_or_else(|| takes(&range(least, most), value))?;
            }
            Field::Text(at) => *at = text(value)?.to_owned(),
            Field::List(at) => *at = list(value)?,
            Field::Flag(at) => *at = flag(value)?,
            Field::Events(at) => *at = events(value)?,
            Field::Path(at) => {
                let path = text(value)?;
                if path.is_empty() {
                    return Err("takes a path".to_owned());
                }
                *at = PathBuf::from(path);
            }
            Field::Sync(at) => *at = parse_sync(word(value))?,
            Field::Tls(at) => *at = TlsMode::read(value)?,
            Field::Choice(at, words) => *at = one_of(words, word(value).to_owned(), value)?,
            Field::Level(at) => *at = one_of(LEVELS, word(value).to_ascii_lowercase(), value)?,
            Field::Texts(at) => {
                let all = value.as_array().ok_or("takes a list of texts")?;
                let all = all.iter().map(|one| text(one).map(str::to_owned));
                *at = all.collect::<Result<_, _>>()?;
            }
            Field::Given(at) => *at = Some(number(value)?),
            Field::GivenBytes(at) => *at = Some(bytes(value)?),
        }
        Ok(())
    }

    /// The value as the file would say it; empty: it is not said.
    pub(crate) fn show(&self) -> String {
        match self {
            Field::Bytes(bytes, _, _) => quoted(&show_bytes(**bytes)),
            Field::Duration(ms) => quoted(&show_duration(**ms)),
            Field::Number(number, _, _) => number.to_string(),
            Field::Text(text) | Field::Level(text) | Field::Choice(text, _) => quoted(text),
            Field::List(texts) | Field::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(", "))
            }
            Field::Given(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            Field::GivenBytes(bytes) => {
                let bytes = bytes.map(|bytes| quoted(&show_bytes(bytes)));
                bytes.unwrap_or_default()
            }
            Field::Flag(flag) => flag.to_string(),
            Field::Events(events) if **events == Events::NONE => "false".to_owned(),
            Field::Events(events) if **events == Events::ALL => "true".to_owned(),
            Field::Events(events) => {
                let names: Vec<String> = events.each().map(|one| quoted(one.name())).collect();
                format!("[{}]", names.join(", "))
            }
            Field::Path(path) => quoted(&path.to_string_lossy()),
            Field::Tls(mode) => quoted(mode.name()),
            Field::Sync(SyncPolicy::Always) => quoted("always"),
            Field::Sync(SyncPolicy::Never) => quoted("never"),
            Field::Sync(SyncPolicy::EveryMs(ms)) => quoted(&show_duration(*ms)),
        }
    }
}

/// Reads the value of `sync`.
///
/// # Errors
/// Another text; the error names the texts that it takes.
pub(crate) fn parse_sync(text: &str) -> Result<SyncPolicy, String> {
    match text {
        "always" => Ok(SyncPolicy::Always),
        "never" => Ok(SyncPolicy::Never),
        interval => match parse_duration_ms(interval) {
            Ok(ms @ 1..=60_000) => Ok(SyncPolicy::EveryMs(ms)),
            _ => Err("takes \"always\", \"never\" or an interval from \"1ms\" to \"60s\"".into()),
        },
    }
}

fn one_of(words: &[&str], word: String, value: &toml::Value) -> Result<String, String> {
    match words.contains(&word.as_str()) {
        true => Ok(word),
        false => Err(takes(&format!("one of {}", words.join(", ")), value)),
    }
}

fn events(value: &toml::Value) -> Result<Events, String> {
    match value.as_bool() {
        Some(true) => return Ok(Events::ALL),
        Some(false) => return Ok(Events::NONE),
        None => {}
    }
    let names = value.as_array();
    let names = names.ok_or_else(|| takes("true, false or a list of events", value))?;
    names.iter().try_fold(Events::NONE, |all, name| {
        let known = |event: &Event| name.as_str() == Some(event.name());
        let event = Event::ALL.into_iter().find(known).ok_or_else(|| {
            let names = Event::ALL.map(Event::name).join(", ");
            format!("{name} is not an event; events are {names}")
        })?;
        Ok(all.with(event))
    })
}

pub(crate) fn bytes(value: &toml::Value) -> Result<u64, String> {
    match (whole(value), value.as_str()) {
        (Some(bytes), _) => Ok(bytes),
        (None, Some(text)) => parse_bytes(text),
        (None, None) => Err(takes(
            "a number of bytes, or a size such as \"64MiB\"",
            value,
        )),
    }
}

pub(crate) fn duration(value: &toml::Value) -> Result<u64, String> {
    match (whole(value), value.as_str()) {
        (Some(seconds), _) => seconds
            .checked_mul(1000)
            .ok_or_else(|| format!("{seconds} seconds are too long")),
        (_, Some(text)) => parse_duration_ms(text),
        (_, None) => {
            let what = "a duration such as \"50ms\", \"10s\" or \"1h\", or a number of seconds";
            Err(takes(what, value))
        }
    }
}

pub(crate) fn number(value: &toml::Value) -> Result<u64, String> {
    whole(value).ok_or_else(|| takes(&range(0, u64::MAX), value))
}

/// Whole numbers from the least to the most.
pub(crate) fn range(least: u64, most: u64) -> String {
    match most {
        u64::MAX => format!("a whole number from {least} on, such as 100"),
        _ => format!("a whole number, {least} to {most}"),
    }
}

/// Says what a setting takes, and what it was given instead.
pub(crate) fn takes(what: &str, supplied: &toml::Value) -> String {
    format!("takes {what}; not {supplied}")
}

/// A word, which is empty if the value is no text.
pub(crate) fn word(value: &toml::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A whole number from 0 on; `None` for any other value.
fn whole(value: &toml::Value) -> Option<u64> {
    value.as_integer().and_then(|n| u64::try_from(n).ok())
}

pub(crate) fn text(value: &toml::Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| "takes text, in quotes".to_owned())
}

fn list(value: &toml::Value) -> Result<Vec<String>, String> {
    let texts = value.as_array().map(|array| {
        let texts = array.iter().map(|text| text.as_str().map(str::to_owned));
        texts.collect::<Option<Vec<String>>>()
    });
    texts
        .flatten()
        .ok_or_else(|| "takes a list of texts, such as [\"a\", \"b\"]".to_owned())
}

pub(crate) fn flag(value: &toml::Value) -> Result<bool, String> {
    let flag = value.as_bool();
    flag.ok_or_else(|| takes("true or false", value))
}

/// Text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
