//! Two binaries of Quintet, in alternation, and what the new one does of what
//! the other does.

use anyhow::Result;

use super::contender::Contender;
use super::driver::Effort;
use super::experiments::{Experiment, Metric};
use super::table::{self, Table};
use crate::common::peers::Ground;
use crate::common::sheet::{self, Spread, median_range};

/// Turns with the same processes. How a process happens to lie in memory makes
/// a difference that lasts as long as it does, so they are started anew.
const TURNS_OF_A_PROCESS: usize = 5;

/// Runs the experiment with both binaries in place of Quintet and its peers,
/// and prints the ratios.
///
/// # Errors
/// A server or a load fails.
pub(crate) fn run(experiment: &Experiment, effort: Effort, ground: &Ground) -> Result<()> {
    let active = experiment.scenarios.iter().map(|work| work.connections);
    let room = quintet_bench::connections_max()
        .map(|most| most.saturating_sub(active.max().unwrap_or_default()));
    let contenders = pairs(&experiment.contenders, room);
    let tables = table::measure(experiment, &contenders, effort, TURNS_OF_A_PROCESS, ground)?;
    println!("{}", report(&tables, experiment.metric));
    Ok(())
}

/// Each contender that is Quintet, and behind it the same of the other binary.
/// All their idle connections are open at once: if there is `room` for fewer,
/// they share it, and their names tell.
fn pairs(contenders: &[Contender], room: Option<usize>) -> Vec<Contender> {
    let pair = |ours: &Contender| Some([ours.clone(), ours.against()?]);
    let mut pairs: Vec<Contender> = contenders.iter().filter_map(pair).flatten().collect();
    let crowded = pairs.iter().filter(|contender| contender.idle > 0).count();
    let each = room.map_or(usize::MAX, |room| room / crowded.max(1));
    for contender in &mut pairs {
        contender.idle = contender.idle.min(each);
    }
    pairs
}

/// A row for each number of each pair: the ratios of what both did in the same
/// turn.
fn report(tables: &[Table], metric: Metric) -> String {
    let mut rows = Vec::new();
    let mut metrics = vec![metric, Metric::Cpu, Metric::Resident];
    metrics.dedup();
    for table in tables {
        for (at, ours) in table.contenders.iter().enumerate().step_by(2) {
            for &metric in &metrics {
                let pairs = table.values(metric, at).zip(table.values(metric, at + 1));
                let ratios: Vec<f64> = pairs.map(|(new, old)| new / old).collect();
                let spread = Spread::of(ratios.iter().copied());
                let range = median_range(&ratios).map_or("-".to_owned(), |(low, high)| {
                    format!("{low:.3} to {high:.3}")
                });
                let (title, show) = metric.shown();
                let what = format!("{}: {}, {title}", table.scenario.name, ours.name());
                let cells = vec![
                    format!("{:.3}", spread.median),
                    range,
                    format!("{:.3} to {:.3}", spread.least, spread.most),
                    show(table.median(metric, at)),
                    show(table.median(metric, at + 1)),
                ];
                rows.push((what, cells));
            }
        }
    }
    let columns = [
        "median",
        "95 % that it lies in",
        "least to most",
        "new",
        "old",
    ];
    sheet::markdown("new / old", columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::contender::Contender;
    use super::super::driver::Sample;
    use super::super::experiments::{self, Metric};
    use super::super::table::Table;
    use super::{pairs, report};
    use quintet_bench::Latency;

    /// Quintet, without anything beside it.
    fn alone() -> Contender {
        experiments::all().unwrap()[0].contenders[0].clone()
    }

    fn sample(rate: f64, cpu_us: f64) -> Sample {
        Sample {
            rate,
            latency: Latency::default(),
            cpu_us,
            resident: 1 << 20,
            background_rate: 0.0,
        }
    }

    #[test]
    fn every_experiment_has_pairs_of_quintets_only() {
        for experiment in experiments::all().unwrap() {
            let (name, _) = experiment.named();
            let pairs = pairs(&experiment.contenders, None);
            assert!(pairs.len() >= 2, "{name}");
            for pair in pairs.chunks(2) {
                let [new, old] = pair else {
                    panic!("{name}: half a pair");
                };
                assert_eq!(new.against().unwrap().name(), old.name());
                assert!(old.against().is_none());
                assert_eq!(new.protocol, old.protocol);
                assert_eq!((new.idle, new.background), (old.idle, old.background));
                assert_ne!(new.name(), old.name());
            }
        }
    }

    #[test]
    fn idle_connections_share_the_room_there_is() {
        let crowded = Contender {
            idle: 10_000,
            ..alone()
        };
        let both = [alone(), crowded];
        let idle = |room| -> Vec<usize> {
            let pairs = pairs(&both, room);
            pairs.iter().map(|contender| contender.idle).collect()
        };
        assert_eq!(idle(None), [0, 0, 10_000, 10_000]);
        assert_eq!(idle(Some(30_000)), [0, 0, 10_000, 10_000]);
        assert_eq!(idle(Some(19_000)), [0, 0, 9_500, 9_500]);
    }

    #[test]
    fn ratios_are_of_the_same_turn() {
        let mut small = experiments::all().unwrap().swap_remove(0);
        let memcached = small.contenders.swap_remove(2);
        let table = Table {
            scenario: small.scenarios.swap_remove(0),
            contenders: pairs(&[alone(), memcached], None),
            samples: vec![
                vec![sample(110.0, 3.0), sample(90.0, 3.0), sample(50.0, 3.0)],
                vec![sample(100.0, 2.0), sample(100.0, 2.0), sample(50.0, 2.0)],
            ],
        };
        let text = report(&[table], Metric::Rate);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 50 connections: Quintet, sync 50ms, requests/s | 1.000 | - | 0.900 to 1.100 | 90 | 100 |",
                "| 50 connections: Quintet, sync 50ms, server CPU per request, us | 1.500 | - | 1.500 to 1.500 | 3.00 | 2.00 |",
                "| 50 connections: Quintet, sync 50ms, resident, MiB | 1.000 | - | 1.000 to 1.000 | 1 | 1 |",
            ]
        );
        assert_eq!(report(&[], Metric::Cpu).lines().count(), 2);
    }
}
