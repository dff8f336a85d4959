//! The beanstalk protocol: beanstalkd's protocol 1.12, every command. What it
//! maps to and where it differs from the original is in
//! `docs/protocols/beanstalk.md`; the source is `protocols/beanstalkd.md`.

mod names;
mod reply;
mod request;
mod session;
mod stats;
mod steps;
mod tubes;

use std::sync::atomic::AtomicU64;

use crate::protocol::{Listener, OptionSpec, Options, Protocol, Value, sharing};

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "beanstalk",
    port: 11300,
    about: "beanstalkd: jobs in tubes, reserved, then deleted, released or buried",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener,
};

const OPTIONS: &[OptionSpec] = crate::options! {
    // beanstalkd's "less than 2**16".
    "max_job_size" Bytes(65_535)
        "longest job, 1 byte to 1GiB; a longer one is read, dropped and answered with JOB_TOO_BIG";
    "max_watched" Number(1024)
        "tubes one connection may watch, 1 to 100000; beyond it watch is answered with \
         OUT_OF_MEMORY";
    // Clients compare it with versions of beanstalkd.
    "version" Text("1.13")
        "version in stats: printable, without spaces, quotes and backslashes; clients read it as a \
         number";
};

crate::tally::counters! {
    Put "cmd-put",
    Peek "cmd-peek",
    PeekReady "cmd-peek-ready",
    PeekDelayed "cmd-peek-delayed",
    PeekBuried "cmd-peek-buried",
    Reserve "cmd-reserve",
    ReserveWithTimeout "cmd-reserve-with-timeout",
    Delete "cmd-delete",
    Release "cmd-release",
    Use "cmd-use",
    Watch "cmd-watch",
    Ignore "cmd-ignore",
    Bury "cmd-bury",
    Kick "cmd-kick",
    Touch "cmd-touch",
    Stats "cmd-stats",
    StatsJob "cmd-stats-job",
    StatsTube "cmd-stats-tube",
    ListTubes "cmd-list-tubes",
    ListTubeUsed "cmd-list-tube-used",
    ListTubesWatched "cmd-list-tubes-watched",
    PauseTube "cmd-pause-tube",
    // beanstalkd counts these under no key, so the statistics end before them.
    Other "cmd-other",
    Fault "protocol-errors",
}

/// State that one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    job_max: u64,
    watched_max: usize,
    version: Box<str>,
    /// Open connections that have sent a put.
    producers: AtomicU64,
    /// Open connections that have sent a reserve.
    workers: AtomicU64,
}

fn listener(options: &Options) -> Result<Box<dyn Listener>, String> {
    let shared = Shared {
        job_max: options.within("max_job_size", 1, 1 << 30)?,
        watched_max: options.within("max_watched", 1, 100_000)?,
        version: options.word("version", "\"\\")?.into(),
        producers: AtomicU64::new(0),
        workers: AtomicU64::new(0),
    };
    Ok(sharing(shared, session::BeanstalkSession::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_errors() {
        for (name, value) in [
            ("max_job_size", Value::Number(0)),
            ("max_job_size", Value::Number((1 << 30) + 1)),
            ("max_watched", Value::Number(0)),
            ("version", Value::Text("")),
            ("version", Value::Text("1 13")),
            ("version", Value::Text("1\"13")),
            ("version", Value::Text("1\\13")),
            ("version", Value::Text("1\n13")),
        ] {
            let mut options = Options::new(OPTIONS);
            options.set(name, value).unwrap();
            let why = listener(&options).err().unwrap();
            assert!(why.starts_with(name), "{why}");
        }
    }
}
