//! Metrics of each queue. Of many queues, of those with the most bytes: a scraper keeps each series
//! it was ever shown, and sums over all are rows of their own.

use std::cmp::Reverse;

use quintet_client::attention::{Findings, NameRoom, QueueFinding, Rule};
use quintet_client::{ClientApi, ScopedClient};
use quintet_types::{Command, Left, Outcome, QueueGauges, QueueStats, StatsOf, StatsReply};

use super::Kind;
use super::exposition::{Family, Text, labels, whole};

/// A family with one number for each queue.
struct Row {
    family: Family,
    read: fn(&QueueStats) -> f64,
}

macro_rules! rows {
    ($($kind:ident $name:literal $help:literal = |$queue:ident| $read:expr;)*) => {
        const ROWS: &[Row] = &[$(Row {
            family: Family { name: $name, help: $help, kind: Kind::$kind },
            read: |$queue| $read,
        }),*];
    };
}

rows! {
    Gauge "queue_oldest_seconds" "Age of the oldest waiting message."
        = |q| ratio(q.oldest_ms, 1000);
    Gauge "queue_bytes" "Bytes of all bodies." = |q| whole(q.gauges.bytes);
    Gauge "queue_cold_messages" "Messages in runs but not in memory."
        = |q| whole(q.gauges.cold);
    Gauge "queue_waiters" "Waiting consumers." = |q| whole(q.gauges.waiters);
    Gauge "queue_paused" "1 while the queue is paused, else 0." = |q| f64::from(q.paused);
    Gauge "queue_limited" "1 while a limit makes takes wait although there may be messages \
                           (in_flight_max, take_rate), else 0."
        = |q| f64::from(q.limited.is_some());
    Counter "queue_limited_takes_total" "Takes since the start that found nothing because a limit \
                                         of the queue or of a key made messages not selectable."
        = |q| whole(q.limited_takes);
    Gauge "queue_keys" "Keys that the queue indexes because of its settings (groups, \
                        key_in_flight_max, key_take_rate)."
        = |q| whole(q.keys);
    Gauge "queue_keys_limited" "Keys with messages that a limit blocks."
        = |q| whole(q.keys_limited);
    Counter "queue_puts_total" "Messages put." = |q| whole(q.totals.puts);
    Counter "queue_put_bytes_total" "Bytes of bodies put." = |q| whole(q.totals.put_bytes);
    Counter "queue_taken_total" "Messages removed by takes." = |q| whole(q.totals.taken);
    Counter "queue_restored_total" "Messages that a take had removed and that came back, as its \
                                    reply could not be sent."
        = |q| whole(q.totals.restored);
    Counter "queue_leases_total" "Leases given." = |q| whole(q.totals.leases);
    Counter "queue_finished_total" "Leases finished." = |q| whole(q.totals.finished);
    Counter "queue_failures_total" "Failed tries, as the settings of the queue count them."
        = |q| whole(q.totals.failures);
    Counter "queue_releases_total" "Messages released by their holder."
        = |q| whole(q.totals.releases);
    Counter "queue_timeouts_total" "Leases that ran out." = |q| whole(q.totals.timeouts);
    Counter "queue_buries_total" "Messages buried." = |q| whole(q.totals.buries);
    Counter "queue_deleted_total" "Messages deleted by id." = |q| whole(q.totals.deleted);
    Counter "queue_cancelled_total" "Messages that were cancelled."
        = |q| whole(q.totals.cancelled);
    Counter "queue_expired_total" "Messages that expired."
        = |q| whole(q.totals.expired);
    Counter "queue_dead_letters_total" "Messages to which the dead-letter rule was applied."
        = |q| whole(q.totals.dead_letters);
    Counter "queue_refused_full_total" "Puts rejected because the queue was full."
        = |q| whole(q.totals.refused_full);
}

const MESSAGES: Family = Family {
    name: "queue_messages",
    help: "Messages by state; after the first four states, empty ones are left out.",
    kind: Kind::Gauge,
};

/// A state's name, and how many messages are in it.
type State = (&'static str, fn(&QueueGauges) -> u64);

/// The first four are always there.
const STATES: [State; 8] = [
    ("ready", |gauges| gauges.ready),
    ("delayed", |gauges| gauges.delayed),
    ("reserved", |gauges| gauges.reserved),
    ("buried", |gauges| gauges.buried),
    ("not_selectable", |gauges| gauges.not_selectable),
    ("prepared", |gauges| gauges.prepared),
    ("done", |gauges| gauges.done),
    ("relayed", |gauges| gauges.relayed),
];

const WITH_SERIES: Family = Family {
    name: "queues_with_series",
    help: "Queues with their own series: those with the most bytes (metrics_queues), as long as \
           their names have 256 KiB.",
    kind: Kind::Gauge,
};

const TOLD: Family = Family {
    name: "queues_told",
    help: "The old name of queues_with_series, for one release.",
    ..WITH_SERIES
};

fn ratio(number: u64, of: u32) -> f64 {
    whole(number) / f64::from(of)
}

const LEFT: Family = Family {
    name: "queue_left_total",
    help: "Messages that left, by reason: finished, removed, failed, dropped, expired, moved.",
    kind: Kind::Counter,
};

const ATTENTION: Family = Family {
    name: "queue_attention",
    help: "1 if the queue needs attention by this rule (docs/attention.md); only the worst rule \
           of each queue.",
    kind: Kind::Gauge,
};

const NEEDING: Family = Family {
    name: "queues_need_attention",
    help: "Queues that need attention, by rule.",
    kind: Kind::Gauge,
};

/// The result of a look at all queues.
pub struct QueueSurvey {
    /// Those with the most bytes, in the order of their names.
    pub largest: Vec<QueueStats>,
    pub findings: Vec<QueueFinding>,
    /// How many, by rule, in the order of [`Rule::ALL`].
    pub needing: [u64; Rule::ALL.len()],
}

/// Writes the rows of these queues.
pub(super) fn write(survey: &QueueSurvey, text: &mut Text) {
    let queues = &survey.largest[..];
    if text.begin(NEEDING) {
        for (rule, count) in Rule::ALL.iter().zip(survey.needing) {
            let label = labels([("rule", rule.name())].into_iter());
            text.number(NEEDING, &label, whole(count));
        }
    }
    if text.begin(ATTENTION) {
        for (name, finding) in &survey.findings {
            let Some(name) = name else { continue };
            let (name, rule) = (name.to_string(), finding.rule.name());
            let label = labels([("queue", name.as_str()), ("rule", rule)].into_iter());
            text.number(ATTENTION, &label, 1.0);
        }
    }
    for family in [WITH_SERIES, TOLD] {
        if text.begin(family) {
            text.number(family, "", whole(queues.len() as u64));
        }
    }
    let names: Vec<String> = queues.iter().map(|queue| queue.name.to_string()).collect();
    let label = |name: &String| labels([("queue", name.as_str())].into_iter());
    let labelled: Vec<String> = names.iter().map(label).collect();
    if text.begin(MESSAGES) {
        for (queue, label) in queues.iter().zip(&labelled) {
            for (number, (state, read)) in STATES.iter().enumerate() {
                let count = read(&queue.gauges);
                if count > 0 || number < 4 {
                    let label = format!("{label},state=\"{state}\"");
                    text.number(MESSAGES, &label, whole(count));
                }
            }
        }
    }
    if text.begin(LEFT) {
        for (queue, label) in queues.iter().zip(&labelled) {
            let left = queue.totals.left().values();
            for (why, count) in Left::<u64>::NAMES.iter().zip(left) {
                text.number(LEFT, &format!("{label},reason=\"{why}\""), whole(count));
            }
        }
    }
    for row in ROWS {
        if text.begin(row.family) {
            for (queue, label) in queues.iter().zip(&labelled) {
                text.number(row.family, label, (row.read)(queue));
            }
        }
    }
}

/// The names of all families, for what is shipped beside the server.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let rows = ROWS.iter().map(|row| row.family.name);
    let others = [MESSAGES, WITH_SERIES, TOLD, LEFT, ATTENTION, NEEDING];
    rows.chain(others.map(|family| family.name))
}

/// Looks at all queues: for the so many with the most bytes, and those that need attention.
pub fn survey_queues(client_api: &dyn ClientApi, most: usize) -> QueueSurvey {
    let client = ScopedClient::new(client_api);
    let thresholds = client_api.thresholds();
    let mut findings = Findings::new(most);
    let mut largest = Largest::new(most);
    let mut next = Some((0, 0)).filter(|_| most > 0);
    while let Some(from) = next.take() {
        if let Outcome::Stats(stats) = client.ask(Command::Stats(StatsOf::Queues { from }))
            && let StatsReply::Queues(page) = *stats
        {
            for queue in page.queues {
                let recent = client_api.recent(&queue);
                if let Some(finding) = thresholds.judge(&queue, recent.as_ref()) {
                    findings.add(&queue.name, finding);
                }
                largest.add(queue);
            }
            next = page.next;
        }
    }
    // The rule about the server as a whole counts 1 at most.
    findings.needing[Rule::Server as usize] = client_api.unready().is_some().into();
    QueueSurvey {
        largest: largest.end(),
        needing: findings.needing,
        findings: findings.ranked(None),
    }
}

/// Twice as many as are wanted, at most, and twice what there is room for.
struct Largest {
    most: usize,
    /// For names that came since the last cut.
    names: NameRoom,
    queues: Vec<QueueStats>,
}

impl Largest {
    fn new(most: usize) -> Self {
        Self {
            most,
            names: NameRoom::default(),
            queues: Vec::new(),
        }
    }

    fn add(&mut self, queue: QueueStats) {
        let fits = self.names.take(&queue.name);
        self.queues.push(queue);
        if !fits || self.queues.len() >= 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let order = |queue: &QueueStats| Reverse(queue.gauges.bytes);
        self.queues.sort_unstable_by_key(order);
        self.queues.truncate(self.most);
        self.names = NameRoom::default();
        let mut names = self.names;
        self.queues.retain(|queue| names.take(&queue.name));
    }

    fn end(mut self) -> Vec<QueueStats> {
        self.cut();
        self.queues.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.queues
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quintet_client::Exposition;
    use quintet_types::{Name, QueueTotals};

    use super::*;

    fn queue(name: &str, bytes: u64) -> QueueStats {
        QueueStats {
            name: Name::from(name),
            gauges: QueueGauges {
                bytes,
                ready: 1,
                ..QueueGauges::default()
            },
            oldest_ms: 1500,
            totals: QueueTotals::default(),
            ..QueueStats::default()
        }
    }

    #[test]
    fn of_many_queues_the_largest_have_series() {
        let mut largest = Largest::new(3);
        for (name, bytes) in [("e", 1), ("d", 50), ("c", 7), ("b", 90), ("a", 3), ("f", 8)] {
            largest.add(queue(name, bytes));
        }
        let names: Vec<String> = largest.end().iter().map(|q| q.name.to_string()).collect();
        assert_eq!(names, ["b", "d", "f"]);
        // The names have room for two of these.
        let mut largest = Largest::new(1000);
        for bytes in 0..9 {
            let name = format!("{bytes}{}", "x".repeat(100_000));
            largest.add(queue(&name, bytes));
            largest.add(queue(&bytes.to_string(), 100));
        }
        let names: Vec<usize> = largest.end().iter().map(|q| q.name.shown_len()).collect();
        assert_eq!(names, [1, 1, 1, 1, 1, 1, 1, 1, 100_001, 1, 100_001]);
    }

    #[test]
    fn rows_are_named_by_the_conventions_and_any_name_can_be_written() {
        let mut names = BTreeSet::new();
        let others = [MESSAGES, WITH_SERIES, TOLD, LEFT, ATTENTION, NEEDING];
        for family in ROWS.iter().map(|row| row.family).chain(others) {
            assert!(names.insert(family.name), "{} is there twice", family.name);
            let is_counter = family.kind == Kind::Counter;
            assert_eq!(
                family.name.ends_with("_total"),
                is_counter,
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
        let mut odd = queue("", 4);
        odd.name = Name::new(b"\xff\"\n");
        let mut text = Text::new(Exposition::Prometheus, &[]);
        odd.totals.discarded = 3;
        odd.totals.replaced = 1;
        let survey = QueueSurvey {
            findings: vec![(
                Some(odd.name.clone()),
                quintet_client::Finding {
                    rule: Rule::Losing,
                    weight: 3,
                    says: String::new(),
                    because: String::new(),
                },
            )],
            largest: vec![odd],
            needing: [0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        };
        write(&survey, &mut text);
        let text = text.end();
        let name = r#"queue="\\xff\"\\x0a""#;
        for line in [
            format!("quintet_queue_messages{{{name},state=\"ready\"}} 1"),
            format!("quintet_queue_messages{{{name},state=\"buried\"}} 0"),
            format!("quintet_queue_oldest_seconds{{{name}}} 1.5"),
            format!("quintet_queue_puts_total{{{name}}} 0"),
            "quintet_queues_with_series 1".to_owned(),
            "quintet_queues_told 1".to_owned(),
            format!("quintet_queue_left_total{{{name},reason=\"dropped\"}} 2"),
            format!("quintet_queue_left_total{{{name},reason=\"removed\"}} 1"),
            format!("quintet_queue_attention{{{name},rule=\"losing\"}} 1"),
            "quintet_queues_need_attention{rule=\"losing\"} 2".to_owned(),
            "quintet_queues_need_attention{rule=\"paused\"} 0".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("state=\"done\""), "{text}");
    }
}
