//! Why queues need attention.

use hyper::Uri;
use quintet_client::attention::{Findings, Level, NAMES_MAX, QueueFinding};
use serde::Serialize;
use utoipa::ToSchema;

use super::call::{Answer, Call};
use super::problem::Problem;
use super::read;
use quintet_http::reply;

/// Findings of a list at most.
const FINDINGS: usize = 1000;

/// Memory of a list while it is made, bytes: names are in it twice, and kept twice while it is
/// sorted.
const LIST_BYTES: u64 = 4 * NAMES_MAX as u64;

/// Why queues need attention, the worst first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Attention {
    pub(super) findings: Vec<Finding>,
    /// How many there are, those beyond the limits of the list included.
    pub(super) total: u64,
}

/// Why a queue needs attention.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Finding {
    /// server, down, losing, failing, growing, dead_letters, stuck_leases, limit, paused or
    /// no_consumers.
    pub(super) rule: &'static str,
    /// `alarm`, the worse one, or `warning`.
    pub(super) level: &'static str,
    /// null: it is about the server, or about several queues.
    pub(super) queue: Option<String>,
    /// The finding in a sentence, with its numbers.
    pub(super) text: String,
    /// The cause, as far as the numbers show it; may be empty.
    pub(super) because: String,
}

impl Finding {
    pub(crate) fn of((queue, finding): QueueFinding) -> Self {
        let queue = queue.map(|name| name.to_string());
        let level = match finding.rule.level() {
            Level::Alarm => "alarm",
            Level::Warning => "warning",
        };
        Self {
            rule: finding.rule.name(),
            level,
            text: match &queue {
                Some(name) => format!("{name} {}", finding.says),
                None => finding.says,
            },
            queue,
            because: finding.because,
        }
    }
}

/// Lists why queues need attention, the worst first, 1,000 at most, with names of 256 KiB together;
/// `total` counts all. The console's first page shows the same. Rules and their settings: docs/attention.md.
#[utoipa::path(get, path = "/api/v1/attention", operation_id = "show_attention", tag = "queues",
    responses((status = 200, body = Attention), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn attention(Call { api, requester }: Call, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    let _room = api.room(LIST_BYTES)?;
    let thresholds = api.client_api.thresholds();
    let mut found = Findings::new(FINDINGS);
    let mut next = Some((0, 0));
    while let Some(from) = next.take() {
        let page = api.queue_page(&requester, from).await?;
        for stats in page.queues {
            let recent = api.client_api.recent(&stats);
            if let Some(finding) = thresholds.judge(&stats, recent.as_ref()) {
                found.add(&stats.name, finding);
            }
        }
        next = page.next;
    }
    let unready = api.client_api.unready();
    let total = found.total(unready);
    let found = found.ranked(unready).into_iter();
    let findings = found.map(Finding::of).collect();
    Ok(reply::document(&Attention { findings, total }))
}
