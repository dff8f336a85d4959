//! `quintet kick`, `retry` and `redrive`: what failed, or waits, is tried.

use std::process::ExitCode;

use anyhow::{Result, bail};
use quintet_types::Refusal;
use serde_json::{Value, json};

use super::super::Where;
use super::super::client::{Client, Refused};
use super::bulk::{Bulk, How, RETRY, Which};

/// Arguments of `kick`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet kick work                   what was buried is ready again\n  \
                        quintet kick work --state delayed   what is delayed is ready at once\n  \
                        quintet kick work --older 1h --max 100\n  \
                        quintet kick --id 1234"
)]
pub(in super::super) struct Kick {
    #[command(flatten)]
    at: Where,
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = ["queue", "dry_run", "max"])]
    id: Option<u64>,
    /// Which of them.
    #[arg(long, default_value = "buried", value_parser = ["buried", "delayed"])]
    state: String,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
}

impl Kick {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let acts: &[_] = match self.state.as_str() {
            "buried" => &[("buried", "kick")],
            _ => &[("delayed", "kick")],
        };
        let bulk = Bulk {
            which: &self.which,
            how: &self.how,
            queue: self.queue.as_deref().unwrap_or_default(),
            acts,
            to: None,
            done: "kicked",
            asks: false,
        };
        match self.id {
            None => bulk.run(&mut client),
            Some(id) => {
                client.ask(&json!({ "kick": { "id": id } }), &mut std::io::empty())?;
                self.how.told(1, "kicked")
            }
        }
    }
}

/// Arguments of `retry`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet retry work             what failed there, however it is kept\n  \
                        quintet retry --id 1234        this message\n  \
                        quintet retry work --dry-run\n\n\
                        Buried messages are ready again (quintet kick); dead letters go back to the \
                        queue\neach came from (quintet redrive)."
)]
pub(in super::super) struct Retry {
    #[command(flatten)]
    at: Where,
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = ["queue", "dry_run", "max"])]
    id: Option<u64>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
}

impl Retry {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let bulk = Bulk {
            which: &self.which,
            how: &self.how,
            queue: self.queue.as_deref().unwrap_or_default(),
            acts: RETRY,
            to: None,
            done: "retried",
            asks: false,
        };
        let Some(id) = self.id else {
            return bulk.run(&mut client);
        };
        let kicked = client.ask(&json!({ "kick": { "id": id } }), &mut std::io::empty());
        match kicked {
            Err(error) if Refused::is(&error, Refusal::NotFound) => redrive_one(&mut client, id)?,
            kicked => drop(kicked?),
        }
        self.how.told(1, "retried")
    }
}

/// Arguments of `redrive`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet redrive dead             each back to where it came from\n  \
                        quintet redrive dead --dry-run   how many can go\n  \
                        quintet redrive dead --attr dead_letter_queue=work\n  \
                        quintet redrive --id 1234\n\n\
                        A message that the dead-letter rule moved, or that expired into another queue, \
                        knows which\nqueue it came from (attribute dead_letter_queue). It goes to that \
                        queue's end, its attempts\nbegin anew, and its attributes stay. Others stay where \
                        they are."
)]
pub(in super::super) struct Redrive {
    #[command(flatten)]
    at: Where,
    /// The queue the dead letters are in.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = ["queue", "dry_run", "max"])]
    id: Option<u64>,
    /// Which of them.
    #[arg(long, default_value = "ready", value_parser = ["ready", "delayed", "buried"])]
    state: String,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
}

impl Redrive {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let acts: &[_] = match self.state.as_str() {
            "ready" => &[("ready", "redrive")],
            "delayed" => &[("delayed", "redrive")],
            _ => &[("buried", "redrive")],
        };
        let bulk = Bulk {
            which: &self.which,
            how: &self.how,
            queue: self.queue.as_deref().unwrap_or_default(),
            acts,
            to: None,
            done: "redriven",
            asks: false,
        };
        let Some(id) = self.id else {
            return bulk.run(&mut client);
        };
        redrive_one(&mut client, id)?;
        self.how.told(1, "redriven")
    }
}

/// Moves a message to the queue it says it came from.
fn redrive_one(client: &mut Client, id: u64) -> Result<()> {
    let reply = client.ask(&json!({ "peek": { "id": id } }), &mut std::io::empty())?;
    let message = &reply["messages"][0];
    let bytes = message["bytes"].as_u64().unwrap_or(0);
    client.body(bytes, &mut std::io::sink())?;
    let attrs = message["attrs"].as_array().into_iter().flatten();
    let origin = |pair: &Value| {
        let from = pair[0].as_str() == Some("dead_letter_queue");
        from.then(|| pair[1].as_str().map(escaped)).flatten()
    };
    let Some(to) = attrs.filter_map(origin).next() else {
        bail!("message {id} neither is buried nor knows a queue it came from");
    };
    let request = json!({ "move": { "id": id, "to": to } });
    client.ask(&request, &mut std::io::empty())?;
    Ok(())
}

/// A queue's name as the control channel reads it.
fn escaped(name: &str) -> String {
    quintet_types::Name::new(name.as_bytes()).to_string()
}
