//! A worker's report of a failed job: the kept part, and the time of the next try.

use std::fmt::Write as _;

use quintet_types::{Backoff, Command, Edit, Message, MessageId, Ms, Retry, State};

use super::job::{RETRY, string, string_member, time_member};
use super::json::{self, Kind};
use super::moment;
use crate::workers::cut;

/// The attribute that keeps it: the JSON that workers are shown.
pub(super) const FAILURE: &[u8] = b"f.failure";
/// The engine's error text for a lease that ran out.
const RAN_OUT: &[u8] = b"its lease ran out";
/// Bytes kept of a message, of a line of a backtrace, and of a type of error.
const MESSAGE_MAX: usize = 1000;
const ERRTYPE_MAX: usize = 100;
/// Lines kept of a backtrace, and bytes of them: no limit of memory refuses a report.
const BACKTRACE_MAX: usize = 50;
const BACKTRACE_BYTES_MAX: usize = 16 << 10;

/// How a job of this protocol is tried again, which has failed so often before.
pub(super) fn retry(max: i64, failed: Option<i64>, dead_ttl_ms: u64) -> Retry {
    let failures = failed.map_or(0, |count| count.saturating_add(1).max(0));
    Retry {
        max,
        failures: u32::try_from(failures).unwrap_or(u32::MAX),
        backoff: BACKOFF,
        on_timeout: true,
        buried_ttl_ms: dead_ttl_ms,
    }
}

/// 15 s, the fourth power of the failures before, and a spread.
const BACKOFF: Backoff = Backoff {
    base_ms: 15_000,
    factor_ms: 1000,
    power: 4,
    jitter_ms: 1000,
    cap_ms: 0,
};

/// A report, cut to the size that is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    errtype: String,
    message: String,
    backtrace: Vec<String>,
}

/// Reads `{"jid":J,"errtype":E,"message":M,"backtrace":[...]}`; `None`: it is
/// something else. The job's id may be empty.
pub(super) fn read(text: &str) -> Option<(String, Report)> {
    let object = json::object(text)?;
    let (mut jid, mut errtype, mut message) = (String::new(), String::new(), String::new());
    let mut backtrace = Vec::new();
    for (name, value) in object.given() {
        match &*name {
            "jid" => jid = string(&name, value).ok()?,
            "errtype" => errtype = string(&name, value).ok()?,
            "message" => message = string(&name, value).ok()?,
            "backtrace" if value.kind == Kind::Array => {
                backtrace = Vec::new();
                let mut left = BACKTRACE_BYTES_MAX;
                for line in value.elements() {
                    let line = line.string()?;
                    let line = cut(&line, MESSAGE_MAX);
                    if backtrace.len() < BACKTRACE_MAX && line.len() <= left {
                        left -= line.len();
                        backtrace.push(line.to_owned());
                    }
                }
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

impl Report {
    /// For the operator.
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.errtype, self.message)
    }

    /// The note that is kept: the beginning of the text that workers see.
    pub(super) fn note(&self, now: Ms) -> String {
        let mut json = "{\"failed_at\":\"".to_owned();
        moment::write(now, &mut json);
        json.push('"');
        string_member("message", &self.message, &mut json);
        string_member("errtype", &self.errtype, &mut json);
        for (at, line) in self.backtrace.iter().enumerate() {
            json.push_str(if at == 0 { ",\"backtrace\":[" } else { "," });
            json::quote(line, &mut json);
        }
        json.push_str(if self.backtrace.is_empty() { "}" } else { "]}" });
        json
    }
}

/// Notes all that workers are shown.
pub(super) fn note_in(id: MessageId, json: String) -> Command {
    let edit = Edit {
        attrs: vec![(FAILURE.into(), Some(json.into_bytes().into()))],
        ..Edit::default()
    };
    Command::Edit(id, Box::new(edit))
}

/// True if a message has failed, or was pushed as one that had.
pub(super) fn has_failed(message: &Message) -> bool {
    message.failures() > 0
}

/// The last failure of a message as workers see it, as JSON.
pub(super) fn of(message: &Message, now: Ms) -> Option<String> {
    let noted = noted(message);
    let failures = message.failures();
    let count = i64::from(failures) - 1;
    let whole = noted.is_some_and(|noted| count < 0 || count_of(noted) == Some(count));
    if count < 0 || whole {
        return noted.map(str::to_owned);
    }
    let retry = message.retry().unwrap_or_else(|| retry(RETRY, None, 0));
    let rest = retry.backoff.after_ms(message.id, failures);
    let due = message.due().filter(|_| message.state == State::Ready);
    // When a reservation ran out is known as long as its job waits.
    let ran_out = message
        .extra
        .as_ref()
        .is_some_and(|extra| *extra.status == *RAN_OUT);
    let since = due.map_or(now, |due| Ms(due.0.saturating_sub(rest)));
    let note = match noted.filter(|_| !ran_out) {
        Some(noted) => noted.to_owned(),
        None => {
            let (errtype, message) = match ran_out {
                true => ("ReservationExpired", "Faktory job reservation expired"),
                false => ("unknown", "unknown"),
            };
            let report = Report {
                errtype: errtype.to_owned(),
                message: message.to_owned(),
                backtrace: Vec::new(),
            };
            report.note(since)
        }
    };
    // Behind the time, which is always as long.
    let (time, stated) = note.split_at_checked(FAILED_AT.len())?;
    let failed = moment::read(time.get(FAILED_AT.len() - 25..FAILED_AT.len() - 1)?).ok();
    let mut json = time.to_owned();
    if !retry.failed_enough(failures) && message.state != State::Buried {
        let next = due.unwrap_or(Ms(failed.unwrap_or(since).0.saturating_add(rest)));
        time_member("next_at", next, &mut json);
    }
    json.push_str(stated.strip_suffix('}').unwrap_or(stated));
    let remaining = match retry.max {
        max if max < 0 => -1,
        max => max.saturating_sub(count),
    };
    write!(json, ",\"retry_count\":{count},\"remaining\":{remaining}}}").expect("strings take all");
    Some(json)
}

/// Length and form of the beginning of a note.
const FAILED_AT: &str = "{\"failed_at\":\"0000-00-00T00:00:00.000Z\"";

/// The note of a message: a report, or the whole text that workers see.
fn noted(message: &Message) -> Option<&str> {
    let attrs = &message.extra.as_deref()?.attrs;
    let found = attrs.iter().find(|(name, _)| **name == *FAILURE)?;
    std::str::from_utf8(&found.1).ok()
}

/// `retry_count` of a failure; a report has none.
fn count_of(failure: &str) -> Option<i64> {
    let object = json::whole(failure).ok()?;
    let (_, count) = object.members().find(|(name, _)| name == "retry_count")?;
    count.whole_number()
}

#[cfg(test)]
mod tests {
    use quintet_types::{At, Body};

    use super::*;

    const NOW: Ms = Ms(1_700_000_000_000);

    fn report(text: &str) -> Report {
        read(text).expect("a report").1
    }

    fn message(max: i64, failures: u32, note: Option<&str>) -> Message {
        let at = At {
            id: MessageId(7),
            ..At::default()
        };
        let mut message = Message::new(at, NOW, Body::new(b"{}"));
        let extra = message.extra_mut();
        extra.failures = failures;
        extra.retry = Some(Box::new(retry(max, None, 0)));
        extra.attrs = note
            .map(|note| (FAILURE.into(), note.as_bytes().into()))
            .into_iter()
            .collect();
        message
    }

    #[test]
    fn a_stored_failure_is_cut() {
        let long = "\u{e9}".repeat(700);
        let lines = vec!["\"x\""; 100].join(",");
        let stated = report(&format!(
            r#"{{"jid":"a","message":"{long}","errtype":"{long}","backtrace":[{lines}]}}"#
        ));
        assert_eq!(
            (
                stated.message.len(),
                stated.errtype.len(),
                stated.backtrace.len()
            ),
            (1000, 100, 50)
        );
        let lines = vec![format!("\"{long}\""); 100].join(",");
        let stated = report(&format!(r#"{{"jid":"a","backtrace":["x",{lines},"y"]}}"#));
        let bytes: Vec<usize> = stated.backtrace.iter().map(String::len).collect();
        assert_eq!(bytes, [&[1][..], &[1000; 16], &[1]].concat());
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
    fn workers_see_the_failure_of_a_job() {
        let note =
            report(r#"{"jid":"a","message":"m","errtype":"E","backtrace":["a","b"]}"#).note(NOW);
        assert_eq!(
            note,
            r#"{"failed_at":"2023-11-14T22:13:20.000Z","message":"m","errtype":"E","backtrace":["a","b"]}"#
        );
        let shown = |max, failures| of(&message(max, failures, Some(&note)), NOW).unwrap();
        let rest = retry(3, None, 0).backoff.after_ms(MessageId(7), 1);
        let mut next = String::new();
        moment::write(Ms(NOW.0 + rest), &mut next);
        let first = shown(3, 1);
        assert_eq!(
            first,
            format!(
                r#"{{"failed_at":"2023-11-14T22:13:20.000Z","next_at":"{next}","message":"m","errtype":"E","backtrace":["a","b"],"retry_count":0,"remaining":3}}"#
            )
        );
        // What is dead has no next time.
        for (max, failures, end) in [
            (-1, 1, "\"retry_count\":0,\"remaining\":-1}"),
            (1, 2, "\"retry_count\":1,\"remaining\":0}"),
        ] {
            let shown = shown(max, failures);
            assert!(
                shown.ends_with(end) && !shown.contains("next_at"),
                "{shown}"
            );
        }
        // What was noted whole stays so until the next failure.
        assert_eq!(of(&message(3, 1, Some(&first)), Ms(0)), Some(first.clone()));
        assert!(
            of(&message(3, 2, Some(&first)), NOW)
                .unwrap()
                .contains("\"retry_count\":1")
        );
        assert_eq!(of(&message(3, 0, None), NOW), None);
        assert_eq!(
            of(&message(3, 0, Some("{\"x\":1}")), NOW).as_deref(),
            Some("{\"x\":1}")
        );
        // A note of somebody else's breaks nothing.
        for odd in [
            "",
            "{}",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            let _shown = of(&message(3, 1, Some(odd)), NOW);
        }
    }

    #[test]
    fn a_reservation_that_ran_out_is_a_failure() {
        let mut message = message(3, 2, Some("{\"retry_count\":0}"));
        message.extra_mut().status = RAN_OUT.into();
        let rest = retry(3, None, 0).backoff.after_ms(MessageId(7), 2);
        message.extra_mut().due = Some(Ms(NOW.0 + rest));
        let shown = of(&message, Ms(0)).unwrap();
        assert!(
            shown.starts_with("{\"failed_at\":\"2023-11-14T22:13:20.000Z\",\"next_at\":"),
            "{shown}"
        );
        let end = "\"message\":\"Faktory job reservation expired\",\"errtype\":\"ReservationExpired\",\"retry_count\":1,\"remaining\":2}";
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn a_job_pushed_as_failed_keeps_its_count() {
        assert_eq!(retry(25, None, 0).failures, 0);
        assert_eq!(retry(25, Some(4), 0).failures, 5);
        assert_eq!(retry(25, Some(-9), 0).failures, 0);
        assert_eq!(retry(25, Some(i64::MAX), 0).failures, u32::MAX);
    }
}
