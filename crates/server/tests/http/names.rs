//! Messages by their own names, and names in addresses.

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Data, Server, Start, page, text};

#[test]
fn a_reserved_message_is_settled_by_its_name_and_others_are_found_by_it() {
    let data = Data::fresh();
    let start = || Start::of("shards = 4\n").listen(&["http=0", "beanstalk=0"]);
    let server = Server::start_with(&data, start());
    let put = |name: &str| {
        let messages = json!({"messages": [{"body": name, "name": name}]});
        post(&server, "/queues/film/messages", &messages)
    };
    for name in ["order 7", "order 8", "order 9"] {
        assert_eq!(put(name).status, 201);
    }
    let refused = put(&"n".repeat(256));
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json["code"], "bad_message_name");
    let act = |server: &Server, name: &str, act: &str, body: Value| {
        post(server, &format!("/queues/film/names/{name}/{act}"), &body).status
    };
    // It waits, so there is nothing to settle.
    assert_eq!(act(&server, "order%207", "finish", json!({})), 404);
    let reserve = json!({"lease_ms": 600_000, "max": 2});
    assert_eq!(post(&server, "/queues/film/reserve", &reserve).status, 200);
    // A name is durable with its message.
    server.kill();
    let server = Server::start_with(&data, start());
    let seen = get(&server, "/queues/film/names/order%207").json;
    assert_eq!(
        (&seen["name"], &seen["state"]),
        (&json!("order 7"), &json!("reserved"))
    );
    assert_eq!(
        act(&server, "order%207", "extend", json!({"lease_ms": 700_000})),
        204
    );
    assert_eq!(act(&server, "order%207", "finish", json!({})), 204);
    assert_eq!(act(&server, "order%207", "finish", json!({})), 404);
    let why = json!({"reason": "no such order"});
    // Each act takes its own fields, and no other's.
    for (verb, field) in [
        ("finish", "error"),
        ("release", "result"),
        ("fail", "reason"),
        ("bury", "delay_ms"),
        ("extend", "priority"),
    ] {
        let path = format!("/queues/film/names/order%208/{verb}");
        let refused = post(&server, &path, &json!({ field: null }));
        assert_eq!(refused.status, 400, "{verb}");
        assert_eq!(refused.json["code"], "bad_field", "{verb}");
        let detail = refused.json["detail"].as_str().expect("a text");
        assert!(detail.contains(field), "{verb}: {detail}");
    }
    assert_eq!(act(&server, "order%208", "bury", why), 204);
    assert_eq!(act(&server, "order%208", "nonsense", json!({})), 404);
    let found = get(&server, "/queues/film/messages?state=buried&name=order%208").json;
    assert_eq!(found["messages"][0]["status"], "no such order");
    let none = get(&server, "/queues/film/messages?state=buried&name=order%209").json;
    assert_eq!(none["messages"], json!([]));
    // What came of it is kept, as of a lease's end.
    assert_eq!(post(&server, "/queues/film/reserve", &reserve).status, 200);
    let result = |text: String| json!({ "result": text });
    let long = result("r".repeat((64 << 10) + 1));
    assert_eq!(act(&server, "order%209", "finish", long), 400);
    let sent = result("sent".to_owned());
    assert_eq!(act(&server, "order%209", "finish", sent), 204);
    let kept = get(
        &server,
        "/queues/film/messages?state=archived&name=order%209",
    )
    .json;
    assert_eq!(kept["messages"][0]["status"], "sent");
    let again = json!({"messages": [{"body": "order 9", "name": "order 9"}]});
    let again = post(&server, "/queues/film/messages", &again);
    assert_eq!(again.status, 201);
    // The same from the command line.
    let put = server.run(&["put", "film", "by hand", "--name", "order 8"]);
    assert!(put.status.success(), "{}", text(&put.stderr));
    let purged = server.run(&[
        "purge", "film", "--name", "order 8", "--yes", "--json", "--quiet",
    ]);
    assert!(
        text(&purged.stdout).contains('1'),
        "{}",
        text(&purged.stdout)
    );
    let left = get(&server, "/queues/film/messages").json;
    let left = left["messages"].as_array().expect("a list");
    let names: Vec<&Value> = left.iter().map(|message| &message["name"]).collect();
    assert_eq!(names, [&json!("order 9")]);
}

#[test]
fn outcomes_of_tracked_messages_stay_after_the_message_and_a_kill() {
    let data = Data::fresh();
    let start = |keep: &'static str| Start::of(keep).listen(&["http=0", "beanstalk=0"]);
    let hour = "shards = 4\ntrack_keep = \"1h\"\n";
    let server = Server::start_with(&data, start(hour));
    let put = |name: &str| {
        let messages = json!({"messages": [{"body": "x", "name": name, "tracked": true}]});
        post(&server, "/queues/film/messages", &messages).status
    };
    for name in ["order 1", "order 2", "order 3"] {
        assert_eq!(put(name), 201);
    }
    let nameless = json!({"messages": [{"body": "x", "tracked": true}]});
    let refused = post(&server, "/queues/film/messages", &nameless);
    assert_eq!(refused.json["code"], "bad_message_name");
    let plain = json!({"messages": [{"body": "x", "name": "order 4"}]});
    assert_eq!(post(&server, "/queues/plain/messages", &plain).status, 201);
    assert_eq!(get(&server, "/queues/plain/tracks/order%204").status, 404);
    let state = |server: &Server, queue: &str, number: u8| {
        let path = format!("/queues/{queue}/tracks/order%20{number}");
        get(server, &path).json["state"].clone()
    };
    assert_eq!(state(&server, "film", 1), "waiting");
    // It is looked for in the queue that is named.
    assert_eq!(get(&server, "/queues/plain/tracks/order%201").status, 404);
    let reserve = json!({"lease_ms": 600_000, "max": 2});
    let taken = post(&server, "/queues/film/reserve", &reserve).json;
    let token = |at: usize| taken["messages"][at]["lease"].as_str().unwrap();
    let says = json!({"percent": 30, "text": "a third"});
    let path = format!("/leases/{}/progress", token(0));
    assert_eq!(post(&server, &path, &says).status, 204);
    let seen = get(&server, "/queues/film/tracks/order%201").json;
    assert_eq!(
        (&seen["state"], &seen["progress"], &seen["status"]),
        (&json!("reserved"), &json!(30), &json!("a third"))
    );
    let kept = seen["until_ms"].as_u64().unwrap() - seen["changed_ms"].as_u64().unwrap();
    assert!((3_600_000..3_600_010).contains(&kept), "{kept}");
    let path = format!("/leases/{}/finish", token(0));
    assert_eq!(post(&server, &path, &json!({})).status, 204);
    let path = format!("/leases/{}/bury", token(1));
    assert_eq!(post(&server, &path, &json!({"reason": "torn"})).status, 204);
    // One moves to the queue of another shard, perhaps, and what is known of it goes along.
    let acted = post(
        &server,
        "/queues/film/operations/move",
        &json!({"to": "shelf"}),
    );
    assert_eq!(acted.status, 200, "{:?}", acted.json);
    server.kill();
    let server = Server::start_with(&data, start(hour));
    let seen = get(&server, "/queues/film/tracks/order%201").json;
    assert_eq!(
        (&seen["state"], &seen["progress"], &seen["status"]),
        (&json!("done"), &json!(30), &json!("a third"))
    );
    let seen = get(&server, "/queues/film/tracks/order%202").json;
    assert_eq!(
        (&seen["state"], &seen["status"]),
        (&json!("buried"), &json!("torn"))
    );
    assert_eq!(state(&server, "shelf", 3), "waiting");
    assert_eq!(get(&server, "/queues/film/tracks/order%203").status, 404);
    assert_eq!(server.number("tracked"), 3);
}

#[test]
fn bytes_in_an_address_that_are_no_text_are_a_problem() {
    let server = Start::default().listen(&["http=0"]).serve();
    for (head, field) in [
        ("GET /queues/%FF", "queue"),
        ("GET /queues/%FF/messages", "queue"),
        ("POST /queues/%FF/reserve", "queue"),
        ("POST /queues/a/names/%ff%fe/finish", "name"),
        ("GET /messages/%80", "id"),
        ("POST /leases/%C3/finish", "token"),
        ("GET /batches/%FF", "id"),
        ("POST /cron/%FF/run", "name"),
        ("POST /workers/%FF/quiet", "wid"),
    ] {
        let reply = ask(&server, head, "", "");
        assert_eq!(reply.status, 400, "{head}");
        let typed = "content-type: application/problem+json\r\n";
        assert!(reply.head.contains(typed), "{head}: {}", reply.head);
        assert_eq!(reply.json["code"], "bad_field", "{head}: {}", reply.json);
        assert_eq!(reply.json["field"], field, "{head}");
    }
    // The same on the console is a page.
    let (status, shown) = page(&server, "/queues/%FF");
    assert!(
        status == 400 && shown.contains("<h1>The request failed</h1>"),
        "{status} {shown}"
    );
}
