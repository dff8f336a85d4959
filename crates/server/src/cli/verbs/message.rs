//! `quintet delete` and `edit`: one message.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, json};

use super::super::Where;
use super::super::client::Client;
use super::duration;

/// Arguments of `delete`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet delete 1234\n  quintet delete 1234 1235 --json\n\n\
                        Removes the message whatever its state, also one that somebody works on."
)]
pub(in super::super) struct Delete {
    #[command(flatten)]
    at: Where,
    /// Ids of messages.
    #[arg(required = true)]
    ids: Vec<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Delete {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        for id in self.ids {
            let asked = client.ask(&json!({ "delete": { "id": id } }), &mut std::io::empty());
            asked.with_context(|| format!("message {id}"))?;
            match self.json {
                true => writeln!(stdout(), "{}", json!({ "deleted": id }))?,
                false => writeln!(stdout(), "message {id} deleted")?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `edit`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet edit 1234 --rank 0              it is taken first\n  \
                        quintet edit 1234 --delay 10m           not before ten minutes\n  \
                        quintet edit 1234 --body '{\"to\": 7}'    another body; prints its new id\n\n\
                        A message that somebody has reserved is not changed. What is stored under an \
                        id never changes:\nwith another body the message has another id, and all else \
                        of it, its place too, stays."
)]
pub(in super::super) struct Edit {
    #[command(flatten)]
    at: Where,
    /// Id of the message.
    id: u64,
    /// New rank; 0 is the most urgent.
    #[arg(long)]
    rank: Option<u32>,
    /// Not taken before this time is over; 0: ready at once.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<u64>,
    /// New body, 64 KiB at most.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// New body: the content of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    file: Option<PathBuf>,
    /// Print the reply as JSON.
    #[arg(long)]
    json: bool,
}

impl Edit {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut of = Map::new();
        of.insert("id".into(), self.id.into());
        if let Some(rank) = self.rank {
            of.insert("rank".into(), rank.into());
        }
        if let Some(delay) = self.delay {
            of.insert("delay_ms".into(), delay.into());
        }
        let body = match (self.body, self.file) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(path)) => {
                let read = fs::read(&path);
                Some(read.with_context(|| format!("cannot read {}", path.display()))?)
            }
            (None, None) => None,
        };
        if of.len() == 1 && body.is_none() {
            bail!("say what changes: --rank, --delay, --body or --file");
        }
        let mut request = json!({ "edit": of });
        if let Some(body) = &body {
            request["bytes"] = body.len().into();
        }
        let mut body = body.as_deref().unwrap_or_default();
        let reply = Client::connect(&self.at)?.ask(&request, &mut body)?;
        let id = reply.get("id").and_then(serde_json::Value::as_u64);
        let id = id.unwrap_or(self.id);
        match self.json {
            true => writeln!(stdout(), "{}", json!({ "id": id }))?,
            false => writeln!(stdout(), "{id}")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
