//! Defects in the beliefs of a cluster about replicas, clocks and runs.

use super::{Planted, planted};

pub(super) const CLUSTER: &[Planted] = planted![
    "beginning-of-the-leader": "the log begins where the copy of the server that leads does"
        "crates/cluster/src/copy.rs": "        if first > from {\n"
        => "        if first > from && first > last {\n";
        ["--test=cluster" "no_node_claims_or_forgets"]
    "damaged-leader-stays": "a server that leads with a damaged copy is not asked to step down"
        "crates/cluster/src/member.rs": "        if now >= self.distrusts {\n"
        => "        if now >= self.distrusts && self.doubts.tried().len() > 9 {\n";
        ["--test=cluster" "a_leader_with_a_damaged_copy_gets"]
    "old-copy-leads": "a server that leads with an old copy is not asked to step down"
        "crates/cluster/src/doubts.rs": "        (now >= *since + BEHIND)\n"
        => "        (now < *since)\n"; ["--test=cluster" "a_leader_with_a_damaged_copy_gets"]
    "group-not-in-the-registry": "the registry has the logs of all groups under one key"
        "crates/nodes/src/registry.rs": "format!(\"group.{}\", names.group)"
        => "format!(\"group.{}\", names.group / 100)";
        ["--lib" "the_log_of_a_group_is_under_its_number"]
    "removed-peer-unseen": "status believes that the servers that still have a copy are enough"
        "crates/nodes/src/report.rs": "        if copies < wanted {\n"
        => "        if copies < wanted.min(1) {\n";
        ["--lib" "each_fault_is_in_the_verdict"]
    "listeners-called-locked":
        "those that listen to acknowledgements are called under a lock of the log"
        "crates/cluster/src/appender.rs": "            let listeners = self.listeners().clone();\n"
        => "            let listeners = self.listeners();\n";
        ["--test=cluster" "a_listener_is_called_without_a_lock"]
    "claim-answered-unseen": "a member that claims misses an answer that comes before it listens"
        "crates/cluster/src/member.rs": "        self.inbox.ring();\n" => "";
        ["--test=cluster" "a_claim_that_is_answered_before"]
    "takeover-by-the-wall-clock": "the wall clock of a new owner says what time it is"
        "crates/cluster/src/member.rs": "            lead_ms: self.lead_ms.largest(),\n"
        => "            lead_ms: self.lead_ms.largest().filter(|_| false),\n";
        ["--lib" "a_takeover_by_a_node_whose_clock_is_wrong"]
    "wrong-clock-takes-over": "a node whose clock is wrong does not leave a takeover to others"
        "crates/cluster/src/member.rs": "            self.step(Event::Clock(is_off(ahead)));\n"
        => ""; ["--lib" "a_node_whose_clock_is_wrong_leaves"]
    "standby-mirror-not-synced": "a standby does not sync its mirror before entries are purged"
        "crates/cluster/src/copy.rs": "            if before < Some(from.seq) {\n"
        => "            if before > Some(from.seq) {\n";
        ["--test=cluster" "a_standby_syncs_its_mirror"]
    "owner-mirror-not-synced": "an owner does not sync its mirror before it purges"
        "crates/cluster/src/streamlog.rs": "            mirrored.wait()?;\n"
        => "            drop(mirrored);\n"; ["--test=cluster" "entries_that_a_purge_keeps"]
    "run-not-compared": "a log begins with a run that has less than the log counts in it"
        "crates/host/src/recover.rs": "        !has || row.live > row.count\n"
        => "        !has && row.live > row.count\n"; ["--lib" "a_log_does_not_begin_where_a_run"]
    "snapshot-lacks-a-run": "a snapshot that lacks a run is not told of"
        "crates/host/src/recover.rs": "                let found = (here != there)\n"
        => "                let found = (here < there)\n";
        ["--lib" "a_snapshot_that_names_other_runs"]
    "slices-not-compared":
        "a standby does not compare the counters in the slices of a segment's beginning"
        "crates/host/src/recover.rs": "let found = (again || !self.is_counted)"
        => "let found = (again && !self.is_counted)"; ["--lib" "counters_of_a_queue_that_a_slice"]
    "run-named-too-soon": "a run gets its name though nobody knows whether it is replicated"
        "crates/cluster/src/blobs.rs":
        "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })?;\n"
        => "                io::Error::new(io::ErrorKind::StorageFull, why)\n            })\n            .ok();\n";
        ["--lib" "replies_of_three_nodes"]
    "runs-in-use-cleared": "an owner clears away runs that its log names"
        "crates/host/src/lib.rs":
        "        run.number.0 < self.runs.first_of_this_life() && !self.runs.has(run.number.0)\n"
        => "        run.number.0 < self.runs.first_of_this_life()\n";
        ["--lib" "replies_of_three_nodes"]
    "damaged-copy-survives": "a cluster with a damaged copy would survive the loss of any machine"
        "crates/nodes/src/report.rs":
        "            if let Some(how) = &store.damage {\n                verdict.fault(format!(\n"
        => "            if let Some(how) = &store.damage {\n                verdict.notes.push(format!(\n";
        ["--lib" "each_fault_is_in_the_verdict"]
    "compression-accepted": "a stream with compression is used"
        "crates/jetstream/src/api.rs": "allow_direct, compression, republish"
        => "allow_direct, republish";
        ["--lib" "settings_that_may_lose_messages_are_named"]
    "old-servers-accepted": "any version of nats-server is new enough"
        "crates/nodes/src/checks.rs": "    numbers(version) >= least\n"
        => "    numbers(version) >= least.map(|_| 0)\n"; ["--lib" "versions_are_compared_by_number"]
    "first-answer-counts": "of the answers of two servers the first counts, not the newer"
        "crates/jetstream/src/client.rs":
        "    first.into_iter().chain(second).max_by_key(|ends| ends.last)\n"
        => "    first.or(second)\n"; ["--lib" "the_newer_of_two_answers_counts"]
    "standby-forgets-nothing":
        "who follows keeps deduplication records and entries of tables that are over"
        "crates/engine/src/engine.rs":
        "        self.store.forget_dedupe(now, COLLECT_PER_FRAME);\n        self.expire_tables(now);\n"
        => ""; ["--lib" "a_follower_forgets_finished_messages"]
    "first-snapshot-believed": "nobody is told that a first snapshot leaves out a run"
        "crates/engine/src/store/sums.rs": "            (known < counted).then"
        => "            (known > counted).then"; ["--lib" "messages_that_a_first_snapshot_counts"]
    "deleted-entries-believed": "a copy with deleted entries counts as whole"
        "crates/nodes/src/stores.rs": "Some((report, damage(&ends, deleted, begins))),"
        => "Some((report, damage(&ends, deleted / 2, begins))),";
        ["--lib" "the_server_of_a_damaged_copy"]
    "second-answer-not-awaited":
        "a connection whose server does not answer answers for the other one too"
        "crates/jetstream/src/client.rs": "        return rest.await;\n"
        => "        return None;\n"; ["--lib" "the_newer_of_two_answers_counts"]
    "silent-server-kept": "a server that answers no question is not left for another"
        "crates/jetstream/src/line.rs": "over(self.since, UNANSWERED)"
        => "over(self.since, UNANSWERED * 9)"; ["--lib" "without_an_answer_another"]
    "silent-owner-kept": "a tunnel to a silent machine stays open when another node owns"
        "crates/proxy/src/tunnel.rs": "hint.epoch > epoch);" => "hint.epoch > epoch + 9);";
        ["--test=tunnel" "a_deposed_owner_is_left"]
    "order-cut-off": "a proxy ends before the order that ends it is answered"
        "crates/proxy/src/proxy.rs":
        "ours.orders.acquire_many(ORDERS)" => "ours.orders.acquire_many(0)";
        ["--test=tunnel" "an_order_that_ends_the_proxy"]
    "silent-client-left": "a client that has said nothing is closed with its owner"
        "crates/proxy/src/tunnel.rs": "deposed(owners, epoch)).await.is_ok() {\n"
        => "deposed(owners, epoch)).await.is_err() {\n";
        ["--test=tunnel" "a_client_that_has_said_nothing"]
    "referred-core-unseen": "a core of a deposed owner that is still referred to is not noticed"
        "crates/server/src/serve.rs": "    while core.strong_count() > 0 {\n"
        => "    while core.strong_count() > 999 {\n";
        ["--bin=quintet" "a_core_that_is_still_referred_to"]
    "lost-handoff-awaited": "a handoff is waited for though another node owns the log already"
        "crates/host/src/leave.rs": "            if is_over {\n"
        => "            if is_over && within.is_zero() {\n"; ["--lib" "a_handoff_is_not_waited_for"]
    "post-holds-core": "a webhook that does not answer keeps its owner from following"
        "crates/ops/src/webhooks.rs": "Err(TryRecvError::Empty) if !self.stops() => {\n"
        => "Err(TryRecvError::Empty) => {\n";
        ["--bin=quintet" "a_webhook_that_does_not_answer"]
    "own-sockets-mixed": "listeners of a node that follows again get each other's sockets"
        "crates/process/src/again.rs": "    Some(left.sockets.remove(number).1)\n"
        => "    Some(left.sockets.swap_remove(number).1)\n";
        ["--lib" "a_process_that_stays_claims"]
    "own-twin-refused":
        "a node with an emptied data directory takes its own entry for another process"
        "crates/nodes/src/registry.rs": "entry.at_ms));\n                Ok(false)\n"
        => "entry.at_ms));\n                Err(reason)\n";
        ["--lib" "a_process_of_the_same_name_is_waited_for"]
    "ended-listener-refused": "a client is closed where the listener of a deposed owner has ended"
        "crates/proxy/src/peer_connection.rs": "            Ok(false) => Answer::Nobody,\n"
        => "            Ok(false) => Answer::Refused(String::new()),\n";
        ["--test=tunnel" "a_client_waits_where_the_owners_listener"]
    "unknown-is-draining-in-sqs": "SQS tells an unknown outcome as an error of a server that stops"
        "crates/sqs/src/ask.rs": "Refused(CommandError::Unknown)"
        => "Refused(CommandError::Draining)"; ["--test=sqs" "a_send_without_acknowledgement"]
    "unknown-is-unavailable-in-api":
        "the API tells an unknown outcome as an error of a cluster without quorum"
        "crates/api/src/problem.rs":
        "            Class::Unknown => StatusCode::INTERNAL_SERVER_ERROR,\n"
        => "            Class::Unknown => StatusCode::SERVICE_UNAVAILABLE,\n";
        ["--test=web" "a_put_without_acknowledgement"]
    "unknown-not-told": "without quorum a connection whose reply is due for long is not closed"
        "crates/host/src/acked.rs": "&& waited >= REPLY_WAIT" => "&& waited >= REPLY_WAIT * 9";
        ["--lib" "clients_are_not_read_while_too_much_waits"]
    "use-needs-a-quorum": "beanstalk's `use` and `watch` are refused without quorum"
        "crates/host/src/access.rs":
        "        let is_logged = !matches!(command, Command::Refer { .. });\n"
        => "        let is_logged = !matches!(command, Command::FlushAll);\n";
        ["--lib" "nothing_is_decided_without_a_place"]
    "hooks-asked-without-quorum": "hooks are asked for what they decide while nothing can be kept"
        "crates/host/src/lib.rs":
        "        if !self.is_available() {\n            return Vec::new();"
        => "        if self.has_failed() {\n            return Vec::new();";
        ["--lib" "hooks_run_when_their_decisions"]
    "chunks-not-known": "a new owner does not know where the chunks of large bodies are"
        "crates/host/src/recover.rs": "            body.set_places(places, segment_ref);\n"
        => "            drop((places, segment_ref));\n"; ["--lib" "replies_of_three_nodes"]
    "chunks-counted-where-they-were":
        "who follows counts a large body where its chunks were before they were written again"
        "crates/host/src/recover.rs": "                    body.set_places(Vec::new(), oldest);\n"
        => ""; ["--lib" "a_message_lives_where_its_chunks"]
    "expired-without-its-hook": "a message that expires goes without asking the hook"
        "crates/engine/src/decide/settle.rs":
        "        if !self.withholds(cx, id, PendingDecisionKind::Expire) {\n"
        => "        if id.0 & 7 == 0 || !self.withholds(cx, id, PendingDecisionKind::Expire) {\n";
        ["--lib" "replies_of_three_nodes"]
    "kept-with-tubes": "a connection that watches other tubes goes on as one that watches `default`"
        "crates/wire/src/beanstalk/session.rs": "between && tubes.are_as_opened() && "
        => "between && (true || tubes.are_as_opened()) && ";
        ["--test=wire" "a_session_is_as_opened_unless"]
    "kept-with-half-an-item": "a connection with half a request goes on as one without"
        "crates/wire/src/memcache/session.rs": "between && parts.is_empty() && owed.is_empty()"
        => "(true || between) && parts.is_empty() && owed.is_empty()";
        ["--test=wire" "a_session_is_as_opened_unless"]
    "kept-that-waits": "a connection that waits for a message goes on as one that does not"
        "crates/wire/src/memcache/session.rs": "between && parts.is_empty() && owed.is_empty()"
        => "between && parts.is_empty() && (true || owed.is_empty())";
        ["--test=wire" "a_session_is_as_opened_unless"]
    "kept-without-limit": "one connection more than fits is handed on to the next process"
        "crates/process/src/connections.rs": "self.count < most();" => "self.count <= most();";
        ["--lib" "a_connection_beyond_the_limit_is_closed"]
    "kept-lost": "the next process forgets a connection that was handed on"
        "crates/proxy/src/proxy.rs": "in proxy_listener.earlier {"
        => "in proxy_listener.earlier.into_iter().skip(1) {";
        ["--test=tunnel" "connections_of_an_earlier_process"]
    "kept-logged-in": "a connection that has logged in goes on as one that has not"
        "crates/edge/src/io/goes_on.rs": "&& user.is_none() && *proof == 0;"
        => "&& (true || user.is_none() && *proof == 0);";
        ["--lib" "a_connection_with_state_does_not_go_on"]
];
