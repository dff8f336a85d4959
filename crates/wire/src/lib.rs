//! The protocols: each a folder with a pure [`Session`], its transcripts and one
//! line of registration in [`PROTOCOLS`].

#![warn(
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod beanstalk;
mod bodies;
mod faktory;
mod foreign;
mod jobqueue;
mod lines;
mod lineup;
mod login;
mod memcache;
mod output;
mod owed;
mod pinpriq;
mod protocol;
mod session;
mod tally;
mod workers;

pub use faktory::faktory_pwdhash;
pub use foreign::{Foreign, Http};
pub use login::{Login, LoginRefused, Logins};
pub use output::Output;
pub use protocol::{Listener, OptionSpec, Options, Protocol, Value};
pub use session::{
    ClientRequest, Env, HalfClose, HookReply, HostRequest, Next, STREAM_OVER, ServerResponse,
    Session, Step,
};
pub use tally::{Counters, Tally};
pub use workers::{
    Joins, WORKER_SILENCE_MS, Worker, WorkerRequest, WorkerSeen, WorkerState, Workers,
};

/// Every protocol this build speaks, in the order they are shown.
pub const PROTOCOLS: &[Protocol] = &[
    memcache::PROTOCOL,
    lineup::PROTOCOL,
    jobqueue::PROTOCOL,
    beanstalk::PROTOCOL,
    pinpriq::PROTOCOL,
    faktory::PROTOCOL,
];

/// The protocol that `[[listen]] protocol` names; `None`: there is no such one here.
pub fn protocol(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|protocol| protocol.name == name)
}
