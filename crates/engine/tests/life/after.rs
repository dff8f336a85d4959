//! Messages that are held until others have ended.

use crate::cold::Runs;
use quintet_engine::Fact;
use quintet_sim::world::{World, plain, reserve, text};
use quintet_types::*;

pub(crate) fn after(parents: &[MessageId], on: AfterOn, if_failed: IfFailed) -> PutAfter {
    PutAfter {
        ids: parents.to_vec(),
        on,
        if_failed,
        ..PutAfter::default()
    }
}

pub(crate) fn put_of(queue: &str, body: &str, after: PutAfter) -> Put {
    Put {
        queue: queue.into(),
        body: Body::new(body.as_bytes()),
        more: Some(Box::new(PutMore {
            after: Some(Box::new(after)),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

/// Puts one that waits for the success of these.
pub(crate) fn put(w: &mut World, queue: &str, body: &str, parents: &[MessageId]) -> MessageId {
    let after = after(parents, AfterOn::Success, IfFailed::Fail);
    w.put_as(put_of(queue, body, after))
}

pub(crate) fn refused(w: &mut World, put: Put) -> String {
    text(&w.ask(9, Command::Put(put)).expect("it does not wait"))
}

pub(crate) fn message(w: &mut World, id: MessageId) -> Message {
    let seen = w.ask(9, Command::Peek(Peek::Id(id)));
    let Some(Outcome::Messages(mut found)) = seen else {
        panic!("{seen:?}");
    };
    found.pop().expect("it is there")
}

/// How a message knows its parents.
pub(crate) fn known(w: &mut World, id: MessageId) -> Vec<ParentState> {
    let after = message(w, id).extra.and_then(|extra| extra.after);
    let parents = after.into_iter().flat_map(|after| after.parents);
    parents.map(|parent| parent.state).collect()
}

pub(crate) fn status(w: &mut World, id: MessageId) -> (State, String) {
    let message = message(w, id);
    let status = message.extra.map(|extra| extra.status).unwrap_or_default();
    (message.state, String::from_utf8_lossy(&status).into_owned())
}

pub(crate) fn settle(w: &mut World, id: MessageId, how: How) {
    let by = By::Owner;
    assert_eq!(
        w.ask(1, Command::Settle { id, by, how }),
        Some(Outcome::Done)
    );
}

pub(crate) fn bury() -> How {
    How::Bury {
        priority: None,
        reason: Box::default(),
    }
}

#[test]
fn a_message_is_held_until_all_have_succeeded_over_restarts() {
    let mut w = World::new();
    let (a, b) = (w.put("p", "a"), w.put("p", "b"));
    let child = put(&mut w, "q", "child", &[b, a, b]);
    assert_eq!(w.pop("q"), "empty");
    w.restart();
    assert_eq!(known(&mut w, child), [ParentState::Waiting; 2]);
    assert_eq!(w.take(1, reserve("p")), "a");
    settle(&mut w, a, How::Finish);
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(
        known(&mut w, child),
        [ParentState::Done, ParentState::Waiting]
    );
    // A take without a lease is an end too. The child is told in the next step.
    assert_eq!(w.pop("p"), "b");
    w.restart();
    w.wait(0);
    assert_eq!(known(&mut w, child), [ParentState::Done; 2]);
    assert_eq!(w.pop("q"), "child");
}

#[test]
fn the_child_decides_the_effect_of_a_failed_parent() {
    use IfFailed::{Fail, Hold, Run};
    let failed = |id: MessageId| format!("message {} failed, and this one waited", id.0);
    for (on, if_failed, state, waits) in [
        (AfterOn::Success, Fail, State::Buried, false),
        (AfterOn::Success, Hold, State::Ready, true),
        (AfterOn::Success, Run, State::Ready, false),
        (AfterOn::End, Fail, State::Ready, false),
    ] {
        let mut w = World::new();
        let parent = w.put("p", "a");
        let child = w.put_as(put_of("q", "child", after(&[parent], on, if_failed)));
        let grandchild = put(&mut w, "q", "grandchild", &[child]);
        assert_eq!(w.take(1, reserve("p")), "a");
        settle(&mut w, parent, bury());
        w.restart();
        w.wait(0);
        let (is, why) = status(&mut w, child);
        assert_eq!(is, state, "{on:?} {if_failed:?}: {why}");
        assert_eq!(known(&mut w, child), [ParentState::Failed]);
        assert_eq!(message(&mut w, child).due() == Some(HELD), waits);
        if state == State::Buried {
            assert!(why.starts_with(&failed(parent)), "{why}");
            assert!(why.ends_with(" (failed 1 time)"), "{why}");
            // So has one that waits for it.
            assert_eq!(status(&mut w, grandchild).0, State::Buried);
        } else {
            assert_eq!(known(&mut w, grandchild), [ParentState::Waiting]);
        }
    }
}

#[test]
fn every_end_frees_messages_that_wait_for_an_end() {
    type End = fn(&mut World, MessageId);
    let ends: [(&str, End, ParentState); 9] = [
        (
            "deleted",
            |w, id| _ = w.ask(1, Command::Delete { id, by: By::Anyone }),
            ParentState::Failed,
        ),
        (
            "cancelled",
            |w, id| _ = w.ask(1, Command::Cancel(id, Box::default())),
            ParentState::Failed,
        ),
        (
            "flushed",
            |w, _| {
                _ = w.ask(
                    1,
                    Command::Flush {
                        queue: "p".into(),
                        reserved: false,
                    },
                )
            },
            ParentState::Failed,
        ),
        (
            "dropped",
            |w, _| _ = w.ask(1, Command::Drop("p".into())),
            ParentState::Failed,
        ),
        ("expired", |w, _| w.wait(5000), ParentState::Failed),
        ("taken", |w, _| _ = w.pop("p"), ParentState::Done),
        (
            "buried",
            |w, id| {
                w.take(1, reserve("p"));
                settle(w, id, bury());
            },
            ParentState::Failed,
        ),
        (
            "finished",
            |w, id| {
                w.take(1, reserve("p"));
                settle(w, id, How::Finish);
            },
            ParentState::Done,
        ),
        (
            "dead",
            |w, _| {
                w.take(1, reserve("d"));
                w.hang_up(1);
                w.restart();
            },
            ParentState::Failed,
        ),
    ];
    for (name, end, state) in ends {
        for restarts in [false, true] {
            let mut settings = Settings::default();
            settings.defaults.idle_ms = 0;
            let once = Overrides {
                attempts_max: Some(1),
                dead_letter: Some(DeadLetter::To("graves".into())),
                ..Overrides::default()
            };
            settings.rules.push((Pattern::new("d"), once));
            let mut w = World::with(settings);
            let parent = w.put_as(Put {
                queue: if name == "dead" { "d" } else { "p" }.into(),
                expires: Expiry::In(4000),
                ..Put::default()
            });
            let child = w.put_as(put_of(
                "q",
                "child",
                after(&[parent], AfterOn::End, IfFailed::Fail),
            ));
            end(&mut w, parent);
            if restarts {
                w.restart();
            }
            w.wait(0);
            assert_eq!(known(&mut w, child), [state], "{name}");
            assert_eq!(w.pop("q"), "child", "{name}");
            assert!(
                w.engine.next_deadline() > w.now,
                "{name}: nothing is left to do"
            );
        }
    }
}

#[test]
fn bad_parents_are_refused_by_name() {
    let mut w = World::new();
    let ask = |ids: &[MessageId]| put_of("q", "", after(ids, AfterOn::End, IfFailed::Fail));
    assert_eq!(
        refused(&mut w, ask(&[MessageId(77)])),
        "a message to wait for is not known"
    );
    let many: Vec<MessageId> = (1..=1001).map(MessageId).collect();
    assert_eq!(
        refused(&mut w, ask(&many)),
        "after too many messages, or too many that are not in memory"
    );
    let mut own = ask(&[]);
    let more = own.more.as_mut().expect("it has parents");
    more.name = Some(b"n".as_slice().into());
    let names = &mut more.after.as_mut().expect("it has parents").names;
    names.push(b"n".as_slice().into());
    assert_eq!(refused(&mut w, own), "a message cannot wait for itself");
    let mut named = ask(&[]);
    let more = named.more.as_mut().expect("it has parents");
    let names = &mut more.after.as_mut().expect("it has parents").names;
    names.push(b"n".as_slice().into());
    assert_eq!(
        refused(&mut w, named.clone()),
        "a message to wait for is not known"
    );
    // It is found by its name while it is tracked.
    let parent = w.put_as(Put {
        queue: "p".into(),
        more: Some(Box::new(PutMore {
            name: Some(b"n".as_slice().into()),
            tracked: true,
            ..PutMore::default()
        })),
        ..Put::default()
    });
    let child = w.put_as(named.clone());
    assert_eq!(known(&mut w, child), [ParentState::Waiting]);
    assert_eq!(w.pop("p"), "");
    assert_eq!(w.pop("q"), "");
    // What is gone is known by its track.
    let later = w.put_as(named);
    assert_eq!(known(&mut w, later), [ParentState::Done]);
    assert!(parent < child);
}

#[test]
fn the_record_of_ends_decides_about_gone_messages() {
    let settings = Settings {
        ends_max: 10,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let (done, gone) = (w.put("p", "done"), w.put("p", "gone"));
    assert_eq!(w.pop("p"), "done");
    w.ask(1, Command::Cancel(gone, Box::default()));
    let child = put(&mut w, "q", "at once", &[done]);
    assert_eq!(known(&mut w, child), [ParentState::Done]);
    assert_eq!(w.pop("q"), "at once");
    let child = put(&mut w, "q", "never", &[gone]);
    assert_eq!(status(&mut w, child).0, State::Buried);
}

#[test]
fn a_repeat_is_answered_after_its_parents_are_forgotten() {
    let mut w = World::new();
    let parent = w.put("p", "a");
    let mut put = put_of("q", "child", after(&[parent], AfterOn::End, IfFailed::Fail));
    let more = put.more.as_mut().expect("it has parents");
    more.token = Some(b"t".as_slice().into());
    let child = w.put_as(put.clone());
    assert_eq!(w.pop("p"), "a");
    assert_eq!(w.pop("q"), "child");
    let again = w.ask(9, Command::Put(put.clone()));
    let first = Outcome::Put {
        id: child,
        fresh: false,
    };
    assert_eq!(again, Some(first));
    let again = w.ask(9, Command::PutMany(vec![put]));
    assert_eq!(again, Some(Outcome::PutMany(vec![child])));
}

#[test]
fn a_kick_frees_and_a_delay_counts_from_the_put() {
    let mut w = World::new();
    let parent = w.put("p", "a");
    let child = put(&mut w, "q", "child", &[parent]);
    assert_eq!(w.ask(1, Command::KickId(child)), Some(Outcome::Done));
    assert_eq!(w.pop("q"), "child");
    let mut delayed = put_of("q", "later", after(&[parent], AfterOn::End, IfFailed::Fail));
    delayed.due = When::In(100);
    w.put_as(delayed);
    assert_eq!(w.pop("p"), "a");
    w.wait(0);
    assert_eq!(w.pop("q"), "empty");
    w.wait(100);
    assert_eq!(w.pop("q"), "later");
}

fn edit_body(w: &mut World, id: MessageId, body: &str) -> Outcome {
    let edit = Edit {
        body: Some(Body::new(body.as_bytes())),
        ..Edit::default()
    };
    let seen = w.ask(1, Command::Edit(id, Box::new(edit)));
    seen.expect("it does not wait")
}

#[test]
fn an_edited_message_stays_held_and_one_that_others_wait_for_keeps_its_body() {
    let mut w = World::new();
    let first = w.put("p", "first");
    let last = put(&mut w, "q", "last", &[first]);
    let refused = edit_body(&mut w, first, "edited");
    assert_eq!(refused, Outcome::Refused(CommandError::Awaited));
    let Outcome::Put { id: last, .. } = edit_body(&mut w, last, "new last") else {
        panic!("it is edited");
    };
    w.restart();
    // Its due time is kept for later.
    let later = Edit {
        due: Some(When::In(100)),
        ..Edit::default()
    };
    let edited = w.ask(1, Command::Edit(last, Box::new(later)));
    assert_eq!(edited, Some(Outcome::Done));
    w.restart();
    assert_eq!(known(&mut w, last), [ParentState::Waiting]);
    w.wait(100);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(w.pop("p"), "first");
    w.restart();
    w.wait(0);
    assert_eq!(w.pop("q"), "new last");
}

fn unique(after: Option<PutAfter>) -> Put {
    let dedupe = Dedupe {
        id: b"x".as_slice().into(),
        window_ms: Some(10_000),
        scope: None,
        on_repeat: Some(OnRepeat::Replace),
    };
    Put {
        queue: "m".into(),
        more: Some(Box::new(PutMore {
            dedupe: Some(dedupe),
            after: after.map(Box::new),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

#[test]
fn a_replaced_message_has_failed_and_a_circle_cannot_be_made() {
    let mut w = World::new();
    let on_end = |id| after(&[id], AfterOn::End, IfFailed::Fail);
    let first = w.put_as(unique(None));
    let behind = w.put_as(put_of("q", "behind", on_end(first)));
    let itself = refused(&mut w, unique(Some(on_end(first))));
    assert_eq!(itself, "a message cannot wait for itself");
    // It waits for the one that waits for the message it replaces.
    let second = w.put_as(unique(Some(on_end(behind))));
    assert_eq!(known(&mut w, behind), [ParentState::Failed]);
    assert_eq!(known(&mut w, second), [ParentState::Waiting]);
    assert_eq!(w.pop("q"), "behind");
    assert_eq!(w.pop("m"), "");
}

#[test]
fn a_prepared_message_waits_for_its_commit_too() {
    let mut w = World::new();
    for (end, state) in [(true, State::Ready), (false, State::Buried)] {
        let parent = w.put("p", "a");
        let mut child = put_of(
            "q",
            "child",
            after(&[parent], AfterOn::Success, IfFailed::Fail),
        );
        child.more.as_mut().expect("it has parents").prepared = true;
        let child = w.put_as(child);
        match end {
            true => assert_eq!(w.pop("p"), "a"),
            false => _ = w.ask(1, Command::Cancel(parent, Box::default())),
        }
        for _ in 0..2 {
            w.wait(0);
            assert_eq!(message(&mut w, child).state, State::Prepared);
            assert!(w.engine.next_deadline() > w.now, "nothing is left to do");
            w.restart();
        }
        assert_eq!(w.ask(1, Command::Commit(child)), Some(Outcome::Done));
        w.wait(0);
        assert_eq!(message(&mut w, child).state, state);
    }
}

#[test]
fn a_message_put_while_others_learn_of_an_end_knows_the_same_end() {
    let mut w = World::new();
    let parent = w.put("p", "a");
    for _ in 0..200 {
        put(&mut w, "q", "", &[parent]);
    }
    assert_eq!(w.take(1, reserve("p")), "a");
    settle(&mut w, parent, bury());
    assert_eq!(w.ask(1, Command::KickId(parent)), Some(Outcome::Done));
    let late = put(&mut w, "late", "", &[parent]);
    assert_eq!(known(&mut w, late), [ParentState::Failed]);
    while w.engine.next_deadline() <= w.now {
        w.tick();
    }
    let later = put(&mut w, "late", "", &[parent]);
    assert_eq!(known(&mut w, later), [ParentState::Waiting]);
}

#[test]
fn a_header_of_a_client_is_no_failure() {
    let mut w = World::new();
    let reason = (
        b"dead_letter_reason".as_slice().into(),
        b"x".as_slice().into(),
    );
    let parent = w.put_as(Put {
        queue: "p".into(),
        more: Some(Box::new(PutMore {
            attrs: vec![reason],
            ..PutMore::default()
        })),
        ..Put::default()
    });
    let child = put(&mut w, "q", "child", &[parent]);
    assert_eq!(known(&mut w, child), [ParentState::Waiting]);
}

#[test]
fn a_held_message_does_not_keep_its_key_back() {
    let mut settings = Settings::default();
    settings.defaults.groups = Groups::Ordered;
    let mut w = World::with(settings);
    let keyed = |body: &str, after: Option<PutAfter>| Put {
        queue: "o".into(),
        body: Body::new(body.as_bytes()),
        more: Some(Box::new(PutMore {
            key: Some(b"k".as_slice().into()),
            after: after.map(Box::new),
            ..PutMore::default()
        })),
        ..Put::default()
    };
    let parent = w.put("p", "first");
    let on_end = after(&[parent], AfterOn::End, IfFailed::Fail);
    let child = w.put_as(keyed("child", Some(on_end)));
    // Behind it in its line, and before it in time.
    w.put_as(keyed("other", None));
    assert_eq!(w.pop("o"), "other");
    w.verify();
    assert_eq!(w.pop("p"), "first");
    assert_eq!(message(&mut w, child).due(), None);
    assert_eq!(w.pop("o"), "child");
    w.verify();
}

#[test]
fn the_parents_of_one_command_are_bounded() {
    let mut w = World::new();
    let parents: Vec<MessageId> = (0..1000).map(|_| w.put("p", "")).collect();
    let all = after(&parents, AfterOn::End, IfFailed::Fail);
    let puts = |count| vec![put_of("q", "", all.clone()); count];
    let many = w.ask(9, Command::PutMany(puts(11)));
    assert_eq!(many, Some(Outcome::Refused(CommandError::AfterTooMany)));
    assert_eq!(w.pop("q"), "empty");
    let enough = w.ask(9, Command::PutMany(puts(10)));
    assert!(matches!(enough, Some(Outcome::PutMany(_))));
}

#[test]
fn a_put_whose_parents_in_other_shards_were_not_read_is_refused() {
    let mut w = World::shard(0, 4, Settings::default());
    let other = MessageId(3 << SHARD_SHIFT | 1);
    let put = put_of("q", "", after(&[other], AfterOn::End, IfFailed::Fail));
    let expected = "changed while it was being decided";
    assert_eq!(refused(&mut w, put), expected);
}

#[test]
fn a_parent_in_a_run_is_read_first_and_both_stay_in_memory_then() {
    let mut w = World::new();
    let mut runs = Runs::default();
    let named = Put {
        queue: "p".into(),
        body: Body::new(b"a"),
        more: Some(Box::new(PutMore {
            name: Some(b"n".as_slice().into()),
            tracked: true,
            ..PutMore::default()
        })),
        ..Put::default()
    };
    let by_name = w.put_as(named);
    let by_id = w.put("p", "b");
    let mut waits = after(&[by_id], AfterOn::Success, IfFailed::Fail);
    waits.names.push(b"n".as_slice().into());
    runs.evict(&mut w);
    w.delivered();
    assert_eq!(w.ask(9, Command::Put(put_of("q", "child", waits))), None);
    runs.read(&mut w);
    assert_eq!(w.delivered().len(), 1, "it is stored now");
    // None of the three goes again.
    runs.evict(&mut w);
    assert_eq!(w.pop("p"), "a");
    assert_eq!(w.pop("p"), "b");
    w.wait(0);
    assert!(by_name < by_id);
    assert_eq!(w.pop("q"), "child");
    assert!(w.engine.take_wants().is_empty());
}

#[test]
fn messages_that_are_gone_are_searched_in_the_recorded_ends_before_the_runs() {
    let settings = Settings {
        ends_max: 100,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let mut runs = Runs::default();
    let gone: Vec<MessageId> = (0..50).map(|_| w.put("p", "")).collect();
    gone.iter().for_each(|_| assert_eq!(w.pop("p"), ""));
    w.put("other", "in a run");
    runs.evict(&mut w);
    put(&mut w, "q", "child", &gone);
    assert!(w.engine.take_wants().is_empty());
    assert_eq!(w.pop("q"), "child");
}

#[test]
fn a_delete_by_a_hook_in_the_same_step_is_an_end() {
    let settings = Settings {
        ends_max: 0,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let mut runs = Runs::default();
    w.put("other", "in a run");
    runs.evict(&mut w);
    let parent = w.put("p", "a");
    let child = put_of("q", "child", after(&[parent], AfterOn::End, IfFailed::Fail));
    let transaction = Transaction {
        effects: vec![Effect::Delete(parent)],
        then: Some(Box::new(Command::Put(child))),
        ..Transaction::default()
    };
    let done = w.ask(9, Command::Transaction(Box::new(transaction)));
    assert!(
        matches!(done, Some(Outcome::Transaction { .. })),
        "{done:?}"
    );
    assert_eq!(w.pop("q"), "child");
}

#[test]
fn a_flushed_child_is_forgotten_and_a_flushed_parent_has_failed() {
    for queue in ["q", "p"] {
        let mut w = World::new();
        let parent = w.put("p", "a");
        put(&mut w, "q", "child", &[parent]);
        let flush = Command::Flush {
            queue: queue.into(),
            reserved: false,
        };
        w.ask(1, flush);
        for _ in 0..4 {
            w.wait(0);
        }
        let Some(Outcome::Stats(stats)) = w.ask(1, Command::Stats(StatsOf::Shard)) else {
            panic!("it counts");
        };
        let StatsReply::Shard(stats) = *stats else {
            panic!("it is the shard's");
        };
        assert_eq!(stats.held, 0, "{queue}");
        w.verify();
    }
}

#[test]
fn many_dependants_are_freed_in_slices_and_none_twice() {
    const MANY: usize = 5000;
    let mut w = World::new();
    let parent = w.put("p", "a");
    for _ in 0..MANY {
        let caller = Caller::default();
        let child = after(&[parent], AfterOn::Success, IfFailed::Fail);
        w.submit(caller, Command::Put(put_of("q", "", child)));
    }
    assert_eq!(w.pop("p"), "a");
    let freed = |facts: &[Fact]| {
        let freed = facts
            .iter()
            .filter(|fact| matches!(fact, Fact::Freed { .. }));
        freed.count()
    };
    let mut steps = 0;
    while w.engine.next_deadline() <= w.now {
        let before = w.facts.len();
        w.tick();
        assert!(
            w.facts.len() - before <= 600,
            "a step of {}",
            w.facts.len() - before
        );
        steps += 1;
        if steps % 3 == 0 {
            w.restart();
        }
    }
    assert_eq!(freed(&w.facts), MANY);
    w.verify();
    for taken in 0..MANY {
        let answer = w.submit(Caller::default(), Command::Take(plain("q")));
        let is_one = matches!(answer, Answer::Now(Outcome::Messages(_), _));
        assert!(is_one, "{taken} were free");
    }
}

#[test]
fn dependencies_stay_while_segments_go() {
    let mut w = World::new();
    let parent = w.put("p", "a");
    let child = put(&mut w, "q", "child", &[parent]);
    assert_eq!(w.pop("p"), "a");
    // It has ended, and the child does not know. Both are written again.
    w.engine.set_segment_ref(SegmentRef(1));
    let mut facts = Vec::new();
    w.engine.snapshot(&mut |fact| facts.push(fact.clone()));
    let mut from = Some(0);
    while let Some(slot) = from {
        from = w
            .engine
            .copy_out(SegmentRef(0), slot, 1000, &mut facts)
            .next;
    }
    assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0);
    w.facts = facts;
    w.restart();
    w.wait(0);
    assert_eq!(known(&mut w, child), [ParentState::Done]);
    assert_eq!(w.pop("q"), "child");
}

#[test]
fn records_with_many_parents_are_written_again_in_slices() {
    const CHILDREN: usize = 12;
    let mut w = World::new();
    let parents: Vec<MessageId> = (0..1000).map(|_| w.put("p", "")).collect();
    for _ in 0..CHILDREN {
        put(&mut w, "q", "child", &parents);
    }
    w.engine.set_segment_ref(SegmentRef(1));
    let mut facts = Vec::new();
    w.engine.snapshot(&mut |fact| facts.push(fact.clone()));
    let (mut from, mut steps) = (Some(0), Vec::new());
    while let Some(slot) = from {
        let before = facts.len();
        let copied = w.engine.copy_out(SegmentRef(0), slot, u32::MAX, &mut facts);
        from = copied.next;
        let records = facts[before..].iter();
        let is_record = |fact: &&Fact| matches!(fact, Fact::Awaits { .. });
        steps.push(records.filter(is_record).count());
    }
    assert_eq!(steps.iter().sum::<usize>(), CHILDREN, "{steps:?}");
    assert!(steps.iter().all(|records| *records <= 5), "{steps:?}");
    assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0);
    w.facts = facts;
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    for _ in &parents {
        assert_eq!(w.pop("p"), "");
    }
    while w.engine.next_deadline() <= w.now {
        w.tick();
    }
    assert_eq!(w.pop("q"), "child");
}

#[test]
fn no_hook_and_no_restart_makes_a_message_ready_that_has_failed_with_another() {
    let mut w = World::new();
    let hooks = PendingDecisions {
        client_id: ClientId(77),
        expire: false,
        lease_end: false,
        dead_letter: true,
    };
    w.engine
        .set_pending_decisions(w.now, hooks, &mut w.facts, &mut w.deliveries);
    let parent = w.put("p", "a");
    let child = put(&mut w, "q", "child", &[parent]);
    w.ask(1, Command::Cancel(parent, Box::default()));
    w.wait(0);
    w.restart();
    assert_eq!(status(&mut w, child).0, State::Buried);
    assert_eq!(w.pop("q"), "empty");
}

#[test]
fn a_parent_that_a_restart_loses_has_failed() {
    let mut settings = Settings::default();
    let memory = Overrides {
        memory: Some(true),
        ..Overrides::default()
    };
    settings.rules.push((Pattern::new("m"), memory));
    let mut w = World::with(settings);
    let parent = w.put("m", "a");
    let child = put(&mut w, "q", "child", &[parent]);
    put(&mut w, "m", "lost", &[child]);
    w.restart();
    w.wait(0);
    assert_eq!(status(&mut w, child).0, State::Buried);
    assert!(w.engine.next_deadline() > w.now, "nothing is left to do");
}

#[test]
fn an_edit_between_a_parents_end_and_its_telling_loses_nothing() {
    for restarts in [false, true] {
        let mut w = World::new();
        let parent = w.put("p", "a");
        // One more than are told in the step of the end.
        let children = (0..65).map(|_| put(&mut w, "q", "child", &[parent]));
        let last = children.last().expect("there are some");
        assert_eq!(w.take(1, reserve("p")), "a");
        settle(&mut w, parent, How::Finish);
        let edit = Edit {
            due: Some(When::In(1)),
            ..Edit::default()
        };
        w.ask(1, Command::Edit(last, Box::new(edit)));
        w.verify();
        if restarts {
            w.restart();
        }
        for _ in 0..10 {
            w.wait(1);
        }
        for freed in 0..65 {
            assert_eq!(w.pop("q"), "child", "{freed} were free");
        }
        w.verify();
    }
}
