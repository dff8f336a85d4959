//! `quintet tail`.

mod watch;

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use quintet_engine::Refusal;
use serde_json::{Value, json};

use super::Where;
use super::client::{Client, Refused};
use super::verbs::{duration, preview};
use watch::Seen;
pub(super) use watch::{Sight, between};

/// Messages of each state that are looked at, those that would be taken first.
const LOOKED: u64 = 1000;

/// States a message comes and goes through.
const STATES: [&str; 4] = ["ready", "delayed", "reserved", "buried"];

/// Arguments of `tail`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quintet tail work
  quintet tail work --json | grep '\"event\":\"came\"'
  quintet tail work --every 250ms --count 10

Looks again and again, and takes nothing: + came, > changed its state, - left. Of each state the 1000
messages that would be taken first are seen; others, and those that come and leave between two looks,
are told as a number.")]
pub(super) struct Tail {
    #[command(flatten)]
    at: Where,
    /// Name of the queue; it need not be there yet.
    queue: String,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: u64,
    /// End after so many lines.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print a line of JSON for each.
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let mut before = look(&mut client, &self.queue)?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            sleep(Duration::from_millis(self.every.max(1)));
            let after = look(&mut client, &self.queue)?;
            let at_ms = crate::trust::wall_ms();
            let mut out = stdout().lock();
            for event in between(&before, &after) {
                match self.json {
                    true => writeln!(out, "{}", event.json(at_ms))?,
                    false => writeln!(out, "{}  {}", time_of_day(at_ms), event.line())?,
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            out.flush()?;
            before = after;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The clock's hours to seconds here.
pub(super) fn time_of_day(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(chrono::DateTime::from_timestamp_millis);
    at.map_or_else(String::new, |at| {
        let here = at.with_timezone(&chrono::Local);
        here.format("%H:%M:%S").to_string()
    })
}

/// Looks at a queue; one that is not there is empty.
///
/// # Errors
/// The server's no, or it is gone.
pub(super) fn look(client: &mut Client, queue: &str) -> Result<Sight> {
    let request = json!({ "stats": { "queue": queue } });
    let stats = match client.ask(&request, &mut std::io::empty()) {
        Err(error) if Refused::is(&error, Refusal::QueueNotFound) => return Ok(Sight::default()),
        stats => stats?,
    };
    let mut sight = Sight::counted(&stats["queue"]);
    for state in STATES {
        let more = look_at(client, queue, state, &mut sight)?;
        sight.partly |= more;
    }
    Ok(sight)
}

/// Looks at messages of one state; true: there are more.
fn look_at(client: &mut Client, queue: &str, state: &str, sight: &mut Sight) -> Result<bool> {
    let mut after = Value::Null;
    let mut left = LOOKED;
    while left > 0 {
        let of = json!({ "queue": queue, "state": state, "act": "show", "bodies": "start",
            "max": left, "after": after });
        let asked = client.ask(&json!({ "sweep": of }), &mut std::io::empty());
        let reply = match asked {
            // It has gone meanwhile.
            Err(error) if Refused::is(&error, Refusal::QueueNotFound) => return Ok(false),
            reply => reply?,
        };
        let Some(messages) = reply["messages"].as_array() else {
            bail!("the server is of another version");
        };
        for message in messages {
            left = left.saturating_sub(1);
            let mut body = Vec::new();
            client.body(message["follows"].as_u64().unwrap_or(0), &mut body)?;
            let seen = Seen {
                state: state.to_owned(),
                body: preview(&body),
                bytes: message["bytes"].as_u64().unwrap_or(0),
            };
            sight
                .messages
                .insert(message["id"].as_u64().unwrap_or(0), seen);
        }
        after = reply["next"].clone();
        if after.is_null() {
            return Ok(false);
        }
    }
    Ok(true)
}
