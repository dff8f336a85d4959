//! The contenders' results in a scenario.

use anyhow::Result;

use super::contender::Contender;
use super::driver::{self, Effort, Sample};
use super::experiments::{Experiment, Metric, Scenario, Wanted};
use crate::common::peers::Ground;
use crate::common::sheet::{Figure, Spread};

/// The samples of a scenario.
pub(crate) struct Table {
    pub(crate) scenario: Scenario,
    pub(crate) contenders: Vec<Contender>,
    /// For each contender one for each turn.
    pub(crate) samples: Vec<Vec<Sample>>,
}

/// Measures the scenarios of an experiment; after so many turns all servers are started anew.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn measure(
    experiment: &Experiment,
    contenders: &[Contender],
    (turns, time): Effort,
    restart: usize,
    ground: &Ground,
) -> Result<Vec<Table>> {
    let table = |scenario: &Scenario| -> Result<Table> {
        let mut samples = vec![Vec::new(); contenders.len()];
        for begun in (0..turns).step_by(restart) {
            let effort = ((turns - begun).min(restart), time);
            let more = driver::alternate(contenders, scenario, effort, ground)?;
            for (samples, more) in samples.iter_mut().zip(more) {
                samples.extend(more);
            }
        }
        Ok(Table {
            scenario: scenario.clone(),
            contenders: contenders.to_vec(),
            samples,
        })
    };
    experiment.scenarios.iter().map(table).collect()
}

impl Table {
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
