//! What other people's suites and clients found, and an attack: for each the defect as it was, or
//! one of its kind.

use super::Planted;

pub(super) const FOUND: &[Planted] = &[
    Planted {
        name: "room-without-a-step",
        what: "a put that waits for memory gets no step when memory frees itself",
        edits: &[(
            "crates/engine/src/decide/cold.rs",
            "reading.again || (reading.room_waits && self.has_room())",
            "reading.again || (reading.room_waits && reading.memory_room == 0 && self.has_room())",
        )],
        tests: &[&["--test=life", "a_put_that_waits_for_memory_goes_on"]],
    },
    Planted {
        name: "batches-listed-whole",
        what: "a page of batches does not end by its bytes",
        edits: &[(
            "crates/engine/src/decide/batch.rs",
            "bytes >= LIST_BYTES {",
            "bytes >= 100 * LIST_BYTES {",
        )],
        tests: &[&["--test=life", "a_page_of_batches_ends"]],
    },
    Planted {
        name: "reason-not-cut",
        what: "the reason of a buried message has any length",
        edits: &[(
            "crates/engine/src/decide/settle.rs",
            "let reason = cut(reason, ERROR_BYTES_MAX).into();",
            "let reason = cut(reason, 1000 * ERROR_BYTES_MAX).into();",
        )],
        tests: &[&["--test=life", "a_reason_is_cut"]],
    },
    Planted {
        name: "attributes-not-counted",
        what: "half of what a message has beside its body is not counted as memory",
        edits: &[(
            "crates/engine/src/store/index.rs",
            "body + message.extra_bytes()",
            "body + message.extra_bytes() / 2",
        )],
        tests: &[&["--test=memory", "memory_of_messages_is_counted"]],
    },
    Planted {
        name: "dedupe-without-bound",
        what: "deduplication records may be twice as many as `dedupe_max`",
        edits: &[(
            "crates/engine/src/decide/put.rs",
            "(known + more) as u64 <= max;",
            "(known + more) as u64 <= 2 * max;",
        )],
        tests: &[&["--test=life", "records_have_a_bound_of_their_own"]],
    },
    Planted {
        name: "address-takes-all",
        what: "one address gets all connections of an HTTP listener",
        edits: &[(
            "crates/http/src/slots.rs",
            "(self.most / 4 * 3).max(1)",
            "self.most.max(1)",
        )],
        tests: &[&["--lib", "an_address_gets_three_quarters"]],
    },
    Planted {
        name: "star-reaches-across",
        what: "a `*` at the start of a grant matches across `+`",
        edits: &[(
            "crates/auth/src/table.rs",
            "(0..=plus).any(",
            "(0..name.len().max(plus)).any(",
        )],
        tests: &[&["--lib", "the_table_has_the_rights_of_the_grants"]],
    },
    Planted {
        name: "batch-joined-unseen",
        what: "with one shard anybody puts members into any batch",
        edits: &[(
            "crates/engine/src/decide/batch.rs",
            "if self.permits.is_none() || call.vouched {",
            "if self.permits.is_none() || call.vouched || self.shards == 1 {",
        )],
        tests: &[&["--test=operations", "a_batch_needs_the_right_to_join"]],
    },
    Planted {
        name: "purge-keeps-ids",
        what: "an emptied queue still knows the deduplication ids of what it had",
        edits: &[(
            "crates/engine/src/store/apply.rs",
            "queue.dedupe_generation = queue.dedupe_generation.wrapping_add(1);",
            "queue.dedupe_generation = queue.dedupe_generation.wrapping_add(0);",
        )],
        tests: &[&["--test=life", "an_emptied_queue_knows_no_repeats"]],
    },
    Planted {
        name: "cancelled-move-goes-on",
        what: "a cancelled message move task moves the messages of another step",
        edits: &[(
            "crates/sqs/src/moves.rs",
            "known.id == task.id && known.status == Status::Running;",
            "known.id == task.id;",
        )],
        tests: &[&["--test=sqs", "a_cancelled_move_moves_nothing_more"]],
    },
    Planted {
        name: "no-visibility-hides",
        what: "a queue whose visibility timeout is 0 hides what was received for a moment",
        edits: &[(
            "crates/engine/src/decide/lease.rs",
            "LeaseTime::TtrOrOver => matches!(ttr_ms, Some(0 | AT_ONCE_MS)),",
            "LeaseTime::TtrOrOver => ttr_ms == Some(0),",
        )],
        tests: &[&["--test=sqs", "a_queue_whose_visibility_is_none"]],
    },
    Planted {
        name: "fifo-delay-stays",
        what: "a shorter delay of a FIFO queue is only that of later messages",
        edits: &[(
            "crates/sqs/src/queues.rs",
            "fifo && ms != before_ms)",
            "fifo && ms > before_ms)",
        )],
        tests: &[&["--test=sqs", "a_delay_of_a_fifo_queue"]],
    },
    Planted {
        name: "control-characters-taken",
        what: "SQS takes a text with a vertical tab",
        edits: &[(
            "crates/sqs/src/message.rs",
            "matches!(c, '\\t' | '\\n' | '\\r' | ' '..=",
            "matches!(c, '\\t'..='\\r' | ' '..=",
        )],
        tests: &[&["--lib", "bodies_have_the_characters_of_xml"]],
    },
    Planted {
        name: "import-believes-bodies",
        what: "an import from SQS does not compare bodies with their sums",
        edits: &[(
            "crates/cli/src/import/from/sqs.rs",
            "is_some_and(|md5| *md5 != sum)",
            "is_some_and(|md5| md5.len() != sum.len())",
        )],
        tests: &[&["--test=operations", "a_body_that_came_as_another"]],
    },
    Planted {
        name: "track-only-while-held",
        what: "`TRACK SET` needs a worker that holds the job",
        edits: &[(
            "crates/engine/src/decide/track.rs",
            "if self.store.messages.at(slot).state == State::Reserved {",
            "if self.store.messages.at(slot).state != State::Done {",
        )],
        tests: &[&["--test=wire", "every_transcript_is_answered"]],
    },
    Planted {
        name: "success-beside-complete",
        what: "the callback `success` does not wait for the end of `complete`",
        edits: &[(
            "crates/types/src/batch.rs",
            "let is_next = self.complete == CallbackState::Done && self.success",
            "let is_next = self.complete != CallbackState::No && self.success",
        )],
        tests: &[&["--test=life", "batches::"]],
    },
    Planted {
        name: "batch-closed-for-good",
        what: "a batch takes no members once its callbacks were put",
        edits: &[(
            "crates/types/src/batch.rs",
            "self.open || self.complete != CallbackState::No",
            "self.open && self.complete != CallbackState::Done",
        )],
        tests: &[&["--test=wire", "every_transcript_is_answered"]],
    },
    Planted {
        name: "set-up-word-missing",
        what: "RQ's set-up does not find its word on the first page",
        edits: &[(
            "crates/console/templates/frame.html",
            "<span>QUEUEMGR: OPERATIONAL</span>",
            "<span>QUEUEMGR</span>",
        )],
        tests: &[&["--test=web", "says_that_it_is_operational"]],
    },
    Planted {
        name: "force-remote-travels",
        what: "a relayed message has the `force_remote` of the first one",
        edits: &[(
            "crates/rq/src/builtin/relay.rs",
            "const FIELDS: [&str; 9] = [\n",
            "const FIELDS: [&str; 10] = [\n    \"force_remote\",\n",
        )],
        tests: &[&["--test=web", "its_log_has_the_lines_of_rq"]],
    },
    Planted {
        name: "script-where-started",
        what: "a relative script is not looked for in `script_root`",
        edits: &[(
            "crates/scripts/src/config.rs",
            ".then(|| root.join(&self.script))",
            ".then(|| root.with_file_name(&self.script))",
        )],
        tests: &[&["--test=rq", "a_relative_script_is_in"]],
    },
    Planted {
        name: "used-key-accepted",
        what: "a used `Idempotency-Key` with another request is answered as its repeat",
        edits: &[(
            "crates/engine/src/decide/put.rs",
            "known.sum > 0 && left.sum != known.sum {",
            "known.sum > 0 && left.sum < known.sum && left.sum > known.sum {",
        )],
        tests: &[&["--test=web", "a_used_key_with_another_request"]],
    },
    Planted {
        name: "bytes-only-as-text",
        what: "JSON has bytes that are no text without their base64",
        edits: &[(
            "crates/client/src/shown.rs",
            "text.is_err().then(",
            "text.is_ok_and(str::is_empty).then(",
        )],
        tests: &[&["--test=web", "bytes_that_are_no_text_are_sent"]],
    },
    Planted {
        name: "mark-not-passed-over",
        what: "a byte order mark before a hook keeps the server from starting",
        edits: &[(
            "crates/hooks/src/load.rs",
            "text.starts_with(b\"\\xef\\xbb\\xbf\")",
            "text.starts_with(b\"\\xef\\xbb\\xbe\")",
        )],
        tests: &[&["--test=hooks", "a_byte_order_mark_and"]],
    },
    Planted {
        name: "blank-binlog-skipped",
        what: "an import passes over a binlog file that begins with zeros",
        edits: &[(
            "crates/cli/src/import/from/binlog.rs",
            "all.damaged(format!(\"{}: {what}\", path.display()));",
            "drop(format!(\"{}: {what}\", path.display()));",
        )],
        tests: &[&["--test=operations", "a_binlog_of_the_real_beanstalkd"]],
    },
    Planted {
        name: "family-twice",
        what: "OpenMetrics has one family twice",
        edits: &[(
            "crates/ops/src/metrics.rs",
            "Counter \"connections_accepted_total\"",
            "Counter \"connections_total\"",
        )],
        tests: &[&["--lib", "no_two_families_have_one_name"]],
    },
    Planted {
        name: "range-not-said",
        what: "the OpenAPI document does not tell the ranges of fields",
        edits: &[(
            "crates/api/src/openapi.rs",
            "schema[\"properties\"].get_mut(field) {",
            "schema[\"properties\"].get_mut(field.trim_start_matches('p')) {",
        )],
        tests: &[&["--lib", "fields_have_their_allowed_values"]],
    },
    Planted {
        name: "second-host-taken",
        what: "a request with two Host lines is served",
        edits: &[(
            "crates/http/src/head.rs",
            "headers.get_all(HOST).iter().nth(1)",
            "headers.get_all(HOST).iter().nth(2)",
        )],
        tests: &[&["--test=web", "a_second_host_is_refused"]],
    },
    Planted {
        name: "head-one-byte-longer",
        what: "a request's head may be a byte longer than `max_header`",
        edits: &[(
            "crates/http/src/head.rs",
            "(bytes > max).then(",
            "(bytes > max + 1).then(",
        )],
        tests: &[&["--test=web", "heads_have_a_limit"]],
    },
    Planted {
        name: "gat-unknown",
        what: "`gat` is an unknown command and not a cache's",
        edits: &[(
            "crates/wire/src/memcache/request.rs",
            " | b\"gat\" | b\"gats\"",
            " | b\"gats\"",
        )],
        tests: &[&["--test=wire", "every_transcript_is_answered"]],
    },
    Planted {
        name: "expires-to-itself",
        what: "a queue may expire to itself",
        edits: &[(
            "crates/config/src/load.rs",
            "if overrides.expire_to.as_ref() == Some(&own) {",
            "if overrides.expire_to.as_ref() == Some(&own) && name.len() > 999 {",
        )],
        tests: &[&["--lib", "a_queue_does_not_expire_to_itself"]],
    },
    Planted {
        name: "odd-address-unknown",
        what: "an address with bytes that are no text is an unknown page",
        edits: &[(
            "crates/api/src/path.rs",
            "= failed.kind()\n",
            "= failed.kind()\n        && key.len() > 999\n",
        )],
        tests: &[&["--test=http", "bytes_in_an_address_that_are_no_text"]],
    },
    Planted {
        name: "start-ignores-stop",
        what: "a start that waits for disk space goes on after a stop",
        edits: &[(
            "crates/ops/src/stuck.rs",
            "watch(core, started, move || stops.load(Ordering::Relaxed))?;",
            "watch(core, started, move || Arc::strong_count(&stops) > 999 && stops.load(Ordering::Relaxed))?;",
        )],
        tests: &[&["--test=faults", "a_start_that_waits_for_space"]],
    },
    Planted {
        name: "result-by-name-lost",
        what: "the end of a message by its name forgets the result",
        edits: &[(
            "crates/api/src/types.rs",
            "status: result.into_bytes().into(),",
            "status: result.get(..0).unwrap_or_default().as_bytes().into(),",
        )],
        tests: &[&["--test=http", "a_reserved_message_is_settled_by_its_name"]],
    },
    Planted {
        name: "audit-line-lost",
        what: "the audit loses a line where its file cannot be renamed",
        edits: &[(
            "crates/ops/src/audit.rs",
            "                Err(error) => rotated = Err(error),\n",
            "                Err(error) => {\n                    rotated = Err(error);\n                    return rotated;\n                }\n",
        )],
        tests: &[&["--lib", "a_rotation_that_fails_loses_no_line"]],
    },
    Planted {
        name: "lock-holders-not-known",
        what: "`quintet stats --locks` leaves out work that held a shard for long",
        edits: &[(
            "crates/host/src/holders.rs",
            "since != 0 && held >= LONG",
            "since != 0 && held < LONG",
        )],
        tests: &[&["--lib", "work_that_kept_others_waiting_is_reported"]],
    },
    Planted {
        name: "dependents-listed-whole",
        what: "a page of messages that wait for another one does not end by its bytes",
        edits: &[(
            "crates/engine/src/decide/after.rs",
            "const NAMES: usize = 128 << 10;",
            "const NAMES: usize = 128 << 20;",
        )],
        tests: &[&["--test=http", "dependencies_in_a_queue_with_a_long_name"]],
    },
    Planted {
        name: "errors-listed-whole",
        what: "a page of errors does not end by the names in it",
        edits: &[(
            "crates/api/src/bulk.rs",
            "sum::<u64>() >= super::PAGE_BYTES;",
            "sum::<u64>() >= 99 * super::PAGE_BYTES;",
        )],
        tests: &[&["--test=web", "a_page_of_errors_ends"]],
    },
    Planted {
        name: "first-shard-is-best",
        what: "a take over several shards takes what the first one has",
        edits: &[(
            "crates/engine/src/across.rs",
            "if before.is_none_or(|before| before.is_worse_than(found, self.take.end)) {",
            "if before.is_none() {",
        )],
        tests: &[&["--test=protocols", "a_subscription_over_shards"]],
    },
    Planted {
        name: "hash-key-forgotten",
        what: "a snapshot has another key for the hashes of deduplication ids",
        edits: &[(
            "crates/engine/src/store/image.rs",
            "record(&Fact::HashKey(key));",
            "record(&Fact::HashKey(key.map(|byte| byte ^ 1)));",
        )],
        tests: &[&["--test=life", "an_id_is_kept_as_its_hash"]],
    },
    Planted {
        name: "note-cut-in-a-character",
        what: "the note of a tracked message ends within a character",
        edits: &[(
            "crates/engine/src/decide/track.rs",
            "let note = cut(note, TRACK_NOTE_BYTES_MAX);",
            "let note = &note[..note.len().min(TRACK_NOTE_BYTES_MAX)];",
        )],
        tests: &[&["--test=life", "a_long_note_of_a_tracked_message"]],
    },
    Planted {
        name: "connections-listed-whole",
        what: "a page of connections does not end by its bytes",
        edits: &[(
            "crates/edge/src/io/census.rs",
            "self.more = self.list.len() >= PAGE_BYTES;",
            "self.more = self.list.len() >= 99 * PAGE_BYTES;",
        )],
        tests: &[&["--test=http", "connections_come_in_pages"]],
    },
    Planted {
        name: "decision-not-asked-again",
        what: "a hook's decision that is refused for want of a quorum is forgotten",
        edits: &[(
            "crates/edge/src/hooks/thread.rs",
            "core.give_back_pending_decisions(std::iter::once(pending_decision).chain(pending));",
            "drop(pending);",
        )],
        tests: &[&["--lib", "a_decision_refused"]],
    },
    Planted {
        name: "doomed-goes-to-the-tail",
        what: "a restart uses up an id for the place of a message of a dropped queue",
        edits: &[(
            "crates/engine/src/engine.rs",
            "tails |= lease.back_to == BackTo::Tail && !message.doomed;",
            "tails |= lease.back_to == BackTo::Tail;",
        )],
        tests: &[&["--test=sim", "vanishes_at_a_restart"]],
    },
    Planted {
        name: "full-before-repeats",
        what: "of several puts one finds its queue full before an expired repeat is known",
        edits: &[(
            "crates/engine/src/decide/put.rs",
            "is known before what is full.\n            self.replaced_are_here(&*puts)?;",
            "is known before what is full.\n            self.replaced_are_here(&[])?;",
        )],
        tests: &[&["--test=sim", "whether_a_put_repeats_is_known"]],
    },
    Planted {
        name: "line-of-a-secret-repeated",
        what: "an error in the syntax of the configuration repeats the line",
        edits: &[(
            "crates/config/src/load.rs",
            "\"TOML parse error at {}\", toml_error(text, &error)",
            "\"TOML parse error at {}: {error}\", toml_error(text, &error)",
        )],
        tests: &[&["--lib", "an_error_of_toml_has_its_place"]],
    },
    Planted {
        name: "puts-over-the-limit",
        what: "a queue that is over its limit after an upgrade takes puts",
        edits: &[(
            "crates/engine/src/decide/room.rs",
            "        (settings.messages_max == 0 || queue.waiting() + count <= settings.messages_max)\n",
            "        let over = settings.messages_max > 0 && queue.waiting() > settings.messages_max;\n        over || (settings.messages_max == 0 || queue.waiting() + count <= settings.messages_max)\n",
        )],
        tests: &[&["--test=life", "a_queue_that_is_over_its_limit_at_a_start"]],
    },
    Planted {
        name: "reserve-for-who-is-gone",
        what: "a `RESERVE` (jobqueue) waits on when its client has closed its side",
        edits: &[(
            "crates/wire/src/jobqueue/session.rs",
            "Some(_) => HalfClose::StopWaiting,",
            "Some(_) => HalfClose::LastWord,",
        )],
        tests: &[&["--test=wire", "every_transcript_is_answered"]],
    },
    Planted {
        name: "repair-forgets-losses",
        what: "a repair notes its losses nowhere before it replaces a segment",
        edits: &[(
            "crates/cli/src/check.rs",
            "            note(&unfinished, &lost)\n",
            "            note(&unfinished, &[])\n",
        )],
        tests: &[&["--test=faults", "a_repair_that_fails_is_run_again"]],
    },
    Planted {
        name: "repair-begins-unsaid",
        what: "a repair tells its losses when it has replaced them",
        edits: &[(
            "crates/log/src/repair.rs",
            "    if !survey.damage.is_empty() {\n        begin(&survey.damage)?;\n    }\n",
            "    begin(&[])?;\n",
        )],
        tests: &[&["--test=log", "a_repair_cut_short_can_be_run_again"]],
    },
    Planted {
        name: "error-repeats-all",
        what: "an error of SQS repeats what a client sent, however long",
        edits: &[(
            "crates/sqs/src/fault.rs",
            "const TEXT_MAX: usize = 4 << 10;",
            "const TEXT_MAX: usize = 4 << 20;",
        )],
        tests: &[&["--lib", "an_error_does_not_repeat"]],
    },
    Planted {
        name: "host-of-any-length",
        what: "a request names a host as long as its head may be",
        edits: &[(
            "crates/http/src/guard.rs",
            "host.len() > HOST_BYTES_MAX",
            "host.len() > 100 * HOST_BYTES_MAX",
        )],
        tests: &[&["--lib", "hosts_that_are_not_ours"]],
    },
    Planted {
        name: "half-read-body-cut",
        what: "the connection of a body that is refused in its middle is reset",
        edits: &[(
            "crates/http/src/interruptible.rs",
            "this.goes_on = matches!(&frame, Some(Ok(_))) && !body.is_end_stream();",
            "this.goes_on = false;",
        )],
        tests: &[&["--lib", "an_unread_body_is_waited_for"]],
    },
    Planted {
        name: "turned-away-body-cut",
        what: "the connection of a request with a wrong head is reset while its body comes",
        edits: &[(
            "crates/http/src/serve.rs",
            "    drop(interruptible(request));\n    response\n",
            "    drop((interruptible, request));\n    response\n",
        )],
        tests: &[&["--test=web", "a_second_host_is_refused"]],
    },
    Planted {
        name: "hooks-error-each-time",
        what: "hooks that a thread cannot load are an error in the log each time it tries",
        edits: &[(
            "crates/edge/src/hooks/mod.rs",
            "self.failed.swap(version, Ordering::Relaxed) != version",
            "self.failed.swap(version, Ordering::Relaxed) <= version",
        )],
        tests: &[&["--test=hooks", "hooks_that_a_thread_cannot_load"]],
    },
    Planted {
        name: "pending-not-counted",
        what: "requests behind one that waits take memory that nobody counts",
        edits: &[(
            "crates/edge/src/io/inbox.rs",
            "            false => self.pending_bytes,",
            "            false => self.pending_bytes.min(1),",
        )],
        tests: &[&["--test=protocols", "requests_behind_one_that_waits"]],
    },
    Planted {
        name: "subscriptions-not-counted",
        what: "what a client of pinpriq subscribes to takes memory that nobody counts",
        edits: &[(
            "crates/wire/src/pinpriq/session.rs",
            "self.subscribed_bytes + self.subscribed.len() * size_of::<Name>()",
            "0",
        )],
        tests: &[&["--test=protocols", "subscriptions_are_memory"]],
    },
    Planted {
        name: "unknown-batch-sent-again",
        what: "messages of a batch of SQS whose outcome is not known are put once more, one by one",
        edits: &[(
            "crates/sqs/src/send.rs",
            "if let Outcome::Refused(CommandError::Unknown) = all {",
            "if let Outcome::Refused(CommandError::Draining) = all {",
        )],
        tests: &[&["--test=sqs", "a_send_without_acknowledgement"]],
    },
    Planted {
        name: "unknown-jobs-put-again",
        what: "jobs of a PUSHB whose outcome is not known are put once more, one by one",
        edits: &[(
            "crates/wire/src/faktory/reply.rs",
            "Some(_) if self.requested > 1 && !unknown =>",
            "Some(_) if self.requested > 1 && (!unknown || self.singly == 0) =>",
        )],
        tests: &[&["--lib", "jobs_that_may_have_been_put"]],
    },
    Planted {
        name: "forbidden-queue-told",
        what: "SQS tells clients without rights whether there is a queue to delete",
        edits: &[(
            "crates/sqs/src/queues.rs",
            "        self.must_have(context, Verb::Drop, &queue)?;\n",
            "",
        )],
        tests: &[&["--test=operations", "sqs_needs_the_right_before"]],
    },
    Planted {
        name: "other-host-asked",
        what: "a webhook goes to a host behind a `#`, which no setting allows",
        edits: &[(
            "crates/rq/src/builtin/client.rs",
            "rest.find(['/', '?', '#'])",
            "rest.find(['/', '?'])",
        )],
        tests: &[&["--lib", "the_host_stays_the_same"]],
    },
    Planted {
        name: "webhook-of-long-message",
        what: "a message with two long parameters calls no webhook",
        edits: &[(
            "crates/scripts/src/run.rs",
            "            if payload.len() > bytes_max\n",
            "            if payload.len() > bytes_max && long == \"param1\"\n",
        )],
        tests: &[&["--test=rq", "webhooks_hear_of_long_messages"]],
    },
    Planted {
        name: "reserves-not-counted",
        what: "the watched tubes of reserves that wait behind another are not counted",
        edits: &[(
            "crates/wire/src/beanstalk/session.rs",
            "self.tubes.bytes() * (1 + behind.count())",
            "self.tubes.bytes() * (1 + behind.take(0).count())",
        )],
        tests: &[&["--test=protocols", "reserves_behind_one_that_waits"]],
    },
    Planted {
        name: "accept-failure-each-time",
        what: "an HTTP listener without files says so ten times a second",
        edits: &[(
            "crates/http/src/serve.rs",
            "if failed.is_power_of_two() {",
            "if failed > 0 {",
        )],
        tests: &[&["--test=protocols", "http_without_a_file_to_be_had"]],
    },
    Planted {
        name: "head-refused-in-plain-text",
        what: "a client of SQS gets plain text for a head that is too long",
        edits: &[(
            "crates/sqs/src/listener.rs",
            "        with_id(Answered::of(written).response, &id)\n",
            "        let _json = with_id(Answered::of(written).response, &id);\n        axum::response::IntoResponse::into_response(problem)\n",
        )],
        tests: &[&["--test=sqs", "requests_that_are_too_long"]],
    },
    Planted {
        name: "move-without-rest",
        what: "a move of dead letters is tried 250 times a second while the disk is full",
        edits: &[(
            "crates/sqs/src/moves.rs",
            "const LONG_REST: Duration = Duration::from_secs(1);",
            "const LONG_REST: Duration = REST;",
        )],
        tests: &[&["--test=sqs", "a_move_rests_while_nothing"]],
    },
    Planted {
        name: "rq-socket-not-audited",
        what: "a message that is deleted over a socket of RQ leaves no line in the audit",
        edits: &[(
            "crates/scripts/src/socket/answer.rs",
            "    \"environment\",\n    \"get_message\",\n",
            "    \"delete_message\",\n    \"get_message\",\n",
        )],
        tests: &[&["--test=rq", "administrative_requests_are_in_the_audit"]],
    },
    Planted {
        name: "operator-not-checked",
        what: "any user may see connections, and reload the configuration, by the API",
        edits: &[(
            "crates/api/src/operations.rs",
            "requester.is_some_and(Requester::may_server)",
            "requester.is_some()",
        )],
        tests: &[&["--test=http", "operations_on_the_server_need"]],
    },
    Planted {
        name: "batch-of-one-refused-whole",
        what: "SQS refuses a batch of one as a request",
        edits: &[(
            "crates/sqs/src/send.rs",
            "puts, true).await?;",
            "puts, false).await?;",
        )],
        tests: &[&["--test=sqs", "case_26_27_29_batches"]],
    },
    Planted {
        name: "forbidden-batch-succeeds",
        what: "SQS answers 200 to a batch for a queue that is forbidden",
        edits: &[(
            "crates/sqs/src/send.rs",
            "fault.text == CommandError::NotPermitted.text()",
            "fault.text == CommandError::QueueNotFound.text()",
        )],
        tests: &[&["--test=operations", "sqs_needs_the_right_before"]],
    },
    Planted {
        name: "text-that-xml-spoils",
        what: "SQS hands out attributes of other protocols whose sum does not fit their text",
        edits: &[(
            "crates/sqs/src/receive.rs",
            "let (data_type, kind) = match is_carried {",
            "let (data_type, kind) = match is_carried || !name.is_empty() {",
        )],
        tests: &[&["--lib", "a_text_that_a_reply_cannot_carry"]],
    },
    Planted {
        name: "list-of-jobs-read-whole",
        what: "all jobs of a PUSHB are in memory at once",
        edits: &[(
            "crates/wire/src/faktory/reply.rs",
            "while self.puts.len() < AT_ONCE",
            "while self.puts.len() < usize::MAX",
        )],
        tests: &[&["--test=wire", "faktory_holds_the_jobs"]],
    },
    Planted {
        name: "filter-of-jobs-uncounted",
        what: "the ids in the filter of a MUTATE are not memory of its connection",
        edits: &[(
            "crates/wire/src/faktory/mutate.rs",
            "        self.jids_bytes\n            + self.left",
            "        self.left",
        )],
        tests: &[&["--test=wire", "faktory_holds_the_jobs"]],
    },
    Planted {
        name: "reserve-copies-uncounted",
        what: "a reserve of the API copies its messages without memory for it",
        edits: &[(
            "crates/api/src/leases.rs",
            "2 * (body + message.extra_bytes())",
            "(body + message.extra_bytes()) / 8",
        )],
        tests: &[&["--test=web", "a_reserve_takes_memory"]],
    },
    Planted {
        name: "router-goes-anywhere",
        what: "rules of RQ's router send a message where its sender may not put",
        edits: &[(
            "crates/rq/src/routes/messages.rs",
            "if to.is_some_and(|to| !requester.may(Verb::Put, to)) {",
            "if to.is_some_and(str::is_empty) {",
        )],
        tests: &[&["--test=operations", "rules_of_rq_send_on"]],
    },
    Planted {
        name: "key-forgets-the-body",
        what: "another body of a record under a used Idempotency-Key is dropped as a repeat",
        edits: &[(
            "crates/api/src/records.rs",
            "(read::sum(&line) ^ u64::from_be_bytes(body)).max(1)",
            "read::sum(&line) | u64::from_be_bytes(body) >> 63 >> 1",
        )],
        tests: &[&["--test=web", "a_record_with_a_used_key"]],
    },
    Planted {
        name: "target-asked-again",
        what: "a change of one setting takes a right on targets that others have set",
        edits: &[(
            "crates/host/src/access/permit.rs",
            "!self.may_lead_to(principal, to, Some(&**from))",
            "!self.may_lead_to(principal, to, Some(&**from).and(None))",
        )],
        tests: &[&["--test=operations", "other_settings_change_beside"]],
    },
    Planted {
        name: "origin-forged-by-import",
        what: "an import says of dead letters that they came from any queue",
        edits: &[(
            "crates/api/src/imports.rs",
            "!requester.may_to(Verb::Put, &Name::new(&from.0))",
            "from.0.is_empty()",
        )],
        tests: &[&["--test=operations", "only_the_server_has_its"]],
    },
];
