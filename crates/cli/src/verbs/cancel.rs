//! `quintet cancel`: messages that are no longer wanted, also those that a worker holds.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::super::api::Api;
use super::bulk::{Bulk, Many, OF_MANY};
use super::duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet cancel --id 1234 --reason 'ordered twice'\n  quintet \
                        cancel reports --name report-7 --grace 10s\n  quintet cancel mail --batch \
                        b-0000000000000001 --yes\n  quintet cancel work --state ready \
                        --dry-run\n\nA message without a lease is removed at once. For a reserved \
                        message, the server tells the worker when it extends its lease or reports \
                        progress. The worker may finish the message until the grace time is over. \
                        Then the lease ends, and the message does not come back."
)]
pub(in super::super) struct Cancel {
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = OF_MANY, conflicts_with_all = ["queue", "state"])]
    id: Option<u64>,
    /// Only messages in this state.
    #[arg(long, value_parser = ["ready", "delayed", "reserved", "buried", "prepared"])]
    state: Option<String>,
    /// Reason, for the worker and the operator.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Grace time for workers to end their work, 7d at most.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    grace: u64,
    #[command(flatten)]
    many: Many,
}

/// Each state in which a message is not done.
const STATES: &[(&str, &str)] = &[
    ("ready", "cancel"),
    ("delayed", "cancel"),
    ("reserved", "cancel"),
    ("buried", "cancel"),
    ("prepared", "cancel"),
];

impl Cancel {
    pub(in super::super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let cancel = json!({ "reason": self.reason, "grace_ms": self.grace });
        if let Some(id) = self.id {
            api.ask("POST", &format!("/messages/{id}/cancel"), Some(&cancel))?;
            return self.many.how.report(1, "cancelled");
        }
        let state = |(state, _): &&(&str, &str)| self.state.as_deref().is_none_or(|s| s == *state);
        // Twice: a message may change its state between the passes.
        let passes = if self.many.how.dry_run { 1 } else { 2 };
        let acts = STATES.repeat(passes);
        let acts: Vec<_> = acts.iter().filter(state).copied().collect();
        let queue = self.queue.as_deref().unwrap_or_default();
        let bulk = Bulk::of(&self.many, queue, &acts, "cancelled");
        Bulk {
            more: cancel.as_object(),
            asks: true,
            ..bulk
        }
        .run(&mut api)
    }
}
