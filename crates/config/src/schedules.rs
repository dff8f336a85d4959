//! `[[cron]]` and `[[schedule]]`: messages that are put by the clock.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::str::FromStr as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono_tz::Tz;
use quintet_client::{FOLDER, ScheduleSpec};
use quintet_policy::{Cron, Missed, Overlap, Schedule, Timing};
use quintet_types::{Attr, Body, Expiry, Ms, Name, Put, PutMore, When};
use quintet_wire::STREAM_OVER;

use super::Config;
use super::schema::{Spec, keys, table};
use super::units::parse_duration_ms;
use super::wrong::Wrong;

/// Bytes of a name at most: it is a label of metrics and a part of addresses.
const NAME_MAX: usize = 255;

/// The rows of a table, made by this macro: its own, then those of both kinds of tables.
macro_rules! rows {
    ($make:ident! { $($head:tt)* } $($own:tt)*) => {
        $make! {
            $($head)*
            "name" Text(name)
                "Unique name.";
            $($own)*
            "zone" Text(zone)
                "IANA time zone, such as \"Europe/Berlin\"; empty: UTC.";
            "queue" Text(queue)
                "Queue the message is put into.";
            "body" Text(body)
                "Body of the message; default: empty.";
            "body_file" Text(body_file)
                "Or a file with the body, which is read at the start and by a reload.";
            "body_base64" Text(body_base64)
                "Or the body in base64.";
            "attributes" Texts(attributes)
                "Attributes of the message, such as [\"team=ops\"].";
            "priority" Given(priority)
                "Priority of the message; default: the queue's default_priority.";
            "delay" Text(delay)
                "Delay of the message, such as \"5m\".";
            "ttr" Text(ttr)
                "Time to run of the message's leases.";
            "ttl" Text(ttl)
                "Time to live of the message; default: the queue's.";
            "missed" Text(missed)
                "Handling of missed runs: \"skip\" (default), \"once\" (one put for all of them) \
                 or \"all\" (a put for each).";
            "overlap" Text(overlap)
                "Handling of runs while the message of an earlier one is not done: \"allow\" \
                 (default), \"skip\", or \"replace\" (the new message replaces a waiting one).";
        }
    };
}

pub(crate) const CRON: &[Spec<CronTable>] = rows! {
    keys! {}
    "schedule" Text(schedule)
        "When: minute, hour, day, month and weekday, as crontab(5) has them.";
};

// `[[schedule]]`: one of cron, every and at. A `[[cron]]` has some of the fields.
rows! {
    table! {
        /// One `[[cron]]` or `[[schedule]]` table, as the file says it.
        #[derive(Clone, Default)]
        pub struct CronTable, SCHEDULE;
    }
    "cron" Text(schedule)
        "When: minute, hour, day, month and weekday, as crontab(5) has them.";
    "every" Text(every)
        "Or an interval, such as \"5m\": due at its multiples since 1970.";
    "phase" Text(phase)
        "So much after them; less than the interval.";
    "at" Texts(at)
        "Or moments, such as [\"2030-01-01T09:00:00+01:00\"].";
    "start" Text(start)
        "First moment that may be due.";
    "end" Text(end)
        "Last moment that may be due.";
    "count" Given(count)
        "Runs after which it ends.";
}

fn time(key: &str, text: &str) -> Result<Option<u64>, Wrong> {
    match text {
        "" => Ok(None),
        text => parse_duration_ms(text)
            .map(Some)
            .map_err(|why| Wrong::of_key(key, format!("{key} {why}"))),
    }
}

/// The one of these with this word; without a word the usual one.
fn chosen<T: Copy + Default>(
    key: &str,
    text: &str,
    all: [T; 3],
    word: fn(T) -> &'static str,
) -> Result<T, Wrong> {
    let found = all.into_iter().find(|one| word(*one) == text);
    let usual = text.is_empty().then(T::default);
    found.or(usual).ok_or_else(|| {
        let [first, second, last] = all.map(word);
        let why = format!("takes \"{first}\", \"{second}\" or \"{last}\"");
        Wrong::of_text(key, text, &why)
    })
}

/// A moment as RFC 3339 has it, in ms since 1970.
fn moment(key: &str, text: &str) -> Result<u64, Wrong> {
    let why = "takes a moment with its offset, such as \"2030-01-01T09:00:00Z\"";
    quintet_client::words::moment(text).ok_or_else(|| Wrong::of_text(key, text, why))
}

impl CronTable {
    /// The times of the schedule, and their text. `key`: the one of the cron expression.
    fn times(&self, key: &str) -> Result<(Timing, String), Wrong> {
        let texts = [&self.every, &self.phase, &self.start, &self.end];
        let plain = texts.iter().all(|text| text.is_empty());
        // Of a [[schedule]] without times the error names all three kinds of them.
        let none = key == "cron" && self.schedule.is_empty();
        if plain && self.at.is_empty() && self.count.is_none() && !none {
            let wrong = |why: &str| Wrong::of_text(key, &self.schedule, why);
            let cron = Cron::parse(&self.schedule).map_err(|why| wrong(&why.to_string()))?;
            if cron.after_in(Ms(0), &Tz::UTC) == Ms::NEVER {
                return Err(wrong(&format!("\"{}\" never comes", self.schedule)));
            }
            let zone = match self.zone.as_str() {
                "" => Tz::UTC,
                zone => Tz::from_str(zone).map_err(|_| {
                    Wrong::of_text("zone", zone, "takes a name such as \"Europe/Berlin\"")
                })?,
            };
            let policy = format!("{} {}", self.schedule, zone.name());
            return Ok((Timing::cron(cron, zone), policy));
        }
        let supplied = |text: &String| (!text.is_empty()).then(|| text.clone());
        let moments = self.at.iter().map(|text| moment("at", text));
        let moments: Vec<u64> = moments.collect::<Result<_, _>>()?;
        let bound = |key: &str, text: &String| match text.is_empty() {
            true => Ok(None),
            false => moment(key, text).map(Some),
        };
        let zone = supplied(&self.zone);
        let spec = ScheduleSpec {
            cron: supplied(&self.schedule),
            zone: zone.or_else(|| supplied(&self.schedule).map(|_| Tz::UTC.name().to_owned())),
            every_ms: time("every", &self.every)?,
            phase_ms: time("phase", &self.phase)?,
            at_ms: (!moments.is_empty()).then_some(moments),
            start_ms: bound("start", &self.start)?,
            end_ms: bound("end", &self.end)?,
            count: self.count,
            queue: self.queue.clone(),
            ..ScheduleSpec::default()
        };
        let schedule = spec.schedule(&self.name).map_err(|bad| {
            let key = bad.field.trim_end_matches("_ms");
            // The options of the command line are not named in a file.
            let why = bad.why.replace(" (--every)", "").replace(" (--at)", "");
            Wrong::of_key(key, format!("{key}: {}", why.replace("_ms", "")))
        })?;
        Ok((schedule.timing, schedule.policy))
    }

    fn job(&self, cron_key: &str) -> Result<Schedule, Wrong> {
        if self.name.len() > NAME_MAX || self.name.chars().any(char::is_control) {
            let why = format!("takes text of {NAME_MAX} bytes at most, without control characters");
            return Err(Wrong::of_text("name", &self.name, &why));
        }
        let missed = chosen("missed", &self.missed, Missed::ALL, Missed::word)?;
        let overlap = chosen("overlap", &self.overlap, Overlap::ALL, Overlap::word)?;
        let (timing, policy) = self.times(cron_key)?;
        let schedule = Schedule {
            name: self.name.clone(),
            policy,
            timing,
            missed,
            overlap,
            put: self.put()?,
        };
        Ok(schedule.guarded())
    }

    fn put(&self) -> Result<Put, Wrong> {
        let queue = Name::from(self.queue.as_str());
        if !queue.is_possible() {
            let why = "takes the name of a queue";
            return Err(Wrong::of_text("queue", &self.queue, why));
        }
        let body = self.body()?;
        if body.len() as u64 > STREAM_OVER {
            let why = format!(
                "the body has {} bytes; {STREAM_OVER} is the most",
                body.len()
            );
            return Err(Wrong::of_key("body", why));
        }
        let priority = self.priority.map(u32::try_from).transpose();
        let more = PutMore {
            attrs: self.attrs()?,
            ..PutMore::default()
        };
        Ok(Put {
            priority: priority.map_err(|_| {
                let supplied = self.priority.unwrap_or_default();
                let why = format!("priority takes a whole number, 0 to 4294967295; not {supplied}");
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
        let stated = [&self.body, &self.body_file, &self.body_base64];
        if stated.iter().filter(|stated| !stated.is_empty()).count() > 1 {
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
                let why = format!("takes base64: {why}");
                Wrong::of_text("body_base64", &self.body_base64, &why)
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
        return Err(format!("cannot read {path}: it is not a regular file"));
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
    /// The `[[cron]]` and `[[schedule]]` tables. Reads the files of bodies.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn schedules(&self) -> Result<Vec<Arc<Schedule>>, Wrong> {
        let count = (self.crons.len() + self.schedules.len()) as u64;
        if count > self.crons_max {
            return Err(format!(
                "crons_max = {}: there are {count} [[cron]] and [[schedule]] tables",
                self.crons_max
            )
            .into());
        }
        let settings = self.engine_settings();
        let mut names = HashSet::new();
        let mut jobs = Vec::new();
        let crons = self.crons.iter().enumerate();
        let crons = crons.map(|(row, table)| ("cron", "schedule", row, table));
        let schedules = self.schedules.iter().enumerate();
        let schedules = schedules.map(|(row, table)| ("schedule", "cron", row, table));
        for (kind, cron_key, row, table) in crons.chain(schedules) {
            let wrong = |why: String| Wrong::from(why).of_row(row).of_table(kind);
            if table.name.is_empty() {
                return Err(wrong(format!("a [[{kind}]] needs a name")));
            }
            let place = format!("[[{kind}]] {}", table.name);
            if !names.insert(&table.name) {
                return Err(wrong(format!("{place}: there are two of this name")));
            }
            let job = table.job(cron_key);
            let job = job.map_err(|wrong| wrong.within(&place).of_row(row).of_table(kind))?;
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

    const SCHEDULE: &str = "[[schedule]]\nname = 'b'\nqueue = 'w'\n";

    #[test]
    fn tables_of_schedules_have_intervals_and_moments() {
        let of = |more: &str| jobs(&format!("{SCHEDULE}{more}")).expect("read").remove(0);
        let next = |more: &str, after: u64| of(more).timing.next(Ms(after));
        assert_eq!(next("every = '5m'\nphase = '10s'\n", 10_000), Ms(310_000));
        let at = "at = ['1970-01-01T01:00:07+01:00', '1970-01-01T00:00:03Z']\n";
        assert_eq!((next(at, 0), next(at, 3000)), (Ms(3000), Ms(7000)));
        assert_eq!(next(at, 7000), Ms::NEVER);
        let bounds = "every = '1s'\nstart = '1970-01-01T00:01:00Z'\nend = '1970-01-01T00:02:00Z'\n";
        assert_eq!(
            (next(bounds, 0), next(bounds, 120_000)),
            (Ms(60_000), Ms::NEVER)
        );
        // As the table of the other name, so that its marks stay.
        let cron = of("cron = '0 3 * * *'\n");
        let other = &jobs(GOOD).expect("read")[0];
        assert_eq!(cron.policy, other.policy);
        assert_eq!(of("cron = '0 3 * * *'\ncount = 2\n").timing.count, Some(2));
        assert_eq!(
            jobs(&format!("{GOOD}{SCHEDULE}every = '1h'"))
                .expect("read")
                .len(),
            2
        );
    }

    #[test]
    fn a_schedule_that_makes_no_sense_is_named() {
        for (more, stated) in [
            (
                "",
                "in [[schedule]] b: cron: give one of cron, every and at",
            ),
            (
                "every = '5m'\ncron = '0 3 * * *'",
                "cron: give one of cron, every and at",
            ),
            ("every = '5x'", "every \"5x\" is not a duration"),
            ("every = '1ms'", "every: takes 1s to 3660d"),
            ("every = '5m'\nphase = '5m'", "phase: takes less than every"),
            ("at = ['tomorrow']", "at takes a moment"),
            ("every = '5m'\nend = '2030-01-01'", "end takes a moment"),
            ("every = '5m'\ncount = 0", "count: takes a number from 1 on"),
            ("cron = '0 3 30 2 *'\ncount = 1", "cron: never comes"),
            (
                "at = ['2030-01-01T00:00:00Z']\nstart = '2031-01-01T00:00:00Z'",
                "at: never comes",
            ),
            (
                "every = '1h'\nstart = '2031-01-01T00:10:00Z'\nend = '2031-01-01T00:20:00Z'",
                "every: never comes",
            ),
            ("schedule = '0 3 * * *'", "unknown key \"schedule\""),
        ] {
            let why = jobs(&format!("{SCHEDULE}{more}")).expect_err(more);
            assert!(why.contains(stated), "{stated}: {why}");
        }
        let twice = jobs(&format!(
            "{GOOD}{}every = '5m'",
            SCHEDULE.replace("'b'", "'a'")
        ));
        assert!(twice.expect_err("two").contains("two of this name"));
    }

    #[test]
    fn a_contradiction_is_named() {
        let large = "x".repeat(65_537);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("large");
        std::fs::write(&file, &large).expect("written");
        let file = file.display();
        for (text, stated) in [
            (GOOD.replace("'a'", "''"), "needs a name"),
            (format!("{GOOD}{GOOD}"), "two of this name"),
            (GOOD.replace("0 3", "0 33"), "schedule \"0 33"),
            (
                GOOD.replace("0 3 * * *", "0 3"),
                "in [[cron]] a: schedule takes five fields (minute hour day month weekday), or \
                 @hourly, @daily, @weekly, @monthly or @yearly; \"0 3\" has 2",
            ),
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
                "it is not a regular file",
            ),
            (
                format!("{GOOD}body_file = '/dev/zero'"),
                "it is not a regular file",
            ),
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
            assert!(why.contains(stated), "{stated}: {why}");
        }
    }
}
