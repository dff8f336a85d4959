//! Damaged groups are noticed.

use std::sync::Arc;

use super::*;
use crate::cold::Block;
use crate::store::damaged::fires;
use quintet_types::{At, Body, Extra, Message, MessageId, QueueId, RunId};

const BLOCK: BlockAt = BlockAt {
    run: RunId(1),
    ordinal: 0,
};

fn message(id: u64, key: &[u8]) -> Message {
    let at = At {
        id: MessageId(id),
        ..At::default()
    };
    let mut message = Message::new(at, Ms(0), Body::default());
    message.extra = Some(Box::new(Extra {
        key: Some(Arc::from(key)),
        ..Extra::default()
    }));
    message
}

/// Groups of an ordered queue, whose keys may be handed out once a minute: one message is
/// reserved, and a block with keys is open.
fn groups() -> KeyGroups {
    let settings = QueueSettings {
        groups: Groups::Ordered,
        key_take_rate: quintet_types::Rate {
            count: 1,
            per_ms: 60_000,
        },
        ..QueueSettings::default()
    };
    let rules = Rules::of(&settings).expect("its keys mean something");
    let mut groups = KeyGroups::new(rules, true);
    groups.enter(&message(1, b"a"), 1, Standing::Reserved);
    groups.handed(message(1, b"a").key(), Ms(1));
    groups.shelve(BLOCK, &row(), None);
    groups
}

fn row() -> Block {
    Block {
        keyed: true,
        ..Block::new(0, 0, QueueId(0), StateIndex::Ready)
    }
}

/// Two keys come and go, so that the first one is forgotten.
fn forget(groups: &mut KeyGroups) {
    for key in [b"b", b"c"] {
        groups.enter(&message(2, key), 2, Standing::Ready);
        groups.leave(&message(2, key), Standing::Ready);
    }
}

#[test]
fn each_damaged_index_is_noticed() {
    type Row = (&'static str, fn(&mut KeyGroups), fn(&mut KeyGroups));
    let rows: [Row; 9] = [
        (
            "a number names a group",
            |g| g.list.iter_mut().for_each(|group| *group = None),
            |g| g.leave(&message(1, b"a"), Standing::Reserved),
        ),
        (
            "a number is free when its group is forgotten",
            |g| g.unused.push(0),
            forget,
        ),
        (
            "a reserved message was counted when covered",
            |g| g.in_flight = 0,
            |g| g.leave(&message(1, b"a"), Standing::Reserved),
        ),
        (
            "a reserved message is counted in its group",
            |g| g.group_mut(0).in_flight = 0,
            |g| g.leave(&message(1, b"a"), Standing::Reserved),
        ),
        (
            "a group is known by its key",
            |g| {
                g.list.push(Some(Group::new(Arc::from(*b"b"))));
                g.idle = Some(1);
                g.list.push(Some(Group::new(Arc::from(*b"c"))));
            },
            |g| g.forget_idle(2),
        ),
        (
            "a group that time lets go is among those that ring",
            |g| g.rings.clear(),
            |g| g.handed(message(1, b"a").key(), Ms(2)),
        ),
        (
            "a group rings once",
            |g| {
                g.group_mut(0).rings = None;
            },
            |g| g.time(0, Ms(1)),
        ),
        (
            "the known part of a block was counted",
            |g| drop(g.known.insert(BLOCK, Box::new([(None, Pos::default())]))),
            |g| g.unshelve(BLOCK, &row()),
        ),
        (
            "the floor of a block is among the floors",
            |g| g.floors.clear(),
            |g| g.unshelve(BLOCK, &row()),
        ),
    ];
    for (reason, damage, act) in rows {
        let mut groups = groups();
        damage(&mut groups);
        fires(reason, || act(&mut groups));
    }
}
