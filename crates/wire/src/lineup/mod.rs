//! The lineup voice: `PUSH` and `POP` on one priority queue per listener, with
//! replies in the manner of redis. What it maps to and where it differs from
//! the original is in `docs/voices/lineup.md`; the source is the seed and
//! `protocols/lineup.md`.

mod request;
mod session;

use std::sync::Arc;

use quintet_engine::Name;

use crate::session::Session;
use crate::voice::{Listener, OptionSpec, Options, Value, Voice};

/// The voice's registration.
pub(crate) const VOICE: Voice = Voice {
    name: "lineup",
    port: 9876,
    about: "lineup: PUSH and POP on one priority queue per listener",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "queue",
        default: Value::Text("default"),
        help: "the queue this listener serves, 1 to 1024 bytes; several listeners may serve \
               different ones",
    },
    OptionSpec {
        name: "max_line",
        default: Value::Bytes(1024),
        help: "longest command line with its end, 64 bytes to 64KiB; a longer one is skipped and \
               answered with LINE_TOO_LONG",
    },
    OptionSpec {
        name: "max_message_size",
        default: Value::Bytes(64 << 20),
        help: "longest message, 1 byte to 4GiB; a longer one is answered with MESSAGE_TOO_LARGE, \
               and up to 16 times as much is read and dropped before the connection is closed",
    },
];

/// Indexes of this voice's counters.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Push,
    Pop,
    Hit,
    Miss,
    Ping,
    Fault,
}

const TALLY_NAMES: &[&str] = &[
    "cmd_push",
    "cmd_pop",
    "pop_hits",
    "pop_misses",
    "cmd_ping",
    "protocol_errors",
];

/// What one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    queue: Name,
    line_max: usize,
    message_max: u64,
}

struct LineupListener(Arc<Shared>);

impl Listener for LineupListener {
    fn open(&self) -> Box<dyn Session> {
        Box::new(session::LineupSession::new(self.0.clone()))
    }
}

fn listener(options: &Options) -> Result<Box<dyn Listener>, String> {
    let queue = options.text("queue");
    if queue.is_empty() || queue.len() > 1024 {
        return Err("queue takes a name of 1 to 1024 bytes".to_owned());
    }
    let line_max = options.number("max_line");
    if !(64..=64 << 10).contains(&line_max) {
        return Err("max_line takes 64 bytes to 64KiB".to_owned());
    }
    let message_max = options.number("max_message_size");
    if !(1..=4 << 30).contains(&message_max) {
        return Err("max_message_size takes 1 byte to 4GiB".to_owned());
    }
    let shared = Shared {
        queue: Name::from(queue),
        line_max: usize::try_from(line_max).map_err(|error| error.to_string())?,
        message_max,
    };
    Ok(Box::new(LineupListener(Arc::new(shared))))
}
