//! `quintet top`.

mod screen;
mod snapshot;
mod view;

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quintet_types::CommandError;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::Where;
use super::api::{Api, part};
use super::client::Refused;
use super::progress::count_of;
use super::table::{age, named, table};
use super::tail;
use super::verbs::{Bulk, CONNECTIONS, PURGE, RETRY, duration, queue, shown};
use screen::{Act, Column, Key, Page, Screen};
use snapshot::{Connection, Dead, Findings, Queue, Snapshot, dead};

#[derive(clap::Args)]
#[command(after_help = "\
Keys: up and down select a queue, Enter shows its details, d its dead letters. a lists the queues
that need attention, with the reasons. < and > choose the column to sort by, i inverts the order, /
filters by name. p pauses and resumes, r retries failed messages (quintet retry), x purges after a
confirmation (quintet purge), f follows the events (quintet tail). c shows connections, ? the help;
Esc goes back, q quits.

in/s and out/s cover the time between two updates; at first, and with --once, the last minute.

Examples:
  quintet top
  quintet top --filter mail --every 5s
  quintet top --once | head")]
pub(super) struct Top {
    /// Time between two updates.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    every: u64,
    /// Only queues whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print the table once as plain text; the default for a pipe.
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(super) fn run(self, at: Where) -> Result<ExitCode> {
        let api = Api::connect(&at)?;
        let mut server = Server {
            api,
            // It was said once, and a screen has no place for it.
            at: Where {
                verbose: false,
                ..at
            },
            began: Instant::now(),
        };
        let mut screen = Screen::new(self.filter);
        screen.seen(server.snapshot()?);
        if self.once || !stdout().is_terminal() {
            return print(&screen);
        }
        let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
        let every = Duration::from_millis(self.every.max(100));
        let ended = watch(&mut terminal, &mut server, &mut screen, every);
        ratatui::restore();
        ended.map(|()| ExitCode::SUCCESS)
    }
}

/// The view of a single snapshot.
const PRINTED: [Column; 9] = [
    Column::Name,
    Column::Ready,
    Column::Oldest,
    Column::Delayed,
    Column::Reserved,
    Column::Buried,
    Column::In,
    Column::Out,
    Column::Waiters,
];

/// Dead letters of a queue that are shown.
const DEAD: usize = 200;

/// Slices of a queue in which they are looked for.
const SLICES: u32 = 10;

/// The queues as plain text.
fn print(screen: &Screen) -> Result<ExitCode> {
    let mut out = stdout().lock();
    writeln!(out, "{}", view::title(screen, usize::MAX))?;
    for line in screen.snapshot.findings.iter().flat_map(Findings::lines) {
        writeln!(out, "{line}")?;
    }
    let mut rows = vec![PRINTED.map(|column| column.name().to_owned())];
    let row = |queue: &Queue| PRINTED.map(|column| view::cell(queue, column));
    rows.extend(screen.rows().into_iter().map(row));
    table(&rows, &mut out)?;
    Ok(ExitCode::SUCCESS)
}

/// The way to the server, which is found again when it is gone.
struct Server {
    at: Where,
    api: Api,
    began: Instant,
}

impl Server {
    fn snapshot(&mut self) -> Result<Snapshot> {
        let queues = self.api.queues()?;
        let connections = match self.api.list(CONNECTIONS, "id") {
            Err(error) if Refused::is(&error, CommandError::NotPermitted) => None,
            response => Some(response?),
        };
        let at_ms = self.began.elapsed().as_millis();
        Ok(Snapshot {
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
            queues: queues.iter().map(Queue::of).collect(),
            connections: connections.map(|all| all.iter().map(connection).collect()),
            findings: findings(&mut self.api),
        })
    }

    /// Why messages of a queue wait; empty: nothing is known to hold them back.
    fn why_slow(&mut self, queue: &str) -> String {
        let response = self.api.get(&format!("/queues/{}", part(queue)));
        let response = response.unwrap_or_default();
        response["why_slow"].as_str().unwrap_or_default().to_owned()
    }

    /// The buried messages of a queue, and its dead letters.
    fn dead(&mut self, queue: &str) -> Result<Vec<Dead>> {
        let mut all = Vec::new();
        let queue = part(queue);
        for (state, only) in [("buried", false), ("ready", true)] {
            let path = format!("/queues/{queue}/messages?state={state}&dead={only}&max={DEAD}");
            // A slice may have looked at many and found none.
            let mut slices = 0;
            let each_page = |page: Value| {
                let messages = page["messages"].as_array().into_iter().flatten();
                all.extend(messages.map(dead));
                slices += 1;
                Ok(all.len() < DEAD && slices < SLICES)
            };
            self.api
                .each_page(("GET", &path), ("cursor", "cursor"), each_page)?;
        }
        Ok(all)
    }

    /// Does something to a queue; answers what was done. `goes_on` is asked between slices.
    fn act(&mut self, act: &Act, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<String> {
        match act {
            Act::Pause(queue) => self.post(queue, "pause", "paused"),
            Act::Resume(queue) => self.post(queue, "resume", "resumed"),
            Act::Retry(queue) => {
                let bulk = Bulk::of_all(queue, RETRY, "retried");
                self.in_slices(&bulk, u64::MAX, "retried", goes_on)
            }
            Act::Purge(queue, messages) => {
                let bulk = Bulk::of_all(queue, PURGE, "purged");
                self.in_slices(&bulk, *messages, "purged", goes_on)
            }
            Act::Nothing | Act::Quit | Act::Count(_) => Ok(String::new()),
        }
    }

    fn post(&mut self, queue: &str, act: &str, done: &str) -> Result<String> {
        let path = format!("/queues/{}/{act}", part(queue));
        self.api.ask("POST", &path, None)?;
        Ok(format!("{} {done}", named(queue)))
    }

    fn in_slices(
        &mut self,
        bulk: &Bulk<'_>,
        most: u64,
        done: &str,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String> {
        let mut messages = 0;
        let there = bulk.count(&mut self.api)?;
        let ended = bulk.act(&mut self.api, &there, most, |count| {
            messages += count;
            Ok(goes_on(messages))
        })?;
        let stopped = if ended { "" } else { "stopped: " };
        Ok(format!("{stopped}{} {done}", count_of(messages, "message")))
    }
}

/// Why queues need attention; `None`: the server does not say.
pub(super) fn findings(api: &mut Api) -> Option<Findings> {
    Findings::of(&api.get("/attention").ok()?)
}

fn connection(client: &Value) -> Connection {
    let number = |key: &str| client[key].as_u64().unwrap_or(0);
    let waits = client["waits_on"].as_array().into_iter().flatten();
    [
        number("id").to_string(),
        shown(&client["protocol"]),
        shown(&client["peer"]),
        age(number("idle_ms")),
        number("leases").to_string(),
        shown(&client["user"]),
        waits.map(queue).collect::<Vec<_>>().join(" "),
    ]
}

/// Shows, looks and obeys until it is to end.
fn watch(
    terminal: &mut DefaultTerminal,
    server: &mut Server,
    screen: &mut Screen,
    every: Duration,
) -> Result<()> {
    let mut next = Instant::now() + every;
    let mut followed = 0;
    loop {
        terminal.draw(|frame| view::draw(screen, frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            let Some(key) = key(&event::read()?) else {
                continue;
            };
            let page = screen.page.clone();
            match screen.key(key) {
                Act::Quit => return Ok(()),
                Act::Nothing => {}
                Act::Count(queue) => {
                    let bulk = Bulk::of_all(&queue, PURGE, "purged");
                    match bulk.count(&mut server.api) {
                        Ok(there) => screen.counted(queue.clone(), there.iter().sum()),
                        Err(error) => screen.says = format!("{error:#}"),
                    }
                }
                act @ (Act::Pause(_) | Act::Resume(_) | Act::Retry(_) | Act::Purge(..)) => {
                    obey(terminal, server, screen, &act)?
                }
            }
            if page != screen.page {
                followed = 0;
                // What it needs and is not known yet comes now.
                next = Instant::now();
            }
            continue;
        }
        next = Instant::now() + every;
        let seen = match screen.page.clone() {
            Page::Follow(queue) => tail::events(&server.at, &queue, &mut followed, "")
                .map(|events| screen.followed(events.iter().map(tail::line))),
            Page::Dead(queue) => server.dead(&queue).map(|dead| screen.dead = Some(dead)),
            Page::Queue(queue) => server.snapshot().map(|snapshot| {
                screen.seen(snapshot);
                screen.why_slow = server.why_slow(&queue);
            }),
            Page::Queues | Page::Connections | Page::Attention | Page::Help => {
                server.snapshot().map(|snapshot| screen.seen(snapshot))
            }
        };
        if let Err(error) = seen {
            screen.says = format!("{error:#}");
        }
    }
}

/// Does it, and says what was done. Esc stops it behind a slice.
fn obey(
    terminal: &mut DefaultTerminal,
    server: &mut Server,
    screen: &mut Screen,
    act: &Act,
) -> Result<()> {
    let done = server.act(act, &mut |messages| {
        screen.says = format!("{}; Esc stops", count_of(messages, "message"));
        let drawn = terminal.draw(|frame| view::draw(screen, frame)).is_ok();
        drawn && !is_stopped()
    });
    screen.says = done.unwrap_or_else(|error| format!("{error:#}"));
    if let Ok(snapshot) = server.snapshot() {
        screen.seen(snapshot);
    }
    Ok(())
}

fn is_stopped() -> bool {
    let waits = event::poll(Duration::ZERO).unwrap_or(false);
    waits
        && event::read()
            .is_ok_and(|input| matches!(key(&input), Some(Key::Escape | Key::Interrupt)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "others mean nothing here")]
fn key(input: &Input) -> Option<Key> {
    let Input::Key(key) = input else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
