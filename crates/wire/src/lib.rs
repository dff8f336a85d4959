//! The voices: each a folder with a pure [`Session`], its transcripts and one
//! line of registration in [`VOICES`].

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
mod session;
mod tally;
mod voice;
mod workers;

pub use faktory::faktory_pwdhash;
pub use foreign::{Foreign, Http};
pub use login::{Login, LoginRefused, Logins};
pub use output::Output;
pub use session::{
    Ask, Env, Given, HalfClose, HostAsk, Next, STREAM_OVER, Said, ServerStats, Session, Step,
};
pub use tally::Tally;
pub use voice::{Listener, OptionSpec, Options, Value, Voice};
pub use workers::{Joins, WORKER_SILENCE_MS, Worker, WorkerAsk, WorkerSeen, WorkerState, Workers};

/// Every voice this build speaks, in the order they are shown.
pub const VOICES: &[Voice] = &[
    memcache::VOICE,
    lineup::VOICE,
    jobqueue::VOICE,
    beanstalk::VOICE,
    pinpriq::VOICE,
    faktory::VOICE,
];

/// The voice of this name.
pub fn voice(name: &str) -> Option<&'static Voice> {
    VOICES.iter().find(|voice| voice.name == name)
}
