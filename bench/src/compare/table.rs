//! The contenders' results in a scenario.

use super::driver::{Contender, Sample, Scenario};
use crate::common::sheet::{self, Bound, Figure, Show};

/// The measure of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Rate,
    P99,
    Cpu,
    Resident,
}

impl Metric {
    /// In the unit that its title names.
    pub(crate) fn of(self, sample: &Sample) -> f64 {
        match self {
            Metric::Rate => sample.rate,
            Metric::P99 => sample.latency.p99_us / 1e3,
            Metric::Cpu => sample.cpu_us,
            Metric::Resident => sheet::mib(sample.resident as f64),
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Rate => "requests/s",
            Metric::P99 => "p99, ms",
            Metric::Cpu => "server CPU per request, us",
            Metric::Resident => "resident, MiB",
        }
    }

    /// How a value of it is shown.
    pub(crate) fn show(self) -> Show {
        match self {
            Metric::Rate => sheet::count,
            Metric::P99 | Metric::Cpu => sheet::fine,
            Metric::Resident => sheet::whole,
        }
    }
}

/// The samples of a scenario.
pub(crate) struct Table {
    pub(crate) scenario: Scenario,
    pub(crate) contenders: Vec<Contender>,
    /// For each contender one for each turn.
    pub(crate) samples: Vec<Vec<Sample>>,
}

impl Table {
    /// One of these samples.
    pub(crate) fn new(
        scenario: &Scenario,
        contenders: &[Contender],
        samples: Vec<Vec<Sample>>,
    ) -> Self {
        Self {
            scenario: scenario.clone(),
            contenders: contenders.to_vec(),
            samples,
        }
    }

    fn values(&self, metric: Metric, of: Contender) -> Option<impl Iterator<Item = f64>> {
        let at = self.contenders.iter().position(|c| c.name() == of.name())?;
        Some(self.samples[at].iter().map(move |sample| metric.of(sample)))
    }

    /// One contender's result as a part of the other's in the same turn. `None`: one of them is
    /// absent.
    pub(crate) fn ratio(
        &self,
        metric: Metric,
        ours: Contender,
        theirs: Contender,
        bound: Option<Bound>,
    ) -> Option<Figure> {
        let pairs = self.values(metric, ours)?.zip(self.values(metric, theirs)?);
        let ratios = pairs.map(|(ours, theirs)| ours / theirs);
        let name = &self.scenario.name;
        let what = format!("{name}: {} / {}", ours.name(), theirs.name());
        Some(Figure::new(what, ratios, bound))
    }

    /// One contender's result. `None`: it is absent.
    pub(crate) fn value(&self, metric: Metric, ours: Contender, bound: Bound) -> Option<Figure> {
        let name = &self.scenario.name;
        let what = format!("{name}: {}, {}", ours.name(), metric.title());
        Some(Figure::new(what, self.values(metric, ours)?, Some(bound)))
    }
}
