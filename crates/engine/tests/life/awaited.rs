//! Waits end without anybody who ends them from outside: each of these commands waits in the
//! engine, and the engine itself asks for the step that decides it.

use quintet_types::*;

use crate::world::{World, plain, prioritized, text};

/// A world whose memory holds one message of this size and no second one.
fn short_of_memory() -> World {
    let mut w = World::new();
    w.put_as(prioritized("q", 1, &"x".repeat(1000)));
    w.engine.set_memory_room(1);
    w
}

/// A put that waits for memory, of client 7.
fn waits_for_memory(w: &mut World) {
    let put = Command::Put(prioritized("q", 2, "late"));
    assert_eq!(w.ask(7, put), None, "it waits for memory");
    assert!(w.engine.next_deadline() > w.now, "nothing can be done yet");
}

/// The engine asks for a step at once, and the step answers client 7.
fn is_answered(w: &mut World) -> String {
    assert!(
        w.engine.next_deadline() <= w.now,
        "the engine asks for a step"
    );
    w.tick();
    w.verify();
    let received: Vec<Delivery> = w.deliveries.drain(..).collect();
    let [delivery] = &received[..] else {
        panic!("one answer, not {received:?}");
    };
    assert_eq!(delivery.to, ClientId(7));
    assert!(w.engine.next_deadline() > w.now, "and asks for no more");
    text(&delivery.outcome)
}

#[test]
fn a_put_that_waits_for_memory_goes_on_when_a_take_frees_it() {
    let mut w = short_of_memory();
    let used = w.engine.memory_bytes();
    w.engine.set_memory_room(used - 1);
    waits_for_memory(&mut w);
    w.pop("q");
    assert!(is_answered(&mut w).starts_with("Put"));
    assert_eq!(w.pop("q"), "late");
}

#[test]
fn a_put_that_waits_for_memory_goes_on_when_time_frees_it() {
    let mut w = World::new();
    let dedupe = Dedupe {
        id: vec![7; 60_000].into(),
        window_ms: Some(200),
        scope: None,
        on_repeat: None,
    };
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            dedupe: Some(dedupe),
            ..PutMore::default()
        })),
        expires: Expiry::In(200),
        body: Body::new(&[b'x'; 60_000]),
        ..prioritized("q", 1, "")
    });
    let used = w.engine.memory_bytes();
    w.engine.set_memory_room(used - 1);
    waits_for_memory(&mut w);
    w.wait(201);
    let received = w.delivered();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(w.pop("q"), "late");
}

#[test]
fn a_put_that_waits_for_memory_goes_on_when_there_may_be_more() {
    for room in [0, u64::MAX] {
        let mut w = short_of_memory();
        waits_for_memory(&mut w);
        w.engine.set_memory_room(room);
        assert!(is_answered(&mut w).starts_with("Put"));
    }
}

#[test]
fn a_put_that_waits_for_memory_is_refused_when_puts_are() {
    let mut w = short_of_memory();
    waits_for_memory(&mut w);
    w.engine.set_draining(true);
    assert_eq!(is_answered(&mut w), CommandError::Draining.text());
}

#[test]
fn a_step_of_several_that_waits_for_memory_goes_on_as_well() {
    let mut w = short_of_memory();
    let transaction = Transaction {
        effects: vec![Effect::Put(prioritized("q", 2, "late"))],
        ..Transaction::default()
    };
    let many = Command::PutMany(vec![
        prioritized("q", 2, "late"),
        prioritized("q", 3, "later"),
    ]);
    for command in [Command::Transaction(Box::new(transaction)), many] {
        w.engine.set_memory_room(1);
        assert_eq!(w.ask(7, command), None, "it waits for memory");
        w.engine.set_memory_room(0);
        is_answered(&mut w);
    }
    w.pop("q");
    assert_eq!(w.take(8, plain("q")), "late");
}

/// A client that is gone leaves nothing behind that asks for steps for ever.
#[test]
fn a_wait_for_memory_ends_with_its_client() {
    let mut w = short_of_memory();
    waits_for_memory(&mut w);
    w.hang_up(7);
    w.engine.set_memory_room(0);
    w.wait(0);
    assert_eq!(w.delivered(), []);
    assert_eq!(w.engine.next_deadline(), Ms::NEVER);
}
