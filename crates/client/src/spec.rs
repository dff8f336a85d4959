//! The definition of a schedule, as clients say it and the log keeps it.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono_tz::Tz;
use quintet_policy::{
    Cron, EVERY_MS_MAX, EVERY_MS_MIN, MOMENT_MAX, MOMENTS_MAX, Missed, Overlap, Recurrence,
    Schedule, Timing,
};
use quintet_types::{Body, Dedupe, Expiry, Ms, Name, OnRepeat, Put, PutMore, Scope, When, fnv};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FOLDER;
use super::words::{TIMES, in_units};

/// Bytes of a name at most: it is a part of addresses.
pub const SCHEDULE_NAME_MAX: usize = 255;
/// Bytes of a cron expression, and of a zone, at most: each record of a run has them.
const CRON_MAX: usize = 256;
const ZONE_MAX: usize = 64;
/// Bytes of a body at most.
const BODY_MAX: usize = 64 << 10;
/// Bytes of a body with headers and keys at most: definitions are read many at once.
const MESSAGE_MAX: u64 = 96 << 10;

/// A schedule: one of `cron`, `every_ms` and `at_ms`, and the message that it puts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Minute, hour, day, month and weekday, as crontab(5) has them, or a word such as `@daily`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// By whose clocks `cron` is, such as `Europe/Berlin` (IANA); left out: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// An interval, 1000 to ten years: due times are its multiples since 1970, plus `phase_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// Less than `every_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_ms: Option<u64>,
    /// 1 to 1000 moments, each once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<Vec<u64>>,
    /// Not due before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// Not due after this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<u64>,
    /// Ends after so many runs, from 1 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Handling of runs that were missed; left out: `skip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<SpecMissed>,
    /// Handling of due times while the message of an earlier run is not done; left out: `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<SpecOverlap>,
    /// Queue that the message is put into.
    pub queue: String,
    /// The body as text. This or `body_base64`; neither: an empty body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Grouping key of the message, 65535 bytes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Attributes: names and values.
    #[serde(
        default,
        deserialize_with = "crate::unique",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub headers: BTreeMap<String, String>,
    /// 0 is the most urgent; left out: the queue's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Not taken before so many ms after the put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The message expires so many ms after the put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Time to run of its leases, ms; 0: no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttr_ms: Option<u64>,
    /// Deduplication of its puts; not together with an `overlap` other than `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<SpecUnique>,
}

/// Declares words of requests, and which of the engine's they are.
#[macro_export]
macro_rules! choices {
    ($($(#[$doc:meta])* $vis:vis enum $word:ident of $of:ty {
        $($(#[$one_doc:meta])* $one:ident = $as:ident,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(::serde::Serialize, ::serde::Deserialize, ::utoipa::ToSchema)]
        #[serde(rename_all = "lowercase")]
        $vis enum $word { $($(#[$one_doc])* $one,)* }

        impl From<$word> for $of {
            fn from(word: $word) -> Self {
                match word { $($word::$one => Self::$as,)* }
            }
        }
    )*};
}

choices! {
    /// Handling of runs that were missed.
    pub enum SpecMissed of Missed {
        /// Nothing is put for them.
        Skip = Skip,
        /// One message for all of them.
        Once = Once,
        /// A message for each, 1000 in a row at most.
        All = All,
    }

    /// Handling of due times while the message of an earlier run is not done.
    pub enum SpecOverlap of Overlap {
        /// The message is put all the same.
        Allow = Allow,
        /// It is not put.
        Skip = Skip,
        /// It takes the earlier one's place if that waits, and is not put while a consumer holds
        /// it.
        Replace = Replace,
    }

    /// Event that ends the memory of a put.
    pub enum SpecUntil of Scope {
        /// The end of `window_ms` only.
        Time = Window,
        /// Its message is taken; given back, it counts again.
        Waiting = Waiting,
        /// Its message is taken for the first time.
        Started = Started,
        /// Its message is gone, archived or buried.
        Done = Done,
    }

    /// Effect of a run whose deduplication id is remembered.
    pub enum SpecRepeat of OnRepeat {
        /// It is not put.
        Refuse = Refuse,
        /// Nothing is stored, and the first counts as its message.
        First = First,
        /// It takes the place of the first if that waits, and is not put else.
        Replace = Replace,
    }
}

/// Deduplication of the puts of a schedule, as `dedupe` of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecUnique {
    /// Compared within the queue.
    pub id: String,
    /// For how long the first put is remembered at most, ms; left out: as the queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// Event that also ends that; left out: as the queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<SpecUntil>,
    /// Handling of a repeat; left out: as the queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_repeat: Option<SpecRepeat>,
}

/// A field of a definition that is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSpec {
    pub field: &'static str,
    pub why: String,
}

fn bad<T>(field: &'static str, why: impl Into<String>) -> Result<T, BadSpec> {
    let why = why.into();
    Err(BadSpec { field, why })
}

impl ScheduleSpec {
    /// The schedule that it defines.
    ///
    /// # Errors
    /// The first field that is wrong. That it is due at some time is not checked here.
    pub fn schedule(&self, name: &str) -> Result<Schedule, BadSpec> {
        if name.is_empty() || name.len() > SCHEDULE_NAME_MAX || name.chars().any(char::is_control) {
            let why =
                format!("a name has 1 to {SCHEDULE_NAME_MAX} bytes, without control characters");
            return bad("name", why);
        }
        let missed: Missed = self.missed.map(Into::into).unwrap_or_default();
        let overlap: Overlap = self.overlap.map(Into::into).unwrap_or_default();
        if self.unique.is_some() && overlap != Overlap::Allow {
            let why = "both tell repeats: give unique, or an overlap other than \"allow\"";
            return bad("unique", why);
        }
        let schedule = Schedule {
            name: name.to_owned(),
            timing: self.timing()?,
            policy: self.policy(),
            missed,
            overlap,
            put: self.put()?,
        };
        Ok(schedule.guarded())
    }

    /// The times in words: `30 2 * * 1-5`, `every 5m`.
    pub fn words(&self) -> String {
        match (&self.cron, self.every_ms, &self.at_ms) {
            (Some(cron), ..) => cron.clone(),
            (_, Some(every), _) => match self.phase_ms {
                None | Some(0) => format!("every {}", interval(every)),
                Some(phase) => format!("every {}, {} later", interval(every), interval(phase)),
            },
            (.., Some(at)) if at.len() == 1 => "once".to_owned(),
            (.., at) => format!("at {} moments", at.as_ref().map_or(0, Vec::len)),
        }
    }

    /// The text of all that decides when it is due.
    fn policy(&self) -> String {
        let at = self.at_ms.iter().flatten();
        let at: Vec<String> = at.map(u64::to_string).collect();
        let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        format!(
            "{} {} every={} phase={} at={:x} start={} end={} count={}",
            self.cron.as_deref().unwrap_or_default(),
            self.zone.as_deref().unwrap_or_default(),
            number(self.every_ms),
            number(self.phase_ms),
            // A list may be long, and each record of a run has this text.
            fnv(at.join(",").as_bytes()),
            number(self.start_ms),
            number(self.end_ms),
            number(self.count),
        )
    }

    fn timing(&self) -> Result<Timing, BadSpec> {
        let supplied = [
            self.cron.is_some(),
            self.every_ms.is_some(),
            self.at_ms.is_some(),
        ];
        if supplied.iter().filter(|supplied| **supplied).count() != 1 {
            return bad(
                "cron",
                "give one of cron, every_ms (--every) and at_ms (--at)",
            );
        }
        if self.zone.is_some() && self.cron.is_none() {
            return bad("zone", "a zone belongs to cron");
        }
        if self.phase_ms.is_some() && self.every_ms.is_none() {
            return bad("phase_ms", "a phase belongs to every_ms");
        }
        let (start, end) = (self.start_ms.unwrap_or(0), self.end_ms);
        if end.is_some_and(|end| end < start) {
            return bad("end_ms", "the end is before the start");
        }
        for (field, at) in [("start_ms", self.start_ms), ("end_ms", end)] {
            if at.is_some_and(|at| at > MOMENT_MAX) {
                return bad(field, format!("takes at most {MOMENT_MAX}, ms since 1970"));
            }
        }
        if self.count == Some(0) {
            return bad("count", "takes a number from 1 on");
        }
        let timing = Timing {
            recurrence: self.recurrence()?,
            start: Ms(start),
            end: end.map_or(Ms::NEVER, Ms),
            count: self.count,
        };
        if timing.next(Ms(0)) == Ms::NEVER {
            let field = match timing.recurrence {
                Recurrence::Cron(..) => "cron",
                Recurrence::Every { .. } => "every_ms",
                Recurrence::At(_) => "at_ms",
            };
            return bad(field, "never comes between start and end");
        }
        Ok(timing)
    }

    fn recurrence(&self) -> Result<Recurrence, BadSpec> {
        if let Some(cron) = &self.cron {
            if cron.len() > CRON_MAX {
                return bad("cron", format!("takes {CRON_MAX} bytes at most"));
            }
            if self.zone.as_ref().is_some_and(|zone| zone.len() > ZONE_MAX) {
                return bad("zone", format!("takes {ZONE_MAX} bytes at most"));
            }
            let cron = match Cron::parse(cron) {
                Ok(cron) => cron,
                Err(why) => return bad("cron", why),
            };
            let zone = match self.zone.as_deref() {
                None | Some("") => Tz::UTC,
                Some(zone) => match Tz::from_str(zone) {
                    Ok(zone) => zone,
                    Err(_) => {
                        let zone = zone.escape_debug();
                        let why =
                            format!("{zone} is not a time zone; name one such as Europe/Berlin");
                        return bad("zone", why);
                    }
                },
            };
            return Ok(Recurrence::Cron(cron, zone));
        }
        if let Some(ms) = self.every_ms {
            let phase_ms = self.phase_ms.unwrap_or(0);
            if !(EVERY_MS_MIN..=EVERY_MS_MAX).contains(&ms) {
                let [least, most, supplied] = [EVERY_MS_MIN, EVERY_MS_MAX, ms].map(interval);
                let why = format!(
                    "takes {least} to {most} ({EVERY_MS_MIN} to {EVERY_MS_MAX} ms); not {supplied}"
                );
                return bad("every_ms", why);
            }
            if phase_ms >= ms {
                return bad("phase_ms", "takes less than every_ms");
            }
            return Ok(Recurrence::Every { ms, phase_ms });
        }
        let mut moments: Vec<Ms> = self.at_ms.iter().flatten().copied().map(Ms).collect();
        if moments.is_empty() || moments.len() > MOMENTS_MAX {
            return bad("at_ms", format!("takes 1 to {MOMENTS_MAX} moments"));
        }
        if moments.iter().any(|at| at.0 > MOMENT_MAX) {
            return bad(
                "at_ms",
                format!("takes at most {MOMENT_MAX}, ms since 1970"),
            );
        }
        moments.sort_unstable();
        moments.dedup();
        Ok(Recurrence::At(moments.into()))
    }

    fn put(&self) -> Result<Put, BadSpec> {
        let queue = Name::of_shown(&self.queue);
        if !queue.is_possible() {
            return bad("queue", "takes the name of a queue, 1 to 65535 bytes");
        }
        let body = match (&self.body, &self.body_base64) {
            (Some(_), Some(_)) => return bad("body_base64", "goes without body: give one of both"),
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(text)) => match BASE64_STANDARD.decode(text) {
                Ok(body) => body,
                Err(_) => return bad("body_base64", "this is not base64"),
            },
            (None, None) => Vec::new(),
        };
        if body.len() > BODY_MAX {
            return bad("body", format!("takes {BODY_MAX} bytes at most"));
        }
        if self.headers.contains_key(FOLDER) {
            return bad("headers", format!("{FOLDER} is the server's own"));
        }
        let attrs = self.headers.iter();
        let more = PutMore {
            key: self.key.as_ref().map(|key| key.as_bytes().into()),
            attrs: attrs
                .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()))
                .collect(),
            dedupe: self.unique.as_ref().map(SpecUnique::dedupe),
            ..PutMore::default()
        };
        if more.has_long_key() {
            return bad("key", "takes 65535 bytes at most, as the id of unique does");
        }
        let put = Put {
            priority: self.priority,
            due: self.delay_ms.map_or(When::Default, When::In),
            expires: self.ttl_ms.map_or(Expiry::Default, Expiry::In),
            ttr_ms: self.ttr_ms,
            more: (more != PutMore::default()).then(|| Box::new(more)),
            ..Put::new(queue, Body::new(&body))
        };
        match put.size() <= MESSAGE_MAX {
            true => Ok(put),
            false => bad(
                "headers",
                format!("body, headers and key have {MESSAGE_MAX} bytes at most"),
            ),
        }
    }
}

impl SpecUnique {
    fn dedupe(&self) -> Dedupe {
        Dedupe {
            id: self.id.as_bytes().into(),
            window_ms: self.window_ms,
            scope: self.until.map(Into::into),
            on_repeat: self.on_repeat.map(Into::into),
        }
    }
}

/// An interval in its largest whole unit: `5m`, `90s`, `1500ms`.
fn interval(ms: u64) -> String {
    in_units(ms, &TIMES).unwrap_or_else(|| format!("{ms}ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Result<ScheduleSpec, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_contradiction_is_named() {
        for (fields, field) in [
            ("", "cron"),
            (r#""cron": "0 3 * * *", "every_ms": 1000,"#, "cron"),
            (r#""cron": "0 33 * * *","#, "cron"),
            (r#""cron": "0 3 * * *", "zone": "Mars/Base","#, "zone"),
            (r#""every_ms": 1000, "zone": "UTC","#, "zone"),
            (r#""every_ms": 999,"#, "every_ms"),
            (r#""every_ms": 1000, "phase_ms": 1000,"#, "phase_ms"),
            (r#""cron": "0 3 * * *", "phase_ms": 1,"#, "phase_ms"),
            (r#""at_ms": [],"#, "at_ms"),
            (r#""every_ms": 1000, "start_ms": 2, "end_ms": 1,"#, "end_ms"),
            (r#""every_ms": 1000, "count": 0,"#, "count"),
            (
                r#""every_ms": 1000, "body": "a", "body_base64": "","#,
                "body_base64",
            ),
            (r#""every_ms": 1000, "body_base64": "?","#, "body_base64"),
            (r#""every_ms": 1000, "headers": {"dir": "/"},"#, "headers"),
            (
                r#""every_ms": 1000, "start_ms": 8210266876790000,"#,
                "start_ms",
            ),
            (r#""every_ms": 1000, "end_ms": 253402300800000,"#, "end_ms"),
            (r#""at_ms": [5, 253402300800000],"#, "at_ms"),
            (
                r#""cron": "* * * * *", "zone": "Mars/BaseOfSixtyFiveLettersBaseOfSixtyFiveLettersBaseOfSixtyFiveLe","#,
                "zone",
            ),
            (
                r#""every_ms": 1000, "overlap": "skip", "unique": {"id": "a"},"#,
                "unique",
            ),
        ] {
            let read = spec(&format!(r#"{{{fields} "queue": "w"}}"#)).expect(fields);
            let bad = read.schedule("a").expect_err(fields);
            assert_eq!(bad.field, field, "{fields}: {}", bad.why);
        }
        let good = spec(r#"{"every_ms": 1000, "queue": "w"}"#).expect("JSON");
        for name in ["", "a\nb", &"a".repeat(256)] {
            let name = name.replace("\\n", "\n");
            assert_eq!(good.schedule(&name).expect_err("a name").field, "name");
        }
        assert!(spec(r#"{"every_ms": 1000, "queue": "w", "colour": 1}"#).is_err());
        let mut large = good.clone();
        large.headers.insert("h".to_owned(), "x".repeat(96 << 10));
        assert_eq!(large.schedule("a").expect_err("large").field, "headers");
        let blank = format!("0{} * * * *", " ".repeat(300));
        let long = spec(&format!(r#"{{"cron": "{blank}", "queue": "w"}}"#)).expect("JSON");
        assert_eq!(long.schedule("a").expect_err("long").field, "cron");
        let nowhere = spec(r#"{"every_ms": 1000, "queue": ""}"#).expect("JSON");
        assert_eq!(nowhere.schedule("a").expect_err("no queue").field, "queue");
    }

    #[test]
    fn a_definition_is_read_again_as_it_was_written() {
        let text = r#"{"cron":"0 3 * * *","zone":"Europe/Berlin","start_ms":5,"count":2,"missed":"all","overlap":"replace","queue":"w","body":"x","key":"k","headers":{"team":"ops"},"priority":7,"delay_ms":1,"ttl_ms":2,"ttr_ms":3}"#;
        let read = spec(text).expect("JSON");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
        let schedule = read.schedule("a").expect("a schedule");
        assert_eq!(schedule.zone(), "Europe/Berlin");
        assert_eq!(schedule.timing.count, Some(2));
        let more = schedule.put.more.expect("more");
        assert_eq!(more.attrs[..], [(b"team"[..].into(), b"ops"[..].into())]);
        assert!(more.dedupe.is_some(), "runs do not overlap");
        assert_eq!(schedule.put.priority, Some(7));
    }

    #[test]
    fn times_have_words_that_differ_between_schedules() {
        let every = |every_ms, phase_ms| ScheduleSpec {
            every_ms: Some(every_ms),
            phase_ms,
            ..ScheduleSpec::default()
        };
        assert_eq!(every(300_000, None).words(), "every 5m");
        assert_eq!(every(90_000, Some(1500)).words(), "every 90s, 1500ms later");
        assert_ne!(every(5000, None).policy(), every(5000, Some(1)).policy());
        let at = |at_ms: &[u64]| ScheduleSpec {
            at_ms: Some(at_ms.to_vec()),
            ..ScheduleSpec::default()
        };
        assert_eq!(
            (at(&[5]).words(), at(&[5, 6]).words()),
            ("once".into(), "at 2 moments".into())
        );
        assert_ne!(at(&[5]).policy(), at(&[6]).policy());
    }
}
