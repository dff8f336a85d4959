//! Features that Faktory sells: unique and expiring jobs, batches, tracking. Only with the option
//! `ent`.

use std::fmt::Write as _;

use quintet_types::{
    Batch, BatchId, BatchRequest, ByName, Callback, CallbackState, Command, Dedupe, Expiry, Ms,
    Name, NamedAction, NewBatch, OnRepeat, Outcome, Scope, Tie, Track, TrackState,
};
use sha2::{Digest as _, Sha256};

use super::failure;
use super::job::{Job, RETRY, instant, member, string_member, time_member};
use super::json::{self, Kind};
use super::moment;

/// The subcommand of `BATCH`.
#[derive(Debug, PartialEq)]
pub(super) enum Batches {
    New(Box<New>),
    Open(BatchId),
    Commit(BatchId),
    Status(BatchId),
}

/// A batch that a producer makes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct New {
    description: String,
    parent: Option<BatchId>,
    success: Option<Job>,
    complete: Option<Job>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchReply {
    Bid,
    Ok,
    Status,
}

/// The subcommand of `TRACK`.
#[derive(Debug, PartialEq)]
pub(super) enum Tracking {
    Get(String),
    Set {
        jid: String,
        percent: Option<u8>,
        text: Option<String>,
        /// The job stays with its worker until then, by the wall clock.
        until: Option<Ms>,
    },
}

/// Reads what stands behind `BATCH `.
///
/// # Errors
/// The text after `-ERR `.
pub(super) fn batches(rest: &str) -> Result<Batches, String> {
    let (sub, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let id = || BatchId::parse(rest.trim()).ok_or_else(|| "No such batch".to_owned());
    match sub {
        "NEW" => new(rest).map(|new| Batches::New(Box::new(new))),
        "OPEN" => id().map(Batches::Open),
        "COMMIT" => id().map(Batches::Commit),
        "STATUS" => id().map(Batches::Status),
        _ => Err(format!("no such BATCH subcommand: {sub}")),
    }
}

fn new(rest: &str) -> Result<New, String> {
    let object = json::whole(rest).map_err(|bad| format!("invalid JSON: {}", bad.text()))?;
    if object.kind != Kind::Object {
        return Err("invalid JSON: a batch is an object".to_owned());
    }
    let mut new = New::default();
    for (name, value) in object.given() {
        let string = || {
            let string = value.string().map(|text| text.into_owned());
            string.ok_or_else(|| format!("invalid JSON: {name} is a string"))
        };
        match &*name {
            "description" => new.description = string()?,
            "parent_bid" => {
                let parent = string()?;
                if !parent.is_empty() {
                    let parent = BatchId::parse(&parent);
                    new.parent = Some(parent.ok_or_else(|| "No such batch".to_owned())?);
                }
            }
            "success" => new.success = Some(callback_of(value)?),
            "complete" => new.complete = Some(callback_of(value)?),
            _ => {}
        }
    }
    Ok(new)
}

impl Batches {
    /// The command, and the form of its answer. `dead_ttl_ms`: how long callbacks stay when
    /// they are dead.
    pub(super) fn ask(self, now: Ms, dead_ttl_ms: u64) -> (Command, BatchReply) {
        let (ask, reply) = match self {
            Batches::New(new) => {
                let callback = |job: Option<Job>| job.map(|job| callback(&job, now, dead_ttl_ms));
                let new = NewBatch {
                    description: new.description.into_bytes().into(),
                    parent: new.parent,
                    complete: callback(new.complete),
                    success: callback(new.success),
                    ..NewBatch::default()
                };
                (BatchRequest::New(Box::new(new)), BatchReply::Bid)
            }
            Batches::Open(id) => (BatchRequest::Open(id), BatchReply::Bid),
            Batches::Commit(id) => (BatchRequest::Commit(id), BatchReply::Ok),
            Batches::Status(id) => (BatchRequest::Show(id), BatchReply::Status),
        };
        (Command::Batch(ask), reply)
    }
}

fn callback_of(value: json::Value<'_>) -> Result<Job, String> {
    Job::read(value, false).map_err(|refused| refused.text())
}

fn callback(job: &Job, now: Ms, dead_ttl_ms: u64) -> Callback {
    Callback {
        queue: Name::from(&*job.queue),
        body: job.body(now).into_bytes().into(),
        priority: None,
        ttr_ms: job.ttr_ms(),
        name: (!job.jid.is_empty()).then(|| job.jid.as_bytes().into()),
        retry: Some(failure::retry(
            job.retry.unwrap_or(RETRY),
            job.failed,
            dead_ttl_ms,
        )),
        attrs: Vec::new(),
    }
}

/// How far a batch is.
pub(super) fn status(batch: &Batch) -> String {
    let state = |callback_state| match callback_state {
        CallbackState::No => "",
        CallbackState::Put => "1",
        CallbackState::Done => "2",
    };
    let mut out = format!("{{\"bid\":\"{}\"", batch.id);
    if let Some(parent) = batch.made.parent {
        write!(out, ",\"parent_bid\":\"{parent}\"").expect("strings take all");
    }
    if !batch.made.description.is_empty() {
        let text = json::text_of(&batch.made.description);
        string_member("description", &text, &mut out);
    }
    time_member("created_at", batch.created, &mut out);
    let progress = &batch.progress;
    for (name, number) in [
        ("total", progress.total),
        ("pending", progress.pending),
        ("failed", progress.failed),
    ] {
        member(name, &number.to_string(), &mut out);
    }
    string_member("complete_st", state(progress.complete), &mut out);
    string_member("success_st", state(progress.success), &mut out);
    out.push('}');
    out
}

/// Requests in a job's `custom`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wishes {
    pub(super) batch: Option<Tie>,
    /// Keeps the job's outcome for `TRACK GET`.
    pub(super) tracked: bool,
    pub(super) dedupe: Option<Dedupe>,
    pub(super) expires: Expiry,
}

/// Reads what a job asks for; `now` is the time of the push.
///
/// # Errors
/// The text after `-ERR `.
pub(super) fn wishes(job: &Job, now: Ms) -> Result<Wishes, String> {
    let mut wishes = Wishes::default();
    let Some(custom) = job
        .custom
        .as_deref()
        .and_then(|text| json::whole(text).ok())
    else {
        return Ok(wishes);
    };
    let (mut unique_s, mut until) = (None, Scope::Done);
    for (name, value) in custom.given() {
        let seconds = || {
            let number = value.whole_number().and_then(|n| u64::try_from(n).ok());
            number.ok_or_else(|| format!("{name} is a whole number of seconds"))
        };
        match &*name {
            "bid" => {
                let id = value.string().and_then(|text| BatchId::parse(&text));
                let id = id.ok_or_else(|| "No such batch".to_owned())?;
                wishes.batch = Some(Tie::member(id));
            }
            "track" => {
                let number = value.whole_number();
                let number = number.ok_or_else(|| "track is 0 or 1".to_owned())?;
                wishes.tracked = number > 0;
            }
            "unique_for" => unique_s = Some(seconds()?).filter(|&seconds| seconds > 0),
            "unique_until" => {
                until = match value.string().as_deref() {
                    Some("success") => Scope::Done,
                    Some("start") => Scope::Started,
                    _ => return Err("unique_until is \"success\" or \"start\"".to_owned()),
                }
            }
            "expires_in" => wishes.expires = Expiry::In(seconds()?.saturating_mul(1000)),
            "expires_at" => {
                let text = value.string().unwrap_or_default();
                wishes.expires = Expiry::AtWall(instant(&name, &text)?);
            }
            _ => {}
        }
    }
    if let Some(seconds) = unique_s {
        let waits = job.at.as_ref().map_or(0, |(_, at)| at.since(now));
        wishes.dedupe = Some(Dedupe {
            id: what_is_unique(job),
            window_ms: Some(seconds.saturating_mul(1000).saturating_add(waits)),
            scope: Some(until),
            on_repeat: Some(OnRepeat::Refuse),
        });
    }
    Ok(wishes)
}

/// Jobs of the same type, queue and arguments are the same.
fn what_is_unique(job: &Job) -> Box<[u8]> {
    let mut hash = Sha256::new();
    for part in [&job.jobtype, &job.queue, &job.args] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().as_slice().into()
}

/// Reads what stands behind `TRACK `.
///
/// # Errors
/// The text after `-ERR `.
pub(super) fn track(rest: &str) -> Result<Tracking, String> {
    let (sub, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match sub {
        "GET" if !rest.trim().is_empty() => Ok(Tracking::Get(rest.trim().to_owned())),
        "SET" => set(rest).ok_or_else(|| format!("invalid TRACK SET {rest}")),
        _ => Err(format!("no such TRACK subcommand: {sub}")),
    }
}

fn set(rest: &str) -> Option<Tracking> {
    let object = json::whole(rest).ok()?;
    let (mut jid, mut percent, mut text, mut until) = (String::new(), None, None, None);
    for (name, value) in object.given() {
        match &*name {
            "jid" => jid = value.string()?.into_owned(),
            "percent" => {
                let number = value.whole_number()?.clamp(0, 100);
                percent = u8::try_from(number).ok();
            }
            "desc" => text = Some(value.string()?.into_owned()),
            "reserve_until" => until = Some(moment::read(&value.string()?).ok()?),
            _ => {}
        }
    }
    (!jid.is_empty()).then_some(Tracking::Set {
        jid,
        percent,
        text,
        until,
    })
}

/// The command for the job of this id that a worker holds.
pub(super) fn of_job(jid: &str, action: NamedAction) -> Command {
    Command::ByName(Box::new(ByName {
        queue: None,
        name: jid.as_bytes().into(),
        by: quintet_types::By::Bearer,
        action,
    }))
}

/// The known state of a job. For a job that is not tracked this is only its progress, if a worker
/// has it.
pub(super) fn tracked(jid: &str, outcome: &Outcome) -> String {
    let mut known = Track::default();
    let mut state = "unknown";
    if let Outcome::Tracked(_, track) = outcome {
        known = (**track).clone();
        state = match track.state {
            TrackState::Waiting => "enqueued",
            TrackState::Reserved => "working",
            TrackState::Failed | TrackState::Cancelled => "failed",
            TrackState::Buried => "dead",
            TrackState::Done => "success",
            // There is no word for one that was discarded.
            TrackState::Gone => "unknown",
        };
    } else if let Outcome::Messages(messages) = outcome
        && let Some(message) = messages.first()
    {
        state = "working";
        known.percent = message.progress();
        known.changed = message.created;
        if let Some(extra) = &message.extra {
            known.note = extra.status.clone();
            if extra.changed != Ms(0) {
                known.changed = extra.changed;
            }
        }
    }
    let mut out = "{\"jid\":".to_owned();
    json::quote(jid, &mut out);
    if let Some(percent) = known.percent {
        member("percent", &percent.to_string(), &mut out);
    }
    if !known.note.is_empty() {
        string_member("desc", &json::text_of(&known.note), &mut out);
    }
    string_member("state", state, &mut out);
    match known.changed {
        Ms(0) => string_member("updated_at", "", &mut out),
        changed => time_member("updated_at", changed, &mut out),
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(custom: &str) -> Job {
        let text = format!(
            r#"{{"jid":"job00001","jobtype":"T","args":[1],"at":"1970-01-01T00:00:20Z","custom":{custom}}}"#
        );
        Job::read(json::whole(&text).unwrap(), true).unwrap()
    }

    #[test]
    fn a_job_is_unique_from_its_push_on_and_for_its_time_after_it_is_due() {
        let of = |custom: &str| wishes(&job(custom), Ms(5_000));
        let dedupe = of(r#"{"unique_for":60}"#).unwrap().dedupe.unwrap();
        assert_eq!(dedupe.window_ms, Some(75_000));
        assert_eq!(dedupe.scope, Some(Scope::Done));
        let started = of(r#"{"unique_for":60,"unique_until":"start"}"#).unwrap();
        assert_eq!(started.dedupe.unwrap().scope, Some(Scope::Started));
        assert_eq!(of(r#"{"unique_for":0}"#), Ok(Wishes::default()));
        assert_eq!(of("{}"), Ok(Wishes::default()));
        for (custom, why) in [
            (
                r#"{"unique_for":"x"}"#,
                "unique_for is a whole number of seconds",
            ),
            (
                r#"{"unique_for":-1}"#,
                "unique_for is a whole number of seconds",
            ),
            (
                r#"{"unique_until":"x"}"#,
                "unique_until is \"success\" or \"start\"",
            ),
            (r#"{"bid":"x"}"#, "No such batch"),
        ] {
            assert_eq!(of(custom), Err(why.to_owned()), "{custom}");
        }
        let wishes = of(r#"{"expires_in":2}"#).unwrap();
        assert_eq!(wishes.expires, Expiry::In(2000));
        let wishes = of(r#"{"expires_at":"1970-01-01T00:00:01Z"}"#).unwrap();
        assert_eq!(wishes.expires, Expiry::AtWall(Ms(1000)));
    }

    #[test]
    fn bad_lines_are_errors() {
        for (line, why) in [
            ("", "no such BATCH subcommand: "),
            ("NEW", "invalid JSON: "),
            ("NEW []", "invalid JSON: a batch is an object"),
            (
                r#"NEW {"description":1}"#,
                "invalid JSON: description is a string",
            ),
            (
                r#"NEW {"success":{}}"#,
                "jobs must have a jobtype parameter",
            ),
            (
                r#"NEW {"success":{"jid":"short","jobtype":"S","args":[]}}"#,
                "jobs must have a reasonable jid parameter",
            ),
            ("OPEN b-7", "No such batch"),
        ] {
            let reply = batches(line).unwrap_err();
            assert!(reply.starts_with(why), "{line}: {reply}");
        }
        assert_eq!(track("SET {}"), Err("invalid TRACK SET {}".to_owned()));
        assert_eq!(
            track("GET "),
            Err("no such TRACK subcommand: GET".to_owned())
        );
    }
}
