//! A server that is a node of a cluster: what it checks before, how it follows the log, and how it
//! becomes the owner, or stops being it.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod copies;
mod duty;
mod lags;
mod leave;
mod numbers;
mod orders;
mod proxy_listeners;
mod runs;
mod seen;
mod teller;
mod upkeep;
mod word;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quintet_client::{Arrivals, AuditLog};
use quintet_cluster::{
    ClusterId, Fences, Limits, Member, Membership, Owned, Status, Threads as World, Timing, Writer,
};
use quintet_config::Config;
use quintet_host::{Core, Layout, Opened, Owner, Replay, locked};
use quintet_jetstream::{Error, JetStream};
use quintet_log::{LogError, Options, Storage};
use quintet_nodes::registry::{self, JoinError, Ourselves};
use quintet_nodes::{ClusterReport, Files, checks, mirror, report_shards};
use quintet_process::{MainRequest, again};
use quintet_proxy::{Intake, Owners, watch};

use duty::{MemberSignals, Work};
use proxy_listeners::{PeerListener, ProxyListeners};
use runs::Runs;
use teller::Teller;
use word::Word;

pub use leave::Threads;
pub use proxy_listeners::{earlier, socket};
pub use quintet_proxy::ProxyListener;

/// Pause between two tries to reach the servers.
const AGAIN: Duration = Duration::from_millis(250);
/// "no suitable peers for placement": servers that are too few, or have not met yet.
const NO_PEERS: u64 = 10_005;
/// So often it is said that they cannot be reached.
const TELL: Duration = Duration::from_secs(30);
/// Servers that were started together answer nothing until they have leaders, mostly for less than
/// this.
const ELECTION: Duration = Duration::from_secs(12);

/// How long things take.
fn timing(cluster: &quintet_config::Cluster) -> Timing {
    Timing {
        heartbeat: Duration::from_millis(cluster.heartbeat_ms),
        lease: Duration::from_millis(cluster.lease_ms),
        takeover_after: Duration::from_millis(cluster.takeover_after_ms),
    }
}

/// A node of a cluster that runs in this process: its member, clock and signals.
pub struct Node {
    member: Arc<Member<Work>>,
    signals: Arc<MemberSignals>,
    world: Arc<World>,
    proxy_listeners: ProxyListeners,
    files: Arc<Files>,
    /// The thread that speaks for it.
    teller: OnceLock<Weak<Teller>>,
    /// The node that is to own next, if somebody has named one.
    successor: Mutex<Option<String>>,
    drained: AtomicBool,
    /// Nodes that are, as far as this one knows.
    drained_nodes: AtomicU64,
    /// The cluster as this node saw it last, while it owned.
    seen: Mutex<Option<ClusterReport>>,
    /// Has it looked after at once.
    nudges: Mutex<Sender<()>>,
    /// A handoff waits so long for its acknowledgement.
    handover_wait: Duration,
}

/// A log this node has claimed, with what it led to.
pub struct Ownership {
    owned: Owned<Replay>,
    /// Where the runs are that it needs.
    runs: Arc<dyn Storage>,
    pub node: Arc<Node>,
}

impl Ownership {
    /// Begins the epoch: from here on this process decides.
    ///
    /// # Errors
    /// The log cannot be written, which is the end of it: another may own it by now.
    pub fn take(self, layout: &Layout) -> Result<(Opened, Arc<Node>)> {
        let Owned {
            log,
            recovery,
            lead_ms,
            state,
        } = self.owned;
        let (log, runs) = (Box::new(log), &self.runs);
        let opened = quintet_host::take_ownership(state, log, recovery, lead_ms, runs, layout);
        match opened {
            Ok(opened) => Ok((opened, self.node)),
            Err(error) => match error.downcast_ref::<LogError>() {
                Some(lost) if is_lost(lost) => {
                    self.node.signals.step_down(lost);
                    again::begin()
                }
                _ => Err(error),
            },
        }
    }
}

impl Node {
    /// The number of the group whose log it follows.
    fn group(&self) -> u16 {
        self.signals.group
    }

    /// The receiver of the log's failure.
    pub fn owner(&self) -> Box<dyn Owner> {
        Box::new(StepsDown(Arc::clone(&self.signals)))
    }

    /// A sentence with node, role and epoch: `n1 is owner in epoch 3`.
    pub fn role(&self) -> String {
        let status = self.member.status();
        let node = &self.signals.node;
        format!("{node} is {} in epoch {}", status.role.name(), status.epoch)
    }

    /// Its role and the owner, for statistics.
    pub fn texts(&self) -> Vec<(String, String)> {
        let status = self.member.status();
        let owner = status.owner.map_or_else(String::new, |claim| claim.node);
        vec![
            ("cluster_node".to_owned(), self.signals.node.clone()),
            ("cluster_role".to_owned(), status.role.name().to_owned()),
            ("cluster_owner".to_owned(), owner),
        ]
    }

    /// The storage of scripts' attachments.
    pub fn blobs(&self) -> Arc<dyn quintet_scripts::Blobs> {
        Arc::<Files>::clone(&self.files)
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        self.member.status()
    }

    /// These shards decide from now on: they append heartbeats, and `intake` takes the clients that
    /// other nodes bring.
    pub fn serves(&self, core: &Arc<Core>, intake: Arc<dyn Intake>) {
        self.proxy_listeners.serve_by(intake);
        self.signals.serves(core);
        self.nudge();
        if let Err(error) = self.signals.runs.clear_for(&Arc::downgrade(core)) {
            tracing::warn!("unneeded runs stay in JetStream: {error:#}");
        }
    }

    /// By how many ms the wall clock is ahead of the time that this node decides by, if it does.
    fn clock_ahead_ms(&self) -> Option<i64> {
        let core = self.signals.core.get().and_then(Weak::upgrade)?;
        Some(core.clock.ahead().0)
    }

    /// Whether the server runs that decides.
    fn serves_now(&self) -> bool {
        self.signals.core.get().is_some()
    }

    /// Others should own rather than this node, or not so; `nodes` are drained, this one included.
    fn drain(&self, drained: bool, nodes: u64) {
        self.drained_nodes.store(nodes, Ordering::Relaxed);
        if self.drained.swap(drained, Ordering::Relaxed) != drained {
            tracing::info!(
                group = self.group(),
                "this node is {}",
                if drained { "drained" } else { "undrained" }
            );
            self.member.drain(drained);
        }
    }

    fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// Starts the periodic work at once.
    fn nudge(&self) {
        // Nobody is there any more: the node ends.
        locked(&self.nudges).send(()).unwrap_or_default();
    }

    /// The node that should own after this one, if one could at once.
    fn best_successor(&self) -> Option<String> {
        self.teller.get()?.upgrade()?.best_successor()
    }
}

/// A node's log failed: it is another's now, or the disk or the stream is not what it was.
struct StepsDown(Arc<MemberSignals>);

impl Owner for StepsDown {
    fn group(&self) -> u16 {
        self.0.group
    }

    fn log_failed(&self, error: &LogError) {
        if is_lost(error) {
            self.0.step_down(error);
            return;
        }
        tracing::error!(group = self.0.group, "stopping: {error}");
        eprintln!("quintet: stopping: cannot write the log: {error}");
        std::process::exit(1);
    }
}

/// Somebody else owns the log; or what it has is to be read again to know.
fn is_lost(error: &LogError) -> bool {
    matches!(error, LogError::Fenced { .. } | LogError::BadEntry { .. })
}

/// A line for supervisors and tests.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        tracing::debug!("cannot print: {error}");
    }
}

/// Checks `[cluster]` and its files before a start, without a connection.
///
/// # Errors
/// A setting or file is missing or wrong.
pub fn check(config: &Config) -> Result<()> {
    if !config.cluster.is_on() {
        return Ok(());
    }
    checks::before(config)?;
    proxy_listeners::tls(&config.cluster)?;
    checks::servers(&config.cluster).map(drop)
}

/// Follows the cluster's log until this node owns it; until then clients that come to
/// `proxy_listeners` are brought to the owner, so many at once, and counted by `arrivals`.
/// `reload`: whatever a node that only follows reads again. `None`: it had to stop before.
///
/// # Errors
/// Something is missing or wrong, named in one text; or the log cannot be followed.
pub fn follow(
    config: &Config,
    mut proxy_listeners: Vec<ProxyListener>,
    connections: u64,
    arrivals: Arc<dyn Arrivals>,
    audit: Arc<dyn AuditLog>,
    reload: &dyn Fn(),
    (requests, inbox): (&Sender<MainRequest>, &Receiver<MainRequest>),
) -> Result<Option<Ownership>> {
    checks::before(config)?;
    let cluster = &config.cluster;
    let tls = proxy_listeners::tls(cluster)?;
    let peer_listener = proxy_listeners::open_peer_listener(config)?;
    let (proxy, (owners, known)) = (ProxyListeners::default(), watch::channel(Owners::Nobody));
    let settings = |of| proxy_listeners::settings(of, tls.clone(), connections);
    // This node has just handed off: its clients need not wait for what follows.
    let word = again::word_left().and_then(|word| Word::from_text(&word));
    if let Some(word) = &word {
        owners.send_replace(Owners::Other(word.successor.clone()));
        let (listeners, limits) = (std::mem::take(&mut proxy_listeners), Arc::clone(&arrivals));
        proxy.begin(listeners, settings(word.cluster), known.clone(), limits)?;
    }
    let joined = join(config, &peer_listener, word.as_ref(), (inbox, reload))?;
    let Some((stream, registered, ourselves)) = joined else {
        return Ok(None);
    };
    let mirrors = mirror::Mirrors::new(&config.data)?;
    let (replicas, tags) = (checks::replicas(cluster), &cluster.placement_tags);
    let there = until(inbox, reload, || {
        let objects = (stream.runs(replicas, tags)?, stream.files(replicas, tags)?);
        let drained = registry::is_drained(&stream, cluster, &cluster.node())?;
        Ok((objects, drained))
    });
    let Some(((objects, attached), drained)) = there? else {
        return Ok(None);
    };
    let runs = Runs::open(&config.data, Arc::new(objects))?;
    let signals = MemberSignals::new(cluster, stream.names(), requests, owners, &mirrors, runs);
    let shards = usize::try_from(config.shards).unwrap_or(usize::MAX);
    let work = Work::new(shards, config.engine_settings(), Arc::clone(&signals));
    let world = Arc::new(World::new());
    let membership = membership(config, &stream, registered, ourselves, mirrors, &world);
    let member = Member::start_as(membership, work, drained).context("cannot follow the log")?;
    let (nudges, nudged) = channel();
    let node = Arc::new(Node {
        member,
        signals,
        world,
        proxy_listeners: proxy,
        files: Arc::new(Files(attached)),
        teller: OnceLock::new(),
        successor: Mutex::default(),
        drained: AtomicBool::new(drained),
        drained_nodes: AtomicU64::new(u64::from(drained)),
        seen: Mutex::default(),
        nudges: Mutex::new(nudges),
        handover_wait: Duration::from_millis(cluster.handover_wait_ms),
    });
    let teller = Arc::new(Teller {
        node: Arc::clone(&node),
        stream,
        cluster: cluster.clone(),
        address: peer_listener.address.clone(),
        settings: settings(registered),
        audit,
    });
    node.teller.get_or_init(|| Arc::downgrade(&teller));
    if word.is_none() {
        node.proxy_listeners
            .begin(proxy_listeners, settings(registered), known, arrivals)?;
    }
    node.proxy_listeners.listen(peer_listener, &teller)?;
    teller.ask_who_owns();
    upkeep::start(&teller, nudged)?;
    let ownership = wait(&node, inbox, reload)?;
    if ownership.is_none() {
        node.end_standby();
    }
    Ok(ownership)
}

/// Connects to the servers, and enters this node in the cluster's registry. `None`: it had to stop
/// before.
fn join(
    config: &Config,
    peer_listener: &PeerListener,
    word: Option<&Word>,
    (inbox, reload): (&Receiver<MainRequest>, &dyn Fn()),
) -> Result<Option<(Arc<JetStream>, ClusterId, Ourselves)>> {
    let cluster = &config.cluster;
    let servers = checks::servers(cluster)?;
    let names = checks::names(cluster);
    let Some(stream) = until(inbox, reload, || {
        Ok(JetStream::connect(&servers, names.clone())?)
    })?
    else {
        return Ok(None);
    };
    let stream = Arc::new(stream);
    checks::of_servers(&stream, cluster)?;
    // The standard library's hash keys are random.
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let ourselves = Ourselves {
        peer_address: peer_listener.address.clone(),
        writer: Writer(random()),
        home: mirror::home(&config.data, random())?,
    };
    let mut twins = registry::Twins::default();
    let joined = until(inbox, reload, || {
        registry::join(&stream, cluster, config.shards, &ourselves, &mut twins)
    });
    let Some(registered) = joined? else {
        return Ok(None);
    };
    if word.is_some_and(|word| word.cluster != registered) {
        tracing::warn!("the cluster was created anew, so this node begins again");
        again::begin();
    }
    registry::renew(&stream, cluster, &ourselves)?;
    report_shards(&config.data, config.shards)?;
    Ok(Some((stream, registered, ourselves)))
}

/// How this node takes part in the cluster's log.
fn membership(
    config: &Config,
    stream: &Arc<JetStream>,
    registered: ClusterId,
    ourselves: Ourselves,
    mirrors: mirror::Mirrors,
    world: &Arc<World>,
) -> Membership {
    let cluster = &config.cluster;
    Membership {
        stream: Arc::<JetStream>::clone(stream),
        mirror: Box::new(move || mirrors.next()),
        options: Options {
            segment_bytes: config.segment_bytes,
            ..Options::default()
        },
        cluster: registered,
        writer: ourselves.writer,
        node: cluster.node(),
        peer_address: ourselves.peer_address,
        limits: Limits {
            entries: usize::try_from(cluster.window).unwrap_or(1),
            ..Limits::default()
        },
        timing: timing(cluster),
        world: Arc::<World>::clone(world),
        fences: Fences::default(),
    }
}

/// Why this node cannot be a standby, and what there is to do.
fn cannot_follow(error: LogError) -> anyhow::Error {
    let spoiled = matches!(error, LogError::BadEntry { .. });
    let error = anyhow::Error::new(error);
    match spoiled {
        true => error.context(
            "cannot follow the log: an entry is damaged or from another program. If a node still \
             owns the queues, start no other node and export its messages (`quintet export`). \
             Otherwise create the stream again from the mirror of a node (`quintet cluster reseed`; \
             docs/cluster.md, \"When things are gone\")",
        ),
        false => error.context("cannot follow the log"),
    }
}

/// Waits until this node owns, or has to stop; `reload`: what a node that
/// only follows reads again.
fn wait(
    node: &Arc<Node>,
    inbox: &Receiver<MainRequest>,
    reload: &dyn Fn(),
) -> Result<Option<Ownership>> {
    while let Ok(request) = inbox.recv() {
        match request {
            MainRequest::Stop => return Ok(None),
            MainRequest::ClusterChanged => {
                let (owned, failed) = node.signals.take();
                if let Some(error) = failed {
                    return Err(cannot_follow(error));
                }
                if let Some(owned) = owned {
                    // Where this takes long another node may take over, which is found out by
                    // appending.
                    let mut pause = || (0..4).all(|_| pause(inbox, reload));
                    let runs = node.signals.runs.complete(&owned.state, &mut pause)?;
                    let node = Arc::clone(node);
                    return Ok(runs.map(|runs| Ownership { owned, runs, node }));
                }
            }
            // It owns no longer, or not yet.
            MainRequest::HandOver | MainRequest::StepDown => {}
            MainRequest::Reload(..) => reload(),
            MainRequest::Drain(_) => {
                tracing::warn!("this node does not own the queues, so there is nothing to drain");
            }
        }
    }
    Ok(None)
}

/// Tries until the servers answer. `None`: told to stop before.
fn until<T>(
    inbox: &Receiver<MainRequest>,
    reload: &dyn Fn(),
    mut ask: impl FnMut() -> Result<T, JoinError>,
) -> Result<Option<T>> {
    let mut reported: Option<Instant> = None;
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(Some(answer)),
            Err(JoinError::Twin) => {}
            Err(JoinError::Servers(Error::Silent | Error::Bucket(..)))
                if began.elapsed() < ELECTION => {}
            Err(JoinError::Servers(
                error @ (Error::Unreachable(..) | Error::Silent | Error::Bucket(..)),
            )) => {
                if reported.is_none_or(|reported| reported.elapsed() > TELL) {
                    reported = Some(Instant::now());
                    tracing::warn!("{error}; retrying");
                }
            }
            // Servers that were started together have not found each other yet.
            Err(JoinError::Servers(Error::Refused(_, refused)))
                if refused.code == 503
                    || refused.err_code == NO_PEERS && began.elapsed() < TELL => {}
            Err(error) => return Err(error.into()),
        }
        if !pause(inbox, reload) {
            return Ok(None);
        }
    }
}

/// Waits until it is time to ask again. False: told to stop.
fn pause(inbox: &Receiver<MainRequest>, reload: &dyn Fn()) -> bool {
    match inbox.recv_timeout(AGAIN) {
        Ok(MainRequest::Stop) | Err(RecvTimeoutError::Disconnected) => false,
        Ok(MainRequest::Reload(..)) => {
            reload();
            true
        }
        Ok(
            MainRequest::Drain(_)
            | MainRequest::ClusterChanged
            | MainRequest::HandOver
            | MainRequest::StepDown,
        )
        | Err(RecvTimeoutError::Timeout) => true,
    }
}

/// The shards that decide, while they do.
type Serving = OnceLock<Weak<Core>>;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_node_that_waits_for_the_servers_reads_its_limits_again_when_it_is_told_to() {
        let (orders, inbox) = channel();
        let reloads = Cell::new(0);
        let reload = || reloads.set(reloads.get() + 1);
        for order in [
            MainRequest::HandOver,
            MainRequest::Reload(None, None),
            MainRequest::Stop,
        ] {
            orders.send(order).expect("the test has the other end");
        }
        assert!(pause(&inbox, &reload));
        assert_eq!(reloads.get(), 0);
        assert!(pause(&inbox, &reload));
        assert_eq!(reloads.get(), 1);
        assert!(!pause(&inbox, &reload));
    }
}
