use super::*;

use chrono_tz::Tz;
use quintet_policy::{Cron, Overlap, Recurrence, Timing};
use quintet_types::{Body, Name, Put};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Milliseconds since 1970 of `2026-03-29T01:00:00Z` and the like.
fn at(text: &str) -> u64 {
    let time = chrono::DateTime::parse_from_rfc3339(text).expect("a time");
    u64::try_from(time.timestamp_millis()).expect("after 1970")
}

struct Table {
    schedule: Schedule,
    cursor: Cursor,
    missed: u64,
}

fn timing(recurrence: Recurrence) -> Timing {
    Timing {
        recurrence,
        start: Ms(0),
        end: Ms::NEVER,
        count: None,
    }
}

impl Table {
    /// As it is when it was first looked at `since`.
    fn new(schedule: &str, zone: Tz, missed: Missed, since: u64) -> Self {
        let cron = Cron::parse(schedule).expect("a schedule");
        Self::of(timing(Recurrence::Cron(cron, zone)), missed, since)
    }

    fn of(timing: Timing, missed: Missed, since: u64) -> Self {
        let schedule = Schedule {
            name: "s".to_owned(),
            timing,
            policy: "p".to_owned(),
            missed,
            overlap: Overlap::Allow,
            put: Put::new(Name::from("w"), Body::new(b"")),
        };
        let mut table = Self {
            schedule,
            cursor: Cursor::default(),
            missed: 0,
        };
        assert!(
            !table.puts_once(since),
            "nothing was due before it was there"
        );
        table
    }

    /// Looks until there is nothing to do; true: it was put, never twice.
    fn puts_once(&mut self, now: u64) -> bool {
        match self.count_puts(now) {
            0 => false,
            1 => true,
            puts => panic!("{puts} puts at {now}"),
        }
    }

    /// Looks until there is nothing to do; answers how often it was put.
    fn count_puts(&mut self, now: u64) -> u64 {
        let mut puts = 0;
        for _ in 0..5000 {
            match next_step(&self.schedule, &self.cursor, Ms(now)) {
                NextStep::Rest => {
                    assert!(next_check(&self.schedule, &self.cursor).0 > now);
                    return puts;
                }
                NextStep::Note { cursor, missed } => {
                    assert!(
                        next_check(&self.schedule, &self.cursor).0 <= now,
                        "it is due"
                    );
                    self.cursor = cursor;
                    self.missed += missed;
                }
                NextStep::Put {
                    cursor,
                    missed,
                    due,
                } => {
                    // Of several missed times it is the first.
                    let behind = self.schedule.timing.next(Ms(self.cursor.done));
                    let is_fresh = due.0 == cursor.done && due.0 + LATE_MS >= now;
                    assert!(is_fresh || due == behind, "{due:?} at {now}");
                    puts += 1;
                    self.cursor = cursor;
                    self.missed += missed;
                }
            }
            assert!(self.cursor.runs.len() <= RUNS_MAX);
        }
        panic!("it does not come to rest");
    }

    /// When it is put while the clock goes from one time to another.
    fn puts(&mut self, from: &str, to: &str) -> Vec<String> {
        let times = (at(from)..at(to)).step_by(20_000);
        let put = times.filter(|&now| self.puts_once(now)).collect::<Vec<_>>();
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
    let mut table = Table::new("*/10 * * * *", Tz::UTC, Missed::Skip, start);
    let puts = table.puts("2026-01-01T00:00:30Z", "2026-01-01T00:31:00Z");
    assert_eq!(puts, ["01 00:10", "01 00:20", "01 00:30"]);
    assert_eq!(table.missed, 0);
    // Not before it is due, by a millisecond.
    assert!(!table.puts_once(start + 39 * MINUTE + 29_999));
    assert!(table.puts_once(start + 39 * MINUTE + 30_000));
}

#[test]
fn missed_runs_are_skipped_or_made_up_for_once() {
    let start = at("2026-01-01T00:00:30Z");
    for missed in [Missed::Skip, Missed::Once] {
        let mut table = Table::new("0 * * * *", Tz::UTC, missed, start);
        let now = start + 5 * HOUR + 10 * MINUTE;
        assert_eq!(table.puts_once(now), missed == Missed::Once);
        assert_eq!(table.missed, 5);
        assert!(!table.puts_once(now + 1000), "at most one");
        assert!(
            table.puts_once(at("2026-01-01T06:00:00Z")),
            "and on it goes"
        );
        assert_eq!(table.missed, 5);
    }
}

#[test]
fn late_by_a_minute_is_not_missed() {
    let start = at("2026-01-01T00:00:30Z");
    let due = at("2026-01-01T01:00:00Z");
    for (late, put, missed) in [(LATE_MS - 1, true, 0), (LATE_MS, false, 1)] {
        let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Skip, start);
        assert_eq!(table.puts_once(due + late), put, "{late}");
        assert_eq!(table.missed, missed);
    }
    // After an hour of nothing every minute's schedule has one put.
    let mut table = Table::new("* * * * *", Tz::UTC, Missed::Once, start);
    assert!(table.puts_once(due));
    assert_eq!(table.missed, 59);
}

/// A stall of less than a minute loses no run of a schedule of each second.
#[test]
fn due_times_of_the_last_minute_are_put_each() {
    let second = || {
        timing(Recurrence::Every {
            ms: 1000,
            phase_ms: 0,
        })
    };
    let start = at("2026-01-01T00:00:30Z");
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let mut table = Table::of(second(), missed, start);
        assert_eq!((table.count_puts(start + 59_000), table.missed), (59, 0));
    }
    // What is older is missed, and noted once.
    let mut table = Table::of(second(), Missed::Skip, start);
    assert_eq!((table.count_puts(start + 100_000), table.missed), (60, 40));
    let missed = |run: &&Run| run.3 == How::Missed;
    assert!(table.cursor.runs.iter().filter(missed).count() <= 1);
}

/// So a put never needs more room in the tables than its schedule has taken when it was made.
#[test]
fn an_entry_grows_no_more_after_it_was_made() {
    let start = at("2026-01-01T00:00:30Z");
    let bytes =
        |cursor: &Cursor, full| serde_json::to_vec(&cursor.entry(full)).expect("JSON").len();
    let mut table = Table::new("* * * * *", Tz::UTC, Missed::Skip, start);
    let made = bytes(&Cursor::default().of_policy("p", Ms(start)), false);
    for minutes in 1..30 {
        assert!(table.puts_once(start + minutes * MINUTE));
        table.cursor = table.cursor.with_message(u64::MAX >> 8);
        table.cursor.missed = 1 << 40;
        assert_eq!(bytes(&table.cursor, false), made);
        let read = serde_json::to_vec(&table.cursor.entry(false)).expect("JSON");
        table.cursor = serde_json::from_slice(&read).expect("a mark");
    }
    assert_eq!(table.cursor.runs.len(), RUNS_MAX);
    // One of an older version had no such room.
    assert!(bytes(&table.cursor, true) < made / 2);
}

/// The mark is of `Mark` in commit 8486fd84.
#[test]
fn an_old_cursor_is_read() {
    let old = r#"{"policy":"0 * * * * UTC","done":5,"last_run":4,"last_id":3,"paused":true,"missed":2,"last_missed":1}"#;
    let cursor = Cursor {
        policy: "0 * * * * UTC".to_owned(),
        done: 5,
        last_run: Some(4),
        last_id: Some(3),
        paused: true,
        missed: 2,
        last_missed: Some(1),
        ..Cursor::default()
    };
    assert_eq!(serde_json::from_str::<Cursor>(old).expect("a mark"), cursor);
}

#[test]
fn a_clock_that_is_set_repeats_nothing() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Skip, start);
    assert!(table.puts_once(at("2026-01-01T01:00:00Z")));
    // Back by half a day: silent until the clock is there again.
    assert!(!table.puts_once(at("2025-12-31T13:00:00Z")));
    assert!(!table.puts_once(at("2026-01-01T01:00:00Z")));
    assert!(table.puts_once(at("2026-01-01T02:00:00Z")));
    // Forward by years: counted, up to a bound, and nothing put.
    assert!(!table.puts_once(at("2036-01-01T02:30:00Z")));
    assert_eq!(table.missed, COUNTED_MAX);
}

/// It put while the clock was ten years ahead.
#[test]
fn a_clock_that_was_far_ahead_silences_a_schedule_until_then_or_until_its_times_change() {
    let start = at("2026-01-01T00:00:30Z");
    for changes in [false, true] {
        let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Once, start);
        assert!(table.puts_once(at("2036-01-01T00:30:00Z")));
        // The clock is right again.
        if changes {
            table.cursor.policy = "another".to_owned();
        }
        assert!(!table.puts_once(start + 2 * HOUR));
        assert_eq!(table.puts_once(start + 3 * HOUR), changes);
        assert!(table.puts_once(at("2036-01-01T01:00:00Z")));
    }
}

#[test]
fn a_new_schedule_owes_nothing() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Once, start);
    table.cursor.policy = "another".to_owned();
    assert!(!table.puts_once(start + DAY));
    assert_eq!(table.missed, 0);
}

#[test]
fn a_pause_skips_due_times() {
    let start = at("2026-01-01T00:00:30Z");
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let mut table = Table::new("0 * * * *", Tz::UTC, missed, start);
        table.cursor = table.cursor.paused();
        let paused = table.cursor.clone();
        for hours in 0..30 {
            assert!(!table.puts_once(start + hours * HOUR));
        }
        assert_eq!(table.cursor, paused, "a pause writes nothing");
        let run = paused.by_hand(Ms(start + DAY));
        assert!(run.paused && run.last_run == Some(start + DAY));
        assert_eq!(run.done, paused.done, "its due times stay");
        // Resumed at half past: neither a put nor a miss.
        let now = start + DAY + 30 * MINUTE;
        table.cursor = table.cursor.resumed(Ms(now));
        assert!(!table.puts_once(now));
        assert!(table.puts_once(at("2026-01-02T01:00:00Z")));
        assert_eq!((table.missed, table.cursor.missed), (0, 0));
        // Nothing is let go where there was no pause.
        let same = table.cursor.resumed(Ms(now + DAY));
        assert_eq!(same, table.cursor);
    }
}

#[test]
fn another_schedule_leaves_a_pause() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Once, start);
    table.cursor = table.cursor.paused();
    table.cursor.policy = "another".to_owned();
    assert!(!table.puts_once(start + DAY));
    assert!(table.cursor.paused);
    assert_eq!(table.cursor.policy, "p");
}

#[test]
fn cursors_have_missed_runs_and_old_ones_are_read() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Skip, start);
    let now = start + 5 * HOUR + 10 * MINUTE;
    assert!(!table.puts_once(now));
    assert_eq!(
        (table.cursor.missed, table.cursor.last_missed),
        (5, Some(now))
    );
    assert!(table.puts_once(at("2026-01-01T06:00:00Z")));
    assert_eq!(
        (table.cursor.missed, table.cursor.last_missed),
        (5, Some(now))
    );
    let old = r#"{"policy":"0 * * * * UTC","done":7,"last_run":6,"last_id":5}"#;
    let old: Cursor = serde_json::from_str(old).expect("a mark");
    assert_eq!((old.done, old.last_id), (7, Some(5)));
    assert_eq!((old.paused, old.missed), (false, 0));
    assert!(old.runs.is_empty());
    // An outcome that a newer version has counts as a put.
    let newer = r#"{"policy":"p","runs":[[1,2,3,9,1]]}"#;
    let newer: Cursor = serde_json::from_str(newer).expect("a mark");
    assert_eq!(newer.runs, [Run(1, 2, 3, How::Put, 1)]);
}

/// In Berlin clocks went from 02:00 to 03:00 (01:00Z) on 29 March 2026.
#[test]
fn an_hour_that_never_comes() {
    let (from, to) = ("2026-03-28T12:00:30Z", "2026-03-30T04:00:00Z");
    let puts =
        |schedule| Table::new(schedule, Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(puts("30 2 * * *"), ["29 01:00", "30 00:30"]);
    let hourly =
        Table::new("30 * * * *", Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(hourly.len(), 40, "each hour there is: {hourly:?}");
    let often =
        Table::new("*/20 * * * *", Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(often.len(), 3 * 40 - 1, "and each third of one: {often:?}");
}

/// From 03:00 back to 02:00 (01:00Z) on 25 October 2026.
#[test]
fn an_hour_that_comes_twice() {
    let (from, to) = ("2026-10-24T12:00:30Z", "2026-10-26T04:00:00Z");
    let puts =
        |schedule| Table::new(schedule, Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(puts("30 2 * * *"), ["25 00:30", "26 01:30"]);
    let hourly =
        Table::new("30 * * * *", Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(hourly.len(), 40, "each hour there is: {hourly:?}");
    let often =
        Table::new("*/20 * * * *", Tz::Europe__Berlin, Missed::Skip, at(from)).puts(from, to);
    assert_eq!(often.len(), 3 * 40 - 1, "and each third of one: {often:?}");
}

#[test]
fn all_missed_runs_are_made_up_for_in_their_order_up_to_a_bound() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::All, start);
    assert_eq!(table.count_puts(start + 5 * HOUR), 5);
    assert_eq!((table.missed, table.cursor.puts), (0, 5));
    let due: Vec<u64> = table.cursor.runs.iter().map(|run| run.0).collect();
    let hour = at("2026-01-01T01:00:00Z");
    assert_eq!(due, [0, 1, 2, 3, 4].map(|hours| hour + hours * HOUR));
    // Of each second of an hour: so many, then the rest is missed at once, and on it goes.
    let seconds = timing(Recurrence::Every {
        ms: 1000,
        phase_ms: 0,
    });
    let mut table = Table::of(seconds, Missed::All, start);
    assert_eq!(table.count_puts(start + HOUR), ALL_MAX + 60);
    assert_eq!(table.missed, COUNTED_MAX);
    assert_eq!(table.count_puts(start + HOUR + 1000), 1);
    assert_eq!(
        table.count_puts(start + HOUR + 4000),
        3,
        "late by less than a minute"
    );
}

#[test]
fn each_second_for_ever_ends_in_a_minute_of_puts_whatever_the_clock_does() {
    let start = at("2026-01-01T00:00:30Z");
    let seconds = || {
        timing(Recurrence::Every {
            ms: 1000,
            phase_ms: 0,
        })
    };
    for missed in [Missed::Skip, Missed::Once] {
        let mut table = Table::of(seconds(), missed, start);
        for second in 1..100 {
            assert!(table.puts_once(start + second * 1000));
        }
        assert_eq!(table.missed, 0);
        // Ten years at once.
        assert_eq!(table.count_puts(at("2036-01-01T00:00:00Z")), 60);
        assert_eq!(table.missed, COUNTED_MAX);
    }
}

#[test]
fn a_count_a_start_and_an_end_bound_the_runs() {
    let start = at("2026-01-01T00:00:30Z");
    let of = |count, from, to| {
        let hours = Recurrence::Every {
            ms: HOUR,
            phase_ms: 0,
        };
        let timing = Timing {
            start: Ms(from),
            end: Ms(to),
            count,
            ..timing(hours)
        };
        Table::of(timing, Missed::Skip, start)
    };
    let puts = |table: &mut Table| -> u64 {
        let hours =
            (0..24).map(|hours| table.count_puts(at("2026-01-01T00:00:00Z") + hours * HOUR));
        hours.sum()
    };
    let mut table = of(Some(3), 0, u64::MAX);
    assert_eq!(puts(&mut table), 3);
    assert_eq!(next_check(&table.schedule, &table.cursor), Ms::NEVER);
    // A put by hand is none of them, and other times begin again.
    let mut table = of(Some(3), 0, u64::MAX);
    table.cursor = table.cursor.by_hand(Ms(start));
    assert_eq!(puts(&mut table), 3);
    table.cursor = table.cursor.of_policy("p", Ms(start));
    assert_eq!(puts(&mut table), 3);
    let (from, to) = (at("2026-01-01T05:00:00Z"), at("2026-01-01T07:00:00Z"));
    assert_eq!(puts(&mut of(None, from, to)), 3);
}

#[test]
fn a_run_that_stored_nothing_is_shown_as_skipped() {
    let start = at("2026-01-01T00:00:30Z");
    let mut table = Table::new("0 * * * *", Tz::UTC, Missed::Skip, start);
    table.puts_once(at("2026-01-01T01:00:00Z"));
    let before = table.cursor.with_message(7);
    let now = Ms(at("2026-01-01T02:00:00Z"));
    let NextStep::Put { cursor, .. } = next_step(&table.schedule, &before, now) else {
        panic!("it is due");
    };
    let after = before.skipped(&cursor, now);
    assert_eq!((after.puts, after.last_id), (1, Some(7)));
    assert_eq!((after.done, after.last_skipped), (now.0, Some(now.0)));
    let how: Vec<How> = after.runs.iter().map(|run| run.3).collect();
    assert_eq!(how, [How::Put, How::Skipped]);
    assert_eq!(next_step(&table.schedule, &after, now), NextStep::Rest);
}

/// A 29 February comes in leap years alone, and 2100 is none.
#[test]
fn a_leap_day_comes_in_leap_years() {
    let schedule = Table::new(
        "0 0 29 2 *",
        Tz::UTC,
        Missed::Skip,
        at("2026-01-01T00:00:00Z"),
    );
    let years = schedule
        .schedule
        .timing
        .nexts(Ms(at("2092-01-01T00:00:00Z")), 3);
    let expected = [
        "2092-02-29T00:00:00Z",
        "2096-02-29T00:00:00Z",
        "2104-02-29T00:00:00Z",
    ];
    assert_eq!(years, expected.map(|text| Ms(at(text))));
}

/// An interval is one of time, not of clocks.
#[test]
fn an_interval_follows_no_clock_change() {
    let (from, to) = ("2026-03-28T12:00:30Z", "2026-03-30T12:00:00Z");
    let recurrence = Recurrence::Every {
        ms: 12 * HOUR,
        phase_ms: HOUR,
    };
    let puts = Table::of(timing(recurrence), Missed::Skip, at(from)).puts(from, to);
    assert_eq!(puts, ["28 13:00", "29 01:00", "29 13:00", "30 01:00"]);
}
