//! Defects in the beliefs of a cluster about replicas, clocks and runs.

use super::Planted;

pub(super) const CLUSTER: &[Planted] = &[
    Planted {
        name: "beginning-of-the-leader",
        what: "the log begins where the copy of the server that leads does",
        edits: &[(
            "crates/cluster/src/copy.rs",
            "        if first > from {\n",
            "        if first > from && first > last {\n",
        )],
        tests: &[&["--test=cluster", "nobody_claims_or_forgets"]],
    },
    Planted {
        name: "damaged-leader-stays",
        what: "a server that leads with a damaged copy is not asked to step down",
        edits: &[(
            "crates/cluster/src/member.rs",
            "        if now >= self.distrusts {\n",
            "        if now >= self.distrusts && self.doubts.tried().len() > 9 {\n",
        )],
        tests: &[&["--test=cluster", "a_leader_with_a_damaged_copy_is_asked"]],
    },
    Planted {
        name: "old-copy-leads",
        what: "a server that leads with an old copy is not asked to step down",
        edits: &[(
            "crates/cluster/src/doubts.rs",
            "        (now >= *since + BEHIND)\n",
            "        (now < *since)\n",
        )],
        tests: &[&["--test=cluster", "a_leader_with_a_damaged_copy_is_asked"]],
    },
    Planted {
        name: "takeover-by-the-wall-clock",
        what: "the wall clock of a new owner says what time it is",
        edits: &[(
            "crates/cluster/src/member.rs",
            "            lead_ms: self.lead_ms.largest(),\n",
            "            lead_ms: self.lead_ms.largest().filter(|_| false),\n",
        )],
        tests: &[&["--lib", "a_takeover_by_a_node_whose_clock_is_wrong"]],
    },
    Planted {
        name: "wrong-clock-takes-over",
        what: "a node whose clock is wrong does not leave a takeover to others",
        edits: &[(
            "crates/cluster/src/member.rs",
            "            self.step(Event::Clock(is_off(ahead)));\n",
            "",
        )],
        tests: &[&["--lib", "a_node_whose_clock_is_wrong_leaves"]],
    },
    Planted {
        name: "standby-mirror-not-synced",
        what: "a standby does not sync its mirror before entries are purged",
        edits: &[(
            "crates/cluster/src/copy.rs",
            "            if before < Some(from.seq) {\n",
            "            if before > Some(from.seq) {\n",
        )],
        tests: &[&["--test=cluster", "a_standby_syncs_its_mirror"]],
    },
    Planted {
        name: "owner-mirror-not-synced",
        what: "an owner does not sync its mirror before it purges",
        edits: &[(
            "crates/cluster/src/streamlog.rs",
            "            mirrored.wait()?;\n",
            "            drop(mirrored);\n",
        )],
        tests: &[&["--test=cluster", "what_a_purge_keeps_is_on_the_owners_disk"]],
    },
    Planted {
        name: "run-not-compared",
        what: "a log begins with a run that has less than the log counts in it",
        edits: &[(
            "crates/host/src/recover.rs",
            "        !has || row.live > row.count\n",
            "        !has && row.live > row.count\n",
        )],
        tests: &[&["--lib", "a_log_does_not_begin_where_a_run"]],
    },
    Planted {
        name: "snapshot-lacks-a-run",
        what: "a snapshot that lacks a run is not told of",
        edits: &[(
            "crates/host/src/recover.rs",
            "                        more = (*named != blocks).then(|| {\n",
            "                        more = (*named > blocks).then(|| {\n",
        )],
        tests: &[&["--lib", "a_snapshot_that_names_other_runs"]],
    },
    Planted {
        name: "run-named-too-soon",
        what: "a run gets its name though nobody knows whether it is replicated",
        edits: &[(
            "crates/cluster/src/blobs.rs",
            "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })?;\n",
            "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })\n            .ok();\n",
        )],
        tests: &[&["--lib", "what_clients_of_three_nodes"]],
    },
    Planted {
        name: "runs-in-use-cleared",
        what: "an owner clears away runs that its log names",
        edits: &[(
            "crates/host/src/lib.rs",
            "        run.number.0 < self.runs.first_of_this_life() && !self.runs.has(run.number.0)\n",
            "        run.number.0 < self.runs.first_of_this_life()\n",
        )],
        tests: &[&["--lib", "what_clients_of_three_nodes"]],
    },
    Planted {
        name: "damaged-copy-survives",
        what: "a cluster with a damaged copy would survive the loss of any machine",
        edits: &[(
            "crates/nodes/src/report.rs",
            "            if let Some(how) = &store.damage {\n                survives = false;\n",
            "            if let Some(how) = &store.damage {\n",
        )],
        tests: &[&["--lib", "each_thing_that_is_wrong_is_said"]],
    },
    Planted {
        name: "compression-accepted",
        what: "a stream with compression is used",
        edits: &[(
            "crates/jetstream/src/api.rs",
            "        check(\"compression\", &found.compression, &self.compression);\n",
            "",
        )],
        tests: &[&["--lib", "what_would_lose_something_is_named"]],
    },
    Planted {
        name: "old-servers-accepted",
        what: "any version of nats-server is new enough",
        edits: &[(
            "crates/nodes/src/checks.rs",
            "    numbers(version) >= least\n",
            "    numbers(version) >= least.map(|_| 0)\n",
        )],
        tests: &[&["--lib", "versions_are_compared_by_number"]],
    },
    Planted {
        name: "first-answer-counts",
        what: "of the answers of two servers the first counts, not the newer",
        edits: &[(
            "crates/jetstream/src/client.rs",
            "    first.into_iter().chain(second).max_by_key(|ends| ends.last)\n",
            "    first.or(second)\n",
        )],
        tests: &[&["--lib", "the_newer_of_two_answers_counts"]],
    },
    Planted {
        name: "standby-forgets-nothing",
        what: "who follows keeps deduplication records and entries of tables that are over",
        edits: &[(
            "crates/engine/src/engine.rs",
            "        self.store.forget_dedupe(now, COLLECT_PER_FRAME);\n        self.expire_tables(now);\n",
            "",
        )],
        tests: &[&["--lib", "who_follows_forgets_what_is_over"]],
    },
    Planted {
        name: "first-snapshot-believed",
        what: "nobody is told that a first snapshot leaves out a run",
        edits: &[(
            "crates/engine/src/store/sums.rs",
            "            (known < counted).then",
            "            (known > counted).then",
        )],
        tests: &[&["--lib", "messages_that_a_first_snapshot_counts"]],
    },
    Planted {
        name: "deleted-entries-believed",
        what: "a copy with deleted entries counts as whole",
        edits: &[(
            "crates/nodes/src/stores.rs",
            "Some((told, damage(&ends, deleted, begins))),",
            "Some((told, damage(&ends, deleted / 2, begins))),",
        )],
        tests: &[&["--lib", "the_server_of_a_damaged_copy"]],
    },
];
