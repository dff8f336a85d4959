//! The form that makes a schedule, or changes one that was made at run time.

use std::str::FromStr;

use askama::Template;
use axum::response::Response;
use chrono::SecondsFormat;
use hyper::StatusCode;
use quintet_client::words::date;
use quintet_client::{ScheduleSpec, WhichSchedules};
use quintet_types::{Name, Verb};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::Frame;
use super::names::seen;
use super::{Answer, PageRequest, Posted, words};
use quintet_api::Problem;
use quintet_http::{Form, reply};

/// The fields, by the names that the API's errors have, each with its label and a hint.
const FIELDS: [(&str, &str, &str); 12] = [
    ("name", "Name", "An existing schedule is not replaced."),
    (
        "cron",
        "Cron expression",
        "Minute, hour, day, month and weekday: 30 2 * * 1-5",
    ),
    (
        "zone",
        "Time zone",
        "For the cron expression: Europe/Berlin. Empty: UTC",
    ),
    ("every_ms", "Interval", "1s to 3660d"),
    (
        "phase_ms",
        "Phase",
        "Delay of each run after a multiple of the interval",
    ),
    ("at_ms", "Moments", "One per line: 2027-01-01T09:00:00Z"),
    (
        "queue",
        "Queue",
        "A new name creates a new queue with the first run.",
    ),
    ("body", "Body", "The text is stored as it is, in UTF-8."),
    ("priority", "Priority", "0 is the most urgent"),
    ("start_ms", "Start", "No run before: 2027-01-01T09:00:00Z"),
    ("end_ms", "End", "No run after"),
    (
        "count",
        "Runs",
        "The schedule ends after this number of runs",
    ),
];

/// A field as it is shown.
struct Shown {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    value: String,
    wrong: Option<String>,
    /// It has several lines.
    long: bool,
}

/// A choice among words.
struct Choice {
    name: &'static str,
    label: &'static str,
    /// Words, what they mean, and which one holds.
    words: Vec<(&'static str, &'static str, bool)>,
}

#[derive(Template, Default)]
#[template(path = "schedule_form.html")]
struct Page {
    frame: Frame,
    /// The name of the schedule that is changed; empty: one is made.
    old: String,
    /// The version that was seen of it.
    version: String,
    times: Vec<Shown>,
    message: Vec<Shown>,
    bounds: Vec<Shown>,
    choices: Vec<Choice>,
    wrong: Option<String>,
}

impl Page {
    fn of(form: &Form, wrong: Option<(&str, String)>) -> Self {
        let field = |name: &str| {
            let (name, label, hint) = FIELDS.iter().find(|field| field.0 == name)?;
            let why = wrong.as_ref().filter(|(field, _)| field == name);
            Some(Shown {
                name,
                label,
                hint,
                value: form.get(name).unwrap_or_default().to_owned(),
                wrong: why.map(|(_, why)| why.clone()),
                long: matches!(*name, "at_ms" | "body"),
            })
        };
        let fields = |names: &[&str]| names.iter().filter_map(|name| field(name)).collect();
        let old = form.get("old").unwrap_or_default().to_owned();
        let mut times: Vec<Shown> =
            fields(&["name", "cron", "zone", "every_ms", "phase_ms", "at_ms"]);
        if !old.is_empty() {
            times.remove(0);
        }
        let is_shown = |field: &str| FIELDS.iter().any(|(name, ..)| *name == field);
        let choice = |name, label, words: [(&'static str, &'static str); 3]| {
            let submitted = form.get(name).filter(|submitted| !submitted.is_empty());
            let on = submitted.unwrap_or(words[0].0);
            let words = words.map(|(word, means)| (word, means, word == on));
            let words = words.into();
            Choice { name, label, words }
        };
        Self {
            version: form.get("version").unwrap_or_default().to_owned(),
            old,
            times,
            message: fields(&["queue", "body", "priority"]),
            bounds: fields(&["start_ms", "end_ms", "count"]),
            choices: vec![
                choice(
                    "missed",
                    "Missed runs",
                    [
                        ("skip", "put nothing"),
                        ("once", "put one message for all of them"),
                        ("all", "put a message for each"),
                    ],
                ),
                choice(
                    "overlap",
                    "While an earlier run is not done",
                    [
                        ("allow", "put"),
                        ("skip", "put nothing"),
                        ("replace", "replace its message if that waits"),
                    ],
                ),
            ],
            wrong: wrong
                .filter(|(field, _)| !is_shown(field))
                .map(|(_, why)| why),
            frame: Frame::default(),
        }
    }

    fn shown(mut self, status: StatusCode, frame: &Frame) -> Response {
        let title = match self.old.is_empty() {
            true => "New schedule".to_owned(),
            false => format!("Schedule {}", seen(&self.old)),
        };
        self.frame = frame.of(&title, "schedules");
        reply::show(status, &self)
    }
}

/// `GET /schedules/form`; with `name` of that schedule.
pub(super) async fn page(context: PageRequest) -> Answer {
    let query = context.query()?;
    let form = match query.get("name") {
        None => query,
        Some(name) => {
            let (spec, version) = definition(&context, name).await?;
            filled(&context, name, &spec, version)?
        }
    };
    Ok(Page::of(&form, None).shown(StatusCode::OK, &context.frame))
}

/// The definition of a schedule that was made at run time, and its version.
async fn definition(context: &PageRequest, name: &str) -> Result<(ScheduleSpec, u64), Problem> {
    let which = WhichSchedules::One(name.to_owned());
    let (found, _) = context.console.api.schedules(which).await?;
    let one = found.into_iter().next();
    let one = one.ok_or_else(Problem::no_such_page)?;
    if !context
        .requester
        .may_to(Verb::Peek, &Name::of_shown(&one.view.queue))
    {
        let why = "you may not see the messages of its queue";
        return Err(Problem::forbidden(why));
    }
    let (Some(spec), Some(version)) = (one.spec, one.version) else {
        let why = "the configuration defines this schedule: change the file, then reload";
        return Err(Problem::forbidden(why));
    };
    Ok((*spec, version))
}

/// The form of a definition.
fn filled(
    context: &PageRequest,
    name: &str,
    spec: &ScheduleSpec,
    version: u64,
) -> Result<Form, Problem> {
    let span = |ms: Option<u64>| {
        ms.map(|ms| match ms % 1000 {
            0 => format!("{}s", ms / 1000),
            _ => format!("{ms}ms"),
        })
    };
    let moments = spec.at_ms.iter().flatten().map(|ms| written(*ms));
    let moments: Vec<String> = moments.collect();
    let rows = [
        ("old", Some(name.to_owned())),
        ("version", Some(version.to_string())),
        ("cron", spec.cron.clone()),
        ("zone", spec.zone.clone()),
        ("every_ms", span(spec.every_ms)),
        ("phase_ms", span(spec.phase_ms)),
        ("at_ms", Some(moments.join("\n"))),
        ("queue", Some(spec.queue.clone())),
        ("body", spec.body.clone()),
        ("priority", spec.priority.map(|number| number.to_string())),
        ("start_ms", spec.start_ms.map(written)),
        ("end_ms", spec.end_ms.map(written)),
        ("count", spec.count.map(|number| number.to_string())),
        ("missed", word(&spec.missed)),
        ("overlap", word(&spec.overlap)),
    ];
    let limits = &context.console.app.settings().limits;
    let mut form = Form::default();
    for (name, value) in rows {
        let value = value.unwrap_or_default();
        form.add(name.to_owned(), value, limits)?;
    }
    Ok(form)
}

/// A moment as the form has it.
fn written(ms: u64) -> String {
    date(ms).map_or_else(
        || ms.to_string(),
        |at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
    )
}

/// The word of a choice.
fn word(of: &impl Serialize) -> Option<String> {
    let value = serde_json::to_value(of).ok()?;
    value.as_str().map(str::to_owned)
}

/// The choice of a word; an unknown one is none.
fn choice<T: DeserializeOwned>(form: &Form, field: &str) -> Option<T> {
    serde_json::from_value(form.get(field)?.into()).ok()
}

/// `POST /schedules/form`.
pub(super) async fn put(Posted(context, submitted): Posted) -> Answer {
    let form = &submitted.form;
    let old = form.get("old").filter(|old| !old.is_empty());
    let name = old.or(form.get("name")).unwrap_or_default().to_owned();
    match defined(&context, form, &name, old.is_some()).await {
        Ok(made) => {
            let done = if made { "is created" } else { "is changed" };
            let note = format!("The schedule {} {done}.", seen(&name));
            context.redirect("schedules", note)
        }
        Err(problem) => {
            let field = problem.field.clone().unwrap_or_default();
            let status = StatusCode::from_u16(problem.status).unwrap_or_default();
            let wrong = Some((field.as_str(), problem.detail));
            Ok(Page::of(form, wrong).shown(status, &context.frame))
        }
    }
}

/// Defines the schedule of a form; true: it is a new one.
async fn defined(
    context: &PageRequest,
    form: &Form,
    name: &str,
    changes: bool,
) -> Result<bool, Problem> {
    // Fields that the form does not have stay.
    let (mut spec, version) = match changes {
        true => definition(context, name).await?,
        false => Default::default(),
    };
    let typed = |field: &str| {
        form.get(field)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    let text = |field: &str| typed(field).map(str::to_owned);
    let span = |field: &str| {
        let span = typed(field).map(words::typed_duration).transpose();
        span.map_err(|why| Problem::field(field, why))
    };
    let moment = |field: &str| typed(field).map(|text| moment(field, text)).transpose();
    spec.cron = text("cron");
    spec.zone = text("zone");
    spec.every_ms = span("every_ms")?;
    spec.phase_ms = span("phase_ms")?;
    let moments = form.get("at_ms").unwrap_or_default().lines();
    let moments = moments.map(str::trim).filter(|line| !line.is_empty());
    let moments = moments.map(|line| self::moment("at_ms", line));
    let moments = moments.collect::<Result<Vec<u64>, Problem>>()?;
    spec.at_ms = (!moments.is_empty()).then_some(moments);
    spec.start_ms = moment("start_ms")?;
    spec.end_ms = moment("end_ms")?;
    spec.count = number(typed("count"), "count", "takes a number from 1 on")?;
    spec.queue = text("queue").unwrap_or_default();
    // Browsers send lines with a carriage return that nobody typed.
    let body = form.get("body").unwrap_or_default().replace("\r\n", "\n");
    if !body.is_empty() {
        (spec.body, spec.body_base64) = (Some(body), None);
    } else {
        spec.body = None;
    }
    let takes = "takes a number from 0 to 4,294,967,295";
    spec.priority = number(typed("priority"), "priority", takes)?;
    spec.missed = choice(form, "missed");
    spec.overlap = choice(form, "overlap");
    let seen = match changes {
        // The version of the page, so that nobody's change is lost.
        true => Some(number(typed("version"), "version", "takes a number")?.unwrap_or(version)),
        false => {
            let which = WhichSchedules::One(name.to_owned());
            let (found, _) = context.console.api.schedules(which).await?;
            if !found.is_empty() {
                let why = "there is a schedule of this name: change it, or choose another name";
                return Err(Problem::field("name", why));
            }
            None
        }
    };
    let api = &context.console.api;
    let done = api
        .define_schedule(&context.requester, name, spec, seen)
        .await?;
    Ok(done.made)
}

/// The number that was typed into a field, if one was.
fn number<T: FromStr>(typed: Option<&str>, field: &str, takes: &str) -> Result<Option<T>, Problem> {
    let number = typed.map(str::parse).transpose();
    number.map_err(|_| Problem::field(field, takes))
}

/// A moment as RFC 3339 has it, in ms since 1970.
fn moment(field: &str, text: &str) -> Result<u64, Problem> {
    let why = "takes a moment such as 2027-01-01T09:00:00Z, with its offset";
    quintet_client::words::moment(text).ok_or_else(|| Problem::field(field, why))
}
