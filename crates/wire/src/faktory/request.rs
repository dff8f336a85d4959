//! Reading a command line.

use std::borrow::Cow;

use quintet_types::Name;

use super::Count;
use super::ent::{self, Batches, Tracking};
use super::failure::{self, Report};
use super::job::{self, Job, Refused};
use super::json::{self, Kind};
use super::mutate::{self, Mutate};
use super::queues::Sub;
use crate::workers::WorkerState;

/// Queues in one command at most.
pub(super) const QUEUES_MAX: usize = 1024;

/// One request line.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Push(Box<Job>),
    /// The inside of the JSON array of jobs, which are objects with members of the right types.
    PushBulk(Box<str>),
    /// From these, in this order.
    Fetch(Vec<Name>),
    Ack(String),
    Fail(String, Report),
    Beat(Beat),
    Info,
    Flush,
    End,
    /// Something to each of these; `None`: to all.
    Queue(Sub, Option<Vec<Name>>),
    Mutate(Mutate),
    Batch(Batches),
    Track(Tracking),
    /// The text behind `-ERR `.
    Fault(Cow<'static, str>),
    Unknown,
}

/// A worker's heartbeat.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Beat {
    pub(super) wid: String,
    pub(super) rss_kb: Option<u64>,
    pub(super) state: Option<WorkerState>,
}

/// A command without the argument it needs.
const INTERNAL: Request = Request::Fault(Cow::Borrowed("internal error"));

fn fault(text: impl Into<Cow<'static, str>>) -> Request {
    Request::Fault(text.into())
}

/// Reads a line, given without its end, and says how it is counted.
pub(super) fn parse(line: &[u8], ent: bool) -> (Count, Request) {
    let (verb, rest) = match memchr::memchr(b' ', line) {
        Some(at) => (&line[..at], Some(json::text_of(&line[at + 1..]))),
        None => (line, None),
    };
    let with = |read: fn(&str) -> Request| rest.as_deref().map_or(INTERNAL, read);
    let (count, request) = match verb {
        b"PUSH" => (Count::Push, with(push)),
        b"PUSHB" => (Count::PushBulk, with(push_bulk)),
        b"FETCH" => (Count::Fetch, fetch(rest.as_deref().unwrap_or_default())),
        b"ACK" => (Count::Ack, with(ack)),
        b"FAIL" => (Count::Fail, with(fail)),
        b"BEAT" => (Count::Beat, with(beat)),
        b"INFO" => (Count::Info, Request::Info),
        b"FLUSH" => (Count::Flush, Request::Flush),
        b"END" => (Count::Other, Request::End),
        b"QUEUE" => (Count::Queue, with(queue)),
        b"MUTATE" => {
            let mutate = mutate::read(rest.as_deref().unwrap_or_default());
            (Count::Mutate, mutate.map_or_else(fault, Request::Mutate))
        }
        b"TRACK" if !ent => (Count::Track, fault("tracking is not enabled")),
        b"BATCH" if !ent => (Count::Batch, fault("batches are not enabled")),
        b"TRACK" => {
            let track = ent::track(rest.as_deref().unwrap_or_default());
            (Count::Track, track.map_or_else(fault, Request::Track))
        }
        b"BATCH" => {
            let batches = ent::batches(rest.as_deref().unwrap_or_default());
            (Count::Batch, batches.map_or_else(fault, Request::Batch))
        }
        _ => return (Count::Fault, Request::Unknown),
    };
    match matches!(request, Request::Fault(_)) {
        true => (Count::Fault, request),
        false => (count, request),
    }
}

fn push(rest: &str) -> Request {
    let job = json::whole(rest).map_err(|bad| Refused::Json(bad.text()));
    match job.and_then(|job| Job::read(job, true)) {
        Ok(job) => Request::Push(Box::new(job)),
        Err(refused) => fault(refused.text()),
    }
}

fn push_bulk(rest: &str) -> Request {
    let list = match json::whole(rest) {
        Ok(list) if matches!(list.kind, Kind::Array | Kind::Null) => list,
        Ok(_) => return fault("invalid JSON: PUSHB takes an array"),
        Err(bad) => return fault(format!("invalid JSON: {}", bad.text())),
    };
    for job in list.elements() {
        if let Err(refused @ Refused::Json(_)) = Job::read(job, true) {
            return fault(refused.text());
        }
    }
    Request::PushBulk(list.inside().into())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

/// Names that can be queues here: others are queues without jobs.
fn names<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Name> {
    let legal = words.filter(|word| job::is_queue(word.as_bytes()));
    legal.map(Name::from).collect()
}

fn fetch(rest: &str) -> Request {
    match words(rest).count() {
        0 => fault("must call fetch with at least one queue"),
        1..=QUEUES_MAX => Request::Fetch(names(words(rest))),
        _ => fault("too many queues"),
    }
}

fn ack(rest: &str) -> Request {
    let jid = || {
        let object = json::whole(rest).ok()?;
        let mut jid = None;
        for (name, value) in object.members() {
            match &*name {
                "jid" => jid = Some(value.string()?.into_owned()),
                _ => return None,
            }
        }
        jid
    };
    match jid() {
        Some(jid) => Request::Ack(jid),
        None => fault(format!("invalid ACK {rest}")),
    }
}

fn fail(rest: &str) -> Request {
    match failure::read(rest) {
        Some((jid, _)) if jid.is_empty() => fault("missing JID"),
        Some((jid, report)) => Request::Fail(jid, report),
        None => fault(format!("invalid FAIL {rest}")),
    }
}

fn beat(rest: &str) -> Request {
    let read = || {
        let object = json::object(rest)?;
        let mut beat = Beat::default();
        for (name, value) in object.given() {
            match &*name {
                "wid" => beat.wid = value.string()?.into_owned(),
                "rss_kb" => beat.rss_kb = Some(u64::try_from(value.whole_number()?).unwrap_or(0)),
                "current_state" => beat.state = WorkerState::of_word(&value.string()?),
                _ => {}
            }
        }
        Some(beat)
    };
    match read() {
        Some(beat) => Request::Beat(beat),
        None => fault(format!("invalid BEAT {rest}")),
    }
}

fn queue(rest: &str) -> Request {
    let mut words = words(rest);
    let word = words.next().unwrap_or_default();
    let Some(sub) = Sub::of_word(word) else {
        return fault(format!("no such QUEUE subcommand: {}", word.to_uppercase()));
    };
    // One more than there may be.
    let arguments: Vec<&str> = words.take(QUEUES_MAX + 1).collect();
    match (sub, arguments.as_slice()) {
        (Sub::Latency, ["*"]) => fault("QUEUE LATENCY does not support wildcards"),
        (Sub::Pause | Sub::Resume | Sub::Remove, []) => INTERNAL,
        (_, ["*"]) => Request::Queue(sub, None),
        (_, arguments) if arguments.len() > QUEUES_MAX => fault("too many queues"),
        (Sub::Latency, arguments) => {
            // Each name has its member, also one that no queue can have.
            Request::Queue(
                sub,
                Some(arguments.iter().copied().map(Name::from).collect()),
            )
        }
        (_, arguments) => Request::Queue(sub, Some(names(arguments.iter().copied()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(line: &str) -> String {
        let Request::Fault(text) = parse(line.as_bytes(), false).1 else {
            panic!("{line} is read");
        };
        text.into_owned()
    }

    #[test]
    fn bad_lines_are_errors() {
        for (line, text) in [
            ("PUSH", "internal error"),
            ("PUSHB", "internal error"),
            ("ACK", "internal error"),
            ("FAIL", "internal error"),
            ("BEAT", "internal error"),
            ("QUEUE", "internal error"),
            ("QUEUE PAUSE", "internal error"),
            ("FETCH", "must call fetch with at least one queue"),
            ("FETCH  ", "must call fetch with at least one queue"),
            ("ACK x", "invalid ACK x"),
            ("ACK {}", "invalid ACK {}"),
            (
                "ACK {\"jid\":\"a\",\"x\":1}",
                "invalid ACK {\"jid\":\"a\",\"x\":1}",
            ),
            ("ACK [\"a\"]", "invalid ACK [\"a\"]"),
            ("FAIL {}", "missing JID"),
            ("FAIL x", "invalid FAIL x"),
            ("BEAT x", "invalid BEAT x"),
            ("BEAT {\"wid\":1}", "invalid BEAT {\"wid\":1}"),
            ("QUEUE UNPAUSE *", "no such QUEUE subcommand: UNPAUSE"),
            (
                "QUEUE LATENCY *",
                "QUEUE LATENCY does not support wildcards",
            ),
            ("PUSHB {}", "invalid JSON: PUSHB takes an array"),
            ("PUSHB [1]", "invalid JSON: a job is an object"),
            ("TRACK GET a", "tracking is not enabled"),
            ("BATCH NEW {}", "batches are not enabled"),
            ("MUTATE", "invalid format"),
        ] {
            assert_eq!(error_text(line), text, "{line}");
        }
        let many = format!("FETCH {}", "q ".repeat(QUEUES_MAX + 1));
        assert_eq!(error_text(&many), "too many queues");
        let many = format!("QUEUE PAUSE {}", "q ".repeat(QUEUES_MAX + 9));
        assert_eq!(error_text(&many), "too many queues");
        for line in ["CMD foo", "flush", "", "HELLO {\"v\":2}"] {
            assert_eq!(parse(line.as_bytes(), false).1, Request::Unknown, "{line}");
        }
    }

    #[test]
    fn queues_that_cannot_be_are_left_out() {
        let fetch = |line: &str| {
            let Request::Fetch(names) = parse(line.as_bytes(), false).1 else {
                panic!("{line} is no FETCH");
            };
            let names = names.iter().map(Name::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fetch("FETCH b  a:b a "), "b a");
        assert_eq!(fetch("FETCH a:b"), "");
        let (_, request) = parse(b"QUEUE pause x", false);
        assert_eq!(
            request,
            Request::Queue(Sub::Pause, Some(vec![Name::from("x")]))
        );
        let (_, request) = parse(b"QUEUE REMOVE *", false);
        assert_eq!(request, Request::Queue(Sub::Remove, None));
    }
}
