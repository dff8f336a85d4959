//! The stream and the log over real servers. They need `nats-server`, so `cargo test` leaves them
//! out; `cargo xtask test cluster` gets it and runs them.

mod log;
mod objects;
#[allow(dead_code, reason = "the nodes' tests use the rest")]
mod servers;
mod stream;
