//! The `quintet` binary: one small, durable, fast queue server.

mod admin;
mod cli;
mod config;
mod core;
#[cfg_attr(not(test), allow(dead_code))]
mod desk;
mod io;
mod logging;
mod notify;
mod server;
mod signals;
mod stats;

fn main() -> std::process::ExitCode {
    cli::run()
}
