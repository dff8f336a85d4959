//! `quintet settings`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::Where;
use super::client::Client;
use super::show::plain;
use super::table::{named, table};

/// Arguments of `settings`.
#[derive(clap::Args)]
#[command(after_help = "\
Of a queue, what differs from the defaults, and who says so: the configuration's file, or the queue
itself, for which it was set while the server ran (hooks, RQ's scripts). Without a queue, the whole
configuration of the running server, as a file; what is secret is hidden.

Examples:
  quintet settings work
  quintet settings work --all --json
  quintet settings > running.toml")]
pub(super) struct Settings {
    #[command(flatten)]
    at: Where,
    /// Only of this queue.
    queue: Option<String>,
    /// Print settings that are as by default as well.
    #[arg(long, requires = "queue")]
    all: bool,
    /// Print JSON.
    #[arg(long, requires = "queue")]
    json: bool,
}

impl Settings {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let mut out = stdout().lock();
        let Some(queue) = self.queue else {
            let reply = client.ask(&json!({ "config": {} }), &mut std::io::empty())?;
            let text = reply.get("done").and_then(Value::as_str);
            write!(out, "{}", text.unwrap_or_default())?;
            return Ok(ExitCode::SUCCESS);
        };
        let request = json!({ "setup": { "queue": queue } });
        let mut setup = client.ask(&request, &mut std::io::empty())?;
        if let Some(settings) = setup["settings"].as_array_mut() {
            settings.retain(|setting| self.all || setting["source"] != "default");
        }
        if self.json {
            writeln!(out, "{setup}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let text = |value: &Value, key: &str| plain(&value[key]);
        let mut rows = vec![["setting", "value", "said by"].map(str::to_owned)];
        let settings = setup["settings"].as_array().into_iter().flatten();
        rows.extend(settings.map(|one| ["key", "value", "source"].map(|key| text(one, key))));
        match rows.len() {
            1 => writeln!(out, "all as by default (--all shows it)")?,
            _ => table(&rows, &mut out)?,
        }
        if let Some(parent) = setup["parent"].as_str() {
            writeln!(out, "gets copies of what is put to {}", named(parent))?;
        }
        for child in setup["children"].as_array().into_iter().flatten() {
            writeln!(
                out,
                "what is put to it is copied to {}",
                named(&plain(child))
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
