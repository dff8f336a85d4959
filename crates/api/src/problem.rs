//! Why a request is not done, as `application/problem+json` (RFC 9457).

use std::num::NonZeroU64;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use quintet_client::shown::plain;
use quintet_client::{NoChange, NotSteered};
use quintet_types::{Class, CommandError, MessageId, Name};
use serde::Serialize;
use utoipa::ToSchema;

use super::reasons::detail;

/// Of a limit of an address or a user.
const TOO_MANY: &str = "too_many_requests";
/// The code for a lease that has ended; its message may be leased to another client.
pub(super) const LEASE_OVER: &str = "lease_over";

/// An error (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// A word for programs, the same in every version.
    pub code: &'static str,
    /// The status' own words.
    pub title: &'static str,
    /// The status of the reply, as a number.
    pub status: u16,
    /// Description of the error, for people.
    pub detail: String,
    /// The field of the body, the query or the address it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The message that was put before, where this one is a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub duplicate_of: Option<NonZeroU64>,
    /// The oldest position of events, where one is kept no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub oldest: Option<Box<String>>,
    /// For people: queues that may have been meant.
    #[serde(skip)]
    #[schema(ignore)]
    pub nearest: Box<[Name]>,
}

/// Problems that say the same each time: the status, the code and the description.
macro_rules! problems {
    ($($(#[$doc:meta])* $vis:vis $name:ident $status:ident $code:literal $detail:literal;)*) => {
        impl Problem {
            $($(#[$doc])*
            $vis fn $name() -> Self {
                Self::new(StatusCode::$status, $code, $detail)
            })*
        }
    };
}

problems! {
    /// 404: the address names nothing.
    pub no_such_page NOT_FOUND "no_such_address"
        "there is nothing at this address: GET /api/v1/openapi.json lists the addresses";
    pub(crate) wrong_method METHOD_NOT_ALLOWED "wrong_method"
        "this address has no such method: GET /api/v1/openapi.json lists the methods";
    pub(crate) wrong_type UNSUPPORTED_MEDIA_TYPE "wrong_content_type"
        "the body must be JSON: send content-type: application/json";
    /// 503: the server stops, and nothing was done.
    pub stopping SERVICE_UNAVAILABLE "stopping" "the server is stopping";
    pub(crate) too_many_tails SERVICE_UNAVAILABLE "too_many_tails"
        "16 queues are followed, which is the limit; one ends 30 s after its last request";
    pub(crate) too_many_uploads SERVICE_UNAVAILABLE "too_many_uploads"
        "too many large bodies arrive at once, from all clients or from this address: try again";
    pub(crate) too_many_polls SERVICE_UNAVAILABLE "too_many_polls"
        "too many requests wait, which max_connections of the listener limits: try again later";
    /// The message is another than the client has seen.
    pub(crate) changed PRECONDITION_FAILED "changed" "the message has changed: get it again";
    /// The settings are others than the client has seen.
    pub(crate) settings_changed PRECONDITION_FAILED "changed"
        "the settings have changed: get them again";
    /// A lease's token is of no lease there is.
    pub(crate) lease_over CONFLICT "lease_over" "the lease is over";
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            duplicate_of: None,
            oldest: None,
            nearest: Box::default(),
        }
    }

    /// A field is not what it should be.
    pub fn field(field: &str, detail: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::new(StatusCode::BAD_REQUEST, "bad_field", detail)
        }
    }

    /// `Host` names another server than this one.
    pub(crate) fn wrong_host(text: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "wrong_host", text)
    }

    /// The same, with the name of the queue if that does not exist.
    pub(crate) fn of_queue(self, queue: &Name) -> Self {
        if self.code != CommandError::QueueNotFound.code() {
            return self;
        }
        Self {
            detail: format!("there is no queue {queue}"),
            ..self
        }
    }

    /// The same, after so many messages.
    pub(crate) fn after(mut self, messages: u64) -> Self {
        if messages > 0 {
            self.detail += &format!(" (after {messages} messages, which are done)");
        }
        self
    }

    /// A schedule was not steered.
    pub(crate) fn not_steered(no: NotSteered) -> Self {
        let detail = no.to_string();
        match no {
            NotSteered::None { .. } => {
                Self::new(StatusCode::NOT_FOUND, "schedule_not_found", detail)
            }
            NotSteered::OfFile(_) => Self::new(StatusCode::CONFLICT, "in_configuration", detail),
            NotSteered::Changed => Self::new(StatusCode::PRECONDITION_FAILED, "changed", detail),
            NotSteered::TooMany(_) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "schedules_full", detail)
            }
            NotSteered::Bad(bad) => Self::field(bad.field, bad.why),
            NotSteered::Refused(command_error) => Self::refused(command_error),
        }
    }

    /// There is no schedule of a name.
    pub(crate) fn no_such_schedule(name: &str) -> Self {
        let (name, nearest) = (name.to_owned(), None);
        Self::not_steered(NotSteered::None { name, nearest })
    }

    /// The schedule is another than the client has seen.
    pub(crate) fn schedule_changed() -> Self {
        Self::not_steered(NotSteered::Changed)
    }

    pub(crate) fn no_such_connection(id: u64) -> Self {
        let detail = format!("there is no connection {id}");
        Self::new(StatusCode::NOT_FOUND, "no_such_address", detail)
    }

    pub(crate) fn no_such_worker(wid: &str) -> Self {
        let detail = format!("there is no worker {}", plain(wid.as_bytes()));
        Self::new(StatusCode::NOT_FOUND, "no_such_address", detail)
    }

    /// Reading the configuration again failed.
    pub(crate) fn not_reloaded(why: &str) -> Self {
        let detail = format!("not reloaded, nothing changed: {}", in_a_line(why));
        Self::new(StatusCode::CONFLICT, "not_reloaded", detail)
    }

    pub(crate) fn not_json(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "not_json", detail)
    }

    /// Nobody said what came of it.
    pub(crate) fn unknown() -> Self {
        Self::refused(CommandError::Unknown)
    }

    pub(crate) fn too_many_streams(most: usize) -> Self {
        let detail = format!(
            "{most} event streams are open, which is the limit max_streams of the listener"
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail)
    }

    /// The log does not have a position of events.
    pub(crate) fn position_gone(oldest: &str, detail: String) -> Self {
        Self {
            oldest: Some(Box::new(oldest.to_owned())),
            ..Self::new(StatusCode::GONE, "position_gone", detail)
        }
    }

    pub(crate) fn denied(why: &str) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "denied", why)
    }

    /// 500 with the code `internal`; `why` is its `detail`.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
    }

    /// A setting cannot be changed so.
    pub(crate) fn no_change(no: NoChange) -> Self {
        let described = match no.locked {
            true => Self::refused(CommandError::Locked),
            false => Self::field("", ""),
        };
        // Some sentences name the setting.
        let names = no.why.starts_with("unknown ") || no.why.contains(&no.key);
        Self {
            detail: match names {
                true => no.why,
                false => format!("{} {}", no.key, no.why),
            },
            field: Some(no.key),
            ..described
        }
    }

    /// Of a pause: the setting that the file locks is `paused`.
    pub(crate) fn of_pause(self) -> Self {
        match self.code == CommandError::Locked.code() {
            true => Self::no_change(NoChange::locked("paused")),
            false => self,
        }
    }

    /// Somebody works on the message.
    pub(crate) fn reserved(id: MessageId, holder: &str) -> Self {
        let detail = format!("message {} is reserved by {holder}", id.0);
        Self::new(StatusCode::CONFLICT, "reserved", detail)
    }

    /// Nobody works on the message.
    pub(crate) fn not_reserved(id: MessageId) -> Self {
        let detail = format!("message {} is not reserved", id.0);
        Self::new(StatusCode::CONFLICT, "not_reserved", detail)
    }

    /// 404: there is no such message.
    pub fn not_found() -> Self {
        Self::refused(CommandError::NotFound)
    }

    /// The end of a message is not known.
    pub(crate) fn no_trace(id: MessageId) -> Self {
        let detail = format!(
            "message {} is not known: it never existed, or more than ends_max messages have \
             ended since",
            id.0
        );
        Self {
            detail,
            ..Self::not_found()
        }
    }

    /// It may not be done, by any requester.
    pub fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// An answer to another question.
    pub fn unexpected() -> Self {
        Self::internal("the shards gave another answer")
    }

    /// The engine's no.
    pub fn refused(command_error: CommandError) -> Self {
        let status = match command_error.class() {
            Class::Absent => StatusCode::NOT_FOUND,
            Class::NotPermitted => StatusCode::FORBIDDEN,
            Class::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Class::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Class::Busy if matches!(command_error, CommandError::TokenUsed(_)) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Class::Busy => StatusCode::CONFLICT,
            Class::Malformed
                if matches!(
                    command_error,
                    CommandError::MessageTooLarge | CommandError::BatchTooLarge
                ) =>
            {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Class::Malformed => StatusCode::BAD_REQUEST,
            Class::Full
                if matches!(
                    command_error,
                    CommandError::TooManyWaiters
                        | CommandError::TooManyQueues
                        | CommandError::TooManyBatches
                        | CommandError::TooManyHeldKeys
                        | CommandError::UserQueues
                ) =>
            {
                StatusCode::TOO_MANY_REQUESTS
            }
            Class::Full => StatusCode::INSUFFICIENT_STORAGE,
        };
        let mut problem = Self::new(status, command_error.code(), detail(command_error));
        if let CommandError::Duplicate(id) = command_error {
            problem.duplicate_of = NonZeroU64::new(id.0);
        }
        problem
    }
}

impl From<quintet_http::Problem> for Problem {
    fn from(problem: quintet_http::Problem) -> Self {
        let no_memory = problem == quintet_http::Problem::NoMemory;
        if problem == quintet_http::Problem::Stopping {
            return Self::stopping();
        }
        let (status, text) = problem.status_and_text();
        let code = match status {
            StatusCode::UNAUTHORIZED => "login_needed",
            StatusCode::FORBIDDEN => "not_permitted",
            StatusCode::TOO_MANY_REQUESTS => TOO_MANY,
            StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
            StatusCode::REQUEST_TIMEOUT => "too_slow",
            StatusCode::SERVICE_UNAVAILABLE if no_memory => "no_memory",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            _ => "bad_request",
        };
        Self::new(status, code, text)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = serde_json::to_string(&self).unwrap_or_default();
        let typed = [(CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, typed, Body::from(json)).into_response();
        if [
            CommandError::Unavailable.code(),
            "too_many_streams",
            "too_many_uploads",
            TOO_MANY,
        ]
        .contains(&self.code)
        {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, soon);
        }
        // For the console, which makes a page of it.
        response.extensions_mut().insert(self);
        response
    }
}

/// Why a file was not understood, in a line, without what it quotes of the file: that may be
/// secret.
pub fn in_a_line(why: &str) -> String {
    let quotes = |line: &&str| {
        line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
            .starts_with('|')
    };
    let lines = why.lines().filter(|line| !quotes(line));
    let line = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    // "invalid type: integer `12345`, expected a string" quotes a value.
    let value = |before: &str| {
        let at = line.find(before)? + before.len();
        let end = line[at..].find(", expected")? + at;
        Some(format!("{}{}", &line[..at - 2], &line[end..]))
    };
    let cut = value("invalid type: ").or_else(|| value("invalid value: "));
    cut.unwrap_or(line)
}

/// The value in an answer of this kind; another kind ends the function with a problem.
macro_rules! only {
    ($answer:expr, $kind:pat => $value:expr) => {{
        let $kind = $answer else {
            return Err($crate::Problem::unexpected());
        };
        $value
    }};
}

pub(crate) use only;

#[cfg(test)]
mod tests {
    use super::in_a_line;

    #[test]
    fn a_reason_in_a_line_quotes_nothing_of_the_file() {
        let toml = "TOML parse error at line 2\n  |\n2 | secret = 12345\n  | ^\ninvalid type: integer `12345`, expected a string";
        let line = "TOML parse error at line 2 invalid type, expected a string";
        assert_eq!(in_a_line(toml), line);
        assert_eq!(in_a_line("no such file"), "no such file");
    }
}
