//! The cluster's registry: what all of its nodes agree on, who they are, and which stream is its
//! log. Never asked whether a node lives: that the log says.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::Result;
use quintet_cluster::{ClusterId, Seq, Writer};
use quintet_config::Cluster;
use quintet_host::wall_ms;
use quintet_jetstream::{Bucket, Error, Info, JetStream, Names};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::checks::{self, replicas};

/// Version of what is written here and in the log.
const FORMAT: u64 = 1;
/// A node's entry is renewed so often ...
const RENEW: Duration = Duration::from_secs(10);
/// ... and one that was not for so long is nobody's.
const GONE: Duration = Duration::from_secs(30);

/// A node that was silent for so long is no longer listed.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Bytes of a node's name, at most: what a claim or a handoff has room for.
const NAME_MAX: usize = 255;

/// Settings that all nodes share.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    id: u64,
    made_ms: u64,
    groups: u64,
    shards: u64,
    format: u64,
}

/// Which stream is a group's log.
#[derive(Default, Serialize, Deserialize)]
struct Group {
    /// The id in the stream's metadata. Empty: the stream has none, as an older version or an
    /// operator made it.
    #[serde(default)]
    id: String,
    /// When the stream was made. Nodes that make it at the same moment change that, so it is
    /// compared only where there is no id.
    created: String,
    /// It is being filled from a directory, and not whole.
    #[serde(default)]
    filling: bool,
    /// No node has seen it yet.
    #[serde(default)]
    making: bool,
}

impl Group {
    /// # Errors
    /// The stream `name` is not this log.
    fn is(&self, name: &str, info: &Info) -> Result<(), Reason> {
        if self.id.is_empty() {
            // Readers check that entries are of this cluster; without entries only this is known.
            if info.created == self.created || info.ends().last > Seq(0) {
                return Ok(());
            }
            return Err(format!(
                "the stream {name} was created at {}, but the log of this cluster at {}: it is \
                 another stream",
                info.created, self.created
            ));
        }
        if info.log_id() == Some(&self.id) {
            return Ok(());
        }
        Err(format!(
            "the stream {name} has the id {} in its metadata, but the log of this cluster has {}: \
             it is another stream",
            info.log_id().unwrap_or("(none)"),
            self.id
        ))
    }
}

fn log_id(writer: Writer) -> String {
    format!("{:016x}", writer.0)
}

/// The key of the group whose log `names` are of.
fn key_of(names: &Names) -> String {
    format!("group.{}", names.group)
}

/// A node.
#[derive(Serialize, Deserialize)]
struct Entry {
    address: String,
    version: String,
    /// The process.
    writer: u64,
    /// Its data directory.
    home: u64,
    /// Name of the NATS server on its machine; empty: not known.
    #[serde(default)]
    near: String,
    at_ms: u64,
}

/// An operator's order to a node.
#[derive(Serialize, Deserialize)]
struct Wish {
    /// Others should own rather than it.
    drained: bool,
}

/// This process, as it is registered.
#[derive(Clone)]
pub struct Ourselves {
    /// Where other nodes reach it.
    pub peer_address: String,
    /// Its data directory's number, and its own.
    pub home: u64,
    pub writer: Writer,
}

impl Ourselves {
    fn entry(&self, cluster: &Cluster) -> Entry {
        Entry {
            address: self.peer_address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            writer: self.writer.0,
            home: self.home,
            near: cluster.near.clone(),
            at_ms: wall_ms(),
        }
    }

    /// Whether another process is registered under this node's name, and lives.
    fn twin(&self, cluster: &Cluster, entry: &Entry) -> Option<Reason> {
        let age = Duration::from_millis(wall_ms().saturating_sub(entry.at_ms));
        (entry.home != self.home && age < GONE).then(|| {
            format!(
                "another process runs as the node {:?} of this cluster, at {}, last heard of {} s \
                 ago: give this node another name (cluster.node)",
                cluster.node(),
                entry.address,
                age.as_secs()
            )
        })
    }
}

/// The processes that were registered under this node's name while it starts. One that renews its
/// entry lives; one that does not may be this node's own with the directory it had before.
#[derive(Default)]
pub struct Twins(Option<(Instant, u64, u64)>);

impl Twins {
    /// Whether the one with this entry is gone, as far as this is known.
    ///
    /// # Errors
    /// It lives: `reason`.
    fn is_gone(&mut self, now: Instant, entry: &Entry, reason: Reason) -> Result<bool, Reason> {
        match self.0 {
            Some((_, writer, at_ms)) if (writer, at_ms) != (entry.writer, entry.at_ms) => {
                Err(reason)
            }
            Some((since, ..)) => Ok(now.saturating_duration_since(since) >= GONE),
            None => {
                tracing::warn!(
                    "{reason}. It may be this node with its previous directory: the start waits \
                     until it has been silent for {} s",
                    GONE.as_secs()
                );
                self.0 = Some((now, entry.writer, entry.at_ms));
                Ok(false)
            }
        }
    }
}

/// Why this node is not part of the cluster, in words for the operator.
type Reason = String;

/// Why this node is not part of the cluster, or a log is not filled.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A setting or a stream that does not fit, in words for the operator.
    #[error("{0}")]
    Unfit(Reason),
    /// Another process of this node's name may live still.
    #[error("another process of this node's name may live")]
    Twin,
    /// The servers do not answer, or refuse.
    #[error(transparent)]
    Servers(#[from] Error),
}

impl From<Reason> for JoinError {
    fn from(reason: Reason) -> JoinError {
        JoinError::Unfit(reason)
    }
}

fn open<'a>(stream: &'a JetStream, cluster: &Cluster) -> Result<Bucket<'a>, Error> {
    stream.bucket(&format!("quintet-{}", cluster.name), replicas(cluster))
}

/// Whether a node may be called so.
pub fn is_name(node: &str) -> bool {
    (1..=NAME_MAX).contains(&node.len())
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain fields are JSON")
}

fn read<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, Reason> {
    serde_json::from_slice(bytes)
        .map_err(|error| format!("{key} in the cluster's registry cannot be read: {error}"))
}

/// The value of `key`, and its revision.
fn get<T: DeserializeOwned>(bucket: &Bucket<'_>, key: &str) -> Result<Option<(u64, T)>, JoinError> {
    let Some(there) = bucket.get(key)? else {
        return Ok(None);
    };
    Ok(Some((there.revision, read(key, &there.bytes)?)))
}

/// The same without the revision; a value that cannot be read is none.
fn get_readable<T: DeserializeOwned>(bucket: &Bucket<'_>, key: &str) -> Result<Option<T>, Error> {
    let there = bucket.get(key)?;
    Ok(there.and_then(|there| read(key, &there.bytes).ok()))
}

/// Makes the cluster, or joins it as it is.
///
/// # Errors
/// The cluster does not fit, `twins` waits, or the servers do not answer or refuse.
pub fn join(
    stream: &JetStream,
    cluster: &Cluster,
    shards: u64,
    ourselves: &Ourselves,
    twins: &mut Twins,
) -> Result<ClusterId, JoinError> {
    let bucket = open(stream, cluster)?;
    let id = agree(&bucket, cluster, shards, ourselves.writer)?;
    let key = format!("node.{}", cluster.node());
    let there = get::<Entry>(&bucket, &key)?;
    let revision = there.as_ref().map_or(0, |(revision, _)| *revision);
    if let Some((_, entry)) = there
        && let Some(reason) = ourselves.twin(cluster, &entry)
        && !twins.is_gone(Instant::now(), &entry, reason)?
    {
        return Err(JoinError::Twin);
    }
    log_of(stream, cluster, &bucket, ourselves.writer)?;
    let entry = json(&ourselves.entry(cluster));
    match bucket.put_behind(&key, revision, entry.into())? {
        true => Ok(id),
        // Another process of this name begins at the same moment: who is first is seen next time.
        false => Err(Error::Silent.into()),
    }
}

/// Agrees on the settings that all nodes share; the first node sets them.
fn agree(
    bucket: &Bucket<'_>,
    cluster: &Cluster,
    shards: u64,
    writer: Writer,
) -> Result<ClusterId, JoinError> {
    let ours = Made {
        id: writer.0,
        made_ms: wall_ms(),
        groups: cluster.groups,
        shards,
        format: FORMAT,
    };
    if bucket.get("cluster")?.is_none() {
        // The first one wins.
        bucket.put_behind("cluster", 0, json(&ours).into())?;
    }
    let (_, made) = get::<Made>(bucket, "cluster")?.ok_or(Error::Silent)?;
    fits(&cluster.name, &made, &ours)?;
    Ok(ClusterId(made.id))
}

/// Whether a node may be one of a cluster that was made so.
fn fits(name: &str, made: &Made, ours: &Made) -> Result<(), Reason> {
    for (what, is, wanted) in [
        ("groups", made.groups, ours.groups),
        ("shards", made.shards, ours.shards),
        ("format", made.format, ours.format),
    ] {
        if is != wanted {
            return Err(format!(
                "the cluster {name:?} was created with {what} = {is}, not {wanted}: set the same \
                 value, or give this node another cluster (cluster.name)"
            ));
        }
    }
    Ok(())
}

/// Source of a cluster's log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// A cluster that has none yet, and will be given one.
    Ahead,
    /// A cluster that has none yet.
    First,
    /// A cluster that has lost its log; also one that has not, if this is true.
    Again(bool),
}

/// A log that is being filled.
pub struct Begun {
    pub cluster: ClusterId,
    id: String,
    created: String,
}

/// Makes a new stream for the cluster, which no node uses until [`end_fill`].
///
/// # Errors
/// It must not be, or the servers do not answer or refuse.
pub fn begin_fill(
    stream: &JetStream,
    cluster: &Cluster,
    shards: u64,
    writer: Writer,
    how: Fill,
) -> Result<Begun, JoinError> {
    let bucket = open(stream, cluster)?;
    let agreed = agree(&bucket, cluster, shards, writer)?;
    let force = how == Fill::Again(true);
    let live = nodes(stream, cluster)?
        .into_iter()
        .filter(|node| node.age < GONE);
    let live: Vec<String> = live.map(|node| node.node).collect();
    if !live.is_empty() && !force {
        return Err(JoinError::Unfit(format!(
            "nodes of the cluster {:?} were heard of in the last {} s ({}): stop them, then wait \
             that long",
            cluster.name,
            GONE.as_secs(),
            live.join(", ")
        )));
    }
    let key = key_of(stream.names());
    let registered = bucket.get(&key)?;
    let revision = registered.as_ref().map_or(0, |there| there.revision);
    let group = registered.and_then(|there| read::<Group>(&key, &there.bytes).ok());
    let there = stream.info()?;
    // Also one that a node registered, and never made.
    let unfinished =
        (group.as_ref()).is_some_and(|group| group.filling || group.making && there.is_none());
    if there.is_some() && !unfinished && !force {
        let name = &stream.names().stream;
        return Err(JoinError::Unfit(match how {
            Fill::Ahead | Fill::First => format!(
                "the cluster {:?} has a log already, the stream {name}. adopt creates only the \
                 first log: give the cluster another name, or move the messages with `quintet \
                 export` and `quintet import`",
                cluster.name
            ),
            Fill::Again(_) => format!(
                "the stream {name} exists: a reseed would replace it with the copy of one node. \
                 --force deletes the stream first"
            ),
        }));
    }
    if group.is_some() && !unfinished && !matches!(how, Fill::Again(_)) {
        return Err(JoinError::Unfit(format!(
            "the cluster {:?} had a log, which is gone: see `quintet cluster reseed`",
            cluster.name
        )));
    }
    let id = log_id(writer);
    let filling = Group {
        id: id.clone(),
        filling: true,
        ..Group::default()
    };
    // First, so that no node makes or uses a stream meanwhile.
    if !bucket.put_behind(&key, revision, json(&filling).into())? {
        let why = "another process is creating this cluster's log";
        return Err(JoinError::Unfit(why.to_owned()));
    }
    let mut begun = Begun {
        cluster: agreed,
        id,
        created: String::new(),
    };
    if how != Fill::Ahead {
        if there.is_some() {
            stream.delete()?;
        }
        let info = stream.create(replicas(cluster), &cluster.placement_tags, &begun.id)?;
        begun.created = info.created;
    }
    Ok(begun)
}

/// The stream is whole: nodes may use it.
///
/// # Errors
/// The servers do not answer, or refuse; then it is to be filled again.
pub fn end_fill(stream: &JetStream, cluster: &Cluster, begun: &Begun) -> Result<(), Error> {
    let group = Group {
        id: begun.id.clone(),
        created: begun.created.clone(),
        ..Group::default()
    };
    open(stream, cluster)?.put(&key_of(stream.names()), json(&group).into())
}

/// Sees to it that the group's stream is there, and is the one.
fn log_of(
    stream: &JetStream,
    cluster: &Cluster,
    bucket: &Bucket<'_>,
    writer: Writer,
) -> Result<(), JoinError> {
    let (name, key) = (&stream.names().stream, key_of(stream.names()));
    if bucket.get(&key)?.is_none() {
        let group = match stream.info()? {
            Some(info) if info.ends().last > Seq(0) => {
                return Err(JoinError::Unfit(format!(
                    "the stream {name} holds entries, but is not in this cluster's registry"
                )));
            }
            Some(info) => Group {
                id: info.log_id().unwrap_or_default().to_owned(),
                created: info.created,
                ..Group::default()
            },
            // Its id comes first: nodes that start at the same moment make the same stream.
            None => Group {
                id: log_id(writer),
                making: true,
                ..Group::default()
            },
        };
        bucket.put_behind(&key, 0, json(&group).into())?;
    }
    let (revision, mut group) = get::<Group>(bucket, &key)?.ok_or(Error::Silent)?;
    if group.filling {
        return Err(JoinError::Unfit(format!(
            "`quintet cluster adopt` or `reseed` fills the stream {name}, or was interrupted: \
             start the nodes when it is done, or run it again"
        )));
    }
    let info = match stream.info()? {
        Some(info) => info,
        None if group.making => {
            stream.create(replicas(cluster), &cluster.placement_tags, &group.id)?
        }
        None => {
            return Err(JoinError::Unfit(format!(
                "the stream {name}, which is the log of this cluster, is gone. The server does not \
                 create it again, as all its messages would be lost: see `quintet cluster reseed`, \
                 restore it (`nats stream restore`), or give the cluster another name"
            )));
        }
    };
    let faults = checks::of_stream(stream, &info, cluster);
    if !faults.is_empty() {
        return Err(JoinError::Unfit(format!(
            "the stream {name} is not set up as the log of a cluster:\n  {}",
            faults.join("\n  ")
        )));
    }
    group.is(name, &info)?;
    if group.making {
        (group.making, group.created) = (false, info.created);
        // False: another node was faster.
        bucket.put_behind(&key, revision, json(&group).into())?;
    }
    Ok(())
}

/// Keeps this node's entry new, for as long as the stream is held; ends the process when its name
/// is another's.
///
/// # Errors
/// There is no thread to be had.
pub fn renew(stream: &Arc<JetStream>, cluster: &Cluster, ourselves: &Ourselves) -> Result<()> {
    let (stream, cluster) = (Arc::downgrade(stream), cluster.clone());
    let ourselves = ourselves.clone();
    let body = move || {
        while let Some(stream) = Weak::upgrade(&stream) {
            match renew_once(&stream, &cluster, &ourselves) {
                Ok(None) => {}
                // It was away for so long that somebody else took its place.
                Ok(Some(twin)) => {
                    tracing::error!("stopping: {twin}");
                    eprintln!("quintet: stopping: {twin}");
                    std::process::exit(1);
                }
                Err(error) => tracing::debug!("cannot renew this node's entry: {error}"),
            }
            drop(stream);
            std::thread::sleep(RENEW);
        }
    };
    quintet_host::thread("registry", body)
}

fn renew_once(
    stream: &JetStream,
    cluster: &Cluster,
    ourselves: &Ourselves,
) -> Result<Option<Reason>, Error> {
    let bucket = open(stream, cluster)?;
    let key = format!("node.{}", cluster.node());
    let there = get_readable::<Entry>(&bucket, &key)?;
    if let Some(twin) = there.and_then(|there| ourselves.twin(cluster, &there)) {
        return Ok(Some(twin));
    }
    bucket.put(&key, json(&ourselves.entry(cluster)).into())?;
    Ok(None)
}

/// A node that was heard of lately.
#[derive(Clone, Debug)]
pub struct Listed {
    pub node: String,
    pub address: String,
    /// Name of the NATS server on its machine; empty: not known.
    pub near: String,
    pub drained: bool,
    /// Since it renewed its entry.
    pub age: Duration,
}

/// Others should own rather than this node, from now on; or not so.
///
/// # Errors
/// The servers do not answer, or refuse; then nobody knows whether it is so.
pub fn drain(
    stream: &JetStream,
    cluster: &Cluster,
    node: &str,
    drained: bool,
) -> Result<(), Error> {
    open(stream, cluster)?.put(&format!("drain.{node}"), json(&Wish { drained }).into())
}

/// Whether others should own rather than this node.
///
/// # Errors
/// The servers do not answer, or refuse.
pub fn is_drained(stream: &JetStream, cluster: &Cluster, node: &str) -> Result<bool, Error> {
    drained_in(&open(stream, cluster)?, node)
}

fn drained_in(bucket: &Bucket<'_>, node: &str) -> Result<bool, Error> {
    let wish = get_readable::<Wish>(bucket, &format!("drain.{node}"))?;
    Ok(wish.is_some_and(|wish| wish.drained))
}

/// The nodes that renewed their entries in the last ten minutes.
///
/// # Errors
/// The servers do not answer, or refuse.
pub fn nodes(stream: &JetStream, cluster: &Cluster) -> Result<Vec<Listed>, Error> {
    let bucket = open(stream, cluster)?;
    let mut nodes = Vec::new();
    for key in bucket.keys("node.")? {
        let Some(entry) = get_readable::<Entry>(&bucket, &key)? else {
            continue;
        };
        let age = Duration::from_millis(wall_ms().saturating_sub(entry.at_ms));
        let node = key.strip_prefix("node.").unwrap_or(&key).to_owned();
        // A handoff could not name it: no node wrote that.
        if age < FORGOTTEN && is_name(&node) {
            nodes.push(Listed {
                drained: drained_in(&bucket, &node)?,
                node,
                address: entry.address,
                near: entry.near,
                age,
            });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: Option<&str>, created: &str, last: u64) -> Info {
        let metadata = id.map(|id| serde_json::json!({ "quintet-log": id }));
        let info = serde_json::json!({
            "config": {
                "name": "Q_a_0",
                "subjects": ["quintet.a.0.log"],
                "retention": "limits",
                "storage": "file",
                "discard": "new",
                "num_replicas": 3,
                "metadata": metadata.unwrap_or_else(|| serde_json::json!({})),
            },
            "created": created,
            "state": { "messages": last, "first_seq": 1, "last_seq": last },
        });
        serde_json::from_value(info).expect("a stream")
    }

    #[test]
    fn a_process_of_the_same_name_is_waited_for_unless_it_renews_its_entry() {
        let entry = |at_ms| Entry {
            address: String::new(),
            version: String::new(),
            writer: 7,
            home: 1,
            near: String::new(),
            at_ms,
        };
        let reason = || "it lives".to_owned();
        let began = Instant::now();
        let mut twins = Twins::default();
        assert_eq!(twins.is_gone(began, &entry(5), reason()), Ok(false));
        let soon = began + GONE / 2;
        assert_eq!(twins.is_gone(soon, &entry(5), reason()), Ok(false));
        // Its clock may be ahead: only time that passes here counts.
        assert_eq!(twins.is_gone(began + GONE, &entry(5), reason()), Ok(true));
        assert_eq!(twins.is_gone(soon, &entry(6), reason()), Err(reason()));
        let restarted = Entry {
            writer: 8,
            ..entry(5)
        };
        assert_eq!(twins.is_gone(soon, &restarted, reason()), Err(reason()));
    }

    /// The time at which a stream was made changes when two nodes make it at once, and may when a
    /// server recovers it.
    #[test]
    fn a_stream_is_known_by_its_id_and_one_without_by_its_time_or_its_entries() {
        let with_id = Group {
            id: log_id(Writer(0x12)),
            created: "monday".to_owned(),
            ..Group::default()
        };
        let is = |group: &Group, info: &Info| group.is("Q_a_0", info).is_ok();
        assert!(is(&with_id, &info(Some("0000000000000012"), "tuesday", 0)));
        for id in [None, Some("0000000000000013")] {
            assert!(!is(&with_id, &info(id, "monday", 9)), "{id:?}");
        }
        let without = Group {
            id: String::new(),
            ..with_id
        };
        assert!(is(&without, &info(None, "monday", 0)));
        assert!(is(&without, &info(None, "tuesday", 9)));
        assert!(!is(&without, &info(None, "tuesday", 0)));
    }

    #[test]
    fn the_log_of_a_group_is_under_its_number() {
        assert_eq!(key_of(&Names::of("a", 0)), "group.0");
        assert_eq!(key_of(&Names::of("a", 7)), "group.7");
    }

    #[test]
    fn a_group_of_an_older_version_is_read() {
        let old = br#"{"created":"monday","filling":true}"#;
        let group: Group = read("group.0", old).expect("a group");
        assert!(group.filling && !group.making && group.id.is_empty());
    }

    fn made() -> Made {
        Made {
            id: 1,
            made_ms: 2,
            groups: 1,
            shards: 4,
            format: FORMAT,
        }
    }

    #[test]
    fn a_node_with_other_groups_or_shards_is_refused() {
        let other = Made {
            id: 9,
            made_ms: 9,
            ..made()
        };
        assert_eq!(fits("q", &made(), &other), Ok(()));
        type Change = fn(&mut Made);
        let cases: [(Change, &str); 3] = [
            (|made| made.groups = 2, "groups = 1, not 2"),
            (|made| made.shards = 8, "shards = 4, not 8"),
            (|made| made.format = 2, "format = 1, not 2"),
        ];
        for (change, says) in cases {
            let mut ours = made();
            change(&mut ours);
            let refused = fits("q", &made(), &ours).expect_err(says);
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_name_that_no_handoff_has_room_for_is_nobodys() {
        assert!(is_name("a") && is_name(&"x".repeat(255)));
        assert!(!is_name("") && !is_name(&"x".repeat(256)));
    }
}
