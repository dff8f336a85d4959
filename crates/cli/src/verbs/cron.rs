//! `quintet cron`: the `[[cron]]` tables, seen and steered.

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::str::FromStr as _;

use anyhow::Result;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use super::super::Where;
use super::super::api::{Api, part};
use super::super::table::{seen, table};
use super::clients::{queue, shown};

/// Arguments of `cron`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet cron\n  quintet cron --json | grep \
                  '\"outcome\":\"refused\"'\n  quintet cron pause nightly-report\n  quintet cron \
                  run nightly-report\n\nNEXT and LAST are in the time zone of the table; LAST is \
                  the time of the last put. OUTCOME is the last result: put with the message id, \
                  missed, or refused with the reason. The configuration defines the tables: \
                  docs/cron.md."
)]
pub(in super::super) struct Cron {
    #[command(flatten)]
    at: Where,
    /// Print a line of JSON for each table.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Pause tables: they put nothing until they are resumed.
    #[command(
        after_help = "Example:\n  quintet cron pause nightly-report\n\nA pause survives \
                        restarts. Due times within the pause are skipped and do not count as \
                        missed."
    )]
    Pause(Steer),
    /// End the pause of tables.
    #[command(
        after_help = "Example:\n  quintet cron resume nightly-report\n\nThe table puts from \
                        its next due time on. Skipped due times stay skipped."
    )]
    Resume(Steer),
    /// Put the message of tables once, now.
    #[command(
        after_help = "Example:\n  quintet cron run nightly-report\n\nWorks also for a \
                        paused table. The due times do not change."
    )]
    Run(Steer),
}

#[derive(clap::Args)]
struct Steer {
    #[command(flatten)]
    at: Where,
    /// Names of tables.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print a line of JSON for each table.
    #[arg(long)]
    json: bool,
}

impl Cron {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        match self.act {
            Some(Act::Pause(steer)) => {
                return steer.run("pause", "paused", "was paused already");
            }
            Some(Act::Resume(steer)) => {
                return steer.run("resume", "resumed", "was not paused");
            }
            Some(Act::Run(steer)) => return steer.run("run", "put", "not put"),
            None => {}
        }
        let all = Api::connect(&self.at)?.list("/cron")?;
        if self.json {
            for cron in all {
                writeln!(stdout(), "{cron}")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let columns = [
            "name", "schedule", "zone", "queue", "next", "last", "outcome", "missed",
        ];
        let mut rows = vec![columns.map(str::to_owned)];
        rows.extend(all.iter().map(row));
        table(&rows, &mut stdout().lock())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Steer {
    fn run(self, act: &str, done: &str, was: &str) -> Result<ExitCode> {
        let mut api = Api::connect(&self.at)?;
        for name in &self.names {
            let mut told = api.ask("POST", &format!("/cron/{}/{act}", part(name)), None)?;
            if self.json {
                told["name"] = name.as_str().into();
                writeln!(stdout(), "{told}")?;
                continue;
            }
            let name = seen(name);
            match (told["changed"].as_bool(), told["message"].as_u64()) {
                (_, Some(id)) => writeln!(stdout(), "{name} {done} as message {id}")?,
                (Some(true), None) => writeln!(stdout(), "{name} {done}")?,
                _ => writeln!(stdout(), "{name} {was}")?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(cron: &Value) -> [String; 8] {
    let zone = cron["zone"].as_str().unwrap_or_default();
    let when = |key: &str| {
        cron[key]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |at| clock(at, zone))
    };
    let next = match cron["paused"].as_bool() {
        Some(true) => "paused".to_owned(),
        _ => when("next_ms"),
    };
    let outcome = match cron["outcome"].as_str() {
        Some("put") => match cron["message"].as_u64() {
            Some(id) => format!("put {id}"),
            None => "put".to_owned(),
        },
        Some("refused") => format!("refused: {}", shown(&cron["error"])),
        Some("none") | None => "-".to_owned(),
        Some(other) => other.to_owned(),
    };
    [
        shown(&cron["name"]),
        shown(&cron["schedule"]),
        shown(&cron["zone"]),
        queue(&cron["queue"]),
        next,
        when("last_ms"),
        outcome,
        shown(&cron["missed_runs"]),
    ]
}

/// A moment by the clocks of a zone, with what they are ahead of UTC.
fn clock(at_ms: u64, zone: &str) -> String {
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(DateTime::<Utc>::from_timestamp_millis);
    let Some(at) = at else {
        return at_ms.to_string();
    };
    let zone = Tz::from_str(zone).unwrap_or(Tz::UTC);
    at.with_timezone(&zone)
        .format("%Y-%m-%d %H:%M:%S %:z")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_by_the_clocks_of_the_zone() {
        let at = 1_774_747_800_000;
        assert_eq!(clock(at, "UTC"), "2026-03-29 01:30:00 +00:00");
        assert_eq!(clock(at, "Europe/Berlin"), "2026-03-29 03:30:00 +02:00");
        assert_eq!(clock(u64::MAX, "UTC"), u64::MAX.to_string());
    }
}
