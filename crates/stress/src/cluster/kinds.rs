//! Faults of a cluster, and the time for which nobody could put.

use std::fmt::Write as _;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    KillOwner,
    KillStandby,
    KillLeader,
    KillBoth,
    KillNodes,
    KillServers,
    /// Shorter than the lease.
    PauseOwner,
    /// Until another has taken over.
    FreezeOwner,
    PauseLeader,
    FreezeLeader,
    FreezeNodes,
    TermOwner,
    Rolling,
    LoseStore,
    /// Of the owner's connections to NATS.
    BreakOwner,
    SilenceOwner,
    /// One way, whichever.
    HalveOwner,
    /// Shorter than the lease.
    BlinkOwner,
    /// Of the leader's connections to other servers.
    BreakLeader,
    SilenceLeader,
    HalveLeader,
    BlinkLeader,
    /// Of what other nodes bring to the owner.
    BreakLink,
    SilenceLink,
    /// The owner's, with a server that does not lead; or with the one that does.
    SilenceMachine,
    SilenceBoth,
    FillStore,
    /// By another version, if there is one.
    ReplaceServers,
    PurgePast,
    ClockForward,
    ClockBack,
    MoveOwner,
    DrainOwner,
    /// A block's file: removed, cut short, or a bit of it.
    DamageStore,
    /// The same of the leader and another server, and the first leads again.
    DamageTwo,
    /// A server begins again with what it had a while ago.
    OldStore,
    CutPower,
    /// Of all servers at once.
    CutAllPower,
    /// Of the owner, one after the other.
    HoldThreads,
    /// One of the owner's by chance, until another node may have taken over.
    HoldThread,
    /// A server is removed from JetStream's peers, and another one comes in its place.
    ReplacePeer,
    /// All nodes are killed, and the stream is made again from the owner's mirror.
    Reseed,
    /// All nodes are stopped, the owner's directory becomes a single server's, and that the log of
    /// another cluster.
    Adopt,
}

impl Kind {
    /// Whether the servers' stores must be file systems of their own.
    pub(super) fn needs_disks(self) -> bool {
        matches!(self, Self::CutPower | Self::CutAllPower)
    }

    /// Whether it is among those that `--plain` leaves out.
    pub(super) fn is_long(self) -> bool {
        LONG.iter().any(|(kind, _)| *kind == self)
    }

    /// Whether the servers must have a user who may remove a peer.
    pub(super) fn replaces_peers(self) -> bool {
        matches!(self, Self::ReplacePeer)
    }
}

/// Each with its name, and within how many ms clients are promised to be served again:
/// `docs/cluster.md`. Where nothing is promised, or nobody should notice: none.
pub(super) const KINDS: [(Kind, &str, Option<u64>); 43] = [
    (Kind::KillOwner, "kill -9 of the owner", Some(5000)),
    (Kind::KillStandby, "kill -9 of a standby", None),
    (
        Kind::KillLeader,
        "kill -9 of the leader's server",
        Some(10000),
    ),
    (Kind::KillBoth, "kill -9 of owner and leader", Some(13000)),
    (Kind::KillNodes, "kill -9 of all nodes", None),
    (Kind::KillServers, "kill -9 of all servers", None),
    (Kind::PauseOwner, "owner stopped for 1 s", None),
    (Kind::FreezeOwner, "owner stopped for 6 s", Some(5000)),
    (Kind::PauseLeader, "leader stopped for 1 s", None),
    (Kind::FreezeLeader, "leader stopped for 6 s", Some(10000)),
    (Kind::FreezeNodes, "all nodes stopped for 6 s", None),
    (Kind::TermOwner, "SIGTERM of the owner", Some(200)),
    (Kind::Rolling, "nodes restarted one by one", None),
    (Kind::LoseStore, "a server's store lost", None),
    (Kind::BreakOwner, "owner cut off from NATS", Some(5000)),
    (Kind::SilenceOwner, "owner cut off silently", Some(5000)),
    (Kind::HalveOwner, "owner cut off one way", Some(5000)),
    (Kind::BlinkOwner, "owner cut off for 1 s", None),
    (
        Kind::BreakLeader,
        "leader cut off from servers",
        Some(13000),
    ),
    (Kind::SilenceLeader, "leader cut off silently", Some(13000)),
    (Kind::HalveLeader, "leader cut off one way", None),
    (Kind::BlinkLeader, "leader cut off for 1 s", None),
    (Kind::BreakLink, "links to the owner cut", None),
    (Kind::SilenceLink, "links to the owner silent", None),
    (Kind::SilenceMachine, "owner's machine silent", Some(5000)),
    (
        Kind::SilenceBoth,
        "machine of owner and leader silent",
        Some(13000),
    ),
    (Kind::FillStore, "a server's store full", None),
    (Kind::ReplaceServers, "servers replaced one by one", None),
    (Kind::PurgePast, "purge past a stopped standby", None),
    (Kind::ClockForward, "owner's clock set forward", None),
    (Kind::ClockBack, "owner's clock set back", None),
    (Kind::MoveOwner, "owner moved", Some(200)),
    (Kind::DrainOwner, "owner drained", Some(200)),
    (Kind::DamageStore, "a server's store damaged", None),
    (Kind::DamageTwo, "stores of two servers damaged", None),
    (Kind::OldStore, "an old copy of a server's store", None),
    (Kind::CutPower, "power of a server cut", None),
    (Kind::CutAllPower, "power of all servers cut", None),
    (Kind::HoldThreads, "each of the owner's threads held", None),
    (Kind::HoldThread, "a thread of the owner held for 6 s", None),
    (Kind::ReplacePeer, "a peer removed, another added", None),
    (Kind::Reseed, "reseed after all nodes were killed", None),
    (Kind::Adopt, "detach, and adopt what it made", None),
];

/// The kinds that `--plain` leaves out, each with the file and the name of a test of nearly the
/// same, if there is one.
const LONG: [(Kind, Option<[&str; 2]>); 7] = [
    (
        Kind::DamageStore,
        Some([
            "crates/cluster/tests/cluster/members/damaged.rs",
            "leaders_with_damaged_stores_lose_no_answered_entry",
        ]),
    ),
    (Kind::OldStore, None),
    (
        Kind::CutPower,
        Some(["crates/jetstream/tests/power/cut.py", "main"]),
    ),
    (Kind::CutAllPower, None),
    (Kind::ReplacePeer, None),
    (
        Kind::Reseed,
        Some([
            "crates/server/tests/real/ways.rs",
            "a_cluster_whose_stream_is_lost_goes_on_from_a_nodes_mirror",
        ]),
    ),
    (
        Kind::Adopt,
        Some([
            "crates/server/tests/real/ways.rs",
            "a_server_becomes_a_cluster_and_a_server_again_with_every_message",
        ]),
    ),
];

/// A line for each kind that `--plain` leaves out: the test in its place.
pub(super) fn left_out() -> String {
    let lines = LONG.iter().filter_map(|(kind, test)| {
        let name = KINDS.iter().find(|(of, ..)| of == kind)?.1;
        Some(match test {
            Some([file, test]) => format!("left out: {name}; instead {test} of {file}"),
            None => format!("left out: {name}; only `cargo xtask test --long` has it"),
        })
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// By kind: for how long nothing was acknowledged.
pub(super) struct Outages([Vec<Duration>; KINDS.len()]);

impl Default for Outages {
    fn default() -> Self {
        Self([const { Vec::new() }; KINDS.len()])
    }
}

impl Outages {
    pub(super) fn add(&mut self, kind: usize, took: Duration) {
        self.0[kind].push(took);
    }

    /// How often, how long, and what is promised.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let head = [
            "until the next put was acknowledged, ms",
            "times",
            "p50",
            "worst",
        ];
        let [a, b, c, d] = head;
        let [e, f] = ["promised", "kept"];
        writeln!(text, "{a:40} {b:>6} {c:>8} {d:>8} {e:>9} {f:>6}").ok();
        for ((_, name, promise), took) in KINDS.iter().zip(&self.0) {
            let mut took = took.clone();
            took.sort_unstable();
            let ms = |at: usize| {
                took.get(at)
                    .map_or_else(String::new, |t| t.as_millis().to_string())
            };
            let (p50, worst) = (
                ms(took.len().saturating_sub(1) / 2),
                ms(took.len().wrapping_sub(1)),
            );
            let times = took.len();
            let kept = promise.map_or_else(String::new, |ms| {
                let in_time = |took: &&Duration| took.as_millis() <= u128::from(ms);
                took.iter().filter(in_time).count().to_string()
            });
            let promise = promise.map_or_else(String::new, |ms| ms.to_string());
            writeln!(
                text,
                "{name:40} {times:>6} {p50:>8} {worst:>8} {promise:>9} {kept:>6}"
            )
            .ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KINDS, LONG, Outages, left_out};

    #[test]
    fn the_tests_in_place_of_kinds_that_are_left_out_exist() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for [file, test] in LONG.iter().filter_map(|(_, test)| *test) {
            let text = std::fs::read_to_string(format!("{root}/{file}")).expect("a file");
            let is = |start: &str| text.contains(&format!("{start} {test}("));
            assert!(is("fn") || is("def"), "{test} of {file}");
        }
        assert_eq!(left_out().lines().count(), LONG.len());
    }

    #[test]
    fn the_middle_and_the_worst_are_shown_beside_what_is_promised() {
        let mut outages = Outages::default();
        for ms in [4000, 3000, 9000, 3500] {
            outages.add(0, Duration::from_millis(ms));
        }
        let text = outages.table();
        let row = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .expect("a row");
            let rest: Vec<String> = line[name.len()..]
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            rest
        };
        assert_eq!(row(KINDS[0].1), ["4", "3500", "9000", "5000", "3"]);
        assert_eq!(row(KINDS[1].1), ["0"]);
    }
}
