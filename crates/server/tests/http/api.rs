//! `/api/v1` over the real binary, and through the other protocols.

use std::time::Instant;

use crate::common::{Data, PATIENCE, Server, Start, eventually, faults, http, page, text};
use serde_json::{Value, json};

/// A reply's status, head and document.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) json: Value,
}

fn served() -> Server {
    Start::default().listen(&["memcache=0", "http=0"]).serve()
}

pub(crate) fn ask(server: &Server, head: &str, headers: &str, body: &str) -> Reply {
    let (method, path) = head.split_once(' ').unwrap();
    let typed = match body {
        "" => "",
        _ => http::JSON,
    };
    let reply = server.ask(
        &format!("{method} /api/v1{path}"),
        &format!("{typed}{headers}"),
        body,
    );
    Reply {
        status: reply.status,
        json: reply.json(),
        head: reply.head.to_ascii_lowercase(),
    }
}

pub(crate) fn post(server: &Server, path: &str, body: &Value) -> Reply {
    ask(server, &format!("POST {path}"), "", &body.to_string())
}

pub(crate) fn get(server: &Server, path: &str) -> Reply {
    ask(server, &format!("GET {path}"), "", "")
}

/// Puts texts; answers their ids.
fn put(server: &Server, queue: &str, bodies: &[&str]) -> Vec<u64> {
    let messages: Vec<Value> = bodies.iter().map(|body| json!({ "body": body })).collect();
    let reply = post(
        server,
        &format!("/queues/{queue}/messages"),
        &json!({ "messages": messages }),
    );
    assert_eq!(reply.status, 201, "{}", reply.json);
    let ids = reply.json["ids"].as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap()).collect()
}

fn reserve(server: &Server, body: &Value) -> Vec<Value> {
    let reply = post(server, "/queues/work/reserve", body);
    assert_eq!(reply.status, 200, "{}", reply.json);
    reply.json["messages"].as_array().unwrap().clone()
}

fn number(server: &Server, queue: &str, what: &str) -> u64 {
    get(server, &format!("/queues/{queue}")).json[what]
        .as_u64()
        .unwrap()
}

#[test]
fn a_message_goes_in_is_reserved_and_finished_once() {
    let server = served();
    put(&server, "work", &["one", "two", "three"]);
    // What came in here leaves by another protocol.
    server.client().take("work", b"one");
    let held = reserve(&server, &json!({ "max": 2, "lease_ms": 60_000 }));
    let bodies: Vec<&str> = held.iter().map(|m| m["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["two", "three"]);
    assert_eq!(number(&server, "work", "reserved"), 2);
    let lease = |at: usize| held[at]["lease"].as_str().unwrap().to_owned();
    let end = |lease: &str, how: &str| {
        let path = format!("/leases/{lease}/{how}");
        ask(&server, &format!("POST {path}"), "", "").status
    };
    assert_eq!(end(&lease(0), "extend"), 204);
    assert_eq!(end(&lease(0), "finish"), 204);
    assert_eq!(end(&lease(0), "finish"), 409);
    // A lease outlives the server; what it was for does not come twice.
    let server = server.kill_and_start(Start::default().listen(&["memcache=0", "http=0"]));
    assert_eq!(number(&server, "work", "reserved"), 1);
    let path = format!("POST /leases/{}/release", lease(1));
    assert_eq!(ask(&server, &path, "", "{\"priority\": 5}").status, 204);
    assert_eq!(ask(&server, &path, "", "").status, 409);
    let again = reserve(&server, &json!({}));
    assert_eq!(
        (again[0]["priority"].as_u64(), again[0]["attempts"].as_u64()),
        (Some(5), Some(2))
    );
    let path = format!("POST /leases/{}/bury", again[0]["lease"].as_str().unwrap());
    assert_eq!(
        ask(&server, &path, "", "{\"reason\": \"broken\"}").status,
        204
    );
    let buried = get(&server, "/queues/work/messages?state=buried").json;
    assert_eq!(buried["messages"][0]["status"], "broken");
}

#[test]
fn a_failed_message_waits_over_a_restart_and_ends_as_a_dead_letter_with_its_error() {
    let config = "[[queue]]\nname = \"work\"\nretry_delay = \"1h\"\nretry_delay_max = \"1h\"\n\
                  retry_max = 1\ndead_letter = \"dead\"\n";
    let start = Start::of(config).listen(&["memcache=0", "http=0", "beanstalk=0"]);
    let server = start.serve();
    let id = put(&server, "work", &["a"])[0];
    // Without a delay of its own: the queue says how long.
    let mut client = server.client_of("beanstalk");
    client.send(b"watch work\r\nreserve\r\n");
    client.expect(format!("WATCHING 2\r\nRESERVED {id} 1\r\na\r\n").as_bytes());
    client.ask(format!("release {id} 0 0\r\n").as_bytes(), b"RELEASED\r\n");
    let rests = get(&server, &format!("/messages/{id}")).json;
    assert_eq!(
        (&rests["state"], &rests["failures"]),
        (&json!("delayed"), &json!(1))
    );
    let due = rests["due_ms"].as_u64().expect("it rests");
    let server = server.kill_and_start(start);
    let kept = get(&server, &format!("/messages/{id}")).json;
    assert_eq!(
        (kept["due_ms"].as_u64(), &kept["failures"]),
        (Some(due), &json!(1))
    );
    assert_eq!(
        post(&server, &format!("/messages/{id}/kick"), &json!({})).status,
        204
    );
    let lease = &reserve(&server, &json!({}))[0]["lease"];
    let fail = format!("/leases/{}/fail", lease.as_str().unwrap());
    let wrong = post(&server, &fail, &json!({"eror": "x"}));
    assert_eq!((wrong.status, &wrong.json["field"]), (400, &json!("eror")));
    assert_eq!(
        post(&server, &fail, &json!({"error": "no route"})).status,
        204
    );
    assert_eq!(
        post(&server, &fail, &json!({})).status,
        409,
        "the lease is over"
    );
    let dead = get(&server, &format!("/messages/{id}")).json;
    assert_eq!(dead["queue"], "dead");
    for (name, value) in [
        ("reason", "failures"),
        ("failures", "2"),
        ("error", "no route"),
        ("queue", "work"),
    ] {
        assert_eq!(
            dead["headers"][format!("dead_letter_{name}")],
            value,
            "{name}"
        );
    }
}

#[test]
fn a_reserve_waits_for_a_put_of_another_protocol() {
    let server = served();
    let waits = "POST /api/v1/queues/work/reserve HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/json\r\ncontent-length: 18\r\n\r\n{\"wait_ms\": 60000}";
    let mut client = server.client_of("http");
    client.send(waits.as_bytes());
    server.await_number("waiters", |n| n == 1);
    server.client().put("work", b"at last");
    let reply = text(&client.until(b"}]"));
    assert!(
        reply.contains("at last") && reply.contains("\"lease\""),
        "{reply}"
    );
    assert_eq!(number(&server, "work", "reserved"), 1);
}

#[test]
fn a_reserve_that_is_sent_again_gets_the_same_leases() {
    let server = served();
    put(&server, "work", &["a", "b", "c"]);
    let reserve = |key: &str| {
        let head = format!("idempotency-key: {key}\r\n");
        let reply = ask(&server, "POST /queues/work/reserve", &head, "{\"max\": 2}");
        assert_eq!(reply.status, 200, "{}", reply.json);
        reply.json["messages"].as_array().unwrap().clone()
    };
    let first = reserve("r");
    assert_eq!(first.len(), 2);
    let leases = |of: &[Value]| -> Vec<Value> { of.iter().map(|m| m["lease"].clone()).collect() };
    assert_eq!(leases(&reserve("r")), leases(&first));
    assert_eq!(number(&server, "work", "reserved"), 2);
    let finish = format!("/leases/{}/finish", first[0]["lease"].as_str().unwrap());
    assert_eq!(post(&server, &finish, &json!({})).status, 204);
    let other = reserve("r");
    assert_eq!((other.len(), other[0]["body"].as_str()), (1, Some("c")));
}

#[test]
fn a_repeat_stores_nothing_and_an_old_version_changes_nothing() {
    let server = served();
    let body = "{\"messages\": [{\"body\": \"a\", \"headers\": {\"to\": \"7\"}, \"key\": \"k\"}]}";
    let once = || {
        ask(
            &server,
            "POST /queues/work/messages",
            "idempotency-key: x1\r\n",
            body,
        )
    };
    let (first, again) = (once(), once());
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.json["ids"], again.json["ids"]);
    assert_eq!(number(&server, "work", "ready"), 1);
    let path = format!("/messages/{}", first.json["ids"][0]);
    let shown = get(&server, &path);
    assert_eq!(shown.json["headers"], json!({ "to": "7" }));
    let tag = shown.json["version"].as_str().unwrap().to_owned();
    assert!(
        shown.head.contains(&format!("etag: \"{tag}\"")),
        "{}",
        shown.head
    );
    let guard = format!("if-match: \"{tag}\"\r\n");
    let edit = || {
        ask(
            &server,
            &format!("PATCH {path}"),
            &guard,
            "{\"priority\": 3}",
        )
        .status
    };
    assert_eq!((edit(), edit()), (200, 412));
    assert_eq!(
        ask(&server, &format!("DELETE {path}"), &guard, "").status,
        412
    );
    let moved = ask(&server, &format!("PATCH {path}"), "", "{\"body\": \"b\"}");
    let path = format!("/messages/{}", moved.json["ids"][0]);
    let shown = get(&server, &path).json;
    assert_eq!(
        [&shown["body"], &shown["priority"], &shown["rank"]],
        [&json!("b"), &json!(3), &json!(3)]
    );
    assert_eq!(ask(&server, &format!("DELETE {path}"), "", "").status, 204);
    assert_eq!(get(&server, &path).status, 404);
}

#[test]
fn acts_lists_and_the_server() {
    let server = served();
    let bodies: Vec<String> = (0..30)
        .map(|n| format!("number {n} of {}", n % 3))
        .collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    put(&server, "work", &bodies);
    let act =
        |act: &str, body: Value| post(&server, &format!("/queues/work/operations/{act}"), &body);
    let dry = act("purge", json!({ "contains": "of 1", "dry_run": true }));
    assert_eq!(dry.json, json!({ "messages": 10, "cursor": null }));
    assert_eq!(
        act("purge", json!({ "contains": "of 1" })).json["messages"],
        10
    );
    assert_eq!(
        act("move", json!({ "contains": "of 2", "to": "..%2f" })).json["messages"],
        10
    );
    assert_eq!(number(&server, "work", "ready"), 10);
    let mut seen = 0;
    let mut cursor = String::new();
    loop {
        let page = get(&server, &format!("/queues/work/messages?max=4{cursor}")).json;
        seen += page["messages"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 10);
    // A name of any bytes, as it is shown.
    put(&server, "%5Cxff%2F..", &["x"]);
    let queues = get(&server, "/queues").json;
    let names: Vec<&str> = queues["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| queue["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"\\xff/.."), "{names:?}");
    assert_eq!(ask(&server, "POST /queues/work/pause", "", "").status, 204);
    assert_eq!(reserve(&server, &json!({})).len(), 0);
    assert_eq!(ask(&server, "POST /queues/work/resume", "", "").status, 204);
    assert_eq!(reserve(&server, &json!({})).len(), 1);
    assert_eq!(ask(&server, "DELETE /queues/work", "", "").status, 204);
    assert_eq!(get(&server, "/queues/work").status, 404);
    let mut client = server.client();
    client.put("other", b"x");
    let connections = get(&server, "/connections").json;
    let protocol = |c: &&Value| c["protocol"] == "memcache";
    let id = connections
        .as_array()
        .unwrap()
        .iter()
        .find(protocol)
        .unwrap()["id"]
        .clone();
    assert_eq!(
        ask(&server, &format!("DELETE /connections/{id}"), "", "").status,
        204
    );
    client.expect_end();
    assert_eq!(get(&server, "/stats").json["ready"], 12);
    let document = get(&server, "/openapi.json").json;
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/api/v1/queues/{queue}/reserve"]["post"].is_object());
}

#[test]
fn connections_of_http_are_listed_and_closed_as_others_are() {
    let server = served();
    let mut waits = server.client_of("http");
    let body = r#"{"wait_ms":60000}"#;
    let request = format!(
        "POST /api/v1/queues/work/reserve?secret=1 HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    waits.send(request.as_bytes());
    let found = eventually("somebody waits", || {
        let all = get(&server, "/connections").json;
        let is = |c: &&Value| c["waits_on"] == json!(["work"]);
        all.as_array().unwrap().iter().find(is).cloned()
    });
    assert_eq!(found["protocol"], "http");
    assert_eq!(found["voice"], "http", "the old name");
    assert_eq!(found["asks"], "POST /api/v1/queues/work/reserve");
    assert_eq!(
        found["listener"],
        json!(server.address_of("http").to_string())
    );
    // Whoever asks is there too.
    let all = get(&server, "/connections").json;
    let asks = |c: &Value| c["asks"] == "GET /api/v1/connections";
    assert!(all.as_array().unwrap().iter().any(asks), "{all}");
    let path = format!("DELETE /connections/{}", found["id"]);
    assert_eq!(ask(&server, &path, "", "").status, 204);
    waits.expect_end();
    assert_eq!(ask(&server, &path, "", "").status, 404);
    // Nobody takes what comes now.
    put(&server, "work", &["a"]);
    assert_eq!(number(&server, "work", "ready"), 1);
}

#[test]
fn an_error_names_the_wrong_field() {
    let server = served();
    for (head, body, status, field) in [
        ("POST /queues/q/messages", "{", 400, None),
        ("POST /queues/q/messages", "{}", 400, Some("messages")),
        (
            "POST /queues/q/messages",
            "{\"messages\": []}",
            400,
            Some("messages"),
        ),
        (
            "POST /queues/q/messages",
            "{\"messages\": 3}",
            400,
            Some("messages"),
        ),
        (
            "POST /queues/q/messages",
            "{\"messages\": [{\"colour\": 1}]}",
            400,
            Some("messages[0].colour"),
        ),
        (
            "POST /queues/q/messages",
            "{\"messages\": [{\"priority\": -1}]}",
            400,
            Some("messages[0].priority"),
        ),
        (
            "POST /queues/q/messages",
            "{\"messages\": [{\"body\": \"\", \"body\": \"\"}]}",
            400,
            Some("messages[0].body"),
        ),
        (
            "POST /queues/q/messages",
            "{\"messages\": [{\"body_base64\": \"!\"}]}",
            400,
            Some("messages[0].body_base64"),
        ),
        ("POST /queues/q/reserve", "{\"max\": 101}", 400, Some("max")),
        (
            "POST /queues/q/reserve",
            "{\"wait_ms\": 60001}",
            400,
            Some("wait_ms"),
        ),
        (
            "POST /queues/q/reserve",
            "{\"lease_ms\": 0}",
            400,
            Some("lease_ms"),
        ),
        ("POST /queues/q/operations/move", "{}", 400, Some("to")),
        (
            "POST /queues/q/operations/purge",
            "{\"state\": \"lost\"}",
            400,
            Some("state"),
        ),
        ("POST /queues/q/operations/explode", "{}", 404, None),
        // The old name, for one release.
        ("POST /queues/q/acts/move", "{}", 400, Some("to")),
        ("POST /leases/nonsense/finish", "", 400, Some("token")),
        ("GET /messages/0", "", 400, Some("id")),
        ("GET /queues/q/messages?colour=1", "", 400, Some("colour")),
        ("GET /queues/q/messages?max=1&max=2", "", 400, Some("max")),
        ("GET /queues/q", "", 404, None),
        ("GET /nowhere", "", 404, None),
        ("PUT /queues/q", "", 405, None),
    ] {
        let reply = ask(&server, head, "", body);
        assert_eq!(reply.status, status, "{head} {body}: {}", reply.json);
        assert!(
            reply.head.contains("application/problem+json"),
            "{head}: {}",
            reply.head
        );
        assert_eq!(
            reply.json["field"].as_str(),
            field,
            "{head} {body}: {}",
            reply.json
        );
    }
}

#[test]
fn rights_are_those_of_every_protocol() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    put(&server, "mine", &["x"]);
    let message = json!({ "messages": [{}] });
    for (path, body) in [
        ("/queues/theirs/messages", message),
        ("/queues/mine/reserve", json!({})),
        ("/queues/mine/operations/purge", json!({})),
        ("/queues/mine/pause", json!({})),
        ("/server/drain", json!({})),
    ] {
        let reply = post(&server, path, &body);
        assert_eq!(
            (reply.status, reply.json["code"].as_str()),
            (403, Some("not_permitted")),
            "{path}"
        );
    }
    let stream = get(&server, "/events?queue=mine&queue=theirs");
    assert_eq!(
        (stream.status, stream.json["code"].as_str()),
        (403, Some("not_permitted"))
    );
    assert_eq!(get(&server, "/queues/mine/messages").status, 200);
    assert_eq!(ask(&server, "DELETE /messages/1", "", "").status, 403);
    let audit = text(&server.run(&["audit"]).stdout);
    assert!(
        audit.contains("POST /api/v1/queues/mine/operations/purge 403"),
        "{audit}"
    );
}

/// Needs a minute to end: how fast a queue moves is counted in whole ones.
#[test]
fn a_queue_has_a_history_after_a_minute_and_the_command_line_shows_its_rates() {
    // Queues are looked at when a minute ends, and twice before there is a rate. By a clock that
    // is set the first end is ten seconds away.
    let data = Data::fresh();
    let faults = faults(&data);
    let now = std::time::UNIX_EPOCH.elapsed().expect("past 1970");
    faults.shift_clock((50_000 - now.as_millis() as i64).rem_euclid(60_000));
    let start = Start::default().listen(&["memcache=0", "http=0"]);
    let server = Server::start_under(&faults, &data, &start);
    let late = |_| json!({ "body": "x", "delay_ms": 500 });
    let storm: Vec<Value> = (0..600).map(late).collect();
    for _ in 0..2 {
        let messages = json!({ "messages": storm });
        assert_eq!(
            post(&server, "/queues/storm/messages", &messages).status,
            201
        );
    }
    assert_eq!(get(&server, "/queues/work/history").status, 404);
    put(&server, "work", &["one"]);
    let before = get(&server, "/queues/work/history");
    assert_eq!(before.status, 200, "{}", before.json);
    assert_eq!(before.json["minutes"]["ready"], json!([]));
    assert_eq!(get(&server, "/queues/work").json["in_per_s"], Value::Null);
    let began = Instant::now();
    let past = loop {
        put(&server, "work", &["more"]);
        let past = get(&server, "/queues/work/history").json;
        // Where the minute ended before the delayed ones were due, the next one has them.
        let storm = get(&server, "/queues/storm").json;
        let has_moved = storm["due_per_s"].as_f64() > Some(0.0);
        if has_moved && past["minutes"]["ready"] != json!([]) {
            break past;
        }
        assert!(began.elapsed() < PATIENCE * 2, "no reply: {past}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert_eq!(past["minutes"]["step_ms"], 60_000);
    assert!(past["minutes"]["ready"][0].as_u64().unwrap() >= 1, "{past}");
    assert!(
        past["minutes"]["in_per_s"][0].as_f64().unwrap() > 0.0,
        "{past}"
    );
    let queue = get(&server, "/queues/work").json;
    assert!(queue["in_per_s"].as_f64().unwrap() > 0.0, "{queue}");
    assert!(queue["out_per_s"].as_f64().is_some(), "{queue}");
    assert_eq!(get(&server, "/queues/work/history?cursor=1").status, 400);
    // 1,200 delayed ones that came due are movement, though nothing came and nothing left.
    let queue = get(&server, "/queues/storm").json;
    assert!(queue["due_per_s"].as_f64().unwrap() > 0.0, "{queue}");
    // All of it is there after a restart, apart from how fast they move now.
    assert!(page(&server, "/queues/storm").1.contains(">came due</th>"));
    assert!(page(&server, "/").1.contains("Last hour, all queues"));
    let of = |server: &Server| get(server, "/queues/storm/history").json["minutes"].clone();
    let past = of(&server);
    assert!(server.stop().success());
    let server = Server::start_under(&faults, &data, &start);
    let again = eventually("its history", || {
        Some(of(&server)).filter(|again| again["ready"] != json!([]))
    });
    assert_eq!(again["due_per_s"][0], past["due_per_s"][0], "{again}");
    assert!(page(&server, "/queues/storm").1.contains(">came due</th>"));
    assert!(server.stop().success());
    // One that is damaged is not used, and nothing else is.
    std::fs::write(data.join("history"), b"QNTHIST1 and more").unwrap();
    let server = Server::start_under(&faults, &data, &start);
    assert_eq!(of(&server)["ready"], json!([]));
}

#[test]
fn a_queue_shows_its_settings_leases_and_children() {
    let server =
        Start::of("shards = 4\n[[queue]]\nname = 'work'\nretry_on = ['lost']\nttl = '1h'\n")
            .listen(&["memcache=0", "beanstalk=0", "http=0"])
            .serve();
    assert_eq!(get(&server, "/queues/work/settings").status, 404);
    put(&server, "work", &["one", "two", "three"]);
    let setup = get(&server, "/queues/work/settings").json;
    let of = |key: &str| {
        let all = setup["settings"].as_array().unwrap();
        let found = all.iter().find(|setting| setting["key"] == key).unwrap();
        (found["value"].clone(), found["source"].clone())
    };
    assert_eq!(of("ttl"), (json!("1h"), json!("file")));
    assert_eq!(of("retry_on"), (json!(["lost"]), json!("file")));
    assert_eq!(of("take_burst"), (json!(1), json!("default")));
    assert_eq!(setup["children"], json!([]));

    let mut client = server.client_of("beanstalk");
    client.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    client.send(b"reserve\r\n");
    let id: u64 = text(&client.until(b"\r\n"))
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    client.until(b"\r\n");
    let token = reserve(&server, &json!({ "lease_ms": 60_000 }))[0]["lease"].clone();
    let page = get(&server, "/queues/work/leases?max=1").json;
    let rest = format!(
        "/queues/work/leases?cursor={}",
        page["cursor"].as_str().unwrap()
    );
    let rest = get(&server, &rest).json;
    let (held, timed) = (&page["leases"][0], &rest["leases"][0]);
    assert_eq!(
        (&held["message"], &held["bound"]),
        (&json!(id), &json!("connection"))
    );
    let clients = get(&server, "/connections").json;
    let theirs = clients
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["protocol"] == "beanstalk");
    assert_eq!(held["connection"], theirs.unwrap()["id"]);
    assert_eq!(
        (&timed["connection"], &timed["bound"]),
        (&Value::Null, &json!("time"))
    );
    // A lease ends a tick of the clock late rather than early.
    assert!(
        (1..=60_001).contains(&timed["left_ms"].as_u64().unwrap()),
        "{timed}"
    );
    assert!(rest["cursor"].is_null() && rest["leases"].as_array().unwrap().len() == 1);
    // Whoever sees that it is leased cannot end that.
    assert!(!rest.to_string().contains(token.as_str().unwrap()));

    let joined = post(
        &server,
        "/queues/work/children",
        &json!({ "name": "audit" }),
    );
    assert_eq!(
        (joined.status, &joined.json["queue"]),
        (200, &json!("work+audit"))
    );
    put(&server, "work", &["four"]);
    server.client_of("memcache").take("work+audit", b"four");
    let setup = get(&server, "/queues/work/settings").json;
    assert_eq!(setup["children"], json!(["work+audit"]));
    let child = get(&server, "/queues/work+audit/settings").json;
    assert_eq!(child["parent"], "work");
    let wrong = post(
        &server,
        "/queues/work+audit/children",
        &json!({ "name": "more" }),
    );
    assert_eq!((wrong.status, &wrong.json["field"]), (400, &json!("name")));
}

#[test]
fn a_body_of_any_length_comes_as_it_is() {
    let server = served();
    let large = "0123456789abcdef".repeat(20_000);
    let ids = put(&server, "work", &[&large, "small"]);
    let held = reserve(&server, &json!({}));
    assert!(held[0]["body"].is_null() && held[0]["bytes"] == large.len());
    for (id, body) in ids.iter().zip([large.as_str(), "small"]) {
        let reply = server.ask(&format!("GET /api/v1/messages/{id}/body"), "", "");
        assert_eq!(
            reply.header("content-type"),
            Some("application/octet-stream")
        );
        let came = reply.body;
        assert!(came == body, "{id}: {} bytes", came.len());
    }
    assert_eq!(get(&server, "/messages/99/body").status, 404);
}

#[test]
fn a_trace_goes_with_the_message_to_consumers_and_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("traced");
    let text = "#!/bin/sh\necho \"done $TRACEPARENT $TRACESTATE.\" >&3\n";
    std::fs::write(&script, text).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let config = format!(
        "[[queue]]\nname = 'traced'\nscript = '{}'\nexec_prefix = ''\n",
        script.display()
    );
    let server = Start::of(&config)
        .listen(&["memcache=0", "http=0"])
        .serve_at(&dir.path().join("data"));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = |queue: &str, headers: &str, message: Value| {
        let body = json!({ "messages": [message] }).to_string();
        let reply = ask(
            &server,
            &format!("POST /queues/{queue}/messages"),
            headers,
            &body,
        );
        assert_eq!(reply.status, 201, "{}", reply.json);
        reply.json["ids"][0].as_u64().unwrap()
    };
    let ended = |id: u64| {
        eventually("its script ends", || {
            let shown = get(&server, &format!("/messages/{id}")).json;
            let status = || shown["status"].as_str().unwrap().to_owned();
            (shown["state"] == "archived").then(status)
        })
    };
    let both = format!("traceparent: {parent}\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
    let id = sent("traced", &both, json!({}));
    assert_eq!(ended(id), format!("{parent} a=1,b=2."));
    // What is no context, or two, is none; a message's own wins.
    for headers in [
        "traceparent: 00-0-0-01\r\n".to_owned(),
        format!("traceparent: {parent}\r\ntraceparent: {parent}\r\n"),
        "tracestate: a=1\r\n".to_owned(),
    ] {
        assert_eq!(
            ended(sent("traced", &headers, json!({}))),
            " .",
            "{headers}"
        );
    }
    let other = parent.replace("-01", "-00");
    let own = json!({ "headers": { "traceparent": other } });
    assert_eq!(ended(sent("traced", &both, own)), format!("{other} ."));
    let strange = json!({ "headers": { "traceparent": "a\nb" } });
    assert_eq!(ended(sent("traced", "", strange)), " .");
    // Where a message's files are is for nobody to say.
    let message = json!({ "headers": { "dir": "queue/other/msg/20261123/1" } });
    let refused = post(
        &server,
        "/queues/traced/messages",
        &json!({ "messages": [message] }),
    );
    let field = &refused.json["field"];
    assert_eq!(
        (refused.status, field),
        (400, &json!("messages[0].headers.dir"))
    );
    sent("work", &both, json!({}));
    assert_eq!(
        reserve(&server, &json!({}))[0]["headers"]["traceparent"],
        parent
    );
}

#[test]
fn replies_are_counted_by_family_and_their_time_excludes_waits() {
    let server = served();
    put(&server, "work", &["one"]);
    put(&server, "work", &["two"]);
    let lease = reserve(&server, &json!({}))[0]["lease"]
        .as_str()
        .unwrap()
        .to_owned();
    let finish = format!("POST /leases/{lease}/finish");
    assert_eq!(ask(&server, &finish, "", "").status, 204);
    assert_eq!(ask(&server, &finish, "", "").status, 409);
    reserve(&server, &json!({}));
    // There is none: it waits in vain.
    assert!(reserve(&server, &json!({ "wait_ms": 6000 })).is_empty());
    let body = server.ask("GET /metrics", "", "").body;
    for line in [
        "quintet_reply_seconds_count{protocol=\"http\",voice=\"http\",family=\"put\"} 2",
        "quintet_reply_seconds_count{protocol=\"http\",voice=\"http\",family=\"take\"} 3",
        "quintet_reply_seconds_count{protocol=\"http\",voice=\"http\",family=\"settle\"} 2",
        "quintet_http_replies_total{family=\"put\",status=\"201\"} 2",
        "quintet_http_replies_total{family=\"settle\",status=\"204\"} 1",
        "quintet_http_replies_total{family=\"settle\",status=\"409\"} 1",
    ] {
        assert!(body.contains(&format!("\n{line}\n")), "{line}: {body}");
    }
    let sum = "quintet_reply_seconds_sum{protocol=\"http\",voice=\"http\",family=\"take\"} ";
    let sum = body
        .lines()
        .find_map(|line| line.strip_prefix(sum))
        .unwrap();
    assert!(sum.parse::<f64>().unwrap() < 6.0, "{sum}");
}

#[test]
fn a_failed_message_is_delayed_by_default_and_a_released_one_is_not() {
    let server = Start::of("[[queue]]\nname = 'plain'\nretry_max = 0\n")
        .listen(&["memcache=0", "http=0"])
        .serve();
    let state = |id: u64| get(&server, &format!("/messages/{id}")).json;
    for (queue, act, rests) in [
        ("work", "fail", true),
        ("work", "release", false),
        ("plain", "fail", false),
    ] {
        let id = put(&server, queue, &["x"])[0];
        let reserved = post(&server, &format!("/queues/{queue}/reserve"), &json!({}));
        let lease = reserved.json["messages"][0]["lease"].as_str().expect("one");
        let ended = post(&server, &format!("/leases/{lease}/{act}"), &json!({}));
        assert_eq!(ended.status, 204, "{}", ended.json);
        let seen = state(id);
        let wanted = if rests { "delayed" } else { "ready" };
        assert_eq!(seen["state"], wanted, "{queue} {act}: {seen}");
        assert_eq!(seen["failures"], u32::from(act == "fail"), "{seen}");
        ask(&server, &format!("DELETE /messages/{id}"), "", "");
    }
    let settings = get(&server, "/queues/plain/settings").json;
    let all = settings["settings"].as_array().expect("a list");
    let value = |key: &str| {
        all.iter()
            .find(|one| one["key"] == key)
            .map(|one| &one["value"])
    };
    assert_eq!(value("retry_delay"), Some(&json!("0")), "{settings}");
}
