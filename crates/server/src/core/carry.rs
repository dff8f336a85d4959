//! Carrying messages from shard to shard.
//!
//! Both are locked while it is done, so both parts of it land in one batch,
//! which becomes one frame.

use std::sync::MutexGuard;

use quintet_engine::{Delivery, Ms, Side, carry};

use super::locked;
use super::{Core, Need, Shard};

/// Messages carried in one hold of two shards' locks.
const SLICE: usize = 512;

impl Core {
    /// Locks two shards, in the order of their numbers; answers them in the
    /// order asked for.
    pub(super) fn lock_two(
        &self,
        one: usize,
        other: usize,
    ) -> (MutexGuard<'_, Shard>, MutexGuard<'_, Shard>) {
        if one < other {
            let first = self.lock(one);
            (first, self.lock(other))
        } else {
            let first = self.lock(other);
            (self.lock(one), first)
        }
    }

    /// Carries over all that shard `from` has sent. `scratch` is empty; `out`
    /// gets the outcomes of takes that waited. Answers the newest batch
    /// something was recorded in; 0: nothing was.
    pub(super) fn carry_all(
        &self,
        from: usize,
        now: Ms,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) -> u64 {
        let mut recorded = 0;
        loop {
            let shard = self.lock(from);
            let Some(into) = shard.engine.sends_to() else {
                let next = shard.engine.next_deadline();
                drop(shard);
                self.timer.notify(next);
                return recorded;
            };
            drop(shard);
            let (mut from, mut into) = self.lock_two(from, into);
            self.carry_between(&mut from, &mut into, now, SLICE, scratch, out);
            recorded = self.progress.open();
            let next = into.engine.next_deadline();
            drop((from, into));
            self.timer.notify(next);
        }
    }

    /// Carries over up to `max` messages that `from` has sent to `into`.
    pub(super) fn carry_between(
        &self,
        from: &mut Shard,
        into: &mut Shard,
        now: Ms,
        max: usize,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) {
        let leaves = Side {
            engine: &mut from.engine,
            journal: &mut from.batch,
        };
        let enters = Side {
            engine: &mut into.engine,
            journal: &mut into.batch,
        };
        carry(now, leaves, enters, max, scratch);
        self.collect(into, scratch, out);
    }

    /// Says what the deliveries of a shard wait for, and passes on what its
    /// engine asked for.
    pub(crate) fn collect(
        &self,
        shard: &mut Shard,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) {
        let waits = self.waits_for_disk();
        out.extend(scratch.drain(..).map(|delivery| {
            let need = shard.need(delivery.hold, &self.progress, waits);
            (delivery, need)
        }));
        self.forward_wants(shard);
        if shard.engine.has_intents() {
            locked(&self.intents).extend(shard.engine.take_intents());
            self.hooks_work.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quintet_engine::{
        Answer, BackTo, Body, Caller, Command, DeadLetter, LeaseAsk, LeaseOwner, LeaseTime, Name,
        Outcome, Overrides, Party, Pattern, Peek, Put, Settings, Take, shard_of_queue,
    };
    use quintet_log::{Epoch, FrameBuf, FrameKind, Stamp};

    use super::super::recover::{Layout, Opened, open};
    use super::super::shard::fill;
    use super::*;

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
        open(dir, &layout, &settings).expect("it opens")
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
            party: Party(1),
            ..Caller::default()
        };
        let Shard { engine, batch, .. } = shard;
        match engine.submit(now, caller, command, batch, &mut Vec::new()) {
            Answer::Now(outcome, _) => outcome,
            Answer::Later => panic!("nothing here waits"),
        }
    }

    #[test]
    fn what_is_sent_survives_crashes_until_it_is_carried() {
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
            lease: Some(LeaseAsk {
                owner: LeaseOwner::Connection,
                time: LeaseTime::OwnTtr,
                back_to: BackTo::Place,
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
            carry(now, leaves, enters, SLICE, &mut Vec::new());
            assert_eq!(from.engine.sends_to(), None);
            if written {
                write(&mut opened, now);
            }
            drop(opened);
            opened = start(dir);
            let sends = opened.shards[0].engine.sends_to();
            assert_eq!(sends.is_none(), written);
        }
        let look = Command::Peek(Peek::Ready(DEAD.into()));
        let Outcome::Messages(messages) = ask(&mut opened.shards[1], now, look) else {
            panic!("it is lost");
        };
        assert_eq!(messages[0].body, Body::new(b"tried"));
    }
}
