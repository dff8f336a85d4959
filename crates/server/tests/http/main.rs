//! HTTP in the real binary: scripts, files, and relay between two of them.

#[path = "../common/mod.rs"]
mod common;

mod after;
mod api;
mod attention;
mod batches;
mod cancelled;
mod console;
mod crowded;
mod damaged_log;
mod dead;
mod ended;
mod gathered;
mod held_keys;
mod key_groups;
mod lease_events;
mod listener;
mod lists;
mod message_events;
mod names;
mod operate;
mod progress;
mod relay;
mod results;
mod schedule_form;
mod schedules;
mod setup;
mod tracing;
mod unique;
mod webhooks;
