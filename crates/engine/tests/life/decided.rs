//! Decisions of hooks: transactions, tables, and messages that wait for them.

use quintet_types::*;

use crate::world::{World, plain, reserve, text, waiting};

fn put(queue: &str, body: &str) -> Put {
    Put {
        queue: queue.into(),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    }
}

fn set(key: &str, value: Option<&str>, ttl_ms: Option<u64>) -> Effect {
    Effect::Set {
        table: "t".into(),
        key: key.as_bytes().into(),
        value: value.map(|value| value.as_bytes().into()),
        ttl_ms,
    }
}

fn guard(key: &str, version: Option<u64>) -> Guard {
    Guard::Table {
        table: "t".into(),
        key: key.as_bytes().into(),
        version,
    }
}

fn do_all(
    w: &mut World,
    guards: Vec<Guard>,
    effects: Vec<Effect>,
    then: Option<Command>,
) -> Option<Outcome> {
    let transaction = Transaction {
        guards,
        effects,
        then: then.map(Box::new),
    };
    w.ask(1, Command::Transaction(Box::new(transaction)))
}

fn entries(w: &mut World) -> Vec<(String, String, u64)> {
    let list = TableRequest::List {
        table: "t".into(),
        after: None,
        max: 100,
    };
    let Some(Outcome::Entries(entries)) = w.ask(1, Command::Table(list)) else {
        panic!("no entries");
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    entries
        .iter()
        .map(|entry| (text(&entry.key), text(&entry.value), entry.version))
        .collect()
}

fn command_error(outcome: Option<Outcome>) -> CommandError {
    match outcome {
        Some(Outcome::Refused(command_error)) => command_error,
        other => panic!("not refused: {other:?}"),
    }
}

/// The log replayed is the state there is.
fn replayed(w: &mut World) {
    assert_eq!(w.replayed(SegmentRef(0)).image(), w.engine.image());
}

#[test]
fn one_step_sets_puts_and_executes_its_command() {
    let mut w = World::new();
    let effects = vec![
        set("k", Some("1"), None),
        Effect::Put(put("copy", "b")),
        set("k", Some("2"), None),
    ];
    let then = Command::Put(put("q", "a"));
    let Some(Outcome::Transaction { ids, then }) = do_all(&mut w, vec![], effects, Some(then))
    else {
        panic!("refused");
    };
    assert_eq!(ids, [MessageId(2)]);
    assert!(matches!(
        then.as_deref(),
        Some(Outcome::Put {
            id: MessageId(1),
            ..
        })
    ));
    assert_eq!(entries(&mut w), [("k".into(), "2".into(), 2)]);
    replayed(&mut w);
    w.restart();
    assert_eq!(entries(&mut w), [("k".into(), "2".into(), 2)]);
    assert_eq!((w.pop("q"), w.pop("copy")), ("a".into(), "b".into()));
}

#[test]
fn tables_are_in_the_snapshot_a_segment_begins_with() {
    let mut w = World::new();
    do_all(
        &mut w,
        vec![],
        vec![set("a", Some("x"), None), set("b", Some("y"), None)],
        None,
    );
    do_all(&mut w, vec![], vec![set("a", None, None)], None);
    let mut snapshot = Vec::new();
    w.engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    w.restart();
    assert_eq!(entries(&mut w), [("b".into(), "y".into(), 2)]);
    // Versions go on rising, so that no old guard holds by accident.
    do_all(&mut w, vec![], vec![set("b", Some("z"), None)], None);
    assert_eq!(entries(&mut w), [("b".into(), "z".into(), 3)]);
    w.ask(1, Command::Table(TableRequest::Drop("t".into())));
    w.restart();
    assert_eq!(entries(&mut w), []);
}

#[test]
fn of_two_that_saw_the_same_only_one_wins() {
    let mut w = World::new();
    let race = |w: &mut World| {
        let take = vec![set("lock", Some("mine"), None)];
        do_all(
            w,
            vec![guard("lock", None)],
            take,
            Some(Command::Put(put("q", "won"))),
        )
    };
    assert!(matches!(race(&mut w), Some(Outcome::Transaction { .. })));
    assert_eq!(command_error(race(&mut w)), CommandError::Conflict);
    assert_eq!((w.pop("q"), w.pop("q")), ("won".into(), "empty".into()));
    // One that saw the entry may go on from there.
    let next = do_all(
        &mut w,
        vec![guard("lock", Some(1))],
        vec![set("lock", None, None)],
        None,
    );
    assert!(matches!(next, Some(Outcome::Transaction { .. })));
}

#[test]
fn an_entry_whose_time_is_over_is_absent() {
    let mut w = World::new();
    do_all(&mut w, vec![], vec![set("k", Some("1"), Some(1000))], None);
    w.wait(999);
    assert_eq!(entries(&mut w).len(), 1);
    w.wait(2);
    assert_eq!(entries(&mut w), []);
    let again = do_all(
        &mut w,
        vec![guard("k", None)],
        vec![set("k", Some("2"), None)],
        None,
    );
    assert!(matches!(again, Some(Outcome::Transaction { .. })));
    w.restart();
    assert_eq!(entries(&mut w).len(), 1);
}

#[test]
fn full_tables_refuse_the_whole_step_and_make_room_by_time() {
    let settings = Settings {
        tables_bytes_max: 400,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    do_all(
        &mut w,
        vec![],
        vec![set("a", Some(&"x".repeat(200)), Some(1000))],
        None,
    );
    let more = |w: &mut World| {
        let then = Command::Put(put("q", "a"));
        do_all(
            w,
            vec![],
            vec![set("b", Some(&"y".repeat(200)), None)],
            Some(then),
        )
    };
    assert_eq!(command_error(more(&mut w)), CommandError::TablesFull);
    assert_eq!(w.pop("q"), "empty");
    // In place of itself there is room.
    let same = do_all(
        &mut w,
        vec![],
        vec![set("a", Some(&"z".repeat(250)), Some(1000))],
        None,
    );
    assert!(matches!(same, Some(Outcome::Transaction { .. })));
    w.wait(1001);
    assert!(matches!(more(&mut w), Some(Outcome::Transaction { .. })));
}

#[test]
fn a_message_that_changed_is_a_conflict_and_nothing_happens() {
    let mut w = World::new();
    let id = w.put("q", "a");
    let Some(Outcome::Messages(seen)) = w.ask(1, Command::Peek(Peek::Id(id))) else {
        panic!("gone");
    };
    let guard = Guard::Message {
        id,
        seen: Some(MessageVersion::of(&seen[0])),
    };
    assert_eq!(w.take(2, reserve("q")), "a");
    let effects = vec![Effect::Delete(id), Effect::Put(put("other", "x"))];
    assert_eq!(
        command_error(do_all(&mut w, vec![guard.clone()], effects.clone(), None)),
        CommandError::Conflict
    );
    // Nor may others' messages be touched without a guard.
    assert_eq!(
        command_error(do_all(&mut w, vec![], effects.clone(), None)),
        CommandError::Conflict
    );
    assert_eq!(w.pop("other"), "empty");
    w.hang_up(2);
    let unseen = Guard::Message { id, seen: None };
    assert_eq!(
        command_error(do_all(&mut w, vec![unseen], effects.clone(), None)),
        CommandError::Conflict
    );
    assert!(matches!(
        do_all(&mut w, vec![], effects, None),
        Some(Outcome::Transaction { .. })
    ));
    assert_eq!((w.pop("q"), w.pop("other")), ("empty".into(), "x".into()));
}

#[test]
fn a_refused_command_or_put_leaves_no_effect() {
    let settings = Settings {
        rules: vec![(
            Pattern::new("full"),
            Overrides {
                messages_max: Some(1),
                ..Overrides::default()
            },
        )],
        ..Settings::default()
    };
    let mut w = World::with(settings);
    w.put("full", "a");
    let before = w.facts.len();
    for (effects, then, why) in [
        (
            vec![set("k", Some("1"), None)],
            Command::Put(put("full", "b")),
            CommandError::QueueFull,
        ),
        (
            vec![Effect::Put(put("full", "b"))],
            Command::Put(put("q", "b")),
            CommandError::QueueFull,
        ),
        (
            vec![set("k", Some("1"), None)],
            Command::Touch(MessageId(1)),
            CommandError::NotFound,
        ),
        (
            vec![Effect::Move {
                id: MessageId(1),
                to: "".into(),
            }],
            Command::Put(put("q", "b")),
            CommandError::BadName,
        ),
        (
            vec![],
            Command::Transaction(Box::default()),
            CommandError::NotPermitted,
        ),
    ] {
        assert_eq!(
            command_error(do_all(&mut w, vec![], effects, Some(then))),
            why
        );
    }
    assert_eq!(w.facts.len(), before);
    // Two puts that fit one by one do not fit together.
    w.pop("full");
    let two = vec![Effect::Put(put("full", "b"))];
    let both = do_all(&mut w, vec![], two, Some(Command::Put(put("full", "c"))));
    assert_eq!(command_error(both), CommandError::QueueFull);
}

#[test]
fn a_take_sees_what_the_effects_put_and_waits_if_it_may() {
    let mut w = World::new();
    let supply = vec![Effect::Put(put("q", "supplied"))];
    let Some(Outcome::Transaction { then, .. }) =
        do_all(&mut w, vec![], supply, Some(Command::Take(plain("q"))))
    else {
        panic!("refused");
    };
    assert_eq!(text(then.as_deref().expect("answered")), "supplied");
    let waits = do_all(&mut w, vec![], vec![], Some(Command::Take(waiting("q"))));
    assert_eq!(waits, None);
    w.put("q", "later");
    assert_eq!(w.delivered(), [(1, "later".into())]);
}

#[test]
fn effects_move_kick_bury_and_edit() {
    let mut w = World::new();
    let (a, b) = (w.put("q", "a"), w.put("q", "b"));
    let bury = Effect::Settle {
        id: a,
        how: How::Bury {
            priority: None,
            reason: b"why".as_slice().into(),
        },
    };
    let edit = Edit {
        priority: Some(1),
        ..Edit::default()
    };
    let effects = vec![
        bury,
        Effect::Edit(b, Box::new(edit)),
        Effect::Put(put("q", "c")),
    ];
    do_all(&mut w, vec![], effects, None);
    assert_eq!(w.pop("q"), "b");
    do_all(&mut w, vec![], vec![Effect::Kick(a)], None);
    assert_eq!(w.pop("q"), "a");
    let move_on = Effect::Move {
        id: MessageId(3),
        to: "there".into(),
    };
    do_all(&mut w, vec![], vec![move_on], None);
    assert_eq!((w.pop("q"), w.pop("there")), ("empty".into(), "c".into()));
    replayed(&mut w);
}

const HOOKS: u64 = 77;

fn want(w: &mut World, expire: bool, lease_end: bool, dead_letter: bool) {
    let pending_decisions = PendingDecisions {
        client_id: ClientId(HOOKS),
        expire,
        lease_end,
        dead_letter,
    };
    w.engine
        .set_pending_decisions(w.now, pending_decisions, &mut w.facts, &mut w.deliveries);
    w.engine.verify().expect("consistent");
}

fn decisions_of(w: &mut World) -> Vec<(PendingDecisionKind, MessageId)> {
    let pending_decisions = w.engine.take_pending_decisions();
    pending_decisions
        .iter()
        .map(|i| (i.kind, i.message.id))
        .collect()
}

fn expiring(queue: &str, body: &str, ms: u64) -> Put {
    Put {
        expires: Expiry::In(ms),
        ..put(queue, body)
    }
}

#[test]
fn an_expired_message_waits_for_the_decision_and_no_client_takes_it() {
    let mut w = World::new();
    want(&mut w, true, false, false);
    let ids: Vec<MessageId> = ["a", "b", "c"]
        .iter()
        .map(|body| w.put_as(expiring("q", body, 1000)))
        .collect();
    w.wait(1001);
    let received: Vec<_> = ids
        .iter()
        .map(|&id| (PendingDecisionKind::Expire, id))
        .collect();
    assert_eq!(decisions_of(&mut w), received);
    assert_eq!(w.pop("q"), "empty");
    w.wait(5000);
    assert_eq!(decisions_of(&mut w), []);
    // One goes elsewhere and lives, one as usual, one is put back and so goes.
    let effects = vec![
        Effect::Move {
            id: ids[0],
            to: "late".into(),
        },
        Effect::Conclude(ids[1]),
        Effect::Settle {
            id: ids[2],
            how: How::Release {
                priority: None,
                due: When::Now,
                back_to: None,
            },
        },
    ];
    assert!(matches!(
        do_all(&mut w, vec![], effects, None),
        Some(Outcome::Transaction { .. })
    ));
    w.engine.verify().expect("consistent");
    assert_eq!((w.pop("late"), w.pop("q")), ("a".into(), "empty".into()));
    assert_eq!(decisions_of(&mut w), []);
    replayed(&mut w);
}

#[test]
fn pending_decisions_are_undone_by_a_crash() {
    let mut w = World::new();
    want(&mut w, true, true, false);
    w.put_as(expiring("q", "gone", 1000));
    w.put_as(Put {
        ttr_ms: Some(1000),
        ..put("q", "leased")
    });
    let lease = LeaseRequest {
        owner: LeaseOwner::Time,
        time: LeaseTime::OwnTtr,
        back_to: BackTo::Position,
        held_max: 0,
    };
    assert_eq!(w.pop("q"), "gone");
    w.put_as(expiring("q2", "gone", 1000));
    assert_eq!(
        w.take(
            2,
            Take {
                lease: Some(lease),
                ..plain("q")
            }
        ),
        "leased"
    );
    w.wait(1001);
    assert_eq!(decisions_of(&mut w).len(), 2);
    assert_eq!((w.pop("q"), w.pop("q2")), ("empty".into(), "empty".into()));
    replayed(&mut w);
    w.restart();
    assert_eq!((w.pop("q"), w.pop("q2")), ("leased".into(), "empty".into()));
}

#[test]
fn a_lease_that_ends_is_decided_at_its_old_place() {
    let mut w = World::new();
    want(&mut w, false, true, false);
    w.put_as(Put {
        ttr_ms: Some(1000),
        ..put("q", "a")
    });
    w.put("q", "b");
    assert_eq!(w.take(2, reserve("q")), "a");
    w.wait(1001);
    let [(PendingDecisionKind::LeaseEnd, id)] = decisions_of(&mut w)[..] else {
        panic!("no decision is pending");
    };
    // Its holder has lost it.
    let finish = Command::Settle {
        id,
        by: By::Owner,
        how: How::Finish,
    };
    assert_eq!(command_error(w.ask(2, finish)), CommandError::NotFound);
    do_all(&mut w, vec![], vec![Effect::Conclude(id)], None);
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "b".into()));
}

#[test]
fn a_message_tried_too_often_goes_where_the_hook_or_the_rule_sends_it() {
    let settings = Settings {
        defaults: QueueSettings {
            attempts_max: 1,
            dead_letter: DeadLetter::To("dead".into()),
            ..QueueSettings::default()
        },
        ..Settings::default()
    };
    let mut w = World::with(settings);
    want(&mut w, false, false, true);
    for body in ["a", "b", "c"] {
        w.put("q", body);
        assert_eq!(w.take(2, reserve("q")), body);
    }
    w.hang_up(2);
    let mut ids: Vec<MessageId> = decisions_of(&mut w).into_iter().map(|(_, id)| id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [MessageId(1), MessageId(2), MessageId(3)]);
    assert_eq!(
        (w.pop("q"), w.pop("dead")),
        ("empty".into(), "empty".into())
    );
    let effects = vec![
        Effect::Conclude(ids[0]),
        Effect::Move {
            id: ids[1],
            to: "mine".into(),
        },
    ];
    do_all(&mut w, vec![], effects, None);
    assert_eq!((w.pop("dead"), w.pop("mine")), ("a".into(), "b".into()));
    // The hooks go: what is undecided has what happens by itself.
    want(&mut w, false, false, false);
    assert_eq!(w.pop("dead"), "c");
    replayed(&mut w);
}

#[test]
fn a_dropped_queue_takes_pending_messages_along() {
    let mut w = World::new();
    want(&mut w, true, false, false);
    w.put_as(expiring("q", "a", 1000));
    w.wait(1001);
    let [(_, id)] = decisions_of(&mut w)[..] else {
        panic!("no decision is pending");
    };
    w.ask(1, Command::Drop("q".into()));
    do_all(&mut w, vec![], vec![Effect::Conclude(id)], None);
    w.engine.verify().expect("consistent");
    assert_eq!(w.pop("q"), "empty");
    replayed(&mut w);
}

/// The id of a batch that a step is to make.
fn number(w: &mut World) -> BatchId {
    let queue = "done".into();
    let ask = BatchRequest::Number {
        queue,
        parent: None,
    };
    match w.ask(1, Command::Batch(ask)) {
        Some(Outcome::Batch(batch)) => batch.id,
        other => panic!("no id: {other:?}"),
    }
}

fn batch_of(body: &str, parent: Option<BatchId>) -> Box<NewBatch> {
    Box::new(NewBatch {
        parent,
        success: Some(Callback {
            queue: "done".into(),
            body: body.as_bytes().into(),
            ..Callback::default()
        }),
        ..NewBatch::default()
    })
}

fn make(id: BatchId, body: &str) -> Effect {
    let new = batch_of(body, None);
    Effect::MakeBatch { id, new }
}

fn member(queue: &str, body: &str, batch: BatchId) -> Put {
    let more = PutMore {
        batch: Some(Tie::member(batch)),
        ..PutMore::default()
    };
    Put {
        more: Some(Box::new(more)),
        ..put(queue, body)
    }
}

fn progress_of(w: &mut World, id: BatchId) -> Option<Progress> {
    match w.ask(1, Command::Batch(BatchRequest::Show(id))) {
        Some(Outcome::Batch(batch)) => Some(batch.progress),
        _ => None,
    }
}

#[test]
fn a_step_makes_batches_puts_into_them_and_commits_them() {
    let mut w = World::new();
    let (outer, inner) = (number(&mut w), number(&mut w));
    assert_ne!(outer, inner);
    // In whatever order they stand: made first, committed last.
    let effects = vec![
        Effect::CommitBatch(outer),
        Effect::CommitBatch(inner),
        Effect::Put(member("q", "a", inner)),
        make(outer, "all"),
        Effect::MakeBatch {
            id: inner,
            new: batch_of("these", Some(outer)),
        },
    ];
    let then = Command::Put(member("q", "b", outer));
    let done = do_all(&mut w, vec![], effects, Some(then));
    assert!(
        matches!(done, Some(Outcome::Transaction { .. })),
        "{done:?}"
    );
    for id in [outer, inner] {
        let progress = progress_of(&mut w, id).expect("it is there");
        assert_eq!(
            (progress.total, progress.pending, progress.open),
            (1, 1, false)
        );
    }
    replayed(&mut w);
    w.restart();
    assert_eq!(w.pop("done"), "empty");
    assert_eq!((w.pop("q"), w.pop("q")), ("b".into(), "a".into()));
    // The outer one waits for the other.
    w.wait(1);
    assert_eq!(
        (w.pop("done"), w.pop("done")),
        ("these".into(), "all".into())
    );
    // Ids are used up, also by batches that never were.
    assert!(number(&mut w) > inner);
}

#[test]
fn a_command_that_is_refused_leaves_no_batch_of_its_step() {
    let mut w = World::new();
    let id = number(&mut w);
    let step = |w: &mut World, then| {
        let effects = vec![make(id, "all"), Effect::Put(member("q", "a", id))];
        do_all(w, vec![], effects, Some(then))
    };
    let touch = Command::Touch(MessageId(77));
    assert_eq!(command_error(step(&mut w, touch)), CommandError::NotFound);
    assert_eq!(progress_of(&mut w, id), None);
    assert_eq!(w.pop("q"), "empty");
    // A take sees what the step has put, as a member.
    let taken = step(&mut w, Command::Take(plain("q")));
    let Some(Outcome::Transaction {
        then: Some(then), ..
    }) = taken
    else {
        panic!("{taken:?}");
    };
    assert_eq!(text(&then), "a");
    let progress = progress_of(&mut w, id).expect("it is there");
    assert_eq!((progress.total, progress.pending), (1, 0));
    replayed(&mut w);
}

#[test]
fn batches_that_a_step_cannot_make_refuse_all_of_it() {
    let settings = Settings {
        batches_max: 2,
        batch_bytes_max: 20,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let ids = [number(&mut w), number(&mut w), number(&mut w)];
    let mut unknown = ids[2];
    unknown.0 += 1000;
    let big = make(ids[0], "a callback that is too long");
    let child = Effect::MakeBatch {
        id: ids[1],
        new: batch_of("x", Some(unknown)),
    };
    for (effects, why) in [
        (
            ids.map(|id| make(id, "x")).to_vec(),
            CommandError::TooManyBatches,
        ),
        (vec![big], CommandError::BatchTooLarge),
        (vec![child], CommandError::BatchNotFound),
        (
            vec![Effect::CommitBatch(unknown)],
            CommandError::BatchNotFound,
        ),
        (
            vec![Effect::Put(member("q", "a", unknown))],
            CommandError::BatchNotFound,
        ),
        // Of an id that nobody was given, or that is used.
        (vec![make(unknown, "x")], CommandError::Conflict),
        (
            vec![make(ids[0], "x"), make(ids[0], "x")],
            CommandError::Conflict,
        ),
    ] {
        let mut all = vec![set("k", Some("1"), None)];
        all.extend(effects);
        let then = Command::Put(put("q", "x"));
        let refused = do_all(&mut w, vec![], all.clone(), Some(then));
        assert_eq!(command_error(refused), why, "{all:?}");
        assert_eq!((entries(&mut w), w.pop("q")), (vec![], "empty".into()));
        assert!(ids.iter().all(|id| progress_of(&mut w, *id).is_none()));
    }
    let made = do_all(&mut w, vec![], vec![make(ids[0], "x")], None);
    assert!(
        matches!(made, Some(Outcome::Transaction { .. })),
        "{made:?}"
    );
    let again = do_all(&mut w, vec![], vec![make(ids[0], "x")], None);
    assert_eq!(command_error(again), CommandError::Conflict);
    // That one was asked for says nothing to puts that come later.
    let later = do_all(
        &mut w,
        vec![],
        vec![Effect::Put(member("q", "a", ids[1]))],
        None,
    );
    assert_eq!(command_error(later), CommandError::BatchNotFound);
}
