//! `quintet settings`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::Where;
use super::api::{Api, part};
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
        let mut api = Api::connect(&self.at)?;
        let mut out = stdout().lock();
        let Some(queue) = self.queue else {
            write!(out, "{}", api.text("/server/config")?)?;
            return Ok(ExitCode::SUCCESS);
        };
        let told = api.get(&format!("/queues/{}/settings", part(&queue)))?;
        let settings = told["settings"].as_array().into_iter().flatten();
        let settings = settings.filter(|setting| self.all || setting["source"] != "default");
        let settings = settings.map(|setting| {
            json!({ "key": setting["key"], "value": setting["toml"], "source": setting["source"] })
        });
        let setup = json!({
            "name": told["queue"],
            "settings": settings.collect::<Vec<_>>(),
            "parent": told["parent"],
            "children": told["children"],
        });
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
