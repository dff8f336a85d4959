//! Messages that were stored elsewhere before.

use quintet_types::*;

use crate::world::{World, prioritized};

fn with_past(body: &str, past: Past) -> Put {
    Put {
        due: When::At(Ms(u64::MAX >> 1)),
        more: Some(Box::new(PutMore {
            key: Some(b"k".as_slice().into()),
            past: Some(Box::new(past)),
            ..PutMore::default()
        })),
        ..prioritized("q", 1, body)
    }
}

fn seen(w: &mut World, id: MessageId) -> Message {
    match w.ask(1, Command::Peek(Peek::Id(id))) {
        Some(Outcome::Messages(mut messages)) => messages.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn they_enter_in_the_state_they_had_and_are_there_after_a_restart() {
    let mut w = World::new();
    for state in [
        State::Prepared,
        State::Ready,
        State::Buried,
        State::Done,
        State::Relayed,
    ] {
        let past = Past {
            state,
            created: Ms(7),
            changed: Ms(9),
            status: b"why".as_slice().into(),
            reserves: 1,
            timeouts: 2,
            releases: 3,
            buries: 4,
            kicks: 5,
            failures: 6,
        };
        let id = w.put_as(with_past("x", past));
        let message = seen(&mut w, id);
        assert_eq!(
            (message.state, message.created, message.reserves),
            (state, Ms(7), 1)
        );
        let extra = message.extra.as_deref().expect("more than a plain message");
        assert_eq!((extra.timeouts, extra.releases), (2, 3));
        assert_eq!((extra.buries, extra.kicks, extra.failures), (4, 5, 6));
        assert_eq!((&*extra.status, extra.changed), (&b"why"[..], Ms(9)));
        assert_eq!(extra.key.as_deref(), Some(&b"k"[..]));
        let waits = matches!(state, State::Prepared | State::Ready);
        assert_eq!(extra.due.is_some(), waits, "{state:?}");
        w.restart();
        assert_eq!(seen(&mut w, id).extra, message.extra);
    }
}

#[test]
fn leases_and_times_to_come_stay_behind() {
    let mut w = World::new();
    let past = |state| Past {
        state,
        created: Ms(u64::MAX),
        changed: Ms(u64::MAX),
        ..Past::default()
    };
    let id = w.put_as(with_past("x", past(State::Reserved)));
    let message = seen(&mut w, id);
    assert_eq!(message.state, State::Ready);
    let now = message.created;
    assert!(now < Ms(u64::MAX));
    assert_eq!(message.extra.expect("more").changed, now);
}

#[test]
fn buried_messages_come_behind_earlier_ones() {
    let mut w = World::new();
    let buried = |w: &mut World, body: &str| {
        w.put_as(with_past(
            body,
            Past {
                state: State::Buried,
                ..Past::default()
            },
        ))
    };
    let (a, b) = (buried(&mut w, "a"), buried(&mut w, "b"));
    w.restart();
    let c = buried(&mut w, "c");
    let show = BulkOp::show("q".into(), ListState::Buried, 9);
    match w.ask(1, Command::BulkOp(Box::new(show))) {
        Some(Outcome::BulkDone(done)) => {
            let ids: Vec<_> = done.messages.iter().map(|message| message.id).collect();
            assert_eq!(ids, [a, b, c]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn children_get_no_second_copy() {
    let mut w = World::new();
    let (parent, child) = ("q".into(), "q+child".into());
    w.ask(1, Command::Join { parent, child });
    w.put("q", "new");
    w.put_as(with_past("old", Past::default()));
    assert_eq!(w.pop("q+child"), "new");
    assert_eq!(w.pop("q+child"), "empty");
}
