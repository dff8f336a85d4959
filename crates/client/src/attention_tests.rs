use super::*;

const MINUTE: u64 = 60_000;

/// The rule, and the whole sentence.
fn judged(change: impl FnOnce(&mut QueueStats, &mut Recent)) -> Option<(Rule, String)> {
    let mut stats = QueueStats::default();
    let mut recent = Recent {
        span_ms: 5 * MINUTE,
        ..Recent::default()
    };
    change(&mut stats, &mut recent);
    let found = Thresholds::default().judge(&stats, Some(&recent))?;
    let because = [found.says, found.because].join(" ");
    Some((found.rule, because.trim_end().to_owned()))
}

fn is(change: impl FnOnce(&mut QueueStats, &mut Recent), rule: Rule, says: &str) {
    assert_eq!(judged(change), Some((rule, says.to_owned())));
}

#[test]
fn each_rule_has_its_sentence() {
    is(
        |stats, _| {
            stats.down = true;
            stats.gauges.ready = 3;
        },
        Rule::Down,
        "is down: puts fail, consumers wait; 3 ready.",
    );
    is(
        |_, recent| {
            recent.left.dropped = 7500;
            recent.left.expired = 1;
        },
        Rule::Losing,
        "lost 7,501 messages within 5m: 7,500 dropped, 1 expired. \
         The queue is full, and messages outlive their time to live.",
    );
    is(
        |_, recent| {
            recent.failures = 30;
            recent.left.finished = 10;
        },
        Rule::Failing,
        "fails: 30 of 40 attempts within 5m.",
    );
    is(
        |stats, recent| {
            stats.gauges.ready = 5000;
            stats.gauges.reserved = 2;
            stats.limited = Some(TakeLimit::InFlight);
            recent.came = 4000;
            recent.left.finished = 1000;
        },
        Rule::Growing,
        "grows although consumers take from it: 5,000 ready, 4,000 in and 1,000 out within 5m. \
         The queue has reached its limit (in_flight_max): 2 messages are reserved.",
    );
    is(
        |stats, recent| {
            stats.gauges.ready = 5000;
            stats.gauges.reserved = 2;
            recent.came = 40_000;
            recent.refused = 1;
            recent.left.finished = 431;
            recent.left.moved = 5001;
        },
        Rule::Growing,
        "grows although consumers take from it: 5,000 ready, 40,000 in and 5,432 out within 5m; \
         it is full and refused 1 put. Consumers finished 431; the rest left in another way.",
    );
    is(
        |_, recent| recent.dead = 1,
        Rule::DeadLetters,
        "set aside 1 failed message within the last hour.",
    );
    is(
        |_, recent| {
            recent.timeouts = 5;
            recent.left.finished = 95;
        },
        Rule::StuckLeases,
        "has consumers that do not finish: 5 leases ran out within 5m. \
         Its workers die, hang, or need more time than the lease gives.",
    );
    is(
        |stats, recent| {
            stats.gauges.reserved = 4;
            stats.gauges.ready = 9;
            recent.no_end_ms = 10 * MINUTE;
        },
        Rule::StuckLeases,
        "has 4 leases, and none has ended for 10m; 9 ready.",
    );
    is(
        |_, recent| recent.refused = 12,
        Rule::Limit,
        "is full and refused 12 puts within 5m.",
    );
    is(
        |stats, recent| {
            stats.gauges.ready = 2;
            stats.gauges.waiters = 1;
            stats.oldest_ms = 5 * MINUTE;
            recent.limited = 8;
        },
        Rule::Limit,
        "is slowed by its limits: 2 ready, the oldest for 5m. \
         A limit left 8 takes without a message.",
    );
    is(
        |stats, _| {
            stats.paused = true;
            stats.gauges.ready = 1204;
            stats.gauges.waiters = 1;
        },
        Rule::Paused,
        "is paused until it is resumed; 1,204 ready. 1 consumer waits.",
    );
    is(
        |stats, _| {
            stats.gauges.ready = 10;
            stats.oldest_ms = 5 * MINUTE;
        },
        Rule::NoConsumers,
        "has no consumers: 10 ready, the oldest for 5m.",
    );
}

#[test]
fn one_less_than_each_threshold_needs_no_attention() {
    assert_eq!(judged(|_, _| {}), None);
    // Half of the tries, and one less.
    let fails = |failures, finished| {
        judged(|_, recent| {
            recent.failures = failures;
            recent.left.finished = finished;
        })
    };
    assert!(fails(10, 10).is_some());
    assert_eq!(fails(10, 11), None);
    assert_eq!(fails(9, 0), None);
    // A burst that consumers work off.
    let grows = |ready, came, span_ms| {
        judged(|stats, recent| {
            stats.gauges.ready = ready;
            stats.gauges.waiters = 1;
            recent.came = came;
            recent.left.finished = 1000;
            recent.span_ms = span_ms;
        })
    };
    assert!(grows(1000, 1100, MINUTE).is_some());
    assert_eq!(grows(999, 1100, MINUTE), None);
    assert_eq!(grows(1000, 1099, MINUTE), None);
    assert_eq!(grows(1000, 1100, MINUTE - 1), None);
    // A tenth more than went out, also where that is many.
    let much = |came| {
        judged(|stats, recent| {
            stats.gauges.ready = 1000;
            recent.came = came;
            recent.left.finished = 10_000;
        })
    };
    assert!(much(11_000).is_some());
    assert_eq!(much(10_999), None);
    // Nobody takes, somebody deletes.
    let alone = judged(|stats, recent| {
        stats.gauges.ready = 1000;
        recent.came = 1100;
        recent.left.removed = 1000;
    });
    assert_eq!(alone, None);
    // Nothing is reserved, so no lease can end.
    let idle = judged(|stats, recent| {
        stats.gauges.ready = 9;
        recent.no_end_ms = 10 * MINUTE;
    });
    assert_eq!(idle, None);
    // A limit that holds nothing back, or not for long.
    let limited = |ready, oldest_ms| {
        judged(|stats, _| {
            stats.gauges.ready = ready;
            stats.gauges.waiters = 1;
            stats.oldest_ms = oldest_ms;
            stats.limited = Some(TakeLimit::Rate);
        })
    };
    assert!(limited(1, 5 * MINUTE).is_some_and(|(rule, _)| rule == Rule::Limit));
    assert_eq!(limited(0, 5 * MINUTE), None);
    assert_eq!(limited(1, 5 * MINUTE - 1), None);
    // Messages that a bury or an expiry moves to another queue are not lost.
    assert_eq!(judged(|_, recent| recent.left.moved = 50), None);
    let timeouts = |timeouts, finished| {
        judged(|_, recent| {
            recent.timeouts = timeouts;
            recent.left.finished = finished;
        })
    };
    assert_eq!(timeouts(4, 0), None);
    assert_eq!(timeouts(5, 96), None);
    // Leases without time, as of SQS with a VisibilityTimeout of 0.
    let at_once = judged(|stats, recent| {
        stats.at_once = true;
        recent.timeouts = 200;
    });
    assert_eq!(at_once, None);
    // A long job beside which nothing waits.
    let busy = judged(|stats, recent| {
        stats.gauges.reserved = 1;
        recent.no_end_ms = 24 * 60 * MINUTE;
    });
    assert_eq!(busy, None);
    // A pause that holds nothing up.
    assert_eq!(judged(|stats, _| stats.paused = true), None);
}

#[test]
fn a_queue_without_consumers_needs_attention_only_where_that_means_something() {
    let without = |change: fn(&mut QueueStats, &mut Recent)| {
        judged(|stats, recent| {
            stats.name = Name::from("archive.2026");
            stats.gauges.ready = 10;
            stats.oldest_ms = 5 * MINUTE;
            change(stats, recent);
        })
    };
    assert!(without(|_, _| {}).is_some());
    assert_eq!(without(|stats, _| stats.gauges.ready = 9), None);
    assert_eq!(without(|stats, _| stats.oldest_ms -= 1), None);
    assert_eq!(without(|stats, _| stats.gauges.waiters = 1), None);
    assert_eq!(without(|_, recent| recent.left.finished = 1), None);
    assert_eq!(without(|_, recent| recent.failures = 1), None);
    assert_eq!(without(|_, recent| recent.timeouts = 1), None);
    assert_eq!(without(|stats, _| stats.gauges.waiting_peeks = 1), None);
    assert_eq!(without(|stats, _| stats.gauges.reserved = 1), None);
    // A dead-letter queue: nothing was put there, all of it was moved there.
    assert_eq!(without(|stats, _| stats.totals.moved_in = 10), None);
    let mixed = without(|stats, _| (stats.totals.moved_in, stats.totals.puts) = (10, 1));
    assert!(mixed.is_some());
    let muted = Thresholds {
        muted: vec!["archive*".to_owned()],
        ..Thresholds::default()
    };
    let mut stats = QueueStats::default();
    stats.gauges.ready = 10;
    stats.oldest_ms = 5 * MINUTE;
    assert!(muted.judge(&stats, None).is_some());
    let off = Thresholds {
        unconsumed: 0,
        ..Thresholds::default()
    };
    assert_eq!(off.judge(&stats, None), None);
    stats.name = Name::from("archive.2026");
    assert_eq!(muted.judge(&stats, None), None);
}

#[test]
fn a_rule_whose_threshold_is_zero_is_off() {
    let off = Thresholds {
        lost: 0,
        failures: 0,
        failing_percent: 0,
        growing: 0,
        dead: 0,
        timeouts: 0,
        stuck_ms: 0,
        unconsumed: 0,
        unconsumed_ms: 0,
        muted: Vec::new(),
    };
    let mut stats = QueueStats::default();
    stats.gauges.ready = 1 << 20;
    stats.oldest_ms = 1 << 40;
    let mut recent = Recent {
        span_ms: MINUTE,
        came: 1 << 22,
        failures: 1 << 20,
        timeouts: 1 << 20,
        dead: 1 << 20,
        no_end_ms: 1 << 40,
        ..Recent::default()
    };
    recent.left.dropped = 1 << 20;
    assert_eq!(off.judge(&stats, Some(&recent)), None);
    stats.gauges.reserved = 1;
    assert_eq!(off.judge(&stats, Some(&recent)), None);
}

#[test]
fn the_worst_come_first_and_queues_without_consumers_are_one_line() {
    let finding = |rule, weight| Finding::new(rule, weight, format!("{rule:?}."), "");
    let found = vec![
        (Name::from("a"), finding(Rule::NoConsumers, 30)),
        (Name::from("b"), finding(Rule::Paused, 9)),
        (Name::from("c"), finding(Rule::NoConsumers, 12)),
        (Name::from("d"), finding(Rule::Losing, 1)),
        (Name::from("e"), finding(Rule::Losing, 5)),
        (Name::from("f"), finding(Rule::Growing, 100)),
        (Name::from("c2"), finding(Rule::Losing, 5)),
    ];
    let ranked = |most, found: &[(Name, Finding)], unready| {
        let mut all = Findings::new(most);
        for (name, finding) in found {
            all.add(name, finding.clone());
        }
        all.ranked(unready)
    };
    let listed = ranked(9, &found, Some("the disk is full"));
    let listed: Vec<(String, Rule, String)> = listed
        .into_iter()
        .map(|(name, found)| {
            let name = name.map_or_else(|| "-".to_owned(), |name| name.to_string());
            (name, found.rule, found.says)
        })
        .collect();
    let listed: Vec<(&str, Rule, &str)> = listed
        .iter()
        .map(|(name, rule, says)| (&**name, *rule, &**says))
        .collect();
    assert_eq!(
        listed,
        [
            (
                "-",
                Rule::Server,
                "The server accepts no puts: the disk is full."
            ),
            ("c2", Rule::Losing, "Losing."),
            ("e", Rule::Losing, "Losing."),
            ("d", Rule::Losing, "Losing."),
            ("f", Rule::Growing, "Growing."),
            ("b", Rule::Paused, "Paused."),
            (
                "-",
                Rule::NoConsumers,
                "2 queues have no consumers: 42 ready."
            ),
        ]
    );
    let one = ranked(9, &found[..1], None);
    assert_eq!(one[0].0, Some(Name::from("a")));
    // The worst are kept, however many come.
    let many: Vec<_> = found.iter().cycle().take(700).cloned().collect();
    let worst = ranked(2, &many, None);
    let worst: Vec<_> = worst
        .iter()
        .map(|(_, found)| (found.rule, found.weight))
        .collect();
    assert_eq!(worst, [(Rule::Losing, 5), (Rule::Losing, 5)]);
    let total = |found: &[(Name, Finding)], unready: Option<&str>| {
        let mut all = Findings::new(2);
        for (name, finding) in found {
            all.add(name, finding.clone());
        }
        all.total(unready)
    };
    assert_eq!(total(&found, Some("the disk is full")), 7);
    assert_eq!(total(&many, None), 501);
}

#[test]
fn of_several_faults_a_queue_shows_the_worst() {
    let mut stats = QueueStats {
        down: true,
        paused: true,
        oldest_ms: 5 * MINUTE,
        ..QueueStats::default()
    };
    stats.gauges.ready = 5000;
    let mut recent = Recent {
        span_ms: 5 * MINUTE,
        came: 5000,
        failures: 30,
        timeouts: 9,
        refused: 3,
        dead: 2,
        ..Recent::default()
    };
    recent.left.dropped = 1;
    recent.left.finished = 1;
    type Mend = fn(&mut QueueStats, &mut Recent);
    let mends: [(Rule, Mend); 9] = [
        (Rule::Down, |stats, _| stats.down = false),
        (Rule::Losing, |_, recent| recent.left.dropped = 0),
        (Rule::Failing, |_, recent| recent.failures = 0),
        (Rule::Growing, |_, recent| recent.came = 0),
        (Rule::DeadLetters, |_, recent| recent.dead = 0),
        (Rule::StuckLeases, |_, recent| recent.timeouts = 0),
        (Rule::Limit, |_, recent| recent.refused = 0),
        (Rule::Paused, |stats, recent| {
            stats.paused = false;
            recent.left.finished = 0;
        }),
        (Rule::NoConsumers, |stats, _| stats.gauges.ready = 0),
    ];
    for (rule, mend) in mends {
        let found = Thresholds::default().judge(&stats, Some(&recent));
        assert_eq!(found.map(|found| found.rule), Some(rule));
        mend(&mut stats, &mut recent);
    }
    assert_eq!(Thresholds::default().judge(&stats, Some(&recent)), None);
}

#[test]
fn why_messages_wait_names_the_nearest_cause() {
    let why = |change: fn(&mut QueueStats, &mut Recent)| {
        let (mut stats, mut recent) = (QueueStats::default(), Recent::default());
        stats.gauges.ready = 5;
        change(&mut stats, &mut recent);
        why_slow(&stats, Some(&recent))
    };
    assert_eq!(why(|_, _| {}), "The queue has no consumers.");
    assert_eq!(why(|stats, _| stats.gauges.ready = 0), "");
    // Consumers that ask now and then, and hold nothing at the moment.
    assert_eq!(why(|_, recent| recent.left.finished = 1), "");
    // The last of them has gone, minutes before its messages are counted no more.
    let gone = |idle_ms| {
        let (mut stats, mut recent) = (QueueStats::default(), Recent::default());
        (stats.gauges.ready, recent.left.finished, recent.idle_ms) = (5, 1, idle_ms);
        why_slow(&stats, Some(&recent))
    };
    assert_eq!(gone(59_999), "");
    assert_eq!(gone(120_000), "No consumer has taken a message for 2m.");
    assert_eq!(
        why(|_, recent| recent.failures = 3),
        "3 of the last 3 attempts failed."
    );
    let half = |recent: &mut Recent| {
        recent.failures = 3;
        recent.left.finished = 3;
    };
    assert_eq!(why(|_, recent| recent.left.finished = 4), "");
    let (mut stats, mut recent) = (QueueStats::default(), Recent::default());
    half(&mut recent);
    let failed = "3 of the last 6 attempts failed.";
    assert_eq!(why_slow(&stats, Some(&recent)), failed);
    recent.left.finished = 4;
    assert_eq!(why_slow(&stats, Some(&recent)), "");
    half(&mut recent);
    recent.limited = 2;
    let limited = "A limit left 2 takes without a message.";
    assert_eq!(why_slow(&stats, Some(&recent)), limited);
    // One setting is named, the one that is meant.
    stats.keys_limited = 1;
    for (limit, named) in [
        (
            TakeLimit::InFlight,
            "blocks 1 message group (key_in_flight_max).",
        ),
        (TakeLimit::Rate, "blocks 1 message group (key_take_rate)."),
        (TakeLimit::Hold, "hold of the key blocks 1 message group."),
    ] {
        stats.key_limit = Some(limit);
        let why = why_slow(&stats, Some(&recent));
        assert!(why.ends_with(named), "{why}");
    }
    for (limit, named) in [
        (
            TakeLimit::InFlight,
            "(in_flight_max): 0 messages are reserved.",
        ),
        (
            TakeLimit::Rate,
            "(take_rate): it hands out no more for now.",
        ),
    ] {
        stats.limited = Some(limit);
        let why = why_slow(&stats, Some(&recent));
        assert!(why.ends_with(named), "{why}");
    }
    stats.paused = true;
    assert_eq!(why_slow(&stats, Some(&recent)), "The queue is paused.");
    stats.down = true;
    assert_eq!(why_slow(&stats, Some(&recent)), "The queue is down.");
}

#[test]
fn findings_end_where_their_names_have_no_more_room() {
    let mut findings = Findings::new(1000);
    for weight in 0..9_u8 {
        let finding = Finding::new(Rule::Down, weight.into(), String::new(), "");
        let name = format!("{weight}{}", "x".repeat(100_000));
        findings.add(&Name::from(name.as_str()), finding.clone());
        findings.add(&Name::new(&[255, b'0' + weight]), finding);
    }
    assert_eq!(findings.needing[Rule::Down as usize], 18);
    let found = findings.ranked(None);
    let names = found.iter().filter_map(|(name, _)| name.as_ref());
    let lengths: Vec<usize> = names.map(Name::shown_len).collect();
    assert_eq!(lengths, [100_001, 5, 100_001, 5, 5, 5, 5, 5, 5, 5, 5]);
}
