//! Reports about a cluster: of each node about itself, and of one node about all.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stores::{BucketCopy, Store};

/// Entries a standby may be behind and still counts as caught up: a moment's worth under load.
const CAUGHT_UP: u64 = 256;
/// An owner whose newest acknowledgement is older gets none, whatever it says: two heartbeats fit
/// in a tenth of it.
pub const STALE_MS: u64 = 10_000;

/// A node's report about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    pub node: String,
    pub version: String,
    /// The group that all below is about.
    pub group: u16,
    /// `reading`, `standby`, `claiming`, `owner`, `deposed`, `stopped`.
    pub role: String,
    pub since_ms: u64,
    pub epoch: u64,
    /// The node it takes for the owner.
    pub owner: Option<String>,
    /// Where proxies reach the owner.
    pub owner_address: Option<String>,
    /// It owns, and answers commands.
    pub serves: bool,
    /// Others should own rather than it.
    pub drained: bool,
    /// The last entry it has applied; of an owner: appended.
    pub entry: u64,
    /// Entries it has still to apply.
    pub lag_entries: u64,
    /// Of a standby: within how many ms of their owner's stamp 99 of 100 of the newest frames were
    /// applied, by both nodes' wall clocks.
    pub lag_p99_ms: Option<u64>,
    /// Runs it has still to fetch.
    pub runs_missing: u64,
    /// Of an owner: since its newest acknowledged entry was sent.
    pub last_ack_ms: Option<u64>,
    /// Of an owner: within how many ms of their being appended 99 of 100 of the newest frames were
    /// acknowledged. A standby's lag holds that as well.
    pub ack_p99_ms: Option<u64>,
    /// Of an owner: entries and bytes sent and not acknowledged.
    pub unacked_entries: u64,
    pub unacked_bytes: u64,
    /// Of an owner: entries it has appended and had acknowledged, and those sent that are not yet.
    pub appended: u64,
    pub acknowledged: u64,
    pub on_way: u64,
    /// Of an owner: times it had to ask what became of an entry.
    pub resolves: u64,
    /// Changes of owner it has seen happen: behind silence, and behind a handoff.
    pub takeovers: u64,
    pub handovers: u64,
    /// Times that what it had read was not what the stream has.
    pub divergences: u64,
    /// By how many ms its wall clock is ahead of the time that the queues go by.
    pub clock_ahead_ms: Option<i64>,
    /// How the copy of the log that it reads is damaged, if it is.
    pub damage: Option<String>,
    /// The NATS servers whose copies it found damaged and that have not led with a whole one since.
    pub distrusted: Vec<String>,
    /// Clients tunneled to the owner, and waiting for one.
    #[serde(rename = "spliced")]
    pub tunneled: u64,
    pub waiting: u64,
}

/// A node of the registry, and what it said when it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResponse {
    pub node: String,
    pub address: String,
    pub report: Option<NodeReport>,
    /// Why there is none.
    pub silent: Option<String>,
}

/// A server of the stream's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub server: String,
    pub current: bool,
    pub offline: bool,
    pub lag: u64,
}

/// The log as JetStream reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    pub name: String,
    /// Why it cannot be read from its beginning.
    pub spoiled: Option<String>,
    pub leader: Option<String>,
    /// Servers that are to keep it.
    pub replicas_wanted: u64,
    /// Those beside the leader.
    pub replicas: Vec<Replica>,
    pub first: u64,
    pub last: u64,
    pub bytes: u64,
    /// Each server's own copy, as its monitoring address tells.
    #[serde(default)]
    pub stores: Vec<Store>,
    /// Copies of the buckets of runs and attachments that are not what most servers have.
    #[serde(default)]
    pub buckets: Vec<BucketCopy>,
}

/// A group: what one server is alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    pub group: u16,
    /// `None`: JetStream does not answer, which is said in `silent`.
    pub stream: Option<StreamReport>,
    pub silent: Option<String>,
}

/// A cluster as one of its nodes sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    pub cluster: String,
    pub id: String,
    /// The node that reports.
    pub told_by: String,
    pub groups: Vec<GroupReport>,
    pub nodes: Vec<NodeResponse>,
}

/// Judgement of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Somebody owns the queues and gets acknowledgements.
    pub serves: bool,
    /// The loss of any one machine would be survived now.
    pub survives: bool,
    /// The faults, a sentence each.
    pub notes: Vec<String>,
}

impl Verdict {
    /// It would not survive, for this reason.
    fn fault(&mut self, why: String) {
        self.survives = false;
        self.notes.push(why);
    }

    /// Whether it serves, and would survive, in a sentence.
    pub fn text(&self) -> &'static str {
        match (self.serves, self.survives) {
            (false, _) => "DOWN: no command is answered now",
            (true, false) => "no: the loss of one machine would stop this cluster now",
            (true, true) => "yes: the loss of any one machine would be survived now",
        }
    }

    /// For monitoring: 0 all is well, 1 degraded, 2 down.
    pub fn code(&self) -> u8 {
        match (self.serves, self.survives && self.notes.is_empty()) {
            (false, _) => 2,
            (true, false) => 1,
            (true, true) => 0,
        }
    }
}

impl NodeReport {
    /// True if it owns the queues.
    pub fn is_owner(&self) -> bool {
        self.role == "owner"
    }

    /// True if it could own at once.
    pub fn is_ready_standby(&self) -> bool {
        !self.drained
            && self.role == "standby"
            && self.lag_entries <= CAUGHT_UP
            && self.runs_missing == 0
    }

    /// By how much its clock is off, if that is too much.
    pub fn clock_off_ms(&self) -> Option<i64> {
        let most = quintet_cluster::Status::CLOCK_OFF.as_millis();
        self.clock_ahead_ms
            .filter(|ms| u128::from(ms.unsigned_abs()) > most)
    }

    /// Why it is no standby that could serve at once.
    pub fn why_not_ready(&self) -> String {
        let runs = match self.runs_missing {
            0 => String::new(),
            runs => format!(", {runs} runs to fetch"),
        };
        let drained = if self.drained { ", drained" } else { "" };
        let (node, role, lag) = (&self.node, &self.role, self.lag_entries);
        format!("{node} is {role}, {lag} entries behind{runs}{drained}")
    }
}

impl ClusterReport {
    /// The node that owns, of those that answered.
    pub fn owner(&self) -> Option<&str> {
        self.owning().map(|node| node.node.as_str())
    }

    fn owning(&self) -> Option<&NodeReport> {
        let owners = self.reports().filter(|node| node.is_owner());
        owners.max_by_key(|node| node.epoch)
    }

    fn reports(&self) -> impl Iterator<Item = &NodeReport> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|response| response.report.as_ref())
    }

    /// The copies of the log that are damaged.
    pub fn damaged(&self) -> impl Iterator<Item = &Store> {
        let streams = self.groups.iter().filter_map(|group| group.stream.as_ref());
        let stores = streams.flat_map(|stream| &stream.stores);
        stores.filter(|store| store.damage.is_some())
    }

    /// Whether all is well, and what is not.
    pub fn verdict(&self) -> Verdict {
        let owner = self.owning();
        let mut verdict = Verdict {
            serves: owner.is_some(),
            survives: true,
            notes: Vec::new(),
        };
        match owner {
            None => verdict.fault("no node owns the queues: clients wait".to_owned()),
            Some(owner) if owner.last_ack_ms.is_none_or(|ms| ms > STALE_MS) => {
                verdict.serves = false;
                verdict.fault(format!(
                    "{} owns the queues and gets no acknowledgements: clients get errors",
                    owner.node
                ));
            }
            Some(_) => {}
        }
        let owners = self.reports().filter(|node| node.is_owner());
        for stale in owners.filter(|node| Some(*node) != owner) {
            verdict.notes.push(format!(
                "{} has not noticed that it owns no queues since epoch {}: it cannot acknowledge \
                 any command",
                stale.node, stale.epoch
            ));
        }
        if !self.reports().any(NodeReport::is_ready_standby) {
            let behind = self.reports().filter(|node| !node.is_owner());
            let behind: Vec<String> = behind.map(NodeReport::why_not_ready).collect();
            verdict.fault(match behind.is_empty() {
                true => "there is no standby: start another node".to_owned(),
                false => format!("no standby has caught up: {}", behind.join("; ")),
            });
        }
        for node in self.reports() {
            // Where no standby is ready that was said of all.
            if node.role == "reading" && self.reports().any(NodeReport::is_ready_standby) {
                verdict.fault(format!(
                    "{} still reads the log and cannot take over: {}",
                    node.node,
                    node.why_not_ready()
                ));
            }
            if let Some(ms) = node.clock_off_ms() {
                let which = if ms < 0 { "behind" } else { "ahead of" };
                verdict.notes.push(format!(
                    "the clock of {} is {} {which} the cluster's time: set it right",
                    node.node,
                    span(Duration::from_millis(ms.unsigned_abs()))
                ));
            }
            if let Some(how) = &node.damage {
                verdict.fault(format!(
                    "{} reads a damaged copy of the log and cannot own: {how}",
                    node.node
                ));
            }
        }
        for response in &self.nodes {
            if let Some(why) = &response.silent {
                let note = format!("{} does not answer: {why}", response.node);
                verdict.notes.push(note);
            }
        }
        for group in &self.groups {
            group.judge(&mut verdict);
        }
        verdict
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let verdict = self.verdict();
        let mut out = String::new();
        let mut line = |text: String| {
            // Writing to a string does not fail.
            writeln!(out, "{text}").ok();
        };
        line(verdict.text().to_owned());
        for note in &verdict.notes {
            line(format!("  ! {note}"));
        }
        line(format!(
            "cluster {} ({}), as {} sees it",
            self.cluster, self.id, self.told_by
        ));
        for group in &self.groups {
            line(group.text());
        }
        let width = |of: fn(&NodeResponse) -> usize| self.nodes.iter().map(of).max().unwrap_or(0);
        let (name, address) = (width(|n| n.node.len()), width(|n| n.address.len()));
        for response in &self.nodes {
            let shown = match (&response.report, &response.silent) {
                (Some(report), _) => report.text(),
                (None, why) => format!("silent: {}", why.as_deref().unwrap_or("no answer")),
            };
            line(format!(
                "  {:name$}  {:address$}  {shown}",
                response.node, response.address
            ));
        }
        out
    }
}

impl Replica {
    /// How it stands.
    pub fn text(&self) -> String {
        match (self.offline, self.current) {
            (true, _) => "offline".to_owned(),
            (false, true) => "current".to_owned(),
            (false, false) => format!("{} behind", self.lag),
        }
    }
}

impl GroupReport {
    /// Says whether the loss of a server would be survived, and why not.
    fn judge(&self, verdict: &mut Verdict) {
        let Some(stream) = &self.stream else {
            let why = self.silent.as_deref().unwrap_or("no answer");
            return verdict.fault(format!(
                "group {}: JetStream does not answer: {why}",
                self.group
            ));
        };
        let whole = stream.stores.iter().any(Store::is_whole);
        if let Some(why) = stream.spoiled.as_ref().filter(|_| !whole) {
            verdict.fault(format!(
                "another program changed {}: {why}. A node that starts now cannot read it: start \
                 no node, and export the messages (`quintet export`)",
                stream.name
            ));
        }
        let remedy = |server: &str| match whole {
            true => format!(
                "Stop nats-server {server}, empty its JetStream directory and start it: it copies \
                 the stream from the others"
            ),
            false => "No server is known to have a complete copy: do not empty any JetStream \
                      directory. See \"When things are gone\" in docs/cluster.md"
                .to_owned(),
        };
        for copy in &stream.buckets {
            let BucketCopy {
                bucket,
                server,
                address,
                how,
                damaged,
            } = copy;
            let mend = match damaged {
                true => format!(". {}", remedy(server)),
                false => String::new(),
            };
            verdict.fault(format!("{bucket} on {server} ({address}) {how}{mend}"));
        }
        for store in &stream.stores {
            let Store {
                server, address, ..
            } = store;
            if let Some(how) = &store.damage {
                verdict.fault(format!(
                    "the copy of {} on {server} ({address}) is damaged: {how}. {}",
                    stream.name,
                    remedy(server)
                ));
            }
            if let Some(why) = &store.frozen {
                verdict.fault(format!(
                    "{server} ({address}) no longer writes: {why}. Free space or repair its disk, \
                     then restart that nats-server"
                ));
            }
            if let Some(why) = &store.silent {
                verdict.notes.push(format!(
                    "cannot tell whether the copy at {address} is complete: {why}"
                ));
            }
        }
        stream.judge_replicas(verdict);
    }

    fn text(&self) -> String {
        let Some(stream) = &self.stream else {
            return format!("group {}: its stream is not known", self.group);
        };
        let replicas = stream.replicas.iter();
        let replicas: Vec<String> = replicas
            .map(|replica| format!("{} {}", replica.server, replica.text()))
            .collect();
        format!(
            "group {}: {}, entries {} to {}, {} MiB, led by {}, {}",
            self.group,
            stream.name,
            stream.first,
            stream.last,
            stream.bytes >> 20,
            stream.leader.as_deref().unwrap_or("nobody"),
            match replicas.is_empty() {
                true => "no other server has it".to_owned(),
                false => replicas.join(", "),
            }
        )
    }
}

impl StreamReport {
    /// Says whether it has a leader, and as many servers with all of it as it should.
    fn judge_replicas(&self, verdict: &mut Verdict) {
        let (name, wanted) = (&self.name, self.replicas_wanted);
        if self.leader.is_none() {
            verdict.fault(format!("{name} has no leader now"));
        }
        if wanted < 3 {
            verdict.fault(format!(
                "{name} is on {wanted} NATS servers: three are needed to survive the loss of one"
            ));
        }
        // With the leader's. What was removed from the peers is in no list.
        let copies = 1 + self.replicas.len() as u64;
        if copies < wanted {
            verdict.fault(format!(
                "{name} has {copies} of {wanted} copies: start a nats-server in place of the one \
                 that was removed from the peers"
            ));
        }
        for replica in &self.replicas {
            if replica.offline || !replica.current {
                let how = if replica.offline { "offline" } else { "behind" };
                verdict.fault(format!(
                    "{} of {name} is {how}, {} entries",
                    replica.server, replica.lag
                ));
            }
        }
    }
}

impl NodeReport {
    fn text(&self) -> String {
        let since = span(Duration::from_millis(self.since_ms));
        let mut text = format!(
            "{} for {since}, epoch {}, entry {}",
            self.role, self.epoch, self.entry
        );
        let mut more = |what: String| {
            text.push_str(", ");
            text.push_str(&what);
        };
        match self.last_ack_ms {
            Some(ms) if self.is_owner() => {
                more(format!("acknowledged {ms} ms ago"));
                more(format!(
                    "{} entries ({} KiB) on their way",
                    self.unacked_entries,
                    self.unacked_bytes >> 10
                ));
            }
            _ if self.is_owner() => more("nothing acknowledged".to_owned()),
            _ => more(format!("{} behind", self.lag_entries)),
        }
        if self.drained {
            more("drained".to_owned());
        }
        if let Some(ms) = self.ack_p99_ms {
            more(format!("99 % acknowledged within {ms} ms"));
        }
        if let Some(ms) = self.lag_p99_ms {
            more(format!("99 % applied within {ms} ms"));
        }
        if self.runs_missing > 0 {
            more(format!("{} runs to fetch", self.runs_missing));
        }
        if self.tunneled + self.waiting > 0 {
            more(format!(
                "{} clients proxied, {} waiting",
                self.tunneled, self.waiting
            ));
        }
        text
    }
}

/// A span in the unit a reader would choose.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, role: &str) -> NodeResponse {
        NodeResponse {
            node: name.to_owned(),
            address: format!("{name}:4600"),
            report: Some(NodeReport {
                node: name.to_owned(),
                role: role.to_owned(),
                epoch: 3,
                last_ack_ms: (role == "owner").then_some(12),
                ..NodeReport::default()
            }),
            silent: None,
        }
    }

    fn well() -> ClusterReport {
        let replica = |server: &str| Replica {
            server: server.to_owned(),
            current: true,
            ..Replica::default()
        };
        ClusterReport {
            cluster: "quintet".to_owned(),
            id: "00000000000000c0".to_owned(),
            told_by: "b".to_owned(),
            groups: vec![GroupReport {
                stream: Some(StreamReport {
                    name: "Q_quintet_0".to_owned(),
                    leader: Some("n0".to_owned()),
                    replicas_wanted: 3,
                    replicas: vec![replica("n1"), replica("n2")],
                    ..StreamReport::default()
                }),
                ..GroupReport::default()
            }],
            nodes: vec![
                node("a", "owner"),
                node("b", "standby"),
                node("c", "standby"),
            ],
        }
    }

    #[test]
    fn three_nodes_that_are_well_survive() {
        let verdict = well().verdict();
        assert_eq!(
            (verdict.code(), verdict.survives),
            (0, true),
            "{:?}",
            verdict.notes
        );
        assert!(well().text().starts_with("yes: "));
        let json = serde_json::to_string(&well()).expect("JSON");
        assert_eq!(
            serde_json::from_str::<ClusterReport>(&json).expect("read"),
            well()
        );
    }

    #[test]
    fn the_number_of_the_group_is_reported_and_an_older_node_has_group_0() {
        let mut report = well();
        report.groups[0].group = 7;
        assert!(report.text().contains("\ngroup 7: Q_quintet_0, entries"));
        let json = r#"{"node":"a","role":"owner"}"#;
        let older: NodeReport = serde_json::from_str(json).expect("a report");
        assert_eq!(older.group, 0);
        let newer = serde_json::to_value(NodeReport { group: 7, ..older }).expect("JSON");
        assert_eq!(newer["group"], 7);
    }

    #[test]
    fn each_fault_is_in_the_verdict() {
        type Break = fn(&mut ClusterReport);
        fn report(of: &mut ClusterReport, at: usize) -> &mut NodeReport {
            of.nodes[at].report.as_mut().expect("one")
        }
        fn stream(of: &mut ClusterReport) -> &mut StreamReport {
            of.groups[0].stream.as_mut().expect("one")
        }
        let cases: [(Break, u8, bool, &str); 21] = [
            (|r| drop(r.nodes.remove(0)), 2, false, "no node owns"),
            (
                |r| report(r, 0).last_ack_ms = None,
                2,
                false,
                "a owns the queues and gets no",
            ),
            (
                |r| report(r, 0).last_ack_ms = Some(60_000),
                2,
                false,
                "no acknowledgements",
            ),
            (|r| r.nodes.truncate(1), 1, false, "start another node"),
            (
                |r| {
                    r.nodes.truncate(2);
                    report(r, 1).lag_entries = 5000;
                },
                1,
                false,
                "b is standby, 5000 entries behind",
            ),
            (
                |r| {
                    r.nodes.truncate(2);
                    report(r, 1).runs_missing = 2;
                },
                1,
                false,
                "2 runs to fetch",
            ),
            (
                |r| {
                    stream(r).stores.push(Store {
                        server: "n1".to_owned(),
                        frozen: Some("write error".to_owned()),
                        ..Store::default()
                    });
                },
                1,
                false,
                "n1 () no longer writes: write error. Free space",
            ),
            (
                |r| {
                    stream(r).buckets.push(BucketCopy {
                        bucket: "OBJ_Q_quintet_0_runs".to_owned(),
                        server: "n1".to_owned(),
                        how: "is missing".to_owned(),
                        ..BucketCopy::default()
                    });
                },
                1,
                false,
                "OBJ_Q_quintet_0_runs on n1 () is missing",
            ),
            (
                |r| report(r, 2).role = "reading".to_owned(),
                1,
                false,
                "c still reads the log and cannot take over",
            ),
            (
                |r| {
                    r.nodes[2].report = None;
                    r.nodes[2].silent = Some("connection refused".to_owned());
                },
                1,
                true,
                "c does not answer: connection refused",
            ),
            (
                |r| {
                    let two = report(r, 2);
                    two.role = "owner".to_owned();
                    two.epoch = 2;
                },
                1,
                true,
                "c has not noticed",
            ),
            (
                |r| stream(r).replicas_wanted = 1,
                1,
                false,
                "three are needed",
            ),
            (
                |r| drop(stream(r).replicas.pop()),
                1,
                false,
                "Q_quintet_0 has 2 of 3 copies",
            ),
            (
                |r| stream(r).replicas[0].offline = true,
                1,
                false,
                "n1 of Q_quintet_0 is offline",
            ),
            (
                |r| {
                    stream(r).stores.push(Store {
                        server: "n1".to_owned(),
                        damage: Some("it has 3 entries from 1 to 5".to_owned()),
                        ..Store::default()
                    });
                },
                1,
                false,
                "on n1 () is damaged: it has 3 entries from 1 to 5. No server is known",
            ),
            (
                |r| {
                    stream(r).spoiled = Some("it begins inside a segment".to_owned());
                    let damage = Some("it begins with entry 9".to_owned());
                    stream(r).stores = ["n0", "n1"]
                        .map(|server| Store {
                            server: server.to_owned(),
                            damage: damage.clone().filter(|_| server == "n0"),
                            ..Store::default()
                        })
                        .into();
                },
                1,
                false,
                "it begins with entry 9. Stop nats-server n0, empty",
            ),
            (
                |r| {
                    stream(r).stores.push(Store {
                        address: "n1:8222".to_owned(),
                        silent: Some("connection refused".to_owned()),
                        ..Store::default()
                    });
                },
                1,
                true,
                "n1:8222 is complete: connection refused",
            ),
            (
                |r| report(r, 1).clock_ahead_ms = Some(-3_600_000),
                1,
                true,
                "the clock of b is 60 min behind the cluster's time",
            ),
            (
                |r| report(r, 1).damage = Some("it begins with entry 9".to_owned()),
                1,
                false,
                "b reads a damaged copy of the log and cannot own: it begins",
            ),
            (|r| stream(r).leader = None, 1, false, "no leader"),
            (
                |r| stream(r).spoiled = Some("all entries were purged".to_owned()),
                1,
                false,
                "another program changed Q_quintet_0: all entries were purged",
            ),
        ];
        for (breaks, code, survives, says) in cases {
            let mut report = well();
            breaks(&mut report);
            let verdict = report.verdict();
            assert_eq!(
                (verdict.code(), verdict.survives),
                (code, survives),
                "{says}"
            );
            assert!(report.text().contains(says), "{says}: {}", report.text());
        }
    }
}
