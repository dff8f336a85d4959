//! `rq_router`: new messages go on by rules.

use crate::common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use common::{World, eventually};
use serde_json::{Value, json};

fn rules(world: &World) -> PathBuf {
    world.root().join("config/rq_router_rules.toml")
}

/// The file is there whole or not at all.
fn write(world: &World, text: &str) {
    let new = world.folder.path().join("rules.new");
    fs::write(&new, text).expect("written");
    fs::rename(new, rules(world)).expect("in its place");
}

/// Posts a message; answers its id in the router's queue.
fn routed(world: &World, queue: &str, fields: &Value) -> String {
    let reply = world.post_json(&format!("/q/{queue}/new_message"), fields);
    let value = reply.json();
    let full = value[1].as_str().expect("an id");
    let id = full.split_once("/q/rq_router/").map(|(_, id)| id);
    id.unwrap_or_else(|| panic!("not the router's: {value}"))
        .to_owned()
}

/// The messages of a queue, whatever they are in.
fn all(world: &World, queue: &str) -> Vec<Value> {
    let states = world.get(&format!("/q/{queue}.json")).json()["messages"].clone();
    let states = states.as_object().expect("states");
    let ids = states.values().flat_map(|ids| ids.as_array().cloned());
    // One that goes on while they are listed is listed twice.
    let ids: BTreeSet<String> = ids
        .flatten()
        .filter_map(|id| id.as_str().map(str::to_owned))
        .collect();
    ids.iter().map(|id| world.json(queue, id)).collect()
}

#[test]
fn messages_go_where_the_rules_say() {
    let far = World::new();
    far.paused_queue("elsewhere");
    let world = World::new();
    for name in ["in", "copy"] {
        world.queue(name, "echo done ok >&3");
    }
    let relay = json!({"name": "relay", "script": "builtin:relay"});
    let relay = quintet_scripts::QueueConfig::from_json(&relay, None).expect("a config");
    world.rq.create_queue(relay).expect("a queue");
    let here = world.address;
    write(
        &world,
        &format!(
            "[[rule]]\ndesc = 'twice'\nsrc = '^twice'\naction = 'relay'\nlog = true\ndelay = 1000\n\
             route = ['{here}', 'http://{here}/q/copy']\n\
             [[rule]]\ndesc = 'one'\nsrc = '^one'\naction = 'balance'\nroute = ['{here}', '{here}']\n\
             [[rule]]\ndesc = 'far'\ndest = '/elsewhere$'\naction = 'relay'\nroute = '{}'\n\
             [[rule]]\ndesc = 'drop'\nsrc = '^drop'\naction = 'blackhole'\n\
             [[rule]]\ndesc = 'enough'\nsrc = '^enough'\naction = 'done'\n\
             [[rule]]\ndesc = 'round'\nsrc = '^round'\naction = 'relay'\n\
             route = ['http://{here}/q/rq_router']\n",
            far.address
        ),
    );
    let send = |queue: &str, src: &str| {
        let id = routed(
            &world,
            queue,
            &json!({"src": src, "param1": "x", "param2": "y"}),
        );
        let status = world.end("rq_router", &id);
        (id, status)
    };

    let (id, status) = send("in", "twice\nover");
    assert_eq!(status, "done - done relay of 2 messages");
    for queue in ["in", "copy"] {
        let all = all(&world, queue);
        assert_eq!(all.len(), 1, "{queue}");
        let copy = &all[0];
        let origin = copy["orig_msg_id"].as_str().expect("an id");
        assert!(origin.ends_with(&id), "{origin}");
        assert_eq!(
            (&copy["param1"], &copy["param2"], &copy["src"]),
            (&json!("x"), &json!("y"), &json!("twice\nover"))
        );
        let made = world.json("rq_router", &id)["due"].as_u64();
        let late = copy["due"].as_u64() >= made.map(|made| made + 1000);
        assert!(late, "{copy}");
    }
    let (_, status) = send("in", "one");
    assert!(
        status.starts_with(&format!("done - DUP to http://{here}/q/in/")),
        "{status}"
    );
    assert_eq!(all(&world, "in").len(), 2);
    // Its queue need not be here.
    let (_, status) = send("elsewhere", "x");
    assert_eq!(status, "done - done relay of 1 messages");
    eventually("it is there", || all(&far, "elsewhere").pop());
    assert_eq!(send("in", "drop").1, "done - router processed a blackhole");
    assert_eq!(send("in", "enough").1, "done - router processed a done");
    assert_eq!(send("in", "else").1, "err - router processed an err");
    let (_, status) = send("in", "round");
    assert!(status.ends_with("is the router itself"), "{status}");
    assert_eq!(all(&world, "in").len(), 2);

    let log = fs::read_to_string(world.root().join("log/rq_router.log")).expect("a log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(
        lines[0].contains(&format!(" - twice - relay - {id} - twice\\nover")),
        "{log}"
    );
    assert!(lines[1].contains(" - drop - blackhole - "), "{log}");
    assert!(lines[2].contains(" - default - err - "), "{log}");
}

#[test]
fn a_message_reaches_another_server_with_its_files() {
    let far = World::new();
    far.paused_queue("in");
    let world = World::new();
    let relay = json!({"name": "relay", "script": "builtin:relay"});
    let relay = quintet_scripts::QueueConfig::from_json(&relay, None).expect("a config");
    world.rq.create_queue(relay).expect("a queue");
    write(
        &world,
        &format!(
            "[[rule]]\ndesc = 'all'\ndest = '.'\naction = 'relay'\nroute = ['{}']\n",
            far.address
        ),
    );
    let id = routed(&world, "in", &json!({"_method": "prep", "param1": "x"}));
    assert_eq!(world.state("rq_router", &id), "prep");
    let path = format!("/q/rq_router/{id}");
    let file: &[(&str, &[u8])] = &[("@filedata=a.txt", b"text")];
    world.post_parts(&format!("{path}/attach/new"), file);
    world.post(&path, "_method=commit");
    assert_eq!(
        world.end("rq_router", &id),
        "done - done relay of 1 messages"
    );
    let there = eventually("it is there", || {
        all(&far, "in")
            .pop()
            .filter(|there| there["state"] == "que")
    });
    assert_eq!(there["param1"], "x");
    assert_eq!(there["_attachments"]["a.txt"]["size"], 4);
}

#[test]
fn only_messages_over_http_are_routed_and_only_with_rules() {
    let world = World::new();
    world.paused_queue("in");
    world.paused_queue("relay");
    world.message("in", json!({}));
    assert_eq!(all(&world, "in").len(), 1);
    assert_eq!(world.get("/q/rq_router").status, 404);
    write(&world, "[[rule]]\ndesc = 'default'\naction = 'done'\n");
    // These are not; names that may not be are refused.
    world.message("relay", json!({"dest": "http://127.0.0.1:1/q/x"}));
    assert_eq!(all(&world, "relay").len(), 1);
    let direct = quintet_scripts::NewMessage::default();
    let direct = world
        .rq
        .create("in", direct, quintet_scripts::Method::Commit);
    assert!(direct.expect("made").contains("/q/in/"));
    let bad = world.post_json("/q/a.b/new_message", &json!({})).json();
    assert_eq!(bad[0], "fail");
    // What waits at the router is for anybody: none is taken for another.
    fs::write(world.root().join("config/rq_router.pause"), "").expect("written");
    let single = json!({"_method": "single_que"});
    let first = routed(&world, "in", &single);
    assert_ne!(routed(&world, "relayed", &single), first);
    fs::remove_file(world.root().join("config/rq_router.pause")).expect("resumed");
    assert_eq!(
        world.end("rq_router", &first),
        "done - router processed a done"
    );
    // Without the file all is as before.
    fs::remove_file(rules(&world)).expect("removed");
    world.message("in", json!({}));
    assert_eq!(all(&world, "in").len(), 3);
}

#[test]
fn with_bad_rules_messages_wait_and_the_page_has_the_reason() {
    let world = World::new();
    world.queue("in", "echo done ok >&3");
    write(&world, "[[rule]]\ndesc = 'a'\nsrc = '('\naction = 'sned'\n");
    let id = routed(&world, "in", &json!({"src": "a"}));
    eventually("it is seen", || {
        let text = world.get("/q/rq_router.txt").text();
        text.contains("status: SCRIPTERROR").then_some(())
    });
    let page = world.get("/q").text();
    for part in [
        "role=\"alert\"",
        "rule 1 (a): src: unclosed group",
        "rule 1 (a): action: ",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!["err", "done"].contains(&world.state("rq_router", &id).as_str()));
    write(
        &world,
        &format!(
            "[[rule]]\ndesc = 'a'\nsrc = 'a'\naction = 'relay'\nroute = '{}'\n",
            world.address
        ),
    );
    assert_eq!(
        world.end("rq_router", &id),
        "done - done relay of 1 messages"
    );
    assert_eq!(all(&world, "in").len(), 1);
    assert!(!world.get("/q").text().contains("role=\"alert\""));
    // RQ's own file beside it is nobody's business; alone it is told of.
    let ruby = world.root().join("config/rq_router_rules.rb");
    fs::write(ruby, "rule 'default'\naction :err\n").expect("written");
    assert!(!world.get("/q").text().contains("role=\"alert\""));
    fs::remove_file(rules(&world)).expect("removed");
    let page = world.get("/q").text();
    assert!(
        page.contains("write them as rq_router_rules.toml"),
        "{page}"
    );
    world.message("in", json!({}));
    assert_eq!(all(&world, "in").len(), 2);
}

#[test]
fn a_queue_that_is_stopped_gets_its_messages_later() {
    let world = World::new();
    world.paused_queue("in");
    let router = json!({
        "name": "rq_router", "script": "builtin:rq_router", "env_vars": {"RETRY_UNIT_S": "0"},
    });
    let router = quintet_scripts::QueueConfig::from_json(&router, None).expect("a config");
    world.rq.create_queue(router).expect("a queue");
    write(
        &world,
        &format!(
            "[[rule]]\ndesc = 'first'\nsrc = 'first'\naction = 'relay'\n\
             route = ['{0}', '{0}', 'http://{0}/q/none']\n\
             [[rule]]\ndesc = 'half'\nsrc = 'half'\naction = 'relay'\nlog = true\n\
             route = ['http://{0}/q/open', '{0}']\n\
             [[rule]]\ndesc = 'one'\nsrc = 'one'\naction = 'relay'\nroute = '{0}'\n",
            world.address
        ),
    );
    world.queue("open", "echo done ok >&3");
    let fields = json!({"src": "one", "max_count": 1_000_000});
    let id = routed(&world, "in", &fields);
    eventually("it was tried", || {
        let message = world.json("rq_router", &id);
        (message["count"].as_u64() >= Some(2)).then_some(())
    });
    assert!(all(&world, "in").is_empty());
    // What is sent already is not sent again for that.
    let fields = json!({"src": "half", "max_count": 1_000_000});
    let half = routed(&world, "in", &fields);
    eventually("it was tried", || {
        let message = world.json("rq_router", &half);
        (message["count"].as_u64() >= Some(2)).then_some(())
    });
    fs::remove_file(world.root().join("config/in.pause")).expect("resumed");
    assert_eq!(
        world.end("rq_router", &half),
        "done - done relay of 2 messages"
    );
    assert_eq!(all(&world, "open").len(), 1);
    assert_eq!(
        world.end("rq_router", &id),
        "done - done relay of 1 messages"
    );
    assert_eq!(all(&world, "in").len(), 2);
    // A rule logs a message once, however often it is tried.
    let log = fs::read_to_string(world.root().join("log/rq_router.log")).expect("a log");
    assert_eq!(log.matches(" - half - ").count(), 1, "{log}");
    // A queue that is not there is not waited for.
    let first = routed(&world, "in", &json!({"src": "first"}));
    assert_eq!(
        world.end("rq_router", &first),
        "err - DUP relay failed - couldn't connect to queue - none"
    );
    assert_eq!(all(&world, "in").len(), 4);
}
