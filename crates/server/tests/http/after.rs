//! Messages that are held until others have ended: once, over kills.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use crate::api::{Reply, ask, get, post};
use crate::common::{Data, PATIENCE, Server, Start, await_that, text};
use serde_json::{Value, json};

const LISTEN: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";
/// In four shards they are in different ones.
const QUEUES: [&str; 5] = ["a", "b", "c", "d", "mail"];

fn start(data: &Path, shards: u32) -> Server {
    let config = format!("shards = {shards}\n{LISTEN}");
    Server::start_as_configured(data, Start::of(&config))
}

fn again(server: Server, data: &Path) -> Server {
    server.kill();
    start(data, 1)
}

fn try_put(server: &Server, queue: &str, message: &Value) -> Reply {
    let path = format!("/queues/{queue}/messages");
    post(server, &path, &json!({ "messages": [message] }))
}

fn put(server: &Server, queue: &str, message: &Value) -> u64 {
    let reply = try_put(server, queue, message);
    assert_eq!(reply.status, 201, "{}", reply.json);
    reply.json["ids"][0].as_u64().expect("an id")
}

fn taken(server: &Server, queue: &str) -> Vec<Value> {
    let reply = post(
        server,
        &format!("/queues/{queue}/reserve"),
        &json!({"max": 100}),
    );
    assert_eq!(reply.status, 200, "{}", reply.json);
    reply.json["messages"].as_array().expect("a list").clone()
}

fn settle(server: &Server, message: &Value, act: &str) {
    let token = message["lease"].as_str().expect("a token");
    let reply = post(server, &format!("/leases/{token}/{act}"), &json!({}));
    assert_eq!(reply.status, 204, "{}", reply.json);
}

fn shown(server: &Server, id: u64) -> Value {
    get(server, &format!("/messages/{id}")).json
}

fn states(message: &Value) -> Vec<&str> {
    let after = message["after"].as_array();
    let parents = after.into_iter().flatten();
    let states = parents.map(|parent| parent["state"].as_str().expect("a state"));
    states.collect()
}

#[test]
fn a_message_is_free_once_when_all_have_succeeded_over_kills() {
    let data = Data::fresh();
    let mut server = start(&data, 1);
    let parents: Vec<u64> = QUEUES
        .iter()
        .map(|queue| put(&server, queue, &json!({ "body": *queue })))
        .collect();
    let child = put(
        &server,
        "work",
        &json!({ "body": "child", "after": &parents }),
    );
    for queue in QUEUES {
        server = again(server, &data);
        let seen = shown(&server, child);
        assert_eq!(seen["state"], "delayed", "{seen}");
        assert!(states(&seen).contains(&"waiting"), "{seen}");
        assert!(taken(&server, "work").is_empty());
        let message = taken(&server, queue).remove(0);
        settle(&server, &message, "finish");
    }
    server = again(server, &data);
    await_that("the child is free", || {
        shown(&server, child)["state"] == "ready"
    });
    server = again(server, &data);
    let free = taken(&server, "work");
    assert_eq!(free.len(), 1, "{free:?}");
    assert_eq!(
        (&free[0]["id"], states(&free[0])),
        (&json!(child), vec!["done"; 5])
    );
    settle(&server, &free[0], "finish");
    server = again(server, &data);
    assert!(taken(&server, "work").is_empty());
    assert!(server.stop().success());
}

#[test]
fn the_put_decides_the_effect_of_a_failed_parent() {
    let data = Data::fresh();
    let server = start(&data, 1);
    for (rules, state) in [
        (json!({}), "buried"),
        (json!({ "if_failed": "hold" }), "delayed"),
        (json!({ "if_failed": "run" }), "ready"),
        (json!({ "on": "end" }), "ready"),
    ] {
        let failed = put(&server, "a", &json!({}));
        let done = put(&server, "b", &json!({}));
        let mut message = json!({ "after": [failed, done] });
        let fields = message.as_object_mut().expect("an object");
        fields.extend(rules.as_object().expect("an object").clone());
        let child = put(&server, "work", &message);
        let gone = ask(&server, &format!("DELETE /messages/{failed}"), "", "");
        assert_eq!(gone.status, 204, "{}", gone.json);
        let one = taken(&server, "b").remove(0);
        settle(&server, &one, "finish");
        await_that("it knows, and has its state", || {
            let seen = shown(&server, child);
            seen["state"] == state && states(&seen).contains(&"failed")
        });
        let seen = shown(&server, child);
        let names_it = format!("message {failed} failed");
        let status = seen["status"].as_str().expect("a text");
        assert_eq!(status.contains(&names_it), state == "buried", "{seen}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_message_waits_for_those_of_all_shards_over_kills() {
    const SHARDS: u32 = 4;
    let data = Data::fresh();
    let mut server = start(&data, SHARDS);
    let parents = QUEUES.map(|queue| put(&server, queue, &json!({ "body": queue })));
    let shards: BTreeSet<u64> = parents.iter().map(|id| id >> 55).collect();
    assert!(shards.len() > 2, "{shards:?}");
    // Alone, as one of several, and by the name of a tracked message.
    let alone = put(&server, "a", &json!({ "after": parents }));
    let many = json!({ "messages": [{ "after": parents }, {}] });
    let many = post(&server, "/queues/mail/messages", &many);
    assert_eq!(many.status, 201, "{}", many.json);
    let first = many.json["ids"][0].as_u64().expect("an id");
    put(&server, "d", &json!({ "name": "told", "tracked": true }));
    let named = put(&server, "b", &json!({ "after": ["told"] }));
    let unknown = try_put(&server, "a", &json!({ "after": [parents[3] + 1000] }));
    assert_eq!(unknown.json["code"], "after_not_found", "{}", unknown.json);
    for queue in QUEUES {
        server.kill();
        server = start(&data, SHARDS);
        for child in [alone, first] {
            let seen = shown(&server, child);
            assert_eq!(seen["state"], "delayed", "{seen}");
        }
        for message in taken(&server, queue) {
            settle(&server, &message, "finish");
        }
    }
    server.kill();
    server = start(&data, SHARDS);
    for child in [alone, first, named] {
        await_that("it is free", || shown(&server, child)["state"] == "ready");
        let seen = shown(&server, child);
        assert!(states(&seen).iter().all(|state| *state == "done"), "{seen}");
    }
    server.kill();
    server = start(&data, SHARDS);
    for queue in ["a", "b", "mail"] {
        assert_eq!(taken(&server, queue).len(), 1, "{queue}");
    }
    let metrics = text(&server.run(&["metrics"]).stdout);
    assert!(metrics.contains("quintet_held 0\n"), "{metrics}");
    assert!(server.stop().success());
}

/// Ids of a list, in pages of two.
fn listed(server: &Server, id: u64, what: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/messages/{id}/{what}?max=2{cursor}");
        let page = get(server, &path).json;
        let part = page[what].as_array().expect("a list");
        assert!(part.len() <= 2, "{page}");
        all.extend_from_slice(part);
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[test]
fn the_api_lists_parents_with_results_and_dependents_of_all_shards() {
    let data = Data::fresh();
    let server = start(&data, 4);
    let names = ["first", "second", "third"];
    let mut parents: Vec<u64> = names
        .iter()
        .zip(QUEUES)
        .map(|(name, queue)| put(&server, queue, &json!({ "name": name })))
        .collect();
    parents.sort_unstable();
    let after = json!({ "after": parents });
    let children: BTreeSet<u64> = QUEUES
        .iter()
        .flat_map(|queue| [put(&server, queue, &after), put(&server, queue, &after)])
        .collect();
    let dependents = listed(&server, parents[0], "dependents");
    let held = |one: &Value| one["state"] == "delayed";
    assert!(dependents.iter().all(held), "{dependents:?}");
    let ids = dependents.iter().map(|one| one["id"].as_u64());
    let ids: Vec<u64> = ids.map(|id| id.expect("an id")).collect();
    assert_eq!(ids.len(), children.len(), "each once: {ids:?}");
    assert_eq!(BTreeSet::from_iter(ids), children);
    // The result of each is at the address that its child has, when it is reserved too.
    for queue in &QUEUES[..names.len()] {
        for message in taken(&server, queue) {
            let token = message["lease"].as_str().expect("a token");
            let result = format!("from {}", message["name"].as_str().expect("a name"));
            let path = format!("/leases/{token}/finish");
            assert_eq!(
                post(&server, &path, &json!({ "result": result })).status,
                204
            );
        }
    }
    let child = *children.first().expect("a child");
    await_that("it is free", || shown(&server, child)["state"] == "ready");
    assert!(listed(&server, parents[0], "dependents").is_empty());
    let known = listed(&server, child, "parents");
    let ids: Vec<u64> = known.iter().filter_map(|one| one["id"].as_u64()).collect();
    assert_eq!(ids, parents);
    let queue = shown(&server, child)["queue"].as_str().map(str::to_owned);
    let reserved = taken(&server, &queue.expect("a queue"));
    let reserved = reserved.iter().find(|one| one["id"] == child);
    let after = &reserved.expect("it is reserved")["after"];
    for (at, parent) in known.iter().enumerate() {
        assert_eq!(parent["state"], "done", "{parent}");
        assert_eq!(after[at]["result"], parent["result"]);
        let path = parent["result"].as_str().expect("an address");
        let result = server.ask(&format!("GET {path}"), "", "").json();
        let name = parent["name"].as_str().expect("a name");
        assert_eq!(result["result"], format!("from {name}"), "{result}");
        assert!(QUEUES.contains(&parent["queue"].as_str().expect("a queue")));
    }
    for cursor in ["x", "1", "256_1", "0_-1"] {
        let path = format!("/messages/{}/dependents?cursor={cursor}", parents[0]);
        assert_eq!(get(&server, &path).status, 400, "{cursor}");
    }
    assert_eq!(get(&server, "/messages/77/dependents").status, 404);
    let document = get(&server, "/openapi.json").json;
    for what in ["parents", "dependents"] {
        let path = format!("/api/v1/messages/{{id}}/{what}");
        assert!(document["paths"][path]["get"].is_object(), "{what}");
    }
    assert!(server.stop().success());
}

#[test]
fn lists_of_parents_and_dependents_have_what_one_may_see() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let put = |args: &[&str]| {
        text(&server.run(&[&["put"], args].concat()).stdout)
            .trim()
            .to_owned()
    };
    let (mine, theirs) = (put(&["mine", "a"]), put(&["theirs", "b"]));
    let child = put(&["mine", "c", "--after", &mine, "--after", &theirs]);
    put(&["theirs", "d", "--after", &mine]);
    let dependents = get(&server, &format!("/messages/{mine}/dependents")).json;
    assert_eq!(dependents["dependents"].as_array().map(Vec::len), Some(1));
    assert_eq!(dependents["dependents"][0]["id"].to_string(), child);
    for what in ["parents", "dependents"] {
        let reply = get(&server, &format!("/messages/{theirs}/{what}"));
        assert_eq!(reply.status, 403, "{}", reply.json);
    }
    let parents = get(&server, &format!("/messages/{child}/parents")).json;
    assert_eq!(parents["parents"][0]["queue"], "mine", "{parents}");
    assert_eq!(parents["parents"][1]["queue"], Value::Null, "{parents}");
    assert!(server.stop().success());
}

#[test]
fn the_page_of_a_message_shows_its_graph() {
    let data = Data::fresh();
    let server = start(&data, 4);
    let before: Vec<u64> = (0..12).map(|_| put(&server, "a", &json!({}))).collect();
    let middle = put(&server, "mail", &json!({ "after": before }));
    let behind = put(&server, "b%3Ci%3E", &json!({ "after": [middle] }));
    let graph = |id: u64| {
        let line = format!("GET /messages/{id}");
        let page = server.ask(&line, "accept: text/html\r\n", "").body;
        let (_, rest) = page.split_once("class=\"deps\"").expect("a graph");
        let (graph, _) = rest.split_once("</section>").expect("its end");
        graph.to_owned()
    };
    let links = |graph: &str| graph.matches("href=").count();
    let seen = graph(middle);
    let (parents, rest) = seen.split_once("this message").expect("itself");
    assert_eq!(links(parents), 10, "{parents}");
    assert!(
        parents.contains("Waits for") && parents.contains(">2 more<"),
        "{parents}"
    );
    assert!(rest.contains("Waited for by"), "{rest}");
    assert!(rest.contains(&format!("messages/{behind}\"")), "{rest}");
    assert!(
        rest.contains("b&#60;i&#62;") && !rest.contains("<i>"),
        "{rest}"
    );
    // Nodes are counted over shards.
    for at in 0..9 {
        put(&server, QUEUES[at % 5], &json!({ "after": [middle] }));
    }
    let seen = graph(middle);
    let (_, rest) = seen.split_once("this message").expect("itself");
    assert_eq!((links(rest), rest.contains(">more<")), (9, true), "{rest}");
    assert_eq!(links(&graph(before[0])), 1);
    assert!(server.stop().success());
}

#[test]
fn many_are_freed_though_the_server_is_killed_on_the_way() {
    const MANY: u64 = 4000;
    let data = Data::fresh();
    let mut server = start(&data, 1);
    let parent = put(&server, "a", &json!({}));
    for _ in 0..MANY / 1000 {
        let messages = vec![json!({ "after": [parent] }); 1000];
        let reply = post(
            &server,
            "/queues/work/messages",
            &json!({ "messages": messages }),
        );
        assert_eq!(reply.status, 201, "{}", reply.json);
    }
    let message = taken(&server, "a").remove(0);
    settle(&server, &message, "finish");
    for _ in 0..3 {
        server = again(server, &data);
    }
    let count = |server: &Server| get(server, "/queues/work").json["ready"].as_u64();
    await_that("all are free", || count(&server) == Some(MANY));
    server = again(server, &data);
    assert_eq!(count(&server), Some(MANY));
    let metrics = text(&server.run(&["metrics"]).stdout);
    assert!(metrics.contains("quintet_held 0\n"), "{metrics}");
    assert!(server.stop().success());
}

#[test]
fn tens_of_thousands_are_freed_while_others_are_served() {
    const MANY: u64 = 40_000;
    let data = Data::fresh();
    let server = start(&data, 4);
    let parent = put(&server, "a", &json!({}));
    let messages = vec![json!({ "after": [parent] }); 1000];
    let body = json!({ "messages": messages });
    for _ in 0..MANY / 1000 {
        let reply = post(&server, "/queues/mail/messages", &body);
        assert_eq!(reply.status, 201, "{}", reply.json);
    }
    let message = taken(&server, "a").remove(0);
    settle(&server, &message, "finish");
    let ready = || get(&server, "/queues/mail").json["ready"].as_u64();
    let (mut seen, mut since) = (None, Instant::now());
    loop {
        let now = ready();
        if now == Some(MANY) {
            break;
        }
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "no more than {seen:?}");
        // In the same shard, in a turn of its own.
        put(&server, "mail+other", &json!({}));
        assert_eq!(taken(&server, "mail+other").len(), 1);
    }
    assert!(server.stop().success());
}

#[test]
fn bad_parents_are_refused_by_name() {
    let data = Data::fresh();
    let server = start(&data, 1);
    let tracked = json!({ "name": "first", "tracked": true });
    let first = put(&server, "a", &tracked);
    let many: Vec<u64> = (1..=10_000).collect();
    for (message, status, code) in [
        (json!({ "after": [77] }), 404, "after_not_found"),
        (json!({ "after": [first, "none"] }), 404, "after_not_found"),
        (json!({ "after": [0] }), 400, "bad_field"),
        (json!({ "after": many }), 400, "after_too_many"),
        (
            json!({ "name": "me", "after": ["me"] }),
            400,
            "after_itself",
        ),
        (json!({ "on": "end" }), 400, "bad_field"),
        (json!({ "after": [first], "on": "never" }), 400, "bad_json"),
    ] {
        let reply = try_put(&server, "work", &message);
        assert_eq!(reply.status, status, "{message:.60}: {}", reply.json);
        if status == 404 || code.starts_with("after") {
            assert_eq!(reply.json["code"], code, "{message:.60}");
        }
    }
    // By its name, from another queue; once it is done that is known for a while.
    let child = put(&server, "work", &json!({ "after": ["first"] }));
    let message = taken(&server, "a").remove(0);
    settle(&server, &message, "finish");
    await_that("it is free", || shown(&server, child)["state"] == "ready");
    for after in [json!(["first"]), json!([first])] {
        let later = put(&server, "work", &json!({ "after": after }));
        assert_eq!(shown(&server, later)["state"], "ready");
    }
    let zero = server.run(&["put", "work", "x", "--after", "0"]);
    assert_eq!(
        text(&zero.stderr),
        "quintet: after takes ids of messages, from 1 on, and names\n"
    );
    let args = [
        "put",
        "work",
        "x",
        "--after",
        "first",
        "--on",
        "end",
        "--if-failed",
        "run",
    ];
    let done = server.run(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(server.stop().success());
}
