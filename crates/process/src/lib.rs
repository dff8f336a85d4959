//! The server's process: listening sockets, also those that an earlier process hands on, signals
//! and the requests that they become, systemd, limits and modes of files, threads that end
//! together.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod again;
mod bound;
mod connections;
mod crew;
pub mod modes;
pub mod notify;
mod open_files;
mod requests;
pub mod signals;

pub use bound::{Bound, bind, restrict};
pub use crew::Crew;
pub use open_files::{fit, raise_file_limit};
pub use requests::{End, MainRequest};
