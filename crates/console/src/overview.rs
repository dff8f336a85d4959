//! The first page: what needs attention, and all queues.

use std::collections::HashSet;

use askama::Template;
use quintet_client::attention::{Finding, Findings, Level, Rule, Thresholds};
use quintet_client::{ClientApi, Rates, Recent, Series};
use quintet_types::{
    BatchId, BatchRequest, Command, Left, MessageId, Name, Peek, QueueGauges, QueueStats, Verb,
};

use super::frame::Frame;
use super::graph::{Chart, Spark};
use super::names::{self, Named};
use super::tiles::{Tiles, tiles};
use super::{Answer, PageRequest, past, render, words};
use quintet_http::{Form, reply};

/// Queues of a page, if nothing else is requested, and at most.
const ROWS: usize = 50;
const ROWS_MAX: usize = 500;
/// Findings shown.
const FINDINGS: usize = 8;
/// Bytes of the names of rows, for each that is requested, and of findings, about: the page ends
/// behind them.
const ROW_NAMES: usize = 400;
const FINDING_NAMES: usize = 6 << 10;

/// By what queues are ordered. All but the name go from much to little.
const SORTS: [(&str, &str); 9] = [
    ("", "worst first"),
    ("name", "name"),
    ("ready", "ready"),
    ("oldest", "oldest"),
    ("delayed", "delayed"),
    ("reserved", "reserved"),
    ("buried", "buried"),
    ("consumers", "consumers"),
    ("size", "size"),
];

/// Which queues: words of the address, and of the page.
const ONLY: [(&str, &str); 5] = [
    ("", "All"),
    ("need", "Need attention"),
    ("paused", "Paused"),
    ("buried", "Buried"),
    ("idle", "No consumers"),
];

/// How one is ordered: what is larger comes first, then the name.
type Key = (u64, Name);

/// The query of the page.
#[derive(Default)]
struct Want {
    sort: usize,
    only: usize,
    /// As it was typed.
    name: String,
    rows: usize,
    after: Option<Key>,
}

impl Want {
    fn of(form: &Form) -> Self {
        let word = |name, among: &[(&str, &str)]| {
            let supplied = form.get(name).unwrap_or_default();
            among
                .iter()
                .position(|(word, _)| *word == supplied)
                .unwrap_or(0)
        };
        let rows = form.get("rows").and_then(|text| text.parse().ok());
        let after = form.get("after").and_then(|text| {
            let (number, part) = text.split_once('_')?;
            Some((number.parse().ok()?, names::of_address(part)?))
        });
        Self {
            sort: word("sort", &SORTS),
            only: word("only", &ONLY),
            name: form.get("name").unwrap_or_default().trim().to_owned(),
            rows: rows.unwrap_or(ROWS).clamp(1, ROWS_MAX),
            after,
        }
    }

    fn key(&self, stats: &QueueStats, finding: Option<&Finding>) -> Key {
        let gauges = &stats.gauges;
        let number = match SORTS[self.sort].0 {
            "" => finding.map_or(0, |finding| Rule::ALL.len() as u64 - finding.rule as u64),
            "ready" => gauges.ready,
            "oldest" => stats.oldest_ms,
            "delayed" => gauges.delayed,
            "reserved" => gauges.reserved,
            "buried" => gauges.buried,
            "consumers" => gauges.waiters,
            "size" => gauges.bytes,
            _ => 0,
        };
        (number, stats.name.clone())
    }

    /// True if the name has what was typed; `*` is anything.
    fn names(&self, name: &Name) -> bool {
        if self.name.is_empty() {
            return true;
        }
        let shown = names::plain(name.as_bytes()).to_lowercase();
        let wanted = self.name.to_lowercase();
        match wanted.contains('*') {
            true => matches(&shown, &wanted),
            false => shown.contains(&wanted),
        }
    }

    /// The address of the list with one thing changed.
    fn link(&self, change: (&str, &str)) -> String {
        let rows = self.rows.to_string();
        let now = [
            ("sort", SORTS[self.sort].0),
            ("only", ONLY[self.only].0),
            ("name", &*self.name),
            ("rows", if self.rows == ROWS { "" } else { &*rows }),
            ("after", ""),
        ];
        let now = now.map(|(name, value)| match name == change.0 {
            true => change,
            false => (name, value),
        });
        format!("?{}", words::query(&now))
    }
}

/// True if `text` is as `pattern`, in which `*` stands for anything.
fn matches(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

quintet_types::defaults! {
    /// The result of a walk over all queues.
    struct QueueWalk {
        /// The first of the order, more than are shown, in no order.
        rows: Vec<(Key, QueueStats)> = Vec::new(),
        findings: Findings = Findings::new(FINDINGS),
        /// How many fit each word of [`ONLY`].
        counts: [u64; 5] = [0; 5],
        /// Queues that fit all conditions.
        fit: u64 = 0,
        sums: QueueGauges = QueueGauges::default(),
        oldest_ms: u64 = 0,
        /// `None`: no queue has been measured for a minute yet.
        rates: Option<Rates> = None,
        /// The last hour of all of them.
        hour: Option<Series> = None,
        puts: u64 = 0,
        left: Left<u64> = Left::default(),
    }
}

impl QueueWalk {
    fn add(
        &mut self,
        want: &Want,
        thresholds: &Thresholds,
        stats: QueueStats,
        recent: Option<&Recent>,
    ) {
        let gauges = &stats.gauges;
        self.sums.add(gauges);
        self.oldest_ms = self.oldest_ms.max(stats.oldest_ms);
        self.puts += stats.totals.puts;
        self.left = self.left.plus(stats.totals.left());
        let finding = thresholds.judge(&stats, recent);
        let is = [
            true,
            finding.is_some(),
            stats.paused,
            gauges.buried > 0,
            finding
                .as_ref()
                .is_some_and(|finding| finding.rule == Rule::NoConsumers),
        ];
        for (count, is) in self.counts.iter_mut().zip(is) {
            *count += u64::from(is);
        }
        let key = want.key(&stats, finding.as_ref());
        if let Some(finding) = finding {
            self.findings.add(&stats.name, finding);
        }
        if !is[want.only] || !want.names(&stats.name) {
            return;
        }
        self.fit += 1;
        if want
            .after
            .as_ref()
            .is_some_and(|after| !is_behind(&key, after))
        {
            return;
        }
        self.rows.push((key, stats));
        if self.rows.len() > want.rows * 4 + 64 {
            self.keep_first(want.rows + 1);
        }
    }

    /// Forgets all but the first of the order: a partial sort.
    fn keep_first(&mut self, most: usize) {
        if self.rows.len() > most {
            self.rows
                .select_nth_unstable_by(most, |a, b| order(&a.0, &b.0));
            self.rows.truncate(most);
        }
    }
}

fn order(a: &Key, b: &Key) -> std::cmp::Ordering {
    b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1))
}

fn is_behind(key: &Key, other: &Key) -> bool {
    order(key, other).is_gt()
}

/// A number as a table has it.
pub(super) struct Figure {
    pub(super) exact: u64,
    pub(super) text: String,
}

impl Figure {
    pub(super) fn new(number: u64) -> Self {
        Self {
            exact: number,
            text: words::short_count(number),
        }
    }
}

struct Row {
    name: Named,
    /// The requester may do something to it here.
    pick: bool,
    paused: bool,
    down: bool,
    memory: bool,
    fan_out: Option<Named>,
    /// Its name in another protocol.
    elsewhere: Option<&'static str>,
    ready: Figure,
    oldest: String,
    delayed: Figure,
    reserved: Figure,
    buried: Figure,
    spark: Option<Spark>,
    speed: Option<[String; 2]>,
    /// How fast messages are dropped or expire.
    loses: Option<String>,
    consumers: Figure,
    size: String,
}

impl Row {
    fn new(
        stats: &QueueStats,
        context: &PageRequest,
        client_api: &dyn ClientApi,
        made: bool,
    ) -> Self {
        let gauges = &stats.gauges;
        let may = |verb| context.requester.may_to(verb, &stats.name);
        let rates = client_api.rates(&stats.name);
        Self {
            pick: may(Verb::Pause) || may(Verb::Flush) || may(Verb::Drop),
            name: Named::new(&stats.name),
            paused: stats.paused,
            down: stats.down,
            memory: stats.memory,
            fan_out: stats.parent.as_ref().map(Named::new),
            elsewhere: context
                .elsewhere()
                .filter(|_| made)
                .and_then(|other| other.word(&stats.name)),
            ready: Figure::new(gauges.ready),
            oldest: match gauges.ready + gauges.not_selectable {
                0 => words::NONE.to_owned(),
                _ => words::duration(stats.oldest_ms),
            },
            delayed: Figure::new(gauges.delayed),
            reserved: Figure::new(gauges.reserved),
            buried: Figure::new(gauges.buried),
            spark: client_api
                .history(&stats.name)
                .as_ref()
                .and_then(past::spark),
            speed: rates.map(past::speed),
            loses: rates.and_then(past::loses),
            consumers: Figure::new(gauges.waiters),
            size: words::bytes(gauges.bytes),
        }
    }

    fn weight(&self) -> usize {
        self.name.weight() + self.fan_out.as_ref().map_or(0, Named::weight)
    }
}

struct FindingRow {
    /// `None`: it is about several queues, or about the server.
    name: Option<Named>,
    finding: Finding,
}

impl FindingRow {
    fn weight(&self) -> usize {
        self.name.as_ref().map_or(0, Named::weight)
    }
}

/// A link among others, one of which is where one is.
struct Choice {
    word: &'static str,
    text: &'static str,
    link: String,
    count: String,
    on: bool,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    findings: Vec<FindingRow>,
    more_findings: u64,
    facts: Tiles,
    charts: Vec<Chart>,
    only: Vec<Choice>,
    sorts: Vec<Choice>,
    name: String,
    /// Where bodies are searched for the name.
    bodies: String,
    rows: Vec<Row>,
    /// Some of them can be acted on.
    picks: bool,
    all: u64,
    fit: String,
    first: Option<String>,
    next: Option<String>,
    warning: Option<String>,
    /// Names of the numbers in another protocol, if it reaches one of the rows.
    legend: Option<&'static str>,
}

/// Shows `/`: findings, totals and the queues that the user may see.
pub(super) async fn page(context: PageRequest) -> Answer {
    let want = Want::of(&context.query()?);
    let mut found = QueueWalk::default();
    let mut next = Some((0, 0));
    let client_api = context.client_api();
    let thresholds = client_api.thresholds();
    while let Some(from) = next {
        let page = context.queues(from).await?;
        for stats in page.queues {
            let recent = client_api.recent(&stats);
            if let Some(rates) = client_api.rates(&stats.name) {
                found.rates = Some(found.rates.unwrap_or_default().plus(rates));
            }
            client_api.add_hour(&stats.name, &mut found.hour);
            found.add(&want, &thresholds, stats, recent.as_ref());
        }
        next = page.next;
    }
    found.keep_first(want.rows + 1);
    let mut made = HashSet::new();
    if let Some(other) = context.elsewhere() {
        let own = found.rows.iter().map(|(_, stats)| stats);
        for stats in own.filter(|stats| stats.own && other.word(&stats.name).is_some()) {
            // It may have been deleted meanwhile.
            let setup = context.setup(&stats.name).await;
            if setup.is_ok_and(|setup| other.made(&setup)) {
                made.insert(stats.name.clone());
            }
        }
    }
    let warning = context.console.ask_rq(|rq| rq.rules_warning()).await?;
    render(&shown(&context, &want, found, &made, warning))
}

fn facts(found: &QueueWalk) -> Tiles {
    let sums = &found.sums;
    let mut now = vec![
        ("Queues", words::count(found.counts[0])),
        ("Ready", words::short_count(sums.ready)),
        ("Oldest", words::duration(found.oldest_ms)),
        ("Delayed", words::short_count(sums.delayed)),
        ("Reserved", words::short_count(sums.reserved)),
        ("Buried", words::short_count(sums.buried)),
        ("Waiting consumers", words::short_count(sums.waiters)),
        ("Size", words::bytes(sums.bytes)),
    ];
    if sums.ready == 0 {
        now.remove(2);
    }
    let unknown = || [words::NONE; 2].map(str::to_owned);
    let [into, out] = found.rates.map_or_else(unknown, past::speed);
    let mut minute = vec![("In, per second", into), ("Out, per second", out)];
    let due = found.rates.and_then(past::comes_due);
    minute.extend(due.map(|due| ("Came due, per second", due)));
    let [finished, others @ ..] = found.left.values();
    let ever = vec![
        ("Put", words::short_count(found.puts)),
        ("Finished", words::short_count(finished)),
        ("Ended unfinished", words::short_count(others.iter().sum())),
    ];
    tiles(now, minute, ever)
}

fn shown(
    context: &PageRequest,
    want: &Want,
    mut found: QueueWalk,
    made: &HashSet<Name>,
    warning: Option<String>,
) -> Overview {
    let facts = facts(&found);
    found.rows.sort_unstable_by(|a, b| order(&a.0, &b.0));
    let client_api = context.client_api();
    let rows = found
        .rows
        .iter()
        .take(want.rows)
        .map(|(_, stats)| Row::new(stats, context, &*client_api, made.contains(&stats.name)));
    let mut rows: Vec<Row> = rows.collect();
    let fit = names::fitting(rows.iter().map(Row::weight), want.rows * ROW_NAMES);
    rows.truncate(fit);
    let more = found.rows.len() > fit;
    found.rows.truncate(fit);
    let last = found.rows.last().filter(|_| more);
    let next = last.map(|((number, name), _)| {
        want.link(("after", &format!("{number}_{}", names::in_address(name))))
    });
    let unready = client_api.unready();
    let total = found.findings.total(unready);
    let ranked = found.findings.ranked(unready);
    let findings = ranked.into_iter().take(FINDINGS);
    let findings = findings.map(|(name, finding)| FindingRow {
        name: name.as_ref().map(Named::new),
        finding,
    });
    let mut findings: Vec<FindingRow> = findings.collect();
    let fit = names::fitting(findings.iter().map(FindingRow::weight), FINDING_NAMES);
    findings.truncate(fit);
    let more_findings = total.saturating_sub(findings.len() as u64);
    let counts = found.counts;
    let choice = |kind, (word, text): (&'static str, &'static str), on, count| Choice {
        word,
        text,
        link: want.link((kind, word)),
        count,
        on,
    };
    let only = ONLY.iter().zip(counts).enumerate();
    let only =
        only.map(|(at, (one, count))| choice("only", *one, at == want.only, words::count(count)));
    let sorts = SORTS.iter().enumerate();
    let sorts = sorts.map(|(at, one)| choice("sort", *one, at == want.sort, String::new()));
    Overview {
        findings,
        more_findings,
        facts,
        only: only.collect(),
        sorts: sorts.collect(),
        bodies: form_urlencoded::byte_serialize(want.name.as_bytes()).collect(),
        name: want.name.clone(),
        picks: rows.iter().any(|row| row.pick),
        all: counts[0],
        charts: found
            .hour
            .map(|hour| past::charts(&*client_api, &hour, false))
            .unwrap_or_default(),
        fit: words::of(found.fit, "queue", "queues"),
        first: want.after.is_some().then(|| want.link(("", ""))),
        next,
        warning,
        legend: context
            .elsewhere()
            .filter(|_| rows.iter().any(|row| row.elsewhere.is_some()))
            .map(|other| other.legend()),
        rows,
        frame: context.frame.of("Queues", "queues").live(""),
    }
}

/// `/find`: to the queue or the message of this name or id, else to the queues
/// whose name has it.
pub(super) async fn find(context: PageRequest) -> Answer {
    let query = context.query()?;
    let text = query.get("q").unwrap_or_default().trim().to_owned();
    let root = &context.frame.root;
    let name = Name::of_shown(&text);
    if name.is_possible() && context.stats(&name).await.is_ok() {
        let to = format!("{root}queues/{}", names::in_address(&name));
        return Ok(reply::redirect(&to));
    }
    if let Ok(id @ 1..) = text.parse() {
        let peek = Command::Peek(Peek::Id(MessageId(id)));
        if context.ask(peek).await.is_ok() {
            return Ok(reply::redirect(&format!("{root}messages/{id}")));
        }
        let api = &context.console.api;
        if let Some(mut outcome) = api.how_it_went(&context.requester, MessageId(id)).await {
            outcome.replace_range(..1, "M");
            return context.redirect("", outcome + ".");
        }
    }
    if let Some(id) = BatchId::parse(&text)
        && context
            .ask(Command::Batch(BatchRequest::Show(id)))
            .await
            .is_ok()
    {
        return Ok(reply::redirect(&format!("{root}batches/{id}")));
    }
    let want = Want {
        name: text,
        rows: ROWS,
        ..Want::default()
    };
    Ok(reply::redirect(&format!("{root}{}", want.link(("", "")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(name: &str, ready: u64, buried: u64) -> QueueStats {
        let mut stats = QueueStats {
            name: Name::from(name),
            ..QueueStats::default()
        };
        stats.gauges.ready = ready;
        stats.gauges.buried = buried;
        stats
    }

    /// Pages of a few rows, one after the other, have what one page of all has.
    #[test]
    fn pages_follow_one_another() {
        for sort in 0..SORTS.len() {
            let all: Vec<QueueStats> = (0..500)
                .map(|n| stats(&format!("q{n}"), n * 7919 % 13, u64::from(n % 5 == 0)))
                .collect();
            let mut seen = Vec::new();
            let mut after = None;
            loop {
                let want = Want {
                    sort,
                    rows: 7,
                    after: after.take(),
                    ..Want::default()
                };
                let mut found = QueueWalk::default();
                for stats in &all {
                    found.add(&want, &Thresholds::default(), stats.clone(), None);
                }
                found.keep_first(want.rows + 1);
                found.rows.sort_unstable_by(|a, b| order(&a.0, &b.0));
                let more = found.rows.len() > want.rows;
                found.rows.truncate(want.rows);
                seen.extend(found.rows.iter().map(|(key, _)| key.clone()));
                if !more {
                    break;
                }
                after = seen.last().cloned();
            }
            assert_eq!(seen.len(), all.len(), "{sort}");
            assert!(
                seen.windows(2)
                    .all(|pair| order(&pair[0], &pair[1]).is_lt()),
                "{sort}"
            );
        }
    }

    /// The chip counts what the line about attention counts.
    #[test]
    fn queues_without_consumers_are_those_that_need_attention_for_it() {
        let mut found = QueueWalk::default();
        for (name, ready, paused) in [("few", 9, false), ("many", 10, false), ("rests", 10, true)] {
            let stats = QueueStats {
                oldest_ms: 5 * 60_000,
                paused,
                ..stats(name, ready, 0)
            };
            found.add(&Want::default(), &Thresholds::default(), stats, None);
        }
        assert_eq!(found.counts, [3, 2, 1, 0, 1]);
        assert_eq!(found.findings.needing[Rule::NoConsumers as usize], 1);
    }

    #[test]
    fn a_star_matches_anything() {
        for (text, pattern, fits) in [
            ("mail.outbound", "mail*", true),
            ("mail.outbound", "*out*", true),
            ("mail.outbound", "*bound", true),
            ("mail.outbound", "m*.*d", true),
            ("mail.outbound", "out*", false),
            ("mail.outbound", "*mail", false),
            ("aa", "a*a", true),
            ("a", "a*a", false),
        ] {
            assert_eq!(matches(text, pattern), fits, "{text} {pattern}");
        }
    }
}
