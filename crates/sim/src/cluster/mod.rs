//! A stream as bad as one may be, and time that is only counted: what a cluster's nodes stand on in
//! a simulation. One thread, one seed, the same run everywhere.

mod over;
mod stream;
mod time;

pub use over::Over;
pub use stream::{Faults, Link, SimStream};
pub use time::SimWorld;
