//! RQ's HTTP API at its old addresses and in its old forms, its plain pages,
//! and the built-in scripts that speak it to other servers.
//!
//! The meaning of RQ is in `quintet-scripts`; here are only addresses, forms and
//! answers (`docs/protocols/http.md`).

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod app;
pub mod builtin;
mod pages;
mod routes;

pub use routes::router;
