//! The sheet's cases over HTTP.

use crate::common;

use std::fs;

use common::{World, eventually};
use serde_json::json;

fn status_line(world: &World, queue: &str) -> String {
    let text = world.get(&format!("/q/{queue}.txt")).text();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn case_18_a_file_pauses_a_queue() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let file = world.root().join("config/test.pause");
    fs::write(&file, "").expect("written");
    assert_eq!(status_line(&world, "test"), "status: PAUSE");
    let ids = [(); 2].map(|()| world.message("test", json!({})));
    assert!(world.get("/q/test.txt").text().contains("que: 2"));
    fs::remove_file(&file).expect("removed");
    assert_eq!(status_line(&world, "test"), "status: UP");
    for id in ids {
        assert!(world.end("test", &id).starts_with("done"));
    }
}

#[test]
fn case_19_a_file_takes_a_queue_down() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let file = world.root().join("config/test.down");
    fs::write(&file, "").expect("written");
    assert_eq!(status_line(&world, "test"), "status: DOWN");
    let refused = world.post_json("/q/test/new_message", &json!({}));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json(), json!(["fail", "status: DOWN"]));
    let html = world.post("/q/test/new_message", "x_format=html&mesg[param1]=a");
    assert_eq!(html.status, 503);
    assert_eq!(
        html.text(),
        "503 - Service Unavailable - Operationally Down"
    );
    fs::remove_file(&file).expect("removed");
    let id = world.message("test", json!({}));
    assert!(world.end("test", &id).starts_with("done"));
}

#[test]
fn case_20_equal_messages_run_once() {
    let world = World::new();
    world.queue_with("test", "echo done >&3", json!({"coalesce_params": [1]}));
    let file = world.root().join("config/test.pause");
    fs::write(&file, "").expect("written");
    assert_eq!(status_line(&world, "test"), "status: PAUSE");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    let make = |due: u64| world.message("test", json!({"param1": "same", "due": due}));
    let (first, second, last) = (make(now + 3600), make(now + 3600), make(now - 2));
    fs::remove_file(&file).expect("removed");
    assert_eq!(status_line(&world, "test"), "status: UP");
    assert_eq!(world.end("test", &last), "done");
    for id in [first, second] {
        let status = world.end("test", &id);
        assert!(
            status.starts_with("done - duplicate ") && status.ends_with(&last),
            "{status}"
        );
    }
}

#[test]
fn case_21_equal_messages_wait_for_each_other() {
    let world = World::new();
    let script = "while [ ! -e $RQ_PARAM2 ]; do sleep 0.01; done; echo done >&3";
    let config = json!({"blocking_params": [1], "num_workers": 3});
    world.queue_with("test", script, config);
    let go = world.folder.path().join("go");
    let make = |param: &str| world.message("test", json!({"param1": param, "param2": go}));
    let (a, b) = (make("a"), make("b"));
    for id in [&a, &b] {
        eventually("it runs", || {
            (world.state("test", id) == "run").then_some(())
        });
    }
    let again = make("a");
    let other = make("c");
    // The one behind it starts, so it was passed over.
    eventually("c runs", || {
        (world.state("test", &other) == "run").then_some(())
    });
    assert_eq!(world.state("test", &again), "que");
    fs::write(&go, "").expect("written");
    for id in [a, b, again, other] {
        assert!(world.end("test", &id).starts_with("done"));
    }
}

#[test]
fn case_23_one_is_enough() {
    let world = World::new();
    world.paused_queue("test");
    let one = world.message("test", json!({"_method": "single_que"}));
    let two = world.message("test", json!({"_method": "single_que"}));
    assert_eq!(one, two);
    assert!(world.get("/q/test.txt").text().contains("que: 1"));
}

#[test]
fn case_24_a_clone() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = world.message(
        "test",
        json!({"_method": "prep", "count": 2, "param2": "b"}),
    );
    let path = format!("/q/test/{id}");
    world.post_parts(
        &format!("{path}/attach/new"),
        &[("@filedata=a.txt", b"text")],
    );
    let early = world.post(&format!("{path}/clone"), "x_format=json");
    assert_eq!(early.json()[0], "fail");
    world.post(&path, "_method=commit");
    world.end("test", &id);
    let clone = world.post(&format!("{path}/clone"), "x_format=json").json();
    let clone = clone[1]
        .as_str()
        .and_then(|full| full.rsplit('/').next())
        .expect("an id");
    assert_ne!(clone, id);
    let message = world.json("test", clone);
    assert_eq!(message["cloned_from"], id);
    assert_eq!(
        (&message["count"], &message["param2"]),
        (&json!(0), &json!("b"))
    );
    assert_eq!(
        world.get(&format!("/q/test/{clone}/attach/a.txt")).text(),
        "text"
    );
    let html = world.post(&format!("{path}/clone"), "");
    let shown = world.get(html.leads_to()).text();
    assert!(shown.contains("Message cloned successfully"), "{shown}");
}

#[test]
fn case_25_at_once() {
    let world = World::new();
    let go = world.folder.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; echo done >&3",
        go.display()
    );
    world.queue("test", &script);
    let id = world.message("test", json!({"due": 99_999_999_999u64}));
    assert_eq!(world.state("test", &id), "que");
    let path = format!("/q/test/{id}");
    let reply = world.post(&path, "_method=run_now&x_format=json");
    assert_eq!(reply.json()[0], "ok");
    eventually("it runs", || {
        (world.state("test", &id) == "run").then_some(())
    });
    let again = world.post(&path, "_method=run_now&x_format=json");
    assert_eq!(again.json(), json!(["fail", "msg already running"]));
    assert_eq!(
        world
            .post(&format!("{path}/run_now"), "x_format=json")
            .json()[0],
        "fail"
    );
    fs::write(&go, "").expect("written");
    assert!(world.end("test", &id).starts_with("done"));
}

#[test]
fn case_27_doubled_slashes() {
    let world = World::new();
    world.paused_queue("test");
    let plain = world.get("/q/test.txt");
    assert_eq!(plain.status, 200);
    for path in ["//q/test.txt", "////q//test.txt", "/q/test.txt?x=1"] {
        let doubled = world.get(path);
        assert_eq!(doubled.status, 200, "{path}");
        assert!(doubled.text().starts_with("status: PAUSE"), "{path}");
    }
}

#[test]
fn case_28_names_that_cannot_be() {
    let world = World::new();
    let script = world.script("x", "true");
    let script = script.to_str().expect("text");
    for name in ["bad+que", "a.b", "a%2Fb", "..", "a%3Cb"] {
        let form = format!("queue[name]={name}&queue[script]={script}");
        let reply = world.post("/new_queue", &form);
        let shown = world.get(reply.leads_to()).text();
        assert!(
            shown.contains("queue name has invalid characters"),
            "{name}: {shown}"
        );
    }
}
