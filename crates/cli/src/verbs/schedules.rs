//! `quintet schedule`: schedules, made, seen and steered.

use std::io::{Write as _, stdout};
use std::str::FromStr as _;

use anyhow::Result;
use chrono_tz::Tz;
use serde_json::{Value, json};

use super::super::api::{Api, part};
use super::super::table::{print_list, say, seen};
use super::super::{On, Where};
use super::clients::{queue, shown};
use super::duration;

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet schedule\n  quintet schedule put nightly --cron '30 2 * * \
                  1-5' --zone Europe/Berlin --queue reports\n  quintet schedule put poll --every \
                  5m --queue polls --overlap skip\n  quintet schedule show nightly\n  quintet \
                  schedule run nightly\n\nNEXT and LAST are in the time zone of the schedule; LAST \
                  is the time of the last put. OUTCOME is the\nlast result: put with the message \
                  id, skipped, missed, or refused with the reason. See docs/schedules.md."
)]
pub(in super::super) struct Schedule {
    /// Print a line of JSON for each schedule.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Create a schedule, or change it.
    #[command(
        after_help = "Examples:\n  quintet schedule put nightly --cron '30 2 * * 1-5' --zone \
                      Europe/Berlin --queue reports --body all\n  quintet schedule put poll \
                      --every 5m --phase 30s --queue polls --overlap skip\n  quintet schedule put \
                      launch --at 2027-01-01T09:00:00+01:00 --queue mails\n  quintet schedule put \
                      nightly --file nightly.json\n\nThe command replaces the whole definition. A \
                      pause and the record of earlier runs stay. A file has the JSON of PUT \
                      /api/v1/schedules/NAME."
    )]
    Put(Box<Define>),
    /// Show schedules as JSON: definition, next due times, last runs.
    #[command(after_help = "Example:\n  quintet schedule show nightly")]
    Show(On<Names>),
    /// Remove schedules that were created at run time.
    #[command(
        after_help = "Example:\n  quintet schedule remove nightly\n\nMessages of the schedule stay."
    )]
    Remove(On<Names>),
    /// Pause schedules: they put nothing until they are resumed.
    #[command(
        after_help = "Example:\n  quintet schedule pause nightly\n\nA pause survives restarts. Due \
                      times within the pause are skipped and do not count as missed."
    )]
    Pause(On<Steer>),
    /// End the pause of schedules.
    #[command(
        after_help = "Example:\n  quintet schedule resume nightly\n\nThe schedule puts from its \
                      next due time on. Skipped due times stay skipped."
    )]
    Resume(On<Steer>),
    /// Put the message of schedules once, now.
    #[command(
        after_help = "Example:\n  quintet schedule run nightly\n\nWorks also for a paused \
                      schedule. The due times do not change."
    )]
    Run(On<Steer>),
}

#[derive(clap::Args)]
struct Define {
    #[command(flatten)]
    at: Where,
    /// Name of the schedule.
    name: String,
    /// Queue that the messages are put into.
    #[arg(long, required_unless_present = "file")]
    queue: Option<String>,
    /// Minute, hour, day, month and weekday, for example '0 3 * * *'.
    #[arg(long, value_name = "FIELDS", group = "times")]
    cron: Option<String>,
    /// Time zone of --cron [default: UTC].
    #[arg(long, requires = "cron")]
    zone: Option<String>,
    /// Interval, 1s or longer.
    #[arg(long, value_parser = duration, value_name = "TIME", group = "times")]
    every: Option<u64>,
    /// Offset of --every: the schedule is due at multiples of the interval since 1970, plus this.
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "every")]
    phase: Option<u64>,
    /// A moment, for example 2027-01-01T09:00:00Z; may be given several times.
    #[arg(long = "at", value_parser = moment, value_name = "MOMENT", group = "times")]
    at_time: Vec<u64>,
    /// No run before this moment.
    #[arg(long, value_parser = moment, value_name = "MOMENT")]
    start: Option<u64>,
    /// No run after this moment.
    #[arg(long, value_parser = moment, value_name = "MOMENT")]
    end: Option<u64>,
    /// Number of runs after which the schedule ends, 1 or more [default: no end].
    #[arg(long)]
    count: Option<u64>,
    /// Handling of missed runs: skip, once or all [default: skip].
    #[arg(long, value_name = "WHAT", value_parser = ["skip", "once", "all"])]
    missed: Option<String>,
    /// Handling of runs while an earlier one is not done: allow, skip or replace [default: allow].
    #[arg(long, value_name = "WHAT", value_parser = ["allow", "skip", "replace"])]
    overlap: Option<String>,
    /// Body of the messages.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// An attribute; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::pair)]
    attr: Vec<(String, String)>,
    /// Priority, from 0, the most urgent, to 4294967295 [default: the queue's `default_priority`].
    #[arg(long)]
    priority: Option<u32>,
    /// Time until a message can be taken, for example 30s.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    delay: Option<u64>,
    /// Time until a message expires, for example 1h.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<u64>,
    /// Key of the message group.
    #[arg(long, value_name = "KEY")]
    with_key: Option<String>,
    /// Deduplication id of the messages.
    #[arg(long, value_name = "ID")]
    unique: Option<String>,
    /// File with the whole definition as JSON; `-`: standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "queue", "times", "start", "end", "count", "missed", "overlap", "body", "attr", "priority",
        "delay", "ttl", "with_key", "unique",
    ])]
    file: Option<String>,
    /// Print the reply as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Names {
    /// Names of schedules.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(clap::Args)]
struct Steer {
    /// Names of schedules.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print a line of JSON for each schedule.
    #[arg(long)]
    json: bool,
}

impl Schedule {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        match self.act {
            Some(Act::Put(define)) => return define.run(),
            Some(Act::Show(names)) => return names.show(),
            Some(Act::Remove(names)) => return names.remove(),
            Some(Act::Pause(steer)) => {
                return steer.run("pause", "paused", "was paused already");
            }
            Some(Act::Resume(steer)) => {
                return steer.run("resume", "resumed", "was not paused");
            }
            Some(Act::Run(steer)) => return steer.run("run", "put", "not put"),
            None => {}
        }
        let path = "/schedules?limit=1000";
        let all = Api::connect(&at)?.pages(path, "schedules", "next", "after")?;
        let columns = "name schedule zone queue next last outcome missed";
        print_list(&all, self.json, columns, cell)
    }
}

impl Define {
    fn run(self) -> Result<()> {
        let of = match &self.file {
            Some(file) => super::json_of(file)?,
            None => self.definition()?,
        };
        let path = format!("/schedules/{}", part(&self.name));
        let response = self.at.api("PUT", &path, Some(&of))?;
        let name = seen(&self.name);
        let done = match response["changed"] == true {
            true => "is scheduled",
            false => "was so already",
        };
        say(self.json, &response, format!("{name} {done}"))
    }

    fn definition(&self) -> Result<Value> {
        let headers = Some(super::headers(&self.attr)?);
        Ok(super::given(json!({
            "queue": self.queue,
            "cron": self.cron,
            "zone": self.zone,
            "missed": self.missed,
            "overlap": self.overlap,
            "body": self.body,
            "key": self.with_key,
            "every_ms": self.every,
            "phase_ms": self.phase,
            "start_ms": self.start,
            "end_ms": self.end,
            "count": self.count,
            "priority": self.priority,
            "delay_ms": self.delay,
            "ttl_ms": self.ttl,
            "at_ms": Some(&self.at_time).filter(|at| !at.is_empty()),
            "headers": headers.filter(|_| !self.attr.is_empty()),
            "unique": self.unique.as_ref().map(|id| json!({ "id": id })),
        })))
    }
}

impl On<Names> {
    fn show(self) -> Result<()> {
        let mut api = Api::connect(&self.at)?;
        for name in &self.does.names {
            let response = api.get(&format!("/schedules/{}", part(name)))?;
            writeln!(stdout(), "{response}")?;
        }
        Ok(())
    }

    fn remove(self) -> Result<()> {
        let mut api = Api::connect(&self.at)?;
        for name in &self.does.names {
            api.ask("DELETE", &format!("/schedules/{}", part(name)), None)?;
            writeln!(stdout(), "{} removed", seen(name))?;
        }
        Ok(())
    }
}

/// A moment as RFC 3339 has it, in ms since 1970.
fn moment(text: &str) -> Result<u64, String> {
    let why = "takes a moment such as 2027-01-01T09:00:00Z, with its offset";
    quintet_client::words::moment(text).ok_or_else(|| why.to_owned())
}

impl On<Steer> {
    fn run(self, act: &str, done: &str, was: &str) -> Result<()> {
        let mut api = Api::connect(&self.at)?;
        for name in &self.does.names {
            let mut response =
                api.ask("POST", &format!("/schedules/{}/{act}", part(name)), None)?;
            if self.does.json {
                response["name"] = name.as_str().into();
            }
            let name = seen(name);
            let text = match (response["changed"].as_bool(), response["message"].as_u64()) {
                (_, Some(id)) => format!("{name} {done} as message {id}"),
                (Some(true), None) => format!("{name} {done}"),
                _ => format!("{name} {was}"),
            };
            say(self.does.json, &response, text)?;
        }
        Ok(())
    }
}

fn cell(cron: &Value, column: &str) -> String {
    let zone = cron["zone"].as_str().unwrap_or_default();
    let when = |key: &str| {
        cron[key]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |at| clock(at, zone))
    };
    match column {
        "queue" => queue(&cron["queue"]),
        "next" if cron["paused"] == true => "paused".to_owned(),
        "next" if cron["ended"] == true => "ended".to_owned(),
        "next" => when("next_ms"),
        "last" => when("last_ms"),
        "outcome" => match (cron["outcome"].as_str(), cron["message"].as_u64()) {
            (Some("put"), Some(id)) => format!("put {id}"),
            (Some(bad @ ("refused" | "invalid")), _) => {
                format!("{bad}: {}", shown(&cron["error"]))
            }
            (Some("none") | None, _) => "-".to_owned(),
            (Some(other), _) => other.to_owned(),
        },
        "missed" => shown(&cron["missed_runs"]),
        key => shown(&cron[key]),
    }
}

/// A moment by the clocks of a zone, with what they are ahead of UTC.
fn clock(at_ms: u64, zone: &str) -> String {
    let Some(at) = quintet_client::words::date(at_ms) else {
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
        assert_eq!(moment("2026-03-29T03:30:00+02:00"), Ok(at));
        assert!(moment("2026-03-29 03:30").is_err());
    }
}
