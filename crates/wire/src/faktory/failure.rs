//! What a worker says of a job it failed at, what is kept of it, and when the
//! job is tried again.

use std::fmt::Write as _;

use quintet_engine::{Message, MessageId, Ms, QueueTotals};

use super::job::{RETRY, string, string_member, time_member};
use super::json::{self, Kind, Value};
use crate::workers::cut;

/// The attribute that keeps it: the JSON that workers are shown.
pub(super) const FAILURE: &[u8] = b"f.failure";
/// The attribute, empty, of a job that failed: by it those that wait for a retry
/// are told from those that are scheduled.
pub(super) const FAILED: &[u8] = b"f.failed";
/// Bytes kept of a message and of a type of error, and lines of a backtrace.
const MESSAGE_MAX: usize = 1000;
const ERRTYPE_MAX: usize = 100;
const BACKTRACE_MAX: usize = 50;
/// Before the first retry, and how the wait spreads, seconds.
const BASE_S: u64 = 15;
const SPREAD: u64 = 30;

/// What was said, cut to what is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    errtype: String,
    message: String,
    backtrace: Vec<String>,
}

/// Reads `{"jid":J,"errtype":E,"message":M,"backtrace":[...]}`; `None`: it is
/// something else. The job's id may be empty.
pub(super) fn read(text: &str) -> Option<(String, Report)> {
    let object = json::whole(text).ok()?;
    if object.kind != Kind::Object {
        return None;
    }
    let (mut jid, mut errtype, mut message) = (String::new(), String::new(), String::new());
    let mut backtrace = Vec::new();
    for (name, value) in object.members() {
        if value.kind == Kind::Null {
            continue;
        }
        match &*name {
            "jid" => jid = string(&name, value).ok()?,
            "errtype" => errtype = string(&name, value).ok()?,
            "message" => message = string(&name, value).ok()?,
            "backtrace" if value.kind == Kind::Array => {
                let line = |line: Value<'_>| Some(line.string()?.into_owned());
                let lines: Option<Vec<String>> = value.elements().map(line).collect();
                backtrace = lines?;
                backtrace.truncate(BACKTRACE_MAX);
            }
            "backtrace" => return None,
            _ => {}
        }
    }
    let report = Report {
        errtype: cut_or_unknown(&errtype, ERRTYPE_MAX),
        message: cut_or_unknown(&message, MESSAGE_MAX),
        backtrace,
    };
    Some((jid, report))
}

fn cut_or_unknown(text: &str, max: usize) -> String {
    match text {
        "" => "unknown".to_owned(),
        text => cut(text, max).to_owned(),
    }
}

/// What becomes of a job that failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It was not to be tried again, and not to be kept.
    Gone,
    /// It is kept until somebody acts.
    Dead,
    /// It is tried again at this time.
    Retry(Ms),
}

/// What becomes of the job in a message at its next failure, and what is kept of
/// that.
pub(super) fn of(message: &Message, report: &Report, now: Ms) -> (Verdict, String) {
    let retry = retry_of(message);
    let count = kept(message).map_or(0, |failure| count_of(&failure).saturating_add(1));
    let verdict = match retry {
        0 => Verdict::Gone,
        retry if retry < 0 || count >= retry => Verdict::Dead,
        _ => Verdict::Retry(Ms(now.0.saturating_add(wait_ms(message.id, count)))),
    };
    let mut json = "{\"failed_at\":\"".to_owned();
    super::moment::write(now, &mut json);
    json.push('"');
    if let Verdict::Retry(due) = verdict {
        time_member("next_at", due, &mut json);
    }
    string_member("message", &report.message, &mut json);
    string_member("errtype", &report.errtype, &mut json);
    if !report.backtrace.is_empty() {
        for (at, line) in report.backtrace.iter().enumerate() {
            json.push_str(if at == 0 { ",\"backtrace\":[" } else { "," });
            json::quote(line, &mut json);
        }
        json.push(']');
    }
    let remaining = if retry < 0 {
        -1
    } else {
        retry.saturating_sub(count)
    };
    write!(json, ",\"retry_count\":{count},\"remaining\":{remaining}}}").expect("strings take all");
    (verdict, json)
}

/// How many tries of a queue's jobs failed: those that were given back, ran out
/// of time or were buried.
pub(super) fn failures(totals: &QueueTotals) -> u64 {
    totals.releases + totals.timeouts + totals.buries
}

/// How long a job rests after the failure before which it had so many: those
/// that failed together do not come back together.
fn wait_ms(id: MessageId, count: i64) -> u64 {
    let count = u64::try_from(count).unwrap_or(0);
    let spread = mixed(id.0 ^ count.rotate_left(32)) % SPREAD;
    let steep = count.saturating_pow(4);
    let seconds = (BASE_S.saturating_add(steep))
        .saturating_add(spread.saturating_mul(count.saturating_add(1)));
    seconds.saturating_mul(1000)
}

/// The finalizer of splitmix64: each bit of the number changes half of the others.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// What is kept of a message's last failure, as JSON.
pub(super) fn kept(message: &Message) -> Option<String> {
    let attrs = &message.extra.as_deref()?.attrs;
    let found = attrs.iter().find(|(name, _)| **name == *FAILURE)?;
    std::str::from_utf8(&found.1).ok().map(str::to_owned)
}

/// `retry_count` of a failure.
fn count_of(failure: &str) -> i64 {
    let Ok(object) = json::whole(failure) else {
        return 0;
    };
    let mut members = object.members();
    let count = members.find(|(name, _)| name == "retry_count");
    count
        .and_then(|(_, count)| count.whole_number())
        .unwrap_or(0)
}

/// How often a job is tried again.
fn retry_of(message: &Message) -> i64 {
    let body = message.body.as_small().unwrap_or_default();
    let rest = body.strip_prefix(b"{\"retry\":").unwrap_or_default();
    let end = rest.iter().position(|&byte| byte == b',').unwrap_or(0);
    let number = std::str::from_utf8(&rest[..end]).ok();
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or(RETRY)
}

#[cfg(test)]
mod tests {
    use quintet_engine::{At, Body};

    use super::*;

    const NOW: Ms = Ms(1_700_000_000_000);

    fn message(retry: i64, failure: Option<&str>) -> Message {
        let body = format!("{{\"retry\":{retry},\"jid\":\"job00001\"}}");
        let at = At {
            id: MessageId(7),
            ..At::default()
        };
        let mut message = Message::new(at, NOW, Body::new(body.as_bytes()));
        if let Some(failure) = failure {
            let attr = (FAILURE.into(), failure.as_bytes().into());
            message.extra_mut().attrs.push(attr);
        }
        message
    }

    fn report(text: &str) -> Report {
        read(text).expect("a report").1
    }

    #[test]
    fn what_is_kept_is_cut() {
        let long = "\u{e9}".repeat(700);
        let lines = vec!["\"x\""; 100].join(",");
        let said = report(&format!(
            r#"{{"jid":"a","message":"{long}","errtype":"{long}","backtrace":[{lines}]}}"#
        ));
        assert_eq!(
            (said.message.len(), said.errtype.len(), said.backtrace.len()),
            (1000, 100, 50)
        );
        let none = report(r#"{"jid":"a","message":"","backtrace":null}"#);
        assert_eq!((&*none.message, &*none.errtype), ("unknown", "unknown"));
        for text in [
            "x",
            "[]",
            r#"{"jid":5}"#,
            r#"{"errtype":5}"#,
            r#"{"backtrace":"x"}"#,
            r#"{"backtrace":[1]}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_becomes_of_a_job() {
        let said = report(r#"{"jid":"a","message":"m","errtype":"E","backtrace":["a","b"]}"#);
        let of = |retry, failure| of(&message(retry, failure), &said, NOW);
        assert_eq!(of(0, None).0, Verdict::Gone);
        let (verdict, json) = of(-1, None);
        assert_eq!(verdict, Verdict::Dead);
        assert_eq!(
            json,
            r#"{"failed_at":"2023-11-14T22:13:20.000Z","message":"m","errtype":"E","backtrace":["a","b"],"retry_count":0,"remaining":-1}"#
        );
        // One retry means two runs.
        let (first, json) = of(1, None);
        assert!(
            matches!(first, Verdict::Retry(_))
                && json.ends_with("\"retry_count\":0,\"remaining\":1}")
        );
        let (second, json) = of(1, Some(&json));
        assert!(second == Verdict::Dead && json.ends_with("\"retry_count\":1,\"remaining\":0}"));
    }

    #[test]
    fn each_wait_is_longer() {
        for id in 0..1000 {
            let wait = |count| wait_ms(MessageId(id), count) / 1000;
            assert!((15..=44).contains(&wait(0)));
            assert!((16..=74).contains(&wait(1)) && wait(1) % 2 == 0);
            assert!((640..=814).contains(&wait(5)) && (wait(5) - 640) % 6 == 0);
            assert_eq!(wait_ms(MessageId(id), i64::MAX), u64::MAX);
        }
        let spread: std::collections::BTreeSet<u64> =
            (0..1000).map(|id| wait_ms(MessageId(id), 0)).collect();
        assert_eq!(spread.len(), 30);
    }
}
