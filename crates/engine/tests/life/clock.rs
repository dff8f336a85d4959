//! Ends of spans of time by a clock that may be late.

use quintet_types::*;

use crate::timed;
use crate::world::{World, plain, prioritized, reserve};

#[test]
fn nothing_ends_before_a_coarse_clock_can_know() {
    let mut w = World::with(Settings {
        clock_grain_ms: 1,
        ..Settings::default()
    });
    w.put_as(Put {
        ttr_ms: Some(1000),
        ..prioritized("q", 1, "lease")
    });
    w.put_as(Put {
        due: When::In(1000),
        ..prioritized("q", 2, "delay")
    });
    w.put_as(Put {
        expires: Expiry::In(1000),
        ..prioritized("q", 3, "ttl")
    });
    assert_eq!(w.take(1, timed("q")), "lease");
    let wait = |queue| Take {
        wait: Wait::For(1000),
        ..plain(queue)
    };
    assert_eq!(w.take(2, wait("x")), "waits");
    w.wait(1000);
    assert_eq!(w.delivered(), []);
    let seen = Command::Stats(StatsOf::Queue("q".into()));
    let Some(Outcome::Stats(stats)) = w.ask(9, seen) else {
        panic!()
    };
    let StatsReply::Queue(queue) = *stats else {
        panic!()
    };
    let gauges = &queue.gauges;
    assert_eq!((gauges.ready, gauges.delayed, gauges.reserved), (1, 1, 1));
    w.wait(1);
    assert_eq!(w.delivered(), [(2, "empty".into())]);
    assert_eq!((w.pop("q"), w.pop("q")), ("lease".into(), "delay".into()));
    assert_eq!(w.pop("q"), "empty");
}

#[test]
fn a_lease_of_the_margin_ends_soon_by_a_coarse_clock_too() {
    for clock_grain_ms in [0, 1, 10] {
        let mut w = World::with(Settings {
            clock_grain_ms,
            ..Settings::default()
        });
        w.put_as(Put {
            ttr_ms: Some(1000),
            ..prioritized("q", 1, "lease")
        });
        let warned = |wait| Take {
            wait,
            deadline_soon_ms: Some(1000),
            ..reserve("q")
        };
        assert_eq!(w.take(1, warned(Wait::No)), "lease");
        assert_eq!(w.take(1, warned(Wait::No)), "soon", "{clock_grain_ms}");
        assert_eq!(w.take(1, warned(Wait::Forever)), "soon");
        // It is warned of early rather than late, and ends late rather than early.
        let margin = |ms| Take {
            deadline_soon_ms: Some(ms),
            ..warned(Wait::Forever)
        };
        assert_eq!(w.take(1, margin(400)), "waits");
        w.wait(599);
        assert_eq!(w.delivered(), []);
        w.wait(1);
        assert_eq!(w.delivered(), [(1, "soon".into())]);
    }
}

#[test]
fn the_remaining_time_is_at_first_the_requested_one() {
    for clock_grain_ms in [0, 1] {
        let mut w = World::with(Settings {
            clock_grain_ms,
            ..Settings::default()
        });
        let id = w.put_as(Put {
            ttr_ms: Some(10_000),
            due: When::In(30_000),
            ..prioritized("q", 1, "a")
        });
        let numbers = |w: &mut World| {
            let outcome = w.ask(9, Command::Stats(StatsOf::Message(id)));
            let Some(Outcome::Stats(stats)) = outcome else {
                panic!("{outcome:?}")
            };
            let StatsReply::Message(stats) = *stats else {
                panic!("{stats:?}")
            };
            let delay_ms = stats.message.extra.as_ref().map_or(0, |e| e.delay_ms);
            (stats.state_word(), stats.left_ms, delay_ms)
        };
        assert_eq!(numbers(&mut w), ("delayed", 30_000, 30_000));
        w.wait(500);
        assert_eq!(numbers(&mut w), ("delayed", 29_500, 30_000));
        w.restart();
        assert_eq!(numbers(&mut w), ("delayed", 29_500, 30_000));
        w.wait(29_500 + clock_grain_ms);
        assert_eq!(numbers(&mut w), ("ready", 0, 30_000));
        assert_eq!(w.take(1, reserve("q")), "a");
        assert_eq!(numbers(&mut w), ("reserved", 10_000, 30_000));
        w.wait(700);
        assert_eq!(numbers(&mut w), ("reserved", 9_300, 30_000));
        w.ask(1, Command::Touch(id));
        assert_eq!(numbers(&mut w), ("reserved", 10_000, 30_000));
        let how = How::Release {
            priority: None,
            due: When::In(411_000),
            back_to: None,
        };
        let by = By::Owner;
        w.ask(1, Command::Settle { id, by, how });
        assert_eq!(numbers(&mut w), ("delayed", 411_000, 411_000));
        w.restart();
        assert_eq!(numbers(&mut w), ("delayed", 411_000, 411_000));
        let edit = Edit {
            due: Some(When::Now),
            ..Edit::default()
        };
        w.ask(1, Command::Edit(id, Box::new(edit)));
        assert_eq!(numbers(&mut w), ("ready", 0, 0));

        let pause = |for_ms| Command::Pause {
            queue: "q".into(),
            for_ms,
        };
        let paused = |w: &mut World| {
            let outcome = w.ask(9, Command::Stats(StatsOf::Queue("q".into())));
            let Some(Outcome::Stats(stats)) = outcome else {
                panic!("{outcome:?}")
            };
            let StatsReply::Queue(stats) = *stats else {
                panic!("{stats:?}")
            };
            (stats.paused, stats.paused_for_ms, stats.paused_left_ms)
        };
        w.ask(1, pause(Some(5000)));
        assert_eq!(paused(&mut w), (true, 5000, 5000));
        w.wait(4999 + clock_grain_ms);
        assert_eq!(paused(&mut w), (true, 5000, 1 - clock_grain_ms.min(1)));
        w.wait(1);
        assert_eq!(paused(&mut w), (false, 0, 0));
        w.ask(1, pause(None));
        assert_eq!(paused(&mut w), (true, 0, 0));
    }
}
