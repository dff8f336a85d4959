//! Many messages at once: which fit, in slices, and what is done to them.

use quintet_types::*;

use crate::world::World;

fn put(w: &mut World, queue: &str, body: &str) {
    let put = Put::new(Name::from(queue), Body::new(body.as_bytes()));
    let stored = w.ask(1, Command::Put(put));
    assert!(matches!(stored, Some(Outcome::Put { .. })), "{stored:?}");
}

fn sweep(queue: &str, state: ListState, act: SweepAct) -> Sweep {
    Sweep {
        queue: Name::from(queue),
        state,
        filter: Filter::default(),
        act,
        after: None,
        max: u32::MAX,
    }
}

/// Every slice of it: slices, messages that fit, ids that were shown.
fn all(w: &mut World, mut sweep: Sweep) -> (u64, u64, Vec<u64>) {
    let (mut slices, mut matched, mut shown) = (0, 0, Vec::new());
    loop {
        let swept = w.ask(1, Command::Sweep(Box::new(sweep.clone())));
        let Some(Outcome::Swept(swept)) = swept else {
            panic!("{swept:?}");
        };
        slices += 1;
        matched += swept.matched;
        shown.extend(swept.messages.iter().map(|message| message.id.0));
        match swept.next {
            Some(next) => sweep.after = Some(next),
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
    let show = sweep("work", ListState::Ready, SweepAct::Show);
    let (slices, matched, shown) = all(&mut w, show.clone());
    assert_eq!((slices, matched), (2, 1300));
    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
    // So many at most, and where they end the next begins.
    let few = Sweep { max: 7, ..show };
    assert_eq!(all(&mut w, few).2, shown);
}

#[test]
fn what_does_not_fit_stays_and_a_slice_goes_on_behind_it() {
    let mut w = World::default();
    for number in 0..1300 {
        put(&mut w, "work", &format!("number {number} {}", number % 10));
    }
    let mut delete = sweep("work", ListState::Ready, SweepAct::Delete);
    delete.filter.body = Some(b" 7".as_slice().into());
    let mut count = delete.clone();
    count.act = SweepAct::Count;
    let there = all(&mut w, count.clone()).1;
    assert!(there >= 130);
    assert_eq!(all(&mut w, delete).1, there);
    assert_eq!(all(&mut w, count).1, 0);
    let left = sweep("work", ListState::Ready, SweepAct::Count);
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
        let lease = LeaseAsk {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Place,
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
                rank: None,
                due: When::Now,
                back_to: None,
            },
            max: 1,
        };
        assert_eq!(w.ask(2, back), Some(Outcome::Count(1)));
    }
    put(&mut w, "dead", "was always here");
    let count = |w: &mut World, queue| all(w, sweep(queue, ListState::Ready, SweepAct::Count)).1;
    assert_eq!((count(&mut w, "dead"), count(&mut w, "a")), (3, 0));
    let redrive = sweep("dead", ListState::Ready, SweepAct::Redrive { to: None });
    assert_eq!(all(&mut w, redrive).1, 2);
    let counts = ["dead", "a", "b"].map(|queue| count(&mut w, queue));
    assert_eq!(counts, [1, 1, 1]);
    // Its attempts begin anew.
    let back = sweep("a", ListState::Ready, SweepAct::Show);
    let swept = w.ask(1, Command::Sweep(Box::new(back)));
    let Some(Outcome::Swept(swept)) = swept else {
        panic!("{swept:?}");
    };
    assert_eq!(swept.messages[0].reserves, 0);
}

#[test]
fn what_goes_back_makes_a_queue_only_where_it_may() {
    let mut w = World::default();
    put(&mut w, "dead", "one");
    let into = || {
        let act = SweepAct::RedriveInto(Name::from("gone"));
        Command::Sweep(Box::new(sweep("dead", ListState::Ready, act)))
    };
    let refused = Some(Outcome::Refused(Refusal::QueueNotFound));
    assert_eq!(w.ask(1, into()), refused);
    let gone = Command::Stats(StatsOf::Queue(Name::from("gone")));
    assert_eq!(w.ask(1, gone.clone()), refused);
    put(&mut w, "gone", "is back");
    let swept = w.ask(1, into());
    assert!(matches!(&swept, Some(Outcome::Swept(swept)) if swept.matched == 1));
    let count = |w: &mut World, queue| all(w, sweep(queue, ListState::Ready, SweepAct::Count)).1;
    assert_eq!((count(&mut w, "dead"), count(&mut w, "gone")), (0, 2));
    // What may make it does.
    assert_eq!(
        w.ask(1, Command::Drop(Name::from("gone"))),
        Some(Outcome::Done)
    );
    put(&mut w, "dead", "two");
    let to = Some(Name::from("gone"));
    let may = sweep("dead", ListState::Ready, SweepAct::Redrive { to });
    assert_eq!(all(&mut w, may).1, 1);
    assert_eq!(count(&mut w, "gone"), 1);
}

#[test]
fn what_somebody_works_on_is_left_alone() {
    let mut w = World::default();
    put(&mut w, "work", "held");
    let lease = LeaseAsk {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(0),
        back_to: BackTo::Place,
        held_max: 0,
    };
    let take = Take {
        queues: [Name::from("work")].into_iter().collect(),
        lease: Some(lease),
        ..Take::default()
    };
    w.ask(2, Command::Take(take));
    for act in [
        SweepAct::Delete,
        SweepAct::Kick,
        SweepAct::Move(Name::from("other")),
        SweepAct::Redrive { to: None },
    ] {
        assert_eq!(all(&mut w, sweep("work", ListState::Reserved, act)).1, 0);
    }
    let show = sweep("work", ListState::Reserved, SweepAct::Show);
    let swept = w.ask(1, Command::Sweep(Box::new(show)));
    let Some(Outcome::Swept(swept)) = swept else {
        panic!("{swept:?}");
    };
    assert_eq!(swept.leases.len(), 1);
    assert_eq!(swept.leases[0].party, Party(2));
}
