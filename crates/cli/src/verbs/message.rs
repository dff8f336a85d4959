//! `quintet delete` and `edit`: one message.

use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_types::Refusal;
use serde_json::{Map, json};

use super::super::Where;
use super::super::client::{Client, Refused};
use super::duration;

/// Arguments of `delete`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet delete 1234\n  quintet delete 1234 1235 --json\n\n\
                        Removes the message whatever its state. Asks before it removes one that \
                        somebody works on."
)]
pub(in super::super) struct Delete {
    #[command(flatten)]
    at: Where,
    /// Ids of messages.
    #[arg(required = true)]
    ids: Vec<u64>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Delete {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        for id in self.ids {
            if !self.yes && !confirmed(&self.at, &mut client, id)? {
                bail!("message {id} was not deleted");
            }
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

/// The trace of a message, in a sentence; `None`: there is none, or it is not told that way.
fn known(at: &Where, client: &Client, id: u64) -> Option<String> {
    let told = client
        .is_near()
        .then(|| at.api("GET", &format!("/messages/{id}/trace"), None));
    Some(told?.ok()?["text"].as_str()?.to_owned())
}

/// Asks before a message goes that somebody works on.
fn confirmed(at: &Where, client: &mut Client, id: u64) -> Result<bool> {
    let peeked = client.ask(&json!({ "peek": { "id": id } }), &mut std::io::empty());
    // Whatever it is, deleting says so.
    let Ok(peeked) = peeked else { return Ok(true) };
    let message = &peeked["messages"][0];
    let body = message["bytes"].as_u64().unwrap_or(0);
    client.body(body, &mut std::io::sink())?;
    if message["state"] != "reserved" {
        return Ok(true);
    }
    let says = known(at, client, id).unwrap_or_else(|| format!("message {id} is reserved"));
    if !stdin().is_terminal() {
        bail!("{says}: --yes deletes it nevertheless");
    }
    write!(stderr(), "{says}. Delete it? [y/N] ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
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
        let mut client = Client::connect(&self.at)?;
        let reply = client.ask(&request, &mut body).map_err(|error| {
            let known = Refused::is(&error, Refusal::NotFound)
                .then(|| known(&self.at, &client, self.id))
                .flatten();
            known.map_or(error, |known| anyhow!("{known}"))
        })?;
        let id = reply.get("id").and_then(serde_json::Value::as_u64);
        let id = id.unwrap_or(self.id);
        match self.json {
            true => writeln!(stdout(), "{}", json!({ "id": id }))?,
            false => writeln!(stdout(), "{id}")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
