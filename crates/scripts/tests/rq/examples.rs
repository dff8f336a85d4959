//! The scripts of `examples/scripts`. `cargo xtask test` installs what interprets them.

use std::path::Path;
use std::process::{Command, Stdio};

use quintet_scripts::{Method, NewMessage, QueueConfig};
use serde_json::json;

use crate::common::{World, eventually};

/// A service with a queue `test` of this example.
#[track_caller]
fn example(file: &str, interpreter: &str) -> World {
    let there = Command::new(interpreter)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(
        there.is_ok_and(|status| status.success()),
        "{file} cannot be tried: there is no {interpreter}; `cargo xtask test unit` installs it"
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/scripts")
        .join(file);
    let world = World::new();
    let config = json!({"name": "test", "script": script, "exec_prefix": ""});
    let config = QueueConfig::from_json(&config, None).expect("a config");
    world.rq.create_queue(config).expect("a queue");
    world
}

#[test]
fn bash() {
    let world = example("checksum.sh", "bash");
    assert_eq!(world.run("test", json!({})).1, "err - no attachments");
    let id = world
        .rq
        .create("test", NewMessage::default(), Method::Prep)
        .expect("prepared");
    for name in ["a", "b c"] {
        let attached = world.rq.attach("test", &id, name, &mut &b"abc"[..], None);
        attached.expect("attached");
    }
    world.rq.commit("test", &id).expect("committed");
    assert_eq!(world.end("test", &id), "done - 2 files");
    let sums = world.job_file("test", &id, "sums").expect("sums");
    assert_eq!(sums.matches("ba7816bf").count(), 2, "{sums}");
}

#[test]
fn python() {
    let world = example("count_words.py", "python3");
    let (_, status) = world.run("test", json!({"param1": "one two  three"}));
    assert_eq!(status, "done - 3 words");
    let long = "word ".repeat(100_000);
    let id = world.put_body("test", long.as_bytes());
    assert_eq!(world.end("test", &id), "done - 100000 words");
}

#[test]
fn ruby() {
    let world = example("retry.rb", "ruby");
    let (_, status) = world.run("test", json!({"param1": "true"}));
    assert_eq!(status, "done - after 1 attempts");
    let id = world.put("test", json!({"param1": "exit 3", "count": 2}));
    eventually("it waits again", || {
        let status = world.status("test", &id);
        status.starts_with("que - 40-").then_some(())
    });
}

#[test]
fn node() {
    let world = example("fan_out.mjs", "node");
    world.queue("one", "echo done >&3");
    let id = world.put("test", json!({"param2": "one two"}));
    eventually("one is missing", || {
        (world.status("test", &id) == "que - 60-not taken by two").then_some(())
    });
    world.queue("two", "echo done >&3");
    world.rq.run_now("test", &id).expect("now");
    assert_eq!(world.end("test", &id), "done - passed on");
    for queue in ["one", "two"] {
        let done = eventually("the copy is done", || {
            let done = world.rq.list(queue, "done", 9).expect("a list");
            (!done.is_empty()).then_some(done)
        });
        assert_eq!(done.len(), 1, "{queue}");
    }
}
