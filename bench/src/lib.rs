//! A load generator for queue servers, and what compares them.
//!
//! One client drives every server, in its own protocol ([`PROTOCOLS`]), in a
//! closed loop (each connection waits for its replies) or at a fixed rate.
//! At a fixed rate each request has a time at which it is meant to leave, and
//! its latency counts from then, sent late or not: a server that stalls is
//! charged with all requests it kept from being sent (no coordinated
//! omission).
//!
//! The library knows no server's internals; it is all sockets and clocks.

mod args;
mod conn;
mod echo;
mod load;
mod mix;
mod pace;
mod polls;
mod process;
mod progress;
mod protocol;
mod report;
mod stream;
mod target;
mod tls;
mod units;
mod worker;

pub use args::Args;
pub use echo::serve as serve_echo;
pub use load::{Load, connections_max, raise_file_limit};
pub use mix::Mix;
pub use process::Usage;
pub use progress::Bar;
pub use protocol::{PROTOCOLS, Protocol};
pub use report::{Latency, Live, Recorder, Report};
pub use stream::Stream;
pub use target::Target;
pub use tls::Tls;
pub use units::{micros, nanos};
