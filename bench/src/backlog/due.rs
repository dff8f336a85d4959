//! Many messages that become due in the same second, and others beside them.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_bench::{Load, Report};

use super::bulk::measure;
use super::server::{DEFAULT, Server};
use super::{Lab, Talk};
use crate::common::Found;
use crate::common::sheet::{Bound, Figure, Sheet, Show, Spread, count, us};

/// Messages put in one go, before their replies are read.
const BATCH: u64 = 1000;
/// Bytes of a message.
const SIZE: usize = 100;
/// They must be put, and at rest, within this.
const LEAD: Duration = Duration::from_secs(30);
/// Puts and takes a second of others, over so many connections with a queue each.
const STEADY: f64 = 5_000.0;
const CONNECTIONS: usize = 20;
/// Others are measured this long before the second and behind its begin.
const BEFORE: Duration = Duration::from_secs(2);
const BEHIND: Duration = Duration::from_secs(2);
/// How often is looked whether all are ready.
const LOOK: Duration = Duration::from_millis(20);
/// They are waited for this long.
const READY_MAX: Duration = Duration::from_secs(60);
/// Milliseconds within which the first one is wanted.
const FIRST_WANTED: Bound = Bound::AtMost(50.0);
/// Thousands a second that are wanted to be offered.
const OFFERED_WANTED: Bound = Bound::AtLeast(200.0);
/// How much longer others may wait.
const LONGER_WANTED: Bound = Bound::AtMost(2.0);

/// A tenth as many messages as asked for, all due in one second; somebody waits for the first, and
/// others put and take beside them.
///
/// # Errors
/// A server or a load fails, or not all become ready.
pub(crate) fn due(lab: &Lab) -> Result<Found> {
    const COLUMNS: [(&str, Show); 6] = [
        ("messages", count),
        ("first behind its time", us),
        ("all behind the last one's time", us),
        ("p99 of others, before", us),
        ("p99 of others, around it", us),
        ("longest of others", us),
    ];
    let all = lab.share(1, 10);
    let mut table = Sheet::new("due in one second", COLUMNS);
    let (mut first, mut rate, mut longer) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=lab.turns {
        let server = Server::new(&lab.ground, DEFAULT)?;
        let found = once(&server, all)?;
        let [before, around] = [&found.before, &found.around].map(|report| report.latency.p99_us);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let values = [
            all as f64,
            micros(found.first),
            micros(found.last),
            before,
            around,
            found.around.latency.max_us,
        ];
        table.row(format!("turn {turn}"), values);
        first.push(micros(found.first) / 1e3);
        let seconds = (Duration::from_secs(1) + found.last).as_secs_f64();
        rate.push(all as f64 / seconds / 1e3);
        longer.push(around / before);
    }
    let most = Spread::of(longer.iter().copied()).most;
    let what = format!("p99 of others around it / before ({most:.1} at most)");
    let figures = vec![
        Figure::new("the first one, ms", first, FIRST_WANTED),
        Figure::new("thousand offered a second", rate, OFFERED_WANTED),
        Figure::new(what, longer, LONGER_WANTED),
    ];
    Ok(Found::of(table, figures))
}

/// Result of one such second.
struct Second {
    /// From the due time of the first one until somebody had it.
    first: Duration,
    /// From the due time of the last one until none was delayed.
    last: Duration,
    /// Of the others.
    before: Report,
    around: Report,
}

fn once(server: &Server, all: u64) -> Result<Second> {
    let second = Instant::now() + LEAD;
    let first_due = put(server, all, second)?;
    server.rest()?;
    let mut others = server.load("memcache")?;
    (others.connections, others.rate) = (CONNECTIONS, Some(STEADY));
    (others.queue, others.queues) = ("others".to_owned(), None);

    let mut waiter = server.talk("beanstalk")?;
    waiter.ask("watch due\r\n", "WATCHING 2")?;
    let waits = thread::spawn(move || {
        let got = waiter.ask("reserve-with-timeout 55\r\n", "RESERVED ");
        // It takes no other, and keeps that one.
        got.map(|_| (Instant::now(), waiter))
    });
    let calm = Load {
        time: BEFORE,
        ..others.clone()
    };
    let before = measure(&calm, "others, before", &mut |_| {})?;

    let begin = second.checked_duration_since(Instant::now());
    let begin = begin.context("putting took longer than the time there was")?;
    ensure!(begin > BEFORE, "no time is left before the second");
    thread::sleep(begin - BEFORE);
    let mut client = server.talk("beanstalk")?;
    let counter = thread::spawn(move || ready(&mut client));
    others.time = BEFORE + Duration::from_secs(1) + BEHIND;
    let around = measure(&others, "others, around it", &mut |_| {})?;
    let (Ok(got), Ok(ready)) = (waits.join(), counter.join()) else {
        bail!("a connection's thread panicked");
    };
    let ((got, _held), ready) = (got?, ready?);
    Ok(Second {
        first: got.saturating_duration_since(first_due),
        last: ready.saturating_duration_since(second + Duration::from_secs(1)),
        before,
        around,
    })
}

/// Puts them so that each is due in the second that begins then. Answers when the earliest is.
fn put(server: &Server, all: u64, second: Instant) -> Result<Instant> {
    let mut talk = server.talk("beanstalk")?;
    talk.ask("use due\r\n", "USING due")?;
    let body = "x".repeat(SIZE);
    let mut earliest = second + Duration::from_secs(1);
    let mut done = 0;
    while done < all {
        let batch = BATCH.min(all - done);
        let now = Instant::now();
        let left = second.checked_duration_since(now);
        let left = left.context("they could not be put in time")?;
        // The report has whole seconds, so what is left of one spreads them over it.
        let delay = Duration::from_secs(left.as_secs() + 1);
        earliest = earliest.min(now + delay);
        let mut request = String::new();
        for _ in 0..batch {
            let delay = delay.as_secs();
            write!(request, "put 100 {delay} 120 {SIZE}\r\n{body}\r\n")?;
        }
        talk.send(&request)?;
        for _ in 0..batch {
            talk.read("INSERTED ")?;
        }
        done += batch;
    }
    Ok(earliest)
}

/// Waits until none is delayed any more, and answers when that was.
fn ready(talk: &mut Talk) -> Result<Instant> {
    let begin = Instant::now();
    loop {
        talk.send("stats-tube due\r\n")?;
        let delayed = talk.read("current-jobs-delayed: ")?;
        let delayed = delayed.last().and_then(|line| line.rsplit(' ').next());
        let none = delayed == Some("0");
        let now = Instant::now();
        // What is left of the reply ends with a line that says so.
        talk.read("pause-time-left: ")?;
        talk.read("")?;
        if none {
            return Ok(now);
        }
        ensure!(begin.elapsed() < READY_MAX, "not all became ready");
        thread::sleep(LOOK);
    }
}
