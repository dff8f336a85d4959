//! Ends of the service, in order and by force, and what comes after.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use quintet_scripts::{Method, NewMessage, QueueConfig, Rq};
use quintet_sim::client_api::SimApi;
use quintet_types::Settings;
use serde_json::json;

use crate::common::{PATIENCE, World, eventually, options, write_script};

/// Runs in a process of its own, which is killed.
#[test]
#[ignore = "part of a_killed_server_leaves_nothing_running"]
fn host() {
    let Ok(folder) = std::env::var("QUINTET_TEST_ROOT") else {
        return;
    };
    let folder = Path::new(&folder);
    let config = json!({"name": "test", "script": folder.join("test.sh"), "exec_prefix": ""});
    let config = QueueConfig::from_json(&config, None).expect("a config");
    let client_api = SimApi::ticking(Settings::default());
    let rq = Rq::start(client_api, options(folder), vec![config]).expect("started");
    rq.create("test", NewMessage::default(), Method::Commit)
        .expect("made");
    // Until it is killed, or its parent is gone.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("read");
}

#[test]
fn a_killed_server_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let pids = folder.path().join("pids");
    // One that ignores TERM, one that is all its group has left.
    let script = format!(
        "trap '' TERM; (sleep 600) & echo $$ $! >{0}.new; mv {0}.new {0}; while :; do sleep 1; done",
        pids.display()
    );
    write_script(&folder.path().join("test.sh"), &script);
    let mut host = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "restart::host", "--ignored", "--nocapture"])
        .env("QUINTET_TEST_ROOT", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let running = eventually("the script runs", || fs::read_to_string(&pids).ok());
    host.kill().expect("killed");
    host.wait().expect("ended");
    let alive = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let pids: Vec<&str> = running.split_whitespace().collect();
    assert!(pids.iter().all(|pid| alive(pid)), "they outlive the server");
    let leader: i32 = pids[0].parse().expect("a number");
    let leader = rustix::process::Pid::from_raw(leader).expect("a number");
    rustix::process::kill_process(leader, rustix::process::Signal::KILL).expect("killed");
    eventually("the script is gone", || (!alive(pids[0])).then_some(()));
    assert!(alive(pids[1]), "its child process is not");
    let records = folder.path().join("rq/run");
    assert_eq!(fs::read_dir(&records).expect("read").count(), 1);
    let options = options(folder.path());
    let world = World::start(SimApi::ticking(Settings::default()), options, folder);
    assert!(
        pids.iter().all(|pid| !alive(pid)),
        "before anything else runs"
    );
    assert_eq!(fs::read_dir(&records).expect("read").count(), 0);
    drop(world);
}

#[test]
fn a_stop_puts_messages_back_and_they_run_again() {
    let world = World::new();
    // One each: what is written for two readers one of them may read alone.
    let gates = ["a", "b"].map(|name| world.gate(name));
    world.queue_with(
        "test",
        r#"trap '' TERM; echo x >>"$RQ_PARAM2"; read line <"$RQ_PARAM1"; echo "done $RQ_COUNT" >&3"#,
        json!({"num_workers": 3}),
    );
    let runs = world.folder.path().join("runs");
    let put = |gate| world.put("test", json!({"param1": gate, "param2": runs}));
    let ids = gates.each_ref().map(put);
    eventually("both run", || {
        (fs::read_to_string(&runs).unwrap_or_default().len() == 4).then_some(())
    });
    world.rq.stop();
    assert_eq!(ids.each_ref().map(|id| world.state("test", id)), ["que"; 2]);
    eventually("no zombie", || {
        (crate::common::zombies() == 0).then_some(())
    });
    let options = options(world.folder.path());
    let again = Rq::start(world.client_api.clone(), options, Vec::new()).expect("started");
    eventually("both run again", || {
        (fs::read_to_string(&runs).unwrap_or_default().len() == 8).then_some(())
    });
    for gate in &gates {
        world.open(gate);
    }
    for id in &ids {
        eventually("it is done", || {
            let done = again.status("test", id).expect("a status") == "done - 0";
            done.then_some(())
        });
    }
    again.stop();
}

#[test]
fn a_script_may_finish_while_the_service_stops() {
    // It gets all the time a busy machine makes it need.
    let world = World::with(|options| options.limits.grace = PATIENCE);
    world.queue(
        "test",
        "trap 'echo done in time >&3; exit 0' TERM; echo run on >&3; while :; do sleep 0.1; done",
    );
    let id = world.put("test", json!({}));
    eventually("it runs", || {
        (world.status("test", &id) == "run - on").then_some(())
    });
    world.rq.stop();
    assert_eq!(world.status("test", &id), "done - in time");
}

#[test]
fn queues_in_folders_are_there_again() {
    let world = World::new();
    world.queue_with("test", "echo done >&3", json!({"num_workers": 3}));
    world.rq.stop();
    let options = options(world.folder.path());
    let again = Rq::start(world.client_api.clone(), options, Vec::new()).expect("started");
    assert_eq!(
        again.queue_config("test").expect("a config")["num_workers"],
        3
    );
    again.delete_queue("test").expect("deleted");
    assert!(!again.has_queue("test"));
    again.stop();
    let options = self::options(world.folder.path());
    let third = Rq::start(world.client_api.clone(), options, Vec::new()).expect("started");
    assert!(!third.has_queue("test"));
    third.stop();
}

#[test]
fn a_folder_has_one_service() {
    let world = World::new();
    let start = || {
        let options = options(world.folder.path());
        Rq::start(world.client_api.clone(), options, Vec::new())
    };
    let refused = start().map(|_| ()).map_err(|fault| fault.to_string());
    let refused = refused.expect_err("it is taken");
    assert!(
        refused.ends_with("is in use by another server"),
        "{refused}"
    );
    world.rq.stop();
    start().expect("it is free").stop();
}

#[test]
fn rules_in_ruby_alone_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let config = options.root.join("config");
    fs::create_dir_all(&config).expect("made");
    fs::write(config.join("rq_router_rules.rb"), "rule 'default'\n").expect("written");
    let client_api = SimApi::ticking(Settings::default());
    let start = || Rq::start(client_api.clone(), options.clone(), Vec::new());
    let why = start().map(drop).expect_err("refused").to_string();
    assert!(
        why.contains("rq_router_rules.rb") && why.contains("rq_router_rules.toml"),
        "{why}"
    );
    // Nothing holds the folder; bad rules are no reason not to start.
    fs::write(config.join("rq_router_rules.toml"), "no rules").expect("written");
    let rq = start().expect("started");
    assert!(rq.rules_warning().is_some());
    rq.stop();
}
