//! Every address of RQ's API, through a socket.

use crate::common;

use common::{World, eventually};
use quintet_client::ByteBudget;
use serde_json::{Value, json};
use std::sync::Arc;

#[test]
fn the_first_page_and_the_lists_of_queues() {
    let world = World::new();
    world.queue("b-2", "echo done >&3");
    world.queue("a_1", "echo done >&3");
    let page = world.get("/q");
    assert_eq!(page.status, 200);
    assert!(
        page.text().contains("QUEUEMGR: OPERATIONAL")
            && page.text().contains("QUEUE MGR is OPERATIONAL"),
        "{}",
        page.text()
    );
    assert!(page.text().contains("href=\"/q/a_1\""), "{}", page.text());
    assert_eq!(world.get("/q.txt").text(), "/q/a_1.txt\n/q/b-2.txt\n");
    let all = world.get("/q.json").json();
    assert_eq!(all["status"], "OPERATIONAL");
    assert_eq!(all["ping"], "pong");
    let names: Vec<&Value> = all["queues"].as_array().expect("a list").iter().collect();
    assert_eq!(names[0]["name"], "a_1");
    assert_eq!(names[1]["status"], "UP");
    assert_eq!(names[1]["counts"]["que"], 0);
}

#[test]
fn a_queue_in_three_forms() {
    let world = World::new();
    world.paused_queue("test");
    let id = world.message("test", json!({"param1": "x"}));
    let text = world.get("/q/test.txt").text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "status: PAUSE");
    assert!(lines[1].starts_with("uptime: "));
    assert_eq!(
        lines[2..],
        [
            "",
            "prep: 0",
            "que: 1",
            "run: 0",
            "",
            "done: 0",
            "err: 0",
            "relayed: 0"
        ]
    );
    let json = world.get("/q/test.json").json();
    assert_eq!(json["status"], "PAUSE");
    assert_eq!(json["que_size"], 1);
    assert_eq!(json["messages"]["que"], json!([id]));
    let page = world.get("/q/test").text();
    assert!(
        page.contains(&id) && page.contains("status: PAUSE"),
        "{page}"
    );
    for path in ["/q/nope", "/q/nope.txt", "/q/nope.json", "/q/nope/config"] {
        let reply = world.get(path);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (404, "404 - Queue not found")
        );
    }
}

#[test]
fn errors_are_acknowledged() {
    let world = World::new();
    world.queue("test", "echo err bad >&3");
    let button = "action=\"/q/test/ack_errs\"";
    assert!(!world.get("/q/test").text().contains(button));
    let id = world.message("test", json!({}));
    assert_eq!(world.end("test", &id), "err - bad");
    assert!(world.get("/q/test").text().contains(button));
    let reply = world.post("/q/test/ack_errs", "back=/q/test");
    assert!(reply.leads_to().starts_with("/q/test?notice="));
    let page = world.get(reply.leads_to()).text();
    assert!(page.contains("Successfully acknowledged errors"), "{page}");
    assert!(!page.contains(button), "{page}");
    assert!(
        page.contains("<h2>errack: 1</h2>") && page.contains(&id),
        "{page}"
    );
    // Who watches `err` is not told of it again.
    let text = world.get("/q/test.txt").text();
    assert!(text.ends_with("done: 0\nerr: 0\nrelayed: 0\n"), "{text}");
    let json = world.get("/q/test.json").json();
    assert_eq!(
        (&json["err_size"], &json["errack_size"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(json["messages"]["errack"], json!([id]));
    let counts = world.get("/q.json").json()["queues"][0]["counts"].clone();
    assert_eq!((&counts["err"], &counts["errack"]), (&json!(0), &json!(1)));
    assert_eq!(world.state("test", &id), "errack");
    assert_eq!(world.json("test", &id)["status"], "errack - bad");
    let reply = world.post("/q/test/ack_errs", "x_format=json");
    assert_eq!(reply.json(), json!(["ok", 0]));
    let nope = world.post("/q/nope/ack_errs", "x_format=json");
    assert_eq!(
        (nope.status, nope.text().as_str()),
        (404, "404 - Queue not found")
    );
    world.post("/q/test/adminoper", "down=1&back=/");
    let reply = world.post("/q/test/ack_errs", "x_format=json");
    assert_eq!(reply.json(), json!(["fail", "status: DOWN"]));
    assert_eq!(world.post("/q/test/ack_errs", "back=/").status, 503);
}

#[test]
fn a_queue_that_is_down_says_only_that() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    world.post("/q/test/adminoper", "down=1&back=/");
    assert_eq!(world.get("/q/test.txt").text(), "status: DOWN\n");
    assert_eq!(world.get("/q/test.json").json(), json!({"status": "DOWN"}));
}

#[test]
fn settings_of_a_queue() {
    let world = World::new();
    world.queue_with("test", "echo done >&3", json!({"num_workers": 3}));
    for path in ["/q/test/config", "/q/test/config.json"] {
        let config = world.get(path).json();
        assert_eq!(config["name"], "test");
        assert_eq!(config["num_workers"], 3);
    }
}

#[test]
fn messages_come_in_three_forms() {
    let world = World::new();
    world.paused_queue("test");
    let json_body = json!({"dest": "test", "src": "me", "param1": "a b", "param4": "d"});
    let in_form =
        "mesg=%7B%22src%22%3A%22me%22%2C%22param1%22%3A%22a+b%22%2C%22param4%22%3A%22d%22%7D";
    let fields =
        "x_format=html&mesg[src]=me&mesg[param1]=a+b&mesg[param4]=d&mesg[due]=&mesg[count]=";
    let multi: &[(&str, &[u8])] = &[("mesg", br#"{"src":"me","param1":"a b","param4":"d"}"#)];
    world.post_json("/q/test/new_message", &json_body).json();
    world.post("/q/test/new_message", in_form).json();
    world.post_parts("/q/test/new_message", multi).json();
    let page = world.post("/q/test/new_message", fields);
    assert_eq!(page.status, 200);
    assert!(
        page.text().contains("Created message http://"),
        "{}",
        page.text()
    );
    let back = world.post("/q/test/new_message", &format!("{fields}&back=/q/test"));
    let shown = world.get(back.leads_to()).text();
    assert!(shown.contains("Created message http://"), "{shown}");
    let ids = world.get("/q/test.json").json()["messages"]["que"].clone();
    let ids = ids.as_array().expect("a list");
    assert_eq!(ids.len(), 5);
    for id in ids {
        let message = world.json("test", id.as_str().expect("an id"));
        assert_eq!(message["src"], "me");
        assert_eq!(message["param1"], "a b");
        assert_eq!(message["param4"], "d");
        assert_eq!(message["state"], "que");
        assert_eq!(message["count"], 0);
    }
}

#[test]
fn hooks_are_a_list_or_words() {
    let world = World::new();
    world.paused_queue("test");
    let id = world.message("test", json!({"post_run_webhook": "http://a/ http://b/"}));
    let hooks = json!(["http://a/", "http://b/"]);
    assert_eq!(world.json("test", &id)["post_run_webhook"], hooks);
    let id = world.message("test", json!({"post_run_webhook": hooks}));
    assert_eq!(world.json("test", &id)["post_run_webhook"], hooks);
}

#[test]
fn messages_that_are_none() {
    let world = World::new();
    world.paused_queue("test");
    for (form, status) in [
        ("mesg=%7B%22_method%22%3A%22explode%22%7D", 400),
        ("mesg=rubbish", 400),
        ("mesg=[1]", 400),
        ("nothing=1", 400),
        ("", 400),
    ] {
        assert_eq!(
            world.post("/q/test/new_message", form).status,
            status,
            "{form}"
        );
    }
    let reply = world.post_json("/q/nope/new_message", &json!({}));
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (404, "404 - Queue not found")
    );
    let bad = world.post_json("/q/test/new_message", &json!({"count": "many"}));
    assert_eq!(bad.json()[0], "fail");
}

#[test]
fn a_message_in_two_forms_and_its_state() {
    let world = World::new();
    world.queue("test", "echo done '<b>fine</b>' >&3");
    let id = world.message("test", json!({"param1": "<script>alert(1)</script>"}));
    assert_eq!(world.end("test", &id), "done - <b>fine</b>");
    assert_eq!(
        world.get(&format!("/q/test/{id}/state.json")).json(),
        json!(["done"])
    );
    let page = world.get(&format!("/q/test/{id}")).text();
    assert!(page.contains(&id), "{page}");
    assert!(
        !page.contains("<script>alert") && !page.contains("<b>fine"),
        "{page}"
    );
    assert_eq!(world.get("/q/test/done.json").json(), json!([id]));
    let nope = "20091109.0558.57.780.7509656";
    for path in [
        format!("/q/test/{nope}"),
        format!("/q/test/{nope}.json"),
        "/q/test/x".into(),
    ] {
        let reply = world.get(&path);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (404, "404 - Message ID not found")
        );
    }
    assert_eq!(world.get(&format!("/q/test/{nope}/state.json")).status, 404);
}

#[test]
fn the_last_that_are_done() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let ids: Vec<String> = (0..12)
        .map(|_| {
            let id = world.message("test", json!({}));
            world.end("test", &id);
            id
        })
        .collect();
    let newest: Vec<&String> = ids.iter().rev().collect();
    assert_eq!(world.get("/q/test/done.json").json(), json!(newest[..10]));
    assert_eq!(
        world.get("/q/test/done.json?limit=2").json(),
        json!(newest[..2])
    );
    assert_eq!(world.get("/q/test/done.json?limit=x").status, 400);
}

#[test]
fn deleting_and_committing() {
    let world = World::new();
    world.paused_queue("test");
    let id = world.message("test", json!({"_method": "prep"}));
    assert_eq!(world.state("test", &id), "prep");
    let path = format!("/q/test/{id}");
    let reply = world.post(&path, "_method=commit&x_format=json");
    assert_eq!(reply.json(), json!(["ok", "msg commited"]));
    assert_eq!(world.state("test", &id), "que");
    let again = world.post(&path, "_method=commit&x_format=json");
    assert_eq!(again.json()[0], "fail");
    let reply = world.post(&path, "_method=delete&x_format=json");
    assert_eq!(reply.json(), json!(["ok", "msg deleted"]));
    let gone = world.post(&path, "_method=delete&x_format=json");
    assert_eq!(gone.json(), json!(["fail", "cannot find message"]));
    assert_eq!(world.post(&path, "_method=explode").status, 400);
    assert_eq!(world.post(&path, "").status, 400);
    let id = world.message("test", json!({"_method": "prep"}));
    let html = world.post(&format!("/q/test/{id}"), "_method=commit");
    let shown = world.get(html.leads_to()).text();
    assert!(shown.contains("Message committed successfully"), "{shown}");
    let html = world.post(&format!("/q/test/{id}"), "_method=delete");
    assert!(
        html.leads_to().starts_with("/q/test?notice="),
        "{}",
        html.leads_to()
    );
}

#[test]
fn destroying_what_runs() {
    let world = World::new();
    world.queue("test", "echo run on >&3; exec sleep 1000");
    let id = world.message("test", json!({}));
    eventually("it runs", || {
        (world.json("test", &id)["status"] == "run - on").then_some(())
    });
    let reply = world.post(&format!("/q/test/{id}"), "_method=destroy&x_format=json");
    assert_eq!(reply.json(), json!(["ok", "msg destroyed"]));
    assert!(world.end("test", &id).starts_with("err"));
}

#[test]
fn searching() {
    let world = World::new();
    world.paused_queue("test");
    for param in ["apple", "pineapple", "pear"] {
        world.message("test", json!({"param1": param, "param2": "fruit"}));
    }
    let found = |query: &str| world.get(&format!("/search?name=test&{query}")).json();
    assert_eq!(
        found("query[param1]=apple").as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        found("query[param1]=apple&exact=1")
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let both = found("query%5Bparam1%5D=p&query%5Bparam2%5D=fruit");
    assert_eq!(both.as_array().map(Vec::len), Some(3));
    assert_eq!(found("query[param1]=plum"), json!([]));
    assert_eq!(world.get("/search?name=nope").status, 404);
}

#[test]
fn operating_a_queue() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let status = || {
        world
            .get("/q/test.txt")
            .text()
            .lines()
            .next()
            .map(str::to_owned)
    };
    for (oper, shown) in [
        ("pause", "status: PAUSE"),
        ("down", "status: DOWN"),
        ("up", "status: PAUSE"),
        ("resume", "status: UP"),
    ] {
        let reply = world.post("/q/test/adminoper", &format!("{oper}=1&back=%2Fq%2Ftest"));
        assert!(reply.leads_to().starts_with("/q/test?notice="));
        assert_eq!(status().as_deref(), Some(shown), "{oper}");
    }
    assert_eq!(world.post("/q/test/adminoper", "back=/").status, 400);
    assert_eq!(world.post("/q/test/adminoper", "up=1&down=1").status, 400);
    assert_eq!(world.post("/q/nope/adminoper", "up=1").status, 404);
    // Of a queue without a script nothing would be paused.
    crate::common::console::put(&world, "plain", "x");
    let reply = world.post("/q/plain/adminoper", "pause=1&x_format=json");
    assert!(
        reply.text().contains("the queue has no script"),
        "{}",
        reply.text()
    );
    assert_eq!(world.post("/q/test/restart", "back=/q/test").status, 303);
    assert_eq!(world.post("/q/nope/restart", "back=/").status, 404);
}

#[test]
fn no_client_is_redirected_elsewhere() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    for back in [
        "http://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "evil",
        "/%0d%0ax: y",
    ] {
        let reply = world.post("/q/test/adminoper", &format!("up=1&back={back}"));
        assert!(
            reply.leads_to().starts_with("/q/test?notice="),
            "{back}: {}",
            reply.leads_to()
        );
    }
}

#[test]
fn making_and_deleting_queues() {
    let world = World::new();
    let script = world.script("made", "echo done made >&3");
    let parts: &[(&str, &[u8])] = &[
        ("queue[name]", b"made"),
        ("queue[script]", script.to_str().expect("text").as_bytes()),
        ("queue[num_workers]", b"2"),
        ("queue[exec_prefix]", b""),
        ("queue[coalesce_params][]", b"1"),
        ("queue[coalesce_params][]", b"2"),
    ];
    let reply = world.post_parts("/new_queue", parts);
    let shown = world.get(reply.leads_to()).text();
    assert!(shown.contains("queue created - awesome"), "{shown}");
    let config = world.get("/q/made/config.json").json();
    assert_eq!(config["num_workers"], 2);
    assert_eq!(config["coalesce_params"], json!([1, 2]));
    let id = world.message("made", json!({}));
    assert_eq!(world.end("made", &id), "done - made");
    let again = world.post_parts("/new_queue", parts);
    let shown = world.get(again.leads_to()).text();
    assert!(shown.contains("already created"), "{shown}");

    let file = world.folder.path().join("linked.json");
    let config = json!({"name": "linked", "script": script, "exec_prefix": ""});
    std::fs::write(&file, config.to_string()).expect("written");
    let path = file.to_str().expect("text");
    let reply = world.post("/new_queue_link", &format!("queue[json_path]={path}"));
    let shown = world.get(reply.leads_to()).text();
    assert!(shown.contains("queue created - awesome"), "{shown}");
    assert_eq!(world.get("/q/linked.txt").status, 200);
    // As RQ's own tests do: from its folder on.
    let config = json!({"name": "near", "script": script, "exec_prefix": ""});
    std::fs::write(world.root().join("config/near.json"), config.to_string()).expect("written");
    let reply = world.post("/new_queue_link", "queue[json_path]=./config/near.json");
    let shown = world.get(reply.leads_to()).text();
    assert!(shown.contains("queue created - awesome"), "{shown}");
    let id = world.message("near", json!({}));
    assert_eq!(world.end("near", &id), "done - made");
    for (path, why) in [
        ("", "json_path is empty"),
        ("./config/no.json", "No such file"),
    ] {
        let reply = world.post("/new_queue_link", &format!("queue[json_path]={path}"));
        let shown = world.get(reply.leads_to()).text();
        assert!(shown.contains(why), "{shown}");
    }

    let reply = world.post("/delete_queue", "queue_name=made");
    assert_eq!(reply.status, 303);
    assert_eq!(world.get("/q/made.txt").status, 404);
}

#[test]
fn queues_are_not_made_unasked() {
    let world = World::with(|settings| settings.allow_new_queue = false);
    for (path, form) in [
        ("/new_queue", "queue[name]=a&queue[script]=/bin/true"),
        ("/new_queue_link", "queue[json_path]=/etc/passwd"),
        ("/delete_queue", "queue_name=a"),
    ] {
        assert_eq!(world.post(path, form).status, 403, "{path}");
    }
    assert_eq!(world.get("/new_queue").status, 403);
}

#[test]
fn forms_and_files_of_the_pages() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    assert!(world.get("/new_queue").text().contains("queue[script]"));
    assert!(
        world
            .get("/q/test/new_message")
            .text()
            .contains("mesg[param4]")
    );
    let shape = json!({"default": "hidden", "mesg_param1": {"label": "Who", "help": "A <name>"}});
    std::fs::write(world.root().join("queue/test/form.json"), shape.to_string()).expect("written");
    let form = world.get("/q/test/new_message").text();
    assert!(form.contains("Who <input name=\"mesg[param1]\""), "{form}");
    assert!(
        form.contains("A &#60;name&#62;") && !form.contains("mesg[param4]"),
        "{form}"
    );
    assert_eq!(
        world.get("/assets/rq.css").header("content-type"),
        Some("text/css")
    );
    assert_eq!(world.get("/assets/tail.js").status, 200);
    assert_eq!(world.get("/assets/../Cargo.toml").status, 404);
    assert_eq!(world.get("/nowhere").status, 404);
    assert_eq!(world.ask("DELETE", "/q/test", &[], b"").status, 405);
    assert_eq!(world.get("/healthz").text(), "ok");
}

/// Memory for a list is taken before it is made.
#[test]
fn lists_of_rq_take_memory_first() {
    let memory = ByteBudget::new(1 << 20);
    let world = World::with(|settings| settings.memory = Some(Arc::clone(&memory)));
    for number in 0..200 {
        world.queue(&format!("q{number}"), "echo done ok >&3");
    }
    let lists = ["/q", "/q.txt", "/q.json", "/q/q1/done.json?limit=10000"];
    let statuses = || lists.map(|path| world.get(path).status);
    let search = || world.get("/search?name=q1&query[param1]=x").status;
    assert_eq!(statuses(), [200, 200, 200, 503]);
    assert_eq!(search(), 503);
    let _all = memory.take(1 << 20).expect("it is free");
    assert_eq!(statuses(), [503; 4]);
}

#[test]
fn a_reserve_takes_memory_before_it_copies_its_messages() {
    let memory = ByteBudget::new(1 << 20);
    let world = World::with(|settings| settings.memory = Some(Arc::clone(&memory)));
    let message = json!({"headers": {"a": "x".repeat(300_000)}});
    for _ in 0..2 {
        let put = world.post_json(
            "/api/v1/queues/long/messages",
            &json!({"messages": [&message]}),
        );
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let reserve = |max: u32| {
        let take = json!({"max": max, "wait_ms": 60_000});
        world.post_json("/api/v1/queues/long/reserve", &take)
    };
    assert_eq!(reserve(2).status, 503);
    // Both are back.
    for _ in 0..2 {
        let one = reserve(1);
        assert_eq!(one.status, 200, "{}", one.text());
        assert_eq!(one.json()["messages"].as_array().map(Vec::len), Some(1));
    }
}
