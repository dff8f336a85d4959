//! `quintet stats`, `metrics` and `queues`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::Where;
use super::client::Client;

/// Arguments of `stats`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quintet stats\n  quintet stats work\n  quintet stats --json")]
pub(super) struct Stats {
    #[command(flatten)]
    at: Where,
    /// Only this queue.
    queue: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) fn run(self) -> Result<ExitCode> {
        let of = self
            .queue
            .map_or_else(|| json!({}), |queue| json!({ "queue": queue }));
        let reply =
            Client::connect(&self.at)?.ask(&json!({ "stats": of }), &mut std::io::empty())?;
        let numbers = reply
            .get("queue")
            .or_else(|| reply.get("stats"))
            .unwrap_or(&Value::Null);
        let mut out = stdout().lock();
        if self.json {
            writeln!(out, "{numbers}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let pairs: Vec<(&String, String)> = numbers
            .as_object()
            .map(|map| map.iter().map(|(key, value)| (key, plain(value))).collect())
            .unwrap_or_default();
        let width = pairs.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in pairs {
            writeln!(out, "{key:width$}  {value}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `metrics`.
#[derive(clap::Args)]
#[command(after_help = "Example, for node_exporter's textfile collector:
  quintet metrics > quintet.prom.new && mv quintet.prom.new quintet.prom")]
pub(super) struct Metrics {
    #[command(flatten)]
    at: Where,
}

impl Metrics {
    pub(super) fn run(self) -> Result<ExitCode> {
        let reply =
            Client::connect(&self.at)?.ask(&json!({ "metrics": {} }), &mut std::io::empty())?;
        let text = reply.get("done").and_then(Value::as_str);
        write!(stdout().lock(), "{}", text.unwrap_or_default())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `queues`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quintet queues\n  quintet queues --json")]
pub(super) struct Queues {
    #[command(flatten)]
    at: Where,
    /// Print a line of JSON for each queue.
    #[arg(long)]
    json: bool,
}

impl Queues {
    pub(super) fn run(self) -> Result<ExitCode> {
        let queues = Client::connect(&self.at)?.queues()?;
        let mut out = stdout().lock();
        if self.json {
            for queue in queues {
                writeln!(out, "{queue}")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let columns = [
            "name", "ready", "delayed", "reserved", "buried", "bytes", "waiters",
        ];
        let mut rows = vec![columns.map(str::to_owned)];
        rows.extend(
            queues
                .iter()
                .map(|queue| columns.map(|key| plain(&queue[key]))),
        );
        let width = |at: usize| {
            rows.iter()
                .map(|row| row[at].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        for row in &rows {
            write!(out, "{:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(out, "  {cell:>width$}")?;
            }
            writeln!(out)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A JSON value without quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
