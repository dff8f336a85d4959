//! Attempts of a message that ended without success.

use quintet_client::shown::plain;
use quintet_types::{AttemptEnd, ClientId, MessageId, Ms, Verb};
use serde::Serialize;
use utoipa::ToSchema;

use super::holder::Holders;
use super::{Api, blocking};
use quintet_http::Requester;

/// An attempt that ended without success.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PastAttempt {
    /// Which attempt of the message it was; a dead letter counts from 1 again.
    number: u32,
    /// When the attempt ended, ms since 1970.
    at_ms: u64,
    /// `failed`, `timeout`, `lost` (its connection or process ended), `released`, `buried`,
    /// `dead_letter` (moved as one) or `hook` (a hook decided about the message).
    end: &'static str,
    /// The first line of the error, 200 bytes at most; empty: none.
    error: String,
    /// The worker, user or connection, as of a lease; null: not known, as after a restart.
    pub by: Option<String>,
    /// The attempt in a sentence for people.
    pub text: String,
}

impl Api {
    /// The newest attempts of a message that ended without success, by any of its ids, oldest
    /// first, with the engine times of their ends: those in queues that the requester may see.
    pub async fn past_attempts(
        &self,
        requester: &Requester,
        id: MessageId,
        connections: &mut Option<Holders>,
    ) -> Vec<(Ms, PastAttempt)> {
        let client_api = self.client_api();
        let known = blocking(move || client_api.attempts_of(id)).await;
        let mut known = known.unwrap_or_default();
        known.retain(|attempt| requester.may_to(Verb::Peek, &attempt.queue));
        if known.is_empty() {
            return Vec::new();
        }
        let holders = self.holders_once(requester, connections).await;
        let ahead = self.client_api.ahead();
        let shown = known.into_iter().map(|attempt| {
            let by = (attempt.client_id != ClientId(0)).then(|| {
                let by = (attempt.client_id, attempt.bound);
                self.holder(requester, by, holders).text
            });
            let did = match attempt.end {
                AttemptEnd::Failed => "failed",
                AttemptEnd::TimedOut => "ran out of time",
                AttemptEnd::Lost => "ended with its client",
                AttemptEnd::Released => "was released",
                AttemptEnd::Buried => "was buried",
                AttemptEnd::DeadLetter => "made it a dead letter",
                AttemptEnd::Decided => "ended, and a hook decided",
            };
            let error = plain(&attempt.error);
            let because = match error.is_empty() {
                true => String::new(),
                false => format!(": {error}"),
            };
            let whose = by.as_ref().map(|by| format!(" by {by}"));
            let whose = whose.unwrap_or_default();
            let shown = PastAttempt {
                number: attempt.number,
                at_ms: ahead.wall_at(attempt.at).0,
                end: attempt.end.word(),
                error,
                by,
                text: format!("attempt {}{whose} {did}{because}", attempt.number),
            };
            (attempt.at, shown)
        });
        shown.collect()
    }
}
