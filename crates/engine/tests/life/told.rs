//! The beginning of each segment of the log: names and settings of queues, and tables. It has a
//! bound, and entries that nobody needs are forgotten.

use quintet_types::*;

use crate::world::{World, plain, waiting};

fn bounded(bytes: u64) -> World {
    World::with(Settings {
        snapshot_bytes_max: bytes,
        ..Settings::default()
    })
}

fn put(queue: &Name) -> Command {
    Command::Put(Put {
        queue: queue.clone(),
        ..Put::default()
    })
}

fn name(number: u32, len: usize) -> Name {
    let mut name = format!("{number:06}").into_bytes();
    name.resize(len, b'n');
    Name::new(&name)
}

/// Makes queues until one is refused; answers how many.
fn fill(w: &mut World) -> u32 {
    for number in 0.. {
        match w.ask(1, put(&name(number, 1000))) {
            Some(Outcome::Put { .. }) => {}
            Some(Outcome::Refused(CommandError::SnapshotFull)) => return number,
            other => panic!("{other:?}"),
        }
    }
    unreachable!()
}

fn snapshot_len(w: &World) -> u64 {
    let mut bytes = Vec::new();
    w.engine.snapshot(&mut |fact| fact.encode(&mut bytes));
    bytes.len() as u64
}

fn overrides(name: &str) -> Box<Overrides> {
    Box::new(Overrides {
        expire_to: Some(name.into()),
        ..Overrides::default()
    })
}

#[test]
fn a_snapshot_has_a_bound() {
    const BOUND: u64 = 100_000;
    let mut w = bounded(BOUND);
    let made = fill(&mut w);
    assert!(made > 70, "only {made}");
    assert!(snapshot_len(&w) <= BOUND && w.engine.snapshot_bytes() <= BOUND);
    let refused = Some(Outcome::Refused(CommandError::SnapshotFull));
    let (there, new) = (name(0, 1000), name(999_999, 1000));
    // Whatever would make it longer is refused, and leaves nothing behind.
    let wait = Take {
        queues: [new.clone()].into_iter().collect(),
        ..waiting("")
    };
    let configure = |queue: &Name| Command::Configure {
        queue: queue.clone(),
        overrides: Some(overrides(&"x".repeat(2000))),
        must_exist: false,
    };
    let set = Transaction {
        effects: vec![Effect::Set {
            table: "t".into(),
            key: [1; 1000].into(),
            value: Some([2; 1000].into()),
            ttl_ms: None,
        }],
        ..Transaction::default()
    };
    let facts = w.facts.len();
    for command in [
        put(&new),
        Command::PutMany(vec![Put {
            queue: new.clone(),
            ..Put::default()
        }]),
        Command::Take(wait),
        Command::Refer {
            queue: new.clone(),
            uses: Some(true),
            watches: None,
        },
        configure(&new),
        configure(&there),
        Command::Join {
            parent: name(1, 1000),
            child: there.clone(),
        },
        Command::Transaction(Box::new(set)),
    ] {
        assert_eq!(w.ask(1, command.clone()), refused, "{command:?}");
    }
    assert_eq!(w.facts.len(), facts);
    // What is there goes on, and what goes makes room.
    assert!(matches!(
        w.ask(1, put(&there)),
        Some(Outcome::Put { fresh: true, .. })
    ));
    w.ask(1, Command::Drop(name(5, 1000)));
    assert!(matches!(w.ask(1, put(&new)), Some(Outcome::Put { .. })));
    assert_eq!(w.ask(1, put(&name(5, 1000))), refused);
}

/// A directory from before there was a bound, or from under a larger one.
#[test]
fn queues_over_the_bound_are_served_and_can_be_dropped() {
    let mut w = bounded(1 << 20);
    fill(&mut w);
    w.settings.snapshot_bytes_max = 10_000;
    w.restart();
    let there = name(7, 1000);
    assert!(matches!(w.ask(1, put(&there)), Some(Outcome::Put { .. })));
    assert_eq!(
        w.ask(1, put(&name(999_999, 9))),
        Some(Outcome::Refused(CommandError::SnapshotFull))
    );
    let clear = Command::Configure {
        queue: there.clone(),
        overrides: None,
        must_exist: false,
    };
    assert_eq!(w.ask(1, clear), Some(Outcome::Done));
    // Those who wait go on waiting for the name, though no queue could be made.
    w.ask(
        1,
        Command::Flush {
            queue: there.clone(),
            reserved: false,
        },
    );
    let wait = Take {
        queues: [there.clone()].into_iter().collect(),
        ..waiting("")
    };
    assert_eq!(w.ask(2, Command::Take(wait)), None);
    let (mut from, mut dropped) = (Some((0, 0)), 0);
    while let Some(at) = from {
        let all = Command::DropQueues {
            pattern: Pattern::new("*"),
            messages: true,
            dry_run: false,
            from: at,
        };
        let Some(Outcome::Dropped(done)) = w.ask(1, all) else {
            panic!("not dropped");
        };
        dropped += done.queues;
        from = done.next;
    }
    assert!(dropped > 700, "{dropped}");
    assert!(w.engine.snapshot_bytes() < 10_000);
    assert!(matches!(w.ask(1, put(&there)), Some(Outcome::Put { .. })));
    assert_eq!(w.delivered(), [(2, String::new())]);
}

#[test]
fn expired_messages_go_where_they_should_also_beyond_the_bound() {
    let mut w = bounded(100_000);
    let configure = Command::Configure {
        queue: "q".into(),
        overrides: Some(overrides("late")),
        must_exist: false,
    };
    w.ask(1, configure);
    w.ask(
        1,
        Command::Put(Put {
            queue: "q".into(),
            body: Body::new(b"x"),
            expires: Expiry::In(10),
            ..Put::default()
        }),
    );
    fill(&mut w);
    let mut last = 6;
    // And to the last byte.
    while let Some(Outcome::Put { .. }) = w.ask(1, put(&name(500_000 + last, last as usize))) {
        last += 1;
    }
    w.wait(10);
    assert_eq!(w.pop("late"), "x");
}

#[test]
fn the_defaults_hold_a_hundred_thousand_queues_with_settings_of_their_own() {
    let mut w = World::with(Settings::default()).at(Ms(1));
    let all = Overrides {
        locked: 0,
        default_priority: Some(1_000_000),
        default_ttr_ms: Some(86_400_000),
        messages_max: Some(1_000_000),
        bytes_max: Some(1 << 40),
        message_bytes_max: Some(1 << 30),
        attempts_max: Some(1000),
        dead_letter: Some(DeadLetter::To("failed".into())),
        ttl_ms: Some(86_400_000),
        ttl_max_ms: Some(864_000_000),
        expire_to: Some("expired".into()),
        when_full: Some(WhenFull::DropOldest),
        dedupe_by_key_ms: Some(86_400_000),
        retention_ms: Some(86_400_000),
        idle_ms: Some(86_400_000),
        paused: Some(false),
        down: Some(false),
        memory: None,
        fanout_only: Some(false),
        in_flight_max: Some(1000),
        take_rate: Some(Rate {
            count: 1000,
            per_ms: 86_400_000,
        }),
        take_burst: Some(1000),
        retry_delay_ms: Some(86_400_000),
        retry_factor: Some(1000),
        retry_delay_max_ms: Some(86_400_000),
        retry_jitter: Some(100),
        retry_max: Some(1000),
        retry_on: Some(RetryOn::TIMEOUT),
        unique_by_body: Some(true),
        unique_for_ms: Some(u64::MAX),
        unique_until: Some(Scope::Done),
        unique_repeat: Some(OnRepeat::Replace),
        default_delay_ms: Some(86_400_000),
        tags: Some(Tags::from_iter([(&b"team"[..], &b"mail"[..])])),
        groups: Some(Groups::Fair),
        key_in_flight_max: Some(1000),
        key_take_rate: Some(Rate {
            count: 1000,
            per_ms: 86_400_000,
        }),
        key_take_burst: Some(1000),
        buried_ttl_ms: Some(86_400_000),
        aging: Some(Rate {
            count: 1,
            per_ms: 86_400_000,
        }),
    };
    for number in 0..100_000 {
        let configure = Command::Configure {
            queue: name(number, 100),
            overrides: Some(Box::new(all.clone())),
            must_exist: false,
        };
        // The indexes of so many are not looked at each time.
        let answer = w.submit(Caller::default(), configure);
        let done = matches!(answer, Answer::Now(Outcome::Done, _));
        assert!(done, "{number}: {answer:?}");
        w.facts.clear();
    }
    let engine = w.engine;
    let mut bytes = Vec::new();
    engine.snapshot(&mut |fact| fact.encode(&mut bytes));
    // As much is left for tables and runs.
    assert!(engine.snapshot_bytes() < 48 << 20);
    assert!(bytes.len() as u64 <= engine.snapshot_bytes());
}

#[test]
fn queues_of_mere_use_go_after_an_hour_and_those_made_on_purpose_stay() {
    let mut w = World::with(Settings {
        rules: vec![(Pattern::new("named"), Overrides::default())],
        ..Settings::default()
    });
    let used = [
        "mere", "held", "marked", "paused", "parent", "waited", "named",
    ];
    for queue in used {
        w.ask(1, put(&queue.into()));
        if queue != "held" {
            assert_eq!(w.pop(queue), "");
        }
    }
    let marked = PutMore {
        dedupe: Some(Dedupe {
            id: Box::from(*b"once"),
            window_ms: Some(2 * 3_600_000),
            scope: None,
            on_repeat: None,
        }),
        ..PutMore::default()
    };
    w.put_as(Put {
        queue: "marked".into(),
        more: Some(Box::new(marked)),
        ..Put::default()
    });
    w.pop("marked");
    for command in [
        Command::Pause {
            queue: "paused".into(),
            for_ms: None,
        },
        Command::Configure {
            queue: "told".into(),
            overrides: Some(overrides("mere")),
            must_exist: false,
        },
        Command::Join {
            parent: "parent".into(),
            child: "child".into(),
        },
    ] {
        let done = w.ask(1, command);
        assert!(
            matches!(done, Some(Outcome::Done | Outcome::Count(1))),
            "{done:?}"
        );
    }
    assert_eq!(w.take(2, waiting("waited")), "waits");
    let there = |w: &mut World| {
        let Some(Outcome::Stats(stats)) =
            w.ask(1, Command::Stats(StatsOf::Queues { from: (0, 0) }))
        else {
            panic!("no numbers");
        };
        let StatsReply::Queues(page) = *stats else {
            panic!("other numbers");
        };
        let mut names: Vec<String> = page
            .queues
            .iter()
            .map(|queue| queue.name.to_string())
            .collect();
        names.sort();
        names.join(" ")
    };
    let minutes = |w: &mut World, count| {
        for _ in 0..count {
            w.wait(60_000);
        }
        there(w)
    };
    let all = "child held marked mere named parent paused told waited";
    assert_eq!(minutes(&mut w, 59), all);
    assert_eq!(
        minutes(&mut w, 4),
        "child held marked named parent paused told waited"
    );
    // A deduplication record is over when its time is, and its queue an hour later.
    assert_eq!(
        minutes(&mut w, 120),
        "child held named parent paused told waited"
    );
    // Used now and then, it never rests for an hour.
    for _ in 0..5 {
        w.put("busy", "x");
        w.pop("busy");
        assert!(minutes(&mut w, 50).contains("busy"));
    }
}

#[test]
fn queues_are_dropped_by_pattern_in_slices() {
    let mut w = World::new();
    for number in 0..3000 {
        let queue = Name::from(&*format!("{}-{number}", ["a", "b"][number % 2]));
        w.facts.clear();
        w.engine.submit(
            w.now,
            Caller::default(),
            put(&queue),
            &mut w.facts,
            &mut w.deliveries,
        );
    }
    for number in 0..10 {
        w.take(1, plain(&format!("a-{}", 2 * number)));
    }
    let run = |w: &mut World, messages, dry_run| {
        let (mut sum, mut from, mut slices) = (Dropped::default(), Some((0, 0)), 0);
        while let Some(at) = from {
            let command = Command::DropQueues {
                pattern: Pattern::new("a-*"),
                messages,
                dry_run,
                from: at,
            };
            let facts = w.facts.len();
            let Some(Outcome::Dropped(done)) = w.ask(1, command) else {
                panic!("not dropped");
            };
            assert!(w.facts.len() - facts <= 128, "a slice is bounded");
            sum.queues += done.queues;
            sum.messages += done.messages;
            sum.passed += done.passed;
            from = done.next;
            slices += 1;
        }
        assert!(slices > 2);
        (sum.queues, sum.messages, sum.passed)
    };
    assert_eq!(run(&mut w, true, true), (1500, 1490, 0));
    assert_eq!(run(&mut w, false, true), (10, 0, 1490));
    assert_eq!(run(&mut w, false, false), (10, 0, 1490));
    assert_eq!(run(&mut w, true, false), (1490, 1490, 0));
    assert_eq!(run(&mut w, true, false), (0, 0, 0));
    assert_eq!(w.pop("b-1"), "");
}
