//! Carrying messages from shard to shard, over crashes.

use std::path::Path;

use quintet_engine::{Side, carry};
use quintet_log::{Epoch, FrameBuf, FrameKind, Stamp};
use quintet_types::{
    Answer, BackTo, Body, Caller, ClientId, Command, DeadLetter, LeaseOwner, LeaseRequest,
    LeaseTime, Ms, Name, Outcome, Overrides, Pattern, Peek, Put, Settings, Take, shard_of_queue,
};

use super::Shard;
use super::recover::{Layout, Opened, open_dir};
use super::shard::fill;

const WORK: &str = "a";
const DEAD: &str = "b";

fn start(dir: &Path) -> Opened {
    let layout = Layout {
        shards: 2,
        segment_bytes: 1 << 20,
        spares: 0,
        memory: 256 << 20,
    };
    let rule = Overrides {
        attempts_max: Some(1),
        dead_letter: Some(DeadLetter::To(DEAD.into())),
        ..Overrides::default()
    };
    let settings = Settings {
        rules: vec![(Pattern::new(WORK), rule)],
        ..Settings::default()
    };
    open_dir(dir, &layout, &settings).expect("it opens")
}

/// Writes what the shards have recorded as one frame, as a commit does.
fn write(opened: &mut Opened, now: Ms) {
    let mut frame = FrameBuf::new(FrameKind::Facts);
    let mut batches: Vec<_> = opened
        .shards
        .iter_mut()
        .map(|shard| std::mem::take(&mut shard.batch))
        .collect();
    frame.count = fill(frame.payload_mut(), &mut batches).0;
    let stamp = Stamp {
        epoch: Epoch(opened.recovery.last_epoch.0 + 1),
        time_ms: now.0,
    };
    let log = &mut opened.committer.log;
    let end = log.end();
    log.append(end, stamp, &mut frame).expect("written");
}

fn ask(shard: &mut Shard, now: Ms, command: Command) -> Outcome {
    let caller = Caller {
        client_id: ClientId(1),
        ..Caller::default()
    };
    let Shard { engine, batch, .. } = shard;
    match engine.submit(now, caller, command, batch, &mut Vec::new()) {
        Answer::Now(outcome, _) => outcome,
        Answer::Later => panic!("nothing here waits"),
    }
}

#[test]
fn a_sent_message_survives_crashes_until_it_is_carried() {
    assert_eq!(
        [WORK, DEAD].map(|name| shard_of_queue(name.as_bytes(), 2)),
        [0, 1]
    );
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut opened = start(dir);
    let now = opened.clock.now();
    let put = Put {
        queue: WORK.into(),
        body: Body::new(b"tried"),
        ..Put::default()
    };
    ask(&mut opened.shards[0], now, Command::Put(put));
    let take = Take {
        queues: std::iter::once(Name::from(WORK)).collect(),
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::OwnTtr,
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..Take::default()
    };
    ask(&mut opened.shards[0], now, Command::Take(take));
    write(&mut opened, now);
    drop(opened);

    // Each start ends the lease that was lost, or finds it ended; a crash
    // follows before anything is carried.
    for _ in 0..2 {
        let opened = start(dir);
        assert_eq!(opened.shards[0].engine.sends_to(), Some(1));
    }

    // Carried, and a crash before that is written: it is still sent.
    let mut opened = start(dir);
    for written in [false, true] {
        let [from, into] = &mut opened.shards[..] else {
            panic!("two shards")
        };
        let leaves = Side {
            engine: &mut from.engine,
            journal: &mut from.batch,
        };
        let enters = Side {
            engine: &mut into.engine,
            journal: &mut into.batch,
        };
        carry(now, leaves, enters, 512, &mut Vec::new());
        assert_eq!(from.engine.sends_to(), None);
        if written {
            write(&mut opened, now);
        }
        drop(opened);
        opened = start(dir);
        let sends = opened.shards[0].engine.sends_to();
        assert_eq!(sends.is_none(), written);
    }
    let peek = Command::Peek(Peek::Ready(DEAD.into()));
    let Outcome::Messages(messages) = ask(&mut opened.shards[1], now, peek) else {
        panic!("it is lost");
    };
    assert_eq!(messages[0].body, Body::new(b"tried"));
}
