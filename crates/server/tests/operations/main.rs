//! Promises to operators: starts, stops and reloads, the commands that people type, limits, shards,
//! and the README.

#[path = "../common/mod.rs"]
mod common;

mod auth;
mod bench;
mod commands;
mod contract;
mod cron;
mod defaults;
mod folders;
mod leases;
mod logs;
mod moving;
mod peers;
mod readme;
mod remembered;
mod rights;
mod rq_command;
mod settings;
mod shards;
mod socket;
mod sqs;
mod tail;
mod top;
mod trace;
mod transfer;
mod verbs;
mod vocabulary;
mod workers;
