use std::sync::Mutex;

use quintet_types::{QueueGauges, QueueTotals};

use super::*;

const START: u64 = 1_000_000 * QUARTER;

fn queue(name: &str, into: u64, out: u64) -> QueueStats {
    QueueStats {
        name: Name::from(name),
        created: Ms(7),
        gauges: QueueGauges {
            ready: into - out,
            ..QueueGauges::default()
        },
        oldest_ms: (into - out) * 1000,
        totals: QueueTotals {
            puts: into,
            taken: out,
            ..QueueTotals::default()
        },
        ..QueueStats::default()
    }
}

/// One pass `minute` minutes after the start.
fn pass(all: &mut Histories, minute: u64, queues: &[QueueStats], most: usize) {
    let now = Ms(START + minute * MINUTE);
    all.begin(now);
    all.sample(now, queues, most);
    all.end(now);
}

#[test]
fn only_queues_with_traffic_have_a_history_and_rates_are_per_second() {
    let mut all = Histories::default();
    pass(&mut all, 0, &[queue("a", 600, 0), queue("still", 5, 0)], 9);
    assert_eq!(all.counts(), (0, 0), "nothing is known to have moved");
    pass(
        &mut all,
        1,
        &[queue("a", 1200, 60), queue("still", 5, 0)],
        9,
    );
    let rates = all.rates(&Name::from("a")).expect("it moved");
    assert_eq!((rates.into, rates.out()), (10.0, 1.0));
    assert_eq!(rates.left.finished, 1.0);
    assert!(all.of(&Name::from("still")).is_none());
    pass(&mut all, 2, &[queue("a", 1200, 60)], 9);
    let rates = all.rates(&Name::from("a")).expect("it has a history");
    assert_eq!(rates, Rates::default());
    let history = all.of(&Name::from("a")).expect("one");
    assert_eq!(history.minutes.end, Ms(START + 2 * MINUTE));
    let ready = history
        .minutes
        .samples
        .iter()
        .map(|sample| sample.unwrap().ready);
    assert_eq!(ready.collect::<Vec<_>>(), [1140, 1140]);
}

#[test]
fn a_new_queue_counts_from_its_creation_and_a_recreated_one_is_another() {
    let mut all = Histories::default();
    pass(&mut all, 0, &[], 9);
    let mut new = queue("a", 60, 0);
    new.created = Ms(START + MINUTE / 2);
    pass(&mut all, 1, std::slice::from_ref(&new), 9);
    assert_eq!(all.rates(&new.name).expect("it moved").into, 2.0);
    new.created = Ms(START + MINUTE + MINUTE / 2);
    new.totals.puts = 30;
    pass(&mut all, 2, std::slice::from_ref(&new), 9);
    let history = all.of(&new.name).expect("it moved");
    assert_eq!(history.minutes.samples.len(), 1, "the old one's is gone");
    assert_eq!(all.rates(&new.name).expect("it moved").into, 1.0);
    pass(&mut all, 3, &[], 9);
    assert_eq!(all.counts(), (0, 0), "gone with its queue");
    assert!(all.baselines.is_empty());
}

#[test]
fn gaps_stay_gaps_and_time_that_stands_adds_nothing() {
    let mut all = Histories::default();
    let name = Name::from("a");
    pass(&mut all, 0, &[queue("a", 1, 0)], 9);
    pass(&mut all, 1, &[queue("a", 2, 0)], 9);
    pass(&mut all, 4, &[queue("a", 182, 0)], 9);
    pass(&mut all, 4, &[queue("a", 999, 0)], 9);
    let history = all.of(&name).expect("one");
    let there = history.minutes.samples.iter().map(Option::is_some);
    assert_eq!(there.collect::<Vec<_>>(), [true, false, false, true]);
    // Over three minutes: what is not known of each is known of all.
    assert_eq!(all.rates(&name).expect("one").into, 1.0);
    // Longer than the ring: nothing of before is left, and nothing is made up.
    pass(&mut all, 1000, &[queue("a", 183, 0)], 9);
    let history = all.of(&name).expect("one");
    assert_eq!(history.minutes.samples.len(), MINUTES);
    assert_eq!(history.minutes.samples.iter().flatten().count(), 1);
}

#[test]
fn a_quarter_is_its_minutes_at_their_most_and_in_the_mean() {
    let mut all = Histories::default();
    for minute in 0..=30 {
        let into = 1 + minute * 60 + if minute >= 20 { 6000 } else { 0 };
        pass(&mut all, minute, &[queue("a", into, 0)], 9);
    }
    let quarters = all.of(&Name::from("a")).expect("one").quarters;
    assert_eq!(quarters.end, Ms(START + 2 * QUARTER));
    let samples: Vec<_> = quarters.samples.iter().map(|s| s.unwrap()).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].ready, 1 + 15 * 60);
    assert!((samples[0].rates.into - 1.0).abs() < 0.001);
    assert_eq!(samples[1].oldest_s, 1 + 30 * 60 + 6000);
    let mean = 1.0 + 100.0 / 15.0;
    assert!((samples[1].rates.into - mean).abs() < 0.001);
}

#[test]
fn rings_are_bounded_in_number_and_in_length_and_idle_ones_are_forgotten() {
    let mut all = Histories::default();
    let names = ["a", "b", "c"];
    pass(&mut all, 0, &names.map(|name| queue(name, 1, 0)), 2);
    for minute in 1..3 * 24 * 60 {
        let moved = names.map(|name| queue(name, 1 + minute.min(1500), 0));
        pass(&mut all, minute, &moved, 2);
        let (rings, left_out) = all.counts();
        assert!(rings <= 2);
        if minute == 5 {
            assert_eq!((rings, left_out), (2, 1));
            assert!(all.of(&Name::from("c")).is_none());
        }
        if minute == 1500 {
            let history = all.of(&Name::from("a")).expect("one");
            assert_eq!(history.minutes.samples.len(), MINUTES);
            assert_eq!(history.quarters.samples.len(), QUARTERS);
        }
    }
    assert_eq!(all.counts(), (0, 0));
}

#[test]
fn recent_counts_are_known_from_the_first_sample_on() {
    let mut all = Histories::default();
    let name = Name::from("a");
    let totals = |puts, discarded, buries| {
        let mut queue = queue("a", puts, 0);
        queue.totals.discarded = discarded;
        queue.totals.buries = buries;
        queue
    };
    let at = |minute| Ms(START + minute * MINUTE);
    let recent = |all: &Histories, minute, queue: &QueueStats| {
        all.recent(queue, at(minute))
            .map(|recent| (recent.came, recent.left.dropped, recent.dead))
    };
    let now = totals(100, 5, 1);
    assert_eq!(all.recent(&now, at(0)), None, "nothing was sampled");
    pass(&mut all, 0, std::slice::from_ref(&now), 9);
    assert_eq!(recent(&all, 0, &now), Some((0, 0, 0)));
    assert_eq!(recent(&all, 1, &totals(130, 8, 2)), Some((30, 3, 1)));
    // Counters fall out of the span after five minutes, and dead letters after an hour.
    for minute in 1..9 {
        pass(&mut all, minute, &[totals(100 + 10 * minute, 5, 3)], 9);
    }
    let now = totals(200, 5, 3);
    assert_eq!(recent(&all, 9, &now), Some((70, 0, 2)));
    assert_eq!(all.recent(&now, at(9)).map(|r| r.span_ms), Some(6 * MINUTE));
    assert_eq!(recent(&all, 59, &now), Some((70, 0, 2)));
    assert_eq!(recent(&all, 61, &now), Some((70, 0, 0)));
    // One that was made since counts from nothing, and one that was made anew is another.
    let mut new = totals(7, 0, 0);
    new.created = at(9);
    assert_eq!(recent(&all, 9, &new), Some((7, 0, 0)));
    new.created = Ms(8);
    assert_eq!(recent(&all, 9, &new), None);
    assert!(all.of(&name).is_some());
}

#[test]
fn it_is_known_how_long_no_lease_has_ended() {
    let mut all = Histories::default();
    let finished = |minute, finished| {
        let mut queue = queue("a", 100 + minute, 0);
        queue.totals.finished = finished;
        queue.gauges.reserved = 1;
        queue
    };
    for minute in 0..4 {
        pass(&mut all, minute, &[finished(minute, minute.min(2))], 9);
    }
    let since = |count, seconds: u64| {
        let now = Ms(START + 3 * MINUTE + seconds * 1000);
        let recent = all.recent(&finished(4, count), now);
        recent.map(|recent| recent.no_end_ms)
    };
    assert_eq!(since(2, 30), Some(90_000));
    assert_eq!(since(3, 30), Some(0));
}

#[test]
fn it_is_known_how_long_no_consumer_has_taken_a_message() {
    let mut all = Histories::default();
    let counted = |minute, finished| {
        let mut queue = queue("a", 100 + minute, 0);
        queue.totals.finished = finished;
        queue
    };
    for minute in 0..4 {
        pass(&mut all, minute, &[counted(minute, minute.min(2))], 9);
    }
    let idle = |finished| {
        let now = Ms(START + 3 * MINUTE + 30_000);
        let recent = all.recent(&counted(4, finished), now);
        recent.map(|recent| recent.idle_ms)
    };
    assert_eq!(idle(2), Some(90_000));
    assert_eq!(idle(3), Some(0));
}

#[test]
fn while_nothing_is_held_no_lease_is_stuck() {
    let mut all = Histories::default();
    let leased = |minute, reserved| {
        let mut queue = queue("a", 100 + minute, 0);
        queue.gauges.reserved = reserved;
        queue
    };
    for minute in 0..20 {
        pass(&mut all, minute, &[leased(minute, 0)], 9);
    }
    let no_end = |all: &Histories, minute, seconds: u64| {
        let now = Ms(START + minute * MINUTE + seconds * 1000);
        let recent = all.recent(&leased(minute, 1), now);
        recent.expect("it moved").no_end_ms
    };
    assert_eq!(no_end(&all, 19, 30), 0);
    pass(&mut all, 20, &[leased(20, 1)], 9);
    assert_eq!(no_end(&all, 20, 30), 30_000);
    pass(&mut all, 21, &[leased(21, 1)], 9);
    assert_eq!(no_end(&all, 21, 30), 90_000);
}

#[test]
fn counters_that_go_back_and_jobs_that_are_gone_are_no_rise() {
    let mut all = Histories::default();
    let counted = |taken, failed| {
        let mut queue = queue("a", 100, 0);
        (queue.totals.taken, queue.totals.failed) = (taken, failed);
        (queue.totals.discarded, queue.totals.buries) = (failed, 1);
        queue
    };
    pass(&mut all, 0, &[counted(0, 0)], 9);
    pass(&mut all, 1, &[counted(10, 3)], 9);
    let now = Ms(START + MINUTE);
    let recent = all.recent(&counted(10, 3), now).expect("it moved");
    assert_eq!((recent.left.failed, recent.dead), (3, 0));
    pass(&mut all, 2, &[counted(9, 3)], 9);
    let rates = all.rates(&Name::from("a")).expect("it moved");
    assert_eq!(rates.out(), 0.0);
}

#[test]
fn a_restart_is_a_gap_and_a_damaged_file_is_no_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history");
    let name = Name::from("a\u{202e}\n");
    let a = |puts| queue("a\u{202e}\n", puts, 0);
    let mut all = Histories::default();
    for minute in 0..=20 {
        let mut buried = a(1 + minute * 60);
        buried.totals.buries = minute / 20;
        pass(&mut all, minute, &[buried, queue("gone", minute, 0)], 9);
    }
    let before = all.of(&name).expect("one");
    let all = Mutex::new(all);
    kept::save(&all, &path).expect("written");
    // Another process: another hash, and counters that begin anew.
    let load = |minute, most| {
        let all = Mutex::new(Histories::default());
        let loaded = kept::load(&all, &path, Ms(START + minute * MINUTE), most);
        (all.into_inner().expect("whole"), loaded)
    };
    let (mut all, loaded) = load(25, 9);
    loaded.expect("read");
    assert_eq!(all.of(&name), Some(before));
    assert_eq!(all.recent(&a(5), Ms(START + 25 * MINUTE)), None);
    assert_eq!(all.rates(&name), None, "the last minute was not sampled");
    pass(&mut all, 25, &[a(5)], 9);
    assert_eq!((all.rates(&name), all.counts().0), (None, 1));
    pass(&mut all, 30, &[a(65)], 9);
    let history = all.of(&name).expect("one");
    let there = history.minutes.samples.iter().map(Option::is_some);
    let there: Vec<bool> = there.collect();
    assert_eq!(there[..20], [true; 20]);
    assert_eq!(there[20..], [[false; 9].as_slice(), &[true]].concat());
    assert_eq!(history.minutes.end, Ms(START + 30 * MINUTE));
    assert_eq!(history.quarters.samples.len(), 2);
    let rate = all.rates(&name).expect("one").into;
    assert!((rate - 0.2).abs() < 0.001, "{rate}");
    let recent = all.recent(&a(65), Ms(START + 30 * MINUTE)).expect("some");
    assert_eq!((recent.came, recent.dead), (60, 1));
    // What is too old, later than now, more than may be.
    assert_eq!(load(25 + 24 * 60, 9).0.counts().0, 0);
    assert_eq!(load(19, 9).0.counts().0, 0);
    assert_eq!(load(25, 1).0.counts().0, 1);
    let whole = std::fs::read(&path).expect("read");
    let damage = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        let (all, loaded) = load(25, 9);
        assert!(loaded.is_err());
        assert_eq!(all.counts(), (0, 0));
    };
    (0..whole.len())
        .step_by(97)
        .for_each(|cut| damage(&whole[..cut]));
    for at in (0..whole.len()).step_by(101) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        damage(&bytes);
    }
    // A right sum over what no server wrote.
    let mut odd = whole[..300].to_vec();
    odd.extend(crc32c::crc32c(&odd).to_le_bytes());
    damage(&odd);
}

#[test]
fn the_hour_of_all_queues_is_that_of_each_together() {
    let mut all = Histories::default();
    let mut sum = None;
    all.add_hour(&Name::from("a"), &mut sum);
    assert_eq!(sum, None);
    // The second begins later, and stays behind in the last pass, which goes on.
    for minute in 0..5 {
        let both = [queue("a", minute * 60, 0), queue("b", 9, minute * 2)];
        pass(&mut all, minute, &both[..1 + usize::from(minute > 1)], 9);
    }
    all.begin(Ms(START + 5 * MINUTE));
    all.sample(Ms(START + 5 * MINUTE), &[queue("a", 600, 0)], 9);
    for name in ["a", "b", "none"] {
        all.add_hour(&Name::from(name), &mut sum);
    }
    let sum = sum.expect("some");
    assert_eq!((sum.end, sum.samples.len()), (Ms(START + 4 * MINUTE), 60));
    let ready = sum.samples.iter().map(|sample| sample.map(|s| s.ready));
    let ready: Vec<_> = ready.skip(55).collect();
    assert_eq!(ready, [None, Some(60), Some(120), Some(183), Some(241)]);
    let last = sum.samples[59].expect("one");
    assert_eq!(last.rates.into, 1.0);
}
