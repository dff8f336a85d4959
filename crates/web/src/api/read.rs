//! Reading requests: bodies, queries, names, versions.

use axum::extract::Request;
use hyper::{HeaderMap, Uri};
use quintet_engine::{ListState, Message, MessageId, Name, QueueId, Seen, State};
use serde::de::DeserializeOwned;

use super::problem::Problem;
use crate::app::{App, content_type};
use crate::form;
use crate::payer::Held;

/// Messages of a page at most.
const PAGE_MAX: u64 = 1000;

/// A JSON body; nothing counts as `{}`. Answers its share of memory as well.
///
/// # Errors
/// It is no JSON, too long or too slow, or a field is not what it should be.
pub(super) async fn body<T: DeserializeOwned>(
    app: &App,
    request: Request,
) -> Result<(T, Held), Problem> {
    let typed = content_type(request.headers()).map(str::to_owned);
    let (bytes, share) = form::whole(request, app.settings()).await?;
    if bytes.is_empty() {
        return Ok((parsed(b"{}")?, share));
    }
    if form::kind(typed.as_deref()) != form::Kind::Json {
        return Err(Problem::wrong_type());
    }
    Ok((parsed(&bytes)?, share))
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Which field is wrong is found by reading again, with the path kept.
    serde_json::from_slice(bytes).or_else(|_| located(bytes))
}

/// As [`parsed`]; an error names its field.
fn located<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner();
        let text = why.to_string();
        if !why.is_data() {
            return Problem::not_json(text);
        }
        // One that is missing or doubled is in the sentence, not in the path.
        let named = ["missing field `", "duplicate field `"];
        let named = named.iter().find_map(|says| text.strip_prefix(says));
        let named = named.and_then(|rest| rest.split('`').next());
        let field = match (path.as_str(), named) {
            (".", Some(name)) => name.to_owned(),
            (path, Some(name)) => format!("{path}.{name}"),
            (path, None) => path.to_owned(),
        };
        Problem::field(&field, text)
    })?;
    json.end()
        .map_err(|error| Problem::not_json(error.to_string()))?;
    Ok(value)
}

/// The fields of a query.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it: of these fields, each once but those of `many`.
    ///
    /// # Errors
    /// Another field, or one that is doubled.
    pub(super) fn of(uri: &Uri, known: &[&str], many: &[&str]) -> Result<Self, Problem> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let is_many = many.contains(&&*name);
            if !is_many && !known.contains(&&*name) {
                return Err(Problem::field(&name, "there is no such parameter"));
            }
            if !is_many && fields.iter().any(|(other, _)| *other == *name) {
                return Err(Problem::field(&name, "it is there twice"));
            }
            fields.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(fields))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self.0.iter();
        fields.filter_map(move |(field, value)| (field == name).then_some(value.as_str()))
    }

    /// A whole number from 0 to `most`.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, Problem> {
        let number = self.get(name).map(|text| {
            let number = text.parse::<u64>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| Problem::field(name, format!("a number from 0 to {most}")))
        });
        number.transpose()
    }
}

/// How many a page has at most, as `max` of the query says.
pub(super) fn page_size(query: &Query) -> Result<u32, Problem> {
    match query.number("max", PAGE_MAX)?.unwrap_or(100) {
        0 => Err(Problem::field(
            "max",
            format!("a number from 1 to {PAGE_MAX}"),
        )),
        max => Ok(u32::try_from(max).unwrap_or(u32::MAX)),
    }
}

/// A queue of the address: as it is shown everywhere, other bytes than
/// printable ASCII as `\xNN`.
pub(super) fn queue(text: &str) -> Result<Name, Problem> {
    let name = Name::of_shown(text);
    match name.is_possible() {
        true => Ok(name),
        false => Err(Problem::field("queue", "a name has 1 to 65535 bytes")),
    }
}

/// A message of the address.
pub(super) fn message(text: &str) -> Result<MessageId, Problem> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.map(MessageId)
        .ok_or_else(|| Problem::field("id", "an id is a number from 1 on"))
}

/// A state by its name.
pub(super) fn state(text: &str) -> Result<ListState, Problem> {
    Ok(match text {
        "ready" => ListState::Ready,
        "delayed" => ListState::Delayed,
        "reserved" => ListState::Reserved,
        "buried" => ListState::Buried,
        "prepared" => ListState::Prepared,
        "archived" => ListState::Archived,
        _ => {
            let states = "ready, delayed, reserved, buried, prepared or archived";
            return Err(Problem::field("state", states));
        }
    })
}

/// What is seen of a message, and its id, as one word: a lease's token, and
/// without the id the version that `ETag` tells.
pub(super) fn token(message: &Message) -> String {
    format!("{}.{}", message.id.0, version(message))
}

/// See [`token`].
pub(super) fn version(message: &Message) -> String {
    let seen = Seen::of(message);
    let Seen {
        queue,
        rank,
        place,
        state,
        reserves,
    } = seen;
    let state = match state {
        State::Prepared => "p",
        State::Ready => "r",
        State::Reserved => "l",
        State::Buried => "b",
        State::Done | State::Relayed => "a",
    };
    format!("{}-{rank}-{place}-{reserves}{state}", queue.0)
}

/// A lease by its token.
///
/// # Errors
/// It is no token.
pub(super) fn lease(token: &str) -> Result<(MessageId, Seen), Problem> {
    let read = || {
        let (id, version) = token.split_once('.')?;
        let mut parts = version.strip_suffix('l')?.splitn(3, '-');
        let queue = QueueId(parts.next()?.parse().ok()?);
        let rank = parts.next()?.parse().ok()?;
        // A place may be below zero.
        let (place, reserves) = parts.next()?.rsplit_once('-')?;
        let seen = Seen {
            queue,
            rank,
            place: place.parse().ok()?,
            state: State::Reserved,
            reserves: reserves.parse().ok()?,
        };
        Some((MessageId(id.parse().ok().filter(|id| *id > 0)?), seen))
    };
    read().ok_or_else(|| Problem::field("token", "this is no lease's token"))
}

/// The version that an edit is about, if the client says.
pub(super) fn if_match(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(hyper::header::IF_MATCH)?.to_str().ok()?;
    let value = value.trim();
    (value != "*").then(|| value.trim_matches('"').to_owned())
}
