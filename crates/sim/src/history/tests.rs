//! Each rule finds what breaks it, and nothing in a history that is well.

use super::{Answer, CallId, ClientRequest, History};

const TAKE: ClientRequest = ClientRequest::Take { removes: true };
const LEASE: ClientRequest = ClientRequest::Take { removes: false };

/// Asks and is answered at once, by the owner of epoch 1.
fn record_call(
    history: &mut History,
    connection: u64,
    ask: ClientRequest,
    answer: Answer,
) -> CallId {
    let call = history.begin_call(connection, 0, ask);
    history.answered(call, 1, answer);
    call
}

fn put(history: &mut History, body: u64) {
    record_call(history, 9, ClientRequest::Put(body), Answer::Stored(body));
}

fn rule(history: &History) -> &'static str {
    history.check().map_or_else(|broken| broken.rule, |()| "")
}

#[test]
fn a_history_that_may_be_is_passed() {
    let mut history = History::default();
    for body in 1..=5 {
        put(&mut history, body);
    }
    record_call(&mut history, 1, LEASE, Answer::Got(1));
    record_call(&mut history, 2, TAKE, Answer::Got(2));
    // It comes back when the connection ends, and to another.
    history.closed(1);
    record_call(&mut history, 2, LEASE, Answer::Got(1));
    record_call(&mut history, 2, ClientRequest::Finish(1), Answer::Done);
    // Nobody knows what this took: the third, as it seems.
    history.begin_call(3, 0, TAKE);
    history.ended(3);
    // One that was never answered may have finished the fourth.
    record_call(&mut history, 4, LEASE, Answer::Got(4));
    history.begin_call(4, 0, ClientRequest::Finish(4));
    record_call(&mut history, 5, LEASE, Answer::Got(5));
    record_call(&mut history, 5, ClientRequest::Release(5), Answer::Done);
    record_call(&mut history, 2, TAKE, Answer::Got(5));
    record_call(&mut history, 2, TAKE, Answer::Empty);
    assert_eq!(history.check(), Ok(()));
    assert_eq!(history.acknowledged(), 13);
}

#[test]
fn a_lost_message_is_found() {
    let mut history = History::default();
    put(&mut history, 1);
    assert_eq!(rule(&history), "R1");
    // A take that was given up before the put explains nothing; one on another queue neither.
    let mut history = History::default();
    history.begin_call(3, 0, TAKE);
    history.ended(3);
    history.begin_call(4, 1, TAKE);
    put(&mut history, 1);
    assert_eq!(rule(&history), "R1");
    // Nor does one explain two.
    let mut history = History::default();
    put(&mut history, 1);
    put(&mut history, 2);
    history.begin_call(3, 0, TAKE);
    assert_eq!(rule(&history), "R1");
    // A message comes from a put.
    let mut history = History::default();
    record_call(&mut history, 1, TAKE, Answer::Got(7));
    assert_eq!(rule(&history), "R1");
}

#[test]
fn a_delivery_after_the_end_is_found() {
    let mut history = History::default();
    put(&mut history, 1);
    record_call(&mut history, 1, LEASE, Answer::Got(1));
    record_call(&mut history, 1, ClientRequest::Finish(1), Answer::Done);
    record_call(&mut history, 2, LEASE, Answer::Got(1));
    assert_eq!(rule(&history), "R2");
    let mut history = History::default();
    put(&mut history, 1);
    // At the same time, so that neither is after the other.
    let one = history.begin_call(1, 0, TAKE);
    let other = history.begin_call(2, 0, TAKE);
    history.answered(one, 1, Answer::Got(1));
    history.answered(other, 2, Answer::Got(1));
    assert_eq!(rule(&history), "R3");
}

#[test]
fn a_message_that_overtakes_is_found() {
    let mut history = History::default();
    put(&mut history, 1);
    put(&mut history, 2);
    record_call(&mut history, 1, TAKE, Answer::Got(2));
    record_call(&mut history, 1, TAKE, Answer::Got(1));
    assert_eq!(rule(&history), "R4");
}

#[test]
fn two_leases_at_once_are_found_but_across_a_claim() {
    for (epoch, expected) in [(1, "R5"), (2, "")] {
        let mut history = History::default();
        put(&mut history, 1);
        record_call(&mut history, 1, LEASE, Answer::Got(1));
        let again = history.begin_call(2, 0, LEASE);
        history.answered(again, epoch, Answer::Got(1));
        history.begin_call(2, 0, ClientRequest::Finish(1));
        assert_eq!(rule(&history), expected);
    }
}

#[test]
fn an_empty_reply_with_a_waiting_message_is_found() {
    let mut history = History::default();
    put(&mut history, 1);
    record_call(&mut history, 1, LEASE, Answer::Empty);
    record_call(&mut history, 1, TAKE, Answer::Got(1));
    assert_eq!(rule(&history), "R6");
}

#[test]
fn ids_that_come_twice_or_fall_are_found() {
    for (ids, expected) in [([5, 5], "R7"), ([6, 5], "R7"), ([1 << 55, 5], "")] {
        let mut history = History::default();
        for (body, id) in [(1, ids[0]), (2, ids[1])] {
            record_call(
                &mut history,
                9,
                ClientRequest::Put(body),
                Answer::Stored(id),
            );
            record_call(&mut history, 9, TAKE, Answer::Got(body));
        }
        assert_eq!(rule(&history), expected);
    }
}
