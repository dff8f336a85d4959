//! A node's member, and what it does with what it reads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quintet_cluster::{Duty, Fences, Limits, Member, Membership, Owned, Status, Timing, Writer};
use quintet_log::{FRAME_HEADER_BYTES, LogError, Options, Position, ReplayFrame, Storage};
use quintet_sim::Random;
use quintet_sim::cluster::{Clocks, Connection, Process};
use quintet_sim::disk::SimDisk;
use quintet_types::Settings;

use super::node::{Ground, Node, Without};
use super::oracle::{CLUSTER, SHARDS, image};
use crate::{Replay, locked};

/// A new process of a node, which begins to follow.
pub(super) fn start(number: usize, ground: &Arc<Ground>, clocks: &Clocks, seed: u64) -> Arc<Node> {
    let node = Node::new(number, ground, clocks, seed);
    let work = Work {
        node: Arc::downgrade(&node),
        ground: Arc::clone(ground),
        process: node.process.clone(),
        same_from: None,
        began: false,
    };
    let member = Member::start(membership(&node, ground, seed), work).expect("a mirror");
    node.follows(Box::new(move || member.status()));
    node
}

fn membership(node: &Node, ground: &Ground, seed: u64) -> Membership {
    let mut mirrors = Random::new(seed);
    Membership {
        stream: Arc::new(Connection {
            process: node.process.clone(),
            link: node.link.share(),
        }),
        mirror: Box::new(
            move || Ok(Arc::new(SimDisk::new(mirrors.next_u64())) as Arc<dyn Storage>),
        ),
        options: Options {
            segment_bytes: 1 << 20,
            ..Options::default()
        },
        cluster: CLUSTER,
        writer: Writer(seed),
        node: format!("node {}", node.number),
        peer_address: format!("10.0.0.{}:4600", node.number),
        limits: Limits::default(),
        timing: Timing {
            takeover_after: Duration::from_secs(3 + node.number as u64),
            ..Timing::default()
        },
        world: Arc::new(node.process.clone()),
        fences: Fences {
            padding: ground.without != Without::Padding,
            beginning: ground.without != Without::Beginning,
            ..Fences::default()
        },
    }
}

/// The user of the member.
pub(super) struct Work {
    node: Weak<Node>,
    ground: Arc<Ground>,
    process: Process,
    /// From here on what is replayed is what owners were.
    same_from: Option<Position>,
    began: bool,
}

impl Duty for Work {
    type State = Replay;

    fn begin(&mut self) -> Result<Replay, String> {
        if std::mem::replace(&mut self.began, true) {
            self.ground.again.fetch_add(1, Ordering::Relaxed);
        }
        self.same_from = None;
        Replay::new(SHARDS, &Settings::default()).map_err(|error| format!("{error:#}"))
    }

    fn frame(&mut self, state: &mut Replay, frame: ReplayFrame<'_>) -> Result<(), String> {
        state.apply(&frame)?;
        let contradiction = state.take_contradiction();
        if self.ground.watches() {
            let mut oracle = locked(&self.ground.oracle);
            // Who was told by a damaged leader where to begin knows too little, and never claims.
            let from = *self
                .same_from
                .get_or_insert_with(|| match self.ground.stream.lies() {
                    0 => oracle.same_from(),
                    _ => Position(u64::MAX),
                });
            let bytes = (FRAME_HEADER_BYTES + frame.payload.len()) as u64;
            let end = Position(frame.position.0 + bytes);
            if end >= from {
                if let Some(why) = contradiction {
                    panic!("epoch {}, at {:?}: {why}", frame.epoch.0, frame.position);
                }
                let replayed = || image(state.engines.iter());
                oracle.replayed(frame.epoch.0, end, &replayed);
            }
        }
        Ok(())
    }

    fn own(&mut self, owned: Owned<Replay>) {
        let epoch = owned.log.epoch().0;
        self.ground.newest.fetch_max(epoch, Ordering::Relaxed);
        if let Some(node) = self.node.upgrade() {
            node.owns(owned);
        }
    }

    fn heartbeat(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.heartbeat();
        }
    }

    fn step_down(&mut self, _why: LogError) {
        self.process.exit();
    }

    fn failed(&mut self, why: LogError) {
        panic!("a node stopped: {why}");
    }

    fn changed(&mut self, _status: &Status) {}
}
