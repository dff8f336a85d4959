//! Operations on many messages of a queue.

use std::collections::HashMap;
use std::time::Duration;

use axum::Extension;
use axum::response::{IntoResponse as _, Response};
use hyper::Uri;
use quintet_client::{ACT_REST, ACT_STEP, Did, Slices};
use quintet_types::{
    BulkAction, BulkDone, BulkOp, Command, Cursor, Filter, ListState, Message, MessageId, Ms, Name,
    Operation,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::call::{Answer, Call, Of, OfQueue, RequestBody};
use super::path::Path;
use super::problem::Problem;
use super::types::{Acted, Cancel, OperationRequest};
use super::{Api, read};
use crate::bytes_in_json::{base64_unless_text, lossy};
use quintet_http::{DoneWith, Requester, reply};

/// Slices done for one request at most: it takes about a second.
const SLICES: u32 = 256;

/// Reads where a list goes on.
pub fn cursor(text: &str) -> Result<Cursor, Problem> {
    let read = || {
        let mut parts = text.splitn(4, '_');
        let not_selectable = match parts.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let a = parts.next()?.parse().ok()?;
        let b = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        let order = (a, b, MessageId(id));
        Some(Cursor {
            not_selectable,
            order,
        })
    };
    read().ok_or_else(|| Problem::field("cursor", read::NOT_A_CURSOR))
}

/// See [`cursor`].
pub fn cursor_text(cursor: Cursor) -> String {
    let (a, b, id) = cursor.order;
    format!("{}_{a}_{b}_{}", u8::from(cursor.not_selectable), id.0)
}

/// States in which messages are not done, in the order in which most go through them. A cancel
/// without a state is of all.
const NOT_DONE: [ListState; 5] = [
    ListState::Prepared,
    ListState::Delayed,
    ListState::Ready,
    ListState::Reserved,
    ListState::Buried,
];

/// Reads in which state of [`NOT_DONE`] an operation goes on, and where: `2.0_1_2_3`, or `2.` for
/// its first message.
fn state_and_cursor(text: &str) -> Result<(usize, Option<Cursor>), Problem> {
    let parts = text.split_once('.');
    let parts = parts.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest)));
    let (at, rest) = parts
        .filter(|(at, _)| *at < NOT_DONE.len())
        .ok_or_else(|| Problem::field("cursor", read::NOT_A_CURSOR))?;
    let after = (!rest.is_empty()).then(|| cursor(rest)).transpose()?;
    Ok((at, after))
}

/// Messages whose errors are counted for one request at most.
const COUNTED: u64 = 2000;
/// Slices looked through for that.
const COUNT_SLICES: u32 = 64;

/// Messages that failed in the same way.
pub struct ErrorKind {
    /// Their error, with each number as `#`.
    pub kind: Vec<u8>,
    pub count: u64,
    /// The newest of them, and since when it is where it is.
    pub newest: MessageId,
    pub at: Ms,
    /// Where the newest came from.
    pub from: Option<Name>,
}

/// Bytes of a queue's name on a page, where a byte may take four letters.
pub(super) fn name_bytes(queue: &Name) -> u64 {
    4 * queue.as_bytes().len() as u64
}

/// So many messages of a queue, `max` at most, have room on a page: each is shown with its name.
pub(super) fn rows(queue: &Name, max: u32) -> u32 {
    let fit = super::PAGE_BYTES / name_bytes(queue).max(1);
    max.min(u32::try_from(fit).unwrap_or(u32::MAX))
}

/// When it became what it is: buried, or a dead letter.
pub fn since(message: &Message) -> Ms {
    let changed = message
        .extra
        .as_deref()
        .map_or(Ms(0), |extra| extra.changed);
    changed.max(message.created)
}

impl Api {
    /// Counts messages by their errors, the most frequent first, among the first 2,000 of
    /// `bulk_op`, or fewer whose queues have long names. Answers how many were looked at, and
    /// where to go on.
    ///
    /// # Errors
    /// The shards' error; or there is no room.
    pub async fn errors(
        &self,
        requester: &Requester,
        bulk_op: BulkOp,
    ) -> Result<(Vec<ErrorKind>, u64, Option<Cursor>), Problem> {
        let mut kinds: HashMap<Vec<u8>, ErrorKind> = HashMap::new();
        let mut slices = Slices::of(bulk_op).at_most(COUNTED, COUNT_SLICES);
        slices.step = 256;
        while let Some(bulk_op) = slices.slice() {
            let (bulk_done, _room) = self.bulk_done(requester, bulk_op.clone()).await?;
            slices.done(&bulk_done);
            for message in &bulk_done.messages {
                let (id, at, from) = (message.id, since(message), message.came_from());
                let kind = message.error_kind();
                let new = || ErrorKind {
                    kind: kind.clone(),
                    count: 0,
                    newest: id,
                    at,
                    from: from.clone(),
                };
                let known = kinds.entry(kind.clone()).or_insert_with(new);
                known.count += 1;
                if at > known.at {
                    (known.newest, known.at, known.from) = (id, at, from);
                }
            }
            let names = kinds.values().filter_map(|kind| kind.from.as_ref());
            if names.map(name_bytes).sum::<u64>() >= super::PAGE_BYTES {
                break;
            }
        }
        let mut kinds: Vec<ErrorKind> = kinds.into_values().collect();
        kinds.sort_by(|a, b| (b.count, b.at, &b.kind).cmp(&(a.count, a.at, &a.kind)));
        Ok((kinds, slices.messages, slices.bulk_op.after))
    }
}

/// Messages that failed in the same way.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Kind {
    /// The first line of their error, with each number as `#`; empty: nobody said why.
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_base64: Option<String>,
    messages: u64,
    /// The id of the newest of these messages.
    newest: u64,
    /// How long ago that was buried, or became a dead letter.
    newest_ms: u64,
    /// The queue it came from as a dead letter.
    from: Option<String>,
}

/// The errors, those of most messages first.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Errors {
    errors: Vec<Kind>,
    /// Messages that this page counted.
    messages: u64,
    /// Go on with this; null: all were counted.
    cursor: Option<String>,
}

/// Counts a queue's messages of one state by their errors, in which each number is `#`. A page
/// counts 2,000 messages.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/errors", operation_id = "count_errors", tag = "queues",
    params(("queue" = String, Path), ("state" = Option<String>, Query, description = "buried by default"),
        ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = Errors)))]
pub(crate) async fn errors(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["state", "cursor"], &[])?;
    let state = read::state(query.get("state").unwrap_or("buried"))?;
    let mut bulk_op = BulkOp::show(queue, state, 0);
    bulk_op.after = query.get("cursor").map(cursor).transpose()?;
    let (kinds, examined, next) = api.errors(&requester, bulk_op).await?;
    let now = api.client_api.now();
    let kinds = kinds.into_iter().map(|kind| Kind {
        error: lossy(&kind.kind),
        error_base64: base64_unless_text(&kind.kind),
        messages: kind.count,
        newest: kind.newest.0,
        newest_ms: now.since(kind.at),
        from: kind.from.map(|from| from.to_string()),
    });
    Ok(reply::document(&Errors {
        errors: kinds.collect(),
        messages: examined,
        cursor: next.map(cursor_text),
    }))
}

/// Does something to many messages, in slices that hold nobody up: `purge`, `cancel`,
/// `kick`, `redrive` (dead letters back to the queue each came from) or `move`.
/// A cancel without a `state` is of all that are not done, the others of one state. A long
/// operation ends with a cursor, to go on with.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/operations/{operation}", operation_id = "operate_on_queue", tag = "queues",
    params(("queue" = String, Path), ("operation" = String, Path, description = "purge, cancel, kick, redrive or move")),
    request_body = OperationRequest,
    responses((status = 200, body = Acted)))]
pub(super) async fn operate(
    Call { api, requester }: Call,
    Path((queue, operation)): Path<(String, String)>,
    RequestBody(mut supplied, _share): RequestBody<OperationRequest>,
) -> Answer {
    let queue = read::queue(&queue)?;
    let usual = if operation == "kick" {
        "buried"
    } else {
        "ready"
    };
    let all_states = operation == "cancel" && supplied.state.is_none();
    let only = [read::state(supplied.state.as_deref().unwrap_or(usual))?];
    let states: &[ListState] = if all_states { &NOT_DONE } else { &only };
    let state = only[0];
    let (at, after) = match supplied.cursor.as_deref() {
        Some(text) if all_states => state_and_cursor(text)?,
        text => (0, text.map(cursor).transpose()?),
    };
    let filter = filter(&operation, &mut supplied)?;
    let purges = state == ListState::Ready && filter == Filter::default();
    let operation = action(&operation, &mut supplied, purges)?;
    let with = match &operation {
        BulkAction::Move(to) => Some(DoneWith(format!("to {to}"))),
        _ => None,
    };
    let bulk_op = BulkOp {
        queue,
        state: states[at],
        filter,
        action: match (supplied.dry_run, operation) {
            (true, BulkAction::Cancel(_)) => BulkAction::CountToCancel,
            (true, _) => BulkAction::Count,
            (false, operation) => operation,
        },
        after,
        max: 0,
    };
    // Counting alone holds nobody up: it goes by the engine's own slices.
    let (step, rest) = match bulk_op.action.changes() && !supplied.fast {
        true => (ACT_STEP, ACT_REST),
        false => (u32::MAX, Duration::ZERO),
    };
    let mut slices = Slices {
        then: &states[at + 1..],
        step,
        ..Slices::of(bulk_op).at_most(supplied.max.unwrap_or(u64::MAX), SLICES)
    };
    in_slices(&mut slices, rest, |bulk_op| api.slice(&requester, bulk_op)).await?;
    let after = slices.bulk_op.after.map(cursor_text);
    let at = states.len() - slices.then.len() - 1;
    let cursor = match all_states {
        true => (!slices.whole).then(|| format!("{at}.{}", after.unwrap_or_default())),
        false => after,
    };
    let messages = slices.messages;
    let command = Command::BulkOp(Box::new(slices.bulk_op));
    let operation = Operation::of(&command, command.about().verb);
    let acted = acted(&Acted { messages, cursor }, operation);
    Ok((with.map(Extension), acted).into_response())
}

/// Does an operation, with a `rest` between its slices. If a slice fails when some messages are
/// done, the request that goes on learns why.
async fn in_slices<F: Future<Output = Result<BulkDone, Problem>>>(
    slices: &mut Slices<'_>,
    rest: Duration,
    mut slice: impl FnMut(BulkOp) -> F,
) -> Result<(), Problem> {
    while let Some(bulk_op) = slices.slice() {
        match slice(bulk_op.clone()).await {
            Ok(bulk_done) => slices.done(&bulk_done),
            Err(_) if slices.messages > 0 => break,
            Err(problem) => return Err(problem.of_queue(&slices.bulk_op.queue)),
        }
        if slices.left > 0 && rest > Duration::ZERO {
            tokio::time::sleep(rest).await;
        }
    }
    Ok(())
}

/// Which messages an operation is about.
fn filter(operation: &str, supplied: &mut OperationRequest) -> Result<Filter, Problem> {
    let bytes = |text: String| text.into_bytes().into_boxed_slice();
    let named = |name, text: &Option<String>, base64: &Option<String>| {
        read::bytes_of(name, text.as_deref(), base64.as_deref())
    };
    let attrs = std::mem::take(&mut supplied.headers).into_iter();
    Ok(Filter {
        body: supplied.contains.take().map(bytes),
        key: named("key", &supplied.key, &supplied.key_base64)?,
        name: named("name", &supplied.name, &supplied.name_base64)?,
        attrs: attrs
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect(),
        dead: operation == "redrive",
        error: supplied.error.take().map(bytes),
        tried: None,
        older_ms: supplied.older_ms,
        batch: read::batch(supplied.batch.as_deref())?,
    })
}

/// The action of an operation; `whole`: on all ready messages of its queue.
fn action(
    operation: &str,
    supplied: &mut OperationRequest,
    whole: bool,
) -> Result<BulkAction, Problem> {
    if operation != "cancel" && (supplied.reason.is_some() || supplied.grace_ms.is_some()) {
        let why = "only a cancel takes reason and grace_ms";
        return Err(Problem::field("reason", why));
    }
    Ok(match (operation, supplied.to.take()) {
        ("purge", None) if whole && (supplied.all || supplied.max.is_none()) => BulkAction::Purge,
        ("purge", None) => BulkAction::Delete,
        ("cancel", None) => {
            let cancel = Cancel {
                reason: supplied.reason.take().unwrap_or_default(),
                grace_ms: supplied.grace_ms,
            };
            BulkAction::Cancel(cancel.into_cancel()?)
        }
        ("kick", None) => BulkAction::Kick,
        ("redrive", None) => BulkAction::Redrive { to: None },
        ("move", Some(to)) => BulkAction::Move(read::queue(&to)?),
        ("move", None) => {
            let why = "a move needs the name of the target queue";
            return Err(Problem::field("to", why));
        }
        ("purge" | "cancel" | "kick" | "redrive", Some(_)) => {
            return Err(Problem::field("to", "only a move takes a target queue"));
        }
        _ => return Err(Problem::no_such_page()),
    })
}

/// The reply to an operation on messages, whose number the audit tells.
pub(super) fn acted(acted: &Acted, operation: Operation) -> Response {
    let did = Extension(Did::to(acted.messages));
    (Extension(operation), did, reply::document(acted)).into_response()
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn an_operation_that_fails_after_some_messages_tells_how_many_and_where_it_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let next = cursor("0_1_2_3").ok();
        let done = |matched| BulkDone {
            matched,
            next,
            ..BulkDone::default()
        };
        for (first, told) in [(done(3), Some(3)), (done(0), None)] {
            let mut outcomes = [Ok(first), Err(Problem::stopping())].into_iter();
            let slice = |_: BulkOp| ready(outcomes.next().expect("a third slice"));
            let mut slices = Slices::of(BulkOp::show("q".into(), ListState::Ready, 128));
            let done = runtime.block_on(in_slices(&mut slices, Duration::ZERO, slice));
            assert_eq!(done.ok().map(|()| slices.messages), told);
            assert_eq!(slices.bulk_op.after, next);
        }
    }
}
