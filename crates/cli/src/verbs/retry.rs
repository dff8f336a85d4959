//! `quintet kick`, `retry` and `redrive`: what failed, or waits, is tried.

use std::io::{Write as _, stderr};
use std::process::ExitCode;

use anyhow::{Result, bail};
use quintet_types::CommandError;

use super::super::api::{Api, part};
use super::super::client::Refused;
use super::bulk::{Bulk, Many, OF_MANY, RETRY};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet kick work                   buried messages are ready \
                        again\n  quintet kick work --state delayed   delayed messages are ready \
                        at once\n  quintet kick work --older 1h --max 100\n  quintet kick --id \
                        1234"
)]
pub(in super::super) struct Kick {
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = OF_MANY, conflicts_with_all = ["queue", "state"])]
    id: Option<u64>,
    /// State of the messages.
    #[arg(long, default_value = "buried", value_parser = ["buried", "delayed"])]
    state: String,
    #[command(flatten)]
    many: Many,
}

impl Kick {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        if let Some(id) = self.id {
            api.ask("POST", &format!("/messages/{id}/kick"), None)?;
            return self.many.how.report(1, "kicked");
        }
        let queue = self.queue.as_deref().unwrap_or_default();
        let acts = [(self.state.as_str(), "kick")];
        Bulk::of(&self.many, queue, &acts, "kicked").run(&mut api)
    }
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet retry work             buried messages and dead letters of \
                        work\n  quintet retry --id 1234        this message\n  quintet retry work \
                        --dry-run\n\nBuried messages are ready again (quintet kick). Dead letters \
                        return to their source queues (quintet redrive)."
)]
pub(in super::super) struct Retry {
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = OF_MANY, conflicts_with = "queue")]
    id: Option<u64>,
    #[command(flatten)]
    many: Many,
}

impl Retry {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let queue = self.queue.as_deref().unwrap_or_default();
        let bulk = Bulk::of(&self.many, queue, RETRY, "retried");
        let Some(id) = self.id else {
            if bulk.count(&mut api)?.iter().all(|&count| count == 0)
                && let Some(dead) = dead_letters_of(&mut api, bulk.queue)
            {
                writeln!(
                    stderr(),
                    "dead letters of {0} are in {dead}: quintet retry {dead}",
                    bulk.queue
                )?;
            }
            return bulk.run(&mut api);
        };
        let kicked = api.ask("POST", &format!("/messages/{id}/kick"), None);
        match kicked {
            Err(error) if Refused::is(&error, CommandError::NotFound) => redrive_one(&mut api, id)?,
            kicked => drop(kicked?),
        }
        self.many.how.report(1, "retried")
    }
}

/// The queue that gets the dead letters of `queue`, if it is another one and the user may see it.
fn dead_letters_of(api: &mut Api, queue: &str) -> Option<String> {
    let response = api.get(&format!("/queues/{}/settings", part(queue)));
    let response = response.ok()?;
    let mut settings = response["settings"].as_array().into_iter().flatten();
    let dead = settings.find(|setting| setting["key"] == "dead_letter");
    let dead = dead.and_then(|setting| setting["value"].as_str());
    dead.filter(|dead| !dead.is_empty()).map(str::to_owned)
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet redrive dead             return dead letters to their \
                        source queues\n  quintet redrive dead --dry-run   only their number\n  \
                        quintet redrive dead --attr dead_letter_queue=work\n  quintet redrive \
                        --id 1234\n\nThe attribute dead_letter_queue names the source queue of a \
                        message that the dead-letter rule moved, or that expired into another \
                        queue. Such a message goes to the end of its source queue. Its attempts \
                        start again at 0, and the attributes dead_letter_* are removed. Other \
                        messages stay where they are."
)]
pub(in super::super) struct Redrive {
    /// Name of the queue with the dead letters.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = OF_MANY, conflicts_with_all = ["queue", "state"])]
    id: Option<u64>,
    /// State of the messages.
    #[arg(long, default_value = "ready", value_parser = ["ready", "delayed", "buried"])]
    state: String,
    #[command(flatten)]
    many: Many,
}

impl Redrive {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        if let Some(id) = self.id {
            redrive_one(&mut api, id)?;
            return self.many.how.report(1, "redriven");
        }
        let queue = self.queue.as_deref().unwrap_or_default();
        let acts = [(self.state.as_str(), "redrive")];
        Bulk::of(&self.many, queue, &acts, "redriven").run(&mut api)
    }
}

/// Moves a message to the queue it says it came from.
fn redrive_one(api: &mut Api, id: u64) -> Result<()> {
    match api.ask("POST", &format!("/messages/{id}/redrive"), None) {
        Err(error) if Refused::is(&error, CommandError::NotFound) => {
            // Whether it is there at all.
            api.get(&format!("/messages/{id}"))?;
            bail!("message {id} is not buried and has no source queue to return to")
        }
        done => done.map(drop),
    }
}
