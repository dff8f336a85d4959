//! `[[cron]]`: messages that are put by the calendar.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::str::FromStr as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono_tz::Tz;
use quintet_client::FOLDER;
use quintet_policy::{Cron, Missed, Overlap, Schedule, Timing};
use quintet_types::{Attr, Body, Expiry, Ms, Name, Put, PutMore, When};
use quintet_wire::STREAM_OVER;

use super::Config;
use super::auth::{AuthField, AuthSpec};
use super::units::parse_duration_ms;
use super::wrong::Wrong;

/// Bytes of a name at most: it is a label of metrics and a part of addresses.
const NAME_MAX: usize = 255;

/// One `[[cron]]` table, as the file says it.
#[derive(Clone, Default)]
pub struct CronTable {
    pub name: String,
    pub schedule: String,
    pub zone: String,
    pub queue: String,
    pub body: String,
    pub body_file: String,
    pub body_base64: String,
    pub attributes: Vec<String>,
    pub priority: Option<u64>,
    pub delay: String,
    pub ttr: String,
    pub ttl: String,
    pub missed: String,
    pub overlap: String,
}

pub(crate) const CRON: &[AuthSpec<CronTable>] = &[
    AuthSpec {
        key: "name",
        help: "What it is called; each has another.",
        field: |row| AuthField::Text(&mut row.name),
    },
    AuthSpec {
        key: "schedule",
        help: "When: minute, hour, day, month and weekday, as crontab(5) has them.",
        field: |row| AuthField::Text(&mut row.schedule),
    },
    AuthSpec {
        key: "zone",
        help: "By whose clocks, such as \"Europe/Berlin\" (IANA); empty: UTC.",
        field: |row| AuthField::Text(&mut row.zone),
    },
    AuthSpec {
        key: "queue",
        help: "Queue the message is put into.",
        field: |row| AuthField::Text(&mut row.queue),
    },
    AuthSpec {
        key: "body",
        help: "Its body; without one in any form it is empty.",
        field: |row| AuthField::Text(&mut row.body),
    },
    AuthSpec {
        key: "body_file",
        help: "Or a file with it, which is read at the start and by a reload.",
        field: |row| AuthField::Text(&mut row.body_file),
    },
    AuthSpec {
        key: "body_base64",
        help: "Or in base64.",
        field: |row| AuthField::Text(&mut row.body_base64),
    },
    AuthSpec {
        key: "attributes",
        help: "Its attributes, such as [\"team=ops\"].",
        field: |row| AuthField::List(&mut row.attributes),
    },
    AuthSpec {
        key: "priority",
        help: "Its priority; else the queue's default_priority.",
        field: |row| AuthField::Number(&mut row.priority),
    },
    AuthSpec {
        key: "delay",
        help: "How long it rests before it may be taken, such as \"5m\".",
        field: |row| AuthField::Text(&mut row.delay),
    },
    AuthSpec {
        key: "ttr",
        help: "Time to run of its leases.",
        field: |row| AuthField::Text(&mut row.ttr),
    },
    AuthSpec {
        key: "ttl",
        help: "Time to live; else the queue's.",
        field: |row| AuthField::Text(&mut row.ttl),
    },
    AuthSpec {
        key: "missed",
        help: "What becomes of runs that were missed: \"skip\" (also if empty), \"once\" (one put for \
               all of them) or \"all\" (a put for each).",
        field: |row| AuthField::Text(&mut row.missed),
    },
    AuthSpec {
        key: "overlap",
        help: "What becomes of runs while the message of an earlier one is not done: \"allow\" (also \
               if empty), \"skip\", or \"replace\" (it takes the place of one that waits).",
        field: |row| AuthField::Text(&mut row.overlap),
    },
];

impl CronTable {
    fn job(&self) -> Result<Schedule, Wrong> {
        let takes = |key: &str, given: &str, why: &str| {
            Wrong::of_value(key, &toml::Value::String(given.to_owned()), why)
        };
        if self.name.len() > NAME_MAX || self.name.chars().any(char::is_control) {
            let why = format!("takes text of {NAME_MAX} bytes at most, without control characters");
            return Err(takes("name", &self.name, &why));
        }
        let schedule = |why: &str| takes("schedule", &self.schedule, why);
        let cron = Cron::parse(&self.schedule).map_err(|why| schedule(&why.to_string()))?;
        if cron.after_in(Ms(0), &Tz::UTC) == Ms::NEVER {
            return Err(schedule(&format!("\"{}\" never comes", self.schedule)));
        }
        let zone = match self.zone.as_str() {
            "" => Tz::UTC,
            zone => Tz::from_str(zone)
                .map_err(|_| takes("zone", zone, "takes a name such as \"Europe/Berlin\""))?,
        };
        let missed = match self.missed.as_str() {
            "" | "skip" => Missed::Skip,
            "once" => Missed::Once,
            "all" => Missed::All,
            missed => {
                let why = "takes \"skip\", \"once\" or \"all\"";
                return Err(takes("missed", missed, why));
            }
        };
        let overlap = match self.overlap.as_str() {
            "" | "allow" => Overlap::Allow,
            "skip" => Overlap::Skip,
            "replace" => Overlap::Replace,
            overlap => {
                let why = "takes \"allow\", \"skip\" or \"replace\"";
                return Err(takes("overlap", overlap, why));
            }
        };
        let schedule = Schedule {
            name: self.name.clone(),
            policy: format!("{} {}", self.schedule, zone.name()),
            timing: Timing::cron(cron, zone),
            missed,
            overlap,
            put: self.put()?,
        };
        Ok(schedule.guarded())
    }

    fn put(&self) -> Result<Put, Wrong> {
        let queue = Name::from(self.queue.as_str());
        if !queue.is_possible() {
            let given = toml::Value::String(self.queue.clone());
            return Err(Wrong::of_value(
                "queue",
                &given,
                "takes the name of a queue",
            ));
        }
        let body = self.body()?;
        if body.len() as u64 > STREAM_OVER {
            let why = format!(
                "the body has {} bytes; {STREAM_OVER} is the most",
                body.len()
            );
            return Err(Wrong::of_key("body", why));
        }
        let time = |key: &str, text: &str| match text {
            "" => Ok(None),
            text => parse_duration_ms(text)
                .map(Some)
                .map_err(|why| Wrong::of_key(key, format!("{key} {why}"))),
        };
        let priority = self.priority.map(u32::try_from).transpose();
        let more = PutMore {
            attrs: self.attrs()?,
            ..PutMore::default()
        };
        Ok(Put {
            priority: priority.map_err(|_| {
                let given = self.priority.unwrap_or_default();
                let why = format!("priority takes a whole number, 0 to 4294967295; not {given}");
                Wrong::of_key("priority", why)
            })?,
            due: time("delay", &self.delay)?.map_or(When::Default, When::In),
            expires: time("ttl", &self.ttl)?.map_or(Expiry::Default, Expiry::In),
            ttr_ms: time("ttr", &self.ttr)?,
            more: (!more.attrs.is_empty()).then(|| Box::new(more)),
            ..Put::new(queue, Body::new(&body))
        })
    }

    fn body(&self) -> Result<Vec<u8>, Wrong> {
        let said = [&self.body, &self.body_file, &self.body_base64];
        if said.iter().filter(|said| !said.is_empty()).count() > 1 {
            return Err("takes one of body, body_file and body_base64"
                .to_owned()
                .into());
        }
        if !self.body_file.is_empty() {
            let path = &self.body_file;
            return read_body(path).map_err(|why| Wrong::of_key("body_file", why));
        }
        if !self.body_base64.is_empty() {
            let decoded = BASE64_STANDARD.decode(&self.body_base64);
            return decoded.map_err(|why| {
                let given = toml::Value::String(self.body_base64.clone());
                Wrong::of_value("body_base64", &given, &format!("takes base64: {why}"))
            });
        }
        Ok(self.body.clone().into_bytes())
    }

    fn attrs(&self) -> Result<Vec<Attr>, Wrong> {
        let wrong = |why| Wrong::of_key("attributes", why);
        let read = |one: &String| match one.split_once('=') {
            Some((FOLDER, _)) => Err(wrong(format!("the attribute {FOLDER} is the server's own"))),
            Some((name, value)) if !name.is_empty() => {
                Ok((name.as_bytes().into(), value.as_bytes().into()))
            }
            _ => Err(wrong(format!(
                "attributes takes a list of \"NAME=VALUE\"; not \"{one}\""
            ))),
        };
        self.attributes.iter().map(read).collect()
    }
}

/// Reads the file of a body, no further than bodies go. One that is no regular
/// file, such as a pipe, might not end or not begin.
fn read_body(path: &str) -> Result<Vec<u8>, String> {
    let wrong = |why: io::Error| format!("cannot read {path}: {why}");
    if !std::fs::metadata(path).map_err(wrong)?.is_file() {
        return Err(format!("cannot read {path}: it is no regular file"));
    }
    let mut body = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(STREAM_OVER + 1)
        .read_to_end(&mut body)
        .map_err(wrong)?;
    match body.len() as u64 > STREAM_OVER {
        true => Err(format!(
            "the body in {path} has more than {STREAM_OVER} bytes, which is the most"
        )),
        false => Ok(body),
    }
}

impl Config {
    /// The `[[cron]]` tables. Reads the files of bodies.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn schedules(&self) -> Result<Vec<Arc<Schedule>>, Wrong> {
        let count = self.crons.len() as u64;
        if count > self.crons_max {
            return Err(format!(
                "crons_max = {}: there are {count} [[cron]] tables",
                self.crons_max
            )
            .into());
        }
        let settings = self.engine_settings();
        let mut names = HashSet::new();
        let mut jobs = Vec::new();
        for (row, table) in self.crons.iter().enumerate() {
            let wrong = |why: String| Wrong::from(why).of_row(row);
            if table.name.is_empty() {
                return Err(wrong("a [[cron]] needs a name".to_owned()));
            }
            let place = format!("[[cron]] {}", table.name);
            if !names.insert(&table.name) {
                return Err(wrong(format!("{place}: there are two of this name")));
            }
            let job = table.job();
            let job = job.map_err(|wrong| wrong.within(&place).of_row(row))?;
            let most = settings.resolve(job.put.queue.as_bytes()).message_bytes_max;
            let bytes = job.put.body.len();
            if bytes > most {
                return Err(wrong(format!(
                    "in {place}: the body has {bytes} bytes; message_bytes_max of the queue {} is \
                     {most}",
                    job.put.queue
                )));
            }
            jobs.push(Arc::new(job));
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;
    use super::*;

    fn jobs(text: &str) -> Result<Vec<Arc<Schedule>>, String> {
        from_text(text)
            .map_err(|why| format!("{why:#}"))
            .and_then(|config| config.schedules().map_err(|wrong| wrong.to_string()))
    }

    const GOOD: &str = "[[cron]]\nname = 'a'\nschedule = '0 3 * * *'\nqueue = 'w'\n";

    #[test]
    fn tables_are_read() {
        let more = "zone = 'Europe/Berlin'\nbody_base64 = 'aGk='\nattributes = ['k=v=w']\npriority = 7\n\
                    delay = '5s'\nttr = '1m'\nttl = '1h'\nmissed = 'once'\n";
        let read = jobs(&format!("{GOOD}{more}")).expect("read");
        let job = &read[0];
        assert_eq!(job.zone(), "Europe/Berlin");
        assert_eq!(job.missed, Missed::Once);
        assert_eq!(job.policy, "0 3 * * * Europe/Berlin");
        let put = &job.put;
        assert_eq!(put.body, Body::new(b"hi"));
        assert_eq!((put.priority, put.ttr_ms), (Some(7), Some(60_000)));
        assert_eq!(
            (put.due, put.expires),
            (When::In(5000), Expiry::In(3_600_000))
        );
        let attrs = &put.more.as_ref().expect("attributes").attrs;
        assert_eq!(attrs[..], [(b"k"[..].into(), b"v=w"[..].into())]);
        let plain = &jobs(GOOD).expect("read")[0];
        assert_eq!((plain.zone(), plain.missed), ("UTC", Missed::Skip));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let large = "x".repeat(65_537);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("large");
        std::fs::write(&file, &large).expect("written");
        let file = file.display();
        for (text, said) in [
            (GOOD.replace("'a'", "''"), "needs a name"),
            (format!("{GOOD}{GOOD}"), "two of this name"),
            (GOOD.replace("0 3", "0 33"), "schedule \"0 33"),
            (GOOD.replace("3 * * *", "3 30 2 *"), "never comes"),
            (GOOD.replace("'w'", "''"), "queue takes"),
            (
                format!("{GOOD}zone = 'Mars/Base'"),
                "\"Europe/Berlin\"; not \"Mars/Base\"",
            ),
            (format!("{GOOD}missed = 'never'"), "missed takes"),
            (format!("{GOOD}overlap = 'never'"), "overlap takes"),
            (format!("{GOOD}delay = 'x'"), "delay "),
            (format!("{GOOD}priority = 4294967296"), "priority takes"),
            (format!("{GOOD}attributes = ['x']"), "NAME=VALUE"),
            (format!("{GOOD}body = 'x'\nbody_file = 'y'"), "one of body"),
            (format!("{GOOD}body_file = '/nowhere/x'"), "cannot read"),
            (
                format!("{GOOD}body_file = '{}'", folder.path().display()),
                "it is no regular file",
            ),
            (format!("{GOOD}body_file = '/dev/zero'"), "no regular file"),
            (
                format!("{GOOD}body_file = '{file}'"),
                "has more than 65536 bytes",
            ),
            (format!("{GOOD}body_base64 = '?'"), "body_base64"),
            (format!("{GOOD}body = '{large}'"), "65537 bytes"),
            (
                format!("[defaults]\nmessage_bytes_max = 2\n{GOOD}body = 'xyz'"),
                "message_bytes_max of the queue w is 2",
            ),
            (format!("crons_max = 0\n{GOOD}"), "crons_max = 0"),
            (format!("{GOOD}colour = 'red'"), "unknown key \"colour\""),
        ] {
            let why = jobs(&text).expect_err(&text);
            assert!(why.contains(said), "{said}: {why}");
        }
    }
}
