//! `/api/v1/batches` and `quintet batch`: made, filled, committed; callbacks
//! once, over a kill, and with the queues in several shards.

use std::path::Path;

use crate::api::ask;
use crate::common::{Data, Server, Start, text};
use serde_json::{Value, json};

const LISTEN: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";

fn start(data: &Path, more: &str) -> Server {
    let config = format!("{more}\n{LISTEN}");
    Server::start_as_configured(data, Start::of(&config))
}

fn make(server: &Server) -> String {
    let new = json!({
        "description": "two",
        "complete": { "queue": "ran", "body": "all ran" },
        "success": { "queue": "done", "body": "all done", "headers": { "a": "b" } },
    });
    let reply = ask(server, "POST /batches", "", &new.to_string());
    assert_eq!(reply.status, 201, "{}", reply.json);
    assert_eq!(reply.json["open"], true);
    reply.json["id"].as_str().expect("an id").to_owned()
}

fn put(server: &Server, queue: &str, batch: &str) -> (u16, Value) {
    let messages = json!({ "messages": [{ "body": queue, "batch": batch }] });
    let path = format!("POST /queues/{queue}/messages");
    let reply = ask(server, &path, "", &messages.to_string());
    (reply.status, reply.json)
}

fn taken(server: &Server, queue: &str) -> Vec<Value> {
    let reply = ask(server, &format!("POST /queues/{queue}/reserve"), "", "{}");
    assert_eq!(reply.status, 200, "{}", reply.json);
    let messages = reply.json["messages"].as_array().expect("a list");
    messages.clone()
}

fn settle(server: &Server, message: &Value, act: &str) {
    let token = message["lease"].as_str().expect("a token");
    let reply = ask(server, &format!("POST /leases/{token}/{act}"), "", "{}");
    assert_eq!(reply.status, 204, "{}", reply.json);
}

fn shown(server: &Server, batch: &str) -> Value {
    ask(server, &format!("GET /batches/{batch}"), "", "").json
}

/// Ids of all batches, page by page.
fn listed(server: &Server) -> Vec<String> {
    let mut path = "GET /batches?limit=1".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = ask(server, &path, "", "").json;
        let batches = page["batches"].as_array().expect("a list");
        let id = |batch: &Value| batch["id"].as_str().expect("an id").to_owned();
        ids.extend(batches.iter().map(id));
        match page["next"].as_str() {
            Some(next) => path = format!("GET /batches?limit=1&after={next}"),
            None => return ids,
        }
    }
}

#[test]
fn callbacks_are_put_once_over_kills_and_shards() {
    for shards in [1, 4] {
        let data = Data::fresh();
        let more = format!("shards = {shards}\n[[queue]]\nname = 'c'\nretry_max = 0");
        let mut server = start(&data, &more);
        let again = |server: Server| {
            server.kill();
            start(&data, &more)
        };
        let batch = make(&server);
        let queues = ["a", "b", "c", "d", "e"];
        for queue in queues {
            assert_eq!(put(&server, queue, &batch).0, 201);
        }
        server = again(server);
        let seen = shown(&server, &batch);
        assert_eq!((&seen["total"], &seen["pending"]), (&json!(5), &json!(5)));
        let act = format!("POST /batches/{batch}/commit");
        assert_eq!(ask(&server, &act, "", "").json["open"], false);
        let (status, problem) = put(&server, "a", &batch);
        assert_eq!((status, &problem["code"]), (409, &json!("batch_closed")));
        for queue in queues {
            let message = taken(&server, queue).remove(0);
            settle(
                &server,
                &message,
                if queue == "c" { "fail" } else { "finish" },
            );
        }
        server = again(server);
        let ran = taken(&server, "ran");
        assert_eq!(ran.len(), 1, "{ran:?}");
        assert_eq!(ran[0]["body"], "all ran");
        assert_eq!(ran[0]["headers"]["batch"], batch);
        assert_eq!(ran[0]["headers"]["batch_event"], "complete");
        settle(&server, &ran[0], "finish");
        let seen = shown(&server, &batch);
        assert_eq!(
            (&seen["pending"], &seen["failed"], &seen["complete"]),
            (&json!(1), &json!(1), &json!("done"))
        );
        assert!(taken(&server, "done").is_empty());
        let message = taken(&server, "c").remove(0);
        settle(&server, &message, "finish");
        server = again(server);
        let done = taken(&server, "done");
        assert_eq!(done.len(), 1, "{done:?}");
        assert_eq!(done[0]["headers"]["a"], "b");
        assert!(taken(&server, "ran").is_empty());
        assert_eq!(listed(&server), [batch.as_str()]);
        let gone = ask(&server, &format!("DELETE /batches/{batch}"), "", "");
        assert_eq!(gone.status, 204);
        assert_eq!(shown(&server, &batch)["code"], "batch_not_found");
        assert!(server.stop().success());
    }
}

#[test]
fn a_batch_may_count_cancelled_messages_as_finished() {
    let data = Data::fresh();
    let server = start(&data, "shards = 4");
    let wrong = json!({ "success": { "queue": "done" }, "cancelled": "done" });
    let wrong = ask(&server, "POST /batches", "", &wrong.to_string());
    assert_eq!(
        (wrong.status, &wrong.json["field"], &wrong.json["detail"]),
        (
            400,
            &json!("cancelled"),
            &json!("takes failed or finished; not \"done\"")
        )
    );
    let new = ["batch", "new", "--success", "done=all done"];
    let batch = server.printed(&[&new[..], &["--cancelled", "finished"]].concat());
    let batch = batch.trim();
    let queues = ["a", "b", "c"];
    for queue in queues {
        assert_eq!(put(&server, queue, batch).0, 201);
    }
    let commit = ask(&server, &format!("POST /batches/{batch}/commit"), "", "");
    assert_eq!(commit.status, 200, "{}", commit.json);
    for queue in queues {
        let path = format!("POST /queues/{queue}/operations/cancel");
        let of = json!({ "batch": batch }).to_string();
        assert_eq!(ask(&server, &path, "", &of).json["messages"], 1);
    }
    server.kill();
    let server = start(&data, "shards = 4");
    let seen = shown(&server, batch);
    assert_eq!(
        (&seen["pending"], &seen["failed"], &seen["cancelled"]),
        (&json!(0), &json!(0), &json!("finished"))
    );
    assert_eq!(taken(&server, "done")[0]["body"], "all done");
}

#[test]
fn a_member_that_is_deleted_under_a_lease_has_not_succeeded() {
    let data = Data::fresh();
    let server = start(&data, "");
    let batch = make(&server);
    let messages = json!({"messages": [
        {"body": "x", "batch": batch, "name": "n", "tracked": true}]});
    let stored = ask(
        &server,
        "POST /queues/q/messages",
        "",
        &messages.to_string(),
    );
    let id = stored.json["ids"][0].as_u64().expect("an id");
    let commit = ask(&server, &format!("POST /batches/{batch}/commit"), "", "");
    assert!(commit.status < 300, "{}", commit.json);
    assert_eq!(taken(&server, "q").len(), 1);
    let deleted = ask(&server, &format!("DELETE /messages/{id}"), "", "");
    assert_eq!(deleted.status, 204, "{}", deleted.json);
    let response = shown(&server, &batch);
    assert_eq!(
        [
            &response["pending"],
            &response["failed"],
            &response["success"]
        ],
        [&json!(1), &json!(1), &json!("no")]
    );
    let track = ask(&server, "GET /queues/q/tracks/n", "", "").json;
    assert_eq!(track["state"], "gone", "{track}");
    let trace = ask(&server, &format!("GET /messages/{id}/trace"), "", "").json;
    let trace = trace["text"].as_str().expect("a text");
    assert!(trace.contains("deleted"), "{trace}");
}

#[test]
fn a_callback_to_a_full_queue_waits_for_room() {
    let dir = tempfile::tempdir().unwrap();
    let more = "shards = 4\n[[queue]]\nname = 'done'\nmessages_max = 1";
    let server = start(&dir.path().join("data"), more);
    assert!(server.run(&["put", "done", "first"]).status.success());
    let batch = make(&server);
    let act = format!("POST /batches/{batch}/commit");
    assert_eq!(ask(&server, &act, "", "").status, 200);
    let ran = taken(&server, "ran");
    assert_eq!(ran.len(), 1);
    settle(&server, &ran[0], "finish");
    assert_eq!(shown(&server, &batch)["success"], "no");
    let metrics = text(&server.run(&["metrics"]).stdout);
    assert!(metrics.contains("quintet_batches_waiting 1\n"), "{metrics}");
    // It takes what is in its way, and then waits for the callback.
    let first = taken(&server, "done");
    assert_eq!(first[0]["body"], "first");
    settle(&server, &first[0], "finish");
    let reply = ask(
        &server,
        "POST /queues/done/reserve",
        "",
        "{\"wait_ms\":60000}",
    );
    assert_eq!(reply.json["messages"][0]["body"], "all done");
    assert_eq!(shown(&server, &batch)["success"], "put");
    assert!(server.stop().success());
}

#[test]
fn several_messages_are_put_into_a_batch_of_any_shard() {
    let data = Data::fresh();
    let mut server = start(&data, "shards = 4");
    let batch = make(&server);
    let list = |batch: &str| {
        let message = json!({ "body": "m", "batch": batch });
        json!({ "messages": [message, { "body": "alone" }, message] }).to_string()
    };
    let queues = ["a", "b", "c", "d", "e"];
    let put = |server: &Server, queue: &str, batch: &str| {
        let path = format!("POST /queues/{queue}/messages");
        let reply = ask(server, &path, "", &list(batch));
        (reply.status, reply.json)
    };
    for queue in queues {
        let (status, stored) = put(&server, queue, &batch);
        assert_eq!(status, 201, "{stored}");
        assert_eq!(stored["ids"].as_array().map(Vec::len), Some(3));
    }
    server.kill();
    server = start(&data, "shards = 4");
    let seen = shown(&server, &batch);
    assert_eq!((&seen["total"], &seen["pending"]), (&json!(10), &json!(10)));
    // Of a list of which one is refused none is stored, nor counted.
    let closed = make(&server);
    // It waits for these: one whose callbacks were put takes others.
    assert_eq!(put(&server, "held", &closed).0, 201);
    let act = format!("POST /batches/{closed}/commit");
    assert_eq!(ask(&server, &act, "", "").json["open"], false);
    for queue in queues {
        let (status, problem) = put(&server, queue, &closed);
        assert_eq!((status, &problem["code"]), (409, &json!("batch_closed")));
        let numbers = ask(&server, &format!("GET /queues/{queue}"), "", "").json;
        assert_eq!(numbers["ready"], 3, "{numbers}");
    }
    assert!(server.stop().success());
}

#[test]
fn beanstalk_and_hooks_put_into_a_batch_of_any_shard() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let rules = dir.path().join("rules.lua");
    let lua = "function before_put(msg)
           if msg.queue == 'tagged' then msg.batch = msg.attrs.order end
           if msg.queue == 'order' then
             for _, part in ipairs{'a', 'b', 'c', 'd', 'e'} do
               quintet.put{queue = part, body = part, batch = msg.attrs.order}
             end
           end
         end";
    std::fs::write(&rules, lua).unwrap();
    let config = format!("shards = 4\nhooks = {rules:?}\n");
    let started = || Start::of(&config).listen(&["http=0", "beanstalk=0"]);
    let mut server = Server::start_with(&data, started());
    let batch = make(&server);
    let total = |server: &Server| shown(server, &batch)["total"].clone();
    let order = |server: &Server, queue: &str, batch: &str| {
        let message = json!({ "body": "x", "headers": { "order": batch } });
        let list = json!({ "messages": [message] }).to_string();
        let path = format!("POST /queues/{queue}/messages");
        ask(server, &path, "", &list)
    };
    let response = |server: &Server, request: &str| {
        let mut client = server.client_of("beanstalk");
        client.send(request.as_bytes());
        text(&client.until(b"\r\n"))
    };
    for tube in ["a", "b", "c", "d", "e"] {
        let mut client = server.client_of("beanstalk");
        client.send(format!("use {tube}\r\nput-member 0 0 60 1 {batch}\r\nx\r\n").as_bytes());
        assert_eq!(text(&client.until(b"\r\n")), format!("USING {tube}\r\n"));
        let inserted = text(&client.until(b"\r\n"));
        assert!(inserted.starts_with("INSERTED "), "{inserted}");
    }
    assert_eq!(total(&server), 5);
    assert_eq!(order(&server, "tagged", &batch).status, 201);
    assert_eq!(total(&server), 6);
    assert_eq!(order(&server, "order", &batch).status, 201);
    assert_eq!(total(&server), 11);
    server.kill();
    server = Server::start_with(&data, started());
    assert_eq!(total(&server), 11);
    let commit = format!("commit-batch {batch}\r\n");
    assert_eq!(response(&server, &commit), "COMMITTED\r\n");
    // A batch that takes no more members is named to whoever puts one, and none is stored.
    let member = format!("put-member 0 0 60 1 {batch}\r\nx\r\n");
    assert_eq!(response(&server, &member), "BATCH_CLOSED\r\n");
    assert_eq!(
        order(&server, "tagged", &batch).json["code"],
        "batch_closed"
    );
    let ready =
        |queue: &str| ask(&server, &format!("GET /queues/{queue}"), "", "").json["ready"].clone();
    assert_eq!((ready("tagged"), ready("a")), (json!(1), json!(2)));
    assert!(server.stop().success());
}

#[test]
fn a_hook_makes_a_batch_over_shards_in_the_step_of_its_put_and_over_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let rules = dir.path().join("rules.lua");
    let lua = "function before_put(msg)
           if msg.queue ~= 'order' then return end
           local b = quintet.batch{
             complete = {queue = 'ran', body = 'all ran'},
             success = {queue = 'packed', body = msg.body},
           }
           for _, part in ipairs{'a', 'b', 'c', 'd', 'e'} do
             quintet.put{queue = part, body = part, batch = b}
           end
           b:commit()
           quintet.table('orders'):set(msg.body, b.id)
           msg.batch = b
         end
         quintet.command('ORDER', function(args)
           local id = quintet.table('orders'):get(args[1])
           local b = id and quintet.batch(id):show()
           return b and ('%d %d %s %s'):format(b.total, b.pending, b.open, id) or 'none'
         end)";
    std::fs::write(&rules, lua).unwrap();
    let config =
        format!("shards = 4\nhooks = {rules:?}\n[[queue]]\nname = 'e'\nmessages_max = 1\n");
    let started = || Start::of(&config).listen(&["http=0", "beanstalk=0"]);
    let mut server = Server::start_with(&data, started());
    let order = |server: &Server, body: &str| {
        let list = json!({ "messages": [{ "body": body }] }).to_string();
        ask(server, "POST /queues/order/messages", "", &list)
    };
    let response = |server: &Server, body: &str| {
        let mut client = server.client_of("beanstalk");
        client.send(format!("ORDER {body}\r\n").as_bytes());
        text(&client.until(b"\r\n"))
    };
    assert_eq!(order(&server, "7").status, 201);
    let first = response(&server, "7");
    assert!(first.starts_with("6 6 false b-"), "{first}");
    // A part that finds no room refuses all of it, the batch too.
    let refused = order(&server, "8");
    assert_eq!(refused.status, 507, "{}", refused.json);
    assert_eq!(response(&server, "8"), "none\r\n");
    assert_eq!(listed(&server).len(), 1);
    server.kill();
    server = Server::start_with(&data, started());
    assert_eq!(response(&server, "7"), first);
    for queue in ["a", "b", "c", "d", "e", "order"] {
        let none = taken(&server, "packed");
        assert_eq!(none, Vec::<Value>::new(), "before {queue}");
        let found = taken(&server, queue);
        assert_eq!(found.len(), 1, "{queue}: {found:?}");
        settle(&server, &found[0], "finish");
    }
    // A callback is carried to its queue's shard: it comes by itself.
    for (queue, body) in [("ran", "all ran"), ("packed", "7")] {
        let wait = json!({ "wait_ms": 60_000 }).to_string();
        let path = format!("POST /queues/{queue}/reserve");
        let reply = ask(&server, &path, "", &wait);
        assert_eq!(reply.json["messages"][0]["body"], body, "{}", reply.json);
        settle(&server, &reply.json["messages"][0], "finish");
    }
    assert!(server.stop().success());
}

#[test]
fn bad_batches_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let more = "batches_max = 1\nbatch_bytes_max = \"100B\"\nshards = 1";
    let server = start(&dir.path().join("data"), more);
    let post = |body: &str| {
        let reply = ask(&server, "POST /batches", "", body);
        (reply.status, reply.json["code"].clone())
    };
    for (body, status, code) in [
        ("{}", 400, "batch_without_callback"),
        (r#"{"success":{"queue":""}}"#, 400, "bad_name"),
        (
            r#"{"success":{"queue":"a"},"parent":"x"}"#,
            400,
            "bad_field",
        ),
        (
            r#"{"success":{"queue":"a"},"parent":"b-0000000000000000"}"#,
            404,
            "batch_not_found",
        ),
    ] {
        let response = post(body);
        assert_eq!((response.0, &response.1), (status, &json!(code)), "{body}");
    }
    let long = json!({ "success": { "queue": "a", "body": "x".repeat(200) } });
    assert_eq!(post(&long.to_string()), (413, json!("batch_too_large")));
    assert_eq!(post(r#"{"success":{"queue":"a"}}"#).0, 201);
    let more = post(r#"{"success":{"queue":"a"}}"#);
    assert_eq!(more, (429, json!("too_many_batches")));
    assert_eq!(put(&server, "a", "x").0, 400);
    assert_eq!(put(&server, "a", "b-0000000000000000").0, 404);
    assert!(server.stop().success());
}

#[test]
fn the_command_line_makes_and_steers_batches() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"), "shards = 2");
    let run = |args: &[&str]| {
        let done = server.run(args);
        let out = text(&done.stdout);
        assert!(
            done.status.success(),
            "{args:?}: {out}{}",
            text(&done.stderr)
        );
        out
    };
    let id = run(&[
        "batch",
        "new",
        "--success",
        "done=all",
        "--description",
        "words",
    ]);
    let id = id.trim();
    run(&["put", "work", "x", "--batch", id]);
    let listed = run(&["batch", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((&listed["id"], &listed["total"]), (&json!(id), &json!(1)));
    assert!(run(&["batch", "show", id]).contains("words"));
    run(&["batch", "commit", id]);
    run(&["batch", "open", id]);
    run(&["batch", "commit", id]);
    assert_eq!(run(&["take", "work"]).trim(), "x");
    assert_eq!(run(&["take", "done"]).trim(), "all");
    run(&["batch", "forget", id]);
    let none = server.run(&["batch", "show", id]);
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("no such batch"));
    assert!(server.stop().success());
}
