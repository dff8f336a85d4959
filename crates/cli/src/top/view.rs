//! The screens of `top` as text.

use quintet_client::words::count;
use quintet_types::Left;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, List, ListItem, Paragraph, Row, Table, TableState, Wrap};

use super::super::progress::count_of;
use super::super::table::{age, elide, named, pad, rate, width};
use super::screen::{Column, Page, Prompt, Screen};
use super::snapshot::{Finding, Findings, Queue, TREND};

/// Cells of a queue's name before columns are left out for it.
const NAME_MIN: usize = 16;

/// The mark behind the name of a paused queue.
const PAUSED: &str = " (paused)";

/// Findings above the queues.
const FINDINGS: usize = 5;

const KEYS: &str = "? help  Enter details  d dead letters  a attention  / filter  < > sort  p \
                    pause  r retry  x purge  f follow  c connections  q quit";
const KEYS_OF_QUEUE: &str = "Esc back  d dead letters  f follow  p pause  r retry  x purge  q quit";
const KEYS_BACK: &str = "Esc back  q quit";

const HELP: &str = "\
up, down    pick a queue; PageUp, PageDown, Home, End
Enter       details of the queue
d           its buried messages and dead letters, with their errors
f           its events as they happen
p           pauses it, or resumes it
r           retries failed messages: buried messages and dead letters
x           purges its waiting messages, after a confirmation
a           queues that need attention and why, the worst first
c           connections
/           filters by name
< >         the column to sort by; i inverts the order
Esc, q      back; quit

Red: messages are lost or work fails. Yellow: paused, or needs attention otherwise.
lost/s: dropped because the queue was full, or expired. failed/s: failed for good.
A narrow screen leaves columns out and shortens names; it never cuts numbers.";

pub(super) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    let parts = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, middle, foot] = Layout::vertical(parts).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let cells = usize::from(head.width);
    frame.render_widget(Line::styled(title(screen, cells), bold), head);
    match &screen.page {
        Page::Queues => {
            let most = FINDINGS.min(usize::from(middle.height) / 4);
            let lines = screen.findings().len().min(most);
            let lines = u16::try_from(lines).unwrap_or(0);
            let parts = [Constraint::Length(lines), Constraint::Min(0)];
            let [above, below] = Layout::vertical(parts).areas(middle);
            findings(screen, 0, frame, above);
            queues(screen, frame, below);
        }
        Page::Connections => connections(screen, frame, middle),
        Page::Attention => attention(screen, frame, middle),
        Page::Queue(_) => queue(screen, frame, middle),
        Page::Dead(_) => dead(screen, frame, middle),
        Page::Help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), middle),
        Page::Follow(_) => followed(screen, frame, middle),
    }
    let foot_text = fitting(footing(screen).split("  "), "  ", usize::from(foot.width));
    frame.render_widget(Paragraph::new(foot_text), foot);
}

/// As many of these parts as fit into so many cells, and the first in any case.
fn fitting<'a>(parts: impl IntoIterator<Item = &'a str>, between: &str, cells: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let longer = if text.is_empty() {
            elide(part, cells, 0)
        } else {
            format!("{text}{between}{part}")
        };
        if width(&longer) > cells {
            break;
        }
        text = longer;
    }
    text
}

/// The first line, in so many cells: what is shown, and sums.
pub(super) fn title(screen: &Screen, cells: usize) -> String {
    let sum = |of: fn(&Queue) -> u64| screen.snapshot.queues.iter().map(of).sum::<u64>();
    let speed = |of: fn(&Queue) -> Option<f64>| {
        let known = screen.snapshot.queues.iter().filter_map(of);
        rate(known.reduce(|sum, one| sum + one))
    };
    let text = match &screen.page {
        Page::Follow(queue) => format!("{}: events", named(queue)),
        Page::Queue(queue) => named(queue),
        Page::Dead(queue) => format!("{}: buried messages and dead letters", named(queue)),
        Page::Help => "Keys".to_owned(),
        Page::Attention => "Needs attention, the worst first".to_owned(),
        Page::Queues | Page::Connections => {
            let connections = screen.snapshot.connections.as_ref();
            let connections = connections.map_or_else(
                || "- connections".to_owned(),
                |all| count_of(all.len() as u64, "connection"),
            );
            let parts = [
                count_of(screen.snapshot.queues.len() as u64, "queue"),
                format!("{} ready", sum(|queue| queue.ready)),
                format!("{} reserved", sum(|queue| queue.reserved)),
                format!("{} buried", sum(|queue| queue.buried)),
                format!("{} in/s", speed(|queue| queue.into)),
                format!("{} out/s", speed(|queue| queue.out)),
                connections,
            ];
            return fitting(parts.iter().map(String::as_str), ", ", cells);
        }
    };
    elide(&text, cells, cells / 3)
}

fn footing(screen: &Screen) -> String {
    match &screen.prompt {
        Prompt::Filter(_) => format!("filter: {}_", screen.filter),
        Prompt::Purge(queue, messages) => {
            format!(
                "{} of {} will be purged. Continue? [y/N]",
                count_of(*messages, "message"),
                named(queue)
            )
        }
        Prompt::Nothing if !screen.says.is_empty() => screen.says.clone(),
        Prompt::Nothing => match screen.page {
            Page::Queues => KEYS.to_owned(),
            Page::Queue(_) | Page::Dead(_) => KEYS_OF_QUEUE.to_owned(),
            Page::Connections | Page::Attention | Page::Help | Page::Follow(_) => {
                KEYS_BACK.to_owned()
            }
        },
    }
}

/// A queue's cell.
pub(super) fn cell(queue: &Queue, column: Column) -> String {
    match column {
        Column::Name if queue.paused => format!("{}{PAUSED}", queue.shown),
        Column::Name => queue.shown.clone(),
        Column::Ready => queue.ready.to_string(),
        Column::Trend => trend(&queue.trend),
        Column::Oldest => age(queue.oldest_ms),
        Column::Delayed => queue.delayed.to_string(),
        Column::Reserved => queue.reserved.to_string(),
        Column::Buried => queue.buried.to_string(),
        Column::In => rate(queue.into),
        Column::Out => rate(queue.out),
        Column::Failed => rate(queue.left.map(|left| left.failed)),
        Column::Lost => rate(queue.lost()),
        Column::Waiters => queue.waiters.to_string(),
    }
}

/// Bars, the newest to the right and the most the highest.
fn trend(ready: &[u64]) -> String {
    const BARS: [char; 8] = [
        '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ];
    let most = u128::from(ready.iter().copied().max().unwrap_or(0).max(1));
    let bars = ready.iter().map(|&ready| {
        let height = u128::from(ready) * (BARS.len() as u128 - 1) / most;
        BARS[usize::try_from(height).unwrap_or(0)]
    });
    let bars: String = bars.collect();
    pad(&bars, TREND, true)
}

/// Columns beside the name that fit into so many cells, each with its width.
fn columns(screen: &Screen, rows: &[&Queue], cells: usize) -> Vec<(Column, usize)> {
    let wide = |column: Column| {
        let cells = rows.iter().map(|queue| width(&cell(queue, column)));
        cells.chain([column.name().len()]).max().unwrap_or(0)
    };
    let mut kept: Vec<_> = Column::ALL[1..]
        .iter()
        .map(|&column| (column, wide(column)))
        .collect();
    let name = wide(Column::Name).min(NAME_MIN);
    // What is sorted by goes last.
    let mut out = Column::LEFT_OUT.to_vec();
    out.sort_by_key(|column| *column == screen.sort);
    let mut out = out.into_iter();
    while name + kept.iter().map(|(_, wide)| wide + 2).sum::<usize>() > cells {
        let Some(column) = out.next() else { break };
        kept.retain(|(known, _)| *known != column);
    }
    kept
}

fn queues(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let rows = screen.rows();
    let picked = screen.at();
    // Only those in sight are drawn: there may be 100,000.
    let height = usize::from(area.height.saturating_sub(1));
    let first = picked.saturating_sub(height.saturating_sub(1));
    let shown: Vec<&Queue> = rows.iter().skip(first).take(height).copied().collect();
    let cells = usize::from(area.width);
    let columns = columns(screen, &shown, cells);
    let taken: usize = columns.iter().map(|(_, wide)| wide + 2).sum();
    let name = cells.saturating_sub(taken);
    let head = |column: Column, wide: usize| {
        let style = match column == screen.sort {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new(),
        };
        Cell::new(pad(column.name(), wide, column != Column::Name)).style(style)
    };
    let heads = columns.iter().map(|&(column, wide)| head(column, wide));
    let heads = std::iter::once(head(Column::Name, 0)).chain(heads);
    let lines = shown.iter().map(|queue| {
        let paused = if queue.paused { PAUSED } else { "" };
        let room = name.saturating_sub(paused.len());
        let text = elide(&queue.shown, room, room / 3) + paused;
        let numbers = columns
            .iter()
            .map(|&(column, wide)| pad(&cell(queue, column), wide, true));
        let cells = std::iter::once(text).chain(numbers);
        Row::new(cells).style(style(screen, queue))
    });
    let fixed = |cells: usize| Constraint::Length(u16::try_from(cells).unwrap_or(u16::MAX));
    let widths = std::iter::once(name).chain(columns.iter().map(|(_, wide)| *wide));
    let table = Table::new(lines, widths.map(fixed))
        .column_spacing(2)
        .header(Row::new(heads))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(picked - first));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Red and yellow for queues that need attention.
fn style(screen: &Screen, queue: &Queue) -> Style {
    match screen.finding(queue) {
        Some(finding) => of_finding(finding),
        None if queue.paused => Style::new().fg(Color::Yellow),
        None => Style::new(),
    }
}

fn of_finding(finding: &Finding) -> Style {
    Style::new().fg(match finding.alarm {
        true => Color::Red,
        false => Color::Yellow,
    })
}

/// A line of each finding from `first` on.
fn findings(screen: &Screen, first: usize, frame: &mut Frame<'_>, area: Rect) {
    let all = screen.findings();
    let more = screen.snapshot.findings.as_ref().map_or(0, |all| all.more);
    let shown = all.iter().skip(first).take(usize::from(area.height));
    let items = shown.enumerate().map(|(at, finding)| {
        let cells = usize::from(area.width);
        let left = (all.len() - first - at) as u64 + more;
        let text = match left > 1 && at + 1 == usize::from(area.height) {
            true => format!("{} more need attention: a", count(left)),
            false => finding.text.clone(),
        };
        ListItem::new(elide(&text, cells, 0)).style(of_finding(finding))
    });
    frame.render_widget(List::new(items), area);
}

fn attention(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let text = match &screen.snapshot.findings {
        None => "the server does not show it",
        Some(all) if all.listed.is_empty() => "nothing needs attention",
        Some(_) => "",
    };
    if !text.is_empty() {
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
        return;
    }
    let styles = screen.findings().iter().map(of_finding);
    let texts = screen.snapshot.findings.iter().flat_map(Findings::lines);
    let lines = texts.zip(styles.chain([Style::new()]));
    let lines: Vec<_> = lines
        .skip(screen.scrolled)
        .take(usize::from(area.height))
        .map(|(text, style)| Line::styled(text, style))
        .collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Draws the details of a queue.
fn queue(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let Some(queue) = screen.subject() else {
        frame.render_widget("the queue is gone", area);
        return;
    };
    let columns = [
        Column::Ready,
        Column::Trend,
        Column::Oldest,
        Column::Delayed,
        Column::Reserved,
        Column::Buried,
        Column::Waiters,
        Column::In,
        Column::Out,
    ];
    let of = |name: &str, value: String| Line::from(format!("{name:<12}  {}", value.trim_start()));
    let mut lines: Vec<Line<'_>> = Vec::new();
    if let Some(finding) = screen.finding(queue) {
        lines.push(Line::styled(finding.text.clone(), of_finding(finding)));
    }
    if !screen.why_slow.is_empty() {
        lines.push(of("why slow", screen.why_slow.clone()));
    }
    if queue.paused {
        lines.push(of("state", "paused".to_owned()));
    }
    lines.extend(columns.map(|column| of(column.name(), cell(queue, column))));
    let left = queue.left.map(|left| left.values());
    let names = Left::<f64>::NAMES.iter().enumerate();
    lines.extend(names.map(|(at, name)| {
        let known = left.map(|left| left[at]);
        of(&format!("  {name}/s"), rate(known))
    }));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn dead(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let Some(all) = &screen.dead else { return };
    if all.is_empty() {
        frame.render_widget("no buried messages and no dead letters", area);
        return;
    }
    let rows = all.iter().skip(screen.scrolled).cloned();
    let heads = ["id", "age", "attempts", "error", "body"];
    lines(heads, rows, frame, area);
}

/// Rows of which the last two cells are texts that share the room that numbers leave.
fn lines<const N: usize>(
    heads: [&'static str; N],
    rows: impl Iterator<Item = [String; N]>,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let rows: Vec<_> = rows
        .take(usize::from(area.height.saturating_sub(1)))
        .collect();
    let widths = (0..N).map(|at| {
        let cells = rows.iter().map(|row| width(&row[at]));
        let wide = cells.chain([heads[at].len()]).max().unwrap_or(0);
        match at + 2 < N {
            true => Constraint::Length(u16::try_from(wide).unwrap_or(u16::MAX)),
            false => Constraint::Fill(1),
        }
    });
    let widths: Vec<_> = widths.collect();
    let table = Table::new(rows.into_iter().map(Row::new), widths);
    let table = table.column_spacing(2).header(Row::new(heads));
    frame.render_widget(table, area);
}

fn connections(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let Some(all) = &screen.snapshot.connections else {
        frame.render_widget(
            "not permitted: the list of connections needs the right \"server\"",
            area,
        );
        return;
    };
    let rows = all.iter().skip(screen.scrolled).cloned();
    let heads = [
        "id", "protocol", "peer", "idle", "leases", "user", "waits on",
    ];
    lines(heads, rows, frame, area);
}

fn followed(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let lines = screen.lines.iter();
    let above = screen.lines.len().saturating_sub(usize::from(area.height));
    let items = lines.skip(above).map(|line| ListItem::new(line.as_str()));
    frame.render_widget(List::new(items), area);
}
