//! The server under test and its clients, for tests and the stress test. No product crate
//! depends on this one.
//!
//! [`Connection`] and [`QueueClient`] return errors, because the stress test breaks connections
//! on purpose. [`Server`] and [`Client`] panic where a test would fail.

mod client;
mod connection;
pub mod http;
mod jobs;
mod kind;
mod protocol;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub use client::Client;
pub use connection::{Connection, tls};
pub use kind::{Protocol, TakenMessage};
pub use protocol::{Addresses, Put, QueueClient, named, reserve};
pub use server::{Data, Server, Start, stands_still};

/// The longest wait for a healthy server on a busy machine. No test passes by reaching it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The folder into which Cargo builds: `target/debug`.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.ancestors().skip(1);
    let mut folder = folder.skip_while(|folder| folder.ends_with("deps"));
    folder.next().expect("a folder").to_owned()
}

/// The server's binary: `QUINTET`, or the one beside the test program, where Cargo builds it unless
/// its build directory is elsewhere.
pub fn binary() -> PathBuf {
    std::env::var_os("QUINTET").map_or_else(|| built().join("quintet"), PathBuf::from)
}

/// A command of the binary.
pub fn quintet(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env_remove("NOTIFY_SOCKET");
    command
}

/// Faults for servers on `data`, which is absolute; the control file is beside it.
pub fn faults(data: &Path) -> quintet_faults::Faults {
    let build = built().with_file_name("tmp");
    std::fs::create_dir_all(&build).expect("a folder to build in");
    quintet_faults::Faults::new(&build, &data.with_extension("faults"), data)
        .expect("a C compiler, and a folder to write to")
}

/// Asks again and again until there is an answer, the longer the more rarely: a question may cost
/// the server more than the work that is waited for.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = began.elapsed();
        assert!(waited < PATIENCE, "in vain: {what}");
        let (least, most) = (Duration::from_millis(2), Duration::from_millis(100));
        std::thread::sleep((waited / 8).clamp(least, most));
    }
}

/// Asks again and again until it is so.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}

/// The text of a file or a reply.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that are the same in every run and do not repeat.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
