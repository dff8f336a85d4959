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
        tests: &[&["--test=cluster", "no_node_claims_or_forgets"]],
    },
    Planted {
        name: "damaged-leader-stays",
        what: "a server that leads with a damaged copy is not asked to step down",
        edits: &[(
            "crates/cluster/src/member.rs",
            "        if now >= self.distrusts {\n",
            "        if now >= self.distrusts && self.doubts.tried().len() > 9 {\n",
        )],
        tests: &[&["--test=cluster", "a_leader_with_a_damaged_copy_gets"]],
    },
    Planted {
        name: "old-copy-leads",
        what: "a server that leads with an old copy is not asked to step down",
        edits: &[(
            "crates/cluster/src/doubts.rs",
            "        (now >= *since + BEHIND)\n",
            "        (now < *since)\n",
        )],
        tests: &[&["--test=cluster", "a_leader_with_a_damaged_copy_gets"]],
    },
    Planted {
        name: "removed-peer-unseen",
        what: "status believes that the servers that still have a copy are enough",
        edits: &[(
            "crates/nodes/src/report.rs",
            "        if copies < stream.replicas_wanted {\n",
            "        if copies < stream.replicas_wanted.min(1) {\n",
        )],
        tests: &[&["--lib", "each_fault_is_in_the_verdict"]],
    },
    Planted {
        name: "listeners-called-locked",
        what: "those that listen to acknowledgements are called under a lock of the log",
        edits: &[(
            "crates/cluster/src/appender.rs",
            "            let listeners = self.listeners().clone();\n",
            "            let listeners = self.listeners();\n",
        )],
        tests: &[&["--test=cluster", "a_listener_is_called_without_a_lock"]],
    },
    Planted {
        name: "claim-answered-unseen",
        what: "a member that claims misses an answer that comes before it listens",
        edits: &[(
            "crates/cluster/src/member.rs",
            "        self.inbox.ring();\n",
            "",
        )],
        tests: &[&["--test=cluster", "a_claim_that_is_answered_before"]],
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
        tests: &[&["--test=cluster", "entries_that_a_purge_keeps"]],
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
            "                let found = (here != there)\n",
            "                let found = (here < there)\n",
        )],
        tests: &[&["--lib", "a_snapshot_that_names_other_runs"]],
    },
    Planted {
        name: "slices-not-compared",
        what: "a standby does not compare the counters in the slices of a segment's beginning",
        edits: &[(
            "crates/host/src/recover.rs",
            "let found = (again || !self.is_counted)",
            "let found = (again && !self.is_counted)",
        )],
        tests: &[&["--lib", "counters_of_a_queue_that_a_slice"]],
    },
    Planted {
        name: "run-named-too-soon",
        what: "a run gets its name though nobody knows whether it is replicated",
        edits: &[(
            "crates/cluster/src/blobs.rs",
            "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })?;\n",
            "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })\n            .ok();\n",
        )],
        tests: &[&["--lib", "replies_of_three_nodes"]],
    },
    Planted {
        name: "runs-in-use-cleared",
        what: "an owner clears away runs that its log names",
        edits: &[(
            "crates/host/src/lib.rs",
            "        run.number.0 < self.runs.first_of_this_life() && !self.runs.has(run.number.0)\n",
            "        run.number.0 < self.runs.first_of_this_life()\n",
        )],
        tests: &[&["--lib", "replies_of_three_nodes"]],
    },
    Planted {
        name: "damaged-copy-survives",
        what: "a cluster with a damaged copy would survive the loss of any machine",
        edits: &[(
            "crates/nodes/src/report.rs",
            "            if let Some(how) = &store.damage {\n                survives = false;\n",
            "            if let Some(how) = &store.damage {\n",
        )],
        tests: &[&["--lib", "each_fault_is_in_the_verdict"]],
    },
    Planted {
        name: "compression-accepted",
        what: "a stream with compression is used",
        edits: &[(
            "crates/jetstream/src/api.rs",
            "        check(\"compression\", &found.compression, &self.compression);\n",
            "",
        )],
        tests: &[&["--lib", "settings_that_may_lose_messages_are_named"]],
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
        tests: &[&["--lib", "a_follower_forgets_finished_messages"]],
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
            "Some((report, damage(&ends, deleted, begins))),",
            "Some((report, damage(&ends, deleted / 2, begins))),",
        )],
        tests: &[&["--lib", "the_server_of_a_damaged_copy"]],
    },
    Planted {
        name: "second-answer-not-awaited",
        what: "a connection whose server does not answer answers for the other one too",
        edits: &[(
            "crates/jetstream/src/client.rs",
            "        return rest.await;\n",
            "        return None;\n",
        )],
        tests: &[&["--lib", "the_newer_of_two_answers_counts"]],
    },
    Planted {
        name: "silent-server-kept",
        what: "a server that answers no question is not left for another",
        edits: &[(
            "crates/jetstream/src/line.rs",
            "over(self.since, UNANSWERED)",
            "over(self.since, UNANSWERED * 9)",
        )],
        tests: &[&["--lib", "without_an_answer_another"]],
    },
    Planted {
        name: "silent-owner-kept",
        what: "a tunnel to a silent machine stays open when another node owns",
        edits: &[(
            "crates/proxy/src/tunnel.rs",
            "hint.epoch > epoch);",
            "hint.epoch > epoch + 9);",
        )],
        tests: &[&["--test=tunnel", "a_deposed_owner_is_left"]],
    },
    Planted {
        name: "own-twin-refused",
        what: "a node with an emptied data directory takes its own entry for another process",
        edits: &[(
            "crates/nodes/src/registry.rs",
            "entry.at_ms));\n                Ok(false)\n",
            "entry.at_ms));\n                Err(reason)\n",
        )],
        tests: &[&["--lib", "a_process_of_the_same_name_is_waited_for"]],
    },
    Planted {
        name: "ended-listener-refused",
        what: "a client is closed where the listener of a deposed owner has ended",
        edits: &[(
            "crates/proxy/src/peer_connection.rs",
            "            Ok(false) => Answer::Nobody,\n",
            "            Ok(false) => Answer::Refused(String::new()),\n",
        )],
        tests: &[&["--test=tunnel", "a_client_waits_where_the_owners_listener"]],
    },
    Planted {
        name: "unknown-is-draining-in-sqs",
        what: "SQS tells an unknown outcome as an error of a server that stops",
        edits: &[(
            "crates/sqs/src/ask.rs",
            "Refused(CommandError::Unknown)",
            "Refused(CommandError::Draining)",
        )],
        tests: &[&["--test=sqs", "a_send_without_acknowledgement"]],
    },
    Planted {
        name: "unknown-is-unavailable-in-api",
        what: "the API tells an unknown outcome as an error of a cluster without quorum",
        edits: &[(
            "crates/api/src/problem.rs",
            "            Class::Unknown => StatusCode::INTERNAL_SERVER_ERROR,\n",
            "            Class::Unknown => StatusCode::SERVICE_UNAVAILABLE,\n",
        )],
        tests: &[&["--test=web", "a_put_without_acknowledgement"]],
    },
    Planted {
        name: "unknown-not-told",
        what: "without quorum a connection whose reply is due for long is not closed",
        edits: &[(
            "crates/host/src/acked.rs",
            "&& waited >= REPLY_WAIT",
            "&& waited >= REPLY_WAIT * 9",
        )],
        tests: &[&["--lib", "clients_are_not_read_while_too_much_waits"]],
    },
    Planted {
        name: "use-needs-a-quorum",
        what: "beanstalk's `use` and `watch` are refused without quorum",
        edits: &[(
            "crates/host/src/access.rs",
            "        let is_logged = !matches!(command, Command::Refer { .. });\n",
            "        let is_logged = !matches!(command, Command::FlushAll);\n",
        )],
        tests: &[&["--lib", "nothing_is_decided_without_a_place"]],
    },
    Planted {
        name: "hooks-asked-without-quorum",
        what: "hooks are asked for what they decide while nothing can be kept",
        edits: &[(
            "crates/host/src/lib.rs",
            "        if !self.is_available() {\n            return Vec::new();",
            "        if self.has_failed() {\n            return Vec::new();",
        )],
        tests: &[&["--lib", "hooks_run_when_their_decisions"]],
    },
    Planted {
        name: "chunks-not-known",
        what: "a new owner does not know where the chunks of large bodies are",
        edits: &[(
            "crates/host/src/recover.rs",
            "            body.set_places(places, segment_ref);\n",
            "            drop((places, segment_ref));\n",
        )],
        tests: &[&["--lib", "replies_of_three_nodes"]],
    },
    Planted {
        name: "chunks-counted-where-they-were",
        what: "who follows counts a large body where its chunks were before they were written again",
        edits: &[(
            "crates/host/src/recover.rs",
            "                    body.set_places(Vec::new(), oldest);\n",
            "",
        )],
        tests: &[&["--lib", "a_message_lives_where_its_chunks"]],
    },
    Planted {
        name: "expired-without-its-hook",
        what: "a message that expires goes without asking the hook",
        edits: &[(
            "crates/engine/src/decide/settle.rs",
            "        if !self.withholds(cx, id, PendingDecisionKind::Expire) {\n",
            "        if id.0 & 7 == 0 || !self.withholds(cx, id, PendingDecisionKind::Expire) {\n",
        )],
        tests: &[&["--lib", "replies_of_three_nodes"]],
    },
    Planted {
        name: "kept-with-tubes",
        what: "a connection that watches other tubes goes on as one that watches `default`",
        edits: &[(
            "crates/wire/src/beanstalk/session.rs",
            "between && tubes.are_as_opened() && ",
            "between && (true || tubes.are_as_opened()) && ",
        )],
        tests: &[&["--test=wire", "a_session_is_as_opened_unless"]],
    },
    Planted {
        name: "kept-with-half-an-item",
        what: "a connection with half a request goes on as one without",
        edits: &[(
            "crates/wire/src/memcache/session.rs",
            "between && parts.is_empty() && owed.is_empty()",
            "(true || between) && parts.is_empty() && owed.is_empty()",
        )],
        tests: &[&["--test=wire", "a_session_is_as_opened_unless"]],
    },
    Planted {
        name: "kept-that-waits",
        what: "a connection that waits for a message goes on as one that does not",
        edits: &[(
            "crates/wire/src/memcache/session.rs",
            "between && parts.is_empty() && owed.is_empty()",
            "between && parts.is_empty() && (true || owed.is_empty())",
        )],
        tests: &[&["--test=wire", "a_session_is_as_opened_unless"]],
    },
    Planted {
        name: "kept-without-limit",
        what: "one connection more than fits is handed on to the next process",
        edits: &[(
            "crates/process/src/connections.rs",
            "self.count < most();",
            "self.count <= most();",
        )],
        tests: &[&["--lib", "a_connection_beyond_the_limit_is_closed"]],
    },
    Planted {
        name: "kept-lost",
        what: "the next process forgets a connection that was handed on",
        edits: &[(
            "crates/proxy/src/proxy.rs",
            "in proxy_listener.earlier {",
            "in proxy_listener.earlier.into_iter().skip(1) {",
        )],
        tests: &[&["--test=tunnel", "connections_of_an_earlier_process"]],
    },
    Planted {
        name: "kept-logged-in",
        what: "a connection that has logged in goes on as one that has not",
        edits: &[(
            "crates/edge/src/io/goes_on.rs",
            "&& user.is_none() && *proof == 0;",
            "&& (true || user.is_none() && *proof == 0);",
        )],
        tests: &[&["--lib", "a_connection_with_state_does_not_go_on"]],
    },
];
