//! Hooks and time: timers while clocks are set, and errors that repeat.

use quintet_hooks::Level;
use quintet_trial::{Trial, client};
use quintet_types::{Body, Command, Name, Put, WallAhead};

use crate::{take, trial};

#[test]
fn a_hook_that_fails_each_time_fills_no_log() {
    let mut t = trial("function before_put(msg) error('broken ' .. msg.body) end");
    for n in 0..3000 {
        let put = Put {
            queue: Name::from("q"),
            body: Body::new(n.to_string().as_bytes()),
            ..Put::default()
        };
        t.submit(&client(1), Command::Put(put));
        t.pass(1);
    }
    let errors = |t: &Trial| {
        let log = t.world.take_log().into_iter();
        let errors = log.filter(|(level, _)| *level == Level::Error);
        errors.map(|(_, text)| text).collect::<Vec<_>>()
    };
    let logged = errors(&t);
    assert_eq!(logged.len(), 1, "{logged:?}");
    t.pass(5_000);
    t.submit(&client(1), Command::Put(Put::default()));
    let logged = errors(&t);
    assert!(
        logged.len() == 1 && logged[0].ends_with("(3000 times)"),
        "{logged:?}"
    );
}

/// Timers in milliseconds ignore the wall clock; timers of the calendar fire at each time that it
/// shows, once.
#[test]
fn timers_while_the_wall_clock_is_set() {
    const MINUTE: u64 = 60_000;
    const HOUR: i64 = 3_600_000;
    let mut t = trial(
        "quintet.every(60000, function() quintet.put('beat', 'b') end)
         quintet.at('0 * * * *', function() quintet.put('cron', 'c') end)",
    );
    let cron = |t: &mut Trial, minutes: u64| {
        t.pass(minutes * MINUTE);
        let mut count = 0;
        while take(t, "cron") != "empty" {
            count += 1;
        }
        let mut beats = 0;
        while take(t, "beat") != "empty" {
            beats += 1;
        }
        assert_eq!(beats, minutes, "beats");
        count
    };
    assert_eq!(cron(&mut t, 61), 1);
    // 01:01, back to 00:31: one o'clock was.
    t.world.set_wall(WallAhead(-HOUR / 2));
    assert_eq!(cron(&mut t, 60), 0);
    assert_eq!(cron(&mut t, 30), 1);
    // Forward over three times: once, late.
    t.world.set_wall(WallAhead(3 * HOUR));
    assert_eq!(cron(&mut t, 1), 1);
    // A year ahead for a moment.
    t.world.set_wall(WallAhead(8760 * HOUR));
    assert_eq!(cron(&mut t, 1), 1);
    t.world.set_wall(WallAhead(0));
    assert_eq!(cron(&mut t, 120), 2);
}
