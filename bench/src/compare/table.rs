//! The contenders' results in a scenario.

use super::contender::Contender;
use super::driver::Sample;
use super::experiments::{Metric, Scenario, Wanted};
use crate::common::sheet::{Figure, Spread};

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

    /// Results of a contender, one for each turn.
    pub(crate) fn values(&self, metric: Metric, at: usize) -> impl Iterator<Item = f64> {
        self.samples[at].iter().map(move |sample| sample.of(metric))
    }

    /// The median of a contender's results.
    pub(crate) fn median(&self, metric: Metric, at: usize) -> f64 {
        Spread::of(self.values(metric, at)).median
    }

    /// A figure, of this measure unless it has one. `None`: a contender is absent.
    pub(crate) fn figure(&self, wanted: &Wanted, metric: Metric) -> Option<Figure> {
        let metric = wanted.metric.unwrap_or(metric);
        let position = |key: &str| self.contenders.iter().position(|one| one.key == key);
        let of = position(&wanted.of)?;
        let what = format!("{}: {}", self.scenario.name, self.contenders[of].name());
        let values = self.values(metric, of);
        Some(match &wanted.to {
            Some(to) => {
                let to = position(to)?;
                let what = format!("{what} / {}", self.contenders[to].name());
                let pairs = values.zip(self.values(metric, to));
                Figure::new(
                    what,
                    pairs.map(|(ours, theirs)| ours / theirs),
                    wanted.bound,
                )
            }
            None => {
                let (title, _) = metric.shown();
                Figure::new(format!("{what}, {title}"), values, wanted.bound)
            }
        })
    }
}
