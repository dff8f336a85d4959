//! What an experiment found: tables, figures, curves.

use serde::Serialize;

use super::plot::Plot;
use crate::compare::page;
use crate::compare::results::Figure;

/// What a column counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Things.
    Count,
    /// Things a second.
    Rate,
    Bytes,
    Seconds,
    Microseconds,
    /// One thing divided by another.
    Ratio,
}

impl Unit {
    /// A value as people read it, with its unit where it has one.
    pub(crate) fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        match self {
            Unit::Count => short(value),
            Unit::Rate => short(value) + "/s",
            Unit::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Microseconds if value < 1e3 => format!("{value:.0} us"),
            Unit::Microseconds => format!("{:.2} ms", value / 1e3),
            Unit::Ratio => format!("{value:.2}"),
        }
    }
}

/// `1234567` as `1235 k`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

#[derive(Clone, Debug, Serialize)]
struct Column {
    name: &'static str,
    unit: Unit,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    /// One for each column.
    values: Vec<f64>,
}

/// Numbers in rows and columns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Table {
    /// One without rows.
    pub(crate) fn new(title: impl Into<String>, columns: &[(&'static str, Unit)]) -> Self {
        let columns = columns.iter().map(|&(name, unit)| Column { name, unit });
        Self {
            title: title.into(),
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a value for each column.
    pub(crate) fn row<const N: usize>(&mut self, name: impl Into<String>, values: [f64; N]) {
        debug_assert_eq!(N, self.columns.len());
        let (name, values) = (name.into(), values.into());
        self.rows.push(Row { name, values });
    }

    /// As markdown.
    fn markdown(&self) -> String {
        let mut text = format!("| {} |", self.title);
        for column in &self.columns {
            text += &format!(" {} |", column.name);
        }
        text += "\n|---|";
        text += &"---:|".repeat(self.columns.len());
        text += "\n";
        for row in &self.rows {
            text += &format!("| {} |", row.name);
            for (column, value) in self.columns.iter().zip(&row.values) {
                text += &format!(" {} |", column.unit.show(*value));
            }
            text += "\n";
        }
        text
    }
}

/// All of one experiment.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Found {
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) plots: Vec<Plot>,
}

impl Found {
    /// Tables and figures as markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            text += &table.markdown();
            text += "\n";
        }
        if !self.figures.is_empty() {
            text += &page::figures(&self.figures);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, Unit};

    #[test]
    fn values_for_people() {
        for (unit, value, text) in [
            (Unit::Count, 1234.0, "1234"),
            (Unit::Count, 30e6, "30.0 M"),
            (Unit::Rate, 123_456.0, "123 k/s"),
            (Unit::Bytes, 3.0 * 1048576.0, "3.0 MiB"),
            (Unit::Microseconds, 999.0, "999 us"),
            (Unit::Microseconds, 1500.0, "1.50 ms"),
            (Unit::Ratio, f64::NAN, "-"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }

    #[test]
    fn a_row_below_its_columns() {
        let mut table = Table::new("held", &[("rate", Unit::Rate), ("part", Unit::Ratio)]);
        table.row("10 M", [50_000.0, 0.5]);
        assert_eq!(
            table.markdown(),
            "| held | rate | part |\n|---|---:|---:|\n| 10 M | 50 k/s | 0.50 |\n"
        );
    }
}
