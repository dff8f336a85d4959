//! What other people's suites and clients found, and an attack: for each the defect as it was, or
//! one of its kind.

use super::{Planted, planted};

pub(super) const FOUND: &[Planted] = planted![
    "wait-counts-as-idle": "a connection is idle while it waits"
        "crates/edge/src/io/replies.rs": "        conn.active = self.turn.instant;\n" => "";
        ["--test=protocols" "what_an_idle_connection_held"]
    "room-without-a-step": "a put that waits for memory gets no step when memory frees itself"
        "crates/engine/src/decide/cold.rs":
        "reading.again || (reading.room_waits && self.has_room())"
        => "reading.again || (reading.room_waits && reading.memory_room == 0 && self.has_room())";
        ["--test=life" "a_put_that_waits_for_memory_goes_on"]
    "batches-listed-whole": "a page of batches does not end by its bytes"
        "crates/engine/src/decide/batch.rs": "bytes >= LIST_BYTES {"
        => "bytes >= 100 * LIST_BYTES {"; ["--test=life" "a_page_of_batches_ends"]
    "reason-not-cut": "the reason of a buried message has any length"
        "crates/engine/src/decide/settle.rs": "let reason = cut(reason, ERROR_BYTES_MAX).into();"
        => "let reason = cut(reason, 1000 * ERROR_BYTES_MAX).into();";
        ["--test=life" "a_reason_is_cut"]
    "attributes-not-counted": "half of what a message has beside its body is not counted as memory"
        "crates/engine/src/store/index.rs": "body + message.extra_bytes()"
        => "body + message.extra_bytes() / 2"; ["--test=memory" "memory_of_messages_is_counted"]
    "dedupe-without-bound": "deduplication records may be twice as many as `dedupe_max`"
        "crates/engine/src/decide/put.rs": "(known + more) as u64 <= max;"
        => "(known + more) as u64 <= 2 * max;"; ["--test=life" "records_have_a_bound_of_their_own"]
    "address-takes-all": "one address gets all connections of an HTTP listener"
        "crates/http/src/slots.rs": "(self.most / 4 * 3).max(1)" => "self.most.max(1)";
        ["--lib" "an_address_gets_three_quarters"]
    "star-reaches-across": "a `*` at the start of a grant matches across `+`"
        "crates/auth/src/table.rs": "(0..=plus).any(" => "(0..name.len().max(plus)).any(";
        ["--lib" "the_table_has_the_rights_of_the_grants"]
    "batch-joined-unseen": "with one shard anybody puts members into any batch"
        "crates/engine/src/decide/batch.rs": "if self.permits.is_none() || call.vouched {"
        => "if self.permits.is_none() || call.vouched || self.shards == 1 {";
        ["--test=operations" "a_batch_needs_the_right_to_join"]
    "purge-keeps-ids": "an emptied queue still knows the deduplication ids of what it had"
        "crates/engine/src/store/apply.rs":
        "queue.dedupe_generation = queue.dedupe_generation.wrapping_add(1);"
        => "queue.dedupe_generation = queue.dedupe_generation.wrapping_add(0);";
        ["--test=life" "an_emptied_queue_knows_no_repeats"]
    "cancelled-move-goes-on": "a cancelled message move task moves the messages of another step"
        "crates/sqs/src/moves.rs": "known.id == task.id && known.status == Status::Running;"
        => "known.id == task.id;"; ["--test=sqs" "a_cancelled_move_moves_nothing_more"]
    "no-visibility-hides":
        "a queue whose visibility timeout is 0 hides what was received for a moment"
        "crates/engine/src/decide/lease.rs":
        "LeaseTime::TtrOrOver => matches!(ttr_ms, Some(0 | AT_ONCE_MS)),"
        => "LeaseTime::TtrOrOver => ttr_ms == Some(0),";
        ["--test=sqs" "a_queue_whose_visibility_is_none"]
    "fifo-delay-stays": "a shorter delay of a FIFO queue is only that of later messages"
        "crates/sqs/src/queues.rs": "fifo && ms != before_ms)" => "fifo && ms > before_ms)";
        ["--test=sqs" "a_delay_of_a_fifo_queue"]
    "control-characters-taken": "SQS takes a text with a vertical tab"
        "crates/sqs/src/message.rs": "matches!(c, '\\t' | '\\n' | '\\r' | ' '..="
        => "matches!(c, '\\t'..='\\r' | ' '..="; ["--lib" "bodies_have_the_characters_of_xml"]
    "import-believes-bodies": "an import from SQS does not compare bodies with their sums"
        "crates/cli/src/import/from/sqs.rs": "is_some_and(|md5| *md5 != sum)"
        => "is_some_and(|md5| md5.len() != sum.len())";
        ["--test=operations" "a_body_that_came_as_another"]
    "track-only-while-held": "`TRACK SET` needs a worker that holds the job"
        "crates/engine/src/decide/track.rs":
        "if self.store.messages.at(slot).state == State::Reserved {"
        => "if self.store.messages.at(slot).state != State::Done {";
        ["--test=wire" "every_transcript_is_answered"]
    "success-beside-complete": "the callback `success` does not wait for the end of `complete`"
        "crates/types/src/batch.rs":
        "let is_next = self.complete == CallbackState::Done && self.success"
        => "let is_next = self.complete != CallbackState::No && self.success";
        ["--test=life" "batches::"]
    "batch-closed-for-good": "a batch takes no members once its callbacks were put"
        "crates/types/src/batch.rs": "self.open || self.complete != CallbackState::No"
        => "self.open && self.complete != CallbackState::Done";
        ["--test=wire" "every_transcript_is_answered"]
    "set-up-word-missing": "RQ's set-up does not find its word on the first page"
        "crates/console/templates/frame.html": "<span>QUEUEMGR: OPERATIONAL</span>"
        => "<span>QUEUEMGR</span>"; ["--test=web" "says_that_it_is_operational"]
    "force-remote-travels": "a relayed message has the `force_remote` of the first one"
        "crates/rq/src/builtin/relay.rs": "const FIELDS: [&str; 9] = [\n"
        => "const FIELDS: [&str; 10] = [\n    \"force_remote\",\n";
        ["--test=web" "its_log_has_the_lines_of_rq"]
    "script-where-started": "a relative script is not looked for in `script_root`"
        "crates/scripts/src/config.rs": ".then(|| root.join(&self.script))"
        => ".then(|| root.with_file_name(&self.script))"; ["--test=rq" "a_relative_script_is_in"]
    "used-key-accepted": "a used `Idempotency-Key` with another request is answered as its repeat"
        "crates/engine/src/decide/put.rs": "known.sum > 0 && left.sum != known.sum {"
        => "known.sum > 0 && left.sum < known.sum && left.sum > known.sum {";
        ["--test=web" "a_used_key_with_another_request"]
    "bytes-only-as-text": "JSON has bytes that are no text without their base64"
        "crates/client/src/shown.rs": "text.is_err().then("
        => "text.is_ok_and(str::is_empty).then("; ["--test=web" "bytes_that_are_no_text_are_sent"]
    "mark-not-passed-over": "a byte order mark before a hook keeps the server from starting"
        "crates/hooks/src/load.rs": "text.starts_with(b\"\\xef\\xbb\\xbf\")"
        => "text.starts_with(b\"\\xef\\xbb\\xbe\")"; ["--test=hooks" "a_byte_order_mark_and"]
    "blank-binlog-skipped": "an import passes over a binlog file that begins with zeros"
        "crates/cli/src/import/from/binlog.rs":
        "all.damaged(format!(\"{}: {what}\", path.display()));"
        => "drop(format!(\"{}: {what}\", path.display()));";
        ["--test=operations" "a_binlog_of_the_real_beanstalkd"]
    "family-twice": "OpenMetrics has one family twice"
        "crates/ops/src/metrics.rs": "Counter \"connections_accepted_total\""
        => "Counter \"connections_total\""; ["--lib" "no_two_families_have_one_name"]
    "range-not-said": "the OpenAPI document does not tell the ranges of fields"
        "crates/api/src/openapi.rs": "schema[\"properties\"].get_mut(field) {"
        => "schema[\"properties\"].get_mut(field.trim_start_matches('p')) {";
        ["--lib" "fields_have_their_allowed_values"]
    "second-host-taken": "a request with two Host lines is served"
        "crates/http/src/head.rs": "headers.get_all(HOST).iter().nth(1)"
        => "headers.get_all(HOST).iter().nth(2)"; ["--test=web" "a_second_host_is_refused"]
    "head-one-byte-longer": "a request's head may be a byte longer than `max_header`"
        "crates/http/src/head.rs": "(bytes > max).then(" => "(bytes > max + 1).then(";
        ["--test=web" "heads_have_a_limit"]
    "gat-unknown": "`gat` is an unknown command and not a cache's"
        "crates/wire/src/memcache/request.rs": " | b\"gat\" | b\"gats\"" => " | b\"gats\"";
        ["--test=wire" "every_transcript_is_answered"]
    "expires-to-itself": "a queue may expire to itself"
        "crates/config/src/load.rs": "if overrides.expire_to.as_ref() == Some(&own) {"
        => "if overrides.expire_to.as_ref() == Some(&own) && name.len() > 999 {";
        ["--lib" "a_queue_does_not_expire_to_itself"]
    "odd-address-unknown": "an address with bytes that are no text is an unknown page"
        "crates/api/src/path.rs": "= failed.kind()\n"
        => "= failed.kind()\n        && key.len() > 999\n";
        ["--test=http" "bytes_in_an_address_that_are_no_text"]
    "start-ignores-stop": "a start that waits for disk space goes on after a stop"
        "crates/ops/src/stuck.rs": "watch(core, started, move || stops.load(Ordering::Relaxed))?;"
        => "watch(core, started, move || Arc::strong_count(&stops) > 999 && stops.load(Ordering::Relaxed))?;";
        ["--test=faults" "a_start_that_waits_for_space"]
    "result-by-name-lost": "the end of a message by its name forgets the result"
        "crates/api/src/types.rs": "status: result.into_bytes().into(),"
        => "status: result.get(..0).unwrap_or_default().as_bytes().into(),";
        ["--test=http" "a_reserved_message_is_settled_by_its_name"]
    "audit-line-lost": "the audit loses a line where its file cannot be renamed"
        "crates/ops/src/audit.rs": "                Err(error) => rotated = Err(error),\n"
        => "                Err(error) => {\n                    rotated = Err(error);\n                    return rotated;\n                }\n";
        ["--lib" "a_rotation_that_fails_loses_no_line"]
    "lock-holders-not-known": "`quintet stats --locks` leaves out work that held a shard for long"
        "crates/host/src/holders.rs": "since != 0 && held >= LONG" => "since != 0 && held < LONG";
        ["--lib" "work_that_kept_others_waiting_is_reported"]
    "dependents-listed-whole":
        "a page of messages that wait for another one does not end by its bytes"
        "crates/engine/src/decide/after.rs": "const NAMES: usize = 128 << 10;"
        => "const NAMES: usize = 128 << 20;";
        ["--test=http" "dependencies_in_a_queue_with_a_long_name"]
    "errors-listed-whole": "a page of errors does not end by the names in it"
        "crates/api/src/bulk.rs": "sum::<u64>() >= super::PAGE_BYTES {"
        => "sum::<u64>() >= 99 * super::PAGE_BYTES {"; ["--test=web" "a_page_of_errors_ends"]
    "first-shard-is-best": "a take over several shards takes what the first one has"
        "crates/engine/src/across.rs":
        "if before.is_none_or(|before| before.is_worse_than(found, self.take.end)) {"
        => "if before.is_none() {"; ["--test=protocols" "a_subscription_over_shards"]
    "hash-key-forgotten": "a snapshot has another key for the hashes of deduplication ids"
        "crates/engine/src/store/image.rs": "record(&Fact::HashKey(key));"
        => "record(&Fact::HashKey(key.map(|byte| byte ^ 1)));";
        ["--test=life" "an_id_is_kept_as_its_hash"]
    "note-cut-in-a-character": "the note of a tracked message ends within a character"
        "crates/engine/src/decide/track.rs": "let note = cut(note, TRACK_NOTE_BYTES_MAX);"
        => "let note = &note[..note.len().min(TRACK_NOTE_BYTES_MAX)];";
        ["--test=life" "a_long_note_of_a_tracked_message"]
    "connections-listed-whole": "a page of connections does not end by its bytes"
        "crates/edge/src/io/census.rs": "self.more = self.list.len() >= PAGE_BYTES;"
        => "self.more = self.list.len() >= 99 * PAGE_BYTES;";
        ["--test=http" "connections_come_in_pages"]
    "decision-not-asked-again":
        "a hook's decision that is refused for want of a quorum is forgotten"
        "crates/edge/src/hooks/thread.rs":
        "core.give_back_pending_decisions(std::iter::once(pending_decision).chain(pending));"
        => "drop(pending);"; ["--lib" "a_decision_refused"]
    "doomed-goes-to-the-tail":
        "a restart uses up an id for the place of a message of a dropped queue"
        "crates/engine/src/engine.rs": "tails |= lease.back_to == BackTo::Tail && !message.doomed;"
        => "tails |= lease.back_to == BackTo::Tail;"; ["--test=sim" "vanishes_at_a_restart"]
    "full-before-repeats":
        "of several puts one finds its queue full before an expired repeat is known"
        "crates/engine/src/decide/put.rs":
        "is known before what is full.\n            self.replaced_are_here(&*puts)?;"
        => "is known before what is full.\n            self.replaced_are_here(&[])?;";
        ["--test=sim" "whether_a_put_repeats_is_known"]
    "line-of-a-secret-repeated": "an error in the syntax of the configuration repeats the line"
        "crates/config/src/load.rs": "\"TOML parse error at {}\", toml_error(text, &error)"
        => "\"TOML parse error at {}: {error}\", toml_error(text, &error)";
        ["--lib" "an_error_of_toml_has_its_place"]
    "puts-over-the-limit": "a queue that is over its limit after an upgrade takes puts"
        "crates/engine/src/decide/room.rs":
        "        (settings.messages_max == 0 || queue.waiting() + count <= settings.messages_max)\n"
        => "        let over = settings.messages_max > 0 && queue.waiting() > settings.messages_max;\n        over || (settings.messages_max == 0 || queue.waiting() + count <= settings.messages_max)\n";
        ["--test=life" "a_queue_that_is_over_its_limit_at_a_start"]
    "reserve-for-who-is-gone": "a `RESERVE` (jobqueue) waits on when its client has closed its side"
        "crates/wire/src/jobqueue/session.rs": "Some(_) => HalfClose::StopWaiting,"
        => "Some(_) => HalfClose::LastWord,"; ["--test=wire" "every_transcript_is_answered"]
    "repair-forgets-losses": "a repair notes its losses nowhere before it replaces a segment"
        "crates/cli/src/check.rs": "            note(&unfinished, &lost)\n"
        => "            note(&unfinished, &[])\n";
        ["--test=faults" "a_repair_that_fails_is_run_again"]
    "repair-begins-unsaid": "a repair tells its losses when it has replaced them"
        "crates/log/src/repair.rs":
        "    if !survey.damage.is_empty() {\n        begin(&survey.damage)?;\n    }\n"
        => "    begin(&[])?;\n"; ["--test=log" "a_repair_cut_short_can_be_run_again"]
    "error-repeats-all": "an error of SQS repeats what a client sent, however long"
        "crates/sqs/src/fault.rs": "const TEXT_MAX: usize = 4 << 10;"
        => "const TEXT_MAX: usize = 4 << 20;"; ["--lib" "an_error_does_not_repeat"]
    "host-of-any-length": "a request names a host as long as its head may be"
        "crates/http/src/guard.rs": "host.len() > HOST_BYTES_MAX"
        => "host.len() > 100 * HOST_BYTES_MAX"; ["--lib" "hosts_that_are_not_ours"]
    "half-read-body-cut": "the connection of a body that is refused in its middle is reset"
        "crates/http/src/interruptible.rs":
        "this.goes_on = matches!(&frame, Some(Ok(_))) && !body.is_end_stream();"
        => "this.goes_on = false;"; ["--lib" "an_unread_body_is_waited_for"]
    "turned-away-body-cut":
        "the connection of a request with a wrong head is reset while its body comes"
        "crates/http/src/serve.rs": "    drop(interruptible(request));\n    response\n"
        => "    drop((interruptible, request));\n    response\n";
        ["--test=web" "a_second_host_is_refused"]
    "hooks-error-each-time":
        "hooks that a thread cannot load are an error in the log each time it tries"
        "crates/edge/src/hooks/mod.rs": "self.failed.swap(version, Ordering::Relaxed) != version"
        => "self.failed.swap(version, Ordering::Relaxed) <= version";
        ["--test=hooks" "hooks_that_a_thread_cannot_load"]
    "login-past-hooks": "hooks that could not be loaded let everybody in"
        "crates/edge/src/hooks/mod.rs": "            return Some(false);\n"
        => "            return None;\n"; ["--lib" "nothing_goes_past_hooks"]
    "thread-not-given": "a thread that the system does not give ends the one that accepts"
        "crates/http/src/threads.rs": "                    runtime.shutdown_background();\n"
        => "                    drop(runtime);\n";
        ["--lib" "a_thread_that_the_system_does_not_give"]
    "work-without-a-thread": "work for which the system gives no thread is taken and never done"
        "crates/http/src/workers.rs": "                Err(error) if state.threads == 0 => {\n"
        => "                Err(error) if state.threads > state.queue.len() => {\n";
        ["--lib" "without_a_thread_work_is_an_error"]
    "work-begun-late": "work that no thread has begun is still done when its connections are gone"
        "crates/http/src/workers.rs": "        state.queue.clear();\n        let busy"
        => "        let busy"; ["--lib" "the_end_waits_for_what_a_thread_does"]
    "unreadable-block-stays": "a flush leaves blocks that cannot be read, and a start brings them back"
        "crates/engine/src/store/cold/mod.rs": "if self.cold.damaged > 0 {"
        => "if self.cold.damaged == u64::MAX {";
        ["--test=life" "a_flush_and_a_drop_take_blocks"]
    "stays-in-line-without-hooks": "who waits cannot leave where hooks could not be loaded"
        "crates/edge/src/dispatcher.rs":
        "Err(NotLoaded) if command == Some(Command::StopWaiting) => None,"
        => "Err(NotLoaded) if command.is_none() => None,"; ["--lib" "nothing_goes_past_hooks"]
    "connects-without-hooks": "clients come in where hooks that may refuse them could not be loaded"
        "crates/edge/src/io/hooked.rs":
        "if self.hooks.are_lacking() && !self.shared.edge.is_operator(conn.listener) {"
        => "if self.hooks.are_lacking() && self.shared.edge.is_operator(conn.listener) {";
        ["--test=hooks" "hooks_that_a_thread_cannot_load"]
    "pending-not-counted": "requests behind one that waits take memory that nobody counts"
        "crates/edge/src/io/inbox.rs": "            false => self.pending_bytes,"
        => "            false => self.pending_bytes.min(1),";
        ["--test=protocols" "requests_behind_one_that_waits"]
    "subscriptions-not-counted":
        "what a client of pinpriq subscribes to takes memory that nobody counts"
        "crates/wire/src/pinpriq/session.rs":
        "self.subscribed_bytes + self.subscribed.len() * size_of::<Name>()" => "0";
        ["--test=protocols" "subscriptions_are_memory"]
    "unknown-batch-sent-again":
        "messages of a batch of SQS whose outcome is not known are put once more, one by one"
        "crates/sqs/src/send.rs": "if let Outcome::Refused(CommandError::Unknown) = all {"
        => "if let Outcome::Refused(CommandError::Draining) = all {";
        ["--test=sqs" "a_send_without_acknowledgement"]
    "unknown-jobs-put-again":
        "jobs of a PUSHB whose outcome is not known are put once more, one by one"
        "crates/wire/src/faktory/reply.rs": "Some(_) if self.requested > 1 && !unknown =>"
        => "Some(_) if self.requested > 1 && (!unknown || self.singly == 0) =>";
        ["--lib" "jobs_that_may_have_been_put"]
    "forbidden-queue-told": "SQS tells clients without rights whether there is a queue to delete"
        "crates/sqs/src/queues.rs": "        self.must_have(context, Verb::Drop, &queue)?;\n" => "";
        ["--test=operations" "sqs_needs_the_right_before"]
    "other-host-asked": "a webhook goes to a host behind a `#`, which no setting allows"
        "crates/rq/src/builtin/client.rs": "rest.find(['/', '?', '#'])" => "rest.find(['/', '?'])";
        ["--lib" "the_host_stays_the_same"]
    "webhook-of-long-message": "a message with two long parameters calls no webhook"
        "crates/scripts/src/run.rs": "            if payload.len() > bytes_max\n"
        => "            if payload.len() > bytes_max && long == \"param1\"\n";
        ["--test=rq" "webhooks_hear_of_long_messages"]
    "reserves-not-counted": "the watched tubes of reserves that wait behind another are not counted"
        "crates/wire/src/beanstalk/session.rs": "self.tubes.bytes() * (1 + behind.count())"
        => "self.tubes.bytes() * (1 + behind.take(0).count())";
        ["--test=protocols" "reserves_behind_one_that_waits"]
    "accept-failure-each-time": "an HTTP listener without files says so ten times a second"
        "crates/http/src/serve.rs": "if failed.is_power_of_two() {" => "if failed > 0 {";
        ["--test=protocols" "http_without_a_file_to_be_had"]
    "head-refused-in-plain-text": "a client of SQS gets plain text for a head that is too long"
        "crates/sqs/src/listener.rs": "        with_id(Answered::of(written).response, &id)\n"
        => "        let _json = with_id(Answered::of(written).response, &id);\n        axum::response::IntoResponse::into_response(problem)\n";
        ["--test=sqs" "requests_that_are_too_long"]
    "move-without-rest": "a move of dead letters is tried 250 times a second while the disk is full"
        "crates/sqs/src/moves.rs": "const LONG_REST: Duration = Duration::from_secs(1);"
        => "const LONG_REST: Duration = REST;"; ["--test=sqs" "a_move_rests_while_nothing"]
    "rq-socket-not-audited":
        "a message that is deleted over a socket of RQ leaves no line in the audit"
        "crates/scripts/src/socket/answer.rs": "\"delete_message\" => Operation::Delete,"
        => "\"delete_message\" => Operation::Work,";
        ["--test=rq" "administrative_requests_are_in_the_audit"]
    "operation-without-line": "a pause leaves no line in the audit, in any protocol"
        "crates/types/src/command/operation.rs": "Pause = \"pause\", Queue(&[Verb::Pause]), true;"
        => "Pause = \"pause\", Queue(&[Verb::Pause]), false;";
        ["--test=operations" "an_operation_needs_its_right"]
    "operation-without-right": "any user may ask workers to end"
        "crates/types/src/command/operation.rs": "SteerWorker = \"steer_worker\", Server, true;"
        => "SteerWorker = \"steer_worker\", Queue(&[]), true;";
        ["--test=operations" "an_operation_needs_its_right"]
    "reload-refused-twice": "a reload that is not permitted counts twice"
        "crates/edge/src/io/operations.rs": "*ask == HostRequest::Reload || !self" => "!self";
        ["--test=operations" "memcache_logs_in_with_a_password"]
    "operator-not-checked": "any user may see connections, and reload the configuration, by the API"
        "crates/api/src/operations.rs":
        "requester.is_some_and(|one| one.may_ask(operation, &Name::default()))"
        => "requester.is_some()"; ["--test=http" "operations_on_the_server_need"]
    "run-lost-in-silence": "only one of the runs without a log is told of as lost"
        "crates/log/src/survey.rs": "            if !self.damage.contains(&range) {\n"
        => "            if self.damage.is_empty() {\n";
        ["--test=log" "runs_without_a_log_are_damage"]
    "unnamed-run-left":
        "a repair leaves a run that the next start deletes, though lost records may have named it"
        "crates/cli/src/check.rs": "let unnamed = runs.take_unnamed(&mut lost);"
        => "let unnamed = Vec::<String>::new();"; ["--test=storage" "a_run_that_only_a_lost_part"]
    "bulk-count-lost": "an operation that fails after some messages does not tell how many"
        "crates/api/src/bulk.rs": "Err(_) if slices.messages > 0 => break,"
        => "Err(_) if slices.messages > u64::MAX - 1 => break,";
        ["--lib" "an_operation_that_fails_after_some"]
    "bulk-over-most": "the last slice of an operation is of more messages than were asked for"
        "crates/client/src/slices.rs": "room.min(self.step)" => "room.max(self.step)";
        ["--lib" "no_more_messages_nor_slices"]
    "batch-of-one-refused-whole": "SQS refuses a batch of one as a request"
        "crates/sqs/src/send.rs": "puts, true).await?;" => "puts, false).await?;";
        ["--test=sqs" "case_26_27_29_batches"]
    "forbidden-batch-succeeds": "SQS answers 200 to a batch for a queue that is forbidden"
        "crates/sqs/src/send.rs": "fault.text == CommandError::NotPermitted.text()"
        => "fault.text == CommandError::QueueNotFound.text()";
        ["--test=operations" "sqs_needs_the_right_before"]
    "text-that-xml-spoils":
        "SQS hands out attributes of other protocols whose sum does not fit their text"
        "crates/sqs/src/receive.rs": "let (data_type, kind) = match is_carried {"
        => "let (data_type, kind) = match is_carried || !name.is_empty() {";
        ["--lib" "a_text_that_a_reply_cannot_carry"]
    "list-of-jobs-read-whole": "all jobs of a PUSHB are in memory at once"
        "crates/wire/src/faktory/reply.rs": "while self.puts.len() < AT_ONCE"
        => "while self.puts.len() < usize::MAX"; ["--test=wire" "faktory_holds_the_jobs"]
    "filter-of-jobs-uncounted": "the ids in the filter of a MUTATE are not memory of its connection"
        "crates/wire/src/faktory/mutate.rs": "        self.jids_bytes\n            + self.left"
        => "        self.left"; ["--test=wire" "faktory_holds_the_jobs"]
    "reserve-copies-uncounted": "a reserve of the API copies its messages without memory for it"
        "crates/api/src/leases.rs": "2 * (body + message.extra_bytes())"
        => "(body + message.extra_bytes()) / 8"; ["--test=web" "a_reserve_takes_memory"]
    "login-without-hooks":
        "HTTP lets everybody in while the hooks, which decide it, cannot be loaded"
        "crates/edge/src/hooks/mod.rs": "            return Some(false);\n"
        => "            return None;\n"; ["--lib" "nothing_goes_past_hooks_that_could_not"]
    "router-goes-anywhere": "rules of RQ's router send a message where its sender may not put"
        "crates/rq/src/routes/messages.rs":
        "if to.is_some_and(|to| !requester.may(Verb::Put, to)) {"
        => "if to.is_some_and(str::is_empty) {"; ["--test=operations" "rules_of_rq_send_on"]
    "key-forgets-the-body":
        "another body of a record under a used Idempotency-Key is dropped as a repeat"
        "crates/api/src/records.rs": "(read::sum(&line) ^ u64::from_be_bytes(body)).max(1)"
        => "read::sum(&line) | u64::from_be_bytes(body) >> 63 >> 1";
        ["--test=web" "a_record_with_a_used_key"]
    "target-asked-again": "a change of one setting takes a right on targets that others have set"
        "crates/host/src/access/permit.rs": "!self.may_lead_to(principal, to, Some(&**from))"
        => "!self.may_lead_to(principal, to, Some(&**from).and(None))";
        ["--test=operations" "other_settings_change_beside"]
    "origin-forged-by-import": "an import says of dead letters that they came from any queue"
        "crates/api/src/imports.rs": "!requester.may_to(Verb::Put, &Name::new(&from.0))"
        => "from.0.is_empty()"; ["--test=operations" "only_the_server_has_its"]
    "report-to-the-first-shard": "a report by a job's name goes to the first shard that knows the name"
        "crates/host/src/access.rs": "if by_name.action.is_of_tracks() {"
        => "if by_name.action.is_of_tracks() && first > 99 {";
        ["--lib" "a_report_by_name_is_of_the_reserved"]
    "cancelled-hides-a-namesake":
        "a cancel by name finds the message that is cancelled, and not another shard's"
        "crates/engine/src/decide/named.rs": "return Some((Ms::NEVER, !again));"
        => "return Some((Ms::NEVER, again || !again));";
        ["--lib" "a_message_that_is_cancelled_already_hides"]
    "entries-of-a-block-unbounded": "a damaged block has more messages than its bytes can hold"
        "crates/engine/src/codec/run.rs": "|| count > 1 << 20 ||"
        => "|| count > 1 << 24 ||"; ["--test=sim" "the_kept_corpus_is_read"]
    "pages-of-dropped-queues": "queues that were made and dropped take memory for good"
        "crates/engine/src/store/queue_table.rs": "if page.count == 0 {"
        => "if page.count == PAGE {"; ["--lib" "a_great_number_and_numbers_of_the_past"]
    "number-that-no-log-has": "a server makes a queue of a number that it cannot read again"
        "crates/engine/src/decide/make.rs": "|| self.store.queues.len() >= NUMBERS"
        => "|| self.store.queues.len() > NUMBERS";
        ["--test=life" "a_queue_is_refused_whose_number"]
    "queue-number-of-a-block-unbounded": "a damaged block says which queue it is of by any number"
        "crates/engine/src/codec/run.rs": "let queue = r.queue()?;"
        => "let queue = quintet_types::QueueId(r.small(\"queue\")?);";
        ["--test=sim" "the_kept_corpus_is_read"]
    "in-force-twice": "a block that a log puts in force twice is among the loaded ones for good"
        "crates/engine/src/store/cold/mod.rs": "        self.unload(block);\n        self.forget_block(block);\n"
        => "        let _ = block;\n"; ["--lib" "a_loaded_block_that_a_log_puts"]
    "reload-lost-while-joining": "a reload that comes while a node waits for its servers is lost"
        "crates/node/src/lib.rs": "            reload();\n            true\n"
        => "            true\n"; ["--lib" "a_node_that_waits_for_the_servers"]
    "run-of-a-lost-run": "a repair takes a run that was given up for a lost part of the log"
        "crates/cli/src/runs.rs": "if lost.iter().all(|known| is_of_run(&known.file)) {"
        => "if lost.iter().all(|known| is_of_run(&known.file) && known.bytes > 0) {";
        ["--lib" "the_loss_of_a_run_is_noted"]
    "mark-of-systemd-lost": "a node that has owned removes the socket file that systemd has made"
        "crates/process/src/again.rs": "Handed::Unix(socket.into(), of_systemd.contains(&address))"
        => "Handed::Unix(socket.into(), of_systemd.is_empty())";
        ["--lib" "a_process_that_stays_claims"]
    "unsaid-handoff-awaits": "an owner whose handoff is not written lets its clients wait for replies"
        "crates/node/src/leave.rs": "Handoff::Unsaid if end != End::Stop => Duration::ZERO,"
        => "Handoff::Unsaid if end == End::Stop => Duration::ZERO,";
        ["--lib" "clients_of_an_owner_that_cannot_say"]
    "deposed-waits-for-orders": "a deposed node waits for orders, and its process is replaced"
        "crates/node/src/leave.rs": "End::Deposed => Duration::ZERO,"
        => "End::Deposed => ENDS,"; ["--lib" "a_deposed_node_waits_for_no_order"]
    "own-browse-keeps-the-thread":
        "where there are hooks and no users, a client's browse holds up all others"
        "crates/hooks/src/submit.rs": "match work.host.ask(caller, command) {"
        => "match work.host.ask_at_once(caller, command) {";
        ["--lib" "a_clients_own_peek_does_not_keep"]
    "chunk-table-huge": "a damaged number of a chunk makes a table of as many"
        "crates/host/src/recover.rs": "places.insert(index, position);"
        => "for at in 0..=index { places.insert(at, position); }";
        ["--lib" "a_chunk_of_any_number_is_one"]
    "run-of-any-number": "a fact about a run of a great number is about another run"
        "crates/engine/src/codec/read.rs": "SegmentRef::of_run(run).run() == Some(run);"
        => "SegmentRef::of_run(run).is_run();"; ["--test=sim" "the_kept_corpus_is_read"]
    "lookups-without-a-thread": "a node that gets no thread for its first name ends"
        "crates/jetstream/src/client.rs": "    runtime.block_on(runtime.spawn_blocking(|| {})).ok();\n"
        => ""; ["--lib" "the_thread_that_looks_names_up"]
    "length-believed": "a body of any length that a damaged log says takes memory where SQS sends it"
        "crates/sqs/src/ask.rs": "if stored.sum::<u64>() != large.len() {"
        => "if stored.sum::<u64>() > large.len() {"; ["--lib" "a_body_that_is_not_stored"]
    "retention-of-a-dropped-queue":
        "a log that archives a message of a dropped queue stops the server later"
        "crates/engine/src/decide/timers.rs": "queue.filter(|queue| !queue.live.dropped) else"
        => "queue.filter(|queue| queue.id == id) else";
        ["--test=life" "a_message_that_is_archived_in_a_dropped"]
    "number-of-a-stray-file": "a stray file decides about the numbers of new runs"
        "crates/host/src/recover.rs": "numbers.filter(|&number| number < 1 << 30).max();"
        => "numbers.filter(|&number| number > 0).max();"; ["--lib" "a_file_whose_name_has_a_number"]
];
