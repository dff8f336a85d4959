//! Lists from the last message on, and the turns of buried messages, by time over all queues.

use quintet_types::*;

use crate::cold::Runs;
use crate::world::{World, prioritized};

fn bury(w: &mut World, queue: &str) -> MessageId {
    let id = w.put(queue, "x");
    let how = How::Bury {
        priority: None,
        reason: Box::default(),
    };
    let by = By::Anyone;
    let buried = w.ask(9, Command::Settle { id, by, how });
    assert_eq!(buried, Some(Outcome::Done));
    id
}

/// A slice of the list, also where messages are in runs.
fn slice(w: &mut World, runs: &Runs, bulk_op: &BulkOp) -> BulkDone {
    let done = w.ask(1, Command::BulkOp(Box::new(bulk_op.clone())));
    let done = done.or_else(|| {
        runs.read(w);
        w.deliveries.pop().map(|delivery| delivery.outcome)
    });
    match done {
        Some(Outcome::BulkDone(done)) => *done,
        other => panic!("{other:?}"),
    }
}

/// Every slice of it.
fn all(w: &mut World, runs: &Runs, mut bulk_op: BulkOp) -> Vec<Message> {
    let mut shown = Vec::new();
    loop {
        let done = slice(w, runs, &bulk_op);
        shown.extend(done.messages);
        match done.next {
            Some(next) => bulk_op.after = Some(next),
            None => return shown,
        }
    }
}

fn ids(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id).collect()
}

fn back(queue: &str, state: ListState, max: u32) -> BulkOp {
    BulkOp {
        action: BulkAction::ShowBack,
        ..BulkOp::show(queue.into(), state, max)
    }
}

#[test]
fn turns_of_buried_messages_are_in_order_of_time_over_all_queues() {
    let mut w = World::new();
    let mut buried = Vec::new();
    for (at, queue) in ["a", "b", "a", "a", "c", "b", "a"].into_iter().enumerate() {
        // The third and the fourth are of one ms.
        w.now.0 += u64::from(at != 3);
        buried.push(bury(&mut w, queue));
    }
    let turns = |w: &mut World| {
        let mut turns = Vec::new();
        for queue in ["a", "b", "c"] {
            for message in all(w, &Runs::default(), back(queue, ListState::Buried, 2)) {
                let extra = message.extra.as_deref().expect("it is buried");
                assert_eq!(extra.bury_order >> TURN_SHIFT, extra.changed.0);
                turns.push((extra.bury_order, message.id));
            }
        }
        turns.sort_unstable();
        turns.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
    };
    assert_eq!(turns(&mut w), buried);
    w.restart();
    assert_eq!(turns(&mut w), buried);
}

#[test]
fn messages_of_two_queues_with_the_same_turn_come_by_their_ids() {
    let mut w = World::new();
    let (a, b) = (bury(&mut w, "a"), bury(&mut w, "b"));
    let turn = i64::try_from(w.now.0).expect("small") << TURN_SHIFT;
    // Behind the place of one of them, in the queues of both.
    for (id, wanted) in [(b, [vec![a], vec![]]), (a, [vec![], vec![]])] {
        let listed = ["a", "b"].map(|queue| {
            let after = Cursor {
                not_selectable: false,
                order: (0, turn, id),
            };
            let bulk_op = BulkOp {
                after: Some(after),
                ..back(queue, ListState::Buried, 9)
            };
            ids(&all(&mut w, &Runs::default(), bulk_op))
        });
        assert_eq!(listed, wanted, "{id:?}");
    }
}

#[test]
fn a_message_that_was_buried_elsewhere_keeps_its_time_if_none_is_newer() {
    let mut w = World::new();
    let bring = |w: &mut World, changed| {
        let past = Past {
            state: State::Buried,
            changed,
            ..Past::default()
        };
        let more = PutMore {
            past: Some(Box::new(past)),
            ..PutMore::default()
        };
        w.put_as(Put {
            more: Some(Box::new(more)),
            ..prioritized("q", 1, "x")
        })
    };
    w.now = Ms(9000);
    let (first, late) = (bring(&mut w, Ms(100)), bring(&mut w, Ms(50)));
    let now = bury(&mut w, "q");
    let listed = all(&mut w, &Runs::default(), back("q", ListState::Buried, 9));
    assert_eq!(ids(&listed), [now, late, first]);
    let turns = listed.iter().map(|message| {
        let extra = message.extra.as_deref().expect("it is buried");
        extra.bury_order
    });
    let turn = 100 << TURN_SHIFT;
    assert_eq!(
        turns.collect::<Vec<_>>(),
        [9000 << TURN_SHIFT, turn + 1, turn]
    );
}

#[test]
fn a_list_from_the_last_on_is_the_other_turned_round_also_from_runs() {
    // Which messages are in runs: none, all, the older half, and those of two runs that overlap.
    for evictions in [&[][..], &[12], &[6], &[3, 9]] {
        let (mut w, mut runs) = (World::new(), Runs::default());
        for at in 0..12_u32 {
            w.now.0 += 1;
            bury(&mut w, "q");
            w.put_as(prioritized("q", at * 5 % 3, &format!("{}", at % 2)));
            if evictions.contains(&(at + 1)) {
                runs.evict(&mut w);
            }
        }
        for state in [ListState::Buried, ListState::Ready] {
            // First, while nothing is read back from runs yet.
            let first = all(&mut w, &runs, back("q", state, 1));
            let show = BulkOp::show("q".into(), state, 99);
            let mut whole = ids(&all(&mut w, &runs, show));
            assert_eq!(whole.len(), 12);
            whole.reverse();
            assert_eq!(ids(&first), whole, "{state:?} {evictions:?}");
            for max in [1, 5, 12, 99] {
                let listed = all(&mut w, &runs, back("q", state, max));
                assert_eq!(ids(&listed), whole, "{state:?} {max} {evictions:?}");
            }
            let mut filtered = back("q", state, 1);
            filtered.filter.body = Some(b"1".as_slice().into());
            let listed = all(&mut w, &runs, filtered);
            let fit = listed.iter().all(|one| one.body.as_small() == Some(b"1"));
            let wanted = if state == ListState::Ready { 6 } else { 0 };
            assert!(fit && listed.len() == wanted, "{state:?} {evictions:?}");
        }
    }
}

#[test]
fn a_slice_from_the_last_on_looks_at_few_that_do_not_fit() {
    let mut w = World::new();
    (0..1000).for_each(|_| _ = w.put("q", "x"));
    let mut none = back("q", ListState::Ready, 1);
    none.filter.dead = true;
    let done = slice(&mut w, &Runs::default(), &none);
    assert_eq!((done.examined, done.matched), (64, 0));
    assert!(done.next.is_some());
    for state in [ListState::Reserved, ListState::Delayed] {
        let done = slice(&mut w, &Runs::default(), &back("q", state, 9));
        assert_eq!((done.examined, done.next), (0, None));
    }
}
