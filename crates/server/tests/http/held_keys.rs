//! Held keys over the API of the real binary, also when it is killed in between.

use serde_json::{Value, json};

use super::api::{Reply, get, post};
use crate::common::{Server, Start, text};

const CONFIG: &str = "
[[queue]]
name = \"calls\"
key_in_flight_max = 5
";

fn served(dir: &tempfile::TempDir) -> Server {
    Start::of(CONFIG)
        .listen(&["http=0"])
        .serve_at(&dir.path().join("data"))
}

fn put(server: &Server, queue: &str, messages: &[(&str, &str)]) {
    let messages = messages.iter();
    let messages = messages.map(|(key, body)| json!({ "key": key, "body": body }));
    let messages: Vec<Value> = messages.collect();
    let path = format!("/queues/{queue}/messages");
    let reply = post(server, &path, &json!({ "messages": messages }));
    assert_eq!(reply.status, 201, "{}", reply.json);
}

/// Reserves a message: its body and its lease.
fn reserve(server: &Server, queue: &str) -> Option<(String, String)> {
    let path = format!("/queues/{queue}/reserve");
    let reply = post(server, &path, &json!({ "lease_ms": 600_000 }));
    assert_eq!(reply.status, 200, "{}", reply.json);
    let message = reply.json["messages"].as_array().unwrap().first()?.clone();
    let of = |field: &str| message[field].as_str().unwrap().to_owned();
    Some((of("body"), of("lease")))
}

fn held(server: &Server) -> Vec<(String, u64)> {
    let reply = get(server, "/queues/calls/keys/held");
    assert_eq!(reply.status, 200, "{}", reply.json);
    let keys = reply.json["keys"].as_array().unwrap().iter();
    keys.map(|held| {
        let key = held["key"].as_str().unwrap().to_owned();
        (key, held["left_ms"].as_u64().unwrap())
    })
    .collect()
}

fn error(reply: &Reply) -> (u16, &str) {
    (reply.status, reply.json["code"].as_str().unwrap())
}

const HOUR: u64 = 3_600_000;

#[test]
fn a_worker_holds_a_key_and_an_operator_ends_the_hold() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(
        &server,
        "calls",
        &[("shop 7", "a"), ("bank", "b"), ("shop 7", "c")],
    );
    let (body, lease) = reserve(&server, "calls").unwrap();
    assert_eq!(body, "a");
    let release = format!("/leases/{lease}/release");
    assert_eq!(
        post(&server, &release, &json!({ "hold_key_ms": HOUR })).status,
        204
    );
    let (body, lease) = reserve(&server, "calls").unwrap();
    assert_eq!(body, "b");
    let finish = format!("/leases/{lease}/finish");
    assert_eq!(
        post(&server, &finish, &json!({ "hold_key_ms": HOUR })).status,
        204
    );
    assert_eq!(reserve(&server, "calls"), None);
    server.kill();

    let server = served(&dir);
    let keys: Vec<String> = held(&server).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["bank", "shop 7"]);
    assert!(held(&server).iter().all(|&(_, left)| left <= HOUR));
    assert_eq!(reserve(&server, "calls"), None);
    let end = "/queues/calls/keys/shop%207/hold";
    assert_eq!(post(&server, end, &json!({ "hold_ms": 0 })).status, 204);
    assert_eq!(held(&server).len(), 1);
    assert_eq!(reserve(&server, "calls").unwrap().0, "a");
    assert_eq!(reserve(&server, "calls").unwrap().0, "c");
}

#[test]
fn holds_that_cannot_be_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(&server, "plain", &[("k", "a")]);
    put(&server, "calls", &[("k", "a")]);
    let hold = |queue: &str, ms: u64| {
        let path = format!("/queues/{queue}/keys/k/hold");
        post(&server, &path, &json!({ "hold_ms": ms }))
    };
    assert_eq!(error(&hold("plain", 1000)), (409, "keys_unused"));
    assert_eq!(error(&hold("absent", 1000)), (404, "queue_not_found"));
    assert_eq!(error(&hold("calls", 604_800_001)), (400, "bad_field"));
    let (_, lease) = reserve(&server, "plain").unwrap();
    let settle = |lease: &str, body: Value| {
        let path = format!("/leases/{lease}/release");
        post(&server, &path, &body)
    };
    assert_eq!(
        error(&settle(&lease, json!({ "hold_key_ms": 1000 }))),
        (409, "keys_unused")
    );
    assert_eq!(
        error(&settle(&lease, json!({ "hold_key_ms": 0 }))),
        (400, "bad_field")
    );
    // The lease is as it was.
    assert_eq!(settle(&lease, json!({})).status, 204);
    let named = post(
        &server,
        "/queues/calls/names/n/finish",
        &json!({ "hold_key_ms": 1000 }),
    );
    assert_eq!(named.status, 404, "{}", named.json);
}

#[test]
fn many_held_keys_are_listed_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(&server, "calls", &[("k", "a")]);
    let key = |number: usize| format!("{number:0900}");
    for number in 0..150 {
        let hold = format!("/queues/calls/keys/{}/hold", key(number));
        assert_eq!(
            post(&server, &hold, &json!({ "hold_ms": HOUR })).status,
            204
        );
    }
    let page = |query: &str| get(&server, &format!("/queues/calls/keys/held{query}"));
    let (mut seen, mut query, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = page(&query).json;
        let keys = page["keys"].as_array().unwrap().iter();
        seen.extend(keys.map(|held| held["key"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["cursor"].as_str() {
            Some(cursor) => query = format!("?cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..150).map(key).collect::<Vec<_>>());
    assert_eq!(pages, 2);
    assert_eq!(error(&page("?cursor=%2F")), (400, "bad_field"));
}

/// No address has room for such a key.
#[test]
fn long_keys_are_listed_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let keys: Vec<String> = (0..4)
        .map(|number| format!("{}{number}", "k".repeat(60_000)))
        .collect();
    for key in &keys {
        put(&server, "calls", &[(key.as_str(), "a")]);
        let (_, lease) = reserve(&server, "calls").unwrap();
        let release = format!("/leases/{lease}/release");
        let hold = json!({ "hold_key_ms": HOUR });
        assert_eq!(post(&server, &release, &hold).status, 204);
    }
    let first = get(&server, "/queues/calls/keys/held").json;
    let cursor = first["cursor"].as_str().expect("another page");
    let second = get(&server, &format!("/queues/calls/keys/held?cursor={cursor}"));
    assert_eq!(second.status, 200, "{}", second.json);
    assert_eq!(second.json["cursor"], Value::Null);
    let pages = [&first["keys"], &second.json["keys"]];
    let seen = pages.map(|page| page.as_array().unwrap().iter());
    let seen = seen.into_iter().flatten().map(|held| &held["key"]);
    assert!(seen.eq(&keys), "each once, in order");
}

#[test]
fn a_worker_holds_a_key_by_the_name_of_its_message() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let named = json!({ "messages": [
        { "key": "a", "body": "a1", "name": "one" }, { "key": "a", "body": "a2" },
        { "body": "none", "name": "two" },
    ] });
    assert_eq!(post(&server, "/queues/calls/messages", &named).status, 201);
    assert_eq!(reserve(&server, "calls").unwrap().0, "a1");
    let release = "/queues/calls/names/one/release";
    let refused = post(&server, release, &json!({ "hold_key_ms": 0 }));
    assert_eq!(error(&refused), (400, "bad_field"));
    assert_eq!(
        post(&server, release, &json!({ "hold_key_ms": HOUR })).status,
        204
    );
    let [(key, left)] = &held(&server)[..] else {
        panic!("one is held");
    };
    assert!(key == "a" && *left > HOUR / 2);
    assert_eq!(reserve(&server, "calls").unwrap().0, "none");
    assert_eq!(reserve(&server, "calls"), None);
    let finish = "/queues/calls/names/two/finish";
    let refused = post(&server, finish, &json!({ "hold_key_ms": HOUR }));
    assert_eq!(error(&refused), (409, "no_key"));
}

#[test]
fn the_command_line_holds_a_key_lists_it_and_ends_the_hold() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(&server, "calls", &[("a b/c", "a1"), ("d", "d1")]);
    let output = server.printed(&["hold", "calls", "--with-key", "a b/c", "--for", "1h"]);
    assert_eq!(output, "a b/c is held for 1h\n");
    assert_eq!(reserve(&server, "calls").unwrap().0, "d1");
    let listed = server.printed(&["hold", "calls"]);
    assert!(
        listed.lines().nth(1).unwrap().starts_with("a b/c "),
        "{listed}"
    );
    let output = server.printed(&["hold", "calls", "--with-key", "a b/c", "--for", "30s"]);
    assert!(output.starts_with("a b/c stays held for 5"), "{output}");
    let output = server.printed(&["hold", "calls", "--with-key", "a b/c", "--end"]);
    assert_eq!(output, "a b/c is not held\n");
    assert_eq!(server.printed(&["hold", "calls"]), "");
    assert_eq!(reserve(&server, "calls").unwrap().0, "a1");
}

/// Whether the queue is paused, and how long yet, ms.
fn paused(server: &Server, queue: &str) -> (bool, u64) {
    let shown = get(server, &format!("/queues/{queue}")).json;
    let left = shown["paused_left_ms"].as_u64().unwrap_or(0);
    (shown["paused"] == true, left)
}

#[test]
fn a_worker_holds_a_whole_queue_and_an_operator_ends_the_hold() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    // Keys mean nothing here.
    put(&server, "plain", &[("k", "a"), ("k", "b"), ("k", "c")]);
    let (body, lease) = reserve(&server, "plain").unwrap();
    assert_eq!(body, "a");
    let settle = |lease: &str, verb: &str, body: Value| {
        post(&server, &format!("/leases/{lease}/{verb}"), &body)
    };
    let refused = [
        (json!({ "hold_ms": 0 }), "hold_ms"),
        (json!({ "hold_ms": 604_800_001_u64 }), "hold_ms"),
        (json!({ "hold_ms": 1, "hold_key_ms": 1 }), "hold_ms"),
    ];
    for (body, field) in refused {
        let reply = settle(&lease, "release", body);
        assert_eq!((reply.status, &reply.json["field"]), (400, &json!(field)));
    }
    let (other, second) = reserve(&server, "plain").unwrap();
    assert_eq!(other, "b");
    let hold = json!({ "hold_ms": HOUR });
    assert_eq!(settle(&lease, "release", hold).status, 204);
    // A shorter one changes nothing.
    let short = json!({ "hold_ms": 10 });
    assert_eq!(settle(&second, "finish", short).status, 204);
    let (is_paused, left) = paused(&server, "plain");
    assert!(is_paused && left > HOUR / 2, "{left}");
    assert_eq!(reserve(&server, "plain"), None);
    server.kill();

    let server = served(&dir);
    let (is_paused, left) = paused(&server, "plain");
    assert!(is_paused && left > HOUR / 2, "{left}");
    let hold = |queue: &str, ms: u64| {
        let path = format!("/queues/{queue}/hold");
        post(&server, &path, &json!({ "hold_ms": ms }))
    };
    assert_eq!(hold("plain", 0).status, 204);
    assert_eq!(reserve(&server, "plain").unwrap().0, "a");
    assert_eq!(hold("plain", HOUR).status, 204);
    assert_eq!(reserve(&server, "plain"), None);
    // An operator's shorter one changes nothing, neither does one of a pause without an end.
    assert_eq!(hold("plain", 1).status, 204);
    let (is_paused, left) = paused(&server, "plain");
    assert!(is_paused && left > HOUR / 2, "{left}");
    let pause = post(&server, "/queues/plain/pause", &json!({}));
    assert_eq!((pause.status, hold("plain", 1).status), (204, 204));
    assert_eq!(paused(&server, "plain"), (true, 0));
    let output = server.printed(&["hold", "plain", "--for", "30s"]);
    assert_eq!(output, "plain stays paused until it is resumed\n");
    assert_eq!(error(&hold("absent", 1)), (404, "queue_not_found"));
    assert_eq!(error(&hold("plain", 604_800_001)), (400, "bad_field"));
    let output = server.printed(&["hold", "plain", "--end"]);
    assert_eq!(output, "plain is not held\n");
    let output = server.printed(&["hold", "plain", "--for", "300ms"]);
    assert_eq!(output, "plain is held for 300ms\n");
    let output = server.printed(&["hold", "plain", "--for", "30s"]);
    assert_eq!(output, "plain is held for 30s\n");
    assert_eq!(hold("plain", HOUR).status, 204);
    let output = server.printed(&["hold", "plain", "--for", "30s"]);
    assert!(output.starts_with("plain stays held for 5"), "{output}");
    assert_eq!(reserve(&server, "plain"), None);
    let (_, page) = crate::common::page(&server, "/queues/plain");
    assert!(page.contains("paused for "), "{page}");
    assert_eq!(server.printed(&["resume", "plain"]).trim(), "plain resumed");
    assert_eq!(reserve(&server, "plain").unwrap().0, "c");
}

#[test]
fn the_audit_names_the_worker_that_held_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let named = json!({ "messages": [
        { "body": "a" }, { "body": "b" }, { "body": "c", "name": "three" },
    ] });
    assert_eq!(post(&server, "/queues/plain/messages", &named).status, 201);
    let leases = [(); 3].map(|()| reserve(&server, "plain").unwrap().1);
    let [first, second, _] = &leases;
    let hold = json!({ "hold_ms": HOUR });
    for (path, body) in [
        (format!("/leases/{first}/release"), &json!({})),
        (format!("/leases/{second}/release"), &hold),
        ("/queues/plain/names/three/finish".to_owned(), &hold),
    ] {
        assert_eq!(post(&server, &path, body).status, 204, "{path}");
    }
    let audit = text(&server.run(&["audit"]).stdout);
    assert_eq!(audit.matches(" hold of plain 204").count(), 2, "{audit}");
    // A lease's token is a secret.
    assert!(!audit.contains("leases/"), "{audit}");
}

#[test]
fn a_queue_whose_pause_the_file_decides_is_not_held() {
    let config = "[[queue]]\nname = \"fixed\"\npaused = false\nlocked = [\"paused\"]\n";
    let server = Start::of(config).listen(&["http=0"]).serve();
    put(&server, "fixed", &[("k", "a")]);
    let (_, lease) = reserve(&server, "fixed").unwrap();
    let release = format!("/leases/{lease}/release");
    let refused = post(&server, &release, &json!({ "hold_ms": 1000 }));
    assert_eq!(error(&refused), (403, "locked"));
    // The lease is as it was.
    assert_eq!(post(&server, &release, &json!({})).status, 204);
}

#[test]
fn a_hold_by_an_operator_needs_a_right_and_is_in_the_audit() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['calls']\n\
                  rights = ['put', 'take', 'settle', 'peek']\n[[grant]]\nuser = 'ann'\n\
                  queues = ['own']\nrights = ['put', 'admin']\n\
                  [[queue]]\nname = 'calls'\ngroups = 'fair'\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    put(&server, "calls", &[("k", "a")]);
    put(&server, "own", &[("k", "a")]);
    let hold = |path: &str| post(&server, path, &json!({ "hold_ms": HOUR }));
    for path in ["/queues/calls/keys/k/hold", "/queues/calls/hold"] {
        assert_eq!(error(&hold(path)), (403, "not_permitted"), "{path}");
    }
    assert_eq!(hold("/queues/own/hold").status, 204);
    // The worker of a message needs no more than its lease.
    let (_, lease) = reserve(&server, "calls").unwrap();
    let release = format!("/leases/{lease}/release");
    let holds = json!({ "hold_key_ms": HOUR });
    assert_eq!(post(&server, &release, &holds).status, 204);
    assert_eq!(held(&server).len(), 1);
    let audit = server.printed(&["audit"]);
    for line in [
        "POST /api/v1/queues/calls/keys/k/hold 403",
        "POST /api/v1/queues/calls/hold 403",
        "POST /api/v1/queues/own/hold 204",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }
}
