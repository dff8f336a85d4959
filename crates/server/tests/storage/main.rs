//! Files: messages in runs, the commands about files, files that are missing, a
//! disk that is full.

#[path = "../common/mod.rs"]
mod common;

mod disk_full;
mod missing;
mod run_tools;
mod runs;
