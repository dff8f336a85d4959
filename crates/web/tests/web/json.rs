//! Exactness of the JSON API: bytes that are no text, and keys of requests.

use std::sync::mpsc;

use quintet_client::ClientApi as _;
use quintet_types::{
    Body, By, Caller, Command, How, MessageId, Outcome, Past, Put, PutMore, State,
};
use serde_json::{Value, json};

use crate::common::{Reply, World};

fn submit(world: &World, command: Command) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    let caller = Caller::server(world.client_api.enter(Box::new(|_, _| {})));
    let reply = Box::new(move |outcome, _| sender.send(outcome).expect("somebody listens"));
    world.client_api.submit(caller, command, reply);
    receiver.recv().expect("an outcome")
}

fn post(world: &World, path: &str, key: &str, body: &Value) -> Reply {
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", key),
    ];
    let path = format!("/api/v1/queues/{path}");
    world.ask("POST", &path, &headers, body.to_string().as_bytes())
}

#[test]
fn bytes_that_are_no_text_are_sent_in_base64() {
    let world = World::new();
    let odd: &[u8] = b"\xff\x00a";
    let attrs = vec![
        (b"plain".as_slice().into(), b"t\xc3\xa9xt".as_slice().into()),
        (b"raw".as_slice().into(), odd.into()),
        (odd.into(), b"of an odd name".as_slice().into()),
    ];
    let more = PutMore {
        key: Some(odd.into()),
        name: Some(odd.into()),
        attrs,
        ..PutMore::default()
    };
    let put = Put {
        more: Some(Box::new(more)),
        ..Put::new("work".into(), Body::new(b"x"))
    };
    let Outcome::Put { id, .. } = submit(&world, Command::Put(put)) else {
        panic!("not put");
    };
    let bury = Command::Settle {
        id,
        by: By::Anyone,
        how: How::Bury {
            priority: None,
            reason: odd.into(),
        },
    };
    assert_eq!(submit(&world, bury), Outcome::Done);
    let list = world
        .get("/api/v1/queues/work/messages?state=buried")
        .json();
    for shown in [
        world.get(&format!("/api/v1/messages/{}", id.0)).json(),
        list["messages"][0].clone(),
    ] {
        for field in ["key_base64", "name_base64", "status_base64"] {
            assert_eq!(shown[field], "/wBh", "{field}: {shown}");
        }
        assert_eq!(
            (&shown["key"], &shown["name"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(shown["headers"], json!({"plain": "téxt"}));
        let coded = json!({"raw": "/wBh", "\\xff\\x00a": "b2YgYW4gb2RkIG5hbWU="});
        assert_eq!(shown["headers_base64"], coded);
    }
    // Where all is text there is nothing of it.
    let plain = json!({"messages": [{"body": "x", "key": "k", "headers": {"a": "b"}}]});
    let ids = world
        .post_json("/api/v1/queues/other/messages", &plain)
        .json();
    let shown = world
        .get(&format!("/api/v1/messages/{}", ids["ids"][0]))
        .text();
    assert!(!shown.contains("_base64\":\""), "{shown}");
    assert!(!shown.contains("headers_base64"), "{shown}");
}

/// Each error has the name of a queue.
#[test]
fn a_page_of_errors_ends_at_a_mebibyte() {
    let world = World::new();
    for number in 0..100 {
        let past = Past {
            state: State::Buried,
            status: "e".repeat(number + 1).into_bytes().into(),
            ..Past::default()
        };
        let from = vec![b'n'; 20_000];
        let more = PutMore {
            attrs: vec![(b"dead_letter_queue".as_slice().into(), from.into())],
            past: Some(Box::new(past)),
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..Put::new("work".into(), Body::new(b"x"))
        };
        let receiver = submit(&world, Command::Put(put));
        assert!(matches!(receiver, Outcome::Put { .. }), "{receiver:?}");
    }
    let (mut errors, mut query) = (0, String::new());
    loop {
        let page = world.get(&format!("/api/v1/queues/work/errors{query}"));
        assert_eq!(page.status, 200, "{}", page.text());
        assert!(page.text().len() < (1 << 20) + (64 << 10));
        let page = page.json();
        errors += page["errors"].as_array().map_or(0, Vec::len);
        match &page["cursor"] {
            Value::String(cursor) => query = format!("?cursor={cursor}"),
            _ => break,
        }
    }
    assert_eq!(errors, 100);
}

#[test]
fn a_used_key_with_another_request_is_refused() {
    let world = World::new();
    let put = |key: &str, bodies: &[&str]| {
        let messages: Vec<Value> = bodies.iter().map(|body| json!({ "body": body })).collect();
        post(
            &world,
            "work/messages",
            key,
            &json!({ "messages": messages }),
        )
    };
    let stored = || world.get("/api/v1/queues/work").json()["ready"].clone();
    let first = put("k", &["a", "b"]);
    assert_eq!(first.status, 201);
    let again = put("k", &["a", "b"]);
    assert_eq!((again.status, again.json()), (201, first.json()));
    for other in [
        &["a", "c"][..],
        &["c", "b"],
        &["a"],
        &["a", "b", "c"],
        &["b", "a"],
    ] {
        let refused = put("k", other);
        assert_eq!(refused.status, 422, "{other:?}: {}", refused.text());
        assert_eq!(refused.json()["code"], "token_used");
        assert_eq!(
            refused.header("content-type"),
            Some("application/problem+json")
        );
    }
    assert_eq!(stored(), 2);
    // Another key, or queue, is another request.
    assert_eq!(put("l", &["a", "c"]).status, 201);
    let elsewhere = json!({"messages": [{"body": "z"}]});
    assert_eq!(post(&world, "other/messages", "k", &elsewhere).status, 201);
    assert_eq!(stored(), 4);

    let reserve = |key: &str, body: Value| post(&world, "work/reserve", key, &body);
    let leases = |reply: &Reply| {
        let messages = reply.json()["messages"].clone();
        let leases = messages.as_array().expect("a list").iter();
        leases
            .map(|shown| shown["lease"].clone())
            .collect::<Vec<_>>()
    };
    let response = reserve("r", json!({"max": 2, "lease_ms": 60_000}));
    assert_eq!(leases(&response).len(), 2);
    for other in [
        json!({"max": 1, "lease_ms": 60_000}),
        json!({"max": 2}),
        json!({}),
    ] {
        let refused = reserve("r", other.clone());
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (422, &json!("token_used")),
            "{other}"
        );
    }
    // How long it waits may be another time.
    let again = reserve("r", json!({"max": 2, "lease_ms": 60_000, "wait_ms": 5}));
    assert_eq!(leases(&again), leases(&response));
}

#[test]
fn a_record_with_a_used_key_is_a_repeat_only_with_the_same_body() {
    let world = World::new();
    let put = |line: &str, body: &[u8]| {
        let request = [line.as_bytes(), b"\n", body].concat();
        let key = ("idempotency-key", "k");
        world.ask("POST", "/api/v1/queues/work/record", &[key], &request)
    };
    let first = put(r#"{"priority": 1, "flags": 2}"#, b"a");
    assert_eq!(first.status, 201, "{}", first.text());
    let again = put(r#"{"flags": 2, "priority": 1}"#, b"a");
    assert_eq!((again.status, &again.json()["fresh"]), (201, &json!(false)));
    assert_eq!(again.json()["id"], first.json()["id"]);
    let long = [b'a'; 100];
    for (line, body) in [
        (r#"{"priority": 1, "flags": 2}"#, &b"b"[..]),
        (r#"{"priority": 1, "flags": 2}"#, &long[..]),
        (r#"{"priority": 1, "flags": 3}"#, &b"a"[..]),
    ] {
        let refused = put(line, body);
        assert_eq!(refused.status, 422, "{line}: {}", refused.text());
        assert_eq!(refused.json()["code"], "token_used");
    }
    assert_eq!(world.get("/api/v1/queues/work").json()["ready"], 1);
}

/// One that knew no sums has remembered none: its keys count whatever is asked.
#[test]
fn a_key_of_an_older_version_is_a_repeat() {
    let world = World::new();
    let more = PutMore {
        token: Some(b"k/0".as_slice().into()),
        ..PutMore::default()
    };
    let put = Put {
        more: Some(Box::new(more)),
        ..Put::new("work".into(), Body::new(b"old"))
    };
    let first = submit(&world, Command::Put(put));
    assert_eq!(
        first,
        Outcome::Put {
            id: MessageId(1),
            fresh: true
        }
    );
    let again = post(
        &world,
        "work/messages",
        "k",
        &json!({"messages": [{"body": "new"}]}),
    );
    assert_eq!((again.status, again.json()), (201, json!({"ids": [1]})));
}

/// Any address with a part that is no text is refused.
#[test]
fn no_address_has_bytes_that_are_no_text() {
    let world = World::new();
    let document = world.get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("addresses");
    let mut requested = 0;
    for (path, operations) in paths {
        for part in path.split('/').filter(|part| part.starts_with('{')) {
            for bytes in ["%FF", "a%C3", "%ED%A0%80"] {
                let address = path.replace(part, bytes);
                let address = address.replace(['{', '}'], "");
                for method in operations.as_object().expect("operations").keys() {
                    let method = method.to_uppercase();
                    let headers = [("content-type", "application/json")];
                    let reply = world.ask(&method, &address, &headers, b"{}");
                    assert_eq!(reply.status, 400, "{method} {address}: {}", reply.text());
                    let typed = reply.header("content-type");
                    assert_eq!(typed, Some("application/problem+json"), "{address}");
                    requested += 1;
                }
            }
        }
    }
    assert!(requested > 100, "{requested}");
}

#[test]
fn a_put_without_acknowledgement_does_not_count_as_refused() {
    let world = World::new();
    world.paused_queue("work");
    world.client_api.set_silent(true);
    let path = "/api/v1/queues/other/messages";
    let one = json!({"messages": [{"body": "one"}]});
    let reply = world.post_json(path, &one);
    assert_eq!(reply.status, 500, "{}", reply.text());
    assert_eq!(reply.json()["code"], "unknown");
    // RQ's clients take `["fail", ...]` for not stored.
    let reply = world.post_json("/q/work/new_message", &json!({"param1": "x"}));
    assert_eq!(reply.status, 500, "{}", reply.text());
    world.client_api.set_silent(false);
    let list = world.get(path).json();
    let there = list["messages"].as_array().map(Vec::len);
    assert_eq!(there, Some(1), "{list}");
}
