//! Messages by their own names, whichever shard they are in.

use quintet_types::{ByName, Cancel, How, NamedAction, Pick, Wait};

use super::*;

/// Does it to the message of this name, by a client that knows the name alone.
fn by_name(name: &Name, action: NamedAction) -> Command {
    Command::ByName(Box::new(ByName {
        queue: None,
        name: name.as_bytes().into(),
        by: By::Bearer,
        action,
    }))
}

fn finish_named(name: &Name) -> Command {
    by_name(name, NamedAction::Settle(How::Finish))
}

/// Puts a message into each of these queues, whose name is the queue's, and reserves all of them.
fn reserve_named(core: &Core, queues: &[Name]) {
    let lease = LeaseRequest {
        owner: LeaseOwner::Time,
        time: LeaseTime::TtrElse(60_000),
        back_to: BackTo::Tail,
        held_max: 0,
    };
    for queue in queues {
        let more = PutMore {
            name: Some(queue.as_bytes().into()),
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..put(queue, 1, "x")
        };
        assert!(matches!(ask(core, Command::Put(put)), Outcome::Put { .. }));
    }
    // The queue named first has the newest.
    let order: Vec<Name> = queues.iter().rev().cloned().collect();
    for queue in &order {
        let take = Take {
            queues: order.iter().cloned().collect(),
            pick: Pick::InOrder,
            lease: Some(lease),
            ..Take::default()
        };
        let Outcome::Messages(taken) = ask(core, Command::Take(take)) else {
            panic!("there is one more");
        };
        assert_eq!(taken[0].name().map(|name| &**name), Some(queue.as_bytes()));
    }
}

/// The shards are asked in turn, until one has a reserved message of the name.
#[test]
fn a_message_is_settled_by_its_name_whichever_shard_it_is_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let q = names();
    reserve_named(&core, &q);
    for name in [&q[2], &q[0], &q[1]] {
        assert_eq!(ask(&core, finish_named(name)), Outcome::Done);
        let again = ask(&core, finish_named(name));
        assert_eq!(again, Outcome::Refused(CommandError::NotFound));
    }
}

/// Finishes the message of this name. Answers the outcome, and the shards that were locked for it.
fn finish(core: &Core, name: &Name) -> (Outcome, Vec<usize>) {
    let counts = || -> Vec<u64> { core.shards.iter().map(|lock| lock.locked()).collect() };
    let (before, mut trail) = (counts(), Trail::default());
    let decided = Access::new(core, core.clock.now(), &mut trail)
        .submit(Caller::default(), finish_named(name));
    let moved = counts().into_iter().zip(before).enumerate();
    let moved = moved.filter(|(_, (now, before))| now > before);
    let shards = moved.map(|(shard, _)| shard).collect();
    core.see_to(trail);
    let Decided::Now(outcome, ..) = decided else {
        panic!("no settling waits");
    };
    (outcome, shards)
}

#[test]
fn a_message_that_is_settled_by_its_name_locks_its_own_shard_alone() {
    const FOUR: usize = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let core = core_of(FOUR, folder.path(), &Settings::default());
    let q = names_in(FOUR);
    reserve_named(&core, &q);
    for shard in [2, 0, 3, 1] {
        assert_eq!(finish(&core, &q[shard]), (Outcome::Done, vec![shard]));
    }

    // A message that comes to a client that waits is remembered as well.
    let take = Take {
        queues: q[1..].iter().cloned().collect(),
        pick: Pick::InOrder,
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time: LeaseTime::TtrElse(60_000),
            back_to: BackTo::Tail,
            held_max: 0,
        }),
        wait: Wait::For(60_000),
        ..Take::default()
    };
    let mut trail = Trail::default();
    let caller = Caller {
        client_id: ClientId(2),
        ..Caller::default()
    };
    let waits =
        Access::new(&core, core.clock.now(), &mut trail).submit(caller, Command::Take(take));
    assert!(matches!(waits, Decided::Later));
    let more = PutMore {
        name: Some(b"comes later".as_slice().into()),
        ..PutMore::default()
    };
    let put = Put {
        more: Some(Box::new(more)),
        ..put(&q[3], 1, "x")
    };
    Access::new(&core, core.clock.now(), &mut trail).submit(Caller::default(), Command::Put(put));
    assert_eq!(trail.mail.len(), 1);
    core.see_to(trail);
    let later = finish(&core, &Name::from("comes later"));
    assert_eq!(later, (Outcome::Done, vec![3]));

    // Nobody has it: all shards say so.
    let none = Outcome::Refused(CommandError::NotFound);
    assert_eq!(finish(&core, &q[2]), (none, vec![0, 1, 2, 3]));
}

#[test]
fn a_report_by_name_is_of_the_reserved_message_and_else_of_the_newest_whichever_shard_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let q = names();
    let job = Name::from("job");
    let put_tracked = |queue: &Name| {
        let more = PutMore {
            name: Some(job.as_bytes().into()),
            tracked: true,
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..put(queue, 1, "x")
        };
        assert!(matches!(ask(&core, Command::Put(put)), Outcome::Put { .. }));
    };
    let take = |queue: &Name, lease| {
        let take = Take {
            queues: [queue.clone()].into_iter().collect(),
            lease,
            ..Take::default()
        };
        let taken = ask(&core, Command::Take(take));
        assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
    };
    let report = |percent| {
        let report = NamedAction::Progress(Some(percent), None);
        assert_eq!(ask(&core, by_name(&job, report)), Outcome::Done);
        let in_queue = |queue: &Name| {
            let ask_for = Command::ByName(Box::new(ByName {
                queue: Some(queue.clone()),
                name: job.as_bytes().into(),
                by: By::Bearer,
                action: NamedAction::Track,
            }));
            let Outcome::Tracked(_, track) = ask(&core, ask_for) else {
                return None;
            };
            track.percent
        };
        q.iter().map(in_queue).collect::<Vec<_>>()
    };
    // The first shard knows what became of one.
    put_tracked(&q[0]);
    take(&q[0], None);
    put_tracked(&q[1]);
    assert_eq!(report(1), [None, Some(1), None]);
    take(
        &q[1],
        Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time: LeaseTime::TtrElse(60_000),
            back_to: BackTo::Tail,
            held_max: 0,
        }),
    );
    // One that was handed out later, elsewhere, is asked for first.
    put_tracked(&q[2]);
    take(&q[2], None);
    assert_eq!(report(2), [None, Some(2), None]);
}

#[test]
fn a_message_that_is_cancelled_already_hides_no_namesake_of_another_shard() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let job = Name::from("job");
    for queue in &names()[..2] {
        let more = PutMore {
            name: Some(job.as_bytes().into()),
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..put(queue, 1, "x")
        };
        assert!(matches!(ask(&core, Command::Put(put)), Outcome::Put { .. }));
        let take = Take {
            queues: [queue.clone()].into_iter().collect(),
            lease: Some(LeaseRequest {
                owner: LeaseOwner::Time,
                time: LeaseTime::TtrElse(60_000),
                back_to: BackTo::Tail,
                held_max: 0,
            }),
            ..Take::default()
        };
        let taken = ask(&core, Command::Take(take));
        assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
    }
    let cancel = || {
        let cancel = Cancel {
            reason: Box::default(),
            grace_ms: 60_000,
        };
        ask(&core, by_name(&job, NamedAction::Cancel(cancel)))
    };
    assert_eq!([cancel(), cancel()], [Outcome::Done, Outcome::Done]);
    assert_eq!(cancel(), Outcome::Refused(CommandError::AlreadyCancelled));
}
