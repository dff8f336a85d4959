//! Lines of scripts and the fate of their messages: cases of the sheet (`protocols/rq.md`, section
//! 10).

use std::path::Path;

use crate::common::{World, eventually, write_script};
use quintet_types::{BulkAction, BulkOp, Cancel, Command, Filter, ListState, Outcome};
use serde_json::json;

#[test]
fn case_1_done() {
    let world = World::new();
    world.queue("test", "echo done ok >&3");
    let (id, status) = world.run("test", json!({"param1": "x"}));
    assert_eq!(status, "done - ok");
    assert_eq!(world.state("test", &id), "done");
}

#[test]
fn cases_2_3_4_and_16_ends() {
    let world = World::new();
    world.queue("test", r#"eval "$RQ_PARAM1""#);
    for (script, expected) in [
        (
            "echo done x >&3; exit 1",
            "err - PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was done but exit status was 1",
        ),
        ("echo err bad >&3", "err - bad"),
        ("echo err bad >&3; exit 3", "err - bad"),
        (
            "exit 0",
            "err - PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was none but exit status was 0",
        ),
        ("echo err bad >&3; echo done fine >&3", "err - bad"),
        ("printf 'done ok' >&3", "done - ok"),
        ("echo fail bad >&3", "err - bad"),
    ] {
        let (_, status) = world.run("test", json!({"param1": script}));
        assert_eq!(status, expected, "{script}");
    }
}

#[test]
fn case_5_status_while_it_runs() {
    let world = World::new();
    world.queue(
        "test",
        "echo run half >&3; read line <\"$RQ_PARAM2\"; echo done all >&3",
    );
    let gate = world.gate("gate");
    let id = world.put("test", json!({"param2": gate}));
    eventually("the status is shown", || {
        (world.status("test", &id) == "run - half").then_some(())
    });
    assert_eq!(world.json("test", &id)["status"], "run - half");
    world.open(&gate);
    assert_eq!(world.end("test", &id), "done - all");
}

#[test]
fn case_6_resend() {
    let world = World::new();
    world.queue(
        "test",
        "date +%s%3N; if [ $RQ_COUNT = 0 ]; then echo resend 2-x >&3; else echo done >&3; fi",
    );
    let id = world.put("test", json!({}));
    eventually("it waits again", || {
        (world.status("test", &id) == "que - 2-x").then_some(())
    });
    assert_eq!(world.end("test", &id), "done");
    assert_eq!(world.json("test", &id)["count"], 1);
    let log = world.job_file("test", &id, "stdio.log").expect("a log");
    let times: Vec<u64> = log.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(times.len(), 2, "{log}");
    assert!(times[1] >= times[0] + 2000 - 50, "{times:?}");
}

#[test]
fn case_7_resent_too_often() {
    let world = World::new();
    world.queue("test", "echo resend 0-x >&3");
    let fields = json!({"max_count": 3, "count": 2});
    let (_, status) = world.run("test", fields);
    assert_eq!(status, "err - HIT MAX RESEND COUNT - MOVING TO ERR");
    let (id, _) = world.run("test", json!({}));
    let log = world.job_file("test", &id, "stdio.log").expect("a log");
    assert_eq!(log.matches("RQ START").count(), 15);
}

#[test]
fn resend_counts_with_any_exit_status_unless_strict() {
    let world = World::new();
    let script = "if [ $RQ_COUNT = 0 ]; then echo resend 0-x >&3; exit 1; fi; echo done >&3";
    world.queue("test", script);
    world.queue_with("strict", script, json!({"strict_exit": true}));
    assert_eq!(world.run("test", json!({})).1, "done");
    let status = world.run("strict", json!({})).1;
    assert!(
        status.starts_with("err - PROCESS EXITED IMPROPERLY"),
        "{status}"
    );
}

#[test]
fn case_14_environment() {
    let world = World::new();
    world.queue_with(
        "test",
        r#"env; pwd; cat; echo on stderr >&2; ls -l /proc/self/fd; echo "done $RQ_COUNT" >&3"#,
        json!({"env_vars": {"COLOUR": "red", "RQ_PARAM1": "stolen"}}),
    );
    let fields = json!({"param1": "a b", "param3": "c", "src": "me", "force_remote": true});
    let (id, status) = world.run("test", fields);
    assert_eq!(status, "done - 0");
    let log = world.job_file("test", &id, "stdio.log").expect("a log");
    let short = id.rsplit('/').next().expect("a short id");
    let shown = world.json("test", &id);
    let job = format!("{}/job", shown["path"].as_str().expect("a path"));
    for line in [
        "RQ_WRITE=3",
        "RQ_READ=4",
        "RQ_PIPE=3",
        "RQ_PARAM1=a b",
        "RQ_PARAM2=",
        "RQ_PARAM3=c",
        "RQ_COUNT=0",
        "RQ_FORCE_REMOTE=1",
        "RQ_ENV=production",
        "RQ_PORT=3333",
        "RQ_HOST=http://127.0.0.1:3333/",
        "RQ_DEST=http://127.0.0.1:3333/q/test",
        "RQ_DEST_QUEUE=test",
        "COLOUR=red",
        "on stderr",
        &format!("RQ_MSG_ID={short}"),
        &format!("RQ_FULL_MSG_ID={id}"),
        &format!("RQ_ORIG_MSG_ID={id}"),
        &format!("RQ_MSG_DIR={job}"),
        &job,
    ] {
        assert!(log.lines().any(|have| have == line), "{line:?} in {log}");
    }
    let first = log.lines().nth(1).expect("a first line");
    assert!(first.contains(" - RQ START - "), "{first}");
    // Standard files, the two pipes, and the folder `ls` itself reads.
    let open: Vec<&str> = log.lines().filter(|line| line.contains(" -> ")).collect();
    assert_eq!(open.len(), 6, "{open:?}");
    assert!(open[0].ends_with("/dev/null"), "{open:?}");
}

#[test]
fn case_15_lines_in_pieces() {
    let world = World::new();
    world.queue(
        "test",
        r"printf 'run a' >&3; printf 'b\nrun c\n' >&3; printf 'do' >&3; printf 'ne ok\n' >&3",
    );
    assert_eq!(world.run("test", json!({})).1, "done - ok");
}

#[test]
fn case_17_killed() {
    let world = World::new();
    world.queue("test", "echo done too early >&3; kill -9 $$");
    let (_, status) = world.run("test", json!({}));
    assert!(status.ends_with("exit status was signal 9"), "{status}");
}

#[test]
fn destroy_ends_a_script_that_ignores_it() {
    let world = World::new();
    world.queue(
        "test",
        "trap '' TERM; echo run deaf >&3; while :; do sleep 1; done",
    );
    let id = world.put("test", json!({}));
    eventually("it runs", || {
        (world.status("test", &id) == "run - deaf").then_some(())
    });
    world.rq.destroy("test", &id).expect("destroyed");
    assert!(world.end("test", &id).ends_with("signal 9"));
    // The end of the message comes before that of its run.
    eventually("it does not run", || world.rq.destroy("test", &id).err());
}

/// Asks for a cancel of the one message that runs.
fn cancel(world: &World, grace_ms: u64) {
    let bulk_op = BulkOp {
        queue: "test".into(),
        state: ListState::Reserved,
        filter: Filter::default(),
        action: BulkAction::Cancel(Cancel {
            reason: Box::default(),
            grace_ms,
        }),
        after: None,
        max: 1,
    };
    let outcome = world.ask(Command::BulkOp(Box::new(bulk_op)));
    let bulk_done = matches!(&outcome, Outcome::BulkDone(bulk_done) if bulk_done.matched == 1);
    assert!(bulk_done, "{outcome:?}");
}

#[test]
fn a_cancelled_script_gets_term_and_after_the_grace_kill() {
    let goes_on = "echo run $$ >&3; while :; do sleep 0.1; done";
    for (on_term, grace_ms, done) in [
        ("exit 1", 600_000, false),
        ("", 1500, false),
        ("", 0, false),
        // A script that is done within the grace is done.
        ("echo done in time >&3; exit 0", 600_000, true),
    ] {
        let world = World::new();
        world.queue("test", &format!("trap '{on_term}' TERM; {goes_on}"));
        let id = world.put("test", json!({}));
        let process = eventually("it runs", || {
            let status = world.status("test", &id);
            let pid = status.strip_prefix("run - ")?.parse::<u32>().ok()?;
            Some(format!("/proc/{pid}"))
        });
        cancel(&world, grace_ms);
        eventually("it has ended", || {
            (!Path::new(&process).exists()).then_some(())
        });
        match done {
            true => assert_eq!(world.end("test", &id), "done - in time"),
            false => eventually("its message is gone", || {
                world.rq.status("test", &id).is_err().then_some(())
            }),
        }
    }
}

#[test]
fn cases_18_and_19_admin_files() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let file = |what: &str| world.root().join(format!("config/test.{what}"));
    std::fs::write(file("pause"), "").expect("written");
    let status = || world.rq.queue("test").expect("a queue").status;
    eventually("it pauses", || (status() == "PAUSE").then_some(()));
    let ids = [world.put("test", json!({})), world.put("test", json!({}))];
    assert_eq!(world.rq.queue("test").expect("a queue").sizes.que, 2);
    std::fs::write(file("down"), "").expect("written");
    assert_eq!(status(), "DOWN");
    let new = quintet_scripts::NewMessage::default();
    let refused = world
        .rq
        .create("test", new, quintet_scripts::Method::Commit);
    assert_eq!(
        refused.map_err(|fault| fault.to_string()),
        Err("status: DOWN".to_owned())
    );
    std::fs::remove_file(file("down")).expect("removed");
    assert_eq!(status(), "PAUSE");
    assert_eq!(world.rq.queue("test").expect("a queue").sizes.que, 2);
    std::fs::remove_file(file("pause")).expect("removed");
    for id in ids {
        assert_eq!(world.end("test", &id), "done");
    }
    assert_eq!(status(), "UP");
}

#[test]
fn case_20_coalesce() {
    let world = World::new();
    world.queue_with(
        "test",
        "echo done once >&3",
        json!({"coalesce_params": [1]}),
    );
    let admin = |op| world.rq.admin("test", op).expect("changed");
    admin(quintet_scripts::AdminOp::Pause);
    let now = now_s();
    let put = |due: u64, param: &str| world.put("test", json!({"due": due, "param1": param}));
    let ids = [
        put(now + 3000, "a"),
        put(now + 3000, "a"),
        put(now + 3000, "b"),
        put(now - 2, "a"),
    ];
    admin(quintet_scripts::AdminOp::Resume);
    assert_eq!(world.end("test", &ids[3]), "done - once");
    for id in &ids[..2] {
        assert_eq!(
            world.end("test", id),
            format!("done - duplicate {}", ids[3])
        );
        assert_eq!(world.json("test", id)["dup"], json!(ids[3]));
    }
    assert_eq!(world.state("test", &ids[2]), "que");
    assert_eq!(world.json("test", &ids[3])["dups"], json!([ids[0], ids[1]]));
}

#[test]
fn messages_coalesced_with_a_failed_one_wait_again() {
    let world = World::new();
    world.queue_with("test", "echo err bad >&3", json!({"coalesce_params": [1]}));
    world
        .rq
        .admin("test", quintet_scripts::AdminOp::Pause)
        .expect("paused");
    let due = now_s() + 3000;
    let later = world.put("test", json!({"due": due, "param1": "a"}));
    let first = world.put("test", json!({"param1": "a"}));
    world
        .rq
        .admin("test", quintet_scripts::AdminOp::Resume)
        .expect("resumed");
    assert_eq!(world.end("test", &first), "err - bad");
    eventually("it waits again", || {
        let shown = world.json("test", &later);
        (shown["state"] == "que" && shown.get("dup").is_none() && shown["due"] == due).then_some(())
    });
}

#[test]
fn case_21_blocking() {
    let world = World::new();
    world.queue_with(
        "test",
        "read line <\"$RQ_PARAM2\"; echo done >&3",
        json!({"blocking_params": [1], "num_workers": 3}),
    );
    let gates = [world.gate("1"), world.gate("2"), world.gate("3")];
    let put =
        |n: usize, param: &str| world.put("test", json!({"param1": param, "param2": gates[n]}));
    let ids = [put(0, "a"), put(1, "b"), put(2, "a")];
    let states = || ids.each_ref().map(|id| world.state("test", id));
    eventually("two run", || {
        (states() == ["run", "run", "que"]).then_some(())
    });
    world.open(&gates[1]);
    assert_eq!(world.end("test", &ids[1]), "done");
    assert_eq!(states(), ["run", "done", "que"]);
    world.open(&gates[0]);
    assert_eq!(world.end("test", &ids[0]), "done");
    world.open(&gates[2]);
    assert_eq!(world.end("test", &ids[2]), "done");
}

#[test]
fn case_29_workers() {
    let world = World::new();
    world.queue_with(
        "test",
        "read line <\"$RQ_PARAM1\"; echo done >&3",
        json!({"num_workers": 2}),
    );
    let gates = [world.gate("1"), world.gate("2"), world.gate("3")];
    let ids = gates
        .each_ref()
        .map(|gate| world.put("test", json!({"param1": gate})));
    let states = || ids.each_ref().map(|id| world.state("test", id));
    eventually("two run", || {
        (states() == ["run", "run", "que"]).then_some(())
    });
    world.open(&gates[0]);
    eventually("the third runs", || {
        (states() == ["done", "run", "run"]).then_some(())
    });
    world.open(&gates[1]);
    world.open(&gates[2]);
    eventually("all are done", || (states() == ["done"; 3]).then_some(()));
}

#[test]
fn the_message_due_first_runs_first() {
    let world = World::new();
    let order = world.folder.path().join("order");
    world.queue("test", "echo $RQ_PARAM1 >>\"$RQ_PARAM2\"; echo done >&3");
    world
        .rq
        .admin("test", quintet_scripts::AdminOp::Pause)
        .expect("paused");
    let now = now_s();
    let put = |name: &str, due: u64| {
        world.put("test", json!({"param1": name, "param2": order, "due": due}))
    };
    let ids = [
        put("c", now - 1),
        put("a", now - 50),
        put("d", now - 1),
        put("b", now - 20),
    ];
    let last = put("e", now + 5000);
    world.rq.run_now("test", &last).expect("first now");
    world
        .rq
        .admin("test", quintet_scripts::AdminOp::Resume)
        .expect("resumed");
    for id in &ids {
        assert_eq!(world.end("test", id), "done");
    }
    let order = std::fs::read_to_string(order).expect("read");
    assert_eq!(order, "e\na\nb\nc\nd\n");
}

#[test]
fn case_25_run_now() {
    let world = World::new();
    world.queue("test", "read line <\"$RQ_PARAM1\"; echo done >&3");
    let gate = world.gate("gate");
    let id = world.put("test", json!({"due": now_s() + 5000, "param1": gate}));
    world.rq.run_now("test", &id).expect("now");
    eventually("it runs", || {
        (world.state("test", &id) == "run").then_some(())
    });
    let refused = world
        .rq
        .run_now("test", &id)
        .map_err(|fault| fault.to_string());
    assert_eq!(refused, Err("msg already running".to_owned()));
    world.open(&gate);
    assert_eq!(world.end("test", &id), "done");
}

#[test]
fn a_script_that_is_not_there() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let script = world.folder.path().join("test.sh");
    let aside = world.folder.path().join("aside");
    std::fs::rename(&script, &aside).expect("moved");
    let id = world.put("test", json!({}));
    let status = || world.rq.queue("test").expect("a queue").status;
    eventually("it is noticed", || {
        (status() == "SCRIPTERROR").then_some(())
    });
    assert_eq!(world.state("test", &id), "run");
    std::fs::rename(&aside, &script).expect("moved back");
    assert_eq!(world.end("test", &id), "done");
    assert_eq!(status(), "UP");
}

#[test]
fn webhooks_become_messages() {
    let world = World::new();
    world.queue("webhook", "cat >/dev/null; echo \"done $RQ_PARAM1\" >&3");
    world.queue("test", "echo done ok >&3");
    let (id, _) = world.run(
        "test",
        json!({"post_run_webhook": ["http://one/", "http://two/"]}),
    );
    let received = eventually("both are received", || {
        let done = world.rq.list("webhook", "done", 10).expect("a list");
        (done.len() == 2).then_some(done)
    });
    let shown = world.json("webhook", &received[1]);
    assert_eq!(shown["param1"], "http://one/");
    let payload: serde_json::Value =
        serde_json::from_str(shown["param2"].as_str().expect("text")).expect("json");
    assert_eq!(payload["status"], "done - ok");
    assert_eq!(payload["orig_msg_id"], json!(id));
}

/// Webhooks leave out parameters that one variable does not hold together.
#[test]
fn webhooks_hear_of_long_messages() {
    let world = World::new();
    world.queue("webhook", "cat >/dev/null; echo done >&3");
    world.queue("test", "echo done ok >&3");
    let long = "x".repeat(100_000);
    let hooks = |count: usize| json!(vec!["http://one/"; count]);
    let fields = json!({"param2": long, "param3": long, "post_run_webhook": hooks(1)});
    let (id, _) = world.run("test", fields);
    let received = eventually("it is received", || {
        let done = world.rq.list("webhook", "done", 10).expect("a list");
        done.into_iter().next()
    });
    let shown = world.json("webhook", &received);
    let payload: serde_json::Value =
        serde_json::from_str(shown["param2"].as_str().expect("text")).expect("json");
    assert_eq!(payload["orig_msg_id"], json!(id));
    assert_eq!(payload["status"], "done - ok");
    assert_eq!(payload["param3"].as_str().map(str::len), Some(100_000));
    assert!(payload["param2"].is_null(), "it is left out");
    // Each address is a copy of the message.
    for (count, may) in [(100, true), (101, false)] {
        let fields = json!({"post_run_webhook": hooks(count), "due": 4_000_000_000_u64});
        let new = quintet_scripts::NewMessage::from_json(&fields).expect("a message");
        let created = world
            .rq
            .create("test", new, quintet_scripts::Method::Commit);
        assert_eq!(created.is_ok(), may, "{count}: {created:?}");
    }
}

#[test]
fn webhooks_hear_that_a_message_was_cancelled() {
    let world = World::new();
    world.queue("webhook", "cat >/dev/null; echo done >&3");
    let goes_on = "echo run $$ >&3; while :; do sleep 0.1; done";
    world.queue("test", &format!("trap 'exit 1' TERM; {goes_on}"));
    let id = world.put("test", json!({"post_run_webhook": ["http://one/"]}));
    eventually("it runs", || {
        let status = world.status("test", &id);
        status.starts_with("run - ").then_some(())
    });
    cancel(&world, 600_000);
    let received = eventually("it is received", || {
        let done = world.rq.list("webhook", "done", 10).expect("a list");
        done.into_iter().next()
    });
    let shown = world.json("webhook", &received);
    let payload: serde_json::Value =
        serde_json::from_str(shown["param2"].as_str().expect("text")).expect("json");
    let status = payload["status"].as_str().expect("text");
    assert!(status.starts_with("cancelled"), "{payload}");
}

#[test]
fn two_hundred_at_once() {
    let many = crate::common::many(10);
    let world = World::new();
    world.queue_with(
        "test",
        "read line <\"$RQ_PARAM1\"; echo done >&3",
        json!({"num_workers": many}),
    );
    let gate = world.gate("gate");
    let ids: Vec<String> = (0..many)
        .map(|_| world.put("test", json!({"param1": gate})))
        .collect();
    eventually("all run", || {
        (world.rq.queue("test").expect("a queue").sizes.run == many as u64).then_some(())
    });
    // Opened for reading and writing it lets everybody through.
    let mut hold = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&gate)
        .expect("open");
    std::io::Write::write_all(&mut hold, &[b'\n'; 400]).expect("written");
    for id in &ids {
        assert_eq!(world.end("test", id), "done");
    }
    eventually("no zombie", || {
        (crate::common::zombies() == 0).then_some(())
    });
}

fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock").as_secs()
}

/// Not in the folder that the server happened to be started in.
#[test]
fn a_relative_script_is_in_the_folder_of_scripts() {
    let world = World::new();
    write_script(&world.root().join("mine.sh"), "echo done ok >&3");
    world.queue_with("test", "echo err other >&3", json!({"script": "mine.sh"}));
    let (_, status) = world.run("test", json!({"param1": "x"}));
    assert_eq!(status, "done - ok");
}
