use std::collections::BTreeSet;

use quintet_client::attention::Rule;
use quintet_host::Histogram;
use quintet_types::{QueueGauges, QueueTotals, ServerStats};

use super::*;

/// OpenMetrics announces a counter without its `_total`.
#[test]
fn no_two_families_have_one_name_where_counters_are_announced() {
    let mut families = BTreeSet::new();
    let names = METRICS.iter().map(|metric| metric.name);
    for name in names.chain(queues::names()) {
        let announced = name.trim_end_matches("_total");
        assert!(families.insert(announced), "{name} is there twice");
    }
}

#[test]
fn names_follow_the_conventions_and_are_there_once() {
    let (mut names, mut stats) = (BTreeSet::new(), BTreeSet::new());
    for metric in METRICS {
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        let name = metric.name;
        assert!(name.chars().all(plain), "{name}");
        assert_eq!(
            name.ends_with("_total"),
            metric.kind == Kind::Counter,
            "{name}"
        );
        let base = name.trim_end_matches("_total");
        for unit in [
            "_s",
            "_ms",
            "_us",
            "_ns",
            "milliseconds",
            "microseconds",
            "percent",
            "kib",
        ] {
            assert!(!base.ends_with(unit), "{name} is not in a base unit");
        }
        let scaled = metric.per_base() > 1.0;
        let unit = base.ends_with("_seconds") || base.ends_with("_ratio");
        assert!(unit || !scaled, "{name} is shown in another unit");
        assert!(
            metric.help.ends_with('.') && !metric.help.contains('\n'),
            "{name}"
        );
        assert_eq!(
            metric.stat.matches("{}").count(),
            metric.labels().len() + usize::from(metric.kind == Kind::Histogram),
            "{name}"
        );
        assert!(
            names.insert(name) && stats.insert(metric.stat),
            "{name} is there twice"
        );
    }
}

#[test]
fn counters_of_the_engine_and_of_protocols_are_in_the_table() {
    let listed = |stat: &str| METRICS.iter().any(|metric| metric.stat == stat);
    let totals = QueueTotals::NAMES
        .iter()
        .map(|name| format!("total_{name}"));
    for stat in totals.chain(QueueGauges::NAMES.iter().map(|name| (*name).to_owned())) {
        assert!(listed(&stat), "{stat} has no row");
    }
    for stat in ServerStats::TOLD {
        assert!(listed(stat), "{stat} has no row");
    }
}

#[test]
fn metrics_of_dashboard_alerts_and_runbook_exist() {
    let dashboard = include_str!("../../../../ops/grafana.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    assert!(
        parsed["panels"]
            .as_array()
            .is_some_and(|panels| panels.len() > 10)
    );
    let mut listed: BTreeSet<String> = queues::names().map(str::to_owned).collect();
    for metric in METRICS {
        listed.insert(metric.name.to_owned());
        if metric.kind == Kind::Histogram {
            listed.extend(["bucket", "sum", "count"].map(|end| format!("{}_{end}", metric.name)));
        }
    }
    let mut named = 0;
    let alerts = include_str!("../../../../ops/alerts.yml");
    let runbook = include_str!("../../../../docs/runbook.md");
    for text in [dashboard, alerts, runbook] {
        for rest in text.split("quintet_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            assert!(listed.contains(name), "quintet_{name} has no row");
            named += 1;
        }
    }
    assert!(named > 40, "{named}");
}

#[test]
fn the_alerts_have_each_rule_of_attention_once() {
    let alerts = include_str!("../../../../ops/alerts.yml");
    let mut alerted: Vec<&str> = Vec::new();
    for line in alerts.lines().filter(|line| line.contains("{rule=")) {
        // Several queues without consumers have an alert of their own, beside that for one.
        let several = line.contains("queues_need_attention{rule=\"no_consumers\"} > 1");
        let rules = line.split('"').nth(1).expect("its rules");
        alerted.extend(rules.split('|').filter(|_| !several));
    }
    let mut all = Rule::ALL.map(Rule::name);
    alerted.sort_unstable();
    all.sort_unstable();
    assert_eq!(alerted, all);
    let several = "expr: quintet_queues_need_attention{rule=\"no_consumers\"} > 1\n";
    assert!(alerts.contains(several), "{several}");
}

#[test]
fn labels_are_quoted_and_units_are_base_units() {
    let metric = |stat| {
        let found = METRICS.iter().find(|metric| metric.stat == stat);
        found.expect("there is one")
    };
    let mut text = Text::new(Exposition::Prometheus, &[]);
    let sums = || Points::Numbers(vec![(vec!["a\"b\\c\nd".into()], 2.5)]);
    write(metric("hook_metric_{}"), sums, &mut text);
    let cpu = || Points::Numbers(vec![(Vec::new(), 1_500_000.0)]);
    write(metric("cpu_user_us"), cpu, &mut text);
    assert_eq!(
        text.end(),
        "# HELP quintet_hook_metric Sums that hooks keep themselves (quintet.metric).\n\
         # TYPE quintet_hook_metric gauge\n\
         quintet_hook_metric{name=\"a\\\"b\\\\c\\nd\"} 2.5\n\
         # HELP quintet_cpu_user_seconds_total Processor time in user mode.\n\
         # TYPE quintet_cpu_user_seconds_total counter\n\
         quintet_cpu_user_seconds_total 1.5\n"
    );
}

#[test]
fn of_a_histogram_percentiles_are_shown() {
    let histogram = Histogram::new(&[1000, 2500]);
    let spread = || Points::Spreads(vec![(vec!["put".into()], histogram.read())]);
    assert_eq!(spread().shown(), []);
    histogram.add(1700, 3);
    let shown = |name: &str| (vec!["put".into(), name.to_owned().into()], 2500.0);
    assert_eq!(spread().shown(), [shown("p50"), shown("p99")]);
}
