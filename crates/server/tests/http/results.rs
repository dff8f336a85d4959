//! Results of messages over the API and from the command line.

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Connection, Data, PATIENCE, Server, Start, eventually, text};

fn start() -> Start<'static> {
    Start::of("shards = 4\n").listen(&["http=0"])
}

/// Finishes the next message of the queue with this result, if there is one.
fn work(server: &Server, queue: &str, finish: &Value) {
    let waits = json!({"wait_ms": 60_000, "lease_ms": 600_000});
    let leased = post(server, &format!("/queues/{queue}/reserve"), &waits).json;
    let lease = leased["messages"][0]["lease"].as_str().expect("a lease");
    let path = format!("/leases/{lease}/finish");
    assert_eq!(post(server, &path, finish).status, 204);
}

fn put(server: &Server, queue: &str, message: Value) -> u64 {
    let path = format!("/queues/{queue}/messages");
    let stored = post(server, &path, &json!({"messages": [message]}));
    assert_eq!(stored.status, 201, "{}", stored.json);
    stored.json["ids"][0].as_u64().expect("an id")
}

/// So many clients wait for results.
fn waits(server: &Server, count: u64) {
    let line = format!("quintet_result_waiters {count}\n");
    eventually("clients wait", || {
        let metrics = server.ask("GET /metrics", "", "").body;
        metrics.contains(&line).then_some(())
    });
}

#[test]
fn a_put_waits_for_the_result_that_its_worker_gives() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let path = "/queues/add/messages";
    let many = json!({"messages": [{"body": "a"}, {"body": "b"}], "wait_ms": 5});
    assert_eq!(post(&server, path, &many).json["field"], "wait_ms");
    let long = json!({"messages": [{"body": "a"}], "wait_ms": 60_001});
    assert_eq!(post(&server, path, &long).json["field"], "wait_ms");
    let request = json!({"messages": [{"body": "2 3", "name": "sum"}], "wait_ms": 60_000});
    let answer = std::thread::scope(|scope| {
        let put = scope.spawn(|| post(&server, path, &request));
        waits(&server, 1);
        work(&server, "add", &json!({"result": "5"}));
        put.join().expect("a reply")
    });
    assert_eq!(answer.status, 201);
    let id = answer.json["ids"][0].as_u64().expect("an id");
    let done = json!({"id": id, "state": "done", "queue": "add", "result": "5"});
    assert_eq!(answer.json["result"], done);
    // It is known later, by its name too, and after a kill.
    let server = server.kill_and_start(start());
    for path in [
        format!("/messages/{id}/result?wait_ms=60000"),
        "/queues/add/names/sum/result".to_owned(),
    ] {
        assert_eq!(get(&server, &path).json, done, "{path}");
    }
    // Repeated with its key it is the same message, which has its result.
    let keyed = |wait_ms: u64| {
        let request = json!({"messages": [{"body": "once"}], "wait_ms": wait_ms}).to_string();
        ask(
            &server,
            "POST /queues/add/messages",
            "idempotency-key: k\r\n",
            &request,
        )
    };
    let first = keyed(1);
    assert_eq!(first.json["result"]["state"], "pending");
    work(&server, "add", &json!({}));
    let again = keyed(1);
    assert_eq!(again.json["ids"], first.json["ids"]);
    let result = &again.json["result"];
    assert_eq!(
        (&result["state"], &result["result"]),
        (&json!("done"), &Value::Null)
    );
    let none = get(&server, "/messages/4000/result?wait_ms=60000");
    assert_eq!(
        (none.status, &none.json["code"]),
        (404, &json!("not_found"))
    );
    assert_eq!(
        get(&server, "/messages/1/result?wait_ms=60001").json["field"],
        "wait_ms"
    );
}

#[test]
fn results_show_other_ends_and_follow_a_message_to_another_shard() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let get_waits = |id: u64, end: &dyn Fn()| {
        std::thread::scope(|scope| {
            let path = format!("/messages/{id}/result?wait_ms=60000");
            let server = &server;
            let wait = scope.spawn(move || get(server, &path).json);
            waits(server, 1);
            end();
            wait.join().expect("a reply")
        })
    };
    let id = put(&server, "q", json!({"body": "a"}));
    let ended = get_waits(id, &|| {
        let reason = json!({"reason": "sold out"});
        assert_eq!(
            post(&server, &format!("/messages/{id}/cancel"), &reason).status,
            204
        );
    });
    assert_eq!(ended["state"], "cancelled");
    let id = put(&server, "q", json!({"body": "a", "ttl_ms": 500}));
    // It may expire before the request.
    let ended = get(&server, &format!("/messages/{id}/result?wait_ms=60000"));
    assert_eq!(ended.json["state"], "expired");
    // Sixteen queues are in more than one shard.
    for number in 0..16 {
        let id = put(&server, "q", json!({"body": "a"}));
        let to = format!("to{number}");
        let ended = get_waits(id, &|| {
            let moved = json!({"to": to});
            assert!(post(&server, &format!("/messages/{id}/move"), &moved).status < 300);
            work(&server, &to, &json!({"result": "there"}));
        });
        assert_eq!(
            (&ended["state"], &ended["result"]),
            (&json!("done"), &json!("there"))
        );
        assert_eq!(ended["queue"], to);
    }
}

#[test]
fn a_wait_ends_with_its_client_and_with_the_server() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let id = put(&server, "q", json!({"body": "a"}));
    let address = server.address_of("http").to_owned();
    let connect = || {
        let mut client = Connection::tcp(&address, PATIENCE).expect("connected");
        let head = format!(
            "GET /api/v1/messages/{id}/result?wait_ms=60000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
        client.send(head.as_bytes()).expect("sent");
        client
    };
    let client = connect();
    waits(&server, 1);
    drop(client);
    waits(&server, 0);
    let _client = connect();
    waits(&server, 1);
    // Far sooner than the wait.
    server.stop();
}

#[test]
fn a_result_needs_the_right_to_peek() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek', 'settle']\n[[grant]]\nuser = 'ann'\nqueues = ['film']\n\
                  rights = ['put']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let waits = json!({"messages": [{"body": "a"}], "wait_ms": 1});
    let refused = post(&server, "/queues/film/messages", &waits);
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (403, &json!("not_permitted"))
    );
    let stored = post(&server, "/queues/mine/messages", &waits);
    assert_eq!(stored.json["result"]["state"], "pending");
    let id = put(
        &server,
        "film",
        json!({"body": "a", "name": "n", "tracked": true}),
    );
    assert_eq!(
        server.queue_number("film", "ready"),
        1,
        "nothing else was stored"
    );
    for path in [
        format!("/messages/{id}/result"),
        "/queues/film/names/n/result".to_owned(),
    ] {
        assert_eq!(get(&server, &path).status, 403, "{path}");
    }
}

#[test]
fn exactly_one_reply_comes_over_shards_and_a_kill() {
    let data = Data::fresh();
    let mut server = Server::start_with(&data, start());
    let wrong = json!({"messages": [{"body": "a", "correlation_id": "c"}]});
    let wrong = post(&server, "/queues/q/messages", &wrong).json;
    assert_eq!(wrong["field"], "messages[0].correlation_id");
    // Sixteen queues are in more than one shard.
    for number in 0..16 {
        let request =
            json!({"body": "a", "name": format!("n{number}"), "reply_to": format!("to{number}")});
        put(&server, "q", request);
        work(&server, "q", &json!({"result": format!("r{number}")}));
        if number % 4 == 3 {
            server = server.kill_and_start(start());
        }
    }
    for number in 0..16 {
        let path = format!("/queues/to{number}/reserve");
        let replies = post(&server, &path, &json!({"max": 9})).json;
        let replies = replies["messages"].as_array().expect("messages");
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0]["body"], format!("r{number}"));
        let headers = json!({"correlation_id": format!("n{number}"), "state": "done"});
        assert_eq!(replies[0]["headers"], headers);
    }
}

#[test]
fn errors_about_long_names_and_keys_name_their_own_limits() {
    let server = Start::default().listen(&["http=0"]).serve();
    let dedupe = |len: usize| json!({"dedupe": {"id": "x".repeat(len)}});
    let of = |field: &str, len: usize| json!({field: "x".repeat(len)});
    let name = "takes the name of a queue, 1 to 255 bytes";
    let key = "takes 65535 bytes at most";
    for (message, field, detail) in [
        (of("reply_to", 256), "reply_to", name),
        (of("reply_to", 0), "reply_to", name),
        (of("key", 65_536), "key", key),
        (dedupe(65_536), "dedupe.id", key),
    ] {
        let messages = json!({"messages": [message]});
        let refused = post(&server, "/queues/q/messages", &messages);
        assert_eq!(refused.status, 400, "{}", refused.json);
        assert_eq!(refused.json["field"], format!("messages[0].{field}"));
        assert_eq!(refused.json["detail"], detail);
    }
    for message in [of("reply_to", 255), of("key", 65_535), dedupe(65_535)] {
        put(&server, "q", message);
    }
    let document = get(&server, "/openapi.json").json;
    for (schema, field, most) in [
        ("NewMessage", "reply_to", 255),
        ("NewMessage", "key", 65_535),
        ("Dedupe", "id", 65_535),
    ] {
        let known = &document["components"]["schemas"][schema]["properties"][field];
        assert_eq!(known["maxLength"], most, "{known}");
    }
}

#[test]
fn a_reply_queue_needs_the_right_to_put() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek']\n[[grant]]\nuser = 'ann'\nqueues = ['unseen']\n\
                  rights = ['put']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    for (queue, messages) in [
        ("mine", json!([{"body": "a", "reply_to": "others"}])),
        (
            "mine",
            json!([{"body": "a"}, {"body": "a", "reply_to": "others"}]),
        ),
        // A reply would show what may not be seen.
        ("unseen", json!([{"body": "a", "reply_to": "mine"}])),
    ] {
        let path = format!("/queues/{queue}/messages");
        let refused = post(&server, &path, &json!({"messages": messages}));
        assert_eq!(
            (refused.status, &refused.json["code"]),
            (403, &json!("not_permitted"))
        );
    }
    put(&server, "mine", json!({"body": "a", "reply_to": "mine"}));
    assert_eq!(server.queue_number("mine", "ready"), 1);
}

#[test]
fn put_waits_on_the_command_line() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let args = ["put", "add", "2 3", "--wait", "60s"];
    let (out, _, code) = std::thread::scope(|scope| {
        let put = scope.spawn(|| server.outputs(&args));
        work(&server, "add", &json!({"result": "5"}));
        put.join().expect("an output")
    });
    assert_eq!((out.as_str(), code), ("5\n", 0));
    let late = server.run(&["put", "add", "x", "--wait", "1ms"]);
    assert_eq!(late.status.code(), Some(4));
    assert!(text(&late.stderr).contains("has not ended"));
    let expired = server.outputs(&["put", "add", "x", "--ttl", "1ms", "--wait", "60s"]);
    assert_eq!(expired.2, 1, "{expired:?}");
    assert!(expired.1.contains("is expired"), "{expired:?}");
}

#[test]
fn the_command_line_names_a_queue_for_the_reply() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let put = ["put", "add", "2 3", "--reply-to", "sums"];
    let printed = server.printed(&[&put[..], &["--correlation-id", "sum-1"]].concat());
    assert!(printed.trim().parse::<u64>().is_ok(), "{printed}");
    work(&server, "add", &json!({"result": "5"}));
    let id = server.printed(&put).trim().to_owned();
    work(&server, "add", &json!({"result": "6"}));
    for (body, correlation) in [("5", "sum-1"), ("6", &id)] {
        let reply = post(&server, "/queues/sums/reserve", &json!({"wait_ms": 60_000})).json;
        let reply = &reply["messages"][0];
        assert_eq!(reply["body"], body);
        assert_eq!(reply["headers"]["correlation_id"], correlation);
    }
    let alone = server.run(&["put", "add", "2 3", "--correlation-id", "sum-1"]);
    assert_eq!(alone.status.code(), Some(2));
}
