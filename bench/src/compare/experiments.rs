//! The comparisons and the wanted figures, as `bench/compare.toml` describes them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use quintet_bench::Mix;
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use crate::common::Named;
use crate::common::sheet::{self, Bound, Show};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: BTreeMap<String, Contender>,
    experiment: Vec<Experiment>,
}

/// The measure of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    Rate,
    P99,
    Cpu,
    Resident,
}

impl Metric {
    /// For people, and how a value of it is shown.
    pub(crate) fn shown(self) -> (&'static str, Show) {
        match self {
            Metric::Rate => ("requests/s", sheet::count),
            Metric::P99 => ("p99, ms", sheet::fine),
            Metric::Cpu => ("server CPU per request, us", sheet::fine),
            Metric::Resident => ("resident, MiB", sheet::whole),
        }
    }
}

/// Contenders, scenarios, and what comes out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    name: String,
    title: String,
    /// The measure of the table, and of figures without one.
    pub(crate) metric: Metric,
    servers: Vec<String>,
    /// The servers.
    #[serde(skip)]
    pub(crate) contenders: Vec<Contender>,
    pub(crate) scenarios: Vec<Scenario>,
    /// Figures of scenarios that have none of their own.
    #[serde(default)]
    figures: Vec<Wanted>,
}

/// The work.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) size: usize,
    /// Takes alone find what was put, uncounted, before each of their turns.
    #[serde(default = "both")]
    pub(crate) mix: Mix,
    /// Requests a second; none: closed loop.
    pub(crate) rate: Option<f64>,
    #[serde(default, skip_serializing)]
    figures: Vec<Wanted>,
}

fn both() -> Mix {
    Mix::BOTH
}

/// A figure: one contender's result, or as a part of another's in the same turn.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    pub(crate) of: String,
    pub(crate) to: Option<String>,
    pub(crate) metric: Option<Metric>,
    pub(crate) bound: Option<Bound>,
}

impl Experiment {
    /// On the command line, and of its files.
    pub(crate) fn named(&self) -> Named<'_> {
        (self.name.as_str(), self.title.as_str())
    }

    /// The figures of a scenario.
    pub(crate) fn figures<'a>(&'a self, scenario: &'a Scenario) -> &'a [Wanted] {
        match scenario.figures.is_empty() {
            true => &self.figures,
            false => &scenario.figures,
        }
    }
}

/// All there are, in the order they are run.
///
/// # Errors
/// The file is wrong.
pub(crate) fn all() -> Result<Vec<Experiment>> {
    let file: File = toml::from_str(include_str!("../../compare.toml")).context("compare.toml")?;
    let mut all = file.experiment;
    for experiment in &mut all {
        let contender = |key: &String| -> Result<Contender> {
            let server = file.server.get(key);
            let server = server.with_context(|| format!("compare.toml has no server {key}"))?;
            let (key, server) = (key.clone(), server.clone());
            Ok(Contender { key, ..server })
        };
        let contenders = experiment.servers.iter().map(contender);
        experiment.contenders = contenders.collect::<Result<_>>()?;
    }
    Ok(all)
}
