//! `quintet purge`.

use std::process::ExitCode;

use anyhow::Result;

use super::super::Where;
use super::super::api::Api;
use super::bulk::{Bulk, How, PURGE, Which};

/// Arguments of `purge`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet purge work --dry-run              how many wait there\n  \
                        quintet purge work                        removes them, after a question\n  \
                        quintet purge work --state buried --yes   those that were buried\n  \
                        quintet purge work --older 7d --contains test\n\n\
                        What somebody has reserved stays, and so does the queue (quintet drop removes \
                        it).\nA purge of a whole queue forgets its deduplication ids.\nCtrl-C stops within about a second; what was purged is gone."
)]
pub(in super::super) struct Purge {
    #[command(flatten)]
    at: Where,
    /// Name of the queue.
    queue: String,
    /// Which of them; without: all that wait, those that are delayed too.
    #[arg(long, value_parser = ["ready", "delayed", "buried", "prepared", "archived"])]
    state: Option<String>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
}

impl Purge {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let acts: &[_] = match self.state.as_deref() {
            None => PURGE,
            Some("ready") => &[("ready", "purge")],
            Some("delayed") => &[("delayed", "purge")],
            Some("buried") => &[("buried", "purge")],
            Some("prepared") => &[("prepared", "purge")],
            Some(_) => &[("archived", "purge")],
        };
        let bulk = Bulk {
            which: &self.which,
            how: &self.how,
            queue: &self.queue,
            acts,
            to: None,
            more: None,
            done: "purged",
            asks: true,
        };
        bulk.run(&mut Api::connect(&self.at)?)
    }
}
