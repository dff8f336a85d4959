//! Replies: the result of a message goes into the queue that its put names.

use quintet_engine::*;
use quintet_sim::world::{World, reserve};
use quintet_types::*;

fn asks(queue: &str, correlation: &str) -> Put {
    let reply = ReplyTo {
        queue: "answers".into(),
        correlation: correlation.as_bytes().into(),
    };
    Put {
        more: Some(Box::new(PutMore {
            reply: Some(Box::new(reply)),
            ..PutMore::default()
        })),
        ..Put::new(queue.into(), Body::new(b"2 3"))
    }
}

/// Takes all replies: correlation id, state, body.
fn answers(w: &mut World) -> Vec<String> {
    let mut all = Vec::new();
    let take = Take {
        queues: [Name::from("answers")].into_iter().collect(),
        ..Take::default()
    };
    while let Some(Outcome::Messages(messages)) = w.ask(8, Command::Take(take.clone())) {
        all.extend(messages.iter().map(describe));
    }
    all
}

fn describe(message: &Message) -> String {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let (of, state) = (message.attr(CORRELATION), message.attr(REPLY_STATE));
    let body = message.body.as_small();
    format!("{} {} {}", text(of), text(state), text(body))
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
    settings.defaults.idle_ms = 0;
    change(&mut settings.defaults);
    World::with(settings)
}

#[test]
fn each_end_sends_one_reply_in_its_step_and_no_second_one() {
    type End = fn(&mut World, MessageId);
    let rows: [(&str, End); 9] = [
        ("done 5", |w, id| settle(w, id, archive("5"))),
        ("done ", |w, id| settle(w, id, How::Finish)),
        ("dead 2 and 3?", |w, id| {
            let (priority, reason) = (None, b"2 and 3?"[..].into());
            settle(w, id, How::Bury { priority, reason });
            w.ask(9, Command::KickId(id));
            assert_eq!(w.take(1, reserve("add")), "2 3");
            settle(w, id, archive("5"));
        }),
        ("dead wrong", |w, id| {
            settle(w, id, fails("wrong"));
            w.wait(5);
            assert_eq!(answers(w), [""; 0], "it is tried again");
            assert_eq!(w.take(1, reserve("add")), "2 3");
            settle(w, id, fails("wrong"));
            assert_eq!(w.take(1, reserve("dead")), "2 3");
            settle(w, id, archive("5"));
        }),
        ("cancelled sold out", |w, id| {
            let reason = b"sold out"[..].into();
            let cancel = Cancel {
                reason,
                grace_ms: 10,
            };
            w.ask(9, Command::Cancel(id, Box::new(cancel)));
            w.wait(20);
        }),
        ("expired ", |w, id| {
            w.hang_up(1);
            w.wait(60_000);
            let _ = id;
        }),
        ("gone ", |w, id| {
            w.hang_up(1);
            let by = By::Anyone;
            w.ask(9, Command::Delete { id, by });
        }),
        ("done ", |w, id| {
            w.ask(9, Command::Drop("add".into()));
            settle(w, id, How::Finish);
        }),
        ("done 5", |w, id| {
            // It keeps its reply in another queue and with another body.
            w.hang_up(1);
            let to = "sums".into();
            w.ask(9, Command::Move { id, to });
            let body = Some(Body::new(b"3 2"));
            let edit = Edit {
                body,
                ..Edit::default()
            };
            w.ask(9, Command::Edit(id, Box::new(edit)));
            assert_eq!(answers(w), [""; 0]);
            w.restart();
            assert_eq!(w.take(1, reserve("sums")), "3 2");
            let Some(Outcome::Count(1)) = w.ask(
                1,
                Command::SettleHeld {
                    queue: None,
                    how: archive("5"),
                    max: 9,
                },
            ) else {
                panic!("one is held");
            };
        }),
    ];
    for (expected, end) in rows {
        let mut w = with(|settings| {
            (settings.retry_max, settings.retry_delay_ms) = (1, 1);
            settings.dead_letter = DeadLetter::To("dead".into());
            settings.expire_to = Some("late".into());
        });
        let mut put = asks("add", "sum");
        put.expires = Expiry::In(30_000);
        let id = w.put_as(put);
        assert_eq!(w.take(1, reserve("add")), "2 3");
        assert_eq!(answers(&mut w), [""; 0]);
        end(&mut w, id);
        assert_eq!(w.replayed(SegmentRef(0)).image(), w.engine.image());
        w.restart();
        assert_eq!(answers(&mut w), [format!("sum {expected}")], "{expected}");
        w.restart();
        assert_eq!(answers(&mut w), [""; 0], "{expected}");
    }
}

#[test]
fn a_full_or_paused_queue_gets_its_reply_and_a_purge_sends_none() {
    let mut w = with(|settings| {
        settings.messages_max = 1;
        settings.ttl_ms = 5_000;
    });
    w.put("answers", "full");
    let (queue, for_ms) = ("answers".into(), None);
    w.ask(9, Command::Pause { queue, for_ms });
    let first = w.put_as(asks("add", ""));
    assert_eq!(w.pop("add"), "2 3");
    let second = w.put_as(asks("add", "purged"));
    let (queue, reserved) = ("add".into(), true);
    w.ask(9, Command::Flush { queue, reserved });
    let _ = second;
    let (queue, for_ms) = ("answers".into(), Some(0));
    w.ask(9, Command::Pause { queue, for_ms });
    // Of a message without a name the id is what its sender knows.
    assert_eq!(
        answers(&mut w),
        ["  full".to_owned(), format!("{} done ", first.0)]
    );
    // The reply has the ttl of its queue.
    w.put_as(asks("add", ""));
    w.pop("add");
    w.wait(5_001);
    assert_eq!(answers(&mut w), [""; 0]);
}

#[test]
fn a_taken_message_that_comes_back_sends_no_second_reply() {
    let mut w = World::new();
    w.put_as(asks("add", "sum"));
    let Some(Outcome::Messages(taken)) = w.ask(1, Command::Take(quintet_sim::world::plain("add")))
    else {
        panic!("a message");
    };
    w.ask(1, Command::Restore(taken.to_vec()));
    assert_eq!(w.pop("add"), "2 3");
    assert_eq!(answers(&mut w), ["sum done "]);
}

#[derive(Debug)]
struct Add;

impl Permits for Add {
    fn may(&mut self, _: Principal, _: Verb, queue: &Name) -> bool {
        *queue == Name::from("add")
    }

    fn may_all(&mut self, _: Principal, _: Verb) -> bool {
        false
    }
}

#[test]
fn a_put_may_not_name_a_queue_that_its_caller_may_not_put_into() {
    let mut w = World::new();
    let ask = |w: &mut World, command| {
        let caller = Caller {
            client_id: ClientId(7),
            principal: Principal(7),
        };
        match w.submit(caller, command) {
            Answer::Now(outcome, _) => outcome,
            Answer::Later => panic!("it does not wait"),
        }
    };
    w.engine.set_permits(Some(Box::new(Add)));
    let refused = Outcome::Refused(CommandError::NotPermitted);
    assert_eq!(ask(&mut w, Command::Put(asks("add", ""))), refused);
    let many = vec![Put::new("add".into(), Body::new(b"x")), asks("add", "")];
    assert_eq!(ask(&mut w, Command::PutMany(many)), refused);
    let mut own = asks("add", "");
    own.more.as_mut().expect("more").reply = Some(Box::new(ReplyTo {
        queue: "add".into(),
        ..ReplyTo::default()
    }));
    assert!(matches!(
        ask(&mut w, Command::Put(own)),
        Outcome::Put { .. }
    ));
    w.engine.set_permits(None);
    let long = "c".repeat(MESSAGE_NAME_BYTES_MAX + 1);
    let refused = Outcome::Refused(CommandError::BadMessageName);
    assert_eq!(ask(&mut w, Command::Put(asks("add", &long))), refused);
    let mut nameless = asks("add", "");
    nameless.more.as_mut().expect("more").reply = Some(Box::default());
    let refused = Outcome::Refused(CommandError::BadName);
    assert_eq!(ask(&mut w, Command::Put(nameless)), refused);
    assert_eq!(
        [w.pop("add"), w.pop("add"), w.pop("add")],
        ["2 3", "", "empty"],
        "the permitted one and its reply"
    );
}

/// Carries what `from` has set aside.
fn carries(now: Ms, from: &mut World, into: &mut World) {
    let leaves = Side {
        engine: &mut from.engine,
        journal: &mut from.facts,
    };
    let enters = Side {
        engine: &mut into.engine,
        journal: &mut into.facts,
    };
    carry(now, leaves, enters, 9, &mut into.deliveries);
    from.verify();
    into.verify();
}

#[test]
fn a_reply_for_another_shard_is_aside_and_arrives_once() {
    let settings = Settings::default();
    let there = usize::from(quintet_types::shard_of_queue(b"answers", 2) == 1);
    let here = (0..9).map(|number| format!("add{number}"));
    let mut here = here.filter(|name| shard_of_queue(name.as_bytes(), 2) != there);
    let add = here.next().expect("a queue of the other shard");
    let [mut own, mut other] = [1 - there, there].map(|number| {
        let number = u8::try_from(number).expect("0 or 1");
        World::shard(number, 2, settings.clone())
    });
    let id = own.put_as(asks(&add, "sum"));
    assert_eq!(own.take(1, reserve(&add)), "2 3");
    settle(&mut own, id, archive("5"));
    assert!(
        own.engine.next_deadline() <= own.now,
        "it asks to be carried"
    );
    // A crash before it is carried.
    own.restart();
    let next = own.put(&add, "next");
    let now = own.now;
    carries(now, &mut own, &mut other);
    own.restart();
    other.restart();
    carries(now, &mut own, &mut other);
    assert_eq!(answers(&mut other), ["sum done 5"]);
    assert!(next.0 > id.0 + 1, "the id of the reply is used up");
}

/// A queue that an earlier put of the same command makes stays the queue of that put.
#[test]
fn the_reply_queue_of_one_put_may_be_the_new_queue_of_another() {
    let mut w = World::new();
    let mut second = Put::new("second".into(), Body::new(b"b"));
    second.more = Some(Box::new(PutMore {
        reply: Some(Box::new(ReplyTo {
            queue: "first".into(),
            ..ReplyTo::default()
        })),
        ..PutMore::default()
    }));
    let first = Put::new("first".into(), Body::new(b"a"));
    w.ask(1, Command::PutMany(vec![first, second]));
    assert_eq!(w.pop("first"), "a");
    assert_eq!(w.pop("second"), "b");
    w.verify();
}
