//! Holding keys and queues: nothing of them is handed out.

use std::future::pending;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hyper::{StatusCode, Uri};
use md5::{Digest as _, Md5};
use quintet_types::{
    By, Command, HOLD_MAX_MS, HeldKey, Holding, How, MessageId, Ms, Name, NamedAction, Operation,
    Outcome, Peek, Principal,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::bytes_in_json::{base64_unless_text, lossy};
use super::call::{Answer, Of, OfNamed, OfQueue, RequestBody, done_to};
use super::problem::Problem;
use super::read;
use super::{Api, PAGE_BYTES};
use quintet_http::reply;

/// So much of a key is in a cursor, as an address has no room for a long one.
const CURSOR_BYTES: usize = 1024;

/// Where a list goes on behind this key: the key, or the start of a long one and a hash of all of
/// it.
fn cursor(key: &[u8]) -> Vec<u8> {
    match key.split_at_checked(CURSOR_BYTES) {
        Some((start, rest)) if !rest.is_empty() => [start, &hash(key)].concat(),
        _ => key.to_vec(),
    }
}

fn hash(key: &[u8]) -> [u8; 16] {
    Md5::digest(key).into()
}

/// The first of the keys behind a [`cursor`]. If that of a long key is not held any more, it is
/// the first that begins like it: no key is left out.
fn behind(held: &[HeldKey], cursor: &[u8]) -> usize {
    let long = cursor.split_at_checked(CURSOR_BYTES);
    let Some((start, sum)) = long.filter(|(_, sum)| !sum.is_empty()) else {
        return held.partition_point(|held| *held.key <= *cursor);
    };
    let first = held.partition_point(|held| *held.key < *start);
    let alike = held.iter().skip(first);
    let mut alike = alike.take_while(|held| held.key.starts_with(start));
    let last = alike.position(|held| hash(&held.key) == *sum);
    first + last.map_or(0, |last| last + 1)
}

/// How long a key or queue is held.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldFor {
    /// So many ms from now on, a week at most; 0: no longer.
    hold_ms: u64,
}

/// A page of the held keys of a queue.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Held)]
pub(super) struct HeldKeyPage {
    /// Sorted by key, as bytes.
    keys: Vec<HeldOne>,
    /// Go on with this; null: there are no more.
    cursor: Option<String>,
}

/// A key whose messages are not delivered until its hold ends.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct HeldOne {
    /// The key, with U+FFFD in place of bytes that are no UTF-8.
    key: String,
    /// The key in base64, if it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// How long it is held by now.
    held_ms: u64,
    /// How long it is held yet.
    left_ms: u64,
    /// When that ends, ms since 1970.
    until_ms: u64,
}

impl HeldOne {
    fn of(held: &HeldKey, now: Ms) -> Self {
        Self {
            key: lossy(&held.key),
            key_base64: base64_unless_text(&held.key),
            held_ms: now.since(held.since),
            left_ms: held.until.since(now),
            until_ms: held.until.0,
        }
    }
}

/// Holds that a request asks for when it ends a lease.
#[derive(Clone, Copy, Default)]
pub(super) struct Holds {
    pub(super) hold_key_ms: Option<u64>,
    pub(super) hold_ms: Option<u64>,
}

impl Holds {
    /// # Errors
    /// It cannot be held for so long; or both are requested.
    fn holding(self) -> Result<Option<Holding>, Problem> {
        let of = |field, ms: Option<u64>| match ms {
            Some(ms) if !(1..=HOLD_MAX_MS).contains(&ms) => {
                let detail = format!("takes 1 to {HOLD_MAX_MS} ms, which is a week");
                Err(Problem::field(field, detail))
            }
            ms => Ok(ms),
        };
        let key = of("hold_key_ms", self.hold_key_ms)?;
        match (key, of("hold_ms", self.hold_ms)?) {
            (Some(_), Some(_)) => {
                let detail = "hold_ms and hold_key_ms do not go together";
                Err(Problem::field("hold_ms", detail))
            }
            (Some(ms), None) => Ok(Some(Holding::Key(ms))),
            (None, Some(ms)) => Ok(Some(Holding::Queue(ms))),
            (None, None) => Ok(None),
        }
    }
}

/// Ends a lease, and holds the key or queue of its message if that is asked.
///
/// # Errors
/// It cannot be held so.
pub(super) fn settle(how: How, holds: Holds) -> Result<impl FnOnce(MessageId) -> Command, Problem> {
    let hold = holds.holding()?;
    let by = By::Anyone;
    Ok(move |id| match hold {
        None => Command::Settle { id, by, how },
        Some(hold) => Command::SettleHolding { id, by, how, hold },
    })
}

/// The same by the message's name.
///
/// # Errors
/// It cannot be held so.
pub(super) fn settle_named(how: How, holds: Holds) -> Result<NamedAction, Problem> {
    Ok(match holds.holding()? {
        None => NamedAction::Settle(how),
        Some(hold) => NamedAction::SettleHolding(how, hold),
    })
}

impl Api {
    /// The queue of this lease's message, if all of it is to be held. The holder of a lease may not
    /// be allowed to see it.
    pub(super) async fn to_be_held(&self, token: &str, holds: Holds) -> Option<Name> {
        holds.hold_ms?;
        let (id, _) = read::lease(token).ok()?;
        let peek = Command::Peek(Peek::Id(id));
        let answered = self.submit(Principal::SERVER, None, peek, pending());
        let (outcome, queue) = answered.await?;
        matches!(outcome, Outcome::Messages(_)).then_some(queue)
    }
}

/// The reply to who ended a lease; the audit names the queue that is held by this.
pub(super) fn noted(response: Response, held: Option<Name>) -> Response {
    let operation = held.as_ref().map(|_| Extension(Operation::Hold));
    (operation, done_to(response, held)).into_response()
}

fn check(hold_ms: u64) -> Result<(), Problem> {
    if hold_ms <= HOLD_MAX_MS {
        return Ok(());
    }
    let says = format!("takes at most {HOLD_MAX_MS} ms, which is a week");
    Err(Problem::field("hold_ms", says))
}

/// Hands out no message of this queue until the time is over, or again if it is 0: a pause with an
/// end. It does not shorten a longer pause.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/hold", operation_id = "hold_queue", tag = "queues",
    params(("queue" = String, Path)), request_body = HoldFor, responses((status = 204)))]
pub(super) async fn queue(
    Of(api, requester, queue): OfQueue,
    RequestBody(HoldFor { hold_ms }, _share): RequestBody<HoldFor>,
) -> Answer {
    check(hold_ms)?;
    let (key, for_ms) = (None, hold_ms);
    let answer = api
        .ask(&requester, Command::Hold { queue, key, for_ms })
        .await;
    answer.map_err(Problem::of_pause)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Hands out no message of this key until the time is over, or again if it is 0. It does not
/// shorten a longer hold. The queue's settings have to give keys a meaning: `groups`,
/// `key_in_flight_max` or `key_take_rate`.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/keys/{key}/hold", operation_id = "hold_key", tag = "queues",
    params(("queue" = String, Path), ("key" = String, Path)), request_body = HoldFor,
    responses((status = 204), (status = 409, body = Problem, content_type = "application/problem+json", description = "keys mean nothing in this queue")))]
pub(super) async fn hold(
    Of(api, requester, (queue, key)): OfNamed,
    RequestBody(HoldFor { hold_ms }, _share): RequestBody<HoldFor>,
) -> Answer {
    check(hold_ms)?;
    let command = Command::Hold {
        queue,
        key: Some(key.into_bytes().into()),
        for_ms: hold_ms,
    };
    api.ask(&requester, command).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lists the keys of a queue that are held, in pages of about 1 MiB.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/keys/held", operation_id = "list_held_keys", tag = "queues",
    params(("queue" = String, Path), ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = HeldKeyPage)))]
pub(super) async fn list(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["cursor"], &[])?;
    let after = query.get("cursor");
    let after = after.map(|text| BASE64_URL_SAFE_NO_PAD.decode(text));
    let after = after.transpose();
    let after = after.map_err(|_| Problem::field("cursor", read::NOT_A_CURSOR))?;
    let held = api.held_keys(&requester, &queue).await?;
    let begin = after.map_or(0, |after| behind(&held, &after));
    let mut bytes = 0;
    let page = held[begin..].iter().take_while(|held| {
        let fits = bytes < PAGE_BYTES;
        // A key is in the list as text or in base64, and in the JSON.
        bytes += 256 + 8 * held.key.len() as u64;
        fits
    });
    let end = begin + page.count();
    let _room = api.room(bytes)?;
    let now = api.client_api.now();
    let page = &held[begin..end];
    let keys = page.iter().map(|held| HeldOne::of(held, now)).collect();
    let last = page.last().filter(|_| end < held.len());
    let cursor = last.map(|last| BASE64_URL_SAFE_NO_PAD.encode(cursor(&last.key)));
    Ok(reply::document(&HeldKeyPage { keys, cursor }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of these keys goes on behind each of them, also behind long ones that begin alike.
    #[test]
    fn a_cursor_is_short_and_different_for_every_key() {
        let long = |end: &str| format!("{}{end}", "k".repeat(50_000)).into_bytes();
        let all_of = "k".repeat(CURSOR_BYTES).into_bytes();
        let keys = [b"a".to_vec(), all_of, long("a"), long("b"), b"z".to_vec()];
        let held: Vec<HeldKey> = keys
            .iter()
            .map(|key| HeldKey {
                key: key.as_slice().into(),
                since: Ms(0),
                until: Ms(1),
            })
            .collect();
        for (at, key) in keys.iter().enumerate() {
            let cursor = cursor(key);
            assert!(cursor.len() <= CURSOR_BYTES + 16);
            assert_eq!(behind(&held, &cursor), at + 1, "key {at}");
        }
        // One that is not held any more: those that begin like it come again.
        let (gone, none) = (cursor(&long("c")), cursor(b"b"));
        assert_eq!((behind(&held, &gone), behind(&held, &none)), (1, 1));
    }
}
