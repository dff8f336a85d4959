//! A queue: how it is, and its messages.

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_client::Rates;
use quintet_client::attention::{Finding, Level, Rule, why_slow};
use quintet_types::{
    Groups, HeldKey, ListState, Ms, Name, QueueGauges, QueueSettings, QueueStats, Rate, Verb,
};

use super::frame::Frame;
use super::graph::Chart;
use super::listing::{self, Line, STATES, Which};
use super::names::{self, Named, Piece};
use super::setup::{self, Setup};
use super::tiles::{Tiles, tiles};
use super::{Answer, PageRequest, nearest, past, queue_of, render, words};
use quintet_api::Path;
use quintet_http::{Called, CalledAs, Requester};

/// From this age of the oldest ready message on the page says why messages wait, ms.
const SLOW_MS: u64 = 10_000;

/// A state's tab.
pub(super) struct Tab {
    pub(super) word: &'static str,
    pub(super) number: u64,
    pub(super) count: String,
    pub(super) on: bool,
}

/// The requester's rights on a queue.
pub(super) struct May(pub(super) Requester, pub(super) Name);

impl May {
    pub(super) fn can(&self, verb: Verb) -> bool {
        self.0.may_to(verb, &self.1)
    }
}

#[derive(Template)]
#[template(path = "queue.html")]
struct Queue {
    frame: Frame,
    name: Named,
    stats: QueueStats,
    may: May,
    /// Author and time of the pause.
    paused_by: Option<String>,
    /// Time until the pause ends by itself.
    paused_left: Option<String>,
    why: Option<(bool, String, String)>,
    offers_buried: bool,
    facts: Tiles,
    charts: Vec<Chart>,
    /// Of the last day, not of the last hour.
    day: bool,
    tabs: Vec<Tab>,
    state: &'static str,
    which: Which,
    lines: Vec<Line>,
    /// Some are dead letters.
    dead: bool,
    /// Errors with counts, and of how many messages.
    kinds: Option<(Vec<listing::Kind>, String)>,
    looked: String,
    total: String,
    filtered: bool,
    /// The query of the list without its place.
    query: String,
    first: bool,
    next: Option<String>,
    script: bool,
    setup: Setup,
    /// `None`: keys mean nothing here.
    held: Option<HeldKeys>,
    elsewhere: Option<Elsewhere>,
}

/// Held keys on a page at most.
const HELD_MAX: usize = 100;
/// Bytes of a key that a form sends at most.
const TYPED_MAX: usize = 1024;

/// Keys of which nothing is delivered.
struct HeldKeys {
    all: usize,
    rows: Vec<HeldRow>,
}

struct HeldRow {
    key: Vec<Piece>,
    /// The key as a form sends it; in base64; empty: it is too long.
    typed: String,
    held: String,
    left: String,
}

impl HeldKeys {
    fn of(held: &[HeldKey], now: Ms) -> Self {
        let rows = held.iter().take(HELD_MAX).map(|held| HeldRow {
            key: names::first_line(&held.key),
            typed: match held.key.len() {
                0..=TYPED_MAX => BASE64_STANDARD.encode(&held.key),
                _ => String::new(),
            },
            held: words::duration(now.since(held.since)),
            left: words::duration(held.until.since(now)),
        });
        Self {
            all: held.len(),
            rows: rows.collect(),
        }
    }
}

/// Name of the queue in another protocol.
struct Elsewhere {
    by: &'static str,
    is: String,
    facts: Vec<Word>,
}

/// A word of there, and what stands for it.
struct Word {
    word: String,
    text: String,
    /// It is a queue, which may be seen.
    queue: Option<Named>,
}

/// How many are in a state.
pub(super) fn number(gauges: &QueueGauges, state: ListState) -> u64 {
    match state {
        ListState::Ready => gauges.ready + gauges.not_selectable,
        ListState::Delayed => gauges.delayed,
        ListState::Reserved => gauges.reserved,
        ListState::Buried => gauges.buried,
        ListState::Prepared => gauges.prepared,
        ListState::Archived => gauges.done + gauges.relayed,
    }
}

/// `/queues/NAME`.
pub(super) async fn page(context: PageRequest, Path(part): Path<String>) -> Answer {
    let queue = queue_of(&part)?;
    let query = context.query()?;
    let which = Which::of(&query)?;
    let stats = match context.stats(&queue).await {
        Ok(stats) => stats,
        Err(problem) => return Err(nearest::or_nearest(&context, &queue, problem).await),
    };
    let after = query.get("after");
    // Numbers may be seen by some who may not see messages.
    let list = match context.requester.may_to(Verb::Peek, &queue) {
        true => listing::list(&context, &queue, &which, after).await?,
        false => listing::Page::default(),
    };
    let kinds = match query.says("group") && context.requester.may_to(Verb::Peek, &queue) {
        true => Some(listing::kinds(&context, &queue, &which).await?),
        false => None,
    };
    let shown = queue.to_string();
    let script = context.console.ask_rq(move |rq| rq.has_script(&shown));
    let script = script.await?;
    let queue_setup = context.setup(&queue).await?;
    let setup = setup::of(&context, &queue_setup);
    let held = match keys(&stats, &queue_setup.settings) {
        None => None,
        Some(_) => {
            let held = context.console.api.held_keys(&context.requester, &queue);
            Some(HeldKeys::of(&held.await?, context.now()))
        }
    };
    let elsewhere = context.elsewhere();
    let elsewhere = elsewhere.and_then(|other| other.called(&stats, &queue_setup));
    let name = Named::new(&queue);
    let client_api = context.client_api();
    let history = client_api.history(&queue);
    let day = query.get("span") == Some("24h");
    let recent = client_api.recent(&stats);
    let finding = client_api.thresholds().judge(&stats, recent.as_ref());
    let frame = context.frame.of(&name.plain, "queues");
    render(&Queue {
        // A filter looks through messages, which stay as they are shown.
        frame: frame.live("has key older error group after"),
        may: May(context.requester.clone(), queue.clone()),
        paused_by: setup::paused_by(&context, &queue_setup),
        paused_left: Some(stats.paused_left_ms)
            .filter(|left| *left > 0)
            .map(words::duration),
        offers_buried: (finding.as_ref()).is_some_and(|found| found.rule == Rule::DeadLetters),
        why: why(&stats, finding, || why_slow(&stats, recent.as_ref())),
        facts: facts(&stats, &queue_setup.settings, client_api.rates(&queue)),
        elsewhere: elsewhere.map(|called| elsewhere_of(&context, called)),
        charts: history
            .map(|past| if day { past.quarters } else { past.minutes })
            .map(|series| past::charts(&*client_api, &series, day))
            .unwrap_or_default(),
        day,
        tabs: tabs(&stats, which.state),
        state: listing::word(which.state),
        filtered: which.is_filtered(),
        query: which.query(None),
        looked: words::count(list.examined),
        total: words::count(number(&stats.gauges, which.state)),
        next: list.next.map(|next| which.query(Some(&next))),
        first: after.is_some(),
        dead: list.lines.iter().any(|line| line.from.is_some()),
        kinds,
        lines: list.lines,
        which,
        stats,
        name,
        script,
        setup,
        held,
    })
}

/// The tabs of the states, but of one that few queues have.
fn tabs(stats: &QueueStats, shown: ListState) -> Vec<Tab> {
    let tabs = STATES.iter().map(|(state, word)| {
        let number = number(&stats.gauges, *state);
        Tab {
            word,
            number,
            count: words::count(number),
            on: *state == shown,
        }
    });
    let is_shown = |tab: &Tab| tab.number > 0 || tab.on || tab.word != "prepared";
    tabs.filter(is_shown).collect()
}

/// Whether it is an alarm, what it is, and why.
fn why(
    stats: &QueueStats,
    finding: Option<Finding>,
    slow: impl FnOnce() -> String,
) -> Option<(bool, String, String)> {
    if let Some(found) = finding {
        let alarm = found.rule.level() == Level::Alarm;
        return Some((alarm, found.says, found.because));
    }
    let slow = (stats.oldest_ms >= SLOW_MS).then(slow)?;
    (!slow.is_empty()).then(|| (false, "is slow.".to_owned(), slow))
}

fn elsewhere_of(context: &PageRequest, called: Called) -> Elsewhere {
    let word = |(word, value): (String, CalledAs)| {
        let (text, queue) = match value {
            CalledAs::Text(text) => (names::seen(&text), None),
            CalledAs::Count(number) => (words::count(number), None),
            CalledAs::Bytes(number) => (words::bytes(number), None),
            CalledAs::Ms(ms) => (words::duration(ms), None),
            CalledAs::Queue(queue, text) => {
                let named = Named::new(&queue);
                match context.requester.may_to(Verb::Stats, &queue) {
                    true => (text, Some(named)),
                    false => (format!("{}, {text}", named.plain), None),
                }
            }
        };
        let word = names::seen(&word);
        Word { word, text, queue }
    };
    Elsewhere {
        by: called.by,
        is: called.is,
        facts: called.facts.into_iter().map(word).collect(),
    }
}

/// How a queue goes by the keys of its messages, if it does.
fn keys(stats: &QueueStats, settings: &QueueSettings) -> Option<[(&'static str, String); 2]> {
    let means = match settings.groups {
        Groups::Ordered => "ordered",
        Groups::Fair => "fair",
        Groups::None
            if settings.key_in_flight_max > 0 || settings.key_take_rate != Rate::default() =>
        {
            "limited"
        }
        Groups::None => return None,
    };
    let (keys, limited) = (words::count(stats.keys), words::count(stats.keys_limited));
    Some([
        ("Message groups", format!("{keys} ({means})")),
        ("Message groups at a limit", limited),
    ])
}

fn facts(stats: &QueueStats, settings: &QueueSettings, rates: Option<Rates>) -> Tiles {
    let (gauges, totals) = (&stats.gauges, &stats.totals);
    let oldest = match gauges.ready + gauges.not_selectable {
        0 => words::NONE.to_owned(),
        _ => words::duration(stats.oldest_ms),
    };
    let left = totals.left();
    let ends = [
        ("Finished", left.finished),
        ("Removed", left.removed),
        ("Failed finally", left.failed),
        ("Dropped", left.dropped),
        ("Expired", left.expired),
        ("Moved away", left.moved),
    ];
    let mut now = vec![
        ("Oldest ready", oldest),
        ("Waiting consumers", words::count(gauges.waiters)),
        ("Size", words::bytes(gauges.bytes)),
    ];
    now.extend(keys(stats, settings).into_iter().flatten());
    let mut minute = Vec::new();
    if let Some(rates) = rates {
        let [into, out] = past::speed(rates);
        minute.push(("In, per second", into));
        minute.push(("Out, per second", out));
        minute.extend(past::comes_due(rates).map(|due| ("Came due, per second", due)));
        minute.push(("Empty in", past::empty_in(stats, rates)));
    }
    let mut ever = vec![("Put", words::count(totals.puts))];
    let ends = ends
        .into_iter()
        .filter(|(word, number)| *number > 0 || *word == "Finished");
    ever.extend(ends.map(|(word, number)| (word, words::count(number))));
    ever.push(("Expired leases", words::count(totals.timeouts)));
    tiles(now, minute, ever)
}
