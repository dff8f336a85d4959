//! Events that happen by themselves: cleanups, schedules, timers, linked folders, changed settings.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use quintet_scripts::{AdminOp, Method, NewMessage, QueueConfig, Rq};
use quintet_sim::client_api::SimApi;
use quintet_types::{
    Command, Ms, Name, Outcome, Put, PutMore, Settings, StatsOf, StatsReply, WallAhead,
};
use serde_json::json;

use crate::common::{World, eventually, options, write_script};

/// 2026-01-01 00:00:30 UTC.
const THEN: Ms = Ms(1_767_225_630_000);

const LOOK: Duration = Duration::from_millis(20);

/// A service whose time stands still.
fn still() -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path());
    options.limits.timers_every = LOOK;
    options.limits.scandir_every = LOOK;
    options.limits.look_every = LOOK;
    World::start(SimApi::new(Settings::default(), THEN), options, folder)
}

#[test]
fn folders_without_a_message_are_removed() {
    let world = World::with(|options| options.limits.cleanup_every = LOOK);
    world.queue("test", "echo done >&3");
    let prep = world
        .rq
        .create("test", NewMessage::default(), Method::Prep)
        .expect("prepared");
    world
        .rq
        .attach("test", &prep, "a", &mut &b"a"[..], None)
        .expect("attached");
    let (done, _) = world.run("test", json!({}));
    let path = |id: &str| {
        world.json("test", id)["path"]
            .as_str()
            .expect("a path")
            .to_owned()
    };
    let (kept, gone) = (path(&prep), path(&done));
    let orphan = world.orphan("test", "attach/a");
    let foreign = world.root().join("queue/test/msg/notes");
    fs::create_dir_all(foreign.join("mine")).expect("made");
    // As retention does it: nobody tells the service.
    let number = done
        .rsplit('.')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let by = quintet_types::By::Anyone;
    world.ask(Command::Delete {
        id: quintet_types::MessageId(number),
        by,
    });
    eventually("both are gone", || {
        let exist = fs::exists(&orphan).expect("readable") || fs::exists(&gone).expect("readable");
        (!exist).then_some(())
    });
    assert!(fs::exists(format!("{kept}/attach/a")).expect("readable"));
    assert!(fs::exists(foreign.join("mine")).expect("readable"));
}

#[test]
fn files_stay_with_a_message_that_moves() {
    let world = World::with(|options| options.limits.cleanup_every = LOOK);
    world.queue("one", "echo done >&3");
    world.queue("two", "cat ../attach/a >out; echo done >&3");
    for name in ["one", "two"] {
        world.rq.admin(name, AdminOp::Pause).expect("paused");
    }
    let id = world
        .rq
        .create("one", NewMessage::default(), Method::Prep)
        .expect("prepared");
    world
        .rq
        .attach("one", &id, "a", &mut &b"data"[..], None)
        .expect("attached");
    world.rq.commit("one", &id).expect("committed");
    let number = id
        .rsplit('.')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let (id, to) = (quintet_types::MessageId(number), Name::from("two"));
    world.ask(Command::Move { id, to });
    world.rq.admin("two", AdminOp::Resume).expect("resumed");
    let moved = eventually("it is done", || {
        world.rq.list("two", "done", 1).expect("a list").pop()
    });
    // A cleanup that finds nothing else to do has been there since.
    world.await_cleanup("one");
    let path = world
        .rq
        .attachment_path("two", &moved, "a")
        .expect("a path");
    assert_eq!(fs::read(path).expect("read"), b"data");
}

#[test]
fn copies_a_crash_cut_short_are_removed_at_the_start() {
    let client_api = SimApi::ticking(Settings::default());
    let attrs = vec![(b"copying".as_slice().into(), b"1".as_slice().into())];
    let put = Command::Put(Put {
        queue: Name::from("test"),
        more: Some(Box::new(PutMore {
            prepared: true,
            attrs,
            ..PutMore::default()
        })),
        ..Put::default()
    });
    let put = quintet_client::ScopedClient::new(&*client_api).ask(put);
    assert!(matches!(put, Outcome::Put { .. }));
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let world = World::start(client_api, options, folder);
    eventually("it is gone", || {
        (world.rq.queue("test").expect("a queue").sizes.prep == 0).then_some(())
    });
}

#[test]
fn schedules_put_early_and_once() {
    let world = still();
    let schedule = json!([{"cron": "* * * * *", "param1": "tick"}]);
    world.queue_with("test", "echo done >&3", json!({"schedule": schedule}));
    let first = eventually("the first", || {
        world.rq.list("test", "que", 9).expect("a list").pop()
    });
    let shown = world.json("test", &first);
    assert_eq!(shown["due"], (THEN.0 / 60_000 + 1) * 60);
    assert_eq!(
        (&shown["src"], &shown["param1"]),
        (&json!("cron"), &json!("tick"))
    );
    world.client_api.set_time(Ms(THEN.0 + 31_000));
    assert_eq!(world.end("test", &first), "done");
    let second = eventually("the second", || {
        world.rq.list("test", "que", 9).expect("a list").pop()
    });
    assert_eq!(
        world.json("test", &second)["due"],
        (THEN.0 / 60_000 + 2) * 60
    );
    assert_eq!(world.rq.queue("test").expect("a queue").sizes.que, 1);
}

#[test]
fn schedules_go_by_the_wall_clock_and_come_at_the_speed_of_time() {
    const MINUTE: i64 = 60_000;
    let world = still();
    // As after a start on a log from the future. 40 minutes and a half past the
    // hour, wherever this machine is.
    world.client_api.set_wall(WallAhead(-20 * MINUTE));
    let schedule = json!([{"cron": "41,11 * * * *", "param1": "tick"}]);
    world.queue_with("test", "echo done >&3", json!({"schedule": schedule}));
    let first = eventually("the first", || {
        world.rq.list("test", "que", 9).expect("a list").pop()
    });
    let due = THEN.0 + 30_000;
    assert_eq!(world.json("test", &first)["due"], due / 1000);
    // Setting the clock does not move what was put.
    world.client_api.set_wall(WallAhead(-525_600 * MINUTE));
    world.client_api.set_time(Ms(due));
    assert_eq!(world.end("test", &first), "done");
}

#[test]
fn timers() {
    let world = still();
    world.queue("test", "echo done >&3");
    let timer = world.folder.path().join("minute.json");
    let text = json!({"period": 60, "msg": {"dest": "test", "param2": "x"}}).to_string();
    fs::write(&timer, text).expect("written");
    let bad = world.folder.path().join("bad.json");
    fs::write(&bad, r#"{"period": 1, "msg": {"dest": "test"}}"#).expect("written");
    let link = world.root().join("timers/minute.json");
    symlink(&timer, &link).expect("linked");
    symlink(&bad, world.root().join("timers/bad.json")).expect("linked");
    fs::copy(&timer, world.root().join("timers/copied.json")).expect("copied");
    let done = |count: usize| {
        eventually("that many are done", || {
            let done = world.rq.list("test", "done", 9).expect("a list");
            (done.len() == count).then_some(done)
        })
    };
    let first = done(1);
    assert_eq!(world.json("test", &first[0])["param2"], "x");
    world.client_api.set_time(Ms(THEN.0 + 60_000));
    done(2);
    // Long away: one, not ten.
    world.client_api.set_time(Ms(THEN.0 + 660_000));
    done(3);
    fs::remove_file(&link).expect("removed");
    let other = world.folder.path().join("other.json");
    let text = json!({"period": 60, "msg": {"dest": "test", "param2": "y"}}).to_string();
    fs::write(&other, text).expect("written");
    symlink(&other, world.root().join("timers/other.json")).expect("linked");
    // The scan that finds this one misses the first.
    let all = done(4);
    assert_eq!(world.json("test", &all[0])["param2"], "y");
    world.client_api.set_time(Ms(THEN.0 + 720_000));
    let all = done(5);
    assert_eq!(world.json("test", &all[0])["param2"], "y");
}

#[test]
fn timers_in_yaml() {
    let world = still();
    world.queue("test", "echo done >&3");
    let link = |name: &str, text: &str| {
        let file = world.folder.path().join(name);
        fs::write(&file, text).expect("written");
        symlink(&file, world.root().join("timers").join(name)).expect("linked");
        file
    };
    // Under the least period, no YAML at all, and over 1 MiB.
    link("often.yaml", "period: 59\nmsg: {dest: test, param1: bad}\n");
    link("torn.yml", "period: 60\nmsg: {dest: test, param1: bad\n");
    let long = "# long\n".repeat(200_000) + "period: 60\nmsg: {dest: test, param1: bad}\n";
    link("long.yml", &long);
    let file = link(
        "minute.yaml",
        "period: 60\nmsg:\n  dest: test\n  param1: 007\n  src: clock\n",
    );
    link("other.yml", "period: 120\nmsg: {dest: test, param1: no}\n");
    let done = |count: usize| {
        eventually("that many are done", || {
            let done = world.rq.list("test", "done", 9).expect("a list");
            (done.len() == count).then_some(done)
        })
    };
    let params = |ids: &[String]| -> Vec<String> {
        let param = |id: &String| world.json("test", id)["param1"].as_str().map(str::to_owned);
        let mut all: Vec<String> = ids.iter().filter_map(param).collect();
        all.sort();
        all
    };
    // The second waits for its turn, 2 s behind the first.
    done(1);
    world.client_api.set_time(Ms(THEN.0 + 2000));
    let both = done(2);
    assert_eq!(params(&both), ["007", "no"]);
    let shown = both.iter().map(|id| world.json("test", id));
    let sources: Vec<_> = shown.map(|message| message["src"].clone()).collect();
    assert!(sources.contains(&json!("clock")) && sources.contains(&json!("timer")));
    world.client_api.set_time(Ms(THEN.0 + 62_000));
    assert_eq!(params(&done(3)), ["007", "007", "no"]);
    // A change counts at once, as in JSON.
    fs::write(&file, "period: 60\nmsg: {dest: test, param1: new}\n").expect("written");
    assert_eq!(params(&done(4)), ["007", "007", "new", "no"]);
}

#[test]
fn linked_folders_are_queues() {
    let world = still();
    let folder = world.folder.path().join("project");
    fs::create_dir(&folder).expect("made");
    write_script(&folder.join("run"), "echo done one >&3");
    let link = world.root().join("scandir/linked");
    symlink(&folder, &link).expect("linked");
    eventually("the queue", || world.rq.has_queue("linked").then_some(()));
    assert_eq!(world.run("linked", json!({})).1, "done - one");
    fs::write(folder.join("config.json"), r#"{"num_workers": 7}"#).expect("written");
    fs::write(folder.join("form.json"), r#"{"default": "hidden"}"#).expect("written");
    let workers = || world.rq.queue_config("linked").expect("a config")["num_workers"].clone();
    eventually("the workers change", || (workers() == 7).then_some(()));
    assert_eq!(world.rq.form("linked"), Some(json!({"default": "hidden"})));
    fs::remove_file(&link).expect("removed");
    eventually("its script is gone", || {
        let info = world.rq.queue("linked").expect("a queue");
        (!info.has_script).then_some(())
    });
    assert_eq!(world.rq.list("linked", "done", 9).expect("a list").len(), 1);
}

#[test]
fn settings_changed_by_hand() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let path = world.root().join("queue/test/config.json");
    let mut config = world.rq.queue_config("test").expect("a config");
    config["num_workers"] = json!(5);
    fs::write(&path, config.to_string()).expect("written");
    let workers = || world.rq.queue_config("test").expect("a config")["num_workers"].clone();
    eventually("the workers change", || (workers() == 5).then_some(()));
    fs::write(&path, "no json").expect("written");
    assert!(world.rq.restart("test").is_err());
    assert_eq!(workers(), 5);
    assert_eq!(world.run("test", json!({})).1, "done");
}

#[test]
fn a_reload_reads_all_queues_at_once() {
    let day = Duration::from_secs(24 * 3600);
    let world = World::with(|options| {
        let limits = &mut options.limits;
        (limits.look_every, limits.scandir_every) = (day, day);
    });
    world.queue("test", "echo done >&3");
    let path = world.root().join("queue/test/config.json");
    let changed = fs::metadata(&path)
        .expect("there")
        .modified()
        .expect("there");
    let mut config = world.rq.queue_config("test").expect("a config");
    config["num_workers"] = json!(5);
    // Nothing but the reload can tell: the time of its change is the old one.
    fs::write(&path, config.to_string()).expect("written");
    let file = fs::File::options().append(true).open(&path).expect("there");
    file.set_modified(changed).expect("set");
    world.rq.reload();
    let workers = world.rq.queue_config("test").expect("a config")["num_workers"].clone();
    assert_eq!(workers, 5);
    let linked = world.folder.path().join("linked");
    fs::create_dir(&linked).expect("made");
    write_script(&linked.join("run"), "echo done >&3");
    symlink(&linked, world.root().join("scandir/linked")).expect("linked");
    world.rq.reload();
    eventually("the link is seen", || {
        world.rq.has_queue("linked").then_some(())
    });
}

#[test]
fn files_have_the_process_while_it_serves_queues() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let pid = |name: &str| fs::read_to_string(world.root().join(name)).ok();
    let own = Some(format!("{}\n", std::process::id()));
    assert_eq!(pid("config/queuemgr.pid"), own);
    assert_eq!(pid("queue/test/queue.pid"), own);
    world.queue("gone", "echo done >&3");
    assert_eq!(pid("queue/gone/queue.pid"), own);
    world.rq.delete_queue("gone").expect("deleted");
    assert_eq!(pid("queue/gone/queue.pid"), None);
    // What a process left that was killed says nothing any more.
    let left = world.root().join("queue/gone/queue.pid");
    fs::write(&left, "1\n").expect("written");
    world.rq.stop();
    assert_eq!(pid("config/queuemgr.pid"), None);
    assert_eq!(pid("queue/test/queue.pid"), None);
    fs::write(&left, "1\n").expect("written");
    let options = options(world.folder.path());
    let again = Rq::start(world.client_api.clone(), options, Vec::new()).expect("started");
    assert_eq!(pid("queue/gone/queue.pid"), None);
    assert_eq!(pid("queue/test/queue.pid"), own);
    again.stop();
}

#[test]
fn settings_of_the_server_come_and_go() {
    let world = World::new();
    let script = world.script("own", "echo \"done $COLOUR\" >&3");
    let config = |colour: &str| QueueConfig {
        name: "own".to_owned(),
        script: script.to_string_lossy().into_owned(),
        exec_prefix: String::new(),
        env_vars: [("COLOUR".to_owned(), colour.to_owned())].into(),
        ..QueueConfig::default()
    };
    world.rq.configure(vec![config("red")]);
    assert_eq!(world.run("own", json!({})).1, "done - red");
    world.rq.configure(vec![config("blue")]);
    assert_eq!(world.run("own", json!({})).1, "done - blue");
    assert!(world.rq.delete_queue("own").is_err(), "the settings say so");
    world.rq.configure(Vec::new());
    let id = world.put("own", json!({}));
    assert_eq!(world.state("own", &id), "que");
    assert!(!world.rq.queue("own").expect("a queue").has_script);
}

/// Its consumer stood in its line until its last run was over, and a queue that is
/// waited for is made again when it is deleted.
#[test]
fn a_deleted_queue_is_gone_at_once_also_while_its_script_runs() {
    let world = World::new();
    let gate = world.gate("deleted");
    let script = format!("read go < {}", gate.display());
    world.queue_with("test", &script, json!({"num_workers": 2}));
    let id = world.put("test", json!({}));
    let waiting_peeks = || match world.ask(Command::Stats(StatsOf::Queue("test".into()))) {
        Outcome::Stats(stats) => match *stats {
            StatsReply::Queue(stats) => stats.gauges.waiting_peeks,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    eventually("its consumer waits for a second one", || {
        (world.state("test", &id) == "run" && waiting_peeks() == 1).then_some(())
    });
    world.rq.delete_queue("test").expect("deleted");
    assert!(!world.rq.has_queue("test"));
    assert_eq!(world.rq.queues(), [""; 0]);
    // So is one that is deleted as soon as it is made, whatever its consumer does.
    for round in 0..100 {
        world.queue("other", "exit 0");
        world.rq.delete_queue("other").expect("deleted");
        assert!(!world.rq.has_queue("other"), "{round}");
    }
    // The script still runs, and ends with the service.
    let rq = Arc::clone(&world.rq);
    let stop = std::thread::spawn(move || rq.stop());
    eventually("the service stops", || stop.is_finished().then_some(()));
    stop.join().expect("stopped");
}
