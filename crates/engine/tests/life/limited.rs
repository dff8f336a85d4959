//! Queues that hand out no more, or no faster, than their settings allow.

use quintet_sim::world::{World, plain, reserve, waiting};
use quintet_types::*;

fn world(overrides: Overrides) -> World {
    let mut w = World::new();
    let queue = "q".into();
    let overrides = Some(Box::new(overrides));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
    w
}

fn in_flight(max: u64) -> World {
    world(Overrides {
        in_flight_max: Some(max),
        ..Overrides::default()
    })
}

fn reserve_waiting(queue: &str) -> Take {
    Take {
        wait: Wait::Forever,
        ..reserve(queue)
    }
}

#[test]
fn takes_beyond_wait_in_their_turn_until_a_lease_ends() {
    let mut w = in_flight(2);
    let ids: Vec<MessageId> = ["a", "b", "c", "d", "e"]
        .map(|body| w.put("q", body))
        .into();
    assert_eq!(w.take(1, reserve("q")), "a");
    assert_eq!(w.take(2, reserve("q")), "b");
    // One that does not wait finds nothing, one that only looks sees it.
    assert_eq!(w.take(3, reserve("q")), "empty");
    assert_eq!(w.pop("q"), "empty");
    let peek = Take {
        peek: true,
        ..plain("q")
    };
    assert_eq!(w.take(3, peek), "c");
    for client_id in [3, 4, 5] {
        assert_eq!(w.ask(client_id, Command::Take(reserve_waiting("q"))), None);
    }
    assert_eq!(w.delivered(), []);
    // Finished, deleted by somebody else, or its holder gone.
    let (id, by, how) = (ids[0], By::Owner, How::Finish);
    w.ask(1, Command::Settle { id, by, how });
    assert_eq!(w.delivered(), [(3, "c".to_owned())]);
    let (id, by) = (ids[1], By::Anyone);
    w.ask(9, Command::Delete { id, by });
    assert_eq!(w.delivered(), [(4, "d".to_owned())]);
    w.hang_up(4);
    assert_eq!(w.delivered(), [(5, "d".to_owned())]);
}

/// Behind consumers that a limit holds back, peeks see new messages, in a subscription or not.
#[test]
fn a_peek_does_not_wait_behind_blocked_takes() {
    let mut w = in_flight(1);
    w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    for client_id in [2, 3] {
        assert_eq!(w.ask(client_id, Command::Take(reserve_waiting("q"))), None);
    }
    let peek = Take {
        peek: true,
        wait: Wait::Forever,
        ..plain("q")
    };
    assert_eq!(w.ask(4, Command::Take(peek.clone())), None);
    w.ask(5, Command::Watch(Some(Box::new(peek))));
    w.put("q", "b");
    let seen = [(4, "b".to_owned()), (5, "b".to_owned())];
    assert_eq!(w.delivered(), seen);
    w.hang_up(1);
    assert_eq!(w.delivered(), [(2, "a".to_owned())]);
}

#[test]
fn a_raised_or_lifted_limit_serves_waiting_consumers() {
    let mut w = in_flight(1);
    for body in ["a", "b", "c"] {
        w.put("q", body);
    }
    assert_eq!(w.take(1, reserve("q")), "a");
    for client_id in [2, 3] {
        assert_eq!(w.ask(client_id, Command::Take(reserve_waiting("q"))), None);
    }
    let mut configure = |max| {
        let overrides = Overrides {
            in_flight_max: Some(max),
            ..Overrides::default()
        };
        let (queue, overrides) = ("q".into(), Some(Box::new(overrides)));
        w.ask(
            9,
            Command::Configure {
                queue,
                overrides,
                must_exist: false,
            },
        );
        w.delivered()
    };
    assert_eq!(configure(2), [(2, "b".to_owned())]);
    assert_eq!(configure(0), [(3, "c".to_owned())]);
}

#[test]
fn of_several_queues_the_one_that_may_is_taken_from() {
    let mut w = in_flight(1);
    w.put("q", "a");
    w.put("q", "b");
    assert_eq!(w.take(1, reserve("q")), "a");
    let mut both = reserve_waiting("q");
    both.queues.push("other".into());
    assert_eq!(w.ask(2, Command::Take(both)), None);
    w.put("other", "x");
    assert_eq!(w.delivered(), [(2, "x".to_owned())]);
}

#[test]
fn a_rate_makes_takes_wait_until_their_moment() {
    let mut w = world(Overrides {
        take_rate: Some(Rate {
            count: 10,
            per_ms: 1000,
        }),
        take_burst: Some(2),
        ..Overrides::default()
    });
    for body in ["a", "b", "c", "d", "e"] {
        w.put("q", body);
    }
    assert_eq!([w.pop("q"), w.pop("q"), w.pop("q")], ["a", "b", "empty"]);
    for client_id in [1, 2] {
        assert_eq!(w.ask(client_id, Command::Take(waiting("q"))), None);
    }
    w.wait(99);
    assert_eq!(w.delivered(), []);
    w.wait(1);
    assert_eq!(w.delivered(), [(1, "c".to_owned())]);
    w.wait(100);
    assert_eq!(w.delivered(), [(2, "d".to_owned())]);
    // A restart forgets it.
    w.restart();
    assert_eq!(w.pop("q"), "e");
}

#[test]
fn a_rate_of_zero_is_no_rate_and_serves_waiting_consumers() {
    let rate = |count| Overrides {
        take_rate: Some(Rate {
            count,
            per_ms: 3_600_000,
        }),
        ..Overrides::default()
    };
    let mut w = world(rate(1));
    for body in ["a", "b", "c", "d"] {
        w.put("q", body);
    }
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "empty".into()));
    for client_id in [1, 2] {
        assert_eq!(w.ask(client_id, Command::Take(waiting("q"))), None);
    }
    let configure = Command::Configure {
        queue: "q".into(),
        overrides: Some(Box::new(rate(0))),
        must_exist: false,
    };
    w.ask(9, configure);
    let served = [(1, "b".to_owned()), (2, "c".to_owned())];
    assert_eq!(w.delivered(), served);
    assert_eq!(w.pop("q"), "d");
}

/// A file that is read again lets those who wait go, as a change of the queue's own settings does.
#[test]
fn a_limit_lifted_in_the_file_serves_waiting_consumers() {
    const HOURLY: Rate = Rate {
        count: 1,
        per_ms: 3_600_000,
    };
    type Change = fn(&mut QueueSettings);
    let cases: [(Change, Change, &str); 6] = [
        (|to| to.in_flight_max = 1, |to| to.in_flight_max = 2, "b"),
        (|to| to.in_flight_max = 1, |_| (), "b"),
        (
            |to| to.take_rate = HOURLY,
            |to| (to.take_rate, to.take_burst) = (HOURLY, 2),
            "b",
        ),
        (|to| to.take_rate = HOURLY, |_| (), "b"),
        (|to| to.paused = true, |_| (), "a"),
        (|to| to.paused = true, |to| to.down = true, "a"),
    ];
    for (number, (before, after, expected)) in cases.into_iter().enumerate() {
        let mut w = World::new();
        let configure = |w: &mut World, change: Change| {
            let mut settings = w.settings.clone();
            change(&mut settings.defaults);
            w.engine.configure(settings);
            w.wait(0);
        };
        configure(&mut w, before);
        w.put("q", "a");
        w.put("q", "b");
        let first = w.take(1, reserve("q"));
        assert_eq!(first == "a", expected == "b", "case {number}: {first}");
        assert_eq!(w.ask(2, Command::Take(reserve_waiting("q"))), None);
        configure(&mut w, after);
        if number == 5 {
            assert_eq!(w.delivered(), [], "case {number}");
            configure(&mut w, |_| ());
        }
        let served = [(2, expected.to_owned())];
        assert_eq!(w.delivered(), served, "case {number}");
    }
}
