//! `quintet tail`.

use std::io::{Write as _, stdout};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Where;
use super::api::part;
use super::table::{pad, say, seen};
use super::verbs::{duration, preview};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quintet tail work
  quintet tail work --contains 'user 7'
  quintet tail work --json | grep '\"event\":\"failed\"'
  quintet tail work --every 250ms --count 10

Tail prints events from now on, and takes no messages. Events are put, reserved, finished, failed,
timed_out, buried, expired, dropped, moved and others. If a message was put since the command began,
tail also prints the first 256 bytes of its body. --contains searches whole bodies of up to 64 KiB
for the newest messages (tail_memory, 16MiB for all tails together), otherwise the first 256 bytes.")]
pub(super) struct Tail {
    /// Name of the queue, which may not exist yet.
    queue: String,
    /// Only messages whose body contains this text; bodies over 64 KiB are not searched.
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Time between two requests.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: u64,
    /// End after N lines.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print a line of JSON for each event.
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub(super) fn run(self, at: Where) -> Result<()> {
        let mut next = 0;
        let contains = self.contains.as_deref().unwrap_or_default();
        events(&at, &self.queue, &mut next, contains)?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            // The server forgets who is silent for 30 s.
            sleep(Duration::from_millis(self.every.clamp(1, 20_000)));
            for event in events(&at, &self.queue, &mut next, contains)? {
                say(self.json, &event, line(&event))?;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            stdout().flush()?;
        }
        Ok(())
    }
}

/// The changes of a queue's messages since the request before; 0: this is the first one.
///
/// # Errors
/// The server's no, or it is gone.
pub(super) fn events(
    at: &Where,
    queue: &str,
    next: &mut u64,
    contains: &str,
) -> Result<Vec<Value>> {
    let (queue, contains) = (part(queue), part(contains));
    let path = format!("/queues/{queue}/tail?after={next}&contains={contains}");
    let mut page = at.api("GET", &path, None)?;
    *next = page["next"]
        .as_u64()
        .context("the server is of another version")?;
    let mut events: Vec<Value> = serde_json::from_value(page["events"].take())?;
    if page["missed"].as_u64().unwrap_or(0) > 0 {
        let missed = json!({ "event": "missed", "count": page["missed"] });
        events.insert(0, missed);
    }
    Ok(events)
}

/// An event as a line for people.
pub(super) fn line(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    if text("event") == "missed" {
        let were = if event["count"] == 1 {
            "event was"
        } else {
            "events were"
        };
        return format!("          {} {were} missed", event["count"]);
    }
    let note = match text("note") {
        "" => String::new(),
        note => format!("  ({})", seen(note)),
    };
    let line = format!(
        "{}  {}  {}  {}{note}",
        time_of_day(event["at_ms"].as_u64().unwrap_or(0)),
        pad(text("event"), 9, false),
        event["id"],
        preview(text("body_start").as_bytes()),
    );
    line.trim_end().to_owned()
}

/// The clock's hours to seconds here.
pub(super) fn time_of_day(at_ms: u64) -> String {
    quintet_client::words::date(at_ms).map_or_else(String::new, |at| {
        let here = at.with_timezone(&chrono::Local);
        here.format("%H:%M:%S").to_string()
    })
}
