//! `quintet track`: what became of tracked messages.

use std::process::ExitCode;

use anyhow::Result;
use quintet_types::CommandError;
use serde_json::Value;

use super::super::api::{Api, part};
use super::super::client::Refused;
use super::super::messages::EMPTY;
use super::super::table::{age, named, print_list, seen};
use super::clients::shown;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet put reports 'march' --name report-7 --tracked\n  quintet \
                  track reports report-7\n  quintet track reports report-7 report-8 \
                  --json\n\nSTATE is waiting, reserved, failed (in the last try), buried, done, \
                  cancelled or gone (without being done).\nThe server keeps it for track_keep \
                  after the last change: docs/api.md.\nExits with 4 if the server does not know \
                  one of the names."
)]
pub(in super::super) struct Track {
    /// Name of the queue.
    queue: String,
    /// Names of the messages.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print a line of JSON for each name.
    #[arg(long)]
    json: bool,
}

impl Track {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let mut all = Vec::new();
        for name in &self.names {
            let path = format!("/queues/{}/tracks/{}", part(&self.queue), part(name));
            match api.get(&path) {
                Ok(track) => all.push(track),
                Err(error) if Refused::is(&error, CommandError::NotFound) => eprintln!(
                    "quintet: the queue {} has no tracked message {}, or forgot it after \
                     track_keep",
                    named(&self.queue),
                    seen(name)
                ),
                Err(error) => return Err(error),
            }
        }
        self.print(&all)?;
        Ok(match all.len() == self.names.len() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(EMPTY),
        })
    }

    fn print(&self, all: &[Value]) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        let now = quintet_host::wall_ms();
        let columns = "name state changed progress status";
        print_list(all, self.json, columns, |track, column| match column {
            "changed" => age(now.saturating_sub(track["changed_ms"].as_u64().unwrap_or(now))),
            "progress" => (track["progress"].as_u64())
                .map(|percent| format!("{percent} %"))
                .unwrap_or_default(),
            key => shown(&track[key]),
        })
    }
}
