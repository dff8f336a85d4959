//! The ends of messages that are gone.

use quintet_engine::*;
use quintet_sim::world::{World, reserve};
use quintet_types::*;

use crate::cold::Runs;

fn remembering(max: u32) -> World {
    World::with(Settings {
        ends_max: max,
        ..Settings::default()
    })
}

fn why(engine: &Engine, id: MessageId) -> Option<Ended> {
    Some(engine.end_of(id)?.why)
}

#[test]
fn each_end_is_recorded_with_reason_time_and_caller() {
    let mut w = remembering(100);
    let ids: Vec<MessageId> = ["a", "b", "c", "d", "e"]
        .map(|body| w.put("q", body))
        .into();
    let expires = w.put_as(Put {
        expires: Expiry::In(40),
        ..Put::new("late".into(), Body::new(b"x"))
    });
    assert_eq!(w.pop("q"), "a");
    assert_eq!(w.take(1, reserve("q")), "b");
    let (by, how) = (By::Owner, How::Finish);
    w.ask(
        1,
        Command::Settle {
            id: ids[1],
            by,
            how,
        },
    );
    let user = Caller {
        client_id: ClientId(5),
        principal: Principal(9),
    };
    w.submit(
        user,
        Command::Delete {
            id: ids[2],
            by: By::Anyone,
        },
    );
    let body = Some(Body::new(b"new"));
    let edit = Box::new(Edit {
        body,
        ..Edit::default()
    });
    let Some(Outcome::Put { id: anew, .. }) = w.ask(6, Command::Edit(ids[3], edit)) else {
        panic!("it has no new id");
    };
    let began = w.engine.now();
    w.wait(50);
    let (queue, reserved) = ("q".into(), true);
    w.ask(9, Command::Flush { queue, reserved });
    w.tick();
    w.tick();

    let end = |id| w.engine.end_of(id).expect("it is known");
    let expected = [
        Ended::Taken,
        Ended::Finished,
        Ended::Deleted,
        Ended::Edited,
        Ended::Purged,
    ];
    for (id, expected) in ids.iter().zip(expected) {
        let end = end(*id);
        assert_eq!((end.why, end.queue), (expected, Some("q".into())), "{id:?}");
    }
    assert_eq!(end(ids[3]).is_now, Some(anew));
    assert_eq!(end(ids[2]).by, Some(user));
    assert_eq!(end(ids[1]).by.map(|by| by.client_id), Some(ClientId(1)));
    let late = end(expires);
    assert_eq!((late.why, late.by), (Ended::Expired, None));
    assert!(late.at >= Ms(began.0 + 40) && end(ids[1]).at <= began);
    assert_eq!(w.engine.end_of(MessageId(77)), None);

    // The log tells all of it but whose commands these were.
    let replayed = w.replayed(SegmentRef(0));
    for id in ids.iter().chain([&expires]) {
        let known = end(*id);
        let ending = replayed.end_of(*id);
        assert_eq!(
            ending.as_ref().map(|end| end.why),
            Some(known.why),
            "{id:?}"
        );
        assert_eq!(ending.as_ref().and_then(|end| end.is_now), known.is_now);
        assert_eq!(ending.and_then(|end| end.by), None, "{id:?}");
    }
    w.verify();
}

#[test]
fn the_newest_are_known_and_none_where_none_is_kept() {
    let mut w = remembering(3);
    let ids: Vec<MessageId> = (0..5).map(|n| w.put("q", &n.to_string())).collect();
    (0..5).for_each(|_| drop(w.pop("q")));
    let known = |w: &World| {
        ids.iter()
            .map(|id| why(&w.engine, *id).is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(known(&w), [false, false, true, true, true]);
    w.engine.configure(Settings::default());
    assert_eq!(known(&w), [false; 5]);
}

#[test]
fn a_dropped_message_is_not_confused_with_a_later_one() {
    let mut w = remembering(100);
    let gone = w.put("q", "gone");
    w.ask(
        1,
        Command::Delete {
            id: gone,
            by: By::Anyone,
        },
    );
    w.put("q", "later");
    let end = w.engine.end_of(gone).expect("it is known");
    assert_eq!((end.why, end.is_now), (Ended::Deleted, None));
    // Of a repeat that takes the place of the first.
    let put = || {
        let mut put = Put::new("q".into(), Body::new(b"x"));
        put.more = Some(Box::new(PutMore {
            dedupe: Some(Dedupe {
                id: (*b"same").into(),
                window_ms: Some(60_000),
                scope: None,
                on_repeat: Some(OnRepeat::Replace),
            }),
            ..PutMore::default()
        }));
        put
    };
    let (first, second) = (w.put_as(put()), w.put_as(put()));
    let end = w.engine.end_of(first).expect("it is known");
    assert_eq!((end.why, end.is_now), (Ended::Replaced, Some(second)));
}

#[test]
fn a_purge_is_recorded_with_its_own_time_and_client() {
    let mut w = remembering(100);
    let ids = ["a", "b"].map(|body| w.put("q", body));
    w.wait(50);
    let purged = w.engine.now();
    let (queue, reserved) = ("q".into(), false);
    w.ask(9, Command::Flush { queue, reserved });
    // Its messages are freed later, behind a command of another client.
    w.wait(50);
    w.put("other", "c");
    assert_eq!(w.pop("other"), "c");
    w.tick();
    w.tick();
    for id in ids {
        let end = w.engine.end_of(id).expect("it is known");
        let by = end.by.map(|by| by.client_id);
        assert_eq!(
            (end.why, end.at, by),
            (Ended::Purged, purged, Some(ClientId(9)))
        );
    }
}

#[test]
fn a_purge_of_more_messages_than_ends_max_is_named_for_the_others() {
    let mut w = remembering(3);
    let ids: Vec<MessageId> = (0..6).map(|n| w.put("q", &n.to_string())).collect();
    let purged = w.engine.now();
    let (queue, reserved) = ("q".into(), false);
    w.ask(9, Command::Flush { queue, reserved });
    w.tick();
    w.tick();
    let never = MessageId(ids[5].0 + 1);
    let is_told = |engine: &Engine, by: Option<ClientId>| {
        let known = ids.iter().map(|id| why(engine, *id).is_some());
        assert_eq!(
            known.collect::<Vec<_>>(),
            [false, false, false, true, true, true]
        );
        for id in &ids[..3] {
            let purge = engine.purge_of(*id).expect("it is known");
            assert_eq!(
                (purge.queue, purge.why, purge.by.map(|by| by.client_id)),
                (Some("q".into()), Ended::Purged, by)
            );
        }
        assert_eq!([ids[3], never].map(|id| engine.purge_of(id)), [None, None]);
    };
    is_told(&w.engine, Some(ClientId(9)));
    let at = w.engine.purge_of(ids[0]).map(|purge| purge.at);
    assert_eq!(at, Some(purged));
    w.restart();
    w.tick();
    w.tick();
    is_told(&w.engine, None);
    // One of another client that ended by itself is none of it.
    w.put("q", "x");
    assert_eq!(w.pop("q"), "x");
    assert_eq!(w.engine.purge_of(never), None);
    w.engine.configure(Settings::default());
    assert_eq!(w.engine.purge_of(ids[0]), None);
}

#[test]
fn a_purge_of_messages_in_runs_is_named_for_unknown_ids() {
    // Blocks of runs fill half of the record at most.
    for (max, kept) in [(4, 2), (100, 5)] {
        let mut w = remembering(max);
        let ids: Vec<MessageId> = (0..5).map(|n| w.put("q", &n.to_string())).collect();
        Runs::default().evict(&mut w);
        let (queue, reserved) = ("q".into(), false);
        w.ask(9, Command::Flush { queue, reserved });
        let purge = |w: &World, id: MessageId| {
            let purge = w.engine.purge_of(id)?;
            Some((purge.why, purge.by?.client_id))
        };
        let blocks = w.engine.take_purged_blocks();
        assert_eq!(blocks.len(), kept);
        assert_eq!(purge(&w, ids[0]).is_some(), kept < 5);
        // Their files cannot be read.
        for block in &blocks {
            w.engine.add_purged(block, &[]);
        }
        for id in &ids {
            assert_eq!(purge(&w, *id), Some((Ended::Purged, ClientId(9))));
            assert_eq!(w.engine.end_of(*id), None);
        }
        assert_eq!(purge(&w, MessageId(ids[4].0 + 1)), None);
    }
}

/// Of the queue's deletion, also for a message that was reserved then, and of a purge in slices,
/// which a put at the same place does not make an edit.
#[test]
fn a_purge_and_the_end_of_a_queue_have_different_ends() {
    let mut w = remembering(100);
    let purged = w.put("q", "a");
    let delete = BulkOp {
        queue: "q".into(),
        state: ListState::Ready,
        filter: Filter::default(),
        action: BulkAction::Delete,
        after: None,
        max: 9,
    };
    w.ask(9, Command::BulkOp(Box::new(delete)));
    let ids = ["b", "c"].map(|body| w.put("q", body));
    assert_eq!(w.take(1, reserve("q")), "b");
    w.ask(9, Command::Drop("q".into()));
    w.ask(
        1,
        Command::Settle {
            id: ids[0],
            by: By::Owner,
            how: How::Release {
                priority: None,
                due: When::Now,
                back_to: None,
            },
        },
    );
    w.tick();
    w.tick();
    let replayed = w.replayed(SegmentRef(0));
    for (id, why, by) in [
        (purged, Ended::Purged, Some(ClientId(9))),
        (ids[1], Ended::QueueDeleted, Some(ClientId(9))),
        // Its holder has not deleted the queue.
        (ids[0], Ended::QueueDeleted, None),
    ] {
        let end = w.engine.end_of(id).expect("it is known");
        assert_eq!((end.why, end.by.map(|by| by.client_id)), (why, by));
        assert_eq!(replayed.end_of(id).map(|end| end.why), Some(why));
    }
}

/// A message that is finished and kept has left the queue then: its deletion, by id, by its owner
/// or with many others, is no second leaving, also for a server that reads the log.
#[test]
fn a_message_that_was_archived_is_counted_once() {
    let mut w = remembering(100);
    let ids = ["a", "b", "c", "d"].map(|body| {
        let id = w.put("q", body);
        assert_eq!(w.take(1, reserve("q")), body);
        let (relayed, status) = (false, Box::default());
        let (by, how) = (By::Owner, How::Archive { relayed, status });
        w.ask(1, Command::Settle { id, by, how });
        id
    });
    let (id, by) = (ids[0], By::Anyone);
    w.ask(9, Command::Delete { id, by });
    let (id, by, how) = (ids[1], By::Anyone, How::Finish);
    w.ask(9, Command::Settle { id, by, how });
    let delete = BulkOp {
        queue: "q".into(),
        state: ListState::Archived,
        filter: Filter::default(),
        action: BulkAction::Delete,
        after: None,
        max: 1,
    };
    w.ask(9, Command::BulkOp(Box::new(delete)));
    w.put("q", "waits");
    let id = w.put("q", "e");
    w.ask(9, Command::Delete { id, by });
    let totals = |engine: &Engine| {
        let mut totals = QueueTotals::default();
        engine.snapshot(&mut |fact| {
            if let Fact::QueueCounted { totals: found, .. } = fact {
                totals = **found;
            }
        });
        totals
    };
    for engine in [&w.engine, &w.replayed(SegmentRef(0))] {
        let totals = totals(engine);
        assert_eq!((totals.finished, totals.deleted), (4, 1));
        let left: u64 = totals.left().values().iter().sum();
        assert_eq!(totals.came() - left, 1, "one waits");
        let ends = [Ended::Deleted, Ended::Deleted, Ended::Purged];
        for (id, end) in ids.iter().zip(ends) {
            assert_eq!(why(engine, *id), Some(end));
        }
    }
}

fn settle(w: &mut World, client_id: u64, id: MessageId, how: How) {
    let by = By::Owner;
    w.ask(client_id, Command::Settle { id, by, how });
}

fn release() -> How {
    How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    }
}

#[test]
fn attempts_without_success_are_known_with_their_holders_until_a_restart() {
    let mut w = remembering(100);
    let id = w.put("q", "a");
    let take = |w: &mut World, client_id| assert_eq!(w.take(client_id, reserve("q")), "a");
    take(&mut w, 1);
    let (error, note) = ((*b"HTTP 503\nmore").into(), Vec::new());
    settle(&mut w, 1, id, How::Fail { error, note });
    take(&mut w, 2);
    w.hang_up(2);
    take(&mut w, 3);
    settle(&mut w, 3, id, release());
    take(&mut w, 4);
    let began = w.now;
    w.wait(61_000);
    take(&mut w, 5);
    let (priority, reason) = (None, (*b"bad").into());
    settle(&mut w, 5, id, How::Bury { priority, reason });

    let known = w.engine.attempts_of(id);
    let is = |attempt: &Attempt, number: u32, end: AttemptEnd, error: &str, client_id: u64| {
        let found = (attempt.number, attempt.end, attempt.client_id);
        assert_eq!(found, (number, end, ClientId(client_id)));
        assert_eq!(*attempt.error, *error.as_bytes());
    };
    assert_eq!(known.len(), 5);
    is(&known[0], 1, AttemptEnd::Failed, "HTTP 503", 1);
    is(&known[1], 2, AttemptEnd::Lost, "", 2);
    is(&known[2], 3, AttemptEnd::Released, "", 3);
    is(&known[3], 4, AttemptEnd::TimedOut, "", 4);
    is(&known[4], 5, AttemptEnd::Buried, "bad", 5);
    assert!(known[2].at <= began && known[3].at.since(began) >= 60_000);

    // The log tells all of it but who they were.
    w.restart();
    let again = w.engine.attempts_of(id);
    assert_eq!(again.len(), 5);
    for (before, after) in known.iter().zip(&again) {
        let error = String::from_utf8_lossy(&before.error);
        is(after, before.number, before.end, &error, 0);
    }
    w.engine.configure(Settings::default());
    assert!(w.engine.attempts_of(id).is_empty());
}

#[test]
fn an_attempt_is_known_after_which_hooks_decide() {
    let rule = Overrides {
        attempts_max: Some(1),
        ..Overrides::default()
    };
    let mut w = World::with(Settings {
        ends_max: 100,
        rules: vec![(Pattern::new("q"), rule)],
        ..Settings::default()
    });
    let hooks = PendingDecisions {
        client_id: ClientId(77),
        dead_letter: true,
        ..PendingDecisions::default()
    };
    w.engine
        .set_pending_decisions(w.now, hooks, &mut w.facts, &mut w.deliveries);
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    w.hang_up(1);
    assert_eq!(w.engine.take_pending_decisions().len(), 1);
    let known = w.engine.attempts_of(id).into_iter();
    let known: Vec<_> = known.map(|one| (one.end, one.client_id)).collect();
    assert_eq!(known, [(AttemptEnd::Decided, ClientId(1))]);
}

#[test]
fn the_newest_attempts_are_known_and_no_success_is_one() {
    // Ten bytes for each end: two attempts without errors.
    for (ends, kept) in [(20, 2), (1000, 20), (0, 0)] {
        let mut w = remembering(ends);
        let id = w.put("q", "a");
        for _ in 0..22 {
            assert_eq!(w.take(1, reserve("q")), "a");
            settle(&mut w, 1, id, release());
        }
        assert_eq!(w.take(1, reserve("q")), "a");
        settle(&mut w, 1, id, How::Finish);
        let known = w.engine.attempts_of(id).into_iter();
        let numbers: Vec<u32> = known.map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (23 - kept..23).collect::<Vec<u32>>());
    }
}
