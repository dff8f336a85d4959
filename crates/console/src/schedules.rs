//! Schedules: what is put by the clock, and the calendar of the next day.

use askama::Template;
use quintet_client::{ScheduleAct, ScheduleSeen, ScheduleView, WhichSchedules};
use quintet_types::Name;

use super::frame::Frame;
use super::names::{Named, seen};
use super::{Answer, PageRequest, Posted, Two, names, render, text_of, words};
use quintet_api::{Path, Problem, blocking, nexts};

/// Rows of a page.
const ROWS: usize = 100;
/// Schedules that a search goes through.
const SEARCHED: usize = 5000;
/// The calendar's time, ms.
const DAY: u64 = 86_400_000;
/// Due times of the calendar: a schedule with more is named apart.
const OFTEN: usize = 24;

struct Row {
    cron: ScheduleView,
    name: String,
    /// Its part of an address.
    part: String,
    schedule: String,
    queue: Named,
    next: String,
    last: String,
    outcome: String,
    bad: bool,
    missed_text: String,
}

/// An hour of the calendar.
struct Hour {
    /// As `03:00`.
    hour: String,
    /// Times and names.
    due: Vec<(String, String)>,
}

impl Row {
    fn new(cron: ScheduleView) -> Self {
        let when = |ms: Option<u64>| ms.map_or_else(|| words::NONE.to_owned(), words::moment);
        let outcome = match (cron.outcome, &cron.error, cron.missed_ms) {
            ("refused", Some(error), _) => format!("refused: {error}"),
            ("invalid", Some(error), _) => format!("invalid: {error}"),
            ("missed", _, at) => format!("missed, seen {}", when(at)),
            ("none", ..) => words::NONE.to_owned(),
            (outcome, ..) => outcome.to_owned(),
        };
        Self {
            part: names::in_address(&Name::from(cron.name.as_str())),
            name: seen(&cron.name),
            schedule: seen(&cron.schedule),
            queue: Named::new(&Name::of_shown(&cron.queue)),
            next: when(cron.next_ms),
            last: when(cron.last_ms),
            bad: matches!(cron.outcome, "refused" | "missed" | "invalid"),
            outcome,
            missed_text: words::count(cron.missed_runs),
            cron,
        }
    }
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct Schedules {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    has: String,
    rows: Vec<Row>,
    /// More than are shown.
    more: bool,
    hours: Vec<Hour>,
    /// Schedules that are due too often for the calendar, with their times.
    often: Vec<String>,
}

/// `/schedules`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let has = context.query()?.get("has").unwrap_or_default().to_owned();
    let (found, more) = match has.is_empty() {
        true => {
            let which = WhichSchedules::Soonest(ROWS);
            let found = context.console.api.schedules(which).await?.0;
            let more = found.len() >= ROWS;
            (found, more)
        }
        false => search(&context, &has).await?,
    };
    let shown: Vec<ScheduleView> = found.iter().map(|one| one.view.clone()).collect();
    let number = |is: &dyn Fn(&&ScheduleView) -> bool| {
        let number = words::count(shown.iter().filter(is).count() as u64);
        if more { format!("{number}+") } else { number }
    };
    let facts = vec![
        ("Schedules", number(&|_| true)),
        ("Paused", number(&|cron| cron.paused)),
        ("Refused", number(&|cron| cron.outcome == "refused")),
        ("Missed last run", number(&|cron| cron.outcome == "missed")),
    ];
    let wall = context.client_api().wall().0;
    let calendar = blocking(move || calendar(&found, wall)).await;
    let (hours, often) = calendar.unwrap_or_default();
    render(&Schedules {
        frame: context.frame.of("Schedules", "schedules"),
        facts,
        has,
        rows: shown.into_iter().map(Row::new).collect(),
        more,
        hours,
        often,
    })
}

/// Schedules whose name or queue has this text, and whether there may be more.
async fn search(context: &PageRequest, has: &str) -> Result<(Vec<ScheduleSeen>, bool), Problem> {
    let (mut found, mut after) = (Vec::new(), None);
    let mut searched = 0;
    while searched < SEARCHED {
        let which = WhichSchedules::Page { after, max: ROWS };
        let (page, next) = context.console.api.schedules(which).await?;
        searched += page.len();
        found.extend(
            page.into_iter()
                .filter(|one| one.view.name.contains(has) || one.view.queue.contains(has)),
        );
        if next.is_none() {
            return Ok((found, false));
        }
        if found.len() >= ROWS {
            break;
        }
        after = next;
    }
    found.truncate(ROWS);
    Ok((found, true))
}

/// The next day in hours of UTC that have due times, and those that are due often.
fn calendar(schedules: &[ScheduleSeen], wall: u64) -> (Vec<Hour>, Vec<String>) {
    let (mut due, mut often) = (Vec::new(), Vec::new());
    for one in schedules {
        let mut times = nexts(one, OFTEN + 1);
        times.retain(|at| *at < wall.saturating_add(DAY));
        match times.len() > OFTEN {
            true => often.push(format!(
                "{} ({})",
                seen(&one.view.name),
                seen(&one.view.schedule)
            )),
            false => due.extend(times.into_iter().map(|at| (at, seen(&one.view.name)))),
        }
    }
    due.sort();
    let mut hours: Vec<(u64, Hour)> = Vec::new();
    for (at, name) in due {
        let hour = at - at % 3_600_000;
        let row = (words::hour_and_minute(at), name);
        match hours.last_mut() {
            Some((last, of)) if *last == hour => of.due.push(row),
            _ => hours.push((
                hour,
                Hour {
                    hour: words::hour_and_minute(hour),
                    due: vec![row],
                },
            )),
        }
    }
    (hours.into_iter().map(|(_, hour)| hour).collect(), often)
}

/// `POST /schedules/NAME/do/ACT`.
pub(super) async fn steer(Path((part, act)): Two, Posted(context, _): Posted) -> Answer {
    let name = text_of(&part)?;
    let act = match act.as_str() {
        "pause" => ScheduleAct::Pause,
        "resume" => ScheduleAct::Resume,
        "run" => ScheduleAct::Run,
        _ => return Err(Problem::no_such_page()),
    };
    let api = &context.console.api;
    let done = api.steer_schedule(act.clone(), &name).await?;
    let name = seen(&name);
    let note = match (&act, done.changed, done.message) {
        (ScheduleAct::Run, _, Some(id)) => format!("{name} was put as message {}.", id.0),
        (ScheduleAct::Run, _, None) => format!("{name} was put."),
        (ScheduleAct::Pause, true, _) => format!("{name} is paused until it is resumed."),
        (ScheduleAct::Pause, false, _) => format!("{name} was paused already."),
        (ScheduleAct::Resume, true, _) => {
            format!("{name} is resumed. Missed runs are not made up for.")
        }
        _ => format!("{name} was not paused."),
    };
    context.redirect("schedules", note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_has_each_due_time_of_a_day_in_its_hour() {
        // 2026-11-27 12:30 UTC.
        let wall = 1_795_782_600_000;
        let of = |name: &str, spec: &str| {
            let spec: quintet_client::ScheduleSpec = serde_json::from_str(spec).expect("JSON");
            let timing = spec.schedule(name).expect("a schedule").timing;
            let view = ScheduleView {
                name: name.to_owned(),
                schedule: spec.words(),
                next_ms: Some(timing.next(quintet_types::Ms(wall)).0),
                ..ScheduleView::default()
            };
            ScheduleSeen {
                view,
                timing: Some(timing),
                ..ScheduleSeen::default()
            }
        };
        let all = [
            of("nightly", r#"{"cron": "30 2 * * *", "queue": "w"}"#),
            of("often", r#"{"every_ms": 60000, "queue": "w"}"#),
            of("twice", r#"{"cron": "5,45 2 * * *", "queue": "w"}"#),
            of("later", r#"{"cron": "30 2 1 1 *", "queue": "w"}"#),
        ];
        let (hours, often) = calendar(&all, wall);
        assert_eq!(often, ["often (every 1m)"]);
        assert_eq!(hours.len(), 1);
        assert_eq!(hours[0].hour, "02:00");
        let due = |at: &str, name: &str| (at.to_owned(), name.to_owned());
        assert_eq!(
            hours[0].due,
            [
                due("02:05", "twice"),
                due("02:30", "nightly"),
                due("02:45", "twice")
            ]
        );
    }
}
