//! The wakes that end the waits between the host's threads, each left out.

use super::Planted;

pub(super) const WAITS: &[Planted] = &[
    Planted {
        name: "wait-log-thread-durable",
        what: "the log thread tells nobody what it has synced",
        edits: &[(
            "crates/host/src/sync.rs",
            "            self.tell_durable();\n            // Nobody",
            "            // Nobody",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-log-thread-written",
        what: "the log thread tells nobody what it has written",
        edits: &[(
            "crates/host/src/sync.rs",
            "                Committed::Written => self.tell_written(),\n                // Somebody",
            "                Committed::Written => {}\n                // Somebody",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-sync-thread",
        what: "the sync thread tells nobody what it has synced",
        edits: &[(
            "crates/host/src/sync.rs",
            "            if behind && self.sync() {\n                self.tell_durable();",
            "            if behind && self.sync() {",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-sync-here-written",
        what: "an I/O thread that syncs tells nobody what it has written",
        edits: &[(
            "crates/host/src/sync.rs",
            "                Committed::Written => self.tell_written(),\n                Committed::Full | Committed::Failed => return false",
            "                Committed::Written => {}\n                Committed::Full | Committed::Failed => return false",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-write-now",
        what: "the maintenance thread tells nobody what it has written",
        edits: &[(
            "crates/host/src/retire.rs",
            "            Committed::Written => {\n                self.tell_written();",
            "            Committed::Written => {",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-retire-durable",
        what: "who gives up a segment tells nobody what it has synced",
        edits: &[(
            "crates/host/src/retire.rs",
            "        self.tell_durable();\n",
            "",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-chunk",
        what: "the chunk of a body that ends a segment tells nobody what was written",
        edits: &[(
            "crates/host/src/commit.rs",
            "                Committed::Written => core.tell_written(),",
            "                Committed::Written => {}",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-write-here",
        what: "who writes a batch at once tells nobody",
        edits: &[(
            "crates/host/src/commit.rs",
            "            Committed::Written => self.tell_written(),",
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
        name: "wait-look-hand",
        what: "what a look at a run has found is not handed on",
        edits: &[(
            "crates/host/src/looks.rs",
            "            let _heard = told.try_send((delivery.outcome, delivery.queue, need));",
            "            std::mem::forget((told, delivery.outcome, delivery.queue, need));",
        )],
        tests: &[&["--lib", "waits_tests"]],
    },
    Planted {
        name: "wait-end-looks",
        what: "looks at runs do not end with the server",
        edits: &[(
            "crates/host/src/looks.rs",
            "locked(&self.looks.waiting).clear();",
            "drop(locked(&self.looks.waiting));",
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
            "        self.mail.iter().for_each(|post| post.tell_durable());",
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
];
