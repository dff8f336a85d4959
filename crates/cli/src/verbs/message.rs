//! `quintet delete` and `edit`: one message.

use std::fs;
use std::io::{IsTerminal as _, stdin};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::super::Where;
use super::super::api::Api;
use super::super::table::say;
use super::bulk::is_yes;
use super::duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet delete 1234\n  quintet delete 1234 1235 --json\n\nThe \
                        message is removed in any state. The command asks before it removes a \
                        reserved message."
)]
pub(in super::super) struct Delete {
    /// Ids of messages.
    #[arg(required = true)]
    ids: Vec<u64>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Delete {
    pub(in super::super) fn run(self, mut api: Api) -> Result<()> {
        for id in self.ids {
            if !self.yes && !confirmed(&mut api, id)? {
                bail!("message {id} was not deleted");
            }
            let response = api.ask("DELETE", &format!("/messages/{id}"), None);
            response.with_context(|| format!("message {id}"))?;
            let text = format!("message {id} deleted");
            say(self.json, json!({ "deleted": id }), text)?;
        }
        Ok(())
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
        bail!("{says}: add --yes to delete it all the same");
    }
    is_yes(&format!("{says}. Delete it?"))
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet edit 1234 --priority 0          the most urgent priority\n  \
                        quintet edit 1234 --delay 10m           ready in ten minutes\n  \
                        quintet edit 1234 --body '{\"to\": 7}'    a new body; prints the new \
                        id\n\nA reserved message cannot be changed. A new body gives the message \
                        a new id; its position and its other fields stay."
)]
pub(in super::super) struct Edit {
    /// Id of the message.
    id: u64,
    /// New priority, from 0, the most urgent, to 4294967295.
    #[arg(long)]
    priority: Option<u32>,
    /// The old name of --priority.
    #[arg(long, hide = true, value_parser = crate::messages::renamed)]
    rank: Option<bool>,
    /// Time until the message can be taken; 0: ready at once.
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
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        let body = match (self.body, self.file) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(path)) => {
                let read = fs::read(&path);
                Some(read.with_context(|| format!("cannot read {}", path.display()))?)
            }
            (None, None) => None,
        };
        let (text, base64) = match body.map(String::from_utf8) {
            None => (None, None),
            Some(Ok(text)) => (Some(text), None),
            Some(Err(bytes)) => (None, Some(BASE64_STANDARD.encode(bytes.as_bytes()))),
        };
        let of = super::given(json!({
            "priority": self.priority,
            "delay_ms": self.delay,
            "body": text,
            "body_base64": base64,
        }));
        if of == json!({}) {
            bail!("nothing to change: give --priority, --delay, --body or --file");
        }
        let path = format!("/messages/{}", self.id);
        let reply = at.api("PATCH", &path, Some(&of))?;
        let id = &reply["ids"][0];
        say(self.json, json!({ "id": id }), id)
    }
}
