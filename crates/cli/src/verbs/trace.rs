//! `quintet trace`: what became of a message.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result};
use quintet_client::words::utc;

use super::super::Where;
use super::super::table::seen_bytes;

/// Names that a message may have had one after the other.
const NAMES_MAX: usize = 16;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet trace 1234\n  quintet trace 1234 --json | grep \
                  '\"end\"'\n\nThe server knows the outcomes of the newest gone messages \
                  (ends_max, 100,000). After a restart it knows those that the log still has, but \
                  not who caused them. Below are the attempts that ended without success."
)]
pub(in super::super) struct Trace {
    /// Ids of messages.
    #[arg(required = true)]
    ids: Vec<u64>,
    /// Print a line of JSON for each message.
    #[arg(long)]
    json: bool,
}

impl Trace {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        for first in &self.ids {
            let mut id = *first;
            let mut printed: Vec<serde_json::Value> = Vec::new();
            for _ in 0..NAMES_MAX {
                let response = at.api("GET", &format!("/messages/{id}/trace"), None)?;
                if self.json {
                    writeln!(stdout(), "{response}")?;
                } else {
                    let text = response["text"].as_str();
                    let text = text.context("the server is of another version")?;
                    let at = response["at_ms"].as_u64();
                    let at = at.map(|at| format!(" ({})", utc(at)));
                    let text = seen_bytes(text.as_bytes());
                    writeln!(stdout(), "{text}{}", at.unwrap_or_default())?;
                    // A message that went to another shard has the same under its next id.
                    let past = response["past_attempts"].as_array().cloned();
                    let past = past.unwrap_or_default();
                    for attempt in past.iter().filter(|_| past != printed) {
                        let text = attempt["text"].as_str().unwrap_or_default();
                        let at = utc(attempt["at_ms"].as_u64().unwrap_or_default());
                        writeln!(stdout(), "  {} ({at})", seen_bytes(text.as_bytes()))?;
                    }
                    printed = past;
                }
                match response["new_id"].as_u64() {
                    Some(next) if next != id => id = next,
                    _ => break,
                }
            }
        }
        Ok(())
    }
}
