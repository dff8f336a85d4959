//! The faktory protocol: Faktory's work protocol, version 2. What it maps to and
//! where it differs from the original is in `docs/protocols/faktory.md`.

mod ent;
mod failure;
mod glob;
mod hello;
mod info;
mod job;
mod json;
mod moment;
mod mutate;
mod queues;
mod reply;
mod request;
mod session;
mod shown;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{Listener, OptionSpec, Options, Protocol, Value};
use crate::session::Session;
use hello::Challenge;

/// A Faktory client's proof of a password, as a client of another server computes it: a hash with
/// the salt, repeated as often as the server asks.
pub fn faktory_pwdhash(password: &str, salt: &str, rounds: u32) -> String {
    hello::pwdhash_of(password, salt, rounds)
}

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "faktory",
    port: 7419,
    about: "Faktory: jobs as JSON, fetched by workers, acknowledged or failed and retried",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener: |options| Ok(Box::new(FaktoryListener(Arc::new(shared(options)?)))),
};

const DAY_MS: u64 = 86_400_000;

const OPTIONS: &[OptionSpec] = crate::options! {
    "max_line" Bytes(8 << 20)
        "longest command line with its end, 64KiB to 256MiB; a longer one is skipped and answered \
         with \"line too long\"";
    "fetch_wait_ms" Number(2000)
        "how long FETCH waits for a job, 0 to 10000 ms; clients give up shortly after 2 s";
    "password" Text("")
        "password of clients; empty: none";
    "hash_rounds" Number(0)
        "hash rounds of a client's proof, 1 to 100000; 0: 4096 to 8191, random for each \
         connection; the Python package \"faktory\" supports only 1";
    "dead_days" Number(180)
        "how long dead jobs that were put here stay, up to 36500 days; 0: as `buried_ttl` of their \
         queue says";
    "flush" Text("all")
        "\"all\": FLUSH drops every queue of every protocol, \"refuse\": it fails";
    "priority" Text("ignore")
        "\"ignore\" a job's priority as Faktory does, or \"use\" it: 9 goes before 1";
    "foreign_jobtype" Text("Message")
        "job type of messages from other protocols, printable and without spaces, quotes and \
         backslashes";
    "ent" Bool(false)
        "features of Faktory Enterprise: unique and expiring jobs, batches, tracking";
    "version" Text("1.10.0")
        "faktory_version in INFO; clients want 1.8 or more";
};

crate::tally::counters! {
    Hello "cmd_hello",
    Push "cmd_push",
    PushBulk "cmd_pushb",
    Fetch "cmd_fetch",
    Ack "cmd_ack",
    Fail "cmd_fail",
    Beat "cmd_beat",
    Info "cmd_info",
    Flush "cmd_flush",
    Queue "cmd_queue",
    Mutate "cmd_mutate",
    Batch "cmd_batch",
    Track "cmd_track",
    Other "cmd_other",
    Fault "protocol_errors",
}

/// State that one listener's sessions share.
pub(crate) struct Shared {
    line_max: usize,
    fetch_wait_ms: u64,
    password: Box<str>,
    /// 0: drawn.
    hash_rounds: u32,
    /// How long jobs that are put here stay when they are dead; 0: as their queue says.
    dead_ttl_ms: u64,
    flush: bool,
    priority: bool,
    foreign_jobtype: Box<str>,
    /// Commands and members of jobs that Faktory sells.
    ent: bool,
    version: Box<str>,
    /// Salts come from it: keys that only this process knows, over a counter.
    seed: RandomState,
    opened: AtomicU64,
}

impl Shared {
    /// The challenge for a new connection, if there is a password.
    fn challenge(&self) -> Option<Challenge> {
        if self.password.is_empty() {
            return None;
        }
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let salt = self.seed.hash_one((number, "salt"));
        let rounds = match self.hash_rounds {
            0 => 4096 + (self.seed.hash_one((number, "rounds")) & 4095) as u32,
            rounds => rounds,
        };
        Some(Challenge { salt, rounds })
    }
}

struct FaktoryListener(Arc<Shared>);

impl Listener for FaktoryListener {
    fn open(&self) -> Box<dyn Session> {
        let challenge = self.0.challenge();
        Box::new(session::FaktorySession::new(Arc::clone(&self.0), challenge))
    }

    fn speaks_first(&self) -> bool {
        true
    }

    fn ends_silent(&self) -> bool {
        true
    }
}

fn shared(options: &Options) -> Result<Shared, String> {
    let line_max = options.within("max_line", 64 << 10, 256 << 20)?;
    Ok(Shared {
        line_max,
        fetch_wait_ms: options.within("fetch_wait_ms", 0, 10_000)?,
        password: options.text("password").into(),
        hash_rounds: options.within("hash_rounds", 0, 100_000)?,
        dead_ttl_ms: options.within::<u64>("dead_days", 0, 36_500)? * DAY_MS,
        flush: options.one_of("flush", ["all", "refuse"])? == "all",
        priority: options.one_of("priority", ["ignore", "use"])? == "use",
        ent: options.flag("ent"),
        foreign_jobtype: options.word("foreign_jobtype", "\"\\")?.into(),
        version: options.word("version", "\"\\")?.into(),
        seed: RandomState::new(),
        opened: AtomicU64::new(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_errors() {
        for (name, value) in [
            ("max_line", Value::Bytes(1000)),
            ("max_line", Value::Bytes((256 << 20) + 1)),
            ("fetch_wait_ms", Value::Number(10_001)),
            ("hash_rounds", Value::Number(100_001)),
            ("dead_days", Value::Number(36_501)),
            ("flush", Value::Text("some")),
            ("priority", Value::Text("yes")),
            ("foreign_jobtype", Value::Text("a b")),
            ("version", Value::Text("")),
        ] {
            let mut options = Options::new(OPTIONS);
            options.set(name, value).unwrap();
            let why = shared(&options).err().unwrap();
            assert!(why.starts_with(name), "{why}");
        }
    }

    #[test]
    fn every_connection_gets_another_salt() {
        let mut options = Options::new(OPTIONS);
        options.set("password", Value::Text("swordfish")).unwrap();
        let shared = shared(&options).unwrap();
        let challenges: Vec<Challenge> = (0..100).filter_map(|_| shared.challenge()).collect();
        let salts: std::collections::BTreeSet<u64> = challenges.iter().map(|c| c.salt).collect();
        assert_eq!(salts.len(), 100);
        assert!(challenges.iter().all(|c| (4096..8192).contains(&c.rounds)));
        assert!(challenges.iter().any(|c| c.rounds != challenges[0].rounds));
    }
}
