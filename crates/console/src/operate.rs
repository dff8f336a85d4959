//! Pages for those who operate the server: its settings, its hooks, its audit.

use std::time::Duration;

use askama::Template;
use quintet_client::{AuditLine, HookEvent, Setting, Source};

use super::frame::Frame;
use super::names::seen;
use super::{Answer, PageRequest, Posted, render, words};
use quintet_api::{Problem, blocking, in_a_line};

/// Lines of the audit on a page.
const LINES: usize = 500;

/// Memory of this page while it is made, bytes: 256 KiB of lines as they are, as they are shown, and
/// as HTML.
const LOG_BYTES: u64 = 1 << 20;

struct Table {
    /// As the file has it; empty: the top.
    name: String,
    rows: Vec<Value>,
}

struct Value {
    value: String,
    said: bool,
    setting: Setting,
}

impl Value {
    fn new(setting: Setting) -> Self {
        Self {
            value: seen(&setting.value),
            said: setting.source != Source::Default,
            setting,
        }
    }
}

#[derive(Template)]
#[template(path = "settings.html")]
struct Settings {
    frame: Frame,
    /// Only those that somebody said.
    said: bool,
    /// Their text.
    has: String,
    all_count: usize,
    said_count: usize,
    tables: Vec<Table>,
}

/// Shows `/settings`: the configuration in force, to operators only.
pub(crate) async fn settings(context: PageRequest) -> Answer {
    let query = context.query()?;
    let said = query.get("only") == Some("said");
    let has = query.get("has").unwrap_or_default().to_owned();
    let fits = |one: &Setting| {
        let has = has.to_lowercase();
        [&one.table, &one.key, &one.value, &one.help]
            .iter()
            .any(|text| text.to_lowercase().contains(&has))
    };
    let all = context.client_api().settings();
    let is_said = |setting: &Setting| setting.source != Source::Default;
    let (all_count, said_count) = (all.len(), all.iter().filter(|one| is_said(one)).count());
    let mut tables: Vec<Table> = Vec::new();
    for setting in all
        .into_iter()
        .filter(|one| (!said || is_said(one)) && fits(one))
    {
        let name = seen(&setting.table);
        let value = Value::new(setting);
        match tables.last_mut() {
            Some(table) if table.name == name => table.rows.push(value),
            _ => tables.push(Table {
                name,
                rows: vec![value],
            }),
        }
    }
    render(&Settings {
        frame: context.frame.of("Settings", "settings"),
        said,
        has,
        all_count,
        said_count,
        tables,
    })
}

/// How long a reload is waited for before the page says that it is still to come.
const RELOADED: Duration = Duration::from_secs(5);

/// `POST /settings/do/reload`.
pub(super) async fn reload(Posted(context, _): Posted) -> Answer {
    let came = context.console.api.reload(&context.requester);
    let note = match tokio::time::timeout(RELOADED, came).await {
        Ok(Err(_)) => return Err(Problem::stopping()),
        Ok(Ok(Err(why))) => format!("Not reloaded, nothing changed: {}", seen(&in_a_line(&why))),
        Ok(Ok(Ok(notes))) => {
            let says = "Configuration reloaded. Settings that need a restart keep their values.";
            let notes = notes.iter().map(|note| format!(" {}.", seen(note)));
            says.to_owned() + &notes.collect::<String>()
        }
        Err(_) => "The server still reads the configuration. Its log shows the result.".to_owned(),
    };
    context.redirect("settings", note)
}

struct Event {
    name: String,
    calls: String,
    errors: u64,
    mean: String,
    last_error: String,
}

impl Event {
    fn new(event: HookEvent) -> Self {
        let mean_ns = event.ns.checked_div(event.calls).unwrap_or(0);
        Self {
            name: event.name,
            calls: words::count(event.calls),
            errors: event.errors,
            mean: format!("{}.{} µs", mean_ns / 1000, mean_ns % 1000 / 100),
            last_error: event.last_error.as_deref().map(seen).unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "hooks.html")]
struct Hooks {
    frame: Frame,
    errors: u64,
    rows: Vec<Event>,
}

/// Shows `/hooks`: the events of the loaded hooks, their calls and their errors.
pub(super) async fn hooks(context: PageRequest) -> Answer {
    let mut events = context.client_api().hook_events();
    events.sort_by_key(|event| std::cmp::Reverse(event.errors));
    render(&Hooks {
        frame: context.frame.of("Hooks", "hooks"),
        errors: events.iter().map(|event| event.errors).sum(),
        rows: events.into_iter().map(Event::new).collect(),
    })
}

struct Line {
    moment: String,
    who: String,
    from: String,
    act: String,
    what: String,
    result: String,
    refused: bool,
}

impl Line {
    fn new(line: AuditLine) -> Self {
        let or = |text: &str, otherwise: &str| match text {
            "" => otherwise.to_owned(),
            text => seen(text),
        };
        Self {
            moment: words::moment(line.at_ms),
            who: or(&line.who, "the server"),
            from: or(&line.from, "this machine"),
            act: seen(&line.act),
            what: or(&line.what, words::NONE),
            // HTTP says how it answered.
            refused: line.result != "ok" && !line.result.starts_with(['2', '3']),
            result: seen(&line.result_text()),
        }
    }

    fn has(&self, text: &str) -> bool {
        let all = [&self.who, &self.from, &self.act, &self.what, &self.result];
        all.iter().any(|one| one.contains(text))
    }
}

#[derive(Template)]
#[template(path = "log.html")]
struct Log {
    frame: Frame,
    has: String,
    looked: usize,
    rows: Vec<Line>,
}

/// `/log`: the newest lines of the audit.
pub(super) async fn log(context: PageRequest) -> Answer {
    let has = context.query()?.get("has").unwrap_or_default().to_owned();
    let _room = context.console.api.room(LOG_BYTES)?;
    let client_api = context.client_api();
    let read = blocking(move || client_api.audit(LINES)).await?;
    let lines = read.map_err(|error| Problem::internal(format!("the audit: {error}")))?;
    let looked = lines.len();
    let rows = lines.into_iter().rev().map(Line::new);
    render(&Log {
        frame: context.frame.of("Log", "log"),
        rows: rows.filter(|line| line.has(&has)).collect(),
        has,
        looked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_file_is_shown_without_its_lines() {
        let why = "quintet.toml: TOML parse error at line 12, column 9\n   |\n12 | token = 'hush\n   \
                   |         ^\ninvalid basic string\n";
        assert_eq!(
            in_a_line(why),
            "quintet.toml: TOML parse error at line 12, column 9 invalid basic string"
        );
        assert_eq!(in_a_line("no such file | here"), "no such file | here");
    }

    #[test]
    fn what_was_done_to_many_messages_is_not_shown_as_refused() {
        let line = |result: &str| {
            let line = AuditLine {
                at_ms: 0,
                who: String::new(),
                from: String::new(),
                act: "flush".to_owned(),
                operation: "flush".to_owned(),
                what: "work".to_owned(),
                result: result.to_owned(),
                steps: 0,
                messages: Some(2),
                new_id: None,
            };
            let line = Line::new(line);
            (line.result, line.refused)
        };
        assert_eq!(line("ok"), ("ok, 2 messages".to_owned(), false));
        assert_eq!(line("403"), ("403, 2 messages".to_owned(), true));
    }
}
