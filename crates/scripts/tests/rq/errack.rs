//! Errors that somebody acknowledges.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use quintet_scripts::{AdminOp, Fault};
use quintet_sim::client_api::SimApi;
use quintet_types::{
    Attachment, Body, By, Command, MessageId, Ms, Name, Outcome, Past, Put, PutMore, Settings,
    State,
};
use serde_json::json;

use crate::common::{World, eventually, options};

fn number(id: &str) -> MessageId {
    let number = id.rsplit('.').next().and_then(|text| text.parse().ok());
    MessageId(number.expect("a number"))
}

/// Messages in `err` and in `errack`, counted and listed.
#[track_caller]
fn errors(world: &World, queue: &str) -> (usize, usize) {
    let sizes = world.rq.queue(queue).expect("a queue").sizes;
    let listed = |state| world.rq.list(queue, state, 10_000).expect("a list").len();
    let (err, errack) = (listed("err"), listed("errack"));
    assert_eq!((sizes.err, sizes.errack), (err as u64, errack as u64));
    (err, errack)
}

#[test]
fn an_acknowledged_error_is_no_error_and_its_message_stays() {
    let world = World::new();
    world.queue("test", "echo \"err bad $RQ_PARAM1\" >&3");
    assert_eq!(world.rq.ack_errs("test"), Ok(0));
    assert_eq!(world.rq.ack_errs("nope"), Err(Fault::QueueNotFound));
    let (one, status) = world.run("test", json!({"param1": "one"}));
    assert_eq!(status, "err - bad one");
    let (two, _) = world.run("test", json!({"param1": "two"}));
    assert_eq!(errors(&world, "test"), (2, 0));
    assert_eq!(world.rq.ack_errs("test"), Ok(2));
    assert_eq!(errors(&world, "test"), (0, 2));
    assert_eq!(world.state("test", &one), "errack");
    assert_eq!(world.status("test", &one), "errack - bad one");
    assert_eq!(world.json("test", &one)["state"], "errack");
    let found = world
        .rq
        .search("test", &[("state".to_owned(), "errack".to_owned())], true);
    assert_eq!(found.expect("searched").0.len(), 2);
    // A later error is one.
    let (three, _) = world.run("test", json!({"param1": "three"}));
    assert_eq!(errors(&world, "test"), (1, 2));
    assert_eq!(world.state("test", &three), "err");
    // Its log is still there, and it can be cloned and deleted.
    assert!(world.job_file("test", &two, "stdio.log").is_ok());
    let clone = world.rq.clone_message("test", &two).expect("cloned");
    assert_eq!(world.end("test", &clone), "err - bad two");
    assert_eq!(errors(&world, "test"), (2, 2));
    world.rq.delete("test", &one).expect("deleted");
    assert_eq!(errors(&world, "test"), (2, 1));
    assert_eq!(world.rq.ack_errs("test"), Ok(2));
    assert_eq!(errors(&world, "test"), (0, 3));
    assert_eq!(world.rq.ack_errs("test"), Ok(0));
    world.rq.admin("test", AdminOp::Down).expect("down");
    assert_eq!(world.rq.ack_errs("test"), Err(Fault::Down));
}

#[test]
fn a_message_kicked_and_failed_again_is_an_error_again() {
    let world = World::new();
    world.queue("test", "echo err bad >&3");
    let (one, _) = world.run("test", json!({}));
    world.run("test", json!({}));
    assert_eq!(world.rq.ack_errs("test"), Ok(2));
    assert_eq!(errors(&world, "test"), (0, 2));
    // As beanstalkd's kick-job does.
    let kicked = world.ask(Command::KickId(number(&one)));
    assert!(!matches!(kicked, Outcome::Refused(_)), "{kicked:?}");
    eventually("it has run", || {
        (world.json("test", &one)["status"] == "err - bad").then_some(())
    });
    assert_eq!(errors(&world, "test"), (1, 1));
    assert_eq!(world.rq.ack_errs("test"), Ok(1));
    assert_eq!(errors(&world, "test"), (0, 2));
}

#[test]
fn a_message_moved_to_another_queue_is_an_error_there() {
    let world = World::new();
    world.queue("test", "echo err bad >&3");
    world.queue("other", "echo err bad >&3");
    world.rq.admin("other", AdminOp::Pause).expect("paused");
    let (one, _) = world.run("test", json!({}));
    let (two, _) = world.run("test", json!({}));
    assert_eq!(world.rq.ack_errs("test"), Ok(2));
    let (id, to) = (number(&one), Name::from("other"));
    world.ask(Command::Move { id, to });
    assert_eq!(errors(&world, "test"), (0, 1));
    assert_eq!(errors(&world, "other").1, 0);
    let by = By::Anyone;
    world.ask(Command::Delete {
        id: number(&two),
        by,
    });
    assert_eq!(errors(&world, "test"), (0, 0));
}

#[test]
fn it_is_durable() {
    let client_api = SimApi::ticking(Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::start(Arc::clone(&client_api), options(folder.path()), folder);
    world.queue("test", "echo err bad >&3");
    let (id, _) = world.run("test", json!({}));
    assert_eq!(world.rq.ack_errs("test"), Ok(1));
    world.rq.stop();
    let options = options(world.folder.path());
    world.rq = quintet_scripts::Rq::start(client_api, options, Vec::new()).expect("started");
    assert_eq!(world.state("test", &id), "errack");
    assert_eq!(errors(&world, "test"), (0, 1));
    world.run("test", json!({}));
    assert_eq!(errors(&world, "test"), (1, 1));
}

#[test]
fn thousands_at_once_and_what_fails_meanwhile_is_not_among_them() {
    let world = World::new();
    world.queue("test", "echo err bad >&3");
    let bury = |changed: Ms| {
        let past = Past {
            state: State::Buried,
            changed,
            ..Past::default()
        };
        let put = world.ask(Command::Put(Put {
            queue: Name::from("test"),
            body: Body::new(b"x"),
            more: Some(Box::new(PutMore {
                past: Some(Box::new(past)),
                ..PutMore::default()
            })),
            ..Put::default()
        }));
        let Outcome::Put { id, .. } = put else {
            panic!("{put:?}");
        };
        id
    };
    let ids: Vec<MessageId> = (0..2000).map(|_| bury(Ms(1))).collect();
    assert_eq!(errors(&world, "test"), (2000, 0));
    // Others delete them while they are acknowledged; what is left is.
    let number = std::thread::scope(|scope| {
        scope.spawn(|| {
            for &id in ids.iter().step_by(2) {
                let by = By::Anyone;
                world.ask(Command::Delete { id, by });
            }
        });
        world.rq.ack_errs("test").expect("acknowledged")
    });
    assert!((1000..=2000).contains(&number), "{number}");
    assert_eq!(errors(&world, "test"), (0, 1000));
    world.run("test", json!({}));
    assert_eq!(errors(&world, "test"), (1, 1000));
}

#[test]
fn files_stay_with_one_that_had_moved() {
    let world = World::with(|options| options.limits.cleanup_every = Duration::from_millis(20));
    world.queue("one", "echo done >&3");
    world.queue("two", "echo err bad >&3");
    // As a message is that was carried to another shard: it has a new id, and
    // its files are where they were.
    let dir = "queue/one/msg/20190101/20190101.0000.00.000.98";
    let put = world.ask(Command::Put(Put {
        queue: Name::from("two"),
        more: Some(Box::new(PutMore {
            attrs: vec![(b"dir".as_slice().into(), dir.as_bytes().into())],
            attachments: vec![Attachment {
                name: b"a".as_slice().into(),
                len: 4,
                md5: [0; 16],
            }],
            past: Some(Box::new(Past {
                state: State::Buried,
                changed: Ms(1),
                ..Past::default()
            })),
            ..PutMore::default()
        })),
        ..Put::default()
    }));
    assert!(matches!(put, Outcome::Put { .. }), "{put:?}");
    assert_eq!(world.rq.ack_errs("two"), Ok(1));
    let day = world.folder.path().join("20190101");
    let own = day.join("20190101.0000.00.000.98/attach");
    fs::create_dir_all(&own).expect("made");
    fs::write(own.join("a"), "data").expect("written");
    let messages = world.root().join("queue/one/msg");
    fs::create_dir_all(&messages).expect("made");
    fs::rename(day, messages.join("20190101")).expect("put there");
    world.await_cleanup("one");
    let id = world.rq.list("two", "errack", 1).expect("a list").pop();
    let path = world
        .rq
        .attachment_path("two", &id.expect("one"), "a")
        .expect("a path");
    assert_eq!(fs::read(path).expect("read"), b"data");
}
