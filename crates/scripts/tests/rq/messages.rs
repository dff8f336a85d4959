//! Messages and their files: copies, attachments, clones, other protocols.

use std::fs;
use std::os::unix::fs::MetadataExt;

use md5::{Digest, Md5};
use quintet_scripts::{AdminOp, Fault, Method, NewMessage};
use quintet_types::{
    Attachment, Command, LeaseOwner, LeaseRequest, LeaseTime, Name, Outcome, Put, PutMore, Take,
};
use serde_json::json;

use crate::common::{World, eventually};

/// A script that sends the given lines, and prints the answers.
const SPEAKS: &str =
    r#"echo "$RQ_PARAM1" >&3; read answer <&4; echo "$answer"; echo "done $answer" >&3"#;

fn sum(bytes: &[u8]) -> String {
    let digits = Md5::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn prep(world: &World, queue: &str) -> String {
    let new = NewMessage::default();
    world.rq.create(queue, new, Method::Prep).expect("prepared")
}

#[test]
fn case_8_dup() {
    let world = World::new();
    world.queue("test", SPEAKS);
    world.queue("test_nop", "echo done >&3");
    let fields = json!({"param1": "dup 0-X-test_nop", "param2": "two", "src": "me", "count": 3});
    let (id, status) = world.run("test", fields);
    let copy = status
        .strip_prefix("done - ok ")
        .expect("a copy")
        .to_owned();
    assert!(
        copy.starts_with("http://127.0.0.1:3333/q/test_nop/"),
        "{copy}"
    );
    assert_eq!(world.end("test_nop", &copy), "done");
    let shown = world.json("test_nop", &copy);
    assert_eq!(shown["param1"], "dup 0-X-test_nop");
    assert_eq!(shown["param2"], "two");
    assert_eq!(shown["src"], "me");
    assert_eq!(shown["count"], 0);
    assert_eq!(shown["orig_msg_id"], json!(id));
}

#[test]
fn case_9_dup_to_nowhere() {
    let world = World::new();
    world.queue("test", SPEAKS);
    for (say, answer) in [
        ("dup 0-X-nope", "fail couldn't connect to queue - nope"),
        ("dup 0-X-a/b", "fail couldn't connect to queue - a/b"),
        (
            "dup 0-X-http://far:1/q/x",
            "fail couldn't connect to queue - relay",
        ),
        (
            "dup 0-X-httpd_logs",
            "fail couldn't connect to queue - httpd_logs",
        ),
        ("dup nope", "fail dup failed - not DUE-X-DEST"),
    ] {
        let (_, status) = world.run("test", json!({"param1": say}));
        assert_eq!(status, format!("done - {answer}"), "{say}");
    }
}

#[test]
fn case_10_dup_with_an_attachment() {
    let world = World::new();
    world.queue("test", SPEAKS);
    world.queue("copy", "md5sum ../attach/data; echo done >&3");
    let data: Vec<u8> = (0..1_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
    let new = NewMessage {
        params: [Some("dup 0-X-copy".to_owned()), None, None, None],
        ..NewMessage::default()
    };
    let id = world
        .rq
        .create("test", new, Method::Prep)
        .expect("prepared");
    let attached = world.rq.attach("test", &id, "data", &mut &data[..], None);
    assert_eq!(attached.expect("attached").md5, sum(&data));
    world.rq.commit("test", &id).expect("committed");
    let status = world.end("test", &id);
    let copy = status
        .strip_prefix("done - ok ")
        .expect("a copy")
        .to_owned();
    assert_eq!(world.end("copy", &copy), "done");
    let log = world.job_file("copy", &copy, "stdio.log").expect("a log");
    assert!(log.contains(&sum(&data)), "{log}");
    let file = |queue: &str, id: &str| {
        let path = world.rq.attachment_path(queue, id, "data").expect("a path");
        fs::metadata(path).expect("a file").ino()
    };
    assert_eq!(file("test", &id), file("copy", &copy), "linked, not copied");
    assert_eq!(
        world.json("copy", &copy)["_attachments"]["data"]["md5"],
        sum(&data)
    );
    // Each has its own end.
    world.rq.delete("test", &id).expect("deleted");
    assert!(world.rq.attachment_path("test", &id, "data").is_err());
    file("copy", &copy);
}

#[test]
fn case_11_dup_to_a_queue_that_is_not_up() {
    let world = World::new();
    world.queue("test", SPEAKS);
    world.queue("other", "echo done >&3");
    world.queue("relay", "echo done >&3");
    for (op, text) in [(AdminOp::Pause, "PAUSE"), (AdminOp::Down, "DOWN")] {
        for dest in ["other", "relay"] {
            world.rq.admin(dest, op).expect("changed");
        }
        for dest in ["other", "http://far:1/q/x"] {
            let say = format!("dup 0-X-{dest}");
            let (_, status) = world.run("test", json!({"param1": say}));
            assert_eq!(status, format!("done - fail dup failed - status: {text}"));
        }
    }
    assert_eq!(world.rq.queue("other").expect("a queue").sizes.que, 0);
}

#[test]
fn case_12_dup_for_later() {
    let world = World::new();
    world.queue("test", SPEAKS);
    world.queue("other", "echo done >&3");
    let (_, status) = world.run("test", json!({"param1": "dup 3000-X-other"}));
    let copy = status
        .strip_prefix("done - ok ")
        .expect("a copy")
        .to_owned();
    assert_eq!(world.state("other", &copy), "que");
    let due = world.json("other", &copy)["due"].as_u64().expect("a time");
    let made = world.json(
        "test",
        &world.rq.list("test", "done", 1).expect("a list")[0],
    );
    assert!(due >= made["due"].as_u64().expect("a time") + 3000);
}

#[test]
fn case_13_dup_to_another_server() {
    let world = World::new();
    world.queue("test", SPEAKS);
    world.queue("relay", r#"echo "relayed $RQ_DEST as $RQ_DEST_QUEUE" >&3"#);
    let say = "dup 0-X-http://far:1/q/there";
    let (_, status) = world.run("test", json!({"param1": say}));
    let copy = status
        .strip_prefix("done - ok ")
        .expect("a copy")
        .to_owned();
    assert!(copy.contains("/q/relay/"), "{copy}");
    assert_eq!(
        world.end("relay", &copy),
        "relayed - http://far:1/q/there as there"
    );
    assert_eq!(world.state("relay", &copy), "relayed");
    assert_eq!(
        world.rq.list("relay", "relayed", 5).expect("a list").len(),
        1
    );
    assert_eq!(world.rq.list("relay", "done", 5).expect("a list").len(), 0);
}

#[test]
fn several_dups_are_answered_in_order() {
    let world = World::new();
    world.queue(
        "test",
        r#"printf 'dup 0-X-nope1\ndup 0-X-nope2\ndup 0-X-other\n' >&3
           read one <&4; read two <&4; read three <&4; echo "done $one, $two, ${three%% *}" >&3"#,
    );
    world.queue("other", "echo done >&3");
    let (_, status) = world.run("test", json!({}));
    let fail = "fail couldn't connect to queue - nope";
    assert_eq!(status, format!("done - {fail}1, {fail}2, ok"));
}

#[test]
fn case_22_attachments() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prep(&world, "test");
    assert_eq!(world.state("test", &id), "prep");
    let attach = |name: &str, bytes: &[u8], md5: Option<&str>| {
        world.rq.attach("test", &id, name, &mut &*bytes, md5)
    };
    assert_eq!(
        attach("a", b"first", None).expect("attached").md5,
        sum(b"first")
    );
    assert_eq!(
        attach("a", b"second", Some(&sum(b"second")))
            .expect("again")
            .len,
        6
    );
    attach("b", b"b", None).expect("attached");
    assert!(attach("c", b"c", Some(&sum(b"d"))).is_err());
    assert!(attach("../c", b"c", None).is_err());
    world
        .rq
        .delete_attachment("test", &id, "b")
        .expect("deleted");
    assert!(world.rq.delete_attachment("test", &id, "b").is_err());
    world.rq.commit("test", &id).expect("committed");
    assert_eq!(world.end("test", &id), "done");
    let late = attach("d", b"d", None).map_err(|fault| fault.to_string());
    assert_eq!(late.map(|_| ()), Err("cannot find message".to_owned()));
    assert!(world.rq.commit("test", &id).is_err());
    let files = world.json("test", &id)["_attachments"].clone();
    assert_eq!(
        files.as_object().map(|files| files.len()),
        Some(1),
        "{files}"
    );
    assert_eq!(files["a"]["size"], 6);
    let path = files["a"]["path"].as_str().expect("a path");
    assert_eq!(fs::read(path).expect("read"), b"second");
    let folder = std::path::Path::new(path).parent().expect("a folder");
    assert_eq!(
        fs::read_dir(folder).expect("read").count(),
        1,
        "nothing is left"
    );
}

#[test]
fn a_source_that_fails_leaves_nothing() {
    struct Broken(usize);
    impl std::io::Read for Broken {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 > 3 {
                return Err(std::io::Error::other("cut off"));
            }
            into.fill(1);
            Ok(into.len())
        }
    }
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prep(&world, "test");
    let failed = world.rq.attach("test", &id, "a", &mut Broken(0), None);
    assert_eq!(failed, Err(Fault::Failed("cut off".to_owned())));
    assert!(world.json("test", &id).get("_attachments").is_none());
    let path = world.json("test", &id)["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    assert_eq!(
        fs::read_dir(format!("{path}/attach"))
            .expect("read")
            .count(),
        0
    );
}

#[test]
fn case_23_single_que() {
    let world = World::new();
    world.queue("test", "read line <\"$RQ_PARAM1\"; echo done >&3");
    let gate = world.gate("gate");
    let first = world.put("test", json!({"param1": gate}));
    eventually("it runs", || {
        (world.state("test", &first) == "run").then_some(())
    });
    let single = || {
        let new = NewMessage {
            params: [Some(gate.to_string_lossy().into_owned()), None, None, None],
            ..NewMessage::default()
        };
        world
            .rq
            .create("test", new, Method::SingleQue)
            .expect("made")
    };
    let second = single();
    assert_ne!(first, second);
    assert_eq!(single(), second);
    world.open(&gate);
    assert_eq!(world.end("test", &first), "done");
    eventually("the second runs", || {
        (world.state("test", &second) == "run").then_some(())
    });
    world.open(&gate);
    assert_eq!(world.end("test", &second), "done");
}

#[test]
fn case_24_clone() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prep(&world, "test");
    world
        .rq
        .attach("test", &id, "a", &mut &b"data"[..], None)
        .expect("attached");
    assert!(
        world.rq.clone_message("test", &id).is_err(),
        "not from prep"
    );
    world.rq.commit("test", &id).expect("committed");
    world.end("test", &id);
    let clone = world.rq.clone_message("test", &id).expect("cloned");
    assert_ne!(clone, id);
    assert_eq!(world.end("test", &clone), "done");
    let shown = world.json("test", &clone);
    assert_eq!(shown["count"], 0);
    assert_eq!(shown["cloned_from"], id.rsplit('/').next().expect("short"));
    assert_eq!(shown["orig_msg_id"], json!(id));
    assert_eq!(shown["_attachments"]["a"]["md5"], sum(b"data"));
}

#[test]
fn delete_in_each_state() {
    let world = World::new();
    world.queue("test", r#"eval "$RQ_PARAM1""#);
    let gate = world.gate("gate");
    let run = world.put(
        "test",
        json!({"param1": format!("read x <{}; echo done >&3", gate.display())}),
    );
    eventually("it runs", || {
        (world.state("test", &run) == "run").then_some(())
    });
    assert!(matches!(
        world.rq.delete("test", &run),
        Err(Fault::WrongState(_))
    ));
    let que = world.put("test", json!({}));
    let prepared = prep(&world, "test");
    for id in [&que, &prepared] {
        world.rq.delete("test", id).expect("deleted");
        assert_eq!(world.rq.state("test", id), Err(Fault::MessageNotFound));
    }
    world.open(&gate);
    world.end("test", &run);
    let path = world.json("test", &run)["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    assert!(fs::exists(&path).expect("readable"));
    world.rq.delete("test", &run).expect("deleted");
    assert!(!fs::exists(&path).expect("readable"));
}

#[test]
fn lists_and_searches() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let ids: Vec<String> = (0..5)
        .map(|n| {
            world
                .run("test", json!({"param1": format!("n{n}"), "src": "me"}))
                .0
        })
        .collect();
    let newest = world.rq.list("test", "done", 2).expect("a list");
    let short = |n: usize| ids[n].rsplit('/').next().expect("short").to_owned();
    assert_eq!(newest, [short(4), short(3)]);
    let extra = world.run("test", json!({})).0;
    world.rq.delete("test", &extra).expect("deleted");
    assert_eq!(world.rq.list("test", "done", 2).expect("a list"), newest);
    assert_eq!(world.rq.list("test", "done", 9).expect("a list").len(), 5);
    let search = |key: &str, value: &str, exact| {
        let query = [(key.to_owned(), value.to_owned())];
        let (found, more) = world.rq.search("test", &query, exact).expect("found");
        assert!(!more);
        found.len()
    };
    assert_eq!(search("param1", "n", false), 5);
    assert_eq!(search("param1", "n", true), 0);
    assert_eq!(search("param1", "n3", true), 1);
    assert_eq!(world.rq.list("none", "done", 1), Err(Fault::QueueNotFound));
    assert_eq!(world.rq.list("test", "nonsense", 1), Ok(Vec::new()));
}

#[test]
fn lists_of_large_messages_come_in_parts_and_a_search_ends() {
    const COUNT: usize = 20;
    let world = World::new();
    world.queue("test", "echo done >&3");
    world.rq.admin("test", AdminOp::Pause).expect("paused");
    for _ in 0..COUNT {
        world.put("test", json!({"param1": "x".repeat(100 << 10)}));
    }
    let listed = world.rq.list("test", "que", COUNT).expect("a list");
    assert_eq!(listed.len(), COUNT);
    let query = [("param1".to_owned(), "x".to_owned())];
    let (found, more) = world.rq.search("test", &query, false).expect("found");
    assert_eq!((found.len(), more), (11, true));
}

#[test]
fn other_protocols_put_and_take() {
    let world = World::new();
    world.queue("test", r#"echo "done <$RQ_PARAM1>" >&3"#);
    let id = world.put_body("test", b"from elsewhere");
    assert_eq!(world.end("test", &id), "done - <from elsewhere>");
    // A queue without a script, which a take makes no difference to.
    let other = Name::from("plain");
    assert!(!world.rq.has_queue("plain"));
    world.queue("test2", SPEAKS);
    world.ask(Command::Put(Put {
        queue: other.clone(),
        ..Put::default()
    }));
    assert!(world.rq.has_queue("plain"));
    world.run("test2", json!({"param1": "dup 0-X-plain"}));
    let take = Take {
        queues: [other].into_iter().collect(),
        messages_max: 2,
        ..Take::default()
    };
    let Outcome::Messages(taken) = world.ask(Command::Take(take)) else {
        panic!("nothing there");
    };
    let bodies: Vec<_> = taken
        .iter()
        .filter_map(|message| message.body.as_small())
        .collect();
    assert_eq!(bodies, [b"".as_slice(), b"dup 0-X-plain"]);
}

#[test]
fn bodies_that_fit_no_environment_become_files() {
    let world = World::new();
    world.queue(
        "test",
        r#"cat ../attach/body >out; echo "done <$RQ_PARAM1>" >&3"#,
    );
    let long = vec![b'x'; 200_000];
    for body in [&b"a\0b"[..], b"\xff\xfe", &long] {
        let id = world.put_body("test", body);
        assert_eq!(world.end("test", &id), "done - <>");
        let path = world.rq.log_path("test", &id, "out").expect("a path");
        assert_eq!(fs::read(path).expect("read"), body);
    }
}

#[test]
fn a_wire_consumer_gets_messages_that_the_script_did_not_get() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    world.rq.admin("test", AdminOp::Pause).expect("paused");
    let id = world.put("test", json!({"param1": "for anybody"}));
    let client = quintet_client::ScopedClient::new(&*world.client_api);
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(0),
        back_to: quintet_types::BackTo::Position,
        held_max: 0,
    };
    let take = Take {
        queues: [Name::from("test")].into_iter().collect(),
        lease: Some(lease),
        ..Take::default()
    };
    let outcome = client.ask(Command::Take(take));
    assert!(matches!(outcome, Outcome::Messages(_)), "{outcome:?}");
    assert_eq!(world.state("test", &id), "run");
    drop(client);
    assert_eq!(world.state("test", &id), "que");
    world.rq.admin("test", AdminOp::Down).expect("down");
    let take = Take {
        queues: [Name::from("test")].into_iter().collect(),
        ..Take::default()
    };
    let outcome = world.ask(Command::Take(take));
    assert!(!matches!(outcome, Outcome::Messages(_)), "{outcome:?}");
    world.rq.admin("test", AdminOp::Up).expect("up");
    world.rq.admin("test", AdminOp::Resume).expect("resumed");
    assert_eq!(world.end("test", &id), "done");
}

#[test]
fn attributes_of_others_lead_nowhere() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let secret = world.folder.path().join("secret");
    fs::create_dir_all(secret.join("attach")).expect("made");
    fs::write(secret.join("attach/key"), "key").expect("written");
    let file = Attachment {
        name: b"key".as_slice().into(),
        len: 3,
        md5: [0; 16],
    };
    let attrs = vec![(b"dir".as_slice().into(), b"../secret".as_slice().into())];
    let outcome = world.ask(Command::Put(Put {
        queue: Name::from("test"),
        more: Some(Box::new(PutMore {
            attrs,
            attachments: vec![file],
            ..PutMore::default()
        })),
        ..Put::default()
    }));
    assert!(matches!(outcome, Outcome::Put { .. }));
    let id = eventually("it is done", || {
        world.rq.list("test", "done", 1).expect("a list").pop()
    });
    assert!(world.rq.attachment_path("test", &id, "key").is_err());
    world.rq.delete("test", &id).expect("deleted");
    assert!(fs::exists(secret.join("attach/key")).expect("readable"));
}
