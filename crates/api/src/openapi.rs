//! The OpenAPI document, made from the handlers and their types.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::Value;
use utoipa::OpenApi;

use super::operations::Document;
use quintet_http::reply;

/// `/api/v1/openapi.json`.
pub(crate) async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| whole().to_string());
    reply::written(TEXT.clone())
}

fn whole() -> Value {
    let document = serde_json::to_value(Document::openapi());
    let mut document = document.expect("the document is JSON");
    problems(&mut document);
    whole_numbers(&mut document);
    optional_bodies(&mut document);
    telling_ids(&mut document);
    ranges(&mut document);
    document
}

/// Limits of fields beyond their types, by schema and field.
const FIELDS: &[(&str, &str, &str)] = &[
    ("Act", "state", STATES),
    ("Act", "grace_ms", GRACE),
    ("Cancel", "grace_ms", GRACE),
    ("Changes", "body_base64", BASE64),
    ("Changes", "delay_ms", DURATION),
    ("Child", "name", NAME),
    ("Dedupe", "id", KEY),
    ("Dedupe", "window_ms", DURATION),
    ("Extend", "lease_ms", LEASE),
    ("Finish", "hold_key_ms", LEASE),
    ("Finish", "result", r#"{"maxLength": 65536}"#),
    ("HoldFor", "hold_ms", GRACE),
    ("NewCallback", "body_base64", BASE64),
    ("NewCallback", "queue", NAME),
    ("NewCallback", "ttr_ms", DURATION),
    ("NewMessage", "after", r#"{"maxItems": 1000}"#),
    ("NewMessage", "body_base64", BASE64),
    ("NewMessage", "correlation_id", NAME_255),
    ("NewMessage", "delay_ms", DURATION),
    ("NewMessage", "key", KEY),
    ("NewMessage", "reply_to", NAME_255),
    ("NewMessage", "name", NAME_255),
    ("NewMessage", "ttl_ms", DURATION),
    ("NewMessage", "ttr_ms", DURATION),
    ("NewQueue", "delay_ms", DURATION),
    ("NewQueue", "ttl_ms", DURATION),
    ("NewQueue", "ttr_ms", DURATION),
    ("PauseFor", "for_ms", DURATION),
    ("Progress", "percent", r#"{"minimum": 0, "maximum": 100}"#),
    ("Puts", "messages", r#"{"minItems": 1, "maxItems": 1000}"#),
    ("Puts", "wait_ms", WAIT),
    ("Reserve", "lease_ms", LEASE),
    ("Release", "delay_ms", DURATION),
    ("Release", "hold_key_ms", LEASE),
    ("Reserve", "linger_ms", WAIT),
    ("Reserve", "max", HUNDRED),
    ("Reserve", "min", HUNDRED),
    ("Reserve", "wait_ms", WAIT),
    ("ScheduleSpec", "body_base64", BASE64),
    ("ScheduleSpec", "count", r#"{"minimum": 1}"#),
    ("ScheduleSpec", "every_ms", EVERY),
    ("ScheduleSpec", "queue", NAME),
    ("Target", "to", NAME),
];
/// The same of parameters, by where they stand; of those of several addresses in each.
const PARAMETERS: &[(&str, &str, &str)] = &[
    ("Idempotency-Key", "header", NAME_255),
    ("limit", "query", PAGE),
    ("max", "query", PAGE),
    ("name", "path", NAME),
    ("queue", "path", NAME),
    ("state", "query", STATES),
    ("wait_ms", "query", WAIT),
];
const BASE64: &str = r#"{"contentEncoding": "base64"}"#;
const LEASE: &str = r#"{"minimum": 1, "maximum": 604800000}"#;
const GRACE: &str = r#"{"minimum": 0, "maximum": 604800000}"#;
const WAIT: &str = r#"{"minimum": 0, "maximum": 60000}"#;
const HUNDRED: &str = r#"{"minimum": 1, "maximum": 100}"#;
const EVERY: &str = r#"{"minimum": 1000, "maximum": 316224000000}"#;
const DURATION: &str = r#"{"minimum": 0, "maximum": 316224000000}"#;
const KEY: &str = r#"{"maxLength": 65535}"#;
const NAME_255: &str = r#"{"minLength": 1, "maxLength": 255}"#;
const NAME: &str = r#"{"minLength": 1}"#;
const PAGE: &str = r#"{"minimum": 1, "maximum": 1000}"#;
const STATES: &str =
    r#"{"examples": ["ready", "delayed", "reserved", "buried", "prepared", "archived"]}"#;

fn ranges(document: &mut Value) {
    let add = |schema: &mut Value, range: &str| {
        let range: Value = serde_json::from_str(range).unwrap_or_default();
        if let (Some(schema), Value::Object(range)) = (schema.as_object_mut(), range) {
            schema.extend(range);
        }
    };
    for (schema, field, range) in FIELDS {
        let schema = &mut document["components"]["schemas"][schema];
        if let Some(field) = schema["properties"].get_mut(field) {
            add(field, range);
        }
    }
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let operations = paths.filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        let all = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut);
        for parameter in all.into_iter().flatten() {
            let (name, place) = (&parameter["name"], &parameter["in"]);
            let known = |(known, at, _): &&(&str, &str, &str)| name == known && place == at;
            if let Some((_, _, range)) = PARAMETERS.iter().find(known) {
                add(&mut parameter["schema"], range);
            }
        }
    }
}

/// Any operation may end in a problem: what one of them says of that is copied to the others.
fn problems(document: &mut Value) {
    let problem = document["paths"]["/api/v1/attention"]["get"]["responses"]["4XX"].clone();
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let operations = paths.filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        operation["responses"]["4XX"] = problem.clone();
    }
}

/// The types say `int64` of numbers up to 2^64, which would end at half of that; so of `int32`.
fn whole_numbers(value: &mut Value) {
    if let Some(object) = value.as_object_mut()
        && object.get("minimum").is_some_and(|least| least == 0)
        && let Some(format) = object.get("format").and_then(Value::as_str)
    {
        let most = if format == "int64" {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        object.remove("format");
        object.insert("maximum".to_owned(), most.into());
    }
    match value {
        Value::Object(object) => object.values_mut().for_each(whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// No body counts as `{}`, so it is needed only where a field is.
fn optional_bodies(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    let needs = |body: &Value| {
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        let name = schema.as_str().and_then(|path| path.rsplit('/').next());
        name.is_none_or(|name| schemas[name].get("required").is_some())
    };
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let operations = paths.filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        if let Some(body) = operation.get_mut("requestBody")
            && !needs(body)
        {
            body["required"] = Value::Bool(false);
        }
    }
}

/// Generated clients name their functions by the ids of operations, so no two
/// have one. An id is the handler's name, and if that is one word, such as
/// `list`, what it is done to by the address: `listQueues`. Where that tells
/// nothing `operation_id` beside the handler says the words.
fn telling_ids(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, operations) in paths {
        for operation in operations.as_object_mut().into_iter().flatten() {
            let id = &mut operation.1["operationId"];
            let name = id.as_str().unwrap_or_default();
            *id = match name.contains('_') {
                true => camel_case(name),
                false => camel_case(&format!("{name}_{}", thing(path, name))),
            }
            .into();
        }
    }
}

/// Subject of an operation: the last word of its address but for the `act` itself, of one where a
/// parameter says which.
fn thing(path: &str, act: &str) -> String {
    let words: Vec<&str> = path.split('/').collect();
    let is_word = |word: &&str| !word.starts_with('{') && *word != act;
    let Some(last) = words.iter().rposition(is_word) else {
        return String::new();
    };
    let one = words
        .get(last + 1)
        .is_some_and(|next| next.starts_with('{'));
    let word = words[last];
    let single = word.strip_suffix("es").filter(|word| word.ends_with("ch"));
    match one {
        true => single.or(word.strip_suffix('s')).unwrap_or(word).to_owned(),
        false => word.to_owned(),
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut id, word| {
        let mut letters = word.chars();
        id.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        id.push_str(letters.as_str());
        id
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::whole;

    #[test]
    fn fields_have_their_allowed_values() {
        let document = whole();
        for (schema, field, range) in super::FIELDS {
            let of = &document["components"]["schemas"][schema]["properties"][field];
            let range: serde_json::Value = serde_json::from_str(range).unwrap();
            for (word, value) in range.as_object().unwrap() {
                assert_eq!(&of[word], value, "{schema}.{field}");
            }
        }
        let none = &document["paths"]["/api/v1/batches"]["post"];
        assert!(none.get("parameters").is_none(), "{none}");
        let priority = &document["components"]["schemas"]["NewMessage"]["properties"]["priority"];
        assert_eq!(
            (&priority["maximum"], priority.get("format")),
            (&u32::MAX.into(), None)
        );
        let text = document.to_string();
        assert!(!text.contains("\"int64\"") && !text.contains("\"int32\""));
    }

    #[test]
    fn no_two_operations_have_one_id() {
        let document = whole();
        let mut ids = BTreeMap::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                let problem = &operation["responses"]["4XX"]["content"];
                assert!(problem.is_object(), "{method} {path}");
                let telling = id.chars().any(|letter| letter.is_ascii_uppercase());
                let word = id.chars().all(|letter| letter.is_ascii_alphabetic());
                assert!(telling && word, "{method} {path}: {id}");
                let here = format!("{method} {path}");
                if let Some(there) = ids.insert(id.clone(), here.clone()) {
                    panic!("{id}: {there} and {here}");
                }
            }
        }
        for (id, operation) in [
            ("listQueues", "get /api/v1/queues"),
            ("showQueue", "get /api/v1/queues/{queue}"),
            ("pauseQueue", "post /api/v1/queues/{queue}/pause"),
            ("listLeases", "get /api/v1/queues/{queue}/leases"),
            ("forgetBatch", "delete /api/v1/batches/{id}"),
            (
                "finishNamed",
                "post /api/v1/queues/{queue}/names/{name}/finish",
            ),
        ] {
            assert_eq!(ids.get(id).map(String::as_str), Some(operation));
        }
    }
}
