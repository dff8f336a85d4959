//! Facts as events: the fields of each kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_client::{Event, EventKind, News};
use quintet_engine::Fact;
use quintet_host::Post as _;
use quintet_types::{
    At, Body, Extra, Message, MessageId, Ms, QueueId, Removal, Return, SegmentRef, State, Transfer,
};

use super::EventLog;
use super::of_fact::event;

const AT: At = At {
    queue: QueueId(3),
    id: MessageId(7),
    priority: 0,
    position: 7,
};

fn message(state: State) -> Message {
    Message {
        id: MessageId(7),
        queue: QueueId(3),
        body: Body::new(b"four"),
        state,
        position: 7,
        created: Ms(1),
        extra: None,
        ttr_ms: None,
        priority: 0,
        flags: 0,
        reserves: 0,
        segment_ref: SegmentRef(1),
        generation: 0,
        ordinal: 0,
        selectable: true,
        doomed: false,
    }
}

/// Kind and reason.
fn expected_event(fact: &Fact) -> Option<(EventKind, &'static str)> {
    let received = event(fact)?;
    assert_eq!(
        (received.queue, received.event.id),
        (Some(AT.queue), Some(AT.id)),
        "{fact:?}"
    );
    Some((received.event.kind, received.event.why))
}

#[test]
fn each_fact_about_a_message_is_one_event_and_no_other_is_any() {
    use EventKind as Kind;
    let removed = |why| Fact::Removed { at: AT, why };
    let released = |why, failed: Option<&[u8]>| Fact::Released {
        at: AT,
        priority: 0,
        position: 7,
        due: None,
        delay_ms: 0,
        why,
        failed: failed.map(Into::into),
    };
    let moved = |why| Fact::Moved {
        at: AT,
        to: QueueId(4),
        position: 1,
        why,
        now: Ms(1),
    };
    for (fact, expected) in [
        (Fact::Put(message(State::Ready)), Some((Kind::Put, ""))),
        (Fact::Put(message(State::Prepared)), None),
        (Fact::Committed { at: AT }, Some((Kind::Put, "committed"))),
        (
            Fact::Restored(message(State::Ready)),
            Some((Kind::Released, "undone")),
        ),
        (
            released(Return::Released, None),
            Some((Kind::Released, "released")),
        ),
        (
            released(Return::Timeout, None),
            Some((Kind::Released, "timeout")),
        ),
        (
            released(Return::Lost, Some(b"gone")),
            Some((Kind::Failed, "connection_lost")),
        ),
        (Fact::Kicked { at: AT }, Some((Kind::Released, "kicked"))),
        (removed(Removal::Taken), Some((Kind::Finished, "taken"))),
        (removed(Removal::Finished), Some((Kind::Finished, ""))),
        (removed(Removal::Deleted), Some((Kind::Removed, "deleted"))),
        (removed(Removal::Expired), Some((Kind::Expired, ""))),
        (
            removed(Removal::Failed),
            Some((Kind::Failed, "not_retried")),
        ),
        (removed(Removal::Cancelled), Some((Kind::Cancelled, ""))),
        (moved(Transfer::Command), Some((Kind::Moved, ""))),
        (moved(Transfer::Redriven), Some((Kind::Moved, "redriven"))),
        (moved(Transfer::DeadLetter), Some((Kind::Dead, "attempts"))),
        (moved(Transfer::Failures), Some((Kind::Dead, "failures"))),
        (moved(Transfer::Expired), Some((Kind::Expired, "moved"))),
        // A snapshot repeats what was told, and a run is the server's own affair.
        (Fact::Image(message(State::Ready), None), None),
        (Fact::SentImage(message(State::Ready), "other".into()), None),
        (
            Fact::Touched {
                at: AT,
                until: Ms(9),
            },
            None,
        ),
        (Fact::IdMark(MessageId(9).0), None),
    ] {
        assert_eq!(expected_event(&fact), expected, "{fact:?}");
    }
    let buried = |dead| Fact::Buried {
        at: AT,
        priority: 0,
        now: Ms(1),
        dead,
        reason: b"no such user"[..].into(),
        until: None,
        by_time: true,
    };
    assert_eq!(
        expected_event(&buried(true)),
        Some((Kind::Dead, "attempts"))
    );
    let event = event(&buried(false)).expect("an event").event;
    assert_eq!((event.kind, event.why), (Kind::Dead, "buried"));
    assert_eq!(event.error.as_deref(), Some(&b"no such user"[..]));
}

#[test]
fn an_event_in_json_leaves_out_absent_fields() {
    let mut named = message(State::Ready);
    named.extra = Some(Box::new(Extra {
        name: Some(b"order-1"[..].into()),
        ..Extra::default()
    }));
    let mut put = event(&Fact::Put(named)).expect("an event").event;
    put.at = Ms(5);
    put.queue = Some("w".into());
    let json = serde_json::to_value(Event::from(&put)).expect("JSON");
    let expected = serde_json::json!({
        "at_ms": 5, "kind": "put", "id": 7, "queue": "w", "name": "order-1", "bytes": 4
    });
    assert_eq!(json, expected);
    // Bytes that are no text are there as well.
    put.name = Some(b"\xff"[..].into());
    put.error = Some(b"a\xfe"[..].into());
    let json = serde_json::to_value(Event::from(&put)).expect("JSON");
    let bytes = ["name_base64", "error_base64"].map(|field| json[field].as_str());
    assert_eq!(bytes, [Some("/w=="), Some("Yf4=")]);
    let flush = Fact::QueueFlushed {
        queue: QueueId(3),
        through: MessageId(9),
        count: 4,
    };
    let flush = event(&flush).expect("an event").event;
    let json = serde_json::to_value(Event::from(&flush)).expect("JSON");
    let expected =
        serde_json::json!({ "at_ms": 0, "kind": "removed", "why": "flushed", "count": 4 });
    assert_eq!(json, expected);
}

#[test]
fn a_waiting_reader_is_called_once_when_the_log_is_durable_and_a_gone_one_never() {
    let events = EventLog::default();
    let calls = Arc::new(AtomicU64::new(0));
    let waiter = || -> News {
        let calls = Arc::clone(&calls);
        Arc::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
        })
    };
    let (stays, goes) = (waiter(), waiter());
    events.register(&stays);
    events.register(&goes);
    drop(goes);
    events.notify_durable();
    events.notify_durable();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    for _ in 0..100 {
        events.register(&waiter());
    }
    let kept = quintet_host::locked(&events.waiters).len();
    assert!(kept < 10, "{kept}: those who have gone are forgotten");
}
