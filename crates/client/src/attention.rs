//! Which queues need an operator's attention, why, and in what order.
//!
//! A pure function of a queue's numbers: the console, the API, the metrics and `quintet top` show
//! its result. docs/attention.md has each rule with its formula and its setting.

use quintet_types::{Name, Pattern, QueueStats, TakeLimit};

use crate::history::Recent;
use crate::words::{count, duration, of};

/// After this without a take a queue that nobody waits for is called idle, ms.
const IDLE_MS: u64 = 60_000;

quintet_types::defaults! {
    /// From what on a queue needs attention. The settings `attention_*`.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Thresholds {
        /// Messages dropped or expired in five minutes. 0: the rule is off, as in all of these.
        pub lost: u64 = 1,
        /// Failed tries in five minutes.
        pub failures: u64 = 10,
        /// Their share of all tries, percent.
        pub failing_percent: u64 = 50,
        /// Ready messages of a queue that grows.
        pub growing: u64 = 1000,
        /// Messages that were buried or became dead letters in an hour.
        pub dead: u64 = 1,
        /// Leases that ran out in five minutes.
        pub timeouts: u64 = 5,
        /// So long no lease ends while messages wait, ms.
        pub stuck_ms: u64 = 10 * 60_000,
        /// Ready messages of a queue without consumers.
        pub unconsumed: u64 = 10,
        /// So long the oldest of them waits, ms.
        pub unconsumed_ms: u64 = 5 * 60_000,
        /// Queues that may be without consumers: names, with `*` for anything.
        pub muted: Vec<String> = Vec::new(),
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Warning,
    Alarm,
}

quintet_types::named! {
    /// The rules, the worst first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Rule, name {
        /// The server accepts no puts.
        Server = "server",
        Down = "down",
        Losing = "losing",
        Failing = "failing",
        Growing = "growing",
        DeadLetters = "dead_letters",
        StuckLeases = "stuck_leases",
        Limit = "limit",
        Paused = "paused",
        NoConsumers = "no_consumers",
    }
}

impl Rule {
    /// An alarm if messages are lost or refused, or work fails.
    pub fn level(self) -> Level {
        match self {
            Self::Server | Self::Down | Self::Losing | Self::Failing => Level::Alarm,
            Self::Growing
            | Self::DeadLetters
            | Self::StuckLeases
            | Self::Limit
            | Self::Paused
            | Self::NoConsumers => Level::Warning,
        }
    }
}

/// Why a queue needs attention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub rule: Rule,
    /// Among findings of one rule the larger comes first.
    pub weight: u64,
    /// Continues a sentence that begins with the queue's name.
    pub says: String,
    /// The cause, as far as the numbers show it; may be empty.
    pub because: String,
}

impl Finding {
    fn new(rule: Rule, weight: u64, says: String, because: impl Into<String>) -> Self {
        let because = because.into();
        Self {
            rule,
            weight,
            says,
            because,
        }
    }
}

impl Thresholds {
    /// The worst finding about a queue, if there is any.
    pub fn judge(&self, stats: &QueueStats, recent: Option<&Recent>) -> Option<Finding> {
        let by_recent = |rule: fn(&Self, &QueueStats, &Recent) -> Option<Finding>| {
            recent.and_then(|recent| rule(self, stats, recent))
        };
        down(stats)
            .or_else(|| by_recent(Self::losing))
            .or_else(|| by_recent(Self::failing))
            .or_else(|| by_recent(Self::growing))
            .or_else(|| by_recent(Self::dead_letters))
            .or_else(|| by_recent(Self::stuck_leases))
            .or_else(|| by_recent(Self::limit))
            .or_else(|| paused(stats))
            .or_else(|| self.no_consumers(stats, recent))
    }

    fn losing(&self, _: &QueueStats, recent: &Recent) -> Option<Finding> {
        let (dropped, expired) = (recent.left.dropped, recent.left.expired);
        let lost = dropped + expired;
        (self.lost > 0 && lost >= self.lost).then(|| {
            let parts = [(dropped, "dropped"), (expired, "expired")];
            let parts = parts.iter().filter(|(number, _)| *number > 0);
            let parts = parts.map(|(number, word)| format!("{} {word}", count(*number)));
            let parts: Vec<String> = parts.collect();
            let says = format!(
                "lost {} {}: {}.",
                of(lost, "message", "messages"),
                within(recent),
                parts.join(", ")
            );
            let because = match (dropped, expired) {
                (0, _) => "Their time to live ran out before a consumer took them.",
                (_, 0) => "The queue is full and drops the oldest (when_full).",
                _ => "The queue is full, and messages outlive their time to live.",
            };
            Finding::new(Rule::Losing, lost, says, because)
        })
    }

    fn failing(&self, _: &QueueStats, recent: &Recent) -> Option<Finding> {
        let (failures, done) = (recent.failures, recent.left.finished);
        let share = failures * 100 / (failures + done).max(1);
        let fails = failures >= self.failures && share >= self.failing_percent;
        (self.failures > 0 && fails).then(|| {
            let says = format!(
                "fails: {} of {} {}.",
                count(failures),
                of(failures + done, "attempt", "attempts"),
                within(recent)
            );
            Finding::new(Rule::Failing, failures, says, "")
        })
    }

    fn growing(&self, stats: &QueueStats, recent: &Recent) -> Option<Finding> {
        let out: u64 = recent.left.values().iter().sum();
        let gauges = &stats.gauges;
        let consumers =
            gauges.waiters + gauges.waiting_peeks + gauges.reserved + recent.left.finished;
        let more = recent.came.saturating_sub(out);
        let grows = gauges.ready >= self.growing
            && consumers > 0
            && recent.span_ms >= 60_000
            && more >= self.growing / 10
            && recent.came * 10 >= out * 11;
        (self.growing > 0 && grows).then(|| {
            let refused = match recent.refused {
                0 => String::new(),
                puts => format!("; it is full and refused {}", of(puts, "put", "puts")),
            };
            let says = format!(
                "grows although consumers take from it: {} ready, {} in and {} out {}{refused}.",
                count(gauges.ready),
                count(recent.came),
                count(out),
                within(recent)
            );
            let because = match (why_slow(stats, Some(recent)), recent.left.finished) {
                (why, done) if why.is_empty() && done < out => format!(
                    "Consumers finished {}; the rest left in another way.",
                    count(done)
                ),
                (why, _) => why,
            };
            Finding::new(Rule::Growing, more, says, because)
        })
    }

    fn dead_letters(&self, _: &QueueStats, recent: &Recent) -> Option<Finding> {
        (self.dead > 0 && recent.dead >= self.dead).then(|| {
            let says = format!(
                "set aside {} within the last hour.",
                of(recent.dead, "failed message", "failed messages")
            );
            Finding::new(Rule::DeadLetters, recent.dead, says, "")
        })
    }

    fn stuck_leases(&self, stats: &QueueStats, recent: &Recent) -> Option<Finding> {
        let gauges = &stats.gauges;
        // Where each lease ends at once nobody is late.
        let out = if stats.at_once { 0 } else { recent.timeouts };
        if self.timeouts > 0 && out >= self.timeouts && out * 20 >= recent.left.finished + out {
            let says = format!(
                "has consumers that do not finish: {} ran out {}.",
                of(out, "lease", "leases"),
                within(recent)
            );
            let because = "Its workers die, hang, or need more time than the lease gives.";
            return Some(Finding::new(Rule::StuckLeases, out, says, because));
        }
        let stuck = gauges.reserved > 0 && gauges.ready > 0 && recent.no_end_ms >= self.stuck_ms;
        (self.stuck_ms > 0 && stuck).then(|| {
            let says = format!(
                "has {}, and none has ended for {}; {} ready.",
                of(gauges.reserved, "lease", "leases"),
                duration(recent.no_end_ms),
                count(gauges.ready)
            );
            Finding::new(Rule::StuckLeases, gauges.reserved, says, "")
        })
    }

    fn limit(&self, stats: &QueueStats, recent: &Recent) -> Option<Finding> {
        if recent.refused > 0 {
            let says = format!(
                "is full and refused {} {}.",
                of(recent.refused, "put", "puts"),
                within(recent)
            );
            return Some(Finding::new(Rule::Limit, recent.refused, says, ""));
        }
        let waits = stats.gauges.ready > 0 && stats.oldest_ms >= self.unconsumed_ms;
        let held = stats.limited.is_some() || recent.limited > 0;
        (waits && held).then(|| {
            let says = format!(
                "is slowed by its limits: {} ready, the oldest for {}.",
                count(stats.gauges.ready),
                duration(stats.oldest_ms)
            );
            let because = why_slow(stats, Some(recent));
            Finding::new(Rule::Limit, stats.gauges.ready, says, because)
        })
    }

    fn no_consumers(&self, stats: &QueueStats, recent: Option<&Recent>) -> Option<Finding> {
        let ready = stats.gauges.ready;
        if self.unconsumed == 0 || ready < self.unconsumed || !self.is_unconsumed(stats, recent) {
            return None;
        }
        let says = format!(
            "has no consumers: {} ready, the oldest for {}.",
            count(ready),
            duration(stats.oldest_ms)
        );
        Some(Finding::new(Rule::NoConsumers, ready, says, ""))
    }

    /// True if messages wait for long and nobody takes, holds or waits for any: except where the
    /// queue is muted or all its messages were set aside from other queues.
    fn is_unconsumed(&self, stats: &QueueStats, recent: Option<&Recent>) -> bool {
        let set_aside = stats.totals.puts == 0 && stats.totals.moved_in > 0;
        stats.oldest_ms >= self.unconsumed_ms
            && lacks_consumers(stats, recent)
            && !set_aside
            && !self.is_muted(&stats.name)
    }

    fn is_muted(&self, queue: &Name) -> bool {
        let mut muted = self.muted.iter();
        muted.any(|text| Pattern::new(text).matches(queue.as_bytes()))
    }
}

fn down(stats: &QueueStats) -> Option<Finding> {
    let ready = stats.gauges.ready;
    stats.down.then(|| {
        let says = format!(
            "is down: puts fail, consumers wait; {} ready.",
            count(ready)
        );
        Finding::new(Rule::Down, ready, says, "")
    })
}

fn paused(stats: &QueueStats) -> Option<Finding> {
    let ready = stats.gauges.ready;
    (stats.paused && ready > 0).then(|| {
        let left = match stats.paused_left_ms {
            0 => "until it is resumed".to_owned(),
            left => format!("for another {}", duration(left)),
        };
        let says = format!("is paused {left}; {} ready.", count(ready));
        Finding::new(Rule::Paused, ready, says, consumers(stats.gauges.waiters))
    })
}

fn consumers(waiters: u64) -> String {
    match waiters {
        0 => "No consumer waits.".to_owned(),
        1 => "1 consumer waits.".to_owned(),
        more => format!("{} consumers wait.", count(more)),
    }
}

/// True if nobody waits for messages of a queue, or holds any.
fn is_left_alone(stats: &QueueStats) -> bool {
    let gauges = &stats.gauges;
    gauges.waiters + gauges.waiting_peeks + gauges.reserved == 0
}

/// True if nobody waits for messages of a queue, holds any, or has taken one lately.
fn lacks_consumers(stats: &QueueStats, recent: Option<&Recent>) -> bool {
    let tries = |recent: &Recent| recent.left.finished + recent.failures + recent.timeouts;
    is_left_alone(stats) && recent.is_none_or(|recent| tries(recent) == 0)
}

/// Why messages of a queue wait, in a sentence; empty: nothing is known to hold them back.
pub fn why_slow(stats: &QueueStats, recent: Option<&Recent>) -> String {
    let gauges = &stats.gauges;
    let recent_of = |of: fn(&Recent) -> u64| recent.map_or(0, of);
    let limited = recent_of(|recent| recent.limited);
    let failures = recent_of(|recent| recent.failures);
    let finished = recent_of(|recent| recent.left.finished);
    let idle_ms = recent_of(|recent| recent.idle_ms);
    match () {
        () if stats.down => "The queue is down.".to_owned(),
        () if stats.paused => "The queue is paused.".to_owned(),
        () if stats.limited == Some(TakeLimit::InFlight) => {
            let reserved = of(gauges.reserved, "message is", "messages are");
            format!("The queue has reached its limit (in_flight_max): {reserved} reserved.")
        }
        () if stats.limited.is_some() => {
            "The queue has reached its limit (take_rate): it hands out no more for now.".to_owned()
        }
        () if stats.keys_limited > 0 => {
            let groups = of(stats.keys_limited, "message group", "message groups");
            match stats.key_limit {
                Some(TakeLimit::InFlight) => {
                    format!("A limit blocks {groups} (key_in_flight_max).")
                }
                Some(TakeLimit::Rate) => format!("A limit blocks {groups} (key_take_rate)."),
                Some(TakeLimit::Hold) => format!("A hold of the key blocks {groups}."),
                None => format!("Limits of keys block {groups}."),
            }
        }
        () if limited > 0 => format!(
            "A limit left {} without a message.",
            of(limited, "take", "takes")
        ),
        () if failures > 0 && failures >= finished => {
            let all = of(failures + finished, "attempt", "attempts");
            format!("{} of the last {all} failed.", count(failures))
        }
        () if gauges.ready > 0 && lacks_consumers(stats, recent) => {
            "The queue has no consumers.".to_owned()
        }
        () if gauges.ready > 0 && is_left_alone(stats) && idle_ms >= IDLE_MS => {
            let idle = duration(idle_ms);
            format!("No consumer has taken a message for {idle}.")
        }
        () => String::new(),
    }
}

fn within(recent: &Recent) -> String {
    match recent.span_ms {
        0..60_000 => format!("within {}s", recent.span_ms.div_ceil(1000).max(1)),
        _ => format!("within {}m", recent.span_ms.div_ceil(60_000)),
    }
}

/// A finding and its queue; `None` where it is about several queues, or about the server.
pub type QueueFinding = (Option<Name>, Finding);

/// Bytes of the shown names of a list at most.
pub const NAMES_MAX: usize = 256 << 10;

/// Room for the names of a list: they may be long, and the list's limit is a number of rows.
#[derive(Clone, Copy, Debug)]
pub struct NameRoom(usize);

impl Default for NameRoom {
    fn default() -> Self {
        Self(NAMES_MAX)
    }
}

impl NameRoom {
    /// Takes room for the name, as it is shown; false: there is none left for it.
    pub fn take(&mut self, name: &Name) -> bool {
        let left = self.0.checked_sub(name.shown_len());
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The findings about many queues: the worst of them, and counts of all.
pub struct Findings {
    most: usize,
    /// Twice `most` at most.
    kept: Vec<(Name, Finding)>,
    /// Queues, by rule, in the order of [`Rule::ALL`].
    pub needing: [u64; Rule::ALL.len()],
    /// Ready messages of all queues without consumers.
    unconsumed: u64,
    /// For names that came since `kept` was cut.
    names: NameRoom,
}

impl Findings {
    /// Keeps so many findings, as long as their names have room.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            kept: Vec::new(),
            needing: [0; Rule::ALL.len()],
            unconsumed: 0,
            names: NameRoom::default(),
        }
    }

    /// Adds a queue's finding. Of queues without consumers one is kept, as they are shown together.
    pub fn add(&mut self, queue: &Name, finding: Finding) {
        let before = &mut self.needing[finding.rule as usize];
        *before += 1;
        if finding.rule == Rule::NoConsumers {
            self.unconsumed += finding.weight;
            if *before > 1 {
                return;
            }
        }
        self.kept.push((queue.clone(), finding));
        if !self.names.take(queue) || self.kept.len() >= 2 * self.most.max(1) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_unstable_by(|(a, one), (b, other)| {
            let by = one.rule.cmp(&other.rule);
            let by = by.then_with(|| other.weight.cmp(&one.weight));
            by.then_with(|| a.cmp(b))
        });
        self.kept.truncate(self.most);
        self.names = NameRoom::default();
        let mut names = self.names;
        self.kept.retain(|(name, _)| names.take(name));
    }

    /// How many there are, as [`Findings::ranked`] counts them, those that are not kept included.
    pub fn total(&self, unready: Option<&str>) -> u64 {
        let several = self.needing[Rule::NoConsumers as usize].saturating_sub(1);
        self.needing.iter().sum::<u64>() - several + u64::from(unready.is_some())
    }

    /// The kept findings in the order in which they are shown: by rule, then by weight, then by
    /// name. Several queues without consumers are one finding. `unready`: why the server accepts no
    /// puts.
    pub fn ranked(mut self, unready: Option<&str>) -> Vec<QueueFinding> {
        self.cut();
        let queues = self.needing[Rule::NoConsumers as usize];
        let server = unready.map(|why| {
            let says = format!("The server accepts no puts: {why}.");
            (None, Finding::new(Rule::Server, 0, says, ""))
        });
        let kept = self.kept.into_iter().map(|(name, finding)| {
            if finding.rule != Rule::NoConsumers || queues == 1 {
                return (Some(name), finding);
            }
            let (queues, ready) = (count(queues), count(self.unconsumed));
            let says = format!("{queues} queues have no consumers: {ready} ready.");
            let finding = Finding::new(Rule::NoConsumers, self.unconsumed, says, "");
            (None, finding)
        });
        server.into_iter().chain(kept).collect()
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
