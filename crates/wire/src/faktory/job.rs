//! A job: read from what a producer sends, written as it is stored and as a
//! worker is shown it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quintet_types::{MessageId, Ms};

use super::json::{self, Kind, Value};
use super::moment;

pub(super) const DEFAULT_QUEUE: &str = "default";
/// Tries after the first, if a job does not say.
pub(super) const RETRY: i64 = 25;
/// Shortest and longest job id, bytes.
const JID: std::ops::RangeInclusive<usize> = 8..=255;
/// Longest name of a queue, bytes.
const NAME_MAX: usize = 255;
/// Shortest and longest reservation, seconds.
const RESERVE_S: (i64, i64) = (60, 86_400);

/// A job that may be stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Job {
    pub(super) jid: String,
    pub(super) queue: String,
    pub(super) jobtype: String,
    /// JSON of an array.
    pub(super) args: String,
    /// As the producer wrote it.
    pub(super) created_at: Option<String>,
    pub(super) retry: Option<i64>,
    /// As the producer wrote it, seconds.
    pub(super) reserve_for: Option<i64>,
    /// As the producer wrote it, and when that is.
    pub(super) at: Option<(String, Ms)>,
    pub(super) backtrace: Option<i64>,
    /// `priority`, which is no member of what workers are shown.
    pub(super) priority: Option<i64>,
    /// JSON of an object.
    pub(super) custom: Option<String>,
    /// JSON of an object.
    pub(super) failure: Option<String>,
    /// `retry_count` of that.
    pub(super) failed: Option<i64>,
}

/// Why a job is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is no JSON, or a member has a wrong type: nothing of a list is stored.
    Json(String),
    /// With the job's id, as far as it has one.
    Job(String, String),
}

impl Refused {
    /// The text behind `-ERR `.
    pub(super) fn text(&self) -> String {
        match self {
            Refused::Json(why) => format!("invalid JSON: {why}"),
            Refused::Job(_, why) => why.clone(),
        }
    }
}

impl Job {
    /// Reads a job and looks at its members in the order of the original. The callback of a batch
    /// need not have a `jid`: it gets one when it is fetched, as what was put elsewhere is.
    pub(super) fn read(value: Value<'_>, needs_jid: bool) -> Result<Self, Refused> {
        let mut job = Self::typed(value).map_err(Refused::Json)?;
        let has_none = job.jid.is_empty() && !needs_jid;
        let why = match JID.contains(&job.jid.len()) || has_none {
            true => job.fault(),
            false => Some("jobs must have a reasonable jid parameter".to_owned()),
        };
        match why {
            Some(why) => Err(Refused::Job(job.jid, why)),
            None => Ok(job),
        }
    }

    /// The members by their types; `null` is a job with none. A member that is `null` is as if it
    /// were absent.
    fn typed(value: Value<'_>) -> Result<Self, String> {
        let mut job = Self {
            queue: DEFAULT_QUEUE.to_owned(),
            ..Self::default()
        };
        match value.kind {
            Kind::Object | Kind::Null => {}
            Kind::Bool | Kind::Number | Kind::Text | Kind::Array => {
                return Err("a job is an object".to_owned());
            }
        }
        for (name, value) in value.members() {
            let given = Some(value).filter(|value| value.kind != Kind::Null);
            let text = || given.map(|value| string(&name, value)).transpose();
            let whole = || given.map(|value| number(&name, value)).transpose();
            let json = |kind| given.map(|value| compact(&name, value, kind)).transpose();
            match &*name {
                "jid" => job.jid = text()?.unwrap_or_default(),
                "queue" => {
                    let queue = text()?.filter(|queue| !queue.is_empty());
                    job.queue = queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
                }
                "jobtype" => job.jobtype = text()?.unwrap_or_default(),
                "args" => job.args = json(Kind::Array)?.unwrap_or_default(),
                "created_at" => job.created_at = text()?,
                "retry" => job.retry = whole()?,
                "reserve_for" => job.reserve_for = whole()?,
                "at" => job.at = text()?.map(|at| (at, Ms(0))),
                "backtrace" => job.backtrace = whole()?,
                // A member that the original does not know may be anything.
                "priority" if given.is_some() => job.priority = value.whole_number(),
                "custom" => job.custom = json(Kind::Object)?,
                "failure" => {
                    job.failure = json(Kind::Object)?;
                    let count = value.members().find(|(name, _)| name == "retry_count");
                    let count = count.map(|(name, count)| number(&name, count));
                    job.failed = count.transpose()?;
                }
                "enqueued_at" => drop(text()?),
                _ => {}
            }
        }
        Ok(job)
    }

    /// Why it cannot be stored, whatever its `jid`. A time to come is filled in.
    fn fault(&mut self) -> Option<String> {
        if self.jobtype.is_empty() {
            return Some("jobs must have a jobtype parameter".to_owned());
        }
        if self.args.is_empty() {
            return Some("jobs must have an args parameter".to_owned());
        }
        if self
            .reserve_for
            .is_some_and(|seconds| seconds > RESERVE_S.1)
        {
            return Some("jobs cannot be reserved for more than one day".to_owned());
        }
        match self.at.take() {
            Some((text, _)) if text.is_empty() => {}
            Some((text, _)) => match instant("at", &text) {
                Ok(time) => self.at = Some((text, time)),
                Err(why) => return Some(why),
            },
            None => {}
        }
        if !is_queue(self.queue.as_bytes()) {
            let mut shown = String::new();
            json::quote(&self.queue, &mut shown);
            return Some(format!(
                "cannot get {shown} queue: queue names must match \\A[a-zA-Z0-9._-]+\\z"
            ));
        }
        None
    }

    /// For how long a worker has it, ms; `None`: it does not say.
    pub(super) fn ttr_ms(&self) -> Option<u64> {
        let seconds = self.reserve_for.filter(|&seconds| seconds != 0)?;
        u64::try_from(seconds.max(RESERVE_S.0) * 1000).ok()
    }

    /// As it is stored: without `failure` and `enqueued_at`, which go behind
    /// `retry` when it is shown. `now` is when it was made, if it does not say.
    pub(super) fn body(&self, now: Ms) -> String {
        let mut out = String::with_capacity(self.args.len() + 200);
        write!(out, "{{\"retry\":{}", self.retry.unwrap_or(RETRY)).expect("strings take all");
        if let Some(custom) = &self.custom {
            member("custom", custom, &mut out);
        }
        if !self.jid.is_empty() {
            string_member("jid", &self.jid, &mut out);
        }
        string_member("queue", &self.queue, &mut out);
        string_member("jobtype", &self.jobtype, &mut out);
        match &self.created_at {
            Some(time) => string_member("created_at", time, &mut out),
            None => time_member("created_at", now, &mut out),
        }
        if let Some((at, _)) = &self.at {
            string_member("at", at, &mut out);
        }
        member("args", &self.args, &mut out);
        for (name, number) in [
            ("reserve_for", self.reserve_for),
            ("backtrace", self.backtrace),
        ] {
            if let Some(number) = number.filter(|&number| number != 0) {
                write!(out, ",\"{name}\":{number}").expect("strings take all");
            }
        }
        out.push('}');
        out
    }
}

/// Fields that a worker sees beside the stored job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// JSON of an object.
    pub(super) failure: Option<String>,
    pub(super) enqueued: Ms,
    /// The batch whose callback it is.
    pub(super) batch: Option<String>,
}

/// A stored job as workers are shown it.
pub(super) fn shown(body: &str, beside: &Beside) -> String {
    // Behind `retry`, which is a number and stands first.
    let at = body.find(',').unwrap_or(body.len());
    let mut out = String::with_capacity(body.len() + 100);
    out.push_str(&body[..at]);
    if let Some(failure) = &beside.failure {
        member("failure", failure, &mut out);
    }
    time_member("enqueued_at", beside.enqueued, &mut out);
    let rest = &body[at..];
    let Some(batch) = &beside.batch else {
        out.push_str(rest);
        return out;
    };
    out.push_str(",\"custom\":{\"_bid\":");
    json::quote(batch, &mut out);
    match rest.strip_prefix(",\"custom\":{") {
        Some(rest) => {
            if !rest.starts_with('}') {
                out.push(',');
            }
            out.push_str(rest);
        }
        None => {
            out.push('}');
            out.push_str(rest);
        }
    }
    out
}

/// True if a body begins as stored jobs do, so that something can be put in, and not as workers
/// are shown them.
pub(super) fn is_stored(body: &str) -> bool {
    let rest = body.strip_prefix("{\"retry\":").unwrap_or_default();
    let Some((number, more)) = rest.split_once(',') else {
        return false;
    };
    let is_shown = ["\"failure\":", "\"enqueued_at\":"].map(|member| more.starts_with(member));
    number.parse::<i64>().is_ok() && is_shown == [false; 2] && body.ends_with('}')
}

/// A message that was put elsewhere, as a job in the form it would be stored.
pub(super) fn foreign(
    (id, jid, queue, created): (MessageId, String, &str, Ms),
    body: Option<&[u8]>,
    len: u64,
    jobtype: &str,
) -> String {
    let job = body.and_then(foreign_job);
    let job = match job {
        Some(job) => Job {
            custom: match job.jid == jid {
                true => job.custom,
                false => with_own_jid(job.custom, &job.jid),
            },
            jid,
            queue: queue.to_owned(),
            ..job
        },
        None => {
            let (text, encoding) = match body.map(std::str::from_utf8) {
                Some(Ok(text)) => (Some(text.to_owned()), None),
                Some(Err(_)) => (
                    body.map(|body| STANDARD.encode(body)),
                    Some("{\"encoding\":\"base64\"}".to_owned()),
                ),
                // Too long to be held: it is fetched otherwise.
                None => (None, Some(format!("{{\"id\":{},\"bytes\":{len}}}", id.0))),
            };
            let mut args = "[".to_owned();
            if let Some(text) = text {
                json::quote(&text, &mut args);
            }
            args.push(']');
            Job {
                jid,
                queue: queue.to_owned(),
                jobtype: jobtype.to_owned(),
                args,
                custom: encoding,
                ..Job::default()
            }
        }
    };
    job.body(created)
}

/// A body that is a job, though none of this protocol made it one.
fn foreign_job(body: &[u8]) -> Option<Job> {
    let text = std::str::from_utf8(body).ok()?;
    let job = Job::typed(json::whole(text).ok()?).ok()?;
    (!job.jobtype.is_empty() && !job.args.is_empty()).then_some(job)
}

/// Adds a member `jid` in front, unless there is none to add.
fn with_own_jid(custom: Option<String>, jid: &str) -> Option<String> {
    if jid.is_empty() {
        return custom;
    }
    let mut out = "{\"jid\":".to_owned();
    json::quote(jid, &mut out);
    match custom.as_deref().map(|custom| &custom[1..]) {
        None | Some("}") => out.push('}'),
        Some(rest) => {
            out.push(',');
            out.push_str(rest);
        }
    }
    Some(out)
}

/// The id by which a message that was put elsewhere is known here.
pub(super) fn foreign_jid(id: MessageId) -> String {
    format!("q-{:016x}", id.0)
}

/// The message that is known by such an id.
pub(super) fn of_foreign_jid(jid: &str) -> Option<MessageId> {
    let digits = jid.strip_prefix("q-")?;
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let legal = digits.len() == 16 && digits.bytes().all(hex);
    let id = legal.then(|| u64::from_str_radix(digits, 16).ok())??;
    Some(MessageId(id))
}

/// True if a queue can have this name here.
pub(super) fn is_queue(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

pub(super) fn string(name: &str, value: Value<'_>) -> Result<String, String> {
    let string = value.string().map(|string| string.into_owned());
    string.ok_or_else(|| format!("{name} is a string"))
}

fn number(name: &str, value: Value<'_>) -> Result<i64, String> {
    let number = value.whole_number();
    number.ok_or_else(|| format!("{name} is a whole number"))
}

/// The time that a member tells.
pub(super) fn instant(name: &str, text: &str) -> Result<Ms, String> {
    moment::read(text).map_err(|why| {
        let mut shown = String::new();
        json::quote(text, &mut shown);
        format!("invalid timestamp for '{name}': {shown}: {why}")
    })
}

fn compact(name: &str, value: Value<'_>, kind: Kind) -> Result<String, String> {
    if value.kind != kind {
        let kind = if kind == Kind::Array {
            "array"
        } else {
            "object"
        };
        return Err(format!("{name} is an {kind}"));
    }
    let mut out = String::new();
    value.compact(&mut out);
    Ok(out)
}

/// Appends a member that is not the first.
pub(super) fn member(name: &str, json: &str, out: &mut String) {
    write!(out, ",\"{name}\":{json}").expect("strings take all");
}

/// The same of a string.
pub(super) fn string_member(name: &str, text: &str, out: &mut String) {
    write!(out, ",\"{name}\":").expect("strings take all");
    json::quote(text, out);
}

/// The same of a time.
pub(super) fn time_member(name: &str, time: Ms, out: &mut String) {
    write!(out, ",\"{name}\":\"").expect("strings take all");
    moment::write(time, out);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Ms = Ms(1_700_000_000_000);

    fn read(text: &str) -> Result<Job, String> {
        let value = json::whole(text).map_err(|bad| bad.text())?;
        Job::read(value, true).map_err(|refused| refused.text())
    }

    #[test]
    fn a_job_is_stored_in_its_order() {
        let job = read(
            r#" {"args": [1.0, {"a" : "<&>"}], "jobtype":"T", "jid":"job00001", "zzz":1,
               "custom":{"b": 1}, "backtrace":3, "reserve_for": 1, "priority":9,
               "at":"2030-01-01T00:00:00+02:00", "retry":-1, "state":"x", "retry":7,
               "failure":{"retry_count":4, "x":1}, "enqueued_at":"x"} "#,
        )
        .unwrap();
        assert_eq!(
            job.body(NOW),
            r#"{"retry":7,"custom":{"b":1},"jid":"job00001","queue":"default","jobtype":"T","created_at":"2023-11-14T22:13:20.000Z","at":"2030-01-01T00:00:00+02:00","args":[1.0,{"a":"<&>"}],"reserve_for":1,"backtrace":3}"#
        );
        assert_eq!(job.failure.as_deref(), Some(r#"{"retry_count":4,"x":1}"#));
        assert_eq!((job.failed, job.priority), (Some(4), Some(9)));
        assert_eq!(job.ttr_ms(), Some(60_000));
        assert_eq!(job.at.as_ref().unwrap().1, Ms(1_893_448_800_000));
    }

    #[test]
    fn a_stored_job_is_read_unchanged() {
        let job = read(r#"{"jid":"job\"0001","jobtype":"T","args":[],"queue":"a"}"#).unwrap();
        let body = job.body(NOW);
        let again = read(&body).unwrap();
        assert_eq!(again.body(Ms(0)), body);
    }

    #[test]
    fn members_are_read_in_order() {
        let jid = "jobs must have a reasonable jid parameter";
        for (text, why) in [
            ("null", jid),
            ("{}", jid),
            (r#"{"jid":"1234567"}"#, jid),
            (r#"{"jid":null}"#, jid),
            (
                r#"{"jid":"12345678"}"#,
                "jobs must have a jobtype parameter",
            ),
            (
                r#"{"jid":"12345678","jobtype":"T"}"#,
                "jobs must have an args parameter",
            ),
            (
                r#"{"jid":"12345678","jobtype":"T","args":[],"args":null}"#,
                "jobs must have an args parameter",
            ),
            (
                r#"{"jid":"12345678","jobtype":"T","args":[],"reserve_for":86401,"at":"x"}"#,
                "jobs cannot be reserved for more than one day",
            ),
            (
                r#"{"jid":"12345678","jobtype":"T","args":[],"at":"x","queue":"a b"}"#,
                "invalid timestamp for 'at': \"x\": it is too short",
            ),
            (
                r#"{"jid":"12345678","jobtype":"T","args":[],"queue":"a b"}"#,
                "cannot get \"a b\" queue: queue names must match \\A[a-zA-Z0-9._-]+\\z",
            ),
            (r#"{"jid":5}"#, "invalid JSON: jid is a string"),
            (r#"{"retry":"3"}"#, "invalid JSON: retry is a whole number"),
            (r#"{"retry":1.5}"#, "invalid JSON: retry is a whole number"),
            (r#"{"retry":true}"#, "invalid JSON: retry is a whole number"),
            (r#"{"custom":[]}"#, "invalid JSON: custom is an object"),
            (r#"{"args":{}}"#, "invalid JSON: args is an array"),
            (
                r#"{"failure":{"retry_count":"x"}}"#,
                "invalid JSON: retry_count is a whole number",
            ),
            ("[]", "invalid JSON: a job is an object"),
        ] {
            assert_eq!(read(text), Err(why.to_owned()), "{text}");
        }
        let long = format!(r#"{{"jid":"{}","jobtype":"T","args":[]}}"#, "a".repeat(256));
        assert_eq!(read(&long), Err(jid.to_owned()));
        // Bytes are counted, not letters.
        assert!(read(r#"{"jid":"\u03b1\u03b2\u03b3\u03b4","jobtype":"T","args":[]}"#).is_ok());
        for name in ["a-b_c.D", "-"] {
            let text = format!(r#"{{"jid":"12345678","jobtype":"T","args":[],"queue":"{name}"}}"#);
            assert_eq!(read(&text).unwrap().queue, name);
        }
        for name in ["a:b", "a/b", "q*", "a+b", &"a".repeat(256)] {
            assert!(!is_queue(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn absent_null_and_empty_fields_have_their_default() {
        for member in [
            r#""queue":"""#,
            r#""queue":null"#,
            r#""at":"""#,
            r#""at":null"#,
            r#""retry":null"#,
            r#""reserve_for":0"#,
        ] {
            let job = read(&format!(
                r#"{{"jid":"12345678","jobtype":"T","args":[],{member}}}"#
            ))
            .unwrap();
            assert_eq!(
                (&*job.queue, job.at.clone(), job.ttr_ms()),
                ("default", None, None)
            );
            assert!(
                job.body(NOW).starts_with("{\"retry\":25,\"jid\""),
                "{member}"
            );
        }
    }

    #[test]
    fn a_worker_sees_failure_time_and_batch_of_a_job() {
        let beside = Beside {
            failure: Some("{\"retry_count\":0}".to_owned()),
            enqueued: NOW,
            batch: None,
        };
        assert_eq!(
            shown(r#"{"retry":25,"jid":"a"}"#, &beside),
            r#"{"retry":25,"failure":{"retry_count":0},"enqueued_at":"2023-11-14T22:13:20.000Z","jid":"a"}"#
        );
    }

    #[test]
    fn a_callback_is_shown_its_batch() {
        let beside = Beside {
            failure: None,
            enqueued: NOW,
            batch: Some("b-1".to_owned()),
        };
        for (body, custom) in [
            (r#"{"retry":25,"jid":"a"}"#, r#"{"_bid":"b-1"}"#),
            (r#"{"retry":25,"custom":{},"jid":"a"}"#, r#"{"_bid":"b-1"}"#),
            (
                r#"{"retry":25,"custom":{"x":1},"jid":"a"}"#,
                r#"{"_bid":"b-1","x":1}"#,
            ),
        ] {
            assert_eq!(
                shown(body, &beside),
                format!(
                    r#"{{"retry":25,"enqueued_at":"2023-11-14T22:13:20.000Z","custom":{custom},"jid":"a"}}"#
                )
            );
        }
    }

    #[test]
    fn messages_of_others_are_jobs_too() {
        let about = || (MessageId(255), foreign_jid(MessageId(255)), "mail", NOW);
        let of = |body: &[u8]| foreign(about(), Some(body), body.len() as u64, "Message");
        let head = r#"{"retry":25,"#;
        let middle = r#""jid":"q-00000000000000ff","queue":"mail","jobtype":"#;
        let made = r#","created_at":"2023-11-14T22:13:20.000Z","#;
        assert_eq!(
            of(b"hello"),
            format!("{head}{middle}\"Message\"{made}\"args\":[\"hello\"]}}")
        );
        assert_eq!(
            of(b"\xff\xfe"),
            format!(
                "{head}\"custom\":{{\"encoding\":\"base64\"}},{middle}\"Message\"{made}\"args\":[\"//4=\"]}}"
            )
        );
        assert_eq!(
            of(br#"{"jid":"job00001","jobtype":"T","args":[1],"custom":{"a":1}}"#),
            format!(
                "{head}\"custom\":{{\"jid\":\"job00001\",\"a\":1}},{middle}\"T\"{made}\"args\":[1]}}"
            )
        );
        // One that has its own name as a message, as an import gives it.
        let own = (MessageId(255), "job00001".to_owned(), "mail", NOW);
        let body = br#"{"jid":"job00001","jobtype":"T","args":[1],"failure":{},"custom":{"a":1}}"#;
        assert_eq!(
            foreign(own, Some(&body[..]), body.len() as u64, "Message"),
            format!(
                "{head}\"custom\":{{\"a\":1}},\"jid\":\"job00001\",\"queue\":\"mail\",\"jobtype\":\"T\"{made}\"args\":[1]}}"
            )
        );
        for (body, stored) in [
            (r#"{"retry":25,"jid":"a"}"#, true),
            (r#"{"retry":25,"enqueued_at":"x","jid":"a"}"#, false),
            (r#"{"retry":25,"failure":{},"enqueued_at":"x"}"#, false),
            (r#"{"retry":25}"#, false),
        ] {
            assert_eq!(is_stored(body), stored, "{body}");
        }
        assert_eq!(
            foreign(about(), None, 70_000, "Message"),
            format!(
                "{head}\"custom\":{{\"id\":255,\"bytes\":70000}},{middle}\"Message\"{made}\"args\":[]}}"
            )
        );
        assert_eq!(of_foreign_jid("q-00000000000000ff"), Some(MessageId(255)));
        for jid in [
            "q-ff",
            "x-00000000000000ff",
            "q-00000000000000FF",
            "q-+0000000000000ff",
        ] {
            assert_eq!(of_foreign_jid(jid), None, "{jid}");
        }
    }
}
