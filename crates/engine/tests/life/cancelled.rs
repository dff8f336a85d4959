//! Cancelled messages.

use quintet_engine::*;
use quintet_sim::world::{World, open, reserve, text};
use quintet_types::*;

const GRACE: u64 = 1000;

fn cancel(grace_ms: u64) -> Cancel {
    Cancel {
        reason: b"no longer wanted".as_slice().into(),
        grace_ms,
    }
}

fn ask(w: &mut World, client_id: u64, command: Command) -> String {
    text(&w.ask(client_id, command).expect("it does not wait"))
}

fn cancels(w: &mut World, id: MessageId) -> String {
    ask(w, 9, Command::Cancel(id, Box::new(cancel(GRACE))))
}

fn tracked(w: &mut World, name: &str) -> MessageId {
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            name: Some(name.as_bytes().into()),
            tracked: true,
            ..PutMore::default()
        })),
        ..Put::new("q".into(), Body::new(name.as_bytes()))
    })
}

fn named(w: &mut World, name: &str, action: NamedAction) -> Outcome {
    let by_name = ByName {
        queue: Some("q".into()),
        name: name.as_bytes().into(),
        by: By::Anyone,
        action,
    };
    let outcome = w.ask(9, Command::ByName(Box::new(by_name)));
    outcome.expect("it does not wait")
}

fn track(w: &mut World, name: &str) -> (TrackState, String) {
    let Outcome::Tracked(_, track) = named(w, name, NamedAction::Track) else {
        panic!("{name} is not tracked");
    };
    let note = String::from_utf8_lossy(&track.note).into_owned();
    (track.state, note)
}

/// No character is cut.
#[test]
fn a_long_note_of_a_tracked_message_stays_text() {
    let mut w = World::new();
    let id = tracked(&mut w, "n");
    let text = |letters| format!("x{}", "\u{e9}".repeat(letters));
    let reason = text(600).into_bytes().into();
    let priority = None;
    let bury = settle(id, How::Bury { priority, reason });
    assert_eq!(w.ask(9, bury), Some(Outcome::Done));
    assert_eq!(track(&mut w, "n").1, text(511));
}

fn cancelled() -> (TrackState, String) {
    (TrackState::Cancelled, "no longer wanted".into())
}

fn settle(id: MessageId, how: How) -> Command {
    let by = By::Anyone;
    Command::Settle { id, by, how }
}

fn extend(id: MessageId) -> Command {
    let (by, ms) = (By::Anyone, Some(60_000));
    Command::Extend { id, by, ms }
}

/// A take under a lease of time alone, of a minute.
fn timed() -> Take {
    let mut take = reserve("q");
    if let Some(lease) = &mut take.lease {
        (lease.owner, lease.time) = (LeaseOwner::Time, LeaseTime::Fixed(60_000));
    }
    take
}

fn totals(w: &World) -> QueueTotals {
    let mut totals = QueueTotals::default();
    w.engine.snapshot(&mut |fact| {
        if let Fact::QueueCounted { totals: found, .. } = fact {
            totals = **found;
        }
    });
    totals
}

/// A standby that read the same facts has the same state.
fn is_replayed(w: &World) {
    assert_eq!(w.replayed(SegmentRef(0)).image(), w.engine.image());
    w.verify();
}

#[test]
fn a_waiting_message_is_cancelled_at_once_and_its_record_has_the_reason() {
    let mut w = World::new();
    tracked(&mut w, "ready");
    let buried = tracked(&mut w, "buried");
    ask(
        &mut w,
        1,
        Command::ReserveId {
            id: buried,
            lease: reserve("q").lease.expect("one"),
        },
    );
    let reason = Box::default();
    ask(
        &mut w,
        1,
        settle(
            buried,
            How::Bury {
                priority: None,
                reason,
            },
        ),
    );
    let delayed = w.put_as(Put {
        due: When::In(50),
        ..Put::new("q".into(), Body::new(b"delayed"))
    });
    assert_eq!(cancels(&mut w, buried), "Done");
    assert_eq!(cancels(&mut w, delayed), "Done");
    assert_eq!(
        named(&mut w, "ready", NamedAction::Cancel(cancel(0))),
        Outcome::Done
    );
    is_replayed(&w);
    w.restart();
    w.wait(100);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(track(&mut w, "ready"), cancelled());
    assert_eq!(track(&mut w, "buried"), cancelled());
    assert_eq!(totals(&w).cancelled, 3);
    // Each is known to have been cancelled, by name also when it is gone.
    let again = named(&mut w, "ready", NamedAction::Cancel(cancel(0)));
    assert_eq!(again, Outcome::Refused(CommandError::AlreadyCancelled));
    assert_eq!(cancels(&mut w, delayed), "message not found");
}

#[test]
fn the_holder_gets_a_cancel_and_has_the_grace_and_no_more() {
    let mut w = World::new();
    let id = tracked(&mut w, "a");
    assert_eq!(w.take(1, timed()), "a");
    assert_eq!(ask(&mut w, 1, extend(id)), "Done");
    assert_eq!(cancels(&mut w, id), "Done");
    assert_eq!(track(&mut w, "a").0, TrackState::Reserved);
    assert_eq!(cancels(&mut w, id), "the message is cancelled already");
    w.restart();
    w.wait(GRACE - 1);
    assert_eq!(ask(&mut w, 1, extend(id)), "Cancelled");
    let by = By::Anyone;
    let (percent, text) = (Some(50), Some(b"at it".as_slice().into()));
    let progress = Command::Progress {
        id,
        by,
        percent,
        text,
    };
    assert_eq!(ask(&mut w, 1, progress), "Cancelled");
    is_replayed(&w);
    w.wait(2);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(ask(&mut w, 1, settle(id, How::Finish)), "message not found");
    assert_eq!(track(&mut w, "a"), cancelled());
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    assert_eq!((totals(&w).cancelled, totals(&w).timeouts), (1, 0));
}

#[test]
fn a_holder_that_reports_after_the_grace_gets_the_cancel_and_the_reason_stays() {
    let mut w = World::new();
    let id = tracked(&mut w, "a");
    assert_eq!(w.take(1, timed()), "a");
    cancels(&mut w, id);
    w.wait(GRACE);
    for restarts in [false, true] {
        if restarts {
            w.restart();
        }
        for report in [
            NamedAction::Progress(Some(50), Some(b"step 3".as_slice().into())),
            NamedAction::Progress(None, None),
            NamedAction::Until(Ms(0)),
        ] {
            assert_eq!(named(&mut w, "a", report), Outcome::Cancelled, "{restarts}");
        }
        assert_eq!(track(&mut w, "a"), cancelled(), "{restarts}");
    }
    is_replayed(&w);
}

#[test]
fn a_finish_within_the_grace_wins() {
    let mut w = World::new();
    let id = tracked(&mut w, "a");
    assert_eq!(w.take(1, timed()), "a");
    cancels(&mut w, id);
    w.restart();
    w.wait(GRACE - 1);
    assert_eq!(ask(&mut w, 1, settle(id, How::Finish)), "Done");
    assert_eq!(track(&mut w, "a").0, TrackState::Done);
    let late = named(&mut w, "a", NamedAction::Cancel(cancel(0)));
    assert_eq!(late, Outcome::Refused(CommandError::AlreadyDone));
    // One that is kept is done too.
    let id = w.put("q", "b");
    assert_eq!(w.take(1, timed()), "b");
    cancels(&mut w, id);
    let (relayed, status) = (false, Box::default());
    let archive = How::Archive { relayed, status };
    assert_eq!(ask(&mut w, 1, settle(id, archive)), "Done");
    w.wait(2 * GRACE);
    assert_eq!(cancels(&mut w, id), "the message is done already");
    is_replayed(&w);
}

#[test]
fn a_cancel_by_name_that_is_sent_again_cancels_no_message_that_waits() {
    for is_tracked in [true, false] {
        let mut w = World::new();
        let name = |tracked| PutMore {
            name: Some(b"a".as_slice().into()),
            tracked,
            ..PutMore::default()
        };
        w.put_as(Put {
            more: Some(Box::new(name(is_tracked))),
            ..Put::new("q".into(), Body::new(b"first"))
        });
        assert_eq!(w.take(1, timed()), "first");
        w.put_as(Put {
            more: Some(Box::new(name(true))),
            ..Put::new("q".into(), Body::new(b"second"))
        });
        let mut again = || named(&mut w, "a", NamedAction::Cancel(cancel(GRACE)));
        let refused = Outcome::Refused(CommandError::AlreadyCancelled);
        assert_eq!(again(), Outcome::Done, "{is_tracked}");
        assert_eq!((again(), again()), (refused.clone(), refused.clone()));
        // Somebody works on the second, too.
        assert_eq!(w.take(1, timed()), "second");
        let mut again = || named(&mut w, "a", NamedAction::Cancel(cancel(GRACE)));
        assert_eq!((again(), again()), (Outcome::Done, refused));
        w.wait(GRACE);
        assert_eq!(totals(&w).cancelled, 2);
        is_replayed(&w);
    }
}

type End = fn(&mut World, MessageId);

#[test]
fn however_its_lease_ends_it_does_not_come_back() {
    let ends: [(&str, End); 7] = [
        ("hang up", |w, _| w.hang_up(1)),
        ("restart", |w, _| w.restart()),
        ("no grace", |w, _| w.wait(GRACE)),
        ("release", |w, id| {
            let (priority, due, back_to) = (None, When::Now, None);
            ask(
                w,
                1,
                settle(
                    id,
                    How::Release {
                        priority,
                        due,
                        back_to,
                    },
                ),
            );
        }),
        ("delay", |w, id| {
            let (priority, due, back_to) = (None, When::In(5), None);
            ask(
                w,
                1,
                settle(
                    id,
                    How::Release {
                        priority,
                        due,
                        back_to,
                    },
                ),
            );
        }),
        ("fail", |w, id| {
            let (error, note) = (Box::default(), Vec::new());
            ask(w, 1, settle(id, How::Fail { error, note }));
        }),
        ("bury", |w, id| {
            let (priority, reason) = (None, Box::default());
            ask(w, 1, settle(id, How::Bury { priority, reason }));
        }),
    ];
    for (how, end) in ends {
        let mut w = World::new();
        let id = tracked(&mut w, "a");
        // Of a lease without a deadline the grace is one.
        assert_eq!(w.take(1, open("q")), "a", "{how}");
        cancels(&mut w, id);
        assert_eq!(
            ask(&mut w, 1, Command::Touch(id)),
            "message not found",
            "{how}"
        );
        end(&mut w, id);
        is_replayed(&w);
        assert_eq!(track(&mut w, "a"), cancelled(), "{how}");
        w.wait(100);
        assert_eq!(w.pop("q"), "empty", "{how}");
        let left = totals(&w);
        assert_eq!((left.cancelled, left.buries), (1, 0), "{how}");
    }
}

/// Else its lease would begin anew, beyond the grace.
#[test]
fn a_take_that_is_sent_again_does_not_get_a_cancelled_message_again() {
    let mut w = World::new();
    let id = w.put("q", "a");
    let take = || Take {
        token: Some(b"t".as_slice().into()),
        ..timed()
    };
    assert_eq!(w.take(1, take()), "a");
    assert_eq!(w.take(1, take()), "a");
    // Its lease ends before the grace, so that it stays as it was given.
    let grace = cancel(600_000);
    assert_eq!(ask(&mut w, 9, Command::Cancel(id, Box::new(grace))), "Done");
    assert_eq!(w.take(1, take()), "empty");
    w.wait(60_000);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(totals(&w).cancelled, 1);
}

/// The segment of the put is retired while the grace lasts.
#[test]
fn the_cancel_is_in_the_image_of_the_message() {
    let mut w = World::new();
    let id = w.put("q", "a");
    w.take(1, timed());
    cancels(&mut w, id);
    w.engine.set_segment_ref(SegmentRef(1));
    w.facts.clear();
    let mut snapshot = Vec::new();
    w.engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    w.engine.copy_out(SegmentRef(0), 0, u32::MAX, &mut w.facts);
    assert_eq!(w.replayed(SegmentRef(1)).image(), w.engine.image());
    w.restart();
    w.wait(GRACE);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(totals(&w).cancelled, 1);
}

#[test]
fn the_members_of_a_batch_are_cancelled_together_and_count_as_failed() {
    let mut w = World::new();
    let callback = Callback {
        queue: "done".into(),
        body: b"all ran".as_slice().into(),
        ..Callback::default()
    };
    let new = NewBatch {
        complete: Some(callback),
        ..NewBatch::default()
    };
    let made = w.ask(9, Command::Batch(BatchRequest::New(Box::new(new))));
    let Some(Outcome::Batch(batch)) = made else {
        panic!("{made:?}");
    };
    w.put("q", "other");
    assert_eq!(w.take(1, timed()), "other");
    w.put("q", "another");
    for body in ["a", "b", "c"] {
        w.put_as(Put {
            more: Some(Box::new(PutMore {
                batch: Some(Tie::member(batch.id)),
                ..PutMore::default()
            })),
            priority: Some(u32::from(body == "c")),
            ..Put::new("q".into(), Body::new(body.as_bytes()))
        });
    }
    w.ask(9, Command::Batch(BatchRequest::Commit(batch.id)));
    assert_eq!(w.take(1, timed()), "a");
    for (state, expected) in [
        (ListState::Ready, 2),
        (ListState::Reserved, 1),
        (ListState::Reserved, 0),
        (ListState::Archived, 0),
    ] {
        let bulk_op = BulkOp {
            queue: "q".into(),
            state,
            filter: Filter {
                batch: Some(batch.id),
                ..Filter::default()
            },
            action: BulkAction::Cancel(cancel(GRACE)),
            after: None,
            max: u32::MAX,
        };
        let Some(Outcome::BulkDone(bulk_done)) = w.ask(9, Command::BulkOp(Box::new(bulk_op)))
        else {
            panic!("it is not done");
        };
        assert_eq!(bulk_done.matched, expected, "{state:?}");
    }
    let progress = |w: &mut World| {
        let shown = w.ask(9, Command::Batch(BatchRequest::Show(batch.id)));
        let Some(Outcome::Batch(batch)) = shown else {
            panic!("{shown:?}");
        };
        (batch.progress.pending, batch.progress.failed)
    };
    assert_eq!(progress(&mut w), (3, 2));
    w.wait(GRACE);
    assert_eq!(progress(&mut w), (3, 3));
    assert_eq!(w.pop("done"), "all ran");
    assert_eq!(w.pop("q"), "another");
    is_replayed(&w);
}

/// The process may end after the epoch is written and before the removals.
#[test]
fn a_cancelled_message_does_not_come_back_after_a_start_that_was_cut_off() {
    let mut w = World::new();
    w.restart();
    let id = tracked(&mut w, "a");
    w.take(1, open("q"));
    assert_eq!(cancels(&mut w, id), "Done");
    w.restart();
    let epoch = w
        .facts
        .iter()
        .rposition(|fact| matches!(fact, Fact::Epoch { .. }));
    w.facts.truncate(epoch.expect("an epoch began") + 1);
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(track(&mut w, "a"), cancelled());
}
