//! The comparisons, and the wanted figures (DESIGN section 15).

use quintet_bench::Mix;

use super::driver::{Contender, Scenario};
use super::table::{Metric, Table};
use crate::common::Named;
use crate::common::peers::Kind;
use crate::common::sheet::Bound::{AtLeast, AtMost};
use crate::common::sheet::Figure;

const Q_50MS: Kind = Kind::Quintet("50ms", "memcache");
const Q_ALWAYS: Kind = Kind::Quintet("always", "memcache");
const REDIS_ALWAYS: Kind = Kind::Redis(Some("always"));
const REDIS_SECOND: Kind = Kind::Redis(Some("everysec"));
const CACHES: [Kind; 6] = [
    Q_50MS,
    Q_ALWAYS,
    Kind::Memcached,
    Kind::Redis(None),
    REDIS_SECOND,
    REDIS_ALWAYS,
];
/// Two servers in one protocol. A reserve with its delete is one request.
const J_50MS: Kind = Kind::Quintet("50ms", "beanstalk");
const J_ALWAYS: Kind = Kind::Quintet("always", "beanstalk");
const LOG_50MS: Kind = Kind::Beanstalkd(Some("50"));
const LOG_ALWAYS: Kind = Kind::Beanstalkd(Some("0"));

/// Connections beside active ones that stay silent.
const CROWDED: Contender = Contender {
    kind: Q_50MS,
    idle: 10_000,
    background: false,
};
/// Requests a second beside the 8 MiB messages, over enough connections that
/// each has sent few of them when a slow reply comes: what is measured is the
/// server's wait, not the row of requests behind it.
const MODERATE: f64 = 1_000.0;

/// Contenders, scenarios, and what comes out.
pub(crate) struct Experiment {
    /// On the command line, and of its files.
    pub(crate) named: Named,
    /// The measure of the plot and the table.
    pub(crate) metric: Metric,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) scenarios: Vec<Scenario>,
    /// The figures of one scenario.
    pub(crate) figures: fn(&Table) -> Vec<Option<Figure>>,
}

impl Experiment {
    /// The figures of all scenarios, but those about contenders that are absent.
    pub(crate) fn figures_of(&self, tables: &[Table]) -> Vec<Figure> {
        tables.iter().flat_map(self.figures).flatten().collect()
    }
}

fn of(kinds: &[Kind]) -> Vec<Contender> {
    kinds.iter().copied().map(Contender::of).collect()
}

fn beside_large(kind: Kind) -> Contender {
    Contender {
        kind,
        idle: 0,
        background: true,
    }
}

fn scenario(connections: usize, depth: usize, size: usize) -> Scenario {
    let name = match depth {
        1 => format!("{connections} connections"),
        depth => format!("{connections} connections, {depth} deep"),
    };
    Scenario {
        name,
        connections,
        depth,
        size,
        mix: Mix::BOTH,
        rate: None,
    }
}

fn small(connections: usize) -> Scenario {
    scenario(connections, 1, 64)
}

fn jobs() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (mix, what) in [(Mix::PUT, "put"), (Mix::TAKE, "reserve and delete")] {
        for (connections, depth) in [(10, 1), (50, 1), (10, 16), (50, 16)] {
            let mut work = scenario(connections, depth, 100);
            work.name = format!("{what}, {}", work.name);
            work.mix = mix;
            scenarios.push(work);
        }
    }
    scenarios
}

fn rate_ratio(table: &Table, ours: Kind, theirs: Kind, least: Option<f64>) -> Option<Figure> {
    let (ours, theirs) = (Contender::of(ours), Contender::of(theirs));
    table.ratio(Metric::Rate, ours, theirs, least.map(AtLeast))
}

/// All there are, in the order they are run.
pub(crate) fn all() -> Vec<Experiment> {
    let moderate = Scenario {
        name: format!("50 connections, {MODERATE} requests/s"),
        rate: Some(MODERATE),
        ..small(50)
    };
    vec![
        Experiment {
            named: ("small", "Put and take of 64 B, one at a time"),
            metric: Metric::Rate,
            contenders: of(&[&CACHES[..], &[Kind::Echo]].concat()),
            scenarios: [50, 200, 1000].map(small).into(),
            figures: |table| {
                vec![
                    rate_ratio(table, Q_50MS, Kind::Memcached, Some(1.0)),
                    rate_ratio(table, Q_ALWAYS, Kind::Memcached, Some(0.7)),
                    rate_ratio(table, Q_ALWAYS, REDIS_ALWAYS, Some(1.5)),
                    rate_ratio(table, Q_50MS, Kind::Echo, None),
                ]
            },
        },
        Experiment {
            named: ("pipelined", "Put and take of 64 B, pipelined by 16"),
            metric: Metric::Rate,
            contenders: of(&CACHES),
            scenarios: vec![scenario(50, 16, 64)],
            figures: |table| {
                vec![
                    rate_ratio(table, Q_50MS, Kind::Memcached, Some(2.5)),
                    rate_ratio(table, Q_50MS, Kind::Redis(None), Some(1.0)),
                    rate_ratio(table, Q_ALWAYS, REDIS_ALWAYS, Some(1.5)),
                ]
            },
        },
        // Beside the limit of `always`: a bare echo that syncs before it answers.
        Experiment {
            named: (
                "synced",
                "Put and take of 64 B, one at a time, synced before each reply",
            ),
            metric: Metric::Rate,
            contenders: of(&[Q_ALWAYS, Kind::SyncedEcho]),
            scenarios: [10, 50, 200].map(small).into(),
            figures: |table| vec![rate_ratio(table, Q_ALWAYS, Kind::SyncedEcho, Some(0.85))],
        },
        Experiment {
            named: ("jobs", "Jobs of 100 B beside beanstalkd"),
            metric: Metric::Rate,
            contenders: of(&[
                J_50MS,
                J_ALWAYS,
                Kind::Beanstalkd(None),
                LOG_50MS,
                LOG_ALWAYS,
            ]),
            scenarios: jobs(),
            figures: |table| {
                let work = &table.scenario;
                // The figures wanted are about 50 connections.
                let wanted = |least| (work.connections == 50).then_some(least);
                let (fast, synced) = match work.depth {
                    1 => (1.5, 12.0),
                    _ => (6.0, 50.0),
                };
                let always = match work.mix == Mix::PUT {
                    true => rate_ratio(table, J_ALWAYS, LOG_ALWAYS, wanted(synced)),
                    false => rate_ratio(table, J_ALWAYS, J_50MS, wanted(0.7)),
                };
                vec![rate_ratio(table, J_50MS, LOG_50MS, wanted(fast)), always]
            },
        },
        Experiment {
            named: ("cpu", "The server's processor time for each request"),
            metric: Metric::Cpu,
            contenders: of(&[&CACHES[..4], &[Kind::Echo]].concat()),
            scenarios: vec![small(50), scenario(50, 8, 64)],
            figures: |table| {
                let most = if table.scenario.depth == 1 { 1.2 } else { 1.5 };
                let echo = Contender::of(Kind::Echo);
                let ratio =
                    |kind, bound| table.ratio(Metric::Cpu, Contender::of(kind), echo, bound);
                vec![ratio(Q_50MS, Some(AtMost(most))), ratio(Q_ALWAYS, None)]
            },
        },
        Experiment {
            named: ("idle", "50 active connections beside 10,000 idle ones"),
            metric: Metric::Rate,
            contenders: vec![Contender::of(Q_50MS), CROWDED],
            scenarios: vec![small(50)],
            figures: |table| {
                let alone = Contender::of(Q_50MS);
                vec![
                    // "No slower", less what two runs of the same differ by.
                    table.ratio(Metric::Rate, CROWDED, alone, Some(AtLeast(0.95))),
                    table.value(Metric::Resident, CROWDED, AtMost(150.0)),
                ]
            },
        },
        Experiment {
            named: (
                "large",
                "Small messages beside 10 connections with messages of 8 MiB",
            ),
            metric: Metric::P99,
            contenders: vec![
                Contender::of(Q_50MS),
                beside_large(Q_50MS),
                Contender::of(REDIS_SECOND),
                beside_large(REDIS_SECOND),
                // What the machine alone makes small requests wait.
                beside_large(Kind::Echo),
            ],
            scenarios: vec![moderate],
            figures: |table| vec![table.value(Metric::P99, beside_large(Q_50MS), AtMost(5.0))],
        },
    ]
}
