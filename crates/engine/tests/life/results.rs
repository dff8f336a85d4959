//! Clients that wait for the results of messages.

use quintet_sim::world::{World, reserve, text};
use quintet_types::*;

/// The client that waits.
const WAITS: u64 = 5;

fn awaits(w: &mut World, id: MessageId, wait_ms: u64) -> Option<Outcome> {
    w.ask(WAITS, Command::AwaitResult { id, wait_ms })
}

fn describe(outcome: &Outcome) -> String {
    let Outcome::Result(result) = outcome else {
        return text(outcome);
    };
    let text = result.text.as_deref().map(String::from_utf8_lossy);
    let text = text.map(|text| format!(" {text:?}")).unwrap_or_default();
    format!("{} {}{text}", result.id.0, result.state.word())
}

fn now(w: &mut World, id: MessageId) -> String {
    describe(&awaits(w, id, 0).expect("it does not wait"))
}

fn received(w: &mut World) -> Vec<String> {
    let received = w.deliveries.drain(..);
    let own = received.filter(|delivery| delivery.to == ClientId(WAITS));
    own.map(|delivery| describe(&delivery.outcome)).collect()
}

fn settle(w: &mut World, id: MessageId, how: How) {
    let by = By::Anyone;
    let outcome = w.ask(1, Command::Settle { id, by, how });
    assert_eq!(outcome, Some(Outcome::Done));
}

fn archive(status: &str) -> How {
    let (relayed, status) = (false, status.as_bytes().into());
    How::Archive { relayed, status }
}

fn fails(error: &str) -> How {
    let (error, note) = (error.as_bytes().into(), Vec::new());
    How::Fail { error, note }
}

fn with(change: impl FnOnce(&mut QueueSettings)) -> World {
    let mut settings = Settings::default();
    (settings.defaults.idle_ms, settings.ends_max) = (0, 100);
    change(&mut settings.defaults);
    World::with(settings)
}

/// Puts a message that a client waits for, and a worker holds.
fn held(w: &mut World) -> MessageId {
    let id = w.put("q", "a");
    assert_eq!(awaits(w, id, 1000), None);
    assert_eq!(w.take(1, reserve("q")), "a");
    assert_eq!(received(w), [""; 0]);
    id
}

#[test]
fn each_end_of_a_message_is_an_answer_of_its_own() {
    type End = fn(&mut World, MessageId);
    let rows: [(&str, End); 10] = [
        ("done \"sent\"", |w, id| settle(w, id, archive("sent"))),
        ("done \"\"", |w, id| settle(w, id, archive(""))),
        ("done", |w, id| settle(w, id, How::Finish)),
        ("dead \"no such order\"", |w, id| {
            let reason = b"no such order"[..].into();
            let priority = None;
            settle(w, id, How::Bury { priority, reason });
        }),
        ("dead \"out of paper\"", |w, id| {
            settle(w, id, fails("out of paper"));
            w.wait(5);
            assert_eq!(received(w), [""; 0], "it is tried again");
            assert_eq!(w.take(1, reserve("q")), "a");
            settle(w, id, fails("out of paper"));
        }),
        ("cancelled \"sold out\"", |w, id| {
            let cancel = Cancel {
                reason: b"sold out"[..].into(),
                grace_ms: 10,
            };
            w.ask(9, Command::Cancel(id, Box::new(cancel)));
            assert_eq!(received(w), [""; 0], "its worker has not ended");
            w.wait(20);
        }),
        ("gone", |w, id| {
            let by = By::Anyone;
            settle(
                w,
                id,
                How::Release {
                    priority: None,
                    due: When::Now,
                    back_to: None,
                },
            );
            w.ask(9, Command::Delete { id, by });
        }),
        ("gone", |w, _| {
            let (queue, reserved) = ("q".into(), true);
            w.ask(9, Command::Flush { queue, reserved });
        }),
        ("done", |w, id| {
            // Its worker may still finish it.
            w.ask(9, Command::Drop("q".into()));
            assert_eq!(received(w), [""; 0]);
            settle(w, id, How::Finish);
        }),
        ("gone", |w, id| {
            settle(
                w,
                id,
                How::Release {
                    priority: None,
                    due: When::Now,
                    back_to: None,
                },
            );
            w.ask(9, Command::Drop("q".into()));
        }),
    ];
    for (expected, end) in rows {
        let mut w = with(|settings| {
            (settings.retry_max, settings.retry_delay_ms) = (1, 1);
            settings.dead_letter = DeadLetter::To("dead".into());
        });
        let id = held(&mut w);
        end(&mut w, id);
        assert_eq!(
            received(&mut w),
            [format!("{} {expected}", id.0)],
            "{expected}"
        );
        w.wait(5000);
        assert_eq!(received(&mut w), [""; 0], "it is sent once");
        w.verify();
    }
}

#[test]
fn an_existing_result_is_returned_at_once_and_after_a_restart() {
    let mut w = with(|settings| settings.retention_ms = 10_000);
    let id = held(&mut w);
    settle(&mut w, id, archive("sent"));
    w.restart();
    assert_eq!(now(&mut w, id), "1 done \"sent\"");
    assert_eq!(
        describe(&awaits(&mut w, id, 500).expect("at once")),
        "1 done \"sent\""
    );
    // Its retention is over.
    w.wait(11_000);
    assert_eq!(now(&mut w, id), "1 done");
    assert_eq!(now(&mut w, MessageId(7)), "message not found");
    let late = w.put_as(Put {
        expires: Expiry::In(10),
        ..Put::new("q".into(), Body::new(b"late"))
    });
    assert_eq!(now(&mut w, late), "empty");
    assert_eq!(awaits(&mut w, late, 500), None);
    w.wait(20);
    let ended = format!("{} expired", late.0);
    assert_eq!(received(&mut w).join(""), ended);
    assert_eq!(now(&mut w, late), ended);
}

#[test]
fn a_wait_ends_with_its_time_its_client_or_its_request() {
    let mut w = World::new();
    let id = w.put("q", "a");
    assert_eq!(awaits(&mut w, id, 100), None);
    w.wait(99);
    assert_eq!(received(&mut w), [""; 0]);
    w.wait(1);
    assert_eq!(received(&mut w), ["empty"]);
    assert_eq!(awaits(&mut w, id, 100), None);
    w.ask(WAITS, Command::StopWaiting);
    assert_eq!(received(&mut w), ["empty"]);
    assert_eq!(awaits(&mut w, id, 100), None);
    w.hang_up(WAITS);
    w.pop("q");
    w.wait(200);
    assert_eq!(received(&mut w), [""; 0]);
    assert_eq!(w.engine.next_deadline(), Ms::NEVER);
}

#[test]
fn waits_are_bounded_with_those_for_messages() {
    let mut settings = Settings {
        waiters_max: 1,
        ..Settings::default()
    };
    settings.defaults.idle_ms = 0;
    let mut w = World::with(settings);
    let id = w.put("q", "a");
    assert_eq!(awaits(&mut w, id, 100), None);
    let other = w.ask(6, Command::AwaitResult { id, wait_ms: 100 });
    assert_eq!(other, Some(Outcome::Refused(CommandError::TooManyWaiters)));
    // It goes on waiting in another queue, and with another body.
    let to = "r".into();
    w.ask(9, Command::Move { id, to });
    let edit = Edit {
        body: Some(Body::new(b"b")),
        ..Edit::default()
    };
    let Some(Outcome::Put { id: new, .. }) = w.ask(9, Command::Edit(id, Box::new(edit))) else {
        panic!("another body, another id");
    };
    assert_eq!(received(&mut w), [""; 0]);
    let flush = |queue: &str| Command::Flush {
        queue: queue.into(),
        reserved: false,
    };
    w.ask(9, flush("q"));
    assert_eq!(received(&mut w), [""; 0], "it is in another queue");
    w.ask(9, flush("r"));
    assert_eq!(received(&mut w), [format!("{} gone", new.0)]);
}

/// Rights to the queue `open` alone.
#[derive(Debug)]
struct Open;

impl Permits for Open {
    fn may(&mut self, _: Principal, _: Verb, queue: &Name) -> bool {
        *queue == Name::from("open")
    }

    fn may_all(&mut self, _: Principal, _: Verb) -> bool {
        false
    }
}

#[test]
fn a_result_needs_the_right_to_peek() {
    let mut w = with(|_| {});
    let (shut, open) = (w.put("shut", "a"), w.put("open", "a"));
    w.engine.set_permits(Some(Box::new(Open)));
    let caller = Caller {
        client_id: ClientId(WAITS),
        principal: Principal(7),
    };
    let ask = |w: &mut World, id| match w.submit(caller, Command::AwaitResult { id, wait_ms: 100 })
    {
        Answer::Now(outcome, _) => describe(&outcome),
        Answer::Later => "waits".into(),
    };
    let not_permitted = CommandError::NotPermitted.text();
    assert_eq!(ask(&mut w, shut), not_permitted);
    assert_eq!(ask(&mut w, open), "waits");
    // It ends in a queue that the client may not look into.
    let (id, to) = (open, "shut".into());
    w.ask(9, Command::Move { id, to });
    w.pop("shut");
    w.pop("shut");
    assert_eq!(received(&mut w), [not_permitted]);
    assert_eq!(ask(&mut w, shut), not_permitted);
    assert_eq!(ask(&mut w, open), not_permitted);
}
