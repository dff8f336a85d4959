//! Settings of the RQ protocol.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quintet_client::AuditLog;

use crate::blobs::Blobs;

/// Which command a built-in script (`builtin:NAME`) is: its words, the program
/// first. `None` if there is no such script.
pub type Builtin = Arc<dyn Fn(&str) -> Option<Vec<OsString>> + Send + Sync>;

/// Settings of the RQ protocol as a whole.
#[derive(Clone)]
pub struct Options {
    /// The folder with everything that is RQ's: `config/`, `queue/`,
    /// `scandir/`, `timers/`. Made if it is not there.
    pub root: PathBuf,
    /// How this server is called from elsewhere: `http://HOST:PORT/` and the
    /// relative root, with a slash at the end. Full ids begin with it.
    pub host: String,
    /// `RQ_ENV` of scripts, such as `production`.
    pub env: String,
    /// `RQ_PORT` of scripts.
    pub port: u16,
    /// True: queues may be made and deleted over HTTP.
    pub allow_new_queue: bool,
    /// The words that start [`crate::launch`]: a program that does, and its
    /// arguments.
    pub launcher: Vec<OsString>,
    /// Built-in scripts.
    pub builtin: Builtin,
    /// Storage of attachments beside this disk. `None`: this disk alone.
    pub blobs: Option<Arc<dyn Blobs>>,
    /// Notes the operations of clients of RQ's sockets that administer.
    pub audit: Option<Arc<dyn AuditLog>>,
    pub limits: Limits,
}

quintet_types::defaults! {
    /// Limits of scripts, and of the data kept for them. The defaults are choices, unless they say
    /// otherwise.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Time of one run; then it is ended and its message goes to `err`. Zero:
        /// no limit.
        pub run_time: Duration = Duration::ZERO,
        /// Between TERM and KILL, at the end of a run's time and at a stop.
        pub grace: Duration = Duration::from_secs(5),
        /// Address space of each of a run's processes in bytes; 0: no limit.
        pub address_space_bytes: u64 = 0,
        /// The umask of scripts; the server's own keeps everybody else out.
        pub umask: u32 = 0o022,
        /// Bytes of standard output and error kept of one run; what is over is
        /// dropped, with a line in `stdio.log` that says so.
        pub log_bytes_max: u64 = 64 << 20,
        /// Bytes of TEXT in a line to RQ; a longer one is cut and marked.
        pub text_bytes_max: usize = 64 << 10,
        /// Bytes of a parameter that goes into the environment. Linux takes
        /// 131,072 in one variable, name and end included.
        pub param_bytes_max: usize = (128 << 10) - 64,
        /// Bytes of a body shown as `param1` of a message.
        pub shown_bytes_max: u64 = 1 << 20,
        /// Running scripts at most, over all queues.
        pub children_max: u64 = 1000,
        /// Waiting messages looked at to find the one that is due first, and those
        /// that run along with it.
        pub window: u32 = 256,
        /// Between two cleanups for folders whose message is gone.
        pub cleanup_every: Duration = Duration::from_secs(600),
        /// Between two looks at admin files, at scripts that were not there, and
        /// at messages that may not run beside others.
        pub look_every: Duration = Duration::from_secs(1),
        /// Between two looks at `timers/`; RQ's is 60 s.
        pub timers_every: Duration = Duration::from_secs(60),
        /// Between two looks at `scandir/`; RQ's is 15 s.
        pub scandir_every: Duration = Duration::from_secs(15),
    }
}

impl Options {
    /// Options for a folder and an address; everything else as by default,
    /// without built-in scripts.
    pub fn new(root: PathBuf, host: String, launcher: Vec<OsString>) -> Self {
        Self {
            root,
            host,
            env: "production".to_owned(),
            port: 3333,
            allow_new_queue: false,
            launcher,
            builtin: Arc::new(|_| None),
            blobs: None,
            audit: None,
            limits: Limits::default(),
        }
    }
}
