//! Which protocol a request is in, and what it asks for.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use quintet_types::Name;

use crate::fault::{Fault, Shape};
use crate::form::Form;
use crate::input::{Action, InputValue};
use crate::names;

/// The format of a request; the reply has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireFormat {
    /// AWS JSON 1.0.
    Json,
    /// Query, answered with XML.
    Query,
}

/// The part of a request before its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// GET, and not POST.
    pub get: bool,
    /// As it came, without the query.
    pub path: &'a str,
    /// The part behind the `?`.
    pub query: &'a str,
    /// `Content-Type`; empty: none.
    pub content_type: &'a str,
    /// `X-Amz-Target`.
    pub target: Option<&'a str>,
}

/// Prefix of `X-Amz-Target`.
const TARGET: &str = "AmazonSQS.";

/// The action of a request, or the error that answers it.
#[derive(Clone, PartialEq, Debug)]
pub struct ParsedRequest {
    /// How it is to be answered.
    pub format: WireFormat,
    pub action: Result<Action, Fault>,
}

/// Why there is nothing to answer in a protocol's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nowhere {
    /// There is nothing at this path.
    Path,
    /// A queue's path without an action.
    NoAction,
}

/// The queue whose path this is; `Ok(None)`: that of the service.
fn queue_of_path(path: &str) -> Result<Option<Cow<'_, str>>, Nowhere> {
    let mut parts = path
        .trim_start_matches('/')
        .trim_end_matches('/')
        .split('/');
    let parts: [Option<&str>; 5] = std::array::from_fn(|_| parts.next());
    let name = match parts {
        [Some(""), None, ..] | [None, ..] => return Ok(None),
        [
            Some("queue"),
            Some(_region),
            Some(_account),
            Some(name),
            None,
        ] => name,
        // `/queue/NAME`, or `/ACCOUNT/NAME`.
        [Some(_), Some(name), None, ..] => name,
        _ => return Err(Nowhere::Path),
    };
    Ok(Some(percent_decode_str(name).decode_utf8_lossy()))
}

fn has_action(head: &Head<'_>) -> bool {
    let mut fields = head.query.split('&');
    fields.any(|field| field.starts_with("Action="))
}

/// The protocol that a request is in.
pub(crate) fn format(head: &Head<'_>) -> WireFormat {
    const JSON: [&str; 3] = [
        "application/x-amz-json-1.0",
        "application/x-amz-json-1.1",
        "application/json",
    ];
    let media = head.content_type.split(';').next().unwrap_or_default();
    let media = media.trim();
    let is_json = JSON.iter().any(|json| media.eq_ignore_ascii_case(json));
    match is_json && !head.get && !has_action(head) {
        true => WireFormat::Json,
        false => WireFormat::Query,
    }
}

/// Reads a request.
///
/// # Errors
/// It is for nothing that is here.
pub fn read(head: &Head<'_>, body: &[u8]) -> Result<ParsedRequest, Nowhere> {
    let of_path = queue_of_path(head.path)?;
    let format = format(head);
    let action = match format {
        WireFormat::Json => json(head, body),
        WireFormat::Query if head.get && !has_action(head) => return Err(Nowhere::NoAction),
        WireFormat::Query => query(head, body),
    };
    let action = action.and_then(|mut action| {
        let Some(name) = of_path else {
            return Ok(action);
        };
        if matches!(action, Action::CreateQueue(_) | Action::ListQueues(_)) {
            return Err(Fault::no_action(action.name()));
        }
        if let Some(url) = action.queue_url()
            && url.is_none()
        {
            *url = Some(name.into_owned());
        }
        Ok(action)
    });
    Ok(ParsedRequest { format, action })
}

fn json(head: &Head<'_>, body: &[u8]) -> Result<Action, Fault> {
    let Some(target) = head.target else {
        return Err(
            Fault::new(Shape::UnknownOperation, "The request has no X-Amz-Target.")
                .with_status(404),
        );
    };
    let name = target.strip_prefix(TARGET).unwrap_or(target);
    let body = if body.is_empty() { b"{}" } else { body };
    // What reads members would take a list of their values as well.
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Fault::unreadable("The body is not a JSON object."));
    }
    Action::of(name, InputValue::Json(body))
}

fn query(head: &Head<'_>, body: &[u8]) -> Result<Action, Fault> {
    let mut form = Form::default();
    form.add(head.query.as_bytes())?;
    form.add(body)?;
    let name = form
        .get("Action")
        .ok_or_else(|| Fault::missing("Action"))?
        .to_owned();
    Action::of(&name, InputValue::Form(&form.members()))
}

/// The queue that an action names.
///
/// # Errors
/// It names none, or none that can be.
pub(crate) fn queue(url: &Option<String>) -> Result<&str, Fault> {
    names::of_url(required(url, "QueueUrl")?).ok_or_else(Fault::no_queue)
}

/// The same, and as the engine calls it.
///
/// # Errors
/// As of [`queue`].
pub(crate) fn named(url: &Option<String>) -> Result<(&str, Name), Fault> {
    queue(url).map(|name| (name, Name::new(name.as_bytes())))
}

/// A parameter that has to be given.
///
/// # Errors
/// It is not, or is empty.
pub(crate) fn required<'a>(
    supplied: &'a Option<String>,
    parameter: &str,
) -> Result<&'a str, Fault> {
    let text = supplied.as_deref().filter(|text| !text.is_empty());
    text.ok_or_else(|| Fault::missing(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_head(target: &str) -> Head<'_> {
        Head {
            path: "/",
            content_type: "application/x-amz-json-1.0",
            target: Some(target),
            ..Head::default()
        }
    }

    fn refused(parsed: Result<ParsedRequest, Nowhere>) -> (WireFormat, Fault) {
        let parsed = parsed.expect("a protocol");
        (parsed.format, parsed.action.expect_err("an error"))
    }

    /// Case 5 of the conformance cases.
    #[test]
    fn actions_that_are_not_there_and_bodies_that_cannot_be_read() {
        let without = Head {
            target: None,
            ..json_head("")
        };
        let (format, fault) = refused(read(&without, b"{}"));
        assert_eq!((format, fault.json_status()), (WireFormat::Json, 404));
        let (_, fault) = refused(read(&json_head("AmazonSQS.Nope"), b"{}"));
        assert_eq!(
            (fault.shape, fault.json_status()),
            (Shape::UnknownOperation, 400)
        );
        let form = Head {
            path: "/",
            content_type: "application/x-www-form-urlencoded",
            ..Head::default()
        };
        let (format, fault) = refused(read(&form, b"Action=Nope"));
        assert_eq!(
            (format, fault.shape.code()),
            (WireFormat::Query, "InvalidAction")
        );
        let (_, fault) = refused(read(&form, b"Version=1"));
        assert_eq!(fault.shape, Shape::MissingParameter);
        for body in [
            "{",
            "",
            "[]",
            "7",
            "{\"QueueUrl\":5,\"MessageBody\":\"x\"}",
            &"[".repeat(9999),
        ] {
            let parsed = read(&json_head("AmazonSQS.SendMessage"), body.as_bytes());
            let parsed = parsed.expect("JSON");
            match body {
                "" => assert!(parsed.action.is_ok()),
                _ => assert_eq!(
                    parsed.action.expect_err(body).shape,
                    Shape::Serialization,
                    "{body}"
                ),
            }
        }
    }

    /// An error has no memory of its own.
    #[test]
    fn an_error_does_not_repeat_all_that_it_is_about() {
        let form = Head {
            path: "/",
            content_type: "application/x-www-form-urlencoded",
            ..Head::default()
        };
        let name = "é".repeat(1 << 20);
        let (_, fault) = refused(read(&form, format!("Action={name}").as_bytes()));
        assert_eq!(fault.shape, Shape::UnknownOperation);
        assert!(fault.text.starts_with("The action é"));
        // The last character is whole: the words begin with eleven of one byte.
        assert_eq!(fault.text.len(), (4 << 10) - 1);
        assert_eq!(Fault::handle(&name).text.len(), 4 << 10);
    }

    #[test]
    fn a_queues_path_is_its_url() {
        for path in [
            "/000000000000/q",
            "/queue/q",
            "/queue/us-east-1/000000000000/q",
            "/1/q/",
        ] {
            let head = Head {
                path,
                ..json_head("AmazonSQS.PurgeQueue")
            };
            let mut action = read(&head, b"{}").expect("read").action.expect("an action");
            assert_eq!(
                action.queue_url().expect("named").as_deref(),
                Some("q"),
                "{path}"
            );
            let body = b"{\"QueueUrl\":\"other\"}";
            let mut action = read(&head, body).expect("read").action.expect("an action");
            assert_eq!(action.queue_url().expect("named").as_deref(), Some("other"));
            let lists = Head {
                target: Some("AmazonSQS.ListQueues"),
                ..head
            };
            assert_eq!(
                refused(read(&lists, b"{}")).1.shape,
                Shape::UnknownOperation
            );
        }
        for path in ["/a/b/c", "/queue/a/b/c/d", "/x"] {
            let head = Head {
                path,
                ..json_head("AmazonSQS.PurgeQueue")
            };
            assert_eq!(read(&head, b"{}"), Err(Nowhere::Path), "{path}");
        }
    }

    #[test]
    fn query_comes_by_get_too_and_the_body_wins() {
        let get = Head {
            get: true,
            path: "/000000000000/q",
            query: "Action=SendMessage&MessageBody=x%20y",
            ..Head::default()
        };
        let parsed = read(&get, b"").expect("read");
        let Ok(Action::SendMessage(send)) = parsed.action else {
            panic!("{parsed:?}");
        };
        assert_eq!(send.message_body.as_deref(), Some("x y"));
        let bare = Head { query: "", ..get };
        assert_eq!(read(&bare, b""), Err(Nowhere::NoAction));
        let post = Head {
            get: false,
            content_type: "application/x-www-form-urlencoded",
            ..get
        };
        let parsed = read(&post, b"MessageBody=z").expect("read");
        let Ok(Action::SendMessage(send)) = parsed.action else {
            panic!("{parsed:?}");
        };
        assert_eq!(send.message_body.as_deref(), Some("z"));
    }
}
