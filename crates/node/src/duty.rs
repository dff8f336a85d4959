//! The user of a node's member: the replay of this server's queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use quintet_cluster::{Acks, Claim, Duty, Owned, Role, Seq, Status};
use quintet_config::Cluster;
use quintet_host::{Core, Replay, locked};
use quintet_jetstream::Names;
use quintet_log::{LogError, ReplayFrame};
use quintet_nodes::mirror::Mirrors;
use quintet_process::MainRequest;
use quintet_proxy::{Hint, Owners, watch};
use quintet_types::Settings;

use super::copies::Copies;
use super::lags::Lags;
use super::runs::Runs;
use super::{Serving, say};

/// Reports of the member to the rest of the process.
pub(super) struct MemberSignals {
    /// The number of the group whose log the member follows.
    pub(super) group: u16,
    /// How the main thread is woken.
    pub(super) requests: Sender<MainRequest>,
    /// The ownership ends already.
    pub(super) leaves: AtomicBool,
    /// The process ends with it. An ownership before this one has its own.
    pub(super) stops: AtomicBool,
    pub(super) happened: Mutex<Happened>,
    pub(super) core: Serving,
    pub(super) owners: watch::Sender<Owners>,
    /// How far appends are acknowledged, once this node owns.
    pub(super) acks: OnceLock<Acks>,
    /// This node's name.
    pub(super) node: String,
    pub(super) mirrors: Mirrors,
    pub(super) runs: Runs,
    /// How soon this node, a standby, applies what is appended.
    pub(super) lags: Lags,
    pub(super) copies: Copies,
}

#[derive(Default)]
pub(super) struct Happened {
    owned: Option<Owned<Replay>>,
    failed: Option<LogError>,
    /// It was said that this node is ready.
    ready: bool,
}

impl MemberSignals {
    /// Of a member that follows the log of these `names`; nothing has happened yet.
    pub(super) fn new(
        cluster: &Cluster,
        names: &Names,
        requests: &Sender<MainRequest>,
        owners: watch::Sender<Owners>,
        mirrors: &Mirrors,
        runs: Runs,
    ) -> Arc<Self> {
        Arc::new(Self {
            group: names.group,
            requests: requests.clone(),
            leaves: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            happened: Default::default(),
            core: OnceLock::new(),
            owners,
            acks: OnceLock::new(),
            node: cluster.node(),
            mirrors: mirrors.clone(),
            runs,
            lags: Default::default(),
            copies: Copies::new(&cluster.monitor, &names.stream),
        })
    }

    /// The events since it was asked last.
    pub(super) fn take(&self) -> (Option<Owned<Replay>>, Option<LogError>) {
        let mut happened = locked(&self.happened);
        (happened.owned.take(), happened.failed.take())
    }

    /// These shards decide, and the server's threads accept.
    pub(super) fn serves(&self, core: &Arc<Core>) {
        if self.core.set(Arc::downgrade(core)).is_err() {
            tracing::error!(group = self.group, "this node already serves");
        }
        self.owners.send_modify(|owners| {
            if let Owners::Other(hint) = std::mem::take(owners) {
                *owners = Owners::Us(hint);
            }
        });
    }

    /// This node, which owns, is to let another.
    pub(super) fn order_hand_over(&self) {
        if !self.leaves.load(Ordering::SeqCst) {
            self.requests
                .send(MainRequest::HandOver)
                .unwrap_or_default();
        }
    }

    /// Somebody else says who owns; what this node knows itself may be older.
    pub(super) fn hint(&self, hint: Hint) {
        self.owners.send_if_modified(|owners| {
            let newer = owners.hint().is_none_or(|known| known.epoch < hint.epoch);
            if newer && hint.node != self.node {
                *owners = Owners::Other(hint);
                return true;
            }
            false
        });
    }

    fn check(&self) {
        // The main thread is gone: so is everything soon.
        self.requests
            .send(MainRequest::ClusterChanged)
            .unwrap_or_default();
    }
}

/// Takes in the log's frames.
pub(crate) struct Work {
    shards: usize,
    settings: Settings,
    signals: Arc<MemberSignals>,
    began: bool,
    /// It has caught up with the log.
    stands_by: bool,
}

impl Work {
    pub(super) fn new(shards: usize, settings: Settings, signals: Arc<MemberSignals>) -> Self {
        Self {
            shards,
            settings,
            signals,
            began: false,
            stands_by: false,
        }
    }
}

impl Duty for Work {
    type State = Replay;

    fn begin(&mut self) -> Result<Replay, String> {
        if std::mem::replace(&mut self.began, true) {
            let group = self.signals.group;
            tracing::warn!(group, "the log is read again from its first entry");
        }
        self.stands_by = false;
        Replay::new(self.shards, &self.settings).map_err(|error| format!("{error:#}"))
    }

    fn frame(&mut self, state: &mut Replay, frame: ReplayFrame<'_>) -> Result<(), String> {
        state.apply(&frame)?;
        let contradiction = state.take_contradiction();
        if self.stands_by {
            self.signals.lags.applied(frame.time_ms);
            if let Some(why) = contradiction {
                let segment = frame.segment.0;
                let why =
                    format!("the counts in the snapshot of segment {segment} are wrong: {why}");
                tracing::warn!(group = self.signals.group, "{why}");
                return Err(why);
            }
        }
        Ok(())
    }

    fn is_complete(&self, _state: &Replay) -> bool {
        self.signals.runs.missing() == 0
    }

    fn begins_everywhere(&mut self, first: Seq) -> bool {
        self.signals.copies.begin_with(first)
    }

    fn check(&mut self, state: &Replay) {
        self.signals.runs.check(state);
    }

    fn own(&mut self, owned: Owned<Replay>) {
        if self.signals.acks.set(owned.log.acks()).is_err() {
            let group = self.signals.group;
            tracing::error!(group, "this process has owned the queues before");
        }
        locked(&self.signals.happened).owned = Some(owned);
        self.signals.check();
    }

    fn heartbeat(&mut self) {
        if let Some(core) = self.signals.core.get().and_then(Weak::upgrade) {
            core.heartbeat();
        }
    }

    fn step_down(&mut self, why: LogError) {
        self.signals.step_down(&why);
    }

    fn failed(&mut self, why: LogError) {
        locked(&self.signals.happened).failed = Some(why);
        self.signals.check();
    }

    fn changed(&mut self, status: &Status) {
        let (role, epoch) = (status.role.name(), status.epoch);
        let owner = status.owner.as_ref();
        let name = owner.map_or("nobody", |claim| &claim.node);
        let group = self.signals.group;
        tracing::info!(group, "{role}, epoch {epoch}, owned by {name}");
        let next = owner.map_or(Owners::Nobody, |claim| self.hint(status, claim));
        self.signals.owners.send_if_modified(|owners| {
            // While the log is read, others have named a later owner already.
            let newer = owners.hint().is_some_and(|known| known.epoch > epoch.0);
            if !newer {
                *owners = next;
            }
            !newer
        });
        self.stands_by = status.role == Role::Standby;
        match status.role {
            Role::Standby => {
                self.signals.mirrors.remove_older();
                if !std::mem::replace(&mut locked(&self.signals.happened).ready, true) {
                    quintet_process::notify::ready();
                    say("quintet ready");
                }
                say(&format!("quintet standby of {name}"));
            }
            Role::Reading | Role::Claiming | Role::Owner | Role::Deposed | Role::Stopped => {}
        }
    }

    fn clock(&mut self, ahead_ms: i64, off: bool) {
        if off {
            tracing::warn!(
                ahead_ms,
                "this node's clock differs from the cluster's time by more than a second: correct \
                 it. Until then this node takes over only if no other node can"
            );
        } else {
            tracing::info!(ahead_ms, "this node's clock is correct again");
        }
    }

    fn damaged(&mut self, copy: Option<(&str, &str)>) {
        match copy {
            Some((server, how)) => tracing::error!(
                "nats-server {server} has a damaged copy of the log: {how}. This node asked \
                 another server to lead. `quintet cluster status` prints the repair; see \"A \
                 damaged copy\" in docs/cluster.md"
            ),
            None => tracing::info!("the leading nats-server has a complete copy of the log"),
        }
    }
}

impl Work {
    /// Where clients go. What an earlier life of this node has claimed nobody serves.
    fn hint(&self, status: &Status, claim: &Claim) -> Owners {
        let ours = claim.node == self.signals.node;
        if ours && status.role != Role::Owner {
            return Owners::Nobody;
        }
        // Until the server runs, an own claim is shown as another's that cannot be reached.
        Owners::Other(Hint {
            epoch: claim.epoch.0,
            node: claim.node.clone(),
            address: claim.peer_address.clone(),
        })
    }
}
