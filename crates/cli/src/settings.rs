//! `quintet settings` and `quintet set`.

use std::io::{Write as _, stdout};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::api::{Api, part};
use super::show::plain;
use super::table::{named, table};

#[derive(clap::Args)]
#[command(after_help = "\
For a queue, the command prints the settings that differ from the defaults, and their source: the
configuration file, or the queue itself if they were set at run time (quintet set, hooks, scripts
of RQ). Without a queue, it prints the whole configuration of the running server as a file, without
secrets.

Examples:
  quintet settings work
  quintet settings work --all --json
  quintet settings > running.toml")]
pub(super) struct Settings {
    /// Name of the queue.
    queue: Option<String>,
    /// Print settings with default values too.
    #[arg(long, requires = "queue")]
    all: bool,
    /// Print JSON.
    #[arg(long, requires = "queue")]
    json: bool,
}

impl Settings {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let mut out = stdout().lock();
        let Some(queue) = self.queue else {
            write!(out, "{}", api.text("/server/config")?)?;
            return Ok(());
        };
        let response = api.get(&format!("/queues/{}/settings", part(&queue)))?;
        let settings = response["settings"].as_array().into_iter().flatten();
        let settings = settings.filter(|setting| self.all || setting["source"] != "default");
        let settings = settings.map(|setting| {
            json!({ "key": setting["key"], "value": setting["toml"], "source": setting["source"] })
        });
        let setup = json!({
            "name": response["queue"],
            "settings": settings.collect::<Vec<_>>(),
            "parent": response["parent"],
            "children": response["children"],
        });
        if self.json {
            writeln!(out, "{setup}")?;
            return Ok(());
        }
        let text = |value: &Value, key: &str| plain(&value[key]);
        let mut rows = vec![["setting", "value", "source"].map(str::to_owned)];
        let settings = setup["settings"].as_array().into_iter().flatten();
        rows.extend(settings.map(|one| ["key", "value", "source"].map(|key| text(one, key))));
        match rows.len() {
            1 => writeln!(out, "all settings have default values (--all prints them)")?,
            _ => table(&rows, &mut out)?,
        }
        if let Some(parent) = setup["parent"].as_str() {
            writeln!(out, "gets a copy of each message put to {}", named(parent))?;
        }
        for child in setup["children"].as_array().into_iter().flatten() {
            writeln!(
                out,
                "each message put to it is copied to {}",
                named(&plain(child))
            )?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "\
A change takes effect at once and survives a restart. It overrides the configuration file until you
clear it.

Examples:
  quintet set work take_rate=5/s in_flight_max=10
  quintet set work --clear take_rate")]
pub(super) struct Set {
    /// Name of the queue.
    queue: String,
    /// Settings of a queue, with their names in the configuration.
    #[arg(value_name = "KEY=VALUE", required_unless_present = "clear", value_parser = super::verbs::pair)]
    settings: Vec<(String, String)>,
    /// Return this setting to the configuration; may be given several times.
    #[arg(long, value_name = "KEY")]
    clear: Vec<String>,
}

impl Set {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let cleared = self.clear.into_iter().map(|key| (key, Value::Null));
        // Numbers and words such as true as they are, all else as text.
        let set = self.settings.into_iter().map(|(key, value)| {
            let read = serde_json::from_str(&value);
            (key, read.unwrap_or(Value::String(value)))
        });
        let changes: Map<String, Value> = set.chain(cleared).collect();
        let keys: Vec<String> = changes.keys().cloned().collect();
        let path = format!("/queues/{}/settings", part(&self.queue));
        let response = api.ask("PATCH", &path, Some(&changes.into()))?;
        let mut out = stdout().lock();
        for setting in response["settings"].as_array().into_iter().flatten() {
            if keys.iter().any(|key| setting["key"] == key.as_str()) {
                let text = |key: &str| plain(&setting[key]);
                writeln!(
                    out,
                    "{} = {} ({})",
                    text("key"),
                    text("toml"),
                    text("source")
                )?;
            }
        }
        Ok(())
    }
}
