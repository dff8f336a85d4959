//! Bounds, names and rights of messages that are held until others have ended.

use crate::after::{after, known, message, put, put_of, refused, settle};
use crate::cold::Runs;
use quintet_sim::world::{World, reserve};
use quintet_types::*;

/// A tracked message.
fn tracked(queue: &str, name: &str) -> Put {
    Put {
        queue: queue.into(),
        more: Some(Box::new(PutMore {
            name: Some(name.as_bytes().into()),
            tracked: true,
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

fn behind(name: &str) -> Put {
    let mut waits = after(&[], AfterOn::Success, IfFailed::Fail);
    waits.names.push(name.as_bytes().into());
    put_of("q", "behind", waits)
}

#[test]
fn a_put_waits_for_few_messages_that_are_in_runs() {
    let mut w = World::new();
    let mut runs = Runs::default();
    let parents: Vec<MessageId> = (0..17).map(|_| w.put("p", "")).collect();
    runs.evict(&mut w);
    w.delivered();
    let wait_for = |parents| put_of("q", "", after(parents, AfterOn::End, IfFailed::Fail));
    assert_eq!(
        refused(&mut w, wait_for(&parents)),
        "after too many messages, or too many that are not in memory"
    );
    w.engine.take_wants();
    assert_eq!(w.ask(9, Command::Put(wait_for(&parents[..16]))), None);
    runs.read(&mut w);
    assert_eq!(w.delivered().len(), 1, "it is stored now");
    w.verify();
}

#[test]
fn copies_for_children_count_among_the_parents_of_a_command() {
    let mut w = World::new();
    let parents: Vec<MessageId> = (0..1000).map(|_| w.put("p", "")).collect();
    let puts = after(&parents, AfterOn::End, IfFailed::Fail);
    for child in 0..10 {
        let enough = w.ask(9, Command::Put(put_of("fan", "", puts.clone())));
        assert!(matches!(enough, Some(Outcome::Put { .. })), "{child}");
        w.ask(
            9,
            Command::Join {
                parent: "fan".into(),
                child: format!("child{child}").as_str().into(),
            },
        );
    }
    let many = refused(&mut w, put_of("fan", "", puts));
    assert_eq!(
        many,
        "after too many messages, or too many that are not in memory"
    );
}

#[test]
fn no_client_makes_a_message_due_when_held_ones_are() {
    let mut w = World::new();
    let id = w.put_as(Put {
        queue: "q".into(),
        due: When::At(HELD),
        ..Put::default()
    });
    assert_eq!(message(&mut w, id).due(), Some(DUE_MAX));
    // It leaves memory, and a held one does not.
    let parent = w.put("p", "");
    let child = put(&mut w, "q", "", &[parent]);
    let edit = Edit {
        due: Some(When::At(Ms::NEVER)),
        ..Edit::default()
    };
    w.ask(1, Command::Edit(id, Box::new(edit)));
    assert_eq!(message(&mut w, id).due(), Some(DUE_MAX));
    assert_eq!(message(&mut w, child).due(), Some(HELD));
    w.verify();
}

#[test]
fn a_put_that_replaces_a_message_cannot_wait_for_it_by_name() {
    let mut w = World::new();
    let unique = |mut put: Put| {
        let more = put.more.as_mut().expect("it has a name");
        more.dedupe = Some(Dedupe {
            id: b"x".as_slice().into(),
            window_ms: Some(10_000),
            scope: None,
            on_repeat: Some(OnRepeat::Replace),
        });
        put
    };
    w.put_as(unique(tracked("q", "first")));
    let itself = refused(&mut w, unique(behind("first")));
    assert_eq!(itself, "a message cannot wait for itself");
}

#[test]
fn a_repeat_waits_for_no_name_that_is_not_known() {
    let mut w = World::new();
    let parent = w.put_as(tracked("p", "first"));
    let mut put = behind("first");
    put.more.as_mut().expect("it has parents").token = Some(b"t".as_slice().into());
    let child = w.put_as(put.clone());
    let more = put.more.as_mut().expect("it has parents");
    let waits = more.after.as_mut().expect("it has parents");
    waits.names.push(b"none".as_slice().into());
    waits.ids.push(MessageId(77));
    let again = w.ask(9, Command::PutMany(vec![put]));
    assert_eq!(again, Some(Outcome::PutMany(vec![child])));
    assert!(parent < child);
    assert_eq!(known(&mut w, child), [ParentState::Waiting]);
}

#[test]
fn a_tracked_message_that_failed_for_good_is_a_parent_that_failed() {
    let settings = Settings {
        ends_max: 0,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let mut once = tracked("p", "first");
    once.more.as_mut().expect("it has a name").retry = Some(Retry::default());
    let parent = w.put_as(once);
    w.take(1, reserve("p"));
    let fail = How::Fail {
        error: b"no".as_slice().into(),
        note: Vec::new(),
    };
    settle(&mut w, parent, fail);
    assert_eq!(w.pop("p"), "empty");
    let mut waits = behind("first");
    let more = waits.more.as_mut().expect("it has parents");
    more.after.as_mut().expect("it has parents").if_failed = IfFailed::Run;
    let child = w.put_as(waits);
    assert_eq!(known(&mut w, child), [ParentState::Failed]);
}

const GUEST: Principal = Principal(3);

/// The guest sees the queues of the parents alone.
struct Rights;

impl Permits for Rights {
    fn may(&mut self, principal: Principal, _: Verb, queue: &Name) -> bool {
        principal != GUEST || queue.as_bytes() == b"p"
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

/// A page of those that wait, by id, and where the next one begins.
fn dependants(
    w: &mut World,
    principal: Principal,
    parent: MessageId,
    (from, max): ((u8, MessageId), u32),
) -> (Vec<MessageId>, Option<(u8, MessageId)>) {
    let caller = Caller {
        client_id: ClientId(9),
        principal,
    };
    let of = StatsOf::Dependants { parent, from, max };
    let answer = w.submit(caller, Command::Stats(of));
    let Answer::Now(Outcome::Stats(stats), _) = answer else {
        panic!("{answer:?}");
    };
    let StatsReply::Dependants(page) = *stats else {
        panic!("they are those of a message");
    };
    let held = |one: &Dependant| one.state == ListState::Delayed;
    assert!(page.dependants.iter().all(held), "{page:?}");
    (
        page.dependants.iter().map(|one| one.id).collect(),
        page.next,
    )
}

#[test]
fn only_dependants_that_one_may_see_are_listed() {
    let mut w = World::new();
    let parent = w.put("p", "");
    let seen = put(&mut w, "p", "", &[parent]);
    let hidden = put(&mut w, "q", "", &[parent]);
    w.engine.set_permits(Some(Box::new(Rights)));
    for (principal, shown) in [(Principal::SERVER, vec![seen, hidden]), (GUEST, vec![seen])] {
        let begin = ((0, MessageId(0)), 100);
        let page = dependants(&mut w, principal, parent, begin);
        assert_eq!(page, (shown, None));
    }
}

#[test]
fn dependants_are_listed_in_pages_of_one_step() {
    const MANY: usize = 2500;
    let mut w = World::new();
    let (other, parent) = (w.put("p", "a"), w.put("p", "b"));
    let children: Vec<MessageId> = (0..MANY)
        .map(|_| put(&mut w, "q", "", &[other, parent]))
        .collect();
    for (max, first) in [(7, 7), (u32::MAX, 1024), (0, 1)] {
        let (mut from, mut all) = ((0, MessageId(0)), Vec::new());
        loop {
            let (page, next) = dependants(&mut w, Principal::SERVER, parent, (from, max));
            assert!(
                page.len() == first || next.is_none(),
                "{} of {max}",
                page.len()
            );
            all.extend(page);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(all, children, "{max}");
    }
}

#[test]
fn the_end_of_a_parent_is_known_where_only_new_records_are_left() {
    const MANY: usize = 300;
    let mut w = World::new();
    let parent = w.put("p", "a");
    let children: Vec<MessageId> = (0..MANY).map(|_| put(&mut w, "q", "", &[parent])).collect();
    assert_eq!(w.pop("p"), "a");
    // A slice of them knows. In a newer segment all are written again in one step.
    w.engine.set_segment_ref(SegmentRef(1));
    let mut facts = Vec::new();
    w.engine.snapshot(&mut |fact| facts.push(fact.clone()));
    let edit = Edit {
        due: Some(When::Now),
        ..Edit::default()
    };
    let edits = children
        .iter()
        .map(|&id| Effect::Edit(id, Box::new(edit.clone())));
    let transaction = Transaction {
        effects: edits.collect(),
        ..Transaction::default()
    };
    let before = w.facts.len();
    w.ask(9, Command::Transaction(Box::new(transaction)));
    facts.extend(w.facts.drain(before..));
    let mut from = Some(0);
    while let Some(slot) = from {
        let copied = w.engine.copy_out(SegmentRef(0), slot, 1000, &mut facts);
        from = copied.next;
    }
    assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0);
    w.facts = facts;
    w.restart();
    w.wait(0);
    for child in children {
        assert_eq!(known(&mut w, child), [ParentState::Done]);
    }
}
