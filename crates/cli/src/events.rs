//! `quintet events`.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::api::{Api, part};
use super::progress::count_of;
use super::table::{pad, say, seen};
use super::tail::time_of_day;

/// A request waits so long for an event, ms.
const WAIT_MS: u64 = 30_000;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quintet events --since oldest
  quintet events --follow --queue 'work*' --kinds failed,dead
  quintet events --since AV3qAQAAAAAAABAAAAAAAD0b1Tkq --json
  quintet events --since oldest --follow --json >>events.jsonl

Events come from the server's durable log: put, reserved, finished, failed, dead, cancelled,
released, removed, expired, moved, restart, and lost where a part of the log is missing. The command
prints the position next at the end. To continue there, also after a restart, pass it to --since. If
the log no longer has this position, the command fails and names the oldest one.")]
pub(super) struct Events {
    /// Start after this position; `now`: only new events, `oldest`: all events in the log.
    #[arg(long, value_name = "POSITION", default_value = "now")]
    since: String,
    /// Wait for more events at the end of the log.
    #[arg(long)]
    follow: bool,
    /// Only events of this queue, or of queues with names like this pattern; may be repeated.
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Only these kinds, with commas between.
    #[arg(long, value_name = "KINDS")]
    kinds: Option<String>,
    /// Print a line of JSON for each event, and a line with the position next after each page.
    #[arg(long)]
    json: bool,
}

impl Events {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let mut query = format!("max=1000&wait_ms={}", if self.follow { WAIT_MS } else { 0 });
        for queue in &self.queue {
            query += &format!("&queue={}", part(queue));
        }
        if let Some(kinds) = &self.kinds {
            query += &format!("&kinds={}", part(kinds));
        }
        let mut since = self.since;
        loop {
            let mut page = api.get(&format!("/events?since={}&{query}", part(&since)))?;
            let next = page["next"].as_str();
            let next = next.context("the server is of another version")?.to_owned();
            let more = page["more"] == true;
            let events: Vec<Value> = serde_json::from_value(page["events"].take())?;
            let goes_on = self.follow || more;
            let mut out = stdout().lock();
            for event in &events {
                say(self.json, event, line(event))?;
            }
            match self.json {
                true if since != next => writeln!(out, "{}", json!({ "next": next }))?,
                false if !goes_on => writeln!(out, "next {next}")?,
                true | false => {}
            }
            out.flush()?;
            if !goes_on {
                return Ok(());
            }
            since = next;
        }
    }
}

/// An event as a line for people.
fn line(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let number = |key: &str| event[key].as_u64().map(|number| number.to_string());
    let count = event["count"].as_u64();
    let count = count.map(|count| count_of(count, "message"));
    let mut line = format!(
        "{}  {}  {}  {}",
        time_of_day(event["at_ms"].as_u64().unwrap_or(0)),
        pad(text("kind"), 9, false),
        seen(text("queue")),
        number("id").or(count).unwrap_or_default(),
    );
    for (key, before) in [
        ("to", "to "),
        ("why", ""),
        ("name", "name "),
        ("error", "error: "),
    ] {
        if !text(key).is_empty() {
            line += &format!("  {before}{}", seen(text(key)));
        }
    }
    line.trim_end().to_owned()
}
