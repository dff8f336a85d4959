//! Properties of every [`Log`], whatever it is made of: one suite for all of them.
//!
//! A new implementation passes [`run`] with a function that makes an empty one. Segments of 64 KiB
//! are what the suite expects to fill.

use quintet_log::{
    Epoch, FrameBuf, FrameKind, Log, LogError, Placed, Position, ReplayFrame, Stamp,
};

/// A frame as a test remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRecord {
    /// Where it began.
    pub position: Position,
    /// Its writer and time.
    pub stamp: Stamp,
    pub kind: FrameKind,
    pub count: u32,
    /// Whether its segment begins with it.
    pub first_in_segment: bool,
    pub payload: Vec<u8>,
}

impl FrameRecord {
    /// Copies a replayed frame, so that it can be kept and compared.
    pub fn of(frame: &ReplayFrame<'_>) -> Self {
        Self {
            position: frame.position,
            stamp: Stamp {
                epoch: frame.epoch,
                time_ms: frame.time_ms,
            },
            kind: frame.kind,
            count: frame.count,
            first_in_segment: frame.first_in_segment,
            payload: frame.payload.to_vec(),
        }
    }
}

/// Something that outlives a log, as a disk outlives a process.
pub trait Fixture {
    /// Opens the log and returns it with all it replayed. The one opened before has been dropped.
    fn open(&mut self) -> (Box<dyn Log>, Vec<FrameRecord>);

    /// Whether opening appends something of the log's own, as one does whose owner has to say that
    /// it is. Else the log ends where it did.
    fn opening_appends(&self) -> bool {
        false
    }
}

fn assert_goes_on(fixture: &dyn Fixture, before: Position, after: Position) {
    assert!(before <= after, "positions do not go back");
    assert_eq!(before < after, fixture.opening_appends());
}

type Make<'a> = &'a mut dyn FnMut() -> Box<dyn Fixture>;

/// Runs the suite; each test gets an empty log from `make`.
///
/// # Panics
/// Where the log breaks its contract.
pub fn run(make: Make<'_>) {
    appends_come_back_in_order(&mut *make());
    an_append_at_another_position_is_refused(&mut *make());
    an_older_epoch_is_refused(&mut *make());
    durable_follows_the_sync_points(&mut *make());
    a_point_covers_earlier_frames_only(&mut *make());
    a_point_nobody_waited_for_is_a_broken_promise(&mut *make());
    a_segment_begins_on_request(&mut *make());
    room_in_a_segment_falls_and_comes_back(&mut *make());
    retired_segments_are_gone(&mut *make());
    the_segment_being_written_stays(&mut *make());
    payloads_are_read_by_place(&mut *make());
    a_body_in_flight_outlives_its_segment(&mut *make());
    a_frame_buffer_is_used_again(&mut *make());
    frames_that_look_like_frames_are_only_bytes(&mut *make());
    positions_go_on_after_reopening(&mut *make());
}

/// A frame of the kind [`FrameKind::Facts`] that counts one fact.
pub fn facts(payload: &[u8]) -> FrameBuf {
    let mut frame = FrameBuf::new(FrameKind::Facts);
    frame.payload_mut().extend_from_slice(payload);
    frame.count = 1;
    frame
}

/// Appends facts at the end.
///
/// # Panics
/// If the log refuses.
pub fn append(log: &mut dyn Log, epoch: u64, payload: &[u8]) -> Placed {
    let stamp = Stamp {
        epoch: Epoch(epoch),
        time_ms: 1_000 + epoch,
    };
    log.append(log.end(), stamp, &mut facts(payload))
        .expect("append")
}

/// Makes everything appended durable.
///
/// # Panics
/// If the log refuses.
pub fn sync(log: &mut dyn Log) {
    let point = log.sync_point();
    point.wait().expect("sync");
    log.synced(point);
}

fn payloads(seen: &[FrameRecord]) -> Vec<&[u8]> {
    seen.iter().map(|frame| frame.payload.as_slice()).collect()
}

fn appends_come_back_in_order(fixture: &mut dyn Fixture) {
    let (mut log, seen) = fixture.open();
    assert_eq!(seen, [], "a new log is empty");
    let mut expected = Vec::new();
    for number in 0..20_u8 {
        let position = log.end();
        let stamp = Stamp {
            epoch: Epoch(u64::from(number / 7)),
            time_ms: 77 + u64::from(number),
        };
        let kind = if number % 3 == 0 {
            FrameKind::Body
        } else {
            FrameKind::Facts
        };
        let mut frame = FrameBuf::new(kind);
        frame
            .payload_mut()
            .extend(vec![number; usize::from(number) * 97]);
        frame.count = u32::from(number);
        let placed = log.append(position, stamp, &mut frame).expect("append");
        assert!(placed.end > position, "positions rise");
        assert_eq!(placed.end, log.end());
        assert_eq!(placed.len as usize, frame.len());
        expected.push(FrameRecord {
            position,
            stamp,
            kind,
            count: frame.count,
            first_in_segment: number == 0,
            payload: frame.payload().to_vec(),
        });
    }
    sync(&mut *log);
    drop(log);
    assert_eq!(fixture.open().1, expected);
}

fn an_append_at_another_position_is_refused(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let before = log.end();
    append(&mut *log, 1, b"first");
    let end = log.end();
    let stamp = Stamp {
        epoch: Epoch(1),
        time_ms: 0,
    };
    for wrong in [before, Position(end.0 + 1)] {
        match log.append(wrong, stamp, &mut facts(b"again")) {
            Err(LogError::Moved {
                expected,
                end: reported,
            }) => {
                assert_eq!((expected, reported), (wrong, end));
            }
            other => panic!("an append at {wrong} gave {other:?}"),
        }
    }
    append(&mut *log, 1, b"second");
    sync(&mut *log);
    drop(log);
    assert_eq!(
        payloads(&fixture.open().1),
        [b"first".as_slice(), b"second"]
    );
}

fn an_older_epoch_is_refused(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    append(&mut *log, 5, b"five");
    sync(&mut *log);
    let refused = |log: &mut dyn Log| {
        let stamp = Stamp {
            epoch: Epoch(4),
            time_ms: 0,
        };
        let result = log.append(log.end(), stamp, &mut facts(b"four"));
        assert!(matches!(
            result,
            Err(LogError::Fenced {
                epoch: Epoch(4),
                latest: Epoch(5)
            })
        ));
    };
    refused(&mut *log);
    drop(log);
    let (mut log, _) = fixture.open();
    refused(&mut *log);
    append(&mut *log, 5, b"five again");
}

fn durable_follows_the_sync_points(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    assert_eq!(log.durable(), log.end(), "an opened log is durable");
    let start = log.end();
    append(&mut *log, 1, b"one");
    assert_eq!(log.durable(), start, "written is not durable");
    let point = log.sync_point();
    assert_eq!(point.end(), log.end());
    point.wait().expect("sync");
    assert_eq!(log.durable(), start, "the log was not synced yet");
    log.synced(point);
    assert_eq!(log.durable(), log.end());
    let idle = log.sync_point();
    assert!(idle.is_idle(), "nothing to sync, nothing to wait for");
    idle.wait().expect("an idle point");
    log.synced(idle);
}

fn a_point_covers_earlier_frames_only(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    append(&mut *log, 1, b"one");
    let first = log.sync_point();
    let between = log.end();
    append(&mut *log, 1, b"two");
    log.begin_segment();
    append(&mut *log, 1, b"three");
    let second = log.sync_point();
    first.wait().expect("sync");
    log.synced(first);
    assert_eq!(log.durable(), between);
    second.wait().expect("sync");
    log.synced(second);
    assert_eq!(log.durable(), log.end());
}

fn a_point_nobody_waited_for_is_a_broken_promise(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    append(&mut *log, 1, b"one");
    let point = log.sync_point();
    let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.synced(point)));
    assert!(attempt.is_err(), "the log accepted a wrong position");
}

fn a_segment_begins_on_request(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    log.begin_segment();
    let one = append(&mut *log, 1, b"one");
    assert_eq!(one.segment, log.segment());
    log.begin_segment();
    log.begin_segment();
    assert_eq!(
        log.segment(),
        one.segment,
        "nothing happens before the append"
    );
    let position = log.end();
    let two = append(&mut *log, 1, b"two");
    let three = append(&mut *log, 1, b"three");
    assert!(two.segment > one.segment);
    assert_eq!(three.segment, two.segment);
    let segments = log.segments();
    assert_eq!(segments.len(), 2);
    assert_eq!(
        (segments[1].number, segments[1].first),
        (two.segment, position)
    );
    assert_eq!(segments[1].modified_ms, 1_001);
    sync(&mut *log);
    drop(log);
    let (_, seen) = fixture.open();
    let firsts: Vec<bool> = seen.iter().map(|frame| frame.first_in_segment).collect();
    assert_eq!(firsts, [true, true, false]);
}

fn room_in_a_segment_falls_and_comes_back(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let empty = log.segment_bytes_left();
    append(&mut *log, 1, &[7; 1000]);
    let left = log.segment_bytes_left();
    assert!(left <= empty - 1000, "{left} of {empty}");
    // A frame that does not fit goes in all the same: only the caller begins segments.
    let segment = log.segment();
    let longer = usize::try_from(left + 500).expect("a small segment");
    assert_eq!(append(&mut *log, 1, &vec![8; longer]).segment, segment);
    assert_eq!(log.segment_bytes_left(), 0);
    log.begin_segment();
    assert_eq!(log.segment_bytes_left(), empty);
    append(&mut *log, 1, b"next");
    sync(&mut *log);
    drop(log);
    assert_eq!(fixture.open().1.len(), 3);
}

fn retired_segments_are_gone(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let mut places = Vec::new();
    for number in 0..6_u8 {
        log.begin_segment();
        places.push(append(&mut *log, 1, &[number; 300]));
    }
    sync(&mut *log);
    assert!(log.retire(places[2].segment).expect("retire") > 0);
    let numbers: Vec<_> = log
        .segments()
        .iter()
        .map(|segment| segment.number)
        .collect();
    assert_eq!(
        numbers,
        [places[3].segment, places[4].segment, places[5].segment]
    );
    assert_eq!(log.retire(places[2].segment).expect("retire again"), 0);
    let reader = log.reader();
    let mut byte = [0];
    let gone = reader.read(places[2].segment, places[2].offset, &mut byte);
    assert!(matches!(gone, Err(LogError::NoSegment(number)) if number == places[2].segment));
    reader
        .read(places[3].segment, places[3].offset, &mut byte)
        .expect("a segment that stays");
    let end = log.end();
    drop(log);
    let (mut log, seen) = fixture.open();
    assert_eq!(payloads(&seen), [[3; 300], [4; 300], [5; 300]]);
    assert_goes_on(fixture, end, log.end());
    log.begin_segment();
    let next = append(&mut *log, 1, b"next");
    assert!(
        next.segment > places[5].segment,
        "numbers are not used again"
    );
}

fn the_segment_being_written_stays(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let one = append(&mut *log, 1, b"one");
    sync(&mut *log);
    assert_eq!(log.retire(one.segment).expect("retire"), 0);
    assert_eq!(log.segments().len(), 1);
    append(&mut *log, 1, b"two");
    sync(&mut *log);
    drop(log);
    assert_eq!(fixture.open().1.len(), 2);
}

fn payloads_are_read_by_place(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let one = append(&mut *log, 1, b"the first payload");
    log.begin_segment();
    let two = append(&mut *log, 1, b"the second payload");
    sync(&mut *log);
    drop(log);
    let (log, _) = fixture.open();
    let reader = log.reader();
    let mut part = [0; 5];
    reader
        .read(one.segment, one.offset + 4, &mut part)
        .expect("read");
    assert_eq!(&part, b"first");
    for (placed, expected) in [(one, "the first payload"), (two, "the second payload")] {
        let read = reader.read_frame_payload(placed.segment, placed.offset, placed.len);
        assert_eq!(read.expect("read"), expected.as_bytes());
        let shorter = reader.read_frame_payload(placed.segment, placed.offset, placed.len - 1);
        assert!(
            matches!(shorter, Err(LogError::BadRead { .. })),
            "{shorter:?}"
        );
        let beside = reader.read_frame_payload(placed.segment, placed.offset + 1, placed.len);
        assert!(
            matches!(beside, Err(LogError::BadRead { .. })),
            "{beside:?}"
        );
    }
    let far = reader.read(one.segment, 1 << 40, &mut part);
    assert!(matches!(far, Err(LogError::BadRead { .. })), "{far:?}");
}

fn a_body_in_flight_outlives_its_segment(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let one = append(&mut *log, 1, b"still on its way");
    let file = log.reader().open(one.segment).expect("open");
    for number in 0..6_u8 {
        log.begin_segment();
        append(&mut *log, 1, &[number; 3000]);
        sync(&mut *log);
        let before = log.segment().0 - 1;
        log.retire(quintet_log::SegmentNumber(before))
            .expect("retire");
    }
    let mut body = [0; 16];
    assert_eq!(file.read_at(one.offset, &mut body).expect("read"), 16);
    assert_eq!(&body, b"still on its way");
}

fn a_frame_buffer_is_used_again(fixture: &mut dyn Fixture) {
    let (mut log, _) = fixture.open();
    let mut frame = facts(b"a long payload first");
    let stamp = Stamp {
        epoch: Epoch(1),
        time_ms: 0,
    };
    log.append(log.end(), stamp, &mut frame).expect("append");
    assert_eq!(
        frame.payload(),
        b"a long payload first",
        "an append takes nothing away"
    );
    frame.clear();
    assert!(frame.is_empty());
    frame.payload_mut().extend_from_slice(b"short, and cut");
    frame.truncate(5);
    frame.set_kind(FrameKind::Body);
    log.append(log.end(), stamp, &mut frame).expect("append");
    sync(&mut *log);
    drop(log);
    let (_, seen) = fixture.open();
    assert_eq!(
        payloads(&seen),
        [b"a long payload first".as_slice(), b"short"]
    );
    assert_eq!((seen[1].kind, seen[1].count), (FrameKind::Body, 0));
}

fn frames_that_look_like_frames_are_only_bytes(fixture: &mut dyn Fixture) {
    // Everything a reader of the file can see, stored again as a message's body.
    let (mut log, _) = fixture.open();
    let one = append(&mut *log, 1, b"one");
    let mut copy = vec![0; 52 + 3];
    let start = one.offset - 52;
    log.reader()
        .read(one.segment, start, &mut copy)
        .expect("read");
    append(&mut *log, 1, &copy);
    sync(&mut *log);
    drop(log);
    assert_eq!(payloads(&fixture.open().1), [b"one".as_slice(), &copy]);
}

fn positions_go_on_after_reopening(fixture: &mut dyn Fixture) {
    let mut expected = Vec::new();
    let mut end = None;
    for round in 0..5_u8 {
        let (mut log, seen) = fixture.open();
        assert_eq!(
            payloads(&seen),
            expected.iter().map(Vec::as_slice).collect::<Vec<_>>()
        );
        if let Some(end) = end {
            assert_goes_on(fixture, end, log.end());
        }
        assert_eq!(log.durable(), log.end());
        for number in 0..3_u8 {
            let payload = vec![round * 3 + number; 40];
            append(&mut *log, u64::from(round), &payload);
            expected.push(payload);
        }
        sync(&mut *log);
        end = Some(log.end());
    }
}
