//! The wakes that end the waits between the host's threads, each left out.

use super::{Planted, planted};

pub(super) const WAITS: &[Planted] = planted![
    "wait-log-thread-durable": "the log thread tells nobody what it has synced"
        "crates/host/src/sync.rs": "            self.notify_durable();\n            // Nobody"
        => "            // Nobody"; ["--lib" "waits_tests"]
    "wait-log-thread-written": "the log thread tells nobody what it has written"
        "crates/host/src/sync.rs":
        "                Committed::Written => self.notify_written(),\n                // Somebody"
        => "                Committed::Written => {}\n                // Somebody";
        ["--lib" "waits_tests"]
    "wait-sync-thread": "the sync thread tells nobody what it has synced"
        "crates/host/src/sync.rs":
        "            if behind && self.sync() {\n                self.notify_durable();"
        => "            if behind && self.sync() {"; ["--lib" "waits_tests"]
    "wait-sync-here-written": "an I/O thread that syncs tells nobody what it has written"
        "crates/host/src/sync.rs":
        "                Committed::Written => self.notify_written(),\n                Committed::Full | Committed::Failed => return false"
        => "                Committed::Written => {}\n                Committed::Full | Committed::Failed => return false";
        ["--lib" "waits_tests"]
    "wait-write-now": "the maintenance thread tells nobody what it has written"
        "crates/host/src/retire.rs":
        "            Committed::Written => {\n                self.notify_written();"
        => "            Committed::Written => {"; ["--lib" "waits_tests"]
    "wait-retire-durable": "who gives up a segment tells nobody what it has synced"
        "crates/host/src/retire.rs": "        self.notify_durable();\n" => "";
        ["--lib" "waits_tests"]
    "wait-chunk": "the chunk of a body that ends a segment tells nobody what was written"
        "crates/host/src/commit.rs": "                Committed::Written => core.notify_written(),"
        => "                Committed::Written => {}"; ["--lib" "waits_tests"]
    "wait-write-here": "who writes a batch at once tells nobody"
        "crates/host/src/commit.rs": "            Committed::Written => self.notify_written(),"
        => "            Committed::Written => {}"; ["--lib" "waits_tests"]
    "wait-write-raise": "the log thread is not woken for a batch"
        "crates/host/src/commit.rs":
        "        if self.waits_for_disk() {\n            self.log_work.raise();\n            return;"
        => "        if self.waits_for_disk() {\n            return;"; ["--lib" "waits_tests"]
    "wait-ask-runs": "the fetch thread is not woken for what is to be read from a run"
        "crates/host/src/keep/fetch.rs": "            self.runs.work.raise();" => "";
        ["--lib" "waits_tests"]
    "wait-reads": "a stop waits for blocks of runs that nobody is there for"
        "crates/host/src/keep/fetch.rs":
        "                if stop.load(Ordering::SeqCst) {\n                    return;\n"
        => "                if stop.load(Ordering::SeqCst) && false {\n                    return;\n";
        ["--lib" "a_stop_does_not_wait_for_reads_of_runs"]
    "wait-beginning": "a stop waits until a segment's beginning is written"
        "crates/host/src/retire.rs": "if stop.load(Ordering::SeqCst) || !self.write_now() {"
        => "if !self.write_now() {"; ["--lib" "a_stop_does_not_wait_for_what_a_segment"]
    "wait-run-fetch": "a node that has to stop waits until JetStream gives it a run"
        "crates/node/src/runs.rs": "                if !pause() {\n"
        => "                if !pause() && false {\n";
        ["--lib" "a_node_waits_for_runs_with_the_messages"]
    "wait-peek-hand": "what a peek at a run has found is not handed on"
        "crates/host/src/peeks.rs":
        "            let _delivered = sender.try_send((delivery.outcome, delivery.queue, required));"
        => "            std::mem::forget((sender, delivery.outcome, delivery.queue, required));";
        ["--lib" "waits_tests"]
    "wait-end-peeks": "peeks at runs do not end with the server"
        "crates/host/src/peeks.rs": "        waiting.senders.clear();\n" => "";
        ["--lib" "waits_tests"]
    "wait-later-peek": "a peek that begins when the server stops waits"
        "crates/host/src/peeks.rs": "        waiting.ended = true;\n" => ""; ["--lib" "waits_tests"]
    "wait-carry": "what is sent to another shard is not carried there"
        "crates/host/src/access/step.rs":
        "        if !senders.is_empty() {\n            self.carry_from(senders);"
        => "        if senders.len() > 1000 {\n            self.carry_from(senders);";
        ["--lib" "idle_tests"]
    "wait-acked-settle": "nobody is told what was acknowledged"
        "crates/host/src/acked.rs":
        "        self.mail.iter().for_each(|post| post.notify_durable());" => "";
        ["--lib" "acked_tests"]
    "wait-acked-settled": "the log thread is not told that there is room in the window"
        "crates/host/src/acked.rs": "        self.settled.raise();" => ""; ["--lib" "acked_tests"]
    "wait-dispatcher":
        "a dispatcher's task is not woken for the first decision of a turn, and its reply"
        "crates/edge/src/dispatcher.rs": "        if is_first {"
        => "        if is_first && self.thread == 0 {";
        "crates/edge/src/dispatcher.rs": "        {\n            self.mailbox.wake();"
        => "            && self.thread == 0\n        {\n            self.mailbox.wake();";
        ["--bin=quintet" "the_first_dispatcher_goes_on"]
    "wait-dispatcher-task": "nobody goes on with the work of a dispatcher's task that has ended"
        "crates/edge/src/io/mail.rs": "            *locked(now) = None;\n            other.wake();"
        => "            *locked(now) = None;\n            let _other = other;";
        ["--bin=quintet" "the_first_dispatcher_goes_on"]
    "wait-makes-way": "silent connections over HTTP keep their places"
        "crates/http/src/serve.rs": "            () = connection_slot.makes_way() => {\n"
        => "            () = connection_slot.makes_way(), if false => {\n";
        ["--test=http" "silent_connections_make_way"]
    "wait-half-head": "half of a request's head over HTTP waits at a stop"
        "crates/http/src/serve.rs": "            () = connection_slot.ends_with(&clients) => {}"
        => "            () = connection_slot.ends_with(&clients), if false => {}";
        ["--test=http" "a_stop_answers_all_waiting"]
    "wait-poll-client": "a poll goes on without its client"
        "crates/http/src/clients.rs":
        "            () = far_end => {}\n            () = self.reads_no_more() => {}"
        => "            () = far_end, if false => {}\n            () = self.is_stopped() => {}";
        ["--test=http" "a_poll_whose_client_is_gone"]
    "wait-half-body-client": "half of a body over HTTP waits without its client"
        "crates/http/src/clients.rs":
        "            () = signalled(&self.ended) => {}\n            () = self.is_stopped() => {}"
        => "            () = signalled(&self.ended), if false => {}\n            () = self.is_stopped() => {}";
        ["--test=http" "half_a_body_of_a_client"]
    "wait-session-stream": "an event stream outlives its session of the console"
        "crates/http/src/clients.rs":
        "act, (401, Did::default()));\n                client.cut.notify_one();"
        => "act, (401, Did::default()));"; ["--test=http" "event_streams_of_the_console"]
    "wait-receiver": "a webhook receiver that hangs has all workers"
        "crates/scripts/src/consumer.rs":
        "self.queue.running_to(&receiver) >= share.max(1) as usize)"
        => "self.queue.running_to(&receiver) >= share.max(1) as usize + 1000)";
        ["--test=http" "a_receiver_that_hangs"]
    "wait-take-at-stop": "a take in line waits at a stop"
        "crates/edge/src/io/close.rs":
        "                self.stop_waiting(slot);\n            } else {\n                conn.close_after_flush();"
        => "                self.due.mark_again(slot, conn);\n            } else {\n                conn.close_after_flush();";
        ["--test=http" "a_stop_answers_all_waiting"]
    "wait-room-at-stop": "a put for memory waits at a stop"
        "crates/server/src/serve.rs": "    server.core.end_room_waits();\n}" => "}";
        ["--test=faults" "a_stop_answers_puts"]
    "wait-room-stays": "a stop leaves the limit of memory to the compactor"
        "crates/host/src/keep/spill.rs":
        "            at.engine.set_memory_room(0);\n            at.engine\n                .supply"
        => "            at.engine\n                .supply"; ["--lib" "a_stop_leaves_no_put"]
    "wait-turn-end": "what the end of a turn leaves for others waits for an event"
        "crates/edge/src/io/decisions.rs":
        "        self.has_outcomes() || self.trail.recorded > 0 || self.gather.is_open()"
        => "        !self.local.is_empty() || self.gather.is_open()";
        ["--lib" "what_the_end_of_a_turn"] ["--test=protocols" "what_an_idle_connection_held"]
    "late-at-stop": "a stop loses a message for a subscription whose thread has ended"
        "crates/server/src/serve.rs": "        self.server.edge.give_back_late();\n" => "";
        ["--bin=quintet" "a_message_for_a_client_of_a_thread_that"]
    "wait-upload-more": "a large body is not read on"
        "crates/edge/src/io/conns.rs": "                self.again_large.push_back(slot);\n"
        => "                self.dirty.push(slot);\n"; ["--test=protocols" "items_of_every_size"]
    "wait-upload-client": "half a large body outlives its client"
        "crates/edge/src/io/thread.rs": "        let later = conn.inbox.upload.is_some()"
        => "        if closed && conn.inbox.upload.is_some() {\n            return;\n        }\n        let later = conn.inbox.upload.is_some()";
        ["--test=protocols" "half_a_body_holds_nothing"]
    "wait-upload-idle": "half a large body is never idle"
        "crates/edge/src/io/close.rs": "        let waits = waits || conn.pause == Pause::Slowed;"
        => "        let waits = waits || conn.pause == Pause::Slowed || conn.inbox.upload.is_some();";
        ["--test=protocols" "half_a_body_holds_nothing"]
    "wait-upload-stop": "half a large body waits at a stop"
        "crates/edge/src/io/close.rs":
        "            } else {\n                conn.close_after_flush();"
        => "            } else if conn.inbox.upload.is_none() {\n                conn.close_after_flush();";
        ["--test=protocols" "half_a_body_holds_nothing"]
    "wait-unread-http": "a stop waits for a client of HTTP that reads nothing"
        "crates/http/src/paced.rs": "                    () = stops => {}\n"
        => "                    () = stops, if false => {}\n"; ["--lib" "a_stop_waits_for_readers"]
        ["--test=http" "a_stop_gives_up_clients"]
    "wait-unread": "a stop waits for a client of another protocol that reads nothing"
        "crates/edge/src/io/close.rs": ">= UNREAD_AT_STOP;" => ">= 100 * UNREAD_AT_STOP;";
        ["--test=http" "a_stop_gives_up_clients"]
    "thread-http": "a second thread of HTTP begins with the first connection"
        "crates/http/src/threads.rs": "            && is_used(&self.first)\n" => "";
        ["--test=web" "a_further_thread_begins"]
    "thread-refused": "a thread that the system does not give takes the accepting one with it"
        "crates/http/src/threads.rs": "                    runtime.shutdown_background();\n"
        => "                    drop(runtime);\n";
        ["--lib" "a_thread_that_the_system_does_not_give"]
    "thread-supervisor": "RQ's supervisor goes on without anything to look after"
        "crates/scripts/src/keeper.rs": "            if !self.needs_supervisor() {\n"
        => "            if !self.needs_supervisor() && first {\n";
        ["--test=operations" "an_idle_server_has_no_threads"]
    "thread-hooks": "a server without hooks has a thread for them"
        "crates/server/src/serve.rs": "    if !has_hooks || helpers.has(NAME) {\n"
        => "    if has_hooks && helpers.has(NAME) {\n";
        ["--test=operations" "an_idle_server_has_no_threads"]
    "thread-logins": "nobody ends logins"
        "crates/server/src/serve.rs":
        "            looked = Instant::now();\n            end_logins();\n"
        => "            looked = Instant::now();\n";
        ["--test=operations" "connections_of_an_expired_token_end"]
    "wait-delay": "a stop waits until a FIFO queue's messages have its new delay"
        "crates/sqs/src/queues.rs": "                if *context.stops.borrow() {\n"
        => "                if *context.stops.borrow() && false {\n";
        ["--test=sqs" "a_stop_ends_a_change_of_delay"]
    "wait-spill": "a stop waits until all of a run is written"
        "crates/host/src/keep/spill.rs":
        "            if self.runs.stops.load(Ordering::SeqCst) {\n                stay.push(at);\n"
        => "            if self.runs.stops.load(Ordering::SeqCst) && false {\n                stay.push(at);\n";
        ["--lib" "a_stop_does_not_wait_for_a_run_to_be_written"]
];
