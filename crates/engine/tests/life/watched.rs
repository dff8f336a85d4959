//! Clients that wait for news of a lease.

use quintet_sim::world::{World, reserve, text};
use quintet_types::*;

/// The client that waits.
const WAITS: u64 = 5;
const LEASE_MS: u64 = 10_000;

fn world() -> World {
    let mut settings = Settings::default();
    (settings.defaults.idle_ms, settings.ends_max) = (0, 100);
    World::with(settings)
}

fn describe(outcome: &Outcome, now: Ms) -> String {
    let Outcome::Lease(news) = outcome else {
        return text(outcome);
    };
    let state = match news.state {
        LeaseState::Held => "held".to_owned(),
        LeaseState::Back => "back".to_owned(),
        LeaseState::Ended(state) => state.word().to_owned(),
    };
    let until = news.until.map(|until| format!(" for {}", until.since(now)));
    let cancelled = news.cancelled.as_ref();
    let cancelled = cancelled.map(|cancelled| {
        format!(
            " cancelled {:?}",
            String::from_utf8_lossy(&cancelled.reason)
        )
    });
    state + &until.unwrap_or_default() + &cancelled.unwrap_or_default()
}

/// A lease, as its holder knows it.
fn held(w: &mut World) -> AwaitLease {
    let id = w.put("q", "a");
    let mut take = reserve("q");
    take.lease = take.lease.map(|lease| LeaseRequest {
        owner: LeaseOwner::Time,
        time: LeaseTime::Fixed(LEASE_MS),
        ..lease
    });
    let Some(Outcome::Messages(messages)) = w.ask(1, Command::Take(take)) else {
        panic!("it is there");
    };
    AwaitLease {
        id,
        seen: MessageVersion::of(&messages[0]),
        known: Some((false, Some(w.now + LEASE_MS))),
        wait_ms: 60_000,
    }
}

fn ask(w: &mut World, ask: AwaitLease) -> Option<String> {
    let received = w.ask(WAITS, Command::AwaitLease(ask));
    received.map(|received| describe(&received, w.now))
}

fn received(w: &mut World) -> Vec<String> {
    let now = w.now;
    let received = w.deliveries.drain(..);
    let own = received.filter(|delivery| delivery.to == ClientId(WAITS));
    own.map(|delivery| describe(&delivery.outcome, now))
        .collect()
}

fn does(w: &mut World, command: Command) {
    let done = w.ask(9, command);
    assert!(
        matches!(done, Some(Outcome::Done | Outcome::Cancelled)),
        "{done:?}"
    );
}

fn cancel(w: &mut World, id: MessageId, grace_ms: u64) {
    let reason = b"too late"[..].into();
    does(
        w,
        Command::Cancel(id, Box::new(Cancel { reason, grace_ms })),
    );
}

fn settle(id: MessageId, how: How) -> Command {
    let by = By::Anyone;
    Command::Settle { id, by, how }
}

#[test]
fn a_client_gets_each_end_of_a_lease_in_the_same_step() {
    type End = fn(&mut World, MessageId);
    let rows: [(&str, End); 9] = [
        ("done", |w, id| does(w, settle(id, How::Finish))),
        ("done", |w, id| {
            let (relayed, status) = (false, b"ok"[..].into());
            does(w, settle(id, How::Archive { relayed, status }));
        }),
        ("back", |w, id| {
            let (priority, back_to) = (None, None);
            let due = When::Now;
            does(
                w,
                settle(
                    id,
                    How::Release {
                        priority,
                        due,
                        back_to,
                    },
                ),
            );
        }),
        ("back", |w, _| w.wait(LEASE_MS)),
        ("dead", |w, id| {
            let (priority, reason) = (None, b"no"[..].into());
            does(w, settle(id, How::Bury { priority, reason }));
        }),
        ("gone", |w, id| {
            let by = By::Anyone;
            does(w, Command::Delete { id, by });
        }),
        ("gone", |w, _| {
            let (queue, reserved) = ("q".into(), true);
            w.ask(9, Command::Flush { queue, reserved });
        }),
        // The worker has no grace, and hears why.
        ("cancelled cancelled \"too late\"", |w, id| cancel(w, id, 0)),
        // Another one works on it in the next moment.
        ("back", |w, id| {
            w.ask(2, Command::Take(quintet_sim::world::waiting("q")));
            w.deliveries.clear();
            let (priority, back_to) = (None, None);
            let due = When::Now;
            let how = How::Release {
                priority,
                due,
                back_to,
            };
            does(w, settle(id, how));
        }),
    ];
    for (expected, end) in rows {
        let mut w = world();
        let lease = held(&mut w);
        assert_eq!(ask(&mut w, lease), None);
        end(&mut w, lease.id);
        let received = received(&mut w);
        assert_eq!(received.len(), 1, "{expected}: {received:?}");
        // A removing take may have got it since.
        assert!(
            received[0] == expected || expected == "back" && received[0] == "done",
            "{expected}: {received:?}"
        );
        // It is over.
        w.wait(60_000);
        assert_eq!(self::received(&mut w), [""; 0]);
        assert!(w.engine.next_deadline() > w.now);
    }
}

#[test]
fn a_client_gets_a_cancelled_message_and_a_longer_lease_and_nothing_else() {
    let mut w = world();
    let mut lease = held(&mut w);
    assert_eq!(ask(&mut w, lease), None);
    let (id, by) = (lease.id, By::Anyone);
    let (percent, text) = (Some(40), None);
    does(
        &mut w,
        Command::Progress {
            id,
            by,
            percent,
            text,
        },
    );
    let other = w.put("q", "b");
    cancel(&mut w, other, 0);
    assert_eq!(received(&mut w), [""; 0]);
    let ms = Some(30_000);
    does(&mut w, Command::Extend { id, by, ms });
    assert_eq!(received(&mut w), ["held for 30000"]);
    // Nobody waits until the client asks again, with what it knows.
    cancel(&mut w, id, 5000);
    assert_eq!(received(&mut w), [""; 0]);
    lease.known = Some((false, Some(w.now + 30_000)));
    let notice = "held for 5000 cancelled \"too late\"";
    assert_eq!(ask(&mut w, lease).as_deref(), Some(notice));
    lease.known = Some((true, Some(w.now + 5000)));
    assert_eq!(ask(&mut w, lease), None);
    w.wait(5000);
    assert_eq!(received(&mut w), ["cancelled cancelled \"too late\""]);
    // One that asks now is told how it ended.
    assert_eq!(ask(&mut w, lease).as_deref(), Some("cancelled"));
    lease.known = None;
    assert_eq!(ask(&mut w, lease).as_deref(), Some("cancelled"));
}

#[test]
fn a_wait_ends_with_its_time_its_client_and_on_request() {
    let mut w = world();
    let lease = held(&mut w);
    let short = AwaitLease {
        wait_ms: 50,
        ..lease
    };
    assert_eq!(ask(&mut w, short), None);
    w.wait(49);
    assert_eq!(received(&mut w), [""; 0]);
    w.wait(1);
    assert_eq!(received(&mut w), ["empty"]);
    assert_eq!(ask(&mut w, lease), None);
    w.ask(WAITS, Command::StopWaiting);
    assert_eq!(received(&mut w), ["empty"]);
    assert_eq!(ask(&mut w, lease), None);
    w.hang_up(WAITS);
    does(&mut w, settle(lease.id, How::Finish));
    assert_eq!(received(&mut w), [""; 0]);
    let now = AwaitLease {
        wait_ms: 0,
        ..held(&mut w)
    };
    assert_eq!(ask(&mut w, now).as_deref(), Some("empty"));
    let unknown = AwaitLease {
        id: MessageId(999),
        ..lease
    };
    let nothing = CommandError::NotFound.text();
    assert_eq!(ask(&mut w, unknown).as_deref(), Some(nothing));
}

#[test]
fn waits_for_leases_are_counted_with_all_others() {
    let settings = Settings {
        waiters_max: 1,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let lease = held(&mut w);
    assert_eq!(ask(&mut w, lease), None);
    let full = CommandError::TooManyWaiters.text();
    let mut other = |command| w.ask(6, command).map(|outcome| text(&outcome));
    assert_eq!(other(Command::AwaitLease(lease)).as_deref(), Some(full));
    let result = Command::AwaitResult {
        id: lease.id,
        wait_ms: 9,
    };
    assert_eq!(other(result).as_deref(), Some(full));
}
