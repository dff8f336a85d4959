//! Replay, frame by frame: what a snapshot's counters say of the frames before it.

use quintet_engine::format::{put_chunk_head, put_group};
use quintet_engine::{Block, DedupeId, DedupeKind, Fact};
use quintet_log::{Epoch, FrameKind, Position, ReplayFrame, SegmentNumber};
use quintet_types::{
    Body, LargeBody, Message, MessageId, Ms, QueueId, QueueTotals, RunId, Scope, SegmentRef,
    Settings, State, StateIndex,
};

use super::{Layout, Replay, open_dir, run_name};

fn made() -> Fact {
    Fact::QueueMade {
        queue: QueueId(1),
        name: "q".into(),
        parent: None,
        created: Ms(5),
    }
}

/// So many were put into the queue.
fn counted(puts: u64) -> Fact {
    let totals = QueueTotals {
        puts,
        ..QueueTotals::default()
    };
    Fact::QueueCounted {
        queue: QueueId(1),
        totals: Box::new(totals),
        head: 0,
        bury_order: 0,
    }
}

/// The error that a frame with these facts of a shard causes.
fn frame(replay: &mut Replay, segment: Option<u32>, facts: &[Fact]) -> Option<String> {
    frame_at(5, replay, segment, facts)
}

/// The same of a frame that was written at this time, ms.
fn frame_at(
    time_ms: u64,
    replay: &mut Replay,
    segment: Option<u32>,
    facts: &[Fact],
) -> Option<String> {
    let mut records = Vec::new();
    facts.iter().for_each(|fact| fact.encode(&mut records));
    let mut payload = Vec::new();
    put_group(&mut payload, 1, &records);
    let frame = ReplayFrame {
        position: Position(0),
        epoch: Epoch(1),
        time_ms,
        kind: FrameKind::Facts,
        segment: SegmentNumber(segment.unwrap_or(1)),
        offset: 0,
        first_in_segment: segment.is_some(),
        count: u32::try_from(facts.len()).expect("few"),
        payload: &payload,
    };
    replay.apply(&frame).expect("whole facts");
    replay.take_contradiction()
}

#[test]
fn a_snapshot_with_other_counts_is_logged_and_used() {
    let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
    let end = || Fact::ShardCounted(Box::default());
    // Nothing came before the first.
    assert_eq!(
        frame(&mut replay, Some(1), &[made(), counted(3), end()]),
        None
    );
    assert_eq!(
        frame(&mut replay, Some(2), &[made(), counted(3), end()]),
        None
    );
    // Outside of snapshots an owner tells what others may not know.
    assert_eq!(frame(&mut replay, None, &[counted(4)]), None);
    // A snapshot may take several frames.
    assert_eq!(frame(&mut replay, Some(3), &[made()]), None);
    let found = frame(&mut replay, None, &[counted(5), end()]);
    let found = found.expect("a contradiction");
    assert!(found.starts_with("queue q:"), "{found}");
    assert_eq!(
        frame(&mut replay, Some(4), &[made(), counted(5), end()]),
        None
    );
    assert_eq!(frame(&mut replay, None, &[counted(6)]), None);
}

#[test]
fn counters_of_a_queue_that_a_slice_of_a_beginning_has_are_compared() {
    let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
    let end = || Fact::ShardCounted(Box::default());
    let first = [made(), counted(3), end(), end()];
    assert_eq!(frame(&mut replay, Some(1), &first), None);
    assert_eq!(frame(&mut replay, Some(2), &[end()]), None);
    // A command's fact, then the slice.
    assert_eq!(frame(&mut replay, None, &[counted(4)]), None);
    assert_eq!(frame(&mut replay, None, &[made(), counted(4)]), None);
    let found = frame(&mut replay, None, &[made(), counted(5)]);
    let found = found.expect("a contradiction");
    assert!(found.starts_with("queue q:"), "{found}");
    assert_eq!(frame(&mut replay, None, &[end()]), None);
    assert_eq!(frame(&mut replay, None, &[made(), counted(6)]), None);
}

/// A snapshot's words for a block of a run with so many living messages.
fn named(live: u32) -> Fact {
    let mut block = Block::new(0, 0, QueueId(1), StateIndex::Ready);
    (block.count, block.live) = (live, live);
    Fact::RunImage {
        run: RunId(7),
        block: Box::new(block),
        dead: None,
    }
}

#[test]
fn a_snapshot_that_names_other_runs_is_logged() {
    let begun = || {
        let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
        let end = Fact::ShardCounted(Box::default());
        let first = [made(), counted(3), named(9), end];
        assert_eq!(frame(&mut replay, Some(1), &first), None);
        replay
    };
    for (images, expected) in [
        (vec![named(9)], None),
        (
            vec![named(8)],
            Some("run 7, block 0: 9 living messages here, 8 there"),
        ),
        (vec![], Some("shard 1: 1 blocks of runs here, 0 there")),
    ] {
        let end = Fact::ShardCounted(Box::default());
        let next = [vec![made(), counted(3)], images, vec![end]].concat();
        let found = frame(&mut begun(), Some(2), &next);
        assert_eq!(found.as_deref(), expected);
    }
}

/// No other snapshot has the runs before the first segment that is read.
#[test]
fn messages_that_a_first_snapshot_counts_are_in_runs_that_it_names() {
    let lacks = |images: Vec<Fact>| {
        let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
        let end = Fact::ShardCounted(Box::default());
        let first = [vec![made(), counted(9)], images, vec![end]].concat();
        assert_eq!(frame(&mut replay, Some(3), &first), None);
        replay.lacks()
    };
    assert_eq!(lacks(vec![named(9)]), None);
    for (images, known) in [(vec![], 0), (vec![named(8)], 8)] {
        let expected = format!("queue q: 9 living messages are counted, {known} are known");
        assert_eq!(lacks(images), Some(expected));
    }
}

/// A retirement writes the chunks and the image of a living message again. Who followed until then
/// must count it where the owner does, or retires the newer segment under it.
#[test]
fn a_message_lives_where_its_chunks_were_written_again() {
    let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
    let message = Message {
        id: MessageId((1 << 55) | 5),
        position: 5,
        created: Ms(5),
        body: Body::Large(LargeBody::new(9, 4, 0)),
        extra: None,
        ttr_ms: None,
        priority: 1,
        queue: QueueId(1),
        flags: 0,
        reserves: 0,
        segment_ref: SegmentRef(0),
        generation: 0,
        ordinal: 0,
        state: State::Ready,
        selectable: true,
        doomed: false,
    };
    let mut payload = Vec::new();
    put_chunk_head(&mut payload, 9, 0);
    payload.extend_from_slice(b"body");
    assert_eq!(frame(&mut replay, Some(1), &[made()]), None);
    for (segment, live) in [(3, [1, 0]), (10, [0, 1])] {
        let chunk = ReplayFrame {
            position: Position(0),
            epoch: Epoch(1),
            time_ms: 5,
            kind: FrameKind::Body,
            segment: SegmentNumber(segment),
            offset: 0,
            first_in_segment: false,
            count: 1,
            payload: &payload,
        };
        replay.apply(&chunk).expect("a chunk");
        let image = Fact::Image(message.clone(), None);
        assert_eq!(frame(&mut replay, Some(segment), &[image]), None);
        let counted = |segment| replay.engines[1].segment_refs_live(SegmentRef(segment));
        assert_eq!([3, 10].map(counted), live, "after segment {segment}");
    }
}

/// Memory is taken for what was read, not for what it says.
#[test]
fn a_chunk_of_any_number_is_one_chunk() {
    let mut replay = Replay::new(1, &Settings::default()).expect("one shard");
    let mut chunk = |index| {
        let mut payload = Vec::new();
        put_chunk_head(&mut payload, 9, index);
        replay.apply(&ReplayFrame {
            position: Position(0),
            epoch: Epoch(1),
            time_ms: 5,
            kind: FrameKind::Body,
            segment: SegmentNumber(1),
            offset: 0,
            first_in_segment: false,
            count: 1,
            payload: &payload,
        })
    };
    assert_eq!(chunk(1 << 20), Ok(()));
    assert!(chunk(1 << 24).is_err());
    assert_eq!(replay.bodies[&9].places.len(), 1);
}

#[test]
fn a_file_whose_name_has_a_number_that_no_run_has_gives_new_runs_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = Layout {
        shards: 1,
        segment_bytes: 1 << 20,
        spares: 0,
        memory: 256 << 20,
    };
    let open = || open_dir(dir.path(), &layout, &Settings::default()).expect("it opens");
    drop(open());
    let file = dir.path().join(run_name(0, u32::MAX).to_string());
    std::fs::write(&file, "").expect("a file");
    assert_eq!(open().runs.first_of_this_life(), 1);
    assert!(!file.exists());
}

/// A node may follow for months: what is over by time, so that no fact records it, must not stay.
#[test]
fn a_follower_forgets_finished_messages() {
    let mut replay = Replay::new(2, &Settings::default()).expect("few shards");
    let over = [
        Fact::TableSet {
            table: "t".into(),
            key: b"key".as_slice().into(),
            value: Some(b"value".as_slice().into()),
            until: Some(Ms(1_000)),
            version: 1,
        },
        Fact::Remembered {
            queue: QueueId(1),
            kind: DedupeKind::Dedupe,
            dedupe_record: DedupeId::Hash([1, 2]),
            id: MessageId(9),
            until: Ms(1_000),
            scope: Scope::Window,
            sum: 0,
        },
    ];
    let facts = [vec![made()], over.to_vec()].concat();
    assert_eq!(frame(&mut replay, Some(1), &facts), None);
    let image = |replay: &Replay| replay.engines[1].image();
    let has = |replay: &Replay| over.each_ref().map(|fact| image(replay).contains(fact));
    assert_eq!(has(&replay), [true, true]);
    // Entries of tables are looked through once a minute.
    assert_eq!(frame_at(70_000, &mut replay, None, &[]), None);
    assert_eq!(has(&replay), [false, false]);
}
