//! Leases that are settled, extended and ended by clients that show them, leases that are over as
//! they are given, and what is remembered of a message's first.

use quintet_sim::world::{World, plain, reserve, waiting};
use quintet_types::*;

/// A lease of time alone.
fn for_ms(queue: &str, time: LeaseTime) -> Take {
    Take {
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time,
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..plain(queue)
    }
}

fn receive(w: &mut World, take: Take) -> Message {
    match w.ask(1, Command::Take(take)) {
        Some(Outcome::Messages(handed)) => handed[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn shown(w: &World, message: &Message, over: bool) -> By {
    By::Lease(LeaseRef {
        position: message.position,
        number: message.reserves,
        epoch: w.engine.epoch(),
        over,
    })
}

fn delete(w: &mut World, id: MessageId, by: By) -> Option<Outcome> {
    w.ask(7, Command::Delete { id, by })
}

fn extend(w: &mut World, id: MessageId, by: By, ms: u64) -> Option<Outcome> {
    let ms = Some(ms);
    w.ask(7, Command::Extend { id, by, ms })
}

fn refused(command_error: CommandError) -> Option<Outcome> {
    Some(Outcome::Refused(command_error))
}

const TEN: LeaseTime = LeaseTime::Fixed(10_000);

#[test]
fn any_client_that_shows_a_lease_settles_it() {
    let mut w = World::new();
    w.put("q", "x");
    let message = receive(&mut w, for_ms("q", TEN));
    let by = shown(&w, &message, false);
    let (id, how) = (message.id, How::Finish);
    assert_eq!(
        w.ask(7, Command::Settle { id, by, how }),
        Some(Outcome::Done)
    );
    assert_eq!(delete(&mut w, id, by), refused(CommandError::NotFound));
}

#[test]
fn a_lease_that_is_over_differs_from_a_message_that_is_gone() {
    let mut w = World::new();
    w.put("q", "x");
    let first = receive(&mut w, for_ms("q", TEN));
    let (strict, lax) = (shown(&w, &first, false), shown(&w, &first, true));
    w.wait(10_000);
    let over = refused(CommandError::LeaseOver);
    assert_eq!(delete(&mut w, first.id, strict), over);
    assert_eq!(extend(&mut w, first.id, strict, 5), over);
    let second = receive(&mut w, for_ms("q", TEN));
    assert_eq!(second.reserves, 2);
    assert_eq!(delete(&mut w, first.id, strict), over);
    // Another one's by now: who may show old ones deletes it all the same.
    assert_eq!(delete(&mut w, first.id, lax), Some(Outcome::Done));
    assert_eq!(
        delete(&mut w, first.id, lax),
        refused(CommandError::NotFound)
    );
}

/// A lease is answered when it is written: a power cut may take it, and the next one gets its
/// number.
#[test]
fn a_lease_of_another_process_is_another_one() {
    let mut w = World::new();
    w.put("q", "x");
    let facts = w.facts.len();
    let lost = receive(&mut w, for_ms("q", TEN));
    let by = shown(&w, &lost, false);
    w.facts.truncate(facts);
    w.restart();
    let again = receive(&mut w, for_ms("q", TEN));
    assert_eq!((again.id, again.reserves), (lost.id, lost.reserves));
    assert_eq!(
        delete(&mut w, lost.id, by),
        refused(CommandError::LeaseOver)
    );
    // One that is kept outlives the process that gave it.
    let kept = shown(&w, &again, false);
    w.restart();
    assert_eq!(delete(&mut w, again.id, kept), Some(Outcome::Done));
}

#[test]
fn a_move_ends_what_is_shown() {
    let mut w = World::new();
    w.put("q", "x");
    let message = receive(&mut w, for_ms("q", TEN));
    let by = shown(&w, &message, true);
    w.wait(10_000);
    let (id, to) = (message.id, "q".into());
    w.ask(9, Command::Move { id, to });
    assert_eq!(delete(&mut w, id, by), refused(CommandError::NotFound));
}

#[test]
fn an_extended_lease_that_is_over_hides_the_message_again_under_its_number() {
    let mut w = World::new();
    w.put("q", "x");
    let message = receive(&mut w, for_ms("q", TEN));
    let by = shown(&w, &message, true);
    w.wait(10_000);
    assert_eq!(extend(&mut w, message.id, by, 2000), Some(Outcome::Done));
    assert_eq!(w.pop("q"), "empty");
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    w.wait(2000);
    let next = receive(&mut w, for_ms("q", TEN));
    assert_eq!(next.reserves, 2);
    // Whoever's it is: it lasts as long as was said last.
    assert_eq!(extend(&mut w, message.id, by, 1000), Some(Outcome::Done));
    w.wait(1000);
    assert_eq!(w.pop("q"), "x");
}

#[test]
fn a_lease_that_ends_at_once_counts_and_shows_each_once() {
    let mut w = World::new();
    w.put("q", "a");
    w.put("q", "b");
    let take = Take {
        messages_max: 10,
        ..for_ms("q", LeaseTime::Over)
    };
    assert_eq!(w.take(1, take.clone()), "a+b");
    assert_eq!(w.take(1, take.clone()), "a+b");
    assert_eq!(receive(&mut w, take).reserves, 3);
    let waits = Take {
        wait: Wait::Forever,
        ..for_ms("r", LeaseTime::Over)
    };
    // Of two that wait both see it; who takes it away ends that.
    assert_eq!(w.take(1, waits.clone()), "waits");
    assert_eq!(w.take(2, waits), "waits");
    assert_eq!(w.take(3, waiting("r")), "waits");
    w.put("r", "c");
    let seen: Vec<_> = [1, 2, 3]
        .map(|client_id| (client_id, "c".to_owned()))
        .into();
    assert_eq!(w.delivered(), seen);
}

#[test]
fn a_lease_of_no_time_is_released_and_one_of_a_queue_without_time_runs_out() {
    let mut w = World::new();
    let overrides = Overrides {
        default_ttr_ms: Some(AT_ONCE_MS),
        ..Overrides::default()
    };
    let (queue, overrides) = ("q".into(), Box::new(overrides));
    w.ask(9, Command::Create { queue, overrides });
    w.put("q", "x");
    for (time, counts) in [(LeaseTime::Over, (1, 0)), (LeaseTime::TtrOrOver, (1, 1))] {
        assert_eq!(w.take(1, for_ms("q", time)), "x");
        let outcome = w.ask(9, Command::Stats(StatsOf::Queue("q".into())));
        let Some(Outcome::Stats(reply)) = outcome else {
            panic!("{outcome:?}");
        };
        let StatsReply::Queue(stats) = *reply else {
            panic!("numbers of a queue");
        };
        let totals = &stats.totals;
        assert_eq!((totals.releases, totals.timeouts), counts, "{time:?}");
    }
}

#[test]
fn too_many_such_leases_are_too_many_attempts() {
    let mut w = World::new();
    let overrides = Overrides {
        attempts_max: Some(2),
        dead_letter: Some(DeadLetter::To("dead".into())),
        ..Overrides::default()
    };
    let (queue, overrides) = ("q".into(), Box::new(overrides));
    w.ask(9, Command::Create { queue, overrides });
    w.put("q", "x");
    assert_eq!(w.take(1, for_ms("q", LeaseTime::Over)), "x");
    assert_eq!(w.take(1, for_ms("q", LeaseTime::Over)), "x");
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(w.pop("dead"), "x");
}

#[test]
fn when_a_message_was_first_leased_is_remembered() {
    let mut w = World::new();
    w.put("q", "x");
    let began = w.now;
    let extra = |message: &Message| message.extra.clone().unwrap_or_default();
    let first = receive(&mut w, for_ms("q", TEN));
    assert_eq!(extra(&first).first_leased, Ms(0));
    w.wait(4000);
    let by = shown(&w, &first, false);
    extend(&mut w, first.id, by, 10_000);
    w.restart();
    w.wait(10_000);
    for _ in 0..2 {
        let next = receive(&mut w, for_ms("q", TEN));
        assert_eq!(extra(&next).first_leased, began);
        w.wait(10_000);
    }
}

/// State of a message that a connection took: a lease without a deadline has no known beginning.
#[test]
fn a_lease_without_a_deadline_has_no_beginning() {
    let mut w = World::new();
    let put = Put {
        ttr_ms: Some(0),
        ..Put::new("q".into(), Body::new(b"x"))
    };
    let id = w.put_as(put);
    assert_eq!(w.take(1, reserve("q")), "x");
    let (by, how) = (By::Owner, release());
    w.ask(1, Command::Settle { id, by, how });
    let message = receive(&mut w, for_ms("q", TEN));
    let extra = message.extra.expect("it was released");
    assert_eq!((extra.releases, extra.first_leased), (1, Ms(0)));
}

fn release() -> How {
    How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    }
}

/// A take of two that may be sent again.
fn with_token(token: &str) -> Take {
    Take {
        messages_max: 2,
        token: Some(token.as_bytes().into()),
        ..for_ms("q", TEN)
    }
}

fn bodies(w: &mut World, take: Take) -> Vec<(MessageId, u32)> {
    match w.ask(1, Command::Take(take)) {
        Some(Outcome::Messages(handed)) => handed.iter().map(|m| (m.id, m.reserves)).collect(),
        Some(Outcome::Empty) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// A queue with four messages, two of them taken with a token four seconds ago.
fn taken_with_token() -> (World, Vec<(MessageId, u32)>) {
    let mut w = World::new();
    for body in ["1", "2", "3", "4"] {
        w.put("q", body);
    }
    let first = bodies(&mut w, with_token("t"));
    assert_eq!(first, [(MessageId(1), 1), (MessageId(2), 1)]);
    w.wait(4000);
    (w, first)
}

#[test]
fn a_take_repeated_with_its_token_gets_new_leases_of_the_same_messages() {
    let (mut w, first) = taken_with_token();
    assert_eq!(bodies(&mut w, with_token("t")), first);
    // They began anew: as first given they would be over.
    w.wait(9000);
    assert_eq!(bodies(&mut w, with_token("t")), first);
    assert_eq!(bodies(&mut w, with_token("other")).len(), 2);
    w.wait(10_000);
    let again = bodies(&mut w, with_token("t"));
    assert_eq!(again[0], (MessageId(1), 2), "those leases are over");
}

#[test]
fn a_token_repeats_no_reply_after_one_of_its_leases_changed() {
    let third = [(MessageId(3), 1), (MessageId(4), 1)];
    // One is deleted.
    let (mut w, _) = taken_with_token();
    delete(&mut w, MessageId(1), By::Anyone);
    assert_eq!(bodies(&mut w, with_token("t")), third);
    // One is given more time.
    let (mut w, _) = taken_with_token();
    extend(&mut w, MessageId(2), By::Bearer, 20_000);
    assert_eq!(bodies(&mut w, with_token("t")), third);
    // One comes back, and goes to another.
    let (mut w, _) = taken_with_token();
    let (id, by, how) = (MessageId(1), By::Bearer, release());
    w.ask(7, Command::Settle { id, by, how });
    let next = [(MessageId(1), 2), (MessageId(3), 1)];
    assert_eq!(bodies(&mut w, with_token("t")), next);
    // The process that knew it is gone.
    let (mut w, _) = taken_with_token();
    w.restart();
    assert_eq!(bodies(&mut w, with_token("t")), third);
}

#[test]
fn a_token_that_comes_with_another_request_is_refused_as_long_as_it_is_known() {
    let mut w = World::new();
    for body in ["1", "2", "3", "4"] {
        w.put("q", body);
    }
    let of = |messages_max, token_sum| Take {
        messages_max,
        token_sum,
        ..with_token("t")
    };
    // A take that gets nothing leaves no token.
    let nothing = Take {
        body_max: Some(0),
        ..of(3, 9)
    };
    assert_eq!(bodies(&mut w, nothing), []);
    let first = bodies(&mut w, of(2, 7));
    assert_eq!(first, [(MessageId(1), 1), (MessageId(2), 1)]);
    let used = Some(Outcome::Refused(CommandError::TokenUsed(MessageId(1))));
    assert_eq!(w.ask(1, Command::Take(of(1, 8))), used);
    // The same request is answered as before; one without a sum is too, as it may be any.
    assert_eq!(bodies(&mut w, of(2, 7)), first);
    assert_eq!(bodies(&mut w, of(1, 0)), first);
    assert_eq!(w.ask(1, Command::Take(of(1, 8))), used);
    // The leases are over, and the token is still known.
    w.wait(10_001);
    assert_eq!(w.ask(1, Command::Take(of(1, 8))), used);
    w.wait(300_000);
    assert_eq!(bodies(&mut w, of(1, 8)).len(), 1);
}

#[test]
fn a_token_is_of_one_queue_and_known_for_five_minutes_and_a_wait_leaves_it_too() {
    let mut w = World::new();
    let long = |queue: &str, wait| Take {
        token: Some(b"t".as_slice().into()),
        wait,
        ..for_ms(queue, LeaseTime::Fixed(3_600_000))
    };
    assert_eq!(w.take(1, long("q", Wait::Forever)), "waits");
    w.put("q", "1");
    w.put("r", "2");
    assert_eq!(w.delivered(), [(1, "1".to_owned())]);
    assert_eq!(w.take(1, long("q", Wait::No)), "1");
    assert_eq!(w.take(1, long("r", Wait::No)), "2");
    w.wait(299_999);
    assert_eq!(w.take(1, long("q", Wait::No)), "1");
    w.wait(1);
    assert_eq!(w.take(1, long("q", Wait::No)), "empty");
}

#[test]
fn a_delivery_shows_whether_it_is_a_peek() {
    let mut w = World::new();
    let peek = Take {
        peek: true,
        ..waiting("q")
    };
    assert_eq!(w.take(1, peek), "waits");
    assert_eq!(w.take(2, waiting("q")), "waits");
    w.put("q", "a");
    let peeked: Vec<(u64, bool)> = w.deliveries.iter().map(|d| (d.to.0, d.peeked)).collect();
    assert_eq!(peeked, [(1, true), (2, false)]);
}

#[test]
fn stats_of_a_queue_show_whether_its_leases_end_at_once() {
    let mut w = World::new();
    for (ms, at_once) in [(AT_ONCE_MS, true), (60_000, false)] {
        let overrides = Overrides {
            default_ttr_ms: Some(ms),
            ..Overrides::default()
        };
        let configure = Command::Configure {
            queue: "q".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        };
        assert_eq!(w.ask(9, configure), Some(Outcome::Done));
        let outcome = w.ask(9, Command::Stats(StatsOf::Queue("q".into())));
        let Some(Outcome::Stats(reply)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(matches!(*reply, StatsReply::Queue(ref stats) if stats.at_once == at_once));
    }
}
