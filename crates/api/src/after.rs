//! Dependencies in requests and replies.

use axum::extract::Request;
use quintet_client::choices;
use quintet_types::{
    AfterOn, Dependant, IfFailed, Message, MessageId, Parent, PutAfter, StatsOf, StatsReply,
};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::bytes_in_json::{base64_unless_text, text_of};
use super::call::{Answer, Of, OfMessage};
use super::problem::{Problem, only};
use super::{Api, PAGE_BYTES, grow, read};
use quintet_http::{Requester, reply};

/// Shards and parts of them that are read for one page at most.
const PARTS_MAX: usize = 256;

/// A message that must end before another one is ready.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Before {
    /// The id of a message.
    Id(u64),
    /// A tracked message, by its own name; of several the one that was put last.
    Name(String),
}

choices! {
    /// Ends of the other messages that free a held message.
    pub enum On of AfterOn {
        /// All of them must succeed.
        Success = Success,
        /// All of them must end, in any way.
        End = End,
    }

    /// Fate of a message once one that it waits for has failed.
    pub enum Fate of IfFailed {
        /// It fails too: the dead-letter rule of its queue applies.
        Fail = Fail,
        /// It stays held, until it is kicked or deleted.
        Hold = Hold,
        /// It runs when the others have ended.
        Run = Run,
    }
}

/// A message for which another one waits, or waited.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ShownParent {
    pub(super) id: u64,
    /// `waiting`, `done` or `failed`.
    pub(super) state: &'static str,
    /// The path to get its result from.
    #[schema(value_type = String)]
    pub(super) result: ResultOf,
}

/// The address of a message's result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultOf(u64);

impl Serialize for ResultOf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("/api/v1/messages/{}/result", self.0))
    }
}

impl From<&Parent> for ShownParent {
    fn from(parent: &Parent) -> Self {
        Self {
            id: parent.id.0,
            state: parent.state.word(),
            result: ResultOf(parent.id.0),
        }
    }
}

/// A message that another one waits for, as `parents` lists it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ListedParent {
    #[serde(flatten)]
    parent: ShownParent,
    /// Its own name, if it has one that is text.
    name: Option<String>,
    /// Any other name of its own, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
    /// Its queue; null, as the name is: it is gone, or may not be seen.
    queue: Option<String>,
}

/// Messages for which one waits, or waited.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ParentPage {
    /// In the order of their ids.
    parents: Vec<ListedParent>,
    /// Go on with this; null: that was all.
    cursor: Option<String>,
}

/// A message that waits for another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ListedDependent {
    id: u64,
    queue: String,
    /// `delayed` while it is held.
    state: &'static str,
}

/// Messages that wait for another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct DependentPage {
    /// By shard, and there in the order of their ids.
    dependents: Vec<ListedDependent>,
    /// Go on with this, also after a short page; null: that was all.
    cursor: Option<String>,
}

/// The messages that a new one waits for, of a message that is `field` in its request.
///
/// # Errors
/// It says how to wait, and not for what; or no message has such an id.
pub(super) fn of_new(
    before: Vec<Before>,
    (on, if_failed): (Option<On>, Option<Fate>),
    field: &str,
) -> Result<Option<Box<PutAfter>>, Problem> {
    if before.is_empty() {
        let asks = [("on", on.is_some()), ("if_failed", if_failed.is_some())];
        return match asks.into_iter().find(|(_, is)| *is) {
            Some((name, _)) => Err(Problem::field(
                &format!("{field}{name}"),
                "needs the field after beside it: the messages to wait for",
            )),
            None => Ok(None),
        };
    }
    let mut after = PutAfter {
        on: on.map(Into::into).unwrap_or_default(),
        if_failed: if_failed.map(Into::into).unwrap_or_default(),
        ..PutAfter::default()
    };
    for before in before {
        match before {
            Before::Id(0) => {
                let detail = "takes ids of messages, from 1 on, and names";
                return Err(Problem::field(&format!("{field}after"), detail));
            }
            Before::Id(id) => after.ids.push(MessageId(id)),
            Before::Name(name) => after.names.push(name.into_bytes().into()),
        }
    }
    Ok(Some(Box::new(after)))
}

/// The messages that one waits for, or waited.
pub(super) fn shown(message: &Message) -> Vec<ShownParent> {
    parents_of(message).iter().map(Into::into).collect()
}

/// The messages that one waits for, or waited, by id.
fn parents_of(message: &Message) -> &[Parent] {
    let extra = message.extra.as_ref();
    let after = extra.and_then(|extra| extra.after.as_ref());
    after.map_or(&[], |after| &after.parents)
}

/// Lists the messages that this one waits for, or waited, with the addresses of their results.
#[utoipa::path(get, path = "/api/v1/messages/{id}/parents", operation_id = "list_parents", tag = "messages",
    params(("id" = u64, Path), ("max" = Option<u32>, Query), ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = ParentPage)))]
pub(super) async fn parents(Of(api, requester, id): OfMessage, request: Request) -> Answer {
    let query = read::Query::of(request.uri(), &["max", "cursor"], &[])?;
    let max = read::page_size(&query)? as usize;
    let after = match query.get("cursor") {
        Some(text) => text.parse().map_err(|_| no_cursor())?,
        None => 0,
    };
    let (message, _) = api.message(&requester, id).await?;
    let all = parents_of(&message);
    let rest = &all[all.partition_point(|parent| parent.id.0 <= after)..];
    let part = &rest[..rest.len().min(max)];
    let mut room = api.room(part.len() as u64 * super::ROW_BYTES)?;
    let (mut parents, mut told) = (Vec::with_capacity(part.len()), 0);
    for parent in part {
        if told >= PAGE_BYTES {
            break;
        }
        // A record of it stays when it is gone.
        let seen = match api.message(&requester, parent.id).await {
            Ok(seen) => Some(seen),
            Err(problem) if [403, 404].contains(&problem.status) => None,
            Err(problem) => return Err(problem),
        };
        let name = seen.as_ref().and_then(|(message, _)| message.name());
        let bytes = seen.as_ref().map_or(0, |(message, queue)| {
            8 * (queue.as_bytes().len() + message.name().map_or(0, |name| name.len())) as u64
        });
        grow(&mut room, bytes)?;
        told += bytes;
        parents.push(ListedParent {
            parent: parent.into(),
            name: name.and_then(|name| text_of(name)),
            name_base64: name.and_then(|name| base64_unless_text(name)),
            queue: seen.as_ref().map(|(_, queue)| queue.to_string()),
        });
    }
    let last = rest.iter().take(parents.len()).next_back();
    let last = last.filter(|_| parents.len() < rest.len());
    let cursor = last.map(|last| last.id.0.to_string());
    Ok(reply::document(&ParentPage { parents, cursor }))
}

/// Lists the messages of all shards that wait for this one.
#[utoipa::path(get, path = "/api/v1/messages/{id}/dependents", operation_id = "list_dependents", tag = "messages",
    params(("id" = u64, Path), ("max" = Option<u32>, Query), ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = DependentPage)))]
pub(super) async fn dependents(Of(api, requester, id): OfMessage, request: Request) -> Answer {
    let query = read::Query::of(request.uri(), &["max", "cursor"], &[])?;
    let max = read::page_size(&query)?;
    let from = match query.get("cursor") {
        Some(text) => place(text).ok_or_else(no_cursor)?,
        None => (0, MessageId(0)),
    };
    let (message, _) = api.message(&requester, id).await?;
    let mut room = api.room(u64::from(max) * super::ROW_BYTES)?;
    let (found, next) = api.dependents(&requester, message.id, from, max).await?;
    let names = found.iter().map(|found| found.queue.as_bytes().len());
    grow(&mut room, 8 * names.sum::<usize>() as u64)?;
    let dependents = found.into_iter().map(|found| ListedDependent {
        id: found.id.0,
        queue: found.queue.to_string(),
        state: found.state.word(),
    });
    Ok(reply::document(&DependentPage {
        dependents: dependents.collect(),
        cursor: next.map(|(shard, id)| format!("{shard}_{}", id.0)),
    }))
}

fn no_cursor() -> Problem {
    Problem::field("cursor", "this is no cursor")
}

fn place(text: &str) -> Option<(u8, MessageId)> {
    let (shard, id) = text.split_once('_')?;
    Some((shard.parse().ok()?, MessageId(id.parse().ok()?)))
}

impl Api {
    /// Messages of all shards that wait for this one and may be seen, `max` at most, and where to
    /// go on; `None`: that was all. A page may be short though there are more.
    ///
    /// # Errors
    /// The shards' error.
    pub async fn dependents(
        &self,
        requester: &Requester,
        parent: MessageId,
        from: (u8, MessageId),
        max: u32,
    ) -> Result<(Vec<Dependant>, Option<(u8, MessageId)>), Problem> {
        let (mut all, mut from, mut told) = (Vec::<Dependant>::new(), from, 0);
        for _ in 0..PARTS_MAX {
            let left = max.saturating_sub(u32::try_from(all.len()).unwrap_or(max));
            if left == 0 || told >= PAGE_BYTES {
                break;
            }
            let max = left;
            let of = StatsOf::Dependants { parent, from, max };
            let answer = self.stats(requester, of).await?;
            let page = only!(answer, StatsReply::Dependants(page) => page);
            let names = page.dependants.iter().map(|one| one.queue.as_bytes().len());
            told += 8 * names.sum::<usize>() as u64;
            all.extend(page.dependants);
            match page.next {
                Some(next) => from = next,
                None => return Ok((all, None)),
            }
        }
        Ok((all, Some(from)))
    }
}
