//! A stream as bad as one may be, and time that is only counted: what a cluster's nodes stand on in
//! a simulation. One thread, one seed, the same run everywhere.

mod clocks;
mod connection;
mod over;
mod process;
mod stream;
mod time;

pub use clocks::Clocks;
pub use connection::Connection;
pub use over::Over;
pub use process::Process;
pub use stream::{Faults, Lie, Link, SimStream};
pub use time::SimWorld;
