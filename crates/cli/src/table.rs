//! Names, bodies and tables on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write, stdout};

use quintet_client::shown::plain;
use quintet_client::words::duration;
use quintet_types::Name;
use ratatui::text::Span;
use serde_json::Value;

/// The terminal's cells a text column keeps at least.
const TEXT_MIN: usize = 8;

/// The cells that the first column keeps while there are columns to leave out.
const FIRST_MIN: usize = 20;

/// Columns that a narrow terminal leaves out, the first one first.
const SPARE: &str = "bytes waiters in/s out/s since connections delayed buried reserved";

/// Columns that hold text also where all of it looks like numbers.
const TEXTS: [&str; 6] = ["name", "queue", "body", "user", "status", "error"];

/// A name, from the notation of the API: letters of UTF-8 as letters. The
/// command line takes it back as it is printed.
pub(super) fn named(raw: &str) -> String {
    plain(Name::of_shown(raw).as_bytes())
}

/// Text that cannot steer the terminal or mislead its reader.
pub(super) fn seen(text: &str) -> String {
    seen_bytes(text.as_bytes())
}

/// The same of bytes.
pub(super) fn seen_bytes(bytes: &[u8]) -> String {
    plain(bytes).replace("\\\\", "\\")
}

/// Cells of a terminal that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text in so many cells: `…` stands for what is left out, in front of the last `tail` cells.
pub(super) fn elide(text: &str, most: usize, tail: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let Some(room) = most.checked_sub(1) else {
        return String::new();
    };
    let fitting = |letters: &mut dyn Iterator<Item = char>, room: usize| {
        let mut left = room;
        let fits = |letter: &char| {
            let cells = width(letter.encode_utf8(&mut [0; 4]));
            let fits = cells <= left;
            left -= if fits { cells } else { 0 };
            fits
        };
        letters.take_while(fits).collect::<String>()
    };
    let end = fitting(&mut text.chars().rev(), tail.min(room));
    let start = fitting(&mut text.chars(), room - width(&end));
    let end: String = end.chars().rev().collect();
    format!("{start}\u{2026}{end}")
}

/// A text with spaces up to so many cells.
pub(super) fn pad(text: &str, cells: usize, right: bool) -> String {
    let spaces = " ".repeat(cells.saturating_sub(width(text)));
    match right {
        true => format!("{spaces}{text}"),
        false => format!("{text}{spaces}"),
    }
}

/// Prints a line: of JSON, or for people.
///
/// # Errors
/// Standard output takes no more.
pub(super) fn say(as_json: bool, json: impl Display, text: impl Display) -> anyhow::Result<()> {
    match as_json {
        true => writeln!(stdout(), "{json}")?,
        false => writeln!(stdout(), "{text}")?,
    }
    Ok(())
}

/// Prints a line of JSON for each of these, or a row of a table: columns are words, and `cell` has
/// the text of each.
///
/// # Errors
/// Standard output takes no more.
pub(super) fn print_list(
    all: &[Value],
    as_json: bool,
    columns: &str,
    cell: impl Fn(&Value, &str) -> String,
) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    if as_json {
        for value in all {
            writeln!(out, "{value}")?;
        }
        return Ok(());
    }
    let columns = || columns.split(' ');
    let mut rows: Vec<Vec<String>> = vec![columns().map(str::to_owned).collect()];
    let row = |one| {
        columns()
            .map(|column| cell(one, column))
            .collect::<Vec<_>>()
    };
    rows.extend(all.iter().map(row));
    table(&rows, &mut out)?;
    Ok(())
}

/// Prints rows in columns, the first row as their heads: numbers to the right, text to the left. On
/// a terminal that is too narrow columns are left out, then texts are elided; numbers never.
pub(super) fn table(rows: &[impl AsRef<[String]>], out: &mut dyn Write) -> std::io::Result<()> {
    table_with("", rows, out)
}

/// The same; the column with this head is not left out.
pub(super) fn table_with(
    kept: &str,
    rows: &[impl AsRef<[String]>],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    lay_out(rows, terminal_width(), kept, out)
}

/// Columns of the terminal that standard output is, if it is one.
fn terminal_width() -> Option<usize> {
    let size = stdout()
        .is_terminal()
        .then(ratatui::crossterm::terminal::size);
    size?.ok().map(|(columns, _)| usize::from(columns))
}

fn lay_out(
    rows: &[impl AsRef<[String]>],
    most: Option<usize>,
    kept: &str,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let rows: Vec<&[String]> = rows.iter().map(|row| row.as_ref()).collect();
    let all = 0..rows.first().map_or(0, |row| row.len());
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max();
    let mut widths: Vec<usize> = all.clone().map(|at| widest(at).unwrap_or(0)).collect();
    let right = |at: usize| at > 0 && is_of_numbers(&rows, at);
    let right: Vec<bool> = all.clone().map(right).collect();
    let most = most.unwrap_or(usize::MAX);
    let mut columns: Vec<usize> = all.collect();
    let wide = |cells: usize, columns: &[usize]| cells + 2 * columns.len().saturating_sub(1);
    let least = |at: &usize| match (right[*at], *at) {
        (true, _) => widths[*at],
        (false, 0) => widths[*at].min(FIRST_MIN),
        (false, _) => widths[*at].min(TEXT_MIN),
    };
    for head in SPARE.split(' ').filter(|head| *head != kept) {
        if wide(columns.iter().map(least).sum(), &columns) <= most {
            break;
        }
        columns.retain(|at| rows[0][*at] != head);
    }
    while wide(columns.iter().map(|at| widths[*at]).sum(), &columns) > most {
        let texts = columns.iter().copied();
        let texts = texts.filter(|at| !right[*at] && widths[*at] > TEXT_MIN);
        match texts.max_by_key(|at| widths[*at]) {
            Some(at) => widths[at] -= 1,
            None => break,
        }
    }
    for row in &rows {
        let mut line = String::new();
        for &at in &columns {
            let tail = if rows[0][at] == "body" {
                0
            } else {
                widths[at] / 3
            };
            let cell = elide(&row[at], widths[at], tail);
            line += if at > 0 { "  " } else { "" };
            line += &pad(&cell, widths[at], right[at]);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// True if all cells of a column below its head are numbers, with units or without, or dashes.
fn is_of_numbers(rows: &[&[String]], at: usize) -> bool {
    let Some((head, rows)) = rows.split_first() else {
        return false;
    };
    let number = |cell: &str| {
        let digits = |letter: char| letter.is_ascii_digit() || "<.,".contains(letter);
        let word = |word: &str| {
            let unit = word.trim_start_matches(digits);
            unit.len() <= 3
                && unit
                    .chars()
                    .all(|letter| letter.is_ascii_alphabetic() || letter == '%')
        };
        cell.starts_with(digits) && cell.split(' ').all(word)
    };
    let mut cells = rows.iter().map(|row| row[at].as_str());
    !TEXTS.contains(&head[at].as_str())
        && cells.all(|cell| matches!(cell, "" | "-") || number(cell))
}

/// How long something has waited, in its two largest units: `3d 4h`, `12s`.
pub(super) fn age(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}s", ms / 1000),
        _ => duration(ms),
    }
}

/// Messages each second: three digits or so, `-` where it is not known.
pub(super) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 0.1 => "<0.1".to_owned(),
        Some(rate) if rate < 100.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(rows: &[[&str; 4]], most: Option<usize>) -> Vec<String> {
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned)).collect();
        let mut out = Vec::new();
        lay_out(&rows, most, "", &mut out).expect("in memory");
        let text = String::from_utf8(out).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let rows = [
            ["name", "ready", "peer", "body"],
            ["a", "10435", "127.0.0.1:9", "7"],
            ["\u{6f22}\u{5b57}", "-", "x", "12"],
        ];
        let lines = [
            "name  ready  peer         body",
            "a     10435  127.0.0.1:9  7",
            "\u{6f22}\u{5b57}      -  x            12",
        ];
        assert_eq!(printed(&rows, None), lines);
    }

    #[test]
    fn a_narrow_terminal_elides_texts_and_never_numbers() {
        let name = "orders.europe.invoices.retry.12";
        let rows = [
            ["name", "ready", "oldest", "body"],
            [name, "1234567", "3d 4h", "{\"user\": 17, \"mail\": 1}"],
        ];
        for most in [36, 50] {
            let lines = printed(&rows, Some(most));
            assert!(width(&lines[1]) <= most, "{lines:?}");
            assert!(lines[1].contains("  1234567   3d 4h  "), "{lines:?}");
            assert!(lines[1].contains('\u{2026}'), "{lines:?}");
        }
        let lines = printed(&rows, Some(10));
        assert!(lines[1].contains("1234567"), "{lines:?}");
        assert_eq!(elide(name, 13, 4), "orders.e\u{2026}y.12");
        assert_eq!(
            elide("\u{6f22}\u{5b57}\u{6f22}\u{5b57}", 4, 0),
            "\u{6f22}\u{2026}"
        );
        assert_eq!(elide("abc", 0, 0), "");
    }

    #[test]
    fn a_narrow_terminal_leaves_columns_out_before_it_elides_the_name() {
        let heads = [
            "name", "ready", "oldest", "delayed", "reserved", "buried", "in/s", "out/s", "bytes",
            "waiters", "state",
        ];
        let row = [
            "europe.invoices.retry.of.customers.12",
            "10435",
            "1h 12m",
            "3",
            "12",
            "0",
            "1.2",
            "1.1",
            "1048576",
            "4",
            "paused",
        ];
        let rows = [heads, row].map(|row| row.map(str::to_owned));
        for (most, kept, left_out, name) in [
            (
                80,
                "",
                &["bytes", "waiters", "in/s"][..],
                "europe.invoices\u{2026}mers.12 ",
            ),
            (118, "", &[], row[0]),
            (80, "bytes", &["waiters", "in/s", "out/s"], "europe."),
        ] {
            let mut out = Vec::new();
            lay_out(&rows, Some(most), kept, &mut out).expect("in memory");
            let text = String::from_utf8(out).expect("text");
            let lines: Vec<&str> = text.lines().collect();
            let shown: Vec<&str> = lines[0].split_whitespace().collect();
            let expected = heads.iter().filter(|head| !left_out.contains(*head));
            assert_eq!(shown, expected.copied().collect::<Vec<_>>(), "{most}");
            assert!(lines.iter().all(|line| width(line) <= most), "{text}");
            assert!(lines[1].starts_with(name), "{text}");
        }
    }

    #[test]
    fn names_are_letters_and_read_back_and_nothing_steers_the_terminal() {
        for (raw, shown) in [
            ("\\xc3\\xa4", "\u{e4}"),
            ("a\\\\b\"'", "a\\\\b\"'"),
            ("\\x1b[2J", "\\x1b[2J"),
            ("\\xe2\\x80\\xaex", "\\xe2\\x80\\xaex"),
            ("\\xff", "\\xff"),
        ] {
            assert_eq!(named(raw), shown);
            assert_eq!(Name::of_shown(&named(raw)), Name::of_shown(raw));
        }
        assert_eq!(seen("{\"a\": \"\\n\"}"), "{\"a\": \"\\n\"}");
        assert_eq!(seen("\u{1b}[2J\u{202e}\r"), "\\x1b[2J\\xe2\\x80\\xae\\x0d");
    }

    #[test]
    fn ages_in_their_two_largest_units() {
        let day = 86_400_000;
        for (ms, text) in [
            (0, "0s"),
            (999, "0s"),
            (12_000, "12s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (3 * day + 4 * 3_600_000 + 59_000, "3d 4h"),
        ] {
            assert_eq!(age(ms), text);
        }
    }
}
