//! Many messages at once: which fit, in slices, and what is done to them.

use quintet_types::*;

use crate::world::World;

fn put(w: &mut World, queue: &str, body: &str) {
    let put = Put::new(Name::from(queue), Body::new(body.as_bytes()));
    let stored = w.ask(1, Command::Put(put));
    assert!(matches!(stored, Some(Outcome::Put { .. })), "{stored:?}");
}

fn bulk_op(queue: &str, state: ListState, action: BulkAction) -> BulkOp {
    BulkOp {
        queue: Name::from(queue),
        state,
        filter: Filter::default(),
        action,
        after: None,
        max: u32::MAX,
    }
}

/// Every slice of it: slices, messages that fit, ids that were shown.
fn all(w: &mut World, mut bulk_op: BulkOp) -> (u64, u64, Vec<u64>) {
    let (mut slices, mut matched, mut shown) = (0, 0, Vec::new());
    loop {
        let bulk_done = w.ask(1, Command::BulkOp(Box::new(bulk_op.clone())));
        let Some(Outcome::BulkDone(bulk_done)) = bulk_done else {
            panic!("{bulk_done:?}");
        };
        slices += 1;
        matched += bulk_done.matched;
        shown.extend(bulk_done.messages.iter().map(|message| message.id.0));
        match bulk_done.next {
            Some(next) => bulk_op.after = Some(next),
            None => return (slices, matched, shown),
        }
    }
}

#[test]
fn slices_see_every_message_once_and_keep_the_order() {
    let mut w = World::default();
    for number in 0..1300 {
        put(&mut w, "work", &format!("number {number}"));
    }
    let show = bulk_op("work", ListState::Ready, BulkAction::Show);
    let (slices, matched, shown) = all(&mut w, show.clone());
    assert_eq!((slices, matched), (2, 1300));
    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
    // So many at most, and where they end the next begins.
    let few = BulkOp { max: 7, ..show };
    assert_eq!(all(&mut w, few).2, shown);
}

#[test]
fn messages_outside_the_filter_stay_and_a_slice_continues_behind_them() {
    let mut w = World::default();
    for number in 0..1300 {
        put(&mut w, "work", &format!("number {number} {}", number % 10));
    }
    let mut delete = bulk_op("work", ListState::Ready, BulkAction::Delete);
    delete.filter.body = Some(b" 7".as_slice().into());
    let mut count = delete.clone();
    count.action = BulkAction::Count;
    let there = all(&mut w, count.clone()).1;
    assert!(there >= 130);
    assert_eq!(all(&mut w, delete).1, there);
    assert_eq!(all(&mut w, count).1, 0);
    let left = bulk_op("work", ListState::Ready, BulkAction::Count);
    assert_eq!(all(&mut w, left).1, 1300 - there);
}

#[test]
fn dead_letters_go_back_to_where_they_came_from_and_others_stay() {
    let dead = Overrides {
        attempts_max: Some(1),
        dead_letter: Some(DeadLetter::To(Name::from("dead"))),
        ..Overrides::default()
    };
    let mut w = World::default();
    for queue in ["a", "b"] {
        let configure = Command::Configure {
            queue: Name::from(queue),
            overrides: Some(Box::new(dead.clone())),
            must_exist: false,
        };
        assert_eq!(w.ask(1, configure), Some(Outcome::Done));
        put(&mut w, queue, queue);
        let lease = LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        };
        let take = Take {
            queues: [Name::from(queue)].into_iter().collect(),
            lease: Some(lease),
            ..Take::default()
        };
        let taken = w.ask(2, Command::Take(take));
        assert!(matches!(taken, Some(Outcome::Messages(_))), "{taken:?}");
        let back = Command::SettleHeld {
            queue: None,
            how: How::Release {
                priority: None,
                due: When::Now,
                back_to: None,
            },
            max: 1,
        };
        assert_eq!(w.ask(2, back), Some(Outcome::Count(1)));
    }
    put(&mut w, "dead", "was always here");
    let count =
        |w: &mut World, queue| all(w, bulk_op(queue, ListState::Ready, BulkAction::Count)).1;
    assert_eq!((count(&mut w, "dead"), count(&mut w, "a")), (3, 0));
    let redrive = bulk_op("dead", ListState::Ready, BulkAction::Redrive { to: None });
    assert_eq!(all(&mut w, redrive).1, 2);
    let counts = ["dead", "a", "b"].map(|queue| count(&mut w, queue));
    assert_eq!(counts, [1, 1, 1]);
    // Its attempts begin anew.
    let back = bulk_op("a", ListState::Ready, BulkAction::Show);
    let bulk_done = w.ask(1, Command::BulkOp(Box::new(back)));
    let Some(Outcome::BulkDone(bulk_done)) = bulk_done else {
        panic!("{bulk_done:?}");
    };
    assert_eq!(bulk_done.messages[0].reserves, 0);
}

#[test]
fn a_returned_message_creates_its_queue_only_within_the_limit() {
    let mut w = World::default();
    put(&mut w, "dead", "one");
    let into = || {
        let action = BulkAction::RedriveInto(Name::from("gone"));
        Command::BulkOp(Box::new(bulk_op("dead", ListState::Ready, action)))
    };
    let refused = Some(Outcome::Refused(CommandError::QueueNotFound));
    assert_eq!(w.ask(1, into()), refused);
    let gone = Command::Stats(StatsOf::Queue(Name::from("gone")));
    assert_eq!(w.ask(1, gone.clone()), refused);
    put(&mut w, "gone", "is back");
    let bulk_done = w.ask(1, into());
    assert!(matches!(&bulk_done, Some(Outcome::BulkDone(bulk_done)) if bulk_done.matched == 1));
    let count =
        |w: &mut World, queue| all(w, bulk_op(queue, ListState::Ready, BulkAction::Count)).1;
    assert_eq!((count(&mut w, "dead"), count(&mut w, "gone")), (0, 2));
    // What may make it does.
    assert_eq!(
        w.ask(1, Command::Drop(Name::from("gone"))),
        Some(Outcome::Count(2))
    );
    put(&mut w, "dead", "two");
    let to = Some(Name::from("gone"));
    let may = bulk_op("dead", ListState::Ready, BulkAction::Redrive { to });
    assert_eq!(all(&mut w, may).1, 1);
    assert_eq!(count(&mut w, "gone"), 1);
}

#[test]
fn reserved_messages_are_left_alone() {
    let mut w = World::default();
    put(&mut w, "work", "held");
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(0),
        back_to: BackTo::Position,
        held_max: 0,
    };
    let take = Take {
        queues: [Name::from("work")].into_iter().collect(),
        lease: Some(lease),
        ..Take::default()
    };
    w.ask(2, Command::Take(take));
    for action in [
        BulkAction::Delete,
        BulkAction::Kick,
        BulkAction::Move(Name::from("other")),
        BulkAction::Redrive { to: None },
    ] {
        assert_eq!(
            all(&mut w, bulk_op("work", ListState::Reserved, action)).1,
            0
        );
    }
    let show = bulk_op("work", ListState::Reserved, BulkAction::Show);
    let bulk_done = w.ask(1, Command::BulkOp(Box::new(show)));
    let Some(Outcome::BulkDone(bulk_done)) = bulk_done else {
        panic!("{bulk_done:?}");
    };
    assert_eq!(bulk_done.leases.len(), 1);
    assert_eq!(bulk_done.leases[0].client_id, ClientId(2));
}
