//! `quintet attention`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use quintet_client::words::count;
use serde_json::Value;

use super::Where;
use super::table::{pad, say, seen};

/// Something needs attention.
const NEEDED: u8 = 1;
/// Nothing is known, as there was an error.
const UNKNOWN: u8 = 2;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quintet attention
  quintet attention --json | jq -r 'select(.level == \"alarm\").queue'
  quintet attention || mail -s 'queues' ops@example.com

Each line has the level (alarm or warning), the rule and the reason, the worst first. A last
line counts what is beyond 1,000; --json leaves it out.
Exit codes: 0 nothing needs attention, 1 something does, 2 an error such as no connection.")]
pub(super) struct Attention {
    /// Print a line of JSON for each queue that needs attention.
    #[arg(long)]
    json: bool,
}

impl Attention {
    /// Prints what needs attention.
    ///
    /// # Errors
    /// The output takes no more. Other errors are printed, with an exit code of their own.
    pub(super) fn run(self, at: Where) -> Result<ExitCode> {
        let (findings, more) = match findings(&at) {
            Ok(found) => found,
            Err(error) => {
                eprintln!("quintet: {error:#}");
                return Ok(ExitCode::from(UNKNOWN));
            }
        };
        for finding in &findings {
            say(self.json, finding, line(finding))?;
        }
        if more > 0 && !self.json {
            writeln!(stdout(), "and {} more", count(more))?;
        }
        if findings.is_empty() {
            if !self.json {
                writeln!(stdout(), "nothing needs attention")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Ok(ExitCode::from(NEEDED))
    }
}

/// Those that the server lists, and how many there are besides.
fn findings(at: &Where) -> Result<(Vec<Value>, u64)> {
    let mut response = at.api("GET", "/attention", None)?;
    let findings: Vec<Value> = serde_json::from_value(response["findings"].take())
        .context("the server is of another version")?;
    let total = response["total"].as_u64().unwrap_or(0);
    let more = total.saturating_sub(findings.len() as u64);
    Ok((findings, more))
}

/// A finding as a line for people.
fn line(finding: &Value) -> String {
    let text = |key: &str| seen(finding[key].as_str().unwrap_or_default());
    let (level, rule) = (pad(&text("level"), 7, false), pad(&text("rule"), 12, false));
    let line = format!("{level}  {rule}  {} {}", text("text"), text("because"));
    line.trim_end().to_owned()
}
