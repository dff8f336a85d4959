//! A run returns the entries that it was given, in any shape and by every way of reading.

use crate::common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use common::runs::{Item, NAME, Plan};
use quintet_log::{
    Disk, LocalLog, Log, LogError, Options, Storage, backup, check,
    run::{
        CHUNK_BYTES_MAX, Chunk, ENTRY_BYTES_MAX, Run, RunName, RunNumber, RunOptions, RunWriter,
        backup_runs, list_runs, remove_run, remove_unfinished_runs,
    },
};
use quintet_sim::{
    disk::{Keep, SimDisk},
    log_tests::append,
};

fn written(disk: &SimDisk, plan: &Plan) {
    let (run, bodies) = plan.write(Arc::new(disk.clone()), NAME).expect("write");
    plan.assert_is(&run, &bodies);
    let opened = Run::open(disk, NAME).expect("open");
    plan.assert_is(&opened, &bodies);
    assert_eq!(opened.name(), NAME);
    assert_eq!(opened.file_bytes(), run.file_bytes());
    assert_eq!(opened.memory_bytes(), run.memory_bytes());
    assert_eq!(
        disk.list().expect("list"),
        [NAME.to_string()],
        "no scratch file stays"
    );
}

#[test]
fn a_small_run() {
    written(&SimDisk::new(1), &Plan::small());
}

#[test]
fn an_empty_run() {
    let mut plan = Plan::small();
    plan.state_indexes.clear();
    written(&SimDisk::new(1), &plan);
}

#[test]
fn any_shape() {
    for seed in 0..400 {
        let plan = Plan::any(seed);
        let attempt = catch_unwind(|| written(&SimDisk::new(seed), &plan));
        assert!(attempt.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_key_that_fills_several_pages() {
    let entry = |id: u64, key: u64| Item::Entry {
        id,
        key: Some(key),
        payload: Vec::new(),
    };
    let mut items: Vec<Item> = (0..500).map(|id| entry(id, id)).collect();
    items.extend((500..9000).map(|id| entry(id, 500)));
    items.extend((9000..9600).map(|id| entry(id, id)));
    let plan = Plan {
        options: RunOptions::default(),
        state_indexes: vec![(b"lane".to_vec(), items)],
    };
    written(&SimDisk::new(1), &plan);
}

#[test]
fn the_largest_entries_and_chunks() {
    let options = RunOptions::default();
    let large = vec![7; ENTRY_BYTES_MAX];
    let plan = Plan {
        options,
        state_indexes: vec![(
            b"lane".to_vec(),
            vec![
                Item::Entry {
                    id: u64::MAX,
                    key: Some(1),
                    payload: large.clone(),
                },
                Item::Large(vec![9; 2 * CHUNK_BYTES_MAX + 1]),
                Item::Entry {
                    id: 0,
                    key: None,
                    payload: large,
                },
            ],
        )],
    };
    written(&SimDisk::new(1), &plan);
}

#[test]
fn an_entry_that_is_too_large_leaves_the_run_unchanged() {
    let disk = SimDisk::new(1);
    let storage = Arc::new(disk.clone());
    let mut writer = RunWriter::create(storage, NAME, RunOptions::default()).expect("create");
    writer.state_index(&[1; 64]).expect("lane");
    writer.push(1, None, b"one").expect("push");
    let refused = |result: Result<(), LogError>| match result {
        Err(LogError::RunFull { value, limit, .. }) => (value, limit),
        other => panic!("{other:?}"),
    };
    let max = ENTRY_BYTES_MAX as u64;
    let entry = writer.push(2, Some(2), &vec![0; ENTRY_BYTES_MAX + 1]);
    assert_eq!(refused(entry.map(drop)), (max + 1, max));
    let mut fill = |_: &mut [u8]| Ok(());
    let chunk = writer.chunk(CHUNK_BYTES_MAX + 1, &mut fill);
    assert_eq!(refused(chunk.map(drop)), (max + 1, max));
    assert_eq!(refused(writer.chunk(0, &mut fill).map(drop)), (0, max));
    let failing = writer.chunk(10, &mut |_| Err(LogError::NoSegment(Default::default())));
    assert!(
        matches!(failing, Err(LogError::NoSegment(_))),
        "{failing:?}"
    );
    let long_tag = catch_unwind(AssertUnwindSafe(|| writer.state_index(&[1; 65])));
    assert!(long_tag.is_err());
    let run = writer.finish().expect("finish");
    assert_eq!((run.entries(), run.chunk_bytes()), (1, 0));
}

#[test]
fn an_id_that_comes_twice_is_the_callers_fault() {
    for sort_bytes in [0, 4 << 20] {
        let disk = SimDisk::new(1);
        let options = RunOptions {
            sort_bytes,
            ..RunOptions::default()
        };
        let mut writer = RunWriter::create(Arc::new(disk.clone()), NAME, options).expect("create");
        writer.state_index(b"").expect("lane");
        for id in [4, 9, 1, 2, 9, 7] {
            writer.push(id, Some(1), b"").expect("push");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| writer.finish())).is_err());
        assert!(disk.list().expect("list").is_empty());
    }
}

#[test]
fn a_run_that_is_dropped_leaves_nothing() {
    let disk = SimDisk::new(1);
    let options = RunOptions {
        sort_bytes: 0,
        ..RunOptions::default()
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut writer = RunWriter::create(Arc::clone(&storage), NAME, options).expect("create");
    writer.state_index(b"").expect("lane");
    for id in 0..100 {
        writer.push(id, Some(id), b"payload").expect("push");
    }
    assert_eq!(
        disk.list().expect("list").len(),
        3,
        "the run and two scratch files"
    );
    assert_eq!(list_runs(&disk).expect("list"), []);
    let second = RunWriter::create(storage, NAME, options);
    assert!(second.is_err(), "one writer for a name");
    drop(writer);
    assert!(disk.list().expect("list").is_empty());
}

#[test]
fn a_chunk_is_read_only_where_one_is() {
    let disk = SimDisk::new(1);
    let (run, bodies) = Plan::small().write(Arc::new(disk), NAME).expect("write");
    let chunk = bodies[0].0[0];
    let mut bytes = vec![0; chunk.len as usize];
    run.read_chunk(chunk, &mut bytes).expect("read");
    for (offset, len) in [
        (0, chunk.len),
        (chunk.offset + 1, chunk.len),
        (chunk.offset, chunk.len - 1),
        (run.block(0).expect("a block").offset + 24, 10),
        (run.file_bytes() - 10, 10),
        (u64::MAX, 10),
        (u64::MAX - 5, u32::MAX),
    ] {
        let mut bytes = vec![0; len.min(1000) as usize];
        let wrong = run.read_chunk(Chunk { offset, len }, &mut bytes);
        let named = matches!(
            wrong,
            Err(LogError::Damaged { .. } | LogError::BadRead { .. })
        );
        assert!(named, "{wrong:?}");
    }
}

#[test]
fn many_threads_read_one_run() {
    let plan = Plan::any(6);
    let (run, bodies) = plan.write(Arc::new(SimDisk::new(1)), NAME).expect("write");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(common::runs::wrong_reads(&run, &plan, &bodies), Ok(())));
        }
    });
}

#[test]
fn memory_grows_with_blocks_and_pages_only() {
    let plan = |entries| Plan {
        options: RunOptions::default(),
        state_indexes: vec![(
            b"lane".to_vec(),
            (0..entries)
                .map(|id| Item::Entry {
                    id,
                    key: Some(id << 32),
                    payload: vec![0; 50],
                })
                .collect(),
        )],
    };
    let memory = |entries| {
        let (run, _) = plan(entries)
            .write(Arc::new(SimDisk::new(1)), NAME)
            .expect("write");
        run.memory_bytes() as u64
    };
    let (little, much) = (memory(1000), memory(101_000));
    // 100,000 entries of about 60 bytes are about 190 blocks, and about 300 pages.
    assert!(
        much - little < 190 * 20 + 300 * 20,
        "{little} and {much} bytes"
    );
}

#[test]
fn runs_on_the_real_disk_beside_a_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::new(dir.path()));
    let storage: Arc<dyn Storage> = disk.clone();
    let plan = Plan::small();
    // A run is written when the log is durable.
    let (mut log, ..) = common::open(Arc::clone(&storage)).expect("open the log");
    append(&mut log, 1, b"one");
    quintet_sim::log_tests::sync(&mut log);
    drop(log);
    let (_, bodies) = plan.write(Arc::clone(&storage), NAME).expect("write");
    let unfinished = "run-00003-0000000009.ids.tmp";
    disk.create(unfinished).expect("create");

    // The log does not trip over them, and leaves them alone.
    let (mut log, ..) = common::open(Arc::clone(&storage)).expect("open the log");
    append(&mut log, 1, b"two");
    drop(log);
    assert_eq!(check(&*disk, &mut |_| {}).expect("check").frames, 2);
    let target = tempfile::tempdir().expect("a directory");
    backup(&*disk, &Disk::new(target.path())).expect("backup");
    let (log, recovery) =
        LocalLog::open(storage, Options::default(), &mut |_| Ok(())).expect("open the log");
    assert_eq!((recovery.frames, log.segments().len()), (2, 1));
    assert!(disk.list().expect("list").contains(&unfinished.to_owned()));

    assert_eq!(list_runs(&*disk).expect("list"), [NAME]);
    assert_eq!(remove_unfinished_runs(&*disk).expect("remove"), 1);
    assert_eq!(remove_unfinished_runs(&*disk).expect("remove"), 0);
    let run = Run::open(&*disk, NAME).expect("open");
    remove_run(&*disk, NAME).expect("remove");
    assert_eq!(list_runs(&*disk).expect("list"), []);
    plan.assert_is(&run, &bodies);
    assert!(matches!(Run::open(&*disk, NAME), Err(LogError::Io { .. })));
}

#[test]
fn runs_are_listed_in_order() {
    let disk = SimDisk::new(1);
    let plan = Plan::small();
    let name = |shard, number| RunName {
        shard,
        number: RunNumber(number),
    };
    let names = [name(0, 12), name(0, 1000), name(1, 2), name(1, 10)];
    for name in names.iter().rev() {
        plan.write(Arc::new(disk.clone()), *name).expect("write");
    }
    assert_eq!(list_runs(&disk).expect("list"), names);
}

#[test]
fn a_backup_has_the_runs_it_did_not_have() {
    // The simulated disk cannot link; the real one can.
    let (source, target) = (SimDisk::new(1), SimDisk::new(2));
    back_up_twice(Arc::new(source), Arc::new(target.clone()), false);
    let after = target.power_cut(Keep::Synced);
    let there = list_runs(&after).expect("list");
    assert_eq!(there.len(), 3, "the copies are durable");

    let source = tempfile::tempdir().expect("a directory");
    let target = tempfile::tempdir().expect("a directory");
    let (source, target) = (Disk::new(source.path()), Disk::new(target.path()));
    back_up_twice(Arc::new(source), Arc::new(target), true);
}

fn back_up_twice(source: Arc<dyn Storage>, target: Arc<dyn Storage>, links: bool) {
    let plan = Plan::small();
    let name = |number| RunName {
        shard: 0,
        number: RunNumber(number),
    };
    let added = |count: u64| {
        let summary = backup_runs(&*source, &*target).expect("backup");
        let expected = if links { (count, 0) } else { (0, count) };
        assert_eq!((summary.linked, summary.copied), expected);
        assert_eq!(summary.copied_bytes > 0, !links && count > 0);
    };
    let (_, bodies) = plan.write(Arc::clone(&source), name(1)).expect("write");
    added(1);
    added(0);
    plan.write(Arc::clone(&source), name(2)).expect("write");
    plan.write(Arc::clone(&source), name(3)).expect("write");
    remove_run(&*source, name(1)).expect("remove");
    source.create("run-00000-0000000004.tmp").expect("create");
    added(2);
    let there = list_runs(&*target).expect("list");
    assert_eq!(there, [name(1), name(2), name(3)]);
    for name in there {
        plan.assert_is(&Run::open(&*target, name).expect("open"), &bodies);
    }
}

#[test]
fn a_run_can_be_synced_before_it_is_finished() {
    let disk = SimDisk::new(1);
    let storage = Arc::new(disk.clone());
    let mut writer = RunWriter::create(storage, NAME, RunOptions::default()).expect("create");
    writer.state_index(b"").expect("lane");
    let before = writer.bytes();
    for id in 0..200 {
        writer.push(id, None, &[0; 1000]).expect("push");
    }
    // All but the block being filled.
    let written = writer.bytes() - before;
    assert!((170_000..201_000).contains(&written), "{written} bytes");
    let unsynced = disk.unsynced();
    writer.sync().expect("sync");
    assert!(disk.unsynced() < unsynced);
    assert_eq!(writer.finish().expect("finish").entries(), 200);
}
