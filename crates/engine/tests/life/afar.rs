//! Messages that are held for some of other shards.

use crate::after::{after, put_of, settle};
use quintet_engine::Fact;
use quintet_sim::shards::{self, carry_from, worlds};
use quintet_sim::world::{World, reserve, text};
use quintet_types::*;

/// The queues of shard 0, 1 and 2 of four; [`shards::shard_of`] says so.
const QUEUES: [&str; 3] = ["a", "b", "mail"];
const GUEST: Principal = Principal(3);

fn four() -> Vec<World> {
    let all = worlds(4);
    for (shard, queue) in QUEUES.iter().enumerate() {
        assert_eq!(shards::shard_of(&all, &Name::from(*queue)), shard);
    }
    all
}

fn try_put(all: &mut [World], principal: Principal, put: Put) -> Outcome {
    let caller = Caller {
        client_id: ClientId(9),
        principal,
    };
    shards::put(all, caller, put)
}

fn put(all: &mut [World], queue: &str, parents: &[MessageId]) -> MessageId {
    let after = after(parents, AfterOn::Success, IfFailed::Fail);
    match try_put(all, Principal(0), put_of(queue, queue, after)) {
        Outcome::Put { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

fn finish(all: &mut [World], shard: usize) {
    let taken = all[shard].take(1, reserve(QUEUES[shard]));
    assert_eq!(taken, QUEUES[shard]);
}

fn restart(all: &mut [World]) {
    for world in all {
        let again = world.replayed(SegmentRef(0));
        assert_eq!(again.image(), world.engine.image());
        world.restart();
    }
}

/// Watch records of a shard.
fn watched(world: &World) -> usize {
    let image = world.engine.image();
    let watched = |fact: &&Fact| matches!(fact, Fact::Watched { .. });
    image.iter().filter(watched).count()
}

#[test]
fn a_message_is_held_for_those_of_other_shards_over_restarts() {
    let mut all = four();
    let parents: Vec<MessageId> = (0..3)
        .map(|at| all[at].put(QUEUES[at], QUEUES[at]))
        .collect();
    let child = put(&mut all, "a", &parents);
    for shard in 0..3 {
        restart(&mut all);
        let seen = crate::after::known(&mut all[0], child);
        assert!(seen.contains(&ParentState::Waiting), "{seen:?}");
        finish(&mut all, shard);
        settle(&mut all[shard], parents[shard], How::Finish);
        // It has ended, and a crash comes before that is carried.
        restart(&mut all);
        shards::settle(&mut all);
    }
    assert_eq!(
        crate::after::known(&mut all[0], child),
        [ParentState::Done; 3]
    );
    assert_eq!(all[0].pop("a"), "a");
    assert!(all.iter().all(|world| watched(world) == 0));
}

#[test]
fn how_it_ends_elsewhere_is_the_childs_to_judge() {
    use IfFailed::{Fail, Hold, Run};
    let lost = |world: &mut World, id| {
        let by = By::Anyone;
        world.ask(1, Command::Delete { id, by });
    };
    let flushed = |world: &mut World, _| {
        let (queue, reserved) = ("b".into(), false);
        world.ask(1, Command::Flush { queue, reserved });
    };
    let moved = |world: &mut World, id| {
        let to = "a".into();
        world.ask(1, Command::Move { id, to });
    };
    let ends: [fn(&mut World, MessageId); 3] = [lost, flushed, moved];
    for (end, if_failed) in ends
        .into_iter()
        .flat_map(|end| [(end, Fail), (end, Hold), (end, Run)])
    {
        let mut all = four();
        let parent = all[1].put("b", "b");
        let after = after(&[parent], AfterOn::Success, if_failed);
        let Outcome::Put { id, .. } = try_put(&mut all, Principal(0), put_of("mail", "", after))
        else {
            panic!("it is stored");
        };
        end(&mut all[1], parent);
        restart(&mut all);
        shards::settle(&mut all);
        let child = crate::after::message(&mut all[2], id);
        let expected = match if_failed {
            Fail => (State::Buried, false),
            Hold => (State::Ready, true),
            Run => (State::Ready, false),
        };
        assert_eq!((child.state, child.due() == Some(HELD)), expected);
        assert_eq!(crate::after::known(&mut all[2], id), [ParentState::Failed]);
    }
}

#[test]
fn ends_of_the_past_and_unknown_messages_are_known_at_the_put() {
    let mut all = four();
    let (done, failed) = (all[1].put("b", "b"), all[1].put("b", "b"));
    finish(&mut all, 1);
    settle(&mut all[1], done, How::Finish);
    let by = By::Anyone;
    all[1].ask(1, Command::Delete { id: failed, by });
    let child = put(&mut all, "a", &[done]);
    assert_eq!(crate::after::known(&mut all[0], child), [ParentState::Done]);
    assert_eq!(all[0].pop("a"), "a");
    let fate = after(&[failed], AfterOn::Success, IfFailed::Hold);
    try_put(&mut all, Principal(0), put_of("mail", "held", fate));
    assert_eq!(all[2].pop("mail"), "empty");
    let unknown = MessageId(done.0 + 77);
    let both = after(&[done, unknown], AfterOn::End, IfFailed::Fail);
    let before: Vec<usize> = all.iter().map(|world| world.facts.len()).collect();
    let refused = try_put(&mut all, Principal(0), put_of("a", "", both));
    assert_eq!(
        refused,
        Outcome::Refused(CommandError::AfterNotFound(unknown))
    );
    let now: Vec<usize> = all.iter().map(|world| world.facts.len()).collect();
    assert_eq!(now, before);
    assert!(all.iter().all(|world| watched(world) == 0));
}

/// The guest may do everything in one queue.
struct Rights;

impl Permits for Rights {
    fn may(&mut self, principal: Principal, _: Verb, queue: &Name) -> bool {
        principal != GUEST || queue.as_bytes() == b"a"
    }

    fn may_all(&mut self, principal: Principal, _: Verb) -> bool {
        principal != GUEST
    }

    fn maker(&mut self, _: Principal) -> Option<Box<[u8]>> {
        None
    }

    fn account(&mut self, _: &[u8]) -> Option<std::sync::Arc<Account>> {
        None
    }
}

#[test]
fn rights_are_checked_in_the_shard_of_the_message() {
    let mut all = four();
    let parent = all[1].put("b", "b");
    for world in &mut all {
        world.engine.set_permits(Some(Box::new(Rights)));
    }
    let ask = |all: &mut [World], id| {
        let after = after(&[id], AfterOn::End, IfFailed::Fail);
        try_put(all, GUEST, put_of("a", "", after))
    };
    // No more is told of it than of one that is not there.
    for id in [parent, MessageId(parent.0 + 7)] {
        let refused = Outcome::Refused(CommandError::AfterNotFound(id));
        assert_eq!(ask(&mut all, id), refused);
    }
    assert_eq!(watched(&all[1]), 0);
}

#[test]
fn of_several_of_a_name_it_is_the_one_that_was_put_last_in_whichever_shard() {
    let mut all = four();
    let tracked = |queue: &str| Put {
        more: Some(Box::new(PutMore {
            name: Some((*b"first").into()),
            tracked: true,
            ..PutMore::default()
        })),
        ..put_of(queue, queue, PutAfter::default())
    };
    let named = || PutAfter {
        names: vec![(*b"first").into()],
        ..PutAfter::default()
    };
    let unknown = try_put(&mut all, Principal(0), put_of("mail", "", named()));
    let none = Outcome::Refused(CommandError::AfterNotFound(MessageId(0)));
    assert_eq!(unknown, none);
    for (queue, goes) in [("a", false), ("b", false), ("a", true), ("b", false)] {
        all.iter_mut().for_each(|world| world.wait(1));
        let parent = match try_put(&mut all, Principal(0), tracked(queue)) {
            Outcome::Put { id, .. } => id,
            other => panic!("{other:?}"),
        };
        for (shard, child) in QUEUES.iter().enumerate() {
            let Outcome::Put { id, .. } =
                try_put(&mut all, Principal(0), put_of(child, "", named()))
            else {
                panic!("it is stored");
            };
            let after = crate::after::message(&mut all[shard], id).extra;
            let after = after.and_then(|extra| extra.after).expect("it waits");
            assert_eq!(after.parents[0].id, parent, "{queue}, {child}");
        }
        if goes {
            let by = By::Anyone;
            all[0].ask(1, Command::Delete { id: parent, by });
            shards::settle(&mut all);
        }
    }
    let mut itself = put_of("b", "", named());
    itself.more.as_mut().expect("more").name = Some((*b"first").into());
    let refused = try_put(&mut all, Principal(0), itself);
    assert_eq!(refused, Outcome::Refused(CommandError::AfterItself));
}

#[test]
fn a_watched_message_keeps_its_id_and_stays_in_memory() {
    let mut all = four();
    let parent = all[1].put("b", "b");
    put(&mut all, "a", &[parent]);
    let edit = Edit {
        body: Some(Body::new(b"other")),
        ..Edit::default()
    };
    let edit = all[1].ask(1, Command::Edit(parent, Box::new(edit)));
    assert_eq!(edit, Some(Outcome::Refused(CommandError::Awaited)));
    let mut spill = quintet_engine::Spill::of(u64::MAX);
    while all[1].engine.plan_spill(&mut spill, 100, 1) {}
    let (mut spill, mut picked) = (spill.planned(), Vec::new());
    while all[1].engine.pick(&mut spill, 100, &mut picked) {}
    assert!(picked.is_empty(), "{picked:?}");
}

#[test]
fn a_message_is_watched_only_while_others_wait() {
    let mut all = four();
    let parent = all[1].put("b", "b");
    let children = [put(&mut all, "a", &[parent]), put(&mut all, "a", &[parent])];
    assert_eq!(watched(&all[1]), 1, "one record for a shard");
    for (child, left) in children.into_iter().zip([1, 0]) {
        let by = By::Anyone;
        all[0].ask(1, Command::Delete { id: child, by });
        restart(&mut all);
        shards::settle(&mut all);
        assert_eq!(watched(&all[1]), left);
    }
    // Followers forget what was carried.
    restart(&mut all);
    assert!(all.iter().all(|world| world.engine.sends_to().is_none()));
    assert!(!carry_from(&mut all, 0));
    // One that comes before that is carried is told all the same.
    let child = put(&mut all, "a", &[parent]);
    let by = By::Anyone;
    all[0].ask(1, Command::Delete { id: child, by });
    let child = put(&mut all, "a", &[parent]);
    shards::settle(&mut all);
    assert_eq!(watched(&all[1]), 1);
    assert_eq!(all[1].pop("b"), "b");
    shards::settle(&mut all);
    assert_eq!(crate::after::known(&mut all[0], child), [ParentState::Done]);
}

#[test]
fn records_of_both_shards_stay_while_segments_go() {
    for reported in [false, true] {
        let mut all = four();
        let parent = all[1].put("b", "b");
        let child = put(&mut all, "a", &[parent]);
        assert_eq!(all[1].pop("b"), "b");
        if reported {
            carry_from(&mut all, 1);
        }
        for world in &mut all {
            world.engine.set_segment_ref(SegmentRef(1));
            let mut facts = Vec::new();
            world.engine.snapshot(&mut |fact| facts.push(fact.clone()));
            let mut from = Some(0);
            while let Some(slot) = from {
                let copied = world.engine.copy_out(SegmentRef(0), slot, 1000, &mut facts);
                from = copied.next;
            }
            assert_eq!(world.engine.segment_refs_live(SegmentRef(0)), 0);
            world.facts = facts;
        }
        restart(&mut all);
        shards::settle(&mut all);
        assert_eq!(crate::after::known(&mut all[0], child), [ParentState::Done]);
        assert_eq!(all[0].pop("a"), "a");
        let freed = |fact: &&Fact| matches!(fact, Fact::Freed { .. });
        assert!(all[0].facts.iter().filter(freed).count() <= 1);
    }
}

#[test]
fn the_copying_of_many_records_of_both_kinds_ends() {
    const MANY: usize = 5000;
    let mut all = four();
    // Many puts without a look at all indexes behind each.
    let submit = |world: &mut World, put: Put| {
        let caller = Caller {
            client_id: ClientId(9),
            principal: Principal(0),
        };
        match world.submit(caller, Command::Put(put)) {
            Answer::Now(Outcome::Put { id, .. }, _) => id,
            other => panic!("{other:?}"),
        }
    };
    let none = || after(&[], AfterOn::Success, IfFailed::Fail);
    let parents: Vec<MessageId> = (0..MANY / 2)
        .map(|_| submit(&mut all[1], put_of("b", "b", none())))
        .collect();
    for at in 0..MANY {
        let parent = parents[at % parents.len()];
        let after = after(&[parent], AfterOn::Success, IfFailed::Fail);
        submit(&mut all[1], put_of("b", "b", after));
    }
    for parents in parents.chunks(1000) {
        for queue in ["a", "mail"] {
            put(&mut all, queue, parents);
        }
    }
    let world = &mut all[1];
    assert_eq!(watched(world), MANY);
    world.engine.set_segment_ref(SegmentRef(1));
    let (mut facts, mut from, mut steps) = (Vec::new(), Some(0), 0);
    while let Some(slot) = from {
        let copied = world
            .engine
            .copy_out(SegmentRef(0), slot, u32::MAX, &mut facts);
        from = copied.next;
        steps += 1;
        assert!(steps < 30, "it goes on for ever");
    }
    assert_eq!(world.engine.segment_refs_live(SegmentRef(0)), 0);
}

#[test]
fn a_repeat_of_a_put_is_answered_and_watches_nothing() {
    let mut all = four();
    let parent = all[1].put("b", "b");
    let once = |parents: &[MessageId]| {
        let mut put = put_of("a", "", after(parents, AfterOn::Success, IfFailed::Fail));
        let more = put.more.as_mut().expect("more");
        more.token = Some((*b"once").into());
        put
    };
    let first = try_put(&mut all, Principal(0), once(&[parent]));
    let Outcome::Put { id, fresh: true } = first else {
        panic!("{first:?}");
    };
    assert_eq!(all[1].pop("b"), "b");
    shards::settle(&mut all);
    // It may name messages that nobody knows by now.
    let again = try_put(
        &mut all,
        Principal(0),
        once(&[parent, MessageId(parent.0 + 9)]),
    );
    assert!(
        matches!(again, Outcome::Put { id: same, fresh: false } if same == id),
        "{}",
        text(&again)
    );
    assert_eq!(watched(&all[1]), 0);
}
