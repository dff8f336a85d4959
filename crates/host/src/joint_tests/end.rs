//! How a run ends: everything heals and drains, and all replies are compared with the state.

use std::sync::atomic::{AtomicU64, Ordering};

use quintet_cluster::Role;
use quintet_sim::history::{Answer, ClientRequest};
use quintet_types::Wait;

use super::client::{QUEUES, take};
use super::oracle;
use super::run::{CALM, Run, RunCounts};
use crate::locked;

impl Run {
    /// Nothing goes wrong any more.
    pub(super) fn heal(&self) {
        self.ground.stream.heal();
        self.ground.bucket.heal();
        let mut state = locked(&self.state);
        state.calm = true;
        for node in state.nodes.clone() {
            node.link.cut(false, false);
            node.process.stall(0);
            node.process.resume();
        }
    }

    /// Takes all there is, as a client that has just come.
    pub(super) fn drain(&self) {
        for queue in 0..QUEUES.len() {
            while self.drained(queue) != Answer::Empty {}
        }
    }

    fn drained(&self, queue: usize) -> Answer {
        let served = || self.connect(&mut locked(&self.state), 0).is_some();
        assert!(
            self.wait(CALM, served),
            "nothing goes wrong, and nobody serves"
        );
        let call = {
            let state = &mut *locked(&self.state);
            let (connection, life) = self.connect(state, 0).expect("somebody serves");
            let ask = ClientRequest::Take { removes: true };
            let number = u8::try_from(queue).expect("there are few");
            let call = state.history.begin_call(connection, number, ask);
            state.clients[0].asks(call, number, ask, 1);
            let node = state.life(life).expect("it serves");
            self.send(
                state,
                &node,
                0,
                connection,
                call,
                take(queue, true, Wait::No),
            );
            call
        };
        let answer = || locked(&self.state).history.answer(call);
        assert!(
            self.wait(CALM, || answer().is_some()),
            "nothing goes wrong, and nobody answers"
        );
        answer().expect("it was waited for")
    }

    /// One owns, the others have what it has.
    pub(super) fn settled(&self) {
        let nodes = locked(&self.state).nodes.clone();
        let roles: Vec<_> = nodes.iter().map(|node| node.status()).collect();
        let owners = roles.iter().filter(|status| status.role == Role::Owner);
        assert_eq!(owners.count(), 1, "{roles:?}");
        let newest = self.ground.newest.load(Ordering::Relaxed);
        for status in &roles {
            assert_eq!(status.epoch.0, newest, "all know who owns: {roles:?}");
            assert!(
                matches!(status.role, Role::Owner | Role::Standby),
                "{roles:?}"
            );
        }
        let owner = nodes.iter().find(|node| node.serves() == Some(newest));
        let owner = owner.and_then(|node| node.image()).expect("it serves");
        locked(&self.ground.oracle).read_on();
        let anew = oracle::read_anew(&self.ground.stream);
        assert!(
            anew == owner,
            "what the stream has is not what the owner is"
        );
    }

    /// Events of the run.
    pub(super) fn seen(&self, troubled: u64) -> RunCounts {
        let state = locked(&self.state);
        if let Err(broken) = state.history.check() {
            panic!("{broken}");
        }
        let oracle = locked(&self.ground.oracle);
        let unknown = state.history.calls().iter();
        let unknown = unknown.filter(|call| call.answered.is_none());
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let some = |of: &Option<AtomicU64>| of.as_ref().map_or(0, count);
        RunCounts {
            acknowledged: state.history.acknowledged() as u64,
            troubled,
            unknown: unknown.count() as u64,
            owners: count(&self.ground.newest),
            again: count(&self.ground.again),
            purges: self.ground.stream.purges().len() as u64,
            retired: count(&self.ground.retired),
            voids: oracle.voids as u64,
            compared: oracle.compared as u64,
            runs: self.ground.bucket.counts()[0] as u64,
            cut: oracle.cut as u64,
            chunks: some(&self.ground.chunks),
            hooked: some(&self.ground.hook),
        }
    }
}
