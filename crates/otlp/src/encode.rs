//! Spans as OTLP's JSON (opentelemetry-proto 1, `ExportTraceServiceRequest`):
//! ids in hex, numbers of 64 bits as text, kinds and codes as numbers.

use quintet_types::hex;
use serde_json::{Value, json};

use crate::span::{Kind, Span};

/// `SpanKind` and the conventions' `messaging.operation.type` of each.
fn kind(kind: Kind) -> (u8, &'static str) {
    match kind {
        // PRODUCER
        Kind::Put => (4, "send"),
        // INTERNAL
        Kind::Wait => (1, "wait"),
        // CONSUMER
        Kind::Run => (5, "process"),
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn span(span: &Span) -> Value {
    let (number, operation) = kind(span.kind);
    let (name, queue) = (span.kind.name(), span.queue.to_string());
    let mut attributes = vec![
        text("messaging.system", "quintet"),
        text("messaging.destination.name", &queue),
        text("messaging.message.id", &span.message.0.to_string()),
        text("messaging.operation.name", name),
        text("messaging.operation.type", operation),
    ];
    if span.attempt > 0 {
        let attempt = json!({ "intValue": span.attempt.to_string() });
        attributes.push(json!({ "key": "quintet.attempt", "value": attempt }));
    }
    let mut document = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "parentSpanId": hex(&span.parent),
        "name": format!("{name} {queue}"),
        "kind": number,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
    });
    if !span.state.is_empty() {
        document["traceState"] = json!(*span.state);
    }
    if let Some((word, why)) = &span.error {
        attributes.push(text("error.type", word));
        let message = match why.as_str() {
            "" => word,
            why => why,
        };
        // STATUS_CODE_ERROR
        document["status"] = json!({ "code": 2, "message": message });
    }
    document["attributes"] = Value::Array(attributes);
    document
}

/// A request with these spans, of the service `name` whose process is `instance`.
pub(crate) fn request(name: &str, instance: &str, spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", name),
            text("service.version", version),
            text("service.instance.id", instance),
        ] },
        "scopeSpans": [{ "scope": { "name": "quintet", "version": version }, "spans": spans }],
    }] })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quintet_types::{MessageId, Name};

    use super::*;

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let mut one = Span {
            kind: Kind::Run,
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
            id: 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes(),
            parent: 7_u64.to_be_bytes(),
            state: Arc::from("a=1"),
            queue: Name::from("work"),
            message: MessageId(9),
            start_ns: u64::MAX,
            end_ns: 2,
            attempt: 3,
            error: Some(("failed", "no \"disk\"".to_owned())),
        };
        let wanted = json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
            "parentSpanId": "0000000000000007", "name": "run work", "kind": 5,
            "startTimeUnixNano": "18446744073709551615", "endTimeUnixNano": "2",
            "traceState": "a=1", "status": { "code": 2, "message": "no \"disk\"" },
            "attributes": [
                { "key": "messaging.system", "value": { "stringValue": "quintet" } },
                { "key": "messaging.destination.name", "value": { "stringValue": "work" } },
                { "key": "messaging.message.id", "value": { "stringValue": "9" } },
                { "key": "messaging.operation.name", "value": { "stringValue": "run" } },
                { "key": "messaging.operation.type", "value": { "stringValue": "process" } },
                { "key": "quintet.attempt", "value": { "intValue": "3" } },
                { "key": "error.type", "value": { "stringValue": "failed" } },
            ],
        });
        assert_eq!(span(&one), wanted);
        one.error = None;
        one.state = Arc::from("");
        let plain = span(&one);
        assert!(plain.get("status").is_none() && plain.get("traceState").is_none());
        let whole = request("q", "i", &[one]);
        let spans = &whole["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(spans.as_array().map(Vec::len), Some(1));
        let service = &whole["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(*service, text("service.name", "q"));
    }
}
