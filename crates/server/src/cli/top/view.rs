//! How `top` looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, List, ListItem, Paragraph, Row, Table, TableState};

use super::super::show::{age, rate};
use super::look::{Connection, Queue};
use super::screen::{Asks, Column, Page, Screen};

const KEYS: &str = "< > sort  i invert  / filter  p pause  r retry  x purge  f follow  \
                    c connections  q quit";
const KEYS_BACK: &str = "Esc back  q quit";

/// Draws all of it.
pub(super) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    let parts = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, middle, foot] = Layout::vertical(parts).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(title(screen), bold), head);
    match &screen.page {
        Page::Queues => queues(screen, frame, middle),
        Page::Connections => connections(screen, frame, middle),
        Page::Follow(_) => followed(screen, frame, middle),
    }
    frame.render_widget(Paragraph::new(footing(screen)), foot);
}

/// The first line: what is shown, and sums.
pub(super) fn title(screen: &Screen) -> String {
    let sum = |of: fn(&Queue) -> u64| screen.look.queues.iter().map(of).sum::<u64>();
    let speed = |of: fn(&Queue) -> Option<f64>| {
        let known = screen.look.queues.iter().filter_map(of);
        rate(Some(known.sum::<f64>()))
    };
    match &screen.page {
        Page::Follow(queue) => format!("{queue}: what comes and goes"),
        Page::Queues | Page::Connections => {
            let connections = screen.look.connections.as_ref();
            let connections =
                connections.map_or_else(|| "-".to_owned(), |all| all.len().to_string());
            format!(
                "{} queues, {} ready, {} reserved, {} buried, {} in/s, {} out/s, {connections} connections",
                screen.look.queues.len(),
                sum(|queue| queue.ready),
                sum(|queue| queue.reserved),
                sum(|queue| queue.buried),
                speed(|queue| queue.into),
                speed(|queue| queue.out),
            )
        }
    }
}

fn footing(screen: &Screen) -> String {
    match &screen.asks {
        Asks::Filter(_) => format!("filter: {}_", screen.filter),
        Asks::Purge(queue, messages) => {
            format!("{messages} messages of {queue} will be purged. Go on? [y/N]")
        }
        Asks::Nothing if !screen.says.is_empty() => screen.says.clone(),
        Asks::Nothing => match screen.page {
            Page::Queues => KEYS.to_owned(),
            Page::Connections | Page::Follow(_) => KEYS_BACK.to_owned(),
        },
    }
}

/// A queue's cells, in the order of [`Column::ALL`].
pub(super) fn cells(queue: &Queue) -> [String; 9] {
    Column::ALL.map(|column| match column {
        Column::Name if queue.paused => format!("{} (paused)", queue.name),
        Column::Name => queue.name.clone(),
        Column::Ready => queue.ready.to_string(),
        Column::Oldest => age(queue.oldest_ms),
        Column::Delayed => queue.delayed.to_string(),
        Column::Reserved => queue.reserved.to_string(),
        Column::Buried => queue.buried.to_string(),
        Column::In => rate(queue.into),
        Column::Out => rate(queue.out),
        Column::Waiters => queue.waiters.to_string(),
    })
}

fn queues(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let sorted = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let head = Column::ALL.map(|column| {
        let text = format!("{:>9}", column.name());
        let text = if column == Column::Name {
            column.name().to_owned()
        } else {
            text
        };
        let style = if column == screen.sort {
            sorted
        } else {
            Style::new()
        };
        Cell::new(text).style(style)
    });
    let rows = screen.rows();
    let picked = screen.at();
    // Only those in sight are drawn: there may be 100,000.
    let height = usize::from(area.height.saturating_sub(1));
    let first = picked.saturating_sub(height.saturating_sub(1));
    let shown = rows.iter().skip(first).take(height).map(|queue| {
        let mut cells = cells(queue);
        for cell in &mut cells[1..] {
            *cell = format!("{cell:>9}");
        }
        let style = match () {
            () if queue.paused => Style::new().fg(Color::Yellow),
            () if queue.buried > 0 => Style::new().fg(Color::Red),
            () => Style::new(),
        };
        Row::new(cells).style(style)
    });
    let mut widths = vec![Constraint::Min(12)];
    widths.extend([Constraint::Length(9); 8]);
    let table = Table::new(shown, widths)
        .header(Row::new(head))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(picked - first));
    frame.render_stateful_widget(table, area, &mut state);
}

fn connections(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let Some(all) = &screen.look.connections else {
        frame.render_widget(
            "not permitted: connections are for who may steer the server",
            area,
        );
        return;
    };
    let head = ["id", "voice", "peer", "user", "idle", "leases", "waits on"];
    let height = usize::from(area.height.saturating_sub(1));
    let rows = all.iter().skip(screen.scrolled).take(height).map(row);
    let widths = [
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(24),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Min(8),
    ];
    let table = Table::new(rows, widths).header(Row::new(head));
    frame.render_widget(table, area);
}

fn row(connection: &Connection) -> Row<'static> {
    let Connection {
        id,
        voice,
        peer,
        user,
        idle_ms,
        leases,
        waits_on,
    } = connection.clone();
    let (id, idle, leases) = (id.to_string(), age(idle_ms), leases.to_string());
    Row::new([id, voice, peer, user, idle, leases, waits_on])
}

fn followed(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let lines = screen.lines.iter();
    let above = screen.lines.len().saturating_sub(usize::from(area.height));
    let items = lines.skip(above).map(|line| ListItem::new(line.as_str()));
    frame.render_widget(List::new(items), area);
}
