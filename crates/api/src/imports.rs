//! Messages with all their fields on their way in: what `quintet import` stores.

use axum::extract::Request;
use axum::response::IntoResponse as _;
use hyper::{Method, StatusCode};
use quintet_client::FOLDER;
use quintet_control::{Head, RECORDS_MAX, Text};
use quintet_http::{Requester, reply};
use quintet_types::{
    Attr, Body, Command, Dedupe, Groups, Name, OnRepeat, Outcome, Overrides, Past, Put, PutMore,
    Scope, Verb,
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::call::{Answer, Of, OfNamed, OfQueue, RequestBody};
use super::messages::DEAD_LETTER_QUEUE;
use super::problem::{Problem, only};
use super::records::Came;
use super::{messages, read};

/// For how long the server knows what was imported: long enough to find out why an import stopped
/// and to repeat it after a weekend.
const WINDOW_MS: u64 = 7 * 24 * 3600 * 1000;
/// Bytes of bodies that come with one request and are kept in memory until the last is there.
const BODIES_MAX: u64 = 4 << 20;
/// Memory of a message and of an attribute, beside the line and the bodies: as they are read, and
/// as they are put.
const MESSAGE_BYTES: usize =
    size_of::<Head>() + size_of::<Put>() + size_of::<PutMore>() + size_of::<Past>();
const ATTR_BYTES: usize = size_of::<(Text, Text)>() + size_of::<Attr>();

/// The first line of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Records {
    /// Places in `messages`, and the tokens of what begins there.
    #[serde(default, deserialize_with = "few")]
    tokens: Vec<(usize, String)>,
    #[serde(deserialize_with = "few")]
    messages: Vec<Head>,
}

/// Reads a list of at most [`RECORDS_MAX`].
fn few<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    read::at_most(from, RECORDS_MAX, |_| format!("{RECORDS_MAX} at most"))
}

/// A batch of an import that was stored before with the same token.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Known)]
struct KnownBatch {
    /// The id of the first message of the batch.
    id: u64,
}

/// Ids of what was stored, in order; the same id twice: a repeat to a queue that looks at keys.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Imported {
    ids: Vec<u64>,
}

fn dedupe(token: &str) -> Dedupe {
    Dedupe {
        id: token.as_bytes().into(),
        window_ms: Some(WINDOW_MS),
        scope: Some(Scope::Window),
        on_repeat: Some(OnRepeat::Refuse),
    }
}

/// Stores messages with all their fields, all or none. The first line of the request is `{"tokens":
/// [[0, "..."]], "messages": [...]}`, with messages as the lines of an export file are, each with
/// `bytes`, the length of its body; the bodies follow. A request has at most 2048 messages, 1 MiB
/// of JSON and 4 MiB of bodies; a message of more than 64 KiB comes alone. Of `tokens`, of 1 to 255
/// bytes, each is that of a message, by its place from 0; all is refused as `duplicate` if one of
/// them comes again within a week. An error closes the connection, so that nothing behind it is
/// done.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/records", operation_id = "import_records", tag = "messages",
    params(("queue" = String, Path)),
    request_body(content_type = "application/octet-stream", content = Vec<u8>, description = "a line of JSON, then the bodies"),
    responses((status = 201, body = Imported),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn store(Of(api, requester, queue): OfQueue, request: Request) -> Answer {
    if !requester.may_to(Verb::Put, &queue) {
        return Err(Problem::refused(quintet_types::CommandError::NotPermitted));
    }
    let (mut came, length) = Came::of(&api, request)?;
    let (line, rest, _share) = came.line(&api).await?;
    let Records { tokens, messages } = read::parsed(&line)?;
    let attrs: usize = messages.iter().map(|head| head.attrs.len()).sum();
    let puts_bytes = line.len() + messages.len() * MESSAGE_BYTES + attrs * ATTR_BYTES;
    let _puts_room = api.room(puts_bytes as u64)?;
    let lens: Vec<u64> = messages.iter().map(|head| head.bytes).collect();
    let puts = messages.into_iter().enumerate();
    let puts = puts.map(|(at, head)| put(&requester, &queue, at, head));
    let mut puts: Vec<Put> = puts.collect::<Result<_, _>>()?;
    if puts.is_empty() {
        return Err(Problem::field("messages", "takes one message at least"));
    }
    for (at, token) in &tokens {
        if !messages::TOKEN_BYTES.contains(&token.len()) {
            return Err(Problem::field("tokens", "takes tokens of 1 to 255 bytes"));
        }
        let why = "the position of a token is behind the last message";
        let put = puts.get_mut(*at);
        let put = put.ok_or_else(|| Problem::field("tokens", why))?;
        put.more.get_or_insert_default().dedupe = Some(dedupe(token));
    }
    let all = length.saturating_sub(line.len() as u64);
    let mut sum = lens.iter();
    let sum = sum.try_fold(0, |sum: u64, &len| sum.checked_add(len));
    if sum != Some(all) {
        let why = "the sum of their bytes is not the length of the bodies that follow";
        return Err(Problem::field("messages", why));
    }
    let small = lens.iter().all(|&len| len <= messages::SMALL as u64);
    let _room = match &lens[..] {
        _ if small && all <= BODIES_MAX => {
            // As they came, and as they are put.
            let room = api.room(2 * all)?;
            let bytes = came.whole(all, &rest).await?;
            let mut left = &bytes[..];
            for (put, &len) in puts.iter_mut().zip(&lens) {
                let (body, more) = left.split_at(usize::try_from(len).unwrap_or(usize::MAX));
                (put.body, left) = (Body::new(body), more);
            }
            room
        }
        [_] => {
            puts[0].body = api.upload(&queue, all, rest, &mut came).await?;
            None
        }
        _ => {
            let detail = "a message of more than 64 KiB comes alone, and others have 4 MiB at most";
            return Err(Problem::field("messages", detail));
        }
    };
    let answer = api.ask(&requester, Command::PutMany(puts)).await?;
    let ids = only!(answer, (Outcome::PutMany(ids), _) => ids);
    let ids = ids.into_iter().map(|id| id.0).collect();
    Ok((StatusCode::CREATED, reply::document(&Imported { ids })).into_response())
}

/// True for requests whose errors close the connection: clients send the next ones before the
/// reply, and nothing behind an error is to be done.
pub fn is_import(method: &Method, path: &str) -> bool {
    *method == Method::POST && path.starts_with("/api/v1/queues/") && path.ends_with("/records")
}

fn put(requester: &Requester, queue: &Name, at: usize, head: Head) -> Result<Put, Problem> {
    let wrong =
        |field: &str, detail: &str| Err(Problem::field(&format!("messages[{at}].{field}"), detail));
    if Name::of_shown(&head.queue) != *queue {
        return wrong("queue", "names another queue than the address does");
    }
    if head.batch.is_some() {
        return wrong(
            "batch",
            "cannot be stored with its earlier history: leave it out",
        );
    }
    // Another user that could would read, and remove, the files of another message.
    let mut names = head.attrs.iter().map(|(name, _)| &name.0);
    if !requester.may_server() && names.any(|name| *name == FOLDER.as_bytes()) {
        let why =
            "the attribute dir is the server's own: a user with the right \"server\" may set it";
        return wrong("attrs", why);
    }
    // A redrive would bring it there with the rights of another user.
    let mut attrs = head.attrs.iter();
    let is_forged = attrs.any(|(name, from)| {
        name.0 == DEAD_LETTER_QUEUE.as_bytes() && !requester.may_to(Verb::Put, &Name::new(&from.0))
    });
    if is_forged {
        return wrong(
            "attrs",
            "dead_letter_queue is a queue into which you may not put",
        );
    }
    Ok(head.put())
}

/// Whether messages with this token were imported, within a week.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/imports/{token}", operation_id = "show_import", tag = "messages",
    params(("queue" = String, Path), ("token" = String, Path)), responses((status = 200, body = KnownBatch)))]
pub(super) async fn show(Of(api, requester, (queue, token)): OfNamed) -> Answer {
    let id = dedupe(&token).id;
    let command = Command::Remembered { queue, id };
    let id = only!(api.ask(&requester, command).await?, (Outcome::Put { id, .. }, _) => id.0);
    Ok(reply::document(&KnownBatch { id }))
}

/// Settings that a new queue begins with.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NewQueue {
    /// How long a lease of a message lasts that says nothing else.
    #[serde(deserialize_with = "super::read::duration_ms")]
    ttr_ms: Option<u64>,
    /// How long a message stays.
    #[serde(deserialize_with = "super::read::duration_ms")]
    ttl_ms: Option<u64>,
    /// How long a message waits before it is ready.
    #[serde(deserialize_with = "super::read::duration_ms")]
    delay_ms: Option<u64>,
    /// How messages with keys leave: `ordered` or `fair`.
    groups: Option<String>,
}

/// Creates a queue with these settings; 409 if it exists.
#[utoipa::path(post, path = "/api/v1/queues/{queue}", operation_id = "make_queue", tag = "queues",
    params(("queue" = String, Path)), request_body = NewQueue, responses((status = 201)))]
pub(super) async fn make(
    Of(api, requester, queue): OfQueue,
    RequestBody(new, _share): RequestBody<NewQueue>,
) -> Result<StatusCode, Problem> {
    let groups = match new.groups.as_deref() {
        Some("ordered") => Some(Groups::Ordered),
        Some("fair") => Some(Groups::Fair),
        Some(_) => return Err(Problem::field("groups", "takes ordered or fair")),
        None => None,
    };
    let overrides = Overrides {
        default_ttr_ms: new.ttr_ms,
        ttl_ms: new.ttl_ms,
        default_delay_ms: new.delay_ms.filter(|&ms| ms > 0),
        groups,
        ..Overrides::default()
    };
    let overrides = Box::new(overrides);
    api.ask(&requester, Command::Create { queue, overrides })
        .await?;
    Ok(StatusCode::CREATED)
}
