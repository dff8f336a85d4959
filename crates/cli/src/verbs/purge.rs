//! `quintet purge`.

use std::process::ExitCode;

use anyhow::Result;

use super::super::api::Api;
use super::bulk::{Bulk, Many, PURGE};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet purge work --dry-run              only their number\n  \
                        quintet purge work                        remove the waiting messages, \
                        after a confirmation\n  quintet purge work --state buried --yes   buried \
                        messages, without a confirmation\n  quintet purge work --older 7d \
                        --contains test\n\nReserved messages stay, and so does the queue (quintet \
                        drop removes it). A purge of a whole queue forgets its deduplication ids. \
                        Ctrl-C stops within about a second; messages purged by then are gone."
)]
pub(in super::super) struct Purge {
    /// Name of the queue.
    queue: String,
    /// State of the messages [default: ready and delayed].
    #[arg(long, value_parser = ["ready", "delayed", "buried", "prepared", "archived"])]
    state: Option<String>,
    #[command(flatten)]
    many: Many,
}

impl Purge {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let one = self.state.as_deref().map(|state| [(state, "purge")]);
        let acts = one.as_ref().map_or(PURGE, |one| &one[..]);
        let bulk = Bulk::of(&self.many, &self.queue, acts, "purged");
        Bulk { asks: true, ..bulk }.run(&mut api)
    }
}
