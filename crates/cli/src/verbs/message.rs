//! `quintet delete` and `edit`: one message.

use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, json};

use super::super::Where;
use super::super::api::Api;
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
        let mut api = Api::connect(&self.at)?;
        for id in self.ids {
            if !self.yes && !confirmed(&mut api, id)? {
                bail!("message {id} was not deleted");
            }
            let asked = api.ask("DELETE", &format!("/messages/{id}"), None);
            asked.with_context(|| format!("message {id}"))?;
            match self.json {
                true => writeln!(stdout(), "{}", json!({ "deleted": id }))?,
                false => writeln!(stdout(), "message {id} deleted")?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks before a message goes that somebody works on.
fn confirmed(api: &mut Api, id: u64) -> Result<bool> {
    // Whatever it is, deleting says so.
    let Ok(message) = api.get(&format!("/messages/{id}")) else {
        return Ok(true);
    };
    if message["state"] != "reserved" {
        return Ok(true);
    }
    let trace = api
        .get(&format!("/messages/{id}/trace"))
        .unwrap_or_default();
    let says = match trace["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("message {id} is reserved"),
    };
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
    after_help = "Examples:\n  quintet edit 1234 --priority 0          it is taken first\n  \
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
    /// New priority; 0 is the most urgent.
    #[arg(long)]
    priority: Option<u32>,
    /// The old name of --priority.
    #[arg(long, hide = true, value_parser = crate::messages::renamed)]
    rank: Option<bool>,
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
        if let Some(priority) = self.priority {
            of.insert("priority".into(), priority.into());
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
        if let Some(body) = body {
            match String::from_utf8(body) {
                Ok(text) => of.insert("body".into(), text.into()),
                Err(bytes) => {
                    let coded = BASE64_STANDARD.encode(bytes.as_bytes());
                    of.insert("body_base64".into(), coded.into())
                }
            };
        }
        if of.is_empty() {
            bail!("say what changes: --priority, --delay, --body or --file");
        }
        let path = format!("/messages/{}", self.id);
        let reply = self.at.api("PATCH", &path, Some(&of.into()))?;
        let id = &reply["ids"][0];
        match self.json {
            true => writeln!(stdout(), "{}", json!({ "id": id }))?,
            false => writeln!(stdout(), "{id}")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
