//! Commands over several shards that no protocol has yet.

use std::path::Path;

use quintet_types::{
    BackTo, BatchRequest, Body, BulkAction, BulkOp, By, Callback, CallbackState, CommandError,
    Effect, Guard, LeaseOwner, LeaseRequest, LeaseTime, ListState, MessageId, NewBatch, Overrides,
    Pattern, Put, PutMore, Settings, StatsOf, TableRequest, Take, Tie, Transaction, shard_of_id,
    shard_of_queue,
};

use super::*;
use crate::{Contents, Core, Layout, Panics, Room, SyncPolicy, Work, locked, open_dir};

#[path = "named_tests.rs"]
mod named;

const SHARDS: usize = 3;

fn core(dir: &Path, settings: &Settings) -> Core {
    core_of(SHARDS, dir, settings)
}

fn core_of(shards: usize, dir: &Path, settings: &Settings) -> Core {
    let layout = Layout {
        shards,
        segment_bytes: 1 << 20,
        spares: 0,
        memory: 256 << 20,
    };
    let opened = open_dir(dir, &layout, settings).expect("it opens");
    let room = Room::new(dir.to_owned(), 1 << 20);
    Core::new(
        opened,
        SyncPolicy::Never,
        Vec::new(),
        room,
        Box::new(Panics),
    )
}

fn ask(core: &Core, command: Command) -> Outcome {
    let mut trail = Trail::default();
    let caller = Caller {
        client_id: ClientId(1),
        ..Caller::default()
    };
    let decided = Access::new(core, core.clock.now(), &mut trail).submit(caller, command);
    let Decided::Now(outcome, _, required) = decided else {
        panic!("nothing here waits");
    };
    // What was recorded is what the reply waits for, if it waits.
    let recorded = trail.recorded;
    assert!(required.written == 0 || recorded == 0 || required.written == recorded);
    assert!(trail.mail.is_empty());
    core.see_to(trail);
    outcome
}

/// A queue of each shard.
fn names() -> Vec<Name> {
    names_in(SHARDS)
}

fn names_in(shards: usize) -> Vec<Name> {
    let name_in = |shard| {
        let mut names = (0..).map(|n| Name::from(format!("q{n}").as_str()));
        names.find(|name| shard_of_queue(name.as_bytes(), shards) == shard)
    };
    (0..shards).map(|n| name_in(n).expect("one")).collect()
}

fn put(queue: &Name, priority: u32, body: &str) -> Put {
    Put {
        queue: queue.clone(),
        priority: Some(priority),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    }
}

fn put_many(core: &Core, puts: Vec<Put>) -> Vec<MessageId> {
    let outcome = ask(core, Command::PutMany(puts));
    let Outcome::PutMany(ids) = outcome else {
        panic!("{outcome:?}");
    };
    ids
}

fn take_many(core: &Core, queues: &[Name], max: u32) -> Vec<String> {
    let take = Take {
        queues: queues.iter().cloned().collect(),
        messages_max: max,
        ..Take::default()
    };
    let outcome = ask(core, Command::Take(take));
    if outcome == Outcome::Empty {
        return Vec::new();
    }
    let Outcome::Messages(messages) = outcome else {
        panic!("{outcome:?}");
    };
    let text =
        |m: &Message| String::from_utf8_lossy(m.body.as_small().unwrap_or_default()).into_owned();
    messages.iter().map(text).collect()
}

#[test]
fn many_puts_are_stored_all_or_none_over_shards() {
    let folder = tempfile::tempdir().expect("a folder");
    let q = names();
    let small = Overrides {
        messages_max: Some(1),
        ..Overrides::default()
    };
    let settings = Settings {
        rules: vec![(Pattern::new(&q[2].to_string()), small)],
        ..Settings::default()
    };
    let core_before = core(folder.path(), &settings);
    let puts = vec![
        put(&q[2], 3, "c"),
        put(&q[0], 1, "a"),
        put(&q[1], 2, "b"),
        put(&q[0], 4, "d"),
    ];
    let ids = put_many(&core_before, puts.clone());
    let shards: Vec<usize> = ids.iter().map(|&id| shard_of_id(id, SHARDS)).collect();
    assert_eq!(shards, [2, 0, 1, 0]);
    // One shard refuses, so none stores.
    let refused = ask(&core_before, Command::PutMany(puts));
    assert_eq!(refused, Outcome::Refused(CommandError::QueueFull));
    core_before.sync();
    drop(core_before);

    let core = core(folder.path(), &settings);
    assert_eq!(take_many(&core, &q, 3), ["a", "b", "c"]);
    assert_eq!(take_many(&core, &q, 9), ["d"]);
    assert_eq!(take_many(&core, &q, 9), [""; 0]);
}

/// A list over several shards is stored when its ids are sent, also when puts
/// wait for room in memory.
#[test]
fn many_puts_are_stored_before_they_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let q = names();
    let puts = || q.iter().map(|queue| put(queue, 1, "x")).collect();
    put_many(&core, puts());
    for shard in &core.shards {
        shard.lock(Work::Server).engine.set_memory_room(1);
    }
    let ids = put_many(&core, puts());
    assert!(ids.iter().all(|&id| id != MessageId::default()), "{ids:?}");
    for shard in &core.shards {
        shard.lock(Work::Server).engine.set_memory_room(0);
    }
    assert_eq!(take_many(&core, &q, 9), ["x"; 6]);
}

/// A start reads the state that was there, to the last lease's end: replay in the server leaves out
/// no kind of fact.
#[test]
fn bytes_read_from_the_log_are_the_written_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let q = names();
    let core = core(folder.path(), &Settings::default());
    let ids = put_many(&core, (0..9).map(|n| put(&q[n % 3], 1, "x")).collect());
    let take = |owner| {
        Command::Take(Take {
            queues: [q[0].clone()].into_iter().collect(),
            lease: Some(LeaseRequest {
                owner,
                time: LeaseTime::Fixed(60_000),
                back_to: BackTo::Position,
                held_max: 0,
            }),
            ..Take::default()
        })
    };
    let mut images = Vec::new();
    let mut see = |core: &Core| {
        core.sync();
        let there: Vec<_> = core
            .shards
            .iter()
            .map(|s| s.lock(Work::Server).engine.image())
            .collect();
        let read = Contents::read(folder.path()).expect("readable");
        assert_eq!(read.images(), there);
        assert_ne!(images, there, "nothing has changed");
        images = there;
    };
    see(&core);
    for owner in [
        LeaseOwner::Connection,
        LeaseOwner::Time,
        LeaseOwner::Process,
    ] {
        assert!(matches!(ask(&core, take(owner)), Outcome::Messages(_)));
        see(&core);
    }
    // The lease of the connection, to which time has passed since.
    let taken = core.clock.now();
    while core.clock.now() == taken {}
    assert_eq!(ask(&core, Command::Touch(ids[0])), Outcome::Done);
    see(&core);
    let delete = Command::Delete {
        id: ids[0],
        by: By::Owner,
    };
    assert_eq!(ask(&core, delete), Outcome::Done);
    see(&core);
    let moved = Command::Move {
        id: ids[1],
        to: q[2].clone(),
    };
    assert_eq!(ask(&core, moved), Outcome::Done);
    see(&core);
}

#[test]
fn messages_move_between_shards_and_survive_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let q = names();
    let settings = Settings {
        queues_max: 1,
        ..Settings::default()
    };
    let first = core(folder.path(), &settings);
    let ids = put_many(
        &first,
        (0..4).map(|n| put(&q[2], n, &n.to_string())).collect(),
    );
    let to_first = |id| Command::Move {
        id,
        to: q[0].clone(),
    };
    assert_eq!(ask(&first, to_first(ids[3])), Outcome::Done);
    let gone = Outcome::Refused(CommandError::NotFound);
    assert_eq!(ask(&first, to_first(ids[3])), gone);
    let bulk_op = |action, max| {
        Command::BulkOp(Box::new(BulkOp {
            action,
            ..BulkOp::show(q[2].clone(), ListState::Ready, max)
        }))
    };
    let all = |to: &Name| bulk_op(BulkAction::Move(to.clone()), 2);
    assert!(
        matches!(ask(&first, all(&q[0])), Outcome::BulkDone(bulk_done) if bulk_done.matched == 2)
    );
    // A queue that cannot be made is no place to go, and nothing is sent.
    let mut other = (0..).map(|n| Name::from(format!("other{n}").as_str()));
    let other = other.find(|name| shard_of_queue(name.as_bytes(), SHARDS) == 0);
    let full = Outcome::Refused(CommandError::TooManyQueues);
    assert_eq!(ask(&first, all(&other.expect("one"))), full);
    let into = |to: &Name| bulk_op(BulkAction::RedriveInto(to.clone()), 1);
    // Nor is one that would have to be made by what goes back only to queues that are there.
    let gone = Outcome::Refused(CommandError::QueueNotFound);
    assert_eq!(ask(&first, into(&q[1])), gone);
    let there = Command::Stats(StatsOf::Queue(q[1].clone()));
    assert_eq!(ask(&first, there), gone);
    assert!(
        matches!(ask(&first, into(&q[0])), Outcome::BulkDone(bulk_done) if bulk_done.matched == 1)
    );
    first.sync();
    drop(first);

    let second = core(folder.path(), &settings);
    assert!(
        second
            .shards
            .iter()
            .all(|shard| shard.lock(Work::Server).engine.sends_to().is_none())
    );
    assert_eq!(take_many(&second, &q[..1], 9), ["0", "1", "2", "3"]);
    assert_eq!(take_many(&second, &q, 9), [""; 0]);
}

/// While what is decided could not be kept nothing is, in no shard, and who
/// gives up waiting may.
#[test]
fn nothing_is_decided_without_a_place_to_keep_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let q = names();
    let ids = put_many(&core, q.iter().map(|queue| put(queue, 1, "x")).collect());
    let image = |core: &Core| -> Vec<_> {
        let shards = core.shards.iter();
        shards
            .map(|shard| shard.lock(Work::Server).engine.image())
            .collect()
    };
    let before = image(&core);
    core.set_available(false);
    let take = Take {
        queues: q.iter().cloned().collect(),
        ..Take::default()
    };
    let puts = q.iter().map(|queue| put(queue, 1, "x")).collect();
    let effects = q
        .iter()
        .map(|queue| Effect::Put(put(queue, 1, "x")))
        .collect();
    for command in [
        Command::Put(put(&q[0], 1, "x")),
        Command::PutMany(puts),
        Command::Take(take.clone()),
        Command::Watch(Some(Box::new(take))),
        Command::Touch(ids[0]),
        transaction(vec![], effects, None),
    ] {
        let refused = Outcome::Refused(CommandError::Unavailable);
        assert_eq!(ask(&core, command), refused);
    }
    let refer = Command::Refer {
        queue: q[0].clone(),
        uses: Some(true),
        watches: None,
    };
    for kept_nowhere in [Command::StopWaiting, refer] {
        let refused = Outcome::Refused(CommandError::Unavailable);
        assert_ne!(ask(&core, kept_nowhere), refused);
    }
    assert_eq!(image(&core), before);
    core.set_available(true);
    assert_eq!(take_many(&core, &q, 9), ["x", "x", "x"]);
}

fn transaction(guards: Vec<Guard>, effects: Vec<Effect>, then: Option<Command>) -> Command {
    Command::Transaction(Box::new(Transaction {
        guards,
        effects,
        then: then.map(Box::new),
    }))
}

fn count_up(table: &Name, version: Option<u64>, value: u64) -> (Guard, Effect) {
    let key: Box<[u8]> = b"n".as_slice().into();
    let guard = Guard::Table {
        table: table.clone(),
        key: key.clone(),
        version,
    };
    let effect = Effect::Set {
        table: table.clone(),
        key,
        value: Some(value.to_string().into_bytes().into()),
        ttl_ms: None,
    };
    (guard, effect)
}

#[test]
fn a_transaction_over_shards_is_done_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("directory");
    let full = Overrides {
        messages_max: Some(1),
        ..Overrides::default()
    };
    let [a, b, c] = &names()[..] else { panic!() };
    let settings = Settings {
        rules: vec![(Pattern::new(&c.to_string()), full)],
        ..Settings::default()
    };
    let core = core(dir.path(), &settings);
    let (guard, set) = count_up(a, None, 1);
    let effects = || {
        vec![
            set.clone(),
            Effect::Put(put(b, 1, "b")),
            Effect::Put(put(c, 1, "c")),
        ]
    };
    let then = || Some(Command::Put(put(a, 1, "a")));
    let done = ask(&core, transaction(vec![guard.clone()], effects(), then()));
    let Outcome::Transaction {
        ids,
        then: answered,
    } = done
    else {
        panic!("{done:?}");
    };
    assert_eq!(
        ids.iter()
            .map(|id| shard_of_id(*id, SHARDS))
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(matches!(
        answered.as_deref(),
        Some(Outcome::Put { fresh: true, .. })
    ));
    // The guard of one shard stops all, and so does a full queue of another.
    let again = ask(&core, transaction(vec![guard], effects(), then()));
    assert_eq!(again, Outcome::Refused(CommandError::Conflict));
    let fits_not = ask(&core, transaction(vec![], effects(), then()));
    assert_eq!(fits_not, Outcome::Refused(CommandError::QueueFull));
    let gone = Some(Command::Touch(ids[0]));
    let refused = ask(
        &core,
        transaction(vec![], vec![Effect::Put(put(a, 1, "x"))], gone),
    );
    assert_eq!(refused, Outcome::Refused(CommandError::NotFound));
    let all = [a.clone(), b.clone(), c.clone()];
    // And a take over all shards sees what the effects put.
    let take = Command::Take(Take {
        queues: all.iter().cloned().collect(),
        ..Take::default()
    });
    let effects = vec![Effect::Put(put(b, 0, "first"))];
    let Outcome::Transaction {
        then: Some(then), ..
    } = ask(&core, transaction(vec![], effects, Some(take)))
    else {
        panic!("refused");
    };
    let Outcome::Messages(messages) = *then else {
        panic!("{then:?}");
    };
    assert_eq!(messages[0].body.as_small(), Some(b"first".as_slice()));
    let mut rest = take_many(&core, &all, 10);
    rest.sort();
    assert_eq!(rest, ["a", "b", "c"]);
}

#[test]
fn connections_that_race_past_the_same_guard_never_both_win() {
    const ROUNDS: u64 = 200;
    let dir = tempfile::tempdir().expect("directory");
    let core = core(dir.path(), &Settings::default());
    let [a, b, c] = &names()[..] else { panic!() };
    // Each adds one to a number it read without a lock, with a put into
    // another shard.
    let add = |queue: &Name| {
        let get = TableRequest::Get {
            table: a.clone(),
            key: b"n".as_slice().into(),
        };
        loop {
            let Outcome::Entries(entries) = ask_in(&core, Command::Table(get.clone())) else {
                panic!("no entries");
            };
            let seen = entries.first();
            let value: u64 = seen.map_or(0, |entry| {
                String::from_utf8_lossy(&entry.value)
                    .parse()
                    .expect("number")
            });
            let (guard, set) = count_up(a, seen.map(|entry| entry.version), value + 1);
            let effects = vec![set, Effect::Put(put(queue, 1, "x"))];
            let outcome = ask_in(&core, transaction(vec![guard], effects, None));
            if let Outcome::Transaction { .. } = outcome {
                return;
            }
            assert_eq!(outcome, Outcome::Refused(CommandError::Conflict));
        }
    };
    std::thread::scope(|scope| {
        for queue in [b, c, b, c] {
            scope.spawn(|| (0..ROUNDS).for_each(|_| add(queue)));
        }
    });
    let get = TableRequest::Get {
        table: a.clone(),
        key: b"n".as_slice().into(),
    };
    let Outcome::Entries(entries) = ask_in(&core, Command::Table(get)) else {
        panic!("no entries");
    };
    let expected = (4 * ROUNDS).to_string();
    assert_eq!(*entries[0].value, *expected.as_bytes());
    let stored = take_many(&core, &[b.clone(), c.clone()], 10_000).len();
    assert_eq!(stored as u64, 4 * ROUNDS);
}

/// [`ask`] beside others.
fn ask_in(core: &Core, command: Command) -> Outcome {
    match core.with_access(|access| access.submit(Caller::default(), command)) {
        Decided::Now(outcome, ..) => outcome,
        Decided::Later => panic!("nothing here waits"),
    }
}

/// Decides a put; answers the batch it is in, which is not written.
fn put_unwritten(core: &Core, body: &str) -> u64 {
    let mut trail = Trail::default();
    let put = Command::Put(put(&names()[0], 1, body));
    Access::new(core, core.clock.now(), &mut trail).submit(Caller::default(), put);
    trail.recorded
}

#[test]
fn a_thread_syncs_a_small_batch_itself_while_no_other_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), &Settings::default());
    let first = put_unwritten(&core, "small");
    assert!(core.progress.written() < first);
    assert!(core.sync_here(0));
    assert!(core.progress.durable() >= first);

    let second = put_unwritten(&core, "small");
    let turn = locked(&core.sync_turn);
    assert!(!core.sync_here(0));
    assert!(core.progress.written() < second);
    drop(turn);
    assert!(core.sync_here(0));
    assert!(core.progress.durable() >= second);

    // The log thread's to sync; written it is.
    let large = "x".repeat(60 << 10);
    let last = (0..5).map(|_| put_unwritten(&core, &large)).max();
    let last = last.expect("five of them");
    assert!(!core.sync_here(0));
    assert!(core.progress.written() >= last && core.progress.durable() < last);
    core.sync();
    assert!(core.progress.durable() >= last);
}

#[test]
fn a_batch_that_a_step_makes_is_filled_from_all_shards_and_committed_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let core = core(dir.path(), &Settings::default());
    let [a, b, c] = [0, 1, 2].map(|n| names()[n].clone());
    let batch_id = |queue: &Name| {
        let ask_for = BatchRequest::Number {
            queue: queue.clone(),
            parent: None,
        };
        let answer = ask(&core, Command::Batch(ask_for));
        let Outcome::Batch(batch) = answer else {
            panic!("no id: {answer:?}");
        };
        batch.id
    };
    let member = |queue: &Name, body: &str, batch| Put {
        more: Some(Box::new(PutMore {
            batch: Some(Tie::member(batch)),
            ..PutMore::default()
        })),
        ..put(queue, 1, body)
    };
    let progress = |id| {
        let Outcome::Batch(batch) = ask(&core, Command::Batch(BatchRequest::Show(id))) else {
            return None;
        };
        Some(batch.progress)
    };
    // The batch is of the command's shard, of another one before it, or behind it.
    for batch_queue in [&a, &b, &c] {
        let id = batch_id(batch_queue);
        let make = Effect::MakeBatch {
            id,
            new: Box::new(NewBatch {
                complete: Some(Callback {
                    queue: batch_queue.clone(),
                    body: b"all ran".as_slice().into(),
                    ..Callback::default()
                }),
                ..NewBatch::default()
            }),
        };
        let effects = || {
            vec![
                Effect::CommitBatch(id),
                Effect::Put(member(&a, "1", id)),
                Effect::Put(member(&c, "2", id)),
                make.clone(),
            ]
        };
        // Who is refused leaves none of it.
        let gone = Some(Command::Touch(MessageId(77)));
        let refused = ask(&core, transaction(vec![], effects(), gone));
        assert_eq!(refused, Outcome::Refused(CommandError::NotFound));
        assert_eq!(progress(id), None);
        let then = Some(Command::Put(member(&b, "3", id)));
        let done = ask(&core, transaction(vec![], effects(), then));
        assert!(matches!(done, Outcome::Transaction { .. }), "{done:?}");
        let counts = progress(id).expect("it is there");
        assert_eq!((counts.total, counts.pending, counts.open), (3, 3, false));
        let all = [a.clone(), b.clone(), c.clone()];
        let mut bodies = take_many(&core, &all, 10);
        bodies.sort();
        assert_eq!(bodies, ["1", "2", "3"]);
        let counts = progress(id).expect("it is there");
        assert_eq!((counts.pending, counts.complete), (0, CallbackState::Put));
        assert_eq!(take_many(&core, &all, 10), ["all ran"]);
    }
    // So is a list of puts that goes to several shards; the batch's own has no member, so that it
    // would be complete if it were committed before the others' are counted.
    let list = || {
        let id = batch_id(&b);
        let make = Effect::MakeBatch {
            id,
            new: Box::new(NewBatch {
                complete: Some(Callback {
                    queue: b.clone(),
                    ..Callback::default()
                }),
                ..NewBatch::default()
            }),
        };
        let effects = vec![
            make,
            Effect::CommitBatch(id),
            Effect::Put(member(&a, "0", id)),
        ];
        let puts = vec![
            member(&c, "1", id),
            member(&a, "2", id),
            member(&c, "3", id),
        ];
        (id, effects, puts)
    };
    let (id, effects, puts) = list();
    let done = ask(
        &core,
        transaction(vec![], effects, Some(Command::PutMany(puts))),
    );
    let Outcome::Transaction {
        ids,
        then: Some(then),
    } = done
    else {
        panic!("{done:?}");
    };
    let Outcome::PutMany(listed) = *then else {
        panic!("{then:?}");
    };
    let shards = |ids: &[MessageId]| -> Vec<usize> {
        ids.iter().map(|id| shard_of_id(*id, SHARDS)).collect()
    };
    assert_eq!((shards(&ids), shards(&listed)), (vec![0], vec![2, 0, 2]));
    assert!(listed[0] < listed[2], "in their order: {listed:?}");
    let counts = progress(id).expect("it is there");
    assert_eq!((counts.total, counts.pending, counts.open), (4, 4, false));
    assert_eq!(take_many(&core, &names(), 10).len(), 4);
    assert_eq!(take_many(&core, &names(), 10), [""]);
    // One that cannot be stored, in the last shard, leaves none of it in any.
    let (id, effects, mut puts) = list();
    puts[2].more.get_or_insert_default().name = Some(b"".as_slice().into());
    let refused = ask(
        &core,
        transaction(vec![], effects, Some(Command::PutMany(puts))),
    );
    assert_eq!(refused, Outcome::Refused(CommandError::BadMessageName));
    assert_eq!(progress(id), None);
    assert_eq!(take_many(&core, &names(), 10), [""; 0]);
    // A batch that is committed, or is not there, refuses the step of any shard.
    let id = batch_id(&b);
    for (effect, why) in [
        (Effect::CommitBatch(id), CommandError::BatchNotFound),
        (
            Effect::Put(member(&c, "x", id)),
            CommandError::BatchNotFound,
        ),
    ] {
        let effects = vec![Effect::Put(put(&a, 1, "x")), effect];
        let refused = ask(&core, transaction(vec![], effects, None));
        assert_eq!(refused, Outcome::Refused(why));
    }
    assert_eq!(take_many(&core, &names(), 10), [""; 0]);
}
