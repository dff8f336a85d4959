//! The trace of a message by its id, also when it is gone.

use quintet_client::shown::plain;
use quintet_client::words;
use quintet_types::{Caller, ClientId, Ended, Ending, Message, MessageId, Name, Principal, Verb};
use serde::Serialize;
use utoipa::ToSchema;

use super::attempts::PastAttempt;
use super::call::{Answer, Of, OfMessage};
use super::holder::Holders;
use super::problem::Problem;
use super::types::MessageView;
use super::{Api, blocking};
use quintet_http::{Requester, reply};

/// State of a message whose end is not known, but a purge that it was part of perhaps.
const UNKNOWN: &str = "unknown";

/// The first of the ids under which hooks run on nobody's behalf.
const HOOKS: ClientId = ClientId(u64::MAX - 1);

/// Where a message is, or how it ended.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(super) struct Traced {
    id: u64,
    /// As in a list of messages; `gone`: it is none of them.
    state: &'static str,
    /// State or end of the message in a sentence for people.
    text: String,
    /// The queue that has, had or gets the message; null: that queue is gone.
    queue: Option<String>,
    created_ms: Option<u64>,
    /// Number of leases that the message had.
    attempts: Option<u32>,
    /// Tries that failed, as the queue's policy counts them.
    failures: Option<u32>,
    /// The connection, script or worker that has the lease; null: none has.
    holder: Option<String>,
    /// When that lease ends; null: it has no end, or there is none.
    until_ms: Option<u64>,
    /// How it went: `finished`, `removed` (taken without a lease), `deleted`, `expired`, `dropped`
    /// (its queue was full), `purged`, `queue_deleted`, `forgotten` (finished, and kept long
    /// enough), `replaced` (by a repeat), `failed`, `cancelled`, `edited` (with a new body it has
    /// another id), `moved` (to another shard, where it has another id).
    end: Option<&'static str>,
    /// When the message ended, ms since 1970; null: it is there.
    at_ms: Option<u64>,
    /// The user or connection that did it, as far as it is known.
    by: Option<String>,
    /// The id of the message that it is now, or that took its place.
    new_id: Option<u64>,
    /// Attempts that ended without success, oldest first: the newest 20 that the server knows.
    past_attempts: Vec<PastAttempt>,
}

/// The trace of a message: where it is and who works on it, or how it went, when and by whom. Of
/// messages that are gone the newest are known (`ends_max`).
#[utoipa::path(get, path = "/api/v1/messages/{id}/trace", operation_id = "trace_message", tag = "messages",
    params(("id" = u64, Path)),
    responses((status = 200, body = Traced), (status = 404, body = Problem, content_type = "application/problem+json", description = "nothing is known of it")))]
pub(super) async fn show(Of(api, requester, id): OfMessage) -> Answer {
    let traced = match api.message(&requester, id).await {
        Ok((message, queue)) => api.live(&requester, &message, &queue).await,
        Err(problem) if problem.code == "not_found" => api.gone(&requester, id).await?,
        Err(problem) => return Err(problem),
    };
    if traced.state == UNKNOWN {
        return Err(Problem {
            detail: traced.text,
            ..Problem::not_found()
        });
    }
    Ok(reply::document(&traced))
}

impl Api {
    /// The trace of one that is there.
    async fn live(&self, requester: &Requester, message: &Message, queue: &Name) -> Traced {
        let now = self.client_api.now();
        let ahead = self.client_api.ahead();
        let shown = MessageView::of(message, queue, now);
        let mut connections = None;
        let held = self.held_by(requester, message, queue, &mut connections);
        let (holder, until) = match held.await {
            Some((holder, lease)) => (Some(holder.text), lease.until),
            None => (None, None),
        };
        let attempts = words::of(u64::from(message.reserves), "attempt", "attempts");
        let past = self.past_attempts(requester, message.born(), &mut connections);
        let past = past.await;
        let by = holder.as_ref().map(|holder| format!(" by {holder}"));
        let why = match (shown.state, shown.status.lines().next()) {
            ("buried", Some(reason)) => format!(": {reason}"),
            _ => String::new(),
        };
        Traced {
            id: message.id.0,
            state: shown.state,
            text: format!(
                "message {} is {}{}, in {}, after {attempts}{}",
                message.id.0,
                shown.state,
                by.unwrap_or_default(),
                shown.queue,
                why,
            ),
            queue: Some(shown.queue),
            created_ms: Some(ahead.wall_at(message.created).0),
            attempts: Some(shown.attempts),
            failures: Some(shown.failures),
            holder,
            until_ms: until.map(|until| ahead.wall_at(until).0),
            past_attempts: past.into_iter().map(|(_, attempt)| attempt).collect(),
            ..Traced::default()
        }
    }

    /// The trace of one that is gone.
    ///
    /// # Errors
    /// Nothing; or the requester may not see the messages of its queue.
    async fn gone(&self, requester: &Requester, id: MessageId) -> Result<Traced, Problem> {
        let client_api = self.client_api();
        let end = blocking(move || match client_api.end_of(id) {
            None => (client_api.purge_of(id), false),
            end => (end, true),
        });
        let (end, is_known) = end.await?;
        let end = end.ok_or_else(|| Problem::no_trace(id))?;
        let may = match &end.queue {
            Some(queue) => requester.may_to(Verb::Peek, queue),
            None => requester.may_server(),
        };
        if !may && !is_known {
            return Err(Problem::no_trace(id));
        }
        if !may {
            return Err(Problem::refused(quintet_types::CommandError::NotPermitted));
        }
        let mut connections = None;
        let by = match end.by {
            Some(caller) => {
                let holders = self.holders(requester).await?;
                let holders = connections.insert(holders);
                self.who(requester, (end.why, caller), holders)
            }
            None => None,
        };
        let now = self.client_api.now();
        if !is_known {
            return Ok(Traced {
                state: UNKNOWN,
                text: perhaps(id, &end, by.as_deref(), now.since(end.at)),
                ..Traced::default()
            });
        }
        let past = self.past_attempts(requester, id, &mut connections);
        let past = past.await;
        let ahead = self.client_api.ahead();
        Ok(Traced {
            id: id.0,
            state: "gone",
            text: describe(id, &end, by.as_deref(), now.since(end.at)),
            queue: end.queue.map(|queue| queue.to_string()),
            end: Some(end.why.word()),
            at_ms: Some(ahead.wall_at(end.at).0),
            by,
            new_id: end.is_now.map(|id| id.0),
            past_attempts: past.into_iter().map(|(_, attempt)| attempt).collect(),
            ..Traced::default()
        })
    }

    /// The end of a message that is gone, in a sentence; `None`: that is not known, or not to
    /// this requester.
    pub async fn how_it_went(&self, requester: &Requester, id: MessageId) -> Option<String> {
        Some(self.gone(requester, id).await.ok()?.text)
    }

    /// The user that ended the message, or its connection if that is still there.
    fn who(
        &self,
        requester: &Requester,
        (why, caller): (Ended, Caller),
        holders: &Holders,
    ) -> Option<String> {
        let known = requester.known.as_ref().filter(|_| requester.may_server());
        let user = known
            .filter(|_| caller.principal >= Principal::FIRST)
            .and_then(|(_, gate)| gate.name_of(caller.principal));
        let user = user.map(|user| format!("user {}", plain(user.as_bytes())));
        let user = user.or_else(|| self.account_of(requester, caller));
        let connection = holders.describe(caller.client_id);
        let all: Vec<String> = user.into_iter().chain(connection).collect();
        // Scripts only finish messages.
        let requested = match caller.principal {
            Principal::SERVER => why.is_asked_for() && why != Ended::Finished,
            Principal::ANONYMOUS => why.is_asked_for(),
            Principal(_) => false,
        };
        match all.is_empty() {
            true if !requested => None,
            true if caller.client_id >= HOOKS => Some("a hook".to_owned()),
            true => Some("a client without a login".to_owned()),
            false => Some(all.join(", ")),
        }
    }

    /// The account of this machine that commanded it over the control socket, in the words of the
    /// audit.
    fn account_of(&self, requester: &Requester, caller: Caller) -> Option<String> {
        let is_local = caller.principal == Principal::SERVER && requester.may_server();
        let consumers = &self.app.settings().clients.consumers;
        let known = consumers.of(caller.client_id).filter(|_| is_local)?;
        Some(plain(known.user?.as_bytes()))
    }
}

/// The sentence.
fn describe(id: MessageId, end: &Ending, by: Option<&str>, ago: u64) -> String {
    let did = match end.why {
        Ended::Taken => "was taken and removed",
        Ended::Finished => "was finished",
        Ended::Deleted => "was deleted",
        Ended::Expired => "expired",
        Ended::Dropped => "was dropped, as its queue was full",
        Ended::Purged => "was purged",
        Ended::QueueDeleted => "was deleted with its queue",
        Ended::Forgotten => "was finished, and removed after the retention of its queue",
        Ended::Cancelled => "was cancelled",
        Ended::Replaced => "was replaced by a repeat",
        Ended::Failed => "failed and was not to be tried again",
        Ended::Edited => "got another body",
        Ended::Moved | Ended::Sent => "was moved",
    };
    let requested = end.why.is_asked_for() && end.why != Ended::QueueDeleted;
    let unknown = match requested && end.by.is_none() {
        true => "; the client is not known: the log does not keep it over a restart",
        false => "",
    };
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let queue = match (&end.queue, end.why) {
        (None, _) => String::new(),
        (Some(queue), Ended::Sent) => format!(", from {queue}"),
        (Some(queue), Ended::Moved) => format!(", to {queue}"),
        (Some(queue), _) => format!(", in {queue}"),
    };
    let now = end.is_now.map(|id| format!("; it is message {} now", id.0));
    format!(
        "message {} {did}{by}, {} ago{queue}{}{unknown}",
        id.0,
        words::duration(ago),
        now.unwrap_or_default()
    )
}

/// The sentence of a purge that a message was part of perhaps.
fn perhaps(id: MessageId, purge: &Ending, by: Option<&str>, ago: u64) -> String {
    let queue = match &purge.queue {
        Some(queue) => format!("queue {queue}"),
        None => "a queue that is gone".to_owned(),
    };
    let did = match purge.why {
        Ended::QueueDeleted => "deleted with its messages",
        _ => "purged",
    };
    let by = match by {
        Some(by) => format!(" by {by}"),
        None => " (quintet audit may name the user)".to_owned(),
    };
    format!(
        "message {} is not known: {queue} was {did}{by}, {} ago; this message may have been in it",
        id.0,
        words::duration(ago)
    )
}
