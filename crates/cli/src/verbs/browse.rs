//! `quintet browse`.

use std::io::{Write as _, stderr, stdout};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::super::api::{Api, part};
use super::super::table::{age, seen_bytes, table};
use super::bulk::Which;

/// Characters of a body in a line.
const PREVIEW: usize = 60;
/// Messages of a page at most.
const PAGE: u32 = 1000;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet browse work                        the next messages\n  \
                        quintet browse work --state buried         also why each failed\n  \
                        quintet browse work --state buried --json  all fields\n  quintet browse \
                        work --contains 'user 7' --older 1h\n\nBrowse takes no messages. It reads \
                        in slices, which do not delay other clients. If there are more, the last \
                        line shows the --after option that continues."
)]
pub(in super::super) struct Browse {
    /// Name of the queue.
    queue: String,
    /// State of the messages.
    #[arg(long, default_value = "ready", value_parser = ["ready", "delayed", "reserved", "buried", "prepared", "archived"])]
    state: String,
    #[command(flatten)]
    which: Which,
    /// Largest number of messages.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Continue after the messages of an earlier browse.
    #[arg(long, value_name = "WHAT")]
    after: Option<String>,
    /// Print a line of JSON for each message, with the whole body.
    #[arg(long)]
    json: bool,
}

impl Browse {
    pub(in super::super) fn run(self, mut api: Api) -> Result<()> {
        let bodies = if self.json { "whole" } else { "start" };
        let path = format!(
            "/queues/{}/records?bodies={bodies}&state={}{}",
            part(&self.queue),
            self.state,
            self.which.query()
        );
        let mut after = self.after.clone();
        let columns = [
            "id", "age", "priority", "attempts", "bytes", "body", "error",
        ];
        let mut rows = vec![columns.map(str::to_owned)];
        let mut left = self.count;
        while left > 0 {
            let mut from = format!("{path}&max={}", left.min(PAGE));
            if let Some(after) = &after {
                from.push_str(&format!("&cursor={}", part(after)));
            }
            let page = api.open("GET", &from, None)?;
            let messages = page["messages"].as_array();
            for message in messages.context("the server is of another version")? {
                left = left.saturating_sub(1);
                let mut body = Vec::new();
                api.body(message["follows"].as_u64().unwrap_or(0), &mut body)?;
                if self.json {
                    let line = super::super::messages::with_body(message, body);
                    writeln!(stdout(), "{line}")?;
                } else {
                    rows.push(row(message, &body));
                }
            }
            after = page["cursor"].as_str().map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        if !self.json {
            let failed = rows.iter().skip(1).any(|row| !row[6].is_empty());
            // Where no message has failed there is no column of errors.
            let rows = rows
                .iter()
                .map(|row| if failed { &row[..] } else { &row[..6] });
            table(&rows.collect::<Vec<_>>(), &mut stdout().lock())?;
        }
        if let Some(after) = after {
            writeln!(stderr(), "there may be more: --after '{after}'")?;
        }
        Ok(())
    }
}

/// The last error of a message, also from before it became a dead letter; empty: there is none.
fn error(message: &Value) -> String {
    let mut attrs = message["attrs"].as_array().into_iter().flatten();
    let dead = || {
        attrs
            .find(|attr| attr[0] == "dead_letter_error")
            .map(|attr| &attr[1])
    };
    let stated = message.get("status").or_else(dead);
    let stated = stated.and_then(Value::as_str).unwrap_or_default();
    preview(stated.as_bytes())
}

fn row(message: &Value, body: &[u8]) -> [String; 7] {
    let created = message["created_ms"].as_u64().unwrap_or(0);
    let text = |key: &str| message[key].to_string();
    [
        text("id"),
        age(quintet_host::wall_ms().saturating_sub(created)),
        text("priority"),
        text("reserves"),
        text("bytes"),
        preview(body),
        error(message),
    ]
}

/// The first line of a body, fit for a terminal whatever is in it.
pub(in super::super) fn preview(body: &[u8]) -> String {
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = seen_bytes(line);
    let shown: String = text.chars().take(PREVIEW).collect();
    match shown.len() < text.len() || line.len() < body.len() {
        true => format!("{shown}\u{2026}"),
        false => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::preview;

    #[test]
    fn a_preview_is_one_line_and_moves_no_cursor() {
        assert_eq!(preview(b"plain"), "plain");
        assert_eq!(preview(b"first\nsecond"), "first\u{2026}");
        assert_eq!(preview(b"\x1b[2Jgone\r"), "\\x1b[2Jgone\\x0d");
        assert_eq!(preview(b"{\"a\": \"\\n\"}"), "{\"a\": \"\\n\"}");
        assert_eq!(preview(&[0xff, 0xfe]), "\\xff\\xfe");
        assert_eq!(preview("\u{e4}".repeat(61).as_bytes()).chars().count(), 61);
    }
}
