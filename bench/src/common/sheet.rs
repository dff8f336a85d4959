//! Results of an experiment, and their judgement: numbers in rows and columns, and figures.

pub(crate) use quintet_bench::micros as us;
use serde::{Deserialize, Serialize};

/// How people read a number.
pub(crate) type Show = fn(f64) -> String;

/// Things, or things a second: `1234567` as `1235 k`.
pub(crate) fn count(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v => whole(v),
    }
}

/// Without decimals.
pub(crate) fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// With two decimals.
pub(crate) fn fine(value: f64) -> String {
    format!("{value:.2}")
}

pub(crate) fn bytes(value: f64) -> String {
    format!("{:.1} MiB", mib(value))
}

/// Bytes as MiB.
pub(crate) fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// A figure over all turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of these values; not numbers if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self {
            median: (at(last / 2) + at(last.div_ceil(2))) / 2.0,
            least: at(0),
            most: at(last),
        }
    }

    /// The median with the least and the most.
    pub(crate) fn show(self, show: Show) -> String {
        let Self {
            median,
            least,
            most,
        } = self;
        format!("{} ({} to {})", show(median), show(least), show(most))
    }
}

/// Between which of the values, sorted, the median of all there could be lies
/// in 95 of 100 cases. `None` for fewer than six.
pub(crate) fn median_range(values: &[f64]) -> Option<(f64, f64)> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // Each lies below it as likely as not: how many do is binomial. This is the
    // probability that it is exactly `below`, and that it is as many at most.
    let mut exactly = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut at_most, mut low) = (exactly, None);
    for below in 0..count / 2 {
        if at_most > 0.025 {
            break;
        }
        low = Some(below);
        exactly *= (count - below) as f64 / (below + 1) as f64;
        at_most += exactly;
    }
    let low = low?;
    Some((values[low], values[count - 1 - low]))
}

/// Wanted range of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// One number that says something.
#[derive(Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) value: Spread,
    pub(crate) bound: Option<Bound>,
    /// The median holds the bound.
    pub(crate) reached: Option<bool>,
}

impl Figure {
    /// Of a value for each turn.
    pub(crate) fn new(
        what: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
        bound: impl Into<Option<Bound>>,
    ) -> Self {
        let bound = bound.into();
        let value = Spread::of(values);
        let reached = bound.map(|bound| match bound {
            Bound::AtLeast(bound) => value.median >= bound,
            Bound::AtMost(bound) => value.median <= bound,
        });
        let what = what.into();
        Self {
            what,
            value,
            bound,
            reached,
        }
    }
}

/// Figures with what they should be, as markdown.
pub(crate) fn figures<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> String {
    let mut rows = Vec::new();
    for figure in figures {
        let wanted = match figure.bound {
            Some(Bound::AtLeast(bound)) => format!("at least {bound}"),
            Some(Bound::AtMost(bound)) => format!("at most {bound}"),
            None => "-".to_owned(),
        };
        let reached = match figure.reached {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "-",
        };
        let cells = vec![figure.value.show(fine), wanted, reached.to_owned()];
        rows.push((figure.what.clone(), cells));
    }
    markdown("figure", ["measured", "wanted", "reached"], &rows)
}

/// A table.
pub(crate) fn markdown<'a>(
    title: &str,
    columns: impl IntoIterator<Item = &'a str>,
    rows: &[(String, Vec<String>)],
) -> String {
    let columns: Vec<&str> = columns.into_iter().collect();
    let mut text = format!(
        "| {title} | {} |\n|---|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    for (name, cells) in rows {
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text
}

/// Numbers in rows and columns.
#[derive(Clone, Serialize)]
pub(crate) struct Sheet {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
    #[serde(skip)]
    shows: Vec<Show>,
}

impl Sheet {
    /// One without rows.
    pub(crate) fn new<S: Into<String>>(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = (S, Show)>,
    ) -> Self {
        let column = |(name, show): (S, Show)| -> (String, Show) { (name.into(), show) };
        let (columns, shows) = columns.into_iter().map(column).unzip();
        let (title, rows) = (title.into(), Vec::new());
        Self {
            title,
            columns,
            rows,
            shows,
        }
    }

    /// Adds a row with a value for each column.
    pub(crate) fn row(&mut self, name: impl Into<String>, values: impl Into<Vec<f64>>) {
        let values = values.into();
        debug_assert_eq!(values.len(), self.columns.len());
        self.rows.push((name.into(), values));
    }

    pub(crate) fn markdown(&self) -> String {
        let cells = |values: &Vec<f64>| {
            let pairs = values.iter().zip(&self.shows);
            let cell = |(value, show): (&f64, &Show)| match value.is_finite() {
                true => show(*value),
                false => "-".to_owned(),
            };
            pairs.map(cell).collect()
        };
        let rows = self
            .rows
            .iter()
            .map(|(name, values)| (name.clone(), cells(values)));
        let rows: Vec<_> = rows.collect();
        markdown(&self.title, self.columns.iter().map(String::as_str), &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        for (values, median, least, most) in [
            (&[3.0, 1.0, 2.0][..], 2.0, 1.0, 3.0),
            (&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0),
            (&[7.0, 9.0], 8.0, 7.0, 9.0),
            (&[7.0], 7.0, 7.0, 7.0),
        ] {
            let found = spread(values);
            assert_eq!(
                (found.median, found.least, found.most),
                (median, least, most)
            );
        }
        assert!(spread(&[]).median.is_nan());
    }

    #[test]
    fn the_more_values_the_closer_the_median() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(median_range(&values), Some((40.0, 61.0)));
        assert_eq!(median_range(&values[..25]), Some((8.0, 18.0)));
        assert_eq!(median_range(&values[..9]), Some((2.0, 8.0)));
        assert_eq!(median_range(&values[..6]), Some((1.0, 6.0)));
        for few in 0..6 {
            assert_eq!(median_range(&values[..few]), None);
        }
    }

    #[test]
    fn the_median_decides() {
        let figure = |bound| Figure::new("x", [0.5, 1.0, 9.0], bound);
        assert_eq!(figure(Bound::AtLeast(1.0)).reached, Some(true));
        assert_eq!(figure(Bound::AtLeast(1.1)).reached, Some(false));
        assert_eq!(figure(Bound::AtMost(1.0)).reached, Some(true));
        let missed = figure(Bound::AtMost(0.9));
        assert_eq!(
            figures(&[missed]),
            "| figure | measured | wanted | reached |\n|---|---|---|---|\n\
             | x | 1.00 (0.50 to 9.00) | at most 0.9 | **no** |\n"
        );
    }

    #[test]
    fn values_for_people() {
        let shows: [(Show, f64, &str); 6] = [
            (count, 1234.0, "1234"),
            (count, 123_456.0, "123 k"),
            (count, 30e6, "30.0 M"),
            (bytes, 3.0 * 1048576.0, "3.0 MiB"),
            (us, 999.0, "999 us"),
            (us, 1500.0, "1.50 ms"),
        ];
        for (show, value, text) in shows {
            assert_eq!(show(value), text);
        }
        let columns: [(&str, Show); 2] = [("rate", count), ("part", fine)];
        let mut sheet = Sheet::new("held", columns);
        sheet.row("10 M", [50_000.0, f64::NAN]);
        assert_eq!(
            sheet.markdown(),
            "| held | rate | part |\n|---|---|---|\n| 10 M | 50 k | - |\n"
        );
    }
}
