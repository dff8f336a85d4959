//! Reading requests: bodies, queries, names, versions.

use std::fmt;
use std::marker::PhantomData;

use axum::extract::Request;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::{HeaderMap, Uri};
use md5::{Digest as _, Md5};
use percent_encoding::percent_decode_str;
use quintet_types::{
    BatchId, By, ByName, Command, ListState, Message, MessageId, MessageVersion, Name, NamedAction,
    QueueId, State, Wait,
};
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor,
};
use serde_json::Value;

use super::problem::Problem;
use quintet_control::plain;
use quintet_http::{App, RequestMemory, Whole, content_type, form};

/// A request waits so long at most, ms.
pub(super) const WAIT_MAX_MS: u64 = 60_000;
/// A pause, delay or lifetime lasts so long at most, ms, as the longest interval of a schedule.
pub const DURATION_MAX_MS: u64 = 3660 * 86_400_000;
/// Messages of a page at most.
const PAGE_MAX: u64 = 1000;

/// Error for a cursor that this server did not make.
pub(super) const NOT_A_CURSOR: &str =
    "this is not a cursor: use \"cursor\" of the page before, or leave it out for the first page";
/// Error for the id of a batch.
pub(super) const NOT_A_BATCH: &str =
    "takes the id of a batch: b- and 16 hexadecimal digits, such as b-0000000000000007";
/// Error for the name of a queue.
pub(super) const NOT_A_QUEUE: &str = "takes the name of a queue, 1 to 65535 bytes";

/// A JSON body; nothing counts as `{}`. Answers its share of memory as well.
///
/// # Errors
/// It is no JSON, too long or too slow, or a field is not what it should be.
pub(crate) async fn body<T: DeserializeOwned>(
    app: &App,
    request: Request,
) -> Result<(T, RequestMemory), Problem> {
    let (bytes, share) = bytes(app, request).await?;
    Ok((parsed(&bytes)?, share))
}

/// As [`body`], with the [`sum`] of the JSON.
///
/// # Errors
/// As [`body`].
pub(super) async fn summed<T: DeserializeOwned>(
    app: &App,
    request: Request,
) -> Result<(T, u64, RequestMemory), Problem> {
    let (bytes, share) = bytes(app, request).await?;
    Ok((parsed(&bytes)?, sum(&bytes), share))
}

async fn bytes(app: &App, request: Request) -> Result<Whole, Problem> {
    let typed = content_type(request.headers()).map(str::to_owned);
    let (bytes, share) = form::whole(request, app.settings()).await?;
    if bytes.is_empty() {
        return Ok((Bytes::from_static(b"{}"), share));
    }
    if form::kind(typed.as_deref()) != form::Kind::Json {
        return Err(Problem::wrong_type());
    }
    Ok((bytes, share))
}

/// A number that two requests share if their JSON says the same, whatever the order of fields, the
/// white space and the escapes; never 0. The log keeps it, so every version has to compute the
/// same.
pub(super) fn sum(json: &[u8]) -> u64 {
    let mut value: Value = serde_json::from_slice(json).unwrap_or_default();
    value.sort_all_objects();
    let digest = Md5::digest(value.to_string());
    let first = digest.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first).max(1)
}

pub(super) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Which field is wrong is found by reading again, with the path kept.
    serde_json::from_slice(bytes).or_else(|_| located(bytes))
}

/// As [`parsed`]; an error names its field.
fn located<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner();
        let mut text = why.to_string();
        if text.starts_with("unknown field `rank`") {
            text = "rank is called priority now".to_owned();
        }
        if !why.is_data() {
            return Problem::not_json(format!("the body is not JSON: {text}"));
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
        let mut explained = plain(&text);
        if field == "." {
            explained = format!("the body {explained}");
        }
        Problem::field(&field, explained)
    })?;
    json.end()
        .map_err(|error| Problem::not_json(format!("the body is not JSON: {error}")))?;
    Ok(value)
}

/// Messages of one put at most.
const PUTS_MAX: usize = 1000;

/// Error for a put of another number of messages.
pub(super) fn not_so_many(count: usize) -> String {
    format!("takes 1 to {PUTS_MAX} messages; not {count}")
}

/// Reads as many messages as a put takes; for `deserialize_with`.
///
/// # Errors
/// There are more; or one is wrong.
pub(super) fn few<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(from, PUTS_MAX, not_so_many)
}

/// Reads a list of `most`; those behind them are only counted.
///
/// # Errors
/// There are more, as `too_many` says of their number; or one is wrong.
pub(super) fn at_most<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    most: usize,
    too_many: fn(usize) -> String,
) -> Result<Vec<T>, D::Error> {
    struct Read<T>(usize, fn(usize) -> String, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let Self(most, too_many, _) = self;
            let mut few = Vec::new();
            while few.len() < most {
                match list.next_element()? {
                    Some(one) => few.push(one),
                    None => return Ok(few),
                }
            }
            let mut count = few.len();
            while list.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            match count > most {
                true => Err(A::Error::custom(too_many(count))),
                false => Ok(few),
            }
        }
    }

    from.deserialize_seq(Read(most, too_many, PhantomData))
}

/// Reads a duration; for `deserialize_with`.
///
/// # Errors
/// It is longer than [`DURATION_MAX_MS`].
pub(super) fn duration_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let ms = Option::deserialize(from)?;
    within(ms).map_err(D::Error::custom)?;
    Ok(ms)
}

/// # Errors
/// The duration of a field is longer than [`DURATION_MAX_MS`].
pub(super) fn duration(field: &str, ms: Option<u64>) -> Result<(), Problem> {
    within(ms).map_err(|why| Problem::field(field, why))
}

fn within(ms: Option<u64>) -> Result<(), String> {
    match ms {
        Some(ms) if ms > DURATION_MAX_MS => Err(format!(
            "takes at most {DURATION_MAX_MS} ms, which is 3660 days; not {ms}"
        )),
        Some(_) | None => Ok(()),
    }
}

/// The fields of a query.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it: of these fields, each once but those of `many`.
    ///
    /// # Errors
    /// Another field, or one that is doubled.
    pub(crate) fn of(uri: &Uri, known: &[&str], many: &[&str]) -> Result<Self, Problem> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let is_many = many.contains(&&*name);
            if !is_many && !known.contains(&&*name) {
                return Err(Problem::field(&name, no_parameter(known, many)));
            }
            if !is_many && fields.iter().any(|(other, _)| *other == *name) {
                return Err(Problem::field(&name, "this parameter is given twice"));
            }
            fields.push((name.into_owned(), value.into_owned()));
        }
        // They were read with U+FFFD in place of what is no text.
        let is_text = |part: &str| percent_decode_str(part).decode_utf8().is_ok();
        for field in uri.query().unwrap_or_default().split('&') {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            if !is_text(name) || !is_text(value) {
                let name = percent_decode_str(name).decode_utf8_lossy();
                let detail =
                    "escaped bytes (%NN) are UTF-8; key_base64 and name_base64 take others";
                return Err(Problem::field(&name, detail));
            }
        }
        Ok(Self(fields))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self.0.iter();
        fields.filter_map(move |(field, value)| (field == name).then_some(value.as_str()))
    }

    /// True or false; left out: false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::field(name, "takes true or false")),
        }
    }

    /// A whole number from 0 to `most`.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, Problem> {
        let number = self.get(name).map(|text| {
            let number = text.parse::<u64>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| Problem::field(name, range(0, most)))
        });
        number.transpose()
    }
}

/// Error for a number outside its range.
fn range(least: u64, most: u64) -> String {
    match most {
        u64::MAX => format!("takes a whole number from {least} on"),
        most => format!("takes a whole number from {least} to {most}"),
    }
}

/// Error for a parameter that a request does not have.
fn no_parameter(known: &[&str], many: &[&str]) -> String {
    let all = [known, many].concat().join(", ");
    match all.is_empty() {
        true => "there is no such parameter: this request takes none".to_owned(),
        false => format!("there is no such parameter; known are {all}"),
    }
}

/// How many a page has at most, as `max` of the query says.
pub(super) fn page_size(query: &Query) -> Result<u32, Problem> {
    match query.number("max", PAGE_MAX) {
        Err(_) | Ok(Some(0)) => Err(Problem::field("max", range(1, PAGE_MAX))),
        Ok(max) => Ok(u32::try_from(max.unwrap_or(100)).unwrap_or(u32::MAX)),
    }
}

/// The same for lists that call it `limit`.
pub(super) fn limit(query: &Query) -> Result<u32, Problem> {
    match query.number("limit", PAGE_MAX) {
        Err(_) | Ok(Some(0)) => Err(Problem::field("limit", "takes a number from 1 to 1000")),
        Ok(max) => Ok(u32::try_from(max.unwrap_or(100)).unwrap_or(u32::MAX)),
    }
}

/// A queue of the address: as it is shown everywhere, other bytes than
/// printable ASCII as `\xNN`.
pub(super) fn queue(text: &str) -> Result<Name, Problem> {
    let name = Name::of_shown(text);
    match name.is_possible() {
        true => Ok(name),
        false => Err(Problem::field("queue", NOT_A_QUEUE)),
    }
}

/// A message of the address.
pub(super) fn message(text: &str) -> Result<MessageId, Problem> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.map(MessageId)
        .ok_or_else(|| Problem::field("id", "the id of a message is a number from 1 on"))
}

/// A connection of the address.
pub(super) fn connection(text: &str) -> Result<u64, Problem> {
    let id = text.parse();
    id.map_err(|_| Problem::field("id", "the id of a connection is a number"))
}

/// A field gives a longer wait than [`WAIT_MAX_MS`].
pub(super) fn wait_too_long(field: &str, ms: u64) -> Problem {
    Problem::field(field, format!("takes at most {WAIT_MAX_MS} ms; not {ms}"))
}

/// How long a request waits, as its field `wait_ms` says.
pub(super) fn wait(ms: u64) -> Result<Wait, Problem> {
    match ms {
        0 => Ok(Wait::No),
        1..=WAIT_MAX_MS => Ok(Wait::For(ms)),
        _ => Err(wait_too_long("wait_ms", ms)),
    }
}

/// The command for the reserved message of this name; of several the one whose lease has run
/// longest.
pub(super) fn by_name(queue: Name, name: String, by: By, action: NamedAction) -> Command {
    let queue = Some(queue);
    let name = name.into_bytes().into();
    Command::ByName(Box::new(ByName {
        queue,
        name,
        by,
        action,
    }))
}

/// The batch of a filter.
pub(super) fn batch(text: Option<&str>) -> Result<Option<BatchId>, Problem> {
    match text.map(BatchId::parse) {
        Some(None) => Err(Problem::field("batch", NOT_A_BATCH)),
        batch => Ok(batch.flatten()),
    }
}

/// The bytes of a field, which is given as text or in base64.
pub(super) fn bytes_of(
    name: &str,
    text: Option<&str>,
    base64: Option<&str>,
) -> Result<Option<Box<[u8]>>, Problem> {
    let Some(base64) = base64 else {
        return Ok(text.map(|text| text.as_bytes().into()));
    };
    if text.is_some() {
        let detail = format!("goes without {name}_base64: give one of both");
        return Err(Problem::field(name, detail));
    }
    match BASE64_STANDARD.decode(base64) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) => {
            let detail = format!("takes base64 with padding (RFC 4648): {error}");
            Err(Problem::field(&format!("{name}_base64"), detail))
        }
    }
}

/// A state by its name.
pub(super) fn state(text: &str) -> Result<ListState, Problem> {
    let state = ListState::ALL
        .into_iter()
        .find(|state| state.word() == text);
    let states = "takes ready, delayed, reserved, buried, prepared or archived";
    state.ok_or_else(|| Problem::field("state", states))
}

/// The seen state of a message, and its id, as one word: a lease's token, and without the id the
/// version that `ETag` shows.
pub(super) fn token(message: &Message) -> String {
    format!("{}.{}", message.id.0, version(message))
}

/// See [`token`].
pub fn version(message: &Message) -> String {
    let seen = MessageVersion::of(message);
    let MessageVersion {
        queue,
        priority,
        position,
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
    format!("{}-{priority}-{position}-{reserves}{state}", queue.0)
}

/// A lease by its token.
///
/// # Errors
/// It is no token.
pub(super) fn lease(token: &str) -> Result<(MessageId, MessageVersion), Problem> {
    let read = || {
        let (id, version) = token.split_once('.')?;
        let mut parts = version.strip_suffix('l')?.splitn(3, '-');
        let queue = QueueId(parts.next()?.parse().ok()?);
        let priority = parts.next()?.parse().ok()?;
        // A place may be below zero.
        let (position, reserves) = parts.next()?.rsplit_once('-')?;
        let seen = MessageVersion {
            queue,
            priority,
            position: position.parse().ok()?,
            state: State::Reserved,
            reserves: reserves.parse().ok()?,
        };
        Some((MessageId(id.parse().ok().filter(|id| *id > 0)?), seen))
    };
    read().ok_or_else(|| {
        Problem::field(
            "token",
            "this is not the token of a lease: use \"lease\" of a reply to reserve",
        )
    })
}

/// The version that an edit is about, if the client says.
pub(super) fn if_match(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(hyper::header::IF_MATCH)?.to_str().ok()?;
    let value = value.trim();
    (value != "*").then(|| value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::{DURATION_MAX_MS, Query, page_size, parsed, sum};
    use crate::types::{PauseFor, Puts};

    #[test]
    fn durations_have_a_bound_and_errors_name_it() {
        fn read<T: DeserializeOwned>(json: &str, ms: u64) -> Result<(), (Option<String>, String)> {
            let json = json.replace("MS", &ms.to_string());
            let read = parsed::<T>(json.as_bytes());
            read.map(drop)
                .map_err(|problem| (problem.field, problem.detail))
        }
        let (most, over) = (DURATION_MAX_MS, DURATION_MAX_MS + 1);
        let wrong = |field: &str| -> Result<(), _> {
            let detail = format!("takes at most {most} ms, which is 3660 days; not {over}");
            Err((Some(field.to_owned()), detail))
        };
        for field in ["delay_ms", "ttl_ms", "ttr_ms"] {
            let json = format!(r#"{{"messages": [{{"{field}": MS}}]}}"#);
            assert_eq!(read::<Puts>(&json, most), Ok(()));
            assert_eq!(
                read::<Puts>(&json, over),
                wrong(&format!("messages[0].{field}"))
            );
        }
        let pause = r#"{"for_ms": MS}"#;
        assert_eq!(read::<PauseFor>(pause, most), Ok(()));
        assert_eq!(read::<PauseFor>(pause, over), wrong("for_ms"));
        assert_eq!(read::<PauseFor>("{}", 0), Ok(()));
    }

    /// A list that is too long takes no memory: its end is not read as messages.
    #[test]
    fn messages_beyond_the_limit_are_only_counted() {
        let read = |jsons: &[&str]| {
            let json = format!("{{\"messages\": [{}]}}", jsons.join(","));
            let puts = parsed::<Puts>(json.as_bytes());
            puts.map(|puts| puts.messages.len())
                .map_err(|problem| (problem.field, problem.detail))
        };
        assert_eq!(read(&["{}"; 1000]), Ok(1000));
        for more in ["{}", "5"] {
            let refused = read(&[&["{}"; 1000][..], &[more; 2]].concat());
            let detail = "takes 1 to 1000 messages; not 1002".to_owned();
            assert_eq!(refused, Err((Some("messages".to_owned()), detail)));
        }
        assert!(read(&["{}", "5"]).is_err());
    }

    #[test]
    fn a_page_has_1_to_1000_and_errors_say_so() {
        let size = |query: &str| {
            let uri = format!("/x?{query}").parse::<hyper::Uri>();
            let uri = uri.expect("an address");
            let query = Query::of(&uri, &["max"], &[]).unwrap_or_else(|_| panic!("{query}"));
            page_size(&query).map_err(|problem| problem.detail)
        };
        for (query, wanted) in [("", 100), ("max=1", 1), ("max=1000", 1000)] {
            assert_eq!(size(query), Ok(wanted), "{query}");
        }
        let wrong = Err("takes a whole number from 1 to 1000".to_owned());
        for query in ["max=0", "max=1001", "max=x", "max="] {
            assert_eq!(size(query), wrong, "{query}");
        }
    }

    /// The log keeps these numbers: a version that computes others refuses requests that are
    /// repeats.
    #[test]
    fn the_sum_of_a_request_never_changes() {
        for (json, expected) in [
            ("{}", 11_065_708_854_893_574_736),
            (
                r#"{"messages":[{"body":"a"},{"body":"b"}]}"#,
                17_559_483_043_475_740_258,
            ),
            (
                r#"{"messages":[{"body":"\u00e9\u0001\"/","rank":4294967295,"headers":{"b":"2","a":"1"}}]}"#,
                18_204_764_859_064_490_495,
            ),
            (
                r#"{"messages":[{"body_base64":"/wA=","delay_ms":0,"tracked":true,"key":null}]}"#,
                7_219_546_074_376_468_650,
            ),
        ] {
            assert_eq!(sum(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn equal_requests_have_one_sum() {
        let first =
            sum(br#"{"messages":[{"body":"\u0061","headers":{"a":"1","b":"2"},"priority":1}]}"#);
        let same =
            br#" { "messages": [ {"priority":1, "headers":{"b":"2","a":"1"}, "body":"a"} ] } "#;
        assert_eq!(sum(same), first);
        for other in [
            r#"{"messages":[{"body":"a","headers":{"a":"1","b":"2"},"priority":2}]}"#,
            r#"{"messages":[{"body":"a","headers":{"a":"2","b":"1"},"priority":1}]}"#,
            r#"{"messages":[{"body":"a","headers":{"a":"1"},"priority":1}]}"#,
            r#"{"messages":[{"body":"a","headers":{"a":"1","b":"2"},"priority":1,"key":null}]}"#,
        ] {
            assert_ne!(sum(other.as_bytes()), first, "{other}");
        }
    }
}
