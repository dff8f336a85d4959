//! The texts of `SerializationException`: the wrong member, and its error.

use serde_json::error::Category;

use crate::whole::NOT_BASE64;

/// Words of the JSON library for a value, and ours.
const GIVEN: [(&str, &str); 7] = [
    ("boolean", "a boolean"),
    ("integer", "a number"),
    ("floating point", "a number"),
    ("string", "a string"),
    ("null", "null"),
    ("sequence", "a list"),
    ("map", "a structure"),
];

/// Words for a value that would fit.
const EXPECTED: [(&str, &str); 5] = [
    ("a string", "a string"),
    ("a whole number", "a whole number"),
    ("a list", "a list"),
    ("a map", "a structure"),
    ("struct ", "a structure"),
];

/// The text for a request that cannot be read. `member`: the path of the wrong member, if it is
/// known.
pub(crate) fn text(member: Option<&str>, error: &serde_json::Error) -> String {
    let words = error.to_string();
    if words.starts_with("recursion limit") {
        return "The body is nested too deeply.".to_owned();
    }
    if error.classify() != Category::Data {
        let (line, column) = (error.line(), error.column());
        return format!("The body is not valid JSON at line {line}, column {column}.");
    }
    if let Some(name) = within(&words, "duplicate field `", "`") {
        return format!("The member {name} is there twice.");
    }
    let member = member.map_or_else(
        || "The body has a wrong value".to_owned(),
        |member| format!("The member {member} has a wrong value"),
    );
    if words.starts_with(NOT_BASE64) {
        return format!("{member}: it is not valid base64.");
    }
    match types(&words) {
        Some((supplied, expected)) => format!("{member}: it takes {expected}, not {supplied}."),
        None => format!("{member}."),
    }
}

/// The types in "invalid type: integer `5`, expected a string at line 1 column 14".
fn types(words: &str) -> Option<(&'static str, &'static str)> {
    let (supplied, expected) = words
        .strip_prefix("invalid type: ")?
        .rsplit_once(", expected ")?;
    Some((ours(&GIVEN, supplied)?, ours(&EXPECTED, expected)?))
}

fn ours(list: &[(&str, &'static str)], words: &str) -> Option<&'static str> {
    let found = list.iter().find(|(theirs, _)| words.starts_with(*theirs));
    found.map(|(_, ours)| *ours)
}

/// The text between two others, the first of which it begins with.
fn within<'a>(words: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (inner, _) = words.strip_prefix(before)?.split_once(after)?;
    Some(inner)
}

#[cfg(test)]
mod tests {
    use crate::fault::Fault;
    use crate::input::Action;
    use crate::request::{Head, read};

    /// A SendMessage or another action with this body.
    fn action(action: &str, body: &str) -> Result<Action, Fault> {
        let target = format!("AmazonSQS.{action}");
        let head = Head {
            target: Some(&target),
            content_type: "application/x-amz-json-1.0",
            path: "/",
            ..Head::default()
        };
        read(&head, body.as_bytes()).expect("JSON").action
    }

    #[test]
    fn an_error_names_the_member_and_has_no_words_of_the_library() {
        for (action, body, says) in [
            (
                "SendMessage",
                r#"{"QueueUrl":5,"MessageBody":"x"}"#,
                "The member QueueUrl has a wrong value: it takes a string, not a number.",
            ),
            (
                "SendMessage",
                r#"{"DelaySeconds":[1]}"#,
                "The member DelaySeconds has a wrong value: it takes a whole number, not a list.",
            ),
            (
                "SendMessageBatch",
                r#"{"Entries":[{"Id":"a"},{"Id":true}]}"#,
                "The member Entries[1].Id has a wrong value: it takes a string, not a boolean.",
            ),
            (
                "SendMessage",
                r#"{"MessageAttributes":{"a":{"BinaryValue":"!"}}}"#,
                "The member MessageAttributes.a.BinaryValue has a wrong value: it is not valid \
                 base64.",
            ),
            (
                "SendMessage",
                r#"{"MessageAttributes":{"a":7}}"#,
                "The member MessageAttributes.a has a wrong value: it takes a structure, not a \
                 number.",
            ),
            (
                "SendMessage",
                "{\"QueueUrl\":",
                "The body is not valid JSON at line 1, column 12.",
            ),
        ] {
            let fault = self::action(action, body).expect_err(body);
            assert_eq!(fault.text, says, "{body}");
        }
    }

    #[test]
    fn members_that_an_action_does_not_have_are_ignored() {
        for (action, body) in [
            ("SendMessage", r#"{"Id":[1]}"#),
            ("SendMessageBatch", r#"{"Entries":[{"QueueUrl":{}}]}"#),
            ("DeleteMessage", r#"{"Id":1,"VisibilityTimeout":[]}"#),
            ("DeleteMessageBatch", r#"{"Entries":[{"QueueUrl":1}]}"#),
            ("ChangeMessageVisibility", r#"{"Id":{}}"#),
            (
                "ChangeMessageVisibilityBatch",
                r#"{"Entries":[{"QueueUrl":true}]}"#,
            ),
        ] {
            assert!(self::action(action, body).is_ok(), "{action} {body}");
        }
    }
}
