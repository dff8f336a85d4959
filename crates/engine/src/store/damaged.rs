//! Damaged indexes are noticed: each row damages one, and names the assertion that stops.
//!
//! State that only one file can reach is damaged in that file, with [`fires`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::cold::Shelf;
use super::queue::WaitsTo;
use super::{DedupeKey, Durable};
use quintet_types::{
    At, BackTo, Body, Bound, ClientId, Extra, Lease, Message, MessageId, Ms, QueueId, Removal,
    RunId, Scope, SegmentRef, State, StateIndex,
};

use crate::cold::{Block, BlockAt};
use crate::fact::{DedupeId, DedupeKind, Fact};

/// Expects that this stops with an assertion of this reason.
pub(crate) fn fires(reason: &str, act: impl FnOnce()) {
    let Err(stopped) = catch_unwind(AssertUnwindSafe(act)) else {
        panic!("nothing notices: {reason}");
    };
    let reported = stopped.downcast_ref::<String>().map(String::as_str);
    let reported = reported.or_else(|| stopped.downcast_ref::<&str>().copied());
    let reported = reported.unwrap_or_default();
    assert!(
        reported.contains(reason),
        "{reported:?} instead of {reason:?}"
    );
}

const Q: QueueId = QueueId(0);
const ID: MessageId = MessageId(1);
const SEGMENT_REF: SegmentRef = SegmentRef(1);
const AT: At = At {
    queue: Q,
    priority: 1,
    position: 1,
    id: ID,
};
const BLOCK: BlockAt = BlockAt {
    run: RunId(1),
    ordinal: 0,
};

fn message(id: u64, extra: Extra) -> Message {
    let id = MessageId(id);
    let position = id.0 as i64;
    let at = At { position, id, ..AT };
    let mut message = Message::new(at, Ms(1), Body::new(b"body"));
    message.extra = Some(Box::new(extra));
    message
}

fn keyed() -> Extra {
    Extra {
        key: Some(Arc::from(*b"key")),
        name: Some(Arc::from(*b"name")),
        ..Extra::default()
    }
}

/// A queue and in it this message.
fn store(message: Message) -> Durable {
    let mut store = Durable::new(0, 1);
    let made = Fact::QueueMade {
        queue: Q,
        name: "q".into(),
        parent: None,
        created: Ms(1),
    };
    store.apply(made, SEGMENT_REF);
    store.apply(Fact::Put(message), SEGMENT_REF);
    store
}

fn ready() -> Durable {
    store(message(1, keyed()))
}

fn delayed() -> Durable {
    let due = Some(Ms(50));
    store(message(1, Extra { due, ..keyed() }))
}

fn in_state(state: State) -> Durable {
    let mut message = message(1, keyed());
    message.state = state;
    store(message)
}

fn reserved() -> Durable {
    let mut store = ready();
    let lease = Lease {
        client_id: ClientId(1),
        bound: Bound::Time,
        until: Some(Ms(100)),
        span_ms: 50,
        back_to: BackTo::Position,
        epoch: 0,
        since: Ms(0),
    };
    store.apply(Fact::Leased { at: AT, lease }, SEGMENT_REF);
    store
}

/// Its message is in a run, and expires.
fn stored() -> Durable {
    let mut store = ready();
    store.apply(evicted(), SEGMENT_REF);
    store
}

fn evicted() -> Fact {
    let order = (1, 1, ID);
    let block = Block {
        count: 1,
        live: 1,
        bytes: 4,
        first: order,
        last: order,
        expires: Some(Ms(100)),
        ..Block::new(0, 0, Q, StateIndex::Ready)
    };
    Fact::Evicted {
        run: BLOCK.run,
        block: Box::new(block),
        ids: vec![ID],
    }
}

fn loaded() -> Durable {
    let mut store = stored();
    assert!(store.load(BLOCK, vec![(0, message(1, keyed()))]));
    store
}

/// A put of it is known until it is done.
fn marked() -> (Durable, DedupeKey) {
    let mut store = ready();
    let dedupe_record = DedupeId::Whole(Box::from(*b"mark"));
    let remembered = Fact::Remembered {
        queue: Q,
        kind: DedupeKind::Dedupe,
        dedupe_record: dedupe_record.clone(),
        id: ID,
        until: Ms(100),
        scope: Scope::Done,
        sum: 0,
    };
    store.apply(remembered, SEGMENT_REF);
    (store, (Q, DedupeKind::Dedupe, dedupe_record))
}

fn queue(store: &mut Durable) -> &mut super::Queue {
    store.queue_mut(Q).expect("it was made")
}

fn remove(store: &mut Durable) {
    let why = Removal::Deleted;
    store.apply(Fact::Removed { at: AT, why }, SEGMENT_REF);
}

/// A damage, the state before it, the step behind it, and the assertion that fires.
type Row = (
    &'static str,
    fn() -> Durable,
    fn(&mut Durable),
    fn(&mut Durable),
);

const MESSAGES: &[Row] = &[
    (
        "an index names no free slot",
        ready,
        |s| drop(s.messages.remove(0)),
        |s| drop(s.take_out(0)),
    ),
    (
        "a message that goes into the maps has a queue",
        ready,
        |s| s.queues = Default::default(),
        |s| s.add(message(2, keyed()), None, SEGMENT_REF),
    ),
    (
        "a ready message is in its queue's order",
        ready,
        |s| drop(std::mem::take(&mut queue(s).ready)),
        remove,
    ),
    (
        "one not selectable is in its queue's order",
        || {
            let mut message = message(1, keyed());
            message.selectable = false;
            store(message)
        },
        |s| drop(std::mem::take(&mut queue(s).not_selectable)),
        remove,
    ),
    (
        "groups that are not built stay until they are",
        ready,
        |_| {},
        |s| _ = s.build_groups(Q, &mut 1),
    ),
    (
        "a key is known while a message of it is ready",
        ready,
        |s| queue(s).keys.clear(),
        remove,
    ),
    (
        "a ready message is in its key's list",
        ready,
        |s| {
            let own = queue(s).keys.get_mut(&b"key"[..]);
            own.expect("its key is known").clear();
        },
        remove,
    ),
    (
        "a reserved message is in its queue",
        reserved,
        |s| drop(std::mem::take(&mut queue(s).reserved)),
        remove,
    ),
    (
        "a reserved message is known by its name",
        reserved,
        |s| s.named.clear(),
        remove,
    ),
    (
        "a reserved message has left the name of its lease before",
        reserved,
        |_| {},
        |s| s.index_in(0),
    ),
    (
        "a prepared message is in its queue",
        || in_state(State::Prepared),
        |s| drop(std::mem::take(&mut queue(s).prepared)),
        remove,
    ),
    (
        "an archived message is listed by its time",
        || in_state(State::Done),
        |s| queue(s).archived.clear(),
        remove,
    ),
    (
        "a delayed message becomes ready",
        delayed,
        |s| s.messages.at_mut(0).state = State::Buried,
        |s| _ = s.promote(Q, Ms(60)),
    ),
    (
        "a queue's alarm is set and put off here alone",
        delayed,
        |s| s.alarms.clear(),
        remove,
    ),
    (
        "the alarm of a queue that goes is among the shard's",
        delayed,
        |s| s.alarms.clear(),
        |s| s.remove_queue(Q),
    ),
    (
        "a segment is counted while something lives in it",
        ready,
        |s| s.segment_refs.clear(),
        remove,
    ),
    (
        "a consumer waits on a queue that was found or made",
        ready,
        |s| s.queues = Default::default(),
        |s| s.enter_line(Q, 1, WaitsTo::Take),
    ),
    (
        "what a flush has forgotten stays until it is freed",
        || {
            let mut store = ready();
            let (queue, through, count) = (Q, ID, 1);
            let flushed = Fact::QueueFlushed {
                queue,
                through,
                count,
            };
            store.apply(flushed, SEGMENT_REF);
            store
        },
        |s| drop(s.messages.remove(0)),
        |s| _ = s.collect(10),
    ),
];

const MARKS: &[Row] = &[
    (
        "what a message is tied to is a deduplication record",
        || marked().0,
        |s| s.dedupe_records.clear(),
        |s| s.untie(ID),
    ),
    (
        "a message is tied to a deduplication record that is there",
        || marked().0,
        |s| s.dedupe_records.clear(),
        |s| s.keep_tied(Q, &[ID]),
    ),
    (
        "a deduplication record with a time has its end until it is over",
        || marked().0,
        |s| s.dedupe_ends.clear(),
        |s| s.forget(&marked().1),
    ),
];

const RUNS: &[Row] = &[
    (
        "a message that goes into the maps has a queue",
        stored,
        |s| s.queues = Default::default(),
        |s| _ = s.load(BLOCK, vec![(0, message(1, keyed()))]),
    ),
    (
        "a stored block in which something expires rings",
        stored,
        |s| s.cold.rings.clear(),
        |s| _ = s.load(BLOCK, Vec::new()),
    ),
    (
        "a block rings until it is given up",
        stored,
        |s| s.cold.rings.clear(),
        |s| s.give_up(BLOCK),
    ),
    (
        "a block that is forgotten rings no more",
        stored,
        |s| s.cold.rings.clear(),
        |s| drop(s.forget_block(BLOCK)),
    ),
    (
        "each turn loads one block",
        stored,
        |s| _ = s.cold.loaded.insert(s.cold.turn + 1, BLOCK),
        |s| _ = s.load(BLOCK, Vec::new()),
    ),
    (
        "a block that leaves memory is among the loaded ones",
        loaded,
        |s| s.cold.loaded.clear(),
        |s| s.unload(BLOCK),
    ),
    (
        "a block that is in memory is among the loaded ones",
        loaded,
        |s| s.cold.loaded.clear(),
        |s| drop(s.forget_block(BLOCK)),
    ),
    (
        "a block among the loaded ones is in force",
        loaded,
        |s| s.cold.runs.clear(),
        |s| drop(s.due_copies(BLOCK, Ms(1))),
    ),
    (
        "a block among the loaded ones is in memory",
        loaded,
        |s| s.cold.block_mut(BLOCK).expect("it is there").shelf = Shelf::Stored,
        |s| drop(s.due_copies(BLOCK, Ms(1))),
    ),
    (
        "a stored block is in its state index by its first message",
        stored,
        |s| queue(s).cold = None,
        |s| s.give_up(BLOCK),
    ),
    (
        "a body in a run is counted while its message is here",
        stored,
        |s| s.cold.bodies.clear(),
        |s| s.uncount_body(Some(BLOCK.run)),
    ),
    (
        "a block that a queue has loaded is in force",
        fair,
        |s| s.cold.runs.clear(),
        |s| s.shed(Q, 0),
    ),
    (
        "a block that a queue has loaded is in memory",
        fair,
        |s| s.cold.block_mut(BLOCK).expect("it is there").shelf = Shelf::Stored,
        |s| s.shed(Q, 0),
    ),
];

/// A loaded block of a queue with message groups.
fn fair() -> Durable {
    let mut store = loaded();
    let settings = quintet_types::QueueSettings {
        groups: quintet_types::Groups::Fair,
        ..quintet_types::QueueSettings::default()
    };
    store.set_groups(Q, super::Rules::of(&settings));
    store
}

/// Else what drops copies would find the first one again and again.
#[test]
fn a_loaded_block_that_a_log_puts_in_force_once_more_is_there_once_and_not_loaded() {
    let mut store = loaded();
    store.apply(evicted(), SEGMENT_REF);
    assert!(store.cold.loaded.is_empty());
    assert_eq!(store.cold.runs[&BLOCK.run].live, 1);
    assert!(store.load(BLOCK, vec![(0, message(1, keyed()))]));
    store.unload(BLOCK);
    assert!(store.cold.loaded.is_empty());
    assert!(store.forget_block(BLOCK).is_some());
    assert!(store.cold.runs.is_empty());
}

#[test]
fn each_damaged_index_is_noticed() {
    for (reason, state, damage, act) in [MESSAGES, MARKS, RUNS].concat() {
        let mut store = state();
        damage(&mut store);
        fires(reason, || act(&mut store));
    }
}
