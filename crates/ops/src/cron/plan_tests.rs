use super::*;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Milliseconds since 1970 of `2026-03-29T01:00:00Z` and the like.
fn at(text: &str) -> u64 {
    let time = chrono::DateTime::parse_from_rfc3339(text).expect("a time");
    u64::try_from(time.timestamp_millis()).expect("after 1970")
}

struct Table {
    cron: Cron,
    zone: Tz,
    once: bool,
    mark: Mark,
    missed: u64,
}

impl Table {
    /// As it is when it was first looked at `since`.
    fn new(schedule: &str, zone: Tz, once: bool, since: u64) -> Self {
        let mut table = Self {
            cron: Cron::parse(schedule).expect("a schedule"),
            zone,
            once,
            mark: Mark::default(),
            missed: 0,
        };
        assert!(!table.look(since), "nothing was due before it was there");
        table
    }

    /// Looks until there is nothing to do; true: it was put, never twice.
    fn look(&mut self, now: u64) -> bool {
        let mut put = false;
        for _ in 0..4 {
            let when = When {
                cron: &self.cron,
                zone: self.zone,
                policy: "p",
                once: self.once,
            };
            match when.look(&self.mark, Ms(now)) {
                Look::Rest => return put,
                Look::Note { mark, missed } => {
                    self.mark = mark;
                    self.missed += missed;
                }
                Look::Put { mark, missed, due } => {
                    assert!(!put, "twice at {now}");
                    // Of several missed times it is the first.
                    let behind = when.next(Ms(self.mark.done));
                    let is_fresh = due.0 == mark.done && due.0 + LATE_MS >= now;
                    assert!(is_fresh || due == behind, "{due:?} at {now}");
                    put = true;
                    self.mark = mark;
                    self.missed += missed;
                }
            }
        }
        panic!("it does not come to rest");
    }

    /// When it is put while the clock goes from one time to another.
    fn puts(&mut self, from: &str, to: &str) -> Vec<String> {
        let times = (at(from)..at(to)).step_by(20_000);
        let put = times.filter(|&now| self.look(now)).collect::<Vec<_>>();
        let shown = put.into_iter().map(|ms| {
            let time = chrono::DateTime::from_timestamp_millis(ms.try_into().expect("small"));
            time.expect("a time").format("%d %H:%M").to_string()
        });
        shown.collect()
    }
}

#[test]
fn each_due_time_is_put_once() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("*/10 * * * *", Tz::UTC, false, start);
    let puts = table.puts("2026-01-01T00:00:30Z", "2026-01-01T00:31:00Z");
    assert_eq!(puts, ["01 00:10", "01 00:20", "01 00:30"]);
    assert_eq!(table.missed, 0);
    // Not before it is due, by a millisecond.
    assert!(!table.look(start + 39 * MINUTE + 29_999));
    assert!(table.look(start + 39 * MINUTE + 30_000));
}

#[test]
fn missed_runs_are_skipped_or_made_up_for_once() {
    let start = at("2026-01-01T00:00:30Z");
    for once in [false, true] {
        let mut table = Table::new("0 * * * *", Tz::UTC, once, start);
        let now = start + 5 * HOUR + 10 * MINUTE;
        assert_eq!(table.look(now), once);
        assert_eq!(table.missed, 5);
        assert!(!table.look(now + 1000), "at most one");
        assert!(table.look(at("2026-01-01T06:00:00Z")), "and on it goes");
        assert_eq!(table.missed, 5);
    }
}

#[test]
fn late_by_a_minute_is_not_missed() {
    let start = at("2026-01-01T00:00:30Z");
    let due = at("2026-01-01T01:00:00Z");
    for (late, put, missed) in [(LATE_MS - 1, true, 0), (LATE_MS, false, 1)] {
        let mut table = Table::new("0 * * * *", Tz::UTC, false, start);
        assert_eq!(table.look(due + late), put, "{late}");
        assert_eq!(table.missed, missed);
    }
    // After an hour of nothing every minute's schedule has one put.
    let mut table = Table::new("* * * * *", Tz::UTC, true, start);
    assert!(table.look(due));
    assert_eq!(table.missed, 59);
}

#[test]
fn a_clock_that_is_set_repeats_nothing() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, false, start);
    assert!(table.look(at("2026-01-01T01:00:00Z")));
    // Back by half a day: silent until the clock is there again.
    assert!(!table.look(at("2025-12-31T13:00:00Z")));
    assert!(!table.look(at("2026-01-01T01:00:00Z")));
    assert!(table.look(at("2026-01-01T02:00:00Z")));
    // Forward by years: counted, up to a bound, and nothing put.
    assert!(!table.look(at("2036-01-01T02:30:00Z")));
    assert_eq!(table.missed, COUNTED_MAX);
}

#[test]
fn a_new_schedule_owes_nothing() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, true, start);
    table.mark.policy = "another".to_owned();
    assert!(!table.look(start + DAY));
    assert_eq!(table.missed, 0);
}

#[test]
fn a_pause_lets_go_what_is_due_in_it() {
    let start = at("2026-01-01T00:00:30Z");
    for once in [false, true] {
        let mut table = Table::new("0 * * * *", Tz::UTC, once, start);
        table.mark = table.mark.after(CronAct::Pause, Ms(start));
        let paused = table.mark.clone();
        for hours in 0..30 {
            assert!(!table.look(start + hours * HOUR));
        }
        assert_eq!(table.mark, paused, "a pause writes nothing");
        let run = paused.after(CronAct::Run, Ms(start + DAY));
        assert!(run.paused && run.last_run == Some(start + DAY));
        assert_eq!(run.done, paused.done, "its due times stay");
        // Resumed at half past: neither a put nor a miss.
        let now = start + DAY + 30 * MINUTE;
        table.mark = table.mark.after(CronAct::Resume, Ms(now));
        assert!(!table.look(now));
        assert!(table.look(at("2026-01-02T01:00:00Z")));
        assert_eq!((table.missed, table.mark.missed), (0, 0));
        // Nothing is let go where there was no pause.
        let same = table.mark.after(CronAct::Resume, Ms(now + DAY));
        assert_eq!(same, table.mark);
    }
}

#[test]
fn another_schedule_leaves_a_pause() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, true, start);
    table.mark = table.mark.after(CronAct::Pause, Ms(start));
    table.mark.policy = "another".to_owned();
    assert!(!table.look(start + DAY));
    assert!(table.mark.paused);
    assert_eq!(table.mark.policy, "p");
}

#[test]
fn marks_tell_what_was_missed_and_those_of_before_are_read() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, false, start);
    let now = start + 5 * HOUR + 10 * MINUTE;
    assert!(!table.look(now));
    assert_eq!((table.mark.missed, table.mark.last_missed), (5, Some(now)));
    assert!(table.look(at("2026-01-01T06:00:00Z")));
    assert_eq!((table.mark.missed, table.mark.last_missed), (5, Some(now)));
    let old = r#"{"policy":"0 * * * * UTC","done":7,"last_run":6,"last_id":5}"#;
    let old: Mark = serde_json::from_str(old).expect("a mark");
    assert_eq!((old.done, old.last_id), (7, Some(5)));
    assert_eq!((old.paused, old.missed), (false, 0));
}

/// In Berlin clocks went from 02:00 to 03:00 (01:00Z) on 29 March 2026.
#[test]
fn an_hour_that_never_comes() {
    let (from, to) = ("2026-03-28T12:00:30Z", "2026-03-30T04:00:00Z");
    let puts = |schedule| Table::new(schedule, Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(puts("30 2 * * *"), ["29 01:00", "30 00:30"]);
    let hourly = Table::new("30 * * * *", Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(hourly.len(), 40, "each hour there is: {hourly:?}");
    let often = Table::new("*/20 * * * *", Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(often.len(), 3 * 40 - 1, "and each third of one: {often:?}");
}

/// From 03:00 back to 02:00 (01:00Z) on 25 October 2026.
#[test]
fn an_hour_that_comes_twice() {
    let (from, to) = ("2026-10-24T12:00:30Z", "2026-10-26T04:00:00Z");
    let puts = |schedule| Table::new(schedule, Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(puts("30 2 * * *"), ["25 00:30", "26 01:30"]);
    let hourly = Table::new("30 * * * *", Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(hourly.len(), 40, "each hour there is: {hourly:?}");
    let often = Table::new("*/20 * * * *", Tz::Europe__Berlin, false, at(from)).puts(from, to);
    assert_eq!(often.len(), 3 * 40 - 1, "and each third of one: {often:?}");
}
