//! The wakes that end the waits between the host's threads, each left out.

use super::Planted;

pub(super) const WAITS: &[Planted] = &[
    Planted {
        name: "wait-log-thread-durable",
        what: "the log thread tells nobody what it has synced",
        edits: &[(
            "crates/host/src/sync.rs",
            "            self.notify_durable();\n            // Nobody",
            "            // Nobody",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-log-thread-written",
        what: "the log thread tells nobody what it has written",
        edits: &[(
            "crates/host/src/sync.rs",
            "                Committed::Written => self.notify_written(),\n                // Somebody",
            "                Committed::Written => {}\n                // Somebody",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-sync-thread",
        what: "the sync thread tells nobody what it has synced",
        edits: &[(
            "crates/host/src/sync.rs",
            "            if behind && self.sync() {\n                self.notify_durable();",
            "            if behind && self.sync() {",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-sync-here-written",
        what: "an I/O thread that syncs tells nobody what it has written",
        edits: &[(
            "crates/host/src/sync.rs",
            "                Committed::Written => self.notify_written(),\n                Committed::Full | Committed::Failed => return false",
            "                Committed::Written => {}\n                Committed::Full | Committed::Failed => return false",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-write-now",
        what: "the maintenance thread tells nobody what it has written",
        edits: &[(
            "crates/host/src/retire.rs",
            "            Committed::Written => {\n                self.notify_written();",
            "            Committed::Written => {",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-retire-durable",
        what: "who gives up a segment tells nobody what it has synced",
        edits: &[(
            "crates/host/src/retire.rs",
            "        self.notify_durable();\n",
            "",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-chunk",
        what: "the chunk of a body that ends a segment tells nobody what was written",
        edits: &[(
            "crates/host/src/commit.rs",
            "                Committed::Written => core.notify_written(),",
            "                Committed::Written => {}",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-write-here",
        what: "who writes a batch at once tells nobody",
        edits: &[(
            "crates/host/src/commit.rs",
            "            Committed::Written => self.notify_written(),",
            "            Committed::Written => {}",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-write-raise",
        what: "the log thread is not woken for a batch",
        edits: &[(
            "crates/host/src/commit.rs",
            "        if self.waits_for_disk() {\n            self.log_work.raise();\n            return;",
            "        if self.waits_for_disk() {\n            return;",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-ask-runs",
        what: "the fetch thread is not woken for what is to be read from a run",
        edits: &[(
            "crates/host/src/keep/fetch.rs",
            "            self.runs.work.raise();",
            "",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-peek-hand",
        what: "what a peek at a run has found is not handed on",
        edits: &[(
            "crates/host/src/peeks.rs",
            "            let _delivered = sender.try_send((delivery.outcome, delivery.queue, required));",
            "            std::mem::forget((sender, delivery.outcome, delivery.queue, required));",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-end-peeks",
        what: "peeks at runs do not end with the server",
        edits: &[(
            "crates/host/src/peeks.rs",
            "        waiting.senders.clear();\n",
            "",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-later-peek",
        what: "a peek that begins when the server stops waits",
        edits: &[(
            "crates/host/src/peeks.rs",
            "        waiting.ended = true;\n",
            "",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-carry",
        what: "what is sent to another shard is not carried there",
        edits: &[(
            "crates/host/src/access/step.rs",
            "        if !senders.is_empty() {\n            self.carry_from(senders);",
            "        if senders.len() > 1000 {\n            self.carry_from(senders);",
        )],
        tests: &[&["--lib", "idle_tests"]],
    },
    Planted {
        name: "wait-acked-settle",
        what: "nobody is told what was acknowledged",
        edits: &[(
            "crates/host/src/acked.rs",
            "        self.mail.iter().for_each(|post| post.notify_durable());",
            "",
        )],
        tests: &[&["--lib", "acked_tests"]],
    },
    Planted {
        name: "wait-acked-settled",
        what: "the log thread is not told that there is room in the window",
        edits: &[(
            "crates/host/src/acked.rs",
            "        self.settled.raise();",
            "",
        )],
        tests: &[&["--lib", "acked_tests"]],
    },
    Planted {
        name: "wait-dispatcher",
        what: "a dispatcher's task is not woken for the first decision of a turn, and its reply",
        edits: &[
            (
                "crates/edge/src/dispatcher.rs",
                "        if is_first {",
                "        if is_first && self.thread == 0 {",
            ),
            (
                "crates/edge/src/dispatcher.rs",
                "        {\n            self.mailbox.wake();",
                "            && self.thread == 0\n        {\n            self.mailbox.wake();",
            ),
        ],
        tests: &[&["--bin=quintet", "the_first_dispatcher_goes_on"]],
    },
    Planted {
        name: "wait-dispatcher-task",
        what: "nobody goes on with the work of a dispatcher's task that has ended",
        edits: &[(
            "crates/edge/src/io/mail.rs",
            "            *locked(now) = None;\n            other.wake();",
            "            *locked(now) = None;\n            let _other = other;",
        )],
        tests: &[&["--bin=quintet", "the_first_dispatcher_goes_on"]],
    },
    Planted {
        name: "wait-makes-way",
        what: "silent connections over HTTP keep their places",
        edits: &[(
            "crates/http/src/serve.rs",
            "            () = connection_slot.makes_way() => {\n",
            "            () = connection_slot.makes_way(), if false => {\n",
        )],
        tests: &[&["--test=http", "silent_connections_make_way"]],
    },
    Planted {
        name: "wait-half-head",
        what: "half of a request's head over HTTP waits at a stop",
        edits: &[(
            "crates/http/src/serve.rs",
            "            () = connection_slot.ends_with(&clients) => {}",
            "            () = connection_slot.ends_with(&clients), if false => {}",
        )],
        tests: &[&["--test=http", "a_stop_answers_all_waiting"]],
    },
    Planted {
        name: "wait-poll-client",
        what: "a poll goes on without its client",
        edits: &[(
            "crates/http/src/clients.rs",
            "            () = far_end => {}\n            () = self.reads_no_more() => {}",
            "            () = far_end, if false => {}\n            () = self.is_stopped() => {}",
        )],
        tests: &[&["--test=http", "a_poll_whose_client_is_gone"]],
    },
    Planted {
        name: "wait-half-body-client",
        what: "half of a body over HTTP waits without its client",
        edits: &[(
            "crates/http/src/clients.rs",
            "            () = signalled(&self.ended) => {}\n            () = self.is_stopped() => {}",
            "            () = signalled(&self.ended), if false => {}\n            () = self.is_stopped() => {}",
        )],
        tests: &[&["--test=http", "half_a_body_of_a_client"]],
    },
    Planted {
        name: "wait-session-stream",
        what: "an event stream outlives its session of the console",
        edits: &[(
            "crates/http/src/clients.rs",
            "\"login ended\", 401, Did::default());\n                client.cut.notify_one();",
            "\"login ended\", 401, Did::default());",
        )],
        tests: &[&["--test=http", "event_streams_of_the_console"]],
    },
    Planted {
        name: "wait-receiver",
        what: "a webhook receiver that hangs has all workers",
        edits: &[(
            "crates/scripts/src/consumer.rs",
            "self.queue.running_to(&receiver) >= share.max(1) as usize)",
            "self.queue.running_to(&receiver) >= share.max(1) as usize + 1000)",
        )],
        tests: &[&["--test=http", "a_receiver_that_hangs"]],
    },
    Planted {
        name: "wait-take-at-stop",
        what: "a take in line waits at a stop",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            "                self.stop_waiting(slot);\n            } else {\n                conn.close_after_flush();",
            "                self.mark_dirty_again(slot);\n            } else {\n                conn.close_after_flush();",
        )],
        tests: &[&["--test=http", "a_stop_answers_all_waiting"]],
    },
    Planted {
        name: "wait-room-at-stop",
        what: "a put for memory waits at a stop",
        edits: &[(
            "crates/server/src/serve.rs",
            "    server.core.end_room_waits();\n}",
            "}",
        )],
        tests: &[&["--test=faults", "a_stop_answers_puts"]],
    },
    Planted {
        name: "wait-room-stays",
        what: "a stop leaves the limit of memory to the compactor",
        edits: &[(
            "crates/host/src/keep/spill.rs",
            "            at.engine.set_memory_room(0);\n            at.engine\n                .supply",
            "            at.engine\n                .supply",
        )],
        tests: &[&["--lib", "a_stop_leaves_no_put"]],
    },
    Planted {
        name: "wait-upload-more",
        what: "a large body is not read on",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            "                self.again_large.push_back(slot);\n",
            "                self.dirty.push(slot);\n",
        )],
        tests: &[&["--test=protocols", "items_of_every_size"]],
    },
    Planted {
        name: "wait-upload-client",
        what: "half a large body outlives its client",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            "        let later = conn.inbox.upload.is_some()",
            "        if closed && conn.inbox.upload.is_some() {\n            return;\n        }\n        let later = conn.inbox.upload.is_some()",
        )],
        tests: &[&["--test=protocols", "half_a_body_holds_nothing"]],
    },
    Planted {
        name: "wait-upload-idle",
        what: "half a large body is never idle",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            "        let waits = waits || conn.pause == Pause::Slowed;",
            "        let waits = waits || conn.pause == Pause::Slowed || conn.inbox.upload.is_some();",
        )],
        tests: &[&["--test=protocols", "half_a_body_holds_nothing"]],
    },
    Planted {
        name: "wait-upload-stop",
        what: "half a large body waits at a stop",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            "            } else {\n                conn.close_after_flush();\n                self.mark_dirty(slot);\n            }\n        }\n    }\n\n    fn is_stopped",
            "            } else if conn.inbox.upload.is_none() {\n                conn.close_after_flush();\n                self.mark_dirty(slot);\n            }\n        }\n    }\n\n    fn is_stopped",
        )],
        tests: &[&["--test=protocols", "half_a_body_holds_nothing"]],
    },
    Planted {
        name: "wait-unread-http",
        what: "a stop waits for a client of HTTP that reads nothing",
        edits: &[(
            "crates/http/src/paced.rs",
            "                    () = stops => {}\n",
            "                    () = stops, if false => {}\n",
        )],
        tests: &[
            &["--lib", "a_stop_waits_for_readers"],
            &["--test=http", "a_stop_gives_up_clients"],
        ],
    },
    Planted {
        name: "wait-unread",
        what: "a stop waits for a client of another protocol that reads nothing",
        edits: &[(
            "crates/edge/src/io/thread.rs",
            ">= UNREAD_AT_STOP\n",
            ">= 100 * UNREAD_AT_STOP\n",
        )],
        tests: &[&["--test=http", "a_stop_gives_up_clients"]],
    },
    Planted {
        name: "thread-http",
        what: "a second thread of HTTP begins with the first connection",
        edits: &[(
            "crates/http/src/threads.rs",
            "            && is_used(&self.first)\n",
            "",
        )],
        tests: &[&["--test=web", "a_further_thread_begins"]],
    },
    Planted {
        name: "thread-supervisor",
        what: "RQ's supervisor goes on without anything to look after",
        edits: &[(
            "crates/scripts/src/keeper.rs",
            "            if !self.needs_supervisor() {\n",
            "            if !self.needs_supervisor() && first {\n",
        )],
        tests: &[&["--test=operations", "an_idle_server_has_no_threads"]],
    },
    Planted {
        name: "thread-hooks",
        what: "a server without hooks has a thread for them",
        edits: &[(
            "crates/server/src/serve.rs",
            "    if !has_hooks || helpers.has(NAME) {\n",
            "    if has_hooks && helpers.has(NAME) {\n",
        )],
        tests: &[&["--test=operations", "an_idle_server_has_no_threads"]],
    },
    Planted {
        name: "thread-logins",
        what: "nobody ends logins",
        edits: &[(
            "crates/server/src/serve.rs",
            "            looked = Instant::now();\n            end_logins();\n",
            "            looked = Instant::now();\n",
        )],
        tests: &[&["--test=operations", "connections_of_an_expired_token_end"]],
    },
];
