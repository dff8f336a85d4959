//! Protocols over sockets: their transcripts, what each needs a whole server for, one
//! queue through all of them, and clients that behave in every way they can.

#[path = "../common/mod.rs"]
mod common;

mod beanstalk;
mod bodies;
mod faktory;
mod foreign;
mod hostile;
mod jobqueue;
mod limits;
mod pinpriq;
mod sockets;
mod tls;
mod tls_admin;
mod transcripts;
mod union;
