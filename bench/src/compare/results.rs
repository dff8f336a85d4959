//! What an experiment found, and whether that is enough.

use serde::Serialize;

use super::driver::{Contender, Sample, Scenario};

/// One number of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Requests a second.
    Rate,
    /// 99th percentile of the latency, milliseconds.
    P99,
    /// Processor time of the server for each request, microseconds.
    Cpu,
    /// Memory of the server, MiB.
    Resident,
}

impl Metric {
    pub(crate) fn of(self, sample: &Sample) -> f64 {
        match self {
            Metric::Rate => sample.rate,
            Metric::P99 => sample.p99_us / 1e3,
            Metric::Cpu => sample.cpu_us,
            Metric::Resident => sample.resident as f64 / f64::from(1 << 20),
        }
    }

    /// What it is, with its unit.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Rate => "requests/s",
            Metric::P99 => "p99, ms",
            Metric::Cpu => "server CPU per request, us",
            Metric::Resident => "resident, MiB",
        }
    }

    /// A value with as many digits as it deserves.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Metric::Rate if value >= 10_000.0 => format!("{:.0} k", value / 1e3),
            Metric::Rate => format!("{value:.0}"),
            Metric::P99 | Metric::Cpu => format!("{value:.2}"),
            Metric::Resident => format!("{value:.0}"),
        }
    }
}

/// The middle of some values and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (values.first().copied(), values.last().copied());
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) && middle > 0 {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values.get(middle).copied().unwrap_or(f64::NAN)
        };
        Self {
            median,
            least: least.unwrap_or(f64::NAN),
            most: most.unwrap_or(f64::NAN),
        }
    }
}

/// Between which of `values` the median of all there could have been lies, with
/// a probability of 95 % at least. `None` of fewer than six: they cannot tell.
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

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    pub(crate) fn show(self) -> String {
        match self {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

/// A number that says how good we are: a ratio of what two contenders did in
/// the same turn, or what one did.
#[derive(Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) value: Spread,
    pub(crate) bound: Option<Bound>,
    /// The median keeps to the bound.
    pub(crate) reached: Option<bool>,
}

impl Figure {
    /// A figure of the values of each turn.
    pub(crate) fn new(what: String, values: Vec<f64>, bound: Option<Bound>) -> Self {
        let value = Spread::of(values);
        let reached = bound.map(|bound| bound.holds(value.median));
        Self {
            what,
            value,
            bound,
            reached,
        }
    }
}

/// All samples of one scenario.
pub(crate) struct Table {
    pub(crate) scenario: Scenario,
    pub(crate) contenders: Vec<Contender>,
    /// By contender, then by turn.
    pub(crate) samples: Vec<Vec<Sample>>,
}

impl Table {
    /// The samples of the contender named so.
    fn samples(&self, name: &str) -> Option<&[Sample]> {
        let at = self.contenders.iter().position(|c| c.name() == name)?;
        Some(&self.samples[at])
    }

    /// How `ours` compares with `theirs`, turn by turn; `None` if either was
    /// not there.
    pub(crate) fn ratio(
        &self,
        metric: Metric,
        ours: Contender,
        theirs: Contender,
        bound: Option<Bound>,
    ) -> Option<Figure> {
        let (ours, theirs) = (ours.name(), theirs.name());
        let pairs = self.samples(&ours)?.iter().zip(self.samples(&theirs)?);
        let values = pairs.map(|(ours, theirs)| metric.of(ours) / metric.of(theirs));
        let what = format!("{}: {ours} / {theirs}", self.scenario.name);
        Some(Figure::new(what, values.collect(), bound))
    }

    /// What `ours` did; `None` if it was not there.
    pub(crate) fn value(&self, metric: Metric, ours: Contender, bound: Bound) -> Option<Figure> {
        let ours = ours.name();
        let values = self.samples(&ours)?.iter().map(|sample| metric.of(sample));
        let what = format!("{}: {ours}, {}", self.scenario.name, metric.title());
        Some(Figure::new(what, values.collect(), Some(bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Figure, Spread, median_range};

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        for (values, median, least, most) in [
            (&[3.0, 1.0, 2.0][..], 2.0, 1.0, 3.0),
            (&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0),
            (&[7.0], 7.0, 7.0, 7.0),
        ] {
            let found = spread(values);
            assert_eq!(
                (found.median, found.least, found.most),
                (median, least, most)
            );
        }
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
        let figure = |bound| Figure::new(String::new(), vec![0.5, 1.0, 9.0], Some(bound));
        assert_eq!(figure(Bound::AtLeast(1.0)).reached, Some(true));
        assert_eq!(figure(Bound::AtLeast(1.1)).reached, Some(false));
        assert_eq!(figure(Bound::AtMost(1.0)).reached, Some(true));
        assert_eq!(figure(Bound::AtMost(0.9)).reached, Some(false));
    }
}
