//! Scripts and operators that do what they should not: each has a clear state
//! or error, and the service goes on.

use std::fs;
use std::time::Duration;

use quintet_scripts::{AdminOp, Fault, Method, NewMessage, QueueConfig};
use serde_json::json;

use crate::common::{World, eventually};

/// A queue whose scripts are the messages' first parameters.
fn shell(change: impl FnOnce(&mut quintet_scripts::Options)) -> World {
    let world = World::with(change);
    world.queue_with("test", r#"eval "$RQ_PARAM1""#, json!({"num_workers": 2}));
    world
}

fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().as_bytes()[0]);
    matches!(state, None | Some(b'Z' | b'X'))
}

#[test]
fn lines_without_end() {
    let world = shell(|options| options.limits.text_bytes_max = 100);
    let endless = r"head -c 3000000 /dev/zero | tr '\0' x >&3; printf '\ndone ok\n' >&3";
    assert_eq!(world.run("test", json!({"param1": endless})).1, "done - ok");
    let cut = r"printf 'done ' >&3; head -c 3000000 /dev/zero | tr '\0' x >&3; echo >&3";
    let (_, status) = world.run("test", json!({"param1": cut}));
    assert!(
        status.starts_with("done - xxx") && status.ends_with(" [cut]"),
        "{status}"
    );
    assert!(status.len() < 200);
}

#[test]
fn rubbish_on_the_pipe() {
    let world = shell(|_| {});
    let rubbish = r"head -c 1000000 /dev/urandom >&3; printf '\nerr after all\n' >&3";
    let (id, status) = world.run("test", json!({"param1": rubbish}));
    assert_eq!(status.split(' ').next(), Some("err"));
    assert!(world.json("test", &id)["status"].is_string());
    assert_eq!(
        world.run("test", json!({"param1": "echo done >&3"})).1,
        "done"
    );
}

#[test]
fn a_script_closes_its_pipe() {
    let world = shell(|_| {});
    let (_, status) = world.run(
        "test",
        json!({"param1": "echo done ok >&3; exec 3>&- 4<&-; exit 0"}),
    );
    assert_eq!(status, "done - ok");
    let (_, status) = world.run("test", json!({"param1": "exec 3>&-; exit 0"}));
    assert!(
        status.ends_with("Completion was none but exit status was 0"),
        "{status}"
    );
}

#[test]
fn a_script_forks_and_leaves() {
    let world = shell(|_| {});
    let script = "sleep 600 & echo $! >left; echo done ok >&3";
    let (id, status) = world.run("test", json!({"param1": script}));
    assert_eq!(status, "done - ok");
    let pid = world.job_file("test", &id, "left").expect("a number");
    eventually("its group has ended", || is_gone(&pid).then_some(()));
}

#[test]
fn a_script_leaves_another_session() {
    let world = shell(|_| {});
    let script = "setsid sleep 600 & echo $! >left; echo done ok >&3";
    let (id, status) = world.run("test", json!({"param1": script}));
    assert_eq!(status, "done - ok");
    let pid = world.job_file("test", &id, "left").expect("a number");
    if !is_gone(&pid) {
        let pid = pid
            .trim()
            .parse()
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let killed =
            rustix::process::kill_process(pid.expect("a number"), rustix::process::Signal::KILL);
        assert!(killed.is_ok() || killed == Err(rustix::io::Errno::SRCH));
    }
}

#[test]
fn a_script_takes_too_long_and_ignores_term() {
    let world = shell(|options| options.limits.run_time = Duration::from_millis(200));
    let script = "trap '' TERM; while :; do sleep 1; done";
    let (_, status) = world.run("test", json!({"param1": script}));
    assert_eq!(status, "err - TIME LIMIT OF 0.2 s PASSED - MOVING TO ERR");
}

#[test]
fn more_log_than_is_kept() {
    let world = shell(|options| options.limits.log_bytes_max = 1 << 20);
    let script = "head -c 100000000 /dev/zero; echo done ok >&3";
    let (id, status) = world.run("test", json!({"param1": script}));
    assert_eq!(status, "done - ok");
    let log = world.job_file("test", &id, "stdio.log").expect("a log");
    assert!(log.len() < (1 << 20) + 1000, "{}", log.len());
    assert!(log.ends_with("RQ CUT - more than this is not kept of one run\n"));
}

#[test]
fn too_much_memory() {
    let world = shell(|options| options.limits.address_space_bytes = 100 << 20);
    let script =
        "dd if=/dev/zero of=/dev/null bs=300M count=1 && echo done >&3; echo err no room >&3";
    let (_, status) = world.run("test", json!({"param1": script}));
    assert_eq!(status, "err - no room");
}

#[test]
fn a_script_that_is_open_for_writing_starts_when_it_is_closed() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let path = world.folder.path().join("test.sh");
    let writer = fs::File::options().append(true).open(path).expect("there");
    let id = world.put("test", json!({}));
    eventually("it is tried", || {
        (world.state("test", &id) != "que").then_some(())
    });
    drop(writer);
    assert_eq!(world.end("test", &id), "done");
}

#[test]
fn a_program_that_cannot_be_started() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    fs::write(world.folder.path().join("test.sh"), "#!/no/such/program\n").expect("written");
    let (id, status) = world.run("test", json!({}));
    assert!(
        status.ends_with("Completion was none but exit status was 127"),
        "{status}"
    );
    let log = world.job_file("test", &id, "stdio.log").expect("a log");
    assert!(log.contains("cannot start the script"), "{log}");
}

#[test]
fn unread_answers_are_bounded() {
    let world = shell(|_| {});
    let script = r"while :; do echo 'dup 0-X-nope' >&3; done";
    let id = world.put("test", json!({"param1": script}));
    eventually("it runs", || {
        (world.state("test", &id) == "run").then_some(())
    });
    assert_eq!(
        world.run("test", json!({"param1": "echo done >&3"})).1,
        "done"
    );
    world.rq.destroy("test", &id).expect("destroyed");
    assert!(world.end("test", &id).starts_with("err - "));
}

#[test]
fn no_room_for_a_run() {
    let world = shell(|_| {});
    world.rq.admin("test", AdminOp::Pause).expect("paused");
    let id = world.put("test", json!({"param1": "echo done >&3"}));
    let path = world.json("test", &id)["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    let day = std::path::Path::new(&path)
        .parent()
        .expect("a day")
        .to_owned();
    fs::create_dir_all(day.parent().expect("a folder")).expect("made");
    fs::write(&day, "in the way").expect("written");
    world.rq.admin("test", AdminOp::Resume).expect("resumed");
    eventually("it waits", || {
        world
            .status("test", &id)
            .starts_with("que - cannot run the script: ")
            .then_some(())
    });
    fs::remove_file(&day).expect("removed");
    world.rq.run_now("test", &id).expect("now");
    assert_eq!(world.end("test", &id), "done");
    assert_eq!(world.json("test", &id)["count"], 0);
}

#[test]
fn links_a_script_leaves_are_not_followed() {
    let world = shell(|_| {});
    let script =
        "ln -s /etc/passwd out; rm stdio.log; ln -s /etc/hostname stdio.log; echo done >&3";
    let (id, _) = world.run("test", json!({"param1": script}));
    for name in ["out", "stdio.log", "../attach/x", "..", "/etc/passwd", ""] {
        assert!(world.rq.log_path("test", &id, name).is_err(), "{name}");
    }
}

#[test]
fn names_that_are_none() {
    let world = shell(|_| {});
    for name in ["bad que", "a.b", "../x", "a/b", ""] {
        let config = QueueConfig {
            name: name.to_owned(),
            script: "/bin/true".to_owned(),
            ..QueueConfig::default()
        };
        let refused = world.rq.create_queue(config);
        assert!(
            matches!(refused, Err(Fault::BadName(_))),
            "{name}: {refused:?}"
        );
        let refused = world.rq.create(name, NewMessage::default(), Method::Commit);
        assert_eq!(refused, Err(Fault::QueueNotFound), "{name}");
    }
    for id in [
        "",
        "1",
        "../../x",
        "20200101.0000.00.000.1",
        "http://x/q/test/1",
    ] {
        assert_eq!(
            world.rq.state("test", id),
            Err(Fault::MessageNotFound),
            "{id}"
        );
    }
    let new = |param2: String| NewMessage {
        params: [None, Some(param2), None, None],
        ..NewMessage::default()
    };
    for bad in ["a\0b".to_owned(), "x".repeat(1 << 17)] {
        assert!(world.rq.create("test", new(bad), Method::Commit).is_err());
    }
}

#[test]
fn queues_are_not_made_unless_the_settings_allow_it() {
    let world = World::with(|options| options.allow_new_queue = false);
    let config = QueueConfig {
        name: "test".to_owned(),
        script: "/bin/true".to_owned(),
        ..QueueConfig::default()
    };
    assert!(matches!(
        world.rq.create_queue(config),
        Err(Fault::Denied(_))
    ));
    assert!(matches!(
        world.rq.delete_queue("test"),
        Err(Fault::Denied(_))
    ));
}
