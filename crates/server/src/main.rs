//! The `quintet` binary: one small, durable, fast queue server.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]
#![cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, unused_imports, reason = "what only nodes of a cluster use")
)]

mod check;
mod client_api;
#[cfg(not(feature = "cluster"))]
#[path = "alone.rs"]
mod cluster;
#[cfg(feature = "cluster")]
mod forwarded;
mod http;
mod listeners;
mod logging;
mod operator;
mod reload;
mod running;
mod scripts;
mod serve;
mod server;
mod sockets;
mod sqs;
mod stats;
mod watchdog;

#[cfg(feature = "cluster")]
use quintet_node as cluster;

/// Messages come and go by the thousand, many at once in sizes of their own: what takes them in
/// turn from one heap and sorts its holes at each larger buffer (glibc) cost a fifth of the time
/// of a receive and kept four times the memory when all were gone (docs/performance.md).
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    // Scripts start by the hundred each second: no command line is parsed.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == scripts::CHILD => quintet_scripts::launch::main(args),
        Some(word) if word == scripts::BUILT_IN => {
            let name = args.next().unwrap_or_default();
            let hosts = args.next().unwrap_or_default();
            let ca = args.next().unwrap_or_default();
            quintet_rq::builtin::main(
                &name.to_string_lossy(),
                &hosts.to_string_lossy(),
                &ca.to_string_lossy(),
            )
        }
        _ => {
            quintet_process::modes::keep_private();
            quintet_cli::run(serve::run, check::check)
        }
    }
}
