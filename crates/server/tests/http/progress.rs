//! How far the work on a message has come, and what came of it.

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Data, Server, Start, await_that, text};

fn start(data: &std::path::Path) -> Server {
    Start::of("[[queue]]\nname = \"film\"\nretention = \"1h\"\n")
        .listen(&["memcache=0", "http=0", "beanstalk=0"])
        .serve_at(data)
}

fn reserve(server: &Server) -> (u64, String) {
    let reserved = post(
        server,
        "/queues/film/reserve",
        &json!({"lease_ms": 600_000}),
    )
    .json;
    let message = &reserved["messages"][0];
    let lease = message["lease"].as_str().expect("one is there");
    (message["id"].as_u64().expect("an id"), lease.to_owned())
}

fn seen(server: &Server, id: u64) -> (Value, Value, Value) {
    let mut message = get(server, &format!("/messages/{id}")).json;
    let mut part = |name: &str| message[name].take();
    (part("state"), part("progress"), part("status"))
}

#[test]
fn a_worker_reports_its_progress_and_its_result() {
    let data = Data::fresh();
    let server = start(&data);
    server.client().put("film", b"one");
    let (id, lease) = reserve(&server);
    let output = |server: &Server, body: Value| {
        post(server, &format!("/leases/{lease}/progress"), &body).status
    };
    assert_eq!(
        seen(&server, id),
        (json!("reserved"), Value::Null, json!(""))
    );
    assert_eq!(
        output(&server, json!({"percent": 40, "text": "scene 4"})),
        204
    );
    // Acknowledged is durable, and what is left out stays.
    server.kill();
    let server = start(&data);
    assert_eq!(output(&server, json!({"percent": 75})), 204);
    let now = (json!("reserved"), json!(75), json!("scene 4"));
    assert_eq!(seen(&server, id), now);
    let leases = get(&server, "/queues/film/leases").json;
    let only = &leases["leases"][0];
    assert_eq!((&only["progress"], &only["status"]), (&now.1, &now.2));
    let listed = server.run(&["leases", "film"]);
    assert!(
        text(&listed.stdout).contains("75 % scene 4"),
        "{}",
        text(&listed.stdout)
    );
    for (body, field) in [
        (json!({"percent": 101}), "percent"),
        (json!({"percent": -1}), "percent"),
        (json!({"prcent": 1}), "prcent"),
    ] {
        let refused = post(&server, &format!("/leases/{lease}/progress"), &body);
        assert_eq!(
            (refused.status, &refused.json["field"]),
            (400, &json!(field))
        );
    }
    let finish = format!("/leases/{lease}/finish");
    let long = json!({"result": "x".repeat((64 << 10) + 1)});
    let refused = post(&server, &finish, &long);
    assert_eq!(
        (refused.status, &refused.json["field"]),
        (400, &json!("result"))
    );
    assert_eq!(
        post(&server, &finish, &json!({"result": "film.mp4"})).status,
        204
    );
    assert_eq!(post(&server, &finish, &json!({})).status, 409);
    assert_eq!(
        output(&server, json!({"percent": 99})),
        409,
        "the lease is over"
    );
    server.kill();
    let server = start(&data);
    assert_eq!(
        seen(&server, id),
        (json!("archived"), json!(75), json!("film.mp4"))
    );
    let kept = get(&server, "/queues/film/messages?state=archived").json;
    assert_eq!(kept["messages"][0]["status"], "film.mp4");

    // Without a result it is gone.
    server.client().put("film", b"two");
    let (id, lease) = reserve(&server);
    assert_eq!(
        ask(&server, &format!("POST /leases/{lease}/finish"), "", "").status,
        204
    );
    assert_eq!(get(&server, &format!("/messages/{id}")).status, 404);
}

#[test]
fn another_protocol_reports_progress_only_of_its_own_leases() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"));
    server.client().put("film", b"one");
    let (mut worker, mut other) = (server.client_of("beanstalk"), server.client_of("beanstalk"));
    worker.ask(b"watch film\r\nreserve\r\n", b"WATCHING 2\r\n");
    let reserved = text(&worker.until(b"one\r\n"));
    let id = reserved.split(' ').nth(1).expect("an id");
    let output = format!("progress {id} 30 scene 3\r\n");
    other.ask(output.as_bytes(), b"NOT_FOUND\r\n");
    worker.ask(output.as_bytes(), b"NOTED\r\n");
    let now = (json!("reserved"), json!(30), json!("scene 3"));
    assert_eq!(seen(&server, id.parse().unwrap()), now);
}

#[test]
fn a_script_reports_progress_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (script, go) = (dir.path().join("script"), dir.path().join("go"));
    let text = format!(
        "#!/bin/sh\necho progress 40% scene 4 >&3\n\
         while [ ! -e {} ]; do sleep 0.1; done\necho done film.mp4 >&3\n",
        go.display()
    );
    std::fs::write(&script, text).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let config = format!(
        "[[queue]]\nname = \"film\"\nscript = \"{}\"\nexec_prefix = \"\"\n",
        script.display()
    );
    let server = Start::of(&config)
        .listen(&["memcache=0", "http=0"])
        .serve_at(&dir.path().join("data"));
    let put = json!({"messages": [{"body": "one"}]});
    let stored = post(&server, "/queues/film/messages", &put).json;
    let id = stored["ids"][0].as_u64().expect("an id");
    let until = |wanted: (Value, Value, Value)| {
        await_that(&format!("{wanted:?}"), || seen(&server, id) == wanted);
    };
    until((json!("reserved"), json!(40), json!("40% scene 4")));
    std::fs::write(&go, "").unwrap();
    until((json!("archived"), json!(40), json!("film.mp4")));
}
